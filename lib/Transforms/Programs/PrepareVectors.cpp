// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What parallel tiles would compute anew from the same rows of memory is computed
// once, into memory with whole, aligned tiles.

#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Transforms/Programs/Vectors.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPREPAREVECTORS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numPrepared("attn-prepare-vectors", "prepared",
                              "Vectors that are computed once for all tiles");

namespace {

/// A bound of an index that is known outside of `region`: the index itself, what it is a minimum
/// of, or what it is where it is not 0.
Value findBoundOutside(Value index, Region &region) {
  if (!region.isAncestor(index.getParentRegion()))
    return index;
  Operation *op = index.getDefiningOp();
  if (isa_and_nonnull<arith::SelectOp, arith::MaxSIOp>(op)) {
    Value first = op->getOperands().drop_back().back(), second = op->getOperands().back();
    if (isConstantIntValue(first, 0))
      return findBoundOutside(second, region);
    return isConstantIntValue(second, 0) ? findBoundOutside(first, region) : Value();
  }
  if (isa_and_nonnull<arith::MinSIOp>(op))
    for (Value operand : op->getOperands())
      if (Value bound = findBoundOutside(operand, region))
        return bound;
  if (auto min = dyn_cast_or_null<affine::AffineMinOp>(op))
    for (AffineExpr expr : min.getMap().getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      auto symbol = dyn_cast<AffineSymbolExpr>(expr);
      Value operand = dim      ? min.getDimOperands()[dim.getPosition()]
                      : symbol ? min.getSymbolOperands()[symbol.getPosition()]
                               : Value();
      if (operand && !region.isAncestor(operand.getParentRegion()))
        return operand;
    }
  return {};
}

/// What sets elements from `end` on to zero.
struct Tail {
  Value zeroed, source;
  Value end;
  /// The branch where few rows have another vector, whose tail is cut off there; or null.
  scf::IfOp byRows = {};
};

/// The single user of `value` if it is an `Op`, which uses it once.
template <typename Op> Op getOnlyUser(Value value) {
  return value.hasOneUse() ? dyn_cast<Op>(*value.user_begin()) : Op();
}

/// Whether `mask` is true for the columns below a number, where column 0 is at `first`;
/// gives the number.
Value findEnd(Value mask, Value first) {
  auto repeated = mask.getDefiningOp<vector::BroadcastOp>();
  auto compare = repeated ? repeated.getSource().getDefiningOp<arith::CmpIOp>() : arith::CmpIOp();
  auto end = compare ? compare.getRhs().getDefiningOp<vector::BroadcastOp>() : nullptr;
  auto column = compare ? compare.getLhs().getDefiningOp<arith::AddIOp>() : arith::AddIOp();
  if (!end || !column || compare.getPredicate() != arith::CmpIPredicate::slt ||
      !isa<IndexType>(end.getSourceType()) || cast<VectorType>(compare.getType()).getRank() != 1)
    return {};
  auto isFirst = [&](Value value) {
    auto start = value.getDefiningOp<vector::BroadcastOp>();
    return start && start.getSource() == first;
  };
  auto isStep = [](Value value) { return value.getDefiningOp<vector::StepOp>(); };
  bool isColumn = (isStep(column.getLhs()) && isFirst(column.getRhs())) ||
                  (isFirst(column.getLhs()) && isStep(column.getRhs()));
  return isColumn ? end.getSource() : Value();
}

/// The branch of attn-branch-by-rows that passes on `vector`, or what rows have in its place;
/// null where it is used elsewhere, too.
scf::IfOp findBranchByRows(Value vector) {
  scf::IfOp found;
  for (Operation *user : vector.getUsers()) {
    auto branch = dyn_cast<scf::IfOp>(user->getParentOp());
    auto some = branch ? branch.getCondition().getDefiningOp<vector::ReductionOp>() : nullptr;
    if (!some || !some->hasAttr(kMayHoldAttr) || (found && found != branch))
      return {};
    found = branch;
  }
  return found && found.elseYield().getOperand(1) == vector ? found : scf::IfOp();
}

/// The select that zeroes the tail of the exponential of a sum with `vector`, or the
/// branch that leaves this select out where there is no tail.
std::optional<Tail> findTail(Value vector, Value first) {
  scf::IfOp byRows = findBranchByRows(vector);
  Value added = byRows ? byRows.getResult(1) : vector;
  auto repeated = getOnlyUser<vector::BroadcastOp>(added);
  auto sum = repeated ? getOnlyUser<math::FmaOp>(repeated) : math::FmaOp();
  auto exponential = sum && sum.getC() == repeated ? getOnlyUser<math::Exp2Op>(sum) : nullptr;
  if (!exponential)
    return std::nullopt;
  auto asTail = [&](arith::SelectOp select) -> std::optional<Tail> {
    Value end = findEnd(select.getCondition(), first);
    if (!end || select.getTrueValue() != exponential ||
        !matchPattern(select.getFalseValue(), m_AnyZeroFloat()))
      return std::nullopt;
    return Tail{select, exponential, end, byRows};
  };
  if (auto select = getOnlyUser<arith::SelectOp>(exponential))
    return asTail(select);
  // A side of the branch yields it, the other one its select.
  auto users = llvm::to_vector(exponential->getUsers());
  if (users.size() != 2)
    return std::nullopt;
  if (isa<arith::SelectOp>(users[0]))
    std::swap(users[0], users[1]);
  auto kept = dyn_cast<scf::YieldOp>(users[0]);
  auto select = dyn_cast<arith::SelectOp>(users[1]);
  auto branch = kept ? dyn_cast<scf::IfOp>(kept->getParentOp()) : scf::IfOp();
  std::optional<Tail> tail = select ? asTail(select) : std::nullopt;
  if (!tail || !branch || branch.getNumResults() != 1 || kept != branch.thenYield() ||
      getOnlyUser<scf::YieldOp>(select) != branch.elseYield())
    return std::nullopt;
  tail->zeroed = branch.getResult(0);
  return tail;
}

/// A vector per streamed tile, and how it follows from memory.
struct Chain {
  Value result;
  llvm::SetVector<Operation *> ops; // in order; reads and arithmetic
  SmallVector<vector::TransferReadOp> reads;
};

class Preparer {
public:
  Preparer(scf::ForallOp forall, scf::ForOp loop, int64_t rows, int64_t sizeMultiple)
      : forall(forall), loop(loop), rows(rows), sizeMultiple(sizeMultiple), b(forall) {}

  void run() {
    SmallVector<Chain> chains;
    // The loop may go beyond the end of what it reads, which is padding there.
    if (!loop->hasAttr(kTabulatedAttr)) {
      end = findBoundOutside(loop.getUpperBound(), forall.getRegion());
      if (!end)
        return;
    }
    for (Operation &op : loop.getBody()->without_terminator()) {
      auto type =
          op.getNumResults() == 1 ? dyn_cast<VectorType>(op.getResult(0).getType()) : VectorType();
      if (!type || type.getRank() != 1 || !type.getElementType().isF32())
        continue;
      // What only other vectors of this kind read is part of theirs.
      bool isRead = llvm::any_of(op.getUsers(), [](Operation *user) {
        return user->getNumResults() != 1 || user->getNumRegions() > 0 ||
               !isa<VectorType>(user->getResult(0).getType()) ||
               cast<VectorType>(user->getResult(0).getType()).getRank() != 1;
      });
      Chain chain{op.getResult(0), {}, {}};
      if (isRead && collect(chain, chain.result) && isUniform(chain))
        chains.push_back(std::move(chain));
    }
    for (Chain &chain : chains)
      prepare(chain);
  }

private:
  /// Arithmetic on reads and constants.
  bool collect(Chain &chain, Value value) {
    if (!isa<VectorType>(value.getType()))
      return forall.getRegion().isAncestor(value.getParentRegion()) ? false : true;
    Operation *op = value.getDefiningOp();
    if (!op || chain.ops.contains(op))
      return op;
    if (auto read = dyn_cast<vector::TransferReadOp>(op)) {
      chain.reads.push_back(read);
      chain.ops.insert(op);
      return true;
    }
    if (matchPattern(op, m_Constant())) {
      SplatElementsAttr splat;
      chain.ops.insert(op);
      return matchPattern(op, m_Constant(&splat));
    }
    bool isArithmetic = OpTrait::hasElementwiseMappableTraits(op) || isa<vector::BroadcastOp>(op);
    if (!isArithmetic || cast<VectorType>(value.getType()).getRank() != 1)
      return false;
    for (Value operand : op->getOperands())
      if (!collect(chain, operand))
        return false;
    chain.ops.insert(op);
    return true;
  }

  /// Whether all reads are at one place, which the rows of a tile do not change, of
  /// memory that nothing here writes.
  bool isUniform(Chain &chain) {
    if (chain.reads.empty())
      return false;
    vector::TransferReadOp first = chain.reads.front();
    auto firstType = dyn_cast<MemRefType>(first.getBase().getType());
    Value start = first.getIndices().empty() ? Value() : first.getIndices().back();
    int64_t size = first.getVectorType().getDimSize(0);
    if (size % sizeMultiple || rows % size || !firstType || firstType.getRank() < 2 ||
        !isStart(start) || !programs::isMultiple(start, size))
      return false;
    for (auto [dim, index] : llvm::enumerate(first.getIndices().drop_back()))
      if (!findExtent(first.getBase(), dim, index))
        return false;
    return llvm::all_of(chain.reads, [&](vector::TransferReadOp read) {
      auto memref = dyn_cast<MemrefValue>(read.getBase());
      return memref && !forall.getRegion().isAncestor(memref.getParentRegion()) &&
             memref.getType().getRank() == firstType.getRank() && !read.getMask() &&
             read.getPermutationMap().isMinorIdentity() &&
             llvm::equal(read.getIndices(), first.getIndices()) &&
             !programs::isWrittenIn(forall, memref);
    });
  }

  /// Whether a tile starts here: at the variable of the loop, or at what a table names.
  bool isStart(Value index) {
    return loop->hasAttr(kTabulatedAttr) ? loop.getBodyRegion().isAncestor(index.getParentRegion())
                                         : index == loop.getInductionVar();
  }

  /// How many values an index has, from 0 on: the loops that read a vector say so, for
  /// what they have in common is then seen to have one size.
  std::optional<OpFoldResult> findExtent(Value memory, unsigned dim, Value index) {
    if (getConstantIntValue(index))
      return memref::getMixedSize(b, index.getLoc(), memory, dim);
    auto argument = dyn_cast<BlockArgument>(index);
    Operation *owner = argument ? argument.getOwner()->getParentOp() : nullptr;
    if (auto program = dyn_cast_or_null<scf::ForallOp>(owner);
        program == forall && program.isNormalized())
      return program.getMixedUpperBound()[argument.getArgNumber()];
    auto inner = dyn_cast_or_null<scf::ForOp>(owner);
    if (!inner || index != inner.getInductionVar() ||
        !isConstantIntValue(inner.getLowerBound(), 0) || !isConstantIntValue(inner.getStep(), 1) ||
        !forall.isDefinedOutsideOfLoop(inner.getUpperBound()))
      return std::nullopt;
    return getAsOpFoldResult(inner.getUpperBound());
  }

  static bool areSame(OpFoldResult x, OpFoldResult y) {
    if (isEqualConstantIntOrValue(x, y))
      return true;
    auto apply = [](OpFoldResult value) {
      auto known = dyn_cast<Value>(value);
      return known ? known.getDefiningOp<affine::AffineApplyOp>() : affine::AffineApplyOp();
    };
    auto a = apply(x), c = apply(y);
    return a && c && a.getMap() == c.getMap() && llvm::equal(a.getOperands(), c.getOperands());
  }

  /// Reads of whole tiles, one for each iteration, by programs in front of this one, of what it
  /// only copies: they can read the copy, and then nothing may need the memory itself. `size` are
  /// the elements of a row, `tiles` its tiles, `counts` the sizes of the other dimensions.
  SmallVector<vector::TransferReadOp> findEarlierReads(Chain &chain, ArrayRef<OpFoldResult> counts,
                                                       OpFoldResult size, OpFoldResult tiles) {
    SmallVector<vector::TransferReadOp> found;
    vector::TransferReadOp first = chain.reads.front();
    auto memory = cast<MemrefValue>(first.getBase());
    auto isDefined = [&](OpFoldResult value, Operation *program) {
      Operation *op = isa<Value>(value) ? cast<Value>(value).getDefiningOp() : nullptr;
      return !op || (op->getBlock() == program->getBlock() && op->isBeforeInBlock(program));
    };
    if (chain.ops.size() > 1 || !matchPattern(first.getPadding(), m_AnyZeroFloat()))
      return found;
    for (Operation *user : memory.getUsers()) {
      auto read = dyn_cast<vector::TransferReadOp>(user);
      auto program = read ? read->getParentOfType<scf::ForallOp>() : scf::ForallOp();
      if (!program || program->getBlock() != forall->getBlock() ||
          !program->isBeforeInBlock(forall) || !program.isNormalized() || read.getMask() ||
          read.getVectorType() != VectorType::get(rows, b.getF32Type()) ||
          !read.getPermutationMap().isMinorIdentity() ||
          !matchPattern(read.getPadding(), m_AnyZeroFloat()))
        continue;
      auto start = read.getIndices().back().getDefiningOp<affine::AffineApplyOp>();
      AffineExpr ofTile = b.getAffineDimExpr(0) * rows;
      auto tile = start && start.getMap() == AffineMap::get(1, 0, ofTile)
                      ? dyn_cast<BlockArgument>(start.getOperand(0))
                      : BlockArgument();
      bool fits = tile && tile.getOwner() == program.getBody() &&
                  areSame(program.getMixedUpperBound()[tile.getArgNumber()], tiles) &&
                  isDefined(size, program);
      for (auto [dim, count] : llvm::enumerate(counts))
        fits &= isDefined(count, program) &&
                areSame(memref::getMixedSize(b, first.getLoc(), memory, dim), count);
      for (Operation *op = program; fits && op != forall; op = op->getNextNode())
        fits = !programs::isWrittenIn(op, memory);
      if (fits)
        found.push_back(read);
    }
    return found;
  }

  void prepare(Chain &chain) {
    Location loc = chain.result.getLoc();
    numPrepared.at(loc);
    vector::TransferReadOp first = chain.reads.front();
    auto type = cast<VectorType>(chain.result.getType());
    Value start = first.getIndices().back();
    std::optional<Tail> tail = findTail(chain.result, start);
    if (tail && forall.getRegion().isAncestor(tail->end.getParentRegion()))
      tail.reset();
    if (tail) {
      tail->zeroed.replaceAllUsesWith(tail->source);
      if (tail->byRows) {
        scf::YieldOp yield = tail->byRows.thenYield();
        b.setInsertionPoint(yield);
        yield.setOperand(1, endAt(tail->end, yield.getOperand(1), start));
      }
    }
    b.setInsertionPoint(forall);
    // Tiles that a table names start within the memory.
    OpFoldResult count =
        end    ? OpFoldResult(end)
        : tail ? OpFoldResult(tail->end)
               : memref::getMixedSize(b, loc, first.getBase(), first.getIndices().size() - 1);
    SmallVector<OpFoldResult> counts;
    for (auto [dim, index] : llvm::enumerate(first.getIndices().drop_back()))
      counts.push_back(*findExtent(first.getBase(), dim, index));
    auto countTiles = [&] {
      return affine::makeComposedFoldedAffineApply(b, loc, b.getAffineDimExpr(0).ceilDiv(rows),
                                                   {count});
    };
    SmallVector<vector::TransferReadOp> earlier =
        findEarlierReads(chain, counts, count, countTiles());
    for (vector::TransferReadOp read : earlier)
      if (auto program = read->getParentOfType<scf::ForallOp>();
          program->isBeforeInBlock(&*b.getInsertionPoint()))
        b.setInsertionPoint(program);
    counts.push_back(countTiles());
    SmallVector<int64_t> shape;
    SmallVector<Value> dynamic;
    for (OpFoldResult count : counts) {
      std::optional<int64_t> known = getConstantIntValue(count);
      shape.push_back(known.value_or(ShapedType::kDynamic));
      if (!known)
        dynamic.push_back(cast<Value>(count));
    }
    shape.push_back(rows);
    Value memory =
        memref::AllocOp::create(b, loc, MemRefType::get(shape, type.getElementType()), dynamic);
    auto all = scf::ForallOp::create(b, loc, counts, ValueRange(), /*mapping=*/std::nullopt);
    AffineMap last = AffineMap::getMinorIdentityMap(shape.size(), 1, b.getContext());
    bool inBounds[] = {true};
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(all.getBody());
      SmallVector<Value> tile(all.getInductionVars());
      IRMapping mapping;
      for (auto [index, iv] :
           llvm::zip_equal(first.getIndices().drop_back(), ArrayRef(tile).drop_back()))
        mapping.map(index, iv);
      mapping.map(start, affine::makeComposedAffineApply(b, loc, b.getAffineDimExpr(0) * rows,
                                                         {OpFoldResult(tile.back())}));
      for (Operation *op : chain.ops)
        programs::cloneWidened(b, op, mapping, rows);
      Value result = mapping.lookup(chain.result);
      if (tail)
        result = endAt(tail->end, result, mapping.lookup(start));
      tile.push_back(arith::ConstantIndexOp::create(b, loc, 0));
      vector::TransferWriteOp::create(b, loc, result, memory, tile, last, ArrayRef<bool>(inBounds));
    }
    replaceRead(first, chain.result, memory);
    for (vector::TransferReadOp read : earlier)
      replaceRead(read, read.getResult(), memory);
  }

  /// `result` is read where prepared rows have what is at the place of `read`.
  void replaceRead(vector::TransferReadOp read, Value result, Value memory) {
    Location loc = result.getLoc();
    auto type = cast<VectorType>(result.getType());
    b.setInsertionPoint(read);
    SmallVector<Value> tile(read.getIndices().drop_back());
    AffineExpr i = b.getAffineDimExpr(0);
    OpFoldResult at = read.getIndices().back();
    tile.push_back(affine::makeComposedAffineApply(b, loc, i.floorDiv(rows), {at}));
    // Of a whole row it is 0, which only multiples of it show.
    tile.push_back(type.getDimSize(0) == rows
                       ? Value(arith::ConstantIndexOp::create(b, loc, 0))
                       : Value(affine::makeComposedAffineApply(b, loc, i % rows, {at})));
    Value padding = arith::ConstantOp::create(b, loc, b.getZeroAttr(type.getElementType()));
    AffineMap last = AffineMap::getMinorIdentityMap(tile.size(), 1, b.getContext());
    bool inBounds[] = {true};
    Value prepared = vector::TransferReadOp::create(b, loc, type, memory, tile, padding, last,
                                                    ArrayRef<bool>(inBounds));
    result.replaceAllUsesWith(prepared);
  }

  /// -inf from element `end` on, where element 0 is at `first`: 2^-inf is 0.
  Value endAt(Value end, Value vector, Value first) {
    Location loc = vector.getLoc();
    auto type = cast<VectorType>(vector.getType());
    Value isInside = programs::createIsInside(b, loc, type.getDimSize(0), first, end);
    auto element = cast<FloatType>(type.getElementType());
    APFloat infinity = APFloat::getInf(element.getFloatSemantics(), /*Negative=*/true);
    Value none = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, infinity));
    return arith::SelectOp::create(b, loc, isInside, vector, none);
  }

  scf::ForallOp forall;
  scf::ForOp loop;
  /// Elements of a row of memory, and what the sizes of vectors are multiples of.
  int64_t rows, sizeMultiple;
  Value end;
  OpBuilder b;
};

struct PrepareVectorsPass : attn::impl::AttnPrepareVectorsBase<PrepareVectorsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (rows < 1 || sizeMultiple < 1) {
      getOperation().emitError("expected rows and size-multiple to be at least 1");
      return signalPassFailure();
    }
    for (auto forall : llvm::to_vector(getOperation().getOps<scf::ForallOp>()))
      forall.walk([&](scf::ForOp loop) {
        if (loop->hasAttr(kFoldLoopAttr))
          Preparer(forall, loop, rows, sizeMultiple).run();
      });
  }
};

} // namespace
