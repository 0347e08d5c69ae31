// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Proof that an iteration of a fold loop in which a mask is false everywhere
// gives neutral terms to every reduction along the mask's dimensions.

#ifndef ATTN_LIB_TRANSFORMS_TILES_NEUTRALTERMS_H
#define ATTN_LIB_TRANSFORMS_TILES_NEUTRALTERMS_H

#include "MaskPredicate.h"

namespace attn::tiles {

/// Why a loop's mask must stay as it is: the op to blame and the reason.
struct NeutralityFailure {
  mlir::Operation *op = nullptr;
  std::string reason;
};

/// The condition of a select that keeps elements where it equals `keeps` and
/// puts a neutral constant elsewhere.
struct Condition {
  mlir::Value value;
  bool keeps = true;

  bool operator==(const Condition &other) const {
    return value == other.value && keeps == other.keeps;
  }
};

/// Follows a condition that keeps nothing through the loop body. Nothing if all
/// reductions along one of its dimensions, or along one that the loop steps
/// through, see neutral terms only: -inf into a maximum, 0 into a sum or a
/// contraction. By the contract of attn.fold_loop such an iteration leaves the state
/// as it is.
std::optional<NeutralityFailure> findNonNeutralTerms(LoopUniforms &uniforms,
                                                     const Condition &condition);

/// Whether `value`, which may follow from the condition's own selects in the branches around
/// masks of its block, is 0 where the condition does not keep.
bool isZeroWhereDropped(const Condition &condition, mlir::Value value);

/// The condition, if `op` is a vector select with a neutral constant.
std::optional<Condition> getMaskCondition(mlir::Operation *op);

} // namespace attn::tiles

#endif
