// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// math: the C library's functions, rounded to their type.

#include "Elementwise.h"
#include <cmath>

using namespace attn;
using namespace attn::interpreter;

static double fused(double a, double b, double c) { return std::fma(a, b, c); }
static double inverseRoot(double a) { return 1 / std::sqrt(a); }
static double power(double a, double b) { return std::pow(a, b); }
static double angle(double a, double b) { return std::atan2(a, b); }
static double sign(double a, double b) { return std::copysign(a, b); }
#define UNARY(name, call)                                                                          \
  static double name(double a) { return call; }
UNARY(exponential, std::exp(a))
UNARY(exponential2, std::exp2(a))
UNARY(exponentialMinus1, std::expm1(a))
UNARY(logarithm, std::log(a))
UNARY(logarithm2, std::log2(a))
UNARY(logarithm10, std::log10(a))
UNARY(logarithm1p, std::log1p(a))
UNARY(squareRoot, std::sqrt(a))
UNARY(tangentH, std::tanh(a))
UNARY(absolute, std::fabs(a))
UNARY(errorFunction, std::erf(a))
UNARY(sine, std::sin(a))
UNARY(cosine, std::cos(a))
UNARY(down, std::floor(a))
UNARY(up, std::ceil(a))
UNARY(nearest, std::round(a))
UNARY(nearestEven, std::nearbyint(a))
#undef UNARY

static Step absoluteInts(Fiber &fiber, const Instruction &i) {
  const int64_t *a = fiber.ints(i, 0);
  int64_t *r = fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = wrap(i.kind, int64_t(a[k] < 0 ? -uint64_t(a[k]) : uint64_t(a[k])));
  return Step::Next;
}

static Step leadingZeros(Fiber &fiber, const Instruction &i) {
  const int64_t *a = fiber.ints(i, 0);
  int64_t *r = fiber.newInts(i);
  int bits = i.kind == ElementKind::I1    ? 1
             : i.kind == ElementKind::I8  ? 8
             : i.kind == ElementKind::I16 ? 16
             : i.kind == ElementKind::I32 ? 32
                                          : 64;
  for (int64_t k = 0; k < i.count; ++k) {
    uint64_t value = uint64_t(a[k]) << (64 - bits);
    int64_t zeros = 0;
    while (zeros < bits && !(value >> 63)) {
      value <<= 1;
      ++zeros;
    }
    r[k] = zeros;
  }
  return Step::Next;
}

void interpreter::registerMath(Translator &translator) {
  translator.add("math.fma", floatTernary<fused>);
  translator.add("vector.fma", floatTernary<fused>);
  translator.add("math.powf", floatBinary<power>);
  translator.add("math.atan2", floatBinary<angle>);
  translator.add("math.copysign", floatBinary<sign>);
  translator.add("math.rsqrt", floatUnary<inverseRoot>);
  translator.add("math.exp", floatUnary<exponential>);
  translator.add("math.exp2", floatUnary<exponential2>);
  translator.add("math.expm1", floatUnary<exponentialMinus1>);
  translator.add("math.log", floatUnary<logarithm>);
  translator.add("math.log2", floatUnary<logarithm2>);
  translator.add("math.log10", floatUnary<logarithm10>);
  translator.add("math.log1p", floatUnary<logarithm1p>);
  translator.add("math.sqrt", floatUnary<squareRoot>);
  translator.add("math.tanh", floatUnary<tangentH>);
  translator.add("math.absf", floatUnary<absolute>);
  translator.add("math.ctlz", leadingZeros);
  translator.add("math.absi", absoluteInts);
  translator.add("math.erf", floatUnary<errorFunction>);
  translator.add("math.sin", floatUnary<sine>);
  translator.add("math.cos", floatUnary<cosine>);
  translator.add("math.floor", floatUnary<down>);
  translator.add("math.ceil", floatUnary<up>);
  translator.add("math.round", floatUnary<nearest>);
  translator.add("math.roundeven", floatUnary<nearestEven>);
}
