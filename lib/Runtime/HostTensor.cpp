// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Host tensors between guard pages. See HostTensor.h.

#include "attn/Runtime/HostTensor.h"
#include "attn/Runtime/FloatConvert.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include <limits>
#include <sys/mman.h>
#include <unistd.h>

using namespace llvm;
using namespace attn;

unsigned attn::elementSize(ElementKind kind) {
  switch (kind) {
  case ElementKind::F64:
  case ElementKind::I64:
    return 8;
  case ElementKind::F32:
  case ElementKind::I32:
    return 4;
  case ElementKind::F16:
  case ElementKind::BF16:
  case ElementKind::I16:
    return 2;
  case ElementKind::I1:
  case ElementKind::I8:
    return 1;
  }
  llvm_unreachable("every kind is handled");
}

bool attn::isFloat(ElementKind kind) { return kind <= ElementKind::BF16; }

StringRef attn::elementName(ElementKind kind) {
  static const char *const names[] = {"f64", "f32", "f16", "bf16", "i1", "i8", "i16", "i32", "i64"};
  return names[unsigned(kind)];
}

template <typename T> static T loadAs(const void *element) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  return value;
}
template <typename T> static void storeAs(void *element, T value) {
  std::memcpy(element, &value, sizeof(T));
}

double attn::loadFloat(ElementKind kind, const void *element) {
  switch (kind) {
  case ElementKind::F64:
    return loadAs<double>(element);
  case ElementKind::F32:
    return loadAs<float>(element);
  case ElementKind::F16:
    return halfToFloat(loadAs<uint16_t>(element));
  case ElementKind::BF16:
    return bfloatToFloat(loadAs<uint16_t>(element));
  default:
    return double(loadInteger(kind, element));
  }
}

void attn::storeFloat(ElementKind kind, void *element, double value) {
  switch (kind) {
  case ElementKind::F64:
    return storeAs<double>(element, value);
  case ElementKind::F32:
    return storeAs<float>(element, float(value));
  case ElementKind::F16:
    return storeAs<uint16_t>(element, floatToHalf(float(value)));
  case ElementKind::BF16:
    return storeAs<uint16_t>(element, floatToBfloat(float(value)));
  default:
    return storeInteger(kind, element, int64_t(value));
  }
}

int64_t attn::loadInteger(ElementKind kind, const void *element) {
  switch (kind) {
  case ElementKind::I1:
    return loadAs<uint8_t>(element) & 1;
  case ElementKind::I8:
    return loadAs<int8_t>(element);
  case ElementKind::I16:
    return loadAs<int16_t>(element);
  case ElementKind::I32:
    return loadAs<int32_t>(element);
  case ElementKind::I64:
    return loadAs<int64_t>(element);
  default:
    return int64_t(loadFloat(kind, element));
  }
}

void attn::storeInteger(ElementKind kind, void *element, int64_t value) {
  switch (kind) {
  case ElementKind::I1:
    return storeAs<uint8_t>(element, value & 1);
  case ElementKind::I8:
    return storeAs<int8_t>(element, int8_t(value));
  case ElementKind::I16:
    return storeAs<int16_t>(element, int16_t(value));
  case ElementKind::I32:
    return storeAs<int32_t>(element, int32_t(value));
  case ElementKind::I64:
    return storeAs<int64_t>(element, value);
  default:
    return storeFloat(kind, element, double(value));
  }
}

//===----------------------------------------------------------------------===//
// GuardedMemory
//===----------------------------------------------------------------------===//

GuardedMemory &GuardedMemory::operator=(GuardedMemory &&other) {
  std::swap(mapping, other.mapping);
  std::swap(last, other.last);
  std::swap(mapped, other.mapped);
  std::swap(bytes, other.bytes);
  return *this;
}

GuardedMemory::~GuardedMemory() {
  if (mapping)
    munmap(mapping, mapped);
}

Expected<GuardedMemory> GuardedMemory::allocate(size_t bytes) {
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  size_t usable = alignTo(bytes, page);
  GuardedMemory result;
  result.mapped = usable + 2 * page;
  void *mapping =
      mmap(nullptr, result.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return createStringError("out of memory: cannot allocate %zu bytes", bytes);
  result.mapping = static_cast<char *>(mapping);
  if (usable && mprotect(result.mapping + page, usable, PROT_READ | PROT_WRITE))
    return createStringError("out of memory: cannot allocate %zu bytes", bytes);
  result.bytes = bytes;
  result.last = result.mapping + page + usable;
  return result;
}

//===----------------------------------------------------------------------===//
// HostTensor
//===----------------------------------------------------------------------===//

Expected<int64_t> attn::countElements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  bool empty = is_contained(shape, 0);
  for (int64_t size : shape) {
    if (size < 0)
      return createStringError("expected sizes of at least 0, got %lld",
                               static_cast<long long>(size));
    if (!empty && MulOverflow(count, size, count))
      count = std::numeric_limits<int64_t>::max();
    if (count > (int64_t(1) << 47))
      return createStringError("a tensor of %s elements does not fit in memory",
                               formatShape(shape).c_str());
  }
  return empty ? 0 : count;
}

std::string attn::formatShape(ArrayRef<int64_t> shape) {
  return join(map_range(shape, [](int64_t size) { return std::to_string(size); }), "x");
}

Expected<HostTensor> HostTensor::create(ElementKind kind, ArrayRef<int64_t> shape,
                                        TensorPlacement placement) {
  // Strides are set before anything is allocated: padding makes the memory
  // larger than the number of elements says.
  HostTensor result;
  result.kind = kind;
  result.shape.assign(shape.begin(), shape.end());
  result.strides.assign(shape.size(), 1);
  Expected<int64_t> count = countElements(shape);
  if (!count)
    return count.takeError();
  int64_t extent = 1;
  for (int64_t dim = int64_t(shape.size()) - 1; dim >= 0; --dim) {
    result.strides[dim] = extent;
    extent = extent * std::max<int64_t>(shape[dim], 1) + placement.pad;
    if (extent > (int64_t(1) << 47))
      return createStringError("a tensor of %s elements does not fit in memory",
                               formatShape(shape).c_str());
  }
  result.offset = placement.pad;
  // The innermost run of the last row needs no padding behind it when the
  // tensor is to end at the page.
  int64_t span = *count == 0 ? 0 : 1;
  if (*count != 0)
    for (auto [size, stride] : zip(shape, result.strides))
      span += (size - 1) * stride;
  size_t bytes = size_t(span + result.offset) * elementSize(kind);
  if (!placement.tight)
    bytes = alignTo(bytes, 64);
  Expected<GuardedMemory> memory = GuardedMemory::allocate(bytes);
  if (!memory)
    return memory.takeError();
  result.memory = std::move(*memory);
  result.base = result.memory.begin();
  // All ones is a NaN in every float format. As an integer it would be -1,
  // which is often in range; the largest value is not. Fresh pages are zero and
  // a large tensor is not touched here: only what lies outside of it is.
  int poison = isFloat(kind) ? 0xff : 0x7f;
  size_t first = placement.pad ? 0 : size_t(span) * elementSize(kind);
  std::memset(result.base + first, poison, bytes - first);
  if (placement.pad)
    result.forEachRow([&](char *row, int64_t length) {
      std::memset(row, 0, size_t(length) * elementSize(kind));
    });
  return result;
}

int64_t HostTensor::getNumElements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

void HostTensor::forEachRow(function_ref<void(char *, int64_t)> visit) const {
  unsigned size = elementSize(kind);
  if (getNumElements() == 0)
    return;
  if (shape.empty())
    return visit(base + offset * size, 1);
  SmallVector<int64_t, 4> index(shape.size() - 1, 0);
  while (true) {
    int64_t position = offset;
    for (auto [at, stride] : zip(index, strides))
      position += at * stride;
    visit(base + position * size, shape.back());
    int64_t dim = int64_t(index.size()) - 1;
    while (dim >= 0 && ++index[dim] == shape[dim])
      index[dim--] = 0;
    if (dim < 0)
      return;
  }
}

Expected<HostTensor> HostTensor::copy(TensorPlacement placement) const {
  auto result = create(kind, shape, placement);
  if (!result)
    return result.takeError();
  SmallVector<char *> rows;
  forEachRow([&](char *row, int64_t) { rows.push_back(row); });
  size_t next = 0;
  result->forEachRow([&](char *row, int64_t length) {
    std::memcpy(row, rows[next++], size_t(length) * elementSize(kind));
  });
  return result;
}

SmallVector<int64_t, 16> HostTensor::getDescriptor() const {
  SmallVector<int64_t, 16> words = {int64_t(reinterpret_cast<intptr_t>(base)),
                                    int64_t(reinterpret_cast<intptr_t>(base)), offset};
  append_range(words, shape);
  append_range(words, strides);
  return words;
}
