// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.pages, and where a row of a sequence lies in a pool of pages.

#include "Cluster.h"
#include "GlobalMemory.h"
#include "attn/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

LogicalResult interpreter::findPage(Operation *op, const PagedSequences &from, int64_t sequence,
                                    int64_t row, std::optional<int64_t> &page) {
  auto read = [&](const MemRef &memref, ArrayRef<int64_t> at) -> FailureOr<int64_t> {
    char *element = findElement(op, memref, at);
    if (!element)
      return failure();
    return loadInteger(memref.kind, element);
  };
  page.reset();
  FailureOr<int64_t> length = read(from.lengths, {sequence});
  if (failed(length))
    return failure();
  int64_t size = from.pool.sizes[2];
  if (row >= std::min(*length, from.table.sizes[1] * size))
    return success();
  FailureOr<int64_t> entry = read(from.table, {sequence, row / size});
  if (failed(entry))
    return failure();
  if (*entry < 0 || *entry >= from.pool.sizes[0])
    return op->emitError() << "reads page " << *entry << " of a pool of " << from.pool.sizes[0]
                           << ", for row " << row << " of sequence " << sequence;
  page = *entry;
  return success();
}

/// In forms whose copies do not look rows up the view is memory with all rows.
static Step gatherPages(Fiber &fiber, const Instruction &i) {
  PagedSequences from{fiber.operand(i, 0).as<MemRef>(), fiber.operand(i, 1).as<MemRef>(),
                      fiber.operand(i, 2).as<MemRef>()};
  auto memref = std::make_shared<MemRef>();
  memref->kind = from.pool.kind;
  int64_t size = from.pool.sizes[2], heads = from.pool.sizes[1], columns = from.pool.sizes[3];
  memref->sizes = {from.table.sizes[0], heads, from.table.sizes[1] * size, columns};
  memref->strides = {heads * memref->sizes[2] * columns, memref->sizes[2] * columns, columns, 1};
  llvm::Expected<int64_t> count = countElements(memref->sizes);
  if (!count) {
    i.op->emitError() << toString(count.takeError());
    return Step::Failed;
  }
  memref->extent = *count;
  memref->owner =
      std::make_shared<std::vector<char>>(size_t(*count) * elementSize(memref->kind), char(0));
  memref->base = memref->owner->data();
  for (int64_t b = 0; b < memref->sizes[0]; ++b)
    for (int64_t j = 0; j < memref->sizes[2]; ++j) {
      std::optional<int64_t> page;
      if (failed(findPage(i.op, from, b, j, page)))
        return Step::Failed;
      for (int64_t h = 0; page && h < heads; ++h)
        for (int64_t d = 0; d < columns; ++d) {
          const char *element = findElement(i.op, from.pool, {*page, h, j % size, d});
          if (!element)
            return Step::Failed;
          storeNumber(memref->kind, findElement(i.op, *memref, {b, h, j, d}),
                      loadNumber(memref->kind, element));
        }
    }
  fiber.result(i).object = memref;
  return Step::Next;
}

void interpreter::registerPages(Translator &translator) {
  translator.add("attn.pages", gatherPages);
}
