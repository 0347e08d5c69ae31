// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.part becomes arithmetic.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEXPANDPARTS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numExpanded("attn-expand-parts", "expanded", "Parts of loops");

namespace {
struct ExpandPartsPass : attn::impl::AttnExpandPartsBase<ExpandPartsPass> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<attn::PartOp> parts;
    getOperation()->walk([&](attn::PartOp part) { parts.push_back(part); });
    for (attn::PartOp part : parts) {
      numExpanded.at(part);
      attn::expandPart(part);
    }
  }
};
} // namespace
