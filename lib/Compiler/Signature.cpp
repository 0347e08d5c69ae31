// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a function takes and gives. See Signature.h.

#include "Signature.h"
#include "attn/Reference/ElementKind.h"
#include "attn/Runtime/ShapeRules.h"
#include "llvm/ADT/DenseMap.h"

using namespace llvm;
using namespace attn;

static Expected<ValueSignature> makeValue(mlir::Type type, bool isResult, unsigned index) {
  auto shaped = dyn_cast<mlir::ShapedType>(type);
  auto kind = getElementKind(shaped ? shaped.getElementType() : type);
  bool fits = shaped
                  ? isa<mlir::RankedTensorType>(type) || (isa<mlir::MemRefType>(type) && !isResult)
                  : !isResult;
  if (!kind || !fits) {
    std::string text;
    raw_string_ostream(text) << "cannot call a function with "
                             << (isResult ? "result " : "argument ") << index << " of type "
                             << type;
    return createStringError(text);
  }
  ValueSignature value;
  value.kind = *kind;
  value.isTensor = bool(shaped);
  if (shaped)
    for (int64_t size : shaped.getShape())
      value.shape.push_back(mlir::ShapedType::isDynamic(size) ? -1 : size);
  return value;
}

Expected<Signature> attn::makeSignature(mlir::func::FuncOp function) {
  Signature signature;
  ShapeRules rules(function);
  DenseMap<unsigned, unsigned> numbers;
  auto number = [&](mlir::Value tensor, unsigned dim) {
    return numbers.try_emplace(rules.getClass(tensor, dim), unsigned(numbers.size())).first->second;
  };
  auto add = [&](mlir::Value value, bool isResult, unsigned index) -> Error {
    auto made = makeValue(value.getType(), isResult, index);
    if (!made)
      return made.takeError();
    for (unsigned dim = 0; dim < made->shape.size(); ++dim)
      made->classes.push_back(number(value, dim));
    (isResult ? signature.results : signature.arguments).push_back(std::move(*made));
    return Error::success();
  };
  for (auto [index, argument] : enumerate(function.getArguments()))
    if (Error error = add(argument, false, index))
      return std::move(error);
  auto terminator = function.getBody().back().getTerminator();
  for (auto [index, result] : enumerate(terminator->getOperands()))
    if (Error error = add(result, true, index))
      return std::move(error);
  for (auto [query, key] : rules.getGroupedHeads())
    signature.multiples.push_back({number(query, 1), number(key, 1)});
  signature.numClasses = numbers.size();
  return signature;
}

namespace {
/// The size of a class, and where it was first seen.
struct Seen {
  int64_t size = -1;
  const char *role = nullptr;
  unsigned index = 0, dim = 0;
};
} // namespace

static std::string describe(const char *role, unsigned index, unsigned dim) {
  return (Twine(role) + " " + Twine(index) + " dimension " + Twine(dim)).str();
}

static Error checkValue(const ValueSignature &value, const TensorReference &tensor,
                        const char *role, unsigned index, MutableArrayRef<Seen> seen) {
  if (!value.isTensor)
    return Error::success();
  unsigned rank = value.shape.size();
  for (unsigned dim = 0; dim < rank; ++dim) {
    int64_t size = tensor.shape[dim];
    if (size < 0 || (value.shape[dim] >= 0 && size != value.shape[dim]))
      return createStringError("expected " + describe(role, index, dim) + " to be " +
                               (value.shape[dim] < 0 ? Twine("a size") : Twine(value.shape[dim])) +
                               ", got " + Twine(size));
    Seen &known = seen[value.classes[dim]];
    if (!known.role)
      known = {size, role, index, dim};
    else if (known.size != size)
      return createStringError("expected " + describe(role, index, dim) + " to be equal to " +
                               describe(known.role, known.index, known.dim) + ", got " +
                               Twine(size) + " and " + Twine(known.size));
  }
  if (rank && tensor.strides && tensor.strides[rank - 1] != 1 && tensor.shape[rank - 1] > 1)
    return createStringError("expected " + Twine(role) + " " + Twine(index) +
                             " to have an innermost stride of 1, got " +
                             Twine(tensor.strides[rank - 1]));
  return Error::success();
}

Error attn::checkValues(const Signature &signature, const TensorReference *arguments,
                        const TensorReference *results) {
  SmallVector<Seen, 32> seen(signature.numClasses);
  for (auto [index, value] : enumerate(signature.arguments))
    if (Error error = checkValue(value, arguments[index], "argument", index, seen))
      return error;
  if (results)
    for (auto [index, value] : enumerate(signature.results))
      if (Error error = checkValue(value, results[index], "result", index, seen))
        return error;
  for (auto [query, key] : signature.multiples) {
    const Seen &q = seen[query], &k = seen[key];
    if (q.role && k.role && (k.size == 0 ? q.size != 0 : q.size % k.size != 0))
      return createStringError("expected " + describe(q.role, q.index, q.dim) +
                               " to be a multiple of " + describe(k.role, k.index, k.dim) +
                               ", got " + Twine(q.size) + " and " + Twine(k.size));
  }
  return Error::success();
}
