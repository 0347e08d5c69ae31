// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tile programs of one tile stay loops.

#include "attn/Transforms/Programs/Loops.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/DenseMap.h"

namespace attn {
#define GEN_PASS_DEF_ATTNMAPPROGRAMS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numMapped("attn-map-programs", "mapped",
                            "Programs of one CTA that got a mapping");

/// The number that a value comes to, which canonicalisation finds, too; null for others.
static Attribute evaluate(Value value, llvm::DenseMap<Value, Attribute> &known) {
  Attribute constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant;
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumResults() != 1 || op->getNumRegions() > 0 || !isMemoryEffectFree(op))
    return {};
  if (auto it = known.find(value); it != known.end())
    return it->second;
  known[value] = {};
  SmallVector<Attribute> operands;
  for (Value operand : op->getOperands()) {
    operands.push_back(evaluate(operand, known));
    if (!operands.back())
      return {};
  }
  // Of a copy: folding may change the op.
  Operation *copy = op->clone();
  SmallVector<OpFoldResult> results;
  Attribute result;
  if (succeeded(copy->fold(operands, results)) && results.size() == 1)
    result = isa<Attribute>(results.front()) ? cast<Attribute>(results.front())
                                             : evaluate(cast<Value>(results.front()), known);
  copy->destroy();
  return known[value] = result;
}

namespace {
struct MapProgramsPass : attn::impl::AttnMapProgramsBase<MapProgramsPass> {
  void runOnOperation() override {
    llvm::DenseMap<Value, Attribute> known;
    getOperation().walk<WalkOrder::PreOrder>([&](scf::ForallOp program) {
      auto isOne = [&](OpFoldResult bound) {
        if (auto value = dyn_cast<Value>(bound))
          if (Attribute number = evaluate(value, known))
            bound = number;
        return isConstantIntValue(bound, 1);
      };
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
