// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Building and reading statements: linalg.generic ops whose indexing maps are
// projections of one iteration space.

#ifndef ATTN_UTILS_STATEMENT_H
#define ATTN_UTILS_STATEMENT_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <optional>

namespace attn {

/// Emits the statement's scalar: takes the inputs and the output's old value.
using StatementBody =
    llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::ValueRange)>;

/// A tensor and the loops that index its dimensions.
struct Access {
  mlir::Value tensor;
  llvm::ArrayRef<unsigned> loops;
};

/// Builds a statement over `domain` loops that reads `inputs` and writes `out`
/// (whose old values the body receives last). Loops that index no dimension of
/// `out` are reduced.
mlir::Value buildStatement(mlir::ImplicitLocOpBuilder &b, unsigned domain,
                           llvm::ArrayRef<Access> inputs, Access out, StatementBody body);

/// The constant -inf of a float type.
mlir::Value minusInfinity(mlir::OpBuilder &b, mlir::Location loc, mlir::Type type);

/// How a reduction combines: `combiner` joins the running value with `term`.
struct Reduction {
  enum class Monoid { Add, Mul, Max, Min };
  Monoid monoid;
  mlir::Operation *combiner;
  mlir::Value term;
};

/// The reduction that result `index` of `op` computes: its body combines the
/// output's old value once, by an associative and commutative op, with a term
/// that does not depend on it. Nothing otherwise.
std::optional<Reduction> matchReduction(mlir::linalg::GenericOp op, unsigned index);

/// A sum at computed indices: of the terms `value` where all of `conditions`
/// hold, each counts for the one element that `indices` name (the loop over a
/// dimension of the result, and its index).
struct ScatterSum {
  mlir::Value value;
  llvm::SmallVector<mlir::Value> conditions;
  llvm::SmallVector<std::pair<unsigned, mlir::Value>> indices;
};

/// The form of `op` as such a sum: it adds select(index == linalg.index n, x, 0)
/// (several such comparisons, joined by andi or nested) over a parallel loop n
/// on which neither index nor x depends. Nothing otherwise.
std::optional<ScatterSum> matchScatterSum(mlir::linalg::GenericOp op);

/// The value that a tensor is filled with, where it is a linalg.fill.
mlir::Value getFillValue(mlir::Value tensor);

/// Whether `tensor` is filled with the neutral element of `monoid`.
bool isNeutralFill(mlir::Value tensor, Reduction::Monoid monoid);

/// The neutral element of `monoid` in a float type.
mlir::FloatAttr getNeutralElement(mlir::Builder &b, Reduction::Monoid monoid, mlir::Type type);

/// The loop that indexes dimension `dim` in `map`; nothing where the access is
/// not a projection there.
std::optional<unsigned> getLoop(mlir::AffineMap map, unsigned dim);

} // namespace attn

#endif
