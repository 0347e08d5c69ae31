// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-run: compiles a function of attention ops for this machine's CPU or GPU, runs it on
// files or random numbers, and compares or times it.

#include "Check.h"
#include "Compile.h"
#include "Executor.h"
#include "GradientInputs.h"
#include "Work.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Registration/Registration.h"
#include "attn/Runtime/ThreadPool.h"
#include "attn/Utils/Outcomes.h"
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
  explicit Session(const Options &options) : options(options), diagnostics(sources, &context) {}

  Error run();
  /// The compiler has already said what is wrong.
  bool hasReported() const { return diagnostics.failed; }

private:
  Error chooseTarget();
  Expected<mlir::OwningOpRef<mlir::ModuleOp>> parse(StringRef path);
  Error loadModules();
  Expected<FuncOp> findFunction(mlir::ModuleOp module, StringRef name, StringRef path);
  Error findEntry();
  Error checkReference();
  void describeWork();
  Error addGradient();
  Error compileAny();
  Error execute();
  Expected<std::unique_ptr<Call>> prepare(FuncOp function, ArrayRef<Operand> operands);
  Expected<std::unique_ptr<Call>> callFunction(FuncOp function, ArrayRef<Operand> operands,
                                               FunctionReport &functionReport);
  Error callGradient(const Call &call);
  Error compareWithReference(const Call &call, const GradientCall *gradientCall);

  const Options &options;
  mlir::MLIRContext context;
  SourceMgr sources;
  Diagnostics diagnostics;
  mlir::OwningOpRef<mlir::ModuleOp> module, referenceModule;
  /// What is compiled is `code`; what it means is `entry`: the same function, or
  /// that of --reference. The gradient is null without --grad.
  FuncOp code, entry, gradient;
  /// The gradient takes the entry's results.
  bool savesResults = false;
  /// What --target names; null for auto and interpreter.
  const target::Target *target = nullptr;
  std::unique_ptr<Executor> executor;
  std::optional<ShapeRules> rules;
  std::optional<Arguments> arguments;
  std::optional<GradientInputs> gradientInputs;
  Report report;
};
} // namespace

/// An error where a given option means nothing to the target.
static Error checkGiven(const Options &options, bool isGpu, bool isInterpreter, StringRef name) {
  struct Group {
    ArrayRef<StringRef> given;
    bool isFor;
    StringRef targets;
  };
  for (const Group &group :
       {Group{options.ofCpu, !isGpu && !isInterpreter, "CPUs"},
        Group{options.ofKernels, isGpu || isInterpreter, "GPUs and the interpreter"},
        Group{options.ofInterpreter, isInterpreter, "the interpreter"}})
    if (!group.isFor && !group.given.empty()) {
      StringRef option = group.given.front();
      return createStringError((option.size() == 1 ? "-" : "--") + option +
                               " is not for --target=" + name + ", but for " + group.targets);
    }
  if (options.parts && !isGpu && !isInterpreter && options.loopOrder != "split_kv")
    return createStringError("--parts needs --loop-order=split_kv for --target=" + name);
  return Error::success();
}

Error Session::chooseTarget() {
  if (options.target == "interpreter")
    return checkGiven(options, /*isGpu=*/false, /*isInterpreter=*/true, options.target);
  if (options.target == "auto")
    return options.ofInterpreter.empty() && options.emit.empty()
               ? Error::success()
               : checkGiven(options, /*isGpu=*/true, /*isInterpreter=*/false,
                            options.emit.empty() ? "auto" : "cuda");
  auto found = target::getTarget(options.target, {"auto", "interpreter"});
  if (!found)
    return found.takeError();
  target = *found;
  if (!options.emit.empty() && !target->isGpu())
    return createStringError("--emit=ptx is not for --target=" + target->getName());
  return checkGiven(options, target->isGpu(), /*isInterpreter=*/false, options.target);
}

Expected<mlir::OwningOpRef<mlir::ModuleOp>> Session::parse(StringRef path) {
  auto buffer = MemoryBuffer::getFileOrSTDIN(path);
  if (!buffer)
    return createStringError("cannot open '" + path + "': " + buffer.getError().message());
  // The first buffer of a source manager is the one that gets parsed.
  SourceMgr own;
  SourceMgr &manager = sources.getNumBuffers() == 0 ? sources : own;
  manager.AddNewSourceBuffer(std::move(*buffer), SMLoc());
  auto parsed = mlir::parseSourceFile<mlir::ModuleOp>(manager, &context);
  if (!parsed)
    return diagnostics.failure("cannot parse '" + path + "'");
  return parsed;
}

Expected<FuncOp> Session::findFunction(mlir::ModuleOp module, StringRef name, StringRef path) {
  std::string names;
  SmallVector<FuncOp> candidates;
  for (auto function : module.getOps<FuncOp>())
    if (!function.isDeclaration()) {
      candidates.push_back(function);
      names += (names.empty() ? "" : ", ") + function.getName().str();
    }
  std::string has = names.empty() ? "has no function" : "has " + names;
  StringRef wanted = name.empty() ? "main" : name;
  FuncOp found;
  for (FuncOp function : candidates)
    if (function.getName() == wanted || (name.empty() && candidates.size() == 1))
      found = function;
  if (!found)
    return createStringError("no function '" + wanted + "' to run: '" + path + "' " + has);
  return found;
}

Error Session::loadModules() {
  double start = now();
  mlir::DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.printOpOnDiagnostic(false);
  auto parsed = parse(options.file);
  if (!parsed)
    return parsed.takeError();
  module = std::move(*parsed);
  report.parse = now() - start;
  auto found = findFunction(*module, options.entry, options.file);
  if (!found)
    return found.takeError();
  code = entry = *found;
  if (!options.reference.empty()) {
    auto [path, name] = StringRef(options.reference).rsplit(':');
    auto reference = parse(path);
    if (!reference)
      return reference.takeError();
    referenceModule = std::move(*reference);
    found = findFunction(*referenceModule, name, path);
    if (!found)
      return found.takeError();
    entry = *found;
    if (Error error = checkReference())
      return error;
  }
  return getValueTypes(entry.getResultTypes(), "result").takeError();
}

/// Whether the arguments of the code are those of the reference, and then its
/// results.
Error Session::checkReference() {
  if (options.grad)
    return createStringError("--grad and --reference do not go together");
  SmallVector<mlir::Type> expected(entry.getArgumentTypes());
  append_range(expected, entry.getResultTypes());
  auto wanted = getValueTypes(expected, "value", /*memrefs=*/true);
  auto given = getValueTypes(code.getArgumentTypes(), "argument", true);
  if (!wanted)
    return joinErrors(wanted.takeError(), given ? Error::success() : given.takeError());
  if (!given)
    return given.takeError();
  if (expected.size() != given->size())
    return createStringError("expected '" + code.getName() + "' to take " + Twine(expected.size()) +
                             " arguments, those and the results of --reference '" +
                             entry.getName() + "', got " + Twine(given->size()));
  for (auto [index, type] : enumerate(expected)) {
    auto want = dyn_cast<mlir::ShapedType>(type);
    auto have = dyn_cast<mlir::ShapedType>(code.getArgumentTypes()[index]);
    if ((*wanted)[index].kind != (*given)[index].kind || !want != !have ||
        (want && want.getRank() != have.getRank()))
      return createStringError("argument " + Twine(index) + " of '" + code.getName() +
                               "' does not fit --reference '" + entry.getName() + "'");
  }
  return Error::success();
}

void Session::describeWork() {
  PipelineOptions pipeline;
  setPipelineOptions(pipeline, options);
  report.forward.name = code.getName().str();
  report.forward.allTiles = countAllTiles(entry, *rules, pipeline.blockM, pipeline.blockN);
  report.forward.flops = countForwardFlops(entry, *rules);
  if (gradient) {
    report.gradient.emplace();
    report.gradient->name = gradient.getName().str();
    report.gradient->flops = countGradientFlops(entry, *rules);
  }
}

/// With auto, compiles for the GPU if there is one and the function compiles for it, else
/// for the CPU.
Error Session::compileAny() {
  SmallVector<FuncOp> entries = {code};
  if (gradient)
    entries.push_back(gradient);
  auto compileFor = [&](Expected<std::unique_ptr<Executor>> made) -> Error {
    if (!made)
      return made.takeError();
    executor = std::move(*made);
    return executor->compile(*module, entries, options, diagnostics, report);
  };
  if (target)
    return compileFor(createExecutor(*target, options));
  const target::Target &cpu = *cantFail(target::getTarget("cpu"));
  const target::Target &cuda = *cantFail(target::getTarget("cuda"));
  if (!options.emit.empty())
    return compileFor(createExecutor(cuda, options));
  if (options.target == "interpreter")
    return compileFor(createInterpreterExecutor(options));
  // What asks for a kind of target gets it, or an error.
  auto onCpu = [&]() -> Error {
    if (Error error = checkGiven(options, /*isGpu=*/false, /*isInterpreter=*/false, "cpu"))
      return error;
    return compileFor(createExecutor(cpu, options));
  };
  if (!options.ofCpu.empty())
    return onCpu();
  auto gpu = createExecutor(cuda, options);
  if (!gpu) {
    diagnostics.remarks.push_back("remark: on the cpu: " + toString(gpu.takeError()));
    return onCpu();
  }
  diagnostics.silent = true;
  Error error = compileFor(std::move(gpu));
  diagnostics.silent = false;
  if (!error)
    return Error::success();
  report.cuda.reset();
  errs() << "attn-run: running on the cpu: " << toString(std::move(error)) << "\n";
  return onCpu();
}

Expected<std::vector<ShapeRules::Shape>> attn::getResultShapes(FuncOp function, ShapeRules &rules) {
  std::vector<ShapeRules::Shape> shapes;
  auto terminator = function.getBody().back().getTerminator();
  for (auto [index, value] : enumerate(terminator->getOperands())) {
    ShapeRules::Shape &shape = shapes.emplace_back();
    if (auto tensor = dyn_cast<mlir::RankedTensorType>(value.getType()))
      for (int64_t dim = 0; dim < tensor.getRank(); ++dim) {
        std::optional<int64_t> size = rules.getSize(value, dim);
        if (!size)
          return createStringError("the size of result " + Twine(index) + " dimension " +
                                   Twine(dim) + " of '" + function.getName() + "' is not known");
        shape.push_back(*size);
      }
  }
  return shapes;
}

Expected<std::unique_ptr<Call>> Session::prepare(FuncOp function, ArrayRef<Operand> operands) {
  if (function != code || code == entry)
    return executor->prepare(function, operands, options);
  // The reference says what the last arguments are.
  auto types = getValueTypes(entry.getResultTypes(), "result");
  if (!types)
    return types.takeError();
  auto shapes = getResultShapes(entry, *rules);
  if (!shapes)
    return shapes.takeError();
  return executor->prepareInto(function, operands, *types, *shapes, options);
}

/// With --grad, the function that computes the gradients.
Error Session::addGradient() {
  if (!options.grad)
    return Error::success();
  double start = now();
  auto added = differentiate(entry, diagnostics, savesResults);
  if (!added)
    return added.takeError();
  gradient = *added;
  report.passes = now() - start;
  return Error::success();
}

/// Runs a function once, then as often as its time is to be taken.
Expected<std::unique_ptr<Call>> Session::callFunction(FuncOp function, ArrayRef<Operand> operands,
                                                      FunctionReport &functionReport) {
  auto call = prepare(function, operands);
  if (!call)
    return call.takeError();
  for (const Operand &operand : operands)
    functionReport.inputBytes += operand.value->getBytes();
  functionReport.outputBytes = (*call)->getResultBytes();
  resetTileCounts();
  double start = now();
  if (Error error = (*call)->run())
    return std::move(error);
  functionReport.firstRun = now() - start;
  if (TileCounts tiles = getTileCounts(); tiles.masked + tiles.full > 0)
    functionReport.tiles = tiles;
  report.peakRss = getPeakRss();
  if (options.repetitions) {
    auto times = (*call)->time(options.repetitions);
    if (!times)
      return times.takeError();
    functionReport.runs = std::move(*times);
  }
  return call;
}

static Error writeResults(ArrayRef<std::pair<unsigned, std::string>> outputs, const Call &call) {
  for (const auto &[position, path] : outputs)
    if (Error error = writeNpy(path, call.getResult(position)))
      return error;
  return Error::success();
}

Error Session::compareWithReference(const Call &call, const GradientCall *gradientCall) {
  if (!options.check)
    return Error::success();
  std::vector<Agreement> ofGradients;
  Error error = checkResults(entry, arguments->getOperands(), call, gradientCall,
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
  if (Error error = writeResults(options.gradOutputs, **gradientCall))
    return error;
  GradientCall checked{gradient, **gradientCall, gradientInputs->getIncoming(),
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
  auto call = callFunction(code, operands, report.forward);
  if (!call)
    return call.takeError();
  if (Error error = writeResults(options.outputs, **call))
    return error;
  return gradient ? callGradient(**call) : compareWithReference(**call, nullptr);
}

/// The first disagreement with the reference.
static Error firstFailure(const FunctionReport &report, StringRef what) {
  for (auto [index, agreement] : enumerate(report.checks))
    if (!agreement.passed)
      return createStringError(what + " " + Twine(index) +
                               " differs from the reference: " + agreement.reason);
  return Error::success();
}

Error Session::run() {
  if (!options.remarks.empty()) {
    if (Error error = enableRemarks(context, options.remarks))
      return error;
    diagnostics.printsRemarks = true;
  }
  if (Error error = chooseTarget())
    return error;
  if (Error error = loadModules())
    return error;
  if (!options.emit.empty()) {
    if (Error error = addGradient())
      return error;
    return compileAny();
  }
  rules.emplace(entry);
  // Kernels written by hand take memrefs, which the CPU has no code for.
  bool memrefs = (options.target == "interpreter" || (target && target->isGpu())) && code == entry;
  auto planned = Arguments::plan(entry, options, *rules, memrefs);
  if (!planned)
    return planned.takeError();
  arguments = std::move(*planned);
  bool inPlace = memrefs && any_of(entry.getArgumentTypes(), llvm::IsaPred<mlir::MemRefType>);
  if (inPlace && (options.check || options.grad))
    return createStringError("--check and --grad of a function of memrefs need "
                             "--reference");
  if (Error error = addGradient())
    return error;
  if (gradient) {
    auto inputs = GradientInputs::plan(entry, gradient, options);
    if (!inputs)
      return inputs.takeError();
    gradientInputs = std::move(*inputs);
  }
  ThreadPool::shared().setNumThreads(options.threads);
  report.threads = ThreadPool::shared().getNumThreads();
  describeWork();
  if (Error error = compileAny())
    return error;
  if (Error error = execute())
    return error;
  report.remarks = diagnostics.remarks;
  report.print(options);
  if (Error error = firstFailure(report.forward, "result"))
    return error;
  return gradient ? firstFailure(*report.gradient, "gradient") : Error::success();
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  // --mlir-print-ir-after and its like name passes.
  registerPasses();
  target::registerAllTargets();
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
