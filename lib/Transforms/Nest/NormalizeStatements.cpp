// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements in the form that later passes read: linalg.generic over loops, whose results have no
// dimension that no loop indexes.

#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_ATTNNORMALIZESTATEMENTS
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numDecomposed("attn-normalize-statements", "decomposed",
                                "Operations that became several statements");
static attn::Done numGeneralized("attn-normalize-statements", "generalized",
                                 "Named statements that became linalg.generic");
static attn::Done numInfinite("attn-normalize-statements", "start changed",
                              "Maxima and minima that start at an infinity, no more at NaN");
static attn::Done numDropped("attn-normalize-statements", "dimensions dropped",
                             "Functions whose kept dimensions of size 1 were dropped");

namespace {

/// Whether an operand has a dimension of size 1 that no loop indexes: one that a reduction kept.
bool keepsDimension(linalg::GenericOp op) {
  return llvm::any_of(op->getOpOperands(), [&](OpOperand &operand) {
    auto type = dyn_cast<RankedTensorType>(operand.get().getType());
    if (!type)
      return false;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    return llvm::any_of(llvm::enumerate(map.getResults()), [&](auto result) {
      return isa<AffineConstantExpr>(result.value()) && type.getDimSize(result.index()) == 1;
    });
  });
}

struct NormalizeStatementsPass : attn::impl::AttnNormalizeStatementsBase<NormalizeStatementsPass> {
  void runOnOperation() override {
    if (failed(decompose()) || failed(generalize()))
      return signalPassFailure();
    getOperation().walk([&](linalg::GenericOp op) { startAtInfinity(op); });
    if (failed(dropKeptDimensions()))
      signalPassFailure();
  }

private:
  /// What stands for several statements.
  LogicalResult decompose() {
    SmallVector<linalg::AggregatedOpInterface> aggregates;
    getOperation().walk([&](linalg::AggregatedOpInterface op) { aggregates.push_back(op); });
    for (linalg::AggregatedOpInterface op : aggregates) {
      OpBuilder b(op);
      FailureOr<SmallVector<Value>> results =
          op->getNumResults() > 0 ? op.decomposeOperation(b) : FailureOr<SmallVector<Value>>();
      if (failed(results))
        return op.emitOpError("cannot be decomposed into statements on tensors");
      numDecomposed.at(op);
      op->replaceAllUsesWith(*results);
      op.erase();
    }
    return success();
  }

  /// A matmul written as a named op is a statement like any other; fills stay, because what a
  /// reduction starts from is read off them.
  LogicalResult generalize() {
    IRRewriter rewriter(&getContext());
    SmallVector<linalg::LinalgOp> named;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (!isa<linalg::GenericOp, linalg::FillOp>(op) && op.hasPureTensorSemantics())
        named.push_back(op);
    });
    for (linalg::LinalgOp op : named) {
      rewriter.setInsertionPoint(op);
      Location loc = op.getLoc();
      if (failed(linalg::generalizeNamedOp(rewriter, op)))
        return op.emitOpError("cannot be written as a linalg.generic");
      numGeneralized.at(loc);
    }
    return success();
  }

  /// A maximum that ignores NaN may start at NaN, which is neutral: so does -inf, where there is
  /// another number.
  void startAtInfinity(linalg::GenericOp op) {
    if (op.getNumReductionLoops() == 0)
      return;
    for (auto [number, init] : llvm::enumerate(op.getDpsInits())) {
      auto fill = init.getDefiningOp<linalg::FillOp>();
      Operation *combiner = op.getBlock()->getTerminator()->getOperand(number).getDefiningOp();
      APFloat value(0.0f);
      if (!fill || !isa_and_nonnull<arith::MaxNumFOp, arith::MinNumFOp>(combiner) ||
          !matchPattern(fill.getInputs()[0], m_ConstantFloat(&value)) || !value.isNaN())
        continue;
      OpBuilder b(op);
      Value start = arith::ConstantOp::create(
          b, fill.getLoc(),
          b.getFloatAttr(fill.getInputs()[0].getType(),
                         APFloat::getInf(value.getSemantics(), isa<arith::MaxNumFOp>(combiner))));
      Value filled =
          linalg::FillOp::create(b, fill.getLoc(), start, fill.getOutputs()[0]).getResult(0);
      op.getDpsInitsMutable()[number].set(filled);
      numInfinite.at(op);
    }
  }

  LogicalResult dropKeptDimensions() {
    linalg::ControlDropUnitDims control;
    control.controlFn = [](Operation *op) -> SmallVector<unsigned> {
      auto generic = dyn_cast<linalg::GenericOp>(op);
      if (!generic || !keepsDimension(generic))
        return {};
      return llvm::to_vector(llvm::seq<unsigned>(0, generic.getNumLoops()));
    };
    if (!getOperation()
             .walk([](linalg::GenericOp op) {
               return op.hasPureTensorSemantics() && keepsDimension(op) ? WalkResult::interrupt()
                                                                        : WalkResult::advance();
             })
             .wasInterrupted())
      return success();
    numDropped.at(getOperation());
    RewritePatternSet folds(&getContext()), cleanUp(&getContext());
    linalg::populateFoldUnitExtentDimsPatterns(folds, control);
    walkAndApplyPatterns(getOperation(), std::move(folds));
    linalg::populateFoldUnitExtentDimsCanonicalizationPatterns(cleanUp, control);
    return applyPatternsGreedily(getOperation(), std::move(cleanUp));
  }
};

} // namespace
