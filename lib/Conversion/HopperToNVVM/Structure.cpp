// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loops and branches carry the parts of tiles; roles become branches over the
// warpgroup's number.

#include "Lowering.h"

using namespace mlir;
using namespace attn::hopper;

/// One lane of each row starts with the sum, the others with 0.
void KernelLowering::splitPartialSum(MutableArrayRef<Value> inits) {
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, firstColumn, constantIndex(0));
  for (Value &init : inits)
    init = arith::SelectOp::create(b, isFirst, init, constantF32(0.0));
}

void KernelLowering::joinPartialSum(Value result) {
  if (result.use_empty())
    return;
  Parts sums;
  for (Value sum : parts(result, Layout::Rows).values)
    sums.values.push_back(reduceLanes(vector::CombiningKind::ADD, sum, kLanesOfRow));
  setParts(result, Layout::Rows, std::move(sums));
}

LogicalResult KernelLowering::lowerFor(scf::ForOp op) {
  SmallVector<Value> inits;
  for (auto [init, argument] : llvm::zip_equal(op.getInitArgs(), op.getRegionIterArgs())) {
    flattenAs(init, argument, inits);
    if (carried.partialSums.contains(argument))
      splitPartialSum(MutableArrayRef(inits).take_back(size_t(registers.rows)));
  }
  auto loop = scf::ForOp::create(b, scalar(op.getLowerBound()), scalar(op.getUpperBound()),
                                 scalar(op.getStep()), inits);
  loop.setUnsignedCmp(op.getUnsignedCmp());
  setScalar(op.getInductionVar(), loop.getInductionVar());
  ValueRange arguments = loop.getRegionIterArgs(), results = loop.getResults();
  {
    OpBuilder::InsertionGuard guard(b);
    if (inits.empty())
      loop.getBody()->getTerminator()->erase();
    b.setInsertionPointToEnd(loop.getBody());
    for (Value argument : op.getRegionIterArgs())
      bind(argument, arguments);
    if (failed(lowerBlock(*op.getBody())))
      return failure();
    SmallVector<Value> yielded;
    for (auto [value, argument] : llvm::zip_equal(op.getYieldedValues(), op.getRegionIterArgs()))
      flattenAs(value, argument, yielded);
    scf::YieldOp::create(b, op.getLoc(), yielded);
  }
  for (Value result : op.getResults()) {
    bind(result, results);
    if (carried.partialSums.contains(result))
      joinPartialSum(result);
  }
  return success();
}

LogicalResult KernelLowering::lowerIf(scf::IfOp op) {
  SmallVector<Type> types;
  for (Value result : op.getResults())
    flattenTypes(result, types);
  auto branch = scf::IfOp::create(b, types, scalar(op.getCondition()), /*addThenBlock=*/true,
                                  /*addElseBlock=*/!op.getElseRegion().empty());
  auto fill = [&](Region &from, Block *to) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(to);
    if (failed(lowerBlock(from.front())))
      return failure();
    SmallVector<Value> yielded;
    for (auto [value, result] :
         llvm::zip_equal(from.front().getTerminator()->getOperands(), op.getResults()))
      flattenAs(value, result, yielded);
    scf::YieldOp::create(b, op.getLoc(), yielded);
    return success();
  };
  if (failed(fill(op.getThenRegion(), branch.thenBlock())) ||
      (branch.elseBlock() && failed(fill(op.getElseRegion(), branch.elseBlock()))))
    return failure();
  ValueRange results = branch.getResults();
  for (Value result : op.getResults())
    bind(result, results);
  return success();
}

LogicalResult KernelLowering::lowerWhile(scf::WhileOp op) {
  SmallVector<Value> inits;
  SmallVector<Type> types;
  for (auto [init, argument] : llvm::zip_equal(op.getInits(), op.getBeforeArguments()))
    flattenAs(init, argument, inits);
  for (Value result : op.getResults())
    flattenTypes(result, types);
  auto loop = scf::WhileOp::create(b, types, inits);
  SmallVector<Location> initLocs(inits.size(), op.getLoc()), locs(types.size(), op.getLoc());
  OpBuilder::InsertionGuard guard(b);
  Block *before = b.createBlock(&loop.getBefore(), {}, ValueRange(inits).getTypes(), initLocs);
  ValueRange arguments = before->getArguments();
  for (Value argument : op.getBeforeArguments())
    bind(argument, arguments);
  if (failed(lowerBlock(*op.getBeforeBody())))
    return failure();
  SmallVector<Value> passed, yielded;
  scf::ConditionOp condition = op.getConditionOp();
  for (auto [value, argument] : llvm::zip_equal(condition.getArgs(), op.getAfterArguments()))
    flattenAs(value, argument, passed);
  scf::ConditionOp::create(b, op.getLoc(), scalar(condition.getCondition()), passed);
  Block *after = b.createBlock(&loop.getAfter(), {}, types, locs);
  arguments = after->getArguments();
  for (Value argument : op.getAfterArguments())
    bind(argument, arguments);
  if (failed(lowerBlock(*op.getAfterBody())))
    return failure();
  for (auto [value, argument] :
       llvm::zip_equal(op.getYieldOp().getOperands(), op.getBeforeArguments()))
    flattenAs(value, argument, yielded);
  scf::YieldOp::create(b, op.getLoc(), yielded);
  ValueRange results = loop.getResults();
  for (Value result : op.getResults())
    bind(result, results);
  return success();
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

LogicalResult KernelLowering::lowerRole(RolesOp op, unsigned role, int64_t firstWarpgroup) {
  int64_t occupancy = op.getOccupancy();
  int64_t initial = getInitialRegisters(op.getNumWarpgroups(), occupancy);
  // With one role there is nobody to share with: ptxas takes what it needs, and more CTAs than
  // asked for may share a multiprocessor. Nor do products of warps need registers of others.
  if (op.getBodies().size() > 1 || (occupancy > 1 && !multipliesByWarps))
    function->setAttr(kOccupancyAttr, b.getI64IntegerAttr(occupancy));
  int64_t registers = op.getRegisters()[role];
  if (op.getBodies().size() > 1 && registers != initial)
    NVVM::SetMaxRegisterOp::create(b, registers,
                                   registers > initial ? NVVM::SetMaxRegisterAction::increase
                                                       : NVVM::SetMaxRegisterAction::decrease);
  unsigned end = role + 1;
  while (end < op.getBodies().size() && op.getWarpgroups()[end] == 0)
    ++end;
  for (unsigned own = role; own < end; ++own)
    setScalar(
        op.getBodies()[own].getArgument(0),
        arith::IndexCastUIOp::create(b, b.getIndexType(), addI32(warpgroup, -firstWarpgroup)));
  Region &body = op.getBodies()[role];
  if (end == role + 1 && !isSingleThreaded(body))
    return lowerBlock(body.front());
  for (unsigned own = role; own < end; ++own)
    if (failed(lowerThread(op, own, /*ofWarp=*/own - role)))
      return failure();
  return success();
}

/// A role of one thread, in a warp of its own.
LogicalResult KernelLowering::lowerThread(RolesOp op, unsigned role, int64_t ofWarp) {
  Region &body = op.getBodies()[role];
  if (!isSingleThreaded(body))
    return op.emitOpError() << "role " << op.getNames()[role]
                            << " shares a warpgroup, and needs more than one thread";
  OpBuilder::InsertionGuard guard(b);
  auto branch = scf::IfOp::create(
      b, arith::CmpIOp::create(b, arith::CmpIPredicate::eq, warp, constantI32(ofWarp)));
  b.setInsertionPointToStart(branch.thenBlock());
  Value elected = NVVM::ElectSyncOp::create(b, b.getI1Type(), Value());
  auto alone = scf::IfOp::create(b, elected);
  b.setInsertionPointToStart(alone.thenBlock());
  singleThread = true;
  LogicalResult result = lowerBlock(body.front());
  singleThread = false;
  return result;
}

LogicalResult KernelLowering::lowerRoles(RolesOp op) {
  int64_t first = 0;
  unsigned count = op.getBodies().size();
  OpBuilder::InsertionGuard guard(b);
  for (unsigned role = 0; role < count; ++role) {
    int64_t end = first + op.getWarpgroups()[role];
    if (end == first)
      continue; // with the role before
    b.setLoc(op.getLoc());
    Block *otherwise = nullptr;
    if (end < op.getNumWarpgroups()) {
      Value mine = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, warpgroup, constantI32(end));
      auto branch = scf::IfOp::create(b, TypeRange(), mine, /*withElseRegion=*/true);
      b.setInsertionPointToStart(branch.thenBlock());
      otherwise = branch.elseBlock();
    }
    if (failed(lowerRole(op, role, first)))
      return failure();
    if (otherwise)
      b.setInsertionPointToStart(otherwise);
    first = end;
  }
  return success();
}
