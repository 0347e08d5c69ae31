// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Software pipelining of the loop over a CTA's tiles: the first products of a
// tile run beside the last ones and the outputs of the tile before.

#include "Loops.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPEROVERLAPTILES
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done
    numOverlapped("hopper-overlap-tiles", "overlapped",
                  "Loops over tiles that start the next one before the outputs of one");

namespace {

/// The memref that a view is of; what is no memref is itself.
Value getRoot(Value value) {
  auto memref = dyn_cast<MemrefValue>(value);
  return memref ? Value(memref::skipViewLikeOps(memref)) : value;
}

/// One loop over tiles, in parts:
///
///   for tile { start; inner loop; finish }                      or
///   for tile { start; if (runs) { start; inner loop; finish }; finish }
class Overlapper {
public:
  explicit Overlapper(scf::ForOp tiles) : tiles(tiles), b(tiles), loc(tiles.getLoc()) {}

  /// Finds the parts; false where the loop has not this form, or something
  /// keeps the next tile from starting early.
  bool analyze() {
    if (!findInner())
      return false;
    collectParts();
    return hasProducts(start) && findHeld() && checkMemory() && collectCrossing();
  }

  void run() {
    SmallVector<Value> inits(tiles.getInitArgs());
    llvm::append_range(inits, emitFirst());
    auto loop = scf::ForOp::create(b, loc, tiles.getLowerBound(), tiles.getUpperBound(),
                                   tiles.getStep(), inits);
    if (loop.getBody()->mightHaveTerminator())
      loop.getBody()->getTerminator()->erase();
    b.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(b, loc, emitTile(loop));
    tiles.replaceAllUsesWith(loop.getResults().take_front(tiles.getNumResults()));
    tiles.erase();
  }

private:
  static bool usesChannels(Operation *op) {
    return op
        ->walk([](Operation *nested) {
          bool uses = isa<hopper::ReceiveOp, hopper::ReleaseOp>(nested);
          return uses ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  }

  static bool hasProducts(ArrayRef<Operation *> ops) {
    return llvm::any_of(ops, [](Operation *op) { return isa<tile::MmaOp>(op); });
  }

  bool findInner() {
    unsigned count = 0;
    tiles.walk([&](scf::ForOp loop) {
      if (loop == tiles || !programs::isInnermost(loop) ||
          loop.getBody()->getOps<tile::MmaOp>().empty())
        return;
      inner = loop;
      ++count;
    });
    if (count != 1)
      return false;
    guard = dyn_cast<scf::IfOp>(inner->getParentOp());
    if (!guard)
      return inner->getParentOp() == tiles;
    return guard->getParentOp() == tiles && guard.elseBlock() &&
           guard.elseBlock()->without_terminator().empty() &&
           inner->getBlock() == guard.thenBlock();
  }

  void collectParts() {
    Operation *phase = guard ? guard.getOperation() : inner.getOperation();
    SmallVector<Operation *> *part = &start;
    for (Operation &op : tiles.getBody()->without_terminator()) {
      if (&op == phase)
        part = &after;
      else
        part->push_back(&op);
    }
    guarded = start.size();
    if (!guard) {
      finish = std::exchange(after, {});
      return;
    }
    part = &start;
    for (Operation &op : guard.thenBlock()->without_terminator()) {
      if (&op == inner)
        part = &finish;
      else
        part->push_back(&op);
    }
  }

  bool isIn(ArrayRef<Operation *> ops, Operation *op) const {
    return llvm::any_of(ops, [&](Operation *each) { return each->isAncestor(op); });
  }

  /// Tiles that are received at the start and kept beyond it must be given back
  /// when the inner loop ends: the next ones are received then.
  bool findHeld() {
    for (Operation *op : start) {
      auto receive = dyn_cast<hopper::ReceiveOp>(op);
      if (!receive || llvm::any_of(start, [&](Operation *other) {
            auto release = dyn_cast<hopper::ReleaseOp>(other);
            return release && release.getChannel() == receive.getChannel();
          }))
        continue;
      bool always = receive->getParentOp() == tiles;
      if (!always || !held.insert({receive.getChannel(), nullptr}).second)
        return false;
      for (Operation *other : guard ? after : finish)
        if (auto release = dyn_cast<hopper::ReleaseOp>(other);
            release && release.getChannel() == receive.getChannel())
          held[receive.getChannel()] = release;
      if (!held[receive.getChannel()] || isUsedLate(receive.getTile()))
        return false;
    }
    // What is received after the guard would be overtaken by the next tile's start.
    return llvm::all_of(after,
                        [&](Operation *op) { return !usesChannels(op) || isHeldRelease(op); });
  }

  /// Whether a tile, or rows of it, are used after the inner loop.
  bool isUsedLate(Value tile) const {
    return llvm::any_of(tile.getUsers(), [&](Operation *user) {
      if (isIn(finish, user) || isIn(after, user))
        return true;
      return isa<tile::RowsOp, tile::ColumnsOp>(user) && isUsedLate(user->getResult(0));
    });
  }

  /// What starts early must not read what a tile writes.
  bool checkMemory() const {
    llvm::DenseSet<Value> written;
    SmallVector<MemoryEffects::EffectInstance> effects;
    auto collect = [&](Operation *op) {
      effects.clear();
      if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
        interface.getEffects(effects);
      return !effects.empty();
    };
    scf::ForOp(tiles).walk([&](Operation *op) {
      if (collect(op))
        for (MemoryEffects::EffectInstance &effect : effects)
          if (isa<MemoryEffects::Write>(effect.getEffect()) && effect.getValue())
            written.insert(getRoot(effect.getValue()));
    });
    for (Operation *op : start) {
      WalkResult walk = op->walk([&](Operation *nested) {
        // A product reads tiles that were received, for nothing here writes to others.
        bool isProtocol =
            isa<hopper::ReceiveOp, hopper::ReleaseOp, hopper::BarrierReduceOp, tile::MmaOp>(nested);
        if (isProtocol || nested->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
            isMemoryEffectFree(nested))
          return WalkResult::advance();
        if (!collect(nested))
          return WalkResult::interrupt();
        for (MemoryEffects::EffectInstance &effect : effects)
          if (!isa<MemoryEffects::Read>(effect.getEffect()) || !effect.getValue() ||
              written.contains(getRoot(effect.getValue())))
            return WalkResult::interrupt();
        return WalkResult::advance();
      });
      if (walk.wasInterrupted())
        return false;
    }
    return true;
  }

  /// Whether a value can be had again for a tile: it follows from the tile's
  /// number by pure ops, or is a tile in shared memory.
  bool isRepeatable(Value value) {
    if (!tiles.getRegion().isAncestor(value.getParentRegion()))
      return true;
    Operation *op = value.getDefiningOp();
    if (!op)
      return value.getParentBlock() == tiles.getBody();
    auto [known, isNew] = repeatable.try_emplace(op, false);
    if (!isNew)
      return known->second;
    bool result;
    if (auto receive = dyn_cast<hopper::ReceiveOp>(op))
      result = held.contains(receive.getChannel());
    else
      result = op->getNumRegions() == 0 && isPure(op) &&
               llvm::all_of(op->getOperands(), [&](Value used) { return isRepeatable(used); });
    return repeatable[op] = result;
  }

  /// Whether a value depends on a tile that has been received.
  bool needsTile(Value value) const {
    Operation *op = value.getDefiningOp();
    return op && tiles->isProperAncestor(op) &&
           (isa<hopper::ReceiveOp>(op) ||
            llvm::any_of(op->getOperands(), [&](Value used) { return needsTile(used); }));
  }

  bool collectCrossing() {
    for (Value next : tiles.getYieldedValues())
      if (!isRepeatable(next) || needsTile(next))
        return false;
    if (guard && (!isRepeatable(guard.getCondition()) || needsTile(guard.getCondition())))
      return false;
    auto visit = [&](OpOperand *use) {
      Value value = use->get();
      if (Operation *op = value.getDefiningOp(); op && llvm::is_contained(start, op))
        if (!isRepeatable(value))
          crossing.insert(value);
    };
    auto visitAll = [&](Operation *op) {
      for (OpOperand &use : op->getOpOperands())
        visit(&use);
      visitUsedValuesDefinedAbove(op->getRegions(), visit);
    };
    visitAll(inner);
    llvm::for_each(finish, visitAll);
    llvm::for_each(after, visitAll);
    if (guard)
      for (scf::YieldOp yield : {guard.thenYield(), guard.elseYield()})
        visitAll(yield);
    return llvm::all_of(crossing,
                        [&](Value value) { return bool(b.getZeroAttr(value.getType())); });
  }

  SmallVector<Value> zeros(OpBuilder &at) {
    SmallVector<Value> values;
    for (Value value : crossing)
      values.push_back(arith::ConstantOp::create(at, loc, at.getZeroAttr(value.getType())));
    return values;
  }

  SmallVector<Value> lookup(const IRMapping &mapping, ValueRange values) {
    return llvm::map_to_vector(values, [&](Value v) { return mapping.lookupOrDefault(v); });
  }

  void clone(ArrayRef<Operation *> ops, IRMapping &mapping) {
    for (Operation *op : ops)
      b.clone(*op, mapping);
  }

  IRMapping mapTile(Value number, ValueRange state) {
    IRMapping mapping;
    mapping.map(tiles.getInductionVar(), number);
    mapping.map(tiles.getRegionIterArgs(), state);
    return mapping;
  }

  SmallVector<Type> getCrossingTypes() {
    return llvm::map_to_vector(crossing, [](Value value) { return value.getType(); });
  }

  /// `condition ? emit() : zeros`.
  template <typename Emit> SmallVector<Value> emitIf(Value condition, Emit emit) {
    auto branch = scf::IfOp::create(b, loc, getCrossingTypes(), condition,
                                    /*withElse=*/true);
    OpBuilder::InsertionGuard restore(b);
    eraseTerminators(branch);
    b.setInsertionPointToEnd(branch.thenBlock());
    scf::YieldOp::create(b, loc, emit());
    b.setInsertionPointToEnd(branch.elseBlock());
    scf::YieldOp::create(b, loc, zeros(b));
    return branch.getResults();
  }

  // The builder ends blocks that yield nothing.
  static void eraseTerminators(scf::IfOp branch) {
    for (Block *block : {branch.thenBlock(), branch.elseBlock()})
      if (block->mightHaveTerminator())
        block->getTerminator()->erase();
  }

  /// The start of a tile by itself.
  SmallVector<Value> emitStart(IRMapping mapping) {
    ArrayRef<Operation *> ops = start;
    clone(ops.take_front(guarded), mapping);
    if (!guard)
      return lookup(mapping, crossing.getArrayRef());
    Value runs = mapping.lookupOrDefault(guard.getCondition());
    SmallVector<Value> later = emitIf(runs, [&] {
      IRMapping inside = mapping;
      clone(ops.drop_front(guarded), inside);
      return lookup(inside, crossing.getArrayRef());
    });
    for (auto [value, result] : llvm::zip_equal(crossing.getArrayRef(), later))
      if (Value(value).getParentBlock() == guard.thenBlock())
        mapping.map(value, result);
    return lookup(mapping, crossing.getArrayRef());
  }

  SmallVector<Value> emitFirst() {
    if (tiles->hasAttr(hopper::kNonemptyAttr))
      return emitStart(mapTile(tiles.getLowerBound(), tiles.getInitArgs()));
    Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, tiles.getLowerBound(),
                                      tiles.getUpperBound());
    return emitIf(any,
                  [&] { return emitStart(mapTile(tiles.getLowerBound(), tiles.getInitArgs())); });
  }

  /// What follows from a tile's number, computed again.
  void repeat(IRMapping &mapping, bool withTiles) {
    for (Operation *op : start) {
      if (op->getNumResults() != 1 || !isRepeatable(op->getResult(0)) ||
          (!withTiles && needsTile(op->getResult(0))))
        continue;
      if (auto receive = dyn_cast<hopper::ReceiveOp>(op))
        mapping.map(receive.getTile(),
                    hopper::HeldOp::create(b, receive.getLoc(), receive.getTile().getType(),
                                           receive.getChannel())
                        .getTile());
      else
        b.clone(*op, mapping);
    }
    for (Value value : tiles.getYieldedValues())
      if (Operation *op = value.getDefiningOp(); op && !mapping.contains(value))
        repeatSlice(op, mapping);
  }

  void repeatSlice(Operation *op, IRMapping &mapping) {
    for (Value used : op->getOperands())
      if (Operation *definition = used.getDefiningOp();
          definition && tiles->isProperAncestor(definition) && !mapping.contains(used))
        repeatSlice(definition, mapping);
    b.clone(*op, mapping);
  }

  SmallVector<Value> emitTile(scf::ForOp loop) {
    unsigned states = tiles.getNumRegionIterArgs();
    IRMapping now = mapTile(loop.getInductionVar(), loop.getRegionIterArgs().take_front(states));
    for (auto [value, argument] :
         llvm::zip_equal(crossing.getArrayRef(), loop.getRegionIterArgs().drop_front(states)))
      now.map(value, argument);
    repeat(now, /*withTiles=*/true);
    b.clone(*inner, now);
    for (auto [channel, release] : held)
      b.clone(*release, now);

    Value number = arith::AddIOp::create(b, loc, loop.getInductionVar(), loop.getStep());
    Value exists =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, number, loop.getUpperBound());
    SmallVector<Value> results = lookup(now, tiles.getYieldedValues());
    IRMapping next = mapTile(number, results);
    Value both = exists;
    if (guard) {
      IRMapping again = next;
      repeat(again, /*withTiles=*/false);
      for (const IRMapping &each : {std::cref(now), std::cref(again)})
        both = arith::AndIOp::create(b, loc, both, each.lookupOrDefault(guard.getCondition()));
    }
    auto branch = scf::IfOp::create(b, loc, getCrossingTypes(), both, /*withElse=*/true);
    eraseTerminators(branch);
    {
      OpBuilder::InsertionGuard restore(b);
      b.setInsertionPointToEnd(branch.thenBlock());
      scf::YieldOp::create(b, loc, emitTogether(now, next));
      b.setInsertionPointToEnd(branch.elseBlock());
      emitFinish(now);
      scf::YieldOp::create(b, loc, emitIf(exists, [&] { return emitStart(next); }));
    }
    llvm::append_range(results, branch.getResults());
    return results;
  }

  bool isHeldRelease(Operation *op) const {
    auto release = dyn_cast<hopper::ReleaseOp>(op);
    return release && held.contains(release.getChannel());
  }

  void cloneFinish(ArrayRef<Operation *> ops, IRMapping &mapping) {
    for (Operation *op : ops)
      if (!isHeldRelease(op))
        b.clone(*op, mapping);
  }

  /// This tile's last products, the next one's first, what follows from the
  /// last, what follows from the first.
  SmallVector<Value> emitTogether(IRMapping now, IRMapping next) {
    ArrayRef<Operation *> ops = start, ends = finish;
    auto isProduct = [](Operation *op) { return isa<tile::MmaOp>(op); };
    size_t early = ops.size(), products = ends.size();
    while (!isProduct(ops[early - 1]))
      --early;
    while (products > 0 && !isProduct(ends[products - 1]) && !usesChannels(ends[products - 1]))
      --products;
    cloneFinish(ends.take_front(products), now);
    clone(ops.take_front(early), next);
    cloneFinish(ends.drop_front(products), now);
    if (guard)
      now.map(guard.getResults(), lookup(now, guard.thenYield().getOperands()));
    cloneFinish(after, now);
    clone(ops.drop_front(early), next);
    return lookup(next, crossing.getArrayRef());
  }

  void emitFinish(IRMapping now) {
    if (!guard)
      return cloneFinish(finish, now);
    Value runs = now.lookupOrDefault(guard.getCondition());
    auto branch = scf::IfOp::create(b, loc, guard.getResultTypes(), runs,
                                    /*withElse=*/true);
    eraseTerminators(branch);
    {
      OpBuilder::InsertionGuard restore(b);
      b.setInsertionPointToEnd(branch.thenBlock());
      IRMapping inside = now;
      cloneFinish(finish, inside);
      scf::YieldOp::create(b, loc, lookup(inside, guard.thenYield().getOperands()));
      b.setInsertionPointToEnd(branch.elseBlock());
      scf::YieldOp::create(b, loc, lookup(now, guard.elseYield().getOperands()));
    }
    now.map(guard.getResults(), branch.getResults());
    cloneFinish(after, now);
  }

  scf::ForOp tiles, inner;
  scf::IfOp guard;
  OpBuilder b;
  Location loc;
  /// Ops before the inner loop, those from `guarded` on in the guard; after it
  /// in the guard; after the guard.
  SmallVector<Operation *> start, finish, after;
  size_t guarded = 0;
  llvm::MapVector<Value, Operation *> held; // release by channel
  llvm::DenseMap<Operation *, bool> repeatable;
  llvm::SetVector<Value> crossing;
};

struct OverlapTilesPass : attn::impl::HopperOverlapTilesBase<OverlapTilesPass> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> loops;
    getOperation().walk([&](hopper::RolesOp roles) {
      // What most often ends at once is not worth twice the code.
      if (!roles->getBlock()->getOps<hopper::RedoOp>().empty() || runsRarely(*roles->getBlock()))
        return;
      for (Region &region : roles.getBodies())
        llvm::append_range(loops, region.front().getOps<scf::ForOp>());
    });
    for (scf::ForOp loop : loops)
      if (Overlapper overlapper(loop); overlapper.analyze()) {
        numOverlapped.at(loop);
        overlapper.run();
      }
  }
};

} // namespace
