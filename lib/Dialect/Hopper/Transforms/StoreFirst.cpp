// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums in memory that several CTAs add to are not filled with zeros before: who comes first to a
// tile stores it.

#include "RowFlags.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Arithmetic.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
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
#include "llvm/ADT/bit.h"
#include <optional>

namespace attn {
#define GEN_PASS_DEF_HOPPERSTOREFIRST
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using hopper::RowFlags;
using programs::Arithmetic;

static attn::Done numSums("hopper-store-first", "stored", "Sums in memory that nothing fills");
static attn::Left numLeft("hopper-store-first", "filled",
                          "Sums in memory that are filled with zeros");

namespace {

/// What stands in the first element of rows that nobody has stored: a NaN with a payload that no
/// operation makes and that is none of a 16-bit float.
constexpr uint32_t kNobody = 0x7FE5A5A5;

class Sum {
public:
  /// Of the additions to one memory.
  explicit Sum(MutableArrayRef<hopper::AddOp> additions)
      : additions(additions), dest(additions.front().getDest()), b(additions.front()) {}

  /// Lets the first addition store; nothing where that cannot be.
  void run(int64_t leastBytes, bool looksAhead) {
    if (!llvm::all_of(additions, [&](hopper::AddOp addition) {
          return addition.getTile().getType().getTileBytes() >= leastBytes && hasOwnTiles(addition);
        }))
      return;
    if (!findUses()) {
      numLeft.at(additions.front())
          << remark::reason("expected memory of the function that is filled with zeros, then added "
                            "to, then read, each by tiles");
      return;
    }
    numSums.at(additions.front()) << remark::metric("Additions", additions.size());
    createFlags();
    for (vector::TransferWriteOp zeros : fills)
      fillFlags(zeros);
    for (hopper::AddOp addition : additions)
      touchFirst(addition, looksAhead);
    for (vector::TransferReadOp read : reads)
      guard(read);
  }

private:
  /// Whether one thread adds, and each time what has no element in common with other tiles.
  bool hasOwnTiles(hopper::AddOp addition) {
    Region *role = hopper::getRole(addition);
    if (!role || !hopper::isSingleThreaded(*role))
      return false;
    ValueRange indices = addition.getIndices();
    tile::SmemType tile = addition.getTile().getType();
    int64_t rows = tile.getRows();
    return !addition.getFirst() && isa<scf::ForOp>(addition->getParentOp()) &&
           isConstantIntValue(indices.back(), 0) && rows % RowFlags::kStep == 0 &&
           tile.getColumns() == getType().getShape().back() &&
           programs::isMultiple(indices[indices.size() - 2], rows);
  }

  MemRefType getType() { return cast<MemRefType>(dest.getType()); }

  /// The launch that an op is in, of those beside the allocation.
  Operation *findLaunch(Operation *op) {
    Operation *ancestor = memory->getBlock()->findAncestorOpInBlock(*op);
    return isa_and_nonnull<gpu::LaunchOp>(ancestor) ? ancestor : nullptr;
  }

  static bool isConditional(Operation *op, Operation *launch) {
    auto branch = op->getParentOfType<scf::IfOp>();
    return branch && launch->isAncestor(branch);
  }

  /// Whether one launch adds, or two of which the device runs one (hopper-version-programs), the
  /// first one and the last one.
  bool findLaunches() {
    if (additions.size() > 2)
      return false;
    first = findLaunch(additions.front());
    last = findLaunch(additions.back());
    if (additions.size() == 1 || !first || !last)
      return first && last;
    auto condition = [](Operation *launch) {
      auto all = cast<gpu::LaunchOp>(launch).getBody().front().getOps<hopper::RunIfOp>();
      return all.empty() ? hopper::RunIfOp() : *all.begin();
    };
    hopper::RunIfOp one = condition(first), other = condition(last);
    if (last->isBeforeInBlock(first))
      std::swap(first, last);
    return one && other && one.getFlags() == other.getFlags() && one.getNone() != other.getNone();
  }

  /// Zeros before, reads behind, and nothing else.
  bool findUses() {
    memory = dest.getDefiningOp<memref::AllocOp>();
    if (!memory || !findLaunches())
      return false;
    for (Operation *user : dest.getUsers()) {
      Operation *other = findLaunch(user);
      if (auto write = dyn_cast<vector::TransferWriteOp>(user)) {
        if (!other || !other->isBeforeInBlock(first) || !isOfFlag(write) ||
            isConditional(write, other) || !matchPattern(write.getVector(), m_AnyZeroFloat()))
          return false;
        fills.push_back(write);
      } else if (auto read = dyn_cast<vector::TransferReadOp>(user)) {
        if (!other || !last->isBeforeInBlock(other) || !isOfFlag(read))
          return false;
        reads.push_back(read);
      } else if (!isa<hopper::AddOp, memref::DimOp, memref::DeallocOp>(user) &&
                 !(isMemoryEffectFree(user) && user->use_empty())) {
        return false;
      }
    }
    return !fills.empty();
  }

  /// Whether a transfer is to the rows of one flag.
  bool isOfFlag(VectorTransferOpInterface transfer) {
    VectorType type = transfer.getVectorType();
    Value row = transfer.getIndices()[getType().getRank() - 2];
    return type.getRank() == 2 && !transfer.getMask() &&
           transfer.getPermutationMap().isMinorIdentity() &&
           type.getDimSize(0) == RowFlags::kStep && programs::isMultiple(row, RowFlags::kStep);
  }

  /// The first launch that fills.
  Operation *findStart() {
    Operation *first = findLaunch(fills.front());
    for (Operation *zeros : fills)
      if (findLaunch(zeros)->isBeforeInBlock(first))
        first = findLaunch(zeros);
    return first;
  }

  void createFlags() {
    b.setInsertionPoint(findStart());
    Arithmetic a{b, memory.getLoc(), /*isNarrow=*/false};
    count = memref::DimOp::create(b, a.loc, dest, getType().getRank() - 2);
    // Each in a line of its own: neighbours are looked at at the same time.
    constexpr int64_t kFlagsOfLine = 32;
    flags = RowFlags::create(a, dest, b.getI32Type(), RowFlags::kStep, kFlagsOfLine);
  }

  /// The indices of the flag of a row.
  SmallVector<Value> getFlag(const Arithmetic &a, ValueRange indices, Value row) {
    return flags->createIndices(a, indices.drop_back(2), row);
  }

  void fillFlags(vector::TransferWriteOp zeros) {
    // Behind all reads: none waits for a store.
    b.setInsertionPoint(zeros->getBlock()->getTerminator());
    Arithmetic a{b, zeros.getLoc(), /*isNarrow=*/false};
    SmallVector<Value> indices(zeros.getIndices());
    Value row = indices[indices.size() - 2];
    auto branch = scf::IfOp::create(b, a.loc, a.isLess(row, count));
    b.setInsertionPointToStart(branch.thenBlock());
    Value zero = arith::ConstantIntOp::create(b, a.loc, 0, 32);
    memref::StoreOp::create(b, a.loc, zero, flags->getMemory(), getFlag(a, indices, row));
    Value mark =
        arith::ConstantOp::create(b, a.loc, b.getF32FloatAttr(llvm::bit_cast<float>(kNobody)));
    indices.back() = a.number(0);
    memref::StoreOp::create(b, a.loc, mark, dest, indices);
    zeros.erase();
  }

  void touchFirst(hopper::AddOp addition, bool looksAhead) {
    Location loc = addition.getLoc();
    // While the tile is computed.
    Operation *before = addition.getTile().getDefiningOp();
    if (!before || before->getBlock() != addition->getBlock())
      before = addition;
    b.setInsertionPoint(before);
    Arithmetic a{b, loc, /*isNarrow=*/true};
    ValueRange indices = addition.getIndices();
    Value row = a.narrow(indices[indices.size() - 2]), memory = flags->getMemory();
    SmallVector<Value> flag = getFlag(a, indices, row);
    Value seen = looksAhead ? lookAhead(addition, flag) : Value();
    b.setInsertionPoint(before); // in another block, if the loop carries what was seen
    if (!seen)
      seen = hopper::SemaphorePeekOp::create(b, loc, memory, flag);
    hopper::SemaphoreWaitOp::create(b, loc, memory, flag, a.number(-1)); // a fence
    b.setInsertionPoint(addition);
    Value first = hopper::SemaphoreFirstTouchOp::create(b, loc, memory, flag, seen);
    addition.getFirstMutable().assign(first);
    b.setInsertionPoint(addition->getBlock()->getTerminator());
    auto branch = scf::IfOp::create(b, loc, first);
    b.setInsertionPointToStart(branch.thenBlock());
    hopper::TmaWaitOp::create(b, loc, 0, /*read=*/false);
    hopper::SemaphoreReleaseOp::create(b, loc, memory, flag, a.number(1));
  }

  /// What the iteration before has seen of the flag: nothing (0) for the first one. Null where
  /// the next iteration's flag does not follow from the loop's variable by arithmetic and tables.
  Value lookAhead(hopper::AddOp addition, ValueRange flag) {
    auto loop = cast<scf::ForOp>(addition->getParentOp());
    auto roles = loop->getParentOfType<hopper::RolesOp>();
    SetVector<Operation *> slice;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.filter = [&](Operation *op) { return op->getBlock() == loop.getBody(); };
    auto isCarried = [&](Value value) {
      return llvm::is_contained(loop.getRegionIterArgs(), value);
    };
    if (llvm::any_of(
            flag, [&](Value index) { return failed(getBackwardSlice(index, &slice, options)); }) ||
        !llvm::all_of(slice, [&](Operation *op) {
          if (llvm::any_of(op->getOperands(), isCarried))
            return false;
          if (auto load = dyn_cast<memref::LoadOp>(op))
            return roles && !programs::isWrittenIn(roles, cast<MemrefValue>(load.getMemRef()));
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
    SmallVector<Value> nextFlag =
        llvm::map_to_vector(flag, [&](Value index) { return mapping.lookupOrDefault(index); });
    Value seen = hopper::SemaphorePeekOp::create(b, loc, flags->getMemory(), nextFlag);
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
    SmallVector<Value> first(indices);
    Value &row = first[first.size() - 2];
    row = a.min(row, a.subtract(count, a.number(1)));
    first.back() = a.number(0);
    Value element = memref::LoadOp::create(b, a.loc, dest, first);
    b.setInsertionPointAfter(read);
    Value number = arith::BitcastOp::create(b, a.loc, b.getI32Type(), element);
    Value nobody = arith::ConstantIntOp::create(b, a.loc, int32_t(kNobody), 32);
    Value isThere = arith::CmpIOp::create(b, a.loc, arith::CmpIPredicate::ne, number, nobody);
    Value zeros = arith::ConstantOp::create(b, a.loc, b.getZeroAttr(read.getVectorType()));
    Value all = vector::BroadcastOp::create(
        b, a.loc, VectorType::get(read.getVectorType().getShape(), b.getI1Type()), isThere);
    auto select = arith::SelectOp::create(b, a.loc, all, read.getVector(), zeros);
    read.getVector().replaceAllUsesExcept(select, select);
  }

  MutableArrayRef<hopper::AddOp> additions;
  Value dest;
  OpBuilder b;
  memref::AllocOp memory;
  Operation *first = nullptr, *last = nullptr;
  SmallVector<vector::TransferWriteOp> fills;
  SmallVector<vector::TransferReadOp> reads;
  std::optional<RowFlags> flags;
  Value count; // of rows
};

struct StoreFirstPass : attn::impl::HopperStoreFirstBase<StoreFirstPass> {
  using Base::Base;

  void runOnOperation() override {
    llvm::MapVector<Value, SmallVector<hopper::AddOp>> additions;
    getOperation().walk(
        [&](hopper::AddOp addition) { additions[addition.getDest()].push_back(addition); });
    for (auto &[dest, all] : additions)
      Sum(all).run(leastBytes, looksAhead);
  }
};

} // namespace
