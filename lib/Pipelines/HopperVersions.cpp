// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "HopperVersions.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn;

void attn::mergeVersions(ModuleOp general, ModuleOp special, CreateCondition createCondition) {
  for (auto function : general.getOps<func::FuncOp>()) {
    auto other = special.lookupSymbol<func::FuncOp>(function.getName());
    auto find = [](gpu::LaunchOp) { return WalkResult::interrupt(); };
    if (!other || !function.walk(find).wasInterrupted())
      continue; // such as one that says how large the results are
    Block &body = function.front();
    OpBuilder b = OpBuilder::atBlockBegin(&body);
    Location loc = function.getLoc();
    Value condition = createCondition(b, function, other);
    if (!condition)
      continue;
    auto branch = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/true);
    auto moveTo = [](Block *target, Block &from, Block::iterator first) {
      target->getOperations().splice(target->getTerminator()->getIterator(), from.getOperations(),
                                     first, from.getTerminator()->getIterator());
    };
    moveTo(branch.elseBlock(), body, std::next(branch->getIterator()));
    for (auto [argument, old] : llvm::zip_equal(function.getArguments(), other.getArguments()))
      old.replaceAllUsesWith(argument);
    moveTo(branch.thenBlock(), other.front(), other.front().begin());
  }
}

Value attn::createIsShort(OpBuilder &b, func::FuncOp function, const StreamLength &length,
                          int64_t most) {
  Location loc = function.getLoc();
  Value size = memref::DimOp::create(b, loc, function.getArgument(length.argument), length.dim);
  Value limit = arith::ConstantIndexOp::create(b, loc, most);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, size, limit);
}

void attn::mergeByLength(ModuleOp many, ModuleOp few, const StreamLength &length, int64_t most) {
  mergeVersions(many, few, [&](OpBuilder &b, func::FuncOp function, func::FuncOp) {
    return createIsShort(b, function, length, most);
  });
}

/// Arguments of a function that TMA copies.
static llvm::SmallSetVector<unsigned, 8> findCopiedArguments(func::FuncOp function) {
  llvm::SmallSetVector<unsigned, 8> numbers;
  function.walk([&](hopper::TensorMapOp map) {
    Value root = memref::skipViewLikeOps(cast<MemrefValue>(map.getSource()));
    if (auto argument = dyn_cast<BlockArgument>(root))
      numbers.insert(argument.getArgNumber());
  });
  return numbers;
}

Value attn::createReaches(OpBuilder &b, func::FuncOp function, func::FuncOp copying,
                          func::FuncOp other) {
  auto always = findCopiedArguments(other);
  Value all;
  for (unsigned number : findCopiedArguments(copying)) {
    if (always.contains(number))
      continue;
    Value reaches =
        hopper::TmaReachesOp::create(b, function.getLoc(), function.getArgument(number));
    all = all ? arith::AndIOp::create(b, function.getLoc(), all, reaches) : reaches;
  }
  return all;
}

Value attn::createIsTooLarge(OpBuilder &b, func::FuncOp function, int64_t ctas) {
  Value grid;
  function.walk([&](gpu::LaunchOp launch) {
    if (launch->hasAttr(hopper::kCooperativeAttr))
      grid = launch.getGridSizeX();
  });
  if (!grid)
    return {};
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  if (failed(getBackwardSlice(grid, &slice, options)))
    return {};
  IRMapping mapping;
  for (Operation *op : slice)
    b.clone(*op, mapping);
  Value most = arith::ConstantIndexOp::create(b, function.getLoc(), ctas);
  return arith::CmpIOp::create(b, function.getLoc(), arith::CmpIPredicate::ugt,
                               mapping.lookupOrDefault(grid), most);
}
