// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the elements of a thread are in global memory.

#ifndef ATTN_LIB_CONVERSION_HOPPERTONVVM_GLOBALACCESS_H
#define ATTN_LIB_CONVERSION_HOPPERTONVVM_GLOBALACCESS_H

#include "Lowering.h"

namespace attn::hopper {

/// Where a thread's elements are. Offsets of rows and columns add up.
struct KernelLowering::Access {
  mlir::Type element;
  mlir::Value base;                             // address of this thread's first element, i64
  llvm::SmallVector<mlir::Value> rowOffsets;    // bytes, i64; empty: the rows do not matter
  llvm::SmallVector<mlir::Value> columnOffsets; // the same for the columns
  llvm::SmallVector<mlir::Value> rowInside, columnInside; // i1; empty: all are inside
  bool isContiguous = false;                              // columns follow each other in memory
  int64_t aligned = 1; // and rows start at multiples of so many elements
  // Of a tile, the same in all threads:
  mlir::Value alignment;  // its address and the bytes from row to row, ored, i64
  mlir::Value hasColumns; // whether all columns are inside, i1; null: they are
  Registers registers;

  mlir::Value outer(llvm::SmallVector<mlir::Value> const &values, Layout layout, unsigned r,
                    bool isRow) const {
    if (values.empty())
      return mlir::Value();
    unsigned e = layout == Layout::Tile ? (isRow ? registers.row(r) : registers.column(r)) : r;
    return values[e];
  }
};

} // namespace attn::hopper

#endif
