// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel in which the running maximum is that of the first tile, and one behind it for what
// that was wrong for.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Transforms/Tiles/RunningMaximum.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/ControlFlowSinkUtils.h"
#include <cmath>
#include <limits>

namespace attn {
#define GEN_PASS_DEF_HOPPERFIXMAXIMA
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numFixed("hopper-fix-maxima", "fixed",
                           "Programs with the maximum of the first tile");

namespace {

/// What a type allows that exponentials are rounded to, in powers of two. In f16 the largest is
/// 2^16, and below 2^-14 there are fewer bits than 11.
struct Range {
  /// What the exponents are measured from, at least: a row may have only masked or small scores in
  /// its first tile. Not far from where scores are: an exponent rounds relative to its size.
  double leastMaximum;
  /// Between which a row's sum of exponentials is trusted. The products that they weight are then
  /// in range, too, or infinite, which is seen.
  int leastSum, mostSum;
};
constexpr Range kRangeOfBF16 = {-8, -32, 64}, kRangeOfF16 = {-4, -8, 15};

/// In a short stream the first tile is a large part, and of few tiles a second launch (2 us).
struct Few {
  int64_t tiles, inAll;
};

class Fixer {
public:
  Fixer(scf::ForallOp forall, Few few) : forall(forall), few(few), rewriter(forall.getContext()) {}

  /// Whether the program has sums whose maximum may be fixed, and may run twice.
  bool check() {
    bool found = false;
    WalkResult walk = forall.walk([&](scf::ForOp loop) {
      if (!loop->hasAttr(kFoldLoopAttr))
        return WalkResult::advance();
      for (unsigned index = 0; index < loop.getNumRegionIterArgs(); ++index) {
        if (!hasMaximum(loop, index))
          continue;
        RunningMaximum maximum(loop, index);
        if (!maximum.prove() || !checkLoop(maximum, loop.getResult(index)))
          return WalkResult::interrupt();
        found = true;
      }
      return WalkResult::advance();
    });
    return found && !walk.wasInterrupted() && checkRepeatable() && !isAlwaysShort();
  }

  void run() {
    Value isShort = createIsShort();
    createReports(isShort);
    rewriter.setInsertionPointAfter(forall);
    auto again = cast<scf::ForallOp>(rewriter.clone(*forall));
    rewriter.setInsertionPointToStart(again.getBody());
    hopper::RedoOp::create(rewriter, forall.getLoc(), reports, isShort);
    SmallVector<scf::ForOp> loops;
    forall.walk([&](scf::ForOp loop) {
      if (loop->hasAttr(kFoldLoopAttr))
        loops.push_back(loop);
    });
    for (scf::ForOp loop : loops)
      for (unsigned index = 0; index < loop.getNumRegionIterArgs(); ++index)
        if (hasMaximum(loop, index))
          loop = fix(loop, index);
    leaveOut(isShort);
  }

private:
  /// In a loop with products.
  static bool hasMaximum(scf::ForOp loop, unsigned index) {
    auto isProduct = [](vector::ContractionOp) { return WalkResult::interrupt(); };
    auto next = loop.getYieldedValues()[index].getDefiningOp<arith::MaxNumFOp>();
    BlockArgument old = loop.getRegionIterArg(index);
    return next && (next.getLhs() == old || next.getRhs() == old) &&
           loop.walk(isProduct).wasInterrupted();
  }

  bool refuse(Operation *op, StringRef why) {
    op->emitRemark("the maximum is not fixed: ") << why;
    return false;
  }

  bool checkLoop(RunningMaximum &maximum, Value result) {
    scf::ForOp loop = maximum.getLoop();
    for (BlockArgument sum : maximum.getSums())
      if (!matchPattern(loop.getTiedLoopInit(sum)->get(), m_AnyZeroFloat()))
        return refuse(loop, "a sum under it does not start with 0");
    SetVector<Operation *> users;
    getForwardSlice(result, &users);
    if (llvm::any_of(users, llvm::IsaPred<math::Exp2Op, math::ExpOp>))
      return refuse(loop, "an exponential of it is used behind the loop");
    if (!findWrite(loop, cast<VectorType>(maximum.getOld().getType()).getDimSize(0)))
      return refuse(loop, "no tile with a row for each maximum is written behind the loop");
    WalkResult walk = loop.walk([&](vector::ContractionOp product) {
      for (auto [weights, values] : {std::pair(product.getLhs(), product.getRhs()),
                                     std::pair(product.getRhs(), product.getLhs())})
        if (maximum.isScaled(weights) && !checkFactor(values, loop))
          return WalkResult::interrupt();
      return WalkResult::advance();
    });
    return !walk.wasInterrupted();
  }

  /// Exponentials take the type of what they are multiplied with.
  bool checkFactor(Value values, scf::ForOp loop) {
    auto extension = values.getDefiningOp<arith::ExtFOp>();
    auto read = extension ? extension.getIn().getDefiningOp<vector::TransferReadOp>() : nullptr;
    Type type = read ? read.getVectorType().getElementType() : Type();
    if (!read || !(type.isBF16() || type.isF16()))
      return refuse(values.getDefiningOp() ? values.getDefiningOp() : loop,
                    "exponentials are multiplied with what is not read in 16 bits");
    if (type.isF16())
      range = kRangeOfF16;
    return addStream(read, loop) ||
           refuse(read, "what exponentials are multiplied with is no stream of tiles");
  }

  /// Where the tiles of a loop come from: memory of the host, and the dimension along which.
  struct Stream {
    MemrefValue memory;
    int64_t dim, elements; // of a tile, or of two where streams differ
  };
  bool addStream(vector::TransferReadOp read, scf::ForOp loop) {
    auto memory = dyn_cast<MemrefValue>(read.getBase());
    if (!memory || forall.getBodyRegion().isAncestor(memory.getParentRegion()))
      return false;
    auto varies = [&](Value bound) {
      return llvm::any_of(forall.getInductionVars(),
                          [&](Value tile) { return programs::dependsOn(bound, tile); });
    };
    int64_t each = varies(loop.getLowerBound()) || varies(loop.getUpperBound()) ? 2 : 1;
    AffineMap map = read.getPermutationMap();
    for (auto [position, result] : llvm::enumerate(map.getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(result);
          dim &&
          programs::dependsOn(read.getIndices()[dim.getPosition()], loop.getInductionVar())) {
        streams.push_back(
            {memory, dim.getPosition(), each * read.getVectorType().getDimSize(position)});
        return true;
      }
    return false;
  }

  /// Whether it writes only what it does not read.
  bool checkRepeatable() {
    WalkResult walk = forall.walk([&](Operation *op) {
      if (op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() || isMemoryEffectFree(op) ||
          isa<vector::TransferWriteOp>(op))
        return WalkResult::advance();
      bool reads = hasSingleEffect<MemoryEffects::Read>(op) &&
                   llvm::none_of(op->getOperands(), [&](Value operand) {
                     auto memref = dyn_cast<MemrefValue>(operand);
                     return memref && programs::isWrittenIn(forall, memref);
                   });
      if (!reads)
        refuse(op, "the tile cannot be computed again");
      return reads ? WalkResult::advance() : WalkResult::interrupt();
    });
    return !walk.wasInterrupted();
  }

  /// Whether streams are short for sure: sizes are known.
  bool isAlwaysShort() {
    std::optional<int64_t> count = 1;
    for (OpFoldResult bound : forall.getMixedUpperBound()) {
      std::optional<int64_t> size = getConstantIntValue(bound);
      count = count && size ? std::optional(*count * *size) : std::nullopt;
    }
    return llvm::all_of(streams, [&](const Stream &stream) {
      int64_t size = stream.memory.getType().getDimSize(stream.dim);
      return !ShapedType::isDynamic(size) &&
             (size <= few.tiles * stream.elements ||
              (count && size * *count <= few.inAll * stream.elements));
    });
  }

  /// Whether streams are short, by the memory that they come from.
  Value createIsShort() {
    Location loc = forall.getLoc();
    rewriter.setInsertionPoint(forall);
    tiles = arith::ConstantIndexOp::create(rewriter, loc, 1);
    for (OpFoldResult bound : forall.getMixedUpperBound())
      tiles = arith::MulIOp::create(rewriter, loc, tiles,
                                    getValueOrCreateConstantIndexOp(rewriter, loc, bound));
    auto isAtMost = [&](Value value, int64_t most) -> Value {
      Value limit = arith::ConstantIndexOp::create(rewriter, loc, most);
      return arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::ule, value, limit);
    };
    Value all;
    for (const Stream &stream : streams) {
      Value size = memref::DimOp::create(rewriter, loc, stream.memory, stream.dim);
      Value inAll = arith::MulIOp::create(rewriter, loc, size, tiles);
      Value isShort =
          arith::OrIOp::create(rewriter, loc, isAtMost(size, few.tiles * stream.elements),
                               isAtMost(inAll, few.inAll * stream.elements));
      all = all ? arith::AndIOp::create(rewriter, loc, all, isShort) : isShort;
    }
    return all;
  }

  /// A flag for each tile, and so for each CTA, unless nobody reports.
  void createReports(Value isShort) {
    Location loc = forall.getLoc();
    rewriter.setInsertionPoint(forall);
    Value none = arith::ConstantIndexOp::create(rewriter, loc, 0);
    Value flags = rewriter.createOrFold<arith::SelectOp>(loc, isShort, none, tiles);
    auto type = MemRefType::get(ShapedType::kDynamic, rewriter.getI32Type());
    reports = memref::AllocOp::create(rewriter, loc, type, flags);
    rewriter.setInsertionPoint(forall->getBlock()->getTerminator());
    memref::DeallocOp::create(rewriter, loc, reports);
  }

  /// No tiles where the condition holds.
  void leaveOut(Value condition) {
    Location loc = forall.getLoc();
    rewriter.setInsertionPoint(forall);
    Value all = getValueOrCreateConstantIndexOp(rewriter, loc, forall.getMixedUpperBound().front());
    Value none = arith::ConstantIndexOp::create(rewriter, loc, 0);
    Value bound = rewriter.createOrFold<arith::SelectOp>(loc, condition, none, all);
    SmallVector<int64_t> constants(forall.getStaticUpperBound());
    SmallVector<Value> bounds(forall.getDynamicUpperBound());
    if (ShapedType::isDynamic(constants.front()))
      bounds.front() = bound;
    else
      bounds.insert(bounds.begin(), bound);
    constants.front() = ShapedType::kDynamic;
    forall.getDynamicUpperBoundMutable().assign(bounds);
    forall.setStaticUpperBound(constants);
  }

  scf::ForOp fix(scf::ForOp loop, unsigned index) {
    Location loc = loop.getLoc();
    rewriter.setInsertionPoint(loop);
    Value yes = arith::ConstantIntOp::create(rewriter, loc, 1, 1);
    Value no = arith::ConstantIntOp::create(rewriter, loc, 0, 1);
    auto longer = loop.replaceWithAdditionalYields(
        rewriter, yes, /*replaceInitOperandUsesInLoop=*/false,
        [&](OpBuilder &, Location, ArrayRef<BlockArgument>) { return SmallVector<Value>{no}; });
    assert(succeeded(longer) && "a loop can carry more");
    loop = cast<scf::ForOp>(longer->getOperation());
    RunningMaximum maximum(loop, index);
    [[maybe_unused]] bool holds = maximum.prove();
    assert(holds && "proved already");
    // Sums are 0 where the maximum changes.
    for (arith::MulFOp product : maximum.getRescalings())
      rewriter.replaceAllUsesWith(product.getResult(), maximum.isRescaling(product.getLhs())
                                                           ? product.getRhs()
                                                           : product.getLhs());
    for (BlockArgument sum : maximum.getSums()) {
      report(loop.getTiedLoopResult(sum), loop.getResult(index));
      normalize(loop.getTiedLoopResult(sum), loop.getResult(index));
    }
    take(maximum, loop.getRegionIterArgs().back());
    return loop;
  }

  /// The maximum of the first tile, for which `isFirst` holds.
  void take(RunningMaximum &maximum, Value isFirst) {
    arith::MaxNumFOp next = maximum.getNext();
    Location loc = next.getLoc();
    auto type = cast<VectorType>(next.getType());
    rewriter.setInsertionPointAfter(next);
    auto branch = scf::IfOp::create(rewriter, loc, TypeRange(type), isFirst,
                                    /*withElseRegion=*/true);
    rewriter.replaceAllUsesWith(next.getResult(), branch.getResult(0));
    rewriter.moveOpBefore(next, branch.thenBlock(), branch.thenBlock()->end());
    rewriter.setInsertionPointToEnd(branch.thenBlock());
    Value least = createSplat(type, range.leastMaximum);
    scf::YieldOp::create(rewriter, loc,
                         arith::MaxNumFOp::create(rewriter, loc, next, least).getResult());
    rewriter.setInsertionPointToEnd(branch.elseBlock());
    scf::YieldOp::create(rewriter, loc, Value(maximum.getOld()));
    DominanceInfo dominance(branch);
    controlFlowSink(
        &branch.getThenRegion(), dominance, [](Operation *op, Region *) { return isPure(op); },
        [](Operation *op, Region *region) {
          op->moveBefore(&region->front(), region->front().begin());
        });
  }

  /// Rows whose sum is out of range, or NaN, or whose maximum is large; of those that are written.
  void report(Value sum, Value maximum) {
    Location loc = sum.getLoc();
    auto type = cast<VectorType>(sum.getType());
    vector::TransferWriteOp write = findWrite(sum.getDefiningOp(), type.getDimSize(0));
    rewriter.setInsertionPoint(write);
    auto compare = [&](arith::CmpFPredicate predicate, Value value, double limit) -> Value {
      return arith::CmpFOp::create(rewriter, loc, predicate, value, createSplat(type, limit));
    };
    Value isBeyond;
    if (type.getRank() == 1) {
      Value isSmall = compare(arith::CmpFPredicate::ULT, sum, std::ldexp(1.0, range.leastSum));
      Value isLarge = compare(arith::CmpFPredicate::UGT, sum, std::ldexp(1.0, range.mostSum));
      isBeyond = arith::OrIOp::create(rewriter, loc, isSmall, isLarge);
      Value size = math::AbsFOp::create(rewriter, loc, maximum);
      Value isRounded = compare(arith::CmpFPredicate::OGE, size, hopper::kLargeMaximum);
      isBeyond = arith::OrIOp::create(rewriter, loc, isBeyond, isRounded);
      if (!write.getInBoundsValues().front()) {
        unsigned dim = write.getShapedType().getRank() - write.getVectorType().getRank();
        Value end = memref::DimOp::create(rewriter, loc, write.getBase(), dim);
        Value isInside = programs::createIsInside(rewriter, loc, type.getDimSize(0),
                                                  write.getIndices()[dim], end);
        isBeyond = arith::AndIOp::create(rewriter, loc, isBeyond, isInside);
      }
      // Nobody asks any more for rows without terms.
      for (Operation *user : llvm::make_early_inc_range(sum.getUsers())) {
        auto test = dyn_cast<arith::CmpFOp>(user);
        if (!test || test.getPredicate() != arith::CmpFPredicate::OEQ || test.getLhs() != sum ||
            !matchPattern(test.getRhs(), m_AnyZeroFloat()))
          continue;
        rewriter.setInsertionPoint(test);
        auto answer = DenseElementsAttr::get(cast<VectorType>(test.getType()), false);
        rewriter.replaceOpWithNewOp<arith::ConstantOp>(test, answer);
      }
      rewriter.setInsertionPoint(write);
    } else {
      Value size = math::AbsFOp::create(rewriter, loc, sum);
      isBeyond = compare(arith::CmpFPredicate::UEQ, size, std::numeric_limits<double>::infinity());
    }
    hopper::ReportOp::create(rewriter, loc, isBeyond, reports, /*tile=*/Value(),
                             /*warpgroups=*/UnitAttr());
  }

  /// Takes the exponent of a row's sum to the maximum, where the sum's logarithm is asked for:
  /// the two could be large, and the sum of both small.
  void normalize(Value sum, Value maximum) {
    auto type = cast<VectorType>(sum.getType());
    SmallVector<math::LogOp> logarithms;
    for (Operation *user : sum.getUsers())
      if (auto logarithm = dyn_cast<math::LogOp>(user))
        logarithms.push_back(logarithm);
    if (logarithms.empty() || maximum.use_empty())
      return;
    Location loc = sum.getLoc();
    rewriter.setInsertionPointAfterValue(sum);
    auto integers = VectorType::get(type.getShape(), rewriter.getI32Type());
    auto constant = [&](int32_t value) -> Value {
      return arith::ConstantOp::create(rewriter, loc, DenseElementsAttr::get(integers, value));
    };
    constexpr int32_t kMantissaBits = 23, kMantissa = 0x7fffff, kOne = 0x3f800000, kBias = 127;
    Value bits = arith::BitcastOp::create(rewriter, loc, integers, sum);
    Value biased = arith::ShRUIOp::create(rewriter, loc, bits, constant(kMantissaBits));
    Value exponent = arith::SubIOp::create(rewriter, loc, biased, constant(kBias));
    Value shift = arith::SIToFPOp::create(rewriter, loc, type, exponent);
    Value mantissa = arith::AndIOp::create(rewriter, loc, bits, constant(kMantissa));
    Value oneToTwo = arith::OrIOp::create(rewriter, loc, mantissa, constant(kOne));
    Value rest = arith::BitcastOp::create(rewriter, loc, type, oneToTwo);
    for (math::LogOp logarithm : logarithms)
      logarithm.getOperandMutable().assign(rest);
    Value whole = arith::AddFOp::create(rewriter, loc, maximum, shift);
    rewriter.replaceAllUsesExcept(maximum, whole, whole.getDefiningOp());
  }

  /// The first write of rows behind a loop; null if there is none.
  vector::TransferWriteOp findWrite(Operation *loop, int64_t rows) {
    for (auto write : loop->getBlock()->getOps<vector::TransferWriteOp>())
      if (loop->isBeforeInBlock(write) && write.getVectorType().getRank() > 0 &&
          write.getVectorType().getDimSize(0) == rows &&
          write.getPermutationMap().isMinorIdentity())
        return write;
    return nullptr;
  }

  Value createSplat(VectorType type, double value) {
    auto number = rewriter.getFloatAttr(type.getElementType(), value);
    return arith::ConstantOp::create(rewriter, forall.getLoc(),
                                     DenseElementsAttr::get(type, number));
  }

  scf::ForallOp forall;
  Few few;
  IRRewriter rewriter;
  Range range = kRangeOfBF16;
  SmallVector<Stream> streams;
  Value reports, tiles;
};

struct FixMaximaPass : attn::impl::HopperFixMaximaBase<FixMaximaPass> {
  using Base::Base;

  void runOnOperation() override {
    for (scf::ForallOp forall : programs::findPrograms(getOperation()))
      if (Fixer fixer(forall, {fewTiles, fewInAll}); fixer.check()) {
        numFixed.at(forall);
        fixer.run();
      }
  }
};

} // namespace
