// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fusing a proved cascade: the fold's body, its merge region, and what is done
// once at the end.

#include "Cascade.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

/// The size of a tensor's dimension without keeping the tensor alive.
OpFoldResult attn::sizeOf(ImplicitLocOpBuilder &b, Value tensor, unsigned index) {
  Value root = tensor;
  while (auto dest = root.getDefiningOp<DestinationStyleOpInterface>())
    root = dest.getDpsInits()[cast<OpResult>(root).getResultNumber()];
  if (auto empty = root.getDefiningOp<tensor::EmptyOp>())
    return empty.getMixedSizes()[index];
  return tensor::getMixedSize(b, b.getLoc(), root, index);
}

/// m == -inf ? 0 : m, so that exp(s - m) is 0 where nothing was kept yet.
Value Cascade::guard(ImplicitLocOpBuilder &b, Value pivot) {
  auto type = cast<RankedTensorType>(pivot.getType());
  SmallVector<OpFoldResult> sizes;
  for (unsigned index = 0; index < type.getRank(); ++index)
    sizes.push_back(sizeOf(b, pivot, index));
  Value out = tensor::EmptyOp::create(b, sizes, type.getElementType());
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq<unsigned>(type.getRank()));
  return buildStatement(b, type.getRank(), {{pivot, all}}, {out, all},
                        [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                          Value infinity = minusInfinity(builder, loc, args[0].getType());
                          Value dead = arith::CmpFOp::create(
                              builder, loc, arith::CmpFPredicate::OEQ, args[0], infinity);
                          Value zero = arith::ConstantOp::create(
                              builder, loc, builder.getZeroAttr(args[0].getType()));
                          return arith::SelectOp::create(builder, loc, dead, zero, args[0]);
                        });
}

/// Whether a statement is such a guard, written by whoever wrote the cascade.
bool attn::isGuard(GenericOp op) {
  auto select = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp<arith::SelectOp>();
  if (!select || op.getNumDpsInputs() != 1 || op.getNumReductionLoops() != 0 ||
      select.getFalseValue() != op.getBlock()->getArgument(0))
    return false;
  auto compare = select.getCondition().getDefiningOp<arith::CmpFOp>();
  return compare && compare.getPredicate() == arith::CmpFPredicate::OEQ &&
         compare.getLhs() == select.getFalseValue() &&
         matchPattern(compare.getRhs(), m_NegInfFloat()) &&
         matchPattern(select.getTrueValue(), m_AnyZeroFloat());
}

/// exp(from - to): what a sum of exp(s - from) becomes under `to`.
Value Cascade::rescaling(ImplicitLocOpBuilder &b, Value from, Value to) {
  auto type = cast<RankedTensorType>(from.getType());
  SmallVector<OpFoldResult> sizes;
  for (unsigned index = 0; index < type.getRank(); ++index)
    sizes.push_back(sizeOf(b, to, index));
  Value out = tensor::EmptyOp::create(b, sizes, type.getElementType());
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq<unsigned>(type.getRank()));
  return buildStatement(b, type.getRank(), {{from, all}, {to, all}}, {out, all},
                        [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                          Value d = arith::SubFOp::create(builder, loc, args[0], args[1]);
                          return math::ExpOp::create(builder, loc, d);
                        });
}

/// `state` combined pointwise with `factor`, which has the shape of the result
/// of `pivotOp` and is broadcast along the dimensions that `like` has beyond.
Value Cascade::scaleBy(ImplicitLocOpBuilder &b, GenericOp like, Value state, GenericOp pivotOp,
                       Value factor,
                       function_ref<Value(OpBuilder &, Location, Value, Value)> apply) {
  auto type = cast<RankedTensorType>(state.getType());
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq<unsigned>(type.getRank()));
  SmallVector<unsigned> dims;
  unsigned pivotRank = cast<RankedTensorType>(factor.getType()).getRank();
  for (unsigned index = 0; index < pivotRank; ++index)
    for (unsigned mine = 0; mine < type.getRank(); ++mine)
      if (classes.ofValue(like.getResult(0), mine) == classes.ofValue(pivotOp.getResult(0), index))
        dims.push_back(mine);
  assert(dims.size() == pivotRank && "checked when the cascade was proved");
  SmallVector<OpFoldResult> sizes;
  for (unsigned index : all)
    sizes.push_back(sizeOf(b, state, index));
  Value out = tensor::EmptyOp::create(b, sizes, type.getElementType());
  return buildStatement(b, type.getRank(), {{state, all}, {factor, dims}}, {out, all},
                        [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
                          return apply(builder, loc, args[0], args[1]);
                        });
}

static Value multiply(OpBuilder &b, Location loc, Value x, Value y) {
  return arith::MulFOp::create(b, loc, x, y);
}

/// x r^k.
static Value timesPower(OpBuilder &b, Location loc, Value x, Value r, double k) {
  if (k == -1)
    return arith::DivFOp::create(b, loc, x, r);
  if (k == -0.5)
    return multiply(b, loc, x, math::RsqrtOp::create(b, loc, r));
  Value power = arith::ConstantOp::create(b, loc, b.getFloatAttr(r.getType(), k));
  return multiply(b, loc, x, math::PowFOp::create(b, loc, r, power));
}

/// Clones a statement into the fold's body: blocks for streamed inputs, block
/// sizes for its own tensors, the block's offset on the dimension's index.
void Cascade::cloneStatement(ImplicitLocOpBuilder &b, GenericOp op, FoldOp fold,
                             IRMapping &mapping) {
  b.setLoc(op.getLoc());
  Value init = op.getDpsInits()[0];
  std::optional<unsigned> loop = loopOf(op);
  if (!mapping.contains(init) && !reduces(op)) {
    auto type = cast<RankedTensorType>(init.getType());
    AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    SmallVector<OpFoldResult> sizes;
    for (unsigned index = 0; index < type.getRank(); ++index) {
      if (loop && map.getResult(index).isFunctionOfDim(*loop)) {
        Value size = tensor::DimOp::create(b, fold.getBlocks()[0], fold.getStreamDims()[0]);
        sizes.push_back(size);
      } else {
        sizes.push_back(sizeOf(b, init, index));
      }
    }
    Value out = tensor::EmptyOp::create(b, sizes, type.getElementType());
    if (Value fill = getFillValue(init))
      out = linalg::FillOp::create(b, fill, out).getResult(0);
    IRMapping local = mapping;
    local.map(init, out);
    auto clone = cast<GenericOp>(b.clone(*op, local));
    clone->getResult(0).setType(cast<RankedTensorType>(out.getType()));
    mapping.map(op.getResult(0), clone.getResult(0));
  } else {
    auto clone = cast<GenericOp>(b.clone(*op, mapping));
    clone->getResult(0).setType(clone.getDpsInits()[0].getType());
    mapping.map(op.getResult(0), clone.getResult(0));
  }
  auto clone = mapping.lookup(op.getResult(0)).getDefiningOp<GenericOp>();
  // Blocks where the tensor is read along the dimension; the same tensor may
  // also be read whole (as the query, where it is the key too).
  for (OpOperand *input : op.getDpsInputOperands())
    for (auto [stream, block] : llvm::zip(fold.getInputs(), fold.getBlocks()))
      if (loop && stream == input->get() && op.getMatchingIndexingMap(input).isFunctionOfDim(*loop))
        clone->setOperand(input->getOperandNumber(), block);
  // Sums that were taken out of the cascade count as one.
  for (OpOperand *input : op.getDpsInputOperands())
    if (factored.contains(input->get())) {
      BlockArgument argument = clone.getBlock()->getArgument(input->getOperandNumber());
      if (llvm::any_of(argument.getUsers(), llvm::IsaPred<arith::CmpFOp>))
        guardedFactors.insert(input->get());
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(clone.getBlock());
      Value one = arith::ConstantOp::create(b, b.getFloatAttr(argument.getType(), 1.0));
      argument.replaceAllUsesWith(one);
    }
  if (!loop)
    return;
  clone.getBlock()->walk([&](linalg::IndexOp index) {
    if (index.getDim() != *loop)
      return;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(index);
    Value global = arith::AddIOp::create(b, index, fold.getOffset());
    index.getResult().replaceAllUsesExcept(global, global.getDefiningOp());
  });
}

FoldOp Cascade::createFold(ImplicitLocOpBuilder &b, ArrayRef<GenericOp> statements,
                           const llvm::MapVector<Value, int64_t> &streams,
                           MutableArrayRef<Carried> carried, ArrayRef<GenericOp> mapped,
                           IRMapping mapping) {
  SmallVector<Value> inputs, inits;
  SmallVector<int64_t> dims, mapDims;
  for (auto [tensor, index] : streams) {
    inputs.push_back(tensor);
    dims.push_back(index);
  }
  Value extent = getValueOrCreateConstantIndexOp(
      b, b.getLoc(), tensor::getMixedSize(b, b.getLoc(), inputs[0], dims[0]));
  SmallVector<Type> types;
  for (const Carried &state : carried) {
    inits.push_back(state.start);
    types.push_back(inits.back().getType());
  }
  for (GenericOp op : mapped) {
    types.push_back(op.getResult(0).getType());
    AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    for (unsigned index = 0; index < map.getNumResults(); ++index)
      if (map.getResult(index).isFunctionOfDim(*loopOf(op)))
        mapDims.push_back(index);
  }
  auto fold = FoldOp::create(b, types, extent, inputs, inits, b.getDenseI64ArrayAttr(dims),
                             b.getDenseI64ArrayAttr(mapDims), /*plan=*/PlanAttr());
  if (auto names = statements[0]->getAttrOfType<ArrayAttr>(kDimsAttr))
    if (std::optional<unsigned> loop = loopOf(statements[0]); loop && *loop < names.size())
      fold->setAttr(kLoopAttr, names[*loop]);
  Block *body = new Block;
  fold.getBody().push_back(body);
  body->addArgument(b.getIndexType(), b.getLoc());
  for (auto [tensor, index] : streams) {
    auto type = cast<RankedTensorType>(tensor.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[index] = ShapedType::kDynamic;
    body->addArgument(type.clone(shape), tensor.getLoc());
  }
  for (Value init : inits)
    body->addArgument(init.getType(), init.getLoc());

  OpBuilder::InsertionGuard insertion(b);
  b.setInsertionPointToStart(body);
  // By the pivot's result: its value before this block, what readers subtract,
  // and the factor for sums.
  DenseMap<Value, Value> oldPivot, subtrahend, rescalings;
  SmallVector<Value> yields(carried.size());
  for (GenericOp op : statements) {
    auto state = llvm::find_if(carried, [&](const Carried &other) { return other.op == op; });
    if (state == carried.end()) {
      cloneStatement(b, op, fold, mapping);
      if (isGuard(op) && running.contains(op.getDpsInputs()[0]))
        subtrahend[op.getDpsInputs()[0]] = mapping.lookup(op.getResult(0));
      continue;
    }
    unsigned index = state - carried.begin();
    Value old = fold.getState()[index];
    for (Value pivot : state->pivots) {
      auto pivotOp = pivot.getDefiningOp<GenericOp>();
      Value &factor = rescalings[pivot];
      if (!factor)
        factor = rescaling(b, oldPivot[pivot], subtrahend[pivot]);
      old = scaleBy(b, op, old, pivotOp, factor, multiply);
    }
    IRMapping local = mapping;
    local.map(op.getDpsInits()[0], old);
    cloneStatement(b, op, fold, local);
    Value next = local.lookup(op.getResult(0));
    yields[index] = next;
    mapping.map(op.getResult(0), next);
    if (!running.contains(op.getResult(0)))
      continue;
    oldPivot[op.getResult(0)] = fold.getState()[index];
    bool guarded = llvm::all_of(statements, [&](GenericOp reader) {
      return isGuard(reader) || !llvm::is_contained(reader->getOperands(), op.getResult(0));
    });
    if (guarded)
      continue;
    Value safe = guard(b, next);
    subtrahend[op.getResult(0)] = safe;
    mapping.map(op.getResult(0), safe);
  }
  for (GenericOp op : mapped)
    yields.push_back(mapping.lookup(op.getResult(0)));
  YieldOp::create(b, yields);
  return fold;
}

/// Two states of disjoint parts: combine the maxima, bring both sums under the
/// common one, add.
void Cascade::buildMerge(ImplicitLocOpBuilder &b, FoldOp fold) {
  for (const Carried &state : carried) {
    bool idempotent = state.reduction.monoid == Reduction::Monoid::Max ||
                      state.reduction.monoid == Reduction::Monoid::Min;
    // A start value that is not neutral would be counted once per part.
    if (!idempotent && !isNeutralFill(state.start, state.reduction.monoid))
      return;
  }
  Block *merge = new Block;
  fold.getMerge().push_back(merge);
  unsigned count = carried.size();
  for (unsigned side = 0; side < 2; ++side)
    for (Value init : fold.getInits())
      merge->addArgument(init.getType(), init.getLoc());
  OpBuilder::InsertionGuard insertion(b);
  b.setInsertionPointToStart(merge);
  DenseMap<Value, unsigned> position;
  SmallVector<Value> results(count);
  DenseMap<Value, Value> guarded;
  for (auto [index, state] : llvm::enumerate(carried)) {
    position[state.op.getResult(0)] = index;
    Value sides[2] = {merge->getArgument(index), merge->getArgument(count + index)};
    for (Value pivot : state.pivots) {
      unsigned at = position[pivot];
      for (unsigned side = 0; side < 2; ++side) {
        Value factor = rescaling(b, merge->getArgument(side * count + at), guarded[pivot]);
        sides[side] =
            scaleBy(b, state.op, sides[side], pivot.getDefiningOp<GenericOp>(), factor, multiply);
      }
    }
    results[index] = combine(b, state, sides[0], sides[1]);
    if (running.contains(state.op.getResult(0)))
      guarded[state.op.getResult(0)] = guard(b, results[index]);
  }
  YieldOp::create(b, results);
}

/// `a` and `b` joined pointwise by the state's combiner.
Value Cascade::combine(ImplicitLocOpBuilder &b, const Carried &state, Value left, Value right) {
  unsigned rank = cast<RankedTensorType>(left.getType()).getRank();
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq(rank));
  return buildStatement(b, rank, {{right, all}}, {left, all},
                        [&](OpBuilder &builder, Location loc, ValueRange args) {
                          Operation *clone = builder.clone(*state.reduction.combiner);
                          clone->setOperands({args[1], args[0]});
                          return clone->getResult(0);
                        });
}

/// A state that is rescaled, or starts from what the cascade computes, starts
/// neutral; its own start value joins when the final values are known.
void Cascade::startNeutral(ImplicitLocOpBuilder &b, Carried &state) {
  Value init = state.op.getDpsInits()[0];
  auto source = init.getDefiningOp<GenericOp>();
  bool dependent = source && llvm::any_of(source->getOperands(), [&](Value operand) {
                     return llvm::any_of(carried, [&](const Carried &other) {
                       return operand == GenericOp(other.op).getResult(0);
                     });
                   });
  if (isNeutralFill(init, state.reduction.monoid) ||
      (state.pivots.empty() && state.factors.empty() && !dependent))
    return;
  auto type = cast<RankedTensorType>(init.getType());
  SmallVector<OpFoldResult> sizes;
  for (unsigned index = 0; index < type.getRank(); ++index)
    sizes.push_back(sizeOf(b, init, index));
  Value empty = tensor::EmptyOp::create(b, sizes, type.getElementType());
  Value neutral = arith::ConstantOp::create(
      b, getNeutralElement(b, state.reduction.monoid, type.getElementType()));
  state.start = linalg::FillOp::create(b, neutral, empty).getResult(0);
}

/// Whether the statements read what the cascade reduces, directly or through
/// statements that do not span the dimension.
bool Cascade::needsReduced(const llvm::SetVector<Operation *> &slice) const {
  llvm::SetVector<Operation *> sources(slice.begin(), slice.end());
  for (unsigned at = 0; at < sources.size(); ++at)
    for (Value operand : sources[at]->getOperands()) {
      auto source = operand.getDefiningOp<GenericOp>();
      if (!source || source->getBlock() != &block)
        continue;
      if (isMember(source) && reduces(source))
        return true;
      sources.insert(source);
    }
  return false;
}

/// Statements between a reduction and its readers work on running values inside of the fold.
SmallVector<GenericOp> Cascade::findStatements(const llvm::SetVector<Operation *> &slice) {
  SmallVector<GenericOp> statements;
  for (auto op : block.getOps<GenericOp>()) {
    if (slice.contains(op)) {
      statements.push_back(op);
      continue;
    }
    if (spans(op))
      continue;
    bool fromPivot = llvm::any_of(op.getDpsInputs(), [&](Value input) {
      auto source = input.getDefiningOp<GenericOp>();
      return source && source->getBlock() == &block &&
             (reduces(source) || llvm::is_contained(statements, source));
    });
    DenseSet<Operation *> visited;
    bool toMember =
        llvm::any_of(op->getUses(),
                     [&](OpOperand &use) {
                       auto reader = dyn_cast<GenericOp>(use.getOwner());
                       return slice.contains(use.getOwner()) && !reader.isDpsInit(&use);
                     }) ||
        llvm::any_of(op->getResults(), [&](Value result) { return feedsMember(result, visited); });
    if (fromPivot && toMember)
      statements.push_back(op);
  }
  return statements;
}

/// Gives readers of the reductions the final values, with the factors that were taken out of the
/// sums.
IRMapping Cascade::replaceReductions(ImplicitLocOpBuilder &b, FoldOp fold,
                                     ArrayRef<GenericOp> statements) {
  IRMapping finals;
  for (auto [index, state] : llvm::enumerate(carried)) {
    Value value = fold.getResult(index);
    b.setLoc(state.op.getLoc());
    b.setInsertionPointAfterValue(value);
    for (auto [pivot, exponent] : state.factors) {
      auto pivotOp = pivot.getDefiningOp<GenericOp>();
      double k = exponent;
      unsigned at = 0;
      while (carried[at].op != pivotOp)
        ++at;
      value = scaleBy(
          b, state.op, value, pivotOp, fold.getResult(at),
          [&, pivot = pivot](OpBuilder &builder, Location loc, Value x, Value r) -> Value {
            Value scaled = timesPower(builder, loc, x, r, k);
            if (!guardedFactors.contains(pivot))
              return scaled;
            // The cascade put 0 where the sum is 0; so does its last step.
            Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(r.getType()));
            Value empty = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, r, zero);
            return arith::SelectOp::create(builder, loc, empty, zero, scaled);
          });
    }
    if (Value init = state.op.getDpsInits()[0]; init != state.start)
      value = combine(b, state, init, value);
    finals.map(state.op.getResult(0), value);
    state.op.getResult(0).replaceUsesWithIf(value, [&](OpOperand &use) {
      auto reader = dyn_cast<GenericOp>(use.getOwner());
      bool inCascade =
          reader && reader->getBlock() == &block && llvm::is_contained(statements, reader);
      // Statements shared with the outside (a guarded maximum that the
      // log-sum-exp reads) see the final value; the fold has its own copies.
      return !inCascade || !spans(reader);
    });
  }
  return finals;
}

/// Gives readers of the mapped statements the results `maps` of the fold.
void Cascade::replaceMapped(ValueRange maps, FoldOp fold) {
  // Other folds, too, but for those that this one reads.
  llvm::SetVector<Operation *> sources;
  BackwardSliceOptions toSources;
  toSources.omitBlockArguments = true;
  toSources.omitUsesFromAbove = false;
  for (Value map : maps)
    (void)getBackwardSlice(map, &sources, toSources);
  for (auto [op, map] : llvm::zip(mapped, maps))
    GenericOp(op).getResult(0).replaceUsesWithIf(map, [&, map = map](OpOperand &use) {
      Operation *reader = block.findAncestorOpInBlock(*use.getOwner());
      return reader && reader != fold && reader != map.getDefiningOp() &&
             !sources.contains(reader) && isOutside(reader);
    });
}

LogicalResult Cascade::fuse() {
  llvm::SetVector<Operation *> slice, mapSlice;
  for (Carried &state : carried)
    sliceOf(state.op, slice);
  for (GenericOp op : mapped)
    sliceOf(op, mapSlice);
  // Mapped results that need no finished value come out of the same pass.
  bool together = !needsReduced(mapSlice);
  if (together)
    slice.insert(mapSlice.begin(), mapSlice.end());
  SmallVector<GenericOp> statements = findStatements(slice);
  // Refuse before anything changes.
  llvm::MapVector<Value, int64_t> streams, mapStreams;
  if (failed(findStreams(statements, streams)) ||
      (!together && failed(findStreams(ordered(mapSlice), mapStreams))))
    return failure();
  GenericOp last = carried.empty() ? mapped.back() : carried.back().op;
  ImplicitLocOpBuilder b(last.getLoc(), last);
  b.setInsertionPointAfter(last);
  for (Carried &state : carried)
    startNeutral(b, state);
  FoldOp fold = createFold(b, statements, streams, carried,
                           together ? ArrayRef(mapped) : ArrayRef<GenericOp>(), {});
  if (!carried.empty())
    buildMerge(b, fold);
  IRMapping finals = replaceReductions(b, fold, statements);
  ValueRange maps = fold.getResults().drop_front(carried.size());
  if (!together) {
    // The second pass reads final values only.
    factored.clear();
    running.clear();
    b.setInsertionPoint(block.getTerminator());
    FoldOp map = createFold(b, ordered(mapSlice), mapStreams, {}, mapped, finals);
    maps = map.getResults();
  }
  replaceMapped(maps, fold);
  // What is left of the cascade has no reader; erase it last use first.
  for (GenericOp op : llvm::reverse(members))
    if (op.use_empty())
      op.erase();
  sortTopologically(&block);
  return success();
}
