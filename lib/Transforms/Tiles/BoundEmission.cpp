// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Turns intervals of tile starts into index values before the loop. Bounds are
// composed affine minima and maxima, so that what is static folds; unions and
// hulls of intervals that may be empty use compares and selects.

#include "MaskBounds.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;

namespace attn::tiles {

Value Projector::emitAffine(ArrayRef<AffineExpr> exprs, bool isMin) {
  SmallVector<AffineExpr> results;
  for (AffineExpr e : exprs)
    if (!llvm::is_contained(results, e))
      results.push_back(e);
  SmallVector<AffineExpr> replacements(uniforms.getNumSymbols(),
                                       getAffineConstantExpr(0, loop.getContext()));
  SmallVector<OpFoldResult> operands;
  for (unsigned s = 0; s < replacements.size(); ++s) {
    if (llvm::none_of(results, [&](AffineExpr e) { return e.isFunctionOfSymbol(s); }))
      continue;
    replacements[s] = getAffineDimExpr(operands.size(), loop.getContext());
    operands.push_back(uniforms.emitSymbol(b, s));
  }
  for (AffineExpr &e : results)
    e = e.replaceSymbols(replacements);
  AffineMap map = AffineMap::get(operands.size(), 0, results, loop.getContext());
  OpFoldResult value;
  if (results.size() == 1)
    value = affine::makeComposedFoldedAffineApply(b, loc, map, operands);
  else if (isMin)
    value = affine::makeComposedFoldedAffineMin(b, loc, map, operands);
  else
    value = affine::makeComposedFoldedAffineMax(b, loc, map, operands);
  return getValueOrCreateConstantIndexOp(b, loc, value);
}

Value Projector::emitMax(ArrayRef<AffineExpr> exprs) { return emitAffine(exprs, /*isMin=*/false); }

Value Projector::emitMin(ArrayRef<AffineExpr> exprs) { return emitAffine(exprs, /*isMin=*/true); }

AffineExpr Projector::symbolOf(Value value) { return uniforms.getSymbolOfBound(value); }

Value Projector::emitConditions(const Interval &interval) {
  Value all;
  auto conjoin = [&](Value flag) { all = all ? arith::AndIOp::create(b, loc, all, flag) : flag; };
  for (Value flag : interval.flags)
    conjoin(flag);
  if (!interval.conditions.empty()) {
    Value most = emitMax(interval.conditions);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    conjoin(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, most, zero));
  }
  return all;
}

Projector::Range Projector::emit(const Interval &interval) {
  if (interval.empty)
    return {Value(), loop.getLowerBound()};
  Range range;
  if (!interval.lower.empty()) {
    SmallVector<AffineExpr, 2> exprs(interval.lower);
    exprs.push_back(lowerBound);
    range.lo = emitMax(exprs);
  }
  if (!interval.upper.empty()) {
    SmallVector<AffineExpr, 2> exprs(interval.upper);
    exprs.push_back(upperBound);
    range.hi = emitMin(exprs);
  }
  if (Value condition = emitConditions(interval))
    range.hi =
        arith::SelectOp::create(b, loc, condition, range.hi ? range.hi : loop.getUpperBound(),
                                range.lo ? range.lo : loop.getLowerBound());
  return range;
}

Projector::Range Projector::emitWithLoopBounds(const Interval &interval) {
  Range range = emit(interval);
  if (!range.lo)
    range.lo = loop.getLowerBound();
  if (!range.hi)
    range.hi = loop.getUpperBound();
  return range;
}

/// The union if the two touch, else the longer; an empty one counts as touching
/// only where it adds nothing.
Interval Projector::unite(const Interval &a, const Interval &c) {
  if (a.empty || c.isWhole())
    return c;
  if (c.empty || a.isWhole())
    return a;
  bool plain = a.conditions.empty() && c.conditions.empty() && a.flags.empty() && c.flags.empty();
  auto emitEnd = [&](Value x, Value y, bool isMin) -> Value {
    return isMin ? b.createOrFold<arith::MinSIOp>(loc, x, y)
                 : b.createOrFold<arith::MaxSIOp>(loc, x, y);
  };
  Interval result;
  if (a.lower == c.lower) {
    result.lower = a.lower;
    Value hiA = emit(a).hi, hiC = emit(c).hi;
    if (hiA && hiC)
      result.upper = {symbolOf(emitEnd(hiA, hiC, /*isMin=*/false))};
    return result;
  }
  if (plain && a.upper == c.upper) {
    result.upper = a.upper;
    if (a.lower.empty() || c.lower.empty())
      return result;
    Value lo = emitEnd(emitMax(a.lower), emitMax(c.lower), /*isMin=*/true);
    result.lower = {symbolOf(lo)};
    return result;
  }
  Range ra = emitWithLoopBounds(a), rc = emitWithLoopBounds(c);
  Value hiA = emitEnd(ra.lo, ra.hi, /*isMin=*/false);
  Value hiC = emitEnd(rc.lo, rc.hi, /*isMin=*/false);
  Value meet = emitEnd(ra.lo, rc.lo, /*isMin=*/false);
  Value part = emitEnd(hiA, hiC, /*isMin=*/true);
  Value touch = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, meet, part);
  Value lengthA = arith::SubIOp::create(b, loc, hiA, ra.lo);
  Value lengthC = arith::SubIOp::create(b, loc, hiC, rc.lo);
  Value longer = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, lengthA, lengthC);
  Value lo = arith::SelectOp::create(b, loc, longer, ra.lo, rc.lo);
  Value hi = arith::SelectOp::create(b, loc, longer, hiA, hiC);
  Value unionLo = emitEnd(ra.lo, rc.lo, /*isMin=*/true);
  Value unionHi = emitEnd(hiA, hiC, /*isMin=*/false);
  lo = arith::SelectOp::create(b, loc, touch, unionLo, lo);
  hi = arith::SelectOp::create(b, loc, touch, unionHi, hi);
  result.lower = {symbolOf(lo)};
  result.upper = {symbolOf(hi)};
  return result;
}

SmallVector<Projector::Range> Projector::emitPieces(ArrayRef<Interval> pieces) {
  if (pieces.empty())
    return {{Value(), loop.getLowerBound()}};
  if (llvm::any_of(pieces, [](const Interval &i) { return i.isWhole(); }))
    return {Range()};
  if (pieces.size() == 1)
    return {emit(pieces.front())};
  SmallVector<Range> ranges;
  // Pieces that end together, such as the rows that see a key: one range from
  // the least start. A piece whose condition fails starts at the end.
  if (llvm::all_of(pieces, [&](const Interval &i) { return i.upper == pieces.front().upper; })) {
    Range range;
    for (const Interval &piece : pieces) {
      Interval plain;
      plain.lower = piece.lower;
      Value lo = emitWithLoopBounds(plain).lo;
      if (Value condition = emitConditions(piece))
        lo = arith::SelectOp::create(b, loc, condition, lo, loop.getUpperBound());
      range.lo = range.lo ? arith::MinSIOp::create(b, loc, range.lo, lo) : lo;
    }
    Interval end;
    end.upper = pieces.front().upper;
    range.hi = emit(end).hi;
    return {range};
  }
  SmallVector<ArrayRef<AffineExpr>> starts;
  for (const Interval &piece : pieces) {
    Range range = emit(piece);
    auto same = llvm::find(starts, ArrayRef(piece.lower));
    if (same == starts.end()) {
      starts.push_back(piece.lower);
      ranges.push_back(range);
      continue;
    }
    Range &merged = ranges[same - starts.begin()];
    if (merged.hi && range.hi)
      merged.hi = arith::MaxSIOp::create(b, loc, merged.hi, range.hi);
    else
      merged.hi = Value();
  }
  return ranges;
}

/// Whether all elements lie between -kMaxConstant and kMaxConstant.
Value Projector::emitAreSmall(ArrayRef<Value> values) {
  Value all;
  for (Value value : values) {
    value = uniforms.hoist(b, value);
    auto vector = dyn_cast<VectorType>(value.getType());
    Type type = vector ? Type(vector.clone(b.getIndexType())) : b.getIndexType();
    if (value.getType() != type)
      value = arith::IndexCastOp::create(b, loc, type, value);
    auto constant = [&](int64_t number) -> Value {
      TypedAttr attribute = b.getIndexAttr(number);
      if (vector)
        attribute = DenseElementsAttr::get(cast<VectorType>(type), attribute);
      return arith::ConstantOp::create(b, loc, attribute);
    };
    Value distance = arith::AddIOp::create(b, loc, value, constant(kMaxConstant));
    Value isSmall = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, distance,
                                          constant(2 * kMaxConstant));
    if (vector)
      isSmall = reduceElements(b, loc, vector::CombiningKind::AND, isSmall);
    all = all ? arith::AndIOp::create(b, loc, all, isSmall) : isSmall;
  }
  return all;
}

SmallVector<Projector::Range> Projector::emitMay(const Predicate &p) {
  SmallVector<Range> ranges = emitPieces(may(p));
  bool bounds = llvm::any_of(ranges, [](const Range &range) { return range.lo || range.hi; });
  if (p.assumed.empty() || !bounds)
    return ranges;
  Value isRight = emitAreSmall(p.assumed);
  for (Range &range : ranges) {
    if (range.lo)
      range.lo = arith::SelectOp::create(b, loc, isRight, range.lo, loop.getLowerBound());
    if (range.hi)
      range.hi = arith::SelectOp::create(b, loc, isRight, range.hi, loop.getUpperBound());
  }
  return ranges;
}

Projector::Range Projector::emitHull(ArrayRef<Range> pieces) {
  if (pieces.size() == 1)
    return pieces.front();
  Range hull;
  for (const Range &piece : pieces) {
    Value lo = piece.lo ? piece.lo : loop.getLowerBound();
    Value hi = piece.hi ? piece.hi : loop.getUpperBound();
    Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, lo, hi);
    lo = b.createOrFold<arith::SelectOp>(loc, some, lo, loop.getUpperBound());
    hi = b.createOrFold<arith::SelectOp>(loc, some, hi, loop.getLowerBound());
    hull.lo = hull.lo ? b.createOrFold<arith::MinSIOp>(loc, hull.lo, lo) : lo;
    hull.hi = hull.hi ? b.createOrFold<arith::MaxSIOp>(loc, hull.hi, hi) : hi;
  }
  return hull;
}

} // namespace attn::tiles
