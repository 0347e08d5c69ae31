// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions between float and the two 16-bit formats, to nearest even, on
// bits alone: the host compiler need not know either type.

#ifndef ATTN_RUNTIME_FLOATCONVERT_H
#define ATTN_RUNTIME_FLOATCONVERT_H

#include <cstdint>
#include <cstring>

namespace attn {

inline uint32_t floatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float floatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float bfloatToFloat(uint16_t value) { return floatFromBits(uint32_t(value) << 16); }

/// Rounds to nearest even; a NaN stays a (quiet) NaN.
inline uint16_t floatToBfloat(float value) {
  uint32_t bits = floatBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return uint16_t((bits >> 16) | 0x40u);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float halfToFloat(uint16_t value) {
  uint32_t sign = uint32_t(value & 0x8000u) << 16;
  uint32_t magnitude = value & 0x7fffu;
  if (magnitude >= 0x7c00u) // infinity and NaN
    return floatFromBits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x400u)
    return floatFromBits(sign | ((magnitude << 13) + 0x38000000u));
  float subnormal = float(magnitude) * 0x1p-24f;
  return floatFromBits(sign | floatBits(subnormal));
}

/// Rounds to nearest even; too large becomes infinity, a NaN stays a NaN.
inline uint16_t floatToHalf(float value) {
  uint32_t bits = floatBits(value);
  uint16_t sign = uint16_t((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u)
    return sign | 0x7e00u;
  if (bits >= 0x47800000u)
    return sign | 0x7c00u;
  if (bits >= 0x38800000u) { // normal: move the bias, round the last 13 bits
    uint32_t shifted = bits - 0x38000000u;
    return sign | uint16_t((shifted + 0xfffu + ((shifted >> 13) & 1u)) >> 13);
  }
  // Subnormal: in [0.5, 1) a float's last bit is worth 2^-24, as a half's is
  // here, so the addition rounds where we want it.
  float aligned = floatFromBits(bits) + 0.5f;
  return sign | uint16_t(floatBits(aligned) - floatBits(0.5f));
}

} // namespace attn

#endif
