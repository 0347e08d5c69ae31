// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles and vectors that are read to registers come through shared memory: TMA
// copies whole lines, early, where threads would read a few bytes of many, when
// they need them.

#include "Loops.h"
#include "TileLoads.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERLOADTILES
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numLoaded("hopper-load-tiles", "loaded", "Tiles that come through shared memory");
static attn::Done numRows("hopper-load-tiles", "row loaded",
                          "Rows that come through shared memory");

namespace {

class TileReads {
public:
  explicit TileReads(Operation *root) : root(root) {}

  /// Whether TMA may copy what `read` reads, for all strides known only at run
  /// time.
  bool isLoadable(vector::TransferReadOp read) {
    scf::ForallOp warpgroups = findLoop(read);
    return warpgroups && hopper::hasTile(read) && hopper::hasZeros(read) &&
           (read.getPermutationMap().isMinorIdentity() || isTransposed(read)) &&
           isArgument(read.getBase()) && hasKnownAddress(read, warpgroups);
  }

  /// Whether a row of the vector is a column of memory.
  static bool isTransposed(vector::TransferReadOp read) {
    AffineMap map = read.getPermutationMap();
    unsigned rank = map.getNumDims();
    MLIRContext *context = read.getContext();
    return map == AffineMap::get(
                      rank, 0,
                      {getAffineDimExpr(rank - 1, context), getAffineDimExpr(rank - 2, context)},
                      context);
  }

  /// Whether `read` is an aligned part of a row of memory that was made for it, the same
  /// for all warpgroups.
  bool isRow(vector::TransferReadOp read) {
    scf::ForallOp warpgroups = findLoop(read);
    VectorType type = read.getVectorType();
    auto alloc = read.getBase().getDefiningOp<memref::AllocOp>();
    auto program = warpgroups ? warpgroups->getParentOfType<scf::ForallOp>() : nullptr;
    if (!program || type.getRank() != 1 || !type.getElementType().isF32() || !alloc ||
        root->isProperAncestor(alloc->getParentOp()) ||
        programs::isWrittenIn(program, alloc.getMemref()))
      return false;
    MemRefType memory = alloc.getType();
    int64_t bytes = type.getDimSize(0) * tile::getElementBytes(type.getElementType());
    return memory.getRank() >= 2 && memory.getRank() <= 5 && memory.getLayout().isIdentity() &&
           !memory.isDynamicDim(memory.getRank() - 1) &&
           memory.getShape().back() % type.getDimSize(0) == 0 && bytes % kRowBytes == 0 &&
           !read.hasOutOfBoundsDim() && read.getPermutationMap().isMinorIdentity() &&
           hopper::hasZeros(read) && llvm::all_of(read.getIndices(), [&](Value index) {
             return isComputable(index, warpgroups);
           });
  }

private:
  /// What a tile of one row is a multiple of.
  static constexpr int64_t kRowBytes = 128;

  /// The loop over warpgroups, where the read is in a loop with products.
  static scf::ForallOp findLoop(vector::TransferReadOp read) {
    auto loop = dyn_cast<scf::ForOp>(read->getParentOp());
    bool hasProducts = loop && !loop.getBody()->getOps<tile::MmaOp>().empty();
    return hasProducts ? hopper::getWarpgroupLoop(read) : nullptr;
  }

  /// Memory from outside that nobody writes.
  bool isArgument(Value base) {
    auto type = cast<MemRefType>(base.getType());
    auto argument = dyn_cast<BlockArgument>(base);
    SmallVector<int64_t> strides;
    int64_t offset;
    if (!argument || !isa<func::FuncOp>(argument.getOwner()->getParentOp()) || type.getRank() < 2 ||
        type.getRank() > 5 || failed(type.getStridesAndOffset(strides, offset)) ||
        strides.back() != 1)
      return false;
    int64_t bytes = tile::getElementBytes(type.getElementType());
    bool isReachable = llvm::all_of(ArrayRef(strides).drop_back(), [&](int64_t stride) {
      return ShapedType::isDynamic(stride) || stride * bytes % 16 == 0;
    });
    return isReachable && !programs::isWrittenIn(root, cast<MemrefValue>(base));
  }

  /// Whether the rows of all warpgroups are one tile (or its columns, transposed), at a
  /// place that the role that copies can compute.
  static bool hasKnownAddress(vector::TransferReadOp read, scf::ForallOp warpgroups) {
    SmallVector<Value> sources(read.getIndices());
    auto at = sources.end() - (isTransposed(read) ? 1 : 2);
    Value row = *at;
    if (!hopper::getFirst(row, warpgroups, hopper::kWarpgroupRows))
      return false;
    sources.erase(at);
    for (Value operand : row.getDefiningOp()->getOperands())
      if (operand != warpgroups.getInductionVar(0))
        sources.push_back(operand);
    return llvm::all_of(sources, [&](Value source) { return isComputable(source, warpgroups); });
  }

  /// Scalar arithmetic on loop variables, on what comes from outside of the tile
  /// program, and on what tables have that it does not write.
  static bool isComputable(Value value, scf::ForallOp warpgroups) {
    auto tiles = warpgroups->getParentOfType<scf::ForallOp>();
    if (!tiles || tiles.isDefinedOutsideOfLoop(value))
      return bool(tiles);
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto loop = dyn_cast<LoopLikeOpInterface>(argument.getOwner()->getParentOp());
      std::optional<SmallVector<Value>> variables =
          loop ? loop.getLoopInductionVars() : std::nullopt;
      return variables && loop != warpgroups && llvm::is_contained(*variables, value);
    }
    Operation *op = value.getDefiningOp();
    auto load = dyn_cast<memref::LoadOp>(op);
    bool isKnown = load ? !programs::isWrittenIn(tiles, cast<MemrefValue>(load.getMemRef()))
                        : isMemoryEffectFree(op) && op->getNumRegions() == 0;
    return isKnown && llvm::none_of(op->getOperandTypes(), llvm::IsaPred<VectorType>) &&
           llvm::all_of(op->getOperands(),
                        [&](Value operand) { return isComputable(operand, warpgroups); });
  }

  Operation *root;
};

/// Coordinates of a tile program that a loaded tile does not depend on come last but for
/// the rows: tiles that differ in them alone read the same memory at about the same time.
void bringTogether(scf::ForallOp tiles, ArrayRef<tile::LoadOp> loads) {
  SmallVector<unsigned> order, unrelated;
  unsigned rank = tiles.getRank();
  for (unsigned d = 0; d + 1 < rank; ++d) {
    bool isRelated = llvm::any_of(loads, [&](tile::LoadOp load) {
      return llvm::any_of(load.getIndices(), [&](Value index) {
        return programs::dependsOn(index, tiles.getInductionVar(d));
      });
    });
    (isRelated ? order : unrelated).push_back(d);
  }
  if (order.empty() || unrelated.empty())
    return;
  llvm::append_range(order, unrelated);
  order.push_back(rank - 1);
  OpBuilder b(tiles);
  SmallVector<OpFoldResult> bounds;
  for (unsigned d : order)
    bounds.push_back(tiles.getMixedUpperBound()[d]);
  auto permuted =
      scf::ForallOp::create(b, tiles.getLoc(), bounds, ValueRange(), tiles.getMapping());
  permuted->setDiscardableAttrs(tiles->getDiscardableAttrDictionary());
  for (auto [place, d] : llvm::enumerate(order))
    tiles.getInductionVar(d).replaceAllUsesWith(permuted.getInductionVar(place));
  Block *body = permuted.getBody();
  body->getOperations().splice(body->getTerminator()->getIterator(),
                               tiles.getBody()->getOperations(), tiles.getBody()->begin(),
                               tiles.getBody()->getTerminator()->getIterator());
  tiles.erase();
}

void loadRow(vector::TransferReadOp read) {
  numRows.at(read);
  OpBuilder b(read);
  VectorType type = read.getVectorType();
  auto tile = tile::SmemType::get({1, type.getDimSize(0)}, type.getElementType(), /*swizzle=*/0);
  Value row =
      tile::LoadOp::create(b, read.getLoc(), tile, read.getBase(), read.getIndices()).getTile();
  read.replaceAllUsesWith(
      tile::ReadOp::create(b, read.getLoc(), type, row, /*transpose=*/false).getValue());
  read.erase();
}

struct LoadTilesPass : attn::impl::HopperLoadTilesBase<LoadTilesPass> {
  using Base::Base;

  void runOnOperation() override {
    TileReads tiles(getOperation());
    SmallVector<vector::TransferReadOp> reads, rows;
    getOperation().walk([&](vector::TransferReadOp read) {
      if (arguments && tiles.isLoadable(read))
        reads.push_back(read);
      else if (tiles.isRow(read))
        rows.push_back(read);
    });
    llvm::for_each(rows, loadRow);
    llvm::MapVector<Operation *, SmallVector<tile::LoadOp>> loads;
    for (vector::TransferReadOp read : reads) {
      numLoaded.at(read);
      OpBuilder b(read);
      bool transposed = TileReads::isTransposed(read);
      Value tile = hopper::loadTile(b, read, /*perWarpgroup=*/!transposed);
      auto program = hopper::getWarpgroupLoop(read)->getParentOfType<scf::ForallOp>();
      loads[program].push_back(tile.getDefiningOp()->getOperand(0).getDefiningOp<tile::LoadOp>());
      read.replaceAllUsesWith(
          tile::ReadOp::create(b, read.getLoc(), read.getVectorType(), tile, transposed)
              .getValue());
      read.erase();
    }
    for (auto &[program, copies] : loads)
      if (auto tiles = cast<scf::ForallOp>(program);
          tiles.isNormalized() && tiles->getNumResults() == 0 && !programs::isOfWarpgroups(tiles))
        bringTogether(tiles, copies);
  }
};

} // namespace
