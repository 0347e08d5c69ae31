// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-expand: attention ops to the naive chain of statements (L0 to L1).
//
// Each statement is one linalg.generic whose indexing maps are projections of
// the iteration space (b, h, i, j, d, e); the order of scale, score and mask
// and the treatment of fully masked rows follow docs/numerics.md.

#include "Statements.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEXPAND
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numExpanded("attn-expand", "expanded",
                              "Operations of attention that became statements");

/// a / l, or 0 where l is 0 (no key was kept), in the result's element type.
static Value normalize(OpBuilder &builder, Location loc, Value a, Value l, Type type) {
  Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(l.getType()));
  Value empty = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, l, zero);
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
  Value weights = s.factoredWeights(softmax.p);
  Value sum = s.emit(with(s.points, s.e), {{weights, s.points}, {s.value, s.values}}, out,
                     accumulator, 0.0, multiplyAdd);
  Value o = s.emit(out, {{sum, out}, {softmax.sum, s.rows}}, out, element, std::nullopt,
                   [&](OpBuilder &builder, Location loc, ValueRange args) {
                     return normalize(builder, loc, args[0], args[1], element);
                   });
  SmallVector<Value> results = {s.join(o, op.getOutput().getType())};
  if (op.getLse()) {
    Value lse =
        s.emit(s.rows, {{softmax.guarded, s.rows}, {softmax.sum, s.rows}}, s.rows, accumulator,
               std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
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
  ScalarRegions regions{op.getScore(), none, op.getMask(), op.getCaptures(), nullptr, {}};
  SmallVector<unsigned> points = addSoftmaxDims(s, op.getInput(), regions);
  Dims rows = Dims(points).drop_back();
  Value t = s.emit(points, {{op.getInput(), points}}, points, accumulator, std::nullopt,
                   [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                     Value x = extend(builder, loc, args[0], accumulator);
                     x = regions.applyScore(builder, loc, points, x);
                     return regions.select(builder, loc, points, x,
                                           minusInfinity(builder, loc, accumulator));
                   });
  Softmax softmax = buildSoftmax(s, t, rows, points, Value(), {});
  Value y = s.emit(points, {{softmax.p, points}, {softmax.sum, rows}}, points, element,
                   std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                     if (!op.getMask().empty())
                       return normalize(builder, loc, args[0], args[1], element);
                     // A row of -inf has no softmax: 0 / 0.
                     Value quotient = arith::DivFOp::create(builder, loc, args[0], args[1]);
                     return truncate(builder, loc, quotient, element);
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
    auto large = llvm::StringSwitch<std::optional<LargeScores>>(largeScores)
                     .Case("inexact", LargeScores::Inexact)
                     .Case("branch", LargeScores::Branch)
                     .Case("rows", LargeScores::Rows)
                     .Default(std::nullopt);
    if (!large) {
      getOperation()->emitError() << "large-scores is one of inexact, branch, rows; got '"
                                  << largeScores << "'";
      return signalPassFailure();
    }
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) {
      if (isa<ForwardOp, BackwardOp, JvpOp, BackwardJvpOp, SoftmaxOp, SoftmaxBackwardOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      LogicalResult isKnown = llvm::TypeSwitch<Operation *, LogicalResult>(op)
                                  .Case<BackwardOp, BackwardJvpOp>([](auto op) {
                                    return checkReads(op, op.getQuery().getType().getRank());
                                  })
                                  .Case([](SoftmaxBackwardOp op) {
                                    return checkReads(op, op.getInput().getType().getRank());
                                  })
                                  .Default(success());
      if (failed(isKnown))
        return signalPassFailure();
    }
    for (Operation *op : ops) {
      numExpanded.at(op);
      llvm::TypeSwitch<Operation *>(op)
          .Case([](ForwardOp op) { expandForward(op); })
          .Case([&](BackwardOp op) {
            expandBackward(op, {tableRows, pairsApart, largeRows, *large});
          })
          .Case([&](JvpOp op) { expandJvp(op, *large); })
          .Case([&](BackwardJvpOp op) {
            expandBackwardJvp(op, {tableRows, pairsApart, largeRows, *large});
          })
          .Case([](SoftmaxOp op) { expandSoftmax(op); })
          .Case([&](SoftmaxBackwardOp op) { expandSoftmaxBackward(op, tableRows); });
    }
  }
};
} // namespace
