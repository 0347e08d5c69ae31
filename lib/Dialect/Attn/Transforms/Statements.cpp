// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Statements.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

static unsigned position(Dims domain, unsigned dim) {
  const unsigned *at = llvm::find(domain, dim);
  assert(at != domain.end() && "a statement runs over what it reads");
  return at - domain.begin();
}

SmallVector<unsigned> attn::with(Dims dims, Dims more) {
  SmallVector<unsigned> result(dims);
  llvm::append_range(result, more);
  return result;
}

Value Statements::emit(Dims domain, ArrayRef<Access> inputs, Dims out, Type element,
                       std::optional<double> init, StatementBody body) {
  SmallVector<OpFoldResult> outSizes;
  for (unsigned dim : out)
    outSizes.push_back(sizes[dim]);
  Value tensor = tensor::EmptyOp::create(b, outSizes, element);
  if (init)
    tensor = linalg::FillOp::create(b, constant(*init, element), tensor).getResult(0);
  auto loops = [&](Dims dims) {
    return llvm::map_to_vector(dims, [&](unsigned dim) { return position(domain, dim); });
  };
  SmallVector<SmallVector<unsigned>> positions;
  for (const Access &input : inputs)
    positions.push_back(loops(input.loops));
  SmallVector<Access> accesses;
  for (auto [input, at] : llvm::zip(inputs, positions))
    accesses.push_back({input.tensor, at});
  Value result = buildStatement(b, domain.size(), accesses, {tensor, loops(out)}, body);
  SmallVector<StringRef> loopNames;
  for (unsigned dim : domain)
    loopNames.push_back(names[dim]);
  result.getDefiningOp()->setAttr(kDimsAttr, b.getStrArrayAttr(loopNames));
  return result;
}

Value Statements::sum(Value value, Dims from, Dims to, bool atOnce) {
  Type element = cast<RankedTensorType>(value.getType()).getElementType();
  auto add = [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
    return arith::AddFOp::create(builder, loc, args[1], args[0]);
  };
  if (atOnce && to.size() < from.size())
    return emit(from, {{value, from}}, to, element, 0.0, add);
  SmallVector<unsigned> dims(from);
  // The last dimension first: it has the most terms.
  for (unsigned dim : llvm::reverse(from)) {
    if (llvm::is_contained(to, dim))
      continue;
    SmallVector<unsigned> kept(dims);
    llvm::erase(kept, dim);
    if (kept.size() == to.size())
      kept.assign(to.begin(), to.end());
    value = emit(dims, {{value, dims}}, kept, element, 0.0, add);
    dims = kept;
  }
  return value;
}

Value Statements::round(Value value, Dims dims, Type element, Value factor) {
  Type type = cast<RankedTensorType>(value.getType()).getElementType();
  if (!factor && type == element)
    return value;
  return emit(dims, {{value, dims}}, dims, element, std::nullopt,
              [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                Value result = args[0];
                if (factor)
                  result = arith::MulFOp::create(builder, loc, result, factor);
                return truncate(builder, loc, result, element);
              });
}

Value Statements::constant(double value, Type type) {
  return arith::ConstantOp::create(b, b.getFloatAttr(type, value));
}

Value attn::multiplyAdd(OpBuilder &builder, Location loc, ValueRange args) {
  Type type = args[2].getType();
  Value x = extend(builder, loc, args[0], type);
  Value y = extend(builder, loc, args[1], type);
  Value product = arith::MulFOp::create(builder, loc, x, y);
  return arith::AddFOp::create(builder, loc, args[2], product);
}

Value attn::extend(OpBuilder &builder, Location loc, Value value, Type type) {
  return value.getType() == type ? value
                                 : arith::ExtFOp::create(builder, loc, type, value).getResult();
}

Value attn::truncate(OpBuilder &builder, Location loc, Value value, Type type) {
  return value.getType() == type ? value
                                 : arith::TruncFOp::create(builder, loc, type, value).getResult();
}

Value attn::inlineRegion(OpBuilder &builder, Region &region, ValueRange arguments,
                         IRMapping &mapping) {
  mapping.map(region.front().getArguments(), arguments);
  for (Operation &op : region.front().without_terminator())
    if (!isa<AccumulateOp>(op))
      builder.clone(op, mapping);
  return mapping.lookupOrDefault(region.front().getTerminator()->getOperand(0));
}

Softmax attn::buildSoftmax(Statements &s, Value score, Dims rows, Dims points, Value sink,
                           Dims sinkDims) {
  FloatType accumulator = s.accumulator;
  Softmax result;
  // max_j t, or of t and the sink, which is one more score of every row.
  result.max =
      s.emit(points, {{score, points}}, rows, accumulator, -std::numeric_limits<double>::infinity(),
             [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
               return arith::MaxNumFOp::create(builder, loc, args[1], args[0]);
             });
  if (sink)
    result.max =
        s.emit(rows, {{result.max, rows}, {sink, sinkDims}}, rows, accumulator, std::nullopt,
               [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                 return arith::MaxNumFOp::create(builder, loc, args[0], args[1]);
               });
  // A fully masked row has m = -inf; subtract 0 there, so that p = exp(-inf).
  result.guarded = s.emit(
      rows, {{result.max, rows}}, rows, accumulator, std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
        Value infinity = minusInfinity(builder, loc, accumulator);
        Value dead =
            arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, args[0], infinity);
        Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(accumulator));
        return arith::SelectOp::create(builder, loc, dead, zero, args[0]);
      });
  result.p = s.emit(points, {{score, points}, {result.guarded, rows}}, points, accumulator,
                    std::nullopt, [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                      Value d = arith::SubFOp::create(builder, loc, args[0], args[1]);
                      return math::ExpOp::create(builder, loc, d);
                    });
  result.sum = s.sum(result.p, points, rows);
  if (sink)
    result.sum = s.emit(rows, {{result.sum, rows}, {result.guarded, rows}, {sink, sinkDims}}, rows,
                        accumulator, std::nullopt,
                        [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                          Value d = arith::SubFOp::create(builder, loc, args[2], args[1]);
                          Value e = math::ExpOp::create(builder, loc, d);
                          return arith::AddFOp::create(builder, loc, args[0], e);
                        });
  return result;
}

//===----------------------------------------------------------------------===//
// ScalarRegions
//===----------------------------------------------------------------------===//

SmallVector<Value> ScalarRegions::indexValues(OpBuilder &builder, Location loc, Dims domain) const {
  SmallVector<Value> values;
  for (const Index &index : indices) {
    Value value = linalg::IndexOp::create(builder, loc, position(domain, index.dims[0]));
    if (index.dims.size() == 2) {
      Value size = getValueOrCreateConstantIndexOp(builder, loc, index.innerSize);
      Value outer = arith::MulIOp::create(builder, loc, value, size);
      Value inner = linalg::IndexOp::create(builder, loc, position(domain, index.dims[1]));
      value = arith::AddIOp::create(builder, loc, outer, inner);
    }
    values.push_back(value);
  }
  return values;
}

Value ScalarRegions::applyScore(OpBuilder &builder, Location loc, Dims domain, Value value) const {
  if (score.empty())
    return value;
  SmallVector<Value> arguments = {value};
  llvm::append_range(arguments, indexValues(builder, loc, domain));
  llvm::append_range(arguments, captures);
  IRMapping mapping;
  return inlineRegion(builder, score, arguments, mapping);
}

Value ScalarRegions::applyGradient(OpBuilder &builder, Location loc, Dims domain, Value value,
                                   Value dt, IRMapping &mapping) const {
  if (gradient.empty())
    return dt;
  SmallVector<Value> arguments = {value};
  llvm::append_range(arguments, indexValues(builder, loc, domain));
  llvm::append_range(arguments, captures);
  arguments.push_back(dt);
  return inlineRegion(builder, gradient, arguments, mapping);
}

Value ScalarRegions::select(OpBuilder &builder, Location loc, Dims domain, Value value,
                            Value otherwise) const {
  if (mask.empty())
    return value;
  SmallVector<Value> arguments = indexValues(builder, loc, domain);
  llvm::append_range(arguments, captures);
  IRMapping mapping;
  Value keep = inlineRegion(builder, mask, arguments, mapping);
  return arith::SelectOp::create(builder, loc, keep, value, otherwise);
}

Value ScalarRegions::applyFactor(OpBuilder &builder, Location loc, Dims domain, Value value) const {
  if (!factor || factor->empty())
    return value;
  SmallVector<Value> arguments = indexValues(builder, loc, domain);
  llvm::append_range(arguments, captures);
  IRMapping mapping;
  Value times = inlineRegion(builder, *factor, arguments, mapping);
  return arith::MulFOp::create(builder, loc, value, times);
}

//===----------------------------------------------------------------------===//
// AttentionStatements
//===----------------------------------------------------------------------===//

/// Query heads that share a key head, about, where that is open.
static constexpr int64_t kHeadsOfGroup = 4;

/// Lays out the iteration space (b, h, i, j, d, e), where h is (key head,
/// group) unless both counts are known to be the same.
void AttentionStatements::splitHeads(Value wholeQuery, bool ungrouped) {
  auto queryType = cast<RankedTensorType>(wholeQuery.getType());
  auto keyType = cast<RankedTensorType>(key.getType());
  auto size = [&](Value tensor, unsigned dim) {
    return tensor::getMixedSize(b, b.getLoc(), tensor, dim);
  };
  int64_t q = queryType.getDimSize(1), k = keyType.getDimSize(1);
  grouped = !ungrouped && (ShapedType::isDynamic(q) || q != k);
  keyHeads = size(key, 1);
  if (ungrouped) {
    group = b.getIndexAttr(1);
  } else if (!ShapedType::isDynamic(q) && !ShapedType::isDynamic(k)) {
    group = b.getIndexAttr(k == 0 ? 1 : q / k);
  } else {
    Value queryHeads = tensor::DimOp::create(b, wholeQuery, 1);
    // Without heads there is no group, but the host must not divide by zero.
    Value divisor = getValueOrCreateConstantIndexOp(b, b.getLoc(), keyHeads);
    divisor = b.createOrFold<arith::MaxUIOp>(divisor, arith::ConstantIndexOp::create(b, 1));
    auto size = arith::DivUIOp::create(b, queryHeads, divisor);
    size->setAttr(kExpectedSizeAttr, b.getI64IntegerAttr(kHeadsOfGroup));
    group = size.getResult();
  }
  query = split(wholeQuery);
  unsigned batch = addDim("b", size(query, 0));
  heads = {addDim("h", size(query, 1))};
  if (grouped)
    heads.push_back(addDim("g", group));
  unsigned row = heads.size() + 1;
  i = addDim("i", size(query, row));
  j = addDim("j", size(key, 2));
  d = addDim("d", size(query, row + 1));
  e = addDim("e", size(value, 3));
  rows = with(with(batch, heads), i);
  points = with(rows, j);
  keys = {batch, heads[0], j, d};
  values = {batch, heads[0], j, e};
  regions.indices = {{{batch}, {}}, {{heads.begin(), heads.end()}, group}, {{i}, {}}, {{j}, {}}};
}

static SmallVector<ReassociationIndices> splitAt(unsigned headDim, unsigned rank) {
  SmallVector<ReassociationIndices> result;
  for (unsigned dim = 0; dim < rank; ++dim) {
    if (dim == headDim)
      result.push_back({dim, dim + 1});
    else
      result.push_back({dim < headDim ? dim : dim + 1});
  }
  return result;
}

Value AttentionStatements::split(Value tensor, unsigned headDim) {
  auto type = cast<RankedTensorType>(tensor.getType());
  std::optional<int64_t> outer = getConstantIntValue(keyHeads), inner = getConstantIntValue(group);
  if (outer && inner && type.isDynamicDim(headDim)) {
    // As many heads as the query, whose number is known; once, so that all who read them read the
    // same value.
    SmallVector<int64_t> known(type.getShape());
    known[headDim] = *outer * *inner;
    type = RankedTensorType::get(known, type.getElementType());
    tensor = tensor::CastOp::create(b, type, tensor);
  }
  if (!grouped)
    return tensor;
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), tensor);
  sizes[headDim] = keyHeads;
  sizes.insert(sizes.begin() + headDim + 1, group);
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamic;
  dispatchIndexOpFoldResults(sizes, dynamic, shape);
  return tensor::ExpandShapeOp::create(b, RankedTensorType::get(shape, type.getElementType()),
                                       tensor, splitAt(headDim, type.getRank()), sizes);
}

Value AttentionStatements::join(Value tensor, Type type, unsigned headDim) {
  if (grouped) {
    unsigned rank = cast<RankedTensorType>(type).getRank();
    tensor = tensor::CollapseShapeOp::create(b, tensor, splitAt(headDim, rank));
  }
  if (tensor.getType() != type)
    tensor = tensor::CastOp::create(b, type, tensor);
  return tensor;
}

Value AttentionStatements::scores() {
  return emit(with(points, d), {{query, with(rows, d)}, {key, keys}}, points, accumulator, 0.0,
              multiplyAdd);
}

Value AttentionStatements::maskedScores(Value s) {
  Value t = emit(points, {{s, points}}, points, accumulator, std::nullopt,
                 [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                   Value scaled = arith::MulFOp::create(builder, loc, args[0], scale);
                   return regions.applyScore(builder, loc, points, scaled);
                 });
  if (regions.mask.empty())
    return t;
  return emit(points, {{t, points}}, points, accumulator, std::nullopt,
              [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                return regions.select(builder, loc, points, args[0],
                                      minusInfinity(builder, loc, accumulator));
              });
}

Value AttentionStatements::factoredWeights(Value p) {
  if (regions.factor->empty())
    return p;
  return emit(points, {{p, points}}, points, accumulator, std::nullopt,
              [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                return regions.applyFactor(builder, loc, points, args[0]);
              });
}

SmallVector<unsigned> attn::addSoftmaxDims(Statements &s, Value tensor, ScalarRegions &regions) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(s.b, s.b.getLoc(), tensor);
  unsigned rank = sizes.size();
  SmallVector<unsigned> points;
  for (auto [dim, size] : llvm::enumerate(sizes)) {
    std::string name = "b" + std::to_string(dim);
    if (dim + 2 >= rank)
      name = dim + 1 == rank ? "j" : "i";
    points.push_back(s.addDim(s.b.getStringAttr(name).getValue(), size));
    regions.indices.push_back({{points.back()}, {}});
  }
  return points;
}
