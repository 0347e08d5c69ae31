// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements and loops of a structured nest: which dimensions run together.

#include "StructuredNest.h"
#include "attn/Analysis/StructuredDependences.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace attn;
using namespace attn::detail;

/// Ops whose result has no content: accumulators before they are filled.
static bool isEmptyTensor(Value value) {
  Operation *def = value.getDefiningOp();
  return def &&
         (isa<tensor::EmptyOp, linalg::FillOp>(def) || def->hasTrait<OpTrait::ConstantLike>());
}

static bool touchesTensors(Operation *op) {
  auto isTensor = [](Type type) { return isa<TensorType>(type); };
  return llvm::any_of(op->getOperandTypes(), isTensor) ||
         llvm::any_of(op->getResultTypes(), isTensor);
}

/// Ops that hand on, make or measure tensors but compute nothing.
static bool isSilent(Operation *op) {
  return isa<tensor::EmptyOp, tensor::CastOp, tensor::DimOp, tensor::ExtractOp, linalg::FillOp>(
             op) ||
         op->hasTrait<OpTrait::ConstantLike>() || op->hasTrait<OpTrait::IsTerminator>();
}

bool attn::hasStructuredStatements(Block &block) {
  return llvm::any_of(block, [](Operation &op) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    return isa<FoldOp>(op) ||
           (linalgOp && linalgOp.hasPureTensorSemantics() && !isa<linalg::FillOp>(op));
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

/// Whether a tensor comes from the nest itself.
bool NestBuilder::isProduced(Value tensor) {
  if (auto argument = dyn_cast<BlockArgument>(tensor)) {
    auto fold = dyn_cast<FoldOp>(argument.getOwner()->getParentOp());
    return fold && llvm::is_contained(enclosing, fold);
  }
  Operation *def = tensor.getDefiningOp();
  return statementOf.contains(def) || isa<tensor::CastOp>(def) ||
         (isa<FoldOp>(def) && llvm::is_contained(folds, cast<FoldOp>(def)));
}

void NestBuilder::addStatement(TensorStatement statement) {
  Operation *op = statement.op;
  auto unite = [this, op](Value tensor, AffineMap map) {
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
    if (!isEmptyTensor(operand) && isProduced(operand))
      unite(operand, map);
  for (auto [result, map] : llvm::zip(op->getResults(), statement.resultMaps))
    unite(result, map);
  for (auto [operand, map] : llvm::zip(op->getOperands(), statement.operandMaps))
    if (!isEmptyTensor(operand) && !isProduced(operand))
      later.push_back([=, operand = operand, map = map] { unite(operand, map); });
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
    classes.unite(stream, classes.node(block, unsigned(dim)));
    if (isProduced(input))
      uniteAll(input, block);
    else
      later.push_back([this, input = input, block = block] { uniteAll(input, block); });
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
    if (enclosing.empty() && isPart && !isPart(&op))
      continue;
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
    auto type = op.getNumResults() == 1 ? dyn_cast<RankedTensorType>(op.getResult(0).getType())
                                        : RankedTensorType();
    if (linalgOp && linalgOp.hasPureTensorSemantics()) {
      statement.numDims = linalgOp.getNumLoops();
      statement.operandMaps = linalgOp.getIndexingMapsArray();
      for (OpOperand &init : linalgOp.getDpsInitsMutable())
        statement.resultMaps.push_back(linalgOp.getMatchingIndexingMap(&init));
      linalgOp.getReductionDims(statement.reductions);
    } else if (type && OpTrait::hasElementwiseMappableTraits(&op)) {
      statement.numDims = type.getRank();
      auto identity = AffineMap::getMultiDimIdentityMap(type.getRank(), op.getContext());
      for (Value operand : op.getOperands())
        statement.operandMaps.push_back(isa<RankedTensorType>(operand.getType()) ? identity
                                                                                 : AffineMap());
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
  if (auto loop = op->getAttrOfType<StringAttr>(kLoopAttr); loop && isa<FoldOp>(op))
    name = loop.getValue().str();
  auto dims = op->getAttrOfType<ArrayAttr>(kDimsAttr);
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
      unsigned letter = next % (sizeof(letters) - 1), round = next / (sizeof(letters) - 1);
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

SmallVector<std::optional<unsigned>> NestBuilder::indexLoops(unsigned statement, AffineMap map) {
  SmallVector<std::optional<unsigned>> result;
  for (AffineExpr expr : map.getResults()) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      result.push_back(loopOf(classes.node(parts[statement].op, dim.getPosition())));
    else
      result.push_back(std::nullopt);
  }
  return result;
}
