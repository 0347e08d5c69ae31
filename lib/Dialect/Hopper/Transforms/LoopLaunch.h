// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The launches of one affine nest: see hopper-launch-loops.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_LOOPLAUNCH_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_LOOPLAUNCH_H

#include "LoopTeams.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

namespace attn::hopper {

class LoopLaunch {
public:
  LoopLaunch(const DependenceGraph &graph, mlir::affine::AffineForOp nest, const TeamPlan &plan,
             const TeamOptions &options)
      : graph(graph), nest(nest), plan(plan), options(options), b(nest.getLoc(), nest) {}

  /// Emits the launches in front of the nest, which stays; an error where a statement has no place.
  mlir::LogicalResult emit();
  int64_t getNumLaunches() const { return numLaunches; }

private:
  /// Who executes a statement: the first thread of a team, each of its threads, the one that has
  /// the iteration of a parallel loop, or somebody.
  enum class By { First, All, Own, Any };
  struct Executed {
    unsigned statement;
    By by;
    mlir::Operation *loop = nullptr; ///< of Own
  };
  /// Where a running value is while parts of it are computed.
  struct Place {
    const Partial *partial = nullptr;
    mlir::Value memory, base; ///< rank 1 from `base` on; rank 0 without
  };

  //===--- Arithmetic (LoopStatements.cpp) --------------------------------===//
  mlir::Value index(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, value); }
  mlir::Value add(mlir::Value a, mlir::Value c) { return mlir::arith::AddIOp::create(b, a, c); }
  mlir::Value mul(mlir::Value a, mlir::Value c) { return mlir::arith::MulIOp::create(b, a, c); }
  mlir::Value isEqual(mlir::Value a, mlir::Value c) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::eq, a, c);
  }
  mlir::Value isBelow(mlir::Value a, mlir::Value c) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::slt, a, c);
  }
  mlir::Value toI32(mlir::Value value) {
    return mlir::arith::IndexCastOp::create(b, b.getI32Type(), value);
  }
  llvm::SmallVector<mlir::Value> lookUp(mlir::ValueRange values);
  llvm::SmallVector<mlir::Value> expand(mlir::AffineMap map, mlir::ValueRange operands);
  /// The greatest or the least of a map's results.
  mlir::Value expandBound(mlir::AffineMap map, mlir::ValueRange operands, bool greatest);
  mlir::Value lowerBound(mlir::affine::AffineForOp loop);
  mlir::Value countOf(mlir::affine::AffineForOp loop);
  /// The variable of iteration `n`, from 0 on.
  mlir::Value variableOf(mlir::affine::AffineForOp loop, mlir::Value n);
  mlir::Value emitCondition(mlir::affine::AffineIfOp op);
  /// `emit(n)` for n from `first` to `end` in steps of `step`.
  void emitLoop(mlir::Value first, mlir::Value end, mlir::Value step,
                llvm::function_ref<void(mlir::Value)> emit);
  void emitIf(mlir::Value condition, llvm::function_ref<void()> emit);

  /// What one thread does alone.
  mlir::LogicalResult cloneOps(mlir::Block &block);
  mlir::LogicalResult cloneOp(mlir::Operation *op);
  mlir::LogicalResult cloneLoop(mlir::affine::AffineForOp loop,
                                llvm::function_ref<mlir::LogicalResult(mlir::Block &)> cloneBlock);
  mlir::LogicalResult cloneIf(mlir::affine::AffineIfOp op,
                              llvm::function_ref<mlir::LogicalResult(mlir::Block &)> cloneBlock);
  void cloneAccess(mlir::Operation *op);
  mlir::Value loadPlaced(const Place &place);
  void storePlaced(const Place &place, mlir::Value value);
  /// The element that iterations of the partial's loops have.
  mlir::Value elementOf(const Place &place);

  //===--- Frame (LoopLaunch.cpp) -----------------------------------------===//
  void emitHost();
  void chooseParts();
  void openLaunch();
  void closeLaunch();
  void setRow(mlir::Value number);
  mlir::LogicalResult emitRows();
  mlir::LogicalResult emitGridRows();
  mlir::LogicalResult emitIdle(mlir::Block &from, mlir::IRMapping &idle, mlir::Block &active);
  mlir::LogicalResult splitLaunch();
  mlir::LogicalResult emitRow();
  void emitZeros();
  mlir::Value allocate(mlir::Type element, mlir::Value count);
  /// What row ops in front of the current one compute and it, or those behind it, use: ops that can
  /// be repeated, and values that have to be kept.
  void findCrossing(llvm::SetVector<mlir::Operation *> &repeated,
                    llvm::SetVector<mlir::Value> &kept) const;
  bool canRepeat(mlir::Operation *op) const;

  //===--- What a team does together (LoopLaunch.cpp) ----------------------===//
  mlir::LogicalResult emitTogether(mlir::Operation *op);
  mlir::LogicalResult emitTogether(mlir::Block &block);
  mlir::LogicalResult emitBranch(mlir::affine::AffineIfOp op);
  mlir::LogicalResult emitParallel(mlir::affine::AffineForOp loop);
  mlir::LogicalResult emitInOrder(mlir::affine::AffineForOp loop);
  void listExecuted(mlir::Operation *op, llvm::SmallVectorImpl<Executed> &list) const;
  bool conflicts(const Executed &earlier, const Executed &later) const;
  bool conflicts(llvm::ArrayRef<Executed> earlier, llvm::ArrayRef<Executed> later) const;
  mlir::LogicalResult meet();
  /// Between an iteration with these executions and the next one.
  bool meetsBetween(llvm::ArrayRef<Executed> all) const;
  bool isAlone() const { return single || plan.team == Team::Cta; }
  mlir::Value getMember() { return single ? index(0) : member; }
  mlir::Value getMembers() { return single ? index(1) : parts; }
  mlir::Value getWorker() { return add(mul(getMember(), threadCount), thread); }
  mlir::Value getWorkers() { return mul(getMembers(), threadCount); }
  mlir::Value isFirst();
  /// The executions of a divided loop before its parts are merged, and in the merge.
  llvm::SmallVector<Executed> listParts(const DividedLoop &divided) const;
  llvm::SmallVector<Executed> listMerge(const DividedLoop &divided) const;
  /// Runs `emit` as the work of one CTA; what it does is unordered with all behind it.
  mlir::LogicalResult emitAlone(llvm::function_ref<mlir::LogicalResult()> emit,
                                mlir::Operation *scope);

  //===--- Divided loops (LoopReductions.cpp) ------------------------------===//
  mlir::LogicalResult emitParts(const DividedLoop &divided);
  mlir::LogicalResult emitTurns(const DividedLoop &divided);
  Place placeOf(const DividedLoop &divided, const Partial &partial);
  void emitNeutral(const Place &place);
  mlir::Value neutralOf(const Partial &partial);
  mlir::Value combine(const Partial &partial, mlir::Value a, mlir::Value c);
  mlir::Value combineThreads(const Partial &partial, mlir::Value own);
  mlir::LogicalResult emitIterations(const DividedLoop &divided);
  mlir::LogicalResult publish(const DividedLoop &divided, Place &place);
  mlir::LogicalResult addAtomically(const Place &place, mlir::Value value);
  void emitMerge(const Place &place, mlir::Value count);
  mlir::Value elementsOf(const Partial &partial);
  void setDims(const Partial &partial, mlir::Value element);
  bool isFree(mlir::Operation *op, unsigned loop) const;

  const DependenceGraph &graph;
  mlir::affine::AffineForOp nest;
  const TeamPlan &plan;
  const TeamOptions &options;
  mlir::ImplicitLocOpBuilder b;
  int64_t numLaunches = 0;

  /// On the host.
  llvm::SmallVector<mlir::Value> bandLows, bandCounts;
  mlir::Value rows, parts, teams;
  int64_t knownParts = 1; ///< of a cluster
  llvm::DenseMap<const Partial *, mlir::Value> workspaces;
  llvm::DenseMap<mlir::Operation *, mlir::Value> flags; ///< by divided loop, one for each row
  mlir::Value counter;                                  ///< of the grid
  llvm::SmallVector<mlir::Value> allocations, zeros;    ///< all memory; what starts with zeros
  mlir::gpu::LaunchOp firstLaunch;

  /// Of the launch that is open.
  mlir::gpu::LaunchOp launch;
  mlir::Block *rowBlock = nullptr;
  mlir::Value thread, threadCount, member, team, row;
  mlir::IRMapping map;
  llvm::DenseMap<const Partial *, mlir::Value> sharedParts, cells;
  llvm::DenseMap<mlir::Operation *, Place> placed; ///< accesses of running values
  llvm::SmallVector<Executed> pending;             ///< since the team met
  /// Whose parts may be read since the team met, and whose are computed before it meets in the
  /// body that is emitted.
  llvm::SmallPtrSet<const Partial *, 4> inUse, early;
  bool single = false, hasMet = false;
  size_t current = 0; ///< in the row
};

} // namespace attn::hopper

#endif
