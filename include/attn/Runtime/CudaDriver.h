// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The CUDA driver, opened when it is first needed. Nothing here needs CUDA's
// headers or libraries to be built; the declarations are those of the driver's
// documented C interface ("CUDA Driver API", versions as in the names below).

#ifndef ATTN_RUNTIME_CUDADRIVER_H
#define ATTN_RUNTIME_CUDADRIVER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include <cstddef>
#include <cstdint>

namespace attn::cuda {

using Result = int; // CUresult; 0 is success
constexpr Result invalidValue = 1;
using Device = int;       // CUdevice
using Address = uint64_t; // CUdeviceptr
using Context = struct ContextTag *;
using Module = struct ModuleTag *;
using Function = struct FunctionTag *;
using Stream = struct StreamTag *;
using Event = struct EventTag *;

/// CUtensorMap.
struct alignas(128) TensorMap {
  uint64_t words[16];
};

/// CUlaunchAttribute: the value is a union of 64 bytes.
struct LaunchAttribute {
  int id;
  unsigned padding;
  union {
    unsigned cluster[3];
    int cooperative;
    int programmaticStreamSerializationAllowed;
    char bytes[64];
  };
};
static_assert(sizeof(LaunchAttribute) == 72);

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned sharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned numAttributes;
};
static_assert(sizeof(LaunchConfig) == 56);

constexpr int launchCooperative = 2; ///< all CTAs run at the same time
constexpr int launchClusterDimension = 4;
/// The launch may start before those in front of it in the stream have ended.
constexpr int launchProgrammaticStreamSerialization = 6;

enum DeviceAttribute {
  multiprocessorCount = 16,
  l2CacheBytes = 38,
  capabilityMajor = 75,
  capabilityMinor = 76,
  maxSharedBytesOptIn = 97,
};

enum FunctionAttribute {
  staticSharedBytes = 1,
  localBytes = 3,
  numRegisters = 4,
  maxDynamicSharedBytes = 8,
  nonPortableClusterAllowed = 14,
};

enum JitOption {
  infoLog = 3,
  infoLogBytes = 4,
  errorLog = 5,
  errorLogBytes = 6,
  logVerbose = 12,
  splitCompile = 34, // threads that compile; 0 for all there are
};

/// CUtensorMapDataType.
enum TensorMapType { mapF16 = 6, mapF32 = 7, mapBF16 = 9 };

/// Name of the member, name in the library, arguments.
#define ATTN_CUDA_FUNCTIONS(X)                                                                     \
  X(init, "cuInit", (unsigned flags))                                                              \
  X(driverGetVersion, "cuDriverGetVersion", (int *version))                                        \
  X(getErrorName, "cuGetErrorName", (Result error, const char **text))                             \
  X(getErrorString, "cuGetErrorString", (Result error, const char **text))                         \
  X(deviceGetCount, "cuDeviceGetCount", (int *count))                                              \
  X(deviceGet, "cuDeviceGet", (Device * device, int ordinal))                                      \
  X(deviceGetName, "cuDeviceGetName", (char *name, int bytes, Device device))                      \
  X(deviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, Device device))        \
  X(primaryContextRetain, "cuDevicePrimaryCtxRetain", (Context * context, Device device))          \
  X(contextGetCurrent, "cuCtxGetCurrent", (Context * context))                                     \
  X(contextSetCurrent, "cuCtxSetCurrent", (Context context))                                       \
  X(contextGetDevice, "cuCtxGetDevice", (Device * device))                                         \
  X(moduleLoadData, "cuModuleLoadDataEx",                                                          \
    (Module * module, const void *image, unsigned count, int *options, void **values))             \
  X(moduleUnload, "cuModuleUnload", (Module module))                                               \
  X(moduleGetFunction, "cuModuleGetFunction",                                                      \
    (Function * function, Module module, const char *name))                                        \
  X(functionGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, Function function))    \
  X(functionSetAttribute, "cuFuncSetAttribute", (Function function, int attribute, int value))     \
  X(launchKernelEx, "cuLaunchKernelEx",                                                            \
    (const LaunchConfig *config, Function function, void **parameters, void **extra))              \
  X(tensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                                \
    (TensorMap * map, int type, uint32_t rank, void *address, const uint64_t *sizes,               \
     const uint64_t *strides, const uint32_t *box, const uint32_t *elementStrides, int interleave, \
     int swizzle, int l2Promotion, int fill))                                                      \
  X(memAlloc, "cuMemAlloc_v2", (Address * address, size_t bytes))                                  \
  X(memFree, "cuMemFree_v2", (Address address))                                                    \
  X(copyToDevice, "cuMemcpyHtoD_v2", (Address target, const void *source, size_t bytes))           \
  X(copyToHost, "cuMemcpyDtoH_v2", (void *target, Address source, size_t bytes))                   \
  X(memsetBytes, "cuMemsetD8_v2", (Address target, unsigned char value, size_t bytes))             \
  X(streamCreate, "cuStreamCreate", (Stream * stream, unsigned flags))                             \
  X(streamDestroy, "cuStreamDestroy_v2", (Stream stream))                                          \
  X(streamSynchronize, "cuStreamSynchronize", (Stream stream))                                     \
  X(eventCreate, "cuEventCreate", (Event * event, unsigned flags))                                 \
  X(eventRecord, "cuEventRecord", (Event event, Stream stream))                                    \
  X(eventSynchronize, "cuEventSynchronize", (Event event))                                         \
  X(eventElapsedTime, "cuEventElapsedTime", (float *milliseconds, Event start, Event end))         \
  X(eventDestroy, "cuEventDestroy_v2", (Event event))

struct Driver {
#define ATTN_CUDA_MEMBER(MEMBER, NAME, ARGUMENTS) Result(*MEMBER) ARGUMENTS;
  ATTN_CUDA_FUNCTIONS(ATTN_CUDA_MEMBER)
#undef ATTN_CUDA_MEMBER

  /// Opens libcuda.so.1 (or what the environment variable ATTNC_CUDA_DRIVER
  /// names) and initialises it; once per process.
  static llvm::Expected<const Driver *> get();

  /// "cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY)" with `what` in
  /// front, or success.
  llvm::Error check(Result result, const llvm::Twine &what) const;
  /// The text of a result alone.
  std::string describe(Result result) const;
};

} // namespace attn::cuda

#endif
