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
/// cannot pass: tensors and scalars, and memrefs where the target takes them.
llvm::Expected<llvm::SmallVector<ValueType>>
getValueTypes(mlir::TypeRange types, llvm::StringRef what, bool memrefs = false);

/// Errors where an entry of an option names a position that there is not;
/// `what` there are `count` of in `function`.
llvm::Error checkPositions(llvm::StringRef option,
                           llvm::ArrayRef<std::pair<unsigned, std::string>> entries, size_t count,
                           llvm::StringRef what, llvm::StringRef function);

/// Fills by a description, see --fill; `option` stands in messages, `stream`
/// numbers the random sequence.
llvm::Error fillTensor(const HostTensor &tensor, llvm::StringRef how, const Options &options,
                       uint64_t stream, const llvm::Twine &option);

/// A value to call a function with; a scalar is a tensor of rank 0.
struct Operand {
  ValueType type;
  const HostTensor *value;
};

class Arguments {
public:
  /// Reads the headers of the files, and settles all shapes.
  static llvm::Expected<Arguments> plan(mlir::func::FuncOp function, const Options &options,
                                        ShapeRules &rules, bool memrefs);

  /// Allocates and fills.
  llvm::Error create(const Options &options);

  llvm::ArrayRef<ValueType> getTypes() const { return types; }
  llvm::ArrayRef<ShapeRules::Shape> getShapes() const { return shapes; }
  llvm::ArrayRef<HostTensor> getValues() const { return values; }
  llvm::SmallVector<Operand> getOperands() const;

private:
  llvm::SmallVector<ValueType> types;
  llvm::SmallVector<ShapeRules::Shape> shapes;
  llvm::SmallVector<std::optional<NpyFile>> files;
  std::vector<HostTensor> values;
};

} // namespace attn

#endif
