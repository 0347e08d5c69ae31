// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-expand: attention ops to the naive chain of statements (L0 to L1).
//
// Each statement is one linalg.generic whose indexing maps are projections of
// the iteration space (b, h, i, j, d, e); the order of scale, score and mask
// and the treatment of fully masked rows follow docs/numerics.md.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Utils/Statement.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEXPAND
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

using Dims = ArrayRef<unsigned>;

/// Builds the statements of one attention op.
class Statements {
public:
  Statements(Operation *op, FloatType accumulator)
      : b(op->getLoc(), op), accumulator(accumulator) {}

  /// A statement over `domain` loops: each input is read at the loops that its
  /// dims name, the result is written at `outDims`; the loops that `outDims`
  /// lacks are reduced. `init` fills the result first (the reduction's neutral
  /// element); without it the result is written once per point.
  Value emit(unsigned domain, ArrayRef<Access> inputs,
             Dims outDims, ArrayRef<OpFoldResult> sizes, Type element,
             std::optional<double> init, StatementBody body,
             StringRef lastName = "d") {
    SmallVector<OpFoldResult> outSizes;
    for (unsigned dim : outDims)
      outSizes.push_back(sizes[dim]);
    Value out = tensor::EmptyOp::create(b, outSizes, element);
    if (init) {
      Value value = constant(*init, element);
      out = linalg::FillOp::create(b, value, out).getResult(0);
    }
    Value result = buildStatement(b, domain, inputs, {out, outDims}, body);
    SmallVector<StringRef> statementNames(
        ArrayRef(names).take_front(std::min<size_t>(domain, names.size())));
    if (domain > names.size())
      statementNames.push_back(lastName);
    else if (outDims.size() == domain && sizes.size() == domain &&
             domain == names.size() && lastName != "d")
      statementNames.back() = lastName;
    result.getDefiningOp()->setAttr("attn.dims",
                                    b.getStrArrayAttr(statementNames));
    return result;
  }

  /// Names of the loops up to the keys, for whoever reads the nest.
  SmallVector<StringRef> names;

  Value constant(double value, Type type) {
    return arith::ConstantOp::create(b, b.getFloatAttr(type, value));
  }

  /// exp-sum of `score` along loop `key`, guarded against fully masked rows.
  struct Softmax {
    Value max, guarded, p, sum;
  };
  Softmax softmax(Value score, unsigned rank, Dims rows, Dims points,
                  ArrayRef<OpFoldResult> sizes, Value sink, Dims sinkDims);

  ImplicitLocOpBuilder b;
  FloatType accumulator;

};

/// Clones the scalar `region` with its arguments bound to `arguments`.
Value inlineRegion(OpBuilder &builder, Region &region, ValueRange arguments) {
  IRMapping mapping;
  mapping.map(region.front().getArguments(), arguments);
  for (Operation &op : region.front().without_terminator())
    builder.clone(op, mapping);
  return mapping.lookupOrDefault(
      region.front().getTerminator()->getOperand(0));
}

Value extend(OpBuilder &builder, Location loc, Value value, Type type) {
  return value.getType() == type
             ? value
             : arith::ExtFOp::create(builder, loc, type, value).getResult();
}

Value truncate(OpBuilder &builder, Location loc, Value value, Type type) {
  return value.getType() == type
             ? value
             : arith::TruncFOp::create(builder, loc, type, value).getResult();
}

Statements::Softmax Statements::softmax(Value score, unsigned rank, Dims rows,
                                        Dims points,
                                        ArrayRef<OpFoldResult> sizes,
                                        Value sink, Dims sinkDims) {
  Softmax result;
  // max_j t, or of t and the sink, which is one more score of every row.
  result.max =
      emit(rank, {{score, points}}, rows, sizes, accumulator,
           -std::numeric_limits<double>::infinity(),
           [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
             return arith::MaxNumFOp::create(builder, loc, args[1], args[0]);
           });
  unsigned rowRank = rows.size();
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq(rowRank));
  if (sink)
    result.max =
        emit(rowRank, {{result.max, all}, {sink, sinkDims}}, all, sizes,
             accumulator, std::nullopt,
             [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
               return arith::MaxNumFOp::create(builder, loc, args[0], args[1]);
             });
  // A fully masked row has m = -inf; subtract 0 there, so that p = exp(-inf).
  result.guarded =
      emit(rowRank, {{result.max, all}}, all, sizes, accumulator, std::nullopt,
           [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
             Value infinity = minusInfinity(builder, loc, accumulator);
             Value dead = arith::CmpFOp::create(
                 builder, loc, arith::CmpFPredicate::OEQ, args[0], infinity);
             Value zero = arith::ConstantOp::create(
                 builder, loc, builder.getZeroAttr(accumulator));
             return arith::SelectOp::create(builder, loc, dead, zero, args[0]);
           });
  result.p =
      emit(rank, {{score, points}, {result.guarded, rows}}, points, sizes,
           accumulator, std::nullopt,
           [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
             Value d = arith::SubFOp::create(builder, loc, args[0], args[1]);
             return math::ExpOp::create(builder, loc, d);
           });
  result.sum =
      emit(rank, {{result.p, points}}, rows, sizes, accumulator, 0.0,
           [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
             return arith::AddFOp::create(builder, loc, args[1], args[0]);
           });
  if (sink)
    result.sum =
        emit(rowRank,
             {{result.sum, all}, {result.guarded, all}, {sink, sinkDims}}, all,
             sizes, accumulator, std::nullopt,
             [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
               Value d = arith::SubFOp::create(builder, loc, args[2], args[1]);
               Value e = math::ExpOp::create(builder, loc, d);
               return arith::AddFOp::create(builder, loc, args[0], e);
             });
  return result;
}

/// a / l, or 0 where l is 0 (no key was kept), in the result's element type.
Value normalize(OpBuilder &builder, Location loc, Value a, Value l, Type type) {
  Value zero = arith::ConstantOp::create(builder, loc,
                                         builder.getZeroAttr(l.getType()));
  Value empty = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ,
                                      l, zero);
  Value quotient = arith::DivFOp::create(builder, loc, a, l);
  Value safe = arith::SelectOp::create(builder, loc, empty, zero, quotient);
  return truncate(builder, loc, safe, type);
}

/// Query heads split into (key head, group), unless both counts are the same
/// static number.
struct Heads {
  bool grouped;
  OpFoldResult keyHeads, group;
  SmallVector<ReassociationIndices> reassociation(unsigned rank) const {
    SmallVector<ReassociationIndices> result = {{0}, {1, 2}};
    for (unsigned dim = 2; dim < rank; ++dim)
      result.push_back({dim + 1});
    return result;
  }
  /// `value` with its head dimension split.
  Value split(ImplicitLocOpBuilder &b, Value value) const {
    if (!grouped)
      return value;
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<OpFoldResult> sizes =
        tensor::getMixedSizes(b, b.getLoc(), value);
    sizes[1] = keyHeads;
    sizes.insert(sizes.begin() + 2, group);
    SmallVector<int64_t> shape;
    SmallVector<Value> dynamic;
    dispatchIndexOpFoldResults(sizes, dynamic, shape);
    return tensor::ExpandShapeOp::create(
        b, RankedTensorType::get(shape, type.getElementType()), value,
        reassociation(type.getRank()), sizes);
  }
  /// The inverse of split, as `type`.
  Value join(ImplicitLocOpBuilder &b, Value value, Type type) const {
    if (grouped) {
      unsigned rank = cast<RankedTensorType>(type).getRank();
      value = tensor::CollapseShapeOp::create(b, value, reassociation(rank));
    }
    if (value.getType() != type)
      value = tensor::CastOp::create(b, type, value);
    return value;
  }
};

Heads analyzeHeads(ImplicitLocOpBuilder &b, ForwardOp op) {
  Heads heads;
  int64_t q = op.getQuery().getType().getDimSize(1);
  int64_t k = op.getKey().getType().getDimSize(1);
  heads.grouped = ShapedType::isDynamic(q) || q != k;
  heads.keyHeads = tensor::getMixedSize(b, b.getLoc(), op.getKey(), 1);
  if (!ShapedType::isDynamic(q) && !ShapedType::isDynamic(k)) {
    heads.group = b.getIndexAttr(k == 0 ? 1 : q / k);
    return heads;
  }
  Value queryHeads = tensor::DimOp::create(b, op.getQuery(), 1);
  Value keyHeads = getValueOrCreateConstantIndexOp(b, b.getLoc(), heads.keyHeads);
  Value group = arith::DivUIOp::create(b, queryHeads, keyHeads);
  heads.group = group;
  return heads;
}

void expandForward(ForwardOp op) {
  FloatType accumulator = op.getAccumulatorType();
  Type element = op.getQuery().getType().getElementType();
  Statements s(op, accumulator);
  ImplicitLocOpBuilder &b = s.b;
  Heads heads = analyzeHeads(b, op);
  Value q = heads.split(b, op.getQuery());

  // Loops: b, h (or key head and group), i, j, then d or e.
  s.names = {"b", "h"};
  if (heads.grouped)
    s.names.push_back("g");
  s.names.append({"i", "j"});
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), q);
  unsigned i = sizes.size() - 2, j = i + 1, inner = i + 2;
  OpFoldResult headSize = sizes.back();
  sizes.back() = tensor::getMixedSize(b, b.getLoc(), op.getKey(), 2);
  SmallVector<unsigned> rows = llvm::to_vector(llvm::seq(i + 1));
  SmallVector<unsigned> points = llvm::to_vector(llvm::seq(j + 1));
  SmallVector<unsigned> query = rows, keys = {0, 1, j, inner}, out = rows;
  query.push_back(inner);
  out.push_back(inner);

  SmallVector<OpFoldResult> sizesD = sizes, sizesE = sizes;
  sizesD.push_back(headSize);
  sizesE.push_back(tensor::getMixedSize(b, b.getLoc(), op.getValue(), 3));
  auto contraction = [&](OpBuilder &builder, Location loc,
                         ValueRange args) -> Value {
    Value x = extend(builder, loc, args[0], accumulator);
    Value y = extend(builder, loc, args[1], accumulator);
    Value product = arith::MulFOp::create(builder, loc, x, y);
    return arith::AddFOp::create(builder, loc, args[2], product);
  };
  Value score = s.emit(inner + 1, {{q, query}, {op.getKey(), keys}}, points,
                       sizesD, accumulator, 0.0, contraction);

  // Indices of the scalar regions: b, h, i, j.
  auto indices = [&](OpBuilder &builder, Location loc) {
    auto index = [&](unsigned loop) -> Value {
      return linalg::IndexOp::create(builder, loc, loop);
    };
    SmallVector<Value> result = {index(0), index(1)};
    if (heads.grouped) {
      Value group = getValueOrCreateConstantIndexOp(builder, loc, heads.group);
      Value base = arith::MulIOp::create(builder, loc, result[1], group);
      result[1] = arith::AddIOp::create(builder, loc, base, index(2));
    }
    result.push_back(index(i));
    result.push_back(index(j));
    return result;
  };
  Value scale = op.getScaleOperand();
  if (!scale)
    scale = s.constant(*op.getStaticScale(), accumulator);
  Value t = s.emit(
      points.size(), {{score, points}}, points, sizes, accumulator,
      std::nullopt, [&](OpBuilder &builder, Location loc, ValueRange args) {
        Value scaled = arith::MulFOp::create(builder, loc, args[0], scale);
        if (op.getScore().empty())
          return scaled;
        SmallVector<Value> arguments = {scaled};
        llvm::append_range(arguments, indices(builder, loc));
        llvm::append_range(arguments, op.getCaptures());
        return inlineRegion(builder, op.getScore(), arguments);
      });
  if (!op.getMask().empty())
    t = s.emit(points.size(), {{t, points}}, points, sizes, accumulator,
               std::nullopt,
               [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                 SmallVector<Value> arguments = indices(builder, loc);
                 llvm::append_range(arguments, op.getCaptures());
                 Value keep =
                     inlineRegion(builder, op.getMask(), arguments);
                 return arith::SelectOp::create(
                     builder, loc, keep, args[0],
                     minusInfinity(builder, loc, accumulator));
               });

  // The sink is indexed by query head; split it like the query's heads.
  Value sink = op.getSink();
  SmallVector<unsigned> sinkDims = {1};
  if (sink && heads.grouped) {
    sinkDims.push_back(2);
    SmallVector<OpFoldResult> sinkSizes = {heads.keyHeads, heads.group};
    SmallVector<int64_t> shape;
    SmallVector<Value> dynamic;
    dispatchIndexOpFoldResults(sinkSizes, dynamic, shape);
    sink = tensor::ExpandShapeOp::create(
        b, RankedTensorType::get(shape, accumulator), sink,
        ArrayRef<ReassociationIndices>{{0, 1}}, sinkSizes);
  }
  Statements::Softmax softmax =
      s.softmax(t, points.size(), rows, points, sizes, sink, sinkDims);
  SmallVector<unsigned> values = {0, 1, j, inner};
  Value sum = s.emit(inner + 1, {{softmax.p, points}, {op.getValue(), values}},
                     out, sizesE, accumulator, 0.0, contraction, "e");

  SmallVector<OpFoldResult> outSizes(sizes.begin(), sizes.begin() + i + 1);
  outSizes.push_back(sizesE.back());
  SmallVector<unsigned> outAll = llvm::to_vector(llvm::seq(i + 2));
  Value o = s.emit(i + 2, {{sum, outAll}, {softmax.sum, rows}}, outAll,
                   outSizes, element, std::nullopt,
                   [&](OpBuilder &builder, Location loc, ValueRange args) {
                     return normalize(builder, loc, args[0], args[1], element);
                   }, "e");
  SmallVector<Value> results = {heads.join(b, o, op.getOutput().getType())};
  if (op.getLse()) {
    Value lse = s.emit(
        i + 1, {{softmax.guarded, rows}, {softmax.sum, rows}}, rows, sizes,
        accumulator, std::nullopt,
        [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
          // log 0 = -inf: a fully masked row.
          Value log = math::LogOp::create(builder, loc, args[1]);
          return arith::AddFOp::create(builder, loc, args[0], log);
        });
    results.push_back(heads.join(b, lse, op.getLse().getType()));
  }
  op->replaceAllUsesWith(results);
  op->erase();
}

void expandSoftmax(SoftmaxOp op) {
  FloatType accumulator = op.getAccumulatorType();
  Type element = op.getInput().getType().getElementType();
  Statements s(op, accumulator);
  unsigned rank = op.getInput().getType().getRank();
  SmallVector<OpFoldResult> sizes =
      tensor::getMixedSizes(s.b, s.b.getLoc(), op.getInput());
  SmallVector<unsigned> points = llvm::to_vector(llvm::seq(rank));
  SmallVector<unsigned> rows = llvm::to_vector(llvm::seq(rank - 1));
  for (unsigned dim = 0; dim < rank; ++dim)
    s.names.push_back(dim == rank - 1 ? "j" : dim + 2 == rank ? "i" : "b");
  for (unsigned dim = 0; dim + 2 < rank; ++dim)
    s.names[dim] = StringAttr::get(op.getContext(), "b" + Twine(dim)).getValue();
  auto indices = [&](OpBuilder &builder, Location loc) {
    SmallVector<Value> result;
    for (unsigned loop : points)
      result.push_back(linalg::IndexOp::create(builder, loc, loop));
    return result;
  };
  Value t = s.emit(
      rank, {{op.getInput(), points}}, points, sizes, accumulator,
      std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
        Value x = extend(builder, loc, args[0], accumulator);
        SmallVector<Value> index = indices(builder, loc);
        if (!op.getScore().empty()) {
          SmallVector<Value> arguments = {x};
          llvm::append_range(arguments, index);
          llvm::append_range(arguments, op.getCaptures());
          x = inlineRegion(builder, op.getScore(), arguments);
        }
        if (op.getMask().empty())
          return x;
        llvm::append_range(index, op.getCaptures());
        Value keep = inlineRegion(builder, op.getMask(), index);
        return arith::SelectOp::create(builder, loc, keep, x,
                                       minusInfinity(builder, loc, accumulator));
      });
  Statements::Softmax softmax =
      s.softmax(t, rank, rows, points, sizes, Value(), {});
  Value y = s.emit(rank, {{softmax.p, points}, {softmax.sum, rows}}, points,
                   sizes, element, std::nullopt,
                   [&](OpBuilder &builder, Location loc, ValueRange args) {
                     return normalize(builder, loc, args[0], args[1], element);
                   });
  if (y.getType() != op.getType())
    y = tensor::CastOp::create(s.b, op.getType(), y);
  op->replaceAllUsesWith(ValueRange(y));
  op->erase();
}

struct ExpandPass : attn::impl::AttnExpandBase<ExpandPass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) {
      if (isa<ForwardOp, SoftmaxOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      if (auto forward = dyn_cast<ForwardOp>(op))
        expandForward(forward);
      else
        expandSoftmax(cast<SoftmaxOp>(op));
    }
  }
};
} // namespace
