// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The running maximum of a loop of tiles, and the sums under it.

#ifndef ATTN_TRANSFORMS_TILES_RUNNINGMAXIMUM_H
#define ATTN_TRANSFORMS_TILES_RUNNINGMAXIMUM_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>
#include <optional>

namespace attn {

/// What becomes of a value where the maxima of before and of now are taken smaller by x and
/// by y, per row: with z = `before` x + `now` y it becomes smaller by z (a shift) or 2^-z times
/// as large (a scale); neither where both are 0.
struct Degree {
  bool isShift = false;
  double before = 0, now = 0;

  bool isInvariant() const { return before == 0 && now == 0; }
  bool operator==(const Degree &other) const {
    return (isShift == other.isShift || isInvariant()) && isClose(before, other.before) &&
           isClose(now, other.now);
  }
  /// Constants in the IR, such as ln 2, are rounded to f32.
  static bool isClose(double x, double y) { return std::abs(x - y) <= 1e-6; }
};
/// Nothing is known of other values.
using Known = std::optional<Degree>;

/// A running maximum that a loop carries, and what it may be replaced by.
class RunningMaximum {
public:
  RunningMaximum(mlir::scf::ForOp loop, unsigned index);

  /// Whether results are the same for any smaller maximum. A remark says why not, unless there
  /// is nothing to rescale.
  bool prove();

  // Known once it is proved:

  mlir::scf::ForOp getLoop() const { return loop; }
  mlir::BlockArgument getOld() const { return old; }
  mlir::arith::MaxNumFOp getNext() const { return next; }
  /// What the loop carries in proportion to the exponentials: its arguments.
  llvm::ArrayRef<mlir::BlockArgument> getSums() const { return sums; }
  /// Products in the loop with 2^(old - new), or the like.
  llvm::ArrayRef<mlir::arith::MulFOp> getRescalings() const { return rescalings; }
  bool isRescaling(mlir::Value value);
  /// Whether it becomes larger or smaller with the maximum by a factor that depends on that.
  bool isScaled(mlir::Value value);

private:
  void collectUsers(llvm::ArrayRef<mlir::Value> values, llvm::SetVector<mlir::Operation *> &users);
  bool check(mlir::Operation *op);
  bool refuse(mlir::Operation *op, llvm::StringRef why);
  Known find(mlir::Value value);
  Known ofOp(mlir::Operation *op, mlir::Value value);
  Known ofCompare(mlir::arith::CmpFOp compare);
  Known ofSelect(mlir::arith::SelectOp select);
  Known allInvariant(mlir::Operation *op);

  mlir::scf::ForOp loop;
  mlir::BlockArgument old;
  mlir::Value result;
  mlir::arith::MaxNumFOp next;
  llvm::DenseMap<mlir::Value, Known> degrees;
  llvm::SmallVector<mlir::BlockArgument> sums;
  llvm::SmallVector<mlir::arith::MulFOp> rescalings;
};

} // namespace attn

#endif
