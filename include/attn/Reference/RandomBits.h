// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attn.random_bits gives, computed by its definition.

#ifndef ATTN_REFERENCE_RANDOMBITS_H
#define ATTN_REFERENCE_RANDOMBITS_H

#include <array>
#include <cstdint>

namespace attn {

/// Philox4x32-10. Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011),
/// section 4.2.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key,
                                      std::array<uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    uint64_t first = uint64_t(0xD2511F53) * counter[0];
    uint64_t second = uint64_t(0xCD9E8D57) * counter[2];
    counter = {uint32_t(second >> 32) ^ counter[1] ^ key[0], uint32_t(second),
               uint32_t(first >> 32) ^ counter[3] ^ key[1], uint32_t(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// The bits of a pair of query i and key j in head h of batch element b.
inline uint32_t randomBits(int64_t seed, int64_t offset, int64_t b, int64_t h, int64_t i,
                           int64_t j) {
  auto low = [](int64_t x) { return uint32_t(uint64_t(x)); };
  auto high = [](int64_t x) { return uint32_t(uint64_t(x) >> 32); };
  std::array<uint32_t, 4> ofHead =
      philox({low(seed), high(seed)}, {low(offset), high(offset), low(b), low(h)});
  std::array<uint32_t, 4> words =
      philox({ofHead[0], ofHead[1]}, {low(i) & ~8u, low(j) & ~9u, ofHead[2], ofHead[3]});
  uint32_t word = words[(i >> 3 & 1) + 2 * (j >> 3 & 1)];
  return j & 1 ? word << 16 | word >> 16 : word;
}

} // namespace attn

#endif
