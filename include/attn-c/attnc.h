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
#define ATTNC_API_VERSION 3

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
  /* Options of the pipeline, "block-m=64 block-n=128", or NULL. */
  const char *pipeline;
  /* Where compiled programs are kept: a directory, "" for nowhere, or NULL for
   * what the environment says. */
  const char *cache_directory;
  /* Since version 2: NULL for the function itself. Else its gradient, and options
   * of the pass attn-differentiate, which decide what it takes and gives:
   * "saved-results arguments=0,1,2 results=0", or "" for the defaults. */
  const char *gradient;
  /* Since version 3: NULL for what `target` says. Else a target by its name
   * (attnc_target_name), or "cuda" for that of the GPU at hand. */
  const char *target_name;
} attnc_options;
#define ATTNC_OPTIONS_INIT {sizeof(attnc_options), ATTNC_TARGET_CPU, NULL, NULL, NULL, NULL, NULL}

typedef struct attnc_executable attnc_executable;

/* Compiles MLIR, as text of `length` bytes. */
ATTNC_API attnc_error *attnc_compile(const char *ir, size_t length, const attnc_options *options,
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
ATTNC_API attnc_value attnc_argument(const attnc_executable *executable, size_t index);
ATTNC_API attnc_value attnc_result(const attnc_executable *executable, size_t index);

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
                                           const attnc_tensor *arguments, int64_t *sizes);

/* How many bytes of device memory a call of these sizes and strides needs as workspace.
 * `data` is read of scalars only. */
ATTNC_API attnc_error *attnc_workspace_bytes(const attnc_executable *executable,
                                             const attnc_tensor *arguments,
                                             const attnc_tensor *results, size_t *bytes);

/* Calls the function. On the GPU the call is put on `stream` (a CUstream or
 * cudaStream_t of the current context) and returns before it has run; memory,
 * the workspace too, must stay until then. On the CPU it returns when all is
 * done, and workspace and stream are not looked at. Results start at multiples of 16
 * bytes and overlap neither each other nor arguments: they may hold something else
 * before they are final. */
ATTNC_API attnc_error *attnc_run(const attnc_executable *executable, const attnc_tensor *arguments,
                                 const attnc_tensor *results, void *workspace,
                                 size_t workspace_bytes, void *stream);

/* Since version 3: the targets that the library compiles for, as "cpu" and "sm_90".
 * `index` must be less than the number; names stay. */
ATTNC_API size_t attnc_num_targets(void);
ATTNC_API const char *attnc_target_name(size_t index);
/* Since version 3: whether tensors are in memory of a GPU. */
ATTNC_API int attnc_is_on_gpu(const attnc_executable *executable);

/* The rest: since version 2. */

/* How many executables the process has made so far. */
typedef struct attnc_counts {
  size_t size;          /* sizeof(attnc_counts), set by the caller */
  uint64_t compiled;    /* from IR */
  uint64_t from_disk;   /* from the cache of compiled programs */
  uint64_t from_memory; /* the same text and options as before */
} attnc_counts;
ATTNC_API attnc_error *attnc_get_counts(attnc_counts *counts);

/* Threads that calls on the CPU share, the caller among them; 0 for one per
 * hardware thread, the default. Waits for a parallel loop that is running. */
ATTNC_API void attnc_set_num_threads(unsigned threads);
ATTNC_API unsigned attnc_num_threads(void);

/* Tiles that executables on the CPU have visited since the last call, with mask
 * arithmetic and without. Only those count that were compiled with the pipeline's
 * option "count-tiles". */
ATTNC_API void attnc_take_tile_counts(int64_t *masked, int64_t *full);

/* Text made by the library. */
typedef struct attnc_text attnc_text;
ATTNC_API const char *attnc_text_data(const attnc_text *text);
ATTNC_API size_t attnc_text_length(const attnc_text *text);
ATTNC_API void attnc_text_destroy(attnc_text *text);

/* Runs passes on MLIR: `pipeline` is text such as
 * "builtin.module(attn-tile-pipeline)", as attn-opt takes it. `said` gets what
 * the passes remarked, also where the result is an error. */
ATTNC_API attnc_error *attnc_transform(const char *ir, size_t length, const char *pipeline,
                                       attnc_text **result, attnc_text **said);

/* The same, where passes whose whole names match the regular expression `passes` also
 * remark what they did, and what they left and why. */
ATTNC_API attnc_error *attnc_explain(const char *ir, size_t length, const char *pipeline,
                                     const char *passes, attnc_text **result, attnc_text **said);

/* The PTX that a function, or its gradient, is compiled to; needs no GPU. Where the
 * target among the options is none for GPUs, "cuda" is meant. */
ATTNC_API attnc_error *attnc_emit_ptx(const char *ir, size_t length, const attnc_options *options,
                                      attnc_text **result);

#ifdef __cplusplus
}
#endif

#endif
