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

/// Follows `keep` == false through the loop body. Nothing if all reductions
/// along a dimension of `keep`, or along one that the loop steps through, see
/// neutral terms only: -inf into a maximum, 0 into a sum or a contraction. By
/// the contract of attn.fold such an iteration leaves the state as it is.
std::optional<NeutralityFailure> findNonNeutralTerms(LoopUniforms &uniforms,
                                                     mlir::Value keep);

/// True if the op is a select of a neutral constant where `keep` is false.
bool isMaskingSelect(mlir::Operation *op);

} // namespace attn::tiles

#endif
