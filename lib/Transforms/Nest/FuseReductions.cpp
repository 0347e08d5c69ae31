// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-fuse-reductions: a cascade of reductions over one dimension becomes one
// pass with carried state (attn.fold).
//
// The rule (Passes.td) is about reductions, not about attention: a dependence
// on a running value can be repaired when its readers are homogeneous in it.
// Online softmax (Milakov and Gimelshein, 2018) is the instance where the
// running value is a maximum and the readers are sums of exp(s - m).

#include "Cascade.h"
#include "SumCosts.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/Support/FormatVariadic.h"

namespace attn {
#define GEN_PASS_DEF_ATTNFUSEREDUCTIONS
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numFused("attn-fuse-reductions", "fused",
                           "Cascades of reductions that became folds");
static attn::Done numAbsorbed("attn-fuse-reductions", "absorbed",
                              "Maxima with a value that start at it");

namespace {
using linalg::GenericOp;
using Gain = Cascade::Gain;

/// Rewrites max(max_j x, c) to a maximum over j that starts at c: one running
/// value instead of one and a function of it (a learned sink joins so).
void absorbIntoStart(Block &block) {
  SmallVector<GenericOp> ops(block.getOps<GenericOp>());
  for (GenericOp op : ops) {
    if (op.getNumReductionLoops() != 0 || op->getNumResults() != 1 || op.getNumDpsInputs() != 2 ||
        !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
      continue;
    Operation *combiner = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
    if (!isa_and_nonnull<arith::MaxNumFOp, arith::MaximumFOp>(combiner) ||
        !llvm::all_of(combiner->getOperands(),
                      [&](Value operand) { return isa<BlockArgument>(operand); }))
      continue;
    for (unsigned side : {0, 1}) {
      auto source = op.getDpsInputs()[side].getDefiningOp<GenericOp>();
      Value other = op.getDpsInputs()[1 - side];
      if (!source || source->getBlock() != &block || !source->hasOneUse() ||
          source->getNumResults() != 1 || source.getNumReductionLoops() == 0 ||
          !op.getMatchingIndexingMap(op.getDpsInputOperand(side)).isIdentity())
        continue;
      std::optional<Reduction> reduction = matchReduction(source, 0);
      Operation *definition = other.getDefiningOp();
      if (!reduction || reduction->monoid != Reduction::Monoid::Max ||
          (definition && definition->getBlock() == &block && !definition->isBeforeInBlock(source)))
        continue;
      // The same statement, applied to the start value.
      IRMapping mapping;
      mapping.map(op.getDpsInputs()[side], source.getDpsInits()[0]);
      OpBuilder b(source);
      // Its output may be created after the reduction; any tensor will do.
      mapping.map(op.getDpsInits()[0], source.getDpsInits()[0]);
      Operation *start = b.clone(*op, mapping);
      source.getDpsInitsMutable()[0].set(start->getResult(0));
      op.getResult(0).replaceAllUsesWith(source.getResult(0));
      numAbsorbed.at(source);
      op.erase();
      break;
    }
  }
}

struct FuseReductionsPass : attn::impl::AttnFuseReductionsBase<FuseReductionsPass> {
  using AttnFuseReductionsBase::AttnFuseReductionsBase;
  void runOnOperation() override {
    if (sums != "auto" && sums != "apart" && sums != "together" && sums != "parallel") {
      getOperation().emitError("expected sums to be auto, apart, together or parallel, got ")
          << StringRef(sums);
      return signalPassFailure();
    }
    // An operand without a use would join what has nothing in common (the
    // scores under a mask that keeps nothing).
    if (failed(eraseUnusedOperands()))
      return signalPassFailure();
    for (Block &block : getOperation().getBody()) {
      // Order among statements on memory is not that of their operands.
      if (llvm::any_of(block.getOps<linalg::LinalgOp>(),
                       [](linalg::LinalgOp op) { return !op.hasPureTensorSemantics(); }))
        continue;
      absorbIntoStart(block);
      while (fuseOne(block))
        ;
    }
    // Sums that left a statement left an operand without a use.
    if (failed(eraseUnusedOperands()))
      signalPassFailure();
  }

  LogicalResult eraseUnusedOperands() {
    RewritePatternSet patterns(&getContext());
    linalg::populateEraseUnusedOperandsAndResultsPatterns(patterns);
    return applyPatternsGreedily(getOperation(), std::move(patterns));
  }

  /// Fuses the first cascade that can be, of those that save most; false where
  /// there is none.
  bool fuseOne(Block &block) {
    SmallVector<Operation *> ops;
    for (Operation &op : block)
      if (isa<GenericOp, FoldOp>(op))
        ops.push_back(&op);
    DimClasses classes(ops);
    auto anyOf = [&](function_ref<bool(GenericOp)> fuseAtOp) {
      return llvm::any_of(ops, [&](Operation *op) {
        auto generic = dyn_cast<GenericOp>(op);
        return generic && !classes.isCrossing(generic) && fuseAtOp(generic);
      });
    };
    auto withGain = [&](Gain gain) {
      return anyOf([&](GenericOp op) { return fuseAt(block, classes, op, gain); });
    };
    return withGain(Gain::Product) ||
           anyOf([&](GenericOp op) { return mapProduct(block, classes, op); }) ||
           withGain(Gain::Stored) || withGain(Gain::Returned) || withGain(Gain::Tiles);
  }

  /// Fuses over the last dimension of the product `op`, of which no cascade is
  /// left that reduces it.
  bool mapProduct(Block &block, const DimClasses &classes, GenericOp op) {
    if (op.getNumReductionLoops() == 0 || op->getNumResults() != 1 || refused.contains(op))
      return false;
    AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    if (map.getNumResults() == 0)
      return false;
    std::optional<unsigned> last = getLoop(map, map.getNumResults() - 1);
    if (!last)
      return false;
    Cascade cascade(block, classes, op, *last, Cascade::Reach::Tensors, Cascade::OtherSums::Left);
    if (!cascade.isMappedProduct(op) ||
        llvm::any_of(cascade.getReductions(),
                     [&](GenericOp member) { return refused.contains(member); }))
      return false;
    refused.insert(op);
    return fuse(cascade, /*quietly=*/true);
  }

  /// Fuses over a dimension that `op` reduces.
  bool fuseAt(Block &block, const DimClasses &classes, GenericOp op, Gain gain) {
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
      if (op.getIteratorTypesArray()[loop] != utils::IteratorType::reduction ||
          refused.contains(op))
        continue;
      using OtherSums = Cascade::OtherSums;
      auto make = [&](Cascade::Reach reach, OtherSums kept) {
        return Cascade(block, classes, op, loop, reach, kept);
      };
      Cascade cascade = make(Cascade::Reach::Returns, OtherSums::Left);
      if (!cascade.isCandidate(gain))
        continue;
      if (!cascade.getOtherSums().empty()) {
        if (sums == "parallel") {
          // The larger sums are carried, the others added to memory.
          if (getColumns(cascade.getReductions()) < getColumns(cascade.getOtherSums()))
            continue;
          Cascade whole = make(Cascade::Reach::Returns, OtherSums::Partial);
          if (fuse(whole, /*quietly=*/false))
            return true;
        } else if (keepsTogether(cascade, classes, op, loop)) {
          Cascade whole = make(Cascade::Reach::Returns, OtherSums::Finished);
          if (!reducesSums(whole) && fuse(whole, /*quietly=*/false))
            return true;
        }
      }
      // A part that needs a finished value of the rest is a pass of its own.
      Cascade part = make(Cascade::Reach::Tensors, OtherSums::Left);
      bool divisible =
          part.getMembers().size() < cascade.getMembers().size() && part.isCandidate(gain);
      if (fuse(cascade, /*quietly=*/divisible) || (divisible && fuse(part, /*quietly=*/false)))
        return true;
      for (GenericOp member : (divisible ? part : cascade).getReductions())
        refused.insert(member);
    }
    return false;
  }

  /// Elements that results have per index of their dynamic dimensions.
  static int64_t getColumns(ArrayRef<GenericOp> ops) {
    int64_t columns = 0;
    for (GenericOp op : ops) {
      int64_t product = 1;
      for (int64_t size : cast<RankedTensorType>(op->getResult(0).getType()).getShape().take_back())
        product *= ShapedType::isDynamic(size) ? 1 : size;
      columns += product;
    }
    return columns;
  }

  /// Whether a sum along another dimension is then summed along the cascade's:
  /// one of the two is finished before the other begins.
  static bool reducesSums(Cascade &cascade) {
    return llvm::any_of(cascade.getReductions(), [&](GenericOp op) {
      llvm::SetVector<Operation *> slice = cascade.getSlice(op);
      return llvm::any_of(cascade.getOtherSums(),
                          [&](GenericOp sum) { return slice.contains(sum); });
    });
  }

  bool fuse(Cascade &cascade, bool quietly) {
    size_t statements = cascade.getMembers().size();
    Location loc = GenericOp(cascade.getMembers().front()).getLoc();
    {
      std::optional<ScopedDiagnosticHandler> handler;
      if (quietly)
        handler.emplace(&getContext(), [](Diagnostic &) { return success(); });
      if (failed(cascade.prove()) || failed(cascade.fuse()))
        return false;
    }
    numFused.at(loc) << remark::metric("Statements", statements);
    return true;
  }

  /// Two sums of the same values along different dimensions: each is carried by
  /// a loop of its own, and one pass can have only one of the two loops
  /// outside. Apart, each computes the shared values for itself, and its tiles
  /// are parallel; together, only what neither sums over is.
  bool keepsTogether(Cascade &cascade, const DimClasses &classes, GenericOp op, unsigned loop) {
    SumCosts costs = estimateSums(cascade, classes, op, loop, threads, assumedSize);
    bool together = sums == "together" || (sums == "auto" && costs.together < costs.apart);
    if (explain) {
      InFlightDiagnostic remark = emitRemark(op.getLoc())
                                  << "sums along two dimensions "
                                  << (together ? "in one pass" : "in two passes")
                                  << (sums == "auto" ? " (cheapest)" : " (requested)");
      for (GenericOp other : cascade.getOtherSums())
        remark.attachNote(other.getLoc())
            << "this one sums the same values along another dimension: both "
               "carry a RAW dependence on themselves";
      auto note = [&](StringRef name, double flops, double parallelism, double seconds) {
        remark.attachNote() << llvm::formatv("{0}: {1:f1} GFLOP, {2} tiles in "
                                             "parallel, {3:f3} ms estimated",
                                             name, flops / 1e9, int64_t(parallelism), seconds * 1e3)
                                   .str();
      };
      note("apart (distribution: the shared values are computed twice)", costs.flopsApart,
           costs.tilesApart, costs.apart);
      note("together (the inner sum in registers, the outer one in memory, in "
           "order)",
           costs.flopsTogether, costs.tilesTogether, costs.together);
    }
    return together;
  }

  /// Statements whose cascade was refused, so that the remark is given once.
  DenseSet<Operation *> refused;
};
} // namespace
