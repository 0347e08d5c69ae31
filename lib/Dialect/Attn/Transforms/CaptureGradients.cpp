// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients of captures, by how the score reads them.
//
// A dimension of a capture that is read at an index of the region (b, h, i, j)
// is a dimension of the iteration space: the gradient is summed over those that
// no dimension of the capture is. A dimension that is read at a constant has
// one element that counts. Any other index is a function of the pair. Its
// dimension is one more of the iteration space, where each pair adds to the
// one element that its index names; that takes a whole table for each worker.
// There is none where another dimension is that of queries or keys, and none is
// needed where the index depends on neither. Then the gradient is summed over
// what no index depends on, and attn.scatter_sum adds the sums up where they
// belong.

#include "Statements.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

/// The ops of the gradient region that `values` are computed by.
static SetVector<Operation *> getSlice(ValueRange values) {
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitUsesFromAbove = false;
  options.omitBlockArguments = true;
  for (Value value : values)
    if (Operation *definition = value.getDefiningOp())
      (void)getBackwardSlice(definition, &slice, options);
  return slice;
}

/// The arguments of the gradient region that `values` depend on, by number.
static llvm::SmallBitVector getArguments(ValueRange values, Block &region) {
  llvm::SmallBitVector arguments(region.getNumArguments());
  auto add = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() == &region)
      arguments.set(argument.getArgNumber());
  };
  llvm::for_each(values, add);
  for (Operation *op : getSlice(values))
    op->walk([&](Operation *inner) { llvm::for_each(inner->getOperands(), add); });
  return arguments;
}

/// Whether `value` is the index `number` of the gradient region.
static bool isIndex(Value value, Block &region, unsigned number) {
  auto argument = dyn_cast<BlockArgument>(value);
  return argument && argument.getOwner() == &region && argument.getArgNumber() == number + 1;
}

LogicalResult attn::checkCaptureReads(Region &gradient, unsigned numIndices,
                                      function_ref<bool(unsigned)> isWanted) {
  if (gradient.empty())
    return success();
  Block &region = gradient.front();
  for (auto op : region.getOps<AccumulateOp>()) {
    auto capture = cast<BlockArgument>(op.getCapture());
    bool hasOwnOfPair = llvm::any_of(op.getIndices(), [&](Value index) {
      return isIndex(index, region, numIndices - 1) ||
             (numIndices > 1 && isIndex(index, region, numIndices - 2));
    });
    llvm::SmallBitVector on = getArguments(op.getIndices(), region);
    bool dependsOnScore = on.test(0) || on.test(region.getNumArguments() - 1);
    if (hasOwnOfPair && dependsOnScore && isWanted(capture.getArgNumber() - 1 - numIndices))
      return op.emitError("expected indices that are computed of other indices and of captures, "
                          "where the gradient of a capture is read at one of queries or keys, got "
                          "one that is computed of the score");
  }
  return success();
}

namespace {
/// One attn.accumulate of a gradient region.
class Contribution {
public:
  Contribution(Statements &s, const ScalarRegions &regions, const ScoreGradients &gradients,
               AccumulateOp op, Value capture, RankedTensorType type)
      : s(s), regions(regions), gradients(gradients), op(op), capture(capture), type(type) {}

  /// The gradient that this accumulation alone gives, in its accumulator type
  /// and the capture's shape.
  /// With `rounded`, in the capture's type.
  Value build(bool rounded);

private:
  const ScalarRegions::Index *getPlain(Value index) const;
  bool isOfPair(const ScalarRegions::Index &index) const;
  llvm::SmallBitVector findScattered();
  void classify();
  void classifyScattered(const llvm::SmallBitVector &scattered);
  Value sumOverPairs();
  Value place(Value sum);
  Value scatter(Value sum);
  Value zeros(Type element);

  Statements &s;
  const ScalarRegions &regions;
  const ScoreGradients &gradients;
  AccumulateOp op;
  Value capture;
  RankedTensorType type;
  /// Dimensions of the iteration space that the capture's are, in its order.
  SmallVector<unsigned> out;
  /// Where those of one dimension of the capture are two.
  SmallVector<ReassociationIndices> joined;
  /// Where the sum lies in the gradient.
  SmallVector<OpFoldResult> offsets, sizes;
  /// Computed indices with their dimensions.
  SmallVector<std::pair<Value, unsigned>> computed;
  /// What is scattered has these indices of the region as dimensions, then those of tables
  /// at these positions.
  SmallVector<BlockArgument> coordinates;
  SmallVector<unsigned> tables;
};
} // namespace

/// The index of the region that `index` is, or null.
const ScalarRegions::Index *Contribution::getPlain(Value index) const {
  auto argument = dyn_cast<BlockArgument>(index);
  if (!argument || argument.getOwner() != &regions.gradient.front() ||
      argument.getArgNumber() == 0 || argument.getArgNumber() > regions.indices.size())
    return nullptr;
  return &regions.indices[argument.getArgNumber() - 1];
}

bool Contribution::isOfPair(const ScalarRegions::Index &index) const {
  Dims pair = gradients.points.take_back(std::min<size_t>(2, gradients.points.size()));
  return llvm::any_of(index.dims, [&](unsigned dim) { return llvm::is_contained(pair, dim); });
}

/// The positions at which an index is computed whose sum is added up behind the nest. A table
/// takes the others: those of queries and keys, where no other position has one itself.
llvm::SmallBitVector Contribution::findScattered() {
  Block &region = regions.gradient.front();
  llvm::SmallBitVector computed(op.getIndices().size());
  SmallVector<const ScalarRegions::Index *> used;
  bool hasOwnOfPair = false;
  for (auto [position, index] : llvm::enumerate(op.getIndices())) {
    const ScalarRegions::Index *plain = getPlain(index);
    if (plain && !llvm::is_contained(used, plain)) {
      used.push_back(plain);
      hasOwnOfPair |= isOfPair(*plain);
    } else {
      computed[position] = !matchPattern(index, m_Constant());
    }
  }
  llvm::SmallBitVector scattered = computed;
  for (unsigned position : computed.set_bits()) {
    llvm::SmallBitVector on = getArguments(op.getIndices()[position], region);
    bool dependsOnPair = llvm::any_of(llvm::enumerate(regions.indices), [&](auto index) {
      return on.test(index.index() + 1) && isOfPair(index.value());
    });
    bool dependsOnScore = on.test(0) || on.test(region.getNumArguments() - 1);
    scattered[position] = !dependsOnScore && (hasOwnOfPair || !dependsOnPair);
  }
  return scattered;
}

/// The sum has the indices of the region that those of the read depend on, then the tables'
/// dimensions.
void Contribution::classifyScattered(const llvm::SmallBitVector &scattered) {
  ImplicitLocOpBuilder &b = s.b;
  Block &region = regions.gradient.front();
  SmallVector<Value> behind;
  for (auto [position, index] : llvm::enumerate(op.getIndices())) {
    if (scattered[position] || getPlain(index))
      behind.push_back(index);
    else if (!matchPattern(index, m_Constant()))
      tables.push_back(position);
  }
  llvm::SmallBitVector on = getArguments(behind, region);
  for (auto [number, index] : llvm::enumerate(regions.indices)) {
    if (!on.test(number + 1))
      continue;
    coordinates.push_back(region.getArgument(number + 1));
    ReassociationIndices group;
    for (unsigned dim : index.dims) {
      group.push_back(out.size());
      out.push_back(dim);
    }
    joined.push_back(group);
  }
  for (unsigned position : tables) {
    unsigned dim = s.addDim("n", tensor::getMixedSize(b, b.getLoc(), capture, position));
    joined.push_back({int64_t(out.size())});
    out.push_back(dim);
    computed.push_back({op.getIndices()[position], dim});
  }
}

void Contribution::classify() {
  ImplicitLocOpBuilder &b = s.b;
  SmallVector<const ScalarRegions::Index *> used;
  for (auto [position, index] : llvm::enumerate(op.getIndices())) {
    OpFoldResult zero = b.getIndexAttr(0);
    const ScalarRegions::Index *plain = getPlain(index);
    if (plain && !llvm::is_contained(used, plain)) {
      used.push_back(plain);
      ReassociationIndices group;
      OpFoldResult size = s.getSize(plain->dims[0]);
      for (unsigned dim : plain->dims) {
        group.push_back(out.size());
        out.push_back(dim);
      }
      if (plain->dims.size() == 2) {
        AffineExpr x, y;
        bindSymbols(b.getContext(), x, y);
        size = affine::makeComposedFoldedAffineApply(b, b.getLoc(), x * y,
                                                     {size, s.getSize(plain->dims[1])});
      }
      joined.push_back(group);
      offsets.push_back(zero);
      sizes.push_back(size);
      continue;
    }
    if (IntegerAttr constant; matchPattern(index, m_Constant(&constant))) {
      offsets.push_back(b.getIndexAttr(constant.getInt()));
      sizes.push_back(b.getIndexAttr(1));
      continue;
    }
    OpFoldResult size = tensor::getMixedSize(b, b.getLoc(), capture, position);
    unsigned dim = s.addDim("n", size);
    joined.push_back({int64_t(out.size())});
    out.push_back(dim);
    computed.push_back({index, dim});
    offsets.push_back(zero);
    sizes.push_back(size);
  }
}

/// The sum over all pairs, with the dimensions `out`. Within the nest it is
/// taken along the keys, or along the queries where the keys are kept, so that
/// it is carried by the same loops as dQ or dK; what is left of it is small. At
/// computed indices it is taken along both: a table per row would not be small.
Value Contribution::sumOverPairs() {
  SmallVector<unsigned> domain(gradients.points), kept;
  unsigned keys = gradients.points.back();
  Dims rest = gradients.points.drop_back();
  bool keepsKeys = llvm::is_contained(out, keys);
  bool alongKeys = !keepsKeys;
  bool keepsRows = !rest.empty() && llvm::is_contained(out, rest.back());
  bool alongRows = !rest.empty() && !keepsRows && (keepsKeys || !computed.empty());
  // A table for each so many rows, if there may be more: one more index of one
  // larger table.
  std::optional<unsigned> rowBlock;
  auto isFew = [&](OpFoldResult rows) {
    std::optional<int64_t> known = getConstantIntValue(rows);
    return known && *known <= gradients.tableRows;
  };
  if (gradients.tableRows > 0 && alongRows && alongKeys && !isFew(s.getSize(rest.back()))) {
    OpFoldResult blocks = affine::makeComposedFoldedAffineApply(
        s.b, s.b.getLoc(), s.b.getAffineDimExpr(0).ceilDiv(gradients.tableRows),
        {s.getSize(rest.back())});
    rowBlock = s.addDim("r", blocks);
    domain.push_back(*rowBlock);
  }
  for (auto [index, dim] : computed)
    domain.push_back(dim);
  for (unsigned dim : domain)
    if (!(alongKeys && dim == keys) && !(alongRows && dim == rest.back()))
      kept.push_back(dim);
  bool isApart = keepsKeys && keepsRows && gradients.computeAgain;
  SmallVector<Access> inputs;
  for (Value pair : isApart ? gradients.computeAgain() : gradients.pairs)
    inputs.push_back({pair, gradients.points});
  bool reduces = kept.size() < domain.size();
  // In the capture's order at once where nothing is summed later.
  if (kept.size() == out.size())
    kept = out;
  Type accumulator = op.getValue().getType();
  Value ofPairs = s.emit(
      domain, inputs, kept, accumulator, reduces ? std::optional(0.0) : std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
        IRMapping mapping;
        gradients.apply(builder, loc, domain, args, mapping);
        Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(accumulator));
        Value term = mapping.lookupOrDefault(op.getValue());
        // A derivative may be infinite where the pair is masked.
        term = regions.select(builder, loc, domain, term, zero);
        auto indexOf = [&](unsigned dim) -> Value {
          return linalg::IndexOp::create(builder, loc, llvm::find(domain, dim) - domain.begin());
        };
        auto keepWhere = [&](Value index, unsigned dim) {
          Value same =
              arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, index, indexOf(dim));
          term = arith::SelectOp::create(builder, loc, same, term, zero);
        };
        if (rowBlock) {
          Value size = arith::ConstantIndexOp::create(builder, loc, gradients.tableRows);
          Value block = arith::DivUIOp::create(builder, loc, indexOf(rest.back()), size);
          keepWhere(block, *rowBlock);
        }
        for (auto [index, dim] : computed)
          keepWhere(mapping.lookupOrDefault(index), dim);
        return reduces ? arith::AddFOp::create(builder, loc, args.back(), term) : term;
      });
  return s.sum(ofPairs, kept, out, /*atOnce=*/isApart);
}

/// The sum where it belongs in the gradient, zeros elsewhere.
Value Contribution::place(Value sum) {
  ImplicitLocOpBuilder &b = s.b;
  auto sumType = cast<RankedTensorType>(sum.getType());
  if (joined.size() < unsigned(sumType.getRank()))
    sum = tensor::CollapseShapeOp::create(b, sum, joined);
  sumType = cast<RankedTensorType>(sum.getType());
  RankedTensorType whole = type.clone(sumType.getElementType());
  bool covers = sumType.getRank() == whole.getRank();
  for (unsigned dim = 0; covers && dim < whole.getRank(); ++dim)
    covers &= !whole.isDynamicDim(dim) && sumType.getDimSize(dim) == whole.getDimSize(dim);
  if (covers)
    return sum;
  SmallVector<OpFoldResult> strides(whole.getRank(), b.getIndexAttr(1));
  return tensor::InsertSliceOp::create(b, sum, zeros(whole.getElementType()), offsets, sizes,
                                       strides);
}

/// A tensor of the capture's sizes.
Value Contribution::zeros(Type element) {
  ImplicitLocOpBuilder &b = s.b;
  Value empty = tensor::EmptyOp::create(b, tensor::getMixedSizes(b, b.getLoc(), capture), element);
  return linalg::FillOp::create(b, s.constant(0.0, element), empty).getResult(0);
}

/// The sum added up at the indices of the read.
Value Contribution::scatter(Value sum) {
  ImplicitLocOpBuilder &b = s.b;
  auto sumType = cast<RankedTensorType>(sum.getType());
  if (joined.size() < unsigned(sumType.getRank()))
    sum = tensor::CollapseShapeOp::create(b, sum, joined);
  Value dest = zeros(sumType.getElementType());
  auto scattered = ScatterSumOp::create(b, op.getLoc(), dest.getType(), sum, dest);
  Block &region = regions.gradient.front();
  Block &at = scattered.getAt().emplaceBlock();
  IRMapping mapping;
  for (BlockArgument coordinate : coordinates)
    mapping.map(coordinate, at.addArgument(b.getIndexType(), op.getLoc()));
  for (auto [number, value] : llvm::enumerate(regions.captures))
    mapping.map(region.getArgument(1 + regions.indices.size() + number), value);
  SmallVector<Value> indices(op.getIndices());
  for (unsigned position : tables)
    indices[position] = at.addArgument(b.getIndexType(), op.getLoc());
  OpBuilder inner = OpBuilder::atBlockBegin(&at);
  SetVector<Operation *> slice = getSlice(indices);
  for (Operation &computing : region)
    if (slice.contains(&computing))
      inner.clone(computing, mapping);
  for (Value &index : indices)
    index = mapping.lookupOrDefault(index);
  YieldOp::create(inner, op.getLoc(), indices);
  return scattered.getResult();
}

Value Contribution::build(bool rounded) {
  if (llvm::SmallBitVector scattered = findScattered(); scattered.any()) {
    classifyScattered(scattered);
    return scatter(sumOverPairs());
  }
  classify();
  Value sum = sumOverPairs();
  if (rounded)
    sum = s.round(sum, out, type.getElementType());
  return place(sum);
}

/// An elementwise statement on whole tensors of one shape.
static Value combine(ImplicitLocOpBuilder &b, ArrayRef<Value> inputs, Type element,
                     StatementBody body) {
  auto type = cast<RankedTensorType>(inputs[0].getType());
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq<unsigned>(type.getRank()));
  SmallVector<Access> accesses;
  for (Value input : inputs)
    accesses.push_back({input, all});
  Value out = tensor::EmptyOp::create(b, tensor::getMixedSizes(b, b.getLoc(), inputs[0]), element);
  return buildStatement(b, type.getRank(), accesses, {out, all}, body);
}

Value attn::buildCaptureGradient(Statements &s, const ScalarRegions &regions,
                                 const ScoreGradients &gradients, unsigned index,
                                 RankedTensorType type) {
  ImplicitLocOpBuilder &b = s.b;
  Value capture = regions.captures[index];
  Value total;
  if (!regions.gradient.empty()) {
    Block &region = regions.gradient.front();
    BlockArgument argument = region.getArgument(1 + regions.indices.size() + index);
    auto reads = llvm::filter_to_vector(region.getOps<AccumulateOp>(), [&](AccumulateOp op) {
      return op.getCapture() == argument;
    });
    for (AccumulateOp op : reads) {
      Value part = Contribution(s, regions, gradients, op, capture, type)
                       .build(/*rounded=*/reads.size() == 1);
      if (!total) {
        total = part;
        continue;
      }
      total = combine(b, {total, part}, getElementTypeOrSelf(total),
                      [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                        return arith::AddFOp::create(builder, loc, args[0], args[1]);
                      });
    }
  }
  if (!total) {
    SmallVector<OpFoldResult> sizes;
    for (unsigned dim = 0; dim < type.getRank(); ++dim)
      sizes.push_back(tensor::getMixedSize(b, b.getLoc(), capture, dim));
    Value empty = tensor::EmptyOp::create(b, sizes, type.getElementType());
    total = linalg::FillOp::create(b, s.constant(0.0, type.getElementType()), empty).getResult(0);
  }
  Type element = type.getElementType();
  if (getElementTypeOrSelf(total) != element)
    total = combine(b, {total}, element, [&](OpBuilder &builder, Location loc, ValueRange args) {
      return truncate(builder, loc, args[0], element);
    });
  if (total.getType() != type)
    total = tensor::CastOp::create(b, type, total);
  return total;
}
