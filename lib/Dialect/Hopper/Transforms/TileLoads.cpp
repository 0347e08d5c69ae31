// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TileLoads.h"
#include "Loops.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

tile::SmemType hopper::getTileType(VectorType type) {
  int64_t bytes = type.getDimSize(1) * tile::getElementBytes(type.getElementType());
  int64_t swizzle = bytes > 64 ? 128 : bytes > 32 ? 64 : 32;
  return tile::SmemType::get(type.getShape(), type.getElementType(), swizzle);
}

scf::ForallOp hopper::getWarpgroupLoop(Operation *op) {
  auto forall = op->getParentOfType<scf::ForallOp>();
  return forall && programs::isOfWarpgroups(forall) ? forall : nullptr;
}

bool hopper::hasTile(vector::TransferReadOp read) {
  VectorType type = read.getVectorType();
  Type element = type.getElementType();
  return type.getRank() == 2 && type.getDimSize(0) == kWarpgroupRows &&
         (element.isBF16() || element.isF16());
}

bool hopper::hasZeros(vector::TransferReadOp read) {
  return !read.getMask() &&
         (!read.hasOutOfBoundsDim() || matchPattern(read.getPadding(), m_AnyZeroFloat()));
}

AffineMap hopper::getFirst(Value index, scf::ForallOp loop, int64_t size) {
  auto apply = index.getDefiningOp<affine::AffineApplyOp>();
  if (!apply)
    return {};
  MLIRContext *context = index.getContext();
  AffineMap map = apply.getAffineMap();
  for (auto [i, operand] : llvm::enumerate(apply.getMapOperands())) {
    if (operand != loop.getInductionVar(0))
      continue;
    AffineExpr dim = i < map.getNumDims() ? getAffineDimExpr(i, context)
                                          : getAffineSymbolExpr(i - map.getNumDims(), context);
    AffineExpr expr = map.getResult(0);
    AffineExpr zero = expr.replace(dim, getAffineConstantExpr(0, context));
    AffineExpr step = simplifyAffineExpr(expr - zero, map.getNumDims(), map.getNumSymbols());
    if (step != simplifyAffineExpr(dim * size, map.getNumDims(), map.getNumSymbols()))
      return {};
    return AffineMap::get(map.getNumDims(), map.getNumSymbols(), zero);
  }
  return {};
}

Value hopper::loadTile(OpBuilder &b, vector::TransferReadOp read, bool perWarpgroup) {
  Location loc = read.getLoc();
  scf::ForallOp loop = getWarpgroupLoop(read);
  // As it lies in memory.
  VectorType vector = read.getVectorType();
  SmallVector<int64_t> shape(vector.getShape());
  if (!read.getPermutationMap().isMinorIdentity()) {
    std::reverse(shape.begin(), shape.end());
    vector = VectorType::get(shape, vector.getElementType());
  }
  SmallVector<Value> indices(read.getIndices());
  // The parts of all warpgroups lie next to each other: one tile for all. Of dimension
  // 0, or of the last one where the parts are columns.
  unsigned dim = perWarpgroup ? 0 : 1;
  Value *index = &indices[indices.size() - 2 + dim];
  AffineMap first =
      loop ? getFirst(*index, loop, perWarpgroup ? kWarpgroupRows : shape[1]) : AffineMap();
  if (!first && perWarpgroup)
    return loadTile(b, read, /*perWarpgroup=*/false);
  if (!first)
    return tile::LoadOp::create(b, loc, getTileType(vector), read.getBase(), indices);
  auto apply = index->getDefiningOp<affine::AffineApplyOp>();
  *index = getValueOrCreateConstantIndexOp(
      b, apply.getLoc(),
      affine::makeComposedFoldedAffineApply(b, apply.getLoc(), first,
                                            getAsOpFoldResult(apply.getMapOperands())));
  int64_t part = shape[dim];
  shape[dim] *= *loop.getStaticUpperBound().begin();
  tile::SmemType all = getTileType(VectorType::get(shape, vector.getElementType()));
  auto own = tile::SmemType::get(b.getContext(), vector.getShape(), vector.getElementType(),
                                 all.getSwizzle(), all.getSlabRows());
  Value tile = tile::LoadOp::create(b, loc, all, read.getBase(), indices);
  Value offset = affine::makeComposedAffineApply(b, loc, getAffineDimExpr(0, b.getContext()) * part,
                                                 {OpFoldResult(loop.getInductionVar(0))});
  if (perWarpgroup)
    return tile::RowsOp::create(b, loc, own, tile, offset);
  return tile::ColumnsOp::create(b, loc, own, tile, offset);
}
