// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How values change with a running reduction (the algebra of L1).
//
// For a pivot r, the degree of a value v is
//   Invariant    v does not depend on r
//   Shift(k)     v(r + d) = v(r) + k d
//   Scale(k)     v(r + d) = v(r) exp(k d)
//   Power(k)     v(r c)   = v(r) c^k         (c > 0)
// A sum of terms of one Scale or Power degree has that degree again, which is
// what makes a carried sum correctable when r changes.
//
// The dependence graph says that such a reader closes a cycle; that the cycle may be broken is an
// algebraic property of the statements' bodies, which no graph shows.

#ifndef ATTN_LIB_TRANSFORMS_NEST_HOMOGENEITY_H
#define ATTN_LIB_TRANSFORMS_NEST_HOMOGENEITY_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

struct Degree {
  enum class Kind { Invariant, Shift, Scale, Power, Unknown };
  Kind kind = Kind::Invariant;
  double k = 0;
  /// For Unknown: the op that breaks the form.
  mlir::Operation *reason = nullptr;

  bool operator==(const Degree &other) const;
  static Degree shift(double k) { return make(Kind::Shift, k); }
  static Degree scale(double k) { return make(Kind::Scale, k); }
  static Degree power(double k) { return make(Kind::Power, k); }
  static Degree unknown(mlir::Operation *op) { return {Kind::Unknown, 0, op}; }

private:
  static Degree make(Kind kind, double k) { return k == 0 ? Degree{} : Degree{kind, k, nullptr}; }
};

class Homogeneity {
public:
  /// Degrees in `pivot`, whose own degree is `degree`. Tensors in `fixed` count
  /// as invariant: their influence is accounted for elsewhere.
  Homogeneity(mlir::Value pivot, Degree degree, const llvm::DenseSet<mlir::Value> &fixed);

  /// The degree of a tensor: the pivot, the result of a statement, or anything
  /// else, which is invariant.
  Degree ofTensor(mlir::Value tensor);
  /// The degree of the result of a statement as it is computed, whether or not
  /// its readers count it as fixed; of a reduction, that of its terms: what it
  /// starts from can be added at the end.
  Degree ofStatement(mlir::Value tensor);

private:
  Degree ofScalar(mlir::Value value, mlir::linalg::GenericOp op);
  Degree ofOp(mlir::Operation *scalar, mlir::linalg::GenericOp op);
  Degree ofSelect(mlir::Operation *select, mlir::linalg::GenericOp op);

  const llvm::DenseSet<mlir::Value> &fixed;
  llvm::DenseMap<mlir::Value, Degree> degrees;
};

} // namespace attn

#endif
