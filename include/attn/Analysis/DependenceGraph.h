// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dependence graph of a statement nest, and the questions it answers:
// which loops are parallel, which order of loops is legal, what a statement's
// move out of a loop would break, and what can be done about a loop that
// carries a component. It knows no dialect; the front ends in
// AffineDependences.h and StructuredDependences.h build it.
// Theory: Allen and Kennedy, Optimizing Compilers for Modern Architectures.

#ifndef ATTN_ANALYSIS_DEPENDENCEGRAPH_H
#define ATTN_ANALYSIS_DEPENDENCEGRAPH_H

#include "attn/Analysis/DependenceVector.h"
#include "llvm/ADT/StringRef.h"
#include <vector>

namespace llvm {
class raw_ostream;
}
namespace mlir {
class Operation;
}

namespace attn {

/// What source and sink do to the location: RAW (flow), WAR (anti), WAW.
enum class DependenceKind { RAW, WAR, WAW };
llvm::StringRef stringifyKind(DependenceKind kind);

/// A loop of the nest, or a dimension of the iteration space.
struct Loop {
  std::string name;
  mlir::Operation *op = nullptr; ///< The loop's op, where it has one.
  int64_t step = 1;
  bool hasMerge = false; ///< States of disjoint parts can be merged.
};

/// How a statement combines a new term with an old value.
struct Combiner {
  std::string name; ///< "add", "max", ...
  unsigned state;   ///< The statement that the old value comes from.
  /// Up to rounding, as usual for floating point.
  bool associative = false, commutative = false;
};

/// A statement: numbered S1, S2, ... by its position in program order.
struct Statement {
  mlir::Operation *op = nullptr;                   ///< Its last op: where diagnostics point.
  llvm::SmallVector<mlir::Operation *, 2> members; ///< All its ops.
  std::string label;                               ///< "load m[i]".
  llvm::SmallVector<unsigned> domain;              ///< Its loops, outermost first.
  llvm::SmallVector<unsigned> indices;             ///< The loops whose variable it uses.
  bool computes = false;                           ///< Touches no memory: scalars or tensors only.
  bool writes = false;                             ///< Writes memory, or may.
  std::optional<Combiner> combiner;
};

/// A dependence between two statements, over the loops that they share.
struct Dependence {
  unsigned source, sink;
  DependenceKind kind = DependenceKind::RAW;
  llvm::SmallVector<unsigned, 4> loops; ///< Shared loops, outermost first.
  DistanceVector vector;                ///< One entry per shared loop.
  std::optional<unsigned> carrier;      ///< Absent: within one iteration.
  /// Loops that both run over, but not together: the sink needs the source's
  /// whole loop. They may not be fused.
  llvm::SmallVector<unsigned, 2> separated;
  bool throughMemory = false; ///< Else through an SSA value.
  bool reduction = false;     ///< Accumulates with an associative combiner.
  bool exact = true;          ///< False: assumed, because the analysis cannot tell.
  std::string via;            ///< The memory or value, for printing.
};

/// A strongly connected component that depends on itself.
struct Component {
  llvm::SmallVector<unsigned> statements; ///< Increasing.
  llvm::SmallVector<unsigned> carriers;   ///< Loops that carry it.
};

/// A way to run a loop that carries a component.
struct Treatment {
  llvm::StringRef name; ///< "owner-computes", ...
  bool legal;
  std::string reason;
};

/// A dependence that forbids a change, and its vector after the change.
struct Violation {
  const Dependence *dependence;
  DistanceVector after;
  llvm::SmallVector<unsigned> order; ///< Loops of `after`, in its order.
};

class DependenceGraph {
public:
  //===--- Building -------------------------------------------------------===//
  unsigned addLoop(Loop loop);
  unsigned addStatement(Statement statement);
  void setCombiner(unsigned statement, Combiner combiner) {
    statements[statement].combiner = std::move(combiner);
  }
  /// Adds a dependence; one that is there already is merged into it.
  void addDependence(Dependence dependence);
  /// Sorts the dependences and finds the components. Call once, at the end.
  void finalize();

  //===--- Contents -------------------------------------------------------===//
  llvm::ArrayRef<Loop> getLoops() const { return loops; }
  llvm::ArrayRef<Statement> getStatements() const { return statements; }
  llvm::ArrayRef<Dependence> getDependences() const { return dependences; }
  llvm::ArrayRef<Component> getComponents() const { return components; }

  /// The loops of both statements, in the order of the first one's domain.
  llvm::SmallVector<unsigned, 4> getSharedLoops(unsigned a, unsigned b) const;
  /// Loop and statement by IR op or by name ("S7", "j"), if there is one. A
  /// name of several loops finds the first.
  std::optional<unsigned> findLoop(const mlir::Operation *op) const;
  std::optional<unsigned> findLoop(llvm::StringRef name) const;
  std::optional<unsigned> findStatement(llvm::StringRef name) const;
  std::optional<unsigned> findStatement(const mlir::Operation *member) const;
  bool isInLoop(unsigned statement, unsigned loop) const;

  //===--- Questions ------------------------------------------------------===//
  /// The dependences that a loop carries; it is parallel without any.
  llvm::SmallVector<const Dependence *> getCarriedBy(unsigned loop) const;
  bool isParallel(unsigned loop) const { return getCarriedBy(loop).empty(); }

  /// The first dependence that stops the shared loops of its statements from
  /// running in the order of `order` (outermost first); a loop that is not
  /// in `order` stays behind those that are, in its present order. With
  /// `mayReassociate`, terms of associative reductions may come in any order.
  std::optional<Violation> findOrderViolation(llvm::ArrayRef<unsigned> order,
                                              bool mayReassociate = false) const;

  /// The dependence that stops `statement` from running before `loop` instead
  /// of in it. `moved` are statements that leave the loop before it does.
  std::optional<Violation> findHoistViolation(unsigned statement, unsigned loop,
                                              llvm::ArrayRef<unsigned> moved = {}) const;

  /// The dependence that stops a read from moving down in the body of `loop`,
  /// past what follows it there.
  std::optional<Violation> findSinkViolation(unsigned statement, unsigned loop) const;

  /// The dependence that stops `loop` from being split into one loop per
  /// group, in the order given. A statement may be in several groups: then
  /// each of their loops runs it again.
  std::optional<Violation>
  findDistributionViolation(unsigned loop,
                            llvm::ArrayRef<llvm::SmallVector<unsigned>> groups) const;

  /// The dependence that stops the statements of `first` and those of `second`
  /// behind them from sharing `loop`: it needs the whole loop of its source.
  const Dependence *findSeparation(llvm::ArrayRef<unsigned> first, llvm::ArrayRef<unsigned> second,
                                   unsigned loop) const;

  /// A dependence that `loop` carries and no component has, or null: treatments of components that
  /// change the order of iterations would break it.
  const Dependence *findOutsideOfComponents(unsigned loop) const;

  /// What can be done with `loop`, which carries `component`, when it is wanted
  /// parallel: every treatment with the reason why it is legal or not.
  llvm::SmallVector<Treatment> getTreatments(unsigned loop, const Component &component) const;

  //===--- Printing -------------------------------------------------------===//
  void print(llvm::raw_ostream &os, llvm::StringRef title) const;
  void printDot(llvm::raw_ostream &os, llvm::StringRef title) const;

  static std::string nameOf(unsigned statement) { return "S" + std::to_string(statement + 1); }
  std::string formatSet(llvm::ArrayRef<unsigned> statementSet) const;
  std::string formatLoops(llvm::ArrayRef<unsigned> loopSet) const;
  std::string formatVector(const Dependence &dependence) const;
  /// "RAW dependence from S2 to S1 with direction (1, -1)".
  std::string describe(const Dependence &dependence) const;
  /// describe(), and " would become (-1, 1)".
  std::string describe(const Violation &violation) const;

private:
  void printOrders(llvm::raw_ostream &os) const;
  llvm::SmallVector<int64_t> getSteps(llvm::ArrayRef<unsigned> loopSet) const;
  /// True where a loop that encloses `loop` carries the dependence, so that
  /// what happens within one run of `loop` does not matter to it.
  bool isCarriedOutside(const Dependence &dependence, unsigned loop) const;

  std::vector<Loop> loops;
  std::vector<Statement> statements;
  std::vector<Dependence> dependences;
  std::vector<Component> components;
};

/// The first of `cross` (dependences from one nest to the next, over the loops
/// that fusion would join) that fusion would turn around.
const Dependence *findFusionViolation(llvm::ArrayRef<Dependence> cross);

} // namespace attn

#endif
