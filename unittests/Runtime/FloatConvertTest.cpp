// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Runtime/FloatConvert.h"
#include "llvm/ADT/APFloat.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace attn;

/// What LLVM's own arithmetic makes of a float.
static uint16_t expected(float value, const llvm::fltSemantics &semantics) {
  llvm::APFloat number(value);
  bool lost;
  number.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &lost);
  return uint16_t(number.bitcastToAPInt().getZExtValue());
}

// Every 16-bit pattern survives the way to float and back.
TEST(FloatConvert, RoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float half = halfToFloat(uint16_t(bits)), bfloat = bfloatToFloat(uint16_t(bits));
    if (!std::isnan(half))
      EXPECT_EQ(floatToHalf(half), bits);
    else
      EXPECT_TRUE(std::isnan(halfToFloat(floatToHalf(half))));
    if (!std::isnan(bfloat))
      EXPECT_EQ(floatToBfloat(bfloat), bits);
    else
      EXPECT_TRUE(std::isnan(bfloatToFloat(floatToBfloat(bfloat))));
  }
}

// Rounding agrees with LLVM's on floats of all sizes, ties included.
TEST(FloatConvert, Rounding) {
  for (uint32_t i = 0; i < 400000; ++i) {
    uint32_t bits = i * 10739u; // all exponents, both signs
    float value = floatFromBits(i % 3 ? bits : bits & 0xfffff000u);
    if (std::isnan(value))
      continue;
    EXPECT_EQ(floatToHalf(value), expected(value, llvm::APFloat::IEEEhalf())) << value;
    EXPECT_EQ(floatToBfloat(value), expected(value, llvm::APFloat::BFloat())) << value;
  }
}
