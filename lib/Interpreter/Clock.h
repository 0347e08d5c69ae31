// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Vector clocks: what a warpgroup can be sure has happened.

#ifndef ATTN_LIB_INTERPRETER_CLOCK_H
#define ATTN_LIB_INTERPRETER_CLOCK_H

#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <cstdint>

namespace attn::interpreter {

/// Entries for each warpgroup (the number of the last of its ops that is known
/// to be done), then for each mbarrier and each named barrier (how many of its
/// phases are known to be complete).
class Clock {
public:
  Clock() = default;
  explicit Clock(size_t size) : entries(size, 0) {}
  uint32_t &operator[](size_t index) { return entries[index]; }
  uint32_t operator[](size_t index) const { return entries[index]; }
  void join(const Clock &other) {
    for (size_t i = 0; i < entries.size(); ++i)
      entries[i] = std::max(entries[i], other.entries[i]);
  }
  void clear() { std::fill(entries.begin(), entries.end(), 0); }

private:
  llvm::SmallVector<uint32_t, 32> entries;
};

} // namespace attn::interpreter

#endif
