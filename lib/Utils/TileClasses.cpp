// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Union-find over the dimensions of vectors, and the choice of lanes.

#include "attn/Utils/TileClasses.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/AffineMap.h"

using namespace mlir;
using namespace attn::tiles;

int attn::tiles::memoryDim(AffineMap map, unsigned dim) {
  auto expr = dyn_cast<AffineDimExpr>(map.getResult(dim));
  return expr ? static_cast<int>(expr.getPosition()) : -1;
}

int DimClasses::find(int node) {
  while (parents[node] != node)
    node = parents[node] = parents[parents[node]];
  return node;
}

SmallVector<int> &DimClasses::nodes(Value value) {
  auto [it, inserted] = nodesOf.try_emplace(value);
  if (inserted)
    for (int64_t size : tileType(value).getShape()) {
      it->second.push_back(size == 1 ? -1 : static_cast<int>(parents.size()));
      if (size == 1)
        continue;
      parents.push_back(parents.size());
      extents.push_back(size);
    }
  return it->second;
}

void DimClasses::unite(Value a, unsigned dimA, Value b, unsigned dimB) {
  int x = nodes(a)[dimA];
  int y = nodes(b)[dimB];
  if (x < 0 || y < 0)
    return;
  x = find(x);
  y = find(y);
  // The older node stays, so that class numbers follow program order.
  parents[std::max(x, y)] = std::min(x, y);
}

void DimClasses::uniteAll(Value a, Value b) {
  if (auto type = tileType(a))
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      unite(a, dim, b, dim);
}

SmallVector<int> DimClasses::dims(Value value) {
  SmallVector<int> result;
  if (!tileType(value))
    return result;
  for (int node : nodes(value))
    result.push_back(node < 0 ? -1 : find(node));
  return result;
}

SmallVector<int> DimClasses::domain(Value value) {
  SmallVector<int> result = dims(value);
  llvm::erase(result, -1);
  return result;
}

LogicalResult DimClasses::tieAll(Operation *root) {
  WalkResult walk = root->walk([&](Operation *op) {
    return failed(checkTypes(op)) || failed(tie(op)) ? WalkResult::interrupt()
                                                     : WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

Operation *DimClasses::findTied(Operation *root) {
  Operation *tied = nullptr;
  root->walk([&](Operation *op) {
    for (Value result : op->getResults()) {
      SmallVector<int> classes = domain(result);
      llvm::sort(classes);
      if (std::adjacent_find(classes.begin(), classes.end()) == classes.end())
        continue;
      tied = op;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return tied;
}

LogicalResult DimClasses::checkIndependent(Operation *root) {
  root->walk([&](Operation *op) { score(op); });
  Operation *tied = findTied(root);
  if (!tied)
    return success();
  for (Value result : tied->getResults()) {
    SmallVector<int> classes = domain(result);
    llvm::sort(classes);
    if (std::adjacent_find(classes.begin(), classes.end()) != classes.end())
      return tied->emitOpError("expected the dimensions of a vector to be independent, got ")
             << result.getType() << " with two dimensions tied to each other";
  }
  return failure();
}

LogicalResult DimClasses::build(Operation *root) {
  return failure(failed(tieAll(root)) || failed(checkIndependent(root)));
}

LogicalResult DimClasses::buildSeparating(Operation *root) {
  if (failed(tieAll(root)))
    return failure();
  if (findTied(root)) {
    separateReads(root);
    *this = DimClasses();
    if (failed(tieAll(root)))
      return failure();
  }
  return checkIndependent(root);
}

LogicalResult DimClasses::checkTypes(Operation *op) {
  auto check = [&](Type type) -> LogicalResult {
    auto vector = dyn_cast<VectorType>(type);
    if (vector && vector.isScalable())
      return op->emitOpError("expected vectors of fixed size, got ") << type;
    return success();
  };
  for (Type type : op->getResultTypes())
    if (failed(check(type)))
      return failure();
  for (Region &region : op->getRegions())
    for (Block &block : region)
      for (Type type : block.getArgumentTypes())
        if (isa<VectorType>(type) && !isa<scf::ForOp>(op))
          return op->emitOpError("expected no vector among block arguments, got ") << type;
  return success();
}

void DimClasses::tieControlFlow(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    auto yields = loop.getYieldedValues();
    for (auto [arg, init, yield, result] :
         llvm::zip_equal(loop.getRegionIterArgs(), loop.getInitArgs(), yields, loop.getResults())) {
      if (!tileType(arg))
        continue;
      uniteAll(arg, init);
      uniteAll(arg, yield);
      uniteAll(arg, result);
    }
    return;
  }
  auto branch = cast<scf::IfOp>(op);
  for (Region &region : branch->getRegions())
    if (!region.empty())
      for (auto [result, yield] :
           llvm::zip_equal(branch.getResults(), region.front().getTerminator()->getOperands()))
        if (tileType(result))
          uniteAll(result, yield);
}

LogicalResult DimClasses::tie(Operation *op) {
  auto isTile = [](Type type) { return isa<VectorType>(type); };
  if (llvm::none_of(op->getOperandTypes(), isTile) && llvm::none_of(op->getResultTypes(), isTile))
    return success();
  if (isa<scf::ForOp, scf::IfOp>(op)) {
    tieControlFlow(op);
    return success();
  }
  if (isa<scf::YieldOp>(op) && isa<scf::ForOp, scf::IfOp>(op->getParentOp()))
    return success();
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    nodes(constant);
    if (!isa<SplatElementsAttr>(constant.getValue()))
      return op->emitOpError("expected a splat constant, got ") << constant.getValue();
    return success();
  }
  if (OpTrait::hasElementwiseMappableTraits(op) && op->getNumResults() == 1) {
    for (Value operand : op->getOperands())
      if (tileType(operand))
        uniteAll(operand, op->getResult(0));
    return success();
  }
  return tieVectorOp(op);
}

LogicalResult DimClasses::tieShapeCast(vector::ShapeCastOp cast) {
  auto significant = [&](Value value) {
    SmallVector<unsigned> result;
    for (auto [dim, size] : llvm::enumerate(tileType(value).getShape()))
      if (size != 1)
        result.push_back(dim);
    return result;
  };
  SmallVector<unsigned> from = significant(cast.getSource()), to = significant(cast.getResult());
  auto sizes = [](Value value) {
    SmallVector<int64_t> shape(tileType(value).getShape());
    llvm::erase(shape, 1);
    return shape;
  };
  if (sizes(cast.getSource()) != sizes(cast.getResult()))
    return cast.emitOpError("expected a cast that adds or removes unit dimensions, got ")
           << cast.getSource().getType() << " to " << cast.getResult().getType();
  for (auto [a, b] : llvm::zip_equal(from, to))
    unite(cast.getSource(), a, cast.getResult(), b);
  return success();
}

LogicalResult DimClasses::tieContraction(vector::ContractionOp contract) {
  Type left = getElementTypeOrSelf(contract.getLhsType());
  for (Type type :
       {getElementTypeOrSelf(contract.getRhsType()), getElementTypeOrSelf(contract.getAccType())})
    if (type != left)
      return contract.emitOpError("expected operands and accumulator of one "
                                  "element type, got ")
             << left << " and " << type;
  SmallVector<AffineMap> maps = contract.getIndexingMapsArray();
  Value values[] = {contract.getLhs(), contract.getRhs(), contract.getAcc(), contract.getResult()};
  maps.push_back(maps.back());
  DenseMap<int, std::pair<Value, unsigned>> first;
  for (auto [value, map] : llvm::zip_equal(values, maps))
    for (unsigned dim = 0; tileType(value) && dim < map.getNumResults(); ++dim) {
      auto [it, isNew] = first.try_emplace(memoryDim(map, dim), value, dim);
      if (isNew)
        nodes(value);
      else
        unite(it->second.first, it->second.second, value, dim);
    }
  return success();
}

/// What reads or writes memory; nullopt for any other op.
std::optional<LogicalResult> DimClasses::tieMemoryOp(Operation *op) {
  if (auto gather = dyn_cast<vector::GatherOp>(op)) {
    if (!isa<MemRefType>(gather.getBase().getType()))
      return op->emitOpError("expected a memref to gather from, got ")
             << gather.getBase().getType();
    for (Value operand : {gather.getIndices(), gather.getMask(), gather.getPassThru()})
      uniteAll(operand, gather.getResult());
    return success();
  }
  if (auto add = dyn_cast<attn::TileAddOp>(op)) {
    nodes(add.getValues());
    return success();
  }
  if (auto scatter = dyn_cast<attn::ScatterAddOp>(op)) {
    if (!isa<MemRefType>(scatter.getTable().getType()))
      return op->emitOpError("expected a memref to add to, got ") << scatter.getTable().getType();
    nodes(scatter.getValues());
    for (Value index : scatter.getIndices())
      uniteAll(index, scatter.getValues());
    return success();
  }
  if (auto transfer = dyn_cast<VectorTransferOpInterface>(op)) {
    nodes(transfer.getVector());
    if (!isa<MemRefType>(transfer.getShapedType()))
      return op->emitOpError("expected a transfer from or to a memref, got ")
             << transfer.getShapedType();
    if (transfer.getMask())
      return op->emitOpError("expected a transfer without mask, got ")
             << transfer.getMask().getType();
    if (isa<VectorType>(transfer.getShapedType().getElementType()))
      return op->emitOpError("expected scalar elements in memory, got ")
             << transfer.getShapedType();
    return success();
  }
  return std::nullopt;
}

LogicalResult DimClasses::tieVectorOp(Operation *op) {
  if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
    nodes(broadcast);
    auto source = dyn_cast<VectorType>(broadcast.getSourceType());
    int64_t lead = source ? broadcast.getResultVectorType().getRank() - source.getRank() : 0;
    for (int64_t dim = 0; source && dim < source.getRank(); ++dim)
      unite(broadcast.getSource(), dim, broadcast, lead + dim);
    return success();
  }
  if (auto transpose = dyn_cast<vector::TransposeOp>(op)) {
    for (auto [dim, from] : llvm::enumerate(transpose.getPermutation()))
      unite(transpose.getVector(), from, transpose, dim);
    return success();
  }
  if (auto cast = dyn_cast<vector::ShapeCastOp>(op))
    return tieShapeCast(cast);
  if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
    nodes(reduction.getSource());
    unsigned kept = 0;
    for (int64_t dim = 0; dim < reduction.getSourceVectorType().getRank(); ++dim) {
      if (reduction.isReducedDim(dim))
        continue;
      unite(reduction.getSource(), dim, reduction.getAcc(), kept);
      unite(reduction.getSource(), dim, reduction.getResult(), kept++);
    }
    return success();
  }
  if (auto contract = dyn_cast<vector::ContractionOp>(op))
    return tieContraction(contract);
  if (std::optional<LogicalResult> tied = tieMemoryOp(op))
    return *tied;
  if (auto reduction = dyn_cast<vector::ReductionOp>(op)) {
    nodes(reduction.getVector());
    return success();
  }
  if (auto extract = dyn_cast<vector::ExtractOp>(op)) {
    nodes(extract.getSource());
    if (isa<VectorType>(extract.getType()))
      return op->emitOpError("expected the extraction of one element, got ") << extract.getType();
    return success();
  }
  if (isa<vector::StepOp, vector::CreateMaskOp>(op)) {
    nodes(op->getResult(0));
    return success();
  }
  if (op->getNumResults() == 0 && op->getNumRegions() == 0) { // only uses them
    for (Value operand : op->getOperands())
      if (tileType(operand))
        nodes(operand);
    return success();
  }
  return op->emitOpError("expected an op that tiles can be made of, got '") << op->getName() << "'";
}

void DimClasses::score(Operation *op) {
  if (auto contract = dyn_cast<vector::ContractionOp>(op)) {
    SmallVector<int> result = domain(contract.getResult()), loops;
    for (Value operand : {contract.getLhs(), contract.getRhs()})
      for (int cls : domain(operand))
        if (!llvm::is_contained(loops, cls))
          loops.push_back(cls);
    for (int cls : loops)
      ++(llvm::is_contained(result, cls) ? kept : reduced)[cls];
    return;
  }
  if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
    SmallVector<int> source = dims(reduction.getSource());
    for (auto [dim, cls] : llvm::enumerate(source))
      if (reduction.isReducedDim(dim) && cls >= 0)
        ++reduced[cls];
    return;
  }
  if (auto reduction = dyn_cast<vector::ReductionOp>(op)) {
    for (int cls : domain(reduction.getVector()))
      ++reduced[cls];
    return;
  }
  auto transfer = dyn_cast<VectorTransferOpInterface>(op);
  if (!transfer)
    return;
  AffineMap map = transfer.getPermutationMap();
  SmallVector<int> classes = dims(transfer.getVector());
  for (unsigned dim = 0; dim < map.getNumResults(); ++dim)
    if (memoryDim(map, dim) == transfer.getShapedType().getRank() - 1 && classes[dim] >= 0)
      ++contiguous[classes[dim]];
}

int64_t DimClasses::scoreOf(int cls) {
  if (isFew(cls))
    return -1;
  int64_t balance = int64_t(kept.lookup(cls)) - int64_t(reduced.lookup(cls));
  return contiguous.lookup(cls) + 1000 * std::max<int64_t>(balance, 0);
}

int DimClasses::lane(ArrayRef<int> classes) {
  int best = -1;
  for (int cls : classes)
    if (best < 0 || std::make_pair(scoreOf(cls), cls) >= std::make_pair(scoreOf(best), best))
      best = cls;
  return best;
}
