// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loads of tiles by the threads that compute: memory, asynchronous copies, and where all meet.

#include "Roles.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Slices.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSTAGELOADS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numStaged("hopper-stage-loads", "staged",
                            "Loads that are copied ahead of their iteration");
static attn::Done numWaited("hopper-stage-loads", "waited", "Loads that are waited for");

namespace {

class Stager {
public:
  Stager(hopper::RolesOp roles, int64_t stages)
      : roles(roles), stages(stages), body(roles.getBodies().front()) {}

  LogicalResult run() {
    if (roles.getBodies().size() != 1)
      return roles.emitOpError("expected one role, whose threads copy and compute");
    SmallVector<tile::LoadOp> loads;
    body.walk([&](tile::LoadOp load) { loads.push_back(load); });
    for (tile::LoadOp load : loads)
      if (failed(checkUniform(load)))
        return failure();
    // Loops first: whether a load in front of one is waited for there.
    if (stages > 1)
      body.walk([&](scf::ForOp loop) {
        if (isStaged(loop))
          staged.push_back(loop);
      });
    for (scf::ForOp &loop : staged)
      stage(loop);
    loads.clear();
    body.walk([&](tile::LoadOp load) { loads.push_back(load); });
    for (tile::LoadOp load : loads)
      wait(load);
    keepOperands();
    hopper::giveSharedMemory(roles->getParentOfType<gpu::LaunchOp>());
    return success();
  }

private:
  /// All threads copy together: no branch or loop around a load may differ between warpgroups.
  LogicalResult checkUniform(tile::LoadOp load) {
    Value warpgroup = body.getArgument(0);
    auto differs = [&](Value value) {
      return followsFrom(
          value, [&](Value each) { return each == warpgroup; },
          [&](Operation *op) { return body.isAncestor(op->getParentRegion()); });
    };
    auto refuse = [&](Operation *op) {
      InFlightDiagnostic error =
          load.emitOpError("is copied by all threads, but only some warpgroups come here");
      error.attachNote(op->getLoc()) << "depends on the warpgroup";
      return error;
    };
    for (Value index : load.getIndices())
      if (differs(index))
        return load.emitOpError("is copied by all threads, and its place depends on the warpgroup");
    for (Operation *op = load->getParentOp(); op != roles; op = op->getParentOp())
      for (Value operand : op->getOperands())
        if (operand.getType().isIntOrIndex() && differs(operand) &&
            (isa<scf::IfOp>(op) || isa<scf::ForOp>(op)))
          if (auto loop = dyn_cast<scf::ForOp>(op);
              !loop || llvm::is_contained(
                           {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()}, operand))
            return refuse(op);
    return success();
  }

  /// What computes the indices of a load in each iteration, in order; nothing where that cannot
  /// be done for a later iteration.
  static std::optional<SmallVector<Operation *>> findSlice(scf::ForOp loop, tile::LoadOp load) {
    llvm::SetVector<Operation *> slice;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.omitBlockArguments = true;
    options.filter = [&](Operation *op) { return loop->isProperAncestor(op); };
    for (Value index : load.getIndices())
      if (Operation *op = index.getDefiningOp(); op && loop->isProperAncestor(op))
        (void)getBackwardSlice(index, &slice, options);
    auto isMoved = [&](Operation *op) {
      bool movable = op->getNumRegions() == 0 && op->getBlock() == loop.getBody() &&
                     (isPure(op) || isOnlyRead(op));
      return movable && llvm::none_of(op->getOperands(), [&](Value operand) {
               return llvm::is_contained(loop.getRegionIterArgs(), operand);
             });
    };
    auto isCarried = [&](Value value) {
      return llvm::is_contained(loop.getRegionIterArgs(), value);
    };
    if (!llvm::all_of(slice, isMoved) || llvm::any_of(load.getIndices(), isCarried))
      return std::nullopt;
    SmallVector<Operation *> ops(slice.begin(), slice.end());
    llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    return ops;
  }

  /// Tables of tiles are written by launches before.
  static bool isOnlyRead(Operation *op) {
    auto effects = dyn_cast<MemoryEffectOpInterface>(op);
    return effects && effects.onlyHasEffect<MemoryEffects::Read>();
  }

  /// An innermost loop with loads that a later iteration's can be copied of.
  static bool isStaged(scf::ForOp loop) {
    bool hasInner = false;
    loop.getBody()->walk(
        [&](scf::ForOp inner) { hasInner |= !inner.getBody()->getOps<tile::LoadOp>().empty(); });
    auto loads = loop.getBody()->getOps<tile::LoadOp>();
    return !hasInner && !loads.empty() && llvm::all_of(loads, [&](tile::LoadOp load) {
      return findSlice(loop, load).has_value();
    });
  }

  static tile::SmemType ringOf(tile::SmemType type, int64_t depth) {
    SmallVector<int64_t> shape = {depth, type.getRows(), type.getColumns()};
    return tile::SmemType::get(shape, type.getElementType(), type.getSwizzle());
  }

  /// Memory of a role, in front of it.
  Value allocate(Location loc, tile::SmemType type) {
    OpBuilder b(roles);
    return hopper::AllocOp::create(b, loc, type);
  }

  /// A load's copy; from pages, each thread finds its rows in the table.
  static void createCopy(OpBuilder &b, tile::LoadOp load, ValueRange indices, Value place) {
    auto pages = load.getSource().getDefiningOp<PagesOp>();
    if (!pages) {
      tile::CopyOp::create(b, load.getLoc(), load.getSource(), indices, place);
      return;
    }
    int64_t rows = load.getTile().getType().getRows();
    while (rows > 1 && !programs::isMultiple(load.getIndices()[2], rows))
      rows /= 2;
    tile::CopyOp::create(b, load.getLoc(), pages.getPool(), indices, pages.getTable(),
                         pages.getLengths(), place, b.getI64IntegerAttr(rows));
  }

  /// The loads of iteration `iv` to slot `slot` of their rings, where there is such an iteration.
  void copy(OpBuilder &b, scf::ForOp loop, MutableArrayRef<tile::LoadOp> loads,
            ArrayRef<Value> rings, Value iv, Value slot) {
    Location loc = loop.getLoc();
    auto predicate = loop.getUnsignedCmp() ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt;
    Value exists = arith::CmpIOp::create(b, loc, predicate, iv, loop.getUpperBound());
    auto branch = scf::IfOp::create(b, loc, exists);
    OpBuilder inner = OpBuilder::atBlockBegin(branch.thenBlock());
    IRMapping mapping;
    mapping.map(loop.getInductionVar(), iv);
    for (auto [load, ring] : llvm::zip_equal(loads, rings)) {
      SmallVector<Operation *> slice = *findSlice(loop, load);
      for (Operation *op : slice)
        if (op->getNumResults() == 0 || !mapping.contains(op->getResult(0)))
          inner.clone(*op, mapping);
      SmallVector<Value> indices;
      for (Value index : load.getIndices())
        indices.push_back(mapping.lookupOrDefault(index));
      Value place = hopper::SlotOp::create(inner, loc, load.getTile().getType(), ring, slot);
      createCopy(inner, load, indices, place);
    }
    tile::CommitOp::create(b, loc);
  }

  /// Rings of `stages` tiles: at the start of an iteration its tiles have landed, all threads are
  /// done with those of the iteration before, and the copies for the one `stages - 1` further go to
  /// their place.
  void stage(scf::ForOp &loop) {
    SmallVector<tile::LoadOp> loads(loop.getBody()->getOps<tile::LoadOp>());
    Location loc = loop.getLoc();
    SmallVector<Value> rings;
    bool hasOthers = false; // rings of a loop before, which no thread may still read
    DenseMap<Type, size_t> taken;
    for (tile::LoadOp load : loads) {
      numStaged.at(load);
      tile::SmemType type = ringOf(load.getTile().getType(), stages);
      SmallVector<Value> &known = ringsOfLoops[type];
      size_t number = taken[type]++;
      hasOthers |= number < known.size();
      if (number == known.size())
        known.push_back(allocate(load.getLoc(), type));
      rings.push_back(known[number]);
    }
    IRRewriter b(loop.getContext());
    b.setInsertionPoint(loop);
    auto number = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(b, loc, value);
    };
    // A loop around comes by again, and others still read what it has copied before.
    if (hasOthers || loop->getParentOfType<scf::ForOp>() || loop->getParentOfType<scf::WhileOp>())
      tile::AwaitOp::create(b, loc, 0);
    Value iv = loop.getLowerBound();
    for (int64_t s = 0; s + 1 < stages; ++s) {
      if (s)
        iv = arith::AddIOp::create(b, loc, iv, loop.getStep());
      copy(b, loop, loads, rings, iv, number(s));
    }
    auto yieldNext = [&](OpBuilder &b, Location loc, ArrayRef<BlockArgument> slot) {
      Value one = arith::ConstantIndexOp::create(b, loc, 1);
      Value last = arith::ConstantIndexOp::create(b, loc, stages - 1);
      Value next = arith::AddIOp::create(b, loc, slot.front(), one);
      Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, slot.front(), last);
      Value zero = arith::ConstantIndexOp::create(b, loc, 0);
      return SmallVector<Value>{arith::SelectOp::create(b, loc, isLast, zero, next)};
    };
    FailureOr<LoopLikeOpInterface> made = loop.replaceWithAdditionalYields(
        b, number(0), /*replaceInitOperandUsesInLoop=*/false, yieldNext);
    loop = cast<scf::ForOp>(made->getOperation());
    loads.assign(loop.getBody()->getOps<tile::LoadOp>().begin(),
                 loop.getBody()->getOps<tile::LoadOp>().end());
    Value slot = loop.getRegionIterArgs().back();
    b.setInsertionPointToStart(loop.getBody());
    tile::AwaitOp::create(b, loc, stages - 2);
    Value ahead = loop.getInductionVar();
    for (int64_t s = 0; s + 1 < stages; ++s)
      ahead = arith::AddIOp::create(b, loc, ahead, loop.getStep());
    Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, slot, number(0));
    Value before = arith::SubIOp::create(b, loc, slot, number(1));
    Value free = arith::SelectOp::create(b, loc, isFirst, number(stages - 1), before);
    copy(b, loop, loads, rings, ahead, free);
    for (auto [load, ring] : llvm::zip_equal(loads, rings)) {
      b.setInsertionPoint(load);
      load.getTile().replaceAllUsesWith(
          hopper::SlotOp::create(b, load.getLoc(), load.getTile().getType(), ring, slot));
      load.erase();
    }
  }

  /// A load of its own: copied where it is, waited for in front of its first reader, but by a loop
  /// that waits for all copies before its own.
  void wait(tile::LoadOp load) {
    Location loc = load.getLoc();
    numWaited.at(load);
    Value memory = allocate(loc, ringOf(load.getTile().getType(), 1));
    OpBuilder b(load);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value place = hopper::SlotOp::create(b, loc, load.getTile().getType(), memory, zero);
    if (load->getParentOfType<scf::ForOp>() || load->getParentOfType<scf::WhileOp>())
      tile::AwaitOp::create(b, loc, 0);
    createCopy(b, load, load.getIndices(), place);
    Operation *reader = hopper::findFirstReader(load->getBlock(), load.getTile());
    // A staged loop closes a group in front of it, and waits for it.
    bool isAwaited = reader && llvm::is_contained(staged, dyn_cast<scf::ForOp>(reader));
    if (reader && !isAwaited) {
      tile::CommitOp::create(b, loc);
      b.setInsertionPoint(reader);
      tile::AwaitOp::create(b, loc, 0);
    }
    load.getTile().replaceAllUsesWith(place);
    load.erase();
  }

  /// A left operand of f32 or f64 in registers, for FMAs, goes through memory, the rows of each
  /// warp by themselves.
  void keepOperands() {
    DenseMap<Type, Value> memories;
    llvm::DenseSet<std::pair<Value, Block *>> written;
    int64_t warpgroups = roles.getNumWarpgroups();
    body.walk([&](tile::MmaOp product) {
      auto type = dyn_cast<VectorType>(product.getA().getType());
      if (!type || type.getElementTypeBitWidth() < 32 || product.getTf32())
        return;
      Location loc = product.getLoc();
      SmallVector<int64_t> shape = {warpgroups * type.getDimSize(0), type.getDimSize(1)};
      auto all = tile::SmemType::get(shape, type.getElementType(), /*swizzle=*/128);
      Value &memory = memories[all];
      if (!memory)
        memory = allocate(loc, ringOf(all, 1));
      OpBuilder b(product);
      Value zero = arith::ConstantIndexOp::create(b, loc, 0);
      Value place = hopper::SlotOp::create(b, loc, all, memory, zero);
      auto own = tile::SmemType::get(b.getContext(), type.getShape(), type.getElementType(),
                                     all.getSwizzle(), all.getSlabRows());
      Value first = affine::makeComposedAffineApply(
          b, loc, getAffineDimExpr(0, b.getContext()) * type.getDimSize(0),
          {OpFoldResult(body.getArgument(0))});
      Value rows = tile::RowsOp::create(b, loc, own, place, first);
      // Once all lanes have read what was there; all threads meet where an iteration starts.
      bool isStaged = llvm::is_contained(staged, dyn_cast<scf::ForOp>(product->getParentOp()));
      if (!written.insert({memory, product->getBlock()}).second || !isStaged)
        tile::WarpSyncOp::create(b, loc);
      tile::WriteOp::create(b, loc, product.getA(), rows, /*transpose=*/false);
      tile::WarpSyncOp::create(b, loc);
      product.getAMutable().assign(rows);
    });
  }

  hopper::RolesOp roles;
  int64_t stages;
  Region &body;
  SmallVector<scf::ForOp> staged;
  /// Of all loops that have been staged, which are never in each other.
  DenseMap<Type, SmallVector<Value>> ringsOfLoops;
};

struct StageLoadsPass : attn::impl::HopperStageLoadsBase<StageLoadsPass> {
  using Base::Base;
  void runOnOperation() override {
    if (stages < 1) {
      getOperation().emitError("expected 1 or more stages, got ") << int64_t(stages);
      return signalPassFailure();
    }
    SmallVector<hopper::RolesOp> all;
    getOperation().walk([&](hopper::RolesOp roles) { all.push_back(roles); });
    for (hopper::RolesOp roles : all)
      if (failed(Stager(roles, stages).run()))
        return signalPassFailure();
  }
};

} // namespace
