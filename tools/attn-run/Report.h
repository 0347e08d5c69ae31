// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attn-run found out, as text or JSON.

#ifndef ATTN_TOOLS_ATTN_RUN_REPORT_H
#define ATTN_TOOLS_ATTN_RUN_REPORT_H

#include "Options.h"
#include "attn/Interpreter/Interpreter.h"
#include "attn/Reference/Reference.h"
#include "attn/Runtime/CpuExecutable.h"
#include "attn/Runtime/ThreadPool.h"
#include "attn/Target/Target.h"

namespace llvm::json {
class OStream;
}

namespace attn {

/// Seconds on a clock that only goes forward.
double now();

/// The runs of one function.
struct FunctionReport {
  std::string name;
  /// Seconds.
  double firstRun = 0;
  std::vector<double> runs;
  /// Of all attention ops, every pair of query and key counted; 0 if there is
  /// none.
  double flops = 0;
  uint64_t inputBytes = 0, outputBytes = 0;
  std::optional<TileCounts> tiles;
  /// What no mask would leave out, of attention ops; 0 where not known.
  int64_t allTiles = 0;
  /// One per result, where they were checked.
  std::vector<Agreement> checks;

  double median() const;
};

/// What only a GPU has.
struct CudaReport {
  std::string device;
  int driverVersion = 0;
  target::CompileTimes times;
  std::vector<target::KernelInfo> kernels;
  /// Of the function that takes most.
  size_t workspaceBytes = 0;
  /// What the host spent on each timed call.
  std::vector<double> hostSeconds;
};

/// What only the interpreter has: how often it ran, and what one run did.
struct InterpreterReport {
  unsigned interleavings = 1;
  InterpreterStatistics statistics;
};

struct Report {
  std::optional<CudaReport> cuda;
  std::optional<InterpreterReport> interpreter;
  std::string cpu;
  unsigned threads = 1;
  /// Seconds.
  double parse = 0, passes = 0;
  CpuCompileTimes codegen;
  FunctionReport forward;
  std::optional<FunctionReport> gradient;
  /// High-water marks of the process, before the inputs were made and after
  /// the first run of the last function.
  uint64_t baselineRss = 0, peakRss = 0;
  std::vector<std::string> remarks;

  double compile() const;
  void print(const Options &options) const;

private:
  void printText(const Options &options) const;
  void printCudaText() const;
  void printPhases(llvm::json::OStream &json) const;
  void printCudaJson(llvm::json::OStream &json) const;
  void printMemory() const;
  void printJson() const;
};

/// The process's largest resident memory so far, in bytes.
uint64_t getPeakRss();

} // namespace attn

#endif
