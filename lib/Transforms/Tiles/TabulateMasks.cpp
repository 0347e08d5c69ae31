// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks that no inequality on tile starts bounds, such as documents, are
// evaluated once per tile before the parallel loop by clones of the very ops
// that compute them. Each row of the table lists the tiles that are not empty
// as 2 * tile + full; the fold loop runs over its row. Block masks as in
// FlexAttention (Dong et al., arXiv:2412.05496), from the same expression.

#include "TablePlan.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace attn {
#define GEN_PASS_DEF_ATTNTABULATEMASKS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn::tiles;

namespace {

/// An equality that must hold for any element, of a vector that is the same for
/// the whole loop and one that is loaded for each tile.
struct Equality {
  Value rows, columns;
  /// Tables of the columns' extremes: positions in the plan's dimensions, and
  /// the tables, which have the tile as a dimension more. Null if there are
  /// none.
  SmallVector<unsigned> dims;
  Value lows, highs;
  /// Of a row of the table, and of a tile.
  Value lowRow, highRow, lowColumn, highColumn;
};

/// The terms of a conjunction.
void collectTerms(Value value, SmallVectorImpl<Value> &terms) {
  if (auto both = value.getDefiningOp<arith::AndIOp>()) {
    collectTerms(both.getLhs(), terms);
    collectTerms(both.getRhs(), terms);
  } else {
    terms.push_back(value);
  }
}

std::optional<Equality> matchEquality(Value value, LoopUniforms &uniforms) {
  Operation *op = value.getDefiningOp();
  auto cmp = dyn_cast_or_null<arith::CmpIOp>(op);
  if (!cmp || cmp.getPredicate() != arith::CmpIPredicate::eq)
    return std::nullopt;
  auto source = [](Value v) {
    while (isa_and_nonnull<vector::BroadcastOp, vector::TransposeOp>(v.getDefiningOp()) &&
           isa<VectorType>(v.getDefiningOp()->getOperand(0).getType()))
      v = v.getDefiningOp()->getOperand(0);
    return v;
  };
  Value a = source(cmp.getLhs()), c = source(cmp.getRhs());
  if (uniforms.isUniform(c))
    std::swap(a, c);
  auto isPlain = [](Value v) {
    auto type = dyn_cast<VectorType>(v.getType());
    return type && type.getRank() == 1 && !type.isScalable();
  };
  if (!uniforms.isUniform(a) || uniforms.isUniform(c) || !isPlain(a) || !isPlain(c))
    return std::nullopt;
  Equality equality;
  equality.rows = a;
  equality.columns = c;
  return equality;
}

class TableBuilder {
public:
  TableBuilder(Plan &plan, LoopUniforms &uniforms)
      : plan(plan), loop(plan.loop), b(plan.top), loc(loop.getLoc()), uniforms(uniforms) {}

  void build() {
    buildTable();
    buildLoop();
  }

private:
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }

  OpFoldResult ceilDivide(OpFoldResult lower, OpFoldResult upper, OpFoldResult step) {
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

  OpFoldResult outside(OpFoldResult bound) {
    if (auto value = dyn_cast<Value>(bound))
      return getAsOpFoldResult(cloneSlice(b, plan.top, value, outer));
    return bound;
  }

  void buildTable() {
    for (const Dimension &dim : plan.dims)
      counts.push_back(ceilDivide(outside(dim.lower), outside(dim.upper), outside(dim.step)));
    if (counts.empty())
      counts.push_back(b.getIndexAttr(1));
    lower =
        getValueOrCreateConstantIndexOp(b, loc, outside(getAsOpFoldResult(loop.getLowerBound())));
    upper =
        getValueOrCreateConstantIndexOp(b, loc, outside(getAsOpFoldResult(loop.getUpperBound())));
    capacity = ceilDivide(getAsOpFoldResult(lower), getAsOpFoldResult(upper),
                          getAsOpFoldResult(loop.getStep()));
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

  void collectEqualities() {
    for (const Mask &mask : plan.masks) {
      SmallVector<Value> terms;
      if (mask.condition.keeps)
        collectTerms(mask.condition.value, terms);
      for (Value term : terms)
        if (std::optional<Equality> equality = matchEquality(term, uniforms))
          equalities.push_back(*equality);
    }
  }

  /// The extremes of the columns are the same for all rows of the table that do
  /// not differ in what the columns depend on.
  void buildExtremes(Equality &equality) {
    SmallVector<Value> variables = findVariables(plan.top, equality.columns);
    SmallVector<OpFoldResult> sizes;
    for (auto [n, dim] : llvm::enumerate(plan.dims))
      if (llvm::is_contained(variables, dim.iv)) {
        equality.dims.push_back(n);
        sizes.push_back(counts[n]);
      }
    sizes.push_back(capacity);
    Type element = getElementTypeOrSelf(equality.columns.getType());
    Value empty = tensor::EmptyOp::create(b, loc, sizes, element);
    Value emptyToo = tensor::EmptyOp::create(b, loc, sizes, element);
    auto forall = scf::ForallOp::create(b, loc, sizes, ValueRange{empty, emptyToo},
                                        /*mapping=*/std::nullopt);
    equality.lows = forall.getResult(0);
    equality.highs = forall.getResult(1);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(forall.getBody());
    IRMapping mapping = outer;
    SmallVector<Value> places(forall.getInductionVars());
    for (auto [n, place] : llvm::zip(equality.dims, places))
      mapVariable(plan.dims[n], place, mapping);
    mapping.map(loop.getInductionVar(), startOf(places.back()));
    Value columns = cloneSlice(b, plan.top, equality.columns, mapping);
    SmallVector<OpFoldResult> offsets(places.begin(), places.end());
    SmallVector<OpFoldResult> ones(offsets.size(), b.getIndexAttr(1));
    SmallVector<Value> cells;
    for (auto [kind, table] :
         llvm::zip_equal(std::array{vector::CombiningKind::MINSI, vector::CombiningKind::MAXSI},
                         forall.getRegionIterArgs())) {
      Value cell = tensor::ExtractSliceOp::create(b, loc, RankedTensorType::get({}, element), table,
                                                  offsets, ones, ones);
      Value extreme = vector::ReductionOp::create(b, loc, kind, columns);
      cells.push_back(tensor::InsertOp::create(b, loc, extreme, cell, ValueRange()));
    }
    b.setInsertionPointToStart(forall.getTerminator().getBody());
    for (auto [cell, table] : llvm::zip_equal(cells, forall.getRegionIterArgs()))
      tensor::ParallelInsertSliceOp::create(b, loc, cell, table, offsets, ones, ones);
  }

  /// The variable of a loop at a place of the table.
  void mapVariable(const Dimension &dim, Value place, IRMapping &mapping) {
    AffineExpr l, p, s;
    bindDims(b.getContext(), l, p);
    bindSymbols(b.getContext(), s);
    OpFoldResult iv = affine::makeComposedFoldedAffineApply(
        b, loc, AffineMap::get(2, 1, l + p * s),
        {outside(dim.lower), OpFoldResult(place), outside(dim.step)});
    mapping.map(dim.iv, getValueOrCreateConstantIndexOp(b, loc, iv));
  }

  /// Where a tile starts, by its number.
  Value startOf(Value tile) {
    AffineExpr l, t;
    bindDims(b.getContext(), l, t);
    return getValueOrCreateConstantIndexOp(
        b, loc,
        affine::makeComposedFoldedAffineApply(b, loc, l + t * *getConstantIntValue(loop.getStep()),
                                              {getAsOpFoldResult(lower), OpFoldResult(tile)}));
  }

  /// One row: the tiles of one iteration of the enclosing loops.
  void buildRow(scf::ForallOp forall) {
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
    tensor::ParallelInsertSliceOp::create(b, loc, cell, forall.getRegionIterArgs()[1], offsets,
                                          ones, ones);
  }

  /// The loop over the tiles that the readable part of the masks leaves.
  scf::ForOp buildTiles(Value row, ValueRange places, IRMapping &mapping) {
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
      keeps.push_back(
          {cloneSlice(b, plan.top, mask.condition.value, mapping), mask.condition.keeps});
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

  using Comparison = arith::CmpIPredicate;

  Value compare(Comparison comparison, Value x, Value y) {
    return arith::CmpIOp::create(b, loc, comparison, x, y);
  }
  /// One may be null: nothing is known, or asked for.
  Value both(Value x, Value y) {
    return !x ? y : !y ? x : arith::AndIOp::create(b, loc, x, y).getResult();
  }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  /// What is the same for all tiles, once per tile where there are several.
  Value like(Value tiles, Value value) {
    auto type = dyn_cast<VectorType>(tiles.getType());
    return type
               ? vector::BroadcastOp::create(b, loc, type.clone(value.getType()), value).getResult()
               : value;
  }

  Value number(int32_t value) { return arith::ConstantIntOp::create(b, loc, value, 32); }

  /// Where a tile's extremes are in their tables.
  SmallVector<Value> placeOf(const Equality &equality, ValueRange places, Value tile) {
    SmallVector<Value> place;
    for (unsigned n : equality.dims)
      place.push_back(places[n]);
    place.push_back(tile);
    return place;
  }

  /// Some tiles by their numbers, and the extremes of their columns: vectors.
  struct Several {
    Value numbers, lows, highs;
  };
  Several readSeveral(const Equality &equality, ValueRange places, Value first, int64_t count) {
    Type element = equality.lowRow.getType();
    unsigned bits = attn::getBits(element);
    auto limit = [&](APInt value) -> Value {
      return arith::ConstantOp::create(b, loc, b.getIntegerAttr(element, value));
    };
    SmallVector<Value> at = placeOf(equality, places, first);
    auto read = [&](Value table, Value padding) -> Value {
      SmallVector<bool> maybeOutside = {false};
      return vector::TransferReadOp::create(b, loc, VectorType::get({count}, element), table, at,
                                            padding, maybeOutside);
    };
    Several several;
    // Beyond the last tile nothing meets.
    several.lows = read(equality.lows, limit(APInt::getSignedMaxValue(bits)));
    several.highs = read(equality.highs, limit(APInt::getSignedMinValue(bits)));
    Value steps = vector::StepOp::create(b, loc, VectorType::get({count}, b.getIndexType()));
    several.numbers =
        arith::IndexCastOp::create(b, loc, VectorType::get({count}, b.getI32Type()),
                                   arith::AddIOp::create(b, loc, steps, like(steps, first)));
    return several;
  }

  // Of the extremes of a tile's columns, or of several tiles' in vectors:

  /// Whether their range meets that of the rows.
  Value emitMeets(const Equality &equality, Value low, Value high) {
    Value below = compare(Comparison::sle, low, like(low, equality.highRow));
    Value above = compare(Comparison::sge, high, like(high, equality.lowRow));
    return both(below, above);
  }

  /// Whether rows and columns are one number.
  Value emitIsOne(const Equality &equality, Value low, Value high) {
    Value row = equality.lowRow;
    Value rows = like(low, compare(Comparison::eq, row, equality.highRow));
    Value lows = compare(Comparison::eq, low, like(low, row));
    Value highs = compare(Comparison::eq, high, like(high, row));
    return both(both(rows, lows), highs);
  }

  /// Whether rows and columns have an extreme in common.
  Value emitShares(const Equality &equality, Value low, Value high) {
    Value some;
    for (Value row : {equality.lowRow, equality.highRow})
      for (Value column : {low, high}) {
        Value same = compare(Comparison::eq, like(column, row), column);
        some = some ? either(some, same) : same;
      }
    return some;
  }

  /// Where each tile between the first and the last one is listed without a
  /// test of its elements, as most are, all are listed in vectors, and the loop
  /// has nothing to do.
  void listAtOnce(scf::ForOp tiles, ValueRange places, IRMapping &mapping,
                  const Projector::Range &sureRange) {
    constexpr int64_t kChunk = 32;
    const Equality &equality = equalities.front();
    auto read = equality.columns.getDefiningOp<vector::TransferReadOp>();
    bool mayEnd = read && read.hasOutOfBoundsDim();
    int64_t step = *getConstantIntValue(loop.getStep());
    if (mayEnd && getStartOfRead(read) != loop.getInductionVar())
      return;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(tiles);
    auto narrow = [&](Value value) -> Value {
      return arith::IndexCastOp::create(b, loc, b.getI32Type(), value);
    };
    Value rowsInside = emitIsInside(equality.rows, mapping);
    Value columnsEnd;
    if (mayEnd)
      columnsEnd = narrow(emitEndOfRead(read, mapping));
    // Bounds have the mask's constants in them, which may be anything.
    using Limits = std::numeric_limits<int32_t>;
    auto saturate = [&](Value value) -> Value {
      if (!value)
        return {};
      value = arith::MaxSIOp::create(b, loc, value, index(Limits::min()));
      value = arith::MinSIOp::create(b, loc, value, index(Limits::max()));
      return narrow(value);
    };
    Value sureLow = saturate(sureRange.lo), sureEnd = saturate(sureRange.hi);
    Value first = tileOf(tiles.getLowerBound());
    Value span = arith::SubIOp::create(b, loc, tiles.getUpperBound(), tiles.getLowerBound());
    Value count = arith::CeilDivUIOp::create(b, loc, arith::MaxSIOp::create(b, loc, span, index(0)),
                                             index(step));
    Value end = narrow(arith::AddIOp::create(b, loc, first, count));
    auto chunks = scf::ForOp::create(b, loc, index(0), count, index(kChunk),
                                     ValueRange{number(1), tiles.getInitArgs()[1]});
    {
      OpBuilder::InsertionGuard inside(b);
      b.setInsertionPointToStart(chunks.getBody());
      Value chunk = chunks.getInductionVar();
      Several several =
          readSeveral(equality, places, arith::AddIOp::create(b, loc, first, chunk), kChunk);
      Value numbers = several.numbers, lows = several.lows, highs = several.highs;
      auto repeat = [&](Value value) { return like(numbers, value); };
      Value starts = arith::AddIOp::create(
          b, loc, arith::MulIOp::create(b, loc, numbers, repeat(number(step))),
          repeat(narrow(lower)));
      Value possible = emitMeets(equality, lows, highs);
      Value sure = emitIsOne(equality, lows, highs);
      if (sureLow)
        sure = both(sure, compare(Comparison::sge, starts, repeat(sureLow)));
      if (sureEnd)
        sure = both(sure, compare(Comparison::slt, starts, repeat(sureEnd)));
      Value some = emitShares(equality, lows, highs);
      if (rowsInside)
        some = both(some, repeat(rowsInside));
      if (columnsEnd) {
        Value ends = arith::AddIOp::create(b, loc, starts,
                                           repeat(number(read.getVectorType().getDimSize(0))));
        some = both(some, compare(Comparison::sle, ends, repeat(columnsEnd)));
      }
      Value isListed = both(possible, either(sure, some));
      Value isBehind = compare(Comparison::sge, numbers, repeat(end));
      Value bits = arith::ExtUIOp::create(b, loc, numbers.getType(), sure);
      Value entries =
          arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, numbers, numbers), bits);
      Value holds = arith::SelectOp::create(b, loc, either(isListed, isBehind), repeat(number(1)),
                                            repeat(number(0)));
      constexpr auto kind = vector::CombiningKind::MINSI;
      Value own = vector::ReductionOp::create(b, loc, kind, holds);
      Value all = vector::makeArithReduction(b, loc, kind, own, chunks.getRegionIterArg(0));
      SmallVector<bool> maybeOutside = {false};
      Value row = vector::TransferWriteOp::create(b, loc, entries, chunks.getRegionIterArg(1),
                                                  ValueRange{chunk}, maybeOutside)
                      .getResult();
      scf::YieldOp::create(b, loc, ValueRange{all, row});
    }
    Value all = compare(Comparison::ne, chunks.getResult(0), number(0));
    auto choose = [&](Value x, Value y) -> Value {
      return arith::SelectOp::create(b, loc, all, x, y);
    };
    tiles.getInitArgsMutable().assign(
        ValueRange{choose(count, tiles.getInitArgs()[0]), chunks.getResult(1)});
    tiles.setLowerBound(choose(tiles.getUpperBound(), tiles.getLowerBound()));
  }

  /// From the first tile whose range meets that of the rows to the last one:
  /// all ranges at once, in vectors.
  void restrictByExtremes(scf::ForOp tiles, const Equality &equality, ValueRange places) {
    constexpr int64_t kChunk = 128;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(tiles);
    Value none = number(std::numeric_limits<int32_t>::max()), zero = number(0);
    auto loop =
        scf::ForOp::create(b, loc, index(0), getValueOrCreateConstantIndexOp(b, loc, capacity),
                           index(kChunk), ValueRange{none, zero});
    {
      OpBuilder::InsertionGuard inside(b);
      b.setInsertionPointToStart(loop.getBody());
      Several several = readSeveral(equality, places, loop.getInductionVar(), kChunk);
      Value numbers = several.numbers;
      Value meets = emitMeets(equality, several.lows, several.highs);
      Value next = arith::AddIOp::create(b, loc, numbers, like(numbers, number(1)));
      auto extreme = [&](vector::CombiningKind kind, Value value, Value otherwise,
                         Value before) -> Value {
        Value chosen = arith::SelectOp::create(b, loc, meets, value, like(numbers, otherwise));
        Value own = vector::ReductionOp::create(b, loc, kind, chosen);
        return vector::makeArithReduction(b, loc, kind, own, before);
      };
      Value first = extreme(vector::CombiningKind::MINSI, numbers, none, loop.getRegionIterArg(0));
      Value end = extreme(vector::CombiningKind::MAXSI, next, zero, loop.getRegionIterArg(1));
      scf::YieldOp::create(b, loc, ValueRange{first, end});
    }
    auto start = [&](Value tile) {
      return startOf(arith::IndexCastOp::create(b, loc, b.getIndexType(), tile));
    };
    tiles.setLowerBound(
        arith::MaxSIOp::create(b, loc, tiles.getLowerBound(), start(loop.getResult(0))));
    tiles.setUpperBound(
        arith::MinSIOp::create(b, loc, tiles.getUpperBound(), start(loop.getResult(1))));
  }

  /// Equality of loaded values is impossible where their ranges are disjoint.
  Value emitPretest(scf::ForOp tiles, ValueRange places, IRMapping &mapping) {
    using Kind = vector::CombiningKind;
    auto extreme = [&](Value v, Kind kind) -> Value {
      return vector::ReductionOp::create(b, loc, kind, v);
    };
    Value possible;
    for (Equality &equality : equalities) {
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(tiles);
        Value r = cloneSlice(b, plan.top, equality.rows, mapping);
        equality.lowRow = extreme(r, Kind::MINSI);
        equality.highRow = extreme(r, Kind::MAXSI);
      }
      if (equality.lows) {
        SmallVector<Value> at = placeOf(equality, places, tileOf(tiles.getInductionVar()));
        equality.lowColumn = tensor::ExtractOp::create(b, loc, equality.lows, at);
        equality.highColumn = tensor::ExtractOp::create(b, loc, equality.highs, at);
      } else {
        Value c = cloneSlice(b, plan.top, equality.columns, mapping);
        equality.lowColumn = extreme(c, Kind::MINSI);
        equality.highColumn = extreme(c, Kind::MAXSI);
      }
      possible = both(possible, emitMeets(equality, equality.lowColumn, equality.highColumn));
    }
    return possible;
  }

  /// The masks hold everywhere if all values that must be equal are one value,
  /// and the tile lies where the rest of the masks holds everywhere. Null if
  /// that cannot be told so, or without tables of extremes; else `range` is
  /// where such tiles start.
  Value emitPosttest(scf::ForOp tiles, IRMapping &mapping, Projector::Range &range) {
    if (equalities.empty() || !plan.extremes)
      return {};
    LoopUniforms tileUniforms(tiles);
    OpBuilder before(tiles);
    Interval full;
    for (const Mask &mask : plan.masks) {
      SmallVector<Value> terms;
      if (mask.condition.keeps)
        collectTerms(mask.condition.value, terms);
      else
        terms.push_back(mask.condition.value);
      for (Value term : terms) {
        if (mask.condition.keeps && matchEquality(term, uniforms))
          continue;
        Value copy = cloneSlice(b, plan.top, term, mapping);
        Predicate predicate =
            PredicateReader(tileUniforms, mask.getShape()).read(copy, !mask.condition.keeps);
        if (predicate.hasUnknown())
          return {};
        Projector projector(tileUniforms, mask.getShape(), before);
        projector.intersect(full, projector.must(predicate));
        if (full.empty)
          return {};
        range = projector.emit(full);
      }
    }
    Value all, start = tiles.getInductionVar();
    for (const Equality &equality : equalities)
      all = both(all, emitIsOne(equality, equality.lowColumn, equality.highColumn));
    if (range.lo)
      all = both(all, compare(Comparison::sge, start, range.lo));
    if (range.hi)
      all = both(all, compare(Comparison::slt, start, range.hi));
    return all;
  }

  /// Whether rows and columns of a tile have an extreme in common, which is then
  /// a number of both: as far as the equality goes, the tile is not empty. Where
  /// the rest of the masks is affine, and bounds the tiles, such a tile is taken
  /// without a test of its elements. Null where several equalities must hold for
  /// the same pair.
  Value emitSharedExtreme(IRMapping &mapping) {
    if (equalities.size() != 1)
      return {};
    const Equality &equality = equalities.front();
    Value some = emitShares(equality, equality.lowColumn, equality.highColumn);
    // Padding is a number of neither.
    for (Value vector : {equality.rows, equality.columns})
      if (Value inside = emitIsInside(vector, mapping))
        some = arith::AndIOp::create(b, loc, some, inside);
    return some;
  }

  /// Whether all of a vector lies in the memory that it was read from; null if
  /// that is known.
  Value emitIsInside(Value vector, IRMapping &mapping) {
    auto read = vector.getDefiningOp<vector::TransferReadOp>();
    if (!read || !read.hasOutOfBoundsDim())
      return {};
    Value start = cloneSlice(b, plan.top, getStartOfRead(read), mapping);
    Value size = emitEndOfRead(read, mapping);
    Value end = arith::AddIOp::create(b, loc, start, index(read.getVectorType().getDimSize(0)));
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, end, size);
  }

  /// The dimension of memory along which a vector is read.
  static unsigned getDimOfRead(vector::TransferReadOp read) {
    return cast<AffineDimExpr>(read.getPermutationMap().getResult(0)).getPosition();
  }

  static Value getStartOfRead(vector::TransferReadOp read) {
    return read.getIndices()[getDimOfRead(read)];
  }

  /// Where the memory ends.
  Value emitEndOfRead(vector::TransferReadOp read, IRMapping &mapping) {
    Value base = cloneSlice(b, plan.top, read.getBase(), mapping);
    return tensor::DimOp::create(b, loc, base, index(getDimOfRead(read)));
  }

  /// The number of a tile by its start.
  Value tileOf(Value start) {
    AffineExpr l, v;
    bindDims(b.getContext(), l, v);
    return getValueOrCreateConstantIndexOp(
        b, loc,
        affine::makeComposedFoldedAffineApply(
            b, loc, (v - l).floorDiv(*getConstantIntValue(loop.getStep())),
            {getAsOpFoldResult(lower), OpFoldResult(start)}));
  }

  /// The number of entries and the row, with one more entry.
  SmallVector<Value> append(scf::ForOp tiles, Value full) {
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

  /// Appends the tile to the row if no mask is false everywhere.
  ValueRange emitEntry(scf::ForOp tiles, ArrayRef<Condition> keeps) {
    auto reduce = [&](vector::CombiningKind kind) {
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
    };
    Value some = reduce(vector::CombiningKind::OR);
    Value count = tiles.getRegionIterArg(0), row = tiles.getRegionIterArg(1);
    auto branch = scf::IfOp::create(b, loc, tiles.getResultTypes(), some,
                                    /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, loc, ValueRange{count, row});
    b.setInsertionPointToStart(branch.thenBlock());
    Value full = arith::ExtUIOp::create(b, loc, b.getI32Type(), reduce(vector::CombiningKind::AND));
    scf::YieldOp::create(b, loc, append(tiles, full));
    return branch.getResults();
  }

  /// Candidates end where the affine part of the masks ends.
  void restrictTiles(scf::ForOp tiles, ArrayRef<Condition> keeps) {
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

  /// The fold loop over its row of the table.
  void buildLoop() {
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
    Value length = tensor::ExtractOp::create(b, loc, lengths, position);
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
      return;
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
  }

  IRMapping copyBody(Block *block, scf::ForOp run, Value start) {
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

  Plan &plan;
  scf::ForOp loop;
  OpBuilder b;
  Location loc;
  LoopUniforms &uniforms; // of the loop, with which the masks were read
  IRMapping outer;        // values computed in front of the loops
  SmallVector<Equality> equalities;
  SmallVector<OpFoldResult> counts;
  OpFoldResult capacity;
  Value lower, upper, list, lengths;
};

/// Whether a table costs as much as the loop that it would shorten: the mask is
/// computed from tiles in memory, and no product is left out with a tile.
bool savesNothing(scf::ForOp loop, const Plan &plan) {
  WalkResult product = loop.walk([](vector::ContractionOp) { return WalkResult::interrupt(); });
  return !product.wasInterrupted() && llvm::any_of(plan.masks, [&](const Mask &mask) {
    return readsTile(plan.top, mask.condition.value);
  });
}

void tabulate(scf::ForOp loop, bool branch, bool extremes) {
  SmallVector<Condition> conditions = collectMasks(loop);
  LoopUniforms uniforms(loop);
  bool wanted = llvm::any_of(conditions, [&](const Condition &c) {
    auto type = cast<VectorType>(c.value.getType());
    return !type.isScalable() && type.getRank() > 0 &&
           PredicateReader(uniforms, type.getShape()).read(c.value).hasUnknown();
  });
  if (!wanted)
    return;
  auto masks = readMasks(loop, uniforms, conditions, /*all=*/true);
  if (failed(masks))
    return;
  Plan plan;
  plan.loop = loop;
  plan.branch = branch;
  plan.extremes = extremes;
  plan.masks = *masks;
  if (!findPlace(plan))
    return refuse(loop, loop,
                  "expected masks and loop bounds that follow from loop "
                  "variables by pure arithmetic");
  if (savesNothing(loop, plan))
    return;
  TableBuilder(plan, uniforms).build();
}

struct TabulateMasksPass : attn::impl::AttnTabulateMasksBase<TabulateMasksPass> {
  using Base::Base;

  void runOnOperation() override {
    attn::separateTileUses(getOperation());
    for (scf::ForOp loop : collectFoldLoops(getOperation()))
      tabulate(loop, branch, extremes);
  }
};

} // namespace
