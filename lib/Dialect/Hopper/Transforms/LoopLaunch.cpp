// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The frame of launches of an affine nest, and what the threads of a team do together.

#include "LoopLaunch.h"
#include "ThreadLaunch.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Target/SM90/SM90.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <functional>

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

//===----------------------------------------------------------------------===//
// Host
//===----------------------------------------------------------------------===//

LogicalResult LoopLaunch::emit() {
  emitHost();
  openLaunch();
  if (failed(emitRows()))
    return failure();
  b.setInsertionPoint(nest);
  emitZeros();
  b.setInsertionPoint(nest);
  for (Value memory : allocations)
    memref::DeallocOp::create(b, memory);
  return success();
}

Value LoopLaunch::allocate(Type element, Value count) {
  auto type = MemRefType::get({ShapedType::kDynamic}, element);
  allocations.push_back(memref::AllocOp::create(b, type, ValueRange{count}));
  return allocations.back();
}

void LoopLaunch::emitHost() {
  rows = index(1);
  for (affine::AffineForOp loop : plan.band) {
    bandLows.push_back(lowerBound(loop));
    bandCounts.push_back(countOf(loop));
    rows = mul(rows, bandCounts.back());
  }
  chooseParts();
  bool isShared = plan.team == Team::Cluster;
  Value slots = plan.team == Team::Grid ? teams : rows;
  for (const DividedLoop &divided : plan.divided) {
    if (divided.treatment == LoopTreatment::OrderedTurnstile || options.mergesLast) {
      flags[divided.op] = allocate(b.getI32Type(), rows);
      zeros.push_back(flags[divided.op]);
    }
    for (const Partial &partial : divided.partials)
      if (!isShared && (divided.treatment != LoopTreatment::Atomics || !partial.dims.empty()))
        workspaces[&partial] =
            allocate(partial.getType(), mul(mul(slots, parts), elementsOf(partial)));
  }
  if (plan.team == Team::Grid) {
    counter = memref::AllocOp::create(b, MemRefType::get({1}, b.getI32Type()));
    allocations.push_back(counter);
    zeros.push_back(counter);
  }
}

/// How many CTAs a row has, and how many rows have CTAs at a time.
void LoopLaunch::chooseParts() {
  teams = rows;
  if (plan.team == Team::Cluster) {
    knownParts = options.parts > 0 ? options.parts : kCtasPerCluster;
    parts = index(knownParts);
    return;
  }
  parts = index(std::max<int64_t>(1, options.parts));
  if (plan.divided.empty())
    return;
  // A launch that nobody waits in may have as many as share the multiprocessors.
  int64_t occupancy = plan.team == Team::Launches
                          ? target::sm90::kLimits.threadsPerMultiprocessor / options.threads
                          : 1;
  Value ctas = index(options.ctas * occupancy), one = index(1);
  if (options.parts == 0) {
    parts = arith::DivUIOp::create(b, ctas, arith::MaxUIOp::create(b, rows, one));
    const DividedLoop &first = plan.divided.front();
    auto fixed = [&](Value operand) { return isDefinedOutside(operand, nest); };
    if (llvm::all_of(first.op->getOperands(), fixed)) {
      bool isShared = first.isShared() || first.partials.empty();
      Value count =
          arith::CeilDivUIOp::create(b, countOf(first.op), index(isShared ? 1 : options.threads));
      parts = arith::MinUIOp::create(b, parts, count);
    }
    parts = arith::MaxUIOp::create(b, parts, one);
  }
  if (plan.team == Team::Grid)
    teams = arith::MinUIOp::create(b, rows, Value(arith::DivUIOp::create(b, ctas, parts)));
}

/// Flags and counters are 0 before the first launch.
void LoopLaunch::emitZeros() {
  if (counter && llvm::none_of(counter.getUsers(), llvm::IsaPred<GridSyncOp>)) {
    llvm::erase(zeros, counter);
    llvm::erase(allocations, counter);
    counter.getDefiningOp()->erase();
  }
  if (zeros.empty())
    return;
  b.setInsertionPoint(firstLaunch);
  constexpr int64_t kCtas = 8, kThreads = 128;
  gpu::LaunchOp launch = createThreadLaunch(b, index(kCtas), kThreads, 1, {}, 0);
  Value first = add(mul(launch.getBlockIds().x, index(kThreads)), launch.getThreadIds().x);
  Value zero = arith::ConstantIntOp::create(b, 0, 32);
  for (Value memory : zeros) {
    Value size = memref::DimOp::create(b, memory, index(0));
    emitLoop(first, size, index(kCtas * kThreads),
             [&](Value n) { memref::StoreOp::create(b, zero, memory, ValueRange{n}); });
  }
  ++numLaunches;
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

void LoopLaunch::openLaunch() {
  SmallVector<Type> types;
  int64_t warps = options.threads / kLanes;
  bool isCluster = plan.team == Team::Cluster;
  SmallVector<const Partial *> all;
  for (const DividedLoop &divided : plan.divided)
    for (const Partial &partial : divided.partials) {
      all.push_back(&partial);
      types.push_back(getSharedType(partial.getType(), warps));
      if (isCluster)
        types.push_back(getSharedType(partial.getType(), *partial.elements));
    }
  Value grid = plan.team == Team::Thread
                   ? Value(arith::CeilDivUIOp::create(b, rows, index(options.threads)))
                   : mul(teams, parts);
  launch = createThreadLaunch(b, grid, options.threads, knownParts, types,
                              /*occupancy=*/plan.team == Team::Grid);
  if (plan.team == Team::Grid)
    launch->setAttr(kCooperativeAttr, b.getUnitAttr());
  if (!firstLaunch)
    firstLaunch = launch;
  ++numLaunches;
  auto memory = launch.getWorkgroupAttributions().begin();
  for (const Partial *partial : all) {
    cells[partial] = *memory++;
    if (isCluster)
      sharedParts[partial] = *memory++;
  }
  map = IRMapping();
  threadCount = index(options.threads);
  thread = launch.getThreadIds().x;
  Value block = launch.getBlockIds().x;
  member = arith::RemUIOp::create(b, block, parts);
  team = arith::DivUIOp::create(b, block, parts);
  rowBlock = b.getInsertionBlock();
}

void LoopLaunch::setRow(Value number) {
  row = number;
  for (size_t d = plan.band.size(); d-- > 0;) {
    Value n = d ? Value(arith::RemUIOp::create(b, number, bandCounts[d])) : number;
    if (d)
      number = arith::DivUIOp::create(b, number, bandCounts[d]);
    affine::AffineForOp loop = plan.band[d];
    map.map(loop.getInductionVar(), add(bandLows[d], mul(n, index(loop.getStepAsInt()))));
  }
}

LogicalResult LoopLaunch::emitRow() {
  for (current = 0; current < plan.row.size(); ++current)
    if (failed(emitTogether(plan.row[current])))
      return failure();
  return success();
}

LogicalResult LoopLaunch::emitRows() {
  if (plan.team == Team::Grid)
    return emitGridRows();
  if (plan.team == Team::Thread) {
    Value number = add(mul(launch.getBlockIds().x, threadCount), thread);
    auto branch = scf::IfOp::create(b, isBelow(number, rows));
    b.setInsertionPointToStart(branch.thenBlock());
    setRow(number);
    for (Operation *op : plan.row)
      if (failed(cloneOp(op)))
        return failure();
    return success();
  }
  setRow(team);
  if (failed(emitRow()))
    return failure();
  if (plan.team == Team::Cluster && !inUse.empty() && knownParts > 1)
    ClusterSyncOp::create(b); // no CTA may end while others read its parts
  return success();
}

/// All CTAs run at a time, so there may be more rows than teams; those without a row in the last
/// turn come to the meetings of the grid all the same.
LogicalResult LoopLaunch::emitGridRows() {
  auto turns = scf::ForOp::create(b, index(0), rows, teams);
  b.setInsertionPointToStart(turns.getBody());
  Value number = add(turns.getInductionVar(), team);
  auto branch = scf::IfOp::create(b, TypeRange(), isBelow(number, rows), /*withElseRegion=*/true);
  rowBlock = branch.thenBlock();
  b.setInsertionPointToStart(rowBlock);
  setRow(number);
  if (failed(emitRow()))
    return failure();
  IRMapping idle;
  b.setInsertionPointToStart(branch.elseBlock());
  if (failed(emitIdle(*branch.thenBlock(), idle, *branch.thenBlock())))
    return failure();
  b.setInsertionPointAfter(branch);
  // Before parts are computed again in the same memory.
  if (meetsBetween({}))
    emitIf(isBelow(add(turns.getInductionVar(), teams), rows),
           [&] { GridSyncOp::create(b, counter); });
  return success();
}

/// Meetings of the grid in `from` again, in front of the builder. How many there are must not
/// depend on the row, or some teams would wait for others that do not come.
LogicalResult LoopLaunch::emitIdle(Block &from, IRMapping &idle, Block &active) {
  auto meets = [](Operation &op) {
    return op.walk([](GridSyncOp) { return WalkResult::interrupt(); }).wasInterrupted();
  };
  std::function<bool(Value)> repeat = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (value == row ||
        (!op && active.getParentOp()->isProperAncestor(value.getParentBlock()->getParentOp())))
      return idle.contains(value);
    if (!op || !active.getParentOp()->isProperAncestor(op) || idle.contains(value))
      return true;
    if (!isPure(op) || !llvm::all_of(op->getOperands(), repeat))
      return false;
    b.clone(*op, idle);
    return true;
  };
  for (Operation &op : from) {
    if (isa<GridSyncOp>(op)) {
      b.clone(op, idle);
      continue;
    }
    if (!meets(op))
      continue;
    auto loop = dyn_cast<scf::ForOp>(op);
    auto branch = dyn_cast<scf::IfOp>(op);
    SmallVector<Value> needed;
    if (loop)
      needed = {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()};
    else if (branch)
      needed = {branch.getCondition()};
    if (needed.empty() || !llvm::all_of(needed, repeat))
      return op.emitError() << "the grid meets inside of a loop or condition that differs from row "
                            << "to row: some teams would wait for ever";
    OpBuilder::InsertionGuard guard(b);
    auto look = [&](Value value) { return idle.lookupOrDefault(value); };
    if (loop) {
      auto copy = scf::ForOp::create(b, look(needed[0]), look(needed[1]), look(needed[2]));
      idle.map(loop.getInductionVar(), copy.getInductionVar());
      b.setInsertionPointToStart(copy.getBody());
      if (failed(emitIdle(*loop.getBody(), idle, active)))
        return failure();
      continue;
    }
    auto copy = scf::IfOp::create(b, TypeRange(), look(needed[0]), /*withElseRegion=*/true);
    b.setInsertionPointToStart(copy.thenBlock());
    if (failed(emitIdle(*branch.thenBlock(), idle, active)))
      return failure();
    b.setInsertionPointToStart(copy.elseBlock());
    if (branch.elseBlock() && failed(emitIdle(*branch.elseBlock(), idle, active)))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// From one launch to the next
//===----------------------------------------------------------------------===//

bool LoopLaunch::canRepeat(Operation *op) const {
  if (op->getNumRegions() > 0)
    return false;
  if (isMemoryEffectFree(op))
    return true;
  std::optional<unsigned> statement = graph.findStatement(op);
  return isa<affine::AffineReadOpInterface>(op) && statement &&
         llvm::none_of(graph.getDependences(), [&](const Dependence &dependence) {
           return dependence.source == *statement && dependence.kind == DependenceKind::WAR;
         });
}

void LoopLaunch::findCrossing(SetVector<Operation *> &repeated, SetVector<Value> &kept) const {
  llvm::SmallDenseMap<Operation *, size_t> places;
  for (auto [place, op] : llvm::enumerate(plan.row))
    places[op] = place;
  SmallVector<Value> needed;
  for (Operation *op : ArrayRef(plan.row).drop_front(current))
    op->walk([&](Operation *inner) { llvm::append_range(needed, inner->getOperands()); });
  while (!needed.empty()) {
    Value value = needed.pop_back_val();
    Operation *op = value.getDefiningOp();
    auto place = op ? places.find(op) : places.end();
    if (place == places.end() || place->second >= current)
      continue;
    if (!canRepeat(op))
      kept.insert(value);
    else if (repeated.insert(op))
      llvm::append_range(needed, op->getOperands());
  }
}

/// Ends the launch: behind its end all of it is visible. What follows is another launch, which
/// computes again what it needs or reads what was kept of the row.
LogicalResult LoopLaunch::splitLaunch() {
  if (b.getInsertionBlock() != rowBlock)
    return plan.row[current]->emitError(
        "a launch cannot end inside of a loop or condition: expected divided loops directly in a "
        "row; by grid-phases the grid can meet there");
  SetVector<Operation *> repeated;
  SetVector<Value> kept;
  findCrossing(repeated, kept);
  llvm::MapVector<Value, Value> memory;
  for (Value value : kept) {
    if (!value.getType().isIntOrIndexOrFloat())
      return plan.row[current]->emitError("a value of type ")
             << value.getType() << " would be kept from one launch to the next";
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(launch);
    memory[value] = allocate(value.getType(), rows);
  }
  emitIf(isFirst(), [&] {
    for (auto [value, place] : memory)
      memref::StoreOp::create(b, map.lookup(value), place, ValueRange{row});
  });
  b.setInsertionPoint(nest);
  openLaunch();
  setRow(team);
  for (Operation *op : ArrayRef(plan.row).take_front(current)) {
    if (repeated.contains(op) && failed(cloneOp(op)))
      return failure();
    for (Value result : op->getResults())
      if (Value place = memory.lookup(result))
        map.map(result, memref::LoadOp::create(b, place, ValueRange{row}).getResult());
  }
  return success();
}

//===----------------------------------------------------------------------===//
// What a team does together
//===----------------------------------------------------------------------===//

Value LoopLaunch::isFirst() { return isEqual(getWorker(), index(0)); }

/// All threads of the team meet: what was done before is visible behind.
LogicalResult LoopLaunch::meet() {
  pending.clear();
  inUse.clear();
  hasMet = true;
  if (isAlone())
    return gpu::BarrierOp::create(b), success();
  if (plan.team == Team::Launches)
    return splitLaunch();
  if (plan.team == Team::Grid)
    GridSyncOp::create(b, counter);
  else if (knownParts > 1)
    ClusterSyncOp::create(b);
  else
    gpu::BarrierOp::create(b);
  return success();
}

void LoopLaunch::listExecuted(Operation *op, SmallVectorImpl<Executed> &list) const {
  auto addAll = [&](By by) {
    op->walk([&](Operation *inner) {
      if (isa<affine::AffineReadOpInterface, affine::AffineWriteOpInterface>(inner) &&
          !placed.contains(inner))
        list.push_back({*graph.findStatement(inner), by, op});
    });
  };
  if (auto loop = dyn_cast<affine::AffineForOp>(op)) {
    if (const DividedLoop *divided = plan.find(op)) {
      if (divided->treatment == LoopTreatment::OrderedTurnstile)
        return addAll(By::Any);
      llvm::append_range(list, listParts(*divided));
      llvm::append_range(list, listMerge(*divided));
      return;
    }
    if (plan.isOfThreads(loop, graph))
      return addAll(By::Own);
  } else if (!isa<affine::AffineIfOp>(op)) {
    return addAll(isa<affine::AffineWriteOpInterface>(op) ? By::First : By::All);
  }
  for (Region &region : op->getRegions())
    for (Operation &inner : region.getOps())
      listExecuted(&inner, list);
}

SmallVector<LoopLaunch::Executed> LoopLaunch::listParts(const DividedLoop &divided) const {
  SmallVector<Executed> list;
  bool isAtomic = divided.treatment == LoopTreatment::Atomics;
  divided.op->walk([&](Operation *inner) {
    auto isMerged = [&](const Partial &partial) {
      return !isAtomic && (partial.load == inner || partial.store == inner);
    };
    if (isa<affine::AffineReadOpInterface, affine::AffineWriteOpInterface>(inner) &&
        llvm::none_of(divided.partials, isMerged))
      list.push_back({*graph.findStatement(inner), By::Any});
  });
  return list;
}

SmallVector<LoopLaunch::Executed> LoopLaunch::listMerge(const DividedLoop &divided) const {
  SmallVector<Executed> list;
  if (divided.treatment != LoopTreatment::Atomics)
    for (const Partial &partial : divided.partials) {
      list.push_back({*graph.findStatement(partial.load), By::Any});
      list.push_back({partial.statement, By::Any});
    }
  return list;
}

bool LoopLaunch::meetsBetween(ArrayRef<Executed> all) const {
  auto isRead = [&](const Partial *partial) { return inUse.contains(partial); };
  return llvm::any_of(early, isRead) || conflicts(pending, all);
}

/// Whether two executions may be by different threads, and one sees what the other does.
bool LoopLaunch::conflicts(const Executed &earlier, const Executed &later) const {
  if (earlier.by == By::First && later.by == By::First)
    return false;
  auto isSameThread = [&](const Dependence &dependence) {
    if (earlier.by != By::Own || later.by != By::Own || earlier.loop != later.loop)
      return false;
    auto loop = cast<affine::AffineForOp>(earlier.loop);
    auto fixed = [&](Value operand) { return isDefinedOutside(operand, nest); };
    if (!llvm::all_of(loop.getLowerBoundOperands(), fixed))
      return false;
    unsigned number = *graph.findLoop(earlier.loop);
    for (auto [each, distance] : llvm::zip(dependence.loops, dependence.vector))
      if (each == number)
        return distance.isZero();
    return false;
  };
  return llvm::any_of(graph.getDependences(), [&](const Dependence &dependence) {
    return dependence.throughMemory && dependence.source == earlier.statement &&
           dependence.sink == later.statement && !isSameThread(dependence);
  });
}

bool LoopLaunch::conflicts(ArrayRef<Executed> earlier, ArrayRef<Executed> later) const {
  return llvm::any_of(earlier, [&](const Executed &first) {
    return llvm::any_of(later, [&](const Executed &second) { return conflicts(first, second); });
  });
}

LogicalResult LoopLaunch::emitTogether(Block &block) {
  for (Operation &op : block.without_terminator())
    if (failed(emitTogether(&op)))
      return failure();
  return success();
}

LogicalResult LoopLaunch::emitTogether(Operation *op) {
  b.setLoc(op->getLoc());
  SmallVector<Executed> executed;
  const DividedLoop *divided = plan.find(op);
  bool takesTurns = divided && divided->treatment == LoopTreatment::OrderedTurnstile;
  if (divided && !takesTurns)
    executed = listParts(*divided); // the team meets before it merges
  else
    listExecuted(op, executed);
  if (conflicts(pending, executed) && failed(meet()))
    return failure();
  if (divided)
    return takesTurns ? emitTurns(*divided) : emitParts(*divided);
  auto loop = dyn_cast<affine::AffineForOp>(op);
  if (loop && !plan.isOfThreads(loop, graph))
    return emitInOrder(loop);
  if (auto branch = dyn_cast<affine::AffineIfOp>(op))
    return emitBranch(branch);
  pending.append(executed);
  if (loop)
    return emitParallel(loop);
  if (isa<affine::AffineWriteOpInterface>(op) && !placed.contains(op))
    return emitIf(isFirst(), [&] { cloneAccess(op); }), success();
  return cloneOp(op);
}

/// Iterations that the threads of the team divide.
LogicalResult LoopLaunch::emitParallel(affine::AffineForOp loop) {
  LogicalResult result = success();
  emitLoop(getWorker(), countOf(loop), getWorkers(), [&](Value n) {
    map.map(loop.getInductionVar(), variableOf(loop, n));
    result = cloneOps(*loop.getBody());
  });
  return result;
}

/// Iterations one behind the other, each by the team.
LogicalResult LoopLaunch::emitInOrder(affine::AffineForOp loop) {
  SmallVector<Executed> before = pending, all;
  auto usedBefore = inUse, earlyBefore = std::move(early);
  bool hadMet = hasMet;
  early.clear();
  hasMet = false;
  LogicalResult result = cloneLoop(loop, [&](Block &body) {
    if (failed(emitTogether(body)))
      return failure();
    for (Operation &op : body)
      listExecuted(&op, all);
    return meetsBetween(all) ? meet() : success();
  });
  if (failed(result))
    return failure();
  // There may be no iteration.
  pending.append(before);
  inUse.insert(usedBefore.begin(), usedBefore.end());
  if (!hadMet)
    earlyBefore.insert(early.begin(), early.end());
  early = std::move(earlyBefore);
  hasMet = hadMet;
  return success();
}

LogicalResult LoopLaunch::emitBranch(affine::AffineIfOp op) {
  SmallVector<Executed> before = pending, behind = pending;
  auto usedBefore = inUse, used = inUse;
  bool hadMet = hasMet;
  LogicalResult result = cloneIf(op, [&](Block &block) {
    pending = before;
    inUse = usedBefore;
    LogicalResult each = emitTogether(block);
    behind.append(pending);
    used.insert(inUse.begin(), inUse.end());
    return each;
  });
  pending = behind;
  inUse = used;
  hasMet = hadMet;
  return result;
}

LogicalResult LoopLaunch::emitAlone(function_ref<LogicalResult()> emit, Operation *scope) {
  SmallVector<Executed> before = std::move(pending);
  pending.clear();
  bool wasSingle = single, hadMet = hasMet;
  auto used = inUse;
  single = true;
  LogicalResult result = emit();
  single = wasSingle;
  inUse = used; // only the CTA has met
  hasMet = hadMet;
  pending = std::move(before);
  scope->walk([&](Operation *inner) {
    if (isa<affine::AffineReadOpInterface, affine::AffineWriteOpInterface>(inner) &&
        !placed.contains(inner))
      pending.push_back({*graph.findStatement(inner), By::Any});
  });
  return result;
}
