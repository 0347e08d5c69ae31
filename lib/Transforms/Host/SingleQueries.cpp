// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-specialize-single-queries: versions of a function for calls with one query.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Transforms/Host/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_ATTNSPECIALIZESINGLEQUERIES
#include "attn/Transforms/Host/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static Done numVersions("attn-specialize-single-queries", "versions",
                        "Versions of functions for one query");

/// The dimensions of heads and of queries, of (batch, heads, length, head dimension).
static constexpr int64_t kHeads = 1, kLength = 2;

static RankedTensorType getType(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The operands with a row for each query.
static SmallVector<OpOperand *> getRowOperands(Operation *op) {
  if (auto forward = dyn_cast<ForwardOp>(op))
    return {&forward.getQueryMutable()};
  auto backward = cast<BackwardOp>(op);
  SmallVector<OpOperand *> operands = {&backward.getOutputGradientMutable(),
                                       &backward.getQueryMutable(), &backward.getOutputMutable(),
                                       &backward.getLseMutable()};
  for (OpOperand &operand : backward.getLseGradientMutable())
    operands.push_back(&operand);
  return operands;
}

static SmallVector<Value> getRowResults(Operation *op) {
  if (auto forward = dyn_cast<ForwardOp>(op))
    return {forward.getOutput(), forward.getLse()};
  return {cast<BackwardOp>(op).getQueryGradient()};
}

static Value getQuery(Operation *op) {
  if (auto forward = dyn_cast<ForwardOp>(op))
    return forward.getQuery();
  return cast<BackwardOp>(op).getQuery();
}

static Value getKey(Operation *op) {
  if (auto forward = dyn_cast<ForwardOp>(op))
    return forward.getKey();
  return cast<BackwardOp>(op).getKey();
}

/// A type with one query.
static RankedTensorType narrow(RankedTensorType type) {
  SmallVector<int64_t> shape(type.getShape());
  shape[kLength] = 1;
  return RankedTensorType::get(shape, type.getElementType());
}

namespace {
struct SingleQueriesPass : attn::impl::AttnSpecializeSingleQueriesBase<SingleQueriesPass> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      if (!function.isDeclaration() && function.getBody().hasOneBlock())
        specialize(function, symbols);
  }

  void specialize(func::FuncOp function, SymbolTable &symbols) {
    // Conditions of one query, and of no groups.
    llvm::SetVector<Attribute> single, ungrouped;
    bool mayHaveGroups = false, hasGroups = false, isOpen = true, hasOps = false;
    MLIRContext *context = &getContext();
    function.walk([&](Operation *op) {
      if (!isa<ForwardOp, BackwardOp>(op))
        return;
      hasOps = true;
      auto query = dyn_cast<BlockArgument>(getQuery(op));
      int64_t length = getType(getQuery(op)).getDimSize(kLength);
      if (!query || query.getOwner() != &function.front() ||
          !((openLengths && ShapedType::isDynamic(length)) || length == 1)) {
        isOpen = false;
        return;
      }
      if (length != 1)
        single.insert(SizeConditionAttr::get(context, query.getArgNumber(), kLength,
                                             SizeRelation::Exactly, 1));
      Value key = getKey(op);
      int64_t heads = getType(query).getDimSize(kHeads), keyHeads = getType(key).getDimSize(kHeads);
      bool isKnown = !ShapedType::isDynamic(heads) && !ShapedType::isDynamic(keyHeads);
      if (isKnown && heads == keyHeads)
        return;
      mayHaveGroups = true;
      if (isKnown) {
        hasGroups = true;
        return;
      }
      auto argument = dyn_cast<BlockArgument>(key);
      if (argument && argument.getOwner() == &function.front())
        ungrouped.insert(OrderedSizesConditionAttr::get(context, kHeads, query.getArgNumber(),
                                                        argument.getArgNumber()));
      else
        isOpen = false;
    });
    if (!hasOps || !isOpen)
      return;
    auto add = [&](ArrayRef<Attribute> more, bool isUngrouped) {
      SmallVector<Attribute> conditions(single.getArrayRef());
      llvm::append_range(conditions, more);
      func::FuncOp version = function.clone();
      symbols.insert(version, std::next(function->getIterator()));
      version->setAttr(kVersionOfAttr, function.getSymNameAttr());
      version->setAttr(kWhenAttr, ArrayAttr::get(context, conditions));
      version.walk([&](Operation *op) {
        if (isa<ForwardOp, BackwardOp>(op))
          takeOneQuery(op, isUngrouped);
      });
      numVersions.at(function) << remark::metric("Conditions", conditions.size());
    };
    // Each goes in front of those before it: the first to be asked is the last one here.
    if (!single.empty() && mayHaveGroups)
      add({}, /*isUngrouped=*/false);
    if (!hasGroups && (!single.empty() || mayHaveGroups))
      add(ungrouped.getArrayRef(), /*isUngrouped=*/true);
  }

  static void takeOneQuery(Operation *op, bool isUngrouped) {
    if (auto forward = dyn_cast<ForwardOp>(op))
      forward.setUngrouped(isUngrouped);
    else
      cast<BackwardOp>(op).setUngrouped(isUngrouped);
    OpBuilder b(op);
    for (OpOperand *operand : getRowOperands(op))
      if (getType(operand->get()).isDynamicDim(kLength))
        operand->set(tensor::CastOp::create(b, op->getLoc(), narrow(getType(operand->get())),
                                            operand->get()));
    b.setInsertionPointAfter(op);
    for (Value result : getRowResults(op)) {
      if (!result) // a log-sum-exp that nobody wants
        continue;
      RankedTensorType type = getType(result);
      if (!type.isDynamicDim(kLength))
        continue;
      result.setType(narrow(type));
      auto cast = tensor::CastOp::create(b, op->getLoc(), type, result);
      result.replaceAllUsesExcept(cast, cast);
    }
  }
};
} // namespace
