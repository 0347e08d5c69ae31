// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of compiled functions. See Call.h.

#include "Call.h"
#include <cstring>

using namespace llvm;
using namespace attn;

Error Call::createResults(ArrayRef<ValueType> resultTypes, ArrayRef<ShapeRules::Shape> shapes,
                          bool guard) {
  types.assign(resultTypes.begin(), resultTypes.end());
  for (auto [type, shape] : zip_equal(types, shapes)) {
    TensorPlacement placement;
    placement.tight = guard;
    auto tensor = HostTensor::create(type.kind, shape, placement);
    if (!tensor)
      return tensor.takeError();
    ElementKind kind = type.kind;
    tensor->forEachRow([&](char *row, int64_t length) {
      std::memset(row, attn::isFloat(kind) ? 0xff : 0x7f, size_t(length) * elementSize(kind));
    });
    results.push_back(std::move(*tensor));
  }
  return Error::success();
}

Error Call::copyArguments(ArrayRef<Operand> arguments, int64_t pad, bool guard) {
  for (const Operand &argument : arguments) {
    TensorPlacement placement;
    placement.pad = argument.type.isTensor ? pad : 0;
    placement.tight = guard;
    auto copy = argument.value->copy(placement);
    if (!copy)
      return copy.takeError();
    types.push_back(argument.type);
    results.push_back(std::move(*copy));
  }
  return Error::success();
}

uint64_t Call::getResultBytes() const {
  uint64_t bytes = 0;
  for (const HostTensor &result : results)
    bytes += result.getBytes();
  return bytes;
}

Slots::Slots(size_t count) {
  // Addresses of elements are taken, so these must not grow.
  descriptors.reserve(count);
  pointers.reserve(count);
}

void Slots::addPointer(void *pointer) {
  pointers.push_back(pointer);
  slots.push_back(&pointers.back());
}

void Slots::addTensor(SmallVector<int64_t, 16> descriptor) {
  descriptors.push_back(std::move(descriptor));
  addPointer(descriptors.back().data());
}

void Slots::addOperand(const Operand &operand) {
  const HostTensor &value = *operand.value;
  if (operand.type.isTensor)
    addTensor(value.getDescriptor());
  else
    addScalar(value.getBase() + value.getOffset() * elementSize(value.getKind()));
}

bool attn::hasShapeFunction(mlir::func::FuncOp function) {
  return any_of(function.getResultTypes(), llvm::IsaPred<mlir::RankedTensorType>);
}

Expected<std::vector<ShapeRules::Shape>> attn::computeResultShapes(const target::Function &code,
                                                                   mlir::func::FuncOp function,
                                                                   ArrayRef<Operand> arguments) {
  SmallVector<unsigned> ranks;
  size_t numSizes = 0;
  for (mlir::Type type : function.getResultTypes()) {
    auto tensor = dyn_cast<mlir::RankedTensorType>(type);
    ranks.push_back(tensor ? tensor.getRank() : 0);
    numSizes += ranks.back();
  }
  SmallVector<int64_t> sizes(numSizes);
  if (numSizes) {
    Slots slots(arguments.size() + 2);
    // Several results are a struct in front of the arguments.
    if (numSizes > 1)
      slots.addPointer(sizes.data());
    if (code.takesContext())
      slots.addPointer(nullptr);
    for (const Operand &argument : arguments)
      slots.addOperand(argument);
    if (numSizes == 1)
      slots.addScalar(sizes.data());
    if (Error error = code.computeShapes(slots.data()))
      return std::move(error);
  }
  std::vector<ShapeRules::Shape> shapes;
  ArrayRef<int64_t> rest = sizes;
  for (unsigned rank : ranks) {
    shapes.emplace_back(rest.take_front(rank));
    rest = rest.drop_front(rank);
  }
  return shapes;
}
