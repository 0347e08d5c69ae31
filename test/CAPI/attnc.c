/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * Compiles and calls through the C API alone: on the CPU with numbers, and with
 * the argument "cuda" on what ATTNC_CUDA_DRIVER names. Prints what it sees. */

#include "attn-c/attnc.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *ir = "func.func @f(%q: tensor<?x?x?x8xf32>, %k: tensor<?x?x?x8xf32>,\n"
                        "             %v: tensor<?x?x?x4xf32>)\n"
                        "    -> (tensor<?x?x?x4xf32>, tensor<?x?x?xf32>) {\n"
                        "  %o, %l = attn.forward %q, %k, %v : tensor<?x?x?x8xf32>,\n"
                        "      tensor<?x?x?x8xf32>, tensor<?x?x?x4xf32>\n"
                        "      -> tensor<?x?x?x4xf32>, tensor<?x?x?xf32>\n"
                        "  return %o, %l : tensor<?x?x?x4xf32>, tensor<?x?x?xf32>\n"
                        "}\n";

static const char *kernel =
    "func.func @fill(%x: memref<?xf32, strided<[1]>>, %f: f32) {\n"
    "  %c0 = arith.constant 0 : index\n"
    "  %c1 = arith.constant 1 : index\n"
    "  %c128 = arith.constant 128 : index\n"
    "  %n = memref.dim %x, %c0 : memref<?xf32, strided<[1]>>\n"
    "  %t = memref.alloc(%n) : memref<?xf32>\n"
    "  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)\n"
    "             threads(%tx, %ty, %tz) in (%dx = %c128, %dy = %c1, %dz = %c1) {\n"
    "    memref.store %f, %t[%bx] : memref<?xf32>\n"
    "    memref.store %f, %x[%bx] : memref<?xf32, strided<[1]>>\n"
    "    gpu.terminator\n"
    "  }\n"
    "  return\n"
    "}\n";

/* Prints an error and forgets it; whether there was one. */
static int failed(attnc_error *error) {
  if (error)
    printf("error: %s\n", attnc_error_message(error));
  attnc_error_destroy(error);
  return error != NULL;
}

static attnc_executable *compile(const char *text, attnc_target target) {
  attnc_options options = ATTNC_OPTIONS_INIT;
  attnc_executable *executable = NULL;
  options.target = target;
  failed(attnc_compile(text, strlen(text), &options, &executable));
  return executable;
}

static void print(const char *what, attnc_value value) {
  printf("%s: type %d rank %d", what, value.type, value.rank);
  for (int dim = 0; dim < value.rank; ++dim)
    printf(" %d", (int)value.shape[dim]);
  printf("\n");
}

static void printSignature(const attnc_executable *executable) {
  for (size_t i = 0; i < attnc_num_arguments(executable); ++i)
    print("argument", attnc_argument(executable, i));
  for (size_t i = 0; i < attnc_num_results(executable); ++i)
    print("result", attnc_result(executable, i));
}

/* One row of attention over two keys, whose scores differ by log 3. */
static int runCpu(void) {
  attnc_executable *f = compile(ir, ATTNC_TARGET_CPU);
  if (!f)
    return 1;
  printSignature(f);
  float q[8] = {1}, k[2][8] = {{0}}, v[2][6] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  k[1][0] = sqrtf(8) * logf(3);
  float o[4], l;
  int64_t qShape[] = {1, 1, 1, 8}, kShape[] = {1, 1, 2, 8}, vShape[] = {1, 1, 2, 4},
          vStrides[] = {12, 12, 6, 1};
  attnc_tensor arguments[] = {{q, qShape, NULL}, {k, kShape, NULL}, {v, vShape, vStrides}};
  int64_t sizes[7];
  if (failed(attnc_result_shapes(f, arguments, sizes)))
    return 1;
  for (int i = 0; i < 7; ++i)
    printf("%d%s", (int)sizes[i], i == 6 ? "\n" : " ");
  attnc_tensor results[] = {{o, sizes, NULL}, {&l, sizes + 4, NULL}};
  size_t bytes = 1;
  if (failed(attnc_workspace_bytes(f, arguments, results, &bytes)) ||
      failed(attnc_run(f, arguments, results, NULL, bytes, NULL)))
    return 1;
  /* Weights 1/4 and 3/4, sum of exponentials 4. */
  printf("workspace %d, output %.4f %.4f, lse %.4f\n", (int)bytes, o[0], o[3], l);
  /* The same text again gives the same code; the first can go. */
  attnc_executable *again = compile(ir, ATTNC_TARGET_CPU);
  attnc_executable_destroy(f);
  kShape[2] = 1; /* disagrees with v */
  failed(attnc_run(again, arguments, results, NULL, 0, NULL));
  kShape[2] = 2;
  vStrides[3] = 2;
  failed(attnc_run(again, arguments, results, NULL, 0, NULL));
  vStrides[3] = 1;
  qShape[3] = 9;
  failed(attnc_run(again, arguments, results, NULL, 0, NULL));
  attnc_executable_destroy(again);
  compile("func.func @f(", ATTNC_TARGET_CPU);
  compile("func.func @f(%x: vector<4xf32>) { return }", ATTNC_TARGET_CPU);
  return 0;
}

/* Targets by their names. */
static void chooseTargets(void) {
  for (size_t i = 0; i < attnc_num_targets(); ++i)
    printf("target %s\n", attnc_target_name(i));
  attnc_options options = ATTNC_OPTIONS_INIT;
  attnc_executable *f = NULL;
  options.target = ATTNC_TARGET_CUDA; /* the name counts */
  options.target_name = "cpu";
  if (!failed(attnc_compile(ir, strlen(ir), &options, &f)))
    printf("cpu by its name: on a GPU %d\n", attnc_is_on_gpu(f));
  attnc_executable_destroy(f);
  options.target_name = "tpu";
  failed(attnc_compile(ir, strlen(ir), &options, &f));
  options.target_name = NULL;
  options.target = (attnc_target)7;
  failed(attnc_compile(ir, strlen(ir), &options, &f));
}

/* The gradient of the same attention, for dO alone: dV of both keys is dO by weight.
 * Then passes on text, and what has been compiled so far. */
static int runGradient(void) {
  attnc_options options = ATTNC_OPTIONS_INIT;
  attnc_executable *gradient = NULL;
  options.gradient = "saved-results arguments=0,2 results=0";
  if (failed(attnc_compile(ir, strlen(ir), &options, &gradient)))
    return 1;
  printSignature(gradient);
  float q[8] = {1}, k[16] = {0}, v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float o[4] = {4, 5, 6, 7}, l = 1.3862944f, dO[4] = {1, 0, 2, 0};
  float dQ[8], dV[8];
  k[8] = sqrtf(8) * logf(3);
  int64_t qShape[] = {1, 1, 1, 8}, kShape[] = {1, 1, 2, 8}, vShape[] = {1, 1, 2, 4},
          oShape[] = {1, 1, 1, 4}, lShape[] = {1, 1, 1};
  attnc_tensor arguments[] = {{q, qShape, NULL}, {k, kShape, NULL},  {v, vShape, NULL},
                              {o, oShape, NULL}, {&l, lShape, NULL}, {dO, oShape, NULL}};
  attnc_tensor results[] = {{dQ, qShape, NULL}, {dV, vShape, NULL}};
  attnc_set_num_threads(1);
  if (failed(attnc_run(gradient, arguments, results, NULL, 0, NULL)))
    return 1;
  printf("threads %u, dQ %.4f, dV %.4f %.4f %.4f\n", attnc_num_threads(), dQ[0], dV[0], dV[2],
         dV[4]);
  attnc_executable_destroy(gradient);
  options.gradient = "argument=0";
  failed(attnc_compile(ir, strlen(ir), &options, &gradient));
  /* A program built before there was such a field. */
  options.size = offsetof(attnc_options, gradient);
  printf("older: %d\n", failed(attnc_compile(ir, strlen(ir), &options, &gradient)));
  attnc_executable_destroy(gradient);
  options.size = 8;
  failed(attnc_compile(ir, strlen(ir), &options, &gradient));
  chooseTargets();
  attnc_counts counts = {sizeof(attnc_counts), 0, 0, 0};
  failed(attnc_get_counts(&counts));
  printf("compiled %d, from memory %d\n", (int)counts.compiled, (int)counts.from_memory);
  attnc_text *text = NULL, *said = NULL;
  failed(attnc_transform(ir, strlen(ir), "builtin.module(attn-expand)", &text, &said));
  printf("expanded: %d\n", strstr(attnc_text_data(text), "linalg.generic") != NULL &&
                               attnc_text_length(text) == strlen(attnc_text_data(text)));
  attnc_text_destroy(text);
  attnc_text_destroy(said);
  failed(attnc_explain(ir, strlen(ir), "builtin.module(attn-nest-pipeline)", "attn-fuse-.*", &text,
                       &said));
  printf("fused: %d\n", strstr(attnc_text_data(said), "[Passed] fused") != NULL);
  attnc_text_destroy(text);
  attnc_text_destroy(said);
  failed(attnc_explain(ir, strlen(ir), "builtin.module(attn-expand)", "(", &text, &said));
  attnc_text_destroy(said);
  failed(attnc_transform(ir, strlen(ir), "builtin.module(no-pass)", &text, &said));
  attnc_text_destroy(said);
  return 0;
}

static int runCuda(void) {
  attnc_executable *fill = compile(kernel, ATTNC_TARGET_CUDA);
  if (!fill)
    return 1;
  printSignature(fill);
  int64_t shape[] = {1000};
  float value = 1;
  attnc_tensor arguments[] = {{(void *)4096, shape, NULL}, {&value, NULL, NULL}};
  size_t bytes = 0;
  if (failed(attnc_workspace_bytes(fill, arguments, NULL, &bytes)))
    return 1;
  printf("workspace %d\n", (int)bytes);
  failed(attnc_run(fill, arguments, NULL, (void *)8192, bytes - 1, NULL));
  int result = failed(attnc_run(fill, arguments, NULL, (void *)8192, bytes, (void *)64));
  attnc_executable_destroy(fill);
  return result;
}

int main(int argc, char **argv) {
  printf("API version %d\n", attnc_api_version());
  return argc > 1 && strcmp(argv[1], "cuda") == 0 ? runCuda() : runCpu() || runGradient();
}
