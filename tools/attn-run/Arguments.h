// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The values that a function is called with.

#ifndef ATTN_TOOLS_ATTN_RUN_ARGUMENTS_H
#define ATTN_TOOLS_ATTN_RUN_ARGUMENTS_H

#include "Options.h"
#include "attn/Runtime/Npy.h"
#include "attn/Runtime/ShapeRules.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// A tensor or scalar type of the function's signature.
struct ValueType {
  ElementKind kind;
  bool isTensor;
};

/// The kinds of a function's arguments or results, or which of them the runner
/// cannot pass.
llvm::Expected<llvm::SmallVector<ValueType>>
getValueTypes(mlir::TypeRange types, llvm::StringRef what);

class Arguments {
public:
  /// Reads the headers of the files, and settles all shapes.
  static llvm::Expected<Arguments>
  plan(mlir::func::FuncOp function, const Options &options, ShapeRules &rules);

  /// Allocates and fills.
  llvm::Error create(const Options &options);

  llvm::ArrayRef<ValueType> getTypes() const { return types; }
  llvm::ArrayRef<ShapeRules::Shape> getShapes() const { return shapes; }
  /// A scalar is a tensor of rank 0.
  llvm::ArrayRef<HostTensor> getValues() const { return values; }

private:
  llvm::SmallVector<ValueType> types;
  llvm::SmallVector<ShapeRules::Shape> shapes;
  llvm::SmallVector<std::optional<NpyFile>> files;
  std::vector<HostTensor> values;
};

} // namespace attn

#endif
