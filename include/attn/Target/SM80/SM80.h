// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ampere and what runs its instructions: chips, their limits, and products of single warps.

#ifndef ATTN_TARGET_SM80_SM80_H
#define ATTN_TARGET_SM80_SM80_H

#include "attn/Target/Description.h"

namespace attn::target::sm80 {

struct Chip {
  /// The target's name, which is the chip's.
  llvm::StringLiteral name;
  int capability;
  /// The PTX that kernels are compiled to: 7.6 has all that they use, newer chips need newer ones
  /// ("PTX ISA", "Release Notes").
  llvm::StringLiteral features;
  Limits limits;
  llvm::StringLiteral summary;
};

/// `mma.sync.m16n8k16` ("PTX ISA", "Matrix Fragments for mma.m16n8k16"); both operands come from
/// registers, through `ldmatrix` from shared memory. f32 and f64 are multiplied by FMAs.
inline constexpr MmaAtom kAtoms[] = {
    {MmaType::BF16, MmaType::F32, /*m=*/16, /*n=*/{8, 8, 8}, /*k=*/16, true, true},
    {MmaType::F16, MmaType::F32, /*m=*/16, /*n=*/{8, 8, 8}, /*k=*/16, true, true},
    {MmaType::F32, MmaType::F32, /*m=*/1, /*n=*/{1, 1, 1}, /*k=*/1, true, true},
    {MmaType::F64, MmaType::F64, /*m=*/1, /*n=*/{1, 1, 1}, /*k=*/1, true, true},
};

constexpr Limits getLimits(int64_t sharedKilobytes, int64_t threadsPerMultiprocessor,
                           int64_t multiprocessors) {
  return {sharedKilobytes * 1024,
          /*sharedBytesReserved=*/1024,
          /*registersPerCta=*/65536,
          /*registersPerThread=*/255,
          /*threadsPerCta=*/1024,       threadsPerMultiprocessor,
          /*ctasPerCluster=*/1,         multiprocessors};
}

/// Limits are those of the CUDA programming guide, "Technical Specifications per Compute
/// Capability"; multiprocessors those of the card in brackets.
inline constexpr Chip kChips[] = {
    {"sm_80", 80, "+ptx76", getLimits(163, 2048, 108),
     "NVIDIA's Ampere GPUs (A100), and later ones"},
    {"sm_86", 86, "+ptx76", getLimits(99, 1536, 84), "NVIDIA's GA10x GPUs (RTX 30, A40)"},
    {"sm_89", 89, "+ptx78", getLimits(99, 1536, 142), "NVIDIA's Ada GPUs (RTX 40, L40S)"},
    {"sm_100", 100, "+ptx86", getLimits(227, 2048, 148), "NVIDIA's Blackwell GPUs (B200)"},
    {"sm_120", 120, "+ptx87", getLimits(99, 1536, 170), "NVIDIA's Blackwell GPUs (RTX 50)"},
};

/// The chip of a name, or null.
inline const Chip *findChip(llvm::StringRef name) {
  for (const Chip &chip : kChips)
    if (name == chip.name)
      return &chip;
  return nullptr;
}

} // namespace attn::target::sm80

#endif
