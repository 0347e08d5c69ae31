// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See RunningMaximum.h.

#include "attn/Transforms/Tiles/RunningMaximum.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;

static Degree make(bool isShift, double before, double now) {
  auto clean = [](double x) { return Degree::isClose(x, 0) ? 0 : x; };
  return {isShift, clean(before), clean(now)};
}

static std::optional<double> getConstant(Value value) {
  DenseElementsAttr elements;
  FloatAttr number;
  if (matchPattern(value, m_Constant(&elements)) && elements.isSplat() &&
      isa<FloatType>(elements.getElementType()))
    return elements.getSplatValue<APFloat>().convertToDouble();
  if (matchPattern(value, m_Constant(&number)))
    return number.getValueAsDouble();
  return std::nullopt;
}

/// x + y, or x - y where `sign` is -1.
static Known add(Known x, Known y, int sign = 1) {
  if (!x || !y)
    return std::nullopt;
  if (x->isInvariant() && y->isInvariant())
    return Degree();
  if ((x->isShift || x->isInvariant()) && (y->isShift || y->isInvariant()))
    return make(true, x->before + sign * y->before, x->now + sign * y->now);
  return *x == *y ? x : std::nullopt; // a scale of both is one of the sum
}

/// x y, or x / y where `sign` is -1.
static Known multiply(Known x, Known y, Value left, Value right, int sign = 1) {
  if (!x || !y)
    return std::nullopt;
  if (x->isInvariant() && y->isInvariant())
    return Degree();
  auto stretch = [](Degree shift, std::optional<double> factor) -> Known {
    return factor ? Known(make(true, shift.before * *factor, shift.now * *factor)) : std::nullopt;
  };
  if (x->isShift && !x->isInvariant())
    return sign > 0 ? stretch(*x, getConstant(right)) : std::nullopt;
  if (y->isShift && !y->isInvariant())
    return sign > 0 ? stretch(*y, getConstant(left)) : std::nullopt;
  return make(false, x->before + sign * y->before, x->now + sign * y->now);
}

RunningMaximum::RunningMaximum(scf::ForOp loop, unsigned index)
    : loop(loop), old(loop.getRegionIterArg(index)), result(loop.getResult(index)),
      next(loop.getYieldedValues()[index].getDefiningOp<arith::MaxNumFOp>()) {}

bool RunningMaximum::prove() {
  auto type = dyn_cast<VectorType>(old.getType());
  if (!next || !type || type.getRank() != 1 || (next.getLhs() != old && next.getRhs() != old))
    return false;
  degrees[old] = make(true, 1, 0);
  degrees[next] = make(true, 0, 1);
  degrees[result] = make(true, 0, 1);
  SmallVector<Value> states{old, next.getResult()};
  SetVector<Operation *> users;
  collectUsers(states, users);
  Operation *yield = loop.getBody()->getTerminator();
  if (!users.contains(yield))
    return false;
  // The sums under it: those that its users reach.
  SmallVector<Value> ofSums;
  for (auto [argument, yielded, each] :
       llvm::zip_equal(loop.getRegionIterArgs(), loop.getYieldedValues(), loop.getResults())) {
    Operation *op = yielded.getDefiningOp();
    if (argument == old || !op || !users.contains(op))
      continue;
    degrees[argument] = make(false, -1, 0);
    degrees[each] = make(false, 0, -1);
    sums.push_back(argument);
    ofSums.append({argument, each});
    states.push_back(argument);
  }
  if (sums.empty())
    return false;
  users.clear();
  collectUsers(states, users);
  SmallVector<Value> results{result};
  llvm::append_range(results, llvm::make_filter_range(ofSums, llvm::IsaPred<OpResult>));
  collectUsers(results, users);
  return llvm::all_of(users, [&](Operation *op) { return check(op); });
}

void RunningMaximum::collectUsers(ArrayRef<Value> values, SetVector<Operation *> &users) {
  SmallVector<Value> worklist(values);
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      if (!users.insert(user))
        continue;
      bool yields = isa<scf::YieldOp>(user) && isa<scf::IfOp>(user->getParentOp());
      llvm::append_range(worklist, (yields ? user->getParentOp() : user)->getResults());
    }
}

bool RunningMaximum::isRescaling(Value value) {
  Known degree = find(value);
  return degree && *degree == make(false, 1, -1);
}

bool RunningMaximum::isScaled(Value value) {
  Known degree = find(value);
  return !degree || !(degree->isShift || degree->isInvariant());
}

/// Whether the op does with what depends on the maximum only what is known to be right.
bool RunningMaximum::check(Operation *op) {
  if (op == loop.getBody()->getTerminator()) {
    for (auto [argument, yielded] :
         llvm::zip_equal(loop.getRegionIterArgs(), loop.getYieldedValues())) {
      Known degree = find(yielded);
      Known start = find(argument);
      if (!degree || !start || degree->before != 0 || !Degree::isClose(degree->now, start->before))
        return refuse(op, "what the loop carries is no sum under its maximum");
    }
    return true;
  }
  if (isa<scf::YieldOp>(op) && isa<scf::IfOp>(op->getParentOp()))
    return true; // its branch is checked
  if (!isMemoryEffectFree(op) || op->getNumResults() == 0) {
    for (Value operand : op->getOperands()) {
      Known degree = find(operand);
      if (!degree || !degree->isInvariant())
        return refuse(op, "a value that depends on it leaves the loop");
    }
    return true;
  }
  for (Value each : op->getResults())
    if (!find(each))
      return refuse(op, "a use of it is no difference, exponential or product");
  auto product = dyn_cast<arith::MulFOp>(op);
  if (product && loop->isProperAncestor(op) &&
      (isRescaling(product.getLhs()) || isRescaling(product.getRhs())))
    rescalings.push_back(product);
  return true;
}

bool RunningMaximum::refuse(Operation *op, StringRef why) {
  InFlightDiagnostic remark = op->emitRemark("results depend on a running maximum: ") << why;
  remark.attachNote(next.getLoc()) << "this running maximum";
  return false;
}

Known RunningMaximum::find(Value value) {
  if (auto found = degrees.find(value); found != degrees.end())
    return found->second;
  Operation *op = value.getDefiningOp();
  Known degree = op ? ofOp(op, value) : Known(Degree());
  degrees[value] = degree;
  return degree;
}

Known RunningMaximum::ofOp(Operation *op, Value value) {
  SmallVector<Known> operands;
  for (Value operand : op->getOperands())
    operands.push_back(find(operand));
  auto of = [&](unsigned index) { return operands[index]; };
  auto operand = [&](unsigned index) { return op->getOperand(index); };
  return TypeSwitch<Operation *, Known>(op)
      .Case<vector::BroadcastOp, vector::TransposeOp, vector::ShapeCastOp, arith::ExtFOp,
            arith::TruncFOp>([&](Operation *) { return of(0); })
      .Case([&](arith::NegFOp) -> Known {
        return of(0) && of(0)->isShift ? add(Degree(), of(0), -1) : of(0);
      })
      .Case([&](arith::AddFOp) { return add(of(0), of(1)); })
      .Case([&](arith::SubFOp) { return add(of(0), of(1), -1); })
      .Case([&](arith::MulFOp) { return multiply(of(0), of(1), operand(0), operand(1)); })
      .Case([&](arith::DivFOp) { return multiply(of(0), of(1), operand(0), operand(1), -1); })
      .Case([&](math::FmaOp) { return add(multiply(of(0), of(1), operand(0), operand(1)), of(2)); })
      .Case([&](math::Exp2Op) -> Known {
        if (!of(0) || !(of(0)->isShift || of(0)->isInvariant()))
          return std::nullopt;
        return make(false, of(0)->before, of(0)->now);
      })
      .Case([&](math::LogOp) -> Known {
        if (!of(0) || (of(0)->isShift && !of(0)->isInvariant()))
          return std::nullopt;
        return make(true, of(0)->before * std::log(2.0), of(0)->now * std::log(2.0));
      })
      .Case([&](arith::CmpFOp compare) { return ofCompare(compare); })
      .Case([&](arith::SelectOp select) { return ofSelect(select); })
      .Case([&](vector::MultiDimReductionOp reduction) -> Known {
        bool isSum = reduction.getKind() == vector::CombiningKind::ADD;
        return isSum && of(0) && !of(0)->isShift ? add(of(0), of(1)) : allInvariant(op);
      })
      .Case([&](vector::ContractionOp contraction) -> Known {
        Known product = multiply(of(0), of(1), operand(0), operand(1));
        bool isSum = contraction.getKind() == vector::CombiningKind::ADD;
        return isSum && product && !product->isShift ? add(product, of(2)) : allInvariant(op);
      })
      .Case([&](scf::IfOp branch) -> Known {
        if (!branch.elseBlock() || !of(0) || !of(0)->isInvariant())
          return std::nullopt;
        unsigned index = cast<OpResult>(value).getResultNumber();
        Known left = find(branch.thenYield().getOperand(index));
        Known right = find(branch.elseYield().getOperand(index));
        return left && right && *left == *right ? left : std::nullopt;
      })
      .Default([&](Operation *) { return allInvariant(op); });
}

/// Signs of scales do not change, nor whether a shifted value is infinite.
Known RunningMaximum::ofCompare(arith::CmpFOp compare) {
  Known left = find(compare.getLhs());
  std::optional<double> limit = getConstant(compare.getRhs());
  if (left && limit && (left->isShift ? std::isinf(*limit) : *limit == 0))
    return Degree();
  return allInvariant(compare);
}

/// What stands in for a maximum of -inf (a row without terms, whose sums are 0), or for a
/// value where a condition holds that the maximum does not change.
Known RunningMaximum::ofSelect(arith::SelectOp select) {
  Known condition = find(select.getCondition());
  Known left = find(select.getTrueValue()), right = find(select.getFalseValue());
  if (!condition || !condition->isInvariant() || !left || !right)
    return std::nullopt;
  auto compare = select.getCondition().getDefiningOp<arith::CmpFOp>();
  std::optional<double> limit = compare ? getConstant(compare.getRhs()) : std::nullopt;
  if (compare && compare.getPredicate() == arith::CmpFPredicate::OEQ &&
      compare.getLhs() == select.getFalseValue() && limit && std::isinf(*limit) && right->isShift &&
      left->isInvariant())
    return right;
  // 0 times as much is 0.
  if (getConstant(select.getTrueValue()) == 0.0 && !right->isShift)
    return right;
  return *left == *right ? left : std::nullopt;
}

Known RunningMaximum::allInvariant(Operation *op) {
  bool all = op->getNumRegions() == 0 && llvm::all_of(op->getOperands(), [&](Value operand) {
               Known degree = find(operand);
               return degree && degree->isInvariant();
             });
  return all ? Known(Degree()) : std::nullopt;
}
