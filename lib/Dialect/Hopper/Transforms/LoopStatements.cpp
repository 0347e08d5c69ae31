// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What one thread does of an affine nest: loops and accesses with computed indices.

#include "LoopLaunch.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IntegerSet.h"

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

SmallVector<Value> LoopLaunch::lookUp(ValueRange values) {
  return llvm::map_to_vector(values, [&](Value value) { return map.lookupOrDefault(value); });
}

SmallVector<Value> LoopLaunch::expand(AffineMap affineMap, ValueRange operands) {
  auto values = affine::expandAffineMap(b, b.getLoc(), affineMap, lookUp(operands));
  return SmallVector<Value>(values->begin(), values->end());
}

Value LoopLaunch::expandBound(AffineMap affineMap, ValueRange operands, bool greatest) {
  Value result;
  for (Value each : expand(affineMap, operands))
    result = !result    ? each
             : greatest ? Value(arith::MaxSIOp::create(b, result, each))
                        : Value(arith::MinSIOp::create(b, result, each));
  return result;
}

Value LoopLaunch::lowerBound(affine::AffineForOp loop) {
  return expandBound(loop.getLowerBoundMap(), loop.getLowerBoundOperands(), /*greatest=*/true);
}

Value LoopLaunch::countOf(affine::AffineForOp loop) {
  Value end =
      expandBound(loop.getUpperBoundMap(), loop.getUpperBoundOperands(), /*greatest=*/false);
  Value length = arith::SubIOp::create(b, end, lowerBound(loop));
  Value count = arith::CeilDivSIOp::create(b, length, index(loop.getStepAsInt()));
  return arith::MaxSIOp::create(b, count, index(0));
}

Value LoopLaunch::variableOf(affine::AffineForOp loop, Value n) {
  return add(lowerBound(loop), mul(n, index(loop.getStepAsInt())));
}

Value LoopLaunch::emitCondition(affine::AffineIfOp op) {
  IntegerSet set = op.getIntegerSet();
  SmallVector<Value> operands = lookUp(op.getOperands());
  ValueRange all = operands;
  Value holds = arith::ConstantIntOp::create(b, 1, 1), zero = index(0);
  for (unsigned n = 0; n < set.getNumConstraints(); ++n) {
    Value value = affine::expandAffineExpr(b, b.getLoc(), set.getConstraint(n),
                                           all.take_front(set.getNumDims()),
                                           all.drop_front(set.getNumDims()));
    auto predicate = set.isEq(n) ? arith::CmpIPredicate::eq : arith::CmpIPredicate::sge;
    Value is = arith::CmpIOp::create(b, predicate, value, zero);
    holds = n ? Value(arith::AndIOp::create(b, holds, is)) : is;
  }
  return holds;
}

void LoopLaunch::emitLoop(Value first, Value end, Value step, function_ref<void(Value)> emit) {
  auto loop = scf::ForOp::create(b, first, end, step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  emit(loop.getInductionVar());
}

void LoopLaunch::emitIf(Value condition, function_ref<void()> emit) {
  auto branch = scf::IfOp::create(b, condition);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  emit();
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

LogicalResult LoopLaunch::cloneOps(Block &block) {
  for (Operation &op : block.without_terminator())
    if (failed(cloneOp(&op)))
      return failure();
  return success();
}

LogicalResult LoopLaunch::cloneOp(Operation *op) {
  b.setLoc(op->getLoc());
  if (auto loop = dyn_cast<affine::AffineForOp>(op))
    return cloneLoop(loop, [&](Block &block) { return cloneOps(block); });
  if (auto branch = dyn_cast<affine::AffineIfOp>(op))
    return cloneIf(branch, [&](Block &block) { return cloneOps(block); });
  if (isa<affine::AffineReadOpInterface, affine::AffineWriteOpInterface>(op))
    return cloneAccess(op), success();
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op)) {
    map.map(apply.getResult(), expand(apply.getAffineMap(), apply.getMapOperands()).front());
    return success();
  }
  if (isa<affine::AffineMinOp, affine::AffineMaxOp>(op)) {
    AffineMap bound = isa<affine::AffineMinOp>(op) ? cast<affine::AffineMinOp>(op).getMap()
                                                   : cast<affine::AffineMaxOp>(op).getMap();
    map.map(op->getResult(0),
            expandBound(bound, op->getOperands(), /*greatest=*/isa<affine::AffineMaxOp>(op)));
    return success();
  }
  if (op->getNumRegions() > 0 || !isMemoryEffectFree(op))
    return op->emitError() << "'" << op->getName() << "' has no place in a launch of threads: "
                           << "expected affine loops, conditions and accesses, and computations";
  b.clone(*op, map);
  return success();
}

LogicalResult LoopLaunch::cloneLoop(affine::AffineForOp loop,
                                    function_ref<LogicalResult(Block &)> cloneBlock) {
  auto clone = scf::ForOp::create(b, index(0), countOf(loop), index(1), lookUp(loop.getInits()));
  OpBuilder::InsertionGuard guard(b);
  if (loop.getNumIterOperands() == 0)
    clone.getBody()->getTerminator()->erase();
  b.setInsertionPointToEnd(clone.getBody());
  map.map(loop.getInductionVar(), variableOf(loop, clone.getInductionVar()));
  map.map(loop.getRegionIterArgs(), clone.getRegionIterArgs());
  if (failed(cloneBlock(*loop.getBody())))
    return failure();
  scf::YieldOp::create(b, lookUp(loop.getYieldedValues()));
  map.map(loop.getResults(), clone.getResults());
  return success();
}

LogicalResult LoopLaunch::cloneIf(affine::AffineIfOp op,
                                  function_ref<LogicalResult(Block &)> cloneBlock) {
  auto branch = scf::IfOp::create(b, op->getResultTypes(), emitCondition(op), /*addThenBlock=*/true,
                                  /*addElseBlock=*/op.hasElse() || op->getNumResults() > 0);
  auto fill = [&](Block &from, Block *to) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(to);
    if (failed(cloneBlock(from)))
      return failure();
    scf::YieldOp::create(b, lookUp(from.getTerminator()->getOperands()));
    return success();
  };
  if (failed(fill(*op.getThenBlock(), branch.thenBlock())) ||
      (op.hasElse() && failed(fill(*op.getElseBlock(), branch.elseBlock()))))
    return failure();
  map.map(op->getResults(), branch.getResults());
  return success();
}

void LoopLaunch::cloneAccess(Operation *op) {
  auto found = placed.find(op);
  if (auto read = dyn_cast<affine::AffineReadOpInterface>(op)) {
    Value result;
    if (found != placed.end()) {
      result = loadPlaced(found->second);
    } else {
      Value memref = map.lookupOrDefault(read.getMemRef());
      SmallVector<Value> indices = expand(read.getAffineMap(), read.getMapOperands());
      result = isa<affine::AffineLoadOp>(op)
                   ? Value(memref::LoadOp::create(b, memref, indices))
                   : Value(vector::LoadOp::create(b, op->getResult(0).getType(), memref, indices));
    }
    map.map(op->getResult(0), result);
    return;
  }
  auto write = cast<affine::AffineWriteOpInterface>(op);
  Value value = map.lookupOrDefault(write.getValueToStore());
  if (found != placed.end())
    return storePlaced(found->second, value);
  Value memref = map.lookupOrDefault(write.getMemRef());
  SmallVector<Value> indices = expand(write.getAffineMap(), write.getMapOperands());
  if (isa<affine::AffineStoreOp>(op))
    memref::StoreOp::create(b, value, memref, indices);
  else
    vector::StoreOp::create(b, value, memref, indices);
}

//===----------------------------------------------------------------------===//
// Running values
//===----------------------------------------------------------------------===//

Value LoopLaunch::elementOf(const Place &place) {
  Value element = place.base;
  Value stride = index(1);
  for (affine::AffineForOp loop : llvm::reverse(place.partial->dims)) {
    Value variable = map.lookup(loop.getInductionVar());
    Value n = arith::DivSIOp::create(b, Value(arith::SubIOp::create(b, variable, lowerBound(loop))),
                                     index(loop.getStepAsInt()));
    element = add(element, mul(n, stride));
    stride = mul(stride, countOf(loop));
  }
  return element;
}

Value LoopLaunch::loadPlaced(const Place &place) {
  if (!place.base)
    return memref::LoadOp::create(b, place.memory, ValueRange());
  return memref::LoadOp::create(b, place.memory, ValueRange{elementOf(place)});
}

void LoopLaunch::storePlaced(const Place &place, Value value) {
  if (!place.base)
    memref::StoreOp::create(b, value, place.memory, ValueRange());
  else
    memref::StoreOp::create(b, value, place.memory, ValueRange{elementOf(place)});
}

Value LoopLaunch::elementsOf(const Partial &partial) {
  Value elements = index(1);
  for (affine::AffineForOp loop : partial.dims)
    elements = mul(elements, countOf(loop));
  return elements;
}

void LoopLaunch::setDims(const Partial &partial, Value element) {
  for (affine::AffineForOp loop : llvm::reverse(partial.dims)) {
    Value count = countOf(loop);
    map.map(loop.getInductionVar(), variableOf(loop, arith::RemUIOp::create(b, element, count)));
    element = arith::DivUIOp::create(b, element, count);
  }
}
