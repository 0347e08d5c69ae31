// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The statements of attn.backward and attn.softmax_backward, as their ODS
// descriptions define them; docs/backward.md derives them.

#include "Statements.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace attn;

static Value zero(OpBuilder &builder, Location loc, Type type) {
  return arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
}

static Value add(OpBuilder &builder, Location loc, Value x, Value y) {
  return arith::AddFOp::create(builder, loc, x, y);
}

namespace {
/// The statements of one attn.backward.
class Backward : public AttentionStatements {
public:
  explicit Backward(BackwardOp op)
      : AttentionStatements(op, op.getGradient()), op(op), mayBeDead(!op.getRowsHaveKeys()) {}
  void build(int64_t tableRows, bool pairsApart);

private:
  Value alive(OpBuilder &builder, Location loc, Value lse, Value value);
  Value finiteLse(OpBuilder &builder, Location loc, Value lse);
  Value buildOutputGradient();
  Value buildDelta();
  void buildPoints();
  Value contract(Value x, Dims xDims, Value y, Dims yDims, Dims out);
  Value gradientOf(Value sum, Dims dims, bool isQuery, Type type,
                   Value factor = {});
  Value buildScaleGradient();
  Value buildSinkGradient();

  BackwardOp op;
  /// Whether a row may have no key (with a sink, only if that is -inf).
  bool mayBeDead;
  Value outputGradient, lse, delta; // dO and LSE with their heads split, and D
  Value s, p, dt, ds;
};
} // namespace

/// `value`, or 0 in a row without keys: its dO and LSE may hold anything.
Value Backward::alive(OpBuilder &builder, Location loc, Value rowLse,
                      Value value) {
  if (!mayBeDead)
    return value;
  Value size = math::AbsFOp::create(builder, loc, rowLse);
  Value infinity = arith::ConstantOp::create(
      builder, loc,
      builder.getFloatAttr(accumulator,
                           APFloat::getInf(accumulator.getFloatSemantics())));
  // Not ordered: a NaN is no mark of a dead row and stays visible.
  Value lives = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UNE,
                                      size, infinity);
  return arith::SelectOp::create(builder, loc, lives, value,
                                 zero(builder, loc, value.getType()));
}

/// LSE, or 0 in a row without keys, so that p = exp(-inf - 0).
Value Backward::finiteLse(OpBuilder &builder, Location loc, Value rowLse) {
  return alive(builder, loc, rowLse, rowLse);
}

/// dO, 0 in rows without keys. Once for all: the tiles read it many times.
///
/// With a sink such a row has LSE = sink, up to the rounding of logarithms to
/// another base and back, and O = 0. A row with keys looks the same only where
/// its weights sum to no more than that and leave O at 0: what its dO would add
/// is as small.
Value Backward::buildOutputGradient() {
  Value gradient = split(op.getOutputGradient());
  if (!mayBeDead)
    return gradient;
  SmallVector<unsigned> out = with(rows, e);
  Type element = cast<RankedTensorType>(gradient.getType()).getElementType();
  SmallVector<Access> inputs = {{gradient, out}, {lse, rows}};
  if (op.getSink()) {
    inputs.push_back({split(op.getSink(), 0), heads});
    inputs.push_back({split(op.getOutput()), out});
  }
  return emit(out, inputs, out, element, std::nullopt,
              [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                Value result = alive(builder, loc, args[1], args[0]);
                if (!op.getSink())
                  return result;
                auto compare = [&](arith::CmpFPredicate predicate, Value x,
                                   Value y) -> Value {
                  return arith::CmpFOp::create(builder, loc, predicate, x, y);
                };
                Value difference =
                    arith::SubFOp::create(builder, loc, args[1], args[2]);
                Value size = math::AbsFOp::create(builder, loc, args[2]);
                int bits = accumulator.getFPMantissaWidth();
                Value rounding = arith::ConstantOp::create(
                    builder, loc,
                    builder.getFloatAttr(accumulator, std::ldexp(1.0, 4 - bits)));
                Value isSink = compare(
                    arith::CmpFPredicate::OLE,
                    math::AbsFOp::create(builder, loc, difference),
                    arith::MulFOp::create(builder, loc, size, rounding));
                Value none = zero(builder, loc, element);
                Value dead = arith::AndIOp::create(
                    builder, loc, isSink,
                    compare(arith::CmpFPredicate::OEQ, args[3], none));
                return arith::SelectOp::create(builder, loc, dead, none,
                                               result);
              });
}

/// D = sum_e dO O - dLSE.
Value Backward::buildDelta() {
  SmallVector<unsigned> out = with(rows, e);
  Value product =
      emit(out, {{outputGradient, out}, {split(op.getOutput()), out}}, rows,
           accumulator, 0.0, multiplyAdd);
  if (!op.getLseGradient())
    return product;
  return emit(
      rows, {{product, rows}, {split(op.getLseGradient()), rows}, {lse, rows}},
      rows, accumulator, std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        Value d = arith::SubFOp::create(builder, loc, args[0], args[1]);
        return alive(builder, loc, args[2], d);
      });
}

/// The statements over pairs: s, p, dt, ds.
void Backward::buildPoints() {
  s = scores();
  Value t = maskedScores(s);
  p = emit(points, {{t, points}, {lse, rows}}, points, accumulator,
           std::nullopt,
           [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
             Value shift = finiteLse(builder, loc, args[1]);
             Value d = arith::SubFOp::create(builder, loc, args[0], shift);
             return math::ExpOp::create(builder, loc, d);
           });
  Value dp = contract(outputGradient, with(rows, e), value, values, points);
  dt = emit(points, {{p, points}, {dp, points}, {delta, rows}}, points,
            accumulator, std::nullopt,
            [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
              Value d = arith::SubFOp::create(builder, loc, args[1], args[2]);
              return arith::MulFOp::create(builder, loc, args[0], d);
            });
  ds = emit(points, {{s, points}, {dt, points}}, points, accumulator,
            std::nullopt,
            [&](OpBuilder &builder, Location loc, ValueRange args) {
              Value scaled =
                  arith::MulFOp::create(builder, loc, args[0], scale);
              IRMapping mapping;
              Value result = regions.applyGradient(builder, loc, points, scaled,
                                                   args[1], mapping);
              // A derivative may be infinite where the pair is masked.
              return regions.select(builder, loc, points, result,
                                    zero(builder, loc, accumulator));
            });
}

/// The sum of x y, with the dimensions `out`.
Value Backward::contract(Value x, Dims xDims, Value y, Dims yDims, Dims out) {
  SmallVector<unsigned> domain(points);
  for (Dims dims : {xDims, yDims})
    if (dims.back() == d || dims.back() == e)
      domain.push_back(dims.back());
  // Q K^T and dO V^T have their last dimension in common.
  domain.erase(llvm::unique(domain), domain.end());
  return emit(domain, {{x, xDims}, {y, yDims}}, out, accumulator, 0.0,
              multiplyAdd);
}

/// A gradient in the shape and type of its tensor: summed over the group where
/// it is a key's or value's, times `factor`, rounded.
Value Backward::gradientOf(Value sum, Dims dims, bool isQuery, Type type,
                           Value factor) {
  Type element = cast<RankedTensorType>(type).getElementType();
  if (isQuery)
    return join(round(sum, dims, element, factor), type);
  SmallVector<unsigned> out(dims);
  if (grouped)
    llvm::erase(out, heads[1]);
  Value total = round(this->sum(sum, dims, out), out, element, factor);
  if (total.getType() != type)
    total = tensor::CastOp::create(b, type, total);
  return total;
}

/// sum ds s: along the keys in the nest, then over all rows.
Value Backward::buildScaleGradient() {
  Value ofRows =
      emit(points, {{ds, points}, {s, points}}, rows, accumulator, 0.0,
           multiplyAdd);
  return sum(ofRows, rows, {});
}

/// -sum_(b,i) exp(sink - LSE) D.
Value Backward::buildSinkGradient() {
  Value sink = split(op.getSink(), 0);
  Value ofRows = emit(
      rows, {{sink, heads}, {lse, rows}, {delta, rows}}, rows, accumulator,
      std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) {
        Value shifted =
            arith::SubFOp::create(builder, loc, args[0],
                                  finiteLse(builder, loc, args[1]));
        Value p = math::ExpOp::create(builder, loc, shifted);
        Value term = arith::MulFOp::create(builder, loc, p, args[2]);
        Value negated = arith::NegFOp::create(builder, loc, term);
        return alive(builder, loc, args[1], negated);
      });
  return join(sum(ofRows, rows, heads), op.getSink().getType(), 0);
}

void Backward::build(int64_t tableRows, bool pairsApart) {
  lse = split(op.getLse());
  outputGradient = buildOutputGradient();
  delta = buildDelta();
  buildPoints();
  SmallVector<unsigned> keyRows = with(Dims(rows).drop_back(), {j, d});
  SmallVector<unsigned> valueRows = with(Dims(rows).drop_back(), {j, e});
  Value dq = contract(ds, points, key, keys, with(rows, d));
  Value dk = contract(ds, points, query, with(rows, d), keyRows);
  Value dv =
      contract(outputGradient, with(rows, e), p, points, valueRows);
  SmallVector<Value> results = {
      gradientOf(dq, with(rows, d), true, op.getQueryGradient().getType(),
                 scale),
      gradientOf(dk, keyRows, false, op.getKeyGradient().getType(), scale),
      gradientOf(dv, valueRows, false, op.getValueGradient().getType())};
  if (op.getScaleGradient())
    results.push_back(buildScaleGradient());
  if (op.getSinkGradient())
    results.push_back(buildSinkGradient());
  auto scaled = [&](OpBuilder &builder, Location loc, Value x) -> Value {
    return arith::MulFOp::create(builder, loc, x, scale);
  };
  auto computeAgain = [&] {
    buildPoints();
    return std::pair(s, dt);
  };
  ScoreGradients gradients{s, dt, points, scaled, tableRows};
  if (pairsApart)
    gradients.computeAgain = computeAgain;
  for (unsigned index = 0; index < op.getCaptures().size(); ++index)
    if (Value gradient = op.getCaptureGradient(index))
      results.push_back(
          buildCaptureGradient(*this, regions, gradients, index,
                               cast<RankedTensorType>(gradient.getType())));
  op->replaceAllUsesWith(results);
  op->erase();
}

void attn::expandBackward(BackwardOp op, int64_t tableRows, bool pairsApart) {
  Backward(op).build(tableRows, pairsApart);
}

void attn::expandSoftmaxBackward(SoftmaxBackwardOp op, int64_t tableRows) {
  FloatType accumulator = op.getAccumulatorType();
  Type element = op.getInput().getType().getElementType();
  Statements s(op, accumulator);
  ScalarRegions regions{op.getScore(), op.getGradient(), op.getMask(),
                        op.getCaptures(), {}};
  SmallVector<unsigned> points = addSoftmaxDims(s, op.getInput(), regions);
  Dims rows = Dims(points).drop_back();
  auto widen = [&](OpBuilder &builder, Location loc, Value x) {
    return extend(builder, loc, x, accumulator);
  };
  Value delta = s.emit(
      points, {{op.getOutputGradient(), points}, {op.getOutput(), points}},
      rows, accumulator, 0.0,
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        Value term =
            arith::MulFOp::create(builder, loc, widen(builder, loc, args[0]),
                                  widen(builder, loc, args[1]));
        // y is 0 where masked; dy may hold anything there.
        term = regions.select(builder, loc, points, term,
                              zero(builder, loc, accumulator));
        return add(builder, loc, args[2], term);
      });
  Value dt = s.emit(
      points,
      {{op.getOutputGradient(), points},
       {op.getOutput(), points},
       {delta, rows}},
      points, accumulator, std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        Value d = arith::SubFOp::create(builder, loc,
                                        widen(builder, loc, args[0]), args[2]);
        Value result = arith::MulFOp::create(
            builder, loc, widen(builder, loc, args[1]), d);
        return regions.select(builder, loc, points, result,
                              zero(builder, loc, accumulator));
      });
  Value dx = s.emit(
      points, {{op.getInput(), points}, {dt, points}}, points, element,
      std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) {
        IRMapping mapping;
        Value result =
            regions.applyGradient(builder, loc, points,
                                  widen(builder, loc, args[0]), args[1],
                                  mapping);
        result = regions.select(builder, loc, points, result,
                                zero(builder, loc, accumulator));
        return truncate(builder, loc, result, element);
      });
  if (dx.getType() != op.getInputGradient().getType())
    dx = tensor::CastOp::create(s.b, op.getInputGradient().getType(), dx);
  SmallVector<Value> results = {dx};
  ScoreGradients gradients{op.getInput(), dt, points, widen};
  for (unsigned index = 0; index < op.getCaptures().size(); ++index)
    if (Value gradient = op.getCaptureGradient(index))
      results.push_back(
          buildCaptureGradient(s, regions, gradients, index,
                               cast<RankedTensorType>(gradient.getType())));
  op->replaceAllUsesWith(results);
  op->erase();
}
