// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RingPlan.h"
#include "Loops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;
using hopper::Ring;
using hopper::RingPlan;

LogicalResult RingPlan::plan(int64_t stages) {
  for (auto channel : launch.getBody().front().getOps<hopper::ChannelOp>())
    rings[channel.getChannel()].channel = channel;
  if (stages < 1)
    return emitError(launch.getLoc()) << "expected at least 1 stage, got " << stages;
  findRoles();
  findFollowers();
  if (failed(checkUses()))
    return failure();
  return chooseDepths(stages);
}

/// The only use of a channel by an `Op`.
template <typename Op> static Op findOnly(Value channel) {
  Op only;
  for (Operation *user : channel.getUsers()) {
    if (isa<Op>(user) && only)
      return {};
    if (isa<Op>(user))
      only = cast<Op>(user);
  }
  return only;
}

void RingPlan::findRoles() {
  for (auto [role, region] : llvm::enumerate(roles.getBodies()))
    region.walk([&, role = role, body = &region](Operation *op) {
      if (auto receive = dyn_cast<hopper::ReceiveOp>(op)) {
        Ring &ring = rings[receive.getChannel()];
        if (ring.lastReceiver != body)
          ring.receivers += roles.getAgents(role);
        ring.lastReceiver = body;
        findReads(receive.getTile(), rings[receive.getChannel()].reads);
      } else if (auto held = dyn_cast<hopper::HeldOp>(op)) {
        findReads(held.getTile(), rings[held.getChannel()].reads);
      }
      if (auto acquire = dyn_cast<hopper::AcquireOp>(op)) {
        rings[acquire.getChannel()].senders = roles.getAgents(role);
        rings[acquire.getChannel()].isFromRegisters = true;
      }
      auto send = dyn_cast<hopper::SendOp>(op);
      if (!send)
        return;
      auto loop = op->getParentOfType<scf::ForOp>();
      rings[send.getChannel()].isInLoop = loop && programs::isInnermost(loop);
    });
}

void RingPlan::findReads(Value tile, SmallVectorImpl<Operation *> &reads) {
  for (Operation *user : tile.getUsers()) {
    if (isa<tile::ReadOp>(user))
      reads.push_back(user);
    else if (isa<tile::RowsOp, tile::ColumnsOp>(user))
      findReads(user->getResult(0), reads);
  }
}

bool RingPlan::follows(Value row, Value tile) {
  auto precedes = [](Operation *first, Operation *second) {
    return first && second && first->getBlock() == second->getBlock() &&
           first->isBeforeInBlock(second);
  };
  auto isHeld = [](Operation *user) { return isa<hopper::HeldOp>(user); };
  return precedes(findOnly<hopper::SendOp>(tile), findOnly<hopper::SendOp>(row)) &&
         precedes(findOnly<hopper::ReceiveOp>(tile), findOnly<hopper::ReceiveOp>(row)) &&
         precedes(findOnly<hopper::ReleaseOp>(row), findOnly<hopper::ReleaseOp>(tile)) &&
         precedes(findOnly<hopper::ReceiveOp>(row), findOnly<hopper::ReleaseOp>(row)) &&
         llvm::none_of(row.getUsers(), isHeld) && llvm::none_of(tile.getUsers(), isHeld);
}

void RingPlan::findFollowers() {
  for (auto &[row, ring] : rings) {
    if (ring.channel.getChannel().getType().getTile().getRows() != 1)
      continue;
    Value leader;
    for (auto &[tile, other] : rings)
      if (other.channel.getChannel().getType().getTile().getRows() != 1 && follows(row, tile) &&
          (!leader ||
           findOnly<hopper::SendOp>(leader)->isBeforeInBlock(findOnly<hopper::SendOp>(tile))))
        leader = tile;
    if (!leader)
      continue;
    leaders[row] = leader;
    rings[leader].followers.push_back(row);
    llvm::append_range(rings[leader].reads, ring.reads);
  }
}

Value RingPlan::getLeader(Value channel) const {
  Value leader = leaders.lookup(channel);
  return leader ? leader : channel;
}

LogicalResult RingPlan::checkUses() {
  for (auto &[value, ring] : rings) {
    llvm::SmallPtrSet<Region *, 2> senders, receivers;
    for (Operation *user : value.getUsers()) {
      Region *role = user->getParentRegion();
      while (role && role->getParentOp() != roles)
        role = role->getParentRegion();
      if (!role)
        return user->emitOpError("uses a channel outside of the roles");
      if (auto send = dyn_cast<hopper::SendOp>(user)) {
        senders.insert(role);
        if (launch.getBody().isAncestor(send.getSource().getParentRegion()))
          return send.emitOpError("copies from a memref that is made inside of the launch: "
                                  "the host has to encode where it lies");
      } else if (isa<hopper::AcquireOp>(user)) {
        senders.insert(role);
      } else if (isa<hopper::ReceiveOp>(user)) {
        receivers.insert(role);
      }
    }
    if (ring.channel.getMulticast() && !launch.hasClusterSize())
      return ring.channel.emitOpError("expected a launch in clusters");
    if (senders.size() != 1 || receivers.empty())
      return ring.channel.emitOpError("expected one role that sends to this channel and some "
                                      "that receive, got ")
             << senders.size() << " and " << receivers.size();
  }
  return success();
}

int64_t RingPlan::countBytes() {
  int64_t bytes = 0, barriers = 0;
  for (auto alloc : launch.getBody().front().getOps<hopper::AllocOp>())
    bytes += llvm::alignTo(alloc.getMemory().getType().getBytes(), 1024);
  for (auto &[value, ring] : rings) {
    auto tile = ring.channel.getChannel().getType().getTile();
    bytes += llvm::alignTo(ring.depth * tile.getTileBytes(), 1024);
    barriers += leaders.contains(value) ? 0 : 2 * ring.depth;
  }
  return bytes + llvm::alignTo(barriers * 8, 1024);
}

int64_t RingPlan::getLimit() {
  int64_t occupancy = 1;
  launch.walk([&](hopper::RolesOp roles) { occupancy = roles.getOccupancy(); });
  return hopper::getSharedMemoryBytes(occupancy);
}

void RingPlan::useRoom(int64_t stages) {
  bool waits = launch->hasAttr(hopper::kCooperativeAttr);
  for (bool fromRegisters : {waits, !waits}) {
    for (auto &[value, ring] : rings) {
      if (ring.isInLoop || stages == 1 || ring.isFromRegisters != fromRegisters)
        continue;
      ++ring.depth;
      if (countBytes() > getLimit())
        --ring.depth;
    }
  }
  b.setInsertionPoint(launch);
  Value bytes = arith::ConstantIntOp::create(b, launch.getLoc(), countBytes(), 32);
  launch.getDynamicSharedMemorySizeMutable().assign(bytes);
}

int64_t RingPlan::countHeld(Value channel) {
  SmallVector<Block *> receivers;
  for (Operation *user : channel.getUsers())
    if (isa<hopper::ReceiveOp>(user))
      receivers.push_back(user->getBlock());
  bool overlaps = llvm::any_of(channel.getUsers(), [&](Operation *user) {
    return isa<hopper::HeldOp>(user) && llvm::is_contained(receivers, user->getBlock());
  });
  return overlaps ? 2 : 1;
}

void RingPlan::deepenSome() {
  SmallVector<Value> inLoop; // in the order of their releases
  launch.walk([&](hopper::ReleaseOp release) {
    Value channel = release.getChannel();
    if (rings[channel].isInLoop && !leaders.contains(channel) &&
        !llvm::is_contained(inLoop, channel))
      inLoop.push_back(channel);
  });
  for (Value channel : llvm::reverse(inLoop)) {
    auto deepen = [&](int64_t by) {
      for (auto &[other, ring] : rings)
        if (other == channel || leaders.lookup(other) == channel)
          ring.depth += by;
    };
    deepen(1);
    if (countBytes() > getLimit())
      deepen(-1);
  }
}

LogicalResult RingPlan::chooseDepths(int64_t wanted) {
  for (int64_t stages = wanted; stages >= 1; --stages) {
    for (auto &[value, ring] : rings)
      ring.depth = std::max(ring.isInLoop ? stages : 1, countHeld(value));
    if (countBytes() <= getLimit()) {
      if (stages < wanted)
        deepenSome();
      useRoom(stages);
      return success();
    }
  }
  InFlightDiagnostic error = launch.emitOpError("needs ")
                             << countBytes() << " bytes of shared memory, a CTA has " << getLimit()
                             << "; use smaller tiles";
  for (auto &[value, ring] : rings)
    error.attachNote(ring.channel.getLoc())
        << ring.channel.getChannel().getType().getTile().getTileBytes() << " bytes here";
  return error;
}
