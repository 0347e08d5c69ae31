// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Splits fold loops by their masks. NeutralTerms proves that empty tiles may
// be skipped, MaskPredicate reads the masks, MaskBounds projects them; this
// file puts the loops [lo, f0) partial, [f0, f1) full and [f1, hi) partial in
// place of the loop. See docs/mask-projection.md.

#include "MaskLoops.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPROJECTMASKS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn::tiles;

static attn::Done numProjected("attn-project-masks", "projected", "Fold loops that masks bound");
static attn::Done numFull("attn-project-masks", "no mask", "Fold loops without a mask");

namespace {

/// Where the split loops begin and end; null where a loop is not needed.
struct Split {
  Value lo, fullLo, fullHi, hi;
  bool hasFull = false;
  SmallVector<SmallVector<Projector::Range>> guards;
};

bool isProvablyEmpty(Value lo, Value hi) {
  std::optional<int64_t> l = getConstantIntValue(lo), h = getConstantIntValue(hi);
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
Split computeSplit(LoopUniforms &uniforms, ArrayRef<Mask> masks, OpBuilder &b) {
  Split split;
  Projector::Range hull = emitHull(uniforms, masks, b, &split.guards);
  split.lo = hull.lo;
  split.hi = hull.hi;
  Interval full;
  for (const Mask &mask : masks) {
    Projector projector(uniforms, mask.getShape(), b);
    projector.intersect(full, projector.must(mask.predicate));
    if (full.empty)
      return split;
    if (&mask != &masks.back())
      continue;
    split.hasFull = true;
    Projector::Range range = projector.emit(full);
    split.fullLo = range.lo;
    split.fullHi = range.hi;
  }
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
    split.fullHi = split.fullHi ? emitMax(b, loc, split.lo, split.fullHi) : split.hi;
    return;
  }
  split.fullLo = emitMin(b, loc, emitMax(b, loc, split.lo, split.fullLo), split.hi);
  if (!split.fullHi) {
    split.fullHi = split.hi;
    return;
  }
  split.fullHi = emitMax(b, loc, split.fullLo, emitMin(b, loc, split.fullHi, split.hi));
}

scf::ForOp cloneLoop(scf::ForOp loop, Value lo, Value hi, ValueRange inits, OpBuilder &b,
                     IRMapping &mapping) {
  auto copy = cast<scf::ForOp>(b.clone(*loop, mapping));
  copy.setLowerBound(lo);
  copy.setUpperBound(hi);
  copy.getInitArgsMutable().assign(inits);
  return copy;
}

/// Moves the body under a test that the tile lies in one of the pieces.
void guardBody(scf::ForOp loop, ArrayRef<SmallVector<Projector::Range>> guards) {
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
        inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, iv, piece.lo);
      if (piece.hi) {
        Value below = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, iv, piece.hi);
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
  work->getOperations().splice(work->end(), body->getOperations(), std::next(guard->getIterator()),
                               yield->getIterator());
  b.setInsertionPointToEnd(work);
  scf::YieldOp::create(b, loc, yield.getOperands());
  if (hasResults) {
    b.setInsertionPointToEnd(guard.elseBlock());
    scf::YieldOp::create(b, loc, loop.getRegionIterArgs());
    yield->setOperands(guard.getResults());
  }
}

/// Whether the iteration of `loop` is one of the full ones.
Value emitIsFull(scf::ForOp loop, const Split &split) {
  OpBuilder b = OpBuilder::atBlockBegin(loop.getBody());
  Location loc = loop.getLoc();
  Value iv = loop.getInductionVar();
  Value above = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, iv, split.fullLo);
  Value below = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, iv, split.fullHi);
  return arith::AndIOp::create(b, loc, above, below);
}

SmallVector<scf::ForOp> replaceLoop(scf::ForOp loop, Split &split, LoopUniforms &uniforms,
                                    ArrayRef<Mask> masks, bool masksRemain, bool branch,
                                    OpBuilder &b) {
  SmallVector<scf::ForOp> loops;
  SmallVector<Value> state(loop.getInitArgs());
  auto append = [&](Value lo, Value hi, bool isFull) {
    if (isProvablyEmpty(lo, hi))
      return;
    IRMapping mapping;
    scf::ForOp copy = cloneLoop(loop, lo, hi, state, b, mapping);
    if (isFull) {
      setInBounds(uniforms, masks, mapping, b);
      removeMasks(copy.getBody(), masks, mapping);
    } else {
      guardBody(copy, split.guards);
    }
    if (branch && split.hasFull)
      branchAroundMasks(copy, emitIsFull(copy, split), masks, mapping);
    copy->setAttr(isFull && !masksRemain ? attn::kFullAttr : attn::kPartialAttr, b.getUnitAttr());
    state.assign(copy.getResults().begin(), copy.getResults().end());
    loops.push_back(copy);
  };
  if (!split.hasFull || branch) {
    append(split.lo, split.hi, /*isFull=*/false);
  } else {
    append(split.lo, split.fullLo, /*isFull=*/false);
    append(split.fullLo, split.fullHi, /*isFull=*/true);
    append(split.fullHi, split.hi, /*isFull=*/false);
  }
  loop.replaceAllUsesWith(state);
  loop.erase();
  return loops;
}

/// The loops in the place of `loop`.
SmallVector<scf::ForOp> project(scf::ForOp loop, bool branch) {
  SmallVector<Condition> conditions = collectMasks(loop);
  OpBuilder b(loop);
  if (conditions.empty()) {
    loop->setAttr(attn::kFullAttr, b.getUnitAttr());
    numFull.at(loop);
    return {loop};
  }
  LoopUniforms uniforms(loop);
  auto read = readMasks(loop, uniforms, conditions, /*all=*/false);
  if (failed(read))
    return {loop};
  ArrayRef<Mask> masks = *read;
  if (masks.empty()) {
    refuse(loop, loop, "expected a comparison that bounds the loop, got none");
    return {loop};
  }
  Split split = computeSplit(uniforms, masks, b);
  if (!split.lo && !split.hi && !split.hasFull && split.guards.empty()) {
    refuse(loop, loop, "no tile is provably empty or full");
    return {loop};
  }
  numProjected.at(loop) << remark::metric("Masks", masks.size())
                        << remark::metric("FullTiles", split.hasFull);
  orderSplit(loop, split, b);
  return replaceLoop(loop, split, uniforms, masks,
                     /*masksRemain=*/masks.size() < conditions.size(), branch, b);
}

struct ProjectMasksPass : attn::impl::AttnProjectMasksBase<ProjectMasksPass> {
  using Base::Base;

  void runOnOperation() override {
    attn::separateTileUses(getOperation());
    // Inner loops come first; cloning an outer one copies them as they are.
    for (scf::ForOp loop : collectFoldLoops(getOperation())) {
      attn::PartOp part = liftPart(loop);
      for (scf::ForOp each : project(loop, branch))
        dividePart(each, part);
    }
  }
};

} // namespace
