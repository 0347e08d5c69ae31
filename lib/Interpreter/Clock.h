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
/// phases are known to be complete). Of all of these, what a proxy fence that is
/// known to be done has made visible to TMA and WGMMA: the fence may be by any
/// warpgroup on the way (PTX ISA, "Causality order": a proxy fence along the base
/// causality order).
class Clock {
public:
  Clock() = default;
  explicit Clock(size_t size) : entries(size, 0), fenced(size, 0) {}
  uint32_t &operator[](size_t index) { return entries[index]; }
  uint32_t operator[](size_t index) const { return entries[index]; }
  void join(const Clock &other) {
    for (size_t i = 0; i < entries.size(); ++i) {
      entries[i] = std::max(entries[i], other.entries[i]);
      fenced[i] = std::max(fenced[i], other.fenced[i]);
    }
  }
  void clear() {
    std::fill(entries.begin(), entries.end(), 0);
    std::fill(fenced.begin(), fenced.end(), 0);
  }
  /// A proxy fence, behind all that is known to be done.
  void fence() { fenced = entries; }
  uint32_t getFenced(size_t index) const { return fenced[index]; }

private:
  llvm::SmallVector<uint32_t, 32> entries, fenced;
};

} // namespace attn::interpreter

#endif
