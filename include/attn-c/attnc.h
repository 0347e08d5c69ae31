/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * attnc: compile a function of attention ops and call it, from C.
 *
 *   attnc_options options = ATTNC_OPTIONS_INIT;
 *   options.target = ATTNC_TARGET_CUDA;
 *   attnc_executable *attention;
 *   attnc_error *error = attnc_compile(ir, strlen(ir), &options, &attention);
 *   if (error) { puts(attnc_error_message(error)); attnc_error_destroy(error); }
 *   ...
 *   error = attnc_run(attention, arguments, results, NULL, 0, stream);
 *
 * A function that can fail returns an error, or NULL for success; the caller
 * destroys it. Nothing here ends the process or throws. An executable serves all
 * sizes and strides that its types leave open, and may be called by several
 * threads at a time. docs/cuda.md has more. */

#ifndef ATTNC_H
#define ATTNC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ATTNC_API __attribute__((visibility("default")))
#else
#define ATTNC_API
#endif

/* Of this header. A library serves programs built for its own version or an
 * earlier one; structs only grow, at their end. */
#define ATTNC_API_VERSION 1

/* The version of the library. */
ATTNC_API int attnc_api_version(void);

typedef struct attnc_error attnc_error;
ATTNC_API const char *attnc_error_message(const attnc_error *error);
ATTNC_API void attnc_error_destroy(attnc_error *error);

/* Element types. An index is an I64, an i1 a byte of 0 or 1. */
typedef enum attnc_type {
  ATTNC_F64 = 0,
  ATTNC_F32 = 1,
  ATTNC_F16 = 2,
  ATTNC_BF16 = 3,
  ATTNC_I1 = 4,
  ATTNC_I8 = 5,
  ATTNC_I16 = 6,
  ATTNC_I32 = 7,
  ATTNC_I64 = 8
} attnc_type;

typedef enum attnc_target {
  ATTNC_TARGET_CPU = 0, /* the host: tensors are in its memory */
  ATTNC_TARGET_CUDA = 1 /* the GPU of the current CUDA context, or the first */
} attnc_target;

typedef struct attnc_options {
  size_t size; /* sizeof(attnc_options) */
  attnc_target target;
  /* The function, or NULL for `main` or the only one. */
  const char *entry;
  /* Options of the pipeline, "row-tile=64 stream-tile=128", or NULL. */
  const char *pipeline;
  /* Where compiled programs are kept: a directory, "" for nowhere, or NULL for
   * what the environment says. */
  const char *cache_directory;
} attnc_options;
#define ATTNC_OPTIONS_INIT                                                     \
  { sizeof(attnc_options), ATTNC_TARGET_CPU, NULL, NULL, NULL }

typedef struct attnc_executable attnc_executable;

/* Compiles MLIR, as text of `length` bytes. */
ATTNC_API attnc_error *attnc_compile(const char *ir, size_t length,
                                     const attnc_options *options,
                                     attnc_executable **result);
ATTNC_API void attnc_executable_destroy(attnc_executable *executable);

/* An argument or a result. */
typedef struct attnc_value {
  attnc_type type;
  int32_t rank; /* -1 for a scalar */
  /* `rank` sizes, -1 where any is accepted; lives as long as the executable. */
  const int64_t *shape;
} attnc_value;

ATTNC_API size_t attnc_num_arguments(const attnc_executable *executable);
ATTNC_API size_t attnc_num_results(const attnc_executable *executable);
/* `index` must be less than the number. */
ATTNC_API attnc_value attnc_argument(const attnc_executable *executable,
                                     size_t index);
ATTNC_API attnc_value attnc_result(const attnc_executable *executable,
                                   size_t index);

/* A tensor: the address of its first element, sizes, and strides in elements;
 * NULL strides say that it is dense in row-major order. The innermost stride is
 * 1. On the GPU, `data` is an address of device memory. Of a scalar, `data` is
 * the address of its value in host memory, and the rest is not read. */
typedef struct attnc_tensor {
  void *data;
  const int64_t *shape;
  const int64_t *strides;
} attnc_tensor;

/* The sizes of the results for these arguments, whose `data` is read of scalars
 * only: all dimensions of all results, one after the other. */
ATTNC_API attnc_error *attnc_result_shapes(const attnc_executable *executable,
                                           const attnc_tensor *arguments,
                                           int64_t *sizes);

/* How many bytes of device memory a call of these sizes needs as workspace.
 * `data` is read of scalars only. */
ATTNC_API attnc_error *
attnc_workspace_bytes(const attnc_executable *executable,
                      const attnc_tensor *arguments,
                      const attnc_tensor *results, size_t *bytes);

/* Calls the function. On the GPU the call is put on `stream` (a CUstream or
 * cudaStream_t of the current context) and returns before it has run; memory,
 * the workspace too, must stay until then. On the CPU it returns when all is
 * done, and workspace and stream are not looked at. */
ATTNC_API attnc_error *attnc_run(const attnc_executable *executable,
                                 const attnc_tensor *arguments,
                                 const attnc_tensor *results, void *workspace,
                                 size_t workspace_bytes, void *stream);

#ifdef __cplusplus
}
#endif

#endif
