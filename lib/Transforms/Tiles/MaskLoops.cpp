// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "MaskLoops.h"
#include "NeutralTerms.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn::tiles {

SmallVector<scf::ForOp> collectFoldLoops(Operation *root) {
  SmallVector<scf::ForOp> loops;
  root->walk([&](scf::ForOp loop) {
    bool isDone =
        loop->hasAttr(kFullAttr) || loop->hasAttr(kPartialAttr) || loop->hasAttr(kTabulatedAttr);
    if (loop->hasAttr(kFoldLoopAttr) && !isDone)
      loops.push_back(loop);
  });
  return loops;
}

PartOp liftPart(scf::ForOp loop) {
  auto part = loop.getLowerBound().getDefiningOp<PartOp>();
  if (!part || loop.getLowerBound() != part.getBegin() || loop.getUpperBound() != part.getEnd() ||
      !isConstantIntValue(loop.getStep(), int64_t(part.getStep())))
    return {};
  loop.setLowerBound(part.getLower());
  loop.setUpperBound(part.getUpper());
  return part;
}

void dividePart(scf::ForOp loop, PartOp part) {
  if (!part)
    return;
  OpBuilder b(loop);
  auto own = PartOp::create(b, loop.getLoc(), part.getPart(), part.getParts(), loop.getLowerBound(),
                            loop.getUpperBound(), *getConstantIntValue(loop.getStep()));
  loop.setLowerBound(own.getBegin());
  loop.setUpperBound(own.getEnd());
}

/// Whether a condition compares values, not indices: a guard, not a mask.
static bool comparesFloats(Value condition) {
  Operation *op = condition.getDefiningOp();
  while (isa_and_nonnull<vector::BroadcastOp, vector::TransposeOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return isa_and_nonnull<arith::CmpFOp>(op);
}

SmallVector<Condition> collectMasks(scf::ForOp loop) {
  SmallVector<Condition> conditions;
  loop.getBody()->walk([&](Operation *op) {
    std::optional<Condition> condition = getMaskCondition(op);
    if (condition && !llvm::is_contained(conditions, *condition) &&
        !comparesFloats(condition->value))
      conditions.push_back(*condition);
  });
  return conditions;
}

void refuse(Operation *at, scf::ForOp loop, const Twine &reason) {
  InFlightDiagnostic remark = at->emitRemark("mask is not projected: ") << reason;
  if (at != loop)
    remark.attachNote(loop.getLoc()) << "in this loop";
}

FailureOr<SmallVector<Mask>> readMasks(scf::ForOp loop, LoopUniforms &uniforms,
                                       ArrayRef<Condition> conditions, bool all) {
  std::optional<int64_t> step = getConstantIntValue(loop.getStep());
  if (!loop.getInductionVar().getType().isIndex() || !step || *step <= 0 ||
      *step > kMaxCoefficient || loop.getUnsignedCmp()) {
    refuse(loop, loop, "expected a signed index loop with a constant step");
    return failure();
  }
  SmallVector<Mask> masks;
  std::optional<NeutralityFailure> nonNeutral;
  for (const Condition &condition : conditions) {
    auto type = cast<VectorType>(condition.value.getType());
    if (type.isScalable() || type.getRank() == 0) {
      refuse(loop, loop, "expected vectors of static size");
      return failure();
    }
    PredicateReader reader(uniforms, type.getShape());
    Mask mask{condition, reader.read(condition.value, !condition.keeps)};
    if (!all && !mask.predicate.hasKnown())
      continue;
    // A select of another purpose may stand beside the masks.
    if (auto cause = findNonNeutralTerms(uniforms, condition)) {
      if (!nonNeutral)
        nonNeutral = cause;
      continue;
    }
    masks.push_back(std::move(mask));
  }
  if (masks.empty() && nonNeutral) {
    refuse(nonNeutral->op, loop, nonNeutral->reason);
    return failure();
  }
  return masks;
}

Projector::Range emitHull(LoopUniforms &uniforms, ArrayRef<Mask> masks, OpBuilder &b,
                          SmallVectorImpl<SmallVector<Projector::Range>> *guards) {
  Projector::Range hull;
  Location loc = uniforms.getLoop().getLoc();
  for (const Mask &mask : masks) {
    Projector projector(uniforms, mask.getShape(), b);
    auto pieces = projector.emitMay(mask.predicate);
    if (guards && pieces.size() > 1)
      guards->push_back(pieces);
    Projector::Range range = projector.emitHull(pieces);
    if (hull.lo && range.lo)
      hull.lo = arith::MaxSIOp::create(b, loc, hull.lo, range.lo);
    else if (range.lo)
      hull.lo = range.lo;
    if (hull.hi && range.hi)
      hull.hi = arith::MinSIOp::create(b, loc, hull.hi, range.hi);
    else if (range.hi)
      hull.hi = range.hi;
  }
  return hull;
}

void removeMasks(Block *block, ArrayRef<Mask> masks, IRMapping &mapping) {
  for (const Mask &mask : masks) {
    Value keep = mapping.lookupOrDefault(mask.condition.value);
    auto type = cast<VectorType>(keep.getType());
    OpBuilder b = OpBuilder::atBlockBegin(block);
    bool keeps = mask.condition.keeps;
    Value all = arith::ConstantOp::create(b, block->getParentOp()->getLoc(),
                                          DenseElementsAttr::get(type, keeps));
    SmallVector<arith::SelectOp> selects;
    keep.replaceUsesWithIf(all, [&](OpOperand &use) {
      if (!block->findAncestorOpInBlock(*use.getOwner()))
        return false;
      auto select = dyn_cast<arith::SelectOp>(use.getOwner());
      if (select && use.getOperandNumber() == 0)
        selects.push_back(select);
      return true;
    });
    for (arith::SelectOp select : selects) {
      select.replaceAllUsesWith(keeps ? select.getTrueValue() : select.getFalseValue());
      select.erase();
    }
  }
  // Users come before their operands in the reverse of a pre-order walk.
  SmallVector<Operation *> ops;
  block->walk<WalkOrder::PreOrder>([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : llvm::reverse(ops))
    if (isOpTriviallyDead(op))
      op->erase();
}

void branchAroundMasks(scf::ForOp loop, Value full, ArrayRef<Mask> masks,
                       const IRMapping &mapping) {
  for (const Mask &mask : masks) {
    Value condition = mapping.lookupOrDefault(mask.condition.value);
    SmallVector<arith::SelectOp> selects;
    for (Operation *user : condition.getUsers())
      if (auto select = dyn_cast<arith::SelectOp>(user);
          select && select.getCondition() == condition && loop->isProperAncestor(select))
        selects.push_back(select);
    for (arith::SelectOp select : selects) {
      OpBuilder b(select);
      auto branch = scf::IfOp::create(b, select.getLoc(), select.getType(), full,
                                      /*withElseRegion=*/true);
      branch->setAttr(attn::kTileKindAttr, b.getUnitAttr());
      select.replaceAllUsesWith(branch.getResult(0));
      b.setInsertionPointToEnd(branch.thenBlock());
      Value kept = mask.condition.keeps ? select.getTrueValue() : select.getFalseValue();
      scf::YieldOp::create(b, select.getLoc(), kept);
      b.setInsertionPointToEnd(branch.elseBlock());
      auto end = scf::YieldOp::create(b, select.getLoc(), select.getResult());
      select->moveBefore(end);
    }
  }
}

/// The extent of dimension `position` of what is read at `start`: the tensor's
/// own if static, else that of the loop if it steps through the dimension.
static std::optional<Linear> readExtent(PredicateReader &reader, scf::ForOp loop,
                                        vector::TransferReadOp read, unsigned position) {
  int64_t extent = read.getShapedType().getDimSize(position);
  if (ShapedType::isDynamic(extent)) {
    if (read.getIndices()[position] != loop.getInductionVar())
      return std::nullopt;
    return reader.readScalar(loop.getUpperBound());
  }
  Linear e;
  e.uniform = getAffineConstantExpr(extent, loop.getContext());
  return e;
}

void setInBounds(LoopUniforms &uniforms, ArrayRef<Mask> masks, IRMapping &mapping, OpBuilder &b) {
  scf::ForOp loop = uniforms.getLoop();
  loop.getBody()->walk([&](vector::TransferReadOp read) {
    SmallVector<bool> inBounds = read.getInBoundsValues();
    for (auto [d, e] : llvm::enumerate(read.getPermutationMap().getResults())) {
      auto dim = dyn_cast<AffineDimExpr>(e);
      if (inBounds[d] || !dim || read.getVectorType().isScalable())
        continue;
      int64_t size = read.getVectorType().getDimSize(d);
      for (const Mask &mask : masks) {
        PredicateReader reader(uniforms, mask.getShape());
        Projector projector(uniforms, mask.getShape(), b);
        std::optional<Linear> index = reader.readScalar(read.getIndices()[dim.getPosition()]);
        std::optional<Linear> extent = readExtent(reader, loop, read, dim.getPosition());
        if (index && extent && index->iv != 0)
          inBounds[d] =
              inBounds[d] || projector.impliesInBounds(mask.predicate, *index, size, *extent);
      }
    }
    // The copy may have been mapped away with a mask that it served.
    if (Value copy = mapping.lookupOrNull(read.getResult()))
      copy.getDefiningOp<vector::TransferReadOp>().setInBoundsAttr(b.getBoolArrayAttr(inBounds));
  });
}

} // namespace attn::tiles
