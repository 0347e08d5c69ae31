// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The state of reverse mode over one block: which values depend on the inputs,
// and the sum of the gradients that the uses of each have contributed.

#ifndef ATTN_LIB_DIALECT_ATTN_TRANSFORMS_ADJOINTS_H
#define ATTN_LIB_DIALECT_ATTN_TRANSFORMS_ADJOINTS_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// Whether values of `type`, a scalar or shaped, carry gradients.
bool carriesGradient(mlir::Type type);

/// The type that the gradient of a `type` is computed in: the same shape, of
/// f64 where the elements are, else of f32.
mlir::Type getAdjointType(mlir::Type type);

/// False for floats that the adjoint type cannot hold, such as f128.
bool hasAdjointType(mlir::Type type);

/// The number `value`, in the type (float or integer) and sizes of `like`.
mlir::Value constantLike(mlir::ImplicitLocOpBuilder &b, double value, mlir::Value like);

/// A tensor of zeros of `type`, with the dynamic sizes of `like`.
mlir::Value zeroTensor(mlir::ImplicitLocOpBuilder &b, mlir::RankedTensorType type,
                       mlir::Value like = {});

class Adjoints {
public:
  explicit Adjoints(mlir::ImplicitLocOpBuilder &b) : b(b) {}

  /// Values that the inputs, marked by activate, flow into. Only they have
  /// adjoints.
  void activate(mlir::Value value) { active.insert(value); }
  bool isActive(mlir::Value value) const { return active.contains(value); }
  /// Whether `op`, or an op in its regions, reads an active value.
  bool readsActive(mlir::Operation *op) const;
  /// Marks the float results of an op that reads an active value.
  void propagate(mlir::Operation *op);

  /// Adds to the adjoint of `value`, if that is active. The contribution is of
  /// the value's type or of its adjoint type; that of a scalar may be a tensor
  /// without dimensions. `guarded` says that the contribution is 0 where the
  /// value is on the side that a select did not take, or was not read.
  void add(mlir::Value value, mlir::Value contribution, bool guarded = false);
  bool has(mlir::Value value) const { return sums.contains(value); }
  bool isGuarded(mlir::Value value) const { return sums.lookup(value).guarded; }
  /// The adjoint in its adjoint type, or in `type`, which differs by element
  /// type, or is a tensor without dimensions for a scalar; null where nothing
  /// was added.
  mlir::Value get(mlir::Value value);
  mlir::Value getAs(mlir::Value value, mlir::Type type);

private:
  struct Sum {
    mlir::Value value;
    bool guarded = false;
  };
  mlir::ImplicitLocOpBuilder &b;
  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, Sum> sums;
};

} // namespace attn

#endif
