// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which rings of tiles the channels of a launch become, and how deep they are.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_RINGPLAN_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_RINGPLAN_H

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/ADT/MapVector.h"

namespace attn::hopper {

/// A channel and what it becomes.
struct Ring {
  ChannelOp channel;
  int64_t depth = 1, receivers = 0;
  int64_t senders = 1; // warpgroups that fill a tile; one thread's copy counts as one
  bool isInLoop = false, isFromRegisters = false;
  mlir::Region *lastReceiver = nullptr;       // of the roles that have been looked at
  llvm::SmallVector<mlir::Operation *> reads; // to registers
  mlir::Value tiles, full, empty;
  /// Where a tile of one row comes along with this channel's: the channels.
  llvm::SmallVector<mlir::Value> followers;
};

class RingPlan {
public:
  RingPlan(mlir::gpu::LaunchOp launch, RolesOp roles)
      : launch(launch), roles(roles), b(launch.getContext()) {}

  /// Finds the rings of a launch and gives them depths for which it has shared memory: `stages`
  /// in loops, if there is room. Fails with an error.
  mlir::LogicalResult plan(int64_t stages);
  /// The channel whose barriers and stages this one has.
  mlir::Value getLeader(mlir::Value channel) const;

protected:
  mlir::gpu::LaunchOp launch;
  RolesOp roles;
  mlir::OpBuilder b;
  llvm::MapVector<mlir::Value, Ring> rings;
  llvm::DenseMap<mlir::Value, mlir::Value> leaders; // by channel that follows

private:
  /// Who receives, and which channels are used in the innermost loops.
  void findRoles();

  static void findReads(mlir::Value tile, llvm::SmallVectorImpl<mlir::Operation *> &reads);

  /// Whether each tile of `row` is sent behind one of `tile`, received behind it, and
  /// given back before it.
  static bool follows(mlir::Value row, mlir::Value tile);

  /// A row comes along with the tile that is sent last before it.
  void findFollowers();

  /// The roles that send to a channel and that receive from it, and where.
  mlir::LogicalResult checkUses();

  int64_t countBytes();

  /// Bytes that a CTA has.
  int64_t getLimit();

  /// Where there is room, the next tile's other operands come early, too, and what registers
  /// fill need not be empty again at once: first where it waits for other CTAs.
  void useRoom(int64_t stages);

  /// How many tiles are held at a time, at least: two where one is held in a loop that
  /// receives the next one.
  static int64_t countHeld(mlir::Value channel);

  /// Where there is no room for one more stage of all, some may have it: first those that are
  /// given back last. Rings with the same barriers have the same depth.
  void deepenSome();

  mlir::LogicalResult chooseDepths(int64_t wanted);
};

} // namespace attn::hopper

#endif
