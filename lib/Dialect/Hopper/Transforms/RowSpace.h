// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements on memrefs that share one iteration space of rows and of the elements of a row.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROWSPACE_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROWSPACE_H

#include "attn/Utils/Statement.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/IntEqClasses.h"
#include "llvm/ADT/MapVector.h"

namespace attn::hopper {

/// A dimension of the space: loops of statements and dimensions of memory that are one.
using Dim = unsigned;

/// A statement of a row: for all its elements, or once.
struct RowStatement {
  mlir::linalg::GenericOp op;
  llvm::SmallVector<Dim> loops;       ///< the dimension of each loop
  std::optional<Reduction> reduction; ///< over the elements of a row
  bool hasColumns = false;            ///< its loops include the elements of a row
  /// How many reductions come before it, one after the other; of a reduction, before its result.
  unsigned level = 0;
  /// With all that it follows from, so short that it is done again wherever its result is used.
  bool isCheap = false;
};

/// Memory that statements read and write.
struct RowMemory {
  llvm::SmallVector<std::optional<Dim>> dims; ///< none where the index is 0
  bool hasColumns = false;
  bool isRead = false;    ///< before a statement writes it
  bool isWritten = false; ///< by a statement
  bool isKept = false;    ///< written, and seen outside of the statements
};

/// The space of all statements of a function.
class RowSpace {
public:
  /// Fails, with an error, where the statements have no such space.
  llvm::LogicalResult build(mlir::func::FuncOp function);

  llvm::SmallVector<RowStatement> statements;
  llvm::MapVector<mlir::Value, RowMemory> memory;
  llvm::SmallVector<Dim> rows; ///< outermost first
  Dim columns = 0;
  unsigned levels = 0; ///< reductions that follow each other
  bool isCheap = true; ///< all statements of elements that reduce nothing are

  /// Memory and one of its dimensions that is as long as `dim`, defined before `before`.
  std::pair<mlir::Value, int64_t> findExtent(Dim dim) const;

private:
  llvm::LogicalResult collect(mlir::func::FuncOp function);
  llvm::LogicalResult unite();
  llvm::LogicalResult findColumns();
  llvm::LogicalResult checkStatement(RowStatement &statement);
  llvm::LogicalResult checkOthers(mlir::func::FuncOp function);
  llvm::LogicalResult findUses();
  void findCosts();

  llvm::SmallVector<mlir::linalg::GenericOp> generics;
};

} // namespace attn::hopper

#endif
