// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C API. See attn-c/attnc.h.

#include "attn-c/attnc.h"
#include "attn/Compiler/Executable.h"
#include <string>

using namespace llvm;
using namespace attn;

struct attnc_error {
  std::string message;
};
struct attnc_executable {
  std::shared_ptr<const Executable> executable;
};

static_assert(sizeof(attnc_tensor) == sizeof(TensorReference));
static_assert(ATTNC_F64 == int(ElementKind::F64) &&
              ATTNC_BF16 == int(ElementKind::BF16) &&
              ATTNC_I64 == int(ElementKind::I64));

static attnc_error *fail(std::string message) {
  return new attnc_error{std::move(message)};
}

static attnc_error *take(Error error) {
  return error ? fail(toString(std::move(error))) : nullptr;
}

static const TensorReference *refer(const attnc_tensor *tensors) {
  return reinterpret_cast<const TensorReference *>(tensors);
}

int attnc_api_version(void) { return ATTNC_API_VERSION; }

const char *attnc_error_message(const attnc_error *error) {
  return error ? error->message.c_str() : "";
}

void attnc_error_destroy(attnc_error *error) { delete error; }

attnc_error *attnc_compile(const char *ir, size_t length,
                           const attnc_options *options,
                           attnc_executable **result) {
  if (!ir || !options || !result)
    return fail("attnc_compile: expected IR, options and a result, got NULL");
  *result = nullptr;
  if (options->size < sizeof(attnc_options))
    return fail("attnc_compile: options of size " +
                std::to_string(options->size) + ", expected at least " +
                std::to_string(sizeof(attnc_options)));
  if (options->target != ATTNC_TARGET_CPU &&
      options->target != ATTNC_TARGET_CUDA)
    return fail("attnc_compile: unknown target " +
                std::to_string(int(options->target)));
  ExecutableOptions chosen;
  chosen.cuda = options->target == ATTNC_TARGET_CUDA;
  chosen.entry = options->entry ? options->entry : "";
  chosen.pipeline = options->pipeline ? options->pipeline : "";
  if (options->cache_directory)
    chosen.cache = DiskCache(options->cache_directory);
  auto executable = Executable::compile(StringRef(ir, length), chosen);
  if (!executable)
    return take(executable.takeError());
  *result = new attnc_executable{std::move(*executable)};
  return nullptr;
}

void attnc_executable_destroy(attnc_executable *executable) {
  delete executable;
}

size_t attnc_num_arguments(const attnc_executable *executable) {
  return executable->executable->getSignature().arguments.size();
}

size_t attnc_num_results(const attnc_executable *executable) {
  return executable->executable->getSignature().results.size();
}

static attnc_value describe(const ValueSignature &value) {
  return {static_cast<attnc_type>(value.kind),
          value.isTensor ? int32_t(value.shape.size()) : -1,
          value.shape.data()};
}

attnc_value attnc_argument(const attnc_executable *executable, size_t index) {
  return describe(executable->executable->getSignature().arguments[index]);
}

attnc_value attnc_result(const attnc_executable *executable, size_t index) {
  return describe(executable->executable->getSignature().results[index]);
}

attnc_error *attnc_result_shapes(const attnc_executable *executable,
                                 const attnc_tensor *arguments,
                                 int64_t *sizes) {
  return take(
      executable->executable->computeResultShapes(refer(arguments), sizes));
}

attnc_error *attnc_workspace_bytes(const attnc_executable *executable,
                                   const attnc_tensor *arguments,
                                   const attnc_tensor *results, size_t *bytes) {
  auto needed = executable->executable->getWorkspaceBytes(refer(arguments),
                                                          refer(results));
  if (!needed)
    return take(needed.takeError());
  *bytes = *needed;
  return nullptr;
}

attnc_error *attnc_run(const attnc_executable *executable,
                       const attnc_tensor *arguments,
                       const attnc_tensor *results, void *workspace,
                       size_t workspace_bytes, void *stream) {
  return take(executable->executable->run(refer(arguments), refer(results),
                                          workspace, workspace_bytes, stream));
}
