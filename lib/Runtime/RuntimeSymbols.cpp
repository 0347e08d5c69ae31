// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Symbols that compiled code may call. See RuntimeSymbols.h.

#include "RuntimeSymbols.h"
#include "attn/Runtime/CudaHostInterface.h"
#include "attn/Runtime/ThreadPool.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include <cmath>
#include <cstdlib>
#include <cstring>

using namespace llvm;

namespace {
/// A memref of any rank as compiled code passes it: the rank, and a descriptor
/// of two pointers, an offset, sizes and strides.
struct UnrankedMemRef {
  int64_t rank;
  int64_t *descriptor;

  char *data(int64_t elementSize) const {
    return reinterpret_cast<char *>(descriptor[1]) + descriptor[2] * elementSize;
  }
  int64_t size(int64_t dim) const { return descriptor[3 + dim]; }
  int64_t stride(int64_t dim) const { return descriptor[3 + rank + dim]; }
};
} // namespace

/// What memref.copy calls where either side is strided.
static void memrefCopy(int64_t elementSize, UnrankedMemRef *source, UnrankedMemRef *target) {
  int64_t rank = source->rank;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (source->size(dim) == 0)
      return;
  const char *from = source->data(elementSize);
  char *to = target->data(elementSize);
  SmallVector<int64_t, 8> index(rank, 0);
  while (true) {
    std::memcpy(to, from, elementSize);
    int64_t dim = rank - 1;
    for (; dim >= 0; --dim) {
      from += source->stride(dim) * elementSize;
      to += target->stride(dim) * elementSize;
      if (++index[dim] < source->size(dim))
        break;
      from -= source->size(dim) * source->stride(dim) * elementSize;
      to -= source->size(dim) * target->stride(dim) * elementSize;
      index[dim] = 0;
    }
    if (dim < 0)
      return;
  }
}

orc::SymbolMap attn::getRuntimeSymbols(orc::LLJIT &jit) {
  orc::SymbolMap symbols;
  auto add = [&](StringRef name, auto *function) {
    symbols[jit.mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(function),
                                          JITSymbolFlags::Exported | JITSymbolFlags::Callable};
  };
  add("attnRuntimeParallelFor", &attnRuntimeParallelFor);
  add("attnRuntimeCountTile", &attnRuntimeCountTile);
  // On scalars the C interface of a function is the function.
  add("_mlir_ciface_attnRuntimeCountTile", &attnRuntimeCountTile);
  add("attnCudaLaunch", &attnCudaLaunch);
  add("attnCudaTensorMap", &attnCudaTensorMap);
  add("attnCudaAllocate", &attnCudaAllocate);
  add("attnCudaAllocateAliasing", &attnCudaAllocateAliasing);
  add("attnCudaFree", &attnCudaFree);
  add("memrefCopy", &memrefCopy);
  add("malloc", &std::malloc);
  add("aligned_alloc", &std::aligned_alloc);
  add("free", &std::free);
  add("memcpy", &::memcpy);
  add("memmove", &::memmove);
  add("memset", &::memset);
  // Of the overloads for float and double, the C functions.
  using F64 = double (*)(double);
  using F32 = float (*)(float);
#define ADD_UNARY(NAME)                                                                            \
  add(#NAME, F64(&::NAME));                                                                        \
  add(#NAME "f", F32(&::NAME##f));
  ADD_UNARY(acos)
  ADD_UNARY(acosh)
  ADD_UNARY(asin)
  ADD_UNARY(asinh)
  ADD_UNARY(atan)
  ADD_UNARY(atanh)
  ADD_UNARY(cbrt)
  ADD_UNARY(ceil)
  ADD_UNARY(cos)
  ADD_UNARY(cosh)
  ADD_UNARY(erf)
  ADD_UNARY(erfc)
  ADD_UNARY(exp)
  ADD_UNARY(exp2)
  ADD_UNARY(expm1)
  ADD_UNARY(floor)
  ADD_UNARY(log)
  ADD_UNARY(log10)
  ADD_UNARY(log1p)
  ADD_UNARY(log2)
  ADD_UNARY(rint)
  ADD_UNARY(round)
  ADD_UNARY(roundeven)
  ADD_UNARY(sin)
  ADD_UNARY(sinh)
  ADD_UNARY(sqrt)
  ADD_UNARY(tan)
  ADD_UNARY(tanh)
  ADD_UNARY(trunc)
#undef ADD_UNARY
  using F64F64 = double (*)(double, double);
  using F32F32 = float (*)(float, float);
#define ADD_BINARY(NAME)                                                                           \
  add(#NAME, F64F64(&::NAME));                                                                     \
  add(#NAME "f", F32F32(&::NAME##f));
  ADD_BINARY(atan2)
  ADD_BINARY(copysign)
  ADD_BINARY(fmax)
  ADD_BINARY(fmin)
  ADD_BINARY(fmod)
  ADD_BINARY(pow)
#undef ADD_BINARY
  using F64F64F64 = double (*)(double, double, double);
  using F32F32F32 = float (*)(float, float, float);
  add("fma", F64F64F64(&::fma));
  add("fmaf", F32F32F32(&::fmaf));
  return symbols;
}
