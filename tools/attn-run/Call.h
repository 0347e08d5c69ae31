// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of compiled functions with tensors and scalars.

#ifndef ATTN_TOOLS_ATTN_RUN_CALL_H
#define ATTN_TOOLS_ATTN_RUN_CALL_H

#include "Arguments.h"
#include "attn/Runtime/CpuExecutable.h"

namespace attn {

/// One function with all of its arguments, ready to be called repeatedly.
class Call {
public:
  /// Computes the results' shapes with the function's shape function, allocates
  /// them, and fills them with NaN (integers: the largest value).
  static llvm::Expected<Call> prepare(CpuExecutable &executable,
                                      mlir::func::FuncOp function,
                                      llvm::ArrayRef<Operand> arguments,
                                      bool guard);

  void run() { function(slots.data()); }
  const HostTensor &getResult(unsigned index) const { return results[index]; }
  llvm::ArrayRef<ValueType> getResultTypes() const { return types; }
  uint64_t getResultBytes() const;
  /// Moves scalar results to their tensors; after a run.
  void storeScalars();

private:
  void bind(llvm::ArrayRef<Operand> arguments);

  CpuExecutable::Packed function = nullptr;
  std::vector<HostTensor> results;
  llvm::SmallVector<ValueType> types;
  /// Descriptors, pointers to them, and pointers to those: what the C interface
  /// takes through an array.
  std::vector<llvm::SmallVector<int64_t, 16>> descriptors;
  std::vector<void *> pointers;
  std::vector<void *> slots;
  /// Scalar results, laid out as a C struct.
  std::vector<int64_t> scalars;
  void *scalarStruct = nullptr;
};

} // namespace attn

#endif
