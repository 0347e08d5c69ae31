// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// tile.copy, tile.commit and tile.await: copies that all threads of a CTA share, each warpgroup
// every so many groups of 8 rows. They happen when they start, or when they are waited for.

#include "Elementwise.h"
#include "GlobalMemory.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

static constexpr int64_t kRowsOfCopy = 8;

static void land(Cluster &cluster, TileCopy &copy) {
  if (copy.done)
    return;
  copy.done = true;
  SmemMemory &memory = cluster.memories[copy.tile.memory];
  auto landRows = [&](ArrayRef<int64_t> coordinates, int64_t first, int64_t rows) {
    forEachElement(*copy.source, coordinates, rows, paddedColumns(copy.type),
                   [&](int64_t row, int64_t column, const char *element) {
                     double *to =
                         memory.row(copy.tile.slot, copy.tile.row + first + row) + copy.tile.column;
                     to[column] = element && column < copy.type.getColumns()
                                      ? loadNumber(copy.source->kind, element)
                                      : 0;
                   });
  };
  if (copy.rows.empty())
    landRows(copy.coordinates, 0, copy.type.getRows());
  for (auto [row, coordinates] : llvm::enumerate(copy.rows))
    landRows(coordinates, int64_t(row), 1);
  for (int64_t row = 0; row < copy.type.getRows(); ++row)
    memory.slots[copy.tile.slot].written[size_t(copy.tile.row + row)] = 2;
  cluster.changed();
}

/// Where the rows of `copy` lie in a pool of pages; beyond it where the sequence has no such row.
static LogicalResult findRows(Fiber &fiber, const Instruction &i, TileCopy &copy) {
  unsigned rank = unsigned(copy.coordinates.size());
  PagedSequences from{*copy.source, fiber.operand(i, 1 + rank).as<MemRef>(),
                      fiber.operand(i, 2 + rank).as<MemRef>()};
  for (int64_t row = 0; row < copy.type.getRows(); ++row) {
    int64_t j = copy.coordinates[2] + row;
    std::optional<int64_t> page;
    if (failed(findPage(i.op, from, copy.coordinates[0], j, page)))
      return failure();
    copy.rows.push_back({page.value_or(copy.source->sizes[0]), copy.coordinates[1],
                         j % copy.source->sizes[2], copy.coordinates[3]});
  }
  return success();
}

static Step startCopy(Fiber &fiber, const Instruction &i) {
  auto op = cast<tile::CopyOp>(i.op);
  Cluster &cluster = *fiber.cluster;
  unsigned rank = unsigned(op.getIndices().size());
  tile::SmemType type = op.getTile().getType();
  const auto &view = fiber.operand(i, i.op->getNumOperands() - 1).as<SmemView>();
  SmallVector<int64_t, 5> coordinates;
  for (unsigned k = 0; k < rank; ++k)
    coordinates.push_back(fiber.integer(i, 1 + k));
  ++fiber.machine->statistics.copies;
  if (std::optional<int64_t> multiple = op.getAlignedRows();
      multiple && coordinates[2] % int64_t(*multiple) != 0) {
    cluster.error(i.op) << "begins with row " << coordinates[2] << ", no multiple of " << *multiple
                        << " as 'aligned_rows' says";
    return Step::Failed;
  }
  int64_t warpgroups = cluster.countWarpgroups(), own = fiber.warpgroup % warpgroups;
  bool isRow = type.getRows() == 1; // the first warpgroup's
  auto part =
      isRow ? type
            : tile::SmemType::get(op.getContext(), {kRowsOfCopy, type.getColumns()},
                                  type.getElementType(), type.getSwizzle(), type.getSlabRows());
  for (int64_t row = own * kRowsOfCopy; row < type.getRows(); row += warpgroups * kRowsOfCopy) {
    auto copy = std::make_shared<TileCopy>();
    copy->type = part;
    copy->source = std::static_pointer_cast<MemRef>(fiber.operand(i, 0).object);
    copy->coordinates = coordinates;
    if (rank > 1)
      copy->coordinates[rank - 2] += row;
    if (op.getTable() && failed(findRows(fiber, i, *copy)))
      return Step::Failed;
    copy->tile = view;
    copy->tile.row += row;
    copy->event = cluster.begin(fiber, i.op, {Threads::All, {}, false}, false);
    if (failed(cluster.access(fiber, copy->tile, part, copy->event, /*write=*/true)))
      return Step::Failed;
    if (fiber.machine->isEarly())
      land(cluster, *copy);
    fiber.copies.back().push_back(std::move(copy));
  }
  return Step::Next;
}

static Step commitCopies(Fiber &fiber, const Instruction &) {
  fiber.copies.emplace_back();
  return Step::Next;
}

/// All groups but the newest `pending`, the open one not counted.
static Step awaitCopies(Fiber &fiber, const Instruction &i) {
  Cluster &cluster = *fiber.cluster;
  size_t pending = size_t(cast<tile::AwaitOp>(i.op).getPending());
  while (fiber.copies.size() > pending + 1) {
    for (const std::shared_ptr<TileCopy> &copy : fiber.copies.front()) {
      land(cluster, *copy);
      cluster.end(fiber, *copy->event);
    }
    fiber.copies.pop_front();
  }
  return cluster.syncCta(fiber, i.op);
}

static Step meetInWarps(Fiber &fiber, const Instruction &) {
  fiber.warpsMet = fiber.now;
  return Step::Next;
}

/// What the code of one thread does not do.
template <Instruction::Handler handler>
static LogicalResult translate(Translator &translator, Operation *op) {
  if (!translator.launch || translator.launch->ofThreads)
    return op->emitError("expects to be in a launch of warpgroups");
  translator.emit(op, handler).yields = true;
  return success();
}

void interpreter::registerTileCopies(Translator &translator) {
  translator.add("tile.copy", translate<startCopy>);
  translator.add("tile.commit", translate<commitCopies>);
  translator.add("tile.await", translate<awaitCopies>);
  translator.add("tile.warp_sync", translate<meetInWarps>);
}
