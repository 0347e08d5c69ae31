// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-fuse-reductions: a cascade of reductions over one dimension becomes one
// pass with carried state (attn.fold).
//
// The rule (Passes.td) is about reductions, not about attention: a dependence
// on a running value can be repaired when its readers are homogeneous in it.
// Online softmax (Milakov and Gimelshein, 2018) is the instance where the
// running value is a maximum and the readers are sums of exp(s - m).

#include "DimClasses.h"
#include "Homogeneity.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Statement.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Format.h"

namespace attn {
#define GEN_PASS_DEF_ATTNFUSEREDUCTIONS
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
using linalg::GenericOp;

/// A reduction over the fused dimension and what its state needs.
struct Carried {
  GenericOp op;
  Reduction reduction;
  /// Pivots (running maxima) whose growth scales this state.
  SmallVector<Value> pivots;
  /// Pivots taken out of the sum, with their exponents.
  SmallVector<std::pair<Value, double>> factors;
  /// What the fold starts from: the statement's own start value, or the neutral
  /// element where that joins at the end.
  Value start;
};

/// One cascade over one dimension of the nest: found, proved, then fused.
class Cascade {
public:
  Cascade(Block &block, const DimClasses &classes, unsigned dim)
      : block(block), classes(classes), dim(dim) {}

  /// Whether an intermediate spans the dimension and is reduced along it, or,
  /// where `byReturn`, a reduced value comes back along it.
  bool isCandidate(bool byReturn);
  /// Proves that one pass suffices; remarks at the offender otherwise.
  LogicalResult prove();
  /// The statements that reduce the dimension.
  SmallVector<GenericOp> getReductions() {
    return llvm::filter_to_vector(members,
                                  [&](GenericOp op) { return reduces(op); });
  }
  /// Replaces the cascade by a fold, and a second one for mapped results.
  LogicalResult fuse();

private:
  std::optional<unsigned> loopOf(GenericOp op) const;
  bool spans(GenericOp op) const { return loopOf(op).has_value(); }
  bool reduces(GenericOp op) const;
  bool feedsMember(Value value, DenseSet<Operation *> &visited) const;
  LogicalResult refuse(GenericOp op, const Twine &why, Operation *reason,
                       GenericOp source);
  LogicalResult provePivot(Value pivot, bool asShift, bool report);
  LogicalResult findMaps();
  LogicalResult findStreams(ArrayRef<GenericOp> statements,
                            llvm::MapVector<Value, int64_t> &streams);
  void sliceOf(GenericOp op, llvm::SetVector<Operation *> &slice);
  SmallVector<GenericOp> ordered(const llvm::SetVector<Operation *> &slice);
  FoldOp createFold(ImplicitLocOpBuilder &b, ArrayRef<GenericOp> statements,
                    MutableArrayRef<Carried> carried,
                    ArrayRef<GenericOp> mapped, IRMapping mapping);
  void cloneStatement(ImplicitLocOpBuilder &b, GenericOp op, FoldOp fold,
                      IRMapping &mapping);
  Value correction(ImplicitLocOpBuilder &b, Value from, Value to);
  Value scaleBy(ImplicitLocOpBuilder &b, GenericOp like, Value state,
                GenericOp pivotOp, Value factor,
                function_ref<Value(OpBuilder &, Location, Value, Value)> apply);
  Value guard(ImplicitLocOpBuilder &b, Value pivot);
  void buildMerge(ImplicitLocOpBuilder &b, FoldOp fold);
  Value combine(ImplicitLocOpBuilder &b, const Carried &state, Value left,
                Value right);
  void startNeutral(ImplicitLocOpBuilder &b, Carried &state);

  Block &block;
  const DimClasses &classes;
  unsigned dim;
  SmallVector<GenericOp> members;   // statements that span the dimension
  SmallVector<Carried> carried;     // its reductions, in order
  SmallVector<GenericOp> mapped;    // statements whose whole result is needed
  DenseSet<Value> factored;         // pivots that leave the sums
  DenseSet<Value> guardedFactors;   // of them, those compared with zero
  DenseSet<Value> running;          // pivots whose running value is used
};

std::optional<unsigned> Cascade::loopOf(GenericOp op) const {
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
    if (classes.ofLoop(op, loop) == dim)
      return loop;
  return std::nullopt;
}

bool Cascade::reduces(GenericOp op) const {
  std::optional<unsigned> loop = loopOf(op);
  return loop && op.getIteratorTypesArray()[*loop] ==
                     utils::IteratorType::reduction;
}

bool Cascade::isCandidate(bool byReturn) {
  members.clear();
  for (auto op : block.getOps<GenericOp>())
    if (spans(op))
      members.push_back(op);
  return llvm::any_of(members, [&](GenericOp op) {
    if (!reduces(op))
      return false;
    DenseSet<Operation *> visited;
    if (byReturn)
      return feedsMember(op.getResult(0), visited);
    return llvm::any_of(op.getDpsInputs(), [&](Value input) {
      auto source = input.getDefiningOp<GenericOp>();
      return source && source->getBlock() == &block && spans(source) &&
             !reduces(source);
    });
  });
}

/// Whether a value reaches a statement over the dimension, directly or through
/// statements that do not span it.
bool Cascade::feedsMember(Value value, DenseSet<Operation *> &visited) const {
  for (Operation *user : value.getUsers()) {
    auto op = dyn_cast<GenericOp>(user);
    if (!op || op->getBlock() != &block || !visited.insert(op).second)
      continue;
    if (spans(op))
      return true;
    for (Value result : op.getResults())
      if (feedsMember(result, visited))
        return true;
  }
  return false;
}

LogicalResult Cascade::refuse(GenericOp op, const Twine &why,
                              Operation *reason, GenericOp source) {
  InFlightDiagnostic remark = emitRemark(op.getLoc())
                              << "not fused into one pass: " << why;
  if (source)
    remark.attachNote(source.getLoc())
        << "the reduction at the source of the dependence (RAW, carried by "
           "the fused dimension)";
  if (reason && reason != op)
    remark.attachNote(reason->getLoc()) << "the form is broken here";
  return failure();
}

LogicalResult Cascade::prove() {
  for (GenericOp op : members) {
    unsigned loops = 0;
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
      loops += classes.ofLoop(op, loop) == dim;
    if (loops != 1)
      return refuse(op, "it runs over the dimension twice", nullptr, {});
    if (op->getNumResults() != 1)
      return refuse(op, "it has more than one result", nullptr, {});
    if (!reduces(op))
      continue;
    std::optional<Reduction> reduction = matchReduction(op, 0);
    if (!reduction)
      return refuse(op,
                    "its reduction is not a sum, product, maximum or minimum",
                    nullptr, {});
    carried.push_back({op, *reduction, {}, {}, op.getDpsInits()[0]});
  }
  // Values that are only factors leave the sums first; what remains must be
  // homogeneous in the maxima with those held fixed.
  SmallVector<Value> maxima;
  for (Carried &source : carried) {
    Value result = source.op.getResult(0);
    DenseSet<Operation *> visited;
    if (!feedsMember(result, visited))
      continue;
    if (source.reduction.monoid == Reduction::Monoid::Max &&
        failed(provePivot(result, /*asShift=*/false, /*report=*/false))) {
      maxima.push_back(result);
      running.insert(result);
    } else if (!factored.contains(result) &&
               failed(provePivot(result, /*asShift=*/false, /*report=*/true))) {
      return failure();
    }
  }
  for (Value pivot : maxima)
    if (failed(provePivot(pivot, /*asShift=*/true, /*report=*/true)))
      return failure();
  return findMaps();
}

/// Checks every reduction of the cascade against one pivot: as a running
/// maximum that terms shift with, or as a factor of terms.
LogicalResult Cascade::provePivot(Value pivot, bool asShift, bool report) {
  Homogeneity homogeneity(
      pivot, asShift ? Degree::shift(1) : Degree::power(1), factored);
  auto source = pivot.getDefiningOp<GenericOp>();
  StringRef name = asShift ? "running maximum" : "running value";
  SmallVector<std::pair<Carried *, double>> dependents;
  for (Carried &state : carried) {
    Value result = state.op.getResult(0);
    if (result == pivot)
      continue;
    Degree degree = homogeneity.ofStatement(result);
    if (degree.kind == Degree::Kind::Invariant)
      continue;
    auto fail = [&](const Twine &why, Operation *reason) {
      return report ? refuse(state.op, why, reason, source) : failure();
    };
    if (degree.kind == Degree::Kind::Unknown)
      return fail("its terms are not homogeneous in the " + name +
                      " that they depend on",
                  degree.reason);
    bool sum = state.reduction.monoid == Reduction::Monoid::Add;
    if (asShift && (!(degree == Degree::scale(-1)) || !sum)) {
      std::string k;
      llvm::raw_string_ostream(k) << llvm::format("%g", degree.k);
      return fail("its terms change with degree " + k + " in exp(" + name +
                      "), expected a sum of degree -1",
                  nullptr);
    }
    if (asShift && running.contains(result))
      return fail("it is itself a running value that others depend on",
                  nullptr);
    if (!asShift && (degree.kind != Degree::Kind::Power || !sum))
      return fail("its terms are no power of the running value that they "
                  "depend on",
                  nullptr);
    dependents.push_back({&state, degree.k});
  }
  for (auto [state, k] : dependents) {
    if (asShift)
      state->pivots.push_back(pivot);
    else
      state->factors.push_back({pivot, k});
  }
  if (!asShift)
    factored.insert(pivot);
  return success();
}

/// Statements whose result is used outside of the cascade.
LogicalResult Cascade::findMaps() {
  for (GenericOp op : members) {
    if (reduces(op))
      continue;
    bool escapes = llvm::any_of(op->getUsers(), [&](Operation *user) {
      auto reader = dyn_cast<GenericOp>(user);
      return !reader || reader->getBlock() != &block || !spans(reader);
    });
    if (escapes)
      mapped.push_back(op);
  }
  if (carried.empty())
    return failure();
  return success();
}

/// Members that `op` needs, reductions of the dimension excluded.
void Cascade::sliceOf(GenericOp op, llvm::SetVector<Operation *> &slice) {
  if (!slice.insert(op))
    return;
  for (Value operand : op->getOperands()) {
    auto source = operand.getDefiningOp<GenericOp>();
    if (!source || source->getBlock() != &block)
      continue;
    if (spans(source) && !reduces(source))
      sliceOf(source, slice);
  }
}

SmallVector<GenericOp>
Cascade::ordered(const llvm::SetVector<Operation *> &slice) {
  SmallVector<GenericOp> result;
  for (auto op : block.getOps<GenericOp>())
    if (slice.contains(op))
      result.push_back(op);
  return result;
}

/// Tensors from outside that the statements read along the dimension.
LogicalResult
Cascade::findStreams(ArrayRef<GenericOp> statements,
                     llvm::MapVector<Value, int64_t> &streams) {
  for (GenericOp op : statements)
    for (OpOperand &operand : op->getOpOperands()) {
      auto source = operand.get().getDefiningOp<GenericOp>();
      if ((source && source->getBlock() == &block && spans(source)) ||
          op.isDpsInit(&operand))
        continue;
      AffineMap map = op.getMatchingIndexingMap(&operand);
      for (unsigned index = 0; index < map.getNumResults(); ++index) {
        if (!map.getResult(index).isFunctionOfDim(*loopOf(op)))
          continue;
        auto [entry, fresh] = streams.insert({operand.get(), index});
        if (!getLoop(map, index) || (!fresh && entry->second != index))
          return refuse(op, "it reads a tensor along the dimension in more "
                            "than one way",
                        nullptr, {});
      }
    }
  if (streams.empty())
    return refuse(statements.front(),
                  "no tensor is read along the dimension, so its extent is "
                  "unknown",
                  nullptr, {});
  return success();
}

/// The size of a tensor's dimension without keeping the tensor alive.
OpFoldResult sizeOf(ImplicitLocOpBuilder &b, Value tensor, unsigned index) {
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
  return buildStatement(
      b, type.getRank(), {{pivot, all}}, {out, all},
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
static bool isGuard(GenericOp op) {
  auto select = op.getBlock()
                    ->getTerminator()
                    ->getOperand(0)
                    .getDefiningOp<arith::SelectOp>();
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
Value Cascade::correction(ImplicitLocOpBuilder &b, Value from, Value to) {
  auto type = cast<RankedTensorType>(from.getType());
  SmallVector<OpFoldResult> sizes;
  for (unsigned index = 0; index < type.getRank(); ++index)
    sizes.push_back(sizeOf(b, to, index));
  Value out = tensor::EmptyOp::create(b, sizes, type.getElementType());
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq<unsigned>(type.getRank()));
  return buildStatement(
      b, type.getRank(), {{from, all}, {to, all}}, {out, all},
      [](OpBuilder &builder, Location loc, ValueRange args) -> Value {
        Value d = arith::SubFOp::create(builder, loc, args[0], args[1]);
        return math::ExpOp::create(builder, loc, d);
      });
}

/// `state` combined pointwise with `factor`, which has the shape of the result
/// of `pivotOp` and is broadcast along the dimensions that `like` has beyond.
Value Cascade::scaleBy(
    ImplicitLocOpBuilder &b, GenericOp like, Value state, GenericOp pivotOp,
    Value factor,
    function_ref<Value(OpBuilder &, Location, Value, Value)> apply) {
  auto type = cast<RankedTensorType>(state.getType());
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq<unsigned>(type.getRank()));
  SmallVector<unsigned> dims;
  unsigned pivotRank = cast<RankedTensorType>(factor.getType()).getRank();
  for (unsigned index = 0; index < pivotRank; ++index)
    for (unsigned mine = 0; mine < type.getRank(); ++mine)
      if (classes.ofValue(like.getResult(0), mine) ==
          classes.ofValue(pivotOp.getResult(0), index))
        dims.push_back(mine);
  assert(dims.size() == pivotRank && "checked when the cascade was proved");
  SmallVector<OpFoldResult> sizes;
  for (unsigned index : all)
    sizes.push_back(sizeOf(b, state, index));
  Value out = tensor::EmptyOp::create(b, sizes, type.getElementType());
  return buildStatement(
      b, type.getRank(), {{state, all}, {factor, dims}}, {out, all},
      [&](OpBuilder &builder, Location loc, ValueRange args) -> Value {
        return apply(builder, loc, args[0], args[1]);
      });
}

static Value multiply(OpBuilder &b, Location loc, Value x, Value y) {
  return arith::MulFOp::create(b, loc, x, y);
}

/// x r^k.
static Value timesPower(OpBuilder &b, Location loc, Value x, Value r,
                        double k) {
  if (k == -1)
    return arith::DivFOp::create(b, loc, x, r);
  if (k == -0.5)
    return multiply(b, loc, x, math::RsqrtOp::create(b, loc, r));
  Value power =
      arith::ConstantOp::create(b, loc, b.getFloatAttr(r.getType(), k));
  return multiply(b, loc, x, math::PowFOp::create(b, loc, r, power));
}

/// Clones a statement into the fold's body: blocks for streamed inputs, block
/// sizes for its own tensors, the block's offset on the dimension's index.
void Cascade::cloneStatement(ImplicitLocOpBuilder &b, GenericOp op,
                             FoldOp fold, IRMapping &mapping) {
  b.setLoc(op.getLoc());
  Value init = op.getDpsInits()[0];
  std::optional<unsigned> loop = loopOf(op);
  if (!mapping.contains(init) && !reduces(op)) {
    auto type = cast<RankedTensorType>(init.getType());
    AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    SmallVector<OpFoldResult> sizes;
    for (unsigned index = 0; index < type.getRank(); ++index) {
      if (loop && map.getResult(index).isFunctionOfDim(*loop)) {
        Value size = tensor::DimOp::create(b, fold.getBlocks()[0],
                                           fold.getStreamDims()[0]);
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
  // Sums that were taken out of the cascade count as one.
  for (OpOperand *input : op.getDpsInputOperands())
    if (factored.contains(input->get())) {
      BlockArgument argument =
          clone.getBlock()->getArgument(input->getOperandNumber());
      if (llvm::any_of(argument.getUsers(), llvm::IsaPred<arith::CmpFOp>))
        guardedFactors.insert(input->get());
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(clone.getBlock());
      Value one = arith::ConstantOp::create(
          b, b.getFloatAttr(argument.getType(), 1.0));
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

FoldOp Cascade::createFold(ImplicitLocOpBuilder &b,
                           ArrayRef<GenericOp> statements,
                           MutableArrayRef<Carried> carried,
                           ArrayRef<GenericOp> mapped, IRMapping mapping) {
  llvm::MapVector<Value, int64_t> streams;
  if (failed(findStreams(statements, streams)))
    return {};
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
  auto fold = FoldOp::create(b, types, extent, inputs, inits,
                             b.getDenseI64ArrayAttr(dims),
                             b.getDenseI64ArrayAttr(mapDims));
  if (auto names = statements[0]->getAttrOfType<ArrayAttr>("attn.dims"))
    if (std::optional<unsigned> loop = loopOf(statements[0]);
        loop && *loop < names.size())
      fold->setAttr("attn.loop", names[*loop]);
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

  for (auto [input, argument] : llvm::zip(inputs, fold.getBlocks()))
    mapping.map(input, argument);
  OpBuilder::InsertionGuard insertion(b);
  b.setInsertionPointToStart(body);
  // By the pivot's result: its value before this block, what readers subtract,
  // and the factor for sums.
  DenseMap<Value, Value> oldPivot, subtrahend, corrections;
  SmallVector<Value> yields(carried.size());
  for (GenericOp op : statements) {
    auto state = llvm::find_if(
        carried, [&](const Carried &other) { return other.op == op; });
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
      Value &factor = corrections[pivot];
      if (!factor)
        factor = correction(b, oldPivot[pivot], subtrahend[pivot]);
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
      return isGuard(reader) ||
             !llvm::is_contained(reader->getOperands(), op.getResult(0));
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
    Value sides[2] = {merge->getArgument(index),
                      merge->getArgument(count + index)};
    for (Value pivot : state.pivots) {
      unsigned at = position[pivot];
      for (unsigned side = 0; side < 2; ++side) {
        Value factor = correction(b, merge->getArgument(side * count + at),
                                  guarded[pivot]);
        sides[side] = scaleBy(b, state.op, sides[side],
                              pivot.getDefiningOp<GenericOp>(), factor,
                              multiply);
      }
    }
    results[index] = combine(b, state, sides[0], sides[1]);
    if (running.contains(state.op.getResult(0)))
      guarded[state.op.getResult(0)] = guard(b, results[index]);
  }
  YieldOp::create(b, results);
}

/// `a` and `b` joined pointwise by the state's combiner.
Value Cascade::combine(ImplicitLocOpBuilder &b, const Carried &state, Value left,
                       Value right) {
  unsigned rank = cast<RankedTensorType>(left.getType()).getRank();
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq(rank));
  return buildStatement(
      b, rank, {{right, all}}, {left, all},
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        Operation *clone = builder.clone(*state.reduction.combiner);
        clone->setOperands({args[1], args[0]});
        return clone->getResult(0);
      });
}

/// A state that is corrected, or starts from what the cascade computes, starts
/// neutral; its own start value joins when the final values are known.
void Cascade::startNeutral(ImplicitLocOpBuilder &b, Carried &state) {
  Value init = state.op.getDpsInits()[0];
  auto source = init.getDefiningOp<GenericOp>();
  bool dependent =
      source && llvm::any_of(source->getOperands(), [&](Value operand) {
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

LogicalResult Cascade::fuse() {
  llvm::SetVector<Operation *> slice, mapSlice;
  for (Carried &state : carried)
    sliceOf(state.op, slice);
  for (GenericOp op : mapped)
    sliceOf(op, mapSlice);
  // Statements between a reduction and its readers work on running values
  // inside of the fold.
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
    bool toMember = llvm::any_of(op->getUses(), [&](OpOperand &use) {
      auto reader = dyn_cast<GenericOp>(use.getOwner());
      return slice.contains(use.getOwner()) && !reader.isDpsInit(&use);
    }) || llvm::any_of(op->getResults(), [&](Value result) {
      return feedsMember(result, visited);
    });
    if (fromPivot && toMember)
      statements.push_back(op);
  }
  GenericOp last = carried.back().op;
  ImplicitLocOpBuilder b(last.getLoc(), last);
  b.setInsertionPointAfter(last);
  for (Carried &state : carried)
    startNeutral(b, state);
  FoldOp fold = createFold(b, statements, carried, {}, {});
  if (!fold)
    return failure();
  buildMerge(b, fold);
  // Final values, with the factors that were taken out of the sums.
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
          [&, pivot = pivot](OpBuilder &builder, Location loc, Value x,
                             Value r) -> Value {
            Value scaled = timesPower(builder, loc, x, r, k);
            if (!guardedFactors.contains(pivot))
              return scaled;
            // The cascade put 0 where the sum is 0; so does its last step.
            Value zero = arith::ConstantOp::create(
                builder, loc, builder.getZeroAttr(r.getType()));
            Value empty = arith::CmpFOp::create(
                builder, loc, arith::CmpFPredicate::OEQ, r, zero);
            return arith::SelectOp::create(builder, loc, empty, zero, scaled);
          });
    }
    if (Value init = state.op.getDpsInits()[0]; init != state.start)
      value = combine(b, state, init, value);
    finals.map(state.op.getResult(0), value);
    state.op.getResult(0).replaceUsesWithIf(value, [&](OpOperand &use) {
      auto reader = dyn_cast<GenericOp>(use.getOwner());
      bool inCascade = reader && reader->getBlock() == &block &&
                       llvm::is_contained(statements, reader);
      // Statements shared with the outside (a guarded maximum that the
      // log-sum-exp reads) see the final value; the fold has its own copies.
      return !inCascade || !spans(reader);
    });
  }
  if (!mapped.empty()) {
    // The second pass reads final values only.
    factored.clear();
    running.clear();
    b.setInsertionPoint(block.getTerminator());
    FoldOp map = createFold(b, ordered(mapSlice), {}, mapped, finals);
    if (!map)
      return failure();
    for (auto [index, op] : llvm::enumerate(mapped))
      op.getResult(0).replaceUsesWithIf(map.getResult(index), [&](OpOperand &use) {
        auto reader = dyn_cast<GenericOp>(use.getOwner());
        return use.getOwner()->getBlock() == &block && (!reader || !spans(reader));
      });
  }
  // What is left of the cascade has no reader; erase it last use first.
  for (GenericOp op : llvm::reverse(members))
    if (op.use_empty())
      op.erase();
  sortTopologically(&block);
  return success();
}

/// Rewrites max(max_j x, c) to a maximum over j that starts at c: one running
/// value instead of one and a function of it (a learned sink joins so).
void absorbIntoStart(Block &block) {
  SmallVector<GenericOp> ops(block.getOps<GenericOp>());
  for (GenericOp op : ops) {
    if (op.getNumReductionLoops() != 0 || op->getNumResults() != 1 ||
        op.getNumDpsInputs() != 2 || !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
      continue;
    Operation *combiner =
        op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
    if (!isa_and_nonnull<arith::MaxNumFOp, arith::MaximumFOp>(combiner) ||
        !llvm::all_of(combiner->getOperands(), [&](Value operand) {
          return isa<BlockArgument>(operand);
        }))
      continue;
    for (unsigned side : {0, 1}) {
      auto source = op.getDpsInputs()[side].getDefiningOp<GenericOp>();
      Value other = op.getDpsInputs()[1 - side];
      if (!source || source->getBlock() != &block || !source->hasOneUse() ||
          source->getNumResults() != 1 || source.getNumReductionLoops() == 0 ||
          !op.getMatchingIndexingMap(op.getDpsInputOperand(side)).isIdentity())
        continue;
      std::optional<Reduction> reduction = matchReduction(source, 0);
      Operation *definition = other.getDefiningOp();
      if (!reduction || reduction->monoid != Reduction::Monoid::Max ||
          (definition && definition->getBlock() == &block &&
           !definition->isBeforeInBlock(source)))
        continue;
      // The same statement, applied to the start value.
      IRMapping mapping;
      mapping.map(op.getDpsInputs()[side], source.getDpsInits()[0]);
      OpBuilder b(source);
      // Its output may be created after the reduction; any tensor will do.
      mapping.map(op.getDpsInits()[0], source.getDpsInits()[0]);
      Operation *start = b.clone(*op, mapping);
      source.getDpsInitsMutable()[0].set(start->getResult(0));
      op.getResult(0).replaceAllUsesWith(source.getResult(0));
      op.erase();
      break;
    }
  }
}

struct FuseReductionsPass
    : attn::impl::AttnFuseReductionsBase<FuseReductionsPass> {
  void runOnOperation() override {
    // A matmul written as a named op is a statement like any other; fills stay,
    // because what a reduction starts from is read off them.
    IRRewriter rewriter(&getContext());
    SmallVector<linalg::LinalgOp> named;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (!isa<GenericOp, linalg::FillOp>(op) && op.hasPureTensorSemantics())
        named.push_back(op);
    });
    for (linalg::LinalgOp op : named) {
      rewriter.setInsertionPoint(op);
      (void)linalg::generalizeNamedOp(rewriter, op);
    }
    for (Block &block : getOperation().getBody()) {
      absorbIntoStart(block);
      while (fuseOne(block))
        ;
    }
    // Sums that left a statement left an operand without a use.
    RewritePatternSet patterns(&getContext());
    linalg::populateEraseUnusedOperandsAndResultsPatterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }

  /// Fuses the first cascade that can be; false where there is none. A stored
  /// intermediate goes before a value that comes back: it is what costs memory.
  bool fuseOne(Block &block) {
    SmallVector<Operation *> ops;
    for (Operation &op : block)
      if (isa<GenericOp, FoldOp>(op))
        ops.push_back(&op);
    DimClasses classes(ops);
    for (bool byReturn : {false, true})
      for (Operation *op : ops)
        if (auto generic = dyn_cast<GenericOp>(op);
            generic && fuseAt(block, classes, generic, byReturn))
          return true;
    return false;
  }

  /// Fuses over a dimension that `op` reduces.
  bool fuseAt(Block &block, const DimClasses &classes, GenericOp op,
              bool byReturn) {
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
      if (op.getIteratorTypesArray()[loop] != utils::IteratorType::reduction ||
          refused.contains(op))
        continue;
      Cascade cascade(block, classes, classes.ofLoop(op, loop));
      if (!cascade.isCandidate(byReturn))
        continue;
      if (succeeded(cascade.prove()) && succeeded(cascade.fuse()))
        return true;
      for (GenericOp member : cascade.getReductions())
        refused.insert(member);
    }
    return false;
  }

  /// Statements whose cascade was refused, so that the remark is given once.
  DenseSet<Operation *> refused;
};
} // namespace
