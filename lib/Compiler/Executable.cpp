// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One function, compiled from text for a target. See Executable.h.

#include "attn/Compiler/Executable.h"
#include "Signature.h"
#include "Source.h"
#include "attn/Compiler/Compiler.h"
#include <atomic>
#include <map>
#include <mutex>

using namespace llvm;
using namespace attn;

static std::atomic<uint64_t> compiledCount, fromDiskCount, fromMemoryCount;

CompileCounts Executable::getCounts() { return {compiledCount, fromDiskCount, fromMemoryCount}; }

Expected<std::shared_ptr<const Executable>>
Executable::compileEntry(Source &source, const ExecutableOptions &options) {
  auto signature = makeSignature(source.entry);
  if (!signature)
    return signature.takeError();
  const target::Target &target = *options.target;
  std::string name = source.entry.getName().str();
  if (Error error = target.fitDevice(source.pipeline))
    return std::move(error);
  target::CompileTimes times;
  auto compiled =
      compileProgram(target, *source.module, source.pipeline, options.code, options.cache, times);
  if (!compiled)
    return compiled.takeError();
  ++(times.programCached ? fromDiskCount : compiledCount);
  auto program = target.load(std::move(*compiled), options.cache, times);
  if (!program)
    return program.takeError();
  auto function = (*program)->lookup(name, /*withShapes=*/!signature->results.empty());
  if (!function)
    return function.takeError();
  return std::shared_ptr<const Executable>(
      new Executable(target, std::move(*signature), std::move(*program), std::move(*function)));
}

Expected<std::shared_ptr<const Executable>> Executable::compile(StringRef text,
                                                                const ExecutableOptions &options) {
  // For the whole process: CUDA may be gone before static objects are.
  static std::mutex mutex;
  static auto &known = *new std::map<std::string, std::shared_ptr<const Executable>>;
  std::string gradient = options.gradient ? "gradient " + *options.gradient : "";
  auto target = options.target->getKey();
  if (!target)
    return target.takeError();
  std::string level = std::to_string(options.code.optLevel);
  std::string key =
      DiskCache::makeKey({*target, options.entry, options.pipeline, gradient, level, text});
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = known.find(key); found != known.end()) {
      ++fromMemoryCount;
      return found->second;
    }
  }
  Source source;
  if (Error error = source.parse(text, options))
    return source.explain(std::move(error));
  auto executable = compileEntry(source, options);
  if (!executable)
    return source.explain(executable.takeError());
  std::lock_guard<std::mutex> lock(mutex);
  return known.try_emplace(key, std::move(*executable)).first->second;
}

Expected<std::string> Executable::emitAssembly(StringRef text, const ExecutableOptions &options) {
  Source source;
  if (Error error = source.parse(text, options))
    return source.explain(std::move(error));
  target::CompileTimes times;
  auto program = compileProgram(*options.target, *source.module, source.pipeline, options.code,
                                options.cache, times);
  if (!program)
    return source.explain(program.takeError());
  return (*program)->getAssembly().str();
}
