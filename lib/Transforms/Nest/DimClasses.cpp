// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DimClasses.h"
#include "attn/Utils/Statement.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace attn;

DimClasses::DimClasses(ArrayRef<Operation *> ops) {
  for (Operation *op : ops) {
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      addGeneric(generic);
    else if (auto fold = dyn_cast<FoldOp>(op))
      addFold(fold);
  }
  for (Operation *op : ops) {
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      uniteGeneric(generic);
    else if (auto fold = dyn_cast<FoldOp>(op))
      uniteFold(fold);
  }
  // Folds that stream one tensor stream one dimension.
  llvm::MapVector<std::pair<Value, int64_t>, FoldOp> streams;
  for (Operation *op : ops)
    if (auto fold = dyn_cast<FoldOp>(op))
      for (auto [input, dim] : llvm::zip(fold.getInputs(), fold.getStreamDims()))
        if (auto [entry, fresh] = streams.insert({{input, dim}, fold}); !fresh)
          unite(loops[fold], loops[entry->second]);
  uniteThroughInputs(ops);
}

/// Whether some statement has two loops in one class.
bool DimClasses::hasConflict() const {
  for (auto [op, first] : loops) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    DenseSet<unsigned> seen;
    for (unsigned loop = 0; generic && loop < generic.getNumLoops(); ++loop)
      if (!seen.insert(find(first + loop)).second)
        return true;
  }
  return false;
}

void DimClasses::uniteThroughInputs(ArrayRef<Operation *> ops) {
  if (hasConflict())
    return;
  llvm::MapVector<Value, SmallVector<std::pair<linalg::GenericOp, AffineMap>>> readers;
  for (Operation *op : ops)
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      for (OpOperand *input : generic.getDpsInputOperands())
        if (!values.contains(input->get()))
          readers[input->get()].push_back({generic, generic.getMatchingIndexingMap(input)});
  for (auto &[tensor, accesses] : readers)
    for (unsigned a = 0; a < accesses.size(); ++a)
      for (unsigned b = a + 1; b < accesses.size(); ++b) {
        auto [first, firstMap] = accesses[a];
        auto [second, secondMap] = accesses[b];
        SmallVector<unsigned> before = parents;
        for (unsigned dim = 0; dim < firstMap.getNumResults(); ++dim) {
          std::optional<unsigned> x = getLoop(firstMap, dim);
          std::optional<unsigned> y = getLoop(secondMap, dim);
          if (x && y && first != second)
            unite(loops[first] + *x, loops[second] + *y);
        }
        if (hasConflict())
          parents = before;
      }
}

unsigned DimClasses::add(unsigned count) {
  unsigned first = parents.size();
  for (unsigned node = 0; node < count; ++node)
    parents.push_back(first + node);
  return first;
}

unsigned DimClasses::find(unsigned node) const {
  while (parents[node] != node)
    node = parents[node];
  return node;
}

void DimClasses::unite(unsigned a, unsigned b) {
  a = find(a), b = find(b);
  parents[std::max(a, b)] = std::min(a, b);
}

void DimClasses::addValue(Value value) {
  if (auto type = dyn_cast<RankedTensorType>(value.getType()))
    values[value] = add(type.getRank());
}

void DimClasses::addGeneric(linalg::GenericOp op) {
  loops[op] = add(op.getNumLoops());
  for (Value result : op.getResults())
    addValue(result);
}

void DimClasses::addFold(FoldOp fold) {
  loops[fold] = add(1);
  for (auto [block, dim] : llvm::zip(fold.getBlocks(), fold.getStreamDims()))
    blocks[block] = {unsigned(dim), fold};
  for (Value state : fold.getState())
    addValue(state);
  for (Value result : fold.getResults())
    addValue(result);
  for (auto op : fold.getBody().getOps<linalg::GenericOp>())
    addGeneric(op);
}

void DimClasses::uniteValues(Value a, Value b) {
  auto x = values.find(a), y = values.find(b);
  if (x == values.end() || y == values.end())
    return;
  for (int64_t dim = 0, e = cast<RankedTensorType>(a.getType()).getRank(); dim < e; ++dim)
    unite(x->second + dim, y->second + dim);
}

void DimClasses::uniteGeneric(linalg::GenericOp op) {
  auto access = [&](Value tensor, AffineMap map) {
    auto known = values.find(tensor);
    auto block = blocks.find(tensor);
    for (unsigned dim = 0; dim < map.getNumResults(); ++dim) {
      std::optional<unsigned> loop = getLoop(map, dim);
      if (!loop)
        continue;
      if (known != values.end())
        unite(loops[op] + *loop, known->second + dim);
      else if (block != blocks.end() && block->second.first == dim)
        unite(loops[op] + *loop, loops[block->second.second]);
    }
  };
  for (OpOperand &operand : op.getDpsInitsMutable()) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    access(operand.get(), map);
    access(op.getTiedOpResult(&operand), map);
  }
  bool wasApart = !hasConflict();
  for (OpOperand *operand : op.getDpsInputOperands()) {
    SmallVector<unsigned> before = parents;
    access(operand->get(), op.getMatchingIndexingMap(operand));
    if (before == parents || !wasApart || !hasConflict())
      continue;
    parents = before;
    crossing.insert(op);
  }
}

void DimClasses::uniteFold(FoldOp fold) {
  for (auto op : fold.getBody().getOps<linalg::GenericOp>())
    uniteGeneric(op);
  OperandRange yielded = fold.getYield()->getOperands();
  unsigned carried = fold.getInits().size();
  for (unsigned index = 0; index < yielded.size(); ++index) {
    uniteValues(fold.getResult(index), yielded[index]);
    if (index < carried) {
      uniteValues(fold.getResult(index), fold.getState()[index]);
      uniteValues(fold.getResult(index), fold.getInits()[index]);
    } else {
      unite(loops[fold], values[fold.getResult(index)] + fold.getMapDims()[index - carried]);
    }
  }
  for (auto [input, dim] : llvm::zip(fold.getInputs(), fold.getStreamDims()))
    if (auto known = values.find(input); known != values.end())
      unite(loops[fold], known->second + dim);
}

unsigned DimClasses::ofLoop(linalg::GenericOp op, unsigned loop) const {
  return find(loops.lookup(op) + loop);
}

unsigned DimClasses::ofStream(FoldOp fold) const { return find(loops.lookup(fold)); }

std::optional<unsigned> DimClasses::ofValue(Value value, unsigned dim) const {
  auto known = values.find(value);
  if (known == values.end())
    return std::nullopt;
  return find(known->second + dim);
}
