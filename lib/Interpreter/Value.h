// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the slots of a frame hold.

#ifndef ATTN_LIB_INTERPRETER_VALUE_H
#define ATTN_LIB_INTERPRETER_VALUE_H

#include "attn/Runtime/HostTensor.h"
#include "llvm/ADT/SmallVector.h"
#include <memory>

namespace attn::interpreter {

struct Object {
  virtual ~Object() = default;
};

/// A vector's elements, row-major. Floats are kept as the double that they stand for, rounded to
/// their type by each op (a sum, product, quotient or root of f32 is then as in f32); integers are
/// sign-extended, but i1 is 0 or 1.
template <typename T> struct Elements : Object {
  explicit Elements(int64_t count) : count(count), data(new T[size_t(count)]) {}
  int64_t count;
  std::unique_ptr<T[]> data;
};
using Floats = Elements<double>;
using Ints = Elements<int64_t>;

/// A scalar in `number` or `integer`, anything else in `object`.
struct Value {
  int64_t integer = 0;
  double number = 0;
  std::shared_ptr<Object> object;

  template <typename T> T &as() const { return static_cast<T &>(*object); }
  const double *floats() const { return object ? as<Floats>().data.get() : &number; }
  const int64_t *ints() const { return object ? as<Ints>().data.get() : &integer; }
};

/// A memref: `sizes` and `strides` in elements, `offset` from the start of an
/// allocation of `extent` elements.
struct MemRef : Object {
  ElementKind kind = ElementKind::F32;
  char *base = nullptr;
  int64_t extent = 0, offset = 0;
  llvm::SmallVector<int64_t, 5> sizes, strides;
  /// Of an argument: the bytes from its first element on that allocations have taken.
  int64_t aliased = 0;
  /// Memory of one thread.
  bool isLocal = false;
  /// Keeps memory that the program itself allocated.
  std::shared_ptr<std::vector<char>> owner;

  char *at(int64_t element) const { return base + element * int64_t(elementSize(kind)); }
};

} // namespace attn::interpreter

#endif
