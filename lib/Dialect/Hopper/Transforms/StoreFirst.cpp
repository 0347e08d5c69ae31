// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums in memory that several CTAs add to are not filled with zeros before: who comes first to a
// tile stores it.

#include "Arithmetic.h"
#include "Memory.h"
#include "Programs.h"
#include "RowWords.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Memory.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include <optional>

namespace attn {
#define GEN_PASS_DEF_HOPPERSTOREFIRST
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using hopper::Arithmetic;
using hopper::RowWords;

namespace {

class Sum {
public:
  explicit Sum(hopper::AddOp addition) : addition(addition), b(addition) {}

  /// Lets the first addition store; nothing where that cannot be.
  void run(int64_t leastBytes, bool looksAhead) {
    if (addition.getTile().getType().getTileBytes() < leastBytes || !hasOwnTiles() || !findUses())
      return;
    createWords();
    for (vector::TransferWriteOp zeros : fills)
      fillWords(zeros);
    claim(looksAhead);
    for (vector::TransferReadOp read : reads)
      guard(read);
  }

private:
  /// Whether one thread adds, and each time what has no element in common with other tiles.
  bool hasOwnTiles() {
    Region *role = hopper::getRole(addition);
    if (!role || !hopper::isSingleThreaded(*role))
      return false;
    ValueRange indices = addition.getIndices();
    hopper::SmemType tile = addition.getTile().getType();
    rows = tile.getRows();
    return !addition.getFirst() && isa<scf::ForOp>(addition->getParentOp()) &&
           isConstantIntValue(indices.back(), 0) && rows % RowWords::kStep == 0 &&
           tile.getColumns() == getType().getShape().back() &&
           hopper::isMultiple(indices[indices.size() - 2], rows);
  }

  MemRefType getType() { return cast<MemRefType>(addition.getDest().getType()); }

  /// The launch that an op is in, of those beside the allocation.
  Operation *findLaunch(Operation *op) {
    Operation *ancestor = memory->getBlock()->findAncestorOpInBlock(*op);
    return isa_and_nonnull<gpu::LaunchOp>(ancestor) ? ancestor : nullptr;
  }

  static bool isConditional(Operation *op, Operation *launch) {
    auto branch = op->getParentOfType<scf::IfOp>();
    return branch && launch->isAncestor(branch);
  }

  /// Zeros before, reads behind, and nothing else.
  bool findUses() {
    memory = addition.getDest().getDefiningOp<memref::AllocOp>();
    Operation *launch = memory ? findLaunch(addition) : nullptr;
    if (!launch)
      return false;
    for (Operation *user : addition.getDest().getUsers()) {
      Operation *other = findLaunch(user);
      if (auto write = dyn_cast<vector::TransferWriteOp>(user)) {
        if (!other || !other->isBeforeInBlock(launch) || !isOfWord(write) ||
            isConditional(write, other) ||
            !matchPattern(write.getVector(), m_AnyZeroFloat()))
          return false;
        fills.push_back(write);
      } else if (auto read = dyn_cast<vector::TransferReadOp>(user)) {
        if (!other || !launch->isBeforeInBlock(other) || !isOfWord(read))
          return false;
        reads.push_back(read);
      } else if (user != addition && !isa<memref::DimOp, memref::DeallocOp>(user) &&
                 !(isMemoryEffectFree(user) && user->use_empty())) {
        return false;
      }
    }
    return !fills.empty();
  }

  /// Whether a transfer is to the rows of one word.
  bool isOfWord(VectorTransferOpInterface transfer) {
    VectorType type = transfer.getVectorType();
    Value row = transfer.getIndices()[getType().getRank() - 2];
    return type.getRank() == 2 && !transfer.getMask() &&
           transfer.getPermutationMap().isMinorIdentity() &&
           type.getDimSize(0) == RowWords::kStep && hopper::isMultiple(row, RowWords::kStep);
  }

  /// The write of 16-bit rows where those of the sum are read; null if there is none.
  vector::TransferWriteOp findOutput() {
    if (reads.size() != 1)
      return {};
    vector::TransferReadOp read = reads.front();
    for (auto write : read->getBlock()->getOps<vector::TransferWriteOp>())
      if (isa<MemRefType>(write.getShapedType()) &&
          isWord(write.getShapedType().getElementType()) && read->isBeforeInBlock(write) &&
          write.getIndices() == read.getIndices() && isOfWord(write))
        return write;
    return {};
  }

  static bool isWord(Type type) {
    return type.isIntOrFloat() && type.getIntOrFloatBitWidth() == 16;
  }

  bool isAsLarge(TypedValue<MemRefType> output) {
    MemRefType type = output.getType();
    if (type.getShape().back() < 2) // or unknown
      return false;
    if (type.hasStaticShape())
      return type.getShape() == getType().getShape();
    auto view = output.getDefiningOp<memref::ReinterpretCastOp>();
    SmallVector<OpFoldResult> sizes =
        getMixedValues(getType().getShape(), memory.getDynamicSizes(), b.getContext());
    return view && type.getRank() == getType().getRank() &&
           llvm::equal(ArrayRef(view.getConstifiedMixedSizes()).drop_back(),
                       ArrayRef(sizes).drop_back(), isEqualConstantIntOrValue);
  }

  /// The first launch that fills.
  Operation *findStart() {
    Operation *first = findLaunch(fills.front());
    for (Operation *zeros : fills)
      if (findLaunch(zeros)->isBeforeInBlock(first))
        first = findLaunch(zeros);
    return first;
  }

  bool isFirstTouchedBy(Operation *write, Value output) {
    auto argument =
        dyn_cast<BlockArgument>(memref::skipViewLikeOps(cast<MemrefValue>(output)));
    Operation *launch = findLaunch(write), *view = output.getDefiningOp();
    if (!argument || argument.getOwner() != memory->getBlock() ||
        (view && (view->getBlock() != memory->getBlock() || !view->isBeforeInBlock(findStart()))))
      return false;
    return llvm::all_of(collectAccesses(argument), [&](Operation *access) {
      Operation *place = memory->getBlock()->findAncestorOpInBlock(*access);
      return access == write || (place && launch->isBeforeInBlock(place));
    });
  }

  /// In the rows of the output that is computed from the sum, where it is as large and not
  /// touched before; else in memory of their own.
  void createWords() {
    vector::TransferWriteOp write = findOutput();
    b.setInsertionPoint(findStart());
    Arithmetic a{b, memory.getLoc(), /*isNarrow=*/false};
    count = memref::DimOp::create(b, a.loc, addition.getDest(), getType().getRank() - 2);
    auto written = write ? cast<TypedValue<MemRefType>>(write.getBase()) : nullptr;
    if (!written || !isAsLarge(written) || !isFirstTouchedBy(write, written)) {
      Type type = written ? written.getType().getElementType() : b.getI16Type();
      words = RowWords::create(a, addition.getDest(), type);
      return;
    }
    output = written;
    words = RowWords::createIn(a, output);
    synchronize(write); // which overwrites the words that others still look at
  }

  /// Lets the threads that read a piece of the sum wait for each other in front of `write`.
  void synchronize(Operation *write) {
    b.setInsertionPoint(write);
    Arithmetic a{b, write->getLoc(), /*isNarrow=*/false};
    Value warpgroup = hopper::getRole(write)->getArgument(0);
    hopper::BarrierSyncOp::create(b, a.loc, a.add(warpgroup, a.number(1)), /*warpgroups=*/1);
  }

  /// The indices of the word of a row.
  SmallVector<Value> getWord(const Arithmetic &a, ValueRange indices, Value row) {
    return words->createIndices(a, indices.drop_back(2), row);
  }

  Value createElement(const Arithmetic &a, uint64_t bits) {
    Type type = cast<MemRefType>(words->getMemory().getType()).getElementType();
    APInt value(16, bits);
    TypedAttr attribute = b.getIntegerAttr(b.getI16Type(), value);
    if (auto number = dyn_cast<FloatType>(type))
      attribute = b.getFloatAttr(type, APFloat(number.getFloatSemantics(), value));
    return arith::ConstantOp::create(b, a.loc, attribute);
  }

  void writeWord(const Arithmetic &a, uint64_t bits, ValueRange word) {
    memref::StoreOp::create(b, a.loc, createElement(a, bits), words->getMemory(), word);
  }

  void fillWords(vector::TransferWriteOp zeros) {
    b.setInsertionPoint(zeros);
    Arithmetic a{b, zeros.getLoc(), /*isNarrow=*/false};
    SmallVector<Value> indices(zeros.getIndices());
    Value row = indices[indices.size() - 2];
    auto branch = scf::IfOp::create(b, a.loc, a.isLess(row, count));
    b.setInsertionPointToStart(branch.thenBlock());
    writeWord(a, 0, getWord(a, indices, row));
    if (output) { // what a claim swaps with the word is known, too
      indices.back() = a.number(1);
      memref::StoreOp::create(b, a.loc, createElement(a, 0), output, indices);
    }
    zeros.erase();
  }

  void claim(bool looksAhead) {
    Location loc = addition.getLoc();
    // While the tile is computed.
    Operation *before = addition.getTile().getDefiningOp();
    if (!before || before->getBlock() != addition->getBlock())
      before = addition;
    b.setInsertionPoint(before);
    Arithmetic a{b, loc, /*isNarrow=*/true};
    ValueRange indices = addition.getIndices();
    Value row = a.narrow(indices[indices.size() - 2]), memory = words->getMemory();
    SmallVector<Value> word = getWord(a, indices, row);
    Value seen = looksAhead ? lookAhead(word) : Value();
    b.setInsertionPoint(before); // in another block, if the loop carries what was seen
    if (!seen)
      seen = hopper::TurnPeekOp::create(b, loc, memory, word);
    hopper::TurnWaitOp::create(b, loc, memory, word, a.number(-1)); // a fence
    b.setInsertionPoint(addition);
    Value first = hopper::TurnClaimOp::create(b, loc, memory, word, seen);
    addition.getFirstMutable().assign(first);
    b.setInsertionPoint(addition->getBlock()->getTerminator());
    passOthers(a, row, first);
    auto branch = scf::IfOp::create(b, loc, first);
    b.setInsertionPointToStart(branch.thenBlock());
    hopper::TmaWaitOp::create(b, loc, 0, /*read=*/false);
    hopper::TurnPassOp::create(b, loc, memory, word, a.number(1));
  }

  /// Who stores a tile also writes its other words: who reads their rows looks at nothing else.
  void passOthers(const Arithmetic &a, Value row, Value isFirst) {
    for (int64_t first = RowWords::kStep; first < rows; first += RowWords::kStep) {
      Value start = a.add(row, a.number(first)), isInside = a.isLess(start, a.narrow(count));
      auto branch = scf::IfOp::create(b, a.loc, a.both(isFirst, isInside));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      writeWord(a, 1, getWord(a, addition.getIndices(), start));
    }
  }

  /// What the iteration before has seen of the word: nothing (0) for the first one. Null where
  /// the next iteration's word does not follow from the loop's variable by arithmetic and tables.
  Value lookAhead(ValueRange word) {
    auto loop = cast<scf::ForOp>(addition->getParentOp());
    auto roles = loop->getParentOfType<hopper::RolesOp>();
    SetVector<Operation *> slice;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.filter = [&](Operation *op) { return op->getBlock() == loop.getBody(); };
    auto isCarried = [&](Value value) {
      return llvm::is_contained(loop.getRegionIterArgs(), value);
    };
    if (llvm::any_of(word, [&](Value index) {
          return failed(getBackwardSlice(index, &slice, options));
        }) ||
        !llvm::all_of(slice, [&](Operation *op) {
          if (llvm::any_of(op->getOperands(), isCarried))
            return false;
          if (auto load = dyn_cast<memref::LoadOp>(op))
            return roles && !hopper::isWrittenIn(roles, cast<MemrefValue>(load.getMemRef()));
          return isMemoryEffectFree(op) && op->getNumRegions() == 0;
        }))
      return {};
    b.setInsertionPointAfter(addition);
    Location loc = addition.getLoc();
    Arithmetic a{b, loc, /*isNarrow=*/false};
    Value at = loop.getInductionVar(), next = a.add(at, loop.getStep());
    IRMapping mapping;
    mapping.map(at, a.select(a.isLess(next, loop.getUpperBound()), next, at));
    for (Operation *op : slice)
      b.clone(*op, mapping);
    SmallVector<Value> nextWord = llvm::map_to_vector(
        word, [&](Value index) { return mapping.lookupOrDefault(index); });
    Value seen = hopper::TurnPeekOp::create(b, loc, words->getMemory(), nextWord);
    b.setInsertionPoint(loop);
    Value nothing = arith::ConstantIntOp::create(b, loc, 0, 32);
    IRRewriter rewriter(b);
    auto yieldSeen = [&](OpBuilder &, Location, ArrayRef<BlockArgument>) {
      return SmallVector<Value>{seen};
    };
    // Nothing else makes this fail than a loop that is none.
    auto carried = cast<scf::ForOp>(
        cast<LoopLikeOpInterface>(*loop)
            .replaceWithAdditionalYields(rewriter, nothing, /*replaceInitOperandUsesInLoop=*/false,
                                         yieldSeen)
            ->getOperation());
    return carried.getRegionIterArgs().back();
  }

  void guard(vector::TransferReadOp read) {
    b.setInsertionPoint(read);
    Arithmetic a{b, read.getLoc(), /*isNarrow=*/false};
    ValueRange indices = read.getIndices();
    Value row = a.min(indices[indices.size() - 2], a.subtract(count, a.number(1)));
    Value word = memref::LoadOp::create(b, a.loc, words->getMemory(), getWord(a, indices, row));
    b.setInsertionPointAfter(read);
    Value number = b.createOrFold<arith::BitcastOp>(a.loc, b.getI16Type(), word);
    Value zero = arith::ConstantIntOp::create(b, a.loc, 0, 16);
    Value isThere =
        arith::CmpIOp::create(b, a.loc, arith::CmpIPredicate::ne, number, zero);
    Value zeros = arith::ConstantOp::create(b, a.loc, b.getZeroAttr(read.getVectorType()));
    Value all = vector::BroadcastOp::create(
        b, a.loc, VectorType::get(read.getVectorType().getShape(), b.getI1Type()), isThere);
    auto select = arith::SelectOp::create(b, a.loc, all, read.getVector(), zeros);
    read.getVector().replaceAllUsesExcept(select, select);
  }

  hopper::AddOp addition;
  OpBuilder b;
  memref::AllocOp memory;
  int64_t rows = 0; // of a tile
  SmallVector<vector::TransferWriteOp> fills;
  SmallVector<vector::TransferReadOp> reads;
  std::optional<RowWords> words;
  Value count;  // of rows
  Value output; // that words lie in, or null
};

struct StoreFirstPass : attn::impl::HopperStoreFirstBase<StoreFirstPass> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<hopper::AddOp> additions;
    getOperation().walk([&](hopper::AddOp addition) { additions.push_back(addition); });
    for (hopper::AddOp addition : additions)
      Sum(addition).run(leastBytes, looksAhead);
  }
};

} // namespace
