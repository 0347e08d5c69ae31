// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CostModel.h"
#include "llvm/Support/ErrorHandling.h"
#include <algorithm>
#include <cmath>

using namespace attn;

/// All threads together, and one thread alone.
static constexpr double bandwidth = 25e9;
static constexpr double bandwidthPerThread = 10e9;
static constexpr double flopsPerThread = 50e9;
/// What another order must promise before rows are left: it stores its state.
static constexpr double worthIt = 0.6;
/// The same of parts: sums beside the stream's start as zeros in memory, which is not counted.
static constexpr double worthParts = 0.9;

llvm::SmallVector<OrderCost> attn::estimateOrders(const NestSize &s) {
  double rowTiles = std::ceil(s.rows / s.blockM);
  double streamTiles = std::ceil(s.streamed / s.blockN);
  double flops = s.workers * s.rows * s.streamed * s.pointFlops;
  auto cost = [&](LoopOrder order, double bytes, double parallelism) {
    // The last round of tiles may leave threads idle.
    double rounds = std::ceil(parallelism / s.threads);
    double busy = rounds > 0 ? parallelism / rounds : 1;
    busy = std::max(busy, 1.0);
    double seconds = std::max(bytes / std::min(bandwidth, bandwidthPerThread * busy),
                              flops / (flopsPerThread * busy));
    return OrderCost{order, bytes, parallelism, seconds, {}, {}, nullptr};
  };
  double rowsBytes =
      s.workers * (s.rows * (s.rowBytes + s.outBytes) + rowTiles * s.streamed * s.streamBytes);
  double streamBytes =
      s.workers * (s.streamed * s.streamBytes + s.rows * (s.outBytes + 2 * s.stateBytes) +
                   streamTiles * s.rows * (s.rowBytes + 2 * s.stateBytes));
  double splitBytes = rowsBytes + s.workers * s.rows * s.parts * 2 * s.stateBytes;
  double rowWorkers = s.rowsInWorker ? 1 : rowTiles;
  return {cost(LoopOrder::MOuter, rowsBytes, s.workers * rowWorkers),
          cost(LoopOrder::NOuter, streamBytes, s.workers),
          cost(LoopOrder::SplitKV, splitBytes, s.workers * rowWorkers * s.parts)};
}

LoopOrder attn::chooseOrder(llvm::ArrayRef<OrderCost> costs) {
  const OrderCost *best = nullptr;
  for (const OrderCost &cost : costs) {
    if (!cost.illegal.empty())
      continue;
    bool isFirst = best == &costs.front();
    double least = isFirst ? worthIt : cost.order == LoopOrder::SplitKV ? worthParts : 1.0;
    if (!best || cost.seconds < least * best->seconds)
      best = &cost;
  }
  return best ? best->order : costs.front().order;
}
