// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-emulate-matrix-units: what matrix units do, by loops and vectors.

#include "attn/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEMULATEMATRIXUNITS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
class Emulation {
public:
  explicit Emulation(func::FuncOp function) : function(function) {}

  LogicalResult run() {
    SmallVector<Operation *> ops;
    function.walk([&](Operation *op) {
      if (isa<amx::AMXDialect>(op->getDialect()))
        ops.push_back(op);
      else if (auto dot = dyn_cast<x86vector::DotBF16Op>(op))
        emulate(dot);
      else if (auto convert = dyn_cast<x86vector::CvtPackedF32ToBF16Op>(op))
        emulate(convert);
    });
    for (Operation *op : ops)
      if (failed(emulate(op)))
        return failure();
    for (Operation *op : llvm::reverse(ops))
      op->erase();
    return success();
  }

private:
  /// The memory of a tile, outside of all loops.
  Value allocate(Value tile) {
    auto type = cast<amx::TileType>(tile.getType());
    Operation *body = tile.getDefiningOp()->getParentOp();
    while (!isa<scf::ForallOp, func::FuncOp>(body))
      body = body->getParentOp();
    OpBuilder b = OpBuilder::atBlockBegin(&body->getRegion(0).front());
    auto memory = MemRefType::get(type.getShape(), type.getElementType());
    return memories[tile] = memref::AllocaOp::create(b, tile.getLoc(), memory);
  }

  LogicalResult emulate(Operation *op) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    zero = arith::ConstantIndexOp::create(b, 0);
    if (auto make = dyn_cast<amx::TileZeroOp>(op)) {
      Value memory = allocate(make.getRes());
      auto type = make.getTileType();
      auto row = VectorType::get({type.getDimSize(1)}, type.getElementType());
      Value none = arith::ConstantOp::create(b, b.getZeroAttr(row));
      forRows(b, type.getDimSize(0), [&](Value index) { store(b, none, memory, {index, zero}); });
      return success();
    }
    if (auto read = dyn_cast<amx::TileLoadOp>(op)) {
      if (read.getStride() || read.getIndices().size() != 2)
        return op->emitOpError("expected a tile of a matrix");
      Value memory = allocate(read.getRes());
      auto type = read.getTileType();
      forRows(b, type.getDimSize(0), [&](Value index) {
        Type stored = read.getMemRefType().getElementType();
        int64_t bits = type.getDimSize(1) * type.getElementTypeBitWidth();
        auto loaded = VectorType::get({bits / stored.getIntOrFloatBitWidth()}, stored);
        Value row = arith::AddIOp::create(b, read.getIndices()[0], index);
        Value vector = vector::LoadOp::create(b, loaded, read.getBase(),
                                              ValueRange{row, read.getIndices()[1]});
        auto wanted = VectorType::get({type.getDimSize(1)}, type.getElementType());
        if (loaded != wanted)
          vector = vector::BitCastOp::create(b, wanted, vector);
        store(b, vector, memory, {index, zero});
      });
      return success();
    }
    if (auto write = dyn_cast<amx::TileStoreOp>(op)) {
      if (write.getStride() || write.getIndices().size() != 2)
        return op->emitOpError("expected a tile of a matrix");
      auto type = write.getTileType();
      forRows(b, type.getDimSize(0), [&](Value index) {
        Value row = arith::AddIOp::create(b, write.getIndices()[0], index);
        Value vector = load(b, memories.lookup(write.getVal()), index);
        store(b, vector, write.getBase(), {row, write.getIndices()[1]});
      });
      return success();
    }
    if (auto multiply = dyn_cast<amx::TileMulFOp>(op)) {
      emulate(b, multiply);
      return success();
    }
    return op->emitOpError("expected an op of tiles of floats");
  }

  /// Pairs are added up in two sums, of first and of second elements (TDPBF16PS).
  void emulate(ImplicitLocOpBuilder &b, amx::TileMulFOp op) {
    Value result = allocate(op.getRes());
    Value left = memories.lookup(op.getLhs()), right = memories.lookup(op.getRhs());
    Value start = memories.lookup(op.getAcc());
    auto sums = cast<amx::TileType>(op.getRes().getType());
    auto lefts = cast<amx::TileType>(op.getLhs().getType());
    auto row = VectorType::get({sums.getDimSize(1)}, sums.getElementType());
    Value one = arith::ConstantIndexOp::create(b, 1), two = arith::ConstantIndexOp::create(b, 2);
    Value pairs = arith::ConstantIndexOp::create(b, lefts.getDimSize(1) / 2);
    Value none = arith::ConstantOp::create(b, b.getZeroAttr(row));
    forRows(b, sums.getDimSize(0), [&](Value index) {
      auto loop = scf::ForOp::create(b, zero, pairs, one, ValueRange{none, none});
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToStart(loop.getBody());
        Value pair = loop.getInductionVar(), element = arith::MulIOp::create(b, pair, two);
        auto halves = vector::DeinterleaveOp::create(b, load(b, right, pair));
        SmallVector<Value> next;
        for (auto [k, half] : llvm::enumerate(halves->getResults())) {
          Value at = k ? arith::AddIOp::create(b, element, one).getResult() : element;
          Value scalar = memref::LoadOp::create(b, left, ValueRange{index, at});
          scalar = vector::BroadcastOp::create(b, half.getType(), scalar);
          next.push_back(vector::FMAOp::create(b, arith::ExtFOp::create(b, row, scalar),
                                               arith::ExtFOp::create(b, row, half),
                                               loop.getRegionIterArg(k)));
        }
        scf::YieldOp::create(b, next);
      }
      Value sum = arith::AddFOp::create(b, loop.getResult(0), loop.getResult(1));
      sum = arith::AddFOp::create(b, load(b, start, index), sum);
      store(b, sum, result, {index, zero});
    });
  }

  /// Second elements first (VDPBF16PS).
  static void emulate(x86vector::DotBF16Op op) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    auto left = vector::DeinterleaveOp::create(b, op.getA());
    auto right = vector::DeinterleaveOp::create(b, op.getB());
    Value sum = op.getSrc();
    for (unsigned k : {1, 0})
      sum =
          vector::FMAOp::create(b, arith::ExtFOp::create(b, sum.getType(), left->getResult(k)),
                                arith::ExtFOp::create(b, sum.getType(), right->getResult(k)), sum);
    op.replaceAllUsesWith(sum);
    op.erase();
  }

  static void emulate(x86vector::CvtPackedF32ToBF16Op op) {
    OpBuilder b(op);
    op.replaceAllUsesWith(
        arith::TruncFOp::create(b, op.getLoc(), op.getDst().getType(), op.getA()).getResult());
    op.erase();
  }

  void forRows(ImplicitLocOpBuilder &b, int64_t rows, function_ref<void(Value)> body) {
    Value end = arith::ConstantIndexOp::create(b, rows), one = arith::ConstantIndexOp::create(b, 1);
    auto loop = scf::ForOp::create(b, zero, end, one);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    body(loop.getInductionVar());
  }

  Value load(ImplicitLocOpBuilder &b, Value memory, Value row) {
    auto type = cast<MemRefType>(memory.getType());
    auto vector = VectorType::get({type.getDimSize(1)}, type.getElementType());
    return vector::LoadOp::create(b, vector, memory, ValueRange{row, zero});
  }
  void store(ImplicitLocOpBuilder &b, Value vector, Value memory, ArrayRef<Value> at) {
    vector::StoreOp::create(b, vector, memory, at);
  }

  func::FuncOp function;
  DenseMap<Value, Value> memories;
  Value zero;
};

struct EmulateMatrixUnitsPass : attn::impl::AttnEmulateMatrixUnitsBase<EmulateMatrixUnitsPass> {
  void runOnOperation() override {
    if (failed(Emulation(getOperation()).run()))
      signalPassFailure();
  }
};
} // namespace
