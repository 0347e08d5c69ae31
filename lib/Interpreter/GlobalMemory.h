// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elements of memrefs.

#ifndef ATTN_LIB_INTERPRETER_GLOBALMEMORY_H
#define ATTN_LIB_INTERPRETER_GLOBALMEMORY_H

#include "Value.h"
#include "mlir/IR/Operation.h"

namespace attn::interpreter {

/// The element at `indices`, or null after an error at the op where there is
/// none.
char *findElement(mlir::Operation *op, const MemRef &memref, llvm::ArrayRef<int64_t> indices);

/// A float, kept as double.
double loadNumber(ElementKind kind, const char *element);
void storeNumber(ElementKind kind, char *element, double value);
double roundNumber(ElementKind kind, double value);

/// Sequences whose rows lie in pages of a pool, as in `attn.pages`.
struct PagedSequences {
  const MemRef &pool, &table, &lengths;
};

/// The page of a row, if the sequence has it; fails after an error at the op where the table has
/// no page of the pool for it.
mlir::LogicalResult findPage(mlir::Operation *op, const PagedSequences &from, int64_t sequence,
                             int64_t row, std::optional<int64_t> &page);

} // namespace attn::interpreter

#endif
