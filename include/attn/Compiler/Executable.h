// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One function, compiled from text for a target, with what its callers need to
// know: what stands behind the C API.

#ifndef ATTN_COMPILER_EXECUTABLE_H
#define ATTN_COMPILER_EXECUTABLE_H

#include "attn/Compiler/DiskCache.h"
#include "attn/Runtime/HostTensor.h"
#include "attn/Target/Target.h"
#include <memory>
#include <optional>

namespace attn {

/// An argument or a result.
struct ValueSignature {
  ElementKind kind;
  bool isTensor;
  /// -1 where any size is accepted.
  llvm::SmallVector<int64_t, 4> shape;
  /// Dimensions of one class have the same size.
  llvm::SmallVector<unsigned, 4> classes;
};

/// What a function takes and gives.
struct Signature {
  std::vector<ValueSignature> arguments, results;
  unsigned numClasses = 0;
  /// Classes of which the size of the first is a multiple of the second's: query
  /// heads and key heads.
  llvm::SmallVector<std::pair<unsigned, unsigned>> multiples;
};

/// See attnc_tensor.
struct TensorReference {
  void *data;
  const int64_t *shape;
  const int64_t *strides;
};

struct ExecutableOptions {
  explicit ExecutableOptions(const target::Target &target) : target(&target) {}

  const target::Target *target;
  /// The function; empty for `main` or the only one.
  std::string entry;
  /// As text, see PipelineOptions.
  std::string pipeline;
  /// The function's gradient instead: options of attn-differentiate, as text.
  std::optional<std::string> gradient;
  DiskCache cache = DiskCache::standard();
  target::CodeOptions code;
};

/// How many executables this process has made, by where they came from.
struct CompileCounts {
  /// Compiled; read from the disk cache; known to the process before.
  uint64_t compiled = 0, fromDisk = 0, fromMemory = 0;
};

struct Source;

class Executable {
public:
  /// What this process compiled before with the same text and options is given
  /// again.
  static llvm::Expected<std::shared_ptr<const Executable>>
  compile(llvm::StringRef text, const ExecutableOptions &options);

  static CompileCounts getCounts();

  /// Assembly of the kernels of a function, for targets that have some (Program::getAssembly);
  /// needs no device.
  static llvm::Expected<std::string> emitAssembly(llvm::StringRef text,
                                                  const ExecutableOptions &options);

  const target::Target &getTarget() const { return target; }
  const Signature &getSignature() const { return signature; }

  /// Writes all sizes of all results.
  llvm::Error computeResultShapes(const TensorReference *arguments, int64_t *sizes) const;
  llvm::Expected<size_t> getWorkspaceBytes(const TensorReference *arguments,
                                           const TensorReference *results) const;
  llvm::Error run(const TensorReference *arguments, const TensorReference *results, void *workspace,
                  size_t workspaceBytes, void *stream) const;

private:
  Executable(const target::Target &target, Signature signature,
             std::unique_ptr<target::LoadedProgram> program,
             std::unique_ptr<target::Function> function)
      : target(target), signature(std::move(signature)), program(std::move(program)),
        function(std::move(function)) {}

  static llvm::Expected<std::shared_ptr<const Executable>>
  compileEntry(Source &source, const ExecutableOptions &options);

  const target::Target &target;
  Signature signature;
  std::unique_ptr<target::LoadedProgram> program;
  std::unique_ptr<target::Function> function; // of the program
};

/// Runs a pipeline of passes, as text, on a module. What it says, errors and
/// remarks, is appended to `said`, one line each. Passes whose names match the regular expression
/// `remarks`, if it is not empty, also say what they did.
llvm::Expected<std::string> transformText(llvm::StringRef text, llvm::StringRef pipeline,
                                          std::string &said, llvm::StringRef remarks = "");

} // namespace attn

#endif
