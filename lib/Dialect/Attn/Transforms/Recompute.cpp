// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Weights that are computed again from the log-sum-exp. See Recompute.h.

#include "Recompute.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace attn;

Value attn::zero(OpBuilder &builder, Location loc, Type type) {
  return arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
}

Value Recomputed::number(OpBuilder &builder, Location loc, double value) {
  return arith::ConstantOp::create(builder, loc, builder.getFloatAttr(accumulator, value));
}

/// Compares the size of a row's LSE with infinity. A NaN is no mark of a dead row and stays
/// visible.
Value Recomputed::compareSize(OpBuilder &builder, Location loc, arith::CmpFPredicate predicate,
                              Value rowLse) {
  Value size = math::AbsFOp::create(builder, loc, rowLse);
  Value infinity = number(builder, loc, std::numeric_limits<double>::infinity());
  return arith::CmpFOp::create(builder, loc, predicate, size, infinity);
}

/// `value`, or 0 in a row without keys: its LSE may hold anything.
Value Recomputed::alive(OpBuilder &builder, Location loc, Value rowLse, Value value) {
  if (!mayBeDead)
    return value;
  Value lives = compareSize(builder, loc, arith::CmpFPredicate::UNE, rowLse);
  return arith::SelectOp::create(builder, loc, lives, value, zero(builder, loc, value.getType()));
}

/// LSE, or 0 in a row without keys, so that p = exp(-inf - 0).
Value Recomputed::finiteLse(OpBuilder &builder, Location loc, Value rowLse) {
  return alive(builder, loc, rowLse, rowLse);
}

/// Whether weights exp(score - LSE) of a row need not sum to 1 within 2^-16.
Value Recomputed::isLarge(OpBuilder &builder, Location loc, Value rowLse) {
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
void Recomputed::buildLogSums() {
  auto computeAgain = [&] {
    Value ofHeads = sink ? split(sink, 0) : Value();
    Softmax softmax = buildSoftmax(*this, maskedScores(scores()), rows, points, ofHeads, heads);
    shift = softmax.guarded;
    logSum = emit(rows, {{softmax.sum, rows}}, rows, accumulator, std::nullopt,
                  [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                    return math::LogOp::create(builder, loc, args[0]);
                  });
  };
  if (largeScores == LargeScores::Rows)
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
SmallVector<Access> Recomputed::normalizers(ArrayRef<Access> before) {
  SmallVector<Access> all(before);
  for (Value ofRow : {lse, shift, logSum})
    if (ofRow)
      all.push_back({ofRow, rows});
  return all;
}

/// exp(score - LSE).
Value Recomputed::weight(OpBuilder &builder, Location loc, Value score, ValueRange normalizers) {
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
  if (largeScores == LargeScores::Rows)
    return choose(weightOf(exact), weightOf(plain));
  return weightOf(choose(exact, plain));
}

/// Whether a row has no key: `of` is its LSE, then the sink if there is one, then an element of O
/// if that is to be 0, too.
///
/// With a sink such a row has LSE = sink, up to the rounding of logarithms to another base and
/// back, and O = 0. A row with keys looks the same only where its weights sum to no more than that:
/// what its dO would add is as small.
Value Recomputed::isDead(OpBuilder &builder, Location loc, ValueRange of) {
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

Value Recomputed::weights(Value t) {
  return emit(points, normalizers({{t, points}}), points, accumulator, std::nullopt,
              [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                return weight(builder, loc, args[0], args.drop_front().drop_back());
              });
}

/// `given`, the gradient of O or its tangent, with zeros in rows without keys.
Value Recomputed::dropDeadRows(Value given, Value output) {
  if (!mayBeDead)
    return given;
  SmallVector<unsigned> out = with(rows, e);
  SmallVector<Access> inputs = {{given, out}, {lse, rows}};
  if (sink) {
    inputs.push_back({split(sink, 0), heads});
    inputs.push_back({output, out});
  }
  Type element = cast<RankedTensorType>(given.getType()).getElementType();
  return emit(out, inputs, out, element, std::nullopt,
              [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                Value dead = isDead(builder, loc, args.slice(1, inputs.size() - 1));
                return arith::SelectOp::create(builder, loc, dead, zero(builder, loc, element),
                                               args.front());
              });
}

/// The sum of x y, with the dimensions `out`.
Value Recomputed::contract(Value x, Dims xDims, Value y, Dims yDims, Dims out) {
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
Value Recomputed::gradientOf(Value sum, Dims dims, bool isQuery, Type type, Value factor) {
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
