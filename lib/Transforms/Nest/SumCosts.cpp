// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "SumCosts.h"
#include "attn/Utils/Tiles.h"
#include <cmath>

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

SumCosts attn::estimateSums(Cascade &cascade, const DimClasses &classes, GenericOp root,
                            unsigned loop, int64_t threads, int64_t assumedSize) {
  constexpr double flopsPerThread = 50e9, blockM = 64;
  DenseSet<unsigned> summed = {classes.ofLoop(root, loop)};
  auto sizeOf = [&](GenericOp op, unsigned at) -> double {
    int64_t size = op.getStaticLoopRanges()[at];
    if (!ShapedType::isDynamic(size))
      return size;
    return summed.contains(classes.ofLoop(op, at)) ? assumedSize : 8;
  };
  llvm::SetVector<Operation *> shared;
  for (GenericOp other : cascade.getOtherSums()) {
    for (unsigned at = 0; at < other.getNumLoops(); ++at)
      if (other.getIteratorTypesArray()[at] == utils::IteratorType::reduction)
        summed.insert(classes.ofLoop(other, at));
    for (Value input : other.getDpsInputs())
      if (auto source = input.getDefiningOp<GenericOp>();
          source && source->getBlock() == root->getBlock())
        for (Operation *op : cascade.getSlice(source))
          shared.insert(op);
  }
  auto flopsOf = [&](GenericOp op) {
    double flops = op.getNumReductionLoops() ? 2 : 1;
    std::optional<ScatterSum> scatter = matchScatterSum(op);
    for (unsigned at = 0; at < op.getNumLoops(); ++at)
      if (!scatter ||
          llvm::none_of(scatter->indices, [&](auto index) { return index.first == at; }))
        flops *= sizeOf(op, at);
    return flops;
  };
  SumCosts costs;
  if (shared.empty())
    return costs;
  for (GenericOp op : cascade.getMembers())
    costs.flopsTogether += flopsOf(op);
  for (GenericOp op : cascade.getOtherSums())
    costs.flopsTogether += flopsOf(op);
  costs.flopsApart = costs.flopsTogether;
  for (Operation *op : shared)
    if (cascade.contains(cast<GenericOp>(op)))
      costs.flopsApart += flopsOf(cast<GenericOp>(op));
  // Workers: what the shared values span and nobody sums over.
  auto first = cast<GenericOp>(shared.front());
  for (unsigned at = 0; at < first.getNumLoops(); ++at) {
    if (first.getIteratorTypesArray()[at] != utils::IteratorType::parallel)
      continue;
    if (summed.contains(classes.ofLoop(first, at))) {
      if (classes.ofLoop(first, at) != classes.ofLoop(root, loop))
        costs.tilesApart *= std::ceil(sizeOf(first, at) / blockM);
    } else {
      costs.tilesTogether *= sizeOf(first, at);
    }
  }
  // What is summed over the rows too leaves them to one worker.
  if (llvm::any_of(cascade.getMembers(), [](GenericOp op) {
        return op.getNumReductionLoops() > 1 && matchScatterSum(op);
      }))
    costs.tilesApart = 1;
  costs.tilesApart *= costs.tilesTogether;
  auto seconds = [&](double flops, double tiles) {
    double rounds = std::max(1.0, std::ceil(tiles / threads));
    return flops / (flopsPerThread * std::max(1.0, tiles / rounds));
  };
  costs.apart = seconds(costs.flopsApart, costs.tilesApart);
  costs.together = seconds(costs.flopsTogether, costs.tilesTogether);
  return costs;
}

int64_t attn::getSumColumns(Value state) {
  auto type = cast<RankedTensorType>(state.getType());
  if (type.getRank() < 2 || type.isDynamicDim(type.getRank() - 1))
    return 1;
  return type.getShape().back() * int64_t(llvm::divideCeil(getBits(type.getElementType()), 32));
}
