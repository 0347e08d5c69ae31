// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the parts of hopper-check-protocol share.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_CHECKPROTOCOL_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_CHECKPROTOCOL_H

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/ADT/MapVector.h"

namespace attn::hopper {

/// Uses of one hopper.mbarrier.
struct BarrierUses {
  MBarrierOp barrier;
  llvm::SmallVector<MBarrierExpectOp> expects;
  llvm::SmallVector<MBarrierArriveOp> arrives;
  llvm::SmallVector<MBarrierWaitOp> waits;
  llvm::SmallVector<TmaLoadOp> loads;
};

/// One gpu.launch with roles.
class Protocol {
public:
  Protocol(mlir::gpu::LaunchOp launch, RolesOp roles);

  mlir::gpu::LaunchOp launch;
  RolesOp roles;
  llvm::MapVector<mlir::Value, BarrierUses> barriers;

  /// The role that an op is in; -1 for none.
  int getRole(mlir::Operation *op) const;
  int64_t getWarpgroups(int role) { return roles.getWarpgroups()[size_t(role)]; }

  /// Errors fail the pass; what is not decided is remarked.
  mlir::InFlightDiagnostic error(mlir::Operation *op) {
    failed = true;
    return op->emitError();
  }
  bool failed = false;
};

/// Whether two indices are certainly the same value.
bool isSameIndex(mlir::Value a, mlir::Value b);

/// The memory (hopper.alloc) of a tile and the index of its slot, null for a tile
/// that is no slot. A null memory is not known.
struct TileOrigin {
  mlir::Value memory, index;
};
TileOrigin getTileOrigin(mlir::Value tile);

void checkBytes(Protocol &protocol);
void checkArrivals(Protocol &protocol);
void checkNamedBarriers(Protocol &protocol);
void checkCounters(Protocol &protocol);
void checkTileLifetimes(Protocol &protocol);
void checkProductWaits(Protocol &protocol);
void checkStores(Protocol &protocol);

} // namespace attn::hopper

#endif
