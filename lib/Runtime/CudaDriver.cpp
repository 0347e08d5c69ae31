// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Opening the CUDA driver. See CudaDriver.h.

#include "attn/Runtime/CudaDriver.h"
#include <cstdlib>
#include <dlfcn.h>

using namespace llvm;
using namespace attn;
using namespace attn::cuda;

namespace {
struct Opened {
  Driver driver;
  std::string problem;
};
} // namespace

static std::string open(Driver &driver) {
  const char *chosen = std::getenv("ATTNC_CUDA_DRIVER");
  const char *path = chosen && *chosen ? chosen : "libcuda.so.1";
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return std::string("no CUDA driver: ") + dlerror();
#define ATTN_CUDA_LOOKUP(MEMBER, NAME, ARGUMENTS)                                                  \
  driver.MEMBER = reinterpret_cast<Result(*) ARGUMENTS>(dlsym(library, NAME));                     \
  if (!driver.MEMBER)                                                                              \
    return std::string("the CUDA driver ") + path + " is too old: it has no " NAME;
  ATTN_CUDA_FUNCTIONS(ATTN_CUDA_LOOKUP)
#undef ATTN_CUDA_LOOKUP
  if (Result result = driver.init(0))
    return "the CUDA driver does not start: " + driver.describe(result);
  return "";
}

Expected<const Driver *> Driver::get() {
  static const Opened &opened = [&]() -> const Opened & {
    auto *result = new Opened; // for the whole process
    result->problem = open(result->driver);
    return *result;
  }();
  if (!opened.problem.empty())
    return createStringError(opened.problem);
  return &opened.driver;
}

std::string Driver::describe(Result result) const {
  const char *name = nullptr, *text = nullptr;
  getErrorName(result, &name);
  getErrorString(result, &text);
  return (Twine(text ? text : "unknown error") + " (" + (name ? Twine(name) : Twine(result)) + ")")
      .str();
}

Error Driver::check(Result result, const Twine &what) const {
  if (result == 0)
    return Error::success();
  return createStringError(what + ": " + describe(result));
}
