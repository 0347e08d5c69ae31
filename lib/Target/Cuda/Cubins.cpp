// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A CUDA program to a device. See Cubins.h.

#include "Cubins.h"
#include "llvm/Support/xxhash.h"
#include <chrono>

using namespace llvm;
using namespace attn;
using namespace attn::target;

static double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
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
static Expected<std::string> makeCubin(const CudaProgram &program, StringRef chip,
                                       const cuda::DeviceInfo &device, const DiskCache &cache,
                                       CompileTimes &times) {
  StringRef ptx = program.ptx;
  std::string key, logKey;
  DiskCache::Lock lock;
  // What the driver compiles itself is in its own cache.
  if (cuda::compilesBeforeLoading()) {
    std::string compiler = cuda::describePtxCompiler(device);
    key = DiskCache::makeKey({"cubin", chip, compiler, ptx});
    logKey = DiskCache::makeKey({"cubin log", chip, compiler, ptx});
    // The log is stored last.
    if (auto log = cache.loadOrLock(logKey, lock))
      if (auto image = cache.load(key)) {
        addWarnings(*log, times.warnings);
        return std::move(*image);
      }
  }
  times.kernelsCached = false;
  auto cubin = cuda::compilePtx(ptx, chip, program.kernels.front());
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

Expected<std::unique_ptr<CudaExecutable>>
attn::target::loadCudaProgram(const CudaProgram &program, StringRef chip,
                              const cuda::DeviceInfo &device, const DiskCache &cache,
                              CompileTimes &times) {
  double start = now();
  times.kernelsCached = true;
  std::string image;
  if (!program.kernels.empty()) {
    auto cubin = makeCubin(program, chip, device, cache, times);
    if (!cubin)
      return cubin.takeError();
    image = std::move(*cubin);
  }
  double compiled = now();
  times.kernels += compiled - start;
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
