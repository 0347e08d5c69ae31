// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See TrialTarget.h.

#include "TrialTarget.h"
#include "attn/Pipelines/Pipelines.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

using namespace llvm;
using namespace attn;
using namespace attn::target;

TrialLog &attn::target::getTrialLog() {
  static TrialLog log;
  return log;
}

namespace {
void record(const Twine &question) { getTrialLog().asked.push_back(question.str()); }

constexpr MmaAtom kAtoms[] = {
    {MmaType::BF16, MmaType::F32, /*m=*/16, /*n=*/{8, 8, 8}, /*k=*/16, true, true},
};

/// Tiles as text.
class TrialProgram : public Program {
public:
  explicit TrialProgram(StringRef text) : text(text) {}
  std::string serialize() const override { return text; }
  StringRef getAssembly() const override { return text; }

  std::string text;
};

class TrialFunction : public Function {
public:
  Error run(void **, const CallContext &) const override {
    record("run");
    return createStringError("no machine for trials");
  }
  Expected<size_t> measure(void **) const override {
    record("measure");
    return 7;
  }
  Error computeShapes(void **) const override {
    record("shapes");
    return Error::success();
  }
};

class TrialLoadedProgram : public LoadedProgram {
public:
  Expected<std::unique_ptr<Function>> lookup(StringRef name, bool) override {
    record("lookup " + name);
    return std::make_unique<TrialFunction>();
  }
};

class TrialTarget : public Target {
public:
  explicit TrialTarget(StringLiteral name = "trial", StringLiteral chip = "paper")
      : Target({name, chip, /*capability=*/0, Memory::Host, getLimits(), kAtoms}) {}

  Error buildPipeline(mlir::OpPassManager &pm, const PipelineOptions &options,
                      Form form) const override {
    record(form == Form::Tensors ? "pipeline of tensors" : "pipeline of kernels");
    PipelineOptions own;
    own.copyOptionValuesFrom(options);
    own.blockM = 3 * getDescription().atoms.front().m;
    own.blockMMultiple = getDescription().atoms.front().m;
    buildTilePipeline(pm, own);
    return Error::success();
  }

  Expected<std::unique_ptr<Program>> generate(mlir::ModuleOp module, const CodeOptions &,
                                              CompileTimes &) const override {
    record("generate");
    std::string text;
    raw_string_ostream os(text);
    module.print(os);
    getTrialLog().tiles = text;
    return std::make_unique<TrialProgram>(text);
  }

  std::unique_ptr<Program> readProgram(StringRef bytes) const override {
    record("read");
    return std::make_unique<TrialProgram>(bytes);
  }

  Expected<std::unique_ptr<LoadedProgram>> load(std::unique_ptr<Program>, const DiskCache &,
                                                CompileTimes &) const override {
    record("load");
    return std::make_unique<TrialLoadedProgram>();
  }

  Expected<std::string> describeDevice() const override { return "paper"; }

  Error fitDevice(PipelineOptions &) const override {
    record("fit");
    return Error::success();
  }

private:
  static Limits getLimits() {
    Limits limits;
    limits.sharedBytesPerCta = 4096;
    return limits;
  }
};

/// The same on another chip, under another name: the registry has one target of a name.
class OtherChip : public TrialTarget {
public:
  OtherChip() : TrialTarget("trial-2", "cardboard") {}
};

struct Registration {
  Registration() {
    registerTarget<TrialTarget>("trial", "a target of this test");
    registerTarget<OtherChip>("trial-2", "the same on another chip");
  }
} registration;
} // namespace
