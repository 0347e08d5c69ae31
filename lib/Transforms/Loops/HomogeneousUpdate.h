// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether an update x = x * c(r_old, r_new) + t(r_new), with running values r of the same loop, is
// homogeneous: t changes with r by the factor that c is made of. Then all terms may be taken with
// the final r, and the start value scaled once, from the first r to the final one.

#ifndef ATTN_LIB_TRANSFORMS_LOOPS_HOMOGENEOUSUPDATE_H
#define ATTN_LIB_TRANSFORMS_LOOPS_HOMOGENEOUSUPDATE_H

#include "ScalarDegrees.h"

namespace attn::detail {

/// What the update of a running value is made of.
struct HomogeneousUpdate {
  bool isScaled = false; ///< The factor is not 1.
  bool hasTerm = false;
};

/// Fails, with the reason, where the update of `value`, which reads other running values, is not
/// homogeneous in them.
mlir::FailureOr<HomogeneousUpdate>
matchHomogeneousUpdate(unsigned value, llvm::ArrayRef<RunningValue> values, ScalarDegrees &degrees,
                       mlir::affine::AffineForOp loop, Refusal &refusal);

} // namespace attn::detail

#endif
