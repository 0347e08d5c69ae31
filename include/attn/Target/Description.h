// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a target is, as data: its name and chip, its limits, and the table of its
// matrix instructions, which verifiers, layouts, lowerings and the interpreter read.

#ifndef ATTN_TARGET_DESCRIPTION_H
#define ATTN_TARGET_DESCRIPTION_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <string>

namespace mlir {
class Type;
}

namespace attn::target {

/// Element types of matrix instructions.
enum class MmaType { BF16, F16, F32, F64 };

/// Sizes that an instruction comes in.
struct MmaSizes {
  int64_t least, most, step;
  constexpr bool contains(int64_t size) const {
    return size >= least && size <= most && (size - least) % step == 0;
  }
};

/// One matrix instruction: `accumulator[m, n] += sum_k A[m, k] B[k, n]`, by the
/// threads of one warpgroup (SM90) or what else the target's unit is.
struct MmaAtom {
  MmaType operands, accumulator;
  int64_t m;
  MmaSizes n;
  int64_t k;
  /// Operands that may come from registers; others lie in shared memory.
  bool aInRegisters, bInRegisters;
};

/// What hardware has of a thing; 0 where it has none of it, or where that is not known.
struct Limits {
  /// Bytes of shared memory that a CTA may take, and those that a multiprocessor keeps to
  /// itself for each CTA.
  int64_t sharedBytesPerCta = 0, sharedBytesReserved = 0;
  /// Registers of 32 bits. A thread's are the most that it may ask for.
  int64_t registersPerCta = 0, registersPerThread = 0;
  int64_t threadsPerCta = 0, threadsPerMultiprocessor = 0;
  /// CTAs of a cluster that need no permission ("portable").
  int64_t ctasPerCluster = 0;
  /// Of the cards that are chosen for unless the one at hand has others.
  int64_t multiprocessors = 0;
};

/// Where a program expects the tensors of a call.
enum class Memory {
  Host, ///< memory of the process
  Cuda  ///< device memory of the calling thread's CUDA context
};

struct Description {
  /// What users call it: "cpu", "sm_90".
  llvm::StringLiteral name;
  /// What code is made for: "native", "sm_90a".
  llvm::StringLiteral chip;
  /// Of a CUDA device that programs run on, 90 for 9.0; 0 where there is none.
  int capability;
  Memory memory;
  Limits limits;
  llvm::ArrayRef<MmaAtom> atoms;
  /// Programs run on devices of later capabilities, too.
  bool runsLater = false;
};

/// "bf16", "f16", "f32", "f64".
llvm::StringRef getName(MmaType type);

/// The atom with operands of this type, or null.
const MmaAtom *findMmaAtom(llvm::ArrayRef<MmaAtom> atoms, mlir::Type operands);

/// Whether an element type is the one named.
bool isType(MmaType type, mlir::Type element);

/// The operand types of all atoms, for messages: "bf16 or f16".
std::string listOperands(llvm::ArrayRef<MmaAtom> atoms);

} // namespace attn::target

#endif
