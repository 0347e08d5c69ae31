// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads i1 vectors as formulas: boolean structure here, the integer
// expressions of the atoms in MaskExpression.cpp. Negations are pushed to the
// leaves (De Morgan), equalities become two inequalities, and minima and
// maxima inside an atom become two atoms, so that only and, or and linear
// inequalities are left.

#include "MaskPredicate.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn::tiles {

bool Predicate::hasUnknown() const {
  return kind == Unknown ||
         llvm::any_of(children, [](const Predicate &p) { return p.hasUnknown(); });
}

bool Predicate::hasKnown() const {
  return kind == Atom || kind == Bool ||
         llvm::any_of(children, [](const Predicate &p) { return p.hasKnown(); });
}

static Predicate leaf(Predicate::Kind kind) {
  Predicate p;
  p.kind = kind;
  return p;
}

static Predicate combine(Predicate::Kind kind, Predicate a, Predicate b) {
  Predicate::Kind neutral = kind == Predicate::And ? Predicate::True : Predicate::False;
  Predicate::Kind absorbing = kind == Predicate::And ? Predicate::False : Predicate::True;
  if (a.kind == neutral || b.kind == absorbing)
    return b;
  if (b.kind == neutral || a.kind == absorbing)
    return a;
  Predicate p = leaf(kind);
  for (Predicate *part : {&a, &b}) {
    if (part->kind == kind)
      for (Predicate &child : part->children)
        p.children.push_back(std::move(child));
    else
      p.children.push_back(std::move(*part));
  }
  return p;
}

PredicateReader::PredicateReader(LoopUniforms &uniforms, ArrayRef<int64_t> shape)
    : uniforms(uniforms), shape(shape), context(uniforms.getLoop().getContext()) {}

Predicate PredicateReader::read(Value keep, bool negated) {
  budget = 1024;
  DimMap dims;
  for (unsigned d = 0; d < shape.size(); ++d)
    dims.push_back(d);
  Predicate result = readBool(keep, dims, negated);
  result.assumed.assign(assumed.begin(), assumed.end());
  assumed.clear();
  return result;
}

Predicate PredicateReader::atom(Linear e, int depth) {
  // A mask has few minima; the bound keeps the formula small.
  constexpr int kMaxDepth = 6;
  for (unsigned i = 0; i < e.terms.size(); ++i) {
    Term term = e.terms[i];
    if (term.kind != Term::Min && term.kind != Term::Max)
      continue;
    if (depth == kMaxDepth)
      return leaf(Predicate::Unknown);
    e.terms.erase(e.terms.begin() + i);
    std::optional<Linear> withA = add(e, scale(*term.a, term.coefficient));
    std::optional<Linear> withB = add(e, scale(*term.b, term.coefficient));
    if (!withA || !withB)
      return leaf(Predicate::Unknown);
    // min(a, b) <= x if one of them is; max(a, b) <= x if both are.
    bool either = (term.kind == Term::Min) == (term.coefficient > 0);
    return combine(either ? Predicate::Or : Predicate::And, atom(*withA, depth + 1),
                   atom(*withB, depth + 1));
  }
  if (std::optional<int64_t> value = getConstant(e))
    return leaf(*value <= 0 ? Predicate::True : Predicate::False);
  // One clamped value compares as it would, two may not.
  SmallVector<Value> huge;
  collectHuge(e, huge);
  if (huge.size() > 1)
    assumed.insert(huge.begin(), huge.end());
  Predicate p = leaf(Predicate::Atom);
  p.e = std::move(e);
  return p;
}

Predicate PredicateReader::atMost(const std::optional<Linear> &a, const std::optional<Linear> &b,
                                  int64_t slack) {
  std::optional<Linear> e = add(add(a, b, -1), constant(slack));
  return e ? atom(*e) : leaf(Predicate::Unknown);
}

Predicate PredicateReader::readCompare(Value value, const DimMap &dims, bool negated) {
  auto cmp = value.getDefiningOp<arith::CmpIOp>();
  Type type = getElementTypeOrSelf(cmp.getLhs().getType());
  if (!type.isIndex() && type.getIntOrFloatBitWidth() < 8)
    return leaf(Predicate::Unknown);
  arith::CmpIPredicate kind = cmp.getPredicate();
  if (negated)
    kind = arith::invertPredicate(kind);
  std::optional<Linear> a = readInt(cmp.getLhs(), dims);
  std::optional<Linear> b = readInt(cmp.getRhs(), dims);
  using P = arith::CmpIPredicate;
  bool isUnsigned = kind == P::ult || kind == P::ule || kind == P::ugt || kind == P::uge;
  if (!a || !b || (isUnsigned && !(isNonNegative(a) && isNonNegative(b))))
    return leaf(Predicate::Unknown);
  switch (kind) {
  case P::slt:
  case P::ult:
    return atMost(a, b, 1);
  case P::sle:
  case P::ule:
    return atMost(a, b, 0);
  case P::sgt:
  case P::ugt:
    return atMost(b, a, 1);
  case P::sge:
  case P::uge:
    return atMost(b, a, 0);
  case P::eq:
    return combine(Predicate::And, atMost(a, b, 0), atMost(b, a, 0));
  case P::ne:
    return combine(Predicate::Or, atMost(a, b, 1), atMost(b, a, 1));
  }
  llvm_unreachable("all comparisons are handled");
}

Predicate PredicateReader::readCreateMask(Value value, const DimMap &dims, bool negated) {
  auto mask = value.getDefiningOp<vector::CreateMaskOp>();
  if (dims.size() != mask.getOperands().size())
    return leaf(Predicate::Unknown); // of rank zero
  Predicate result = leaf(negated ? Predicate::False : Predicate::True);
  for (auto [d, bound] : llvm::enumerate(mask.getOperands())) {
    Linear lane = constant(0);
    if (dims[d] >= 0)
      lane.lanes[dims[d]] = 1;
    std::optional<Linear> limit = readInt(bound, {});
    Predicate part = negated ? atMost(limit, lane, 0) : atMost(lane, limit, 1);
    result = combine(negated ? Predicate::Or : Predicate::And, result, part);
  }
  return result;
}

static bool isAllOnes(Value value) {
  APInt constant;
  return matchPattern(value, m_ConstantInt(&constant)) && constant.isAllOnes();
}

Predicate PredicateReader::readBool(Value value, const DimMap &dims, bool negated) {
  if (--budget < 0)
    return leaf(Predicate::Unknown);
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return leaf(constant.isAllOnes() != negated ? Predicate::True : Predicate::False);
  Operation *op = value.getDefiningOp();
  Predicate result = leaf(Predicate::Unknown);
  if (isa_and_nonnull<vector::BroadcastOp, vector::TransposeOp, vector::ShapeCastOp>(op)) {
    if (std::optional<DimMap> source = dimsOfSource(op, dims))
      result = readBool(op->getOperand(0), *source, negated);
  } else if (isa_and_nonnull<arith::CmpIOp>(op)) {
    result = readCompare(value, dims, negated);
  } else if (isa_and_nonnull<vector::CreateMaskOp>(op)) {
    result = readCreateMask(value, dims, negated);
  } else if (isa_and_nonnull<arith::AndIOp, arith::OrIOp>(op)) {
    bool conjunction = isa<arith::AndIOp>(op) != negated;
    return combine(conjunction ? Predicate::And : Predicate::Or,
                   readBool(op->getOperand(0), dims, negated),
                   readBool(op->getOperand(1), dims, negated));
  } else if (isa_and_nonnull<arith::XOrIOp>(op)) {
    for (int i : {0, 1})
      if (isAllOnes(op->getOperand(i)))
        return readBool(op->getOperand(1 - i), dims, !negated);
    Value a = op->getOperand(0), b = op->getOperand(1);
    return combine(Predicate::Or,
                   combine(Predicate::And, readBool(a, dims, false), readBool(b, dims, !negated)),
                   combine(Predicate::And, readBool(a, dims, true), readBool(b, dims, negated)));
  } else if (auto select = dyn_cast_or_null<arith::SelectOp>(op)) {
    DimMap conditionDims = dims;
    if (!isa<VectorType>(select.getCondition().getType()))
      conditionDims.clear();
    Value c = select.getCondition();
    return combine(Predicate::Or,
                   combine(Predicate::And, readBool(c, conditionDims, false),
                           readBool(select.getTrueValue(), dims, negated)),
                   combine(Predicate::And, readBool(c, conditionDims, true),
                           readBool(select.getFalseValue(), dims, negated)));
  }
  // Whatever it is, if it does not change with the loop it can be tested once
  // before it.
  if (result.kind == Predicate::Unknown && uniforms.isUniform(value)) {
    result = leaf(Predicate::Bool);
    result.condition = value;
    result.negated = negated;
  }
  return result;
}

} // namespace attn::tiles
