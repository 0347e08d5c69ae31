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

} // namespace attn::interpreter

#endif
