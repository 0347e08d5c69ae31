// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums and maxima of tiles, and what lanes beyond the end of a dimension add to them: nothing.

#include "TileEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using Tail = Tile::Tail;

/// The streamed dimension (0) or the rows (1).
std::optional<unsigned> TileEmitter::tailDim(unsigned which) {
  for (auto &[dim, info] : dims)
    if (info.role == (which ? LoopRole::Row : LoopRole::Streamed))
      return dim;
  return std::nullopt;
}

/// `term` with the monoid's neutral element in the lanes beyond the end of the
/// streamed dimension or the rows.
Tile TileEmitter::withTail(const Tile &term, Reduction::Monoid monoid, unsigned which) {
  std::optional<unsigned> dim = tailDim(which);
  if (!dim || dims[*dim].exact || !llvm::is_contained(term.dims, *dim))
    return term;
  Tail wanted = monoid == Reduction::Monoid::Max   ? Tail::NegativeInfinity
                : monoid == Reduction::Monoid::Add ? Tail::Zero
                                                   : Tail::Unknown;
  if (wanted != Tail::Unknown && term.tails[which] == wanted)
    return term;
  Tile index = indexTile(*dim), inside;
  Value size = getValueOrCreateConstantIndexOp(b, b.getLoc(), dims[*dim].size);
  Value end = vector::BroadcastOp::create(b, index.value.getType(), size);
  inside.dims = index.dims;
  inside.value = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, index.value, end);
  Value keep = toVector(inside, term.dims, b.getI1Type());
  auto type = cast<VectorType>(term.value.getType());
  APFloat neutral = getNeutralElement(b, monoid, type.getElementType()).getValue();
  Value rest = constant(DenseElementsAttr::get(type, neutral));
  Value kept = term.value;
  if (which == 1 && branchesRowTails) {
    Value end =
        arith::AddIOp::create(b, dims[*dim].base, constant(b.getIndexAttr(dims[*dim].tile)));
    Value isWhole = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, end, size);
    auto branch = scf::IfOp::create(b, TypeRange(type), isWhole, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(b, kept);
    b.setInsertionPointToStart(branch.elseBlock());
    Value selected = arith::SelectOp::create(b, keep, kept, rest);
    scf::YieldOp::create(b, selected);
    Tile result = term;
    result.value = branch.getResult(0);
    result.tails[which] = wanted;
    return result;
  }
  // One select for the mask and the tail where both put the same value.
  if (auto select = kept.getDefiningOp<arith::SelectOp>()) {
    Value masked = select.getFalseValue();
    if (auto broadcast = masked.getDefiningOp<vector::BroadcastOp>())
      masked = broadcast.getSource();
    FloatAttr splat;
    if (matchPattern(masked, m_Constant(&splat)) && splat.getValue() == neutral) {
      keep = arith::AndIOp::create(b, select.getCondition(), keep);
      kept = select.getTrueValue();
    }
  }
  Tile result = term;
  result.value = arith::SelectOp::create(b, keep, kept, rest);
  result.tails[which] = wanted;
  return result;
}

Tile TileEmitter::withTails(const Tile &term, Reduction::Monoid monoid, std::array<bool, 2> which) {
  Tile result = term;
  for (unsigned at : {0, 1})
    if (which[at])
      result = withTail(result, monoid, at);
  return result;
}

/// Whether a statement reduces the streamed dimension, and the rows.
std::array<bool, 2> TileEmitter::reducedTails(GenericOp op) {
  std::array<bool, 2> reduced = {false, false};
  for (auto [loop, kind] : llvm::enumerate(op.getIteratorTypesArray()))
    for (unsigned which : {0, 1})
      reduced[which] |=
          kind == utils::IteratorType::reduction && classes.ofLoop(op, loop) == tailDim(which);
  return reduced;
}

static bool isFilledWithZero(const Tile &tile) {
  return matchPattern(tile.value, m_AnyZeroFloat());
}

/// A value that is summed along a dimension is 0 beyond its end from here on:
/// what is computed from it needs no select of its own.
Tile TileEmitter::settleTails(GenericOp op, const Tile &tile) {
  std::array<bool, 2> summed = {false, false};
  for (Operation *user : op->getUsers()) {
    auto reader = dyn_cast<GenericOp>(user);
    if (!reader || reader->getBlock() != op->getBlock() || reader->getNumResults() != 1 ||
        reader.getNumReductionLoops() == 0)
      continue;
    std::optional<Reduction> reduction = matchReduction(reader, 0);
    if (!reduction || reduction->monoid != Reduction::Monoid::Add)
      continue;
    for (unsigned which : {0, 1})
      summed[which] |= reducedTails(reader)[which];
  }
  return withTails(tile, Reduction::Monoid::Add, summed);
}

FailureOr<Tile> TileEmitter::startOf(GenericOp op) {
  if (auto known = starts.find(op); known != starts.end())
    return known->second;
  Body body;
  body.op = op;
  return argument(body, op.getBlock()->getArguments().back());
}

/// A product of two tiles that neither spans alone is a contraction; so is the
/// inner product of rows, of tiles that both span all. False where it is neither;
/// `result` has its dimensions already.
FailureOr<bool> TileEmitter::contract(Body &body, arith::MulFOp product, ArrayRef<unsigned> reduced,
                                      const Tile &start, Tile &result) {
  std::array<bool, 2> overTails = reducedTails(body.op);
  FailureOr<Tile> lhs = value(body, product.getLhs());
  FailureOr<Tile> rhs = value(body, product.getRhs());
  if (failed(lhs) || failed(rhs))
    return failure();
  SmallVector<unsigned> all(lhs->dims.begin(), lhs->dims.end());
  llvm::append_range(all, rhs->dims);
  SmallVector<unsigned, 2> domain = sorted(all);
  bool contracts = (domain.size() > lhs->dims.size()) == (domain.size() > rhs->dims.size()) &&
                   domain.size() == reduced.size() + result.dims.size();
  for (unsigned dim : reduced)
    contracts &= llvm::is_contained(lhs->dims, dim) && llvm::is_contained(rhs->dims, dim);
  if (!contracts)
    return false;
  // 0 x 0 in the tail; 0 alone would not do beside an infinity.
  rhs = withTails(*rhs, Reduction::Monoid::Add, overTails);
  lhs = withTails(*lhs, Reduction::Monoid::Add, overTails);
  auto map = [&](ArrayRef<unsigned> span) {
    SmallVector<AffineExpr> exprs;
    for (unsigned dim : span)
      exprs.push_back(b.getAffineDimExpr(llvm::find(domain, dim) - domain.begin()));
    return AffineMap::get(domain.size(), 0, exprs, b.getContext());
  };
  SmallVector<vector::IteratorType> iterators;
  for (unsigned dim : domain)
    iterators.push_back(llvm::is_contained(reduced, dim) ? vector::IteratorType::reduction
                                                         : vector::IteratorType::parallel);
  SmallVector<Attribute> iteratorAttrs;
  for (vector::IteratorType type : iterators)
    iteratorAttrs.push_back(vector::IteratorTypeAttr::get(b.getContext(), type));
  Type element = product.getType();
  Value accumulator = toVector(start, result.dims, element);
  result.value = vector::ContractionOp::create(
      b, lhs->value, rhs->value, accumulator,
      b.getAffineMapArrayAttr({map(lhs->dims), map(rhs->dims), map(result.dims)}),
      b.getArrayAttr(iteratorAttrs));
  // Zeros in, zeros out.
  for (unsigned which : {0, 1})
    if (!overTails[which] && isFilledWithZero(start) &&
        (lhs->tails[which] == Tail::Zero || rhs->tails[which] == Tail::Zero))
      result.tails[which] = Tail::Zero;
  return true;
}

FailureOr<Tile> TileEmitter::reduce(Body &body, const Reduction &reduction) {
  GenericOp op = body.op;
  SmallVector<unsigned> outSpan, reduced;
  std::array<bool, 2> overTails = reducedTails(op);
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
    unsigned dim = classes.ofLoop(op, loop);
    bool isReduced = op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction;
    if (dims[dim].isScalar())
      continue;
    (isReduced ? reduced : outSpan).push_back(dim);
  }
  Tile result;
  result.dims = sorted(outSpan);
  FailureOr<Tile> start = startOf(op);
  if (failed(start))
    return failure();
  Type element = reduction.term.getType();

  if (auto product = reduction.term.getDefiningOp<arith::MulFOp>();
      product && product->getBlock() == op.getBlock() &&
      reduction.monoid == Reduction::Monoid::Add) {
    FailureOr<bool> contracts = contract(body, product, reduced, *start, result);
    if (failed(contracts))
      return failure();
    if (*contracts)
      return result;
  }
  FailureOr<Tile> term = value(body, reduction.term);
  if (failed(term))
    return failure();
  SmallVector<unsigned> all(outSpan);
  llvm::append_range(all, reduced);
  SmallVector<unsigned, 2> domain = sorted(all);
  Tile spread = *term;
  spread.value = toVector(*term, domain, element);
  spread.dims = domain;
  if (overTails[0] || overTails[1]) {
    spread = withTails(spread, reduction.monoid, overTails);
    // Later readers of the same tile see the select: the tail is settled once,
    // before the row maximum.
    auto input = dyn_cast<BlockArgument>(reduction.term);
    if (input && input.getOwner() == op.getBlock())
      if (auto known = tiles.find(op->getOperand(input.getArgNumber())); known != tiles.end())
        known->second = spread;
  }
  if (reduced.empty()) { // one term for each element
    Tile sum = *start;
    sum.value = toVector(*start, result.dims, element);
    sum.dims = result.dims;
    FailureOr<Tile> both = apply(reduction.combiner, {sum, spread});
    if (failed(both))
      return failure();
    result.value = both->value;
    return result;
  }
  vector::CombiningKind kind =
      isa<arith::AddFOp>(reduction.combiner)       ? vector::CombiningKind::ADD
      : isa<arith::MulFOp>(reduction.combiner)     ? vector::CombiningKind::MUL
      : isa<arith::MaxNumFOp>(reduction.combiner)  ? vector::CombiningKind::MAXNUMF
      : isa<arith::MaximumFOp>(reduction.combiner) ? vector::CombiningKind::MAXIMUMF
      : isa<arith::MinNumFOp>(reduction.combiner)  ? vector::CombiningKind::MINNUMF
                                                   : vector::CombiningKind::MINIMUMF;
  SmallVector<bool> mask;
  for (unsigned dim : domain)
    mask.push_back(llvm::is_contained(reduced, dim));
  Value accumulator = toVector(*start, result.dims, element);
  result.value = vector::MultiDimReductionOp::create(b, spread.value, accumulator, mask, kind);
  return result;
}

/// Adds a tile of terms to a table, at a tile of indices for each of its
/// dimensions. A term that does not count is 0.
FailureOr<Tile> TileEmitter::scatter(Body &body, const ScatterSum &sum) {
  GenericOp op = body.op;
  auto spread = [&](Value scalar, ArrayRef<unsigned> domain) -> FailureOr<Value> {
    FailureOr<Tile> tile = value(body, scalar);
    if (failed(tile))
      return failure();
    return toVector(*tile, domain, scalar.getType());
  };
  SmallVector<unsigned> span;
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
    if (unsigned dim = classes.ofLoop(op, loop);
        !dims[dim].isScalar() &&
        llvm::none_of(sum.indices, [&](auto index) { return index.first == loop; }))
      span.push_back(dim);
  SmallVector<unsigned, 2> domain = sorted(span);
  FailureOr<Tile> terms = value(body, sum.value);
  if (failed(terms))
    return failure();
  Type element = sum.value.getType();
  Tile counted;
  counted.dims = domain;
  if (ArrayRef<unsigned>(terms->dims) == ArrayRef<unsigned>(domain))
    counted.tails = terms->tails;
  counted.value = toVector(*terms, domain, element);
  Value keep;
  for (Value condition : sum.conditions) {
    FailureOr<Value> holds = spread(condition, domain);
    if (failed(holds))
      return failure();
    keep = keep ? arith::AndIOp::create(b, keep, *holds).getResult() : *holds;
  }
  if (keep) {
    Value zeros = constant(b.getZeroAttr(counted.value.getType()));
    counted.value = arith::SelectOp::create(b, keep, counted.value, zeros);
  }
  counted = withTails(counted, Reduction::Monoid::Add, reducedTails(op));
  SmallVector<Value> indices;
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  for (unsigned position = 0; position < map.getNumResults(); ++position)
    for (auto [loop, index] : sum.indices)
      if (getLoop(map, position) == loop) {
        FailureOr<Value> at = spread(index, domain);
        if (failed(at))
          return failure();
        indices.push_back(*at);
      }
  Tile result = tiles.lookup(op.getDpsInits()[0]);
  result.value = ScatterAddOp::create(b, TypeRange(result.value.getType()), counted.value, indices,
                                      result.value)
                     .getResult();
  return result;
}
