// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The statements of attn.jvp and attn.backward_jvp, as their ODS descriptions define them;
// docs/backward.md derives them.

#include "Recompute.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

static Value add(OpBuilder &builder, Location loc, Value x, Value y) {
  return arith::AddFOp::create(builder, loc, x, y);
}

static Value subtract(OpBuilder &builder, Location loc, Value x, Value y) {
  return arith::SubFOp::create(builder, loc, x, y);
}

static Value multiply(OpBuilder &builder, Location loc, Value x, Value y) {
  return arith::MulFOp::create(builder, loc, x, y);
}

namespace {
/// What both ops begin with.
class Tangents : public Recomputed {
public:
  template <typename OpTy>
  Tangents(OpTy op, Region &gradient, LargeScores largeScores)
      : Recomputed(op, gradient, largeScores), tangent(op.getTangent()),
        captureTangents(op.getCaptureTangents()), queryTangent(op.getQueryTangent()),
        keyTangent(op.getKeyTangent()), valueTangent(op.getValueTangent()),
        sinkTangent(op.getSinkTangent()) {
    if (queryTangent)
      queryTangent = split(queryTangent);
    lse = split(op.getLse());
    if (largeScores != LargeScores::Inexact)
      buildLogSums();
  }

protected:
  Value sumOf(Value x, Value y, Dims dims);
  Value masked(OpBuilder &builder, Location loc, Value value);
  Value scaledTangent(OpBuilder &builder, Location loc, ValueRange pair);
  SmallVector<Access> scoreAccesses(ArrayRef<Access> more);
  SmallVector<Value> regionArguments(OpBuilder &builder, Location loc, Dims domain,
                                     ValueRange pair);
  void buildPoints();
  Value sinkWeight(OpBuilder &builder, Location loc, ValueRange args);

  Region &tangent;
  ValueRange captureTangents;
  /// Null where they are 0; that of the query with its heads split.
  Value queryTangent, keyTangent, valueTangent, sinkTangent;
  /// The scores before the scale, their tangent (null: 0), the weights and t'.
  Value s, sTangent, p, tTangent;
};
} // namespace

/// The sum of two tensors over `dims`, either of which may be null.
Value Tangents::sumOf(Value x, Value y, Dims dims) {
  if (!x || !y)
    return x ? x : y;
  return emit(dims, {{x, dims}, {y, dims}}, dims, accumulator, std::nullopt,
              [](OpBuilder &builder, Location loc, ValueRange args) {
                return add(builder, loc, args[0], args[1]);
              });
}

/// `value`, or 0 for a masked pair, for which a derivative may be infinite.
Value Tangents::masked(OpBuilder &builder, Location loc, Value value) {
  return regions.select(builder, loc, points, value, zero(builder, loc, accumulator));
}

/// The score and its tangent, as statements read them, and then `more`.
SmallVector<Access> Tangents::scoreAccesses(ArrayRef<Access> more) {
  SmallVector<Access> accesses = {{s, points}};
  if (sTangent)
    accesses.push_back({sTangent, points});
  llvm::append_range(accesses, more);
  return accesses;
}

/// s', given what a statement read of scoreAccesses.
Value Tangents::scaledTangent(OpBuilder &builder, Location loc, ValueRange pair) {
  return sTangent ? multiply(builder, loc, pair[1], scale) : zero(builder, loc, accumulator);
}

/// What regions with tangents take: the scaled score, indices, captures, their tangents, and s'.
SmallVector<Value> Tangents::regionArguments(OpBuilder &builder, Location loc, Dims domain,
                                             ValueRange pair) {
  SmallVector<Value> arguments = {multiply(builder, loc, pair[0], scale)};
  llvm::append_range(arguments, regions.indexValues(builder, loc, domain));
  llvm::append_range(arguments, regions.captures);
  llvm::append_range(arguments, captureTangents);
  arguments.push_back(scaledTangent(builder, loc, pair));
  return arguments;
}

void Tangents::buildPoints() {
  s = scores();
  Value first, second;
  SmallVector<unsigned> queryDims = with(rows, d);
  if (queryTangent)
    first = contract(queryTangent, queryDims, key, keys, points);
  if (keyTangent)
    second = contract(query, queryDims, keyTangent, keys, points);
  sTangent = sumOf(first, second, points);
  p = weights(maskedScores(s));
  tTangent = emit(points, scoreAccesses({}), points, accumulator, std::nullopt,
                  [&](OpBuilder &builder, Location loc, ValueRange args) {
                    if (tangent.empty())
                      return scaledTangent(builder, loc, args);
                    IRMapping mapping;
                    return inlineRegion(builder, tangent,
                                        regionArguments(builder, loc, points, args), mapping);
                  });
}

/// exp(sink - LSE), where a statement reads the sink, then normalizers().
Value Tangents::sinkWeight(OpBuilder &builder, Location loc, ValueRange args) {
  return weight(builder, loc, args.front(), args.drop_front());
}

//===----------------------------------------------------------------------===//
// attn.jvp
//===----------------------------------------------------------------------===//

namespace {
class Jvp : public Tangents {
public:
  Jvp(JvpOp op, Region &none, LargeScores largeScores) : Tangents(op, none, largeScores), op(op) {}
  void build();

private:
  Value addSink(Value sum);

  JvpOp op;
};
} // namespace

/// The sum over keys, and the sink's term.
Value Jvp::addSink(Value sum) {
  if (!sinkTangent)
    return sum;
  SmallVector<Access> inputs = normalizers({{split(sink, 0), heads}});
  unsigned count = inputs.size();
  inputs.push_back({split(sinkTangent, 0), heads});
  inputs.push_back({sum, rows});
  return emit(rows, inputs, rows, accumulator, std::nullopt,
              [&](OpBuilder &builder, Location loc, ValueRange args) {
                Value p = sinkWeight(builder, loc, args.take_front(count));
                Value term = alive(builder, loc, args[1], multiply(builder, loc, p, args[count]));
                return add(builder, loc, args[count + 1], term);
              });
}

void Jvp::build() {
  buildPoints();
  Value product = emit(points, {{p, points}, {tTangent, points}}, points, accumulator, std::nullopt,
                       [&](OpBuilder &builder, Location loc, ValueRange args) {
                         return masked(builder, loc, multiply(builder, loc, args[0], args[1]));
                       });
  Value lseTangent = addSink(sum(product, points, rows));
  SmallVector<unsigned> out = with(rows, e);
  Value fromValues;
  if (valueTangent)
    fromValues = contract(factoredWeights(p), points, valueTangent, values, out);
  Value total =
      sumOf(contract(factoredWeights(product), points, value, values, out), fromValues, out);
  Type element = op.getOutput().getType().getElementType();
  Value outputTangent =
      emit(out, {{total, out}, {lseTangent, rows}, {split(op.getOutput()), out}}, out, element,
           std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) {
             Value o = extend(builder, loc, args[2], accumulator);
             Value mean = multiply(builder, loc, args[1], o);
             return truncate(builder, loc, subtract(builder, loc, args[0], mean), element);
           });
  op->replaceAllUsesWith(SmallVector<Value>{join(outputTangent, op.getOutputTangent().getType()),
                                            join(lseTangent, op.getLseTangent().getType())});
  op->erase();
}

void attn::expandJvp(JvpOp op, LargeScores largeScores) {
  Region none;
  Jvp(op, none, largeScores).build();
}

//===----------------------------------------------------------------------===//
// attn.backward_jvp
//===----------------------------------------------------------------------===//

namespace {
class BackwardJvp : public Tangents {
public:
  BackwardJvp(BackwardJvpOp op, const BackwardOptions &options)
      : Tangents(op, op.getGradient(), options.largeScores), op(op), options(options) {}
  void build();

private:
  Value rowSum(Value x, Value y);
  void buildRows();
  void buildGradients();
  Value yieldOf(unsigned result);
  Value buildSink();
  SmallVector<Value> buildCaptures();

  BackwardJvpOp op;
  const BackwardOptions &options;
  /// dO and its tangent (null: 0) with their heads split, D, D' and LSE'.
  Value outputGradient, outputGradientTangent, delta, deltaTangent, lseTangent;
  /// P', dt and dt'.
  Value pTangent, dt, dtTangent;
};
} // namespace

/// sum_e x y of each row.
Value BackwardJvp::rowSum(Value x, Value y) {
  SmallVector<unsigned> out = with(rows, e);
  return emit(out, {{x, out}, {y, out}}, rows, accumulator, 0.0, multiplyAdd);
}

void BackwardJvp::buildRows() {
  Value output = split(op.getOutput());
  outputGradient = dropDeadRows(split(op.getOutputGradient()), output);
  if (op.getOutputGradientTangent())
    outputGradientTangent = dropDeadRows(split(op.getOutputGradientTangent()), output);
  lseTangent = split(op.getLseTangent());
  auto less = [&](Value sum, Value ofLse) {
    if (!ofLse)
      return sum;
    return emit(rows, {{sum, rows}, {split(ofLse), rows}, {lse, rows}}, rows, accumulator,
                std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) {
                  return alive(builder, loc, args[2], subtract(builder, loc, args[0], args[1]));
                });
  };
  delta = less(rowSum(outputGradient, output), op.getLseGradient());
  Value other;
  if (outputGradientTangent)
    other = rowSum(outputGradientTangent, output);
  deltaTangent = less(sumOf(rowSum(outputGradient, split(op.getOutputTangent())), other, rows),
                      op.getLseGradientTangent());
}

void BackwardJvp::buildGradients() {
  SmallVector<unsigned> out = with(rows, e);
  Value w = contract(outputGradient, out, value, values, points);
  Value ofValues, ofOutputs;
  if (valueTangent)
    ofValues = contract(outputGradient, out, valueTangent, values, points);
  if (outputGradientTangent)
    ofOutputs = contract(outputGradientTangent, out, value, values, points);
  Value wTangent = sumOf(ofValues, ofOutputs, points);
  pTangent =
      emit(points, {{p, points}, {tTangent, points}, {lseTangent, rows}}, points, accumulator,
           std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) {
             Value difference = subtract(builder, loc, args[1], args[2]);
             return masked(builder, loc, multiply(builder, loc, args[0], difference));
           });
  auto difference = [&](OpBuilder &builder, Location loc, Value product, Value ofRow) {
    Value factored = regions.applyFactor(builder, loc, points, product);
    return subtract(builder, loc, factored, ofRow);
  };
  dt = emit(points, {{p, points}, {w, points}, {delta, rows}}, points, accumulator, std::nullopt,
            [&](OpBuilder &builder, Location loc, ValueRange args) {
              return multiply(builder, loc, args[0], difference(builder, loc, args[1], args[2]));
            });
  SmallVector<Access> inputs = {
      {pTangent, points}, {w, points}, {delta, rows}, {p, points}, {deltaTangent, rows}};
  if (wTangent)
    inputs.push_back({wTangent, points});
  dtTangent = emit(points, inputs, points, accumulator, std::nullopt,
                   [&](OpBuilder &builder, Location loc, ValueRange args) {
                     Value first = difference(builder, loc, args[1], args[2]);
                     Value other = wTangent ? args[5] : zero(builder, loc, accumulator);
                     Value second = difference(builder, loc, other, args[4]);
                     return add(builder, loc, multiply(builder, loc, args[0], first),
                                multiply(builder, loc, args[3], second));
                   });
}

/// ds (0) or ds' (1).
Value BackwardJvp::yieldOf(unsigned result) {
  SmallVector<Access> inputs = scoreAccesses({{dt, points}, {dtTangent, points}});
  return emit(points, inputs, points, accumulator, std::nullopt,
              [&](OpBuilder &builder, Location loc, ValueRange args) {
                Value dt = args[inputs.size() - 2], dtTangent = args[inputs.size() - 1];
                if (regions.gradient.empty())
                  return masked(builder, loc, result == 0 ? dt : dtTangent);
                SmallVector<Value> arguments = regionArguments(builder, loc, points, args);
                arguments.append({dt, dtTangent});
                IRMapping mapping;
                inlineRegion(builder, regions.gradient, arguments, mapping);
                Operation *yield = regions.gradient.front().getTerminator();
                return masked(builder, loc, mapping.lookupOrDefault(yield->getOperand(result)));
              });
}

/// - sum_(b,i) exp(sink - LSE) ((sink' - LSE') D + D').
Value BackwardJvp::buildSink() {
  SmallVector<Access> inputs = normalizers({{split(sink, 0), heads}});
  unsigned count = inputs.size();
  inputs.append({{delta, rows}, {deltaTangent, rows}, {lseTangent, rows}});
  if (sinkTangent)
    inputs.push_back({split(sinkTangent, 0), heads});
  Value ofRows =
      emit(rows, inputs, rows, accumulator, std::nullopt,
           [&](OpBuilder &builder, Location loc, ValueRange args) {
             Value p = sinkWeight(builder, loc, args.take_front(count));
             Value ofSink = sinkTangent ? args[count + 3] : zero(builder, loc, accumulator);
             Value difference = subtract(builder, loc, ofSink, args[count + 2]);
             Value sum = add(builder, loc, multiply(builder, loc, difference, args[count]),
                             args[count + 1]);
             Value negated = arith::NegFOp::create(builder, loc, multiply(builder, loc, p, sum));
             return alive(builder, loc, args[1], negated);
           });
  return join(sum(ofRows, rows, heads), op.getSink().getType(), 0);
}

SmallVector<Value> BackwardJvp::buildCaptures() {
  auto list = [&] {
    SmallVector<Value> pairs = {s};
    if (sTangent)
      pairs.push_back(sTangent);
    pairs.append({dt, dtTangent});
    return pairs;
  };
  auto apply = [&](OpBuilder &builder, Location loc, Dims domain, ValueRange args,
                   IRMapping &mapping) {
    SmallVector<Value> arguments = regionArguments(builder, loc, domain, args);
    unsigned first = sTangent ? 2 : 1;
    arguments.append({args[first], args[first + 1]});
    inlineRegion(builder, regions.gradient, arguments, mapping);
  };
  auto computeAgain = [&] {
    buildPoints();
    buildGradients();
    return list();
  };
  ScoreGradients gradients{list(), points, apply, options.tableRows};
  if (options.pairsApart)
    gradients.computeAgain = computeAgain;
  SmallVector<Value> results;
  for (unsigned index = 0; index < op.getCaptures().size(); ++index)
    if (Value gradient = op.getCaptureGradient(index))
      results.push_back(buildCaptureGradient(*this, regions, gradients, index,
                                             cast<RankedTensorType>(gradient.getType())));
  return results;
}

void BackwardJvp::build() {
  buildRows();
  buildPoints();
  buildGradients();
  Value ds = yieldOf(0), dsTangent = yieldOf(1);
  SmallVector<unsigned> queryRows = with(rows, d), out = with(rows, e);
  SmallVector<unsigned> keyRows = with(Dims(rows).drop_back(), {j, d});
  SmallVector<unsigned> valueRows = with(Dims(rows).drop_back(), {j, e});
  Value dq = contract(dsTangent, points, key, keys, queryRows);
  Value dk = contract(dsTangent, points, query, queryRows, keyRows);
  Value dv = contract(outputGradient, out, factoredWeights(pTangent), points, valueRows);
  if (keyTangent)
    dq = sumOf(dq, contract(ds, points, keyTangent, keys, queryRows), queryRows);
  if (queryTangent)
    dk = sumOf(dk, contract(ds, points, queryTangent, queryRows, keyRows), keyRows);
  if (outputGradientTangent)
    dv = sumOf(dv, contract(outputGradientTangent, out, factoredWeights(p), points, valueRows),
               valueRows);
  SmallVector<Value> results = {
      gradientOf(dq, queryRows, true, op.getQueryGradient().getType(), scale),
      gradientOf(dk, keyRows, false, op.getKeyGradient().getType(), scale),
      gradientOf(dv, valueRows, false, op.getValueGradient().getType())};
  if (op.getSinkGradient())
    results.push_back(buildSink());
  llvm::append_range(results, buildCaptures());
  op->replaceAllUsesWith(results);
  op->erase();
}

void attn::expandBackwardJvp(BackwardJvpOp op, const BackwardOptions &options) {
  BackwardJvp(op, options).build();
}
