// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles that are contiguous along one dimension in memory and along the other
// in scratch. Square blocks of W vectors of W elements are transposed in
// registers by log2(W) rounds of interleaving shuffles; what does not fill a
// block, or is contiguous along neither, goes element by element.

#include "Groups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn::tiles;

Interleaving attn::tiles::getInterleaving(int64_t width) {
  Interleaving masks;
  for (int64_t k = 0; k < width / 2; ++k) {
    masks.low.append({k, width + k});
    masks.high.append({width / 2 + k, width + width / 2 + k});
  }
  return masks;
}

/// Each round interleaves vector i with vector i + W/2.
SmallVector<Value> attn::tiles::transposeBlock(OpBuilder &b, Location loc,
                                               SmallVector<Value> rows) {
  int64_t size = rows.size();
  auto [low, high] = getInterleaving(size);
  for (int64_t round = 1; round < size; round *= 2) {
    SmallVector<Value> next;
    for (int64_t k = 0; k < size / 2; ++k) {
      next.push_back(vector::ShuffleOp::create(b, loc, rows[k], rows[k + size / 2], low));
      next.push_back(vector::ShuffleOp::create(b, loc, rows[k], rows[k + size / 2], high));
    }
    rows = std::move(next);
  }
  return rows;
}

namespace {
int findWalk(DimClasses &classes, Value value, int lane, size_t rank,
             const DenseMap<Value, Buffer> &buffers, SmallPtrSetImpl<Operation *> &seen) {
  if (auto kept = buffers.find(value); kept != buffers.end()) {
    const SmallVector<int> &layout = kept->second.layout;
    return layout.size() == rank && llvm::is_contained(layout, lane) && layout.back() != lane
               ? layout.back()
               : int(alongLanes);
  }
  Operation *op = value.getDefiningOp();
  if (!op || !isLazy(op) || !seen.insert(op).second)
    return alongLanes;
  if (isa<vector::TransferReadOp>(op))
    return classes.domain(value).size() == rank
               ? memoryWalk(classes, cast<VectorTransferOpInterface>(op), lane)
               : alongLanes;
  for (Value operand : op->getOperands())
    if (tileType(operand))
      if (int walk = findWalk(classes, operand, lane, rank, buffers, seen); walk != alongLanes)
        return walk;
  return alongLanes;
}

class TransposingEmitter {
public:
  TransposingEmitter(Context &context, Group &group, int walk)
      : context(context), group(group), sink(group.sinks.front()), nest(context, group.position) {
    int lane = group.laneOf(context.classes);
    // A write evaluates scratch; the others read memory.
    from = sink.kind == Sink::Write ? lane : walk;
    to = sink.kind == Sink::Write ? walk : lane;
    for (int cls : group.domain)
      if (cls != from && cls != to)
        rest.push_back(cls);
    width = laneCountFor(getElementTypeOrSelf(sink.value.getType()), context.vectorBits);
  }

  void run() {
    if (from == byElement || to == byElement) {
      nest.loops(group.domain, {}, [&](ValueRange) -> SmallVector<Value> {
        put(nest.eval(sink.value));
        return {};
      });
      return;
    }
    int64_t extentFrom = context.classes.extent(from), extentTo = context.classes.extent(to);
    int64_t wholeFrom = extentFrom / width * width, wholeTo = extentTo / width * width;
    nest.loops(rest, {}, [&](ValueRange) -> SmallVector<Value> {
      if (wholeFrom && wholeTo)
        blocks(wholeFrom, wholeTo);
      elements(0, wholeTo, wholeFrom, extentFrom);
      elements(wholeTo, extentTo, 0, extentFrom);
      return {};
    });
  }

private:
  void put(Value value) {
    if (sink.kind == Sink::Write)
      nest.storeTransfer(cast<vector::TransferWriteOp>(sink.op), value);
    else
      nest.store(sink.target, value);
  }

  void blocks(int64_t wholeFrom, int64_t wholeTo) {
    Value toBase = nest.open(-1, 0, wholeTo, width).getInductionVar();
    Value fromBase = nest.open(-1, 0, wholeFrom, width).getInductionVar();
    SmallVector<Value> rows;
    for (int64_t k = 0; k < width; ++k) {
      nest.builder();
      nest.bind(to, nest.addConstant(toBase, k));
      nest.setLanes(from, fromBase, width);
      rows.push_back(nest.evalWide(sink.value));
    }
    rows = transposeBlock(nest.builder(), nest.loc, rows);
    for (auto [k, row] : llvm::enumerate(rows)) {
      nest.builder();
      nest.bind(from, nest.addConstant(fromBase, k));
      nest.setLanes(to, toBase, width);
      put(row);
    }
    nest.close();
    nest.close();
  }

  void elements(int64_t beginTo, int64_t endTo, int64_t beginFrom, int64_t endFrom) {
    if (beginTo == endTo || beginFrom == endFrom)
      return;
    nest.clearLanes();
    nest.open(to, beginTo, endTo, 1);
    nest.open(from, beginFrom, endFrom, 1);
    put(nest.eval(sink.value));
    nest.close();
    nest.close();
  }

  Context &context;
  Group &group;
  Sink &sink;
  Nest nest;
  int from, to;
  SmallVector<int> rest;
  int64_t width;
};
} // namespace

int attn::tiles::memoryWalk(DimClasses &classes, VectorTransferOpInterface transfer, int lane) {
  AffineMap map = transfer.getPermutationMap();
  SmallVector<int> dims = classes.dims(transfer.getVector());
  for (unsigned dim = 0; dim < map.getNumResults(); ++dim) {
    int where = memoryDim(map, dim);
    if (where < 0 || dims[dim] < 0 || dims[dim] != lane)
      continue;
    if (isContiguousAlong(transfer, where))
      return alongLanes;
    int cls = contiguousClass(classes, transfer);
    return cls >= 0 ? cls : int(byElement);
  }
  return alongLanes;
}

int attn::tiles::memoryWalk(DimClasses &classes, const Sink &sink, int lane,
                            const DenseMap<Value, Buffer> &buffers) {
  if (sink.kind == Sink::Reduce || sink.kind == Sink::Extract)
    return alongLanes;
  if (sink.kind == Sink::Write)
    return memoryWalk(classes, cast<VectorTransferOpInterface>(sink.op), lane);
  SmallPtrSet<Operation *, 16> seen;
  return findWalk(classes, sink.value, lane, classes.domain(sink.value).size(), buffers, seen);
}

void attn::tiles::emitTransposition(Context &context, Group &group, int walk) {
  TransposingEmitter(context, group, walk).run();
}
