// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tile programs of one tile stay loops.

#include "attn/Transforms/Programs/Loops.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace attn {
#define GEN_PASS_DEF_ATTNMAPPROGRAMS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numMapped("attn-map-programs", "mapped",
                            "Programs of one CTA that got a mapping");

namespace {
struct MapProgramsPass : attn::impl::AttnMapProgramsBase<MapProgramsPass> {
  void runOnOperation() override {
    getOperation().walk<WalkOrder::PreOrder>([&](scf::ForallOp program) {
      auto isOne = [](OpFoldResult bound) { return isConstantIntValue(bound, 1); };
      if (!program.getMapping() && program.isNormalized() &&
          llvm::all_of(program.getMixedUpperBound(), isOne)) {
        numMapped.at(program);
        program.setMappingAttr(programs::getBlockMapping(&getContext(), program.getRank()));
      }
      return WalkResult::skip();
    });
  }
};
} // namespace
