// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CarriedValues.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn::hopper;

CarriedValues::CarriedValues(gpu::GPUFuncOp function) {
  findNarrow(function);
  findPartialSums(function);
}

//===----------------------------------------------------------------------===//
// Narrow indices
//===----------------------------------------------------------------------===//

/// Whether `op` takes `value` as the number of a ring's tile or barrier.
static bool usesAsRingIndex(Operation *op, Value value) {
  if (auto slot = dyn_cast<SlotOp>(op))
    return slot.getIndex() == value;
  if (auto expect = dyn_cast<MBarrierExpectOp>(op))
    return expect.getIndex() == value;
  if (auto arrive = dyn_cast<MBarrierArriveOp>(op))
    return arrive.getIndex() == value;
  if (auto wait = dyn_cast<MBarrierWaitOp>(op))
    return wait.getIndex() == value;
  return false;
}

/// Whether every iteration uses the argument as an index into a ring.
static bool isRingIndex(BlockArgument argument) {
  return llvm::any_of(argument.getUsers(), [&](Operation *user) {
    return user->getBlock() == argument.getOwner() && usesAsRingIndex(user, argument);
  });
}

/// Whether a value is far below 2^31. A sum is (`grown`) only if its terms are
/// constants and indices into rings, which start small in each iteration; what is
/// only passed on may be any narrow value.
bool CarriedValues::isSmall(Value value, bool grown, unsigned depth) const {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return constant.abs().ult(1 << 20);
  if (depth == 0)
    return false;
  if (auto argument = dyn_cast<BlockArgument>(value))
    return narrow.contains(value) && (!grown || isRingIndex(argument));
  Operation *op = value.getDefiningOp();
  if (!value.getType().isIndex())
    return false;
  if (isa<arith::AddIOp, arith::SubIOp>(op))
    return isSmall(op->getOperand(0), true, depth - 1) &&
           isSmall(op->getOperand(1), true, depth - 1);
  if (auto select = dyn_cast<arith::SelectOp>(op))
    return isSmall(select.getTrueValue(), grown, depth - 1) &&
           isSmall(select.getFalseValue(), grown, depth - 1);
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    unsigned number = cast<OpResult>(value).getResultNumber();
    return isSmall(branch.thenYield().getOperand(number), grown, depth - 1) &&
           isSmall(branch.elseYield().getOperand(number), grown, depth - 1);
  }
  return !grown && narrow.contains(value);
}

void CarriedValues::findNarrow(gpu::GPUFuncOp function) {
  // All are, until it is found that they are not.
  function.walk([&](scf::ForOp loop) {
    for (auto [argument, result] : llvm::zip_equal(loop.getRegionIterArgs(), loop.getResults()))
      if (argument.getType().isIndex())
        narrow.insert_range(ArrayRef<Value>{argument, result});
  });
  bool changed = true;
  while (changed) {
    changed = false;
    function.walk([&](scf::ForOp loop) {
      for (auto [argument, init, yielded, result] :
           llvm::zip_equal(loop.getRegionIterArgs(), loop.getInitArgs(), loop.getYieldedValues(),
                           loop.getResults())) {
        if (!narrow.contains(argument) || (isSmall(init) && isSmall(yielded)))
          continue;
        narrow.erase(argument);
        narrow.erase(result);
        changed = true;
      }
    });
  }
}

//===----------------------------------------------------------------------===//
// Partial sums
//===----------------------------------------------------------------------===//

/// The reductions between an iteration argument and its yield, if nothing else
/// uses what is between; products with other values may lie between them too.
static SmallVector<Operation *> findSumChain(scf::ForOp loop, BlockArgument argument) {
  SmallVector<Operation *> reductions;
  Value value = argument;
  while (value.hasOneUse()) {
    OpOperand &use = *value.getUses().begin();
    Operation *user = use.getOwner();
    if (user->getBlock() != loop.getBody())
      return {};
    if (isa<scf::YieldOp>(user))
      return loop.getTiedLoopYieldedValue(argument) == &use ? reductions
                                                            : SmallVector<Operation *>();
    auto reduction = dyn_cast<vector::MultiDimReductionOp>(user);
    if (reduction && reduction.getKind() == vector::CombiningKind::ADD &&
        reduction.getReductionDims() == ArrayRef<int64_t>{1} && reduction.getAcc() == value)
      reductions.push_back(user);
    else if (!isa<arith::MulFOp>(user))
      return {};
    value = user->getResult(0);
  }
  return {};
}

void CarriedValues::findPartialSums(gpu::GPUFuncOp function) {
  function.walk([&](scf::ForOp loop) {
    for (BlockArgument argument : loop.getRegionIterArgs()) {
      auto type = dyn_cast<VectorType>(argument.getType());
      if (!type || type.getRank() != 1 || !type.getElementType().isF32())
        continue;
      SmallVector<Operation *> reductions = findSumChain(loop, argument);
      if (reductions.empty())
        continue;
      partialReductions.insert_range(reductions);
      partialSums.insert_range(ArrayRef<Value>{argument, loop.getTiedLoopResult(argument)});
    }
  });
}
