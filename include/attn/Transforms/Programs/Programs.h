// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What several passes ask about tile programs (outermost scf.forall) and the memory
// that they touch.

#ifndef ATTN_TRANSFORMS_PROGRAMS_PROGRAMS_H
#define ATTN_TRANSFORMS_PROGRAMS_PROGRAMS_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <optional>

namespace attn::programs {

/// A transfer between a vector and memory, and where in that memory: a view of it
/// is looked through if it only moves the start.
struct Access {
  mlir::Operation *op;
  mlir::MemrefValue memory;
  llvm::SmallVector<mlir::OpFoldResult> indices; // in `memory`
  mlir::VectorType vector;
  mlir::AffineMap map;
  mlir::memref::SubViewOp view; // what bounds the access, if not the memory itself

  /// How many elements it touches along a dimension.
  int64_t getExtent(unsigned dim) const;
  /// Whether the view ends no earlier than its tile or the memory: its size is the least
  /// of the tile's and of what is left, or all of the memory's.
  bool coversTile() const;
};

/// Of a transfer without mask; nothing for other ops and views.
std::optional<Access> getAccess(mlir::Operation *op);

/// The memory that ops read or write. Programs are ordered by the memory that bufferization has
/// chosen for them; the dependence graph (attn/Analysis), of statements on values, has no answer.
struct Touched {
  llvm::SmallPtrSet<mlir::Value, 8> read, written;

  /// Whether one of the two must stay behind the other.
  bool dependsOn(const Touched &other) const;
};

/// What ops in `root` touch; nothing where it is not known.
std::optional<Touched> findTouched(mlir::Operation *root);

/// Whether a set of memory has some of another one.
bool intersect(const llvm::SmallPtrSetImpl<mlir::Value> &a,
               const llvm::SmallPtrSetImpl<mlir::Value> &b);

/// The outermost scf.forall: one for each launch.
llvm::SmallVector<mlir::scf::ForallOp> findPrograms(mlir::Operation *root);

/// The map of affine.apply, affine.min or affine.max; null for other ops.
mlir::AffineMap getAffineMap(mlir::Operation *op);

/// Whether a value is computed from another one, or is it. (SSA values of one iteration: nothing is
/// carried, so this is no question to the dependence graph.)
bool dependsOn(mlir::Value value, mlir::Value other);

/// Whether a value is a multiple of `n` for all values of what it depends on.
bool isMultiple(mlir::Value value, int64_t n);

} // namespace attn::programs

#endif
