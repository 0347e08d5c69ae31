// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dependences of a structured nest. Tensors are values, so there are only flow
// dependences: from producer to consumer, from a reduction to itself, and from
// the end of a fold's iteration to the beginning of the next.

#include "attn/Analysis/StructuredDependences.h"
#include "Combiners.h"
#include "DimensionClasses.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace attn;
using namespace attn::detail;

namespace {

/// A tensor statement before it has loops.
struct TensorStatement {
  Operation *op;
  unsigned numDims = 0;
  SmallVector<AffineMap> operandMaps, resultMaps; ///< Empty: not indexed.
  SmallVector<unsigned> reductions;
  SmallVector<unsigned> streams; ///< Class nodes of the folds around it.
  SmallVector<Operation *> folds;
};

/// Where a tensor comes from: a statement's result, the folds that carry it
/// from an earlier iteration, and whether it has the result's dimensions.
struct Definition {
  unsigned statement = 0, result = 0;
  SmallVector<Operation *, 1> carriedBy;
  bool aligned = true;
};

class NestBuilder {
public:
  explicit NestBuilder(DependenceGraph &graph) : graph(graph) {}
  void run(Block &block);

private:
  void collect(Block &block);
  void collectFold(FoldOp fold);
  void addStatement(TensorStatement statement);
  void uniteAll(Value a, Value b, int64_t exceptDim = -1);

  void addLoops();
  unsigned streamNode(Operation *fold) { return classes.node(fold, 0u); }
  unsigned loopOf(unsigned node) { return loopOfClass.lookup(classes.find(node)); }
  /// The loops of a tensor's dimensions as `statement` indexes it.
  SmallVector<std::optional<unsigned>> indexLoops(unsigned statement,
                                                  AffineMap map);

  void resolve(Value value, Definition path);
  void addDependences(unsigned sink);
  void addDependence(const Definition &from, unsigned sink, AffineMap map);
  void addReductions(unsigned statement);
  void findCombiner(unsigned statement);

  DependenceGraph &graph;
  DimensionClasses classes;
  std::vector<TensorStatement> parts;
  DenseMap<Operation *, unsigned> statementOf;
  DenseMap<unsigned, unsigned> loopOfClass;
  SmallVector<FoldOp> enclosing;
  SmallVector<FoldOp> folds;

  // The search of resolve().
  SmallVector<Definition> found;
  std::vector<std::pair<Value, Definition>> seen;
};
} // namespace

/// Ops whose result has no content: accumulators before they are filled.
static bool isEmptyTensor(Value value) {
  Operation *def = value.getDefiningOp();
  return def && (isa<tensor::EmptyOp, linalg::FillOp>(def) ||
                 def->hasTrait<OpTrait::ConstantLike>());
}

static bool touchesTensors(Operation *op) {
  auto isTensor = [](Type type) { return isa<TensorType>(type); };
  return llvm::any_of(op->getOperandTypes(), isTensor) ||
         llvm::any_of(op->getResultTypes(), isTensor);
}

/// Ops that hand on, make or measure tensors but compute nothing.
static bool isSilent(Operation *op) {
  return isa<tensor::EmptyOp, tensor::CastOp, tensor::DimOp, tensor::ExtractOp,
             linalg::FillOp>(op) ||
         op->hasTrait<OpTrait::ConstantLike>() ||
         op->hasTrait<OpTrait::IsTerminator>();
}

bool attn::hasStructuredStatements(Block &block) {
  return llvm::any_of(block, [](Operation &op) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    return isa<FoldOp>(op) || (linalgOp && linalgOp.hasPureTensorSemantics() &&
                               !isa<linalg::FillOp>(op));
  });
}

//===----------------------------------------------------------------------===//
// Statements and dimension classes
//===----------------------------------------------------------------------===//

void NestBuilder::uniteAll(Value a, Value b, int64_t exceptDim) {
  auto type = dyn_cast<RankedTensorType>(a.getType());
  auto other = dyn_cast<RankedTensorType>(b.getType());
  if (!type || !other || type.getRank() != other.getRank())
    return;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (dim != exceptDim)
      classes.unite(classes.node(a, dim), classes.node(b, dim));
}

void NestBuilder::addStatement(TensorStatement statement) {
  Operation *op = statement.op;
  auto unite = [&](Value tensor, AffineMap map) {
    if (!map)
      return;
    for (auto [position, expr] : llvm::enumerate(map.getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        classes.unite(classes.node(op, dim.getPosition()),
                      classes.node(tensor, unsigned(position)));
  };
  // Every dimension has a node, also one that no map shows.
  for (unsigned dim = 0; dim < statement.numDims; ++dim)
    classes.node(op, dim);
  for (auto [operand, map] : llvm::zip(op->getOperands(), statement.operandMaps))
    if (!isEmptyTensor(operand))
      unite(operand, map);
  for (auto [result, map] : llvm::zip(op->getResults(), statement.resultMaps))
    unite(result, map);
  for (FoldOp fold : enclosing) {
    statement.streams.push_back(streamNode(fold));
    statement.folds.push_back(fold);
  }
  statementOf[op] = parts.size();
  parts.push_back(std::move(statement));
}

void NestBuilder::collectFold(FoldOp fold) {
  unsigned stream = streamNode(fold);
  for (auto [input, block, dim] :
       llvm::zip(fold.getInputs(), fold.getBlocks(), fold.getStreamDims())) {
    uniteAll(input, block);
    classes.unite(stream, classes.node(input, unsigned(dim)));
  }
  unsigned numState = fold.getInits().size();
  Operation *yield = fold.getYield();
  for (unsigned index = 0; index < numState; ++index) {
    if (!isEmptyTensor(fold.getInits()[index]))
      uniteAll(fold.getInits()[index], fold.getState()[index]);
    uniteAll(fold.getState()[index], yield->getOperand(index));
    uniteAll(fold.getState()[index], fold->getResult(index));
  }
  for (auto [index, dim] : llvm::enumerate(fold.getMapDims())) {
    Value block = yield->getOperand(numState + index);
    uniteAll(block, fold->getResult(numState + index));
    classes.unite(stream, classes.node(block, unsigned(dim)));
  }
  folds.push_back(fold);
  enclosing.push_back(fold);
  collect(fold.getBody().front());
  enclosing.pop_back();
}

void NestBuilder::collect(Block &block) {
  for (Operation &op : block) {
    if (auto fold = dyn_cast<FoldOp>(op)) {
      collectFold(fold);
      continue;
    }
    if (auto cast = dyn_cast<tensor::CastOp>(op)) {
      uniteAll(cast.getSource(), cast.getDest());
      continue;
    }
    if (isSilent(&op) || !touchesTensors(&op))
      continue;
    TensorStatement statement;
    statement.op = &op;
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    auto type = op.getNumResults() == 1
                    ? dyn_cast<RankedTensorType>(op.getResult(0).getType())
                    : RankedTensorType();
    if (linalgOp && linalgOp.hasPureTensorSemantics()) {
      statement.numDims = linalgOp.getNumLoops();
      statement.operandMaps = linalgOp.getIndexingMapsArray();
      for (OpOperand &init : linalgOp.getDpsInitsMutable())
        statement.resultMaps.push_back(linalgOp.getMatchingIndexingMap(&init));
      linalgOp.getReductionDims(statement.reductions);
    } else if (type && OpTrait::hasElementwiseMappableTraits(&op)) {
      statement.numDims = type.getRank();
      auto identity =
          AffineMap::getMultiDimIdentityMap(type.getRank(), op.getContext());
      for (Value operand : op.getOperands())
        statement.operandMaps.push_back(
            isa<RankedTensorType>(operand.getType()) ? identity : AffineMap());
      statement.resultMaps.push_back(identity);
    }
    addStatement(std::move(statement));
  }
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// Names that the IR gives to classes.
static void readNames(Operation *op, unsigned dim, std::string &name) {
  if (auto loop = op->getAttrOfType<StringAttr>("attn.loop");
      loop && isa<FoldOp>(op))
    name = loop.getValue().str();
  auto dims = op->getAttrOfType<ArrayAttr>("attn.dims");
  if (dims && dim < dims.size())
    if (auto text = dyn_cast<StringAttr>(dims[dim]))
      name = text.getValue().str();
}

void NestBuilder::addLoops() {
  // Loops by first appearance of their class; the name is any that the IR
  // gives to a member.
  SmallVector<unsigned> order;
  DenseMap<unsigned, std::string> names;
  DenseMap<unsigned, FoldOp> foldOf;
  auto appear = [&](Operation *op, unsigned dim) {
    unsigned cls = classes.find(classes.node(op, dim));
    if (!llvm::is_contained(order, cls))
      order.push_back(cls);
    if (names[cls].empty())
      readNames(op, dim, names[cls]);
  };
  for (const TensorStatement &part : parts) {
    for (unsigned dim = 0; dim < part.numDims; ++dim)
      appear(part.op, dim);
    for (Operation *fold : part.folds)
      appear(fold, 0);
  }
  for (FoldOp fold : folds) {
    appear(fold, 0);
    foldOf.insert({classes.find(streamNode(fold)), fold});
  }
  llvm::StringSet<> used;
  for (unsigned cls : order)
    used.insert(names[cls]);
  static constexpr char letters[] = "ijklnopqrstuvwxyz";
  unsigned next = 0;
  for (unsigned cls : order) {
    std::string name = names[cls];
    while (name.empty()) {
      unsigned letter = next % (sizeof(letters) - 1),
               round = next / (sizeof(letters) - 1);
      ++next;
      std::string candidate(1, letters[letter]);
      if (round)
        candidate += std::to_string(round + 1);
      if (used.insert(candidate).second)
        name = candidate;
    }
    Loop loop;
    loop.name = name;
    if (FoldOp fold = foldOf.lookup(cls)) {
      loop.op = fold;
      loop.hasMerge = !fold.getMerge().empty();
    }
    loopOfClass[cls] = graph.addLoop(std::move(loop));
  }
}

SmallVector<std::optional<unsigned>>
NestBuilder::indexLoops(unsigned statement, AffineMap map) {
  SmallVector<std::optional<unsigned>> result;
  for (AffineExpr expr : map.getResults()) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      result.push_back(
          loopOf(classes.node(parts[statement].op, dim.getPosition())));
    else
      result.push_back(std::nullopt);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Dependences
//===----------------------------------------------------------------------===//

void NestBuilder::resolve(Value value, Definition path) {
  for (auto &[other, how] : seen)
    if (other == value && how.carriedBy == path.carriedBy &&
        how.aligned == path.aligned)
      return;
  seen.push_back({value, path});
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto fold = dyn_cast<FoldOp>(argument.getOwner()->getParentOp());
    unsigned number = argument.getArgNumber();
    if (!fold || number == 0 || !llvm::is_contained(folds, fold))
      return;
    if (number <= fold.getInputs().size())
      return resolve(fold.getInputs()[number - 1], path);
    unsigned state = number - 1 - fold.getInputs().size();
    resolve(fold.getInits()[state], path);
    if (llvm::is_contained(path.carriedBy, fold.getOperation()))
      return; // from two iterations before: a copy of the state
    path.carriedBy.push_back(fold);
    return resolve(fold.getYield()->getOperand(state), path);
  }
  Operation *def = value.getDefiningOp();
  unsigned result = cast<OpResult>(value).getResultNumber();
  auto statement = statementOf.find(def);
  if (statement != statementOf.end()) {
    path.statement = statement->second;
    path.result = result;
    found.push_back(path);
  } else if (auto fold = dyn_cast<FoldOp>(def);
             fold && llvm::is_contained(folds, fold)) {
    resolve(fold.getYield()->getOperand(result), path);
  } else {
    path.aligned &= isa<tensor::CastOp>(def);
    for (Value operand : def->getOperands())
      resolve(operand, path);
  }
}

void NestBuilder::addDependence(const Definition &from, unsigned sink,
                                AffineMap map) {
  Dependence dependence;
  dependence.source = from.statement;
  dependence.sink = sink;
  const TensorStatement &source = parts[from.statement], &reader = parts[sink];
  auto isStream = [&](unsigned loop) {
    // The fold that both are in runs them together.
    for (Operation *fold : source.folds)
      if (llvm::is_contained(reader.folds, fold) &&
          loopOf(streamNode(fold)) == loop)
        return true;
    return false;
  };
  SmallVector<std::optional<unsigned>> written, read;
  if (from.aligned && map && from.result < source.resultMaps.size() &&
      source.resultMaps[from.result]) {
    written = indexLoops(from.statement, source.resultMaps[from.result]);
    read = indexLoops(sink, map);
  }
  auto runsTogether = [&](unsigned loop) {
    for (auto [w, r] : llvm::zip(written, read))
      if (w == loop && r == loop)
        return true;
    return false;
  };
  for (unsigned loop : graph.getSharedLoops(from.statement, sink)) {
    auto carries = [&](Operation *fold) {
      return loopOf(streamNode(fold)) == loop;
    };
    bool carried = llvm::any_of(from.carriedBy, carries);
    if (!carried && !isStream(loop) && !runsTogether(loop)) {
      dependence.separated.push_back(loop);
      continue;
    }
    dependence.loops.push_back(loop);
    if (dependence.carrier) {
      dependence.vector.push_back(carried ? Distance::unknown()
                                          : Distance::exact(0));
    } else {
      dependence.vector.push_back(Distance::exact(carried ? 1 : 0));
      if (carried)
        dependence.carrier = loop;
    }
  }
  // Two statements of one iteration space, or a value of an iteration before.
  if (from.statement == sink && !dependence.carrier)
    return;
  graph.addDependence(std::move(dependence));
}

void NestBuilder::addDependences(unsigned sink) {
  const TensorStatement &part = parts[sink];
  auto search = [&](Value value, AffineMap map, bool aligned) {
    found.clear();
    seen.clear();
    Definition path;
    path.aligned = aligned;
    resolve(value, path);
    for (const Definition &definition : found)
      addDependence(definition, sink, map);
  };
  for (auto [number, operand] : llvm::enumerate(part.op->getOperands()))
    search(operand,
           number < part.operandMaps.size() ? part.operandMaps[number]
                                            : AffineMap(),
           true);
  // What the body captures is read at indices that no map shows.
  for (Region &region : part.op->getRegions())
    region.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!part.op->isAncestor(
                operand.getParentRegion()->getParentOp()))
          search(operand, AffineMap(), false);
    });
}

void NestBuilder::addReductions(unsigned statement) {
  const TensorStatement &part = parts[statement];
  const Statement &known = graph.getStatements()[statement];
  SmallVector<unsigned> reduced;
  for (unsigned dim : part.reductions)
    reduced.push_back(loopOf(classes.node(part.op, dim)));
  for (unsigned carrier : reduced) {
    Dependence dependence;
    dependence.source = dependence.sink = statement;
    dependence.carrier = carrier;
    dependence.reduction = known.combiner.has_value();
    bool behind = false;
    for (unsigned loop : known.domain) {
      dependence.loops.push_back(loop);
      dependence.vector.push_back(loop == carrier ? Distance::exact(1)
                                  : behind && llvm::is_contained(reduced, loop)
                                      ? Distance::unknown()
                                      : Distance::exact(0));
      behind |= loop == carrier;
    }
    graph.addDependence(std::move(dependence));
  }
}

/// A statement combines if what it yields is one associative operation on a
/// term and the accumulator, or on a term and its own value of the iteration
/// before.
void NestBuilder::findCombiner(unsigned statement) {
  const TensorStatement &part = parts[statement];
  auto linalgOp = dyn_cast<linalg::LinalgOp>(part.op);
  if (!linalgOp || linalgOp.getNumDpsInits() != 1)
    return;
  Block *body = linalgOp.getBlock();
  Operation *root = body->getTerminator()->getOperand(0).getDefiningOp();
  if (!root || root->getBlock() != body || getCombinerName(root).empty())
    return;
  for (BlockArgument argument : body->getArguments()) {
    if (!argument.hasOneUse() || *argument.user_begin() != root)
      continue;
    OpOperand &operand = part.op->getOpOperand(argument.getArgNumber());
    bool old = linalgOp.isDpsInit(&operand) && !part.reductions.empty();
    if (!old) {
      found.clear();
      seen.clear();
      resolve(operand.get(), {});
      old = found.size() == 1 && found[0].statement == statement &&
            !found[0].carriedBy.empty();
    }
    if (old) {
      graph.setCombiner(statement, Combiner{getCombinerName(root).str(),
                                            statement, true, true});
      return;
    }
  }
}

/// "contract"-like words help the reader more than "linalg.generic".
static std::string describeOp(const TensorStatement &part) {
  if (auto label = part.op->getAttrOfType<StringAttr>("attn.stmt"))
    return label.getValue().str();
  std::string text = part.op->getName().getStringRef().str();
  if (auto generic = dyn_cast<linalg::GenericOp>(part.op)) {
    text = part.reductions.empty() ? "map" : "reduce";
    for (Operation &inner : generic.getBody()->without_terminator())
      text += " " + inner.getName().stripDialect().str();
  }
  return text;
}

void NestBuilder::run(Block &block) {
  collect(block);
  addLoops();
  for (const TensorStatement &part : parts) {
    Statement statement;
    statement.op = part.op;
    statement.members = {part.op};
    statement.computes = true;
    statement.label = describeOp(part);
    for (unsigned dim = 0; dim < part.numDims; ++dim)
      statement.domain.push_back(loopOf(classes.node(part.op, dim)));
    for (unsigned stream : part.streams)
      statement.domain.push_back(loopOf(stream));
    llvm::sort(statement.domain);
    statement.domain.erase(
        std::unique(statement.domain.begin(), statement.domain.end()),
        statement.domain.end());
    graph.addStatement(std::move(statement));
  }
  for (unsigned statement = 0; statement < parts.size(); ++statement) {
    findCombiner(statement);
    addReductions(statement);
  }
  for (unsigned statement = 0; statement < parts.size(); ++statement)
    addDependences(statement);
  graph.finalize();
}

DependenceGraph attn::buildStructuredDependences(Block &block) {
  DependenceGraph graph;
  NestBuilder(graph).run(block);
  return graph;
}
