// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A target that nothing else knows of: it registers itself, has limits and matrix
// instructions of its own, compiles down to tiles, and records what it was asked.

#ifndef ATTN_UNITTESTS_TARGET_TRIALTARGET_H
#define ATTN_UNITTESTS_TARGET_TRIALTARGET_H

#include "attn/Target/Target.h"

namespace attn::target {

struct TrialLog {
  /// In the order of questions.
  std::vector<std::string> asked;
  /// IR of the program that was generated last.
  std::string tiles;
};

/// Of all trial targets of the process.
TrialLog &getTrialLog();

} // namespace attn::target

#endif
