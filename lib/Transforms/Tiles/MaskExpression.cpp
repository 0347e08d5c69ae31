// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Integer expressions of mask atoms as linear forms. Arithmetic is read where it
// is proved not to wrap: in 64 bits that of what the lengths of tensors bound, and
// that of other values on the assumption that they are small. What is not
// linear but does not change with the loop becomes a symbol (scalars) or a
// loaded term (vectors); what is neither is not read.

#include "MaskPredicate.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn::tiles {

Linear PredicateReader::constant(int64_t value) {
  Linear e;
  e.lanes.assign(shape.size(), 0);
  e.uniform = getAffineConstantExpr(value, context);
  return e;
}

std::optional<int64_t> PredicateReader::getConstant(const std::optional<Linear> &a) {
  if (!a || a->iv != 0 || !a->terms.empty() ||
      llvm::any_of(a->lanes, [](int64_t c) { return c != 0; }))
    return std::nullopt;
  if (auto c = dyn_cast<AffineConstantExpr>(a->uniform))
    return c.getValue();
  return std::nullopt;
}

AffineExpr PredicateReader::simplify(AffineExpr e) {
  return simplifyAffineExpr(e, 0, uniforms.getNumSymbols());
}

/// True if all coefficients and constants are far from overflow.
static bool fits(const Linear &e) {
  auto small = [](int64_t c) { return c >= -kMaxCoefficient && c <= kMaxCoefficient; };
  bool result =
      small(e.iv) && llvm::all_of(e.lanes, small) && llvm::all_of(e.terms, [&](const Term &t) {
        return small(t.coefficient) && small(t.divisor);
      });
  e.uniform.walk([&](AffineExpr part) {
    if (auto c = dyn_cast<AffineConstantExpr>(part))
      result &= c.getValue() >= -kMaxConstant && c.getValue() <= kMaxConstant;
  });
  return result && e.terms.size() <= 4;
}

std::optional<Linear> PredicateReader::scale(std::optional<Linear> a, int64_t factor) {
  if (!a || factor < -kMaxCoefficient || factor > kMaxCoefficient)
    return std::nullopt;
  if (factor == 0)
    return constant(0);
  a->iv *= factor;
  for (int64_t &lane : a->lanes)
    lane *= factor;
  for (Term &term : a->terms)
    term.coefficient *= factor;
  a->uniform = simplify(a->uniform * factor);
  return fits(*a) ? a : std::nullopt;
}

std::optional<Linear> PredicateReader::add(const std::optional<Linear> &a,
                                           const std::optional<Linear> &b, int64_t factor) {
  std::optional<Linear> sum = scale(b, factor);
  if (!a || !sum)
    return std::nullopt;
  sum->iv += a->iv;
  for (auto [lane, other] : llvm::zip_equal(sum->lanes, a->lanes))
    lane += other;
  sum->uniform = simplify(a->uniform + sum->uniform);
  for (const Term &term : a->terms) {
    // x - x is common: an equality written as two inequalities.
    auto same = llvm::find_if(sum->terms, [&](const Term &other) {
      return term.kind == Term::Loaded && other.kind == Term::Loaded && term.vector == other.vector;
    });
    if (same == sum->terms.end())
      sum->terms.push_back(term);
    else if ((same->coefficient += term.coefficient) == 0)
      sum->terms.erase(same);
  }
  return fits(*sum) ? sum : std::nullopt;
}

std::optional<Linear> PredicateReader::extreme(Term::Kind kind, const std::optional<Linear> &a,
                                               const std::optional<Linear> &b) {
  if (!a || !b)
    return std::nullopt;
  Linear e = constant(0);
  Term term;
  term.kind = kind;
  term.a = std::make_shared<Linear>(*a);
  term.b = std::make_shared<Linear>(*b);
  e.terms.push_back(term);
  return e;
}

std::optional<Linear> PredicateReader::floorDiv(const std::optional<Linear> &a, int64_t by) {
  if (!a || by <= 0 || by > kMaxCoefficient)
    return std::nullopt;
  for (const Term &term : a->terms)
    if (term.kind == Term::Min || term.kind == Term::Max)
      return std::nullopt;
  Linear e = constant(0);
  bool isUniform =
      a->iv == 0 && a->terms.empty() && llvm::all_of(a->lanes, [](int64_t c) { return c == 0; });
  if (isUniform) {
    e.uniform = simplify(a->uniform.floorDiv(by));
    return e;
  }
  Term term;
  term.kind = Term::FloorDiv;
  term.a = std::make_shared<Linear>(*a);
  term.divisor = by;
  e.terms.push_back(term);
  return e;
}

Span PredicateReader::getSpan(const Linear &e) {
  Span sum = tiles::getSpan(e.uniform, [&](AffineExpr symbol) {
    return uniforms.getSpan(cast<AffineSymbolExpr>(symbol).getPosition());
  });
  if (e.iv != 0)
    sum = sum + tiles::getSpan(uniforms.getLoop().getInductionVar()) * e.iv;
  for (auto [size, factor] : llvm::zip_equal(shape, e.lanes))
    sum = sum + Span{0, size - 1} * factor;
  for (const Term &term : e.terms) {
    Span span;
    if (term.kind == Term::Loaded) {
      span = Span::ofType(term.vector.getType());
    } else if (term.kind == Term::FloorDiv) {
      span = getSpan(*term.a).floorDiv(term.divisor);
    } else {
      Span a = getSpan(*term.a), b = getSpan(*term.b);
      bool isMin = term.kind == Term::Min;
      span = isMin ? Span{std::min(a.least, b.least), std::min(a.most, b.most)}
                   : Span{std::max(a.least, b.least), std::max(a.most, b.most)};
    }
    sum = sum + span * term.coefficient;
  }
  return sum;
}

bool PredicateReader::isNonNegative(const std::optional<Linear> &a) {
  return a && getSpan(*a).least >= 0;
}

void PredicateReader::collectHuge(const Linear &e, SmallVectorImpl<Value> &values) {
  e.uniform.walk([&](AffineExpr part) {
    if (auto symbol = dyn_cast<AffineSymbolExpr>(part))
      if (Value value = uniforms.getValue(symbol.getPosition()); LoopUniforms::mayBeHuge(value))
        values.push_back(value);
  });
  for (const Term &term : e.terms) {
    if (term.kind == Term::Loaded && LoopUniforms::mayBeHuge(term.vector))
      values.push_back(term.vector);
    for (const auto &part : {term.a, term.b})
      if (part)
        collectHuge(*part, values);
  }
}

/// What `op` computes as a sum: of numbers that are known to be small.
std::optional<Linear> PredicateReader::sumOf(Operation *op, std::optional<Linear> e) {
  SmallVector<Value> huge;
  if (e)
    collectHuge(*e, huge);
  // (Sums of fewer bits are read where it is proved that they fit.)
  if (Span::ofType(op->getResult(0).getType()).least == Span::kNoLeast)
    assumed.insert(huge.begin(), huge.end());
  return e;
}

std::optional<PredicateReader::DimMap> PredicateReader::dimsOfSource(Operation *op,
                                                                     const DimMap &dims) {
  auto source = dyn_cast<VectorType>(op->getOperand(0).getType());
  if (!source)
    return DimMap();
  auto result = cast<VectorType>(op->getResult(0).getType());
  if (source.isScalable() || result.isScalable())
    return std::nullopt;
  DimMap map(source.getRank(), -1);
  if (isa<vector::BroadcastOp>(op)) {
    int64_t added = result.getRank() - source.getRank();
    for (int64_t d = 0; d < source.getRank(); ++d)
      if (source.getDimSize(d) == result.getDimSize(added + d))
        map[d] = dims[added + d];
    return map;
  }
  if (auto transpose = dyn_cast<vector::TransposeOp>(op)) {
    for (auto [d, from] : llvm::enumerate(transpose.getPermutation()))
      map[from] = dims[d];
    return map;
  }
  // A shape cast that only adds or drops dimensions of size one.
  SmallVector<int64_t> kept;
  for (int64_t d = 0; d < result.getRank(); ++d)
    if (result.getDimSize(d) != 1)
      kept.push_back(d);
  unsigned next = 0;
  for (int64_t d = 0; d < source.getRank(); ++d) {
    if (source.getDimSize(d) == 1)
      continue;
    if (next == kept.size() || result.getDimSize(kept[next]) != source.getDimSize(d))
      return std::nullopt;
    map[d] = dims[kept[next++]];
  }
  return next == kept.size() ? std::optional(map) : std::nullopt;
}

std::optional<Linear> PredicateReader::readDivision(Operation *op, const DimMap &dims) {
  std::optional<int64_t> by = getConstant(readInt(op->getOperand(1), dims));
  if (!by)
    return std::nullopt;
  std::optional<Linear> a = readInt(op->getOperand(0), dims);
  if (isa<arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp>(op)) {
    if (*by < 0 || *by > 16 || (isa<arith::ShRUIOp>(op) && !isNonNegative(a)))
      return std::nullopt;
    return isa<arith::ShLIOp>(op) ? sumOf(op, scale(a, int64_t(1) << *by))
                                  : floorDiv(a, int64_t(1) << *by);
  }
  if (isa<arith::AndIOp>(op)) {
    // x & (2^k - 1) is the floored remainder, whatever the sign of x.
    int64_t modulus = *by + 1;
    if (*by < 0 || (modulus & *by) != 0)
      return std::nullopt;
    return add(a, floorDiv(a, modulus), -modulus);
  }
  if (isa<arith::FloorDivSIOp>(op))
    return floorDiv(a, *by);
  if (isa<arith::CeilDivSIOp>(op))
    return floorDiv(sumOf(op, add(a, constant(*by - 1))), *by);
  // The others round towards zero, which is the floor from zero up.
  if (!isNonNegative(a))
    return std::nullopt;
  if (isa<arith::RemSIOp, arith::RemUIOp>(op))
    return add(a, floorDiv(a, *by), -*by);
  return floorDiv(a, *by);
}

std::optional<Linear> PredicateReader::readAffine(AffineExpr expr, unsigned numDims,
                                                  ValueRange operands) {
  if (auto c = dyn_cast<AffineConstantExpr>(expr))
    return constant(c.getValue());
  if (auto d = dyn_cast<AffineDimExpr>(expr))
    return readInt(operands[d.getPosition()], {});
  if (auto s = dyn_cast<AffineSymbolExpr>(expr))
    return readInt(operands[numDims + s.getPosition()], {});
  auto binary = cast<AffineBinaryOpExpr>(expr);
  std::optional<Linear> a = readAffine(binary.getLHS(), numDims, operands);
  std::optional<Linear> b = readAffine(binary.getRHS(), numDims, operands);
  if (binary.getKind() == AffineExprKind::Add)
    return add(a, b);
  std::optional<int64_t> by = getConstant(b);
  if (!by)
    return std::nullopt;
  switch (binary.getKind()) {
  case AffineExprKind::Mul:
    return scale(a, *by);
  case AffineExprKind::FloorDiv:
    return floorDiv(a, *by);
  case AffineExprKind::CeilDiv:
    return floorDiv(add(a, constant(*by - 1)), *by);
  case AffineExprKind::Mod:
    return add(a, floorDiv(a, *by), -*by);
  default:
    return std::nullopt;
  }
}

std::optional<Linear> PredicateReader::readArith(Operation *op, const DimMap &dims) {
  auto operand = [&](unsigned i) { return readInt(op->getOperand(i), dims); };
  if (isa<arith::AddIOp>(op))
    return sumOf(op, add(operand(0), operand(1)));
  if (isa<arith::SubIOp>(op))
    return sumOf(op, add(operand(0), operand(1), -1));
  if (isa<arith::MulIOp>(op)) {
    std::optional<Linear> a = operand(0), b = operand(1);
    if (std::optional<int64_t> factor = getConstant(b))
      return sumOf(op, scale(a, *factor));
    if (std::optional<int64_t> factor = getConstant(a))
      return sumOf(op, scale(b, *factor));
    return std::nullopt;
  }
  if (isa<arith::MinSIOp>(op))
    return extreme(Term::Min, operand(0), operand(1));
  if (isa<arith::MaxSIOp>(op))
    return extreme(Term::Max, operand(0), operand(1));
  if (isa<math::AbsIOp>(op)) {
    std::optional<Linear> a = operand(0);
    return extreme(Term::Max, a, sumOf(op, scale(a, -1)));
  }
  if (isa<arith::ExtSIOp, arith::IndexCastOp, arith::TruncIOp>(op))
    return operand(0);
  if (isa<arith::ExtUIOp, arith::IndexCastUIOp>(op)) {
    std::optional<Linear> a = operand(0);
    return isNonNegative(a) ? a : std::nullopt;
  }
  if (isa<arith::FloorDivSIOp, arith::CeilDivSIOp, arith::DivSIOp, arith::DivUIOp, arith::RemSIOp,
          arith::RemUIOp, arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp, arith::AndIOp>(op))
    return readDivision(op, dims);
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op))
    if (!uniforms.isUniform(apply.getResult()))
      return sumOf(op, readAffine(apply.getAffineMap().getResult(0),
                                  apply.getAffineMap().getNumDims(), apply.getOperands()));
  return std::nullopt;
}

/// The first element and the common difference of a constant 1-D vector.
static std::optional<std::pair<int64_t, int64_t>> getProgression(Value value) {
  DenseIntElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || elements.getType().getRank() != 1)
    return std::nullopt;
  SmallVector<int64_t> values;
  for (const APInt &v : elements.getValues<APInt>()) {
    if (v.getSignificantBits() > 40)
      return std::nullopt;
    values.push_back(v.getSExtValue());
  }
  int64_t difference = values.size() > 1 ? values[1] - values[0] : 0;
  for (unsigned i = 1; i < values.size(); ++i)
    if (values[i] - values[i - 1] != difference)
      return std::nullopt;
  return std::pair(values[0], difference);
}

std::optional<Linear> PredicateReader::readInt(Value value, const DimMap &dims) {
  if (--budget < 0)
    return std::nullopt;
  if (value == uniforms.getLoop().getInductionVar()) {
    Linear e = constant(0);
    e.iv = 1;
    return e;
  }
  APInt splat;
  if (matchPattern(value, m_ConstantInt(&splat))) {
    if (splat.getSignificantBits() > 40)
      return std::nullopt;
    return constant(splat.getSExtValue());
  }
  auto type = dyn_cast<VectorType>(value.getType());
  Operation *op = value.getDefiningOp();
  std::optional<Linear> e;
  if (auto progression = type ? getProgression(value) : std::nullopt) {
    e = constant(progression->first);
    if (dims[0] >= 0)
      e->lanes[dims[0]] = progression->second;
    if (!fits(*e))
      e.reset();
  } else if (isa_and_nonnull<vector::StepOp>(op)) {
    e = constant(0);
    if (dims[0] >= 0)
      e->lanes[dims[0]] = 1;
  } else if (isa_and_nonnull<vector::BroadcastOp, vector::TransposeOp, vector::ShapeCastOp>(op)) {
    if (std::optional<DimMap> source = dimsOfSource(op, dims))
      e = readInt(op->getOperand(0), *source);
  } else if (op) {
    e = readArith(op, dims);
  }
  // What leaves its type wraps.
  if (e && !getSpan(*e).isWithin(Span::ofType(value.getType())))
    e.reset();
  if (e || !uniforms.isUniform(value))
    return e;
  e = constant(0);
  if (!type) {
    e->uniform = uniforms.getSymbol(value, LoopUniforms::Reading::Scalar);
  } else if (type.isScalable() || type.getRank() == 0) {
    return std::nullopt;
  } else {
    Term term;
    term.kind = Term::Loaded;
    term.vector = value;
    e->terms.push_back(term);
  }
  return e;
}

std::optional<Linear> PredicateReader::readScalar(Value value) {
  budget = 1024;
  return readInt(value, {});
}

} // namespace attn::tiles
