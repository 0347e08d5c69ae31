// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What several passes ask and tell about loops.

#ifndef ATTN_TRANSFORMS_PROGRAMS_LOOPS_H
#define ATTN_TRANSFORMS_PROGRAMS_LOOPS_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace attn::programs {

/// What makes a loop over tiles stay one, if there is a single tile: it is mapped to blocks, and
/// canonicalisation folds no dimension that is mapped to something.
inline mlir::ArrayAttr getBlockMapping(mlir::MLIRContext *context, int64_t rank) {
  llvm::SmallVector<mlir::Attribute> blocks;
  for (int64_t dim = 0; dim < rank; ++dim)
    blocks.push_back(mlir::gpu::GPUBlockMappingAttr::get(
        context, mlir::gpu::MappingId(int64_t(mlir::gpu::MappingId::LinearDim0) + dim)));
  return mlir::ArrayAttr::get(context, blocks);
}

/// Whether a loop divides rows among warpgroups; others are over tiles.
inline bool isOfWarpgroups(mlir::scf::ForallOp loop) {
  std::optional<mlir::ArrayAttr> mapping = loop.getMapping();
  return mapping && !mapping->empty() &&
         llvm::isa<mlir::gpu::GPUWarpgroupMappingAttr>((*mapping)[0]);
}

/// Whether there is no other scf.for in the loop.
inline bool isInnermost(mlir::scf::ForOp loop) {
  return !loop.walk([&](mlir::scf::ForOp inner) {
                return inner == loop ? mlir::WalkResult::advance() : mlir::WalkResult::interrupt();
              })
              .wasInterrupted();
}

} // namespace attn::programs

#endif
