// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See WarpTiles.h.

#include "WarpTiles.h"
#include "HopperSchedules.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace attn;

ProductSizes attn::findProductSizes(Operation *root) {
  ProductSizes sizes;
  root->walk([&](linalg::GenericOp op) {
    if (op.getNumReductionLoops() == 0 || op.getNumDpsInputs() != 2)
      return;
    for (Value input : op.getInputs()) {
      auto type = dyn_cast<RankedTensorType>(input.getType());
      if (!type || type.getRank() < 2 || type.isDynamicDim(type.getRank() - 1) ||
          !isa<FloatType>(type.getElementType()) || input.getDefiningOp<linalg::LinalgOp>())
        continue; // what is computed is as wide as the stream's tile
      sizes.columns = std::max(sizes.columns, type.getShape().back());
      sizes.bytes = getBits(type.getElementType()) / 8;
    }
  });
  return sizes;
}

/// Columns of a sum that threads hold at a time, in registers of 32 bits (attn-slice-sums).
static constexpr int64_t kMostRegisters = 256;

/// Columns of an operand of a sum, which is no wider than the sum.
static int64_t getSumColumns(ProductSizes sizes) {
  return std::min(sizes.columns, kMostRegisters / std::max<int64_t>(1, sizes.bytes / 4));
}

int64_t WarpTiles::getSharedBytes(ProductSizes sizes, int64_t staying) const {
  auto rowOf = [&](int64_t columns) { return llvm::alignTo(columns * sizes.bytes, 128); };
  int64_t row = rowOf(sizes.columns);
  // Two are streamed.
  int64_t bytes = staying * rows * row + 2 * stages * stream * row;
  if (productColumns)
    bytes = stages * (rows + stream) * rowOf(productColumns) +
            stream * rowOf(getSumColumns(sizes)); // which waits
  // What is computed, for FMAs.
  if (sizes.usesFma)
    bytes += rows * std::max<int64_t>(stream * sizes.bytes, 128);
  return bytes;
}

/// Streamed elements: k of an instruction, or what FMAs read of a row at a time.
static int64_t getLeastStream(int64_t bytes) { return bytes == 2 ? 16 : 8; }

/// Columns of a piece of an operand: rows of 256 bytes, or, the least, of 128, a slab.
static int64_t getPiece(int64_t bytes) { return 256 / bytes; }
static int64_t getLeastPiece(int64_t bytes) { return 128 / bytes; }

/// How many rows a warp has, and what is streamed at a time: a thread of two warps for 64 rows
/// holds `columns` sums of each 32-bit accumulator and `stream` scores, one of four warps half of
/// that, of 255 registers.
static WarpTiles getStart(ProductSizes sizes, WarpKernel kernel) {
  int64_t sums = kernel.sums, held = getSumColumns(sizes) * sums,
          rows = kernel.isFewRows ? 64 : 128;
  if (sizes.bytes == 8)
    return {64, held > 64 ? 16 : 32, 2, 4};
  bool isWide = sizes.bytes == 4;
  // Sums of a gradient, which is two products before them: small tiles, of two CTAs.
  if (kernel.isGradient && !isWide && sizes.columns <= 128)
    return {64, 32, 2, held > 128 ? 4 : 2};
  if (held > 128 || (sums > 1 && !isWide))
    return {rows, held > 256 || isWide ? 32 : 64, 2, 4};
  // Of few rows most are no one's: warps are there to copy, and to wait for copies by turns.
  return {rows, sums > 1 ? 32 : 64, 2, kernel.isFewRows ? 4 : 2};
}

std::optional<WarpTiles> attn::findWarpTiles(ProductSizes sizes, WarpKernel kernel,
                                             const target::Limits &limits, WarpTiles asked) {
  WarpTiles tiles = getStart(sizes, kernel);
  auto take = [](int64_t &size, int64_t other) { size = other > 0 ? other : size; };
  take(tiles.rows, asked.rows);
  take(tiles.stream, asked.stream);
  take(tiles.stages, asked.stages);
  take(tiles.groupWarps, asked.groupWarps);
  take(tiles.productColumns, asked.productColumns);
  int64_t least = getLeastStream(sizes.bytes);
  auto fits = [&](int64_t ctas) {
    int64_t reserved = limits.sharedBytesReserved;
    return tiles.getSharedBytes(sizes, kernel.isGradient ? 2 : 1) <=
           (limits.sharedBytesPerCta + reserved) / ctas - reserved;
  };
  // FMAs of one CTA wait for its loads: two of them take turns, if their tiles can be so small.
  if (sizes.bytes == 4 && asked.stream <= 0) {
    WarpTiles smaller = tiles;
    while (!fits(/*ctas=*/2) && tiles.stream > 16)
      tiles.stream /= 2;
    if (!fits(/*ctas=*/2))
      tiles = smaller;
  }
  // Wide sums: small tiles leave out more of a mask, if two CTAs fit, of which one waits.
  bool isAsked = asked.rows > 0 || asked.stream > 0 || asked.stages > 0 || asked.productColumns > 0;
  if (kernel.isMasked && !kernel.isGradient && !kernel.isFewRows && sizes.bytes == 2 &&
      getSumColumns(sizes) > 128 && !isAsked) {
    WarpTiles larger = tiles;
    tiles.rows = 64;
    tiles.stream = 32;
    if (!fits(/*ctas=*/2))
      tiles = larger;
  }
  WarpTiles whole = tiles;
  bool mayDivide = asked.productColumns <= 0;
  auto divide = [&] {
    int64_t pieces = tiles.productColumns;
    tiles = whole;
    tiles.productColumns = pieces ? getLeastPiece(sizes.bytes) : getPiece(sizes.bytes);
    mayDivide = tiles.productColumns > getLeastPiece(sizes.bytes);
  };
  while (!fits(/*ctas=*/1)) {
    if (asked.stream <= 0 && tiles.stream > least && tiles.stream > tiles.rows / 4)
      tiles.stream /= 2;
    else if (mayDivide && sizes.usesFma && !kernel.isGradient)
      divide(); // FMAs hide the waits, and fewer warps would hide less
    else if (asked.rows <= 0 && tiles.rows > hopper::kWarpgroupRows)
      tiles.rows = hopper::kWarpgroupRows;
    else if (asked.stream <= 0 && tiles.stream > least)
      tiles.stream /= 2;
    else if (asked.stages <= 0 && tiles.stages > 1)
      tiles.stages = 1; // copies that nothing runs beside
    else if (mayDivide)
      divide();
    else
      return std::nullopt;
  }
  return tiles;
}

void attn::setStream(ModuleOp module, int64_t stream) {
  module.walk([&](FoldOp fold) {
    if (fold->hasAttr(kBlockNAttr))
      fold->setAttr(kBlockNAttr, Builder(fold.getContext()).getI64IntegerAttr(stream));
  });
}

int64_t attn::findSharedBytes(ModuleOp module) {
  constexpr int64_t kTileAlignment = 1024;
  int64_t most = 0;
  module.walk([&](gpu::LaunchOp launch) {
    int64_t bytes = 0;
    launch.walk([&](hopper::AllocOp alloc) {
      bytes = llvm::alignTo(bytes, kTileAlignment) + alloc.getMemory().getType().getBytes();
    });
    most = std::max(most, bytes);
  });
  return most;
}

/// Halves the stream while it is no shorter than the rows, then rows and stream by turns.
static bool shrink(int64_t &rows, int64_t &stream, int64_t least) {
  if (stream > least && (2 * stream >= rows || rows <= hopper::kWarpgroupRows))
    stream = llvm::alignTo(stream / 2, least);
  else if (rows > hopper::kWarpgroupRows)
    rows = hopper::kWarpgroupRows;
  else
    return false;
  return true;
}

bool attn::shrinkWarpTiles(ModuleOp module) {
  auto schedule = module->getAttrOfType<hopper::ScheduleAttr>(hopper::kScheduleAttr);
  int64_t rows = schedule.getBlockM(), stream = schedule.getBlockN();
  int64_t least = getLeastStream(findProductSizes(module).bytes), stages = schedule.getStages();
  bool changed = shrink(rows, stream, least);
  MLIRContext *context = module.getContext();
  Builder b(context);
  module.walk([&](FoldOp fold) {
    auto ofRows = fold->getAttrOfType<IntegerAttr>(kBlockMAttr);
    auto ofStream = fold->getAttrOfType<IntegerAttr>(kBlockNAttr);
    if (!ofStream)
      return;
    int64_t rows = ofRows ? ofRows.getInt() : schedule.getBlockM(), stream = ofStream.getInt();
    changed |= shrink(rows, stream, least);
    if (ofRows)
      fold->setAttr(kBlockMAttr, b.getI64IntegerAttr(rows));
    fold->setAttr(kBlockNAttr, b.getI64IntegerAttr(stream));
  });
  int64_t pieces = schedule.getProductColumns(), bytes = findProductSizes(module).bytes;
  if (!changed && stages > 1) {
    stages = 1; // copies that nothing runs beside
    changed = true;
  } else if (!changed && (pieces == 0 || pieces > getLeastPiece(bytes))) {
    pieces = pieces ? getLeastPiece(bytes) : getPiece(bytes);
    changed = true;
  }
  module->setAttr(
      hopper::kScheduleAttr,
      hopper::ScheduleAttr::get(
          context, rows, stream, schedule.getParts(), stages, schedule.getCtas(),
          schedule.getOccupancy(), schedule.getCluster(), schedule.getProducerRegisters(),
          schedule.getOutput(), schedule.getMaxima(), schedule.getPipeline(), schedule.getOverlap(),
          schedule.getPingPong(), schedule.getTrim(), schedule.getRescaleThreshold(),
          schedule.getExp2Emulation(), schedule.getAddsSums(), schedule.getOrdered(),
          schedule.getStoresFirst(), schedule.getAdderFences(), schedule.getLoadsTiles(),
          schedule.getProducts(), schedule.getGroupWarps(), schedule.getTf32(), pieces));
  return changed;
}

LogicalResult attn::assignWarpTiles(ModuleOp module, const target::Limits &limits,
                                    WarpTiles asked) {
  // Those of the table, for what is no fold of several sums.
  assignTiles(module, /*ofOneSum=*/0, /*ofTwoSums=*/0);
  WalkResult walk = module.walk([&](FoldOp fold) {
    if (!fold->hasAttr(kBlockNAttr))
      return WalkResult::advance();
    ProductSizes sizes = findProductSizes(fold);
    int64_t sums = std::max<int64_t>(1, int64_t(fold.getState().size()));
    std::optional<WarpTiles> tiles =
        findWarpTiles(sizes, {/*isGradient=*/true, /*isFewRows=*/false, sums}, limits, asked);
    if (!tiles)
      return fold.emitOpError() << "has tiles of " << sizes.columns << " columns: no two rows of "
                                << "64 fit into the " << limits.sharedBytesPerCta
                                << " bytes of shared memory of a CTA",
             WalkResult::interrupt();
    Builder b(fold.getContext());
    fold->setAttr(kBlockMAttr, b.getI64IntegerAttr(tiles->rows));
    fold->setAttr(kBlockNAttr, b.getI64IntegerAttr(tiles->stream));
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}
