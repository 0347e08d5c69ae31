// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dependences of an affine nest: through scalars by use and definition, also
// around loops through iter_args; through memory pair by pair and depth by
// depth. Depth d asks for the dependences that the d-th common loop carries;
// one more than the number of common loops, for those of one iteration.

#include "attn/Analysis/AffineDependences.h"
#include "AffineStatements.h"
#include "mlir/Dialect/Affine/Analysis/AffineAnalysis.h"
#include "mlir/Dialect/Affine/Analysis/AffineStructures.h"
#include "mlir/Dialect/Affine/Analysis/Utils.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;
using namespace attn::detail;

namespace {
/// Where the value of an operand comes from: a statement, and the loops that
/// carry it there with the number of iterations.
struct Definition {
  unsigned statement = 0;
  SmallVector<std::pair<Operation *, int64_t>, 2> carried;

  void carryAround(Operation *loop) {
    for (auto &[other, count] : carried)
      if (other == loop) {
        ++count;
        return;
      }
    carried.push_back({loop, 1});
  }
};

/// One search for the definitions of an operand.
struct Search {
  SmallVector<Definition> found;
  std::vector<std::pair<Value, Definition>> seen;
  SmallVector<BlockArgument> path; ///< Loop-carried values being followed.
};

class GraphBuilder {
public:
  GraphBuilder(DependenceGraph &graph, Operation *scope) : graph(graph), parts(graph, scope) {}

  void run() {
    for (unsigned s = 0; s < graph.getStatements().size(); ++s)
      addValueDependences(s);
    for (const Access &source : parts.accesses)
      for (const Access &sink : parts.accesses)
        addMemoryDependences(source, sink);
    graph.finalize();
  }

private:
  void addValueDependences(unsigned sink);
  void resolve(Value value, Definition path, Search &search);
  void addMemoryDependences(const Access &source, const Access &sink);
  void addMemoryDependence(const Access &source, const Access &sink, unsigned depth,
                           ArrayRef<unsigned> shared, DistanceVector vector, bool exact);

  DependenceGraph &graph;
  AffineStatements parts;
};
} // namespace

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

void GraphBuilder::resolve(Value value, Definition path, Search &search) {
  // Shared index arithmetic is a graph, not a tree: each value once.
  for (auto &[seen, how] : search.seen)
    if (seen == value && how.carried == path.carried)
      return;
  search.seen.push_back({value, path});

  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<affine::AffineForOp>(argument.getOwner()->getParentOp());
    // A value that travels around loops meets itself again: nothing new.
    if (!loop || argument == loop.getInductionVar() || llvm::is_contained(search.path, argument))
      return;
    unsigned number = argument.getArgNumber() - 1;
    search.path.push_back(argument);
    resolve(loop.getInits()[number], path, search);
    path.carryAround(loop);
    resolve(loop.getYieldedValues()[number], path, search);
    search.path.pop_back();
    return;
  }
  Operation *def = value.getDefiningOp();
  auto found = parts.statementOf.find(def);
  if (found != parts.statementOf.end()) {
    path.statement = found->second;
    search.found.push_back(path);
  } else if (auto loop = dyn_cast<affine::AffineForOp>(def)) {
    unsigned number = cast<OpResult>(value).getResultNumber();
    resolve(loop.getInits()[number], path, search);
    resolve(loop.getYieldedValues()[number], path, search);
  } else {
    for (Value operand : def->getOperands())
      resolve(operand, path, search);
  }
}

void GraphBuilder::addValueDependences(unsigned sink) {
  SmallVector<Value> operands;
  for (Operation *member : graph.getStatements()[sink].members)
    member->walk([&](Operation *inner) { llvm::append_range(operands, inner->getOperands()); });
  for (Value operand : operands) {
    Search search;
    resolve(operand, {}, search);
    for (const Definition &definition : search.found) {
      if (definition.statement == sink && definition.carried.empty())
        continue;
      Dependence dependence;
      dependence.source = definition.statement;
      dependence.sink = sink;
      dependence.loops = graph.getSharedLoops(definition.statement, sink);
      for (unsigned loop : dependence.loops) {
        if (dependence.carrier) {
          dependence.vector.push_back(Distance::unknown());
          continue;
        }
        const auto *carried = llvm::find_if(definition.carried, [&](const auto &entry) {
          return entry.first == graph.getLoops()[loop].op;
        });
        if (carried == definition.carried.end()) {
          dependence.vector.push_back(Distance::exact(0));
          continue;
        }
        dependence.carrier = loop;
        dependence.vector.push_back(Distance::exact(carried->second * graph.getLoops()[loop].step));
      }
      graph.addDependence(std::move(dependence));
    }
  }
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The outermost loop in which the memory lives on from one iteration to the
/// next has index 0; a memory that is allocated in the k-th shared loop starts
/// at k.
static unsigned getFirstLivingDepth(Value base, const DependenceGraph &graph,
                                    ArrayRef<unsigned> shared) {
  unsigned first = 0;
  if (base && base.getDefiningOp())
    for (auto [index, loop] : llvm::enumerate(shared))
      if (graph.getLoops()[loop].op->isProperAncestor(base.getDefiningOp()))
        first = index + 1;
  return first;
}

void GraphBuilder::addMemoryDependence(const Access &source, const Access &sink, unsigned depth,
                                       ArrayRef<unsigned> shared, DistanceVector vector,
                                       bool exact) {
  Dependence dependence;
  dependence.source = source.statement;
  dependence.sink = sink.statement;
  dependence.loops.assign(shared.begin(), shared.end());
  dependence.vector = std::move(vector);
  if (depth < shared.size())
    dependence.carrier = shared[depth];
  dependence.throughMemory = true;
  dependence.exact = exact;
  dependence.via = source.base ? source.name : sink.name;
  for (auto [kind, holds] : {std::make_pair(DependenceKind::RAW, source.writes && sink.reads),
                             std::make_pair(DependenceKind::WAR, source.reads && sink.writes),
                             std::make_pair(DependenceKind::WAW, source.writes && sink.writes)})
    if (holds) {
      dependence.kind = kind;
      graph.addDependence(dependence);
    }
}

/// Upstream has the ends of the number range for no bound.
static Distance getDistance(const affine::DependenceComponent &component) {
  Distance distance{component.lb, component.ub};
  if (distance.lower == std::numeric_limits<int64_t>::min())
    distance.lower.reset();
  if (distance.upper == std::numeric_limits<int64_t>::max())
    distance.upper.reset();
  return distance;
}

void GraphBuilder::addMemoryDependences(const Access &source, const Access &sink) {
  if (!source.writes && !sink.writes)
    return;
  if (source.base && sink.base && source.base != sink.base)
    return;
  auto shared = graph.getSharedLoops(source.statement, sink.statement);
  bool decidable = source.affine && sink.affine && source.memref == sink.memref && source.base;
  for (unsigned depth = std::max(getFirstLivingDepth(source.base, graph, shared),
                                 getFirstLivingDepth(sink.base, graph, shared));
       depth <= shared.size(); ++depth) {
    if (decidable) {
      affine::MemRefAccess from(source.op), to(sink.op);
      SmallVector<affine::DependenceComponent, 2> components;
      affine::DependenceResult result =
          affine::checkMemrefAccessDependence(from, to, depth + 1, nullptr, &components);
      if (affine::noDependence(result))
        continue;
      if (affine::hasDependence(result)) {
        DistanceVector vector;
        for (unsigned k = 0; k < shared.size(); ++k)
          vector.push_back(k < components.size() ? getDistance(components[k])
                                                 : Distance::unknown());
        addMemoryDependence(source, sink, depth, shared, std::move(vector), true);
        continue;
      }
    }
    // Not decidable: everything that program order allows is assumed.
    if (depth == shared.size() && source.statement >= sink.statement)
      continue;
    DistanceVector vector;
    for (unsigned k = 0; k < shared.size(); ++k)
      vector.push_back(k < depth    ? Distance::exact(0)
                       : k == depth ? Distance::positive(graph.getLoops()[shared[k]].step)
                                    : Distance::unknown());
    addMemoryDependence(source, sink, depth, shared, std::move(vector), false);
  }
}

DependenceGraph attn::buildAffineDependences(Operation *scope) {
  DependenceGraph graph;
  GraphBuilder(graph, scope).run();
  return graph;
}

//===----------------------------------------------------------------------===//
// Fusion
//===----------------------------------------------------------------------===//

/// The distances of dependences from `from` to `to` on the loop at position
/// `depth` of both, with the loops outside of it in the same iteration. None
/// where the accesses never meet.
static std::optional<Distance> getCrossDistance(Operation *from, Operation *to, unsigned depth) {
  using presburger::BoundType;
  using presburger::IntegerRelation;
  using presburger::VarKind;
  IntegerRelation source(presburger::PresburgerSpace::getRelationSpace());
  IntegerRelation sink(presburger::PresburgerSpace::getRelationSpace());
  if (failed(affine::MemRefAccess(from).getAccessRelation(source)) ||
      failed(affine::MemRefAccess(to).getAccessRelation(sink)))
    return Distance::unknown();
  // Source iteration -> element -> sink iteration.
  sink.inverse();
  sink.mergeAndCompose(source);
  IntegerRelation &meets = sink;
  unsigned numSource = meets.getNumDomainVars(), numSink = meets.getNumRangeVars();
  if (depth >= numSource || depth >= numSink)
    return Distance::unknown();
  meets.convertVarKind(VarKind::Domain, 0, numSource, VarKind::Range, 0);
  for (unsigned outer = 0; outer < depth; ++outer) {
    SmallVector<int64_t> same(meets.getNumCols(), 0);
    same[outer] = 1;
    same[numSource + outer] = -1;
    meets.addEquality(same);
  }
  if (meets.isEmpty())
    return std::nullopt;
  unsigned difference = meets.insertVar(VarKind::Range, 0);
  SmallVector<int64_t> equation(meets.getNumCols(), 0);
  equation[difference] = 1;
  equation[1 + depth] = 1;
  equation[1 + numSource + depth] = -1;
  meets.addEquality(equation);
  meets.projectOut(1, meets.getNumVars() - 1);
  if (meets.isEmpty())
    return std::nullopt;
  return Distance{meets.getConstantBound64(BoundType::LB, difference),
                  meets.getConstantBound64(BoundType::UB, difference)};
}

std::vector<Dependence> attn::getFusionDependences(const DependenceGraph &graph,
                                                   affine::AffineForOp first,
                                                   affine::AffineForOp second) {
  std::vector<Dependence> result;
  auto firstLoop = graph.findLoop(first), secondLoop = graph.findLoop(second);
  if (!firstLoop || !secondLoop)
    return result;
  for (const Dependence &known : graph.getDependences()) {
    // Within one iteration of the loops around: only those can turn around.
    if (known.carrier || !graph.isInLoop(known.source, *firstLoop) ||
        !graph.isInLoop(known.sink, *secondLoop))
      continue;
    Dependence cross = known;
    cross.loops = {*firstLoop};
    if (!known.throughMemory) {
      // The second loop wants the value of the first one's last iteration.
      cross.vector = {Distance::unknown()};
    } else if (!known.exact) {
      cross.vector = {Distance::unknown()};
    } else {
      auto distance = getCrossDistance(graph.getStatements()[known.source].op,
                                       graph.getStatements()[known.sink].op, known.loops.size());
      if (!distance)
        continue;
      cross.vector = {*distance};
    }
    result.push_back(std::move(cross));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Access pairs
//===----------------------------------------------------------------------===//

void attn::printAccessPairs(const DependenceGraph &graph, Operation *scope, llvm::raw_ostream &os) {
  SmallVector<Operation *> accesses;
  scope->walk([&](Operation *op) {
    if (isa<affine::AffineReadOpInterface, affine::AffineWriteOpInterface>(op))
      accesses.push_back(op);
  });
  auto print = [&](const Dependence *dependence, bool carried) {
    if (!dependence || !carried) {
      os << (dependence ? "true" : "false");
      return;
    }
    for (const Distance &d : dependence->vector) {
      os << "[";
      d.lower ? (void)(os << *d.lower) : (void)(os << "-inf");
      os << ", ";
      d.upper ? (void)(os << *d.upper) : (void)(os << "+inf");
      os << "]";
    }
  };
  for (auto [i, from] : llvm::enumerate(accesses))
    for (auto [j, to] : llvm::enumerate(accesses)) {
      auto source = graph.findStatement(from), sink = graph.findStatement(to);
      if (!source || !sink)
        continue;
      auto shared = graph.getSharedLoops(*source, *sink);
      for (unsigned depth = 0; depth <= shared.size(); ++depth) {
        auto carrier =
            depth < shared.size() ? std::optional<unsigned>(shared[depth]) : std::nullopt;
        const Dependence *found = nullptr;
        for (const Dependence &dependence : graph.getDependences())
          if (dependence.source == *source && dependence.sink == *sink &&
              dependence.throughMemory && dependence.carrier == carrier)
            found = &dependence;
        os << "dependence from " << i << " to " << j << " at depth " << depth + 1 << " = ";
        print(found, carrier.has_value());
        os << "\n";
      }
    }
}
