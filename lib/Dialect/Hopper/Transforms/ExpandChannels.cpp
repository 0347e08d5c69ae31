// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Channels to rings of tiles with full and empty barriers. Each role carries,
// for each channel that it uses, the next stage and its phase.

#include "Loops.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

namespace attn {
#define GEN_PASS_DEF_HOPPEREXPANDCHANNELS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Where a role stands in a ring: the next stage and its phase; and the stage
/// of the oldest tile that it holds, where a tile outlives the block that
/// received it.
struct Position {
  Value stage, phase; // index, i32
  Value oldest;       // index, or null

  void appendTo(SmallVectorImpl<Value> &values) const {
    llvm::append_values(values, stage, phase);
    if (oldest)
      values.push_back(oldest);
  }
  Position takeFrom(ValueRange &values) const {
    Position position{values[0], values[1], oldest ? values[2] : Value()};
    values = values.drop_front(oldest ? 3 : 2);
    return position;
  }
};
using State = llvm::MapVector<Value, Position>; // by channel

/// A channel and what it becomes.
struct Ring {
  hopper::ChannelOp channel;
  int64_t depth = 1, receivers = 0;
  bool isInLoop = false;
  bool isRead = false; // to registers
  Value tiles, full, empty;
};

class Expander {
public:
  Expander(gpu::LaunchOp launch, hopper::RolesOp roles)
      : launch(launch), roles(roles), b(launch.getContext()) {}

  LogicalResult run(int64_t stages) {
    for (auto channel : launch.getBody().front().getOps<hopper::ChannelOp>())
      rings[channel.getChannel()].channel = channel;
    if (stages < 1)
      return emitError(launch.getLoc()) << "expected at least 1 stage, got " << stages;
    findRoles();
    if (failed(checkUses()) || failed(chooseDepths(stages)))
      return failure();
    createRings();
    for (Region &region : roles.getBodies())
      if (failed(expandRole(region)))
        return failure();
    for (auto &[value, ring] : rings)
      ring.channel.erase();
    return success();
  }

private:
  /// Who receives, and which channels are used in the innermost loops.
  void findRoles() {
    for (auto [role, region] : llvm::enumerate(roles.getBodies()))
      region.walk([&, role = role](Operation *op) {
        if (auto receive = dyn_cast<hopper::ReceiveOp>(op)) {
          rings[receive.getChannel()].receivers = roles.getWarpgroups()[role];
          rings[receive.getChannel()].isRead |= isReadToRegisters(receive.getTile());
        } else if (auto held = dyn_cast<hopper::HeldOp>(op)) {
          rings[held.getChannel()].isRead |= isReadToRegisters(held.getTile());
        }
        auto send = dyn_cast<hopper::SendOp>(op);
        if (!send)
          return;
        auto loop = op->getParentOfType<scf::ForOp>();
        rings[send.getChannel()].isInLoop = loop && hopper::isInnermost(loop);
      });
  }

  static bool isReadToRegisters(Value tile) {
    return llvm::any_of(tile.getUsers(), [](Operation *user) {
      auto rows = dyn_cast<hopper::RowsOp>(user);
      return isa<hopper::TileLoadOp>(user) || (rows && isReadToRegisters(rows.getTile()));
    });
  }

  /// The roles that send to a channel and that receive from it, and where.
  LogicalResult checkUses() {
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
        } else if (isa<hopper::ReceiveOp>(user)) {
          receivers.insert(role);
        }
      }
      if (senders.size() != 1 || receivers.size() != 1)
        return ring.channel.emitOpError("expected one role that sends to this channel and one "
                                        "that receives, got ")
               << senders.size() << " and " << receivers.size();
    }
    return success();
  }

  int64_t countBytes() {
    int64_t bytes = 0, barriers = 0;
    for (auto alloc : launch.getBody().front().getOps<hopper::AllocOp>())
      bytes += llvm::alignTo(alloc.getMemory().getType().getBytes(), 1024);
    for (auto &[value, ring] : rings) {
      auto tile = ring.channel.getChannel().getType().getTile();
      bytes += llvm::alignTo(ring.depth * tile.getTileBytes(), 1024);
      barriers += 2 * ring.depth;
    }
    return bytes + llvm::alignTo(barriers * 8, 1024);
  }

  /// Where there is room, the next tile's other operands come early, too.
  void useRoom(int64_t stages) {
    for (auto &[value, ring] : rings) {
      if (ring.isInLoop || stages == 1)
        continue;
      ++ring.depth;
      if (countBytes() > hopper::kSharedMemoryBytes)
        --ring.depth;
    }
    b.setInsertionPoint(launch);
    Value bytes = arith::ConstantIntOp::create(b, launch.getLoc(), countBytes(), 32);
    launch.getDynamicSharedMemorySizeMutable().assign(bytes);
  }

  LogicalResult chooseDepths(int64_t stages) {
    for (; stages >= 1; --stages) {
      for (auto &[value, ring] : rings)
        ring.depth = ring.isInLoop ? stages : 1;
      if (countBytes() <= hopper::kSharedMemoryBytes) {
        useRoom(stages);
        return success();
      }
    }
    InFlightDiagnostic error = launch.emitOpError("needs ")
                               << countBytes() << " bytes of shared memory, a CTA has "
                               << hopper::kSharedMemoryBytes << "; use smaller tiles";
    for (auto &[value, ring] : rings)
      error.attachNote(ring.channel.getLoc())
          << ring.channel.getChannel().getType().getTile().getTileBytes() << " bytes here";
    return error;
  }

  void createRings() {
    for (auto &[value, ring] : rings) {
      b.setInsertionPoint(ring.channel);
      Location loc = ring.channel.getLoc();
      hopper::SmemType tile = ring.channel.getChannel().getType().getTile();
      auto type = hopper::SmemType::get({ring.depth, tile.getRows(), tile.getColumns()},
                                        tile.getElementType(), tile.getSwizzle());
      auto barrier = hopper::MBarrierType::get(b.getContext(), ring.depth);
      ring.tiles = hopper::AllocOp::create(b, loc, type);
      ring.full = hopper::MBarrierOp::create(b, loc, barrier, 1);
      ring.empty = hopper::MBarrierOp::create(b, loc, barrier, ring.receivers);
    }
  }

  LogicalResult expandRole(Region &region) {
    State state;
    b.setInsertionPointToStart(&region.front());
    Location loc = region.getLoc();
    region.walk([&](Operation *op) {
      Value channel = getChannel(op);
      if (!channel || state.contains(channel))
        return;
      // A fresh barrier lets the producer pass (phase 1), not the consumer.
      Value stage = arith::ConstantIndexOp::create(b, loc, 0);
      Value phase = arith::ConstantIntOp::create(b, loc, isa<hopper::SendOp>(op), 32);
      bool outlives = llvm::any_of(channel.getUsers(),
                                   [](Operation *user) { return isa<hopper::HeldOp>(user); });
      state[channel] = {stage, phase, outlives && !isa<hopper::SendOp>(op) ? stage : Value()};
    });
    return expandBlock(region.front(), state);
  }

  static Value getChannel(Operation *op) {
    if (auto send = dyn_cast<hopper::SendOp>(op))
      return send.getChannel();
    if (auto receive = dyn_cast<hopper::ReceiveOp>(op))
      return receive.getChannel();
    if (auto held = dyn_cast<hopper::HeldOp>(op))
      return held.getChannel();
    if (auto release = dyn_cast<hopper::ReleaseOp>(op))
      return release.getChannel();
    return {};
  }

  LogicalResult expandBlock(Block &block, State &state) {
    // Stages of received tiles that this block has not released yet.
    llvm::DenseMap<Value, SmallVector<Value>> held;
    for (Operation &op : llvm::make_early_inc_range(block)) {
      b.setInsertionPoint(&op);
      if (auto send = dyn_cast<hopper::SendOp>(op)) {
        expandSend(send, state);
      } else if (auto receive = dyn_cast<hopper::ReceiveOp>(op)) {
        held[receive.getChannel()].push_back(state[receive.getChannel()].stage);
        expandReceive(receive, state);
      } else if (auto tile = dyn_cast<hopper::HeldOp>(op)) {
        Value stage = state[tile.getChannel()].oldest;
        Value slot = hopper::SlotOp::create(b, tile.getLoc(), tile.getTile().getType(),
                                            rings[tile.getChannel()].tiles, stage);
        tile.replaceAllUsesWith(slot);
        tile.erase();
      } else if (auto release = dyn_cast<hopper::ReleaseOp>(op)) {
        SmallVector<Value> &stages = held[release.getChannel()];
        Position &position = state[release.getChannel()];
        if (position.oldest) {
          stages = {position.oldest};
          Ring &ring = rings[release.getChannel()];
          position.oldest = getNext(release.getLoc(), ring, position.oldest).first;
        }
        if (stages.empty())
          return release.emitOpError("no tile of this channel has been received in this block "
                                     "and not been released");
        if (rings[release.getChannel()].isRead)
          hopper::FenceAsyncOp::create(b, release.getLoc());
        hopper::MBarrierArriveOp::create(b, release.getLoc(), rings[release.getChannel()].empty,
                                         stages.front());
        stages.erase(stages.begin());
        release.erase();
      } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
        if (failed(expandLoop(loop, state)))
          return failure();
      } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
        if (failed(expandBranch(branch, state)))
          return failure();
      } else if (op.getNumRegions() && !usedChannels(&op).empty()) {
        return op.emitOpError("channels cannot be used inside of this op");
      }
    }
    return success();
  }

  /// The stage that follows, and whether it is the first one again (null in a
  /// ring of one).
  std::pair<Value, Value> getNext(Location loc, const Ring &ring, Value stage) {
    if (ring.depth == 1)
      return {stage, {}};
    Value step = arith::ConstantIndexOp::create(b, loc, 1);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value depth = arith::ConstantIndexOp::create(b, loc, ring.depth);
    Value next = arith::AddIOp::create(b, loc, stage, step);
    Value wraps = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, next, depth);
    return {arith::SelectOp::create(b, loc, wraps, zero, next), wraps};
  }

  void advance(Location loc, Ring &ring, Position &position) {
    Value one = arith::ConstantIntOp::create(b, loc, 1, 32);
    Value flipped = arith::XOrIOp::create(b, loc, position.phase, one);
    auto [next, wraps] = getNext(loc, ring, position.stage);
    position.stage = next;
    position.phase =
        wraps ? arith::SelectOp::create(b, loc, wraps, flipped, position.phase) : flipped;
  }

  Value mapOf(Value source, hopper::SmemType tile) {
    Value &map = maps[{source, tile}];
    if (!map) {
      OpBuilder host(launch);
      auto rank = cast<MemRefType>(source.getType()).getRank();
      map = hopper::TensorMapOp::create(
          host, launch.getLoc(), hopper::TensorMapType::get(host.getContext(), tile, rank), source);
    }
    return map;
  }

  void expandSend(hopper::SendOp send, State &state) {
    Location loc = send.getLoc();
    Ring &ring = rings[send.getChannel()];
    Position &position = state[send.getChannel()];
    hopper::SmemType tile = send.getChannel().getType().getTile();
    hopper::MBarrierWaitOp::create(b, loc, ring.empty, position.stage, position.phase);
    hopper::MBarrierExpectOp::create(b, loc, ring.full, position.stage, tile.getTileBytes());
    Value slot = hopper::SlotOp::create(b, loc, tile, ring.tiles, position.stage);
    hopper::TmaLoadOp::create(b, loc, mapOf(send.getSource(), tile), send.getIndices(), slot,
                              ring.full, position.stage);
    advance(loc, ring, position);
    send.erase();
  }

  void expandReceive(hopper::ReceiveOp receive, State &state) {
    Location loc = receive.getLoc();
    Ring &ring = rings[receive.getChannel()];
    Position &position = state[receive.getChannel()];
    hopper::MBarrierWaitOp::create(b, loc, ring.full, position.stage, position.phase);
    Value slot =
        hopper::SlotOp::create(b, loc, receive.getTile().getType(), ring.tiles, position.stage);
    advance(loc, ring, position);
    receive.replaceAllUsesWith(slot);
    receive.erase();
  }

  SmallVector<Value> usedChannels(Operation *op) {
    llvm::SetVector<Value> used;
    op->walk([&](Operation *inner) {
      if (Value channel = getChannel(inner))
        used.insert(channel);
    });
    return used.takeVector();
  }

  LogicalResult expandLoop(scf::ForOp loop, State &state) {
    SmallVector<Value> used = usedChannels(loop), inits;
    if (used.empty())
      return success();
    for (Value channel : used)
      state[channel].appendTo(inits);
    unsigned old = loop.getNumRegionIterArgs();
    IRRewriter rewriter(b);
    auto carry = [](OpBuilder &, Location, ArrayRef<BlockArgument> arguments) {
      return SmallVector<Value>(arguments.begin(), arguments.end());
    };
    auto wider = cast<scf::ForOp>(
        cast<LoopLikeOpInterface>(*loop)
            .replaceWithAdditionalYields(rewriter, inits, /*replaceInitOperandUses=*/false, carry)
            ->getOperation());
    State inside;
    ValueRange arguments = wider.getRegionIterArgs().drop_front(old);
    for (Value channel : used)
      inside[channel] = state[channel].takeFrom(arguments);
    if (failed(expandBlock(*wider.getBody(), inside)))
      return failure();
    Operation *yield = wider.getBody()->getTerminator();
    SmallVector<Value> carried;
    ValueRange results = wider.getResults().drop_front(old);
    for (Value channel : used) {
      inside[channel].appendTo(carried);
      state[channel] = state[channel].takeFrom(results);
    }
    yield->setOperands(old, carried.size(), carried);
    return success();
  }

  LogicalResult expandBranch(scf::IfOp branch, State &state) {
    SmallVector<Value> used = usedChannels(branch);
    if (used.empty())
      return success();
    SmallVector<Type> types(branch.getResultTypes());
    SmallVector<Value> before;
    for (Value channel : used)
      state[channel].appendTo(before);
    llvm::append_range(types, ValueRange(before).getTypes());
    unsigned old = branch.getNumResults();
    auto wider = scf::IfOp::create(b, branch.getLoc(), types, branch.getCondition(),
                                   /*withElseRegion=*/true);
    wider->setAttrs(branch->getDiscardableAttrDictionary());
    for (unsigned r : {0, 1}) {
      State inside = state;
      Block *block = r ? wider.elseBlock() : wider.thenBlock();
      Block *from = r ? branch.elseBlock() : branch.thenBlock();
      if (from)
        block->getOperations().splice(block->end(), from->getOperations());
      else
        scf::YieldOp::create(b = OpBuilder::atBlockEnd(block), branch.getLoc());
      if (failed(expandBlock(*block, inside)))
        return failure();
      // After the expansion, which may have replaced what is yielded.
      Operation *yield = block->getTerminator();
      SmallVector<Value> results(yield->getOperands());
      for (Value channel : used)
        inside[channel].appendTo(results);
      yield->setOperands(results);
    }
    ValueRange after = wider.getResults().drop_front(old);
    for (Value channel : used)
      state[channel] = state[channel].takeFrom(after);
    branch.replaceAllUsesWith(wider.getResults().take_front(old));
    branch.erase();
    return success();
  }

  gpu::LaunchOp launch;
  hopper::RolesOp roles;
  OpBuilder b;
  llvm::MapVector<Value, Ring> rings;
  llvm::DenseMap<std::pair<Value, Type>, Value> maps;
};

struct ExpandChannelsPass : attn::impl::HopperExpandChannelsBase<ExpandChannelsPass> {
  using Base::Base;

  void runOnOperation() override {
    WalkResult walk = getOperation().walk([&](gpu::LaunchOp launch) {
      for (auto roles : llvm::to_vector(launch.getBody().front().getOps<hopper::RolesOp>()))
        if (failed(Expander(launch, roles).run(stages)))
          return WalkResult::interrupt();
      return WalkResult::skip();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
