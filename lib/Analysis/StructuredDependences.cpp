// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dependences of a structured nest. Tensors are values, so there are only flow
// dependences: from producer to consumer, from a reduction to itself, and from
// the end of a fold's iteration to the beginning of the next.

#include "attn/Analysis/StructuredDependences.h"
#include "Combiners.h"
#include "StructuredNest.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace attn;
using namespace attn::detail;

//===----------------------------------------------------------------------===//
// Dependences
//===----------------------------------------------------------------------===//

void NestBuilder::resolve(Value value, Definition path) {
  for (auto &[other, how] : seen)
    if (other == value && how.carriedBy == path.carriedBy && how.aligned == path.aligned)
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
  } else if (auto fold = dyn_cast<FoldOp>(def); fold && llvm::is_contained(folds, fold)) {
    resolve(fold.getYield()->getOperand(result), path);
  } else {
    // The size of a tensor does not wait for its content.
    if (isa<tensor::EmptyOp, tensor::DimOp>(def) || (isPart && isa<linalg::LinalgOp, FoldOp>(def)))
      return;
    path.aligned &= isa<tensor::CastOp>(def);
    for (Value operand : def->getOperands())
      resolve(operand, path);
  }
}

void NestBuilder::addDependence(const Definition &from, unsigned sink, AffineMap map) {
  Dependence dependence;
  dependence.source = from.statement;
  dependence.sink = sink;
  const TensorStatement &source = parts[from.statement], &reader = parts[sink];
  auto isStream = [&](unsigned loop) {
    // The fold that both are in runs them together.
    for (Operation *fold : source.folds)
      if (llvm::is_contained(reader.folds, fold) && loopOf(streamNode(fold)) == loop)
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
    auto carries = [&](Operation *fold) { return loopOf(streamNode(fold)) == loop; };
    bool carried = llvm::any_of(from.carriedBy, carries);
    if (!carried && !isStream(loop) && !runsTogether(loop)) {
      dependence.separated.push_back(loop);
      continue;
    }
    dependence.loops.push_back(loop);
    if (dependence.carrier) {
      dependence.vector.push_back(carried ? Distance::unknown() : Distance::exact(0));
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
  auto linalgOp = dyn_cast<linalg::LinalgOp>(part.op);
  for (auto [number, operand] : llvm::enumerate(part.op->getOpOperands())) {
    // An output that the body does not read gives its shape only.
    if (linalgOp && linalgOp.isDpsInit(&operand) && !linalgOp.payloadUsesValueFromOperand(&operand))
      continue;
    search(operand.get(), number < part.operandMaps.size() ? part.operandMaps[number] : AffineMap(),
           true);
  }
  // What the body captures is read at indices that no map shows.
  for (Region &region : part.op->getRegions())
    region.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!part.op->isAncestor(operand.getParentRegion()->getParentOp()))
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
      old = found.size() == 1 && found[0].statement == statement && !found[0].carriedBy.empty();
    }
    if (old) {
      graph.setCombiner(statement, Combiner{getCombinerName(root).str(), statement, true, true});
      return;
    }
  }
}

/// "contract"-like words help the reader more than "linalg.generic".
static std::string describeOp(const TensorStatement &part) {
  if (auto label = part.op->getAttrOfType<StringAttr>(kStatementAttr))
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
  for (const std::function<void()> &unite : later)
    unite();
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
    statement.domain.erase(std::unique(statement.domain.begin(), statement.domain.end()),
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

void NestBuilder::nameLoops(StructuredDependences &result) {
  for (const TensorStatement &part : parts)
    for (unsigned dim = 0; dim < part.numDims; ++dim)
      result.loops[{part.op, dim}] = loopOf(classes.node(part.op, dim));
  for (FoldOp fold : folds)
    result.loops[{fold, 0}] = loopOf(streamNode(fold));
}

StructuredDependences attn::buildStructuredDependences(Block &block,
                                                       function_ref<bool(Operation *)> isPart) {
  StructuredDependences result;
  NestBuilder builder(result.graph, isPart);
  builder.run(block);
  builder.nameLoops(result);
  return result;
}
