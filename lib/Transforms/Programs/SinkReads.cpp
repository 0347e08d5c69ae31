// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scalars in the memory of the device are read by the parallel loops that use
// them: the host cannot.

#include "attn/Transforms/Programs/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_ATTNSINKREADS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numSunk("attn-sink-reads", "sunk",
                          "Reads in front of programs that moved into them");

namespace {

class Sinker {
public:
  explicit Sinker(func::FuncOp function) {
    function.walk([&](Operation *op) {
      auto interface = dyn_cast<MemoryEffectOpInterface>(op);
      if (!interface)
        return;
      SmallVector<MemoryEffects::EffectInstance> effects;
      interface.getEffects<MemoryEffects::Write>(effects);
      for (const MemoryEffects::EffectInstance &effect : effects)
        if (auto memref = dyn_cast_if_present<MemrefValue>(effect.getValue()))
          written.insert(memref::skipViewLikeOps(memref));
    });
  }

  void sink(scf::ForallOp forall) {
    llvm::SetVector<Value> used;
    getUsedValuesDefinedAbove(forall.getRegion(), used);
    OpBuilder b = OpBuilder::atBlockBegin(forall.getBody());
    IRMapping mapping;
    for (Value value : used)
      if (isRead(value)) {
        numSunk.at(value.getLoc());
        replaceAllUsesInRegionWith(value, copy(b, value, mapping), forall.getRegion());
      }
  }

private:
  /// Whether a value follows from scalars in memory that nothing writes.
  bool isRead(Value value) {
    Operation *op = value.getDefiningOp();
    if (auto load = dyn_cast_or_null<memref::LoadOp>(op))
      return !written.contains(memref::skipViewLikeOps(cast<MemrefValue>(load.getMemRef())));
    return op && op->getNumRegions() == 0 && isPure(op) &&
           llvm::any_of(op->getOperands(), [&](Value operand) { return isRead(operand); });
  }

  Value copy(OpBuilder &b, Value value, IRMapping &mapping) {
    if (Value known = mapping.lookupOrNull(value))
      return known;
    if (!isRead(value))
      return value;
    Operation *op = value.getDefiningOp();
    for (Value operand : op->getOperands())
      mapping.map(operand, copy(b, operand, mapping));
    b.clone(*op, mapping);
    return mapping.lookup(value);
  }

  llvm::DenseSet<Value> written;
};

struct SinkReadsPass : attn::impl::AttnSinkReadsBase<SinkReadsPass> {
  void runOnOperation() override {
    Sinker sinker(getOperation());
    for (auto forall : getOperation().getOps<scf::ForallOp>())
      sinker.sink(forall);
  }
};

} // namespace
