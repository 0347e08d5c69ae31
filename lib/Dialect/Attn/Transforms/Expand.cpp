// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/Transforms/Passes.h"
namespace attn {
#define GEN_PASS_DEF_ATTNEXPAND
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn
namespace {
struct ExpandPass : attn::impl::AttnExpandBase<ExpandPass> {
  void runOnOperation() override {}
};
} // namespace
