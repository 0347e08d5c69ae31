// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Facts that passes leave in the IR: discardable attributes. Each has its one name here (those of
// the hopper dialect in HopperFacts.h), a line in docs/facts.md, and is verified: on which ops it
// stands, what its value is, which others it needs or excludes. attn-check-facts and
// hopper-check-facts check what a verifier, which sees one op, cannot.

#ifndef ATTN_DIALECT_ATTN_IR_FACTS_H
#define ATTN_DIALECT_ATTN_IR_FACTS_H

#include "mlir/IR/Attributes.h"
#include "mlir/IR/Operation.h"

namespace attn {

/// A loop along one tile dimension: an iteration whose terms are all neutral may be skipped.
inline constexpr llvm::StringLiteral kFoldLoopAttr = "attn.fold_loop";
/// A fold loop without mask arithmetic: every element of its tiles counts.
inline constexpr llvm::StringLiteral kFullAttr = "attn.full";
/// A fold loop whose bounds already follow from its mask, which lets iterations be skipped where it
/// keeps nothing.
inline constexpr llvm::StringLiteral kPartialAttr = "attn.partial";
/// A fold loop over the list of tiles that a table names.
inline constexpr llvm::StringLiteral kTabulatedAttr = "attn.tabulated";
/// An scf.if in a partial loop around the work on tiles that are not empty.
inline constexpr llvm::StringLiteral kGuardAttr = "attn.guard";
/// An scf.if in a partial or tabulated loop: then for full tiles, else for those with a mask.
inline constexpr llvm::StringLiteral kTileKindAttr = "attn.tile_kind";
/// Of a product: the second factor is 1 in nearly all rows.
inline constexpr llvm::StringLiteral kRescalingAttr = "attn.rescaling";
/// On the question whether a row of a tile takes the side of a branch that nearly none takes: it
/// may be answered with yes where it is no.
inline constexpr llvm::StringLiteral kMayHoldAttr = "attn.may_hold";
/// Of a tile program, and of its launch: no tile has less work than a later one.
inline constexpr llvm::StringLiteral kDescendingAttr = "attn.descending";
/// On a fold: how many rows its tiles have, and how many streamed elements.
inline constexpr llvm::StringLiteral kBlockMAttr = "attn.block_m";
inline constexpr llvm::StringLiteral kBlockNAttr = "attn.block_n";
/// On the op that computes into how many parts a streamed dimension is divided.
inline constexpr llvm::StringLiteral kPartCountAttr = "attn.part_count";
/// Names, for whoever reads: of a statement's loops, of a loop, of a statement, of memory.
inline constexpr llvm::StringLiteral kDimsAttr = "attn.dims";
inline constexpr llvm::StringLiteral kLoopAttr = "attn.loop";
inline constexpr llvm::StringLiteral kStatementAttr = "attn.stmt";
inline constexpr llvm::StringLiteral kNameAttr = "attn.name";
/// On a loop that a user wrote: two partial states of it can be merged.
inline constexpr llvm::StringLiteral kMergeAttr = "attn.merge";
/// On a loop on memory: how it runs, a name of LoopTreatment.
inline constexpr llvm::StringLiteral kTreatmentAttr = "attn.treatment";
/// On a module for the host: the kernels that it launches, in the order of their numbers.
inline constexpr llvm::StringLiteral kKernelsAttr = "attn.kernels";
/// On the module of a version (attn.versions), or on a function that is one (kVersionOfAttr): all
/// conditions under which a call runs it.
inline constexpr llvm::StringLiteral kWhenAttr = "attn.when";
/// On a function: the name of the function beside it that runs it under its conditions. The first
/// one whose conditions hold runs.
inline constexpr llvm::StringLiteral kVersionOfAttr = "attn.version_of";
/// On the op that computes a size: about how large it will be.
inline constexpr llvm::StringLiteral kExpectedSizeAttr = "attn.expected_size";

/// What the value of a fact is; that of `Typed` is left to the fact's own verifier.
enum class FactType { Unit, Positive, Count, Argument, Name, Names, Symbols, Numbers, Typed };

/// One fact of a dialect.
struct Fact {
  llvm::StringLiteral name;
  /// Names of the ops that it stands on, with commas in between; "linalg" for all of a dialect,
  /// "any" for all.
  llvm::StringLiteral ops;
  FactType type;
  /// What else is asked of the op; null for nothing.
  llvm::LogicalResult (*verify)(mlir::Operation *op) = nullptr;
  /// Whether it also stands on the argument of a function.
  bool ofArgument = false;
};

/// Verifies an attribute with a dialect's prefix: an error at the op where it is none of `facts`,
/// is misplaced, or has another type.
llvm::LogicalResult verifyFact(llvm::ArrayRef<Fact> facts, mlir::Operation *op,
                               mlir::NamedAttribute attribute);
/// The same on an argument or, where `isResult`, on a result of a function.
llvm::LogicalResult verifyFactOfArgument(llvm::ArrayRef<Fact> facts, mlir::Operation *op,
                                         bool isResult, mlir::NamedAttribute attribute);

} // namespace attn

#endif
