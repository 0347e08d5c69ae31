// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Launches of threads: what passes that emit them have in common.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_THREADLAUNCH_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_THREADLAUNCH_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn::hopper {

/// Lanes of a warp.
constexpr int64_t kLanes = 32;

/// Shared memory of a CTA: `count` elements.
mlir::MemRefType getSharedType(mlir::Type element, int64_t count);

/// A launch of `grid` CTAs of `threads` threads, in clusters of `ctas` (1: none), with shared
/// memory of the types `cells`, such that `occupancy` CTAs share a multiprocessor (0: not said).
/// The builder is left inside, in front of its end.
mlir::gpu::LaunchOp createThreadLaunch(mlir::ImplicitLocOpBuilder &b, mlir::Value grid,
                                       int64_t threads, int64_t ctas,
                                       llvm::ArrayRef<mlir::Type> cells, int64_t occupancy);

} // namespace attn::hopper

#endif
