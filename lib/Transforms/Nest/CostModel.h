// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a loop order of a nest costs: bytes moved past the tile level, and how
// many tiles can run at once. The counts follow Dao et al., FlashAttention
// (2022), theorem 2, with tile sizes instead of a cache size.

#ifndef ATTN_LIB_TRANSFORMS_NEST_COSTMODEL_H
#define ATTN_LIB_TRANSFORMS_NEST_COSTMODEL_H

#include "attn/Analysis/DependenceGraph.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <string>

namespace attn {

/// A nest in numbers. Sizes are elements, bytes are per element of the named
/// dimension and per worker.
struct NestSize {
  double workers = 1, rows = 1, streamed = 1;
  int64_t blockM = 1, blockN = 1, parts = 1;
  double rowBytes = 0;    ///< read per row (Q)
  double streamBytes = 0; ///< read per streamed element (K and V)
  double outBytes = 0;    ///< written per row (O, LSE)
  double stateBytes = 0;  ///< carried per row (m, l, O)
  double pointFlops = 0;  ///< per pair of row and streamed element
  int64_t threads = 1;
  /// One worker does all rows, in order.
  bool rowsInWorker = false;
};

struct OrderCost {
  LoopOrder order;
  double bytes;        ///< moved past the tile level
  double parallelism;  ///< tiles that can run at once
  double seconds;      ///< estimate on the machine of the model
  std::string illegal; ///< why the order cannot be taken; empty where it can
  PlanAttr plan;       ///< of this order
  /// What the reason speaks of, where it is a dependence.
  const Dependence *dependence = nullptr;
};

/// The three orders with their costs. The machine of the model: 10 GB/s for each
/// thread, 25 GB/s for all together, 50 GFLOP/s for each.
llvm::SmallVector<OrderCost> estimateOrders(const NestSize &size);

/// The legal order with the smallest estimate; rows, the first of `costs`,
/// unless another one promises much.
LoopOrder chooseOrder(llvm::ArrayRef<OrderCost> costs);

} // namespace attn

#endif
