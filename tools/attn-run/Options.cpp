// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command line of attn-run. See Options.h.

#include "Options.h"
#include "attn/Target/Target.h"
#include "attn/Utils/RenamedOptions.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"

using namespace llvm;
using namespace attn;

/// What --help shows.
static cl::OptionCategory &getCategory() {
  static cl::OptionCategory category("attn-run options");
  return category;
}

static StringRef describeTargets() {
  static const std::string text = [] {
    std::string all =
        "auto (cuda where there is a GPU and the function compiles for it, else cpu), "
        "interpreter, cuda (the target of the GPU)";
    for (const target::Target *target : target::getTargets())
      all += (", " + target->getName()).str();
    return all;
  }();
  return text;
}

namespace {
/// What is compiled, and for what.
struct WhatToRun {
  cl::OptionCategory &category = getCategory();
  cl::opt<std::string> file{cl::Positional, cl::Required, cl::desc("FILE.mlir"), cl::cat(category)};
  cl::opt<std::string> entry{"entry", cl::desc("Function to run (default: main, or the only one)"),
                             cl::cat(category)};
  cl::opt<std::string> target{"target", cl::init("auto"), cl::cat(category),
                              cl::desc(describeTargets())};
  cl::opt<std::string> emit{
      "emit", cl::cat(category), cl::value_desc("ptx"),
      cl::desc("Print what the function is compiled to, without running it and "
               "without a GPU")};
  cl::opt<std::string> reference{
      "reference", cl::cat(category), cl::value_desc("FILE[:FUNCTION]"),
      cl::desc("For a function that takes its outputs as memrefs: the function "
               "of tensors that it computes. Gives the shapes of the results, "
               "the reference of --check and the work of --bench")};
  cl::opt<bool> grad{"grad", cl::cat(category),
                     cl::desc("Run the entry, then its gradient: one result per float "
                              "argument, from one incoming gradient per float tensor result")};
};

/// Arguments and results: where they come from and go to.
struct Data {
  cl::OptionCategory &category = getCategory();
  cl::list<std::string> inputs{"input", cl::cat(category), cl::value_desc("N=file.npy"),
                               cl::desc("Read argument N from a file")};
  cl::list<std::string> outputs{"output", cl::cat(category), cl::value_desc("N=file.npy"),
                                cl::desc("Write result N to a file")};
  cl::list<std::string> shapes{"shape", cl::cat(category), cl::value_desc("N=2x8x?x64"),
                               cl::desc("Shape of argument N; ? follows from other arguments")};
  cl::list<std::string> fills{"fill", cl::cat(category), cl::value_desc("N=how"),
                              cl::desc("Fill argument N: a value, arange, "
                                       "normal or uniform:LOW:HIGH (default: "
                                       "normal for floats, 0 for integers)")};
  cl::list<std::string> gradInputs{"grad-input", cl::cat(category), cl::value_desc("N=file.npy"),
                                   cl::desc("Read the incoming gradient of result N from a file")};
  cl::list<std::string> gradFills{"grad-fill", cl::cat(category), cl::value_desc("N=how"),
                                  cl::desc("Fill the incoming gradient of result N, as --fill does "
                                           "(default: normal)")};
  cl::list<std::string> gradOutputs{
      "grad-output", cl::cat(category), cl::value_desc("N=file.npy"),
      cl::desc("Write the gradient of the float argument N, counting float "
               "arguments only, to a file")};
  cl::opt<uint64_t> seed{"seed", cl::init(0), cl::cat(category),
                         cl::desc("Seed of random arguments")};
  cl::opt<double> scale{"scale-input", cl::init(1.0), cl::cat(category),
                        cl::desc("Factor on normal random arguments")};
  cl::opt<int64_t> stridePad{"stride-pad", cl::init(0), cl::cat(category),
                             cl::desc("Elements, holding NaN, before each tensor argument and "
                                      "after each run of each of its dimensions")};
  cl::opt<bool> guard{"guard", cl::cat(category),
                      cl::desc("Let every tensor end at an inaccessible page")};
};

/// What is to be found out.
struct Outcome {
  cl::OptionCategory &category = getCategory();
  cl::opt<bool> check{"check", cl::cat(category),
                      cl::desc("Compare results (with --grad, gradients too) with a float64 "
                               "reference; exit status 1 if too far")};
  cl::opt<std::string> bench{
      "bench", cl::ValueOptional, cl::cat(category), cl::value_desc("repetitions"),
      cl::desc("Time the entry (with --grad, its gradient too): the median over "
               "repetitions (default 10)")};
  cl::opt<bool> json{"json", cl::cat(category), cl::desc("Print one JSON object")};
  cl::opt<std::string> remarks{
      "remarks", cl::ValueOptional, cl::cat(category), cl::value_desc("regex"),
      cl::desc("Print what passes with matching names did (default: all)")};
  cl::opt<bool> explain{"explain", cl::cat(category),
                        cl::desc("Print what was decided and how many tiles were visited")};
  cl::opt<bool> printLLVM{"print-llvm", cl::cat(category),
                          cl::desc("On a CPU: print the optimised LLVM IR to stderr")};
};

/// What the compiler would choose.
struct Choices {
  cl::OptionCategory &category = getCategory();
  cl::opt<unsigned> threads{"threads", cl::init(0), cl::cat(category),
                            cl::desc("Number of threads (default: one per hardware thread)")};
  cl::opt<bool> deterministic{
      "deterministic", cl::init(true), cl::cat(category),
      cl::desc("Results are the same bits from run to run and for any number "
               "of threads (the default). With =false loop orders are chosen "
               "for the threads at hand: on a CPU still the same from run to "
               "run, on a GPU the gradient of the queries may not be")};
  cl::opt<std::string> order{
      "loop-order", cl::cat(category),
      cl::desc("Order of the loops: auto (by cost), m_outer (queries outside), "
               "n_outer (keys outside) or split_kv (parts of the keys, merged)")};
  cl::opt<std::string> schedule{
      "schedule", cl::cat(category),
      cl::desc(
          "Options of attn-lower-to-hopper, for cuda and interpreter: "
          "'block-m=128 block-n=176 stages=2 ctas=132 pipeline=true overlap=false ping-pong=false "
          "output=slabs'; "
          "what is not given is chosen")};
  cl::opt<unsigned> blockM{
      "block-m", cl::init(0), cl::cat(category),
      cl::desc("On a CPU: rows (queries) per tile; on a GPU --schedule says it")};
  cl::opt<unsigned> blockN{"block-n", cl::init(0), cl::cat(category),
                           cl::desc("On a CPU: keys per tile; on a GPU --schedule says it")};
  cl::opt<std::string> matrixUnit{
      "matrix-unit", cl::cat(category),
      cl::desc("On a CPU: what multiplies tiles of bf16: auto (the best that the host has), none "
               "(f32), avx512_bf16, amx; emulated_avx512_bf16, emulated_amx (slow, on any host)")};
  cl::opt<unsigned> parts{
      "parts", cl::init(0), cl::cat(category),
      cl::desc("Parts of the keys, for --loop-order=split_kv (on a GPU without it, too)")};
  cl::opt<unsigned> optLevel{"O", cl::Prefix, cl::init(2), cl::cat(category),
                             cl::desc("On a CPU: LLVM's optimisation level, 0 to 3")};
};

/// How the interpreter runs.
struct Interleavings {
  cl::OptionCategory &category = getCategory();
  cl::opt<unsigned> interleavings{
      "interleavings", cl::init(1), cl::cat(category),
      cl::desc("With --target=interpreter: how many orders of execution to try "
               "(default 1)")};
  cl::opt<std::string> interpreterOrder{
      "interpreter-order", cl::cat(category),
      cl::desc("With --target=interpreter: the warpgroup that runs next is a "
               "random one, the next one (round-robin), the first (ahead) or "
               "the last (behind) that can")};
  cl::opt<std::string> interpreterTiming{
      "interpreter-timing", cl::cat(category),
      cl::desc("With --target=interpreter: copies and products happen early, "
               "late or at random times")};
  cl::opt<unsigned> residentCtas{
      "resident-ctas", cl::init(0), cl::cat(category),
      cl::desc("With --target=interpreter: CTAs that run at the same time where they wait for each "
               "other (default: as many as 132 multiprocessors have room for)")};
};

/// All options, while the command line is read.
struct CommandLine {
  WhatToRun what;
  Data data;
  Outcome outcome;
  Choices choices;
  Interleavings interpreter;

  void store(Options &options) const;
  Error check() const;
  Error takeApart(Options &options) const;
};
} // namespace

void CommandLine::store(Options &options) const {
  options.file = what.file;
  options.entry = what.entry;
  options.target = what.target;
  options.emit = what.emit;
  options.reference = what.reference;
  options.loopOrder = choices.order;
  options.schedule = choices.schedule;
  options.seed = data.seed;
  options.inputScale = data.scale;
  options.stridePad = data.stridePad;
  options.guard = data.guard;
  options.check = outcome.check;
  options.explain = outcome.explain;
  options.remarks = outcome.remarks.getNumOccurrences() && outcome.remarks.empty()
                        ? ".*"
                        : std::string(outcome.remarks);
  options.json = outcome.json;
  options.printLLVM = outcome.printLLVM;
  options.grad = what.grad;
  options.threads = choices.threads;
  options.deterministic = choices.deterministic;
  options.optLevel = choices.optLevel;
  options.blockM = choices.blockM;
  options.blockN = choices.blockN;
  options.parts = choices.parts;
  options.matrixUnit = choices.matrixUnit;
  options.interleavings = interpreter.interleavings;
  options.interpreterOrder = interpreter.interpreterOrder;
  options.interpreterTiming = interpreter.interpreterTiming;
  options.residentCtas = interpreter.residentCtas;
  auto add = [](SmallVectorImpl<StringRef> &given, const cl::Option &option) {
    if (option.getNumOccurrences())
      given.push_back(option.ArgStr);
  };
  for (const cl::Option *option :
       {(const cl::Option *)&choices.blockM, (const cl::Option *)&choices.blockN,
        (const cl::Option *)&choices.matrixUnit, (const cl::Option *)&choices.optLevel,
        (const cl::Option *)&outcome.printLLVM})
    add(options.ofCpu, *option);
  add(options.ofKernels, choices.schedule);
  for (const cl::Option *option : {(const cl::Option *)&interpreter.interleavings,
                                   (const cl::Option *)&interpreter.interpreterOrder,
                                   (const cl::Option *)&interpreter.interpreterTiming,
                                   (const cl::Option *)&interpreter.residentCtas})
    add(options.ofInterpreter, *option);
}

Error CommandLine::check() const {
  if (!what.emit.empty() && what.emit != "ptx")
    return createStringError("expected --emit=ptx, got '" + what.emit + "'");
  if (data.stridePad < 0 || data.stridePad > (1 << 20))
    return createStringError("expected --stride-pad from 0 to 1048576, got %lld",
                             static_cast<long long>(data.stridePad));
  if (choices.threads > 1024)
    return createStringError("expected --threads of at most 1024, got %u",
                             unsigned(choices.threads));
  if (interpreter.interleavings == 0 || interpreter.interleavings > 100000)
    return createStringError("expected --interleavings from 1 to 100000, got %u",
                             unsigned(interpreter.interleavings));
  if (choices.optLevel > 3)
    return createStringError("expected -O0 to -O3, got -O%u", unsigned(choices.optLevel));
  if (StringRef order = choices.order;
      !order.empty() && !is_contained({"auto", "m_outer", "n_outer", "split_kv"}, order))
    return createStringError("expected --loop-order auto, m_outer, n_outer or split_kv, got '" +
                             order + "'");
  if (choices.blockM > 4096 || choices.blockN > 4096 || choices.parts > 4096)
    return createStringError("expected tiles and parts of at most 4096");
  return Error::success();
}

static Error storePositions(StringRef option, const cl::list<std::string> &texts,
                            SmallVectorImpl<std::pair<unsigned, std::string>> &entries) {
  for (StringRef text : texts) {
    auto [number, rest] = text.split('=');
    unsigned position;
    if (number.getAsInteger(10, position) || rest.empty())
      return createStringError("expected --" + option + " N=..., got '" + text + "'");
    entries.push_back({position, rest.str()});
  }
  return Error::success();
}

/// Options with a position in front, and --bench, whose number may be missing.
Error CommandLine::takeApart(Options &options) const {
  if (outcome.bench.getNumOccurrences()) {
    options.repetitions = 10;
    if (!outcome.bench.empty() && (StringRef(outcome.bench).getAsInteger(10, options.repetitions) ||
                                   options.repetitions == 0))
      return createStringError("expected --bench=REPETITIONS, got '" + outcome.bench + "'");
  }
  struct Positions {
    StringRef name;
    const cl::list<std::string> &texts;
    SmallVectorImpl<std::pair<unsigned, std::string>> &entries;
    bool ofGradients;
  };
  for (const Positions &positions :
       {Positions{"input", data.inputs, options.inputs, false},
        {"output", data.outputs, options.outputs, false},
        {"shape", data.shapes, options.shapes, false},
        {"fill", data.fills, options.fills, false},
        {"grad-input", data.gradInputs, options.gradInputs, true},
        {"grad-fill", data.gradFills, options.gradFills, true},
        {"grad-output", data.gradOutputs, options.gradOutputs, true}}) {
    if (Error error = storePositions(positions.name, positions.texts, positions.entries))
      return error;
    if (positions.ofGradients && !positions.entries.empty() && !options.grad)
      return createStringError("--" + positions.name + " needs --grad");
  }
  return Error::success();
}

/// An error where an option has its old name.
static Error checkNames(ArrayRef<char *> arguments) {
  for (StringRef argument : arguments) {
    if (!argument.starts_with("-"))
      continue;
    argument = argument.ltrim('-');
    argument.consume_front("loop-"); // --loop-order
    if (std::string message = findRenamedOption(argument); !message.empty())
      return createStringError(message);
  }
  return Error::success();
}

Expected<Options> attn::parseCommandLine(int argc, char **argv) {
  if (Error error = checkNames(ArrayRef(argv, size_t(argc)).drop_front()))
    return std::move(error);
  CommandLine line;
  mlir::registerAsmPrinterCLOptions();
  mlir::registerMLIRContextCLOptions();
  mlir::registerPassManagerCLOptions();
  mlir::registerDefaultTimingManagerCLOptions();
  cl::HideUnrelatedOptions(getCategory());
  cl::ParseCommandLineOptions(
      argc, argv,
      "attn-run: compile a function of attention ops for this machine's CPU or "
      "GPU and run it\n\n"
      "MLIR's own options work too: --mlir-print-ir-after-all, --mlir-timing, "
      "and what\n"
      "--help-hidden shows.\n");
  Options options;
  line.store(options);
  if (Error error = line.check())
    return std::move(error);
  if (Error error = line.takeApart(options))
    return std::move(error);
  return options;
}

const std::string *attn::findEntry(ArrayRef<std::pair<unsigned, std::string>> entries,
                                   unsigned position) {
  for (const auto &[at, text] : reverse(entries))
    if (at == position)
      return &text;
  return nullptr;
}
