// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What parallel tiles store to be summed over some of them is summed where it is
// computed: loop interchange, then fusion, then scalar replacement.

#include "attn/Transforms/Programs/Loops.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Statement.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_ATTNCARRYSUMS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using programs::Touched;

static attn::Done numCarried("attn-carry-sums", "carried", "Sums in memory that a fold carries");

namespace {

/// The only use of a memref beside its end and fills of it, which are added to `fills`.
Operation *getOnlyUser(Value memref, Operation *writer, SmallVectorImpl<linalg::FillOp> &fills) {
  Operation *only = nullptr;
  for (Operation *user : memref.getUsers()) {
    if (user == writer || isa<memref::DeallocOp>(user))
      continue;
    if (auto fill = dyn_cast<linalg::FillOp>(user)) {
      fills.push_back(fill);
      continue;
    }
    if (only && only != user)
      return nullptr;
    only = user;
  }
  return only;
}

bool areZero(ArrayRef<linalg::FillOp> fills) {
  return llvm::all_of(
      fills, [](linalg::FillOp fill) { return matchPattern(fill.value(), m_AnyZeroFloat()); });
}

/// A program that stores a tile for each of its iterations and of one loop's to memory of
/// its own, and what follows from it: a sum over some of the program's variables,
/// elementwise statements, a copy.
class Carrier {
public:
  explicit Carrier(memref::AllocOp partial) : partial(partial), b(partial.getLoc(), partial) {}

  /// Has it all done by the program; false where that is not what there is, or not legal.
  bool run() {
    if (!matchProgram() || !matchSum() || !matchIndices() || !findRange() || !findResult() ||
        !canMove())
      return false;
    numCarried.at(partial);
    rewrite();
    return true;
  }

private:
  /// A statement that adds up dimensions, if the program's reader is one.
  bool matchSum() {
    auto generic = dyn_cast<GenericOp>(reader);
    total = partial;
    last = program;
    if (!generic || generic.getNumReductionLoops() == 0) {
      llvm::append_range(kept, llvm::seq<unsigned>(partial.getType().getRank()));
      return true;
    }
    if (!generic.hasPureBufferSemantics() || generic.getNumDpsInputs() != 1 ||
        generic.getNumDpsInits() != 1)
      return false;
    AffineMap in = generic.getIndexingMapsArray()[0], out = generic.getIndexingMapsArray()[1];
    std::optional<Reduction> reduction = matchReduction(generic, 0);
    total = generic.getDpsInits()[0].getDefiningOp<memref::AllocOp>();
    if (generic.getDpsInputs()[0] != partial || !total || !in.isIdentity() || !reduction ||
        reduction->monoid != Reduction::Monoid::Add ||
        reduction->term != generic.getBlock()->getArgument(0))
      return false;
    SmallVector<linalg::FillOp> fills;
    Operation *user = getOnlyUser(total, generic, fills);
    if (fills.size() != 1 || !areZero(fills) || !fills[0]->isBeforeInBlock(generic) || !user ||
        user->getBlock() != generic->getBlock() || !generic->isBeforeInBlock(user))
      return false;
    dead.assign(fills.begin(), fills.end());
    // Kept dimensions in their order.
    unsigned next = 0;
    for (unsigned loop = 0; loop < generic.getNumLoops(); ++loop) {
      if (generic.getIteratorTypesArray()[loop] == utils::IteratorType::reduction)
        continue;
      if (next >= out.getNumResults() || out.getResult(next++) != b.getAffineDimExpr(loop))
        return false;
      kept.push_back(loop);
    }
    last = sum = generic;
    return next == out.getNumResults();
  }

  /// One program with one loop that carries nothing, of which a store to `partial` is the
  /// only effect.
  bool matchProgram() {
    Operation *first = nullptr;
    for (Operation *user : partial->getUsers()) {
      if (user->getParentOp() == partial->getParentOp() && !isa<memref::SubViewOp>(user))
        continue;
      if (first)
        return false;
      first = user;
    }
    reader = first ? getOnlyUser(partial, first, partialFills) : nullptr;
    if (!reader || reader->getBlock() != partial->getBlock() || !areZero(partialFills))
      return false;
    view = dyn_cast<memref::SubViewOp>(first);
    if (view && (!view->hasOneUse() || !isa<scf::ForallOp>(view->getParentOp())))
      return false;
    write = dyn_cast<vector::TransferWriteOp>(view ? *view->user_begin() : first);
    loop = write ? dyn_cast<scf::ForOp>(write->getParentOp()) : nullptr;
    program = loop ? dyn_cast<scf::ForallOp>(loop->getParentOp()) : nullptr;
    if (!program || program->getBlock() != partial->getBlock() || !program.isNormalized() ||
        program->getNumResults() > 0 || programs::isOfWarpgroups(program) ||
        loop->getNumResults() > 0 || !program->isBeforeInBlock(reader))
      return false;
    for (linalg::FillOp fill : partialFills)
      if (!fill->isBeforeInBlock(program))
        return false;
    // What is in front of the loop is then done for each tile.
    for (Operation &op : program.getBody()->without_terminator())
      if (&op != loop && op.getNumRegions() > 0)
        return false;
    // Nothing else writes: only `write` has the memory of the terms.
    touched = programs::findTouched(program);
    return touched && touched->written.size() == 1;
  }

  bool isReduced(unsigned dim) const { return !llvm::is_contained(kept, dim); }

  /// Each variable of the program and that of the loop is the index of a dimension; those of
  /// which the sum is taken are the index itself, so that they can become loops inside.
  bool matchIndices() {
    std::optional<programs::Access> access = programs::getAccess(write);
    if (!access || access->memory != partial || !access->map.isMinorIdentity() ||
        access->vector.getRank() != 2 || !access->coversTile() ||
        isReduced(access->indices.size() - 1) || isReduced(access->indices.size() - 2))
      return false;
    indices = access->indices;
    std::optional<int64_t> step = getConstantIntValue(loop.getStep());
    if (!step || *step != access->vector.getDimSize(1) ||
        indices.back() != OpFoldResult(loop.getInductionVar()))
      return false;
    for (Value variable : program.getInductionVars()) {
      std::optional<unsigned> at;
      for (auto [dim, index] : llvm::enumerate(indices))
        if (auto value = dyn_cast<Value>(index)) {
          auto apply = value.getDefiningOp<affine::AffineApplyOp>();
          AffineExpr d0 = getAffineDimExpr(0, b.getContext());
          bool isTile = apply && apply.getMapOperands().size() == 1 &&
                        apply.getMapOperands()[0] == variable &&
                        apply.getAffineMap().getResult(0) == d0 * access->getExtent(dim);
          if ((value == variable && access->getExtent(dim) == 1) || (isTile && !isReduced(dim)))
            at = dim;
        }
      if (!at)
        return false;
      (isReduced(*at) ? reduced : outer).push_back(variable);
    }
    return size_t(program.getRank()) + 1 == indices.size() &&
           reduced.size() + kept.size() == indices.size();
  }

  /// The loop starts at tile 0 and ends with the memory; or the tiles that it visits are
  /// the same for all that is summed, and the others are zero.
  bool findRange() {
    OpFoldResult end = partial.getMixedSizes().back();
    isWhole = isZeroInteger(loop.getLowerBound()) && getAsOpFoldResult(loop.getUpperBound()) == end;
    if (isWhole)
      return true;
    for (Value bound : {loop.getLowerBound(), loop.getUpperBound()})
      if (!isCommon(bound))
        return false;
    return !partialFills.empty() &&
           programs::isMultiple(loop.getLowerBound(), *getConstantIntValue(loop.getStep()));
  }

  /// Whether a value is computed without memory, and the same for all that is summed.
  bool isCommon(Value value) {
    if (llvm::is_contained(reduced, value))
      return false;
    Operation *op = value.getDefiningOp();
    if (!op || !program->isProperAncestor(op))
      return true;
    if (op->getNumRegions() > 0 || !isPure(op) ||
        !llvm::all_of(op->getOperands(), [&](Value v) { return isCommon(v); }))
      return false;
    common.insert(op);
    return true;
  }

  /// Where the sums finally are: behind elementwise statements of them alone, and copies.
  bool findResult() {
    Value result = total;
    Operation *writer = write;
    if (view)
      writer = view;
    if (sum)
      writer = sum;
    while (true) {
      SmallVector<linalg::FillOp> fills;
      Operation *user = getOnlyUser(result, writer, fills);
      if (!user || user->getBlock() != program->getBlock() || (result != total && !fills.empty()))
        break;
      if (auto generic = dyn_cast<GenericOp>(user);
          generic && isElementwise(generic) && generic.getDpsInputs()[0] == result) {
        result = generic.getDpsInits()[0];
      } else if (auto copy = dyn_cast<memref::CopyOp>(user); copy && copy.getSource() == result) {
        result = copy.getTarget();
      } else if (auto collapse = dyn_cast<memref::CollapseShapeOp>(user)) {
        // The tile's dimensions stay apart.
        auto groups = collapse.getReassociationIndices();
        if (groups.size() < 2 || groups.back().size() > 1 || groups[groups.size() - 2].size() > 1)
          break;
        result = collapse.getResult();
      } else {
        break;
      }
      steps.push_back(user);
      last = writer = user;
    }
    // A view is not what writes: it would be behind the program.
    while (!steps.empty() && isa<memref::CollapseShapeOp>(steps.back()))
      steps.pop_back();
    last = !steps.empty() ? steps.back() : sum ? sum.getOperation() : program.getOperation();
    return sum || !steps.empty();
  }

  static bool isElementwise(GenericOp op) {
    return op.hasPureBufferSemantics() && op.getNumDpsInputs() == 1 && op.getNumDpsInits() == 1 &&
           op.getNumReductionLoops() == 0 &&
           llvm::all_of(op.getIndexingMapsArray(),
                        [](AffineMap map) { return map.isIdentity(); }) &&
           !op.payloadUsesValueFromOperand(op.getDpsInitOperand(0)) &&
           llvm::all_of(op.getBlock()->without_terminator(), [](Operation &inner) {
             return OpTrait::hasElementwiseMappableTraits(&inner) && inner.getNumResults() == 1 &&
                    inner.getNumOperands() == 1;
           });
  }

  /// Whether the program may run where its results are finished.
  bool canMove() {
    llvm::SmallPtrSet<Operation *, 8> own;
    if (sum)
      own.insert(sum);
    own.insert(steps.begin(), steps.end());
    own.insert(dead.begin(), dead.end());
    for (Operation *op = program->getNextNode(); op != last; op = op->getNextNode()) {
      if (isa<memref::AllocOp>(op) || own.contains(op))
        continue;
      std::optional<Touched> other = programs::findTouched(op);
      if (!other || programs::intersect(touched->read, other->written))
        return false;
    }
    return true;
  }

  Value mapped(Value value) { return mapping.lookupOrDefault(value); }

  void rewrite() {
    b.setInsertionPoint(last);
    b.setLoc(write.getLoc());
    SmallVector<OpFoldResult> bounds;
    SmallVector<Value> innerBounds;
    for (auto [variable, bound] :
         llvm::zip_equal(program.getInductionVars(), program.getMixedUpperBound())) {
      if (llvm::is_contained(outer, variable))
        bounds.push_back(bound);
      else
        innerBounds.push_back(getValueOrCreateConstantIndexOp(b, b.getLoc(), bound));
    }
    // A tile that is not visited has no terms: a loop of none, if not of one.
    if (innerBounds.empty() && !isWhole)
      innerBounds.push_back(arith::ConstantIndexOp::create(b, 1));
    int64_t step = *getConstantIntValue(loop.getStep());
    AffineExpr d0 = b.getAffineDimExpr(0);
    bounds.push_back(affine::makeComposedFoldedAffineApply(b, b.getLoc(), d0.ceilDiv(step),
                                                           {partial.getMixedSizes().back()}));
    auto forall = scf::ForallOp::create(b, bounds, ValueRange(), /*mapping=*/std::nullopt);
    b.setInsertionPointToStart(forall.getBody());
    for (auto [own, variable] :
         llvm::zip_equal(outer, ValueRange(forall.getInductionVars()).drop_back()))
      mapping.map(own, variable);
    Value column = affine::makeComposedAffineApply(
        b, b.getLoc(), d0 * step, {OpFoldResult(forall.getInductionVars().back())});
    mapping.map(loop.getInductionVar(), column);
    if (!isWhole)
      limitToRange(innerBounds, column);
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(write.getVectorType()));
    Value value = emitLoops(reduced, innerBounds, zero);
    writeResult(value);
    limitFill();
    erase();
  }

  /// The results are copied to a part of memory that is filled before: which is for nothing
  /// where the part turns out to be all of it.
  void limitFill() {
    auto copy = dyn_cast<memref::CopyOp>(last);
    auto part = copy ? copy.getTarget().getDefiningOp<memref::SubViewOp>() : nullptr;
    if (!part || !llvm::all_of(part.getMixedOffsets(), isZeroInteger) || !part.hasUnitStride() ||
        part.getSourceType().getRank() != part.getType().getRank())
      return;
    linalg::FillOp fill;
    for (Operation *user : part.getSource().getUsers()) {
      if (user == part || isa<memref::DimOp, memref::DeallocOp>(user))
        continue;
      if (fill || !isa<linalg::FillOp>(user) || user->getBlock() != last->getBlock() ||
          !user->isBeforeInBlock(last))
        return;
      fill = cast<linalg::FillOp>(user);
    }
    if (!fill)
      return;
    // Behind the sizes of the part.
    fill->moveAfter(part);
    b.setInsertionPoint(fill);
    Value covers;
    SmallVector<OpFoldResult> sizes =
        memref::getMixedSizes(b, fill.getLoc(), cast<MemrefValue>(part.getSource()));
    for (auto [size, own] : llvm::zip_equal(sizes, part.getMixedSizes())) {
      Value same = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                         getValueOrCreateConstantIndexOp(b, b.getLoc(), size),
                                         getValueOrCreateConstantIndexOp(b, b.getLoc(), own));
      covers = covers ? arith::AndIOp::create(b, covers, same) : same;
    }
    Value none = arith::ConstantIndexOp::create(b, 0);
    Value rows = getValueOrCreateConstantIndexOp(b, b.getLoc(), sizes.front());
    sizes.front() = arith::SelectOp::create(b, covers, none, rows).getResult();
    fill.getDpsInitsMutable()[0].set(memref::SubViewOp::create(b, part.getSource(),
                                                               part.getMixedOffsets(), sizes,
                                                               part.getMixedStrides())
                                         .getResult());
  }

  /// No iteration where the tile is not visited.
  void limitToRange(SmallVectorImpl<Value> &innerBounds, Value column) {
    for (Operation *op : common)
      b.clone(*op, mapping);
    auto compare = [&](arith::CmpIPredicate predicate, Value bound) -> Value {
      return arith::CmpIOp::create(b, predicate, column, mapped(bound));
    };
    Value visited =
        arith::AndIOp::create(b, compare(arith::CmpIPredicate::sge, loop.getLowerBound()),
                              compare(arith::CmpIPredicate::slt, loop.getUpperBound()));
    Value none = arith::ConstantIndexOp::create(b, 0);
    innerBounds.front() = arith::SelectOp::create(b, visited, innerBounds.front(), none);
  }

  Value emitLoops(ArrayRef<Value> variables, ArrayRef<Value> bounds, Value state) {
    if (bounds.empty())
      return emitBody(state);
    Value zero = arith::ConstantIndexOp::create(b, 0), one = arith::ConstantIndexOp::create(b, 1);
    auto inner = scf::ForOp::create(b, zero, bounds.front(), one, state);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(inner.getBody());
      if (!variables.empty())
        mapping.map(variables.front(), inner.getInductionVar());
      Value next = emitLoops(variables.empty() ? variables : variables.drop_front(),
                             bounds.drop_front(), inner.getRegionIterArg(0));
      scf::YieldOp::create(b, next);
    }
    // Registers for what stays the same are for tiles as they lie in memory, not for what is
    // computed of them.
    moveLoopInvariantCode(
        {&inner.getRegion()},
        [&](Value value, Region *) { return inner.isDefinedOutsideOfLoop(value); },
        [&](Operation *op, Region *) {
          return isa<vector::TransferReadOp>(op) ||
                 (isPure(op) && llvm::none_of(op->getResultTypes(), llvm::IsaPred<VectorType>));
        },
        [&](Operation *op, Region *) { op->moveBefore(inner); });
    return inner.getResult(0);
  }

  Value emitBody(Value state) {
    for (Operation &op : program.getBody()->without_terminator())
      if (&op != loop && &op != view && !common.contains(&op))
        b.clone(op, mapping);
    for (Operation &op : loop.getBody()->without_terminator())
      if (&op != write)
        b.clone(op, mapping);
    Value value = mapped(write.getValueToStore());
    return !sum ? value : arith::AddFOp::create(b, state, value);
  }

  void writeResult(Value value) {
    SmallVector<Value> at;
    for (auto [dim, index] : llvm::enumerate(indices))
      if (!isReduced(dim)) {
        auto variable = dyn_cast<Value>(index);
        at.push_back(variable ? mapped(variable)
                              : getValueOrCreateConstantIndexOp(b, b.getLoc(), index));
      }
    Value memory = total;
    for (Operation *step : steps) {
      if (auto generic = dyn_cast<GenericOp>(step)) {
        value = apply(generic, value);
        memory = generic.getDpsInits()[0];
      } else if (auto copy = dyn_cast<memref::CopyOp>(step)) {
        memory = copy.getTarget();
      } else {
        auto collapse = cast<memref::CollapseShapeOp>(step);
        SmallVector<Value> joined;
        for (const ReassociationIndices &group : collapse.getReassociationIndices()) {
          Value index = at[group.front()];
          for (int64_t dim : llvm::drop_begin(group)) {
            Value size = getValueOrCreateConstantIndexOp(
                b, b.getLoc(), memref::getMixedSize(b, b.getLoc(), memory, dim));
            index = arith::AddIOp::create(b, arith::MulIOp::create(b, index, size), at[dim]);
          }
          joined.push_back(index);
        }
        at = joined;
        memory = collapse.getResult();
      }
    }
    vector::TransferWriteOp::create(b, value, memory, at, ArrayRef<bool>{false, false});
  }

  /// The statement on a tile.
  Value apply(GenericOp statement, Value value) {
    IRMapping inside;
    inside.map(statement.getBlock()->getArgument(0), value);
    auto tile = cast<VectorType>(value.getType());
    for (Operation &op : statement.getBlock()->without_terminator()) {
      OperationState state(op.getLoc(), op.getName());
      state.addOperands(inside.lookup(op.getOperand(0)));
      state.addTypes(tile.clone(op.getResult(0).getType()));
      state.addAttributes(op.getAttrs());
      inside.map(op.getResult(0), b.create(state)->getResult(0));
    }
    return inside.lookup(statement.getBlock()->getTerminator()->getOperand(0));
  }

  void erase() {
    for (Operation *step : llvm::reverse(steps))
      if (!isa<memref::CollapseShapeOp>(step) || step->use_empty())
        step->erase();
    if (sum)
      sum.erase();
    program.erase();
    for (linalg::FillOp fill : partialFills)
      fill.erase();
    for (Operation *fill : dead)
      fill->erase();
  }

  memref::AllocOp partial, total; // of the terms, and of their sums if there are any
  ImplicitLocOpBuilder b;
  Operation *reader = nullptr; // of the terms
  GenericOp sum;
  SmallVector<unsigned> kept; // dimensions of `partial` in the result
  SmallVector<linalg::FillOp> partialFills;
  memref::SubViewOp view;
  vector::TransferWriteOp write;
  scf::ForOp loop;
  scf::ForallOp program;
  std::optional<Touched> touched;
  SmallVector<OpFoldResult> indices; // of the store
  SmallVector<Value> outer, reduced; // variables of the program
  bool isWhole = false;
  llvm::SetVector<Operation *> common; // what the loop's bounds are computed by
  SmallVector<Operation *> steps;      // from the sum to the result
  Operation *last = nullptr;           // of all that
  SmallVector<Operation *> dead;       // fills of what is written as a whole
  IRMapping mapping;
};

struct CarrySumsPass : attn::impl::AttnCarrySumsBase<CarrySumsPass> {
  void runOnOperation() override {
    // One may take others with it.
    while (llvm::any_of(getOperation().getOps<memref::AllocOp>(),
                        [](memref::AllocOp memory) { return Carrier(memory).run(); }))
      ;
    IRRewriter rewriter(&getContext());
    memref::eraseDeadAllocAndStores(rewriter, getOperation());
  }
};

} // namespace
