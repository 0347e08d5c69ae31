// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What programs are compiled for and run on: one interface and a registry, by which
// attn-run, the C API and Python choose. docs/targets.md says how to add one.

#ifndef ATTN_TARGET_TARGET_H
#define ATTN_TARGET_TARGET_H

#include "attn/Runtime/CpuExecutable.h"
#include "attn/Target/Description.h"
#include "llvm/Support/Registry.h"
#include <string>
#include <vector>

namespace mlir {
class ModuleOp;
class OpPassManager;
} // namespace mlir

namespace attn {
class DiskCache;
struct PipelineOptions;
} // namespace attn

namespace attn::target {

/// What a module is before the target's pipeline.
enum class Form {
  Tensors, ///< attention or statements on tensors (L0, L1)
  Kernels  ///< kernels of the target's own level (L3), in gpu.launch
};

/// What the translation of lowered IR to code may be told.
struct CodeOptions {
  /// LLVM's optimisation level for code of the host, 0 to 3.
  unsigned optLevel = 2;
  /// Print optimised LLVM IR of the host to stderr.
  bool printLLVM = false;
};

/// Seconds spent, what came from the cache, and what was said.
struct CompileTimes {
  /// Passes; kernels' text to machine code; bringing that to the device.
  double passes = 0, kernels = 0, load = 0;
  /// Code of the host, by LLVM.
  CpuCompileTimes host;
  bool programCached = false, kernelsCached = false;
  /// Kernels are compiled while they are loaded, unless the driver has done it before.
  bool driverCompiles = false;
  /// What the compiler of kernels warned of, such as products that it serialised.
  std::vector<std::string> warnings;
};

/// What was compiled, not yet on any device.
class Program {
public:
  virtual ~Program();
  /// For the cache; the target's readProgram gives the program back.
  virtual std::string serialize() const = 0;
  /// Assembly of the kernels; empty where a program has no such text.
  virtual llvm::StringRef getAssembly() const { return ""; }
};

/// What a call is given besides its arguments; nothing of it is looked at where tensors are in
/// memory of the host.
struct CallContext {
  void *workspace = nullptr;
  size_t workspaceBytes = 0;
  /// A CUstream.
  void *stream = nullptr;
};

/// A function of a loaded program. Any thread may call it, but not after the program is gone.
/// `slots` are as CpuExecutable::Packed's.
class Function {
public:
  virtual ~Function();
  /// Whether slots have one more pointer, the first (of shape functions: the first behind the
  /// results), which this fills in or does not use.
  virtual bool takesContext() const { return false; }
  virtual llvm::Error run(void **slots, const CallContext &context) const = 0;
  /// Bytes of workspace that a call takes; of arguments only sizes and strides are read.
  virtual llvm::Expected<size_t> measure(void **slots) const = 0;
  /// Calls the function of the results' sizes that attn-emit-shape-function made. Only for
  /// functions that were looked up with it.
  virtual llvm::Error computeShapes(void **slots) const = 0;
};

/// What a target's compiler made of a kernel.
struct KernelInfo {
  std::string name;
  int registers = 0, spilledBytes = 0, staticSharedBytes = 0;
};

/// A program that can be called.
class LoadedProgram {
public:
  virtual ~LoadedProgram();
  /// The public function of this name, with the function of its results' sizes
  /// (`<name>_shape`) where `withShapes`; an error where the program has no such function.
  virtual llvm::Expected<std::unique_ptr<Function>> lookup(llvm::StringRef name,
                                                           bool withShapes) = 0;
  virtual std::vector<KernelInfo> getKernels() const { return {}; }
};

class Target {
public:
  virtual ~Target();

  const Description &getDescription() const { return description; }
  llvm::StringRef getName() const { return description.name; }
  bool isGpu() const { return description.capability != 0; }

  /// What compiled programs depend on besides IR, options and the compiler's build: name and
  /// chip, and what else the target adds. Part of every key of a cache.
  virtual llvm::Expected<std::string> getKey() const;

  /// Adds the passes from `form` to what generate() takes. An error says what is wrong with the
  /// options, or that the target has no such form.
  virtual llvm::Error buildPipeline(mlir::OpPassManager &pm, const PipelineOptions &options,
                                    Form form) const = 0;

  /// Code from a module that the pipeline has lowered, which may be changed.
  virtual llvm::Expected<std::unique_ptr<Program>>
  generate(mlir::ModuleOp module, const CodeOptions &options, CompileTimes &times) const = 0;

  /// The inverse of Program::serialize; null where the bytes are not those of a program.
  virtual std::unique_ptr<Program> readProgram(llvm::StringRef bytes) const = 0;

  /// Brings a program to the device of the calling thread.
  virtual llvm::Expected<std::unique_ptr<LoadedProgram>>
  load(std::unique_ptr<Program> program, const DiskCache &cache, CompileTimes &times) const = 0;

  /// The name of what programs of the calling thread run on; an error where there is nothing.
  virtual llvm::Expected<std::string> describeDevice() const = 0;

  /// Options that nobody gave, as the device at hand wants them; an error where there is none.
  virtual llvm::Error fitDevice(PipelineOptions &options) const = 0;

protected:
  explicit Target(const Description &description) : description(description) {}

private:
  Description description;
};

//===----------------------------------------------------------------------===//
// The registry
//===----------------------------------------------------------------------===//

/// Makes a target known by its name, before or after others; again changes nothing. T has a
/// constructor without arguments.
template <typename T> void registerTarget(llvm::StringLiteral name, llvm::StringLiteral summary) {
  static llvm::Registry<Target>::Add<T> registration(name, summary);
}

/// Makes all targets of lib/Target known.
void registerAllTargets();

/// All that are known, as they were registered. They live as long as the process.
std::vector<const Target *> getTargets();

/// The target of a name, or for "cuda" that of the GPU at hand (without one: the first for GPUs).
/// An error for another name lists those that are known, and `others`.
llvm::Expected<const Target *> getTarget(llvm::StringRef name,
                                         llvm::ArrayRef<llvm::StringRef> others = {});

} // namespace attn::target

extern template class llvm::Registry<attn::target::Target>;

#endif
