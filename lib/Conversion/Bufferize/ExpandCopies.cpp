// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies between memrefs as loops, so that compiled code needs no library.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEXPANDCOPIES
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numCopies("attn-expand-copies", "expanded", "Copies that became loops");

namespace {
struct ExpandCopies : attn::impl::AttnExpandCopiesBase<ExpandCopies> {
  void runOnOperation() override {
    getOperation()->walk([](memref::CopyOp copy) {
      auto type = dyn_cast<MemRefType>(copy.getSource().getType());
      if (!type || !isa<MemRefType>(copy.getTarget().getType()))
        return;
      numCopies.at(copy);
      if (copy.getSource() != copy.getTarget())
        expand(copy, type.getRank());
      copy.erase();
    });
  }

  static void expand(memref::CopyOp copy, int64_t rank) {
    OpBuilder b(copy);
    Location loc = copy.getLoc();
    SmallVector<Value> begin(rank), end, step(rank);
    for (int64_t dim = 0; dim < rank; ++dim) {
      begin[dim] = arith::ConstantIndexOp::create(b, loc, 0);
      step[dim] = arith::ConstantIndexOp::create(b, loc, 1);
      end.push_back(memref::DimOp::create(b, loc, copy.getSource(), dim));
    }
    scf::buildLoopNest(b, loc, begin, end, step, [&](OpBuilder &inner, Location l, ValueRange at) {
      Value element = memref::LoadOp::create(inner, l, copy.getSource(), at);
      memref::StoreOp::create(inner, l, element, copy.getTarget(), at);
    });
  }
};
} // namespace
