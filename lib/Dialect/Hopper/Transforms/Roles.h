// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Roles of warpgroups by their names (hopper-create-launches and hopper-specialize-warps give
// them), and what several passes over their bodies ask.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROLES_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROLES_H

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace attn::hopper {

inline constexpr llvm::StringLiteral kLoadRole = "load", kAddRole = "add", kComputeRole = "compute";

/// The number of the role that computes; of several (hopper-divide-sums), the last one. Nothing
/// where no name begins with "compute".
std::optional<unsigned> findComputeRole(RolesOp roles);

/// Has a launch give the shared memory that its allocations take.
void giveSharedMemory(mlir::gpu::LaunchOp launch);

/// The first op of `block` that reads a tile or a part of it, or holds one that does.
mlir::Operation *findFirstReader(mlir::Block *block, mlir::Value tile);

} // namespace attn::hopper

#endif
