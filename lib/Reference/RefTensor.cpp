// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tensors of the reference. See RefTensor.h.

#include "attn/Reference/RefTensor.h"

using namespace attn;

RefTensor::RefTensor(ElementKind kind, llvm::ArrayRef<int64_t> shape)
    : kind(kind), shape(shape.begin(), shape.end()) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  if (isFloat(kind))
    floats.resize(count);
  else
    integers.resize(count);
}

RefTensor RefTensor::from(const HostTensor &tensor) {
  RefTensor result(tensor.getKind(), tensor.getShape());
  ElementKind kind = tensor.getKind();
  unsigned step = elementSize(kind);
  int64_t position = 0;
  tensor.forEachRow([&](char *row, int64_t length) {
    for (int64_t i = 0; i < length; ++i, ++position, row += step) {
      if (isFloat(kind))
        result.floats[position] = loadFloat(kind, row);
      else if (kind == ElementKind::I1)
        result.integers[position] = -loadInteger(kind, row);
      else
        result.integers[position] = loadInteger(kind, row);
    }
  });
  return result;
}
