// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-tile-nest: folds and their surroundings to tile programs (L1 to L2).

#include "Nest.h"
#include "attn/Transforms/Nest/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/FormatVariadic.h"

namespace attn {
#define GEN_PASS_DEF_ATTNTILENEST
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using Role = TileDim::Role;

LogicalResult Nest::tile() {
  if (failed(assignRoles()) || failed(findOutputs()))
    return failure();
  // Sizes are computed before the program.
  emitter->outside = arith::ConstantIndexOp::create(b, 0);
  FailureOr<Order> order = pickOrder();
  if (failed(order))
    return failure();
  switch (*order) {
  case Order::Rows:
    return tileRows();
  case Order::Stream:
    return tileStream();
  case Order::Split:
    return tileSplit();
  }
  llvm_unreachable("all orders are handled");
}

FailureOr<Order> Nest::pickOrder() {
  // A short sum that another nest left; the order asked for is of that one.
  if (sumsMatrices)
    return Order::Rows;
  FoldOp fold = folds.front();
  SmallVector<OrderCost> costs = estimateOrders(measure());
  if (folds.size() > 1)
    costs[1].illegal = costs[2].illegal =
        "a second pass over the streamed dimension needs the finished state "
        "of a row";
  else if (fold.getState().empty() || !rowDim)
    costs[1].illegal = costs[2].illegal = "the nest carries no state per row";
  else if (fold.getMerge().empty())
    costs[2].illegal = "the fold has no merge region, because a start value "
                       "that is not neutral would be counted once per part";
  if (!rowSums.empty() && !(options.parallelSums && addsRowSums())) {
    costs[0].illegal = "the fold also sums over the rows (RAW, carried by the row loop), "
                       "which therefore is inside; fused with sums=apart, each sum has a "
                       "nest of its own";
  }
  if (!tables.empty())
    costs[2].illegal = "the fold sums at computed indices into a table that one "
                       "worker owns";
  Order order = options.order ? *options.order : chooseOrder(costs);
  for (const OrderCost &cost : costs)
    if (cost.order == order && !cost.illegal.empty())
      return fold.emitError("cannot take loop order ")
             << stringifyOrder(order) << ": " << cost.illegal;
  if (options.explain) {
    InFlightDiagnostic remark = emitRemark(fold.getLoc())
                                << "loop order " << stringifyOrder(order)
                                << (options.order ? " (requested)" : " (cheapest)");
    for (const OrderCost &cost : costs) {
      Diagnostic &note = remark.attachNote();
      note << stringifyOrder(cost.order) << ": ";
      if (!cost.illegal.empty())
        note << "illegal, " << cost.illegal;
      else
        note << llvm::formatv("{0:f1} MB moved, {1} tiles in parallel, {2:f3} "
                              "ms estimated",
                              cost.bytes / 1e6, int64_t(cost.parallelism), cost.seconds * 1e3)
                    .str();
    }
  }
  return order;
}

namespace {
struct TileNestPass : attn::impl::AttnTileNestBase<TileNestPass> {
  using AttnTileNestBase::AttnTileNestBase;

  /// A size that the fold asks for.
  static void takeTile(FoldOp fold, StringRef name, int64_t &size) {
    if (auto wanted = fold->getAttrOfType<IntegerAttr>(name))
      size = std::max<int64_t>(wanted.getInt(), 1);
  }

  void runOnOperation() override {
    TileOptions options{rowTile,     rowMultiple,  streamTile, parts,     threads,
                        assumedSize, std::nullopt, explain,    rowsFirst, parallelSums};
    for (Order known : {Order::Rows, Order::Stream, Order::Split})
      if (order == stringifyOrder(known))
        options.order = known;
    if (!options.order && order != "auto") {
      getOperation().emitError("expected order to be auto, rows, stream or split, got ")
          << StringRef(order);
      return signalPassFailure();
    }
    if (rowTile < 1 || rowMultiple < 1 || streamTile < 1 || parts < 1 || threads < 1 ||
        assumedSize < 1) {
      getOperation().emitError(
          "expected tiles, parts, threads and the assumed size to be at least 1");
      return signalPassFailure();
    }
    for (Block &block : getOperation().getBody()) {
      while (true) {
        auto folds = block.getOps<FoldOp>();
        if (folds.empty())
          break;
        FoldOp fold = *folds.begin();
        TileOptions own = options;
        takeTile(fold, kRowTileAttr, own.rowTile);
        takeTile(fold, kStreamTileAttr, own.streamTile);
        if (failed(Nest(fold, own).tile()))
          return signalPassFailure();
      }
    }
  }
};
} // namespace
