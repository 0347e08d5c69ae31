// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C API. See attn-c/attnc.h.

#include "attn-c/attnc.h"
#include "attn/Compiler/Executable.h"
#include "attn/Runtime/ThreadPool.h"
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace llvm;
using namespace attn;

struct attnc_error {
  std::string message;
};
struct attnc_text {
  std::string text;
};
struct attnc_executable {
  std::shared_ptr<const Executable> executable;
};

static_assert(sizeof(attnc_tensor) == sizeof(TensorReference));
static_assert(ATTNC_F64 == int(ElementKind::F64) && ATTNC_BF16 == int(ElementKind::BF16) &&
              ATTNC_I64 == int(ElementKind::I64));

static attnc_error *fail(std::string message) { return new attnc_error{std::move(message)}; }

static attnc_error *take(Error error) { return error ? fail(toString(std::move(error))) : nullptr; }

static const TensorReference *refer(const attnc_tensor *tensors) {
  return reinterpret_cast<const TensorReference *>(tensors);
}

int attnc_api_version(void) { return ATTNC_API_VERSION; }

const char *attnc_error_message(const attnc_error *error) {
  return error ? error->message.c_str() : "";
}

void attnc_error_destroy(attnc_error *error) { delete error; }

static const std::vector<const target::Target *> &getTargets() {
  static const std::vector<const target::Target *> targets = [] {
    target::registerAllTargets();
    return target::getTargets();
  }();
  return targets;
}

static Expected<const target::Target *> findTarget(const attnc_options &options) {
  getTargets();
  if (options.target_name)
    return target::getTarget(options.target_name);
  switch (options.target) {
  case ATTNC_TARGET_CPU:
    return target::getTarget("cpu");
  case ATTNC_TARGET_CUDA:
    return target::getTarget("cuda");
  }
  return target::getTarget(std::to_string(int(options.target)));
}

/// What the environment says of code for the CPU.
static Error readOptLevel(unsigned &level) {
  const char *asked = std::getenv("ATTNC_OPT_LEVEL");
  if (!asked || !*asked)
    return Error::success();
  if (StringRef(asked).getAsInteger(10, level) || level > 3)
    return createStringError(
        "ATTNC_OPT_LEVEL: expected LLVM's level of optimisation for the CPU, 0 to 3, got '" +
        Twine(asked) + "'");
  return Error::success();
}

/// Fields that the caller's version of the struct does not have keep their
/// default.
static Expected<ExecutableOptions> readOptions(const attnc_options *given) {
  constexpr size_t first = offsetof(attnc_options, gradient);
  if (given->size < first)
    return createStringError("options of size " + Twine(given->size) + ", expected at least " +
                             Twine(first));
  attnc_options options = ATTNC_OPTIONS_INIT;
  std::memcpy(&options, given, std::min(given->size, sizeof(options)));
  auto target = findTarget(options);
  if (!target)
    return target.takeError();
  ExecutableOptions chosen(**target);
  chosen.entry = options.entry ? options.entry : "";
  chosen.pipeline = options.pipeline ? options.pipeline : "";
  if (options.gradient)
    chosen.gradient = options.gradient;
  if (options.cache_directory)
    chosen.cache = DiskCache(options.cache_directory);
  if (Error error = readOptLevel(chosen.code.optLevel))
    return std::move(error);
  return chosen;
}

attnc_error *attnc_compile(const char *ir, size_t length, const attnc_options *options,
                           attnc_executable **result) {
  if (!ir || !options || !result)
    return fail("attnc_compile: expected IR, options and a result, got NULL");
  *result = nullptr;
  auto chosen = readOptions(options);
  if (!chosen)
    return fail("attnc_compile: " + toString(chosen.takeError()));
  auto executable = Executable::compile(StringRef(ir, length), *chosen);
  if (!executable)
    return take(executable.takeError());
  *result = new attnc_executable{std::move(*executable)};
  return nullptr;
}

size_t attnc_num_targets(void) { return getTargets().size(); }

const char *attnc_target_name(size_t index) {
  return getTargets()[index]->getDescription().name.data();
}

int attnc_is_on_gpu(const attnc_executable *executable) {
  return executable->executable->getTarget().getDescription().memory == target::Memory::Cuda;
}

void attnc_executable_destroy(attnc_executable *executable) { delete executable; }

size_t attnc_num_arguments(const attnc_executable *executable) {
  return executable->executable->getSignature().arguments.size();
}

size_t attnc_num_results(const attnc_executable *executable) {
  return executable->executable->getSignature().results.size();
}

static attnc_value describe(const ValueSignature &value) {
  return {static_cast<attnc_type>(value.kind), value.isTensor ? int32_t(value.shape.size()) : -1,
          value.shape.data()};
}

attnc_value attnc_argument(const attnc_executable *executable, size_t index) {
  return describe(executable->executable->getSignature().arguments[index]);
}

attnc_value attnc_result(const attnc_executable *executable, size_t index) {
  return describe(executable->executable->getSignature().results[index]);
}

attnc_error *attnc_result_shapes(const attnc_executable *executable, const attnc_tensor *arguments,
                                 int64_t *sizes) {
  return take(executable->executable->computeResultShapes(refer(arguments), sizes));
}

attnc_error *attnc_workspace_bytes(const attnc_executable *executable,
                                   const attnc_tensor *arguments, const attnc_tensor *results,
                                   size_t *bytes) {
  auto needed = executable->executable->getWorkspaceBytes(refer(arguments), refer(results));
  if (!needed)
    return take(needed.takeError());
  *bytes = *needed;
  return nullptr;
}

attnc_error *attnc_run(const attnc_executable *executable, const attnc_tensor *arguments,
                       const attnc_tensor *results, void *workspace, size_t workspace_bytes,
                       void *stream) {
  return take(executable->executable->run(refer(arguments), refer(results), workspace,
                                          workspace_bytes, stream));
}

attnc_error *attnc_get_counts(attnc_counts *counts) {
  if (!counts || counts->size < sizeof(attnc_counts))
    return fail("attnc_get_counts: expected counts of at least " +
                std::to_string(sizeof(attnc_counts)) + " bytes");
  CompileCounts now = Executable::getCounts();
  counts->compiled = now.compiled;
  counts->from_disk = now.fromDisk;
  counts->from_memory = now.fromMemory;
  return nullptr;
}

void attnc_set_num_threads(unsigned threads) { ThreadPool::shared().setNumThreads(threads); }

unsigned attnc_num_threads(void) { return ThreadPool::shared().getNumThreads(); }

void attnc_take_tile_counts(int64_t *masked, int64_t *full) {
  TileCounts counts = getTileCounts();
  resetTileCounts();
  *masked = counts.masked;
  *full = counts.full;
}

const char *attnc_text_data(const attnc_text *text) { return text ? text->text.c_str() : ""; }

size_t attnc_text_length(const attnc_text *text) { return text ? text->text.size() : 0; }

void attnc_text_destroy(attnc_text *text) { delete text; }

static attnc_error *transform(StringRef ir, const char *pipeline, StringRef remarks,
                              attnc_text **result, attnc_text **said) {
  *result = nullptr;
  *said = new attnc_text;
  auto text = transformText(ir, pipeline, (*said)->text, remarks);
  if (!text)
    return take(text.takeError());
  *result = new attnc_text{std::move(*text)};
  return nullptr;
}

attnc_error *attnc_transform(const char *ir, size_t length, const char *pipeline,
                             attnc_text **result, attnc_text **said) {
  if (!ir || !pipeline || !result || !said)
    return fail("attnc_transform: expected IR, a pipeline and results, got NULL");
  return transform(StringRef(ir, length), pipeline, /*remarks=*/"", result, said);
}

attnc_error *attnc_explain(const char *ir, size_t length, const char *pipeline, const char *passes,
                           attnc_text **result, attnc_text **said) {
  if (!ir || !pipeline || !passes || !result || !said)
    return fail("attnc_explain: expected IR, a pipeline, names of passes and results, got NULL");
  return transform(StringRef(ir, length), pipeline, passes, result, said);
}

attnc_error *attnc_emit_ptx(const char *ir, size_t length, const attnc_options *options,
                            attnc_text **result) {
  if (!ir || !options || !result)
    return fail("attnc_emit_ptx: expected IR, options and a result, got NULL");
  *result = nullptr;
  auto chosen = readOptions(options);
  if (!chosen)
    return fail("attnc_emit_ptx: " + toString(chosen.takeError()));
  if (!chosen->target->isGpu()) {
    auto gpu = target::getTarget("cuda");
    if (!gpu)
      return take(gpu.takeError());
    chosen->target = *gpu;
  }
  auto text = Executable::emitAssembly(StringRef(ir, length), *chosen);
  if (!text)
    return take(text.takeError());
  *result = new attnc_text{std::move(*text)};
  return nullptr;
}
