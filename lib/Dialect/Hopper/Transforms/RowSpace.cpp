// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See RowSpace.h. Loops of two statements are one dimension where they index the same dimension
// of the same memory.

#include "RowSpace.h"
#include "attn/Utils/Memory.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

LogicalResult RowSpace::build(func::FuncOp function) {
  if (failed(collect(function)) || failed(unite()) || failed(findColumns()))
    return failure();
  for (RowStatement &statement : statements)
    if (failed(checkStatement(statement)))
      return failure();
  if (failed(checkOthers(function)) || failed(findUses()))
    return failure();
  findCosts();
  return success();
}

LogicalResult RowSpace::collect(func::FuncOp function) {
  if (!function.getBody().hasOneBlock())
    return function.emitOpError("expected structured control flow");
  for (Operation &op : function.front()) {
    auto statement = dyn_cast<linalg::LinalgOp>(op);
    if (!statement)
      continue;
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic || !generic.hasPureBufferSemantics())
      return op.emitOpError("expected a linalg.generic on memrefs");
    generics.push_back(generic);
  }
  if (generics.empty())
    return function.emitOpError("has no statements");
  return success();
}

LogicalResult RowSpace::unite() {
  // Numbers: dimensions of memory, then loops.
  llvm::DenseMap<Value, unsigned> first;
  unsigned count = 0;
  auto numberOf = [&](Value memref) {
    auto [it, isNew] = first.try_emplace(memref, count);
    if (isNew)
      count += unsigned(cast<MemRefType>(memref.getType()).getRank());
    return it->second;
  };
  for (linalg::GenericOp op : generics)
    for (Value operand : op->getOperands())
      if (isa<MemRefType>(operand.getType()))
        numberOf(operand);
  SmallVector<unsigned> loops;
  for (linalg::GenericOp op : generics) {
    loops.push_back(count);
    count += op.getNumLoops();
  }
  llvm::IntEqClasses classes(count);
  for (auto [op, loop] : llvm::zip_equal(generics, loops))
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<MemRefType>(operand.get().getType()))
        continue;
      AffineMap map = op.getMatchingIndexingMap(&operand);
      if (!map.isProjectedPermutation(/*allowZeroInResults=*/true))
        return op.emitOpError("expected operands that are indexed by loops, got ")
               << AffineMapAttr::get(map);
      for (auto [dim, result] : llvm::enumerate(map.getResults()))
        if (auto expr = dyn_cast<AffineDimExpr>(result))
          classes.join(numberOf(operand.get()) + unsigned(dim), loop + expr.getPosition());
    }
  classes.compress();
  for (auto [op, loop] : llvm::zip_equal(generics, loops)) {
    RowStatement &statement = statements.emplace_back();
    statement.op = op;
    for (unsigned number = 0; number < op.getNumLoops(); ++number)
      statement.loops.push_back(classes[loop + number]);
    llvm::SmallSet<Dim, 4> distinct(statement.loops.begin(), statement.loops.end());
    if (distinct.size() != statement.loops.size())
      return op.emitOpError("has two loops that are one elsewhere: a row would meet itself");
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<MemRefType>(operand.get().getType()))
        continue;
      SmallVector<std::optional<Dim>> dims;
      for (AffineExpr result : op.getMatchingIndexingMap(&operand).getResults()) {
        auto expr = dyn_cast<AffineDimExpr>(result);
        dims.push_back(expr ? std::optional(statement.loops[expr.getPosition()]) : std::nullopt);
      }
      auto [it, isNew] = memory.try_emplace(operand.get());
      if (!isNew && it->second.dims != dims)
        return op.emitOpError("indexes memory differently than another statement does");
      it->second.dims = dims;
    }
  }
  return success();
}

/// The one dimension that statements reduce; all others are rows, in the order of the first
/// statement that has them all.
LogicalResult RowSpace::findColumns() {
  std::optional<Dim> reduced;
  for (const RowStatement &statement : statements) {
    SmallVector<unsigned> dims;
    const_cast<linalg::GenericOp &>(statement.op).getReductionDims(dims);
    for (unsigned loop : dims) {
      Dim dim = statement.loops[loop];
      if (reduced && *reduced != dim)
        return const_cast<linalg::GenericOp &>(statement.op)
            .emitOpError("reduces another loop than the elements of a row");
      reduced = dim;
    }
  }
  if (!reduced)
    return generics.front().emitOpError("is of a function that reduces nothing");
  columns = *reduced;
  llvm::SetVector<Dim> others;
  for (const RowStatement &statement : statements)
    if (llvm::is_contained(statement.loops, columns))
      for (Dim dim : statement.loops)
        if (dim != columns)
          others.insert(dim);
  rows.assign(others.begin(), others.end());
  for (auto &[value, each] : memory)
    each.hasColumns = llvm::is_contained(each.dims, std::optional(columns));
  return success();
}

LogicalResult RowSpace::checkStatement(RowStatement &statement) {
  linalg::GenericOp op = statement.op;
  statement.hasColumns = llvm::is_contained(statement.loops, columns);
  if (op.getNumDpsInits() != 1)
    return op.emitOpError("expected one result");
  for (Dim dim : statement.loops)
    if (dim != columns && !llvm::is_contained(rows, dim))
      return op.emitOpError("has a loop that is none of a row's");
  if (op.getNumReductionLoops() > 0) {
    statement.reduction = matchReduction(op, 0);
    Type element = cast<MemRefType>(op.getOutputs()[0].getType()).getElementType();
    if (!statement.reduction || !element.isF32())
      return op.emitOpError("expected a sum, a product, a maximum or a minimum in f32");
  }
  for (Value operand : op->getOperands())
    if (getElementTypeOrSelf(operand.getType()).isF64())
      return op.emitOpError("has f64: rows are held in f32");
  for (OpOperand *input : op.getDpsInputOperands())
    if (auto it = memory.find(input->get());
        it != memory.end() && op.payloadUsesValueFromOperand(input))
      it->second.isRead |= !it->second.isWritten;
  RowMemory &out = memory.find(op.getOutputs()[0])->second;
  out.isRead |= !out.isWritten && op.payloadUsesValueFromOperand(op.getDpsInitOperand(0));
  out.isWritten = true;
  return success();
}

/// What stands between statements must not see what they write.
LogicalResult RowSpace::checkOthers(func::FuncOp function) {
  for (auto &[value, each] : memory) {
    if (Operation *view = value.getDefiningOp(); view && isView(view))
      return view->emitOpError("is a view: whether statements meet in its memory is not known");
    if (!each.isWritten)
      continue;
    for (Operation *access : collectAccesses(value))
      if (!isa<linalg::GenericOp, memref::DeallocOp>(access))
        return access->emitOpError("accesses memory that statements of rows write");
  }
  for (Operation &op : function.front().without_terminator())
    if (!isa<linalg::GenericOp, memref::AllocOp, memref::DeallocOp, memref::LoadOp>(op) &&
        !isMemoryEffectFree(&op))
      return op.emitOpError("stands between statements of rows");
  return success();
}

LogicalResult RowSpace::findUses() {
  llvm::DenseMap<Value, unsigned> level;
  for (RowStatement &statement : statements) {
    linalg::GenericOp op = statement.op;
    for (OpOperand &operand : op->getOpOperands())
      if (op.payloadUsesValueFromOperand(&operand))
        statement.level = std::max(statement.level, level.lookup(operand.get()));
    Value out = op.getOutputs()[0];
    level[out] = std::max(level[out], statement.level + (statement.reduction ? 1 : 0));
    levels = std::max(levels, level[out]);
    RowMemory &written = memory.find(out)->second;
    // An allocation that only statements use is never memory.
    written.isKept = !out.getDefiningOp<memref::AllocOp>();
    bool isOfEachRow = llvm::all_of(
        rows, [&](Dim dim) { return llvm::is_contained(written.dims, std::optional(dim)); });
    if (written.isKept && !isOfEachRow)
      return op.emitOpError("has a result that rows share");
    if (written.isKept && written.isRead && !written.hasColumns)
      return op.emitOpError("writes memory of rows that threads of the same row read");
  }
  return success();
}

/// About how many instructions an op is.
static int64_t findCost(Operation *op) {
  constexpr int64_t kFunction = 8, kQuotient = 4, kMuch = 1000;
  if (isa<memref::LoadOp>(op))
    return kMuch;
  if (isa<math::ExpOp, math::Exp2Op>(op))
    return 2;
  if (op->getDialect() && op->getDialect()->getNamespace() == "math")
    return kFunction;
  if (isa<arith::DivFOp, arith::DivSIOp, arith::DivUIOp, arith::RemFOp, arith::RemSIOp,
          arith::RemUIOp>(op))
    return kQuotient;
  return isa<arith::ConstantOp, linalg::IndexOp>(op) ? 0 : 1;
}

void RowSpace::findCosts() {
  constexpr int64_t kMost = 12;
  llvm::DenseMap<Value, int64_t> costs; // of an element of memory with columns
  for (RowStatement &statement : statements) {
    if (!statement.hasColumns || statement.reduction)
      continue;
    linalg::GenericOp op = statement.op;
    int64_t cost = 0;
    for (OpOperand &operand : op->getOpOperands())
      if (op.payloadUsesValueFromOperand(&operand))
        cost += costs.lookup(operand.get());
    for (Operation &inner : op.getBody()->without_terminator())
      cost += findCost(&inner);
    costs[op.getOutputs()[0]] = cost;
    statement.isCheap = cost <= kMost;
    isCheap &= statement.isCheap;
  }
}

std::pair<Value, int64_t> RowSpace::findExtent(Dim dim) const {
  std::pair<Value, int64_t> found;
  for (auto &[value, each] : memory)
    for (auto [position, own] : llvm::enumerate(each.dims))
      if (own == dim && (!found.first || isa<BlockArgument>(value)))
        if (!found.first || !isa<BlockArgument>(found.first))
          found = {value, int64_t(position)};
  return found;
}
