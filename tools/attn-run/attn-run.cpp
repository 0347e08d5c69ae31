// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-run: compiles a function of attention ops for this machine, runs it on
// files or random numbers, and compares or times it.

#include "Call.h"
#include "Report.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Registration/Registration.h"
#include "attn/Runtime/ThreadPool.h"
#include "attn/Transforms/Host/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SourceMgr.h"
#include <chrono>

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

static double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

namespace {
/// Prints the first error of the compiler and keeps its remarks.
class Diagnostics : public mlir::SourceMgrDiagnosticHandler {
public:
  Diagnostics(SourceMgr &sources, mlir::MLIRContext *context)
      : SourceMgrDiagnosticHandler(sources, context) {
    setHandler([this](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Remark) {
        std::string text;
        raw_string_ostream stream(text);
        stream << "remark: " << diagnostic.str();
        for (mlir::Diagnostic &note : diagnostic.getNotes())
          stream << "\n  " << note.str();
        if (seen.insert(text).second)
          remarks.push_back(text);
        return;
      }
      bool isError =
          diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error;
      if (!isError || !failed)
        emitDiagnostic(diagnostic);
      failed |= isError;
    });
  }

  std::vector<std::string> remarks;
  bool failed = false;

private:
  llvm::StringSet<> seen;
};

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
  Error checkReads();
  Error check(Call &call);
  Error execute();

  const Options &options;
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  SourceMgr sources;
  Diagnostics diagnostics;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  FuncOp entry;
  std::unique_ptr<CpuExecutable> executable;
  SmallVector<ValueType> resultTypes;
  std::optional<ShapeRules> rules;
  std::optional<Arguments> arguments;
  Report report;
};
} // namespace

/// An error whose text the compiler's diagnostics have printed already.
static Error alreadyReported() {
  return createStringError("compilation failed");
}

Error Session::checkTarget() {
  StringRef target = options.target;
  if (target == "cuda" || target == "interpreter")
    return createStringError("--target=" + target +
                             " is not available in this build");
  if (target != "cpu" && target != "auto")
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
  return module ? Error::success() : alreadyReported();
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
  auto results = getValueTypes(entry.getResultTypes(), "result");
  if (!results)
    return results.takeError();
  resultTypes = std::move(*results);
  report.entry = entry.getName().str();
  return Error::success();
}

/// Tiles of all pairs of query and key, masked or not.
static int64_t countAllTiles(FuncOp function, ShapeRules &rules,
                             const PipelineOptions &pipeline) {
  int64_t tiles = 0;
  function.walk([&](ForwardOp op) {
    std::optional<int64_t> batch = rules.getSize(op.getQuery(), 0),
                           heads = rules.getSize(op.getQuery(), 1),
                           rows = rules.getSize(op.getQuery(), 2),
                           keys = rules.getSize(op.getKey(), 2);
    if (batch && heads && rows && keys)
      tiles += *batch * *heads * divideCeil(*rows, pipeline.rowTile) *
               divideCeil(*keys, pipeline.streamTile);
  });
  return tiles;
}

Error Session::compile() {
  double start = now();
  mlir::OwningOpRef<mlir::ModuleOp> copy = module->clone();
  // Only what the entry needs is compiled.
  for (auto function : copy->getOps<FuncOp>())
    function.setVisibility(function.getName() == entry.getName()
                               ? mlir::SymbolTable::Visibility::Public
                               : mlir::SymbolTable::Visibility::Private);
  mlir::PassManager manager(&context);
  if (failed(mlir::applyPassManagerCLOptions(manager)))
    return createStringError(
        "the options for the pass manager do not fit together");
  mlir::applyDefaultTimingPassManagerCLOptions(manager);
  manager.addPass(mlir::createSymbolDCEPass());
  manager.addPass(attn::createAttnEmitShapeFunction());
  attn::PipelineOptions pipeline;
  // Counting costs time, so not where only times are asked for.
  pipeline.countTiles =
      options.explain || (options.json && options.repetitions == 0);
  pipeline.explain = options.explain;
  if (!options.loopOrder.empty())
    pipeline.order = options.loopOrder;
  if (options.rowTile)
    pipeline.rowTile = options.rowTile;
  if (options.streamTile)
    pipeline.streamTile = options.streamTile;
  if (options.parts)
    pipeline.parts = options.parts;
  attn::buildCpuPipeline(manager, pipeline);
  report.allTiles = countAllTiles(entry, *rules, pipeline);
  if (failed(manager.run(*copy))) {
    if (diagnostics.failed)
      return alreadyReported();
    return createStringError("lowering '" + entry.getName() + "' failed");
  }
  report.passes = now() - start;
  CpuCompileOptions compileOptions;
  compileOptions.optLevel = options.optLevel;
  compileOptions.printLLVM = options.printLLVM;
  auto compiled = CpuExecutable::compile(*copy, compileOptions);
  if (!compiled)
    return compiled.takeError();
  executable = std::move(*compiled);
  report.codegen = executable->getTimes();
  report.cpu = executable->getCpuName().str();
  return Error::success();
}

/// 2 (D + Dv) operations for each pair of query and key.
static double countFlops(FuncOp function, ShapeRules &rules) {
  double flops = 0;
  function.walk([&](ForwardOp op) {
    std::optional<int64_t> batch = rules.getSize(op.getQuery(), 0),
                           heads = rules.getSize(op.getQuery(), 1),
                           rows = rules.getSize(op.getQuery(), 2),
                           keys = rules.getSize(op.getKey(), 2);
    if (batch && heads && rows && keys)
      flops += 2.0 * double(*batch) * double(*heads) * double(*rows) *
               double(*keys) *
               double(op.getQuery().getType().getDimSize(3) +
                      op.getValue().getType().getDimSize(3));
  });
  return flops;
}

/// Compares all results with the reference.
Error Session::check(Call &call) {
  SmallVector<RefTensorPtr> inputs;
  for (const HostTensor &value : arguments->getValues())
    inputs.push_back(std::make_shared<RefTensor>(RefTensor::from(value)));
  auto exact = evaluate(entry, inputs, Precision::Exact);
  if (!exact)
    return exact.takeError();
  auto baseline = evaluate(entry, inputs, Precision::SameType);
  if (!baseline)
    return baseline.takeError();
  for (unsigned index = 0; index < resultTypes.size(); ++index)
    report.checks.push_back(compare(RefTensor::from(call.getResult(index)),
                                    *(*exact)[index], *(*baseline)[index]));
  return Error::success();
}

/// Captures are small next to queries and keys, except for biases of every
/// pair; those are read at plain indices and need not be looked at.
Error Session::checkReads() {
  SmallVector<RefTensorPtr> inputs;
  for (const HostTensor &value : arguments->getValues()) {
    auto shape = std::make_shared<RefTensor>();
    shape->kind = value.getKind();
    shape->shape.assign(value.getShape().begin(), value.getShape().end());
    if (attn::isFloat(value.getKind()))
      inputs.push_back(shape);
    else
      inputs.push_back(std::make_shared<RefTensor>(RefTensor::from(value)));
  }
  return checkCaptureReads(entry, inputs);
}

Error Session::execute() {
  report.baselineRss = getPeakRss();
  if (Error error = arguments->create(options))
    return error;
  for (const HostTensor &value : arguments->getValues())
    report.inputBytes += value.getBytes();
  if (Error error = checkReads())
    return error;
  SmallVector<unsigned> ranks;
  for (mlir::Type type : entry.getResultTypes()) {
    auto tensor = dyn_cast<mlir::RankedTensorType>(type);
    ranks.push_back(tensor ? tensor.getRank() : 0);
  }
  auto call = Call::prepare(*executable, entry.getName(), *arguments,
                            resultTypes, ranks, options.guard);
  if (!call)
    return call.takeError();
  report.outputBytes = call->getResultBytes();
  resetTileCounts();
  double start = now();
  call->run();
  report.firstRun = now() - start;
  if (TileCounts tiles = getTileCounts(); tiles.masked + tiles.full > 0)
    report.tiles = tiles;
  call->storeScalars();
  report.peakRss = getPeakRss();
  for (const auto &[position, path] : options.outputs)
    if (Error error = writeNpy(path, call->getResult(position)))
      return error;
  for (unsigned repetition = 0; repetition < options.repetitions;
       ++repetition) {
    start = now();
    call->run();
    report.runs.push_back(now() - start);
  }
  report.flops = countFlops(entry, *rules);
  return options.check ? check(*call) : Error::success();
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
  ThreadPool::shared().setNumThreads(options.threads);
  report.threads = ThreadPool::shared().getNumThreads();
  if (Error error = compile())
    return error;
  if (Error error = execute())
    return error;
  report.remarks = diagnostics.remarks;
  report.print(options);
  for (auto [index, agreement] : enumerate(report.checks))
    if (!agreement.passed)
      return createStringError(
          "result " + Twine(index) +
          " differs from the reference: " + agreement.reason);
  return Error::success();
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
