// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is needed until an output is computed lies in the output's memory.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Memory.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Transforms/RegionUtils.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"

namespace attn {
#define GEN_PASS_DEF_ATTNREUSEOUTPUTS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {

/// The ops of the block that access memory, or hold ops that do, in order.
SmallVector<Operation *> collectAccesses(Value memory, Block *block) {
  llvm::SmallPtrSet<Operation *, 16> found;
  for (Operation *access : attn::collectAccesses(memory))
    found.insert(block->findAncestorOpInBlock(*access));
  SmallVector<Operation *> ordered(found.begin(), found.end());
  llvm::sort(ordered, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  return ordered;
}

/// A function's argument, seen as a tensor that is computed late.
struct Output {
  Value view;
  SmallVector<OpFoldResult> sizes;
  Operation *first; // accesses it before all others
};

/// What writes all of a view and reads none of it.
bool overwrites(Operation *op, Value view) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumDpsInits() != 1 || generic.getDpsInits()[0] != view)
    return false;
  OpOperand *init = generic.getDpsInitOperand(0);
  return generic.getNumReductionLoops() == 0 && !generic.payloadUsesValueFromOperand(init) &&
         generic.getMatchingIndexingMap(init).isPermutation() &&
         llvm::count(generic->getOperands(), view) == 1;
}

struct ReuseOutputsPass : attn::impl::AttnReuseOutputsBase<ReuseOutputsPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function.getBody().hasOneBlock())
      return;
    Block *body = &function.front();
    SmallVector<Output> outputs = collectOutputs(body);
    for (auto alloc : llvm::make_early_inc_range(body->getOps<memref::AllocOp>())) {
      const Output *output = llvm::find_if(
          outputs, [&](const Output &each) { return canReplace(alloc, each, body); });
      IRRewriter rewriter(&getContext());
      if (output == outputs.end() ||
          failed(moveValueDefinitions(rewriter, output->view, alloc)))
        continue;
      Value view = output->view;
      replace(alloc, getPart(alloc, *output));
      alloc.erase();
      // Taken; and what it was is accessed before.
      llvm::erase_if(outputs, [&](const Output &each) { return each.view == view; });
    }
  }

  static SmallVector<Output> collectOutputs(Block *body) {
    SmallVector<Output> outputs;
    for (auto view : body->getOps<memref::ReinterpretCastOp>()) {
      auto argument =
          dyn_cast<BlockArgument>(memref::skipViewLikeOps(cast<MemrefValue>(view.getSource())));
      if (!argument || argument.getOwner() != body)
        continue;
      SmallVector<Operation *> accesses = collectAccesses(argument, body);
      if (!accesses.empty() && overwrites(accesses.front(), view.getResult()))
        outputs.push_back({view.getResult(), view.getConstifiedMixedSizes(), accesses.front()});
    }
    return outputs;
  }

  static bool canReplace(memref::AllocOp alloc, const Output &output, Block *body) {
    MemRefType type = alloc.getType(), other = cast<MemRefType>(output.view.getType());
    if (!type.getLayout().isIdentity() || type.getElementType() != other.getElementType() ||
        type.getRank() != other.getRank() || type.getRank() == 0 ||
        !llvm::equal(ArrayRef(getMixedSizes(alloc)).drop_back(), ArrayRef(output.sizes).drop_back(),
                     isEqualConstantIntOrValue))
      return false;
    // Rows may be shorter.
    int64_t columns = type.getShape().back(), most = other.getShape().back();
    if (ShapedType::isDynamic(columns) || ShapedType::isDynamic(most) || columns > most)
      return false;
    // Only subviews are known to be of any layout.
    for (Operation *user : alloc->getUsers())
      if (attn::isView(user) && !isa<memref::SubViewOp, memref::DimOp>(user))
        return false;
    for (Operation *access : collectAccesses(alloc, body))
      if (!isa<memref::DeallocOp>(access) && !access->isBeforeInBlock(output.first))
        return false;
    return true;
  }

  /// The part of an output that is as large as what is to lie there.
  static Value getPart(memref::AllocOp alloc, const Output &output) {
    if (alloc.getType().getShape() == cast<MemRefType>(output.view.getType()).getShape())
      return output.view;
    OpBuilder b(alloc);
    SmallVector<OpFoldResult> offsets(output.sizes.size(), b.getIndexAttr(0));
    SmallVector<OpFoldResult> strides(output.sizes.size(), b.getIndexAttr(1));
    return memref::SubViewOp::create(b, alloc.getLoc(), output.view, offsets, getMixedSizes(alloc),
                                     strides);
  }

  static SmallVector<OpFoldResult> getMixedSizes(memref::AllocOp alloc) {
    return ::getMixedValues(alloc.getType().getShape(), alloc.getDynamicSizes(),
                            alloc.getContext());
  }

  /// Views of views have the layout of what they see.
  static void replace(Value old, Value by) {
    for (OpOperand &use : llvm::make_early_inc_range(old.getUses())) {
      Operation *user = use.getOwner();
      auto subview = dyn_cast<memref::SubViewOp>(user);
      if (isa<memref::DeallocOp>(user)) {
        user->erase();
      } else if (subview) {
        OpBuilder b(subview);
        MemRefType type = memref::SubViewOp::inferRankReducedResultType(
            subview.getType().getShape(), cast<MemRefType>(by.getType()),
            subview.getMixedOffsets(), subview.getMixedSizes(), subview.getMixedStrides());
        Value view = memref::SubViewOp::create(b, subview.getLoc(), type, by,
                                               subview.getMixedOffsets(), subview.getMixedSizes(),
                                               subview.getMixedStrides());
        replace(subview, view);
        subview.erase();
      } else {
        use.set(by);
      }
    }
  }
};
} // namespace
