// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Machine code for the host's own CPU from a module in the LLVM dialect, by
// LLVM's ORC layers, with the runtime's symbols and the C library's.

#ifndef ATTN_RUNTIME_CPUEXECUTABLE_H
#define ATTN_RUNTIME_CPUEXECUTABLE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>

namespace mlir {
class ModuleOp;
}
namespace llvm::orc {
class LLJIT;
}

namespace attn {

struct CpuCompileOptions {
  /// LLVM's optimisation level, 0 to 3.
  unsigned optLevel = 2;
  /// Let LLVM vectorise loops too. Our tiles come as vectors; this is for code
  /// that does not, and costs compile time.
  bool vectorizeLoops = false;
  /// Print the optimised LLVM IR to stderr.
  bool printLLVM = false;
  /// Code for every CPU of the host's architecture, not for this one.
  bool genericCpu = false;
};

/// Seconds spent by the parts of compileObject().
struct CpuCompileTimes {
  double translate = 0, optimize = 0, codegen = 0;
  double sum() const { return translate + optimize + codegen; }
};

/// A relocatable object file.
struct CpuObject {
  std::unique_ptr<llvm::MemoryBuffer> code;
  CpuCompileTimes times;
};

class CpuExecutable {
public:
  ~CpuExecutable();

  /// Compiles every function of `module`, all of whose ops must be of the LLVM dialect. An object
  /// can be kept, and loaded by another process on a machine that its code runs on.
  static llvm::Expected<CpuObject> compileObject(mlir::ModuleOp module,
                                                 const CpuCompileOptions &options = {});
  static llvm::Expected<std::unique_ptr<CpuExecutable>>
  load(std::unique_ptr<llvm::MemoryBuffer> code);

  /// The CPU that compileObject makes code for, and all its features.
  static llvm::Expected<std::string> describeHost();

  /// The function of this name in the module.
  llvm::Expected<void *> lookup(llvm::StringRef name);

  /// A function that has the C interface `_mlir_ciface_<name>`, callable with
  /// an array of pointers: one to each argument in order (for a memref: to a
  /// pointer to its descriptor), then one to the result, if any.
  /// Several results are one struct that is passed first, as a pointer to it.
  using Packed = void (*)(void **arguments);
  llvm::Expected<Packed> lookupPacked(llvm::StringRef name);

private:
  CpuExecutable();
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

} // namespace attn

#endif
