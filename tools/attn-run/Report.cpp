// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Printing what attn-run found out. See Report.h.

#include "Report.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <sys/resource.h>

using namespace llvm;
using namespace attn;

uint64_t attn::getPeakRss() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return uint64_t(usage.ru_maxrss) * 1024;
}

double Report::median() const {
  if (runs.empty())
    return firstRun;
  std::vector<double> sorted = runs;
  std::sort(sorted.begin(), sorted.end());
  size_t middle = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[middle]
                           : (sorted[middle - 1] + sorted[middle]) / 2;
}

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

static void printAgreement(raw_ostream &os, unsigned index,
                           const Agreement &agreement) {
  os << "check: result " << index << ": "
     << (agreement.passed ? "ok" : "FAILED");
  os << format(
      ", max error %.3g (allowed %.3g), mean error %.3g (allowed %.3g)\n",
      agreement.maxError, agreement.maxAllowed, agreement.meanError,
      agreement.meanAllowed);
}

void Report::printText(const Options &options) const {
  raw_ostream &os = outs();
  os << "ran '" << entry << "' on cpu (" << cpu << ", " << threads
     << (threads == 1 ? " thread" : " threads") << "): " << seconds(median())
     << "\n";
  if (options.repetitions) {
    os << format("compile: %.2f s", compile());
    os << " (parse " << seconds(parse) << ", passes " << seconds(passes)
       << ", translate " << seconds(codegen.translate) << ", optimize "
       << seconds(codegen.optimize) << ", codegen " << seconds(codegen.codegen)
       << ")\n";
    os << "run: " << seconds(median()) << " (median of " << runs.size() << ")";
    if (flops > 0)
      os << format(", %.1f GFLOP/s", flops / median() * 1e-9);
    os << format(", %.1f GB/s\n",
                 double(inputBytes + outputBytes) / median() * 1e-9);
  }
  if (options.explain) {
    if (tiles) {
      os << "tiles: " << tiles->masked + tiles->full;
      if (allTiles)
        os << " of " << allTiles;
      os << " visited, " << tiles->masked << " with mask arithmetic, "
         << tiles->full << " without\n";
    }
    os << format("memory: inputs %.1f MB, outputs %.1f MB, peak %.1f MB above "
                 "the baseline\n",
                 double(inputBytes) * 1e-6, double(outputBytes) * 1e-6,
                 double(peakRss - baselineRss) * 1e-6);
    for (const std::string &remark : remarks)
      os << remark << "\n";
  }
  for (auto [index, agreement] : enumerate(checks))
    printAgreement(os, index, agreement);
}

void Report::printJson() const {
  json::OStream json(outs(), 2);
  json.object([&] {
    json.attribute("entry", entry);
    json.attribute("target", "cpu");
    json.attribute("cpu", cpu);
    json.attribute("threads", int64_t(threads));
    json.attribute("compile_s", compile());
    json.attributeObject("compile_phases", [&] {
      json.attribute("parse_s", parse);
      json.attribute("passes_s", passes);
      json.attribute("translate_s", codegen.translate);
      json.attribute("optimize_s", codegen.optimize);
      json.attribute("codegen_s", codegen.codegen);
    });
    json.attribute("first_s", firstRun);
    json.attribute("repetitions", int64_t(runs.size()));
    json.attribute("median_s", median());
    if (!runs.empty())
      json.attribute("min_s", *std::min_element(runs.begin(), runs.end()));
    json.attribute("flops", flops);
    json.attribute("gflops_per_s", flops / median() * 1e-9);
    json.attribute("gbytes_per_s",
                   double(inputBytes + outputBytes) / median() * 1e-9);
    json.attribute("input_bytes", int64_t(inputBytes));
    json.attribute("output_bytes", int64_t(outputBytes));
    json.attribute("baseline_rss_bytes", int64_t(baselineRss));
    json.attribute("peak_rss_bytes", int64_t(peakRss));
    if (tiles)
      json.attributeObject("tiles", [&] {
        json.attribute("masked", tiles->masked);
        json.attribute("full", tiles->full);
        json.attribute("all", allTiles);
      });
    if (!checks.empty())
      json.attributeArray("check", [&] {
        for (const Agreement &agreement : checks)
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
