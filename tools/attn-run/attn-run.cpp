// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-run: compiles a function of attention ops for this machine, runs it on
// files or random numbers, and compares or times it.

#include "Check.h"
#include "Compile.h"
#include "GradientInputs.h"
#include "Interpret.h"
#include "Work.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Registration/Registration.h"
#include "attn/Runtime/ThreadPool.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

namespace {
/// One run of the tool; each step needs those before it.
class Session {
public:
  explicit Session(const Options &options)
      : options(options), diagnostics(sources, &context) {}

  Error run();
  /// The compiler has already said what is wrong.
  bool hasReported() const { return diagnostics.failed; }

private:
  Error checkTarget();
  Error parse();
  Error findEntry();
  Error compile();
  Error execute();
  Expected<Call> callFunction(FuncOp function, ArrayRef<Operand> operands,
                              FunctionReport &functionReport);
  Error callGradient(const Call &call);
  Error compareWithReference(const Call &call, const GradientCall *gradientCall);

  const Options &options;
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  SourceMgr sources;
  Diagnostics diagnostics;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// The gradient is null without --grad.
  FuncOp entry, gradient;
  /// The gradient takes the entry's results.
  bool savesResults = false;
  std::unique_ptr<CpuExecutable> executable;
  std::optional<ShapeRules> rules;
  std::optional<Arguments> arguments;
  std::optional<GradientInputs> gradientInputs;
  Report report;
};
} // namespace

Error Session::checkTarget() {
  StringRef target = options.target;
  if (target == "cuda")
    return createStringError("--target=" + target +
                             " is not available in this build");
  if (target != "cpu" && target != "auto" && target != "interpreter")
    return createStringError(
        "expected --target auto, cpu, cuda or interpreter, got '" + target +
        "'");
  return Error::success();
}

Error Session::parse() {
  double start = now();
  mlir::DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.printOpOnDiagnostic(false);
  auto buffer = MemoryBuffer::getFileOrSTDIN(options.file);
  if (!buffer)
    return createStringError("cannot open '" + options.file +
                             "': " + buffer.getError().message());
  sources.AddNewSourceBuffer(std::move(*buffer), SMLoc());
  module = mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
  report.parse = now() - start;
  return module ? Error::success()
                : diagnostics.failure("cannot parse '" + options.file + "'");
}

Error Session::findEntry() {
  std::string names;
  SmallVector<FuncOp> candidates;
  for (auto function : module->getOps<FuncOp>())
    if (!function.isDeclaration()) {
      candidates.push_back(function);
      names += (names.empty() ? "" : ", ") + function.getName().str();
    }
  std::string has = names.empty() ? "has no function" : "has " + names;
  std::string name = options.entry.empty() ? "main" : options.entry;
  for (FuncOp function : candidates)
    if (function.getName() == name ||
        (options.entry.empty() && candidates.size() == 1))
      entry = function;
  if (!entry)
    return createStringError("no function '" + name + "' to run: '" +
                             options.file + "' " + has);
  return getValueTypes(entry.getResultTypes(), "result").takeError();
}

Error Session::compile() {
  SmallVector<FuncOp> entries = {entry};
  PipelineOptions pipeline;
  setPipelineOptions(pipeline, options);
  report.forward.name = entry.getName().str();
  report.forward.allTiles =
      countAllTiles(entry, *rules, pipeline.rowTile, pipeline.streamTile);
  report.forward.flops = countForwardFlops(entry, *rules);
  if (gradient) {
    entries.push_back(gradient);
    report.gradient.emplace();
    report.gradient->name = gradient.getName().str();
    report.gradient->flops = countGradientFlops(entry, *rules);
  }
  auto compiled =
      compileFunctions(*module, entries, options, diagnostics, report);
  if (!compiled)
    return compiled.takeError();
  executable = std::move(*compiled);
  return Error::success();
}

/// Runs a function once, then as often as its time is to be taken.
Expected<Call> Session::callFunction(FuncOp function,
                                     ArrayRef<Operand> operands,
                                     FunctionReport &functionReport) {
  auto call = Call::prepare(*executable, function, operands, options.guard);
  if (!call)
    return call.takeError();
  for (const Operand &operand : operands)
    functionReport.inputBytes += operand.value->getBytes();
  functionReport.outputBytes = call->getResultBytes();
  resetTileCounts();
  double start = now();
  call->run();
  functionReport.firstRun = now() - start;
  if (TileCounts tiles = getTileCounts(); tiles.masked + tiles.full > 0)
    functionReport.tiles = tiles;
  call->storeScalars();
  report.peakRss = getPeakRss();
  for (unsigned repetition = 0; repetition < options.repetitions;
       ++repetition) {
    start = now();
    call->run();
    functionReport.runs.push_back(now() - start);
  }
  return call;
}

static Error writeResults(ArrayRef<std::pair<unsigned, std::string>> outputs,
                          const Call &call) {
  for (const auto &[position, path] : outputs)
    if (Error error = writeNpy(path, call.getResult(position)))
      return error;
  return Error::success();
}

Error Session::compareWithReference(const Call &call,
                                    const GradientCall *gradientCall) {
  if (!options.check)
    return Error::success();
  std::vector<Agreement> ofGradients;
  Error error =
      checkResults(entry, arguments->getOperands(), call, gradientCall,
                   report.forward.checks, ofGradients);
  if (report.gradient)
    report.gradient->checks = std::move(ofGradients);
  return error;
}

Error Session::callGradient(const Call &call) {
  if (Error error = gradientInputs->create(call, savesResults, options))
    return error;
  SmallVector<Operand> operands = arguments->getOperands();
  append_range(operands, gradientInputs->getOperands());
  if (Error error = checkReads(gradient, operands))
    return error;
  auto gradientCall = callFunction(gradient, operands, *report.gradient);
  if (!gradientCall)
    return gradientCall.takeError();
  if (Error error = writeResults(options.gradOutputs, *gradientCall))
    return error;
  GradientCall checked{gradient, *gradientCall, gradientInputs->getIncoming(),
                       gradientInputs->getPositions(), savesResults};
  return compareWithReference(call, &checked);
}

Error Session::execute() {
  report.baselineRss = getPeakRss();
  if (Error error = arguments->create(options))
    return error;
  SmallVector<Operand> operands = arguments->getOperands();
  if (Error error = checkReads(entry, operands))
    return error;
  auto call = callFunction(entry, operands, report.forward);
  if (!call)
    return call.takeError();
  if (Error error = writeResults(options.outputs, *call))
    return error;
  return gradient ? callGradient(*call) : compareWithReference(*call, nullptr);
}

/// The first disagreement with the reference.
static Error firstFailure(const FunctionReport &report, StringRef what) {
  for (auto [index, agreement] : enumerate(report.checks))
    if (!agreement.passed)
      return createStringError(
          what + " " + Twine(index) +
          " differs from the reference: " + agreement.reason);
  return Error::success();
}

Error Session::run() {
  if (Error error = checkTarget())
    return error;
  if (Error error = parse())
    return error;
  if (Error error = findEntry())
    return error;
  rules.emplace(entry);
  auto planned = Arguments::plan(entry, options, *rules);
  if (!planned)
    return planned.takeError();
  arguments = std::move(*planned);
  if (options.target == "interpreter")
    return interpret(entry, *arguments, options, diagnostics);
  if (options.grad) {
    double start = now();
    auto added = differentiate(entry, diagnostics, savesResults);
    if (!added)
      return added.takeError();
    gradient = *added;
    report.passes = now() - start;
    auto inputs = GradientInputs::plan(entry, gradient, options);
    if (!inputs)
      return inputs.takeError();
    gradientInputs = std::move(*inputs);
  }
  ThreadPool::shared().setNumThreads(options.threads);
  report.threads = ThreadPool::shared().getNumThreads();
  if (Error error = compile())
    return error;
  if (Error error = execute())
    return error;
  report.remarks = diagnostics.remarks;
  report.print(options);
  if (Error error = firstFailure(report.forward, "result"))
    return error;
  return gradient ? firstFailure(*report.gradient, "gradient")
                  : Error::success();
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  // --mlir-print-ir-after and its like name passes.
  registerPasses();
  Expected<Options> options = parseCommandLine(argc, argv);
  if (!options) {
    errs() << "error: " << toString(options.takeError()) << "\n";
    return 1;
  }
  Session session(*options);
  if (Error error = session.run()) {
    std::string message = toString(std::move(error));
    if (!session.hasReported())
      errs() << "error: " << message << "\n";
    return 1;
  }
  return 0;
}
