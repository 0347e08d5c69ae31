// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the passes that restructure fold loops by their masks share: finding
// and checking the masks of a loop, and taking them out of a copy of its body.

#ifndef ATTN_LIB_TRANSFORMS_TILES_MASKLOOPS_H
#define ATTN_LIB_TRANSFORMS_TILES_MASKLOOPS_H

#include "MaskBounds.h"
#include "NeutralTerms.h"
#include "attn/Dialect/Attn/IR/Attn.h"

namespace attn::tiles {

/// A mask of the loop and its formula.
struct Mask {
  Condition condition;
  Predicate predicate;

  llvm::ArrayRef<int64_t> getShape() const {
    return llvm::cast<mlir::VectorType>(condition.value.getType()).getShape();
  }
};

/// The fold loops under `root` whose masks no pass has dealt with.
llvm::SmallVector<mlir::scf::ForOp> collectFoldLoops(mlir::Operation *root);

/// A loop with the bounds of a part gets those of the whole loop; the part, or null.
PartOp liftPart(mlir::scf::ForOp loop);
/// The loop becomes the part of it that has the number of `part`, if that is not null.
void dividePart(mlir::scf::ForOp loop, PartOp part);

/// The distinct conditions of masking selects in the loop body. A comparison
/// of floats is not a mask but part of the data.
llvm::SmallVector<Condition> collectMasks(mlir::scf::ForOp loop);

/// Says at `at` why the loop stays as it is.
void refuse(mlir::Operation *at, mlir::scf::ForOp loop, const llvm::Twine &reason);

/// Reads those conditions of which something is known, or of all if `all`.
/// Refuses, with a remark, loops of another form and masks whose empty tiles
/// may not be skipped.
mlir::FailureOr<llvm::SmallVector<Mask>> readMasks(mlir::scf::ForOp loop, LoopUniforms &uniforms,
                                                   llvm::ArrayRef<Condition> conditions, bool all);

/// The least range of tiles outside of which some mask is false everywhere;
/// `guards` receives the pieces of masks whose range has gaps.
Projector::Range emitHull(LoopUniforms &uniforms, llvm::ArrayRef<Mask> masks, mlir::OpBuilder &b,
                          llvm::SmallVectorImpl<llvm::SmallVector<Projector::Range>> *guards);

/// Lets the masks keep everything in `block`, a copy of the loop body according
/// to `mapping`, and drops what only they used.
void removeMasks(mlir::Block *block, llvm::ArrayRef<Mask> masks, mlir::IRMapping &mapping);

/// Puts the selects of `masks` in `loop`, a copy of the loop that they were read
/// from, under a branch that iterations with `full` do not take.
void branchAroundMasks(mlir::scf::ForOp loop, mlir::Value full, llvm::ArrayRef<Mask> masks,
                       const mlir::IRMapping &mapping);

/// In a copy of the body for full tiles, reads stay inside of their tensor
/// where a mask atom says that the whole tile lies below the extent.
void setInBounds(LoopUniforms &uniforms, llvm::ArrayRef<Mask> masks, mlir::IRMapping &mapping,
                 mlir::OpBuilder &b);

} // namespace attn::tiles

#endif
