// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pass: vector tiles to loops over machine vectors and scratch memory.
// attn/Utils/TileClasses.h says which dimensions run together, Plan.h what becomes a loop
// nest, Nest.h how one is written.

#include "Plan.h"
#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/TargetParser/Host.h"

namespace attn {
#define GEN_PASS_DEF_ATTNLOWERTILES
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn::tiles;

static attn::Done numLowered("attn-lower-tiles", "lowered",
                             "Functions whose tiles became loops of vectors");

namespace {
bool isTile(Type type) { return isa<VectorType>(type); }

bool isTileOp(Operation *op) {
  return llvm::any_of(op->getOperandTypes(), isTile) || llvm::any_of(op->getResultTypes(), isTile);
}

/// Drops the tile results of a loop or branch; its body no longer needs them.
template <typename MakeOp> void rebuild(Operation *op, MakeOp make) {
  SmallVector<Value> kept;
  for (Value result : op->getResults())
    if (!tileType(result))
      kept.push_back(result);
  for (Region &region : op->getRegions())
    if (!region.empty()) {
      Operation *yield = region.front().getTerminator();
      SmallVector<Value> values;
      for (Value value : yield->getOperands())
        if (value && !tileType(value))
          values.push_back(value);
      yield->setOperands(values);
    }
  Operation *replacement = make(kept);
  for (auto [from, to] : llvm::zip_equal(kept, replacement->getResults()))
    from.replaceAllUsesWith(to);
  replacement->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  op->dropAllUses();
  op->erase();
}

void rebuildFor(scf::ForOp loop) {
  SmallVector<Value> inits;
  for (Value init : loop.getInitArgs())
    if (init && !tileType(init))
      inits.push_back(init);
  rebuild(loop, [&](ArrayRef<Value>) -> Operation * {
    OpBuilder b(loop);
    auto fresh =
        scf::ForOp::create(b, loop.getLoc(), loop.getLowerBound(), loop.getUpperBound(),
                           loop.getStep(), inits, /*bodyBuilder=*/nullptr, loop.getUnsignedCmp());
    Block *body = fresh.getBody();
    if (inits.empty())
      body->getTerminator()->erase();
    body->getOperations().splice(body->end(), loop.getBody()->getOperations());
    unsigned next = 0;
    loop.getInductionVar().replaceAllUsesWith(fresh.getInductionVar());
    for (BlockArgument arg : loop.getRegionIterArgs())
      if (!tileType(arg))
        arg.replaceAllUsesWith(fresh.getRegionIterArg(next++));
    return fresh;
  });
}

void rebuildIf(scf::IfOp branch) {
  rebuild(branch, [&](ArrayRef<Value> kept) -> Operation * {
    OpBuilder b(branch);
    auto fresh = scf::IfOp::create(b, branch.getLoc(), TypeRange(ValueRange(kept)),
                                   branch.getCondition(), /*addThenBlock=*/false,
                                   /*addElseBlock=*/false);
    fresh.getThenRegion().takeBody(branch.getThenRegion());
    fresh.getElseRegion().takeBody(branch.getElseRegion());
    return fresh;
  });
}

/// Erases what has been lowered: `tileOps`, then the tiles in control flow.
void removeTiles(ArrayRef<Operation *> tileOps) {
  SmallVector<Operation *> control;
  for (Operation *op : tileOps) {
    if (isa<scf::YieldOp>(op))
      continue;
    if (isa<scf::ForOp, scf::IfOp>(op)) {
      control.push_back(op);
      continue;
    }
    op->dropAllUses();
    op->erase();
  }
  // The walk was post-order: inner control flow comes first. The operands that
  // went are null by now; types are those of the results.
  for (Operation *op : control) {
    if (auto loop = dyn_cast<scf::ForOp>(op))
      rebuildFor(loop);
    else
      rebuildIf(cast<scf::IfOp>(op));
  }
}

LogicalResult checkStructure(Operation *root) {
  WalkResult walk = root->walk([&](Operation *op) {
    for (Region &region : op->getRegions()) {
      bool hasTiles = llvm::any_of(region.getOps(), [](Operation &o) { return isTileOp(&o); });
      if (hasTiles && !region.hasOneBlock()) {
        op->emitOpError("expected structured control flow around tiles, got a region of ")
            << region.getBlocks().size() << " blocks";
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

/// `value`, whose dimensions are those of a product that `map` names, over all of `result`;
/// dimensions that the result has not are of one element.
Value spread(OpBuilder &b, Location loc, Value value, AffineMap map, AffineMap resultMap,
             VectorType result) {
  auto type = cast<VectorType>(value.getType());
  SmallVector<int64_t> own, sizes;
  for (unsigned dim = 0; dim < map.getNumResults(); ++dim)
    if (std::optional<unsigned> position = resultMap.getResultPosition(map.getResult(dim))) {
      own.push_back(*position);
      sizes.push_back(type.getDimSize(dim));
    }
  // What the operand lacks comes first; then all go where the result has them.
  SmallVector<int64_t> order, shape;
  for (int64_t dim = 0; dim < result.getRank(); ++dim)
    if (!llvm::is_contained(own, dim)) {
      order.push_back(dim);
      shape.push_back(result.getDimSize(dim));
    }
  llvm::append_range(order, own);
  llvm::append_range(shape, sizes);
  Type element = type.getElementType();
  value = vector::ShapeCastOp::create(b, loc, VectorType::get(sizes, element), value);
  value = vector::BroadcastOp::create(b, loc, VectorType::get(shape, element), value);
  SmallVector<int64_t> places(order.size());
  for (auto [from, to] : llvm::enumerate(order))
    places[to] = from;
  return vector::TransposeOp::create(b, loc, value, places);
}

/// Sums of one product (gradients of a single query's keys) need no scratch: the product takes
/// their place.
void replaceSingleProducts(Operation *root) {
  root->walk([](vector::ContractionOp op) {
    auto result = dyn_cast<VectorType>(op.getResult().getType());
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    SmallVector<int64_t> sizes;
    op.getIterationBounds(sizes);
    bool isSingle = result && isa<FloatType>(result.getElementType()) &&
                    op.getKind() == vector::CombiningKind::ADD &&
                    matchPattern(op.getAcc(), m_AnyZeroFloat());
    for (auto [size, type] : llvm::zip_equal(sizes, op.getIteratorTypesArray()))
      isSingle &= type == vector::IteratorType::parallel || size == 1;
    for (Value operand : {op.getLhs(), op.getRhs()})
      isSingle &= getElementTypeOrSelf(operand.getType()) == getElementTypeOrSelf(result);
    if (!isSingle)
      return;
    OpBuilder b(op);
    Value left = spread(b, op.getLoc(), op.getLhs(), maps[0], maps[2], result);
    Value right = spread(b, op.getLoc(), op.getRhs(), maps[1], maps[2], result);
    op.replaceAllUsesWith(arith::MulFOp::create(b, op.getLoc(), left, right).getResult());
    op.erase();
  });
}

int64_t hostVectorBits() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  if (features.lookup("avx512f"))
    return 512;
  return features.lookup("avx") ? 256 : 128;
}

struct LowerTiles : attn::impl::AttnLowerTilesBase<LowerTiles> {
  using AttnLowerTilesBase::AttnLowerTilesBase;

  void runOnOperation() override {
    Operation *root = getOperation();
    int64_t bits = vectorBits ? int64_t(vectorBits) : hostVectorBits();
    if (bits != 128 && bits != 256 && bits != 512) {
      emitError(root->getLoc()) << "expected vector-bits 128, 256 or 512, got " << bits;
      return signalPassFailure();
    }
    auto unit = llvm::StringSwitch<std::optional<MatrixUnit>>(matrixUnit)
                    .Case("none", MatrixUnit::None)
                    .Case("avx512_bf16", MatrixUnit::Avx512Bf16)
                    .Case("amx", MatrixUnit::Amx)
                    .Default(std::nullopt);
    if (!unit) {
      emitError(root->getLoc()) << "expected matrix-unit none, avx512_bf16 or amx, got '"
                                << matrixUnit << "'";
      return signalPassFailure();
    }
    if (*unit != MatrixUnit::None && bits != 512) {
      emitError(root->getLoc()) << "matrix-unit " << matrixUnit << " needs vector-bits 512, got "
                                << bits;
      return signalPassFailure();
    }
    if (getOperation().isExternal())
      return;
    bool hasTiles = root->walk([](Operation *op) {
                          return isTileOp(op) ? WalkResult::interrupt() : WalkResult::advance();
                        })
                        .wasInterrupted() ||
                    llvm::any_of(getOperation().getArgumentTypes(), isTile);
    if (!hasTiles)
      return;
    replaceSingleProducts(root);
    attn::separateTileUses(root);
    Context context;
    context.vectorBits = bits;
    context.vectorRegisters = bits == 512 ? 32 : 16;
    if (failed(checkStructure(root)) || failed(context.classes.buildSeparating(root)))
      return signalPassFailure();
    // Vectors of f32 that are as short are not left empty.
    context.classes.setFewElements(bits / 32 > kFewRows ? kFewRows : 1);
    SmallVector<Operation *> tileOps;
    root->walk([&](Operation *op) {
      if (isTileOp(op))
        tileOps.push_back(op);
    });
    root->walk([&](vector::ContractionOp op) {
      Kernel kernel = matchKernel(context.classes, op);
      if (!kernel.op)
        return;
      context.laneSources[op] = findLaneSource(context.classes, kernel);
      MatrixOperands operands = matchMatrixOperands(context.classes, kernel, *unit);
      if (operands.unit != MatrixUnit::None)
        context.matrixOperands[op] = operands;
    });
    Block &body = root->getRegion(0).front();
    Scratch scratch(body);
    numLowered.at(root) << remark::metric("Tiles", tileOps.size())
                        << remark::metric("Products", context.laneSources.size())
                        << remark::metric("MatrixProducts", context.matrixOperands.size())
                        << remark::metric("VectorBits", bits);
    BlockLowering(context, scratch, body, {}).run();
    removeTiles(tileOps);
  }
};
} // namespace
