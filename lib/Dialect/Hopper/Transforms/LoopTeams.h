// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who runs what of an affine nest: see hopper-launch-loops.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_LOOPTEAMS_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_LOOPTEAMS_H

#include "attn/Analysis/DependenceGraph.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"

namespace attn::hopper {

/// What runs an iteration of the outer parallel loops, a row.
enum class Team {
  Thread,
  Cta,
  Cluster,  ///< CTAs that meet through their shared memory
  Grid,     ///< CTAs that meet through global memory, all of the launch at a time
  Launches, ///< CTAs that meet at the end of a launch
};

struct TeamOptions {
  int64_t threads = 128, parts = 0, ctas = 132;
  bool mergesLast = false;         ///< the last CTA of a row merges its parts
  std::optional<Team> ofUndivided; ///< what runs rows in which no loop is divided
};

/// A running value that is computed in parts: one element of memory in each iteration of a divided
/// loop, or one for each iteration of loops inside.
struct Partial {
  mlir::affine::AffineLoadOp load;
  mlir::affine::AffineStoreOp store;
  mlir::Operation *combiner = nullptr;
  unsigned statement = 0; ///< of the store
  /// Loops inside, outermost first, of which each iteration has an element.
  llvm::SmallVector<mlir::affine::AffineForOp> dims;
  std::optional<int64_t> elements; ///< where known

  mlir::Type getType() const { return load->getResult(0).getType(); }
};

/// A loop whose iterations the CTAs of a team divide, though it carries something.
struct DividedLoop {
  mlir::affine::AffineForOp op;
  LoopTreatment treatment;
  llvm::SmallVector<Partial> partials; ///< none where CTAs take turns
  /// Whether threads share an iteration, and do not have one each.
  bool isShared() const {
    return llvm::any_of(partials, [](const Partial &each) { return !each.dims.empty(); });
  }
};

/// How `loop` is planned to run (`attn.treatment`); parallel loops that nobody planned are.
LoopTreatment getTreatment(mlir::affine::AffineForOp loop, const DependenceGraph &graph);

/// The plan of one outermost loop.
struct TeamPlan {
  Team team = Team::Cta;
  /// Outer parallel loops, each directly in the one before.
  llvm::SmallVector<mlir::affine::AffineForOp> band;
  /// What an iteration of them does.
  llvm::SmallVector<mlir::Operation *> row;
  llvm::SmallVector<DividedLoop, 0> divided;

  /// Whether the threads of a team divide `loop`, which carries nothing and in which no loop is
  /// divided among its CTAs.
  bool isOfThreads(mlir::affine::AffineForOp loop, const DependenceGraph &graph) const;

  const DividedLoop *find(mlir::Operation *op) const {
    auto found = llvm::find_if(divided, [&](const DividedLoop &each) { return each.op == op; });
    return found == divided.end() ? nullptr : &*found;
  }
};

/// The plan of `nest`, or an error at the op that it has none for.
mlir::FailureOr<TeamPlan> planTeams(const DependenceGraph &graph, mlir::affine::AffineForOp nest,
                                    const TeamOptions &options);

/// Whether `value` is the same in all iterations of the loops inside of `scope` (also of those
/// around it, where `scope` is the function): no variable or result in it leads to the value.
bool isDefinedOutside(mlir::Value value, mlir::Operation *scope);

} // namespace attn::hopper

#endif
