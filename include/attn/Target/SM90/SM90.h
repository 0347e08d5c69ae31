// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hopper (H100, H200, GH200): the one place that names its chip and has its numbers.

#ifndef ATTN_TARGET_SM90_SM90_H
#define ATTN_TARGET_SM90_SM90_H

#include "attn/Target/Description.h"

namespace attn::target::sm90 {

/// Of the PTX that kernels are compiled to ("PTX ISA", 8.6).
inline constexpr llvm::StringLiteral kFeatures("+ptx86");

/// `wgmma.mma_async` with dense operands ("PTX ISA", "Matrix Shape"). B always lies in shared
/// memory.
inline constexpr MmaAtom kAtoms[] = {
    {MmaType::BF16, MmaType::F32, /*m=*/64, /*n=*/{8, 256, 8}, /*k=*/16, true, false},
    {MmaType::F16, MmaType::F32, /*m=*/64, /*n=*/{8, 256, 8}, /*k=*/16, true, false},
};

inline constexpr Limits kLimits = {
    /*sharedBytesPerCta=*/232448, // 227 KB
    /*sharedBytesReserved=*/1024,
    /*registersPerCta=*/65536,
    /*registersPerThread=*/256, // setmaxnreg
    /*threadsPerCta=*/1024,
    /*threadsPerMultiprocessor=*/2048,
    /*ctasPerCluster=*/8,
    /*multiprocessors=*/132, // H100 (SXM) and H200
};

inline constexpr llvm::StringLiteral kName("sm_90"), kChip("sm_90a");
inline constexpr int kCapability = 90;

} // namespace attn::target::sm90

#endif
