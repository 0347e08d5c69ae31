// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host's own CPU: machine code by LLVM's JIT, in this process.

#include "attn/Pipelines/Pipelines.h"
#include "attn/Runtime/CpuExecutable.h"
#include "attn/Target/Target.h"
#include "attn/Utils/MatrixUnits.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/TargetParser/Host.h"

using namespace llvm;
using namespace attn;
using namespace attn::target;

namespace {
/// A relocatable object file.
class CPUProgram : public Program {
public:
  explicit CPUProgram(std::unique_ptr<MemoryBuffer> code) : code(std::move(code)) {}
  std::string serialize() const override { return code->getBuffer().str(); }

  std::unique_ptr<MemoryBuffer> code;
};

class CPUFunction : public Function {
public:
  using Packed = CpuExecutable::Packed;
  CPUFunction(Packed function, Packed shapes) : function(function), shapes(shapes) {}

  Error run(void **slots, const CallContext &) const override {
    function(slots);
    return Error::success();
  }
  Expected<size_t> measure(void **) const override { return 0; }
  Error computeShapes(void **slots) const override {
    shapes(slots);
    return Error::success();
  }

private:
  Packed function, shapes;
};

class CPULoadedProgram : public LoadedProgram {
public:
  explicit CPULoadedProgram(std::unique_ptr<CpuExecutable> executable)
      : executable(std::move(executable)) {}

  Expected<std::unique_ptr<Function>> lookup(StringRef name, bool withShapes) override {
    auto function = executable->lookupPacked(name);
    if (!function)
      return function.takeError();
    CpuExecutable::Packed shapes = nullptr;
    if (withShapes) {
      auto found = executable->lookupPacked((name + "_shape").str());
      if (!found)
        return found.takeError();
      shapes = *found;
    }
    return std::make_unique<CPUFunction>(*function, shapes);
  }

private:
  std::unique_ptr<CpuExecutable> executable;
};

class CPUTarget : public Target {
public:
  static constexpr StringLiteral kName{"cpu"};

  CPUTarget() : Target({kName, "native", /*capability=*/0, Memory::Host, {}, {}}) {}

  /// Code is for the host's CPU and all its features.
  Expected<std::string> getKey() const override {
    auto host = CpuExecutable::describeHost();
    if (!host)
      return host.takeError();
    return cantFail(Target::getKey()) + " " + *host;
  }

  Error buildPipeline(mlir::OpPassManager &pm, const PipelineOptions &options,
                      Form form) const override {
    if (form == Form::Kernels)
      return createStringError("the target cpu has no kernels, got a function with gpu.launch");
    // Code for it would run here.
    StringRef asked = options.matrixUnit.getValue(), best = findHostMatrixUnit();
    bool isThere = asked != "amx" ? asked != "avx512_bf16" || best != "none" : best == "amx";
    if (!isThere)
      return createStringError("matrix-unit=" + asked + ": the best that this host has is " + best);
    buildCpuPipeline(pm, options);
    return Error::success();
  }

  Expected<std::unique_ptr<Program>> generate(mlir::ModuleOp module, const CodeOptions &options,
                                              CompileTimes &times) const override {
    CpuCompileOptions compile;
    compile.optLevel = options.optLevel;
    compile.printLLVM = options.printLLVM;
    auto object = CpuExecutable::compileObject(module, compile);
    if (!object)
      return object.takeError();
    times.host = object->times;
    return std::make_unique<CPUProgram>(std::move(object->code));
  }

  std::unique_ptr<Program> readProgram(StringRef bytes) const override {
    return std::make_unique<CPUProgram>(MemoryBuffer::getMemBufferCopy(bytes));
  }

  Expected<std::unique_ptr<LoadedProgram>> load(std::unique_ptr<Program> program, const DiskCache &,
                                                CompileTimes &) const override {
    auto executable = CpuExecutable::load(std::move(static_cast<CPUProgram &>(*program).code));
    if (!executable)
      return executable.takeError();
    return std::make_unique<CPULoadedProgram>(std::move(*executable));
  }

  Expected<std::string> describeDevice() const override { return sys::getHostCPUName().str(); }

  Error fitDevice(PipelineOptions &) const override { return Error::success(); }
};
} // namespace

namespace attn::target {
void registerCPUTarget() {
  registerTarget<CPUTarget>(CPUTarget::kName, "the host's CPU, compiled for it");
}
} // namespace attn::target
