// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The values that a loop carries through memory: one element each (for each iteration of loops
// inside), read, updated and written again in every iteration.

#ifndef ATTN_LIB_TRANSFORMS_LOOPS_RUNNINGVALUES_H
#define ATTN_LIB_TRANSFORMS_LOOPS_RUNNINGVALUES_H

#include "attn/Analysis/DependenceGraph.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "llvm/ADT/SetVector.h"

namespace attn::detail {

/// Why a loop stays as it is, and the op that the reason is about.
struct Refusal {
  mlir::Operation *op = nullptr;
  std::string reason;

  mlir::LogicalResult set(mlir::Operation *where, const llvm::Twine &why) {
    op = where;
    reason = why.str();
    return mlir::failure();
  }
};

struct RunningValue {
  mlir::affine::AffineLoadOp load;
  mlir::affine::AffineStoreOp store;
  mlir::Value before, after; ///< What is loaded, what is stored.
  std::string name;          ///< Of the memory.
  std::string statement;     ///< Which one computes `after`, "S7".
  bool isExtremum = false;   ///< A maximum or minimum.
  mlir::Value score;         ///< Of a maximum: `after` is max(before, score).
  /// Other running values of the loop, by number, that the update reads.
  llvm::SmallVector<unsigned> reads;
};

/// Whether `loop` carries a component of which another statement reads a value in the loop: one
/// that is not final.
bool hasObservedComponent(const DependenceGraph &graph, unsigned loop);

/// Finds the values that `loop` carries. Fails where it writes anything else, where a statement
/// reads memory that the loop writes, or where a running value is not one element that lives as
/// long as the loop runs.
mlir::FailureOr<llvm::SmallVector<RunningValue>>
findRunningValues(const DependenceGraph &graph, mlir::affine::AffineForOp loop, Refusal &refusal);

/// Adds the ops inside `loop` that `roots` are computed from to `slice`; values of which `isLeaf`
/// is true are not followed.
void addSlice(llvm::ArrayRef<mlir::Value> roots, mlir::affine::AffineForOp loop,
              llvm::function_ref<bool(mlir::Value)> isLeaf,
              llvm::SetVector<mlir::Operation *> &slice);

} // namespace attn::detail

#endif
