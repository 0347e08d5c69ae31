// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All targets of the folders beside this file, which CMakeLists.txt lists.

#include "attn/Target/Target.h"

namespace attn::target {
#define ATTN_TARGET(NAME) void register##NAME##Target();
#include "attn/Target/Targets.def"
} // namespace attn::target

void attn::target::registerAllTargets() {
#define ATTN_TARGET(NAME) register##NAME##Target();
#include "attn/Target/Targets.def"
}
