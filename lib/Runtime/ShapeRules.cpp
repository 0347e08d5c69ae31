// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Classes of equal sizes, by union and find. See ShapeRules.h.

#include "attn/Runtime/ShapeRules.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/OpDefinition.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;

ShapeRules::ShapeRules(func::FuncOp function) : function(function) {
  function.getBody().walk([&](Operation *op) {
    // Only ops on whole tensors: what regions compute is on elements or blocks.
    if (op->getParentOp() == function)
      addRules(op);
  });
}

unsigned ShapeRules::node(Value tensor, unsigned dim) {
  auto [it, inserted] = nodes.try_emplace({tensor, dim}, parents.size());
  if (inserted)
    parents.push_back(it->second);
  return it->second;
}

unsigned ShapeRules::root(unsigned node) {
  while (parents[node] != node)
    node = parents[node] = parents[parents[node]];
  return node;
}

void ShapeRules::join(Value a, unsigned aDim, Value b, unsigned bDim) {
  unsigned first = root(node(a, aDim)), second = root(node(b, bDim));
  parents[second] = first;
}

void ShapeRules::joinShapes(Value a, Value b) {
  auto aType = dyn_cast<RankedTensorType>(a.getType());
  auto bType = dyn_cast<RankedTensorType>(b.getType());
  if (aType && bType && aType.getRank() == bType.getRank())
    for (unsigned dim = 0; dim < aType.getRank(); ++dim)
      join(a, dim, b, dim);
}

/// Operands whose indexing maps read the same loop have the same size.
void ShapeRules::addStructured(Operation *op) {
  auto structured = cast<linalg::LinalgOp>(op);
  SmallVector<std::pair<Value, unsigned>> loops(structured.getNumLoops());
  for (OpOperand &operand : op->getOpOperands())
    for (auto [dim, expr] :
         llvm::enumerate(structured.getMatchingIndexingMap(&operand).getResults()))
      if (auto loop = dyn_cast<AffineDimExpr>(expr)) {
        auto &[value, valueDim] = loops[loop.getPosition()];
        if (value)
          join(value, valueDim, operand.get(), dim);
        else
          loops[loop.getPosition()] = {operand.get(), dim};
      }
  for (auto [index, result] : llvm::enumerate(op->getResults()))
    joinShapes(structured.getDpsInits()[index], result);
}

template <typename OpTy> void ShapeRules::addCaptureGradients(OpTy op) {
  for (auto [index, capture] : llvm::enumerate(op.getCaptures()))
    if (Value gradient = op.getCaptureGradient(index))
      joinShapes(capture, gradient);
}

/// Rows, heads and batch of whatever has one row per query; keys and values.
template <typename OpTy> void ShapeRules::addAttention(OpTy op) {
  Value q = op.getQuery(), k = op.getKey(), v = op.getValue();
  join(q, 0, k, 0);
  join(k, 0, v, 0);
  join(k, 1, v, 1);
  join(k, 2, v, 2);
  for (unsigned dim = 0; dim < 3; ++dim) {
    join(q, dim, op.getOutput(), dim);
    if (op.getLse())
      join(q, dim, op.getLse(), dim);
  }
  if (op.getSink())
    join(q, 1, op.getSink(), 0);
}

template <typename OpTy> void ShapeRules::addTangents(OpTy op) {
  for (auto [of, tangent] : {std::pair<Value, Value>{op.getQuery(), op.getQueryTangent()},
                             {op.getKey(), op.getKeyTangent()},
                             {op.getValue(), op.getValueTangent()},
                             {op.getSink(), op.getSinkTangent()}})
    if (tangent)
      joinShapes(of, tangent);
  for (auto [position, tangent] : llvm::zip(op.getTangentCaptures(), op.getCaptureTangents()))
    joinShapes(op.getCaptures()[position], tangent);
}

void ShapeRules::addRules(Operation *op) {
  if (auto forward = dyn_cast<ForwardOp>(op)) {
    addAttention(forward);
  } else if (auto backward = dyn_cast<BackwardOp>(op)) {
    addAttention(backward);
    joinShapes(backward.getOutput(), backward.getOutputGradient());
    joinShapes(backward.getQuery(), backward.getQueryGradient());
    joinShapes(backward.getKey(), backward.getKeyGradient());
    joinShapes(backward.getValue(), backward.getValueGradient());
    if (backward.getLseGradient())
      joinShapes(backward.getLse(), backward.getLseGradient());
    if (backward.getSinkGradient())
      joinShapes(backward.getSink(), backward.getSinkGradient());
    addCaptureGradients(backward);
  } else if (auto jvp = dyn_cast<JvpOp>(op)) {
    addAttention(jvp);
    addTangents(jvp);
    joinShapes(jvp.getOutput(), jvp.getOutputTangent());
    joinShapes(jvp.getLse(), jvp.getLseTangent());
  } else if (auto jvp = dyn_cast<BackwardJvpOp>(op)) {
    addAttention(jvp);
    addTangents(jvp);
    for (Value like : {Value(jvp.getOutputGradient()), Value(jvp.getOutputTangent()),
                       Value(jvp.getOutputGradientTangent())})
      if (like)
        joinShapes(jvp.getOutput(), like);
    for (Value like : {Value(jvp.getLseGradient()), Value(jvp.getLseTangent()),
                       Value(jvp.getLseGradientTangent())})
      if (like)
        joinShapes(jvp.getLse(), like);
    joinShapes(jvp.getQuery(), jvp.getQueryGradient());
    joinShapes(jvp.getKey(), jvp.getKeyGradient());
    joinShapes(jvp.getValue(), jvp.getValueGradient());
    if (jvp.getSinkGradient())
      joinShapes(jvp.getSink(), jvp.getSinkGradient());
    addCaptureGradients(jvp);
  } else if (auto softmax = dyn_cast<SoftmaxOp>(op)) {
    joinShapes(softmax.getInput(), softmax.getOutput());
  } else if (auto backward = dyn_cast<SoftmaxBackwardOp>(op)) {
    joinShapes(backward.getInput(), backward.getOutput());
    joinShapes(backward.getInput(), backward.getOutputGradient());
    joinShapes(backward.getInput(), backward.getInputGradient());
    addCaptureGradients(backward);
  } else if (auto pages = dyn_cast<PagesOp>(op)) {
    join(pages.getTable(), 0, pages.getLengths(), 0);
    join(pages.getTable(), 0, pages.getResult(), 0);
    join(pages.getPool(), 1, pages.getResult(), 1);
    join(pages.getPool(), 3, pages.getResult(), 3);
  } else if (isa<linalg::LinalgOp>(op)) {
    addStructured(op);
  } else if (auto cast = dyn_cast<tensor::CastOp>(op)) {
    joinShapes(cast.getSource(), cast.getResult());
  } else if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
    for (auto [dim, size] : llvm::enumerate(empty.getMixedSizes()))
      if (auto value = dyn_cast<Value>(size))
        if (auto source = value.getDefiningOp<tensor::DimOp>())
          if (std::optional<int64_t> index = source.getConstantIndex())
            join(source.getSource(), *index, empty.getResult(), dim);
  } else if (OpTrait::hasElementwiseMappableTraits(op) && op->getNumResults() == 1) {
    for (Value operand : op->getOperands())
      joinShapes(operand, op->getResult(0));
  }
}

std::string ShapeRules::describe(Value tensor) {
  std::string role;
  for (OpOperand &use : tensor.getUses())
    llvm::TypeSwitch<Operation *>(use.getOwner())
        .Case<ForwardOp, BackwardOp, JvpOp, BackwardJvpOp>([&](auto op) {
          if (tensor == op.getQuery())
            role = "query";
          else if (tensor == op.getKey())
            role = "key";
          else if (tensor == op.getValue())
            role = "value";
          else if (tensor == op.getSink())
            role = "sink";
        });
  std::string position;
  if (auto argument = dyn_cast<BlockArgument>(tensor))
    position = "argument " + std::to_string(argument.getArgNumber());
  else
    position = ("a result of '" + tensor.getDefiningOp()->getName().getStringRef() + "'").str();
  return role.empty() ? position : role + " (" + position + ")";
}

llvm::Error ShapeRules::addFact(Value tensor, unsigned dim, int64_t size) {
  auto [it, inserted] = facts.try_emplace(root(node(tensor, dim)), Fact{size, tensor, dim});
  const Fact &known = it->second;
  if (inserted || known.size == size)
    return llvm::Error::success();
  return llvm::createStringError(
      "expected %s dimension %u to be equal to %s dimension %u, got %lld and "
      "%lld",
      describe(tensor).c_str(), dim, describe(known.tensor).c_str(), known.dim,
      static_cast<long long>(size), static_cast<long long>(known.size));
}

SmallVector<std::pair<Value, Value>> ShapeRules::getGroupedHeads() {
  SmallVector<std::pair<Value, Value>> pairs;
  cast<func::FuncOp>(function).walk([&](Operation *op) {
    llvm::TypeSwitch<Operation *>(op).Case<ForwardOp, BackwardOp, JvpOp, BackwardJvpOp>(
        [&](auto attention) { pairs.push_back({attention.getQuery(), attention.getKey()}); });
  });
  return pairs;
}

llvm::Error ShapeRules::checkHeads() {
  for (auto [q, k] : getGroupedHeads()) {
    std::optional<int64_t> heads = getSize(q, 1), keyHeads = getSize(k, 1);
    if (heads && keyHeads && (*keyHeads == 0 ? *heads != 0 : *heads % *keyHeads != 0))
      return llvm::createStringError("expected %s dimension 1 to be a multiple "
                                     "of %s dimension 1, got %lld and %lld",
                                     describe(q).c_str(), describe(k).c_str(),
                                     static_cast<long long>(*heads),
                                     static_cast<long long>(*keyHeads));
  }
  return llvm::Error::success();
}

llvm::Error ShapeRules::solve(MutableArrayRef<Shape> shapes) {
  auto arguments = cast<func::FuncOp>(function).getArguments();
  facts.clear();
  for (auto [argument, shape] : llvm::zip(arguments, shapes)) {
    auto type = dyn_cast<ShapedType>(argument.getType());
    if (!type || !type.hasRank())
      continue;
    for (auto [dim, fixed] : llvm::enumerate(type.getShape())) {
      if (!ShapedType::isDynamic(fixed) && shape[dim] == unknown)
        shape[dim] = fixed;
      if (!ShapedType::isDynamic(fixed) && shape[dim] != fixed)
        return llvm::createStringError(
            "expected %s dimension %u to be %lld, got %lld", describe(argument).c_str(),
            unsigned(dim), static_cast<long long>(fixed), static_cast<long long>(shape[dim]));
      if (shape[dim] != unknown)
        if (llvm::Error error = addFact(argument, dim, shape[dim]))
          return error;
    }
  }
  // Static sizes inside of the function bind its arguments too.
  for (Operation &op : cast<func::FuncOp>(function).getBody().front())
    for (Value result : op.getResults())
      if (auto type = dyn_cast<RankedTensorType>(result.getType()))
        for (auto [dim, size] : llvm::enumerate(type.getShape()))
          if (!ShapedType::isDynamic(size))
            if (llvm::Error error = addFact(result, dim, size))
              return error;
  // The space of a sequence: all pages that its row of a table has.
  for (auto pages : cast<func::FuncOp>(function).getOps<PagesOp>())
    if (std::optional<int64_t> entries = getSize(pages.getTable(), 1))
      if (llvm::Error error = addFact(pages.getResult(), 2, *entries * pages.getPageSize()))
        return error;
  for (auto [argument, shape] : llvm::zip(arguments, shapes))
    for (auto [dim, size] : llvm::enumerate(shape)) {
      if (size != unknown)
        continue;
      std::optional<int64_t> known = getSize(argument, dim);
      if (!known)
        return llvm::createStringError("the size of %s dimension %u is not known; expected "
                                       "an input file or a shape for it",
                                       describe(argument).c_str(), unsigned(dim));
      size = *known;
    }
  return checkHeads();
}

std::optional<int64_t> ShapeRules::getSize(Value tensor, unsigned dim) {
  auto it = facts.find(root(node(tensor, dim)));
  if (it == facts.end())
    return std::nullopt;
  return it->second.size;
}
