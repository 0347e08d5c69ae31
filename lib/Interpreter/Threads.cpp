// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Launches of threads (hopper.threads): each is a fiber. Barriers of a CTA, shuffles of 32 lanes,
// and shared memory, in which two accesses of which one writes must be ordered by a barrier.

#include "Cluster.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

constexpr unsigned kLanes = 32;

LogicalResult interpreter::expectThreads(Translator &translator, Operation *op) {
  if (translator.launch && translator.launch->ofThreads)
    return success();
  return op->emitError("expects to be in a launch of threads (hopper.threads)");
}

//===----------------------------------------------------------------------===//
// Meetings
//===----------------------------------------------------------------------===//

static Step meetInCta(Fiber &fiber, const Instruction &i) {
  return fiber.cluster->syncCta(fiber, i.op);
}

Step Cluster::syncCta(Fiber &fiber, Operation *op) {
  // Number 0, which no named barrier has.
  size_t at = size_t(fiber.rank) * hopper::kNamedBarriers;
  if (!fiber.round)
    for (const Round::Arrival &other : rounds[at]->arrivals)
      if (other.op != op) {
        InFlightDiagnostic diagnostic = error(op);
        diagnostic << nameOf(fiber.warpgroup) << " arrives at this barrier, "
                   << nameOf(other.warpgroup) << " at another one";
        diagnostic.attachNote(other.op->getLoc()) << "the other barrier";
        return Step::Failed;
      }
  return meet(fiber, at, countWarpgroups(), op, /*sync=*/true, /*any=*/false, /*all=*/true);
}

Step Cluster::arriveCluster(Fiber &fiber, Operation *op) {
  if (fiber.clusterRound) {
    error(op) << nameOf(fiber.warpgroup)
              << " arrives at the cluster's barrier a second time before it waits";
    return Step::Failed;
  }
  std::shared_ptr<Round> round = rounds.back();
  Step step = meet(fiber, rounds.size() - 1, int64_t(fibers.size()), op, /*sync=*/false,
                   /*any=*/false, /*all=*/true);
  fiber.clusterRound = std::move(round);
  return step;
}

Step Cluster::waitCluster(Fiber &fiber, Operation *op) {
  if (!fiber.clusterRound) {
    error(op) << nameOf(fiber.warpgroup)
              << " waits at the cluster's barrier, and has not arrived there";
    return Step::Failed;
  }
  if (!fiber.clusterRound->complete)
    return Step::Blocked;
  fiber.clock.join(fiber.clusterRound->clock);
  fiber.knowledge.join(fiber.clusterRound->knowledge);
  fiber.clusterRound.reset();
  return Step::Next;
}

/// Operands: value, distance, lanes.
static Step shuffle(Fiber &fiber, const Instruction &i) {
  Cluster &cluster = *fiber.cluster;
  unsigned lane = fiber.warpgroup % kLanes;
  std::shared_ptr<Exchange> &current = cluster.exchanges[fiber.warpgroup / kLanes];
  if (!fiber.exchange) {
    if (!current)
      current = std::make_shared<Exchange>(Exchange{i.op, 0, false, {}});
    if (current->op != i.op) {
      InFlightDiagnostic diagnostic = cluster.error(i.op);
      diagnostic << cluster.nameOf(fiber.warpgroup) << " takes part in this shuffle, others of its "
                 << "warp in another one";
      diagnostic.attachNote(current->op->getLoc()) << "the other shuffle";
      return Step::Failed;
    }
    current->values[lane] = fiber.operand(i, 0);
    fiber.exchange = current;
    if (++current->arrived == kLanes) {
      current->complete = true;
      current.reset();
    }
    cluster.changed();
  }
  if (!fiber.exchange->complete)
    return Step::Blocked;
  std::shared_ptr<Exchange> exchange = std::move(fiber.exchange);
  uint64_t from = lane ^ uint64_t(fiber.integer(i, 1)), width = uint64_t(fiber.integer(i, 2));
  fiber.result(i, 1).integer = from < width;
  fiber.result(i) = exchange->values[from < kLanes ? from : lane];
  return Step::Next;
}

static LogicalResult translateShuffle(Translator &translator, Operation *op) {
  auto shuffleOp = cast<gpu::ShuffleOp>(op);
  if (failed(expectThreads(translator, op)))
    return failure();
  if (shuffleOp.getMode() != gpu::ShuffleMode::XOR ||
      isa<VectorType>(shuffleOp.getValue().getType()))
    return op->emitError("the interpreter shuffles scalars by xor");
  translator.emit(op, shuffle);
  return success();
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

LogicalResult Cluster::access(Fiber &fiber, SharedCells &cells, int64_t element, Operation *op,
                              bool write) {
  SharedCells::Cell &cell = cells.states[size_t(element)];
  auto knows = [&](const SharedCells::Access &earlier) {
    return earlier.thread == fiber.warpgroup || fiber.clock[earlier.thread] >= earlier.epoch;
  };
  auto report = [&](const SharedCells::Access &earlier, bool wrote) {
    InFlightDiagnostic diagnostic = error(op);
    diagnostic << (write ? "writes" : "reads") << " element " << element
               << " of shared memory, which another thread may still " << (wrote ? "write" : "read")
               << ": no barrier orders the two";
    diagnostic.attachNote(earlier.op->getLoc())
        << "the " << (wrote ? "write" : "read") << " (" << nameOf(earlier.thread) << ")";
    return failure();
  };
  if (!write && !cell.write.op)
    return error(op) << "reads element " << element
                     << " of shared memory, which nothing has written";
  if (cell.write.op && !knows(cell.write))
    return report(cell.write, /*wrote=*/true);
  SharedCells::Access own{op, fiber.warpgroup, fiber.now};
  if (!write) {
    llvm::erase_if(cell.reads, [&](const SharedCells::Access &other) {
      return other.thread == fiber.warpgroup;
    });
    cell.reads.push_back(own);
    return success();
  }
  for (const SharedCells::Access &earlier : cell.reads)
    if (!knows(earlier))
      return report(earlier, /*wrote=*/false);
  cell.reads.clear();
  cell.write = own;
  return success();
}

/// A CTA must not end before other CTAs have read its memory.
LogicalResult Cluster::checkRead(Fiber &fiber) {
  if (ctas == 1)
    return success();
  for (size_t number = 0; number < launch.shared.size(); ++number) {
    const SharedCells &cells = *shared[fiber.rank * launch.shared.size() + number];
    for (const SharedCells::Cell &cell : cells.states)
      for (const SharedCells::Access &read : cell.reads)
        if (fibers[read.thread].rank != fiber.rank && fiber.clock[read.thread] < read.epoch)
          return error(read.op) << nameOf(read.thread) << " reads shared memory of CTA "
                                << fiber.rank << ", which may have ended: no hopper.cluster.sync "
                                << "comes in between";
  }
  return success();
}

static int64_t indexOf(const MemRef &memref, Operation *op, ArrayRef<int64_t> indices) {
  char *element = findElement(op, memref, indices);
  return element ? (element - memref.base) / int64_t(elementSize(memref.kind)) : -1;
}

/// Indices are the operands from `first` on.
static int64_t indexOf(Fiber &fiber, const Instruction &i, const MemRef &memref, unsigned first) {
  SmallVector<int64_t> indices;
  for (unsigned k = first; k < i.operands.size(); ++k)
    indices.push_back(fiber.integer(i, k));
  return indexOf(memref, i.op, indices);
}

static Step loadCell(Fiber &fiber, const Instruction &i, SharedCells &cells, int64_t element) {
  if (element < 0 || failed(fiber.cluster->access(fiber, cells, element, i.op, /*write=*/false)))
    return Step::Failed;
  if (isFloat(i.kind))
    fiber.result(i).number = loadNumber(i.kind, cells.at(element));
  else
    fiber.result(i).integer = loadInteger(i.kind, cells.at(element));
  return Step::Next;
}

/// Operands: memory, then indices.
static Step loadShared(Fiber &fiber, const Instruction &i) {
  auto &cells = fiber.operand(i, 0).as<SharedCells>();
  return loadCell(fiber, i, cells, indexOf(fiber, i, cells, 1));
}

/// Operands: value, memory, then indices.
static Step storeShared(Fiber &fiber, const Instruction &i) {
  auto &cells = fiber.operand(i, 1).as<SharedCells>();
  int64_t element = indexOf(fiber, i, cells, 2);
  if (element < 0 || failed(fiber.cluster->access(fiber, cells, element, i.op, /*write=*/true)))
    return Step::Failed;
  if (isFloat(i.kind))
    storeNumber(i.kind, cells.at(element), fiber.operand(i, 0).number);
  else
    storeInteger(i.kind, cells.at(element), fiber.integer(i, 0));
  return Step::Next;
}

/// Operands: memory, index, rank.
static Step loadRemote(Fiber &fiber, const Instruction &i) {
  Cluster &cluster = *fiber.cluster;
  int64_t rank = fiber.integer(i, 2);
  if (rank < 0 || rank >= int64_t(cluster.ctas)) {
    cluster.error(i.op) << "reads shared memory of CTA " << rank << " of a cluster of "
                        << cluster.ctas;
    return Step::Failed;
  }
  auto &own = fiber.operand(i, 0).as<SharedCells>();
  SharedCells &cells = *cluster.shared[size_t(rank) * cluster.launch.shared.size() + own.number];
  return loadCell(fiber, i, cells, indexOf(cells, i.op, fiber.integer(i, 1)));
}

bool interpreter::isShared(MemRefType type) {
  auto space = dyn_cast_if_present<gpu::AddressSpaceAttr>(type.getMemorySpace());
  return space && space.getValue() == gpu::AddressSpace::Workgroup;
}

/// Others run before each access.
LogicalResult interpreter::translateShared(Translator &translator, Operation *op) {
  if (failed(expectThreads(translator, op)))
    return failure();
  bool isLoad = isa<memref::LoadOp>(op);
  Instruction &instruction = translator.emit(op, isLoad ? loadShared : storeShared);
  instruction.yields = true;
  return setShape(instruction, isLoad ? op->getResult(0).getType() : op->getOperand(0).getType());
}

void Cluster::addShared(unsigned rank) {
  for (auto [number, type] : llvm::enumerate(launch.shared)) {
    auto cells = std::make_shared<SharedCells>();
    cells->number = unsigned(number);
    cells->kind = launch.sharedKinds[number];
    cells->sizes.assign(type.getShape().begin(), type.getShape().end());
    cells->strides.assign(cells->sizes.size(), 1);
    for (size_t dim = cells->sizes.size(); dim-- > 1;)
      cells->strides[dim - 1] = cells->strides[dim] * cells->sizes[dim];
    cells->extent = type.getNumElements();
    cells->states.resize(size_t(cells->extent));
    cells->owner = std::make_shared<std::vector<char>>(
        size_t(cells->extent) * elementSize(cells->kind), char(0xff));
    cells->base = cells->owner->data();
    for (Fiber &fiber : MutableArrayRef(fibers).slice(rank * countWarpgroups(), countWarpgroups()))
      fiber.frame[launch.sharedSlots[number]].object = cells;
    shared.push_back(std::move(cells));
  }
}

void interpreter::registerThreads(Translator &translator) {
  translator.add("hopper.threads", [](Translator &translator, Operation *op) {
    return expectThreads(translator, op);
  });
  translator.add("hopper.opaque", [](Fiber &fiber, const Instruction &i) {
    fiber.result(i) = fiber.operand(i, 0);
    return Step::Next;
  });
  translator.add("hopper.cluster.arrive", [](Fiber &fiber, const Instruction &i) {
    return fiber.cluster->arriveCluster(fiber, i.op);
  });
  translator.add("hopper.cluster.wait", [](Fiber &fiber, const Instruction &i) {
    return fiber.cluster->waitCluster(fiber, i.op);
  });
  translator.add("gpu.barrier", [](Translator &translator, Operation *op) {
    if (failed(expectThreads(translator, op)))
      return failure();
    translator.emit(op, meetInCta).yields = true;
    return success();
  });
  translator.add("gpu.shuffle", translateShuffle);
  translator.add("hopper.remote.load", [](Translator &translator, Operation *op) {
    if (failed(expectThreads(translator, op)))
      return failure();
    Instruction &instruction = translator.emit(op, loadRemote);
    instruction.yields = true;
    return setShape(instruction, op->getResult(0).getType());
  });
}
