// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tensors of the reference: every float a double, every integer an int64_t.

#ifndef ATTN_REFERENCE_REFTENSOR_H
#define ATTN_REFERENCE_REFTENSOR_H

#include "attn/Runtime/HostTensor.h"
#include <memory>
#include <vector>

namespace attn {

/// How the reference computes.
enum class Precision {
  /// In double throughout (long double inside of attention on f64), without
  /// rounding to the types that the IR names.
  Exact,
  /// Naively in the types that the IR names: what a straightforward program in
  /// the same precision gives.
  SameType
};

/// A dense row-major tensor, or a scalar where the shape is empty. Exactly one
/// of the two vectors holds the elements. Integers are sign-extended, so a true
/// i1 is -1.
struct RefTensor {
  ElementKind kind = ElementKind::F32;
  llvm::SmallVector<int64_t, 4> shape;
  std::vector<double> floats;
  std::vector<int64_t> integers;

  RefTensor() = default;
  /// Zeros.
  RefTensor(ElementKind kind, llvm::ArrayRef<int64_t> shape);
  /// The elements of a tensor in host memory.
  static RefTensor from(const HostTensor &tensor);

  int64_t size() const { return int64_t(isFloat(kind) ? floats.size() : integers.size()); }
};

using RefTensorPtr = std::shared_ptr<const RefTensor>;

/// `value` rounded to a float type.
double roundTo(ElementKind kind, double value);

} // namespace attn

#endif
