// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tile programs of one tile stay loops.

#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERMAPPROGRAMS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
struct MapProgramsPass : attn::impl::HopperMapProgramsBase<MapProgramsPass> {
  void runOnOperation() override {
    getOperation().walk<WalkOrder::PreOrder>([&](scf::ForallOp program) {
      auto isOne = [](OpFoldResult bound) { return isConstantIntValue(bound, 1); };
      if (!program.getMapping() && program.isNormalized() &&
          llvm::all_of(program.getMixedUpperBound(), isOne)) {
        SmallVector<Attribute> blocks;
        for (int64_t dim = 0; dim < program.getRank(); ++dim)
          blocks.push_back(gpu::GPUBlockMappingAttr::get(
              &getContext(),
              gpu::MappingId(int64_t(gpu::MappingId::LinearDim0) + dim)));
        program.setMappingAttr(ArrayAttr::get(&getContext(), blocks));
      }
      return WalkResult::skip();
    });
  }
};
} // namespace
