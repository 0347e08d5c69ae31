// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The versions of a function that may be needed.

#include "HopperOptions.h"
#include "HopperSchedules.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Masks.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERCREATEVERSIONS
#include "attn/Pipelines/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using hopper::NestsAttr;
using hopper::Sums;

static Done numVersions("hopper-create-versions", "versions", "Versions of functions");

/// The dimension of queries or keys, of (batch, heads, length, head dimension).
static constexpr int64_t kLength = 2;

/// Columns of the sums that one warpgroup holds, and two roles of one.
static constexpr int64_t kMostSumColumns = 256, kMostDividedColumns = 512;

/// Whether `holds` of some op of a kind in the function.
template <typename Op> static bool hasOp(func::FuncOp function, function_ref<bool(Op)> holds) {
  return function
      .walk([&](Op op) { return holds(op) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Whether the gradients of keys and values are more than one warpgroup holds.
static bool hasWideSums(func::FuncOp function) {
  auto getColumns = [](Value tensor) {
    return cast<RankedTensorType>(tensor.getType()).getShape().back();
  };
  return hasOp<BackwardOp>(function, [&](BackwardOp op) {
    return getColumns(op.getKey()) + getColumns(op.getValue()) > kMostSumColumns;
  });
}

/// A mask may leave rows of a head without keys, which would be computed twice with fixed maxima,
/// or a sink is the first term of the sums.
static bool needsRunningMaxima(func::FuncOp function) {
  return hasOp<ForwardOp>(function, [](ForwardOp op) {
    return (!keepsKeys(op.getMask()) && !ignoresRows(op.getMask())) || op.getSink();
  });
}

/// Conditions under which a call has no more rows than keys, for each gradient that is open
/// without them; none where some gradient has sizes of another kind.
static std::optional<SmallVector<Attribute>> findOrderedSizes(func::FuncOp function) {
  SmallVector<Attribute> conditions;
  bool isOpen = false;
  WalkResult walk = function.walk([&](BackwardOp op) {
    auto rows = dyn_cast<BlockArgument>(op.getQuery()), keys = dyn_cast<BlockArgument>(op.getKey());
    auto isDynamic = [](Value tensor) {
      return cast<RankedTensorType>(tensor.getType()).isDynamicDim(kLength);
    };
    isOpen |= !op.getRowsHaveKeys();
    if (!rows || !keys || !(isDynamic(rows) || isDynamic(keys)))
      return WalkResult::interrupt();
    conditions.push_back(OrderedSizesConditionAttr::get(op.getContext(), kLength,
                                                        rows.getArgNumber(), keys.getArgNumber()));
    return WalkResult::advance();
  });
  if (!isOpen || walk.wasInterrupted())
    return std::nullopt;
  return conditions;
}

/// Whether there are statements, and none of attention.
static bool mayBeOfRows(func::FuncOp function) {
  bool hasStatements = false;
  WalkResult walk = function.walk([&](Operation *op) {
    hasStatements |= isa<SoftmaxOp, SoftmaxBackwardOp, linalg::LinalgOp>(op);
    return isa<ForwardOp, BackwardOp, JvpOp, BackwardJvpOp, FoldOp>(op) ? WalkResult::interrupt()
                                                                        : WalkResult::advance();
  });
  return hasStatements && !walk.wasInterrupted();
}

namespace {
struct CreateVersionsPass : attn::impl::HopperCreateVersionsBase<CreateVersionsPass> {
  using Base::Base;

  void getDependentDialects(DialectRegistry &registry) const override {
    Base::getDependentDialects(registry);
    OpPassManager pm(ModuleOp::getOperationName());
    pm.addPass(createAttnProveKeys());
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    OpPassManager prove(ModuleOp::getOperationName());
    prove.addPass(createAttnProveKeys());
    if (failed(runPipeline(prove, getOperation())))
      return signalPassFailure();
    // All of them before the first one changes: they may call each other.
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration())
        functions.push_back(function);
    for (func::FuncOp function : functions)
      if (failed(createVersions(function)))
        return signalPassFailure();
  }

  /// How nests may be formed, in order of preference.
  SmallVector<NestsAttr> listNests(func::FuncOp function) {
    bool isGradient = hasOp<BackwardOp>(function, [](BackwardOp) { return true; }) ||
                      hasOp<BackwardJvpOp>(function, [](BackwardJvpOp) { return true; });
    bool isWide = hasWideSums(function);
    SmallVector<NestsAttr> nests;
    auto add = [&](Sums sums, int64_t columns) {
      nests.push_back(NestsAttr::get(&getContext(), sums, columns, isGradient));
    };
    auto addBoth = [&](int64_t columns) {
      if (order != "m_outer" && (!isWide || order == "n_outer"))
        add(Sums::Together, columns);
      add(Sums::Apart, columns);
    };
    if (isWide && isOn(divideSums, true))
      addBoth(kMostDividedColumns);
    if (!isWide || divideSums != "true")
      addBoth(kMostSumColumns);
    return nests;
  }

  /// Declarations of what the function calls; what is defined is to be inlined before.
  FailureOr<SmallVector<func::FuncOp>> findDeclarations(func::FuncOp function) {
    llvm::SetVector<func::FuncOp> found;
    WalkResult walk = function.walk([&](func::CallOp call) -> WalkResult {
      auto callee = getOperation().lookupSymbol<func::FuncOp>(call.getCallee());
      if (!callee || !callee.isDeclaration())
        return call.emitOpError() << "calls a function of the module, which is lowered by itself: "
                                     "inline it before";
      found.insert(callee);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return failure();
    return SmallVector<func::FuncOp>(found.begin(), found.end());
  }

  LogicalResult createVersions(func::FuncOp function) {
    FailureOr<SmallVector<func::FuncOp>> declarations = findDeclarations(function);
    if (failed(declarations))
      return failure();
    OpBuilder b(function);
    Location loc = function.getLoc();
    SmallVector<NestsAttr> nests = listNests(function);
    bool runs = needsRunningMaxima(function), byWarps = hasTangents(function);
    SmallVector<ModuleOp> modules;
    auto addModule = [&](func::FuncOp body) {
      auto module = ModuleOp::create(b, loc);
      module.push_back(body.clone());
      for (func::FuncOp declaration : *declarations)
        module.push_back(declaration.clone());
      modules.push_back(module);
      return module;
    };
    auto add = [&](func::FuncOp body, ArrayRef<Attribute> conditions) {
      for (NestsAttr each : nests) {
        ModuleOp module = addModule(body);
        module->setAttr(hopper::kNestsAttr, each);
        if (!conditions.empty())
          module->setAttr(kWhenAttr, b.getArrayAttr(conditions));
        if (runs)
          module->setAttr(hopper::kRunningMaximaAttr, b.getUnitAttr());
        if (byWarps)
          module->setAttr(hopper::kWarpsAttr, b.getUnitAttr());
      }
    };
    if (rowPrograms && mayBeOfRows(function))
      addModule(function)->setAttr(hopper::kRowsAttr, b.getUnitAttr());
    if (std::optional<SmallVector<Attribute>> conditions = findOrderedSizes(function)) {
      // A pass runs pipelines on what is in its op only.
      func::FuncOp keyed = function.clone();
      b.insert(keyed);
      OpPassManager prove(func::FuncOp::getOperationName());
      prove.addPass(createAttnProveKeys(AttnProveKeysOptions{/*noMoreRows=*/true}));
      if (failed(runPipeline(prove, keyed)))
        return failure();
      if (!hasOp<BackwardOp>(keyed, [](BackwardOp op) { return !op.getRowsHaveKeys(); }))
        add(keyed, *conditions);
      keyed.erase();
    }
    add(function, {});
    auto versions = VersionsOp::create(b, loc, function.getName(), modules.size());
    for (auto [region, module] : llvm::zip_equal(versions.getVersions(), modules))
      module->moveBefore(&region.emplaceBlock(), region.front().end());
    numVersions += modules.size() - 1;
    numVersions.at(function) << remark::metric("Versions", modules.size());
    function.erase();
    return success();
  }
};
} // namespace
