// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From IR to programs on a GPU. See CudaCompiler.h.

#include "attn/Compiler/CudaCompiler.h"
#include "ProgramKey.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Transforms/Host/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/xxhash.h"
#include <chrono>

using namespace llvm;
using namespace attn;

static double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

static bool hasLaunches(mlir::ModuleOp module) {
  return module.walk([](mlir::gpu::LaunchOp) { return mlir::WalkResult::interrupt(); })
      .wasInterrupted();
}

std::string attn::getScheduleFor(const cuda::DeviceInfo &device, StringRef schedule) {
  // What comes last counts. H100 (SXM) and H200 have those that are chosen anyway.
  constexpr int kUsual = 132;
  return device.multiprocessors == kUsual
             ? schedule.str()
             : ("ctas=" + Twine(device.multiprocessors) + " " + schedule).str();
}

Expected<CudaProgram> attn::compileCudaProgram(mlir::ModuleOp module,
                                               const PipelineOptions &options,
                                               const DiskCache &cache, CudaCompileTimes &times,
                                               function_ref<Error(mlir::PassManager &)> configure) {
  double start = now();
  std::string key = makeProgramKey("program", module, options);
  DiskCache::Lock lock; // until the program is stored
  if (!key.empty())
    if (auto bytes = cache.loadOrLock(key, lock))
      if (auto program = CudaProgram::deserialize(*bytes)) {
        times.programCached = true;
        times.passes += now() - start;
        return std::move(*program);
      }
  mlir::PassManager manager(module.getContext());
  if (Error error = configure(manager))
    return std::move(error);
  if (!hasLaunches(module)) {
    manager.addPass(mlir::createSymbolDCEPass());
    manager.addPass(createAttnEmitShapeFunction());
    // The schedule's own order comes last and counts.
    std::string schedule = "order=" + options.order + " " + options.schedule;
    if (Error error = addLowerToHopper(manager, schedule))
      return std::move(error);
  }
  buildCudaCodegenPipeline(manager);
  buildCudaHostPipeline(manager);
  if (failed(manager.run(module)))
    return createStringError("lowering for the GPU failed");
  times.passes += now() - start;
  CpuCompileTimes host;
  auto program = CudaProgram::create(module, host);
  if (!program)
    return program.takeError();
  times.host += host.translate + host.optimize + host.codegen;
  if (!key.empty())
    cache.store(key, program->serialize());
  return program;
}

/// The lines of a log that a user should see.
static void addWarnings(StringRef log, std::vector<std::string> &warnings) {
  SmallVector<StringRef> lines;
  log.split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (StringRef line : lines)
    if (line.contains("warning") || line.contains("Performance Loss"))
      warnings.push_back(line.trim().str());
}

/// Machine code of the PTX. The cache holds the log too.
static Expected<std::string> makeCubin(const CudaProgram &program, const cuda::DeviceInfo &device,
                                       const DiskCache &cache, CudaCompileTimes &times) {
  StringRef ptx = program.ptx;
  std::string key, logKey;
  DiskCache::Lock lock;
  // What the driver compiles itself is in its own cache.
  if (cuda::compilesBeforeLoading()) {
    std::string compiler = cuda::describePtxCompiler(device);
    key = DiskCache::makeKey({"cubin", compiler, ptx});
    logKey = DiskCache::makeKey({"cubin log", compiler, ptx});
    // The log is stored last.
    if (auto log = cache.loadOrLock(logKey, lock))
      if (auto image = cache.load(key)) {
        addWarnings(*log, times.warnings);
        return std::move(*image);
      }
  }
  times.cubinsCached = false;
  auto cubin = cuda::compilePtx(device, ptx, program.kernels.front());
  if (!cubin)
    return cubin.takeError();
  addWarnings(cubin->log, times.warnings);
  if (cubin->image == ptx) {
    times.driverCompiles = true;
  } else {
    cache.store(key, cubin->image);
    cache.store(logKey, cubin->log);
  }
  return std::move(cubin->image);
}

Expected<std::unique_ptr<CudaExecutable>> attn::loadCudaProgram(const CudaProgram &program,
                                                                const cuda::DeviceInfo &device,
                                                                const DiskCache &cache,
                                                                CudaCompileTimes &times) {
  double start = now();
  times.cubinsCached = true;
  std::string image;
  if (!program.kernels.empty()) {
    auto cubin = makeCubin(program, device, cache, times);
    if (!cubin)
      return cubin.takeError();
    image = std::move(*cubin);
  }
  double compiled = now();
  times.ptx += compiled - start;
  // The driver's cache is filled by one, too. (A text with the same checksum would only wait.)
  DiskCache::Lock lock;
  if (times.driverCompiles)
    lock = cache.lock(DiskCache::makeKey(
        {"driver", cuda::describePtxCompiler(device), std::to_string(xxh3_64bits(program.ptx))}));
  auto executable = CudaExecutable::load(program, device, image);
  times.load += now() - compiled;
  if (executable)
    addWarnings((*executable)->getLog(), times.warnings);
  return executable;
}
