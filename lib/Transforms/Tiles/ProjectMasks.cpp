// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Splits fold loops by their masks. NeutralTerms proves that empty tiles may
// be skipped, MaskPredicate reads the masks, MaskBounds projects them; this
// file puts the loops [lo, f0) partial, [f0, f1) full and [f1, hi) partial in
// place of the loop. See docs/mask-projection.md.

#include "MaskBounds.h"
#include "NeutralTerms.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPROJECTMASKS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn::tiles;

namespace {

/// A mask of the loop and its formula.
struct Mask {
  Value keep;
  Predicate predicate;
};

/// Where the split loops begin and end; null where a loop is not needed.
struct Split {
  Value lo, fullLo, fullHi, hi;
  bool hasFull = false;
  SmallVector<SmallVector<Projector::Range>> guards;
};

bool isProvablyEmpty(Value lo, Value hi) {
  std::optional<int64_t> l = getConstantIntValue(lo),
                         h = getConstantIntValue(hi);
  return lo == hi || (l && h && *l >= *h);
}

Value emitMin(OpBuilder &b, Location loc, Value x, Value y) {
  return x == y ? x : b.createOrFold<arith::MinSIOp>(loc, x, y);
}

Value emitMax(OpBuilder &b, Location loc, Value x, Value y) {
  return x == y ? x : b.createOrFold<arith::MaxSIOp>(loc, x, y);
}

/// Projects the masks one by one: an iteration may be skipped if one of them
/// is false everywhere, and is full if all are true everywhere.
Split computeSplit(scf::ForOp loop, LoopUniforms &uniforms,
                   ArrayRef<Mask> masks, OpBuilder &b) {
  Split split;
  Interval full;
  Projector::Range fullRange;
  for (const Mask &mask : masks) {
    ArrayRef<int64_t> shape = cast<VectorType>(mask.keep.getType()).getShape();
    Projector projector(uniforms, shape, b);
    auto pieces = projector.emitPieces(projector.may(mask.predicate));
    Projector::Range hull = projector.emitHull(pieces);
    if (pieces.size() > 1)
      split.guards.push_back(pieces);
    if (hull.lo)
      split.lo =
          split.lo ? emitMax(b, loop.getLoc(), split.lo, hull.lo) : hull.lo;
    if (hull.hi)
      split.hi =
          split.hi ? emitMin(b, loop.getLoc(), split.hi, hull.hi) : hull.hi;
    Interval must = projector.must(mask.predicate);
    full.empty |= must.empty;
    full.lower.append(must.lower);
    full.upper.append(must.upper);
    full.conditions.append(must.conditions);
    full.flags.append(must.flags);
    if (&mask == &masks.back() && !full.empty) {
      split.hasFull = true;
      fullRange = projector.emit(full);
    }
  }
  split.fullLo = fullRange.lo;
  split.fullHi = fullRange.hi;
  return split;
}

/// Orders lo <= f0 <= f1 <= hi. MUST lies in MAY unless it is empty.
void orderSplit(scf::ForOp loop, Split &split, OpBuilder &b) {
  Location loc = loop.getLoc();
  if (!split.lo)
    split.lo = loop.getLowerBound();
  if (!split.hi)
    split.hi = loop.getUpperBound();
  if (!split.hasFull)
    return;
  if (!split.fullLo) {
    split.fullLo = split.lo;
    split.fullHi = split.fullHi
                       ? emitMax(b, loc, split.lo, split.fullHi)
                       : split.hi;
    return;
  }
  split.fullLo =
      emitMin(b, loc, emitMax(b, loc, split.lo, split.fullLo), split.hi);
  if (!split.fullHi) {
    split.fullHi = split.hi;
    return;
  }
  split.fullHi = emitMax(b, loc, split.fullLo,
                         emitMin(b, loc, split.fullHi, split.hi));
}

scf::ForOp cloneLoop(scf::ForOp loop, Value lo, Value hi, ValueRange inits,
                     OpBuilder &b, IRMapping &mapping) {
  auto copy = cast<scf::ForOp>(b.clone(*loop, mapping));
  copy.setLowerBound(lo);
  copy.setUpperBound(hi);
  copy.getInitArgsMutable().assign(inits);
  return copy;
}

/// Moves the body under a test that the tile lies in one of the pieces.
void guardBody(scf::ForOp loop,
               ArrayRef<SmallVector<Projector::Range>> guards) {
  if (guards.empty())
    return;
  Block *body = loop.getBody();
  OpBuilder b = OpBuilder::atBlockBegin(body);
  Location loc = loop.getLoc();
  Value iv = loop.getInductionVar(), all;
  for (ArrayRef<Projector::Range> pieces : guards) {
    Value any;
    for (Projector::Range piece : pieces) {
      Value inside = arith::ConstantIntOp::create(b, loc, 1, 1);
      if (piece.lo)
        inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, iv,
                                       piece.lo);
      if (piece.hi) {
        Value below = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                                            iv, piece.hi);
        inside = b.createOrFold<arith::AndIOp>(loc, inside, below);
      }
      any = any ? arith::OrIOp::create(b, loc, any, inside) : inside;
    }
    all = all ? arith::AndIOp::create(b, loc, all, any) : any;
  }
  auto yield = cast<scf::YieldOp>(body->getTerminator());
  bool hasResults = !yield.getOperands().empty();
  auto guard = scf::IfOp::create(b, loc, yield.getOperandTypes(), all,
                                 /*withElseRegion=*/hasResults);
  guard->setAttr(attn::kGuardAttr, b.getUnitAttr());
  Block *work = guard.thenBlock();
  if (!hasResults)
    work->getTerminator()->erase();
  work->getOperations().splice(work->end(), body->getOperations(),
                               std::next(guard->getIterator()),
                               yield->getIterator());
  b.setInsertionPointToEnd(work);
  scf::YieldOp::create(b, loc, yield.getOperands());
  if (hasResults) {
    b.setInsertionPointToEnd(guard.elseBlock());
    scf::YieldOp::create(b, loc, loop.getRegionIterArgs());
    yield->setOperands(guard.getResults());
  }
}

/// Replaces the masks by true and drops what only they used.
void removeMasks(scf::ForOp loop, ArrayRef<Mask> masks, IRMapping &mapping) {
  for (const Mask &mask : masks) {
    Value keep = mapping.lookupOrDefault(mask.keep);
    auto type = cast<VectorType>(keep.getType());
    OpBuilder b = OpBuilder::atBlockBegin(loop.getBody());
    Value allTrue = arith::ConstantOp::create(
        b, loop.getLoc(), DenseElementsAttr::get(type, true));
    SmallVector<arith::SelectOp> selects;
    keep.replaceUsesWithIf(allTrue, [&](OpOperand &use) {
      if (!loop->isProperAncestor(use.getOwner()))
        return false;
      auto select = dyn_cast<arith::SelectOp>(use.getOwner());
      if (select && use.getOperandNumber() == 0)
        selects.push_back(select);
      return true;
    });
    for (arith::SelectOp select : selects) {
      select.replaceAllUsesWith(select.getTrueValue());
      select.erase();
    }
  }
  // Users come before their operands in the reverse of a pre-order walk.
  SmallVector<Operation *> ops;
  loop.getBody()->walk<WalkOrder::PreOrder>(
      [&](Operation *op) { ops.push_back(op); });
  for (Operation *op : llvm::reverse(ops))
    if (isOpTriviallyDead(op))
      op->erase();
}

/// In the full loop, reads stay inside where a mask atom says that the whole
/// tile lies below the extent.
void setInBounds(scf::ForOp loop, LoopUniforms &uniforms, ArrayRef<Mask> masks,
                 IRMapping &mapping, OpBuilder &b) {
  loop.getBody()->walk([&](vector::TransferReadOp read) {
    SmallVector<bool> inBounds = read.getInBoundsValues();
    for (auto [d, e] : llvm::enumerate(read.getPermutationMap().getResults())) {
      auto dim = dyn_cast<AffineDimExpr>(e);
      if (inBounds[d] || !dim || read.getVectorType().isScalable())
        continue;
      unsigned position = dim.getPosition();
      Value start = read.getIndices()[position];
      int64_t size = read.getVectorType().getDimSize(d);
      int64_t extent = read.getShapedType().getDimSize(position);
      for (const Mask &mask : masks) {
        auto shape = cast<VectorType>(mask.keep.getType()).getShape();
        PredicateReader reader(uniforms, shape);
        Projector projector(uniforms, shape, b);
        std::optional<Linear> index = reader.readScalar(start), end;
        if (!ShapedType::isDynamic(extent)) {
          end = reader.readScalar(loop.getLowerBound());
          if (end) {
            *end = Linear{0, end->lanes,
                          getAffineConstantExpr(extent, b.getContext()), {}};
          }
        } else if (start == loop.getInductionVar()) {
          end = reader.readScalar(loop.getUpperBound());
        }
        if (index && end && index->iv != 0)
          inBounds[d] = inBounds[d] || projector.impliesInBounds(
                                           mask.predicate, *index, size, *end);
      }
    }
    auto copy = mapping.lookup(read.getResult())
                    .getDefiningOp<vector::TransferReadOp>();
    copy.setInBoundsAttr(b.getBoolArrayAttr(inBounds));
  });
}

void replaceLoop(scf::ForOp loop, Split &split, LoopUniforms &uniforms,
                 ArrayRef<Mask> masks, bool masksRemain, OpBuilder &b) {
  SmallVector<Value> state(loop.getInitArgs());
  auto append = [&](Value lo, Value hi, bool isFull) {
    if (isProvablyEmpty(lo, hi))
      return;
    IRMapping mapping;
    scf::ForOp copy = cloneLoop(loop, lo, hi, state, b, mapping);
    if (isFull) {
      setInBounds(loop, uniforms, masks, mapping, b);
      removeMasks(copy, masks, mapping);
    } else {
      guardBody(copy, split.guards);
    }
    copy->setAttr(isFull && !masksRemain ? attn::kFullAttr
                                         : attn::kPartialAttr,
                  b.getUnitAttr());
    state.assign(copy.getResults().begin(), copy.getResults().end());
  };
  if (!split.hasFull) {
    append(split.lo, split.hi, /*isFull=*/false);
  } else {
    append(split.lo, split.fullLo, /*isFull=*/false);
    append(split.fullLo, split.fullHi, /*isFull=*/true);
    append(split.fullHi, split.hi, /*isFull=*/false);
  }
  loop.replaceAllUsesWith(state);
  loop.erase();
}

/// The distinct conditions of masking selects. A comparison of floats is not a
/// mask but part of the data.
SmallVector<Value> collectMasks(scf::ForOp loop) {
  llvm::SetVector<Value> keeps;
  loop.getBody()->walk([&](Operation *op) {
    if (!isMaskingSelect(op))
      return;
    Value keep = cast<arith::SelectOp>(op).getCondition();
    if (!isa_and_nonnull<arith::CmpFOp>(keep.getDefiningOp()))
      keeps.insert(keep);
  });
  return keeps.takeVector();
}

void refuse(Operation *at, scf::ForOp loop, const Twine &reason) {
  InFlightDiagnostic remark = at->emitRemark("mask is not projected: ")
                              << reason;
  if (at != loop)
    remark.attachNote(loop.getLoc()) << "in this loop";
}

void project(scf::ForOp loop) {
  SmallVector<Value> keeps = collectMasks(loop);
  OpBuilder b(loop);
  if (keeps.empty()) {
    loop->setAttr(attn::kFullAttr, b.getUnitAttr());
    return;
  }
  std::optional<int64_t> step = getConstantIntValue(loop.getStep());
  if (!loop.getInductionVar().getType().isIndex() || !step || *step <= 0 ||
      *step > kMaxCoefficient)
    return refuse(loop, loop, "expected an index loop with a constant step");
  LoopUniforms uniforms(loop);
  SmallVector<Mask> masks;
  for (Value keep : keeps) {
    auto type = cast<VectorType>(keep.getType());
    if (type.isScalable() || type.getRank() == 0)
      return refuse(loop, loop, "expected vectors of static size");
    PredicateReader reader(uniforms, type.getShape());
    Mask mask{keep, reader.read(keep)};
    if (!mask.predicate.hasKnown())
      continue;
    if (auto failure = findNonNeutralTerms(uniforms, keep))
      return refuse(failure->op, loop, failure->reason);
    masks.push_back(std::move(mask));
  }
  if (masks.empty())
    return refuse(loop, loop,
                  "expected a comparison that bounds the loop, got none");
  Split split = computeSplit(loop, uniforms, masks, b);
  if (!split.lo && !split.hi && !split.hasFull && split.guards.empty())
    return refuse(loop, loop, "no tile is provably empty or full");
  orderSplit(loop, split, b);
  replaceLoop(loop, split, uniforms, masks,
              /*masksRemain=*/masks.size() < keeps.size(), b);
}

struct ProjectMasksPass : attn::impl::AttnProjectMasksBase<ProjectMasksPass> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> loops;
    getOperation()->walk([&](scf::ForOp loop) {
      bool isDone = loop->hasAttr(attn::kFullAttr) ||
                    loop->hasAttr(attn::kPartialAttr) ||
                    loop->hasAttr(attn::kTabulatedAttr);
      if (loop->hasAttr(attn::kFoldAttr) && !isDone)
        loops.push_back(loop);
    });
    // Inner loops come first; cloning an outer one copies them as they are.
    for (scf::ForOp loop : loops)
      project(loop);
  }
};

} // namespace
