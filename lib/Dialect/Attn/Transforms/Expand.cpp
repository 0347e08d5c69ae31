// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-expand: attention ops to the naive chain of statements (L0 to L1).
//
// Each statement is one linalg.generic whose indexing maps are projections of
// the iteration space (b, h, i, j, d, e); the order of scale, score and mask
// and the treatment of fully masked rows follow docs/numerics.md.

#include "Statements.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEXPAND
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// exp-sum of a score along `points` beyond `rows`, guarded against fully
/// masked rows.
struct Softmax {
  Value max, guarded, p, sum;
};
} // namespace

static Softmax buildSoftmax(Statements &s, Value score, Dims rows, Dims points,
                            Value sink, Dims sinkDims) {
  FloatType accumulator = s.accumulator;
  Softmax result;
  // max_j t, or of t and the sink, which is one more score of every row.
  result.max =
      s.emit(points, {{score, points}}, rows, accumulator,
             -std::numeric_limits<double>::infinity(),
             [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
               return arith::MaxNumFOp::create(builder, loc, args[1], args[0]);
             });
  if (sink)
    result.max = s.emit(
        rows, {{result.max, rows}, {sink, sinkDims}}, rows, accumulator,
        std::nullopt,
        [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
          return arith::MaxNumFOp::create(builder, loc, args[0], args[1]);
        });
  // A fully masked row has m = -inf; subtract 0 there, so that p = exp(-inf).
  result.guarded = s.emit(
      rows, {{result.max, rows}}, rows, accumulator, std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
        Value infinity = minusInfinity(builder, loc, accumulator);
        Value dead = arith::CmpFOp::create(
            builder, loc, arith::CmpFPredicate::OEQ, args[0], infinity);
        Value zero = arith::ConstantOp::create(
            builder, loc, builder.getZeroAttr(accumulator));
        return arith::SelectOp::create(builder, loc, dead, zero, args[0]);
      });
  result.p = s.emit(
      points, {{score, points}, {result.guarded, rows}}, points, accumulator,
      std::nullopt,
      [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
        Value d = arith::SubFOp::create(builder, loc, args[0], args[1]);
        return math::ExpOp::create(builder, loc, d);
      });
  result.sum = s.sum(result.p, points, rows);
  if (sink)
    result.sum = s.emit(
        rows, {{result.sum, rows}, {result.guarded, rows}, {sink, sinkDims}},
        rows, accumulator, std::nullopt,
        [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
          Value d = arith::SubFOp::create(builder, loc, args[2], args[1]);
          Value e = math::ExpOp::create(builder, loc, d);
          return arith::AddFOp::create(builder, loc, args[0], e);
        });
  return result;
}

/// a / l, or 0 where l is 0 (no key was kept), in the result's element type.
static Value normalize(OpBuilder &builder, Location loc, Value a, Value l,
                       Type type) {
  Value zero = arith::ConstantOp::create(builder, loc,
                                         builder.getZeroAttr(l.getType()));
  Value empty = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ,
                                      l, zero);
  Value quotient = arith::DivFOp::create(builder, loc, a, l);
  Value safe = arith::SelectOp::create(builder, loc, empty, zero, quotient);
  return truncate(builder, loc, safe, type);
}

static void expandForward(ForwardOp op) {
  Type element = op.getQuery().getType().getElementType();
  Region none;
  AttentionStatements s(op, none);
  FloatType accumulator = s.accumulator;
  Value t = s.maskedScores(s.scores());
  // The sink is indexed by query head; split it like the query's heads.
  Value sink = op.getSink() ? s.split(op.getSink(), 0) : Value();
  Softmax softmax = buildSoftmax(s, t, s.rows, s.points, sink, s.heads);
  SmallVector<unsigned> out = with(s.rows, s.e);
  Value sum = s.emit(with(s.points, s.e),
                     {{softmax.p, s.points}, {s.value, s.values}}, out,
                     accumulator, 0.0, multiplyAdd);
  Value o = s.emit(out, {{sum, out}, {softmax.sum, s.rows}}, out, element,
                   std::nullopt,
                   [&](OpBuilder &builder, Location loc, ValueRange args) {
                     return normalize(builder, loc, args[0], args[1], element);
                   });
  SmallVector<Value> results = {s.join(o, op.getOutput().getType())};
  if (op.getLse()) {
    Value lse = s.emit(
        s.rows, {{softmax.guarded, s.rows}, {softmax.sum, s.rows}}, s.rows,
        accumulator, std::nullopt,
        [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
          // log 0 = -inf: a fully masked row.
          Value log = math::LogOp::create(builder, loc, args[1]);
          return arith::AddFOp::create(builder, loc, args[0], log);
        });
    results.push_back(s.join(lse, op.getLse().getType()));
  }
  op->replaceAllUsesWith(results);
  op->erase();
}

static void expandSoftmax(SoftmaxOp op) {
  FloatType accumulator = op.getAccumulatorType();
  Type element = op.getInput().getType().getElementType();
  Region none;
  Statements s(op, accumulator);
  ScalarRegions regions{op.getScore(), none, op.getMask(), op.getCaptures(), {}};
  SmallVector<unsigned> points = addSoftmaxDims(s, op.getInput(), regions);
  Dims rows = Dims(points).drop_back();
  Value t = s.emit(
      points, {{op.getInput(), points}}, points, accumulator, std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
        Value x = extend(builder, loc, args[0], accumulator);
        x = regions.applyScore(builder, loc, points, x);
        return regions.select(builder, loc, points, x,
                              minusInfinity(builder, loc, accumulator));
      });
  Softmax softmax = buildSoftmax(s, t, rows, points, Value(), {});
  Value y = s.emit(points, {{softmax.p, points}, {softmax.sum, rows}}, points,
                   element, std::nullopt,
                   [&](OpBuilder &builder, Location loc, ValueRange args) {
                     return normalize(builder, loc, args[0], args[1], element);
                   });
  if (y.getType() != op.getType())
    y = tensor::CastOp::create(s.b, op.getType(), y);
  op->replaceAllUsesWith(ValueRange(y));
  op->erase();
}

namespace {
struct ExpandPass : attn::impl::AttnExpandBase<ExpandPass> {
  using AttnExpandBase::AttnExpandBase;

  template <typename Op> static LogicalResult checkReads(Op op, unsigned numIndices) {
    return checkCaptureReads(op.getGradient(), numIndices, [&](unsigned index) {
      return !op.getCaptureGradient(index).use_empty();
    });
  }

  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) {
      if (isa<ForwardOp, BackwardOp, SoftmaxOp, SoftmaxBackwardOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      LogicalResult isKnown =
          llvm::TypeSwitch<Operation *, LogicalResult>(op)
              .Case([](BackwardOp op) { return checkReads(op, op.getQuery().getType().getRank()); })
              .Case([](SoftmaxBackwardOp op) {
                return checkReads(op, op.getInput().getType().getRank());
              })
              .Default(success());
      if (failed(isKnown))
        return signalPassFailure();
    }
    for (Operation *op : ops)
      llvm::TypeSwitch<Operation *>(op)
          .Case([](ForwardOp op) { expandForward(op); })
          .Case([&](BackwardOp op) { expandBackward(op, tableRows, pairsApart, largeRows); })
          .Case([](SoftmaxOp op) { expandSoftmax(op); })
          .Case([&](SoftmaxBackwardOp op) {
            expandSoftmaxBackward(op, tableRows);
          });
  }
};
} // namespace
