// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The statements of attn.backward and attn.softmax_backward, as their ODS
// descriptions define them; docs/backward.md derives them.

#include "Recompute.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace attn;

static Value add(OpBuilder &builder, Location loc, Value x, Value y) {
  return arith::AddFOp::create(builder, loc, x, y);
}

namespace {
/// The statements of one attn.backward.
class Backward : public Recomputed {
public:
  Backward(BackwardOp op, const BackwardOptions &options)
      : Recomputed(op, op.getGradient(), options.largeScores), op(op), options(options) {}
  void build();

private:
  void buildOutputGradient();
  void buildPoints();
  Value buildScaleGradient();
  Value buildSinkGradient();

  BackwardOp op;
  const BackwardOptions &options;
  Value outputGradient, delta; // dO with its heads split, and D
  Value s, p, dt, ds;
};
} // namespace

/// dO and D = sum_e dO O - dLSE.
///
/// In a row without keys dO is 0, whatever it holds. With `largeRows` only where it is too large to
/// be multiplied by the zeros of such a row: infinite, NaN, or so that a sum of products with
/// values could be. That is rare, and the same for a whole row, which lets the tiles read dO
/// itself. Where D is 0, its sum is that of |dO|, which tells.
void Backward::buildOutputGradient() {
  constexpr double kLarge = 0x1p32;
  outputGradient = split(op.getOutputGradient());
  SmallVector<unsigned> out = with(rows, e);
  Value given = outputGradient, output = split(op.getOutput());
  Type element = cast<RankedTensorType>(given.getType()).getElementType();
  SmallVector<Access> ofRow = {{lse, rows}};
  if (op.getSink())
    ofRow.push_back({split(op.getSink(), 0), heads});
  auto join = [](ArrayRef<Access> first, ArrayRef<Access> then) {
    SmallVector<Access> all(first);
    llvm::append_range(all, then);
    return all;
  };
  auto choose = [&](OpBuilder &builder, Location loc, Value isDropped, Value value) -> Value {
    return arith::SelectOp::create(builder, loc, isDropped, zero(builder, loc, value.getType()),
                                   value);
  };
  bool marksRows = mayBeDead && options.largeRows;
  if (!options.largeRows)
    outputGradient = dropDeadRows(given, output);
  if (!marksRows) {
    delta = emit(out, {{outputGradient, out}, {output, out}}, rows, accumulator, 0.0, multiplyAdd);
  } else {
    delta = emit(out, join({{given, out}, {output, out}}, ofRow), rows, accumulator, 0.0,
                 [&](OpBuilder &builder, Location loc, ValueRange args) {
                   Value x = extend(builder, loc, args[0], accumulator);
                   Value o = extend(builder, loc, args[1], accumulator);
                   SmallVector<Value> of(args.slice(2, ofRow.size()));
                   if (op.getSink())
                     of.push_back(o);
                   Value term = arith::SelectOp::create(builder, loc, isDead(builder, loc, of),
                                                        math::AbsFOp::create(builder, loc, x),
                                                        arith::MulFOp::create(builder, loc, x, o));
                   return add(builder, loc, args.back(), term);
                 });
    outputGradient =
        emit(out, join({{given, out}, {delta, rows}}, ofRow), out, element, std::nullopt,
             [&](OpBuilder &builder, Location loc, ValueRange args) {
               // Not ordered: also NaN.
               Value isLarge = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UGE,
                                                     args[1], number(builder, loc, kLarge));
               Value dead = isDead(builder, loc, args.slice(2, ofRow.size()));
               return choose(builder, loc, arith::AndIOp::create(builder, loc, isLarge, dead),
                             args.front());
             });
  }
  bool hasGradient = bool(op.getLseGradient());
  if (!marksRows && !hasGradient)
    return;
  SmallVector<Access> inputs =
      join({{delta, rows}}, marksRows ? ArrayRef(ofRow) : ArrayRef(ofRow).take_front());
  if (hasGradient)
    inputs.push_back({split(op.getLseGradient()), rows});
  delta = emit(rows, inputs, rows, accumulator, std::nullopt,
               [&](OpBuilder &builder, Location loc, ValueRange args) {
                 Value d = args.front();
                 if (marksRows)
                   d = choose(builder, loc, isDead(builder, loc, args.slice(1, ofRow.size())), d);
                 if (!hasGradient)
                   return d;
                 d = arith::SubFOp::create(builder, loc, d, args[inputs.size() - 1]);
                 return alive(builder, loc, args[1], d);
               });
}

/// The statements over pairs: s, p, dt, ds.
void Backward::buildPoints() {
  s = scores();
  Value t = maskedScores(s);
  p = weights(t);
  Value dp = contract(outputGradient, with(rows, e), value, values, points);
  dt = emit(points, {{p, points}, {dp, points}, {delta, rows}}, points, accumulator, std::nullopt,
            [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
              Value dw = regions.applyFactor(builder, loc, points, args[1]);
              Value d = arith::SubFOp::create(builder, loc, dw, args[2]);
              return arith::MulFOp::create(builder, loc, args[0], d);
            });
  ds = emit(points, {{s, points}, {dt, points}}, points, accumulator, std::nullopt,
            [&](OpBuilder &builder, Location loc, ValueRange args) {
              Value scaled = arith::MulFOp::create(builder, loc, args[0], scale);
              IRMapping mapping;
              Value result = regions.applyGradient(builder, loc, points, scaled, args[1], mapping);
              // A derivative may be infinite where the pair is masked.
              return regions.select(builder, loc, points, result, zero(builder, loc, accumulator));
            });
}

/// sum ds s: along the keys in the nest, then over all rows.
Value Backward::buildScaleGradient() {
  Value ofRows = emit(points, {{ds, points}, {s, points}}, rows, accumulator, 0.0, multiplyAdd);
  return sum(ofRows, rows, {});
}

/// -sum_(b,i) exp(sink - LSE) D.
Value Backward::buildSinkGradient() {
  Value sink = split(op.getSink(), 0);
  SmallVector<Access> inputs = normalizers({{sink, heads}});
  inputs.push_back({delta, rows});
  Value ofRows = emit(rows, inputs, rows, accumulator, std::nullopt,
                      [&](OpBuilder &builder, Location loc, ValueRange args) {
                        ValueRange parts = args.slice(1, inputs.size() - 2);
                        Value p = weight(builder, loc, args[0], parts);
                        Value term =
                            arith::MulFOp::create(builder, loc, p, args[inputs.size() - 1]);
                        Value negated = arith::NegFOp::create(builder, loc, term);
                        return alive(builder, loc, parts[0], negated);
                      });
  return join(sum(ofRows, rows, heads), op.getSink().getType(), 0);
}

void Backward::build() {
  lse = split(op.getLse());
  if (options.largeScores != LargeScores::Inexact)
    buildLogSums();
  buildOutputGradient();
  buildPoints();
  SmallVector<unsigned> keyRows = with(Dims(rows).drop_back(), {j, d});
  SmallVector<unsigned> valueRows = with(Dims(rows).drop_back(), {j, e});
  Value dq = contract(ds, points, key, keys, with(rows, d));
  Value dk = contract(ds, points, query, with(rows, d), keyRows);
  Value dv = contract(outputGradient, with(rows, e), factoredWeights(p), points, valueRows);
  SmallVector<Value> results = {
      gradientOf(dq, with(rows, d), true, op.getQueryGradient().getType(), scale),
      gradientOf(dk, keyRows, false, op.getKeyGradient().getType(), scale),
      gradientOf(dv, valueRows, false, op.getValueGradient().getType())};
  if (op.getScaleGradient())
    results.push_back(buildScaleGradient());
  if (op.getSinkGradient())
    results.push_back(buildSinkGradient());
  auto apply = [&](OpBuilder &builder, Location loc, Dims domain, ValueRange args,
                   IRMapping &mapping) {
    Value scaled = arith::MulFOp::create(builder, loc, args[0], scale);
    regions.applyGradient(builder, loc, domain, scaled, args[1], mapping);
  };
  auto computeAgain = [&]() -> SmallVector<Value> {
    buildPoints();
    return {s, dt};
  };
  ScoreGradients gradients{{s, dt}, points, apply, options.tableRows};
  if (options.pairsApart)
    gradients.computeAgain = computeAgain;
  for (unsigned index = 0; index < op.getCaptures().size(); ++index)
    if (Value gradient = op.getCaptureGradient(index))
      results.push_back(buildCaptureGradient(*this, regions, gradients, index,
                                             cast<RankedTensorType>(gradient.getType())));
  op->replaceAllUsesWith(results);
  op->erase();
}

void attn::expandBackward(BackwardOp op, const BackwardOptions &options) {
  Backward(op, options).build();
}

void attn::expandSoftmaxBackward(SoftmaxBackwardOp op, int64_t tableRows) {
  FloatType accumulator = op.getAccumulatorType();
  Type element = op.getInput().getType().getElementType();
  Statements s(op, accumulator);
  ScalarRegions regions{op.getScore(),    op.getGradient(), op.getMask(),
                        op.getCaptures(), nullptr,          {}};
  SmallVector<unsigned> points = addSoftmaxDims(s, op.getInput(), regions);
  Dims rows = Dims(points).drop_back();
  auto widen = [&](OpBuilder &builder, Location loc, Value x) {
    return extend(builder, loc, x, accumulator);
  };
  Value delta =
      s.emit(points, {{op.getOutputGradient(), points}, {op.getOutput(), points}}, rows,
             accumulator, 0.0, [&](OpBuilder &builder, Location loc, ValueRange args) {
               Value term = arith::MulFOp::create(builder, loc, widen(builder, loc, args[0]),
                                                  widen(builder, loc, args[1]));
               // y is 0 where masked; dy may hold anything there.
               term = regions.select(builder, loc, points, term, zero(builder, loc, accumulator));
               return add(builder, loc, args[2], term);
             });
  Value dt = s.emit(
      points, {{op.getOutputGradient(), points}, {op.getOutput(), points}, {delta, rows}}, points,
      accumulator, std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) {
        Value d = arith::SubFOp::create(builder, loc, widen(builder, loc, args[0]), args[2]);
        Value result = arith::MulFOp::create(builder, loc, widen(builder, loc, args[1]), d);
        return regions.select(builder, loc, points, result, zero(builder, loc, accumulator));
      });
  Value dx = s.emit(points, {{op.getInput(), points}, {dt, points}}, points, element, std::nullopt,
                    [&](OpBuilder &builder, Location loc, ValueRange args) {
                      IRMapping mapping;
                      Value result = regions.applyGradient(
                          builder, loc, points, widen(builder, loc, args[0]), args[1], mapping);
                      result = regions.select(builder, loc, points, result,
                                              zero(builder, loc, accumulator));
                      return truncate(builder, loc, result, element);
                    });
  if (dx.getType() != op.getInputGradient().getType())
    dx = tensor::CastOp::create(s.b, op.getInputGradient().getType(), dx);
  SmallVector<Value> results = {dx};
  auto apply = [&](OpBuilder &builder, Location loc, Dims domain, ValueRange args,
                   IRMapping &mapping) {
    regions.applyGradient(builder, loc, domain, widen(builder, loc, args[0]), args[1], mapping);
  };
  ScoreGradients gradients{{op.getInput(), dt}, points, apply};
  for (unsigned index = 0; index < op.getCaptures().size(); ++index)
    if (Value gradient = op.getCaptureGradient(index))
      results.push_back(buildCaptureGradient(s, regions, gradients, index,
                                             cast<RankedTensorType>(gradient.getType())));
  op->replaceAllUsesWith(results);
  op->erase();
}
