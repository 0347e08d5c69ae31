// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The statements of attn.backward and attn.softmax_backward, as their ODS
// descriptions define them; docs/backward.md derives them.

#include "Statements.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>
#include <limits>

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
  Backward(BackwardOp op, const BackwardOptions &options)
      : AttentionStatements(op, op.getGradient()), op(op), options(options),
        mayBeDead(!op.getRowsHaveKeys()) {}
  void build();

private:
  Value number(OpBuilder &builder, Location loc, double value);
  Value compareSize(OpBuilder &builder, Location loc, arith::CmpFPredicate predicate, Value lse);
  Value alive(OpBuilder &builder, Location loc, Value lse, Value value);
  Value finiteLse(OpBuilder &builder, Location loc, Value lse);
  void buildLogSums();
  SmallVector<Access> normalizers(ArrayRef<Access> before);
  Value isLarge(OpBuilder &builder, Location loc, Value lse);
  Value weight(OpBuilder &builder, Location loc, Value score, ValueRange normalizers);
  Value isDead(OpBuilder &builder, Location loc, ValueRange of);
  void buildOutputGradient();
  void buildPoints();
  Value contract(Value x, Dims xDims, Value y, Dims yDims, Dims out);
  Value gradientOf(Value sum, Dims dims, bool isQuery, Type type, Value factor = {});
  Value buildScaleGradient();
  Value buildSinkGradient();

  BackwardOp op;
  const BackwardOptions &options;
  /// Whether a row may have no key (with a sink, only if that is -inf).
  bool mayBeDead;
  Value outputGradient, lse, delta; // dO and LSE with their heads split, and D
  /// The parts of LSE that weights of large rows are made from, p = exp((t - shift) - logSum): the
  /// maximum and the logarithm of the sum. Null: all are made from LSE.
  Value shift, logSum;
  Value s, p, dt, ds;
};
} // namespace

Value Backward::number(OpBuilder &builder, Location loc, double value) {
  return arith::ConstantOp::create(builder, loc, builder.getFloatAttr(accumulator, value));
}

/// Compares the size of a row's LSE with infinity. A NaN is no mark of a dead row and stays
/// visible.
Value Backward::compareSize(OpBuilder &builder, Location loc, arith::CmpFPredicate predicate,
                            Value rowLse) {
  Value size = math::AbsFOp::create(builder, loc, rowLse);
  Value infinity = number(builder, loc, std::numeric_limits<double>::infinity());
  return arith::CmpFOp::create(builder, loc, predicate, size, infinity);
}

/// `value`, or 0 in a row without keys: its LSE may hold anything.
Value Backward::alive(OpBuilder &builder, Location loc, Value rowLse, Value value) {
  if (!mayBeDead)
    return value;
  Value lives = compareSize(builder, loc, arith::CmpFPredicate::UNE, rowLse);
  return arith::SelectOp::create(builder, loc, lives, value, zero(builder, loc, value.getType()));
}

/// LSE, or 0 in a row without keys, so that p = exp(-inf - 0).
Value Backward::finiteLse(OpBuilder &builder, Location loc, Value rowLse) {
  return alive(builder, loc, rowLse, rowLse);
}

/// Whether weights exp(score - LSE) of a row need not sum to 1 within 2^-16.
Value Backward::isLarge(OpBuilder &builder, Location loc, Value rowLse) {
  constexpr double kLarge = 256;
  Value size = math::AbsFOp::create(builder, loc, rowLse);
  Value atLeast = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGE, size,
                                        number(builder, loc, kLarge));
  Value finite =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::ONE, size,
                            number(builder, loc, std::numeric_limits<double>::infinity()));
  return arith::AndIOp::create(builder, loc, atLeast, finite);
}

/// In f32 LSE is off by up to |LSE| / 2^24: with scores of -1e9 the logarithm of the sum is lost in
/// it, and weights exp(t - LSE) sum to the number of keys. So in rows of large |LSE| its two parts
/// are computed again: for all rows, or in a branch where there is such a row.
void Backward::buildLogSums() {
  auto computeAgain = [&] {
    Value sink = op.getSink() ? split(op.getSink(), 0) : Value();
    Softmax softmax = buildSoftmax(*this, maskedScores(scores()), rows, points, sink, heads);
    shift = softmax.guarded;
    logSum = emit(rows, {{softmax.sum, rows}}, rows, accumulator, std::nullopt,
                  [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                    return math::LogOp::create(builder, loc, args[0]);
                  });
  };
  if (options.largeScores == LargeScores::Rows)
    return computeAgain();
  Value none = zero(b, b.getLoc(), accumulator);
  Value largest = emit(rows, {{lse, rows}}, {}, accumulator, 0.0,
                       [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                         Value size = arith::SelectOp::create(
                             builder, loc, isLarge(builder, loc, args[0]),
                             math::AbsFOp::create(builder, loc, args[0]), none);
                         return arith::MaxNumFOp::create(builder, loc, args[1], size);
                       });
  Value anyLarge = arith::CmpFOp::create(b, arith::CmpFPredicate::ONE,
                                         tensor::ExtractOp::create(b, largest, ValueRange()), none);
  auto branch = scf::IfOp::create(b, TypeRange{lse.getType(), lse.getType()}, anyLarge,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  computeAgain();
  scf::YieldOp::create(b, ValueRange{shift, logSum});
  b.setInsertionPointToStart(branch.elseBlock());
  Value zeros = emit(rows, {}, rows, accumulator, std::nullopt,
                     [&](OpBuilder &, Location, ValueRange) { return none; });
  scf::YieldOp::create(b, ValueRange{lse, zeros});
  shift = branch.getResult(0);
  logSum = branch.getResult(1);
}

/// `before`, then what weight() takes of a row.
SmallVector<Access> Backward::normalizers(ArrayRef<Access> before) {
  SmallVector<Access> all(before);
  for (Value ofRow : {lse, shift, logSum})
    if (ofRow)
      all.push_back({ofRow, rows});
  return all;
}

/// exp(score - LSE).
Value Backward::weight(OpBuilder &builder, Location loc, Value score, ValueRange normalizers) {
  auto subtract = [&](Value x, Value y) -> Value {
    return arith::SubFOp::create(builder, loc, x, y);
  };
  auto weightOf = [&](Value exponent) -> Value {
    return math::ExpOp::create(builder, loc, exponent);
  };
  auto choose = [&](Value exact, Value plain) -> Value {
    return arith::SelectOp::create(builder, loc, isLarge(builder, loc, normalizers[0]), exact,
                                   plain);
  };
  Value plain = subtract(score, finiteLse(builder, loc, normalizers[0]));
  if (normalizers.size() == 1)
    return weightOf(plain);
  Value exact = subtract(subtract(score, normalizers[1]), normalizers[2]);
  // Where rows have kernels of their own, whole weights are a choice that leaves one side in each.
  if (options.largeScores == LargeScores::Rows)
    return choose(weightOf(exact), weightOf(plain));
  return weightOf(choose(exact, plain));
}

/// Whether a row has no key: `of` is its LSE, then the sink if there is one, then an element of O
/// if that is to be 0, too.
///
/// With a sink such a row has LSE = sink, up to the rounding of logarithms to another base and
/// back, and O = 0. A row with keys looks the same only where its weights sum to no more than that:
/// what its dO would add is as small.
Value Backward::isDead(OpBuilder &builder, Location loc, ValueRange of) {
  Value isInfinite = compareSize(builder, loc, arith::CmpFPredicate::OEQ, of[0]);
  if (of.size() == 1)
    return isInfinite;
  auto compare = [&](arith::CmpFPredicate predicate, Value x, Value y) -> Value {
    return arith::CmpFOp::create(builder, loc, predicate, x, y);
  };
  auto sizeOf = [&](Value x) -> Value { return math::AbsFOp::create(builder, loc, x); };
  Value rounding = number(builder, loc, std::ldexp(1.0, 4 - int(accumulator.getFPMantissaWidth())));
  Value isSink =
      compare(arith::CmpFPredicate::OLE, sizeOf(arith::SubFOp::create(builder, loc, of[0], of[1])),
              arith::MulFOp::create(builder, loc, sizeOf(of[1]), rounding));
  if (of.size() > 2) {
    Value isZero = compare(arith::CmpFPredicate::OEQ, of[2], zero(builder, loc, of[2].getType()));
    isSink = arith::AndIOp::create(builder, loc, isSink, isZero);
  }
  return arith::OrIOp::create(builder, loc, isInfinite, isSink);
}

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
  if (mayBeDead && !options.largeRows) {
    SmallVector<Access> inputs = join({{given, out}}, ofRow);
    if (op.getSink())
      inputs.push_back({output, out});
    outputGradient = emit(out, inputs, out, element, std::nullopt,
                          [&](OpBuilder &builder, Location loc, ValueRange args) {
                            Value dead = isDead(builder, loc, args.slice(1, inputs.size() - 1));
                            return choose(builder, loc, dead, args.front());
                          });
  }
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
  p = emit(points, normalizers({{t, points}}), points, accumulator, std::nullopt,
           [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
             return weight(builder, loc, args[0], args.drop_front().drop_back());
           });
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

/// The sum of x y, with the dimensions `out`.
Value Backward::contract(Value x, Dims xDims, Value y, Dims yDims, Dims out) {
  SmallVector<unsigned> domain(points);
  for (Dims dims : {xDims, yDims})
    if (dims.back() == d || dims.back() == e)
      domain.push_back(dims.back());
  // Q K^T and dO V^T have their last dimension in common.
  domain.erase(llvm::unique(domain), domain.end());
  return emit(domain, {{x, xDims}, {y, yDims}}, out, accumulator, 0.0, multiplyAdd);
}

/// A gradient in the shape and type of its tensor: summed over the group where
/// it is a key's or value's, times `factor`, rounded.
Value Backward::gradientOf(Value sum, Dims dims, bool isQuery, Type type, Value factor) {
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
  auto scaled = [&](OpBuilder &builder, Location loc, Value x) -> Value {
    return arith::MulFOp::create(builder, loc, x, scale);
  };
  auto computeAgain = [&] {
    buildPoints();
    return std::pair(s, dt);
  };
  ScoreGradients gradients{s, dt, points, scaled, options.tableRows};
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
  ScoreGradients gradients{op.getInput(), dt, points, widen};
  for (unsigned index = 0; index < op.getCaptures().size(); ++index)
    if (Value gradient = op.getCaptureGradient(index))
      results.push_back(buildCaptureGradient(s, regions, gradients, index,
                                             cast<RankedTensorType>(gradient.getType())));
  op->replaceAllUsesWith(results);
  op->erase();
}
