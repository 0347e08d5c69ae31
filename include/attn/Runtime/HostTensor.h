// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tensors in host memory as the compiled code sees them: typed elements,
// strides, and pages that can be placed against inaccessible ones so that an
// access outside of the tensor stops the program.

#ifndef ATTN_RUNTIME_HOSTTENSOR_H
#define ATTN_RUNTIME_HOSTTENSOR_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <cstdint>

namespace attn {

/// Element types of arguments and results. An index is an I64, an i1 a byte.
enum class ElementKind { F64, F32, F16, BF16, I1, I8, I16, I32, I64 };

unsigned elementSize(ElementKind kind);
bool isFloat(ElementKind kind);
llvm::StringRef elementName(ElementKind kind);

/// One element to and from double; integers to and from int64_t. A value is
/// rounded to nearest even, an integer is truncated to the width.
double loadFloat(ElementKind kind, const void *element);
void storeFloat(ElementKind kind, void *element, double value);
int64_t loadInteger(ElementKind kind, const void *element);
void storeInteger(ElementKind kind, void *element, int64_t value);

/// Pages of zeros between two inaccessible ones.
class GuardedMemory {
public:
  GuardedMemory() = default;
  GuardedMemory(GuardedMemory &&other) { *this = std::move(other); }
  GuardedMemory &operator=(GuardedMemory &&other);
  ~GuardedMemory();

  /// Memory whose last byte is the last before the inaccessible page.
  static llvm::Expected<GuardedMemory> allocate(size_t bytes);

  char *end() const { return last; }
  char *begin() const { return last - bytes; }
  size_t size() const { return bytes; }

private:
  char *mapping = nullptr, *last = nullptr;
  size_t mapped = 0, bytes = 0;
};

/// How a tensor is placed in its memory.
struct TensorPlacement {
  /// Elements added after each run of each dimension, and before the first
  /// element. They are filled with NaN (integers: the largest value).
  int64_t pad = 0;
  /// End at the inaccessible page exactly; otherwise start on a multiple of 64
  /// bytes, as near to the page as that allows.
  bool tight = false;
};

class HostTensor {
public:
  static llvm::Expected<HostTensor> create(ElementKind kind, llvm::ArrayRef<int64_t> shape,
                                           TensorPlacement placement = {});

  /// The same elements, placed otherwise.
  llvm::Expected<HostTensor> copy(TensorPlacement placement) const;

  ElementKind getKind() const { return kind; }
  llvm::ArrayRef<int64_t> getShape() const { return shape; }
  llvm::ArrayRef<int64_t> getStrides() const { return strides; }
  int64_t getOffset() const { return offset; }
  /// Start of the allocation; the first element is getOffset() further.
  char *getBase() const { return base; }
  /// Bytes from getBase() on, padding included.
  size_t getAllocatedBytes() const { return memory.size(); }
  int64_t getNumElements() const;
  /// Bytes of the logical tensor.
  size_t getBytes() const { return size_t(getNumElements()) * elementSize(kind); }

  /// Calls `visit` with a pointer to each run of elements of the innermost
  /// dimension and its length, in row-major order.
  void forEachRow(llvm::function_ref<void(char *, int64_t)> visit) const;

  /// The memref descriptor: two pointers, the offset, sizes, strides.
  llvm::SmallVector<int64_t, 16> getDescriptor() const;

private:
  ElementKind kind = ElementKind::F32;
  llvm::SmallVector<int64_t, 4> shape, strides;
  int64_t offset = 0;
  char *base = nullptr;
  GuardedMemory memory;
};

/// The number of elements, or an error where it does not fit 2^47 elements or
/// where a size is negative.
llvm::Expected<int64_t> countElements(llvm::ArrayRef<int64_t> shape);

/// "2x8x1024x64".
std::string formatShape(llvm::ArrayRef<int64_t> shape);

} // namespace attn

#endif
