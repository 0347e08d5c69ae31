// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-define-integers: a result for every operand.
//
// Tiles compute more than pairs: lanes beyond the end, and both sides of each select. What is
// undefined for some operands would be computed for them. So each operation whose operands are not
// proved to be harmless gets harmless ones, and a select of the result that is due. No later pass
// needs to know.

#include "IntegerRanges.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

namespace attn {
#define GEN_PASS_DEF_ATTNDEFINEINTEGERS
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using Comparison = arith::CmpIPredicate;

static attn::Done numDefined("attn-define-integers", "defined",
                             "Operations on integers that got results for all operands");

/// Whether `condition` is `value == number`, whichever side the number is on.
static bool isTestFor(Value condition, Value value, const APInt &number) {
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  APInt constant;
  if (!compare || compare.getPredicate() != Comparison::eq)
    return false;
  for (auto [x, y] : {std::pair{compare.getLhs(), compare.getRhs()},
                      std::pair{compare.getRhs(), compare.getLhs()}})
    if (x == value && matchPattern(y, m_ConstantInt(&constant)) && constant == number)
      return true;
  return false;
}

/// Whether `condition` is `holds`, or true wherever that is.
static bool isImpliedBy(Value condition, function_ref<bool(Value)> holds) {
  if (holds(condition))
    return true;
  auto either = condition.getDefiningOp<arith::OrIOp>();
  return either && (isImpliedBy(either.getLhs(), holds) || isImpliedBy(either.getRhs(), holds));
}

namespace {
/// The integer operations of one block.
class Definer {
public:
  Definer(Block &block, ArrayRef<Value> indices)
      : block(block), b(block.getParentOp()->getLoc(), block.getParentOp()) {
    for (Value index : indices)
      ranges.set(index, 0, kMaxExtent);
    for (Operation &op : block)
      dropPromises(&op);
    ranges.infer(block);
  }

  void run() {
    for (Operation &op : llvm::make_early_inc_range(block)) {
      b.setInsertionPoint(&op);
      b.setLoc(op.getLoc());
      llvm::TypeSwitch<Operation *>(&op)
          .Case<arith::DivSIOp, arith::FloorDivSIOp, arith::CeilDivSIOp>(
              [&](auto division) { divide(division, /*isSigned=*/true, /*isRemainder=*/false); })
          .Case<arith::DivUIOp, arith::CeilDivUIOp>(
              [&](auto division) { divide(division, /*isSigned=*/false, /*isRemainder=*/false); })
          .Case([&](arith::RemSIOp op) { divide(op, /*isSigned=*/true, /*isRemainder=*/true); })
          .Case([&](arith::RemUIOp op) { divide(op, /*isSigned=*/false, /*isRemainder=*/true); })
          .Case<arith::ShLIOp, arith::ShRUIOp, arith::ShRSIOp>([&](auto op) { shift(op); })
          .Case([&](arith::IndexCastOp op) { truncate(op, /*isSigned=*/true); })
          .Case([&](arith::IndexCastUIOp op) { truncate(op, /*isSigned=*/false); })
          .Case([&](arith::FPToSIOp op) { convert(op, /*isSigned=*/true); })
          .Case([&](arith::FPToUIOp op) { convert(op, /*isSigned=*/false); });
    }
  }

private:
  static unsigned widthOf(Value value) {
    return ConstantIntRanges::getStorageBitwidth(value.getType());
  }
  Value constant(const APInt &value, Type type) {
    return arith::ConstantOp::create(b, b.getIntegerAttr(type, value));
  }
  Value constant(int64_t value, Type type) {
    return constant(APInt(ConstantIntRanges::getStorageBitwidth(type), value, /*isSigned=*/true,
                          /*implicitTrunc=*/true),
                    type);
  }
  Value isEqual(Value value, Value number) {
    return arith::CmpIOp::create(b, Comparison::eq, value, number);
  }
  Value select(Value condition, Value yes, Value no) {
    return arith::SelectOp::create(b, condition, yes, no);
  }

  /// Flags by which some results would be undefined.
  static void dropPromises(Operation *op) {
    auto flags = dyn_cast<arith::ArithIntegerOverflowFlagsInterface>(op);
    if (flags && flags.getOverflowAttr().getValue() != arith::IntegerOverflowFlags::none)
      op->setAttr(flags.getIntegerOverflowAttrName(),
                  arith::IntegerOverflowFlagsAttr::get(op->getContext(),
                                                       arith::IntegerOverflowFlags::none));
    llvm::TypeSwitch<Operation *>(op)
        .Case<arith::DivSIOp, arith::DivUIOp, arith::ShRSIOp, arith::ShRUIOp>(
            [](auto exact) { exact.setIsExact(false); });
  }

  bool mayBeZero(Value value) const {
    ConstantIntRanges range = ranges.get(value);
    if (!range.umin().isZero())
      return false;
    APInt zero = APInt::getZero(widthOf(value));
    auto choice = value.getDefiningOp<arith::SelectOp>();
    return !choice || mayBeZero(choice.getTrueValue()) ||
           (mayBeZero(choice.getFalseValue()) &&
            !isImpliedBy(choice.getCondition(), [&](Value condition) {
              return isTestFor(condition, choice.getFalseValue(), zero);
            }));
  }

  /// Whether the quotient may be one more than the largest number.
  bool mayOverflow(Value dividend, Value divisor) const {
    unsigned width = widthOf(dividend);
    APInt least = APInt::getSignedMinValue(width), minusOne = APInt::getAllOnes(width);
    ConstantIntRanges numerators = ranges.get(dividend), range = ranges.get(divisor);
    if (numerators.smin().sgt(least) || range.smin().sgt(minusOne) || range.smax().slt(minusOne))
      return false;
    auto choice = divisor.getDefiningOp<arith::SelectOp>();
    if (!choice)
      return true;
    auto isTest = [&](Value condition) {
      auto both = condition.getDefiningOp<arith::AndIOp>();
      return both && isTestFor(both.getLhs(), dividend, least) &&
             isTestFor(both.getRhs(), choice.getFalseValue(), minusOne);
    };
    return mayOverflow(dividend, choice.getTrueValue()) ||
           (mayOverflow(dividend, choice.getFalseValue()) &&
            !isImpliedBy(choice.getCondition(), isTest));
  }

  void divide(Operation *op, bool isSigned, bool isRemainder) {
    Value dividend = op->getOperand(0), divisor = op->getOperand(1);
    Type type = divisor.getType();
    if (widthOf(divisor) == 1)
      return divideBits(op, isRemainder);
    bool byZero = mayBeZero(divisor), overflows = isSigned && mayOverflow(dividend, divisor);
    if (!byZero && !overflows)
      return;
    numDefined.at(op);
    Value zero = constant(0, type), isZero, isHarmful;
    if (byZero)
      isHarmful = isZero = isEqual(divisor, zero);
    if (overflows) {
      Value least = constant(APInt::getSignedMinValue(widthOf(dividend)), type);
      Value isLeast = isEqual(dividend, least);
      Value isMinusOne = isEqual(divisor, constant(-1, type));
      Value isLarge = arith::AndIOp::create(b, isLeast, isMinusOne);
      isHarmful = isHarmful ? arith::OrIOp::create(b, isHarmful, isLarge) : isLarge;
    }
    // Divided by one, the least number is what the quotient wraps to, without a remainder.
    op->setOperand(1, select(isHarmful, constant(1, type), divisor));
    if (byZero)
      replaceWhere(op, isZero, isRemainder ? dividend : zero);
  }

  /// Of numbers of one bit, of which 1 is -1 where it has a sign.
  void divideBits(Operation *op, bool isRemainder) {
    Value dividend = op->getOperand(0), divisor = op->getOperand(1);
    if (isRemainder)
      divisor = arith::XOrIOp::create(b, divisor, constant(-1, divisor.getType()));
    op->replaceAllUsesWith(arith::AndIOp::create(b, dividend, divisor));
    op->erase();
  }

  template <typename OpTy> void shift(OpTy op) {
    Value count = op.getRhs();
    unsigned width = widthOf(count);
    if (ranges.get(count).umax().ult(width))
      return;
    numDefined.at(op);
    Value most = constant(APInt(width, width - 1), count.getType());
    op.getRhsMutable().assign(arith::MinUIOp::create(b, count, most));
    if (isa<arith::ShRSIOp>(op))
      return;
    Value isLong = arith::CmpIOp::create(b, Comparison::ugt, count, most);
    replaceWhere(op, isLong, constant(0, count.getType()));
  }

  /// Two casts in sequence fold upstream as if the first one lost nothing: one that may lose
  /// bits says so.
  void truncate(Operation *op, bool isSigned) {
    Value index = op->getOperand(0), result = op->getResult(0);
    unsigned width = widthOf(result);
    ConstantIntRanges range = ranges.get(index);
    bool fits = isSigned ? range.smin().isSignedIntN(width) && range.smax().isSignedIntN(width)
                         : range.umax().isIntN(width);
    if (!index.getType().isIndex() || width >= 64 || fits)
      return;
    numDefined.at(op);
    Value wide = arith::IndexCastOp::create(b, b.getI64Type(), index);
    op->replaceAllUsesWith(arith::TruncIOp::create(b, result.getType(), wide));
    op->erase();
  }

  void convert(Operation *op, bool isSigned) {
    Value number = op->getOperand(0);
    Type type = op->getResult(0).getType();
    unsigned width = widthOf(op->getResult(0));
    if (isGuarded(number))
      return;
    numDefined.at(op);
    auto floatType = cast<FloatType>(number.getType());
    if (floatType.getWidth() < 32) { // the limits may be larger than its numbers
      floatType = b.getF32Type();
      number = arith::ExtFOp::create(b, floatType, number);
    }
    APInt least = isSigned ? APInt::getSignedMinValue(width) : APInt::getZero(width);
    APInt most = isSigned ? APInt::getSignedMaxValue(width) : APInt::getMaxValue(width);
    double end = std::ldexp(1.0, int(width) - isSigned);
    auto limit = [&](double value) -> Value {
      return arith::ConstantOp::create(b, b.getFloatAttr(floatType, value));
    };
    Value low = limit(isSigned ? -end : 0), high = limit(end);
    auto compare = [&](arith::CmpFPredicate predicate, Value other) -> Value {
      return arith::CmpFOp::create(b, predicate, number, other);
    };
    Value isLess = compare(arith::CmpFPredicate::OLT, low);
    Value isMore = compare(arith::CmpFPredicate::OGE, high);
    Value isEnough = compare(arith::CmpFPredicate::OGE, low);
    Value isShort = compare(arith::CmpFPredicate::OLT, high);
    Value fits = arith::AndIOp::create(b, isEnough, isShort);
    op->setOperand(0, select(fits, number, limit(0)));
    Value lowest = constant(least, type), highest = constant(most, type);
    Value choice = replaceWhere(op, isMore, highest);
    replaceWhere(choice.getDefiningOp(), isLess, lowest);
  }

  /// Whether this pass made `number` fit.
  static bool isGuarded(Value number) {
    auto choice = number.getDefiningOp<arith::SelectOp>();
    auto fits = choice ? choice.getCondition().getDefiningOp<arith::AndIOp>() : arith::AndIOp();
    return fits && matchPattern(choice.getFalseValue(), m_PosZeroFloat()) &&
           llvm::all_of(fits->getOperands(), [&](Value side) {
             auto compare = side.getDefiningOp<arith::CmpFOp>();
             return compare && compare.getLhs() == choice.getTrueValue();
           });
  }

  /// Selects `value` instead of the result of `op` where `condition` holds.
  Value replaceWhere(Operation *op, Value condition, Value value) {
    b.setInsertionPointAfter(op);
    Value result = op->getResult(0);
    auto choice = arith::SelectOp::create(b, condition, value, result);
    result.replaceAllUsesExcept(choice, choice);
    return choice;
  }

  Block &block;
  ImplicitLocOpBuilder b;
  IntegerRanges ranges;
};

struct DefineIntegersPass : attn::impl::AttnDefineIntegersBase<DefineIntegersPass> {
  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      llvm::TypeSwitch<Operation *>(op)
          .Case<ForwardOp, SoftmaxOp>([](auto op) {
            for (Region &region : op->getRegions())
              define(region, op.getCaptures().size());
          })
          .Case<BackwardOp, SoftmaxBackwardOp>([](auto op) {
            for (Region &region : op->getRegions())
              define(region, op.getCaptures().size() + (&region == &op.getGradient()));
          })
          .Case([](linalg::GenericOp op) { Definer(*op.getBody(), {}).run(); });
    });
  }

  /// A region whose last `others` arguments are no indices.
  static void define(Region &region, size_t others) {
    if (region.empty())
      return;
    SmallVector<Value> indices;
    for (BlockArgument argument : region.getArguments().drop_back(others))
      if (argument.getType().isIndex())
        indices.push_back(argument);
    Definer(region.front(), indices).run();
  }
};
} // namespace
