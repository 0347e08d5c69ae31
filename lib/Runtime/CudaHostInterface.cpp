// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the host code of a CUDA program calls. See CudaHostInterface.h.

#include "attn/Runtime/CudaHostInterface.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace attn::cuda;

static constexpr size_t workspaceAlignment = 256;
/// Where workspace seems to start while it is being measured: not null, and
/// nothing that a pointer could be taken for.
static constexpr Address measuringBase = workspaceAlignment;
/// The same for memory of arguments, far from workspace.
static constexpr Address lentBase = Address(1) << 60;

void Call::fail(const Twine &message) {
  if (problem.empty())
    problem = message.str();
}

Error Call::takeError() {
  if (problem.empty())
    return Error::success();
  return createStringError(problem);
}

Address Call::allocate(int64_t bytes) {
  Address base = driver ? workspace : measuringBase;
  if (bytes < 0 || bytes > int64_t(1) << 47) {
    fail("a workspace of " + Twine(bytes) + " bytes");
    return base;
  }
  size_t start = used;
  allocations.push_back({start, false});
  used += alignTo(std::max<uint64_t>(uint64_t(bytes), 1), workspaceAlignment);
  peak = std::max(peak, used);
  if (driver && used > capacity)
    fail("expected a workspace of at least " + Twine(used) + " bytes, got " + Twine(capacity));
  return base + start;
}

Address Call::allocateAliasing(int64_t bytes, int32_t argument, Address start, int64_t room) {
  auto place = find_if(aliased, [&](const auto &each) { return each.first == argument; });
  uint64_t first = place == aliased.end() ? 0 : alignTo(place->second, workspaceAlignment);
  if (bytes <= 0 || room < bytes || first > uint64_t(room - bytes))
    return allocate(bytes);
  if (place == aliased.end())
    place = aliased.insert(place, {argument, 0});
  place->second = first + uint64_t(bytes);
  if (!driver)
    return lentBase + first;
  if (start % 16)
    fail("argument " + Twine(argument) + " does not start at a multiple of 16 bytes");
  return start + first;
}

void Call::free(Address address) {
  size_t start = size_t(address - (driver ? workspace : measuringBase));
  for (auto &[at, freed] : allocations)
    freed |= at == start;
  while (!allocations.empty() && allocations.back().second)
    used = allocations.pop_back_val().first;
}

void Call::launch(int32_t kernel, const int64_t *dims, int32_t sharedBytes, void **parameters) {
  if (!driver || !problem.empty())
    return;
  LaunchConfig config = {};
  for (unsigned i = 0; i < 3; ++i) {
    // The limits of compute capability 9.0; the driver checks the others, but
    // sees the numbers only after they are cut to 32 bits.
    int64_t largest = i == 0 ? INT32_MAX : UINT16_MAX;
    if (dims[i] == 0)
      return;
    if (dims[i] < 0 || dims[i] > largest)
      return fail("a grid of " + Twine(dims[0]) + " x " + Twine(dims[1]) + " x " + Twine(dims[2]) +
                  " blocks is too large");
    if (dims[3 + i] < 1 || dims[3 + i] > 1024)
      return fail("a block of " + Twine(dims[3]) + " x " + Twine(dims[4]) + " x " + Twine(dims[5]) +
                  " threads");
    config.grid[i] = unsigned(dims[i]);
    config.block[i] = unsigned(dims[3 + i]);
  }
  config.sharedBytes = unsigned(sharedBytes);
  config.stream = stream;
  LaunchAttribute attributes[3] = {};
  config.attributes = attributes;
  if (dims[6] != 1 || dims[7] != 1 || dims[8] != 1) {
    LaunchAttribute &cluster = attributes[config.numAttributes++];
    cluster.id = launchClusterDimension;
    for (unsigned i = 0; i < 3; ++i)
      cluster.cluster[i] = unsigned(dims[6 + i]);
  }
  if (dims[9]) {
    LaunchAttribute &cooperative = attributes[config.numAttributes++];
    cooperative.id = launchCooperative;
    cooperative.cooperative = 1;
  }
  // One that needs room for all blocks at once starts when there is.
  if (dims[0] * dims[1] * dims[2] <= dims[10] && !dims[9]) {
    LaunchAttribute &early = attributes[config.numAttributes++];
    early.id = launchProgrammaticStreamSerialization;
    early.programmaticStreamSerializationAllowed = 1;
  }
  Result result = driver->launchKernelEx(&config, kernels[kernel], parameters, nullptr);
  if (result != 0)
    fail("the launch of kernel " + Twine(kernel) + " with " + Twine(dims[0]) + " x " +
         Twine(dims[1]) + " x " + Twine(dims[2]) + " blocks of " +
         Twine(dims[3] * dims[4] * dims[5]) + " threads and " + Twine(sharedBytes) +
         " bytes of shared memory failed: " + driver->describe(result));
}

namespace {
/// A tensor as the driver takes it: innermost dimension first, strides in bytes
/// of all dimensions but that one.
struct MapShape {
  uint64_t sizes[5], strides[4];
  uint32_t box[5], elementStrides[5] = {1, 1, 1, 1, 1};
};
} // namespace

/// Empty if the driver can encode the tensor, else why it cannot.
static std::string describeShape(MapShape &shape, int32_t rank, unsigned elementBytes,
                                 const int64_t *sizes, const int64_t *strides) {
  bool empty = false;
  for (int32_t i = 0; i < rank; ++i)
    empty |= sizes[i] == 0;
  for (int32_t i = 0; i < rank; ++i) {
    int32_t from = rank - 1 - i;
    uint64_t size = empty ? 1 : uint64_t(sizes[from]);
    if (size > uint64_t(1) << 32)
      return ("dimension " + Twine(from) + " has " + Twine(size) + " elements, more than 2^32")
          .str();
    shape.sizes[i] = size;
    if (i == 0)
      continue;
    // The stride of a dimension of size 1 is never used, and may be anything.
    uint64_t stride = size == 1 ? 16 : uint64_t(strides[from]) * elementBytes;
    if (stride % 16 || stride >= uint64_t(1) << 40)
      return ("dimension " + Twine(from) + " has a stride of " +
              Twine(int64_t(strides[from]) * int64_t(elementBytes)) +
              " bytes, not a multiple of 16 below 2^40")
          .str();
    shape.strides[i - 1] = stride;
  }
  return "";
}

void Call::encode(TensorMap *map, int32_t argument, int32_t type, int32_t rank, int64_t address,
                  const int64_t *sizes, const int64_t *strides, int32_t boxRows, int32_t boxColumns,
                  int32_t swizzle) {
  if (!driver || !problem.empty())
    return;
  auto who = [&] {
    return argument < 0 ? std::string("a workspace") : "argument " + std::to_string(argument);
  };
  MapShape shape;
  std::string reason = describeShape(shape, rank, type == 2 ? 4 : 2, sizes, strides);
  bool empty = std::any_of(sizes, sizes + rank, [](int64_t n) { return n == 0; });
  if (empty)
    address = int64_t(zeros);
  if (reason.empty() && address % 16)
    reason = "it does not start at a multiple of 16 bytes";
  if (!reason.empty())
    return fail(
        "copies by TMA cannot reach " + who() + ": " + reason +
        "; compiled with the schedule option 'products=mma', threads copy, from any address");
  for (int32_t i = 0; i < rank; ++i)
    shape.box[i] = uint32_t(i == 0 ? boxColumns : i == 1 ? boxRows : 1);
  int swizzleMode = swizzle == 128 ? 3 : swizzle == 64 ? 2 : swizzle == 32 ? 1 : 0;
  static constexpr int types[] = {mapF16, mapBF16, mapF32};
  // L2 fetches 128 bytes at a miss: with 256 the memory gives less. Long gradients of wide rows,
  // which read them again and again, are as fast with 256, or a little faster.
  constexpr int64_t wide = 512;
  int promotion = sizes[rank - 1] * (type == 2 ? 4 : 2) < wide ? 2 : 3;
  Result result = driver->tensorMapEncodeTiled(
      map, types[type], uint32_t(rank), reinterpret_cast<void *>(address), shape.sizes,
      shape.strides, shape.box, shape.elementStrides,
      /*interleave=*/0, swizzleMode, promotion, /*fill=*/0);
  if (result != 0)
    fail("copies by TMA cannot reach " + who() + ": " + driver->describe(result));
}

void attnCudaLaunch(void *call, int32_t kernel, const int64_t *dims, int32_t sharedBytes,
                    void **parameters) {
  static_cast<Call *>(call)->launch(kernel, dims, sharedBytes, parameters);
}

void attnCudaTensorMap(void *call, void *map, int32_t argument, int32_t type, int32_t rank,
                       int64_t address, const int64_t *sizes, const int64_t *strides,
                       int32_t boxRows, int32_t boxColumns, int32_t swizzle) {
  static_cast<Call *>(call)->encode(static_cast<TensorMap *>(map), argument, type, rank, address,
                                    sizes, strides, boxRows, boxColumns, swizzle);
}

void *attnCudaAllocate(void *call, int64_t bytes) {
  return reinterpret_cast<void *>(static_cast<Call *>(call)->allocate(bytes));
}

void *attnCudaAllocateAliasing(void *call, int64_t bytes, int32_t argument, int64_t start,
                               int64_t room) {
  return reinterpret_cast<void *>(
      static_cast<Call *>(call)->allocateAliasing(bytes, argument, Address(start), room));
}

void attnCudaFree(void *call, int64_t address) {
  static_cast<Call *>(call)->free(Address(address));
}
