// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Projection of mask atoms onto tile starts: bounding of loaded values and
// quotients, Fourier-Motzkin elimination of the lanes (J. Fourier, 1826; see
// Schrijver, Theory of Linear and Integer Programming, 12.2), and the
// intervals of conjunctions and disjunctions. Emission is in BoundEmission.cpp.

#include "MaskBounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace attn::tiles {

/// Disjuncts and constraints beyond these are dropped, which only widens MAY.
constexpr unsigned kMaxDisjuncts = 16;
constexpr unsigned kMaxConstraints = 48;

Projector::Projector(LoopUniforms &uniforms, ArrayRef<int64_t> shape, OpBuilder &b)
    : uniforms(uniforms), loop(uniforms.getLoop()), shape(shape), b(b), loc(loop.getLoc()),
      step(*getConstantIntValue(loop.getStep())) {
  auto boundOf = [&](Value value) {
    if (std::optional<int64_t> constant = getConstantIntValue(value))
      if (*constant >= -kMaxConstant && *constant <= kMaxConstant)
        return getAffineConstantExpr(*constant, loop.getContext());
    return uniforms.getSymbolOfBound(value);
  };
  lowerBound = boundOf(loop.getLowerBound());
  upperBound = boundOf(loop.getUpperBound());
}

AffineExpr Projector::simplify(AffineExpr e) {
  return simplifyAffineExpr(e, 0, uniforms.getNumSymbols());
}

static std::optional<int64_t> constantOf(AffineExpr e) {
  if (auto c = dyn_cast<AffineConstantExpr>(e))
    return c.getValue();
  return std::nullopt;
}

static bool isSmall(const HalfSpace &h) {
  auto small = [](int64_t c) { return c >= -kMaxCoefficient && c <= kMaxCoefficient; };
  bool result = small(h.iv) && llvm::all_of(h.lanes, small);
  h.uniform.walk([&](AffineExpr part) {
    if (std::optional<int64_t> c = constantOf(part))
      result &= *c >= -kMaxConstant && *c <= kMaxConstant;
  });
  return result;
}

static bool changesWithLoop(const Linear &e) {
  return e.iv != 0 || llvm::any_of(e.terms, [](const Term &t) {
           return t.kind == Term::FloorDiv && changesWithLoop(*t.a);
         });
}

AffineExpr Projector::extreme(const Linear &e, bool least) {
  AffineExpr result = e.uniform;
  for (auto [d, c] : llvm::enumerate(e.lanes))
    if ((c < 0) == least)
      result = result + c * (shape[d] - 1);
  for (const Term &t : e.terms) {
    bool leastOfTerm = (t.coefficient > 0) == least;
    AffineExpr value;
    if (t.kind == Term::Loaded)
      value = uniforms.getSymbol(t.vector, leastOfTerm ? LoopUniforms::Reading::Min
                                                       : LoopUniforms::Reading::Max);
    else
      value = extreme(*t.a, leastOfTerm).floorDiv(t.divisor);
    result = result + value * t.coefficient;
  }
  return simplify(result);
}

/// k * floor(x / c) + r <= 0 is x <= c * floor(-r / k) + c - 1 for k > 0 and
/// x >= c * ceil(r / -k) for k < 0, if r is replaced by a uniform bound.
std::optional<HalfSpace> Projector::solveQuotient(const Linear &e, unsigned number, Mode mode) {
  const Term &term = e.terms[number];
  Linear rest = e;
  rest.terms.erase(rest.terms.begin() + number);
  AffineExpr r = extreme(rest, /*least=*/mode == Mode::May);
  Linear x = *term.a;
  int64_t c = term.divisor;
  if (term.coefficient > 0) {
    AffineExpr quotient = (-r).floorDiv(term.coefficient);
    x.uniform = simplify(x.uniform - quotient * c - (c - 1));
  } else {
    x.iv = -x.iv;
    for (int64_t &lane : x.lanes)
      lane = -lane;
    for (Term &inner : x.terms)
      inner.coefficient = -inner.coefficient;
    AffineExpr quotient = r.ceilDiv(-term.coefficient);
    x.uniform = simplify(quotient * c - x.uniform);
  }
  return bound(x, mode);
}

std::optional<HalfSpace> Projector::bound(const Linear &e, Mode mode) {
  for (unsigned i = 0; i < e.terms.size(); ++i) {
    const Term &term = e.terms[i];
    if (term.kind != Term::FloorDiv || !changesWithLoop(*term.a))
      continue;
    Linear rest = e;
    rest.terms.erase(rest.terms.begin() + i);
    if (!changesWithLoop(rest))
      return solveQuotient(e, i, mode);
    // c * floor(x / c) lies between x - (c - 1) and x.
    int64_t c = term.divisor, k = term.coefficient;
    bool low = (k > 0) == (mode == Mode::May);
    const Linear &x = *term.a;
    rest.iv = rest.iv * c + k * x.iv;
    for (auto [lane, other] : llvm::zip_equal(rest.lanes, x.lanes))
      lane = lane * c + k * other;
    AffineExpr part = x.uniform - (low ? c - 1 : 0);
    rest.uniform = simplify(rest.uniform * c + part * k);
    for (Term &t : rest.terms)
      t.coefficient *= c;
    for (Term t : x.terms) {
      t.coefficient *= k;
      rest.terms.push_back(t);
    }
    bool fits =
        isSmall({rest.iv, rest.lanes, rest.uniform}) && llvm::all_of(rest.terms, [](const Term &t) {
          return std::abs(t.coefficient) <= kMaxCoefficient;
        });
    return fits ? bound(rest, mode) : std::nullopt;
  }
  Linear terms = e;
  terms.lanes.assign(shape.size(), 0);
  HalfSpace h{e.iv, e.lanes, extreme(terms, /*least=*/mode == Mode::May)};
  return isSmall(h) ? std::optional(h) : std::nullopt;
}

HalfSpace Projector::allLanes(HalfSpace h) {
  for (auto [d, c] : llvm::enumerate(h.lanes)) {
    if (c > 0)
      h.uniform = h.uniform + c * (shape[d] - 1);
    c = 0;
  }
  h.uniform = simplify(h.uniform);
  return h;
}

/// Adds `h` unless a constraint with the same variables and symbols is there
/// already; the tighter constant stays.
static void addConstraint(SmallVectorImpl<HalfSpace> &system, HalfSpace h, unsigned numSymbols) {
  bool noVariables = h.iv == 0 && llvm::all_of(h.lanes, [](int64_t c) { return c == 0; });
  std::optional<int64_t> value = constantOf(h.uniform);
  if ((noVariables && value && *value <= 0) || !isSmall(h))
    return;
  for (HalfSpace &other : system) {
    if (other.iv != h.iv || other.lanes != h.lanes)
      continue;
    std::optional<int64_t> excess =
        constantOf(simplifyAffineExpr(h.uniform - other.uniform, 0, numSymbols));
    if (!excess)
      continue;
    if (*excess > 0)
      other.uniform = h.uniform;
    return;
  }
  system.push_back(std::move(h));
}

void Projector::eliminateLanes(SmallVectorImpl<HalfSpace> &system) {
  for (unsigned d = 0; d < shape.size(); ++d) {
    HalfSpace low, high; // 0 <= lane <= size - 1
    low.lanes.assign(shape.size(), 0);
    high.lanes = low.lanes;
    low.lanes[d] = -1;
    low.uniform = getAffineConstantExpr(0, loop.getContext());
    high.lanes[d] = 1;
    high.uniform = getAffineConstantExpr(1 - shape[d], loop.getContext());
    system.push_back(low);
    system.push_back(high);
    SmallVector<HalfSpace> next;
    auto add = [&](HalfSpace h) {
      if (next.size() < kMaxConstraints)
        addConstraint(next, std::move(h), uniforms.getNumSymbols());
    };
    for (const HalfSpace &p : system) {
      if (p.lanes[d] == 0)
        add(p);
      if (p.lanes[d] <= 0)
        continue;
      for (const HalfSpace &n : system) {
        if (n.lanes[d] >= 0)
          continue;
        int64_t fp = -n.lanes[d], fn = p.lanes[d];
        HalfSpace sum = p;
        sum.iv = fp * p.iv + fn * n.iv;
        for (unsigned i = 0; i < shape.size(); ++i)
          sum.lanes[i] = fp * p.lanes[i] + fn * n.lanes[i];
        sum.uniform = simplify(p.uniform * fp + n.uniform * fn);
        add(std::move(sum));
      }
    }
    system.assign(next.begin(), next.end());
  }
}

void Projector::restrictBy(Interval &interval, const HalfSpace &h) {
  auto addBound = [&](SmallVectorImpl<AffineExpr> &bounds, AffineExpr e, bool greatest) {
    for (AffineExpr &other : bounds)
      if (std::optional<int64_t> excess = constantOf(simplify(e - other))) {
        if ((*excess > 0) == greatest)
          other = e;
        return;
      }
    bounds.push_back(e);
  };
  if (h.iv == 0) {
    std::optional<int64_t> value = constantOf(h.uniform);
    if (value && *value > 0)
      interval.empty = true;
    else if (!value)
      addBound(interval.conditions, h.uniform, /*greatest=*/true);
    return;
  }
  AffineExpr lb = lowerBound, ub = upperBound;
  if (h.iv > 0) {
    AffineExpr last = simplify((-h.uniform).floorDiv(h.iv));
    interval.last.push_back(last);
    std::optional<int64_t> slack = constantOf(simplify(last - ub));
    if (slack && *slack >= -1)
      return;
    AffineExpr end = simplify(((last - lb).floorDiv(step) + 1) * step + lb);
    std::optional<int64_t> length = constantOf(simplify(end - lb));
    if (length && *length <= 0)
      interval.empty = true;
    addBound(interval.upper, end, /*greatest=*/false);
    return;
  }
  AffineExpr first = simplify(h.uniform.ceilDiv(-h.iv));
  interval.first.push_back(first);
  std::optional<int64_t> slack = constantOf(simplify(first - lb));
  if (slack && *slack <= 0)
    return;
  AffineExpr begin = simplify((first - lb).ceilDiv(step) * step + lb);
  std::optional<int64_t> length = constantOf(simplify(ub - begin));
  if (length && *length <= 0)
    interval.empty = true;
  addBound(interval.lower, begin, /*greatest=*/true);
}

/// MAY: some lane is as wanted; MUST: all are.
void Projector::restrictByFlag(Interval &interval, const Predicate &p, Mode mode) {
  Value flag = uniforms.hoist(b, p.condition);
  if (isa<VectorType>(flag.getType())) {
    // Some lane is false if not all are true.
    bool any = (mode == Mode::May) != p.negated;
    flag =
        reduceElements(b, loc, any ? vector::CombiningKind::OR : vector::CombiningKind::AND, flag);
  }
  if (p.negated) {
    Value one = arith::ConstantIntOp::create(b, loc, 1, 1);
    flag = arith::XOrIOp::create(b, loc, flag, one);
  }
  interval.flags.push_back(flag);
}

Interval Projector::projectConjunction(ArrayRef<const Predicate *> leaves) {
  Interval interval;
  SmallVector<HalfSpace> system;
  for (const Predicate *p : leaves) {
    if (p->kind == Predicate::Bool)
      restrictByFlag(interval, *p, Mode::May);
    else if (std::optional<HalfSpace> h = bound(p->e, Mode::May))
      addConstraint(system, *h, uniforms.getNumSymbols());
  }
  eliminateLanes(system);
  for (const HalfSpace &h : system)
    restrictBy(interval, h);
  return interval;
}

using Conjunction = SmallVector<const Predicate *>;

/// The disjunctive form; what cannot be read or grows too large is widened to
/// true, so the result is implied by `p`.
static std::vector<Conjunction> disjuncts(const Predicate &p) {
  switch (p.kind) {
  case Predicate::False:
    return {};
  case Predicate::True:
  case Predicate::Unknown:
    return {Conjunction()};
  case Predicate::Atom:
  case Predicate::Bool:
    return {Conjunction{&p}};
  case Predicate::Or: {
    std::vector<Conjunction> all;
    for (const Predicate &child : p.children)
      for (Conjunction &c : disjuncts(child)) {
        if (c.empty() || all.size() == kMaxDisjuncts)
          return {Conjunction()};
        all.push_back(std::move(c));
      }
    return all;
  }
  case Predicate::And: {
    std::vector<Conjunction> all = {Conjunction()};
    for (const Predicate &child : p.children) {
      std::vector<Conjunction> parts = disjuncts(child), product;
      if (all.size() * parts.size() > kMaxDisjuncts)
        continue;
      for (const Conjunction &left : all)
        for (const Conjunction &right : parts) {
          product.push_back(left);
          product.back().append(right.begin(), right.end());
        }
      all = std::move(product);
    }
    return all;
  }
  }
  llvm_unreachable("all kinds are handled");
}

SmallVector<Interval> Projector::may(const Predicate &p) {
  SmallVector<Interval> pieces;
  for (const Conjunction &c : disjuncts(p)) {
    Interval piece = projectConjunction(c);
    if (!piece.empty)
      pieces.push_back(std::move(piece));
  }
  return pieces;
}

void Projector::intersect(Interval &a, const Interval &other) {
  a.empty |= other.empty;
  a.lower.append(other.lower);
  a.upper.append(other.upper);
  a.first.append(other.first);
  a.last.append(other.last);
  a.conditions.append(other.conditions);
  a.flags.append(other.flags);
  // Bounds of the same symbols may exclude each other: a window that is
  // narrower than a tile has no full tiles.
  for (AffineExpr first : a.first)
    for (AffineExpr last : a.last)
      if (std::optional<int64_t> room = constantOf(simplify(last - first)))
        a.empty |= *room < 0;
}

Interval Projector::mustHold(const Predicate &p) {
  Interval result;
  switch (p.kind) {
  case Predicate::True:
    break;
  case Predicate::False:
  case Predicate::Unknown:
    result.empty = true;
    break;
  case Predicate::Atom:
    if (std::optional<HalfSpace> h = bound(p.e, Mode::Must))
      restrictBy(result, allLanes(*h));
    else
      result.empty = true;
    break;
  case Predicate::Bool:
    restrictByFlag(result, p, Mode::Must);
    break;
  case Predicate::And:
    for (const Predicate &child : p.children) {
      intersect(result, mustHold(child));
      if (result.empty)
        return result;
    }
    break;
  case Predicate::Or:
    result.empty = true;
    for (const Predicate &child : p.children)
      result = unite(result, mustHold(child));
    break;
  }
  return result;
}

Interval Projector::must(const Predicate &p) {
  Interval result = mustHold(p);
  if (!result.empty && !p.assumed.empty())
    result.flags.push_back(emitAreSmall(p.assumed));
  return result;
}

bool Projector::impliesInBounds(const Predicate &p, const Linear &index, int64_t size,
                                const Linear &extent) {
  if (p.kind == Predicate::And)
    return llvm::any_of(p.children, [&](const Predicate &child) {
      return impliesInBounds(child, index, size, extent);
    });
  if (p.kind != Predicate::Atom || !index.terms.empty() || !extent.terms.empty() || extent.iv != 0)
    return false;
  std::optional<HalfSpace> h = bound(p.e, Mode::Must);
  if (!h || h->iv != index.iv)
    return false;
  AffineExpr end = index.uniform + size - extent.uniform;
  std::optional<int64_t> excess = constantOf(simplify(end - allLanes(*h).uniform));
  return excess && *excess <= 0;
}

} // namespace attn::tiles
