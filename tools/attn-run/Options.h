// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command line of attn-run.

#ifndef ATTN_TOOLS_ATTN_RUN_OPTIONS_H
#define ATTN_TOOLS_ATTN_RUN_OPTIONS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <string>
#include <utility>

namespace attn {

struct Options {
  std::string file, entry, target, loopOrder, schedule, emit, reference, interpreterOrder,
      interpreterTiming;
  /// By position: the text after "N=".
  llvm::SmallVector<std::pair<unsigned, std::string>> inputs, outputs, shapes, fills, gradInputs,
      gradFills, gradOutputs;
  uint64_t seed = 0;
  double inputScale = 1;
  int64_t stridePad = 0;
  /// Passes whose remarks are printed, a regular expression; empty: none.
  std::string remarks;
  bool guard = false, check = false, explain = false, json = false, printLLVM = false, grad = false;
  /// Repetitions to time, 0 for none.
  unsigned repetitions = 0;
  unsigned threads = 0, optLevel = 2;
  /// Choices must not depend on the number of threads.
  bool deterministic = true;
  /// 0 where the compiler chooses.
  unsigned blockM = 0, blockN = 0, parts = 0;
  std::string matrixUnit;
  /// Options that were given and mean something for some targets only: CPUs, GPUs and the
  /// interpreter, the interpreter alone.
  llvm::SmallVector<llvm::StringRef> ofCpu, ofKernels, ofInterpreter;
  /// How often --target=interpreter runs, each time in another order.
  unsigned interleavings = 1, residentCtas = 0;
};

/// Declares all options, reads the command line (exiting on a syntax error, as
/// usual), and takes the positional ones apart.
llvm::Expected<Options> parseCommandLine(int argc, char **argv);

/// The last entry for a position, or null.
const std::string *findEntry(llvm::ArrayRef<std::pair<unsigned, std::string>> entries,
                             unsigned position);

} // namespace attn

#endif
