// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs on NVIDIA's GPUs. See CudaTarget.h.

#include "CudaTarget.h"
#include "Cubins.h"
#include "attn/Pipelines/Pipelines.h"
#include "mlir/IR/BuiltinOps.h"
#include <mutex>

using namespace llvm;
using namespace attn;
using namespace attn::target;

namespace {
/// PTX and host code.
class PtxProgram : public Program {
public:
  explicit PtxProgram(CudaProgram program) : program(std::move(program)) {}
  std::string serialize() const override { return program.serialize(); }
  StringRef getAssembly() const override { return program.ptx; }

  CudaProgram program;
};

/// A program in each CUDA context that has called it.
class CudaLoadedProgram : public LoadedProgram {
public:
  CudaLoadedProgram(CudaProgram program, const Description &description, const DiskCache &cache)
      : program(std::move(program)), description(description), cache(cache) {}

  /// That of the calling thread's context.
  Expected<CudaExecutable *> getHere(CompileTimes &times);

  Expected<std::unique_ptr<Function>> lookup(StringRef name, bool withShapes) override;
  /// Of the context that was first.
  std::vector<KernelInfo> getKernels() const override;

private:
  CudaProgram program;
  Description description;
  DiskCache cache;
  std::mutex mutex;
  SmallVector<std::unique_ptr<CudaExecutable>, 4> executables;
};

class CudaFunction : public Function {
public:
  CudaFunction(CudaLoadedProgram &program, StringRef name, bool withShapes)
      : program(program), name(name), withShapes(withShapes) {}

  bool takesContext() const override { return true; }
  Error run(void **slots, const CallContext &context) const override;
  Expected<size_t> measure(void **slots) const override;
  Error computeShapes(void **slots) const override;

  /// The function in one CUDA context.
  struct Found {
    CudaExecutable *executable;
    CudaExecutable::Packed function = nullptr, shapes = nullptr;
  };
  Expected<const Found *> getHere() const;

private:
  Expected<std::unique_ptr<Found>> find() const;

  CudaLoadedProgram &program;
  std::string name;
  bool withShapes;
  mutable std::mutex mutex;
  mutable SmallVector<std::unique_ptr<Found>, 4> found;
};
} // namespace

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

Expected<CudaExecutable *> CudaLoadedProgram::getHere(CompileTimes &times) {
  auto device = cuda::DeviceInfo::current(description.capability, description.runsLater);
  if (!device)
    return device.takeError();
  auto context = (*device)->getContext();
  if (!context)
    return context.takeError();
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto &executable : executables)
    if (executable->getContext() == *context)
      return executable.get();
  // Machine code is the device's, whatever chip the PTX is for.
  std::string chip =
      description.runsLater ? ("sm_" + Twine((*device)->capability)).str() : description.chip.str();
  auto executable = loadCudaProgram(program, chip, **device, cache, times);
  if (!executable)
    return executable.takeError();
  executables.push_back(std::move(*executable));
  return executables.back().get();
}

Expected<std::unique_ptr<Function>> CudaLoadedProgram::lookup(StringRef name, bool withShapes) {
  auto function = std::make_unique<CudaFunction>(*this, name, withShapes);
  // Now rather than in the first call, for the sake of its errors.
  if (auto found = function->getHere(); !found)
    return found.takeError();
  return function;
}

std::vector<KernelInfo> CudaLoadedProgram::getKernels() const {
  std::vector<KernelInfo> infos;
  for (const CudaKernelInfo &kernel : executables.front()->getKernels())
    infos.push_back({kernel.name, kernel.registers, kernel.spilledBytes, kernel.staticSharedBytes});
  return infos;
}

//===----------------------------------------------------------------------===//
// Calling
//===----------------------------------------------------------------------===//

Expected<std::unique_ptr<CudaFunction::Found>> CudaFunction::find() const {
  CompileTimes times;
  auto executable = program.getHere(times);
  if (!executable)
    return executable.takeError();
  auto result = std::make_unique<Found>();
  result->executable = *executable;
  auto function = (*executable)->lookup(name);
  if (!function)
    return function.takeError();
  result->function = *function;
  if (withShapes) {
    auto shapes = (*executable)->lookup(name + "_shape");
    if (!shapes)
      return shapes.takeError();
    result->shapes = *shapes;
  }
  return result;
}

Expected<const CudaFunction::Found *> CudaFunction::getHere() const {
  auto driver = cuda::Driver::get();
  if (!driver)
    return driver.takeError();
  cuda::Context now = nullptr;
  if (Error error = (*driver)->check((*driver)->contextGetCurrent(&now), "cuCtxGetCurrent"))
    return std::move(error);
  std::lock_guard<std::mutex> lock(mutex);
  auto known = [&](cuda::Context context) -> const Found * {
    for (const auto &entry : found)
      if (entry->executable->getContext() == context)
        return entry.get();
    return nullptr;
  };
  if (const Found *entry = known(now))
    return entry;
  // A thread without a context gets one now, which may be known.
  auto entry = find();
  if (!entry)
    return entry.takeError();
  if (const Found *before = known((*entry)->executable->getContext()))
    return before;
  found.push_back(std::move(*entry));
  return found.back().get();
}

Error CudaFunction::run(void **slots, const CallContext &context) const {
  auto here = getHere();
  if (!here)
    return here.takeError();
  return (*here)->executable->run(
      (*here)->function, slots, static_cast<cuda::Stream>(context.stream),
      cuda::Address(reinterpret_cast<uintptr_t>(context.workspace)), context.workspaceBytes);
}

Expected<size_t> CudaFunction::measure(void **slots) const {
  auto here = getHere();
  if (!here)
    return here.takeError();
  return CudaExecutable::measure((*here)->function, slots);
}

Error CudaFunction::computeShapes(void **slots) const {
  auto here = getHere();
  if (!here)
    return here.takeError();
  (*here)->shapes(slots);
  return Error::success();
}

//===----------------------------------------------------------------------===//
// The target
//===----------------------------------------------------------------------===//

Expected<std::unique_ptr<Program>> CudaTarget::generate(mlir::ModuleOp module, const CodeOptions &,
                                                        CompileTimes &times) const {
  auto program = CudaProgram::create(module, times.host);
  if (!program)
    return program.takeError();
  return std::make_unique<PtxProgram>(std::move(*program));
}

std::unique_ptr<Program> CudaTarget::readProgram(StringRef bytes) const {
  auto program = CudaProgram::deserialize(bytes);
  return program ? std::make_unique<PtxProgram>(std::move(*program)) : nullptr;
}

Expected<std::unique_ptr<LoadedProgram>> CudaTarget::load(std::unique_ptr<Program> program,
                                                          const DiskCache &cache,
                                                          CompileTimes &times) const {
  auto loaded = std::make_unique<CudaLoadedProgram>(
      std::move(static_cast<PtxProgram &>(*program).program), getDescription(), cache);
  if (auto here = loaded->getHere(times); !here)
    return here.takeError();
  return loaded;
}

Expected<std::string> CudaTarget::describeDevice() const {
  auto device = cuda::DeviceInfo::current(getDescription().capability, getDescription().runsLater);
  if (!device)
    return device.takeError();
  return (*device)->name;
}

Error CudaTarget::fitDevice(PipelineOptions &options) const {
  auto device = cuda::DeviceInfo::current(getDescription().capability, getDescription().runsLater);
  if (!device)
    return device.takeError();
  // What comes last counts.
  if (int count = (*device)->multiprocessors; count != getDescription().limits.multiprocessors)
    options.schedule = ("ctas=" + Twine(count) + " " + options.schedule).str();
  return Error::success();
}
