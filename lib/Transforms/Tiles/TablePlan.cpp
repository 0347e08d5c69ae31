// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Slices of masks: the ops between loop variables and the mask, which a table
// computes again in front of the loops.

#include "TablePlan.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace attn::tiles;

namespace {

/// Ops that compute a value from loop variables and values outside of a loop.
class Slice {
public:
  explicit Slice(Operation *top) : top(top) {}

  /// Adds what computes `value`; false if that is not pure arithmetic on values
  /// outside of the loop and variables of loops inside of it. Contractions are
  /// data; a table that computed the scores would save nothing.
  bool add(Value value) {
    if (!top->isAncestor(value.getParentRegion()->getParentOp()))
      return true;
    if (auto arg = dyn_cast<BlockArgument>(value)) {
      if (!isLoopVariable(arg))
        return false;
      variables.insert(value);
      return true;
    }
    Operation *op = value.getDefiningOp();
    if (op == top || op->getNumRegions() != 0 || !(isMemoryEffectFree(op) || isTableRead(op)) ||
        isa<vector::ContractionOp>(op))
      return false;
    if (!seen.insert(op).second)
      return true;
    return llvm::all_of(op->getOperands(), [&](Value operand) { return add(operand); });
  }

  const llvm::SetVector<Value> &getVariables() const { return variables; }
  const llvm::DenseSet<Operation *> &getOps() const { return seen; }

private:
  /// A read of elements of a tensor: nothing writes to that.
  static bool isTableRead(Operation *op) {
    auto gather = dyn_cast<vector::GatherOp>(op);
    return gather && isa<TensorType>(gather.getBase().getType());
  }

  static bool isLoopVariable(BlockArgument arg) {
    auto loop = dyn_cast<LoopLikeOpInterface>(arg.getOwner()->getParentOp());
    if (!loop)
      return false;
    std::optional<SmallVector<Value>> variables = loop.getLoopInductionVars();
    return variables && llvm::is_contained(*variables, arg);
  }

  Operation *top;
  llvm::SetVector<Value> variables;
  llvm::DenseSet<Operation *> seen;
};

std::optional<Dimension> getDimension(Value iv) {
  auto arg = cast<BlockArgument>(iv);
  Operation *parent = arg.getOwner()->getParentOp();
  if (auto loop = dyn_cast<scf::ForOp>(parent)) {
    if (!iv.getType().isIndex())
      return std::nullopt;
    return Dimension{iv, getAsOpFoldResult(loop.getLowerBound()),
                     getAsOpFoldResult(loop.getUpperBound()), getAsOpFoldResult(loop.getStep())};
  }
  if (auto loop = dyn_cast<scf::ForallOp>(parent)) {
    unsigned n = arg.getArgNumber();
    return Dimension{iv, loop.getMixedLowerBound()[n], loop.getMixedUpperBound()[n],
                     loop.getMixedStep()[n]};
  }
  return std::nullopt;
}

/// Plans a table in front of `top`: the masks must follow from loop variables
/// inside of it, and the loops' bounds from nothing inside of it.
bool planAt(Operation *top, Plan &plan) {
  Slice slice(top), bounds(top);
  for (const Mask &mask : plan.masks)
    if (!slice.add(mask.condition.value))
      return false;
  plan.top = top;
  plan.dims.clear();
  bool isConstant = bounds.add(plan.loop.getLowerBound()) && bounds.add(plan.loop.getUpperBound());
  for (Value iv : slice.getVariables()) {
    if (iv == plan.loop.getInductionVar())
      continue;
    std::optional<Dimension> dim = getDimension(iv);
    if (!dim)
      return false;
    for (OpFoldResult bound : {dim->lower, dim->upper, dim->step})
      if (auto value = dyn_cast<Value>(bound))
        isConstant &= bounds.add(value);
    plan.dims.push_back(*dim);
  }
  // The table's dimensions are in the order of the loops.
  auto depth = [](Dimension dim) {
    Operation *owner = dim.iv.getParentBlock()->getParentOp();
    unsigned depth = 0;
    for (Operation *op = owner; op; op = op->getParentOp())
      ++depth;
    return std::pair(depth, cast<BlockArgument>(dim.iv).getArgNumber());
  };
  llvm::sort(plan.dims,
             [&](const Dimension &x, const Dimension &y) { return depth(x) < depth(y); });
  return isConstant && bounds.getVariables().empty();
}

} // namespace

bool attn::tiles::findPlace(Plan &plan) {
  SmallVector<Operation *> candidates = {plan.loop};
  for (Operation *op = plan.loop->getParentOp();
       isa_and_nonnull<scf::ForOp, scf::ForallOp, scf::IfOp>(op); op = op->getParentOp())
    if (!isa<scf::IfOp>(op))
      candidates.push_back(op);
  return llvm::any_of(llvm::reverse(candidates), [&](Operation *top) { return planAt(top, plan); });
}

bool attn::tiles::hasTilesOfRows(const Plan &plan) {
  auto isScaled = [](Operation *user) {
    auto apply = dyn_cast<affine::AffineApplyOp>(user);
    return apply && !isa<AffineDimExpr, AffineSymbolExpr>(apply.getAffineMap().getResult(0));
  };
  return llvm::any_of(plan.dims, [&](const Dimension &dim) {
    return !isConstantIntValue(dim.step, 1) || llvm::any_of(dim.iv.getUsers(), isScaled);
  });
}

SmallVector<Value> attn::tiles::findVariables(Operation *top, Value value) {
  Slice slice(top);
  slice.add(value);
  return llvm::to_vector(slice.getVariables());
}

bool attn::tiles::readsTile(Operation *top, Value value) {
  Slice slice(top);
  slice.add(value);
  return llvm::any_of(slice.getOps(), [](Operation *op) {
    auto read = dyn_cast<vector::TransferReadOp>(op);
    return read &&
           llvm::count_if(read.getPermutationMap().getResults(), llvm::IsaPred<AffineDimExpr>) > 1;
  });
}

Value attn::tiles::cloneSlice(OpBuilder &b, Operation *top, Value value, IRMapping &mapping) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  if (!op || !top->isProperAncestor(op))
    return value;
  for (Value operand : op->getOperands())
    mapping.map(operand, cloneSlice(b, top, operand, mapping));
  b.clone(*op, mapping);
  return mapping.lookup(value);
}
