// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Printing what attn-run found out. See Report.h.

#include "Report.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <chrono>
#include <sys/resource.h>

using namespace llvm;
using namespace attn;

double attn::now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

uint64_t attn::getPeakRss() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return uint64_t(usage.ru_maxrss) * 1024;
}

static double medianOf(std::vector<double> sorted) {
  if (sorted.empty())
    return 0;
  std::sort(sorted.begin(), sorted.end());
  size_t middle = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double FunctionReport::median() const { return runs.empty() ? firstRun : medianOf(runs); }

static std::string seconds(double value) {
  std::string text;
  raw_string_ostream os(text);
  if (value < 1e-3)
    os << format("%.1f us", value * 1e6);
  else if (value < 1)
    os << format("%.3f ms", value * 1e3);
  else
    os << format("%.3f s", value);
  return text;
}

static void printAgreement(raw_ostream &os, StringRef what, unsigned index,
                           const Agreement &agreement) {
  os << "check: " << what << " " << index << ": " << (agreement.passed ? "ok" : "FAILED");
  os << format(", max error %.3g (allowed %.3g), mean error %.3g (allowed %.3g)\n",
               agreement.maxError, agreement.maxAllowed, agreement.meanError,
               agreement.meanAllowed);
}

/// The line of --bench; `what` stands before the colon.
static void printRate(raw_ostream &os, StringRef what, const FunctionReport &function) {
  double median = function.median();
  os << what << ": " << seconds(median) << " (median of " << function.runs.size() << ")";
  double rate = function.flops / median;
  if (rate >= 1e13)
    os << format(", %.1f TFLOP/s", rate * 1e-12);
  else if (rate > 0)
    os << format(", %.1f GFLOP/s", rate * 1e-9);
  os << format(", %.1f GB/s\n", double(function.inputBytes + function.outputBytes) / median * 1e-9);
}

static void printTiles(raw_ostream &os, StringRef what, const FunctionReport &function) {
  if (!function.tiles)
    return;
  const TileCounts &tiles = *function.tiles;
  os << what << ": " << tiles.masked + tiles.full;
  if (function.allTiles)
    os << " of " << function.allTiles;
  os << " visited, " << tiles.masked << " with mask arithmetic, " << tiles.full << " without\n";
}

void Report::printMemory() const {
  outs() << format("memory: inputs %.1f MB, outputs %.1f MB", double(forward.inputBytes) * 1e-6,
                   double(forward.outputBytes) * 1e-6);
  // The gradient's inputs hold the forward's inputs, and its results if saved.
  if (gradient)
    outs() << format(", gradient's inputs %.1f MB, gradients %.1f MB",
                     double(gradient->inputBytes) * 1e-6, double(gradient->outputBytes) * 1e-6);
  outs() << format(", peak %.1f MB above the baseline\n", double(peakRss - baselineRss) * 1e-6);
}

double Report::compile() const {
  if (cuda)
    return parse + passes + cuda->times.passes + cuda->times.host.sum() + cuda->times.kernels +
           cuda->times.load;
  return parse + passes + codegen.sum();
}

void Report::printCudaText() const {
  raw_ostream &os = outs();
  for (const target::KernelInfo &kernel : cuda->kernels) {
    os << "kernel '" << kernel.name << "': " << kernel.registers << " registers";
    if (kernel.spilledBytes)
      os << ", " << kernel.spilledBytes << " bytes of local memory";
    os << "\n";
  }
  for (const std::string &warning : cuda->times.warnings)
    os << warning << "\n";
  if (cuda->workspaceBytes)
    os << "workspace: " << cuda->workspaceBytes << " bytes\n";
  const target::CompileTimes &times = cuda->times;
  os << format("compile: %.2f s", compile()) << " (parse " << seconds(parse) << ", passes "
     << seconds(passes + times.passes) << (times.programCached ? " (cached)" : "") << ", host code "
     << seconds(times.host.sum());
  if (times.driverCompiles)
    os << ", PTX to machine code and load " << seconds(times.load) << ")\n";
  else
    os << ", PTX to machine code " << seconds(times.kernels)
       << (times.kernelsCached ? " (cached)" : "") << ", load " << seconds(times.load) << ")\n";
}

/// "8 interleavings, each of 1 launch, 6 blocks, 72 products, 54 copies".
static std::string describeRuns(const InterpreterReport &interpreter) {
  std::string text;
  raw_string_ostream os(text);
  auto count = [&](uint64_t number, StringRef what, StringRef plural) {
    os << (text.empty() ? "" : ", ") << number << " " << (number == 1 ? what : plural);
  };
  const InterpreterStatistics &statistics = interpreter.statistics;
  count(interpreter.interleavings, "interleaving", "interleavings");
  count(statistics.launches, "launch", "launches");
  count(statistics.ctas, "block", "blocks");
  count(statistics.products, "product", "products");
  count(statistics.copies, "copy", "copies");
  return text;
}

void Report::printText(const Options &options) const {
  raw_ostream &os = outs();
  os << "ran '" << forward.name << "' on ";
  if (cuda)
    os << "cuda (" << cuda->device << ")";
  else if (interpreter)
    os << "the interpreter (" << describeRuns(*interpreter) << ")";
  else
    os << "cpu (" << cpu << ", " << threads << (threads == 1 ? " thread" : " threads") << ")";
  os << ": " << seconds(forward.median()) << "\n";
  if (gradient)
    os << "ran '" << gradient->name << "': " << seconds(gradient->median()) << "\n";
  if (options.repetitions) {
    if (cuda) {
      printCudaText();
    } else {
      os << format("compile: %.2f s", compile());
      os << " (parse " << seconds(parse) << ", passes " << seconds(passes) << ", translate "
         << seconds(codegen.translate) << ", optimize " << seconds(codegen.optimize) << ", codegen "
         << seconds(codegen.codegen) << ")\n";
    }
    printRate(os, "run", forward);
    if (gradient)
      printRate(os, "gradient run", *gradient);
    if (cuda)
      os << "host time of a call: " << seconds(medianOf(cuda->hostSeconds)) << "\n";
  }
  if (options.explain) {
    printTiles(os, "tiles", forward);
    if (gradient)
      printTiles(os, "gradient tiles", *gradient);
    printMemory();
    for (const std::string &remark : remarks)
      os << remark << "\n";
  }
  for (auto [index, agreement] : enumerate(forward.checks))
    printAgreement(os, "result", index, agreement);
  if (gradient)
    for (auto [index, agreement] : enumerate(gradient->checks))
      printAgreement(os, "gradient", index, agreement);
}

static void printAgreements(json::OStream &json, ArrayRef<Agreement> agreements) {
  json.attributeArray("check", [&] {
    for (const Agreement &agreement : agreements)
      json.object([&] {
        json.attribute("passed", agreement.passed);
        json.attribute("reason", agreement.reason);
        json.attribute("max_error", agreement.maxError);
        json.attribute("max_allowed", agreement.maxAllowed);
        json.attribute("baseline_max_error", agreement.baselineMaxError);
        json.attribute("mean_error", agreement.meanError);
        json.attribute("mean_allowed", agreement.meanAllowed);
        json.attribute("baseline_mean_error", agreement.baselineMeanError);
      });
  });
}

/// The attributes of one function's runs.
static void printFunction(json::OStream &json, const FunctionReport &function) {
  double median = function.median();
  json.attribute("first_s", function.firstRun);
  json.attribute("repetitions", int64_t(function.runs.size()));
  json.attribute("median_s", median);
  if (!function.runs.empty())
    json.attribute("min_s", *std::min_element(function.runs.begin(), function.runs.end()));
  json.attribute("flops", function.flops);
  json.attribute("gflops_per_s", function.flops / median * 1e-9);
  json.attribute("gbytes_per_s",
                 double(function.inputBytes + function.outputBytes) / median * 1e-9);
  json.attribute("input_bytes", int64_t(function.inputBytes));
  json.attribute("output_bytes", int64_t(function.outputBytes));
  if (function.tiles)
    json.attributeObject("tiles", [&] {
      json.attribute("masked", function.tiles->masked);
      json.attribute("full", function.tiles->full);
      json.attribute("all", function.allTiles);
    });
  if (!function.checks.empty())
    printAgreements(json, function.checks);
}

void Report::printPhases(json::OStream &json) const {
  json.attributeObject("compile_phases", [&] {
    json.attribute("parse_s", parse);
    if (cuda) {
      json.attribute("passes_s", passes + cuda->times.passes);
      json.attribute("host_code_s", cuda->times.host.sum());
      json.attribute("ptx_s", cuda->times.kernels);
      json.attribute("load_s", cuda->times.load);
      json.attribute("program_cached", cuda->times.programCached);
      json.attribute("cubins_cached", cuda->times.kernelsCached);
      json.attribute("driver_compiles_ptx", cuda->times.driverCompiles);
      return;
    }
    json.attribute("passes_s", passes);
    json.attribute("translate_s", codegen.translate);
    json.attribute("optimize_s", codegen.optimize);
    json.attribute("codegen_s", codegen.codegen);
  });
}

void Report::printCudaJson(json::OStream &json) const {
  json.attribute("device", cuda->device);
  json.attribute("driver_version", cuda->driverVersion);
  json.attribute("workspace_bytes", int64_t(cuda->workspaceBytes));
  if (!cuda->hostSeconds.empty())
    json.attribute("host_s", medianOf(cuda->hostSeconds));
  json.attributeArray("warnings", [&] {
    for (const std::string &warning : cuda->times.warnings)
      json.value(warning);
  });
  json.attributeArray("kernels", [&] {
    for (const target::KernelInfo &kernel : cuda->kernels)
      json.object([&] {
        json.attribute("name", kernel.name);
        json.attribute("registers", kernel.registers);
        json.attribute("local_bytes", kernel.spilledBytes);
        json.attribute("static_shared_bytes", kernel.staticSharedBytes);
      });
  });
}

void Report::printJson() const {
  json::OStream json(outs(), 2);
  json.object([&] {
    json.attribute("entry", forward.name);
    json.attribute("target", cuda ? "cuda" : interpreter ? "interpreter" : "cpu");
    if (cuda) {
      printCudaJson(json);
    } else {
      json.attribute("cpu", cpu);
      json.attribute("threads", int64_t(threads));
    }
    json.attribute("compile_s", compile());
    printPhases(json);
    printFunction(json, forward);
    if (gradient)
      json.attributeObject("gradient", [&] {
        json.attribute("entry", gradient->name);
        printFunction(json, *gradient);
      });
    json.attribute("baseline_rss_bytes", int64_t(baselineRss));
    json.attribute("peak_rss_bytes", int64_t(peakRss));
    json.attributeArray("remarks", [&] {
      for (const std::string &remark : remarks)
        json.value(remark);
    });
  });
  outs() << "\n";
}

void Report::print(const Options &options) const {
  if (options.json)
    printJson();
  else
    printText(options);
}
