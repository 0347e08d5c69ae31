// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exponentials in base 2 whose factors are folded: a multiplication and an
// exponential per element where there were three operations in front of it.
//
// A maximum that is subtracted in front of an exponential is carried in units
// of ln 2, with which it is subtracted. Its rounding to these units then
// cancels where it is added again, as in a log-sum-exp.

#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_ATTNUSEEXP2
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numExponentials("attn-use-exp2", "base 2",
                                  "Exponentials of base e that became such of base 2");
static attn::Done numMaxima("attn-use-exp2", "maximum in base 2",
                            "Maxima that are computed in units of ln 2");
static attn::Done numDivisions("attn-use-exp2", "inverted",
                               "Divisions of a tile by one number per row that became products");

namespace {

constexpr double kLog2E = 1.44269504088896340736;
constexpr double kLn2 = 0.693147180559945309417;

/// The product of factors; exactly 1 where that is what it rounds to.
double multiplyFactors(double x, double y) {
  double product = x * y;
  return float(product) == 1 ? 1 : product;
}

/// A vector of equal floats in f32. The constants of a change of base are what
/// they stand for, not what they round to.
std::optional<double> getSplat(Value value) {
  DenseElementsAttr elements;
  if (!isa<VectorType>(value.getType()) || !matchPattern(value, m_Constant(&elements)) ||
      !elements.isSplat() || !elements.getElementType().isF32())
    return std::nullopt;
  double number = elements.getSplatValue<APFloat>().convertToDouble();
  for (double constant : {kLog2E, kLn2})
    if (number == float(constant))
      return constant;
  return number;
}

Value splat(OpBuilder &b, Location loc, Type type, double number) {
  auto vector = cast<VectorType>(type);
  return arith::ConstantOp::create(
      b, loc, DenseElementsAttr::get(vector, b.getFloatAttr(vector.getElementType(), number)));
}

/// `x * factor` with a positive, finite constant factor.
struct Scaled {
  Value x;
  double factor;
};
std::optional<Scaled> getScaled(Value value) {
  auto product = value.getDefiningOp<arith::MulFOp>();
  if (!product)
    return std::nullopt;
  for (auto [x, y] : {std::pair(product.getLhs(), product.getRhs()),
                      std::pair(product.getRhs(), product.getLhs())})
    if (auto factor = getSplat(y); factor && *factor > 0 && std::isfinite(*factor))
      return Scaled{x, *factor};
  return std::nullopt;
}

bool isNegativeInfinity(Value value) {
  auto number = getSplat(value);
  return number && std::isinf(*number) && *number < 0;
}

/// A constant that no positive factor changes.
bool isUnscalable(Value value) {
  auto number = getSplat(value);
  return number && (*number == 0 || std::isinf(*number));
}

/// `x * factor` as an op, or `x`.
Value scale(OpBuilder &b, Location loc, Value x, double factor) {
  if (factor == 1)
    return x;
  return arith::MulFOp::create(b, loc, x, splat(b, loc, x.getType(), factor));
}

/// The row vector that a tile repeats along its last dimension, if it is one.
Value getRepeated(Value tile) {
  auto transpose = tile.getDefiningOp<vector::TransposeOp>();
  if (!transpose || transpose.getPermutation() != ArrayRef<int64_t>{1, 0})
    return {};
  auto broadcast = transpose.getVector().getDefiningOp<vector::BroadcastOp>();
  if (!broadcast || !isa<VectorType>(broadcast.getSourceType()) ||
      cast<VectorType>(broadcast.getSourceType()).getRank() != 1)
    return {};
  return broadcast.getSource();
}

/// The column vector that a tile repeats along its first dimension, if it is one.
Value getColumns(Value tile) {
  auto broadcast = tile.getDefiningOp<vector::BroadcastOp>();
  auto source = broadcast ? dyn_cast<VectorType>(broadcast.getSourceType()) : VectorType();
  bool isColumns =
      source && source.getRank() == 1 && broadcast.getResultVectorType().getRank() == 2;
  return isColumns ? broadcast.getSource() : Value();
}

/// select(mask, x * c, k) -> select(mask, x, k) * c, with k 0 or infinite; and
/// the other way round.
struct ScaleBehindSelect : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &b) const override {
    for (unsigned side : {1, 2}) {
      auto scaled = getScaled(op->getOperand(side));
      if (!scaled || !isUnscalable(op->getOperand(3 - side)))
        continue;
      Operation *select = b.clone(*op);
      select->setOperand(side, scaled->x);
      b.replaceOp(op, scale(b, op.getLoc(), select->getResult(0), scaled->factor));
      return success();
    }
    return failure();
  }
};

/// x * c == k -> x == k, with k infinite.
struct CompareUnscaled : OpRewritePattern<arith::CmpFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::CmpFOp op, PatternRewriter &b) const override {
    auto scaled = getScaled(op.getLhs());
    auto limit = getSplat(op.getRhs());
    if (!scaled || !limit || !std::isinf(*limit))
      return failure();
    b.modifyOpInPlace(op, [&] { op.getLhsMutable().assign(scaled->x); });
    return success();
  }
};

/// (x * c) * d -> x * (c * d). But a maximum in units of ln 2 stays a value of its
/// own: its rounding is what a difference and a sum have in common.
struct MergeFactors : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op, PatternRewriter &b) const override {
    auto outer = getScaled(op);
    auto inner = outer ? getScaled(outer->x) : std::nullopt;
    if (!inner || outer->factor == kLn2)
      return failure();
    double factor = multiplyFactors(inner->factor, outer->factor);
    b.replaceOp(op, scale(b, op.getLoc(), inner->x, factor));
    return success();
  }
};

/// x * c - y * c -> (x - y) * c.
struct ScaleBehindDifference : OpRewritePattern<arith::SubFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SubFOp op, PatternRewriter &b) const override {
    auto left = getScaled(op.getLhs()), right = getScaled(op.getRhs());
    if (!left || !right || left->factor != right->factor)
      return failure();
    Value difference = arith::SubFOp::create(b, op.getLoc(), left->x, right->x);
    b.replaceOp(op, scale(b, op.getLoc(), difference, left->factor));
    return success();
  }
};

/// x * c + y -> fma(x, c, y), where the tile program has one value per row.
struct FuseIntoSum : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::AddFOp op, PatternRewriter &b) const override {
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || type.getRank() != 1)
      return failure();
    for (auto [product, other] :
         {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())})
      if (auto scaled = getScaled(product)) {
        Value factor = splat(b, op.getLoc(), type, scaled->factor);
        b.replaceOpWithNewOp<math::FmaOp>(op, scaled->x, factor, other);
        return success();
      }
    return failure();
  }
};

/// if { x * c } else { y * c } -> if { x } else { y } * c.
struct ScaleBehindBranch : OpRewritePattern<scf::IfOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(scf::IfOp op, PatternRewriter &b) const override {
    if (op.getNumResults() == 0 || !op.elseBlock())
      return failure();
    bool changed = false;
    for (unsigned r = 0; r < op.getNumResults(); ++r) {
      auto kept = getScaled(op.thenYield().getOperand(r));
      auto masked = getScaled(op.elseYield().getOperand(r));
      if (!kept || !masked || kept->factor != masked->factor)
        continue;
      b.modifyOpInPlace(op, [&] {
        op.thenYield()->setOperand(r, kept->x);
        op.elseYield()->setOperand(r, masked->x);
      });
      b.setInsertionPointAfter(op);
      Value factor = splat(b, op.getLoc(), op.getResult(r).getType(), kept->factor);
      Value product = arith::MulFOp::create(b, op.getLoc(), op.getResult(r), factor);
      b.replaceAllUsesExcept(op.getResult(r), product, product.getDefiningOp());
      changed = true;
    }
    return success(changed);
  }
};

/// max(acc, max of x * c) -> max(acc, c * max of x).
struct ScaleBehindMaximum : OpRewritePattern<vector::MultiDimReductionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(vector::MultiDimReductionOp op, PatternRewriter &b) const override {
    auto scaled = getScaled(op.getSource());
    auto type = dyn_cast<VectorType>(op.getType());
    if (!scaled || !type || op.getKind() != vector::CombiningKind::MAXNUMF)
      return failure();
    Location loc = op.getLoc();
    Value start = splat(b, loc, type, -std::numeric_limits<double>::infinity());
    Value maximum = vector::MultiDimReductionOp::create(b, loc, scaled->x, start,
                                                        op.getReductionMask(), op.getKind());
    Value product = scale(b, loc, maximum, scaled->factor);
    if (isNegativeInfinity(op.getAcc()))
      b.replaceOp(op, product);
    else
      b.replaceOpWithNewOp<arith::MaxNumFOp>(op, op.getAcc(), product);
    return success();
  }
};

/// exp(x * c - r) -> exp2(fma(x, c log2 e, -r log2 e)), r one value per row or per
/// column.
struct ExpToExp2 : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ExpOp op, PatternRewriter &b) const override {
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || !type.getElementType().isF32())
      return failure();
    Location loc = op.getLoc();
    Value x = op.getOperand(), row;
    bool perColumn = false;
    if (auto difference = x.getDefiningOp<arith::SubFOp>()) {
      row = getRepeated(difference.getRhs());
      if (!row) {
        row = getColumns(difference.getRhs());
        perColumn = bool(row);
      }
      bool isRow = !row && type.getRank() == 1 && getScaled(difference.getRhs());
      if (isRow)
        row = difference.getRhs();
      if (row)
        x = difference.getLhs();
    }
    double factor = kLog2E;
    if (auto scaled = getScaled(x)) {
      x = scaled->x;
      factor = multiplyFactors(scaled->factor, kLog2E);
    }
    numExponentials.at(op);
    if (!row) {
      b.replaceOpWithNewOp<math::Exp2Op>(op, scale(b, loc, x, factor));
      return success();
    }
    Value shift = getNegative(b, loc, row);
    if (perColumn)
      shift = vector::BroadcastOp::create(b, loc, type, shift);
    else if (type.getRank() > 1)
      shift = attn::repeatRows(b, loc, shift, type.getShape());
    Value exponent = math::FmaOp::create(b, loc, x, splat(b, loc, type, factor), shift);
    b.replaceOpWithNewOp<math::Exp2Op>(op, exponent);
    return success();
  }

  /// -row log2 e.
  static Value getNegative(OpBuilder &b, Location loc, Value row) {
    double factor = kLog2E;
    if (auto scaled = getScaled(row)) {
      row = scaled->x;
      factor = multiplyFactors(scaled->factor, kLog2E);
    }
    if (factor == 1)
      return arith::NegFOp::create(b, loc, row);
    return scale(b, loc, row, -factor);
  }
};

/// x / r -> x * (1 / r), r one value per row.
struct DivideOncePerRow : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::DivFOp op, PatternRewriter &b) const override {
    Value row = getRepeated(op.getRhs());
    if (!row)
      return failure();
    numDivisions.at(op);
    Value one = splat(b, op.getLoc(), row.getType(), 1.0);
    Value inverse = arith::DivFOp::create(b, op.getLoc(), one, row);
    b.replaceOpWithNewOp<arith::MulFOp>(
        op, op.getLhs(),
        attn::repeatRows(b, op.getLoc(), inverse, cast<VectorType>(op.getType()).getShape()));
    return success();
  }
};

/// Changes maxima that exponentials subtract to units of ln 2: each becomes M *
/// ln 2 with M a maximum in these units, also where loops and branches carry
/// it.
class BaseChanger {
public:
  void run(Operation *root) {
    llvm::SetVector<Value> maxima;
    root->walk([&](math::ExpOp op) {
      if (auto difference = op.getOperand().getDefiningOp<arith::SubFOp>())
        if (Value maximum = findMaximum(difference.getRhs()); maximum && isOfTile(maximum))
          maxima.insert(maximum);
    });
    for (Value maximum : maxima)
      change(maximum);
  }

private:
  /// The maximum per row that is subtracted, if it is one: maybe repeated,
  /// maybe guarded against rows without keys.
  static Value findMaximum(Value value) {
    if (Value row = getRepeated(value))
      value = row;
    auto guard = value.getDefiningOp<arith::SelectOp>();
    if (guard && isUnscalable(guard.getTrueValue()))
      value = guard.getFalseValue();
    auto type = dyn_cast<VectorType>(value.getType());
    if (!type || type.getRank() != 1 || !type.getElementType().isF32())
      return {};
    auto reduction = value.getDefiningOp<vector::MultiDimReductionOp>();
    bool isMaximum = reduction ? reduction.getKind() == vector::CombiningKind::MAXNUMF
                               : isa_and_nonnull<arith::MaxNumFOp>(value.getDefiningOp());
    return isMaximum ? value : Value();
  }

  /// Whether a maximum is one of a tile's elements, whose exponentials are worth it. That of states
  /// in memory, which are few, stays what it is, exact.
  static bool isOfTile(Value maximum) {
    SmallVector<Value> stack{maximum};
    llvm::SmallPtrSet<Value, 8> seen;
    while (!stack.empty()) {
      Value value = stack.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
        if (loop && argument != loop.getInductionVar())
          stack.append({loop.getTiedLoopInit(argument)->get(),
                        loop.getTiedLoopYieldedValue(argument)->get()});
        continue;
      }
      Operation *op = value.getDefiningOp();
      unsigned number = cast<OpResult>(value).getResultNumber();
      if (isa<vector::MultiDimReductionOp>(op))
        return true;
      if (auto loop = dyn_cast<scf::ForOp>(op))
        stack.append({loop.getInitArgs()[number], loop.getYieldedValues()[number]});
      else if (auto branch = dyn_cast<scf::IfOp>(op))
        stack.append(
            {branch.thenYield().getOperand(number), branch.elseYield().getOperand(number)});
      else if (isa<arith::MaxNumFOp, arith::MulFOp, arith::SelectOp>(op))
        llvm::append_range(stack, op->getOperands());
    }
    return false;
  }

  static Value toBase2(OpBuilder &b, Value value) {
    return isUnscalable(value) ? value : scale(b, value.getLoc(), value, kLog2E);
  }

  static void change(Value maximum) {
    Operation *op = maximum.getDefiningOp();
    numMaxima.at(op);
    OpBuilder b(op);
    Value x, y;
    if (auto both = dyn_cast<arith::MaxNumFOp>(op)) {
      x = both.getLhs();
      y = both.getRhs();
    } else {
      auto reduction = cast<vector::MultiDimReductionOp>(op);
      x = reduction.getAcc();
      Value start = splat(b, op->getLoc(), x.getType(), -std::numeric_limits<double>::infinity());
      y = vector::MultiDimReductionOp::create(b, op->getLoc(), reduction.getSource(), start,
                                              reduction.getReductionMask(), reduction.getKind());
    }
    Value inBase2 = toBase2(b, y);
    if (!isNegativeInfinity(x))
      inBase2 = arith::MaxNumFOp::create(b, op->getLoc(), toBase2(b, x), inBase2);
    replace(maximum, inBase2);
    op->erase();
  }

  /// Replaces `value` by `inBase2` * ln 2. Both may be one value, whose meaning
  /// has changed.
  static void replace(Value value, Value inBase2) {
    OpBuilder b(value.getContext());
    b.setInsertionPointAfterValue(inBase2);
    Value natural = scale(b, value.getLoc(), inBase2, kLn2);
    value.replaceAllUsesExcept(natural, natural.getDefiningOp());
    SmallVector<OpOperand *> uses(llvm::make_pointer_range(natural.getUses()));
    for (OpOperand *use : uses)
      if (auto yield = dyn_cast<scf::YieldOp>(use->getOwner()); yield && use->get() == natural)
        passOn(yield, use->getOperandNumber(), inBase2);
  }

  /// A loop or branch whose result is the maximum has it in base 2.
  static void passOn(scf::YieldOp yield, unsigned number, Value inBase2) {
    Operation *parent = yield->getParentOp();
    if (auto branch = dyn_cast<scf::IfOp>(parent)) {
      for (Region &region : branch->getRegions()) {
        Operation *end = region.front().getTerminator();
        OpBuilder b(end);
        end->setOperand(number, end == yield ? inBase2 : toBase2(b, end->getOperand(number)));
      }
    } else if (auto loop = dyn_cast<scf::ForOp>(parent)) {
      OpBuilder b(loop);
      OpOperand &init = loop.getInitArgsMutable()[number];
      init.set(toBase2(b, init.get()));
      yield->setOperand(number, inBase2);
      replace(loop.getRegionIterArg(number), loop.getRegionIterArg(number));
    } else {
      return;
    }
    replace(parent->getResult(number), parent->getResult(number));
  }
};

struct UseExp2Pass : attn::impl::AttnUseExp2Base<UseExp2Pass> {
  void runOnOperation() override {
    BaseChanger().run(getOperation());
    // Exponentials last: by then the factors have moved in front of them.
    RewritePatternSet factors(&getContext());
    factors.add<CompareUnscaled, MergeFactors, ScaleBehindBranch, ScaleBehindDifference,
                ScaleBehindMaximum, ScaleBehindSelect>(&getContext());
    RewritePatternSet exponentials(&getContext());
    exponentials.add<DivideOncePerRow, ExpToExp2, FuseIntoSum>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(factors))) ||
        failed(applyPatternsGreedily(getOperation(), std::move(exponentials))))
      signalPassFailure();
  }
};

} // namespace
