// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which sizes of a function's tensors must be equal: classes of dimensions,
// joined by the ops that force it. Sizes that the caller does not give follow
// from those that it does, and a call whose sizes disagree is refused before
// any code runs.

#ifndef ATTN_RUNTIME_SHAPERULES_H
#define ATTN_RUNTIME_SHAPERULES_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <optional>

namespace mlir::func {
class FuncOp;
}

namespace attn {

class ShapeRules {
public:
  /// Reads the rules off the ops of the function's body.
  explicit ShapeRules(mlir::func::FuncOp function);

  static constexpr int64_t unknown = -1;
  using Shape = llvm::SmallVector<int64_t, 4>;

  /// Fills the unknown sizes of the arguments' shapes (empty ones stand for
  /// scalars) and checks all of them: against the types, against each other,
  /// and that query heads are a multiple of key heads. The error names argument
  /// and dimension.
  llvm::Error solve(llvm::MutableArrayRef<Shape> shapes);

  /// A size after solve(), where the rules determine it.
  std::optional<int64_t> getSize(mlir::Value tensor, unsigned dim);

  /// A number that dimensions have in common where they must be equal.
  unsigned getClass(mlir::Value tensor, unsigned dim) { return root(node(tensor, dim)); }

  /// Query and key of each op whose query heads are a multiple of its key heads.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>> getGroupedHeads();

  /// "key (argument 1)".
  std::string describe(mlir::Value tensor);

private:
  unsigned node(mlir::Value tensor, unsigned dim);
  unsigned root(unsigned node);
  void join(mlir::Value a, unsigned aDim, mlir::Value b, unsigned bDim);
  void joinShapes(mlir::Value a, mlir::Value b);
  void addRules(mlir::Operation *op);
  template <typename OpTy> void addAttention(OpTy op);
  template <typename OpTy> void addCaptureGradients(OpTy op);
  template <typename OpTy> void addTangents(OpTy op);
  void addStructured(mlir::Operation *op);
  llvm::Error addFact(mlir::Value tensor, unsigned dim, int64_t size);
  llvm::Error checkHeads();

  struct Fact {
    int64_t size;
    mlir::Value tensor;
    unsigned dim;
  };
  llvm::DenseMap<std::pair<mlir::Value, unsigned>, unsigned> nodes;
  llvm::SmallVector<unsigned> parents;
  llvm::DenseMap<unsigned, Fact> facts; // by root, after solve()
  mlir::Operation *function;
};

} // namespace attn

#endif
