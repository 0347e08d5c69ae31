// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Handlers that apply a function to each element.

#ifndef ATTN_LIB_INTERPRETER_ELEMENTWISE_H
#define ATTN_LIB_INTERPRETER_ELEMENTWISE_H

#include "Cluster.h"

namespace attn::interpreter {

inline void roundAll(const Instruction &i, double *values) {
  if (i.kind == ElementKind::F32)
    for (int64_t k = 0; k < i.count; ++k)
      values[k] = float(values[k]);
  else if (i.kind != ElementKind::F64)
    for (int64_t k = 0; k < i.count; ++k)
      values[k] = roundNumber(i.kind, values[k]);
}

/// The low bits of the kind's width; sign-extended, but i1 is 0 or 1.
inline int64_t wrap(ElementKind kind, int64_t value) {
  switch (kind) {
  case ElementKind::I1:
    return value & 1;
  case ElementKind::I8:
    return int8_t(value);
  case ElementKind::I16:
    return int16_t(value);
  case ElementKind::I32:
    return int32_t(value);
  default:
    return value;
  }
}

template <double (*fn)(double)> Step floatUnary(Fiber &fiber, const Instruction &i) {
  const double *a = fiber.floats(i, 0);
  double *r = fiber.newFloats(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = fn(a[k]);
  roundAll(i, r);
  return Step::Next;
}

template <double (*fn)(double, double)> Step floatBinary(Fiber &fiber, const Instruction &i) {
  const double *a = fiber.floats(i, 0), *b = fiber.floats(i, 1);
  double *r = fiber.newFloats(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = fn(a[k], b[k]);
  roundAll(i, r);
  return Step::Next;
}

template <double (*fn)(double, double, double)>
Step floatTernary(Fiber &fiber, const Instruction &i) {
  const double *a = fiber.floats(i, 0), *b = fiber.floats(i, 1), *c = fiber.floats(i, 2);
  double *r = fiber.newFloats(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = fn(a[k], b[k], c[k]);
  roundAll(i, r);
  return Step::Next;
}

template <int64_t (*fn)(int64_t, int64_t)> Step intBinary(Fiber &fiber, const Instruction &i) {
  const int64_t *a = fiber.ints(i, 0), *b = fiber.ints(i, 1);
  int64_t *r = fiber.newInts(i);
  if (i.kind == ElementKind::I64) {
    for (int64_t k = 0; k < i.count; ++k)
      r[k] = fn(a[k], b[k]);
    return Step::Next;
  }
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = wrap(i.kind, fn(a[k], b[k]));
  return Step::Next;
}

} // namespace attn::interpreter

#endif
