// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of gradients, kept in the type they came in until they are needed in
// another: an attention op's 16-bit gradient with one use is never widened.

#include "Adjoints.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

bool attn::carriesGradient(Type type) { return isa<FloatType>(getElementTypeOrSelf(type)); }

Type attn::getAdjointType(Type type) {
  if (getElementTypeOrSelf(type).isF64())
    return type;
  return withElement(type, Float32Type::get(type.getContext()));
}

bool attn::hasAdjointType(Type type) {
  Type element = getElementTypeOrSelf(type);
  return !isa<FloatType>(element) || element.isF64() || element.getIntOrFloatBitWidth() <= 32;
}

/// A tensor of `type` filled with `scalar`, with the dynamic sizes of `like`.
static Value fill(ImplicitLocOpBuilder &b, Value scalar, RankedTensorType type, Value like) {
  SmallVector<Value> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      sizes.push_back(tensor::DimOp::create(b, like, dim));
  Value empty = tensor::EmptyOp::create(b, type, sizes);
  return linalg::FillOp::create(b, scalar, empty).getResult(0);
}

Value attn::zeroTensor(ImplicitLocOpBuilder &b, RankedTensorType type, Value like) {
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type.getElementType()));
  return fill(b, zero, type, like);
}

Value attn::constantLike(ImplicitLocOpBuilder &b, double value, Value like) {
  Type type = like.getType(), element = getElementTypeOrSelf(type);
  TypedAttr scalar;
  if (isa<FloatType>(element))
    scalar = b.getFloatAttr(element, value);
  else
    scalar = b.getIntegerAttr(element, int64_t(value));
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped)
    return arith::ConstantOp::create(b, scalar);
  if (shaped.hasStaticShape())
    return arith::ConstantOp::create(b, DenseElementsAttr::get(shaped, scalar));
  return fill(b, arith::ConstantOp::create(b, scalar), cast<RankedTensorType>(type), like);
}

/// `value` with the element type of `type`, moved in or out of a tensor without
/// dimensions where `type` asks for it.
static Value convert(ImplicitLocOpBuilder &b, Value value, Type type) {
  bool wrap = isa<RankedTensorType>(type);
  if (isa<RankedTensorType>(value.getType()) && !wrap)
    value = tensor::ExtractOp::create(b, value, ValueRange());
  Type from = getElementTypeOrSelf(value.getType());
  Type to = getElementTypeOrSelf(type);
  if (from != to) {
    Type target = withElement(value.getType(), to);
    if (from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth())
      value = arith::ExtFOp::create(b, target, value);
    else
      value = arith::TruncFOp::create(b, target, value);
  }
  if (wrap && !isa<RankedTensorType>(value.getType()))
    value = tensor::FromElementsOp::create(b, RankedTensorType::get({}, to), ValueRange(value));
  return value;
}

bool Adjoints::readsActive(Operation *op) const {
  return op
      ->walk([&](Operation *inner) {
        bool reads =
            llvm::any_of(inner->getOperands(), [&](Value value) { return isActive(value); });
        return reads ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

void Adjoints::propagate(Operation *op) {
  if (!readsActive(op))
    return;
  for (Value result : op->getResults())
    if (carriesGradient(result.getType()))
      activate(result);
}

void Adjoints::add(Value value, Value contribution, bool guarded) {
  if (!isActive(value))
    return;
  auto [it, first] = sums.try_emplace(value, Sum{contribution, guarded});
  if (first)
    return;
  Type type = getAdjointType(value.getType());
  Value sum = convert(b, it->second.value, type);
  it->second.value = arith::AddFOp::create(b, sum, convert(b, contribution, type));
  // Where one use is not behind a select, the value is taken.
  it->second.guarded &= guarded;
}

Value Adjoints::get(Value value) { return getAs(value, getAdjointType(value.getType())); }

Value Adjoints::getAs(Value value, Type type) {
  auto it = sums.find(value);
  return it == sums.end() ? Value() : convert(b, it->second.value, type);
}
