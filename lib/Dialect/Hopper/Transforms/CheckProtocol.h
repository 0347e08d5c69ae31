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
  int64_t getWarpgroups(int role) { return roles.getAgents(size_t(role)); }

  /// Errors fail the pass; what is not decided is remarked.
  mlir::InFlightDiagnostic error(mlir::Operation *op) {
    failed = true;
    return op->emitError();
  }
  bool failed = false;
  void remark(mlir::Operation *op, const llvm::Twine &text) {
    if (remarks)
      op->emitRemark(text);
  }
  bool remarks = true;
};

/// Whether two indices are certainly the same value.
bool isSameIndex(mlir::Value a, mlir::Value b);

/// The memory (hopper.alloc) of a tile and the index of its slot, null for a tile
/// that is no slot. A null memory is not known.
struct TileOrigin {
  mlir::Value memory, index;
};
TileOrigin getTileOrigin(mlir::Value tile);

/// The copy of a tile: an op, or the loop in which a CTA copies its parts of a tile to the
/// cluster, from its rank in steps of the cluster's size.
struct Copy {
  mlir::Operation *op;
  int64_t parts = 1;
};
Copy getCopy(TmaLoadOp load);

void checkBytes(Protocol &protocol);
void checkArrivals(Protocol &protocol);
void checkClusters(Protocol &protocol);
void checkNamedBarriers(Protocol &protocol);
void checkCounters(Protocol &protocol);
void checkTileLifetimes(Protocol &protocol);
void checkProductWaits(Protocol &protocol);
void checkStores(Protocol &protocol);

} // namespace attn::hopper

#endif
