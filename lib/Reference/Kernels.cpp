// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The inner loops of the reference. See Kernels.h. Built with -O3 in every
// configuration.

#include "Kernels.h"

template <typename T>
static inline __attribute__((always_inline)) void
addScaledLoop(T *__restrict target, const T *__restrict source, T factor, int64_t length) {
  for (int64_t i = 0; i < length; ++i)
    target[i] += factor * source[i];
}

#ifdef __x86_64__
// The same loop for CPUs with wider vectors than the tools are built for.
template <typename T>
static __attribute__((target("avx2"))) void
addScaledWide(T *__restrict target, const T *__restrict source, T factor, int64_t length) {
  for (int64_t i = 0; i < length; ++i)
    target[i] += factor * source[i];
}

template <typename T> static void dispatch(T *target, const T *source, T factor, int64_t length) {
  static const bool wide = __builtin_cpu_supports("avx2");
  if (wide)
    addScaledWide(target, source, factor, length);
  else
    addScaledLoop(target, source, factor, length);
}
#else
template <typename T> static void dispatch(T *target, const T *source, T factor, int64_t length) {
  addScaledLoop(target, source, factor, length);
}
#endif

void attn::addScaled(float *target, const float *source, float factor, int64_t length) {
  dispatch(target, source, factor, length);
}

void attn::addScaled(double *target, const double *source, double factor, int64_t length) {
  dispatch(target, source, factor, length);
}

void attn::addScaled(long double *target, const long double *source, long double factor,
                     int64_t length) {
  addScaledLoop(target, source, factor, length);
}
