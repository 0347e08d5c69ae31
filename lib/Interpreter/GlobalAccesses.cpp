// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GlobalAccesses.h"
#include "Cluster.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include <cmath>

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

//===----------------------------------------------------------------------===//
// Knowledge
//===----------------------------------------------------------------------===//

void Knowledge::join(const Knowledge &other) {
  if (!other.clocks || clocks == other.clocks)
    return;
  if (!clocks)
    return void(clocks = other.clocks);
  auto joined = std::make_shared<Clocks>(*clocks);
  for (const auto &[cluster, clock] : *other.clocks) {
    std::shared_ptr<const Clock> &own = (*joined)[cluster];
    if (!own) {
      own = clock;
    } else if (own != clock) {
      auto both = std::make_shared<Clock>(*own);
      both->join(*clock);
      own = both;
    }
  }
  clocks = joined;
}

void Knowledge::add(unsigned cluster, const Clock &clock) {
  Knowledge own;
  own.clocks = std::make_shared<Clocks>(Clocks{{cluster, std::make_shared<const Clock>(clock)}});
  join(own);
}

const Clock *Knowledge::of(unsigned cluster) const {
  if (!clocks)
    return nullptr;
  auto found = clocks->find(cluster);
  return found == clocks->end() ? nullptr : found->second.get();
}

//===----------------------------------------------------------------------===//
// What a launch writes
//===----------------------------------------------------------------------===//

static mlir::Value findRoot(mlir::Value memref) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  return memref;
}

void interpreter::findWritten(Translator &translator, Operation *launch, LaunchInfo &info) {
  launch->walk([&](Operation *op) {
    mlir::Value memref;
    if (isa<memref::StoreOp, memref::AtomicRMWOp, vector::StoreOp>(op))
      memref = op->getOperand(1);
    else if (auto write = dyn_cast<vector::TransferWriteOp>(op))
      memref = write.getBase();
    if (!memref)
      return;
    mlir::Value root = findRoot(memref);
    bool isOutside = !launch->isAncestor(root.getParentBlock()->getParentOp());
    if (isOutside && info.writtenMemory.insert(root.getAsOpaquePointer()).second)
      info.written.push_back(translator.slot(root));
  });
}

bool interpreter::mayRace(const Translator &translator, mlir::Value memref) {
  return translator.launch && translator.launch->ofThreads &&
         translator.launch->writtenMemory.contains(findRoot(memref).getAsOpaquePointer());
}

//===----------------------------------------------------------------------===//
// Flags
//===----------------------------------------------------------------------===//

/// What the fiber has done, with what it knows.
static Knowledge tell(Fiber &fiber) {
  Knowledge all = fiber.knowledge;
  Clock clock = fiber.clock;
  clock[fiber.warpgroup] = std::max(clock[fiber.warpgroup], fiber.now);
  all.add(fiber.cluster->number, clock);
  return all;
}

static void learn(Fiber &fiber, const Knowledge &knowledge) {
  fiber.knowledge.join(knowledge);
  if (const Clock *own = knowledge.of(fiber.cluster->number))
    fiber.clock.join(*own);
}

void interpreter::releaseFlag(Fiber &fiber, const char *flag) {
  fiber.machine->accesses->flags[flag].join(tell(fiber));
}

void interpreter::acquireFlag(Fiber &fiber, const char *flag) {
  learn(fiber, fiber.machine->accesses->flags[flag]);
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

static bool isKnown(const Fiber &fiber, const GlobalAccesses::Access &earlier) {
  if (earlier.cluster == fiber.cluster->number)
    return earlier.thread == fiber.warpgroup || fiber.clock[earlier.thread] >= earlier.epoch;
  const Clock *clock = fiber.knowledge.of(earlier.cluster);
  return clock && (*clock)[earlier.thread] >= earlier.epoch;
}

LogicalResult interpreter::noteAccess(Fiber &fiber, const MemRef &memref, const char *element,
                                      Operation *op, bool write, bool atomic) {
  if (!fiber.cluster || !fiber.cluster->launch.ofThreads || memref.isLocal)
    return success();
  GlobalAccesses &all = *fiber.machine->accesses;
  if (!write && !all.written.contains(memref.base))
    return success();
  GlobalAccesses::Cell &cell = all.cells[element];
  auto check = [&](ArrayRef<GlobalAccesses::Access> accesses, bool wrote) -> LogicalResult {
    for (const GlobalAccesses::Access &earlier : accesses) {
      if ((atomic && earlier.atomic) || isKnown(fiber, earlier))
        continue;
      InFlightDiagnostic diagnostic = op->emitError();
      diagnostic << (write ? "writes" : "reads") << " element "
                 << (element - memref.base) / int64_t(elementSize(memref.kind))
                 << " of global memory, which " << earlier.name << " may still "
                 << (wrote ? "write" : "read") << ": nothing orders the two";
      diagnostic.attachNote(earlier.op->getLoc()) << "the " << (wrote ? "write" : "read");
      return diagnostic;
    }
    return success();
  };
  if (failed(check(cell.writes, /*wrote=*/true)) ||
      (write && failed(check(cell.reads, /*wrote=*/false))))
    return failure();
  auto isOwn = [&](const GlobalAccesses::Access &earlier) {
    return earlier.cluster == fiber.cluster->number && earlier.thread == fiber.warpgroup;
  };
  SmallVector<GlobalAccesses::Access, 1> &list = write ? cell.writes : cell.reads;
  if (write)
    cell.reads.clear();
  if (write && !atomic)
    cell.writes.clear();
  else
    llvm::erase_if(list, isOwn);
  std::string name = "thread " +
                     std::to_string(fiber.warpgroup % fiber.cluster->countWarpgroups()) +
                     " of CTA " + std::to_string(fiber.block[0]);
  list.push_back({op, fiber.cluster->number, fiber.warpgroup, fiber.now, atomic, std::move(name)});
  return success();
}

//===----------------------------------------------------------------------===//
// The grid
//===----------------------------------------------------------------------===//

/// Operands: the counter.
static Step meetInGrid(Fiber &fiber, const Instruction &i) {
  GlobalAccesses &all = *fiber.machine->accesses;
  if (!fiber.gridRound) {
    const auto &counter = fiber.operand(i, 0).as<MemRef>();
    char *element = findElement(i.op, counter, {0});
    if (!element)
      return Step::Failed;
    int64_t before = loadInteger(ElementKind::I32, element);
    if (before < 0 || before % all.ctas) {
      fiber.cluster->error(i.op) << "the grid's counter is " << before
                                 << " where a meeting begins; it is 0 before the launch";
      return Step::Failed;
    }
    fiber.gridRound = all.round;
    all.round->knowledge.join(tell(fiber));
    if (++all.round->arrived == all.threads) {
      all.round->complete = true;
      all.round = std::make_shared<GridRound>();
      storeInteger(ElementKind::I32, element, before + all.ctas);
      ++fiber.machine->releases;
    }
    fiber.cluster->changed();
  }
  if (!fiber.gridRound->complete)
    return Step::Blocked;
  learn(fiber, fiber.gridRound->knowledge);
  fiber.gridRound.reset();
  return Step::Next;
}

/// Operands: counters, index, count.
static Step arriveLast(Fiber &fiber, const Instruction &i) {
  Cluster &cluster = *fiber.cluster;
  std::shared_ptr<Round> round =
      fiber.round ? fiber.round : cluster.rounds[size_t(fiber.rank) * hopper::kNamedBarriers];
  Step step = cluster.syncCta(fiber, i.op);
  if (step != Step::Next)
    return step;
  const auto &counters = fiber.operand(i, 0).as<MemRef>();
  char *element = findElement(i.op, counters, {fiber.integer(i, 1)});
  if (!element)
    return Step::Failed;
  if (!round->decided) {
    int64_t before = loadInteger(ElementKind::I32, element), last = fiber.integer(i, 2) - 1;
    if (before < 0 || before > last) {
      cluster.error(i.op) << "the counter is " << before << ", and " << last + 1
                          << " come: it is 0 before the first";
      return Step::Failed;
    }
    round->decided = true;
    round->answer = before == last;
    storeInteger(ElementKind::I32, element, round->answer ? 0 : before + 1);
    releaseFlag(fiber, element);
    round->told = fiber.machine->accesses->flags[element];
  }
  learn(fiber, round->told);
  fiber.result(i).integer = round->answer;
  return Step::Next;
}

/// Operands: value, memory, then indices.
static Step addAtomically(Fiber &fiber, const Instruction &i) {
  auto op = cast<memref::AtomicRMWOp>(i.op);
  const auto &memref = fiber.operand(i, 1).as<MemRef>();
  SmallVector<int64_t> indices;
  for (unsigned k = 2; k < i.operands.size(); ++k)
    indices.push_back(fiber.integer(i, k));
  char *element = findElement(i.op, memref, indices);
  if (!element || failed(noteAccess(fiber, memref, element, i.op, /*write=*/true, /*atomic=*/true)))
    return Step::Failed;
  using Kind = arith::AtomicRMWKind;
  if (isFloat(i.kind)) {
    double before = loadNumber(i.kind, element), value = fiber.operand(i, 0).number, after;
    bool isNaN = std::isnan(before) || std::isnan(value);
    switch (op.getKind()) {
    case Kind::addf:
      after = before + value;
      break;
    case Kind::maximumf:
      after = isNaN ? NAN : std::max(before, value);
      break;
    case Kind::minimumf:
      after = isNaN ? NAN : std::min(before, value);
      break;
    case Kind::maxnumf:
      after = std::fmax(before, value);
      break;
    default:
      after = std::fmin(before, value);
      break;
    }
    storeNumber(i.kind, element, after);
    fiber.result(i).number = before;
    return Step::Next;
  }
  int64_t before = loadInteger(i.kind, element), value = fiber.integer(i, 0), after;
  auto u = [](int64_t each) { return uint32_t(each); };
  switch (op.getKind()) {
  case Kind::addi:
    after = before + value;
    break;
  case Kind::maxs:
    after = std::max(before, value);
    break;
  case Kind::mins:
    after = std::min(before, value);
    break;
  case Kind::maxu:
    after = u(before) > u(value) ? before : value;
    break;
  case Kind::minu:
    after = u(before) < u(value) ? before : value;
    break;
  case Kind::andi:
    after = before & value;
    break;
  case Kind::ori:
    after = before | value;
    break;
  default:
    after = before ^ value;
    break;
  }
  storeInteger(i.kind, element, after);
  fiber.result(i).integer = before;
  return Step::Next;
}

static LogicalResult translateAtomic(Translator &translator, Operation *op) {
  auto atomic = cast<memref::AtomicRMWOp>(op);
  using Kind = arith::AtomicRMWKind;
  if (failed(expectThreads(translator, op)))
    return failure();
  if (llvm::is_contained({Kind::assign, Kind::mulf, Kind::muli}, atomic.getKind()))
    return op->emitError("the interpreter executes additions, extrema and bitwise operations "
                         "on memory");
  translator.program.addsInAnyOrder |= atomic.getKind() == Kind::addf;
  Instruction &instruction = translator.emit(op, addAtomically);
  instruction.yields = true;
  return setShape(instruction, op->getResult(0).getType());
}

/// Where all CTAs of a launch wait for each other, all have to run.
static LogicalResult translateGridSync(Translator &translator, Operation *op) {
  if (failed(expectThreads(translator, op)))
    return failure();
  if (!translator.launch->op->hasAttr(hopper::kCooperativeAttr)) {
    InFlightDiagnostic error = op->emitError() << "the grid meets in a launch that is not '"
                                               << hopper::kCooperativeAttr << "'";
    error.attachNote(translator.launch->op->getLoc()) << "the launch";
    return error;
  }
  translator.launch->hasSemaphores = true;
  translator.emit(op, meetInGrid).yields = true;
  return success();
}

void interpreter::registerGlobalAccesses(Translator &translator) {
  translator.add("hopper.grid.sync", translateGridSync);
  translator.add("hopper.last_arrival", [](Translator &translator, Operation *op) {
    if (failed(expectThreads(translator, op)))
      return failure();
    Instruction &instruction = translator.emit(op, arriveLast);
    instruction.yields = true;
    return setShape(instruction, op->getResult(0).getType());
  });
  translator.add("memref.atomic_rmw", translateAtomic);
}
