// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Channels to rings of tiles (RingPlan.h) with full and empty barriers. Each role carries,
// for each channel that it uses, the next stage and its phase.

#include "RingPlan.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/MapVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPEREXPANDCHANNELS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using hopper::Ring;

static attn::Done numRings("hopper-expand-channels", "expanded",
                           "Channels that became rings of tiles");

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

/// Makes the rings of a plan, and expands what the roles do with channels.
class Expander : hopper::RingPlan {
public:
  using RingPlan::RingPlan;

  LogicalResult run(int64_t stages) {
    if (failed(plan(stages)))
      return failure();
    createRings();
    for (Region &region : roles.getBodies())
      if (failed(expandRole(region)))
        return failure();
    if (llvm::any_of(rings, isShared)) {
      b.setInsertionPointAfter(roles);
      hopper::ClusterSyncOp::create(b, roles.getLoc());
    }
    for (auto &[value, ring] : rings)
      ring.channel.erase();
    return success();
  }

private:
  /// Whether the CTAs of a cluster fill each other's tiles.
  static bool isShared(const std::pair<Value, Ring> &entry) {
    return hopper::ChannelOp(entry.second.channel).getMulticast().has_value();
  }

  void createRings() {
    for (auto &[value, ring] : rings) {
      b.setInsertionPoint(ring.channel);
      Location loc = ring.channel.getLoc();
      tile::SmemType tile = ring.channel.getChannel().getType().getTile();
      auto type = tile::SmemType::get({ring.depth, tile.getRows(), tile.getColumns()},
                                      tile.getElementType(), tile.getSwizzle());
      auto barrier = hopper::MBarrierType::get(b.getContext(), ring.depth);
      ring.tiles = hopper::AllocOp::create(b, loc, type);
      numRings.at(loc) << remark::metric("Stages", ring.depth);
      if (leaders.contains(value))
        continue;
      ring.full = hopper::MBarrierOp::create(b, loc, barrier, ring.senders);
      ring.empty = hopper::MBarrierOp::create(b, loc, barrier, ring.receivers,
                                              ring.channel.getMulticast().has_value());
    }
  }

  LogicalResult expandRole(Region &region) {
    State state;
    b.setInsertionPointToStart(&region.front());
    Location loc = region.getLoc();
    region.walk([&](Operation *op) {
      Value channel = getChannel(op);
      if (!channel || leaders.contains(channel) || state.contains(channel))
        return;
      // A fresh barrier lets the producer pass (phase 1), not the consumer.
      Value stage = arith::ConstantIndexOp::create(b, loc, 0);
      bool sends = isa<hopper::SendOp, hopper::AcquireOp>(op);
      Value phase = arith::ConstantIntOp::create(b, loc, sends, 32);
      bool outlives = llvm::any_of(channel.getUsers(),
                                   [](Operation *user) { return isa<hopper::HeldOp>(user); });
      state[channel] = {stage, phase, outlives && !sends ? stage : Value()};
    });
    return expandBlock(region.front(), state);
  }

  static Value getChannel(Operation *op) {
    if (auto send = dyn_cast<hopper::SendOp>(op))
      return send.getChannel();
    if (auto acquire = dyn_cast<hopper::AcquireOp>(op))
      return acquire.getChannel();
    if (auto commit = dyn_cast<hopper::CommitOp>(op))
      return commit.getChannel();
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
    llvm::DenseMap<Value, Value> acquired; // stages that are not committed yet
    for (Operation &op : llvm::make_early_inc_range(block)) {
      b.setInsertionPoint(&op);
      if (leaders.contains(getChannel(&op))) {
        expandFollower(&op);
      } else if (auto send = dyn_cast<hopper::SendOp>(op)) {
        expandSend(send, state);
      } else if (auto acquire = dyn_cast<hopper::AcquireOp>(op)) {
        Value channel = acquire.getChannel();
        acquired[channel] = takeSlot(acquire, &Ring::empty, state);
      } else if (auto commit = dyn_cast<hopper::CommitOp>(op)) {
        Value stage = acquired.lookup(commit.getChannel());
        if (!stage)
          return commit.emitOpError("no tile of this channel has been acquired in this block and "
                                    "not been committed");
        hopper::MBarrierArriveOp::create(b, commit.getLoc(), rings[commit.getChannel()].full, stage,
                                         /*cluster=*/false);
        acquired.erase(commit.getChannel());
        commit.erase();
      } else if (auto add = dyn_cast<hopper::AddOp>(op)) {
        expandAdd(add);
      } else if (auto receive = dyn_cast<hopper::ReceiveOp>(op)) {
        Value channel = receive.getChannel();
        received[channel] = takeSlot(receive, &Ring::full, state);
        held[channel].push_back(received[channel]);
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
          position.oldest =
              getNext(release.getLoc(), rings[release.getChannel()], position.oldest).first;
        }
        if (stages.empty())
          return release.emitOpError("no tile of this channel has been received in this block "
                                     "and not been released");
        // Who writes registers to the tile, and reads it to registers, needs no fence.
        if (!rings[release.getChannel()].reads.empty() &&
            !rings[release.getChannel()].isFromRegisters)
          fenceReads(release);
        Ring &ring = rings[release.getChannel()];
        hopper::MBarrierArriveOp::create(b, release.getLoc(), ring.empty, stages.front(),
                                         ring.channel.getMulticast().has_value());
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

  void expandAdd(hopper::AddOp add) {
    Location loc = add.getLoc();
    Value map = mapOf(add.getDest(), add.getTile().getType());
    if (Value first = add.getFirst()) {
      auto branch = scf::IfOp::create(b, loc, first, /*withElseRegion=*/true);
      b.setInsertionPointToStart(branch.thenBlock());
      hopper::TmaStoreOp::create(b, loc, add.getTile(), map, add.getIndices());
      b.setInsertionPointToStart(branch.elseBlock());
    }
    hopper::TmaReduceOp::create(b, loc, add.getTile(), map, add.getIndices());
    add.erase();
  }

  /// What has been read to registers is given back behind a fence: one that there is
  /// already, or the next one of the block if the channel is not used before it.
  void fenceReads(hopper::ReleaseOp release) {
    ArrayRef<Operation *> reads = rings[release.getChannel()].reads;
    bool isFenced = false;
    Operation *before = release->getPrevNode();
    for (; before && !llvm::is_contained(reads, before); before = before->getPrevNode())
      isFenced |= isa<hopper::FenceAsyncOp>(before);
    bool isHere = llvm::all_of(
        reads, [&](Operation *read) { return read->getBlock() == release->getBlock(); });
    if (isFenced && isHere)
      return;
    for (Operation *op = release->getNextNode(); op; op = op->getNextNode()) {
      if (llvm::is_contained(usedChannels(op), release.getChannel()))
        break;
      if (isa<hopper::FenceAsyncOp>(op)) {
        b.setInsertionPointAfter(op);
        return;
      }
    }
    hopper::FenceAsyncOp::create(b, release.getLoc());
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

  Value mapOf(Value source, tile::SmemType tile) {
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
    tile::SmemType tile = send.getChannel().getType().getTile();
    hopper::MBarrierWaitOp::create(b, loc, ring.empty, position.stage, position.phase);
    int64_t bytes = tile.getTileBytes();
    for (Value follower : ring.followers)
      bytes += cast<hopper::ChannelType>(follower.getType()).getTile().getTileBytes();
    hopper::MBarrierExpectOp::create(b, loc, ring.full, position.stage, bytes);
    copyTile(send, ring, position.stage);
    sent[send.getChannel()] = position.stage;
    advance(loc, ring, position);
    send.erase();
  }

  void copyTile(hopper::SendOp send, const Ring &leader, Value stage) {
    Location loc = send.getLoc();
    tile::SmemType tile = send.getChannel().getType().getTile();
    Ring &ring = rings[send.getChannel()];
    Value slot = hopper::SlotOp::create(b, loc, tile, ring.tiles, stage);
    if (std::optional<uint64_t> parts = ring.channel.getMulticast())
      return copyParts(send, slot, int64_t(*parts), leader.full, stage);
    Value rowMap;
    if (send.getSome()) {
      auto row =
          tile::SmemType::get({1, tile.getColumns()}, tile.getElementType(), tile.getSwizzle());
      rowMap = mapOf(send.getSource(), row);
    }
    hopper::TmaLoadOp::create(b, loc, mapOf(send.getSource(), tile), send.getIndices(), slot,
                              leader.full, stage, send.getMarks(), send.getGroups(), rowMap,
                              send.getSome());
  }

  /// This CTA's parts of a tile's rows, to all CTAs of the cluster.
  void copyParts(hopper::SendOp send, Value slot, int64_t parts, Value full, Value stage) {
    Location loc = send.getLoc();
    auto tile = cast<tile::SmemType>(slot.getType());
    SmallVector<int64_t> shape = {tile.getRows() / parts, tile.getColumns()};
    auto compact = tile::SmemType::get(shape, tile.getElementType(), tile.getSwizzle());
    auto part = tile::SmemType::get(b.getContext(), shape, tile.getElementType(), tile.getSwizzle(),
                                    tile.getSlabRows());
    Value map = mapOf(send.getSource(), compact);
    Value rank = gpu::ClusterBlockIdOp::create(b, loc, gpu::Dimension::x);
    Value end = arith::ConstantIndexOp::create(b, loc, parts);
    Value rows = arith::ConstantIndexOp::create(b, loc, shape.front());
    auto loop = scf::ForOp::create(b, loc, rank, end, launch.getClusterSizeX());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value offset = arith::MulIOp::create(b, loc, loop.getInductionVar(), rows);
    SmallVector<Value> indices(send.getIndices());
    Value &row = indices[indices.size() - 2];
    row = arith::AddIOp::create(b, loc, row, offset);
    Value target = tile::RowsOp::create(b, loc, part, slot, offset);
    hopper::TmaLoadOp::create(b, loc, map, indices, target, full, stage, /*marks=*/Value(),
                              /*groups=*/Value(), /*rowMap=*/Value(), /*some=*/Value(),
                              /*multicast=*/true);
  }

  /// What comes along with another channel's tile has its stage, and no barriers.
  void expandFollower(Operation *op) {
    Value leader = getLeader(getChannel(op));
    if (auto send = dyn_cast<hopper::SendOp>(op)) {
      copyTile(send, rings[leader], sent[leader]);
    } else if (auto receive = dyn_cast<hopper::ReceiveOp>(op)) {
      Value tiles = rings[receive.getChannel()].tiles;
      receive.replaceAllUsesWith(hopper::SlotOp::create(b, op->getLoc(),
                                                        receive.getTile().getType(), tiles,
                                                        received[leader])
                                     .getTile());
    }
    op->erase();
  }

  /// Replaces a hopper.receive or hopper.acquire by the next slot of the ring, once it is full
  /// or empty; its stage.
  template <typename Op> Value takeSlot(Op op, Value Ring::*barriers, State &state) {
    Location loc = op.getLoc();
    Ring &ring = rings[op.getChannel()];
    Position &position = state[op.getChannel()];
    Value stage = position.stage;
    hopper::MBarrierWaitOp::create(b, loc, ring.*barriers, stage, position.phase);
    Value slot = hopper::SlotOp::create(b, loc, op.getTile().getType(), ring.tiles, stage);
    advance(loc, ring, position);
    op.replaceAllUsesWith(slot);
    op.erase();
    return stage;
  }

  SmallVector<Value> usedChannels(Operation *op) {
    llvm::SetVector<Value> used;
    op->walk([&](Operation *inner) {
      if (Value channel = getChannel(inner))
        used.insert(getLeader(channel));
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

  llvm::DenseMap<Value, Value> sent, received; // last stages, by channel
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
