// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of sequences in pages, one after the other.

#include "Attention.h"

using namespace mlir;
using namespace attn;

llvm::Expected<RefTensorPtr> attn::evaluatePages(PagesOp op, Lookup lookup) {
  RefTensorPtr pool = lookup(op.getPool()), table = lookup(op.getTable()),
               lengths = lookup(op.getLengths());
  int64_t batch = table->shape[0], entries = table->shape[1], heads = pool->shape[1],
          page = pool->shape[2], columns = pool->shape[3];
  if (lengths->shape[0] != batch)
    return makeError(op, "expected " + llvm::Twine(batch) + " lengths, got " +
                             llvm::Twine(lengths->shape[0]));
  auto result = std::make_shared<RefTensor>(
      pool->kind, ArrayRef<int64_t>{batch, heads, entries * page, columns});
  for (int64_t b = 0; b < batch; ++b) {
    int64_t length = lengths->integers[b];
    if (length > entries * page)
      return makeError(op, "expected a length of at most " + llvm::Twine(entries * page) +
                               ", got " + llvm::Twine(length) + " for sequence " + llvm::Twine(b));
    for (int64_t j = 0; j < length; ++j) {
      int64_t entry = table->integers[b * entries + j / page];
      if (entry < 0 || entry >= pool->shape[0])
        return makeError(op, "reads page " + llvm::Twine(entry) + " of a pool of " +
                                 llvm::Twine(pool->shape[0]) + ", for row " + llvm::Twine(j) +
                                 " of sequence " + llvm::Twine(b));
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < columns; ++d)
          result->floats[((b * heads + h) * entries * page + j) * columns + d] =
              pool->floats[((entry * heads + h) * page + j % page) * columns + d];
    }
  }
  return RefTensorPtr(result);
}
