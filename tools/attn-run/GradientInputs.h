// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a gradient function takes besides the arguments of the entry: saved
// results, and the incoming gradients of the results that are float tensors.

#ifndef ATTN_TOOLS_ATTN_RUN_GRADIENTINPUTS_H
#define ATTN_TOOLS_ATTN_RUN_GRADIENTINPUTS_H

#include "Call.h"

namespace attn {

class GradientInputs {
public:
  /// Checks the options and reads the headers of the files.
  static llvm::Expected<GradientInputs> plan(mlir::func::FuncOp entry, mlir::func::FuncOp gradient,
                                             const Options &options);

  /// Allocates and fills. `forward` has run; its results are taken as they lie
  /// where `saved`, or copied where arguments are to be padded.
  llvm::Error create(const Call &forward, bool saved, const Options &options);

  /// The saved results, then the incoming gradients.
  llvm::SmallVector<Operand> getOperands() const;
  llvm::ArrayRef<HostTensor> getIncoming() const { return incoming; }
  /// The positions of the entry's float tensor results.
  llvm::ArrayRef<unsigned> getPositions() const { return positions; }

private:
  llvm::Error createIncoming(const HostTensor &result, unsigned index, const Options &options);

  llvm::SmallVector<unsigned> positions;
  llvm::SmallVector<ValueType> types;
  llvm::SmallVector<std::optional<NpyFile>> files;
  std::vector<HostTensor> copies, incoming;
  llvm::SmallVector<const HostTensor *> savedResults;
};

} // namespace attn

#endif
