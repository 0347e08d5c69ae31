// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs without products have a few columns each: strip-mining of the columns of a tile, whose
// strips run in parallel.

#include "attn/Transforms/Programs/Loops.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

namespace attn {
#define GEN_PASS_DEF_ATTNDIVIDECOLUMNS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numDivided("attn-divide-columns", "divided",
                             "Programs that have a few columns of a tile each");

namespace {

/// A program, and the one shape that its tiles have.
class Program {
public:
  Program(scf::ForallOp forall, int64_t columns) : forall(forall), columns(columns) {}

  /// Whether all that it computes for a column follows from rows and from that column.
  bool match() {
    bool hasLoop = false;
    WalkResult walk = forall.getBody()->walk([&](Operation *op) {
      hasLoop |= isa<scf::ForOp>(op);
      bool isLess = llvm::all_of(op->getResultTypes(), [](Type type) {
        auto vector = dyn_cast<VectorType>(type);
        return !vector || vector.getRank() <= 2;
      });
      bool isOwn = llvm::all_of(op->getOperands(), [&](Value value) {
        return isInside(value) || !isTile(value.getType()) || isSplat(value);
      });
      return WalkResult(success(isKnown(op) && isLess && isOwn));
    });
    return !walk.wasInterrupted() && hasLoop && forall.getNumResults() == 0 && width &&
           width % columns == 0 && width > columns && areApart();
  }

  void rewrite() {
    ImplicitLocOpBuilder b(forall.getLoc(), forall);
    SmallVector<OpFoldResult> bounds = forall.getMixedUpperBound();
    bounds.push_back(b.getIndexAttr(width / columns));
    std::optional<ArrayAttr> mapping;
    if (forall.getMapping())
      mapping = programs::getBlockMapping(b.getContext(), bounds.size());
    auto divided = scf::ForallOp::create(b, bounds, ValueRange(), mapping);
    Block *body = divided.getBody();
    IRMapping map;
    for (auto [old, added] : llvm::zip(forall.getInductionVars(), divided.getInductionVars()))
      map.map(old, added);
    strip = divided.getInductionVars().back();
    b.setInsertionPointToStart(body);
    first = arith::MulIOp::create(b, strip, arith::ConstantIndexOp::create(b, columns));
    isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, strip,
                                    arith::ConstantIndexOp::create(b, 0));
    for (Operation &op : forall.getBody()->without_terminator())
      b.clone(op, map);
    body->walk([&](Operation *op) { narrow(op); });
    forall.erase();
  }

private:
  bool isInside(Value value) { return forall.getRegion().isAncestor(value.getParentRegion()); }

  /// Whether no strip reads what another one may have written.
  bool areApart() {
    std::optional<programs::Touched> touched = programs::findTouched(forall);
    return touched && !programs::intersect(touched->read, touched->written);
  }

  /// Tiles are rows x width, or that transposed.
  static bool isTile(Type type) {
    auto vector = dyn_cast<VectorType>(type);
    return vector && vector.getRank() == 2;
  }
  static bool isSplat(Value value) {
    DenseElementsAttr elements;
    return matchPattern(value, m_Constant(&elements)) && elements.isSplat();
  }

  bool isKnown(Operation *op) {
    if (isa<scf::ForOp, scf::YieldOp, scf::InParallelOp, memref::SubViewOp>(op))
      return true;
    if (isa<arith::ConstantOp>(op))
      return !isTile(op->getResult(0).getType()) || isSplat(op->getResult(0));
    if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
      auto source = dyn_cast<VectorType>(broadcast.getSourceType());
      // A vector of rows is repeated, and then turned; others are of columns.
      return !isTile(broadcast.getType()) || !source ||
             llvm::all_of(op->getUsers(), [](Operation *user) {
               auto transpose = dyn_cast<vector::TransposeOp>(user);
               return transpose && transpose.getPermutation() == ArrayRef<int64_t>{1, 0};
             });
    }
    if (auto transpose = dyn_cast<vector::TransposeOp>(op)) {
      auto rows = transpose.getVector().getDefiningOp<vector::BroadcastOp>();
      return rows && isa<VectorType>(rows.getSourceType()) && isOfWidth(transpose.getType());
    }
    if (auto read = dyn_cast<vector::TransferReadOp>(op))
      return isKnownTransfer(read, read.getVectorType());
    if (auto write = dyn_cast<vector::TransferWriteOp>(op))
      return isKnownTransfer(write, write.getVectorType());
    if (!isMemoryEffectFree(op) || op->getNumRegions())
      return false;
    bool hasTile = llvm::any_of(op->getResultTypes(), [&](Type type) { return isTile(type); });
    return !hasTile
               ? !isa<vector::StepOp>(op) &&
                     llvm::none_of(op->getOperandTypes(), [&](Type type) { return isTile(type); })
               : OpTrait::hasElementwiseMappableTraits(op) && isOfWidth(op->getResult(0).getType());
  }

  template <typename Op> bool isKnownTransfer(Op op, VectorType type) {
    if (op.getMask())
      return false;
    if (type.getRank() != 2)
      return type.getRank() == 1;
    AffineMap map = op.getPermutationMap();
    auto column = dyn_cast<AffineDimExpr>(map.getResult(1));
    return column && map.getResult(0) != map.getResult(1) && isOfWidth(type) &&
           isConstantIntValue(op.getIndices()[column.getPosition()], 0);
  }

  bool isOfWidth(Type type) {
    ArrayRef<int64_t> shape = cast<VectorType>(type).getShape();
    if (!width) {
      rows = shape[0];
      width = shape[1];
    }
    return shape[0] == rows && shape[1] == width;
  }

  Type getNarrow(Type type, bool isTurned) {
    if (!isTile(type))
      return type;
    Type element = cast<VectorType>(type).getElementType();
    return isTurned ? VectorType::get({columns, rows}, element)
                    : VectorType::get({rows, columns}, element);
  }

  void narrow(Operation *op) {
    if (isa<arith::ConstantOp>(op))
      return; // each user has its own
    for (OpOperand &operand : op->getOpOperands())
      if (isTile(operand.get().getType()) && operand.get().getDefiningOp<arith::ConstantOp>())
        operand.set(narrowConstant(op, operand.get()));
    bool isTurned = isa<vector::BroadcastOp>(op) &&
                    isa<VectorType>(cast<vector::BroadcastOp>(op).getSourceType());
    for (Value result : op->getResults())
      result.setType(getNarrow(result.getType(), isTurned));
    for (Region &region : op->getRegions())
      for (Value argument : region.getArguments())
        argument.setType(getNarrow(argument.getType(), /*isTurned=*/false));
    if (auto read = dyn_cast<vector::TransferReadOp>(op))
      moveColumns(read, read.getVectorType());
    if (auto write = dyn_cast<vector::TransferWriteOp>(op)) {
      moveColumns(write, write.getVectorType());
      if (write.getVectorType().getRank() == 1) {
        OpBuilder b(op);
        auto once = scf::IfOp::create(b, op->getLoc(), isFirst, /*withElseRegion=*/false);
        op->moveBefore(once.thenBlock()->getTerminator());
      }
    }
  }

  template <typename Op> void moveColumns(Op op, VectorType type) {
    if (type.getRank() != 2)
      return;
    unsigned column = cast<AffineDimExpr>(op.getPermutationMap().getResult(1)).getPosition();
    op.getIndicesMutable()[column].set(first);
  }

  Value narrowConstant(Operation *user, Value constant) {
    auto elements = cast<DenseElementsAttr>(constant.getDefiningOp<arith::ConstantOp>().getValue());
    auto type = cast<VectorType>(getNarrow(constant.getType(), /*isTurned=*/false));
    if (cast<VectorType>(constant.getType()) == type)
      return constant;
    OpBuilder b(user);
    return arith::ConstantOp::create(b, user->getLoc(), elements.resizeSplat(type));
  }

  scf::ForallOp forall;
  int64_t columns, rows = 0, width = 0;
  Value strip, first, isFirst;
};

struct DivideColumnsPass : attn::impl::AttnDivideColumnsBase<DivideColumnsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (columns < 1) {
      getOperation().emitError("expected columns to be at least 1, got ") << int64_t(columns);
      return signalPassFailure();
    }
    for (scf::ForallOp forall : programs::findPrograms(getOperation()))
      if (Program program(forall, columns); program.match()) {
        numDivided.at(forall);
        program.rewrite();
      }
  }
};

} // namespace
