// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How scalars of a loop's body change with its running values: the degrees of
// Transforms/Nest/Homogeneity.h for several pivots at once, where a value before its update and
// after it are two symbols. A scalar is, as far as is known,
//   a sum      sum_r k_r r + rest                     (Shift)
//   a product  prod_r exp(k_r r) r^q_r * rest         (Scale and Power)
// with a rest that no running value has a part in.

#ifndef ATTN_LIB_TRANSFORMS_LOOPS_SCALARDEGREES_H
#define ATTN_LIB_TRANSFORMS_LOOPS_SCALARDEGREES_H

#include "RunningValues.h"
#include "llvm/ADT/DenseMap.h"
#include <map>
#include <optional>
#include <set>

namespace attn::detail {

/// A running value before or after its update.
struct Symbol {
  unsigned value;
  bool isAfter;
  /// r == -inf ? 0 : r, of a maximum r.
  bool isGuarded = false;
  /// What it is multiplied with, where that is no constant: a value from outside of the loop.
  const void *factor = nullptr;

  auto asTuple() const { return std::make_tuple(value, isAfter, isGuarded, factor); }
  bool operator<(const Symbol &other) const { return asTuple() < other.asTuple(); }
};

/// Coefficients or exponents, none of them 0.
using Degrees = std::map<Symbol, double>;

/// A scalar as a function of running values; one that depends on none is a sum and a product
/// without degrees.
struct ScalarForm {
  bool isSum = false, isProduct = false;
  Degrees shifts;            ///< Of the sum.
  Degrees exponents, powers; ///< Of the product.
  bool restIsZero = false;   ///< Of the sum.
  bool restIsOne = false;    ///< Of the product.
  /// The maxima that make the sum -inf or inf, the product 0, where their score is -inf.
  std::set<unsigned> minusInfinity, infinity, zero;
  mlir::Operation *broken = nullptr; ///< Where it is neither: the op that breaks the form.

  bool isInvariant() const {
    return isSum && isProduct && shifts.empty() && exponents.empty() && powers.empty();
  }
  bool has(unsigned value) const;
};

/// An update as a linear function of the old value: old * factor + term.
struct Update {
  ScalarForm factor;
  std::optional<ScalarForm> term;    ///< None: nothing is added.
  mlir::Operation *broken = nullptr; ///< Where it is not linear: the op that breaks the form.
};

class ScalarDegrees {
public:
  ScalarDegrees(mlir::affine::AffineForOp loop, llvm::ArrayRef<RunningValue> values);

  const ScalarForm &of(mlir::Value value);
  Update ofUpdate(unsigned value);
  /// Whether `scalar`, computed beside the update of a running value, depends on its old value.
  bool isOnSpine(mlir::Value scalar, const RunningValue &value);
  /// The operand of an op of the spine through which the old value comes; null if there are two.
  mlir::OpOperand *getSpineOperand(mlir::Operation *op, const RunningValue &value);

private:
  ScalarForm compute(mlir::Value value);
  ScalarForm ofOp(mlir::Operation *op);
  ScalarForm ofSelect(mlir::Operation *select);
  std::optional<ScalarForm> ofGuard(mlir::Operation *select);
  Update ofSpine(mlir::Value scalar, const RunningValue &value);

  mlir::affine::AffineForOp loop;
  llvm::ArrayRef<RunningValue> values;
  llvm::DenseMap<mlir::Value, Symbol> symbols;
  llvm::DenseMap<mlir::Value, ScalarForm> forms;
};

/// Up to rounding of products of constants.
bool isSame(double a, double b);

} // namespace attn::detail

#endif
