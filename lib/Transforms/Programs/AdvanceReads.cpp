// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads of a tile program without loops come first, so that memory is waited for once.

#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/RegionUtils.h"

namespace attn {
#define GEN_PASS_DEF_ATTNADVANCEREADS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numAdvanced("attn-advance-reads", "advanced",
                              "Reads that moved behind the first one");

/// Moves reads of what the program does not write behind its first one, in their order.
static void advanceReads(scf::ForallOp program, IRRewriter &rewriter) {
  Operation *last = nullptr;
  auto reads = llvm::to_vector(program.getBody()->getOps<vector::TransferReadOp>());
  for (vector::TransferReadOp read : reads) {
    if (programs::isWrittenIn(program, cast<MemrefValue>(read.getBase())))
      continue;
    if (last) {
      Operation *next = last->getNextNode();
      if (next != read) {
        if (failed(moveOperationDependencies(rewriter, read, next)))
          continue;
        rewriter.moveOpBefore(read, next);
        numAdvanced.at(read);
      }
    }
    last = read;
  }
}

namespace {
struct AdvanceReadsPass : attn::impl::AttnAdvanceReadsBase<AdvanceReadsPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (scf::ForallOp program : programs::findPrograms(getOperation())) {
      auto hasRegions = [](Operation &op) { return op.getNumRegions() > 0; };
      if (llvm::none_of(program.getBody()->without_terminator(), hasRegions))
        advanceReads(program, rewriter);
    }
  }
};
} // namespace
