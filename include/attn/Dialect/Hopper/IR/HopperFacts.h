// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Facts of the hopper dialect: see attn/Dialect/Attn/IR/Facts.h and docs/facts.md.

#ifndef ATTN_DIALECT_HOPPER_IR_HOPPERFACTS_H
#define ATTN_DIALECT_HOPPER_IR_HOPPERFACTS_H

#include "llvm/ADT/StringRef.h"

namespace attn::hopper {

/// On a module: how its nests are formed (#hopper.nests), the schedule of its kernels
/// (#hopper.schedule), and why it cannot be a version of its function.
inline constexpr llvm::StringLiteral kNestsAttr = "hopper.nests";
inline constexpr llvm::StringLiteral kScheduleAttr = "hopper.schedule";
inline constexpr llvm::StringLiteral kRefusedAttr = "hopper.refused";
/// On a module: maxima should run on. A mask may leave rows of a head without keys, which would be
/// computed twice with fixed maxima, or a sink is the first term of the sums.
inline constexpr llvm::StringLiteral kRunningMaximaAttr = "hopper.running_maxima";
/// On a module: its statements become row programs (hopper-form-row-programs), not nests of tiles.
inline constexpr llvm::StringLiteral kWarpsAttr = "hopper.warps";
inline constexpr llvm::StringLiteral kRowsAttr = "hopper.row_programs";
/// On a loop that runs at least once.
inline constexpr llvm::StringLiteral kNonemptyAttr = "hopper.nonempty";
/// On a launch whose CTAs wait for each other: all of them run at the same time, or none.
inline constexpr llvm::StringLiteral kCooperativeAttr = "hopper.cooperative";
/// On an allocation: the number of the function's argument that it may lie in, which is written
/// whole later and not touched before.
inline constexpr llvm::StringLiteral kAliasesAttr = "hopper.aliases";
/// Of a kernel that waits by itself until the launches before have ended
/// (`griddepcontrol.wait`): with up to so many blocks it may be launched while they run.
inline constexpr llvm::StringLiteral kEarlyAttr = "hopper.early";
/// On a math.exp2 of a tile, n: of n pairs of neighbouring columns one by a polynomial.
inline constexpr llvm::StringLiteral kEmulatedAttr = "hopper.emulated";
/// On a loop that a warpgroup leaves early, and on the one in which it passes on
/// the tiles of the iterations that are left: together they have as many
/// iterations for each warpgroup.
inline constexpr llvm::StringLiteral kTrimmedAttr = "hopper.trimmed";
/// On a loop whose tiles are added to memory by a role of its own, and on those of the other
/// roles that go with it.
inline constexpr llvm::StringLiteral kAddingAttr = "hopper.adding";
/// On a launch whose roles have their tiles already.
inline constexpr llvm::StringLiteral kDealtAttr = "hopper.dealt";
/// Of a kernel: its bytes of shared memory, how many CTAs of it share a multiprocessor, and which
/// of its parameters are tensor maps.
inline constexpr llvm::StringLiteral kSharedBytesAttr = "hopper.shared_bytes";
inline constexpr llvm::StringLiteral kOccupancyAttr = "hopper.occupancy";
inline constexpr llvm::StringLiteral kTensorMapsAttr = "hopper.tensor_maps";

} // namespace attn::hopper

#endif
