// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From a module to a program. See Compiler.h.

#include "attn/Compiler/Compiler.h"
#include "attn/Compiler/ProgramKey.h"
#include "attn/Transforms/Host/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include <chrono>

using namespace llvm;
using namespace attn;

static double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

static target::Form findForm(mlir::ModuleOp module) {
  return module.walk([](mlir::gpu::LaunchOp) {
                 return mlir::WalkResult::interrupt();
               }).wasInterrupted()
             ? target::Form::Kernels
             : target::Form::Tensors;
}

/// The module becomes what the target makes code of.
static Error lower(const target::Target &target, mlir::ModuleOp module,
                   const PipelineOptions &options,
                   function_ref<Error(mlir::PassManager &)> configure) {
  mlir::PassManager manager(module.getContext());
  if (Error error = configure(manager))
    return error;
  target::Form form = findForm(module);
  if (form == target::Form::Tensors) {
    manager.addPass(mlir::createSymbolDCEPass());
    manager.addPass(createAttnEmitShapeFunction());
  }
  if (Error error = target.buildPipeline(manager, options, form))
    return error;
  if (failed(manager.run(module)))
    return createStringError("lowering for " + target.getName() + " failed");
  return Error::success();
}

Expected<std::unique_ptr<target::Program>>
attn::compileProgram(const target::Target &target, mlir::ModuleOp module,
                     const PipelineOptions &options, const target::CodeOptions &code,
                     const DiskCache &cache, target::CompileTimes &times,
                     function_ref<Error(mlir::PassManager &)> configure) {
  double start = now();
  auto key = makeProgramKey(target, module, options, code);
  if (!key)
    return key.takeError();
  DiskCache::Lock lock; // until the program is stored
  if (!key->empty())
    if (auto bytes = cache.loadOrLock(*key, lock))
      if (auto program = target.readProgram(*bytes)) {
        times.programCached = true;
        times.passes += now() - start;
        return program;
      }
  if (Error error = lower(target, module, options, configure))
    return std::move(error);
  times.passes += now() - start;
  auto program = target.generate(module, code, times);
  if (!program)
    return program.takeError();
  if (!key->empty())
    cache.store(*key, (*program)->serialize());
  return program;
}
