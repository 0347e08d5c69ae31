// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Neighbouring tile programs over the same tiles become one: one launch, and what
// one makes for the other stays in registers.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Programs/Loops.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/TileClasses.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNFUSEPROGRAMS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using programs::Access;
using programs::Touched;

static attn::Done numFused("attn-fuse-programs", "fused",
                           "Programs that became part of a later one");

namespace {

/// Whether two numbers are the same if the variables of the second program are those of
/// the first one.
class SameTile {
public:
  SameTile(scf::ForallOp first, scf::ForallOp second) : first(first), second(second) {}

  bool operator()(OpFoldResult a, OpFoldResult b) {
    std::optional<int64_t> number = getConstantIntValue(a);
    if (number)
      return number == getConstantIntValue(b);
    if (!isa<Value>(a) || !isa<Value>(b))
      return false;
    return areSame(cast<Value>(a), cast<Value>(b));
  }

private:
  bool areSame(Value a, Value b) {
    if (a == b)
      return true;
    for (auto [own, other] : llvm::zip_equal(first.getInductionVars(), second.getInductionVars()))
      if (a == own)
        return b == other;
    auto apply = a.getDefiningOp<affine::AffineApplyOp>();
    auto same = b.getDefiningOp<affine::AffineApplyOp>();
    return apply && same && apply.getAffineMap() == same.getAffineMap() &&
           llvm::equal(apply.getMapOperands(), same.getMapOperands(),
                       [&](Value x, Value y) { return areSame(x, y); });
  }

  scf::ForallOp first, second;
};

/// Whether no two iterations of the program touch the same element through `access`:
/// each variable chooses a dimension's tile.
bool ownsTile(scf::ForallOp program, const Access &access) {
  for (auto [variable, bound] :
       llvm::zip_equal(program.getInductionVars(), program.getMixedUpperBound())) {
    if (isOneInteger(bound))
      continue;
    bool isOwn = false;
    for (auto [dim, index] : llvm::enumerate(access.indices)) {
      auto value = dyn_cast<Value>(index);
      if (!value)
        continue;
      int64_t extent = access.getExtent(dim);
      auto apply = value.getDefiningOp<affine::AffineApplyOp>();
      AffineExpr d0 = getAffineDimExpr(0, program.getContext());
      isOwn |= value == variable && extent == 1;
      isOwn |= apply && apply.getAffineMap().getNumInputs() == 1 &&
               apply.getMapOperands().front() == variable &&
               apply.getAffineMap().getResult(0) == d0 * extent;
    }
    if (!isOwn)
      return false;
  }
  return true;
}

class Fuser {
public:
  Fuser(scf::ForallOp first, scf::ForallOp second, int64_t mostRowBytes, int64_t columnMultiple)
      : first(first), second(second), mostRowBytes(mostRowBytes), columnMultiple(columnMultiple),
        areSame(first, second) {}

  /// Moves the first program to the start of the second one; false if it must not.
  bool run() {
    if (!haveSameTiles() || !isStraight())
      return false;
    own = programs::findTouched(first);
    if (!own || !canMove() || !findForwarded() || !haveSameRows())
      return false;
    numFused.at(first) << remark::metric("Forwarded", forwarded.size());
    Block *body = second.getBody();
    Operation *start = &body->front();
    for (auto [own, other] : llvm::zip_equal(first.getInductionVars(), second.getInductionVars()))
      own.replaceAllUsesWith(other);
    body->getOperations().splice(start->getIterator(), first.getBody()->getOperations(),
                                 first.getBody()->begin(),
                                 first.getBody()->getTerminator()->getIterator());
    first.erase();
    for (auto &[read, write] : forwarded)
      forward(read, write);
    return true;
  }

private:
  bool haveSameTiles() {
    auto isPlain = [](scf::ForallOp program) {
      return program.isNormalized() && program->getNumResults() == 0 &&
             !programs::isOfWarpgroups(program);
    };
    return isPlain(first) && isPlain(second) &&
           llvm::equal(first.getMixedUpperBound(), second.getMixedUpperBound());
  }

  /// Whether the first program has no loop and no product of matrices: the second one may be
  /// long, and what it starts with should not be.
  bool isStraight() {
    return llvm::all_of(first.getBody()->without_terminator(), [](Operation &op) {
      auto product = dyn_cast<vector::ContractionOp>(op);
      auto type = product ? dyn_cast<VectorType>(product.getResultType()) : VectorType();
      return op.getNumRegions() == 0 && !(type && type.getRank() == 2);
    });
  }

  /// Whether rows that the first program writes are as many as those of the second one, and are
  /// these where the second one reads them: loops over one tile do not tell.
  bool haveSameRows() {
    tiles::DimClasses classes;
    // Where it cannot be said, the programs stay apart.
    ScopedDiagnosticHandler quiet(second->getContext(), [](Diagnostic &) { return success(); });
    if (failed(classes.build(second)))
      return false;
    auto getTiles = [](scf::ForallOp program) {
      SmallVector<Value> tiles;
      program.walk([&](Operation *op) {
        auto write = dyn_cast<vector::TransferWriteOp>(op);
        if (write && write.getVectorType().getRank() > 0)
          tiles.push_back(write.getVector());
        // Warpgroups without rows of their own would add them once more.
        if (auto add = dyn_cast<ScatterAddOp>(op))
          tiles.push_back(add.getValues());
        if (auto add = dyn_cast<TileAddOp>(op))
          tiles.push_back(add.getValues());
      });
      return tiles;
    };
    SmallVector<Value> tiles = getTiles(second);
    if (tiles.empty())
      return forwarded.empty();
    int rows = classes.dims(tiles.front()).front();
    auto haveRows = [&](Value tile) {
      return cast<VectorType>(tile.getType()).getDimSize(0) == classes.extent(rows);
    };
    return llvm::all_of(getTiles(first), haveRows) && llvm::all_of(forwarded, [&](auto &pair) {
             return classes.dims(pair.first).front() == rows;
           });
  }

  /// Whether nothing between the programs depends on the first one.
  bool canMove() {
    for (Operation *op = first->getNextNode(); op != second; op = op->getNextNode()) {
      if (isa<memref::AllocOp>(op))
        continue;
      std::optional<Touched> other = programs::findTouched(op);
      if (!other || own->dependsOn(*other))
        return false;
    }
    return true;
  }

  /// Finds the reads in the second program of what the first one writes: of the same
  /// tile, which is the iteration's own, so that the vector is at hand. Nothing else may
  /// depend on the first program, for its threads do not wait for each other.
  bool findForwarded() {
    std::optional<Touched> other = programs::findTouched(second);
    if (!other || programs::intersect(own->written, other->written) ||
        programs::intersect(own->read, other->written))
      return false;
    WalkResult walk = second.walk([&](Operation *op) {
      if (op->getNumRegions() > 0)
        return WalkResult::advance();
      std::optional<Touched> touched = programs::findTouched(op);
      if (!touched || !programs::intersect(own->written, touched->read))
        return WalkResult::advance();
      auto write = findWrite(op);
      if (!write)
        return WalkResult::interrupt();
      forwarded.push_back({cast<vector::TransferReadOp>(op), write});
      return WalkResult::advance();
    });
    return !walk.wasInterrupted();
  }

  vector::TransferWriteOp findWrite(Operation *op) {
    std::optional<Access> read =
        isa<vector::TransferReadOp>(op) ? programs::getAccess(op) : std::nullopt;
    if (!read)
      return {};
    vector::TransferWriteOp found;
    for (auto write : first.getBody()->getOps<vector::TransferWriteOp>()) {
      std::optional<Access> made = programs::getAccess(write);
      if (!made)
        return {};
      if (memref::skipViewLikeOps(made->memory) != memref::skipViewLikeOps(read->memory))
        continue;
      bool isSame = made->memory == read->memory && made->vector == read->vector &&
                    made->map == read->map && ownsTile(first, *made) && !read->view &&
                    made->coversTile() && llvm::equal(made->indices, read->indices, areSame);
      if (!isSame || found || !canHold(cast<vector::TransferReadOp>(op)))
        return {};
      found = write;
    }
    return found;
  }

  /// Whether registers hold it through the second program, in the order of the memory. A
  /// product takes so many columns at a time from them; only copies of tiles are padded to that.
  bool canHold(vector::TransferReadOp read) const {
    VectorType type = read.getVectorType();
    bool isSmall = type.getRank() == 1 ||
                   (type.getRank() == 2 && type.getDimSize(1) % columnMultiple == 0 &&
                    type.getDimSize(1) * getBits(type.getElementType()) <= 8 * mostRowBytes);
    return isSmall && read.getPermutationMap().isMinorIdentity();
  }

  void forward(vector::TransferReadOp read, vector::TransferWriteOp write) {
    Value value = write.getValueToStore();
    // What lies outside of the memory is read as padding, which the vector need not have
    // there.
    OpBuilder b(read);
    Location loc = read.getLoc();
    VectorType type = read.getVectorType();
    unsigned memoryRank = cast<MemRefType>(read.getBase().getType()).getRank();
    for (unsigned dim = 0; dim < type.getRank(); ++dim) {
      if (read.isDimInBounds(dim))
        continue;
      unsigned place = memoryRank - type.getRank() + dim;
      Value end = getValueOrCreateConstantIndexOp(
          b, loc, memref::getMixedSize(b, loc, read.getBase(), place));
      Value isInside =
          programs::createIsInside(b, loc, type.getDimSize(dim), read.getIndices()[place], end);
      if (type.getRank() == 2)
        isInside = repeat(b, loc, isInside, type.getShape(), dim);
      Value padding = vector::BroadcastOp::create(b, loc, type, read.getPadding());
      value = arith::SelectOp::create(b, loc, isInside, value, padding);
    }
    read.replaceAllUsesWith(value);
    read.erase();
  }

  /// A vector along dimension `dim` of a tile, the same along the other one.
  static Value repeat(OpBuilder &b, Location loc, Value vector, ArrayRef<int64_t> shape,
                      unsigned dim) {
    Type element = cast<VectorType>(vector.getType()).getElementType();
    if (dim == 1)
      return vector::BroadcastOp::create(b, loc, VectorType::get(shape, element), vector);
    return repeatRows(b, loc, vector, shape);
  }

  scf::ForallOp first, second;
  int64_t mostRowBytes, columnMultiple;
  SameTile areSame;
  std::optional<Touched> own; // by the first one
  SmallVector<std::pair<vector::TransferReadOp, vector::TransferWriteOp>> forwarded;
};

struct FuseProgramsPass : attn::impl::AttnFuseProgramsBase<FuseProgramsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (rowBytes < 1 || columnMultiple < 1) {
      getOperation().emitError("expected row-bytes and column-multiple to be at least 1");
      return signalPassFailure();
    }
    auto programs = llvm::to_vector(getOperation().getOps<scf::ForallOp>());
    // With the next program that it can become one with, whatever stands between.
    for (size_t i = 0; i < programs.size(); ++i)
      for (size_t k = i + 1; k < programs.size(); ++k)
        if (Fuser(programs[i], programs[k], rowBytes, columnMultiple).run())
          break;
    IRRewriter rewriter(&getContext());
    memref::eraseDeadAllocAndStores(rewriter, getOperation());
  }
};

} // namespace
