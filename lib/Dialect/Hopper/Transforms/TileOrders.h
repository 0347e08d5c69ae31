// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Persistent CTAs, and the order in which they take the tiles of a launch.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_TILEORDERS_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_TILEORDERS_H

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace attn::hopper {

/// The number of a CTA, or of a cluster, whose tiles are taken as one.
mlir::Value getUnit(mlir::gpu::LaunchOp launch);

/// Launches at most `ctas` CTAs, each of which runs the roles for several tiles: in an order that
/// gives each as much work, by what `positions`, where the roles compute the coordinates of a
/// tile, say of it.
void makePersistent(mlir::gpu::LaunchOp launch, RolesOp roles,
                    llvm::ArrayRef<mlir::affine::AffineDelinearizeIndexOp> positions, int64_t ctas);

} // namespace attn::hopper

#endif
