// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// hopper: tiles in shared memory, and copies by TMA.

#include "Elementwise.h"
#include "GlobalMemory.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;
using namespace attn::hopper;

static LogicalResult expectLaunch(Translator &translator, Operation *op) {
  return translator.launch ? success() : LogicalResult(op->emitError("expects to be in a launch"));
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

static LogicalResult translateAlloc(Translator &translator, Operation *op) {
  if (failed(expectLaunch(translator, op)))
    return failure();
  Instruction &instruction = translator.emit(op, [](Fiber &fiber, const Instruction &i) {
    auto view = std::make_shared<SmemView>();
    view->memory = unsigned(i.numbers[0] + fiber.rank * fiber.cluster->launch.allocations.size());
    fiber.result(i).object = view;
    return Step::Next;
  });
  instruction.numbers = {int64_t(translator.launch->allocations.size())};
  translator.launch->allocations.push_back(op);
  return success();
}

static Step takeSlot(Fiber &fiber, const Instruction &i) {
  int64_t index = fiber.integer(i, 1), depth = cast<SlotOp>(i.op).getRing().getType().getDepth();
  if (index < 0 || index >= depth) {
    fiber.cluster->error(i.op) << "a ring of " << depth << " tiles has no slot " << index;
    return Step::Failed;
  }
  auto view = std::make_shared<SmemView>(fiber.operand(i, 0).as<SmemView>());
  view->slot = unsigned(index);
  fiber.result(i).object = view;
  return Step::Next;
}

static Step takeRows(Fiber &fiber, const Instruction &i) {
  auto op = cast<tile::RowsOp>(i.op);
  int64_t offset = fiber.integer(i, 1), rows = op.getSource().getType().getRows();
  if (offset < 0 || offset % 8 || offset + op.getTile().getType().getRows() > rows) {
    fiber.cluster->error(i.op) << "rows from " << offset << " are no part of a tile of " << rows
                               << " rows, or not from a multiple of 8";
    return Step::Failed;
  }
  auto view = std::make_shared<SmemView>(fiber.operand(i, 0).as<SmemView>());
  view->row += offset;
  fiber.result(i).object = view;
  return Step::Next;
}

static Step takeColumns(Fiber &fiber, const Instruction &i) {
  auto op = cast<tile::ColumnsOp>(i.op);
  tile::SmemType source = op.getSource().getType();
  int64_t offset = fiber.integer(i, 1), columns = source.getColumns();
  int64_t taken = op.getTile().getType().getColumns();
  if (offset < 0 || offset % std::min(source.getSlabColumns(), taken) || offset + taken > columns) {
    fiber.cluster->error(i.op) << "columns from " << offset
                               << " are no part of the slabs of a tile of " << columns
                               << " columns";
    return Step::Failed;
  }
  auto view = std::make_shared<SmemView>(fiber.operand(i, 0).as<SmemView>());
  view->column += offset;
  view->pitch = view->pitch ? view->pitch : paddedColumns(source);
  fiber.result(i).object = view;
  return Step::Next;
}

static Step storeTile(Fiber &fiber, const Instruction &i) {
  auto op = cast<tile::WriteOp>(i.op);
  tile::SmemType type = op.getTile().getType();
  const auto &view = fiber.operand(i, 1).as<SmemView>();
  if (view.own) {
    fiber.cluster->error(i.op) << "writes to a tile that is a value";
    return Step::Failed;
  }
  auto event = fiber.cluster->begin(fiber, i.op, {Threads::Store, type, op.getTranspose()}, false);
  fiber.cluster->end(fiber, *event);
  if (failed(fiber.cluster->access(fiber, view, type, event, /*write=*/true)))
    return Step::Failed;
  SmemMemory &memory = fiber.cluster->memories[view.memory];
  const double *values = fiber.floats(i, 0);
  int64_t rows = type.getRows(), columns = type.getColumns();
  for (int64_t row = 0; row < rows; ++row) {
    double *to = memory.row(view.slot, view.row + row) + view.column;
    for (int64_t column = 0; column < columns; ++column)
      to[column] = values[op.getTranspose() ? column * rows + row : row * columns + column];
    uint8_t &written = memory.slots[view.slot].written[size_t(view.row + row)];
    written = std::max<uint8_t>(written, columns == paddedColumns(type) ? 2 : 1);
  }
  return Step::Next;
}

static Step loadTileToRegisters(Fiber &fiber, const Instruction &i) {
  auto op = cast<tile::ReadOp>(i.op);
  tile::SmemType type = op.getTile().getType();
  const auto &view = fiber.operand(i, 0).as<SmemView>();
  if (view.own) {
    if (failed(checkReleased(fiber, view, i.op)))
      return Step::Failed;
  } else {
    auto event = fiber.cluster->begin(fiber, i.op, {Threads::All, {}, false}, false);
    fiber.cluster->end(fiber, *event);
    if (failed(fiber.cluster->access(fiber, view, type, event, /*write=*/false)) ||
        failed(fiber.cluster->checkWritten(i.op, view, type, /*padding=*/false)))
      return Step::Failed;
  }
  double *to = fiber.newFloats(i);
  int64_t rows = type.getRows(), columns = type.getColumns();
  int64_t pitch = view.pitch ? view.pitch : paddedColumns(type);
  for (int64_t row = 0; row < rows; ++row) {
    const double *from = view.own
                             ? view.own->data.get() + (view.row + row) * pitch
                             : fiber.cluster->memories[view.memory].row(view.slot, view.row + row);
    from += view.column;
    for (int64_t column = 0; column < columns; ++column)
      to[op.getTranspose() ? column * rows + row : row * columns + column] = from[column];
  }
  return Step::Next;
}

static LogicalResult translateRead(Translator &translator, Operation *op) {
  return setShape(translator.emit(op, loadTileToRegisters),
                  cast<tile::ReadOp>(op).getValue().getType());
}

static Step fence(Fiber &fiber, const Instruction &) {
  fiber.fences.push_back(fiber.now);
  fiber.clock.fence();
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// TMA
//===----------------------------------------------------------------------===//

static Step makeTensorMap(Fiber &fiber, const Instruction &i) {
  const auto &memref = fiber.operand(i, 0).as<MemRef>();
  int64_t bytes = elementSize(memref.kind), last = memref.offset;
  bool empty = llvm::is_contained(memref.sizes, 0);
  for (size_t dim = 0; dim < memref.sizes.size() && !empty; ++dim) {
    last += (memref.sizes[dim] - 1) * memref.strides[dim];
    bool innermost = dim + 1 == memref.sizes.size();
    if (memref.sizes[dim] == 1 || memref.strides[dim] * bytes % 16 == 0 || innermost)
      continue;
    i.op->emitError() << "TMA needs strides that are multiples of 16 bytes, got "
                      << memref.strides[dim] * bytes << " in dimension " << dim;
    return Step::Failed;
  }
  if (!empty && memref.sizes.back() > 1 && memref.strides.back() != 1) {
    i.op->emitError() << "TMA needs a unit innermost stride, got " << memref.strides.back();
    return Step::Failed;
  }
  if (!empty && (memref.offset < 0 || last >= memref.extent)) {
    i.op->emitError() << "the memref ends at element " << last << " of an allocation of "
                      << memref.extent;
    return Step::Failed;
  }
  fiber.result(i) = fiber.operand(i, 0);
  return Step::Next;
}

/// As makeTensorMap; allocations are aligned.
static Step isReached(Fiber &fiber, const Instruction &i) {
  const auto &memref = fiber.operand(i, 0).as<MemRef>();
  int64_t bytes = elementSize(memref.kind);
  bool reaches = memref.offset * bytes % 16 == 0;
  for (size_t dim = 0; dim + 1 < memref.sizes.size(); ++dim) {
    int64_t stride = memref.strides[dim] * bytes;
    reaches &=
        memref.sizes[dim] == 1 || (stride > 0 && stride < (int64_t(1) << 40) && stride % 16 == 0);
  }
  fiber.result(i).integer = reaches;
  return Step::Next;
}

static SmallVector<int64_t, 5> readCoordinates(Fiber &fiber, const Instruction &i, unsigned first,
                                               size_t count) {
  SmallVector<int64_t, 5> coordinates;
  for (unsigned k = 0; k < count; ++k)
    coordinates.push_back(fiber.integer(i, first + k));
  return coordinates;
}

/// Which rows of a tile are marked; false after an error.
static bool readMarks(Fiber &fiber, const Instruction &i, TmaLoad &load) {
  auto op = cast<TmaLoadOp>(i.op);
  const auto &marks = fiber.operand(i, op.getMarksMutable()[0].getOperandNumber()).as<MemRef>();
  const auto &groups = fiber.operand(i, op.getGroupsMutable()[0].getOperandNumber()).as<MemRef>();
  SmallVector<int64_t> place(ArrayRef<int64_t>(load.coordinates).drop_back());
  int64_t first = place.back(),
          end = std::min(op.getTile().getType().getRows(), marks.sizes.back() - first);
  auto isMarked = [&](const MemRef &memref, int64_t number) -> std::optional<bool> {
    place.back() = number;
    const char *mark = findElement(i.op, memref, place);
    return mark ? std::optional(mark[0] != 0 || mark[1] != 0) : std::nullopt;
  };
  load.dropped.assign(size_t(op.getTile().getType().getRows()), false);
  for (int64_t row = 0; row < end; ++row) {
    std::optional<bool> mark = isMarked(groups, (first + row) / kWarpgroupRows);
    if (mark && *mark)
      mark = isMarked(marks, first + row);
    if (!mark)
      return false;
    load.dropped[size_t(row)] = *mark;
  }
  return true;
}

static Step loadTile(Fiber &fiber, const Instruction &i) {
  auto op = cast<TmaLoadOp>(i.op);
  unsigned rank = unsigned(op.getCoordinates().size());
  MBarrier *barrier = findBarrier(fiber, i, 2 + rank);
  if (!barrier)
    return Step::Failed;
  auto load = std::make_shared<TmaLoad>();
  load->op = i.op;
  load->source = std::static_pointer_cast<MemRef>(fiber.operand(i, 0).object);
  load->coordinates = readCoordinates(fiber, i, 1, rank);
  load->tile = fiber.operand(i, 1 + rank).as<SmemView>();
  load->bytes = op.getTile().getType().getTileBytes();
  if (op.getSome() && fiber.integer(i, op.getSomeMutable()[0].getOperandNumber()) != 0 &&
      !readMarks(fiber, i, *load))
    return Step::Failed;
  Cluster &cluster = *fiber.cluster;
  size_t number = size_t(barrier - cluster.barriers.data());
  unsigned first = op.getMulticast() ? 0 : fiber.rank;
  unsigned last = op.getMulticast() ? cluster.ctas - 1 : fiber.rank;
  for (unsigned rank = first; rank <= last; ++rank) {
    auto copy = std::make_shared<TmaLoad>(*load);
    copy->tile.memory = unsigned(cluster.getPlace(cluster.memories, load->tile.memory, rank));
    copy->barrier = unsigned(cluster.getPlace(cluster.barriers, number, rank));
    if (failed(cluster.startLoad(fiber, copy)))
      return Step::Failed;
  }
  return Step::Next;
}

/// tma.store and tma.reduce.
static Step storeByTma(Fiber &fiber, const Instruction &i) {
  Cluster &cluster = *fiber.cluster;
  auto type = cast<tile::SmemType>(i.op->getOperand(0).getType());
  auto store = std::make_shared<TmaStore>();
  store->tile = fiber.operand(i, 0).as<SmemView>();
  store->type = type;
  store->target = std::static_pointer_cast<MemRef>(fiber.operand(i, 1).object);
  store->coordinates = readCoordinates(fiber, i, 2, i.operands.size() - 2);
  store->reduce = isa<TmaReduceOp>(i.op);
  store->event = cluster.begin(fiber, i.op, {Threads::One, {}, false}, true);
  // What lies beyond the memref is not written, so need not be there.
  bool padded = paddedColumns(type) != type.getColumns() &&
                store->coordinates.back() + type.getColumns() < store->target->sizes.back();
  if (failed(cluster.access(fiber, store->tile, type, store->event, /*write=*/false)) ||
      failed(cluster.checkWritten(i.op, store->tile, type, padded)))
    return Step::Failed;
  fiber.stores.push_back(store);
  cluster.writes.push_back(store);
  if (fiber.machine->isEarly())
    cluster.writeStore(*store);
  return Step::Next;
}

static Step waitForStores(Fiber &fiber, const Instruction &i) {
  auto op = cast<TmaWaitOp>(i.op);
  size_t finished = fiber.stores.size() - std::min(fiber.stores.size(), size_t(op.getPending()));
  for (size_t n = 0; n < finished; ++n) {
    auto store = *std::next(fiber.stores.begin(), op.getRead() ? int64_t(n) : 0);
    fiber.cluster->readStore(*store);
    if (!store->event->ended)
      fiber.cluster->end(fiber, *store->event);
    if (op.getRead())
      continue;
    fiber.cluster->writeStore(*store);
    fiber.stores.pop_front();
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Semaphores of CTAs
//===----------------------------------------------------------------------===//

/// A semaphore, or null after an error.
static char *findSemaphore(Fiber &fiber, const Instruction &i) {
  const auto &semaphores = fiber.operand(i, 0).as<MemRef>();
  return findElement(i.op, semaphores, readCoordinates(fiber, i, 1, semaphores.sizes.size()));
}

/// What comes behind the indices.
static int64_t getNumber(Fiber &fiber, const Instruction &i) {
  return fiber.integer(i, unsigned(i.operands.size() - 1));
}

static Step waitForSemaphore(Fiber &fiber, const Instruction &i) {
  int64_t number = getNumber(fiber, i);
  if (number < 0)
    return Step::Next;
  char *semaphore = findSemaphore(fiber, i);
  if (!semaphore)
    return Step::Failed;
  if (loadInteger(ElementKind::I32, semaphore) != number)
    return Step::Blocked;
  if (fiber.cluster->launch.ofThreads)
    acquireFlag(fiber, semaphore);
  return Step::Next;
}

static Step peekAtSemaphore(Fiber &fiber, const Instruction &i) {
  char *semaphore = findSemaphore(fiber, i);
  if (!semaphore)
    return Step::Failed;
  fiber.result(i).integer = loadInteger(ElementKind::I32, semaphore);
  return Step::Next;
}

static Step touchFirst(Fiber &fiber, const Instruction &i) {
  char *semaphore = findSemaphore(fiber, i);
  if (!semaphore)
    return Step::Failed;
  int64_t flag = loadInteger(ElementKind::I32, semaphore);
  if (int64_t seen = getNumber(fiber, i); seen > 0) { // then the GPU does not look again
    fiber.result(i).integer = false;
    if (flag > 0)
      return Step::Next;
    fiber.cluster->error(i.op) << "has seen " << seen << ", but the semaphore is " << flag;
    return Step::Failed;
  }
  if (flag < 0)
    return Step::Blocked;
  fiber.result(i).integer = flag == 0;
  if (flag == 0)
    storeInteger(ElementKind::I32, semaphore, -1);
  return Step::Next;
}

static Step releaseSemaphore(Fiber &fiber, const Instruction &i) {
  char *semaphore = findSemaphore(fiber, i);
  if (!semaphore)
    return Step::Failed;
  if (!fiber.stores.empty()) {
    InFlightDiagnostic diagnostic = fiber.cluster->error(i.op);
    diagnostic << "releases the semaphore before what it stands for has happened: no "
                  "hopper.tma.wait without 'read' covers it";
    diagnostic.attachNote(fiber.stores.front()->event->op->getLoc()) << "started here";
    return Step::Failed;
  }
  storeInteger(ElementKind::I32, semaphore, getNumber(fiber, i));
  if (fiber.cluster->launch.ofThreads)
    releaseFlag(fiber, semaphore);
  ++fiber.machine->releases;
  return Step::Next;
}

/// Whether a wait may be for another CTA, and not only a fence.
static bool mayWait(SemaphoreWaitOp wait) {
  APInt number;
  return !matchPattern(wait.getNumber(), m_ConstantInt(&number)) || number.isNonNegative();
}

static LogicalResult translateSemaphore(Translator &translator, Operation *op) {
  if (failed(expectLaunch(translator, op)))
    return failure();
  auto wait = dyn_cast<SemaphoreWaitOp>(op);
  translator.launch->hasSemaphores |= wait && mayWait(wait);
  translator.emit(op, isa<SemaphoreWaitOp>(op)         ? waitForSemaphore
                      : isa<SemaphorePeekOp>(op)       ? peekAtSemaphore
                      : isa<SemaphoreFirstTouchOp>(op) ? touchFirst
                                                       : releaseSemaphore);
  return success();
}

/// Whether an addition of a launch waits for a semaphore.
static bool isOrdered(Operation *op) {
  auto launch = op->getParentOfType<gpu::LaunchOp>();
  return launch && launch
                       .walk([](SemaphoreWaitOp wait) {
                         return mayWait(wait) ? WalkResult::interrupt() : WalkResult::advance();
                       })
                       .wasInterrupted();
}

void interpreter::registerHopperMemory(Translator &translator) {
  translator.add("hopper.alloc", translateAlloc);
  translator.add("hopper.slot", takeSlot);
  translator.add("tile.rows", takeRows);
  translator.add("tile.columns", takeColumns);
  translator.add("tile.write", storeTile);
  translator.add("tile.read", translateRead);
  translator.add("hopper.fence.async", fence);
  translator.add("hopper.tensor_map", makeTensorMap);
  translator.add("hopper.tma.reaches", isReached);
  translator.add("hopper.tma.load", loadTile);
  translator.add("hopper.tma.store", storeByTma);
  translator.add("hopper.tma.reduce", [](Translator &t, Operation *op) {
    t.program.addsInAnyOrder |= !isOrdered(op);
    t.emit(op, storeByTma);
    return success();
  });
  translator.add("hopper.tma.wait", waitForStores);
  translator.add("hopper.semaphore.wait", translateSemaphore);
  translator.add("hopper.semaphore.peek", translateSemaphore);
  translator.add("hopper.semaphore.first_touch", translateSemaphore);
  translator.add("hopper.semaphore.release", translateSemaphore);
}
