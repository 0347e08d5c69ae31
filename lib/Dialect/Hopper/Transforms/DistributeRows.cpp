// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of a tile program to warpgroups. Which dimensions of which vectors are
// rows follows from TileClasses; types then shrink in place.

#include "Barriers.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/TileClasses.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERDISTRIBUTEROWS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numDistributed("hopper-distribute-rows", "distributed",
                                 "Programs whose rows are those of warpgroups");

namespace {

constexpr int64_t kMaxWarpgroups = 3;

class Distributor {
public:
  explicit Distributor(scf::ForallOp forall) : forall(forall) {}

  LogicalResult run() {
    if (failed(classes.buildSeparating(forall)) || failed(findRows()))
      return failure();
    if (separateReductions()) {
      classes = tiles::DimClasses();
      if (failed(classes.build(forall)) || failed(findRows()))
        return failure();
    }
    warpgroups = rows < 0 ? 1 : classes.extent(rows) / hopper::kWarpgroupRows;
    findSharedSums();
    if (failed(checkReductions()) || failed(checkOutside()))
      return failure();
    numDistributed.at(forall) << remark::metric("Warpgroups", warpgroups);
    shrinkTypes();
    nest();
    shiftOps();
    joinReductions();
    for (SharedSum &sum : sharedSums)
      divide(sum);
    return success();
  }

private:
  /// The class of dimension 0 of what is written, or, where no tile is, of what is added to
  /// tables; and of the tiles whose truth the warpgroups agree on.
  LogicalResult findRows() {
    rows = -1;
    int whole = -1; // of a vector that every warpgroup writes, for it has no rows for each
    Value first;
    // Whether a tile's rows are those of the tiles before it, or can be.
    auto take = [&](Value tile) {
      int cls = classes.dims(tile).front();
      if (first && cls != rows) {
        if (!areApart(cls, rows))
          return false;
        classes.unite(tile, 0, first, 0);
      }
      first = tile;
      rows = classes.dims(tile).front();
      return true;
    };
    WalkResult walk = forall.walk([&](vector::TransferWriteOp write) {
      VectorType type = write.getVectorType();
      if (type.getRank() == 0)
        return WalkResult::advance();
      if (type.getRank() == 1 && type.getDimSize(0) < hopper::kWarpgroupRows) {
        whole = classes.dims(write.getVector()).front();
        return WalkResult::advance();
      }
      if (take(write.getVector()))
        return WalkResult::advance();
      write.emitOpError("the first dimension of this tile is not the one of the "
                        "other tiles that are written: rows cannot be divided "
                        "among warpgroups");
      return WalkResult::interrupt();
    });
    if (walk.wasInterrupted())
      return failure();
    forall.walk([&](ScatterAddOp op) {
      if (!first)
        take(op.getValues());
    });
    forall.walk([&](hopper::ReportOp op) {
      if (op.getWarpgroups())
        take(op.getValue());
    });
    forall.walk([&](vector::MultiDimReductionOp op) {
      if (findAgreement(op))
        take(op.getSource());
    });
    if (rows < 0 && hasScalarResults())
      return success();
    if (rows < 0)
      rows = whole;
    if (rows < 0)
      return forall.emitOpError("writes no tile, so there are no rows to divide among warpgroups");
    int64_t count = classes.extent(rows);
    if (count % hopper::kWarpgroupRows || count > kMaxWarpgroups * hopper::kWarpgroupRows)
      return forall.emitOpError() << "has tiles of " << count
                                  << " rows; 64 for each of 1 to 3 warpgroups are needed";
    return success();
  }

  /// Whether two dimensions are as long, and no tile has both: what has one of them and
  /// what has the other one are divided alike, then.
  bool areApart(int a, int b) {
    if (classes.extent(a) != classes.extent(b))
      return false;
    auto hasBoth = [&](Value value) {
      SmallVector<int> dims = classes.dims(value);
      return llvm::is_contained(dims, a) && llvm::is_contained(dims, b);
    };
    WalkResult walk = forall.walk([&](Operation *op) {
      bool found = llvm::any_of(op->getResults(), hasBoth);
      for (Region &region : op->getRegions())
        found |= llvm::any_of(region.getArguments(), hasBoth);
      return found ? WalkResult::interrupt() : WalkResult::advance();
    });
    return !walk.wasInterrupted();
  }

  /// Whether all that is written are scalars that vectors lead to, which one
  /// warpgroup computes.
  bool hasScalarResults() {
    bool reduces = false, hasTiles = false;
    forall.walk([&](Operation *op) {
      reduces |= isa<vector::ReductionOp>(op);
      for (Type type : op->getResultTypes())
        if (auto vector = dyn_cast<VectorType>(type))
          hasTiles |= vector.getRank() > 1;
    });
    return reduces && !hasTiles;
  }

  /// The second half of whether any or all elements of a tile are true, whose
  /// first half is `columns`: all warpgroups can give their part of the answer.
  static vector::ReductionOp findAgreement(vector::MultiDimReductionOp columns) {
    using Kind = vector::CombiningKind;
    auto source = columns.getSourceVectorType();
    DenseElementsAttr start;
    if (source.getRank() != 2 || !source.getElementType().isInteger(1) ||
        columns.getReductionDims() != ArrayRef<int64_t>{0} || !columns->hasOneUse() ||
        !matchPattern(columns.getAcc(), m_Constant(&start)) || !start.isSplat())
      return nullptr;
    auto both = dyn_cast<vector::ReductionOp>(*columns->user_begin());
    bool all = columns.getKind() == Kind::AND;
    if (!both || both.getAcc() || both.getKind() != columns.getKind() ||
        (!all && columns.getKind() != Kind::OR) || start.getSplatValue<bool>() != all)
      return nullptr;
    return both;
  }

  /// Gives reductions over rows to a scalar vectors of their own, which every
  /// warpgroup has whole. Whether there were any.
  bool separateReductions() {
    SmallVector<vector::ReductionOp> reductions;
    forall.walk([&](vector::ReductionOp op) {
      if (llvm::is_contained(classes.dims(op.getVector()), rows))
        reductions.push_back(op);
    });
    bool changed = false;
    for (vector::ReductionOp op : reductions) {
      OpBuilder b(op);
      IRMapping mapping;
      if (Value own = cloneVector(b, op.getVector(), mapping)) {
        op.getVectorMutable().assign(own);
        changed = true;
      }
    }
    return changed;
  }

  /// A copy of what computes a vector; null where that is not just elementwise
  /// arithmetic on what is read.
  Value cloneVector(OpBuilder &b, Value value, IRMapping &mapping) {
    if (!isa<VectorType>(value.getType()) || mapping.contains(value))
      return mapping.lookupOrDefault(value);
    Operation *op = value.getDefiningOp();
    if (!op ||
        !(OpTrait::hasElementwiseMappableTraits(op) ||
          isa<vector::TransferReadOp, vector::StepOp, vector::BroadcastOp, arith::ConstantOp>(op)))
      return {};
    for (Value operand : op->getOperands())
      if (!cloneVector(b, operand, mapping))
        return {};
    return b.clone(*op, mapping)->getResult(0);
  }

  /// All warpgroups' parts of a tile's truth, for all tiles at one barrier.
  void joinReductions() {
    Value id;
    SmallVector<vector::MultiDimReductionOp> all;
    forall.walk([&](vector::MultiDimReductionOp columns) { all.push_back(columns); });
    for (vector::MultiDimReductionOp columns : all) {
      vector::ReductionOp both = findAgreement(columns);
      if (!both || columns.getSourceVectorType().getDimSize(0) != hopper::kWarpgroupRows)
        continue;
      OpBuilder b(both);
      if (!id)
        id = hopper::createNamedBarriers(forall.getBody(), both.getLoc(), /*count=*/1);
      auto joined = hopper::BarrierReduceOp::create(
          b, both.getLoc(), b.getI1Type(), id, columns.getSource(), warpgroups,
          columns.getKind() == vector::CombiningKind::AND);
      both.replaceAllUsesWith(joined.getResult());
      both.erase();
      columns.erase();
    }
  }

  /// A product that sums over the rows of all warpgroups, and is added to memory:
  /// each warpgroup computes a part of it from the rows of all of them. A part of its
  /// rows, if there are 64 for each, or else of its columns.
  struct SharedSum {
    vector::ContractionOp contract;
    TileAddOp add;
    vector::TransferReadOp read; // of the operand that has the columns
    bool readIsLhs;
    VectorType readType;        // with all rows
    SmallVector<Value> indices; // of all rows
  };

  /// Whether a warpgroup's part of the columns of a 16-bit tile is whole slabs, or
  /// divides one.
  bool isSlabs(int64_t columns) const {
    constexpr int64_t kSlab = 64;
    int64_t part = columns / warpgroups;
    return columns % warpgroups == 0 && part % 8 == 0 && (part % kSlab == 0 || kSlab % part == 0);
  }

  bool isRowPerWarpgroup(VectorType type) const {
    return type.getDimSize(0) == warpgroups * hopper::kWarpgroupRows;
  }

  void findSharedSums() {
    forall.walk([&](vector::ContractionOp contract) {
      SmallVector<AffineMap> maps = contract.getIndexingMapsArray();
      auto type = dyn_cast<VectorType>(contract.getResultType());
      if (warpgroups == 1 || !type || type.getRank() != 2 || maps[0].getNumDims() != 3 ||
          !(isRowPerWarpgroup(type) || isSlabs(type.getDimSize(1))) || !contract->hasOneUse() ||
          !matchPattern(contract.getAcc(), m_AnyZeroFloat()))
        return;
      auto add = dyn_cast<TileAddOp>(*contract->user_begin());
      unsigned columns = maps[2].getDimPosition(1);
      bool isLhs = maps[0].getResult(1).isFunctionOfDim(columns);
      Value whole = isLhs ? contract.getLhs() : contract.getRhs();
      auto isRows = [&](Value value) { return classes.dims(value).front() == rows; };
      // Rows come first in both, and neither dimension of the result is one.
      if (!add || !isRows(contract.getLhs()) || !isRows(contract.getRhs()) ||
          !maps[isLhs ? 0 : 1].getResult(1).isFunctionOfDim(columns))
        return;
      if (auto extension = whole.getDefiningOp<arith::ExtFOp>())
        whole = extension.getIn();
      auto read = whole.getDefiningOp<vector::TransferReadOp>();
      if (read && read.getPermutationMap().isMinorIdentity() && !read.getMask())
        sharedSums.push_back({contract, add, read, isLhs, read.getVectorType(),
                              SmallVector<Value>(read.getIndices())});
    });
  }

  /// After the types have shrunk: the computed operand of all warpgroups, and the one
  /// that is read; of one of the two, this warpgroup's columns.
  void divide(SharedSum &sum) {
    vector::ContractionOp contract = sum.contract;
    Location loc = contract.getLoc();
    auto resultType = cast<VectorType>(contract.getResultType());
    bool byRows = isRowPerWarpgroup(resultType);
    int64_t rowsOfAll = sum.readType.getDimSize(0);
    int64_t rows = byRows ? hopper::kWarpgroupRows : resultType.getDimSize(0);
    int64_t columns = byRows ? resultType.getDimSize(1) : resultType.getDimSize(1) / warpgroups;
    OpBuilder b(sum.read);
    AffineExpr d0, d1;
    bindDims(b.getContext(), d0, d1);
    auto shift = [&](Value &index, int64_t step) {
      index = cast<Value>(affine::makeComposedFoldedAffineApply(
          b, loc, d0 + d1 * step, {OpFoldResult(index), OpFoldResult(warpgroup)}));
    };
    if (!byRows)
      shift(sum.indices.back(), columns);
    Value part = vector::TransferReadOp::create(
        b, loc, VectorType::get({rowsOfAll, columns}, sum.readType.getElementType()),
        sum.read.getBase(), sum.indices, sum.read.getPadding(), sum.read.getPermutationMap(),
        sum.read.getInBoundsValues());
    b.setInsertionPoint(contract);
    auto withType = [](Type type, ArrayRef<int64_t> shape) {
      return VectorType::get(shape, cast<VectorType>(type).getElementType());
    };
    Value operand = sum.readIsLhs ? contract.getLhs() : contract.getRhs();
    if (operand.getDefiningOp<arith::ExtFOp>())
      part = arith::ExtFOp::create(b, loc, withType(operand.getType(), {rowsOfAll, columns}), part);
    Value other = sum.readIsLhs ? contract.getRhs() : contract.getLhs();
    Value all = tile::GatherOp::create(b, loc, withType(other.getType(), {rowsOfAll, rows}), other);
    Value zero =
        arith::ConstantOp::create(b, loc, b.getZeroAttr(withType(resultType, {rows, columns})));
    Value product = vector::ContractionOp::create(
        b, loc, sum.readIsLhs ? part : all, sum.readIsLhs ? all : part, zero,
        contract.getIndexingMaps(), contract.getIteratorTypes(), contract.getKind());
    b.setInsertionPoint(sum.add);
    SmallVector<Value> indices(sum.add.getIndices());
    shift(byRows ? indices[indices.size() - 2] : indices.back(), byRows ? rows : columns);
    TileAddOp::create(b, loc, TypeRange(), product, sum.add.getDest(), indices);
    sum.add.erase();
    contract.erase();
  }

  LogicalResult checkReductions() {
    if (warpgroups == 1)
      return success();
    WalkResult walk = forall.walk([&](Operation *op) {
      bool reduces = false;
      if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
        for (auto [d, cls] : llvm::enumerate(classes.dims(reduction.getSource())))
          reduces |= cls == rows && reduction.isReducedDim(d) && !findAgreement(reduction);
      } else if (auto reduction = dyn_cast<vector::ReductionOp>(op)) {
        reduces = llvm::is_contained(classes.dims(reduction.getVector()), rows);
      } else if (auto contract = dyn_cast<vector::ContractionOp>(op)) {
        if (llvm::any_of(sharedSums, [&](SharedSum &sum) { return sum.contract == op; }))
          return WalkResult::advance();
        for (auto [d, type] : llvm::enumerate(contract.getIteratorTypesArray()))
          if (type == vector::IteratorType::reduction)
            for (auto [e, result] :
                 llvm::enumerate(contract.getIndexingMapsArray()[0].getResults()))
              reduces |= result.isFunctionOfDim(d) && classes.dims(contract.getLhs())[e] == rows;
      }
      if (reduces)
        op->emitOpError("reduces over rows, which are divided among warpgroups");
      return reduces ? WalkResult::interrupt() : WalkResult::advance();
    });
    return failure(walk.wasInterrupted());
  }

  /// Tiles that are not computed in the loop keep their type.
  LogicalResult checkOutside() {
    WalkResult walk = forall.walk([&](Operation *op) {
      for (Value value : op->getOperands())
        if (!forall.getRegion().isAncestor(value.getParentRegion()) && shrink(value) &&
            shrink(value) != value.getType())
          return op->emitOpError("uses rows of a tile from outside of the loop, which cannot be "
                                 "divided among warpgroups"),
                 WalkResult::interrupt();
      return WalkResult::advance();
    });
    return failure(walk.wasInterrupted());
  }

  Type shrink(Value value) {
    auto type = dyn_cast<VectorType>(value.getType());
    if (!type)
      return {};
    SmallVector<int64_t> shape(type.getShape());
    for (auto [size, cls] : llvm::zip_equal(shape, classes.dims(value)))
      if (cls == rows)
        size = hopper::kWarpgroupRows;
    return VectorType::get(shape, type.getElementType());
  }

  void shrinkTypes() {
    // All types first: classes are looked up by value, not by type.
    SmallVector<std::pair<Value, Type>> changes;
    auto note = [&](Value value) {
      if (Type type = shrink(value); type && type != value.getType())
        changes.push_back({value, type});
    };
    forall.walk([&](Operation *op) {
      if (auto step = dyn_cast<vector::StepOp>(op); step && classes.dims(step).front() == rows)
        shifted.push_back(op);
      if (auto read = dyn_cast<vector::TransferReadOp>(op))
        noteTransfer(op, read.getVector(), read.getPermutationMap(), read.getIndicesMutable());
      if (auto write = dyn_cast<vector::TransferWriteOp>(op))
        noteTransfer(op, write.getVector(), write.getPermutationMap(), write.getIndicesMutable());
      for (Value result : op->getResults())
        note(result);
      for (Region &region : op->getRegions())
        for (Value argument : region.getArguments())
          note(argument);
    });
    for (auto [value, type] : changes) {
      value.setType(type);
      if (auto constant = value.getDefiningOp<arith::ConstantOp>())
        constant.setValueAttr(
            cast<DenseElementsAttr>(constant.getValue()).resizeSplat(cast<ShapedType>(type)));
    }
  }

  void noteTransfer(Operation *op, Value vector, AffineMap map, MutableOperandRange indices) {
    for (auto [d, cls] : llvm::enumerate(classes.dims(vector)))
      if (int dim = tiles::memoryDim(map, d); cls == rows && dim >= 0)
        offsets.push_back(&indices[dim]);
  }

  /// Puts the body under a loop over warpgroups.
  void nest() {
    Block *body = forall.getBody();
    OpBuilder b = OpBuilder::atBlockBegin(body);
    auto mapping = gpu::GPUWarpgroupMappingAttr::get(b.getContext(), gpu::MappingId::LinearDim0);
    auto inner = scf::ForallOp::create(b, forall.getLoc(),
                                       SmallVector<OpFoldResult>{b.getIndexAttr(warpgroups)},
                                       ValueRange(), b.getArrayAttr({mapping}));
    warpgroup = inner.getInductionVar(0);
    inner.getBody()->getOperations().splice(inner.getBody()->begin(), body->getOperations(),
                                            std::next(inner->getIterator()),
                                            body->getTerminator()->getIterator());
  }

  void shiftOps() {
    OpBuilder b(forall.getContext());
    AffineExpr i, w;
    bindDims(b.getContext(), i, w);
    for (OpOperand *operand : offsets) {
      b.setInsertionPoint(operand->getOwner());
      OpFoldResult index = affine::makeComposedFoldedAffineApply(
          b, operand->getOwner()->getLoc(), i + w * hopper::kWarpgroupRows,
          {OpFoldResult(operand->get()), OpFoldResult(warpgroup)});
      operand->set(cast<Value>(index));
    }
    for (Operation *step : shifted) {
      b.setInsertionPointAfter(step);
      Location loc = step->getLoc();
      Value first = affine::makeComposedAffineApply(
          b, loc, getAffineDimExpr(0, b.getContext()) * hopper::kWarpgroupRows,
          {OpFoldResult(warpgroup)});
      Value start = vector::BroadcastOp::create(b, loc, step->getResult(0).getType(), first);
      Value sum = arith::AddIOp::create(b, loc, step->getResult(0), start);
      step->getResult(0).replaceAllUsesExcept(sum, sum.getDefiningOp());
    }
  }

  scf::ForallOp forall;
  tiles::DimClasses classes;
  int rows = -1;
  int64_t warpgroups = 1;
  Value warpgroup;
  SmallVector<Operation *> shifted;
  SmallVector<OpOperand *> offsets;
  SmallVector<SharedSum> sharedSums;
};

/// Any, all, the largest or the smallest of rows that are all the same is one of
/// them: a tile that only repeats a value per column has no rows of its own.
void foldRepeatedRows(Operation *root) {
  using Kind = vector::CombiningKind;
  SmallVector<vector::MultiDimReductionOp> reductions;
  root->walk([&](vector::MultiDimReductionOp op) { reductions.push_back(op); });
  for (vector::MultiDimReductionOp op : reductions) {
    auto broadcast = op.getSource().getDefiningOp<vector::BroadcastOp>();
    auto from = broadcast ? dyn_cast<VectorType>(broadcast.getSourceType()) : VectorType();
    bool isIdempotent = llvm::is_contained(
        {Kind::AND, Kind::OR, Kind::MAXNUMF, Kind::MINNUMF, Kind::MAXSI, Kind::MINSI},
        op.getKind());
    if (!from || from.getRank() != 1 || op.getSourceVectorType().getRank() != 2 || !isIdempotent ||
        op.getReductionDims() != ArrayRef<int64_t>{0} || from != op.getType())
      continue;
    OpBuilder b(op);
    op.replaceAllUsesWith(vector::makeArithReduction(b, op.getLoc(), op.getKind(),
                                                     broadcast.getSource(), op.getAcc()));
    op.erase();
  }
}

struct DistributeRowsPass : attn::impl::HopperDistributeRowsBase<DistributeRowsPass> {
  void runOnOperation() override {
    foldRepeatedRows(getOperation());
    separateTileUses(getOperation());
    for (scf::ForallOp forall : programs::findPrograms(getOperation()))
      if (failed(Distributor(forall).run()))
        return signalPassFailure();
  }
};

} // namespace
