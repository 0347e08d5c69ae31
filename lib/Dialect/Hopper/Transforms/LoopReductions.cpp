// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loops that carry running values and are divided all the same: in parts that are merged, or in
// turns.

#include "LoopLaunch.h"
#include "ThreadLaunch.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

Value LoopLaunch::neutralOf(const Partial &partial) {
  return arith::ConstantOp::create(b, *arith::getNeutralElement(partial.combiner));
}

Value LoopLaunch::combine(const Partial &partial, Value a, Value c) {
  Operation *clone = b.insert(partial.combiner->cloneWithoutRegions());
  clone->setOperands({a, c});
  return clone->getResult(0);
}

/// Where this thread, or this CTA, has its part.
LoopLaunch::Place LoopLaunch::placeOf(const DividedLoop &divided, const Partial &partial) {
  if (partial.dims.empty()) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&launch.getBody().front());
    return {&partial, memref::AllocaOp::create(b, MemRefType::get({}, partial.getType())), {}};
  }
  if (Value shared = sharedParts.lookup(&partial))
    return {&partial, shared, index(0)};
  Value slot = plan.team == Team::Grid ? team : row;
  Value part = add(mul(slot, parts), getMember());
  return {&partial, workspaces.lookup(&partial), mul(part, elementsOf(partial))};
}

void LoopLaunch::emitNeutral(const Place &place) {
  Value neutral = neutralOf(*place.partial);
  if (!place.base) {
    memref::StoreOp::create(b, neutral, place.memory, ValueRange());
    return;
  }
  emitLoop(thread, elementsOf(*place.partial), threadCount, [&](Value element) {
    memref::StoreOp::create(b, neutral, place.memory, ValueRange{add(place.base, element)});
  });
}

/// The parts of all threads of the CTA, in one order: each thread gets the same.
Value LoopLaunch::combineThreads(const Partial &partial, Value own) {
  for (int64_t distance = 1; distance < kLanes; distance *= 2)
    own = combine(
        partial, own,
        gpu::ShuffleOp::create(b, own, int32_t(distance), int32_t(kLanes), gpu::ShuffleMode::XOR)
            .getShuffleResult());
  int64_t warps = options.threads / kLanes;
  if (warps == 1)
    return own;
  Value memory = cells.lookup(&partial), lanes = index(kLanes);
  emitIf(isEqual(arith::RemUIOp::create(b, thread, lanes), index(0)), [&] {
    Value warp = arith::DivUIOp::create(b, thread, lanes);
    memref::StoreOp::create(b, own, memory, ValueRange{warp});
  });
  gpu::BarrierOp::create(b);
  Value sum;
  for (int64_t warp = 0; warp < warps; ++warp) {
    Value part = memref::LoadOp::create(b, memory, ValueRange{index(warp)});
    sum = sum ? combine(partial, sum, part) : part;
  }
  return sum;
}

/// The iterations of this CTA, or of this thread.
LogicalResult LoopLaunch::emitIterations(const DividedLoop &divided) {
  affine::AffineForOp op = divided.op;
  bool isShared = divided.isShared();
  Value first = isShared ? getMember() : getWorker();
  Value step = isShared ? getMembers() : getWorkers();
  auto loop = scf::ForOp::create(b, first, countOf(op), step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  map.map(op.getInductionVar(), variableOf(op, loop.getInductionVar()));
  if (!isShared)
    return cloneOps(*op.getBody());
  return emitAlone(
      [&] {
        if (failed(emitTogether(*op.getBody())))
          return failure();
        SmallVector<Executed> all;
        for (Operation &inner : *op.getBody())
          listExecuted(&inner, all);
        return meetsBetween(all) ? meet() : success();
      },
      op);
}

LogicalResult LoopLaunch::addAtomically(const Place &place, Value value) {
  auto kind = [&]() -> std::optional<arith::AtomicRMWKind> {
    using Kind = arith::AtomicRMWKind;
    return llvm::TypeSwitch<Operation *, std::optional<Kind>>(place.partial->combiner)
        .Case([](arith::AddFOp) { return Kind::addf; })
        .Case([](arith::AddIOp) { return Kind::addi; })
        .Case([](arith::MaximumFOp) { return Kind::maximumf; })
        .Case([](arith::MaxNumFOp) { return Kind::maxnumf; })
        .Case([](arith::MaxSIOp) { return Kind::maxs; })
        .Case([](arith::MaxUIOp) { return Kind::maxu; })
        .Case([](arith::MinimumFOp) { return Kind::minimumf; })
        .Case([](arith::MinNumFOp) { return Kind::minnumf; })
        .Case([](arith::MinSIOp) { return Kind::mins; })
        .Case([](arith::MinUIOp) { return Kind::minu; })
        .Case([](arith::AndIOp) { return Kind::andi; })
        .Case([](arith::OrIOp) { return Kind::ori; })
        .Case([](arith::XOrIOp) { return Kind::xori; })
        .Default([](Operation *) { return std::nullopt; });
  }();
  affine::AffineStoreOp store = place.partial->store;
  if (!kind)
    return store.emitError() << "the device has no atomic '" << place.partial->combiner->getName()
                             << "'";
  memref::AtomicRMWOp::create(b, *kind, value, map.lookupOrDefault(store.getMemRef()),
                              expand(store.getAffineMap(), store.getMapOperands()));
  return success();
}

/// Brings the CTA's part of a running value where the team merges parts, or merges it at once.
/// Leaves the place that the merge reads.
LogicalResult LoopLaunch::publish(const DividedLoop &divided, Place &place) {
  const Partial &partial = *place.partial;
  bool isAtomic = divided.treatment == LoopTreatment::Atomics;
  LogicalResult result = success();
  if (!partial.dims.empty()) {
    if (isAtomic)
      emitLoop(thread, elementsOf(partial), threadCount, [&](Value element) {
        setDims(partial, element);
        Value at = add(place.base, element);
        result = addAtomically(place, memref::LoadOp::create(b, place.memory, ValueRange{at}));
      });
    return result;
  }
  Value own = memref::LoadOp::create(b, place.memory, ValueRange());
  if (!divided.isShared())
    own = combineThreads(partial, own);
  if (isAtomic) {
    emitIf(isEqual(thread, index(0)), [&] { result = addAtomically(place, own); });
    return result;
  }
  place.memory = sharedParts.lookup(&partial);
  place.base = index(0);
  if (!place.memory) {
    Value slot = plan.team == Team::Grid ? team : row;
    place.memory = workspaces.lookup(&partial);
    place.base = add(mul(slot, parts), getMember());
  }
  emitIf(isEqual(thread, index(0)),
         [&] { memref::StoreOp::create(b, own, place.memory, ValueRange{place.base}); });
  return success();
}

/// What was there before with the parts, in their order.
void LoopLaunch::emitMerge(const Place &place, Value count) {
  const Partial &partial = *place.partial;
  Value elements = elementsOf(partial);
  emitLoop(getWorker(), elements, getWorkers(), [&](Value element) {
    setDims(partial, element);
    affine::AffineStoreOp store = partial.store;
    Value memory = map.lookupOrDefault(store.getMemRef());
    SmallVector<Value> indices = expand(store.getAffineMap(), store.getMapOperands());
    Value before = memref::LoadOp::create(b, memory, indices);
    auto loop = scf::ForOp::create(b, index(0), count, index(1), ValueRange{before});
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value part, rank = loop.getInductionVar();
      if (!sharedParts.contains(&partial)) {
        Value slot = plan.team == Team::Grid ? team : row;
        Value at = add(mul(add(mul(slot, parts), rank), elements), element);
        part = memref::LoadOp::create(b, place.memory, ValueRange{at});
      } else if (knownParts > 1) {
        part = RemoteLoadOp::create(b, partial.getType(), place.memory, element, rank);
      } else {
        part = memref::LoadOp::create(b, place.memory, ValueRange{element});
      }
      scf::YieldOp::create(b, combine(partial, loop.getRegionIterArg(0), part));
    }
    memref::StoreOp::create(b, loop.getResult(0), memory, indices);
  });
}

LogicalResult LoopLaunch::emitParts(const DividedLoop &divided) {
  affine::AffineForOp op = divided.op;
  auto isRead = [&](const Partial &partial) { return inUse.contains(&partial); };
  if (llvm::any_of(divided.partials, isRead) && failed(meet()))
    return failure();
  SmallVector<Place> places;
  bool isAtomic = divided.treatment == LoopTreatment::Atomics, isNested = false;
  for (const Partial &partial : divided.partials) {
    // Of one loop, iterations belong to the same threads here and there.
    isNested |= partial.dims.size() > 1;
    if (!hasMet)
      early.insert(&partial);
    places.push_back(placeOf(divided, partial));
    emitNeutral(places.back());
    placed[partial.load] = placed[partial.store] = places.back();
  }
  if (isNested)
    gpu::BarrierOp::create(b);
  if (failed(emitIterations(divided)))
    return failure();
  placed.clear();
  if (isNested && isAtomic)
    gpu::BarrierOp::create(b);
  for (Place &place : places)
    if (failed(publish(divided, place)))
      return failure();
  if (isAtomic) {
    pending.append(listParts(divided));
  } else {
    Value count = getMembers();
    if (!options.mergesLast || single) {
      if (failed(meet()))
        return failure();
    } else {
      if (b.getInsertionBlock() != rowBlock)
        return op.emitError("the last CTA of a row merges only what is directly in the row");
      Value last = LastArrivalOp::create(b, b.getI1Type(), flags.lookup(op), row, parts);
      auto branch = scf::IfOp::create(b, last);
      b.setInsertionPointToStart(branch.thenBlock());
      // It goes on alone, to the end of the row.
      single = true;
      pending.clear();
    }
    for (const Place &place : places)
      emitMerge(place, count);
    for (const Partial &partial : divided.partials)
      inUse.insert(&partial);
    pending.append(listMerge(divided));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

/// Whether an op carries nothing from one iteration to the next: it need not wait for its turn.
bool LoopLaunch::isFree(Operation *op, unsigned loop) const {
  SmallVector<Executed> executed;
  WalkResult walk = op->walk([&](Operation *inner) {
    std::optional<unsigned> statement = graph.findStatement(inner);
    if (!statement)
      return WalkResult::advance();
    for (const Dependence *dependence : graph.getCarriedBy(loop))
      if (dependence->source == *statement || dependence->sink == *statement)
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  return !walk.wasInterrupted();
}

/// CTAs take iterations in turn. What carries nothing runs ahead, or behind; the rest waits until
/// the iteration before has said, in the row's flag, that it is done.
LogicalResult LoopLaunch::emitTurns(const DividedLoop &divided) {
  affine::AffineForOp op = divided.op;
  unsigned number = *graph.findLoop(op);
  SmallVector<Operation *> ahead, inTurn, behind;
  llvm::SmallPtrSet<Operation *, 16> late;
  for (Operation &inner : op.getBody()->without_terminator()) {
    bool waits = !isFree(&inner, number);
    inner.walk([&](Operation *each) {
      for (Value operand : each->getOperands())
        waits |= operand.getDefiningOp() && late.contains(operand.getDefiningOp());
    });
    // In the order of the program with what it shares memory with.
    SmallVector<Executed> own, earlier;
    listExecuted(&inner, own);
    for (Operation *each : inTurn)
      listExecuted(each, earlier);
    // Not by who executes them: they would change places.
    waits |= llvm::any_of(graph.getDependences(), [&](const Dependence &dependence) {
      auto has = [](ArrayRef<Executed> list, unsigned statement) {
        return llvm::any_of(list,
                            [&](const Executed &each) { return each.statement == statement; });
      };
      return dependence.throughMemory && has(earlier, dependence.source) &&
             has(own, dependence.sink);
    });
    if (waits)
      late.insert(&inner);
    (waits ? inTurn : ahead).push_back(&inner);
  }
  // The end of the turn: nothing behind it carries anything.
  while (!inTurn.empty() && isFree(inTurn.back(), number))
    behind.insert(behind.begin(), inTurn.pop_back_val());
  Value flag = flags.lookup(op), count = countOf(op);
  auto loop = scf::ForOp::create(b, getMember(), count, getMembers());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value n = loop.getInductionVar();
    map.map(op.getInductionVar(), variableOf(op, n));
    auto emitAll = [&](ArrayRef<Operation *> ops) {
      for (Operation *each : ops)
        if (failed(emitTogether(each)))
          return failure();
      return success();
    };
    LogicalResult result = emitAlone(
        [&] {
          if (failed(emitAll(ahead)))
            return failure();
          emitIf(isEqual(thread, index(0)),
                 [&] { SemaphoreWaitOp::create(b, flag, ValueRange{row}, toI32(n)); });
          if (failed(meet()) || failed(emitAll(inTurn)))
            return failure();
          // Threads besides the first one, which says that the turn is over.
          if (llvm::any_of(pending, [](const Executed &each) { return each.by != By::First; }) &&
              failed(meet()))
            return failure();
          emitIf(isEqual(thread, index(0)), [&] {
            Value next = arith::AddIOp::create(b, toI32(n), arith::ConstantIntOp::create(b, 1, 32));
            SemaphoreReleaseOp::create(b, flag, ValueRange{row}, next);
          });
          if (failed(emitAll(behind)))
            return failure();
          SmallVector<Executed> next; // before the CTA meets in its next turn
          for (Operation *each : ahead)
            listExecuted(each, next);
          return conflicts(pending, next) ? meet() : success();
        },
        op);
    if (failed(result))
      return failure();
  }
  return success();
}
