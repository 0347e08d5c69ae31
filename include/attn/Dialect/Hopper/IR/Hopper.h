// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hopper dialect, its types and its ops; HopperOps.td has their meaning.

#ifndef ATTN_DIALECT_HOPPER_IR_HOPPER_H
#define ATTN_DIALECT_HOPPER_IR_HOPPER_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/HopperFacts.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Target/SM90/SM90.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "attn/Dialect/Hopper/IR/HopperDialect.h.inc"
#include "attn/Dialect/Hopper/IR/HopperEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Hopper/IR/HopperAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Hopper/IR/HopperTypes.h.inc"

#define GET_OP_CLASSES
#include "attn/Dialect/Hopper/IR/HopperOps.h.inc"

namespace attn::hopper {

/// What one CTA has.
constexpr int64_t kSharedMemoryBytes = target::sm90::kLimits.sharedBytesPerCta;
constexpr int64_t kRegistersPerCta = target::sm90::kLimits.registersPerCta;
/// The same where `occupancy` CTAs share a multiprocessor, which keeps some for each.
constexpr int64_t getSharedMemoryBytes(int64_t occupancy) {
  constexpr int64_t kReserved = target::sm90::kLimits.sharedBytesReserved;
  return (kSharedMemoryBytes + kReserved) / occupancy - kReserved;
}
/// CTAs of a cluster, at most: what needs no permission ("portable").
constexpr int64_t kCtasPerCluster = target::sm90::kLimits.ctasPerCluster;
constexpr int64_t kThreadsPerWarpgroup = 128;
/// Threads that hold the rows of a warpgroup where products are those of single warps: a warp has
/// twice as many rows then, and reads the other operand half as often.
constexpr int64_t kThreadsOfWarpPair = 64;
/// Registers that each thread has when a CTA starts, before its roles divide them.
constexpr int64_t getInitialRegisters(int64_t warpgroups, int64_t occupancy) {
  int64_t share = kRegistersPerCta / occupancy / (warpgroups * kThreadsPerWarpgroup) / 8 * 8;
  return std::min(share, target::sm90::kLimits.registersPerThread);
}
/// Named barriers of a CTA; 0 is __syncthreads's.
constexpr int64_t kNamedBarriers = 16;
/// Rows of one warpgroup-wide matrix instruction, the same for all types.
constexpr int64_t kWarpgroupRows = target::sm90::kAtoms[0].m;
/// Columns that its results come in, a group of registers for each so many.
constexpr int64_t kColumnGroup = target::sm90::kAtoms[0].n.step;
/// Those of them that one warp has.
constexpr int64_t kWarpRows = kWarpgroupRows / 4;

/// The role that an op is in, or null.
mlir::Region *getRole(mlir::Operation *op);

/// The argument, of those of the function from number `first` on, that an allocation may lie in
/// (`kAliasesAttr`); an error at the op where it is no memory.
mlir::FailureOr<mlir::Value> findAliased(mlir::Operation *alloc, mlir::IntegerAttr aliases,
                                         unsigned first = 0);

/// Whether one thread of the warpgroups of a role has all there is to do in it: no vectors, nor
/// what threads do together.
bool isSingleThreaded(mlir::Region &region);

/// The matrix instruction for operands of a type, with sums in f32; null where there is none.
const target::MmaAtom *findAtom(mlir::Type operands);

} // namespace attn::hopper

#endif
