// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table, a row for each iteration of the loops around, and the loop over a row.

#include "TableBuilder.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace attn::tiles;

scf::ForOp TableBuilder::build() {
  buildTable();
  return buildLoop();
}

OpFoldResult TableBuilder::ceilDivide(OpFoldResult lower, OpFoldResult upper, OpFoldResult step) {
  AffineExpr l, u, s;
  bindDims(b.getContext(), l, u);
  bindSymbols(b.getContext(), s);
  OpFoldResult count = affine::makeComposedFoldedAffineApply(
      b, loc, AffineMap::get(2, 1, (u - l).ceilDiv(s)), {lower, upper, step});
  // A loop that ends before it begins has no iterations.
  if (std::optional<int64_t> known = getConstantIntValue(count))
    return b.getIndexAttr(std::max<int64_t>(*known, 0));
  Value value = getValueOrCreateConstantIndexOp(b, loc, count);
  return arith::MaxSIOp::create(b, loc, value, index(0)).getResult();
}

OpFoldResult TableBuilder::outside(OpFoldResult bound) {
  if (auto value = dyn_cast<Value>(bound))
    return getAsOpFoldResult(cloneSlice(b, plan.top, value, outer));
  return bound;
}

void TableBuilder::buildTable() {
  for (const Dimension &dim : plan.dims)
    counts.push_back(ceilDivide(outside(dim.lower), outside(dim.upper), outside(dim.step)));
  if (counts.empty())
    counts.push_back(b.getIndexAttr(1));
  lower = getValueOrCreateConstantIndexOp(b, loc, outside(getAsOpFoldResult(loop.getLowerBound())));
  upper = getValueOrCreateConstantIndexOp(b, loc, outside(getAsOpFoldResult(loop.getUpperBound())));
  capacity = ceilDivide(getAsOpFoldResult(lower), getAsOpFoldResult(upper),
                        getAsOpFoldResult(loop.getStep()));
  if (plan.atOnce)
    return buildAtOnce();
  collectEqualities();
  if (plan.extremes)
    for (Equality &equality : equalities)
      buildExtremes(equality);
  SmallVector<OpFoldResult> sizes(counts);
  Type i32 = b.getI32Type();
  Value empty = tensor::EmptyOp::create(b, loc, counts, i32);
  sizes.push_back(capacity);
  Value emptyList = tensor::EmptyOp::create(b, loc, sizes, i32);
  auto forall = scf::ForallOp::create(b, loc, counts, ValueRange{emptyList, empty},
                                      /*mapping=*/std::nullopt);
  buildRow(forall);
  list = forall.getResult(0);
  lengths = forall.getResult(1);
}

void TableBuilder::mapVariable(const Dimension &dim, Value place, IRMapping &mapping) {
  AffineExpr l, p, s;
  bindDims(b.getContext(), l, p);
  bindSymbols(b.getContext(), s);
  OpFoldResult iv = affine::makeComposedFoldedAffineApply(
      b, loc, AffineMap::get(2, 1, l + p * s),
      {outside(dim.lower), OpFoldResult(place), outside(dim.step)});
  mapping.map(dim.iv, getValueOrCreateConstantIndexOp(b, loc, iv));
}

Value TableBuilder::startOf(Value tile) {
  AffineExpr l, t;
  bindDims(b.getContext(), l, t);
  return getValueOrCreateConstantIndexOp(
      b, loc,
      affine::makeComposedFoldedAffineApply(b, loc, l + t * *getConstantIntValue(loop.getStep()),
                                            {getAsOpFoldResult(lower), OpFoldResult(tile)}));
}

void TableBuilder::buildRow(scf::ForallOp forall) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(forall.getBody());
  IRMapping mapping = outer;
  SmallVector<OpFoldResult> offsets, ones, listSizes, strides;
  for (Value p : forall.getInductionVars()) {
    offsets.push_back(p);
    ones.push_back(b.getIndexAttr(1));
  }
  for (auto [dim, place] : llvm::zip(plan.dims, forall.getInductionVars()))
    mapVariable(dim, place, mapping);
  SmallVector<OpFoldResult> listOffsets(offsets), listOnes(ones);
  listSizes = ones;
  listOffsets.push_back(b.getIndexAttr(0));
  listOnes.push_back(b.getIndexAttr(1));
  listSizes.push_back(capacity);
  Type i32 = b.getI32Type();
  std::optional<int64_t> fixed = getConstantIntValue(capacity);
  auto rowType = RankedTensorType::get({fixed ? *fixed : ShapedType::kDynamic}, i32);
  auto cellType = RankedTensorType::get({}, i32);
  Value row = tensor::ExtractSliceOp::create(b, loc, rowType, forall.getRegionIterArgs()[0],
                                             listOffsets, listSizes, listOnes);
  Value cell = tensor::ExtractSliceOp::create(b, loc, cellType, forall.getRegionIterArgs()[1],
                                              offsets, ones, ones);
  scf::ForOp tiles = buildTiles(row, forall.getInductionVars(), mapping);
  Value length = arith::IndexCastOp::create(b, loc, i32, tiles.getResult(0));
  cell = tensor::InsertOp::create(b, loc, length, cell, ValueRange());
  b.setInsertionPointToStart(forall.getTerminator().getBody());
  tensor::ParallelInsertSliceOp::create(b, loc, tiles.getResult(1), forall.getRegionIterArgs()[0],
                                        listOffsets, listSizes, listOnes);
  tensor::ParallelInsertSliceOp::create(b, loc, cell, forall.getRegionIterArgs()[1], offsets, ones,
                                        ones);
}

scf::ForOp TableBuilder::buildTiles(Value row, ValueRange places, IRMapping &mapping) {
  auto tiles =
      scf::ForOp::create(b, loc, lower, upper, cloneSlice(b, plan.top, loop.getStep(), mapping),
                         ValueRange{index(0), row});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(tiles.getBody());
  mapping.map(loop.getInductionVar(), tiles.getInductionVar());
  Value possible = emitPretest(tiles, places, mapping);
  scf::IfOp test;
  if (possible) {
    test = scf::IfOp::create(b, loc, tiles.getResultTypes(), possible,
                             /*withElseRegion=*/true);
    b.setInsertionPointToStart(test.elseBlock());
    scf::YieldOp::create(b, loc, tiles.getRegionIterArgs());
    b.setInsertionPointToStart(test.thenBlock());
  }
  Projector::Range sureRange;
  Value sure = emitPosttest(tiles, mapping, sureRange);
  scf::IfOp known;
  if (sure) {
    Value tested = sure;
    if (Value some = emitSharedExtreme(mapping))
      tested = arith::OrIOp::create(b, loc, sure, some);
    known = scf::IfOp::create(b, loc, tiles.getResultTypes(), tested,
                              /*withElseRegion=*/true);
    b.setInsertionPointToStart(known.thenBlock());
    Value full = arith::ExtUIOp::create(b, loc, b.getI32Type(), sure);
    scf::YieldOp::create(b, loc, append(tiles, full));
    b.setInsertionPointToStart(known.elseBlock());
  }
  SmallVector<Condition> keeps;
  for (const Mask &mask : plan.masks)
    keeps.push_back({cloneSlice(b, plan.top, mask.condition.value, mapping), mask.condition.keeps});
  ValueRange state = emitEntry(tiles, keeps);
  scf::YieldOp::create(b, loc, state);
  if (known) {
    b.setInsertionPointAfter(known);
    scf::YieldOp::create(b, loc, known.getResults());
  }
  if (test) {
    b.setInsertionPointToEnd(tiles.getBody());
    scf::YieldOp::create(b, loc, test.getResults());
  }
  restrictTiles(tiles, keeps);
  for (const Equality &equality : equalities)
    if (equality.lows)
      restrictByExtremes(tiles, equality, places);
  if (sure && equalities.size() == 1 && equalities.front().lows)
    listAtOnce(tiles, places, mapping, sureRange);
  return tiles;
}

Value TableBuilder::like(Value tiles, Value value) {
  auto type = dyn_cast<VectorType>(tiles.getType());
  return type ? vector::BroadcastOp::create(b, loc, type.clone(value.getType()), value).getResult()
              : value;
}

Value TableBuilder::tileOf(Value start) {
  AffineExpr l, v;
  bindDims(b.getContext(), l, v);
  return getValueOrCreateConstantIndexOp(
      b, loc,
      affine::makeComposedFoldedAffineApply(b, loc,
                                            (v - l).floorDiv(*getConstantIntValue(loop.getStep())),
                                            {getAsOpFoldResult(lower), OpFoldResult(start)}));
}

SmallVector<Value> TableBuilder::append(scf::ForOp tiles, Value full) {
  Value count = tiles.getRegionIterArg(0), row = tiles.getRegionIterArg(1);
  AffineExpr l, v;
  bindDims(b.getContext(), l, v);
  int64_t step = *getConstantIntValue(loop.getStep());
  Value twice = getValueOrCreateConstantIndexOp(
      b, loc,
      affine::makeComposedFoldedAffineApply(
          b, loc, ((v - l).floorDiv(step)) * 2,
          {getAsOpFoldResult(lower), OpFoldResult(tiles.getInductionVar())}));
  Value entry = arith::IndexCastOp::create(b, loc, b.getI32Type(), twice);
  entry = arith::AddIOp::create(b, loc, entry, full);
  row = tensor::InsertOp::create(b, loc, entry, row, count);
  return {arith::AddIOp::create(b, loc, count, index(1)), row};
}

Value TableBuilder::reduceKeeps(vector::CombiningKind kind, ArrayRef<Condition> keeps) {
  Value result;
  for (auto [keep, keeps] : keeps) {
    if (!keeps) {
      Value all = arith::ConstantOp::create(
          b, loc, DenseElementsAttr::get(cast<VectorType>(keep.getType()), true));
      keep = arith::XOrIOp::create(b, loc, keep, all);
    }
    Value part = reduceElements(b, loc, kind, keep);
    result = result ? arith::AndIOp::create(b, loc, result, part) : part;
  }
  return result;
}

ValueRange TableBuilder::emitEntry(scf::ForOp tiles, ArrayRef<Condition> keeps) {
  Value some = reduceKeeps(vector::CombiningKind::OR, keeps);
  Value count = tiles.getRegionIterArg(0), row = tiles.getRegionIterArg(1);
  auto branch = scf::IfOp::create(b, loc, tiles.getResultTypes(), some,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, ValueRange{count, row});
  b.setInsertionPointToStart(branch.thenBlock());
  Value full = arith::ExtUIOp::create(b, loc, b.getI32Type(),
                                      reduceKeeps(vector::CombiningKind::AND, keeps));
  scf::YieldOp::create(b, loc, append(tiles, full));
  return branch.getResults();
}

void TableBuilder::restrictTiles(scf::ForOp tiles, ArrayRef<Condition> keeps) {
  LoopUniforms tileUniforms(tiles);
  SmallVector<Mask> masks;
  for (const Condition &keep : keeps) {
    Mask mask{keep, {}};
    mask.predicate = PredicateReader(tileUniforms, mask.getShape()).read(keep.value, !keep.keeps);
    masks.push_back(std::move(mask));
  }
  OpBuilder before(tiles);
  Projector::Range hull = emitHull(tileUniforms, masks, before, /*guards=*/nullptr);
  if (hull.lo)
    tiles.setLowerBound(hull.lo);
  if (hull.hi)
    tiles.setUpperBound(hull.hi);
}

scf::ForOp TableBuilder::buildLoop() {
  b.setInsertionPoint(loop);
  SmallVector<Value> position;
  for (const Dimension &dim : plan.dims) {
    AffineExpr v, l, s;
    bindDims(b.getContext(), v, l);
    bindSymbols(b.getContext(), s);
    position.push_back(getValueOrCreateConstantIndexOp(
        b, loc,
        affine::makeComposedFoldedAffineApply(
            b, loc, AffineMap::get(2, 1, (v - l).floorDiv(s)),
            {OpFoldResult(dim.iv), outside(dim.lower), outside(dim.step)})));
  }
  if (position.empty())
    position.push_back(index(0));
  Value length;
  if (plan.atOnce) {
    // What its last entry counts.
    SmallVector<Value> last(position);
    Value entries = getValueOrCreateConstantIndexOp(b, loc, capacity), zero = index(0);
    Value before = arith::SubIOp::create(b, loc, entries, index(1));
    last.push_back(arith::MaxSIOp::create(b, loc, before, zero));
    length = tensor::ExtractOp::create(b, loc, lengths, last);
    length =
        arith::SelectOp::create(b, loc, compare(Comparison::eq, entries, zero), number(0), length);
  } else {
    length = tensor::ExtractOp::create(b, loc, lengths, position);
  }
  length = arith::IndexCastOp::create(b, loc, b.getIndexType(), length);
  auto run = scf::ForOp::create(b, loc, index(0), length, index(1), loop.getInitArgs());
  run->setAttrs(loop->getDiscardableAttrDictionary());
  run->setAttr(attn::kTabulatedAttr, b.getUnitAttr());
  if (run.getBody()->mightHaveTerminator())
    run.getBody()->getTerminator()->erase();
  b.setInsertionPointToStart(run.getBody());
  position.push_back(run.getInductionVar());
  Value entry = tensor::ExtractOp::create(b, loc, list, position);
  Value one = arith::ConstantIntOp::create(b, loc, 1, 32);
  Value flag = arith::AndIOp::create(b, loc, entry, one);
  Value full = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, flag, one);
  Value tile = arith::ShRSIOp::create(b, loc, entry, one);
  tile = arith::IndexCastOp::create(b, loc, b.getIndexType(), tile);
  Value start = startOf(tile);
  if (plan.branch) {
    IRMapping mapping = copyBody(run.getBody(), run, start);
    branchAroundMasks(run, full, plan.masks, mapping);
    loop.replaceAllUsesWith(run.getResults());
    loop.erase();
    return run;
  }
  auto kinds = scf::IfOp::create(b, loc, loop.getResultTypes(), full,
                                 /*withElseRegion=*/true);
  kinds->setAttr(attn::kTileKindAttr, b.getUnitAttr());
  scf::YieldOp::create(b, loc, kinds.getResults());
  IRMapping mapping = copyBody(kinds.thenBlock(), run, start);
  setInBounds(uniforms, plan.masks, mapping, b);
  removeMasks(kinds.thenBlock(), plan.masks, mapping);
  copyBody(kinds.elseBlock(), run, start);
  loop.replaceAllUsesWith(run.getResults());
  loop.erase();
  return run;
}

IRMapping TableBuilder::copyBody(Block *block, scf::ForOp run, Value start) {
  if (block->mightHaveTerminator())
    block->getTerminator()->erase();
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(block);
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), start);
  mapping.map(loop.getRegionIterArgs(), run.getRegionIterArgs());
  for (Operation &op : *loop.getBody())
    b.clone(op, mapping);
  return mapping;
}
