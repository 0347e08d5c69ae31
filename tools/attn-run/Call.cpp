// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of compiled functions. See Call.h.

#include "Call.h"
#include "attn/Reference/RefTensor.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace attn;

/// Where the scalar results lie in a C struct.
static SmallVector<size_t> layOut(ArrayRef<ValueType> types) {
  SmallVector<size_t> offsets;
  size_t end = 0;
  for (ValueType type : types) {
    if (type.isTensor) {
      offsets.push_back(0);
      continue;
    }
    size_t size = elementSize(type.kind);
    end = alignTo(end, size);
    offsets.push_back(end);
    end += size;
  }
  offsets.push_back(end);
  return offsets;
}

void Call::bind(ArrayRef<Operand> arguments) {
  SmallVector<size_t> offsets = layOut(types);
  scalars.assign(divideCeil(offsets.back(), 8) + 1, 0);
  scalarStruct = scalars.data();
  size_t numScalars =
      count_if(types, [](ValueType type) { return !type.isTensor; });

  descriptors.clear();
  SmallVector<const HostTensor *> tensors;
  // Addresses of elements of the vectors are taken below, so they must not
  // grow.
  descriptors.reserve(arguments.size() + results.size());
  pointers.reserve(descriptors.capacity() + 1);
  if (numScalars > 1) {
    pointers.push_back(scalarStruct);
    slots.push_back(&pointers.back());
  }
  auto addTensor = [&](const HostTensor &tensor) {
    descriptors.push_back(tensor.getDescriptor());
    pointers.push_back(descriptors.back().data());
    slots.push_back(&pointers.back());
  };
  for (auto [type, value] : arguments) {
    if (type.isTensor)
      addTensor(*value);
    else
      slots.push_back(value->getBase() +
                      value->getOffset() * elementSize(type.kind));
  }
  for (auto [type, result] : zip(types, results))
    if (type.isTensor)
      addTensor(result);
  if (numScalars == 1)
    slots.push_back(scalarStruct);
}

/// All sizes of all tensor results, one after the other.
static Error computeSizes(CpuExecutable &executable, StringRef name,
                          ArrayRef<Operand> arguments,
                          MutableArrayRef<int64_t> sizes) {
  auto function = executable.lookupPacked((name + "_shape").str());
  if (!function)
    return function.takeError();
  std::vector<SmallVector<int64_t, 16>> descriptors;
  std::vector<void *> pointers, slots;
  descriptors.reserve(arguments.size());
  pointers.reserve(arguments.size() + 1);
  void *target = sizes.data();
  if (sizes.size() > 1) {
    pointers.push_back(target);
    slots.push_back(&pointers.back());
  }
  for (auto [type, value] : arguments) {
    if (!type.isTensor) {
      slots.push_back(value->getBase() +
                      value->getOffset() * elementSize(type.kind));
      continue;
    }
    descriptors.push_back(value->getDescriptor());
    pointers.push_back(descriptors.back().data());
    slots.push_back(&pointers.back());
  }
  if (sizes.size() == 1)
    slots.push_back(target);
  (*function)(slots.data());
  return Error::success();
}

Expected<Call> Call::prepare(CpuExecutable &executable,
                             mlir::func::FuncOp function,
                             ArrayRef<Operand> arguments, bool guard) {
  Call call;
  auto types = getValueTypes(function.getResultTypes(), "result");
  if (!types)
    return types.takeError();
  call.types = std::move(*types);
  auto packed = executable.lookupPacked(function.getName());
  if (!packed)
    return packed.takeError();
  call.function = *packed;
  SmallVector<unsigned> ranks;
  size_t numSizes = 0;
  for (mlir::Type type : function.getResultTypes()) {
    auto tensor = dyn_cast<mlir::RankedTensorType>(type);
    ranks.push_back(tensor ? tensor.getRank() : 0);
    numSizes += ranks.back();
  }
  SmallVector<int64_t> sizes(numSizes);
  if (numSizes)
    if (Error error =
            computeSizes(executable, function.getName(), arguments, sizes))
      return std::move(error);
  ArrayRef<int64_t> rest = sizes;
  for (auto [type, rank] : zip(call.types, ranks)) {
    TensorPlacement placement;
    placement.tight = guard;
    auto tensor =
        HostTensor::create(type.kind, rest.take_front(rank), placement);
    if (!tensor)
      return tensor.takeError();
    rest = rest.drop_front(rank);
    ElementKind kind = type.kind;
    // An element that is not written must not look like a right one.
    tensor->forEachRow([&](char *row, int64_t length) {
      std::memset(row, attn::isFloat(kind) ? 0xff : 0x7f,
                  size_t(length) * elementSize(kind));
    });
    call.results.push_back(std::move(*tensor));
  }
  call.bind(arguments);
  return call;
}

void Call::storeScalars() {
  SmallVector<size_t> offsets = layOut(types);
  for (auto [index, type] : enumerate(types))
    if (!type.isTensor)
      std::memcpy(results[index].getBase(),
                  static_cast<char *>(scalarStruct) + offsets[index],
                  elementSize(type.kind));
}

uint64_t Call::getResultBytes() const {
  uint64_t bytes = 0;
  for (const HostTensor &result : results)
    bytes += result.getBytes();
  return bytes;
}
