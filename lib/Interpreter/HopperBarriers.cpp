// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// hopper: mbarriers and named barriers.

#include "Elementwise.h"
#include "GlobalMemory.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;
using namespace attn::hopper;

MBarrier *interpreter::findBarrier(Fiber &fiber, const Instruction &i, unsigned operand) {
  int64_t first = fiber.integer(i, operand), index = fiber.integer(i, operand + 1);
  MBarrier &barrier = fiber.cluster->barriers[size_t(first)];
  int64_t depth = cast<MBarrierOp>(barrier.op).getBarriers().getType().getDepth();
  if (index >= 0 && index < depth)
    return &fiber.cluster->barriers[size_t(first + index)];
  fiber.cluster->error(i.op) << "a ring of " << depth << " mbarriers has no barrier " << index;
  return nullptr;
}

static LogicalResult translateBarrier(Translator &translator, Operation *op) {
  if (!translator.launch)
    return op->emitError("expects to be in a launch");
  int64_t first = 0;
  for (Operation *other : translator.launch->barriers)
    first += cast<MBarrierOp>(other).getBarriers().getType().getDepth();
  Instruction &instruction = translator.emit(op, [](Fiber &fiber, const Instruction &i) {
    const Cluster &cluster = *fiber.cluster;
    fiber.result(i).integer = i.numbers[0] + fiber.rank * (cluster.barriers.size() / cluster.ctas);
    return Step::Next;
  });
  instruction.numbers = {first};
  translator.launch->barriers.push_back(op);
  return success();
}

static Step arrive(Fiber &fiber, const Instruction &i) {
  std::optional<int64_t> bytes;
  if (auto expect = dyn_cast<MBarrierExpectOp>(i.op))
    bytes = int64_t(expect.getBytes());
  MBarrier *barrier = findBarrier(fiber, i, 0);
  if (auto arrival = dyn_cast<MBarrierArriveOp>(i.op); arrival && arrival.getCluster() && barrier)
    return succeeded(fiber.cluster->arriveAll(fiber, *barrier, i.op)) ? Step::Next : Step::Failed;
  if (!barrier || failed(fiber.cluster->arrive(fiber, *barrier, i.op, bytes)))
    return Step::Failed;
  return Step::Next;
}

static Step wait(Fiber &fiber, const Instruction &i) {
  MBarrier *barrier = findBarrier(fiber, i, 0);
  if (!barrier)
    return Step::Failed;
  return fiber.cluster->wait(fiber, *barrier, i.op, fiber.integer(i, 2));
}

template <typename OpTy> static Step meet(Fiber &fiber, const Instruction &i) {
  return fiber.cluster->arriveNamed(fiber, fiber.integer(i, 0),
                                    int64_t(cast<OpTy>(i.op).getWarpgroups()), i.op,
                                    std::is_same_v<OpTy, BarrierSyncOp>);
}

static Step reduce(Fiber &fiber, const Instruction &i) {
  auto op = cast<BarrierReduceOp>(i.op);
  const int64_t *bits = fiber.ints(i, 1);
  ArrayRef<int64_t> tile(bits, size_t(op.getValue().getType().getNumElements()));
  auto isTrue = [](int64_t bit) { return bit != 0; };
  Step step = fiber.cluster->arriveNamed(
      fiber, fiber.integer(i, 0), int64_t(op.getWarpgroups()), op,
      /*sync=*/true, llvm::any_of(tile, isTrue), llvm::all_of(tile, isTrue));
  if (step == Step::Next)
    fiber.result(i).integer = op.getAll() ? fiber.all : fiber.any;
  return step;
}

static Step report(Fiber &fiber, const Instruction &i) {
  const int64_t *bits = fiber.ints(i, 0);
  int64_t count = cast<ReportOp>(i.op).getValue().getType().getNumElements();
  auto op = cast<ReportOp>(i.op);
  int64_t number = op.getTile() ? fiber.integer(i, 2) : fiber.block[0];
  if (op.getWarpgroups()) {
    auto [first, count] = op.getWarpgroupsOfRole();
    number = number * count + (fiber.warpgroup % fiber.cluster->countWarpgroups() - first);
  }
  char *flag = findElement(i.op, fiber.operand(i, 1).as<MemRef>(), number);
  if (!flag)
    return Step::Failed;
  // A byte for each warp.
  int64_t parts = op.getWarpgroups() ? kWarpgroupRows / kWarpRows : 1, reported = 0;
  for (int64_t part = 0; part < parts; ++part) {
    ArrayRef<int64_t> own(bits + part * (count / parts), size_t(count / parts));
    if (llvm::any_of(own, [](int64_t bit) { return bit != 0; }))
      reported |= int64_t(1) << (8 * part);
  }
  if (reported || op.getWarpgroups())
    storeInteger(ElementKind::I32, flag, reported);
  return Step::Next;
}

static Step redo(Fiber &fiber, const Instruction &i) {
  if (fiber.integer(i, 1))
    return Step::Next;
  char *flag = findElement(i.op, fiber.operand(i, 0).as<MemRef>(), fiber.block[0]);
  if (!flag)
    return Step::Failed;
  return loadInteger(ElementKind::I32, flag) ? Step::Next : Step::Finished;
}

static Step runIf(Fiber &fiber, const Instruction &i) {
  const MemRef &flags = fiber.operand(i, 0).as<MemRef>();
  bool any = false;
  for (int64_t n = 0; n < flags.sizes[0]; ++n) {
    char *flag = findElement(i.op, flags, n);
    if (!flag)
      return Step::Failed;
    any |= loadInteger(ElementKind::I32, flag) != 0;
  }
  return any != cast<RunIfOp>(i.op).getNone() ? Step::Next : Step::Finished;
}

static LogicalResult translateReport(Translator &translator, Operation *op) {
  if (!translator.launch)
    return op->emitError("expects to be in a launch");
  if (auto report = dyn_cast<ReportOp>(op); report && !report.getWarpgroups())
    translator.launch->reports.push_back(translator.slot(report.getReports()));
  translator.emit(op, isa<ReportOp>(op) ? report : redo);
  return success();
}

void interpreter::registerHopperBarriers(Translator &translator) {
  translator.add("hopper.report", translateReport);
  translator.add("hopper.redo", translateReport);
  translator.add("hopper.run_if", runIf);
  translator.add("hopper.mbarrier", translateBarrier);
  translator.add("hopper.mbarrier.expect", arrive);
  translator.add("hopper.mbarrier.arrive", arrive);
  translator.add("hopper.mbarrier.wait", wait);
  translator.add("hopper.barrier.sync", meet<BarrierSyncOp>);
  translator.add("hopper.barrier.arrive", meet<BarrierArriveOp>);
  translator.add("hopper.barrier.reduce", reduce);
  translator.add("hopper.cluster.sync", [](Fiber &fiber, const Instruction &i) {
    return fiber.cluster->sync(fiber, i.op);
  });
}
