// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a fact of a tile program says is compared with what is there.

#include "attn/Transforms/Tiles/CheckFacts.h"
#include "MaskLoops.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Slices.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace attn {
#define GEN_PASS_DEF_ATTNCHECKFACTS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using namespace attn::tiles;

namespace {

/// Whether tiles are still whole: what has become vectors of one register (attn-lower-tiles)
/// selects for other reasons, too.
bool isOfTiles(Operation *root) {
  auto isTile = [](Type type) {
    auto vector = dyn_cast<VectorType>(type);
    return vector && vector.getRank() > 1;
  };
  WalkResult walk = root->walk([&](Operation *op) {
    bool hasTile =
        llvm::any_of(op->getOperandTypes(), isTile) || llvm::any_of(op->getResultTypes(), isTile);
    return hasTile ? WalkResult::interrupt() : WalkResult::advance();
  });
  return walk.wasInterrupted();
}

/// Whether tiles are values that upstream's ops compute from tensors: what is known of neutral
/// terms is about these.
bool isOfTensors(scf::ForOp loop) {
  WalkResult walk = loop.walk([](Operation *op) {
    bool isOther =
        op->getName().getDialectNamespace() == "hopper" ||
        op->getName().getDialectNamespace() == "tile" ||
        llvm::any_of(op->getOperandTypes(), [](Type type) { return isa<MemRefType>(type); });
    return isOther ? WalkResult::interrupt() : WalkResult::advance();
  });
  return !walk.wasInterrupted();
}

/// The distinct masks in a region: conditions of selects with a neutral constant.
SmallVector<Condition> findMasks(Region &region) {
  SmallVector<Condition> masks;
  region.walk([&](Operation *op) {
    if (std::optional<Condition> mask = getMaskCondition(op);
        mask && !llvm::is_contained(masks, *mask))
      masks.push_back(*mask);
  });
  return masks;
}

LogicalResult checkFull(scf::ForOp loop) {
  SmallVector<Condition> masks = collectMasks(loop);
  if (masks.empty() || !isOfTiles(loop))
    return success();
  InFlightDiagnostic error = loop.emitError()
                             << "'" << kFullAttr << "' on a loop with a mask: not all elements of "
                             << "its tiles count";
  error.attachNote(masks.front().value.getLoc()) << "the mask";
  return error;
}

/// Whether the condition is one that a branch around masks asks.
bool isBranchedAround(scf::ForOp loop, const Condition &mask) {
  return llvm::any_of(mask.value.getUsers(), [&](Operation *user) {
    auto branch = dyn_cast<scf::IfOp>(user->getParentOp());
    return branch && branch->hasAttr(kTileKindAttr) && loop->isProperAncestor(branch);
  });
}

LogicalResult checkPartial(scf::ForOp loop) {
  if (!isOfTiles(loop) || !collectMasks(loop).empty())
    return success();
  return loop.emitError() << "'" << kPartialAttr << "' on a loop without a mask";
}

/// Iterations in which a mask that branches go around keeps nothing may be left out. In the form
/// that the proof takes: what is equal for unrelated dimensions is not one value.
LogicalResult checkNeutralTerms(scf::ForOp loop) {
  LoopUniforms uniforms(loop);
  for (const Condition &mask : collectMasks(loop)) {
    std::optional<NeutralityFailure> failure;
    if (isBranchedAround(loop, mask))
      failure = findNonNeutralTerms(uniforms, mask);
    if (!failure)
      continue;
    InFlightDiagnostic error = loop.emitError()
                               << "'" << kPartialAttr << "' on a loop whose iterations may not be "
                               << "left out where its mask keeps nothing";
    error.attachNote(failure->op->getLoc()) << failure->reason;
    return error;
  }
  return success();
}

/// Whether an op reads an entry of a table at the loop's variable.
bool readsEntry(Operation *op, scf::ForOp loop) {
  return isa<tensor::ExtractOp, memref::LoadOp>(op) && op->getResult(0).getType().isInteger(32) &&
         llvm::is_contained(op->getOperands(), loop.getInductionVar());
}

/// The loop runs along a list, whose entries it reads, and asks them for the kind of their tile.
LogicalResult checkTabulated(scf::ForOp loop) {
  bool reads = false, asks = false;
  loop.walk([&](Operation *op) {
    reads |= readsEntry(op, loop);
    asks |= isa<scf::IfOp>(op) && op->hasAttr(kTileKindAttr);
  });
  if (!reads)
    return loop.emitError() << "'" << kTabulatedAttr
                            << "' on a loop that reads no entry of a table "
                            << "at its variable";
  if (!asks)
    return loop.emitError() << "'" << kTabulatedAttr
                            << "' on a loop without a branch by the kind of "
                            << "a tile ('" << kTileKindAttr << "')";
  return success();
}

/// What says whether a tile is full is an entry of a table, or bounds of the loop.
LogicalResult checkKindOfLoop(scf::IfOp branch) {
  auto loop = branch->getParentOfType<scf::ForOp>();
  if (!loop || !loop->hasAttr(kFoldLoopAttr))
    return success();
  bool asksTable = followsFrom(
      branch.getCondition(),
      [&](Value each) { return each.getDefiningOp() && readsEntry(each.getDefiningOp(), loop); },
      [&](Operation *op) { return loop->isAncestor(op); });
  if (asksTable == loop->hasAttr(kTabulatedAttr))
    return success();
  InFlightDiagnostic error = branch.emitError() << "'" << kTileKindAttr << "' "
                                                << (asksTable ? "asks a table" : "asks no table");
  error.attachNote(loop.getLoc()) << "in a loop that is " << (asksTable ? "not '" : "'")
                                  << kTabulatedAttr << "'";
  return error;
}

LogicalResult checkTileKind(scf::IfOp branch) {
  if (failed(checkKindOfLoop(branch)))
    return failure();
  if (!isOfTiles(branch))
    return success();
  size_t ofFull = findMasks(branch.getThenRegion()).size();
  size_t ofOthers = findMasks(branch.getElseRegion()).size();
  if (ofFull < ofOthers)
    return success();
  return branch.emitError() << "'" << kTileKindAttr << "' on a branch with " << ofFull
                            << " masks for full tiles and " << ofOthers
                            << " for others; expected fewer";
}

/// Where there is no work, the state stays as it is.
LogicalResult checkGuard(scf::IfOp guard) {
  auto loop = guard->getParentOfType<scf::ForOp>();
  if (guard.getNumResults() == 0 || !loop || loop != guard->getParentOp() ||
      llvm::equal(guard.elseYield().getOperands(), loop.getRegionIterArgs()))
    return success();
  return guard.emitError() << "'" << kGuardAttr
                           << "' on a branch whose other side changes the state";
}

LogicalResult checkRescaling(arith::MulFOp product) {
  Value factor = product.getRhs();
  if (auto transpose = factor.getDefiningOp<vector::TransposeOp>())
    factor = transpose.getVector();
  auto repeated = factor.getDefiningOp<vector::BroadcastOp>();
  auto rows = repeated ? dyn_cast<VectorType>(repeated.getSourceType()) : VectorType();
  if (rows && rows.getRank() < cast<VectorType>(product.getType()).getRank())
    return success();
  return product.emitError() << "'" << kRescalingAttr
                             << "' on a product whose second factor is not "
                             << "one for each row";
}

/// Where the answer may be yes for no, the side of yes asks each row again.
LogicalResult checkMayHold(vector::ReductionOp question) {
  for (Operation *user : question->getUsers()) {
    auto branch = dyn_cast<scf::IfOp>(user);
    bool asksRows = branch && llvm::any_of(branch.thenBlock()->getOps<arith::SelectOp>(),
                                           [&](arith::SelectOp select) {
                                             Value condition = select.getCondition();
                                             return condition == question.getVector() ||
                                                    getRepeated(condition) == question.getVector();
                                           });
    if (asksRows)
      continue;
    InFlightDiagnostic error = question.emitError()
                               << "'" << kMayHoldAttr
                               << "' on a question whose answer is taken for that of each row";
    error.attachNote(user->getLoc()) << "here";
    return error;
  }
  return success();
}

LogicalResult checkDescending(scf::ForallOp program) {
  if (isEntryOfOrder(program.getInductionVar(0)))
    return success();
  return program.emitError() << "'" << kDescendingAttr
                             << "' on a program whose tiles are in no order that was sorted";
}

struct CheckFactsPass : attn::impl::AttnCheckFactsBase<CheckFactsPass> {
  void runOnOperation() override {
    if (failed(checkTileFacts(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace

bool attn::isEntryOfOrder(Value number) {
  return llvm::any_of(number.getUsers(), [](Operation *user) {
    auto load = dyn_cast<memref::LoadOp>(user);
    return load && load.getIndices().size() == 1;
  });
}

LogicalResult attn::checkTileFacts(Operation *root) {
  bool isTrue = true, hasTerms = false;
  auto check = [&](Operation *op, StringRef fact, auto isTrueOf) {
    if (op->hasAttr(fact))
      isTrue &= succeeded(isTrueOf());
  };
  auto hasNeutralTerms = [](scf::ForOp loop) {
    return loop->hasAttr(kPartialAttr) && isOfTiles(loop) && isOfTensors(loop);
  };
  root->walk([&](Operation *op) {
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      check(op, kFullAttr, [&] { return checkFull(loop); });
      check(op, kPartialAttr, [&] { return checkPartial(loop); });
      check(op, kTabulatedAttr, [&] { return checkTabulated(loop); });
      hasTerms |= hasNeutralTerms(loop);
    } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
      check(op, kTileKindAttr, [&] { return checkTileKind(branch); });
      check(op, kGuardAttr, [&] { return checkGuard(branch); });
    } else if (auto product = dyn_cast<arith::MulFOp>(op)) {
      check(op, kRescalingAttr, [&] { return checkRescaling(product); });
    } else if (auto question = dyn_cast<vector::ReductionOp>(op)) {
      check(op, kMayHoldAttr, [&] { return checkMayHold(question); });
    } else if (auto program = dyn_cast<scf::ForallOp>(op)) {
      check(op, kDescendingAttr, [&] { return checkDescending(program); });
    }
  });
  if (!hasTerms)
    return success(isTrue);
  OwningOpRef<Operation *> copy = root->clone();
  separateTileUses(copy.get());
  copy->walk([&](scf::ForOp loop) {
    if (hasNeutralTerms(loop))
      isTrue &= succeeded(checkNeutralTerms(loop));
  });
  return success(isTrue);
}
