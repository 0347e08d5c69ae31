// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The inner loops of the reference. See Kernels.h. Built with -O3 in every
// configuration.

#include "Kernels.h"

#if defined(__x86_64__) && defined(__linux__)
#define ATTN_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define ATTN_CLONES
#endif

ATTN_CLONES void attn::addScaled(float *__restrict target,
                                 const float *__restrict source, float factor,
                                 int64_t length) {
  for (int64_t i = 0; i < length; ++i)
    target[i] += factor * source[i];
}

ATTN_CLONES void attn::addScaled(double *__restrict target,
                                 const double *__restrict source, double factor,
                                 int64_t length) {
  for (int64_t i = 0; i < length; ++i)
    target[i] += factor * source[i];
}

void attn::addScaled(long double *target, const long double *source,
                     long double factor, int64_t length) {
  for (int64_t i = 0; i < length; ++i)
    target[i] += factor * source[i];
}
