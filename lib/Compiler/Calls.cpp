// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of an executable: arguments and results to the pointers that code takes.

#include "Signature.h"
#include "attn/Compiler/Executable.h"
#include "attn/Runtime/HostTensor.h"
#include "llvm/Support/MathExtras.h"
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

using namespace llvm;
using namespace attn;

namespace {
/// The pointers of a call: pointers to descriptors of tensors, and to scalars.
/// Nothing is allocated for calls of usual size.
class CallSlots {
public:
  explicit CallSlots(const Signature &signature) {
    size_t count = signature.arguments.size() + signature.results.size() + 2;
    // Addresses of elements are taken, so these must not grow.
    size_t size = 0;
    for (const auto *values : {&signature.arguments, &signature.results})
      for (const ValueSignature &value : *values)
        size += 3 + 2 * value.shape.size();
    words.reserve(size);
    pointers.reserve(count);
    slots.reserve(count);
  }

  void addPointer(void *pointer) {
    pointers.push_back(pointer);
    slots.push_back(&pointers.back());
  }
  void addSlot(void *slot) { slots.push_back(slot); }

  void add(const ValueSignature &value, const TensorReference &tensor) {
    if (!value.isTensor)
      return addSlot(tensor.data);
    size_t rank = value.shape.size(), start = words.size();
    words.append(2, int64_t(reinterpret_cast<intptr_t>(tensor.data)));
    words.push_back(0);
    words.append(tensor.shape, tensor.shape + rank);
    if (tensor.strides) {
      words.append(tensor.strides, tensor.strides + rank);
    } else {
      words.append(rank, 1);
      for (size_t dim = rank; dim-- > 1;)
        words[words.size() - rank + dim - 1] = words[words.size() - rank + dim] * tensor.shape[dim];
    }
    // The code takes this for granted, whatever the caller says of a dimension
    // with one element.
    if (rank)
      words.back() = 1;
    addPointer(&words[start]);
  }

  void **data() { return slots.data(); }

private:
  SmallVector<int64_t, 128> words;
  SmallVector<void *, 24> pointers, slots;
};
} // namespace

Error Executable::computeResultShapes(const TensorReference *arguments, int64_t *sizes) const {
  if (Error error = checkValues(signature, arguments, nullptr))
    return error;
  size_t count = 0;
  for (const ValueSignature &result : signature.results)
    count += result.shape.size();
  if (count == 0)
    return Error::success();
  CallSlots slots(signature);
  // Several results are a struct in front of the arguments.
  if (count > 1)
    slots.addPointer(sizes);
  if (function->takesContext())
    slots.addPointer(nullptr);
  for (auto [index, value] : enumerate(signature.arguments))
    slots.add(value, arguments[index]);
  if (count == 1)
    slots.addSlot(sizes);
  return function->computeShapes(slots.data());
}

/// Of the main function.
static void addAll(CallSlots &slots, const Signature &signature, bool takesContext,
                   const TensorReference *arguments, const TensorReference *results) {
  if (takesContext)
    slots.addSlot(nullptr);
  for (auto [index, value] : enumerate(signature.arguments))
    slots.add(value, arguments[index]);
  for (auto [index, value] : enumerate(signature.results))
    slots.add(value, results[index]);
}

Expected<size_t> Executable::getWorkspaceBytes(const TensorReference *arguments,
                                               const TensorReference *results) const {
  if (Error error = checkValues(signature, arguments, results))
    return std::move(error);
  CallSlots slots(signature);
  addAll(slots, signature, function->takesContext(), arguments, results);
  return function->measure(slots.data());
}

/// Bytes from which new memory is worth large pages, as NumPy has it for its arrays.
static constexpr int64_t kLargePagesFrom = 4 << 20;

/// Memory that a result is the first to touch comes in large pages: a page fault for each 4 KiB
/// takes longer than writing them. It is advice, and changes nothing for pages that are there.
static void adviseLargePages(const ValueSignature &value, const TensorReference &result) {
#ifdef __linux__
  int64_t elements = 1, span = 1;
  for (size_t dim = 0; dim < value.shape.size(); ++dim) {
    elements *= result.shape[dim];
    if (result.strides)
      span += (result.shape[dim] - 1) * std::max<int64_t>(result.strides[dim], 0);
  }
  int64_t bytes = (result.strides ? span : elements) * elementSize(value.kind);
  if (elements == 0 || bytes < kLargePagesFrom)
    return;
  uint64_t page = sysconf(_SC_PAGESIZE), start = reinterpret_cast<uintptr_t>(result.data);
  uint64_t first = alignTo(start, page), end = alignDown(start + bytes, page);
  (void)madvise(reinterpret_cast<void *>(first), end - first, MADV_HUGEPAGE);
#endif
}

Error Executable::run(const TensorReference *arguments, const TensorReference *results,
                      void *workspace, size_t workspaceBytes, void *stream) const {
  if (Error error = checkValues(signature, arguments, results))
    return error;
  CallSlots slots(signature);
  addAll(slots, signature, function->takesContext(), arguments, results);
  if (target.getDescription().memory == target::Memory::Host)
    for (size_t index = 0; index < signature.results.size(); ++index)
      adviseLargePages(signature.results[index], results[index]);
  return function->run(slots.data(), {workspace, workspaceBytes, stream});
}
