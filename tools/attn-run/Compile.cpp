// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Options, gradients and entries of what is compiled. See Compile.h.

#include "Compile.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Runtime/ThreadPool.h"
#include "mlir/Pass/PassManager.h"

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

void attn::setPipelineOptions(PipelineOptions &pipeline, const Options &options) {
  // Counting costs time, so not where only times are asked for.
  pipeline.countTiles = options.explain || (options.json && options.repetitions == 0);
  pipeline.explain = options.explain;
  if (!options.loopOrder.empty())
    pipeline.order = options.loopOrder;
  if (options.blockM)
    pipeline.blockM = options.blockM;
  if (options.blockN)
    pipeline.blockN = options.blockN;
  if (!options.matrixUnit.empty())
    pipeline.matrixUnit = options.matrixUnit;
  pipeline.schedule = options.schedule;
  pipeline.deterministic = options.deterministic;
  if (!options.deterministic)
    pipeline.threads = ThreadPool::shared().getNumThreads();
  if (options.parts)
    pipeline.parts = options.parts;
}

Error attn::configurePassManager(mlir::PassManager &manager) {
  if (failed(mlir::applyPassManagerCLOptions(manager)))
    return createStringError("the options for the pass manager do not fit together");
  mlir::applyDefaultTimingPassManagerCLOptions(manager);
  return Error::success();
}

/// Whether the results hold all that the gradients of the attention ops read
/// of the forward: O and LSE, or the softmax.
static bool returnsWhatGradientsRead(FuncOp function) {
  auto isReturned = [](mlir::Value value) {
    return value && any_of(value.getUsers(), llvm::IsaPred<mlir::func::ReturnOp>);
  };
  bool returned = true;
  function.walk([&](mlir::Operation *op) {
    if (auto forward = dyn_cast<ForwardOp>(op))
      returned &= isReturned(forward.getOutput()) && isReturned(forward.getLse());
    else if (auto softmax = dyn_cast<SoftmaxOp>(op))
      returned &= isReturned(softmax.getOutput());
  });
  return returned;
}

Expected<FuncOp> attn::differentiate(FuncOp entry, const Diagnostics &diagnostics, bool &saved) {
  saved = returnsWhatGradientsRead(entry);
  auto module = entry->getParentOfType<mlir::ModuleOp>();
  mlir::PassManager manager(entry.getContext());
  if (Error error = configurePassManager(manager))
    return std::move(error);
  AttnDifferentiateOptions pass;
  pass.function = entry.getName().str();
  pass.savedResults = saved;
  manager.addPass(attn::createAttnDifferentiate(pass));
  if (failed(manager.run(module)))
    return diagnostics.failure("differentiating '" + entry.getName() + "' failed");
  return module.lookupSymbol<FuncOp>((entry.getName() + "_gradient").str());
}

mlir::OwningOpRef<mlir::ModuleOp> attn::cloneWithEntries(mlir::ModuleOp module,
                                                         ArrayRef<FuncOp> entries) {
  mlir::OwningOpRef<mlir::ModuleOp> copy = module.clone();
  for (auto function : copy->getOps<FuncOp>()) {
    bool isEntry =
        any_of(entries, [&](FuncOp entry) { return entry.getName() == function.getName(); });
    function.setVisibility(isEntry ? mlir::SymbolTable::Visibility::Public
                                   : mlir::SymbolTable::Visibility::Private);
  }
  return copy;
}
