// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The two loops that the reference spends its time in, in an order that a
// compiler vectorises without changing any sum's order.

#ifndef ATTN_LIB_REFERENCE_KERNELS_H
#define ATTN_LIB_REFERENCE_KERNELS_H

#include <cstdint>

namespace attn {

/// target[0..length) += factor * source[0..length)
void addScaled(float *target, const float *source, float factor, int64_t length);
void addScaled(double *target, const double *source, double factor, int64_t length);
void addScaled(long double *target, const long double *source, long double factor, int64_t length);

} // namespace attn

#endif
