// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the host code of a CUDA program calls: the interface between the pass
// attn-lower-launches and the runtime.
//
// Host code knows sizes and addresses but never touches memory of the device.
// It has no branches on errors: the first one is kept in the call, and later
// steps of the same call do nothing.

#ifndef ATTN_RUNTIME_CUDAHOSTINTERFACE_H
#define ATTN_RUNTIME_CUDAHOSTINTERFACE_H

#include "attn/Runtime/CudaDriver.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <string>

namespace attn::cuda {

/// One call of a program's function.
class Call {
public:
  /// A call that only finds out how much workspace it takes.
  Call() = default;
  /// A call that launches. `zeros` is 256 bytes of zeros on the device.
  Call(const Driver &driver, llvm::ArrayRef<Function> kernels, Stream stream, Address workspace,
       size_t workspaceBytes, Address zeros)
      : driver(&driver), kernels(kernels), stream(stream), workspace(workspace),
        capacity(workspaceBytes), zeros(zeros) {}

  void launch(int32_t kernel, const int64_t *dims, int32_t sharedBytes, void **parameters);
  void encode(TensorMap *map, int32_t argument, int32_t type, int32_t rank, int64_t address,
              const int64_t *sizes, const int64_t *strides, int32_t boxRows, int32_t boxColumns,
              int32_t swizzle);
  Address allocate(int64_t bytes);
  Address allocateAliasing(int64_t bytes, int32_t argument, Address start, int64_t room);
  void free(Address address);

  /// The most bytes that were allocated at one time.
  size_t getPeak() const { return peak; }
  llvm::Error takeError();

private:
  void fail(const llvm::Twine &message);

  const Driver *driver = nullptr; // null where only measuring
  llvm::ArrayRef<Function> kernels;
  Stream stream = nullptr;
  Address workspace = 0;
  size_t capacity = 0;
  Address zeros = 0;
  /// What is allocated, as a stack: where it starts, and whether it was freed.
  llvm::SmallVector<std::pair<size_t, bool>, 8> allocations;
  size_t used = 0, peak = 0;
  /// Bytes that are taken of arguments.
  llvm::SmallVector<std::pair<int32_t, uint64_t>, 2> aliased;
  std::string problem;
};

} // namespace attn::cuda

extern "C" {
/// Launches kernel number `kernel` of the program. `dims` are the sizes of the
/// grid in blocks, of a block in threads and of a cluster in blocks, x, y, z
/// each, whether all blocks run at the same time, and with how many blocks at most
/// the kernel, which waits by itself for those before it in the stream, may be
/// launched while these run (0: it does not wait); an empty grid launches nothing.
/// `parameters` are as cuLaunchKernel's.
void attnCudaLaunch(void *call, int32_t kernel, const int64_t *dims, int32_t sharedBytes,
                    void **parameters);

/// Writes the tensor map (128 bytes, aligned to 64) of a tensor whose sizes and
/// strides are given in elements, outermost dimension first, with a unit
/// innermost stride. `argument` is the tensor's position among the function's
/// arguments, or -1; `type` is 0 for f16, 1 for bf16, 2 for f32; `swizzle` in
/// bytes, 0 for none. Boxes have `boxColumns` of the last dimension and
/// `boxRows` of the one before. What is outside of the tensor reads as 0. All
/// of a tensor without elements is outside, but for one zero.
void attnCudaTensorMap(void *call, void *map, int32_t argument, int32_t type, int32_t rank,
                       int64_t address, const int64_t *sizes, const int64_t *strides,
                       int32_t boxRows, int32_t boxColumns, int32_t swizzle);

/// Workspace of the call, aligned to 256 bytes. What is freed in reverse order
/// is used again; the rest stays until the call ends.
void *attnCudaAllocate(void *call, int64_t bytes);

/// The same in the memory of argument number `argument`, of which nothing is used yet, where
/// enough of its `room` bytes from `start` on (a multiple of 16) is left: at a multiple of 256
/// bytes from there. It is not used again.
void *attnCudaAllocateAliasing(void *call, int64_t bytes, int32_t argument, int64_t start,
                               int64_t room);
void attnCudaFree(void *call, int64_t address);
}

#endif
