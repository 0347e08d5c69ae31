/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * A CUDA driver for tests on machines without a GPU: memory of the host, and
 * kernels that do nothing. What matters of each call is printed to the file
 * that FAKE_CUDA_LOG names. FAKE_CUDA_FAIL names a function that fails, and
 * FAKE_CUDA_CAPABILITY is 90 unless set; with FAKE_CUDA_OLD options of later
 * versions are refused, as an older driver does. "Machine code" is the PTX itself, from
 * which the kernels' parameters are known. */

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { invalidValue = 1, outOfMemory = 2, invalidPtx = 218, launchFailed = 719 };
enum { maxBuffers = 256, maxParameters = 256 };

typedef struct {
  char name[256];
  int count;
  int bytes[maxParameters];
  int isStruct[maxParameters];
} Kernel;

static struct {
  char *start;
  size_t bytes;
} buffers[maxBuffers];
static int numBuffers, numMaps, context;
/* A copy or a fill is on its way: who launches on another stream has to wait for it. */
static int isPending;
static void *current;

static FILE *openLog(void) {
  static FILE *file;
  const char *path = getenv("FAKE_CUDA_LOG");
  if (!file)
    file = path ? fopen(path, "w") : stderr;
  return file;
}
#define LOG(...) (fprintf(openLog(), __VA_ARGS__), fflush(openLog()))

static int fails(const char *name) {
  const char *wanted = getenv("FAKE_CUDA_FAIL");
  return wanted && strcmp(wanted, name) == 0;
}

/* "buffer 2 + 64", or the number itself. */
static void describe(uint64_t value, char *text, size_t size) {
  for (int i = 0; i < numBuffers; ++i) {
    uint64_t start = (uint64_t)(uintptr_t)buffers[i].start;
    if (value >= start && value < start + buffers[i].bytes) {
      snprintf(text, size, "buffer %d + %d", i, (int)(value - start));
      return;
    }
  }
  snprintf(text, size, "%lld", (long long)value);
}

int cuInit(unsigned flags) { return fails("cuInit") ? 100 : flags; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorName(int error, const char **text) {
  *text = error == launchFailed ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == invalidPtx ? "CUDA_ERROR_INVALID_PTX"
                                : "CUDA_ERROR_FAKE";
  return 0;
}
int cuGetErrorString(int error, const char **text) {
  *text = error == launchFailed ? "unspecified launch failure"
          : error == invalidPtx ? "a PTX JIT compilation failed"
                                : "fake error";
  return 0;
}
int cuDeviceGetCount(int *count) { return *count = !fails("cuDeviceGetCount"), 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char *name, int bytes, int device) {
  return snprintf(name, bytes, "Fake GPU"), 0 * device;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  const char *capability = getenv("FAKE_CUDA_CAPABILITY");
  int number = capability ? atoi(capability) : 90;
  *value = attribute == 75   ? number / 10
           : attribute == 76 ? number % 10
           : attribute == 97 ? 232448
                             : 132;
  return 0 * device;
}
int cuDevicePrimaryCtxRetain(void **result, int device) { return *result = &context, 0 * device; }
int cuCtxGetCurrent(void **result) { return *result = current, 0; }
int cuCtxSetCurrent(void *to) { return current = to, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }

int cuModuleLoadDataEx(char **module, const void *image, unsigned count, int *options,
                       void **values) {
  if (fails("cuModuleLoadDataEx")) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == 5)
        strcpy(values[i], "ptxas fatal: fake syntax error\n");
    return invalidPtx;
  }
  for (unsigned i = 0; i < count; ++i)
    if (options[i] > 33 && getenv("FAKE_CUDA_OLD")) {
      LOG("load: unknown option %d\n", options[i]);
      return invalidValue;
    }
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == 3)
      strcpy(values[i], "ptxas info : fake\nptxas info : (C7510) Potential "
                        "Performance Loss: fake\n");
  LOG("load\n");
  return *module = strdup(image), 0;
}
int cuModuleUnload(char *module) { return free(module), 0; }

/* The widths of the parameters of an entry. */
int cuModuleGetFunction(Kernel **function, char *module, const char *name) {
  char head[300];
  snprintf(head, sizeof(head), ".entry %s(", name);
  char *at = strstr(module, head);
  if (!at)
    return 500;
  Kernel *kernel = calloc(1, sizeof(Kernel));
  snprintf(kernel->name, sizeof(kernel->name), "%s", name);
  char *end = strchr(at, '{');
  while ((at = strstr(at, ".param")) && at < end) {
    char *stop = at + strcspn(at, ",)");
    int bytes = 0, elements = 1;
    for (char *word = at + 6; word < stop; ++word)
      if (*word == '.' && strchr("busf", word[1]) && isdigit(word[2]) && !bytes)
        bytes = atoi(word + 2) / 8;
      else if (*word == '[')
        elements = atoi(word + 1), kernel->isStruct[kernel->count] = 1;
    kernel->bytes[kernel->count++] = bytes * elements;
    at = stop;
  }
  return *function = kernel, 0;
}
int cuFuncGetAttribute(int *value, int attribute, Kernel *kernel) {
  return *value = attribute == 4 ? 168 : 0, 0 * kernel->count;
}
int cuFuncSetAttribute(Kernel *kernel, int attribute, int value) {
  LOG("attribute %d of %s: %d\n", attribute, kernel->name, value);
  return 0;
}

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct {
    int id, pad;
    unsigned cluster[16];
  } *attributes;
  unsigned numAttributes;
} Config;

int cuLaunchKernelEx(const Config *c, Kernel *kernel, void **parameters, void **extra) {
  (void)extra;
  if (fails("cuLaunchKernelEx"))
    return launchFailed;
  if (isPending && c->stream) {
    LOG("launch of %s beside a copy to the device that has not ended\n", kernel->name);
    return launchFailed;
  }
  LOG("launch %s grid %u %u %u block %u %u %u shared %u", kernel->name, c->grid[0], c->grid[1],
      c->grid[2], c->block[0], c->block[1], c->block[2], c->shared);
  for (unsigned i = 0; i < c->numAttributes; ++i)
    LOG(" attribute %d: %u %u %u", c->attributes[i].id, c->attributes[i].cluster[0],
        c->attributes[i].cluster[1], c->attributes[i].cluster[2]);
  for (int i = 0; i < kernel->count; ++i) {
    char text[64] = "";
    uint64_t value = 0;
    memcpy(&value, parameters[i], kernel->bytes[i] < 8 ? kernel->bytes[i] : 8);
    describe(value, text, sizeof(text));
    LOG("\n  %s%s", kernel->isStruct[i] ? "map " : "", text);
  }
  LOG("\n");
  return 0;
}

int cuTensorMapEncodeTiled(uint64_t *map, int type, uint32_t rank, void *address,
                           const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *elementStrides, int interleave, int swizzle,
                           int promotion, int fill) {
  char text[64];
  if (fails("cuTensorMapEncodeTiled") || (uintptr_t)map % 64)
    return invalidValue;
  describe((uintptr_t)address, text, sizeof(text));
  *map = numMaps++;
  LOG("map %d type %d of %s sizes", (int)*map, type, text);
  for (uint32_t i = 0; i < rank; ++i)
    LOG(" %d", (int)sizes[i]);
  LOG(" strides");
  for (uint32_t i = 0; i + 1 < rank; ++i)
    LOG(" %d", (int)strides[i]);
  LOG(" box");
  for (uint32_t i = 0; i < rank; ++i)
    LOG(" %u/%u", box[i], elementStrides[i]);
  LOG(" interleave %d swizzle %d promotion %d fill %d\n", interleave, swizzle, promotion, fill);
  return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  if (fails("cuMemAlloc") || numBuffers == maxBuffers)
    return outOfMemory;
  LOG("allocate buffer %d: %d bytes\n", numBuffers, (int)bytes);
  buffers[numBuffers].start = aligned_alloc(256, (bytes + 255) / 256 * 256);
  buffers[numBuffers].bytes = bytes;
  *address = (uintptr_t)buffers[numBuffers++].start;
  return 0;
}
int cuMemFree_v2(uint64_t address) { return address ? 0 : invalidValue; }
int cuMemcpyHtoD_v2(uint64_t target, const void *source, size_t bytes) {
  isPending = 1;
  return memcpy((void *)(uintptr_t)target, source, bytes), 0;
}
int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t bytes) {
  return memcpy(target, (void *)(uintptr_t)source, bytes), 0;
}
int cuMemsetD8_v2(uint64_t target, unsigned char value, size_t bytes) {
  isPending = 1;
  return memset((void *)(uintptr_t)target, value, bytes), 0;
}
int cuStreamCreate(void **stream, unsigned flags) { return *stream = &numMaps, 0 * flags; }
int cuStreamDestroy_v2(void *stream) { return stream ? 0 : invalidValue; }
int cuStreamSynchronize(void *stream) {
  if (!stream)
    return isPending = 0;
  return fails("cuStreamSynchronize") ? launchFailed : 0;
}
int cuEventCreate(void **event, unsigned flags) { return *event = &numBuffers, 0 * flags; }
int cuEventRecord(void *event, void *stream) { return event && stream ? 0 : invalidValue; }
int cuEventSynchronize(void *event) { return event ? 0 : invalidValue; }
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  return *milliseconds = 2, start && end ? 0 : invalidValue;
}
int cuEventDestroy_v2(void *event) { return event ? 0 : invalidValue; }
