// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes from tile programs to the protocol form of the hopper dialect, in the
// order in which a pipeline runs them. See Passes.td and docs/hopper.md.

#ifndef ATTN_DIALECT_HOPPER_TRANSFORMS_PASSES_H
#define ATTN_DIALECT_HOPPER_TRANSFORMS_PASSES_H

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Pass/Pass.h"

namespace attn {
namespace hopper {
/// Rows of a tile program without products of matrices: so that several have the same
/// tiles, and can become one.
inline constexpr int64_t kProgramRows = 2 * kWarpgroupRows;

/// From where on the rounding of a maximum in base 2, which is the unit of exponents, is too much
/// for weights that are not all rounded alike.
inline constexpr double kLargeMaximum = 4096;
} // namespace hopper

#define GEN_PASS_DECL
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

#endif
