// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.scatter_sum as a statement: terms are selected by an equality of indices.

#include "ScatterSums.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

/// All elements of `memref` in one dimension, in order: a copy, unless they lie so. What is
/// allocated is to be freed.
static Value flatten(RewriterBase &b, Location loc, Value memref,
                     SmallVectorImpl<Value> &allocated) {
  auto type = cast<MemRefType>(memref.getType());
  if (!type.getLayout().isIdentity()) {
    SmallVector<Value> sizes;
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      if (type.isDynamicDim(dim))
        sizes.push_back(memref::DimOp::create(b, loc, memref, dim));
    Value copy = memref::AllocOp::create(
        b, loc, MemRefType::get(type.getShape(), type.getElementType()), sizes);
    linalg::makeMemRefCopyOp(b, loc, memref, copy);
    allocated.push_back(copy);
    memref = copy;
  }
  return memref::CollapseShapeOp::create(
      b, loc, memref,
      ArrayRef<ReassociationIndices>{llvm::to_vector<2>(llvm::seq<int64_t>(type.getRank()))});
}

/// Reads of several dimensions at what is no coordinate become reads of one.
static void flattenReads(RewriterBase &b, ScatterSumOp op, SmallVectorImpl<Value> &allocated) {
  Block &body = op.getAt().front();
  for (auto load : llvm::make_early_inc_range(body.getOps<memref::LoadOp>())) {
    auto isPlain = [&](Value index) {
      return isa<BlockArgument>(index) || matchPattern(index, m_Constant()) ||
             index.getParentBlock() != &body;
    };
    if (load.getMemRefType().getRank() < 2 || llvm::all_of(load.getIndices(), isPlain))
      continue;
    Location loc = load.getLoc();
    b.setInsertionPoint(op);
    Value flat = flatten(b, loc, load.getMemRef(), allocated);
    SmallVector<Value> sizes;
    for (unsigned dim = 0; dim < load.getIndices().size(); ++dim)
      sizes.push_back(memref::DimOp::create(b, loc, load.getMemRef(), dim));
    b.setInsertionPoint(load);
    Value at = load.getIndices().front();
    for (auto [index, size] : llvm::drop_begin(llvm::zip_equal(load.getIndices(), sizes)))
      at = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, at, size), index);
    b.replaceOpWithNewOp<memref::LoadOp>(load, flat, at);
  }
}

void programs::stateScatterSum(RewriterBase &rewriter, ScatterSumOp op) {
  Location loc = op.getLoc();
  SmallVector<Value> allocated;
  flattenReads(rewriter, op, allocated);
  rewriter.setInsertionPoint(op);
  Block &body = op.getAt().front();
  SmallVector<Value> yielded(op.getIndices());
  SmallVector<std::optional<unsigned>> loops(body.getNumArguments());
  SmallVector<unsigned> computed;
  for (auto [dim, index] : llvm::enumerate(yielded)) {
    auto argument = dyn_cast<BlockArgument>(index);
    if (argument && argument.getOwner() == &body && !loops[argument.getArgNumber()])
      loops[argument.getArgNumber()] = dim;
    else
      computed.push_back(dim);
  }
  // Of static sizes that differ the loop has that of the values.
  auto valuesType = cast<MemRefType>(op.getValues().getType());
  auto destType = cast<MemRefType>(op.getDest().getType());
  SmallVector<int64_t> shape(destType.getShape());
  SmallVector<utils::IteratorType> iterators(yielded.size(), utils::IteratorType::parallel);
  SmallVector<AffineExpr> at;
  for (auto [coordinate, loop] : llvm::enumerate(loops)) {
    if (!loop) {
      loop = iterators.size();
      iterators.push_back(utils::IteratorType::reduction);
    } else if (shape[*loop] != valuesType.getDimSize(coordinate)) {
      shape[*loop] = ShapedType::kDynamic;
    }
    at.push_back(rewriter.getAffineDimExpr(*loop));
  }
  Value dest = op.getDest();
  if (shape != destType.getShape())
    dest = memref::CastOp::create(
        rewriter, loc, MemRefType::get(shape, destType.getElementType(), destType.getLayout()),
        dest);
  MLIRContext *context = rewriter.getContext();
  AffineMap maps[] = {
      AffineMap::get(iterators.size(), 0, at, context),
      AffineMap::getMultiDimIdentityMap(iterators.size(), context).getMajorSubMap(yielded.size())};
  auto emit = [&](OpBuilder &b, Location loc, ValueRange args) {
    IRMapping mapping;
    for (auto [argument, loop] : llvm::zip_equal(body.getArguments(), loops))
      mapping.map(argument, linalg::IndexOp::create(b, loc, *loop));
    for (Operation &inner : body.without_terminator())
      b.clone(inner, mapping);
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(destType.getElementType()));
    Value term = args[0];
    for (unsigned dim : computed) {
      Value element = linalg::IndexOp::create(b, loc, dim);
      Value isHere = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                           mapping.lookupOrDefault(yielded[dim]), element);
      term = arith::SelectOp::create(b, loc, isHere, term, zero);
    }
    linalg::YieldOp::create(b, loc, Value(arith::AddFOp::create(b, loc, args[1], term)));
  };
  linalg::GenericOp::create(rewriter, loc, op.getValues(), dest, maps, iterators, emit);
  for (Value memref : allocated)
    memref::DeallocOp::create(rewriter, loc, memref);
  rewriter.eraseOp(op);
}
