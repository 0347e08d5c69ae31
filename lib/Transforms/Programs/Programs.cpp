// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See Programs.h.

#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Slices.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;

int64_t programs::Access::getExtent(unsigned dim) const {
  for (auto [d, expr] : llvm::enumerate(map.getResults()))
    if (expr == getAffineDimExpr(dim, op->getContext()))
      return vector.getDimSize(d);
  return 1;
}

std::optional<programs::Access> programs::getAccess(Operation *op) {
  auto transfer = dyn_cast<VectorTransferOpInterface>(op);
  auto base = transfer ? dyn_cast<MemrefValue>(transfer.getBase()) : MemrefValue();
  if (!base || transfer.getMask())
    return std::nullopt;
  Access access{op,
                base,
                getAsOpFoldResult(transfer.getIndices()),
                transfer.getVectorType(),
                transfer.getPermutationMap(),
                {}};
  if (auto view = access.memory.getDefiningOp<memref::SubViewOp>()) {
    if (view.getSourceType().getRank() != view.getType().getRank() || !view.hasUnitStride())
      return std::nullopt;
    for (auto [index, offset] : llvm::zip_equal(access.indices, view.getMixedOffsets())) {
      if (isZeroInteger(index))
        index = offset;
      else if (!isZeroInteger(offset))
        return std::nullopt;
    }
    access.memory = cast<MemrefValue>(view.getSource());
    access.view = view;
  }
  return access;
}

bool programs::Access::coversTile() const {
  if (!view)
    return true;
  auto alloc = memory.getDefiningOp<memref::AllocOp>();
  memref::SubViewOp bounds = view;
  for (auto [dim, size] : llvm::enumerate(bounds.getMixedSizes())) {
    int64_t extent = getExtent(dim);
    if (std::optional<int64_t> number = getConstantIntValue(size)) {
      if (*number < extent)
        return false;
      continue;
    }
    if (alloc && isZeroInteger(bounds.getMixedOffsets()[dim]) && size == alloc.getMixedSizes()[dim])
      continue;
    auto least = cast<Value>(size).getDefiningOp<affine::AffineMinOp>();
    auto start = dyn_cast<Value>(indices[dim]);
    auto apply = start ? start.getDefiningOp<affine::AffineApplyOp>() : nullptr;
    if (!least || !apply || !alloc || apply.getMapOperands().size() != 1)
      return false;
    // Both in terms of the variable d0 and of the size s0 of the memory.
    MLIRContext *context = alloc.getContext();
    SmallVector<AffineExpr> dims, symbols;
    for (Value operand : least.getDimOperands()) {
      if (operand != apply.getMapOperands().front())
        return false;
      dims.push_back(getAffineDimExpr(0, context));
    }
    for (Value operand : least.getSymbolOperands()) {
      if (OpFoldResult(operand) != alloc.getMixedSizes()[dim])
        return false;
      symbols.push_back(getAffineSymbolExpr(0, context));
    }
    for (AffineExpr expr : least.getMap().getResults()) {
      if (auto number = dyn_cast<AffineConstantExpr>(expr); number && number.getValue() >= extent)
        continue;
      AffineExpr end =
          expr.replaceDimsAndSymbols(dims, symbols) + apply.getAffineMap().getResult(0);
      if (simplifyAffineExpr(end, 1, 1) != getAffineSymbolExpr(0, context))
        return false;
    }
  }
  return true;
}

std::optional<programs::Touched> programs::findTouched(Operation *root) {
  Touched touched;
  WalkResult walk = root->walk([&](Operation *op) {
    if (op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() || isMemoryEffectFree(op) ||
        op->hasTrait<OpTrait::IsTerminator>())
      return WalkResult::advance();
    auto interface = dyn_cast<MemoryEffectOpInterface>(op);
    if (!interface)
      return WalkResult::interrupt();
    SmallVector<MemoryEffects::EffectInstance> effects;
    interface.getEffects(effects);
    for (const MemoryEffects::EffectInstance &effect : effects) {
      auto memref = dyn_cast_if_present<MemrefValue>(effect.getValue());
      if (!memref)
        return WalkResult::interrupt();
      Value memory = memref::skipViewLikeOps(memref);
      if (isa<MemoryEffects::Read>(effect.getEffect()))
        touched.read.insert(memory);
      else
        touched.written.insert(memory);
    }
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return std::nullopt;
  return touched;
}

bool programs::intersect(const llvm::SmallPtrSetImpl<Value> &a,
                         const llvm::SmallPtrSetImpl<Value> &b) {
  return llvm::any_of(a, [&](Value value) { return b.contains(value); });
}

bool programs::Touched::dependsOn(const Touched &other) const {
  return intersect(written, other.read) || intersect(written, other.written) ||
         intersect(read, other.written);
}

SmallVector<scf::ForallOp> programs::findPrograms(Operation *root) {
  SmallVector<scf::ForallOp> programs;
  root->walk<WalkOrder::PreOrder>([&](scf::ForallOp program) {
    programs.push_back(program);
    return WalkResult::skip();
  });
  return programs;
}

AffineMap programs::getAffineMap(Operation *op) {
  return TypeSwitch<Operation *, AffineMap>(op)
      .Case([](affine::AffineApplyOp apply) { return apply.getAffineMap(); })
      .Case<affine::AffineMinOp, affine::AffineMaxOp>(
          [](auto extreme) { return extreme.getAffineMap(); })
      .Default([](Operation *) { return AffineMap(); });
}

bool programs::dependsOn(Value value, Value other) {
  return followsFrom(value, [&](Value each) { return each == other; });
}

/// Whether `end` is `value`, or the least of it and others.
static bool isAtMost(Value end, Value value) {
  if (end == value)
    return true;
  auto least = end ? end.getDefiningOp<arith::MinSIOp>() : arith::MinSIOp();
  return least && (isAtMost(least.getLhs(), value) || isAtMost(least.getRhs(), value));
}

/// Whether a value is a multiple of `n`, or is no less than `end`.
static bool isMultipleOrEnd(Value value, int64_t n, Value end) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<arith::MaxSIOp, arith::MinSIOp, arith::SelectOp>(op))
    return llvm::all_of(op->getOperands().take_back(2),
                        [&](Value operand) { return isMultipleOrEnd(operand, n, end); });
  return isAtMost(end, value) || programs::isMultiple(value, n);
}

bool programs::isMultiple(Value value, int64_t n) {
  if (std::optional<int64_t> known = getConstantIntValue(value))
    return *known % n == 0;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    // A loop that starts at its end has no iteration.
    return loop && value == loop.getInductionVar() && isMultiple(loop.getStep(), n) &&
           isMultipleOrEnd(loop.getLowerBound(), n, loop.getUpperBound());
  }
  Operation *op = value.getDefiningOp();
  if (AffineMap map = getAffineMap(op))
    return llvm::all_of(map.getResults(), [&](AffineExpr expr) { return expr.isMultipleOf(n); });
  if (isa<arith::MaxSIOp, arith::MinSIOp, arith::SelectOp>(op))
    return isMultipleOrEnd(value, n, Value());
  if (isa<arith::AddIOp, arith::SubIOp>(op))
    return isMultiple(op->getOperand(0), n) && isMultiple(op->getOperand(1), n);
  if (isa<arith::MulIOp>(op))
    return isMultiple(op->getOperand(0), n) || isMultiple(op->getOperand(1), n);
  if (isa<arith::IndexCastOp>(op))
    return isMultiple(op->getOperand(0), n);
  return false;
}
