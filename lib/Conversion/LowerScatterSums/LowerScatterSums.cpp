// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.scatter_sum as loops. Each element has one writer: positions that may name the same one
// belong to one iteration of the parallel loop, and come in order.

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNLOWERSCATTERSUMS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numLowered("attn-lower-scatter-sums", "lowered",
                             "Sums at computed indices that became loops");

namespace {
/// Elements of a row that one iteration of a parallel loop takes: some cache lines.
constexpr int64_t kBlock = 64;
/// Parts of a destination that has no dimension of its own in the values.
constexpr int64_t kParts = 16;

class ScatterLoops {
public:
  explicit ScatterLoops(attn::ScatterSumOp op)
      : op(op), b(op->getLoc(), op), body(op.getAt().front()) {}
  void emit();

private:
  void classify();
  bool isPlain(unsigned coordinate) const { return ownDims.contains(coordinate); }
  std::optional<unsigned> findDividedDim() const;
  Value constant(int64_t value) { return arith::ConstantIndexOp::create(b, value); }
  void bind(unsigned coordinate, Value value);
  void loop(unsigned coordinate, Value first, Value end);
  void emitKnownIndices();
  Value cloneIndex(unsigned dim);
  void add();

  attn::ScatterSumOp op;
  ImplicitLocOpBuilder b;
  Block &body;
  /// Of a coordinate that is itself an index, the dimension of the destination.
  llvm::SmallDenseMap<unsigned, unsigned> ownDims;
  /// Dimensions of the destination with an index that is none of these, and the coordinates
  /// that it depends on.
  llvm::SmallMapVector<unsigned, llvm::SmallBitVector, 4> computed;
  SmallVector<Value> destSizes, ends;
  /// What is known inside of the loops so far.
  IRMapping mapping;
  llvm::SmallBitVector bound;
  SmallVector<Value> indices;
  /// The dimension that is divided, and the part of this iteration.
  std::optional<unsigned> divided;
  Value partBegin, partSize;
};
} // namespace

/// The ops of the region that `index` is computed by.
static SetVector<Operation *> sliceOf(Value index, Block &body) {
  SetVector<Operation *> slice;
  if (index.getParentBlock() != &body || isa<BlockArgument>(index))
    return slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitUsesFromAbove = false;
  options.omitBlockArguments = true;
  options.filter = [&](Operation *op) { return op->getBlock() == &body; };
  // Ops are reached through operands only; all of them can be followed.
  (void)getBackwardSlice(index, &slice, options);
  return slice;
}

void ScatterLoops::classify() {
  unsigned rank = body.getNumArguments();
  for (auto [dim, index] : llvm::enumerate(op.getIndices())) {
    auto argument = dyn_cast<BlockArgument>(index);
    bool isArgument = argument && argument.getOwner() == &body;
    if (isArgument && ownDims.try_emplace(argument.getArgNumber(), dim).second)
      continue;
    llvm::SmallBitVector on(rank);
    if (isArgument)
      on.set(argument.getArgNumber());
    for (Operation *inner : sliceOf(index, body))
      inner->walk([&](Operation *user) {
        for (Value operand : user->getOperands())
          if (auto used = dyn_cast<BlockArgument>(operand); used && used.getOwner() == &body)
            on.set(used.getArgNumber());
      });
    computed.insert({unsigned(dim), on});
  }
}

/// A computed dimension to share out among threads where no coordinate can be: each thread runs
/// along the one coordinate of its index, and goes on where the index is its own.
std::optional<unsigned> ScatterLoops::findDividedDim() const {
  if (!ownDims.empty())
    return std::nullopt;
  for (const auto &[dim, on] : computed)
    if (on.count() == 1)
      return dim;
  return std::nullopt;
}

Value ScatterLoops::cloneIndex(unsigned dim) {
  Value index = op.getIndices()[dim];
  SetVector<Operation *> slice = sliceOf(index, body);
  for (Operation &inner : body)
    if (slice.contains(&inner) && !mapping.contains(inner.getResult(0)))
      b.clone(inner, mapping);
  return mapping.lookupOrDefault(index);
}

/// Computes the indices whose coordinates are all bound; what follows runs where they are inside
/// of the destination, and of this iteration's part.
void ScatterLoops::emitKnownIndices() {
  Value isInside;
  auto require = [&](Value index, Value size) {
    Value fits = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, index, size);
    isInside = isInside ? arith::AndIOp::create(b, isInside, fits).getResult() : fits;
  };
  for (const auto &[dim, on] : computed) {
    // `on` without what is bound.
    if (indices[dim] || on.test(bound))
      continue;
    indices[dim] = cloneIndex(dim);
    require(indices[dim], destSizes[dim]);
    if (divided == dim)
      require(arith::SubIOp::create(b, indices[dim], partBegin), partSize);
  }
  if (!isInside)
    return;
  auto branch = scf::IfOp::create(b, isInside, /*withElseRegion=*/false);
  b.setInsertionPointToStart(branch.thenBlock());
}

void ScatterLoops::bind(unsigned coordinate, Value value) {
  mapping.map(body.getArgument(coordinate), value);
  bound.set(coordinate);
  if (isPlain(coordinate))
    indices[ownDims.at(coordinate)] = value;
}

void ScatterLoops::loop(unsigned coordinate, Value first, Value end) {
  auto loop = scf::ForOp::create(b, first, end, constant(1));
  b.setInsertionPointToStart(loop.getBody());
  bind(coordinate, loop.getInductionVar());
  emitKnownIndices();
}

void ScatterLoops::add() {
  SmallVector<Value> at;
  for (BlockArgument argument : body.getArguments())
    at.push_back(mapping.lookup(argument));
  Value value = memref::LoadOp::create(b, op.getValues(), at);
  Value sum = memref::LoadOp::create(b, op.getDest(), indices);
  sum = arith::AddFOp::create(b, sum, value);
  memref::StoreOp::create(b, sum, op.getDest(), indices);
}

void ScatterLoops::emit() {
  classify();
  unsigned rank = body.getNumArguments();
  bound.resize(rank);
  indices.resize(op.getIndices().size());
  for (unsigned dim = 0; dim < indices.size(); ++dim)
    destSizes.push_back(memref::DimOp::create(b, op.getDest(), dim));
  for (unsigned coordinate = 0; coordinate < rank; ++coordinate) {
    Value end = memref::DimOp::create(b, op.getValues(), coordinate);
    if (isPlain(coordinate))
      end = arith::MinUIOp::create(b, end, destSizes[ownDims.at(coordinate)]);
    ends.push_back(end);
  }
  bool hasBlocks = rank > 0 && isPlain(rank - 1);
  divided = findDividedDim();

  SmallVector<unsigned> parallel;
  SmallVector<OpFoldResult> from, to, steps;
  for (unsigned coordinate = 0; coordinate < rank; ++coordinate) {
    if (!isPlain(coordinate))
      continue;
    parallel.push_back(coordinate);
    from.push_back(b.getIndexAttr(0));
    to.push_back(ends[coordinate]);
    steps.push_back(b.getIndexAttr(coordinate + 1 == rank ? kBlock : 1));
  }
  if (divided) {
    from = {b.getIndexAttr(0)};
    to = {b.getIndexAttr(kParts)};
    steps = {b.getIndexAttr(1)};
    partSize = arith::CeilDivUIOp::create(b, destSizes[*divided], constant(kParts));
  }
  Value blockBegin;
  if (!to.empty()) {
    auto forall = scf::ForallOp::create(b, from, to, steps, ValueRange(), std::nullopt);
    b.setInsertionPointToStart(forall.getBody());
    if (divided)
      partBegin = arith::MulIOp::create(b, forall.getInductionVar(0), partSize);
    for (auto [coordinate, value] : llvm::zip(parallel, forall.getInductionVars())) {
      if (coordinate + 1 == rank)
        blockBegin = value;
      else
        bind(coordinate, value);
    }
  }
  emitKnownIndices();

  SmallVector<unsigned> rest;
  for (unsigned coordinate = 0; coordinate < rank; ++coordinate)
    if (!isPlain(coordinate))
      rest.push_back(coordinate);
  // What says whether anything is to be done runs outside.
  if (divided) {
    auto first = llvm::find(rest, unsigned(computed.find(*divided)->second.find_first()));
    std::rotate(rest.begin(), first, std::next(first));
  }
  for (unsigned coordinate : rest)
    loop(coordinate, constant(0), ends[coordinate]);
  if (hasBlocks) {
    Value end = arith::AddIOp::create(b, blockBegin, constant(kBlock));
    loop(rank - 1, blockBegin, arith::MinUIOp::create(b, end, ends[rank - 1]));
  }
  add();
  op.erase();
}

namespace {
struct LowerScatterSums : attn::impl::AttnLowerScatterSumsBase<LowerScatterSums> {
  void runOnOperation() override {
    SmallVector<attn::ScatterSumOp> sums;
    getOperation().walk([&](attn::ScatterSumOp op) { sums.push_back(op); });
    for (attn::ScatterSumOp op : sums) {
      if (isa<RankedTensorType>(op.getDest().getType())) {
        op.emitError("expected memrefs, got tensors; bufferize first");
        return signalPassFailure();
      }
      numLowered.at(op);
      ScatterLoops(op).emit();
    }
  }
};
} // namespace
