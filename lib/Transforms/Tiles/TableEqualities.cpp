// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks that ask loaded values to be equal, such as the numbers of documents: the extremes of
// rows and columns tell of most tiles whether they are empty or full, without their elements.

#include "TableBuilder.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn::tiles;

/// The terms of a conjunction.
static void collectTerms(Value value, SmallVectorImpl<Value> &terms) {
  if (auto both = value.getDefiningOp<arith::AndIOp>()) {
    collectTerms(both.getLhs(), terms);
    collectTerms(both.getRhs(), terms);
  } else {
    terms.push_back(value);
  }
}

static std::optional<Equality> matchEquality(Value value, LoopUniforms &uniforms) {
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

void TableBuilder::collectEqualities() {
  for (const Mask &mask : plan.masks) {
    SmallVector<Value> terms;
    if (mask.condition.keeps)
      collectTerms(mask.condition.value, terms);
    for (Value term : terms)
      if (std::optional<Equality> equality = matchEquality(term, uniforms))
        equalities.push_back(*equality);
  }
}

void TableBuilder::buildExtremes(Equality &equality) {
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

SmallVector<Value> TableBuilder::placeOf(const Equality &equality, ValueRange places, Value tile) {
  SmallVector<Value> place;
  for (unsigned n : equality.dims)
    place.push_back(places[n]);
  place.push_back(tile);
  return place;
}

TableBuilder::Several TableBuilder::readSeveral(const Equality &equality, ValueRange places,
                                                Value first, int64_t count) {
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

Value TableBuilder::emitMeets(const Equality &equality, Value low, Value high) {
  Value below = compare(Comparison::sle, low, like(low, equality.highRow));
  Value above = compare(Comparison::sge, high, like(high, equality.lowRow));
  return both(below, above);
}

Value TableBuilder::emitIsOne(const Equality &equality, Value low, Value high) {
  Value row = equality.lowRow;
  Value rows = like(low, compare(Comparison::eq, row, equality.highRow));
  Value lows = compare(Comparison::eq, low, like(low, row));
  Value highs = compare(Comparison::eq, high, like(high, row));
  return both(both(rows, lows), highs);
}

Value TableBuilder::emitShares(const Equality &equality, Value low, Value high) {
  Value some;
  for (Value row : {equality.lowRow, equality.highRow})
    for (Value column : {low, high}) {
      Value same = compare(Comparison::eq, like(column, row), column);
      some = some ? either(some, same) : same;
    }
  return some;
}

void TableBuilder::listAtOnce(scf::ForOp tiles, ValueRange places, IRMapping &mapping,
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
    Value starts =
        arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, numbers, repeat(number(step))),
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
      Value ends =
          arith::AddIOp::create(b, loc, starts, repeat(number(read.getVectorType().getDimSize(0))));
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

void TableBuilder::restrictByExtremes(scf::ForOp tiles, const Equality &equality,
                                      ValueRange places) {
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

Value TableBuilder::emitPretest(scf::ForOp tiles, ValueRange places, IRMapping &mapping) {
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

Value TableBuilder::emitPosttest(scf::ForOp tiles, IRMapping &mapping, Projector::Range &range) {
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

Value TableBuilder::emitSharedExtreme(IRMapping &mapping) {
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

Value TableBuilder::emitIsInside(Value vector, IRMapping &mapping) {
  auto read = vector.getDefiningOp<vector::TransferReadOp>();
  if (!read || !read.hasOutOfBoundsDim())
    return {};
  Value start = cloneSlice(b, plan.top, getStartOfRead(read), mapping);
  Value size = emitEndOfRead(read, mapping);
  Value end = arith::AddIOp::create(b, loc, start, index(read.getVectorType().getDimSize(0)));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, end, size);
}

Value TableBuilder::emitEndOfRead(vector::TransferReadOp read, IRMapping &mapping) {
  Value base = cloneSlice(b, plan.top, read.getBase(), mapping);
  return tensor::DimOp::create(b, loc, base, index(getDimOfRead(read)));
}
