// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the kernels in a PTX text take.

#ifndef ATTN_LIB_CONVERSION_LOWERLAUNCHES_PTXKERNELS_H
#define ATTN_LIB_CONVERSION_LOWERLAUNCHES_PTXKERNELS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace attn {

struct PtxParameter {
  /// Of a scalar 1 to 8; of a struct that is passed by value, its size.
  uint64_t bytes;
  bool isStruct;
};

/// The parameters of the entry `kernel`, or nothing where the text has no such
/// entry or one that cannot be read. Source: PTX ISA, "Kernel Function
/// Parameters".
std::optional<llvm::SmallVector<PtxParameter>> findPtxKernel(llvm::StringRef ptx,
                                                             llvm::StringRef kernel);

} // namespace attn

#endif
