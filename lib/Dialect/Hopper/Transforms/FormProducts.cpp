// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Contractions to products of the tensor core: which operand is A, what comes
// from shared memory, how it is stored.

#include "TileLoads.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERFORMPRODUCTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numFormed("hopper-form-products", "formed", "Contractions for the tensor core");
static attn::Done numReduced("hopper-form-products", "reduced", "Inner products of rows");

namespace {

/// An operand of a contraction: its 16-bit source where it has one.
struct Operand {
  Value value;
  Value source;                // without the extension to f32
  vector::TransferReadOp read; // where the source is read from memory
  tile::GatherOp gather;       // where it is the rows of all warpgroups
  bool isTransposed = false;   // stored k x m, or n x k
};

Operand trace(Value value, ArrayRef<target::MmaAtom> atoms) {
  Operand operand{value, value, nullptr, value.getDefiningOp<tile::GatherOp>()};
  if (auto extension = value.getDefiningOp<arith::ExtFOp>())
    operand.source = extension.getIn();
  Type element = getElementTypeOrSelf(operand.source.getType());
  if (!target::findMmaAtom(atoms, element))
    operand.source = {};
  else if (auto read = operand.source.getDefiningOp<vector::TransferReadOp>())
    if (isa<MemRefType>(read.getBase().getType()) && read.getPermutationMap().isMinorIdentity() &&
        !read.getMask())
      operand.read = read;
  return operand;
}

/// The index of a 2-D map's result that is `dim`.
std::optional<unsigned> position(AffineMap map, unsigned dim) {
  for (auto [r, result] : llvm::enumerate(map.getResults()))
    if (result.isFunctionOfDim(dim))
      return r;
  return std::nullopt;
}

/// Tiles in shared memory, by the read that they stand for and whether all
/// warpgroups' parts lie in one tile.
using Loads = llvm::DenseMap<std::pair<Operation *, unsigned>, Value>;

class Former {
public:
  Former(vector::ContractionOp contract, ArrayRef<target::MmaAtom> atoms, int64_t tf32,
         Loads &loads)
      : contract(contract), atoms(atoms), tf32(tf32), loads(loads), b(contract) {}

  LogicalResult run() {
    if (isInnerProduct()) {
      numReduced.at(contract);
      reduceRows();
      return success();
    }
    Operand left, right;
    if (failed(match(left, right)))
      return failure();
    numFormed.at(contract);
    Type element = getElementTypeOrSelf(right.source.getType());
    Value a;
    if (left.gather) {
      a = share(left.gather, element);
    } else if (left.read) {
      a = load(left, /*perWarpgroup=*/true);
    } else if (left.source && getElementTypeOrSelf(left.source.getType()) == element) {
      a = left.source;
    } else {
      auto type = cast<VectorType>(left.value.getType());
      a = arith::TruncFOp::create(b, contract.getLoc(), VectorType::get(type.getShape(), element),
                                  left.value);
    }
    Value tile = load(right, /*perWarpgroup=*/false);
    IntegerAttr terms;
    if (tf32 && element.isF32())
      terms = b.getI64IntegerAttr(tf32);
    auto product = tile::MmaOp::create(b, contract.getLoc(), a, tile, contract.getAcc(),
                                       left.isTransposed, right.isTransposed, terms);
    if (failed(tile::verifyProduct(
            product, atoms, a.getType(), cast<tile::SmemType>(tile.getType()),
            product.getAccumulator().getType(), left.isTransposed, right.isTransposed)))
      return failure();
    contract.replaceAllUsesWith(product.getResult());
    contract.erase();
    return success();
  }

private:
  /// Products of the rows of two tiles, each with itself: nothing is used twice.
  bool isInnerProduct() {
    SmallVector<AffineMap> maps = contract.getIndexingMapsArray();
    auto types = contract.getIteratorTypesArray();
    return types.size() == 2 && types[0] == vector::IteratorType::parallel &&
           types[1] == vector::IteratorType::reduction && maps[0].isIdentity() &&
           maps[1].isIdentity() && contract.getKind() == vector::CombiningKind::ADD;
  }

  void reduceRows() {
    Location loc = contract.getLoc();
    Value product = arith::MulFOp::create(b, loc, contract.getLhs(), contract.getRhs());
    Value sum = vector::MultiDimReductionOp::create(
        b, loc, product, contract.getAcc(), SmallVector<bool>{false, true}, contract.getKind());
    contract.replaceAllUsesWith(sum);
    contract.erase();
  }

  LogicalResult match(Operand &left, Operand &right) {
    auto resultType = dyn_cast<VectorType>(contract.getResultType());
    SmallVector<AffineMap> maps = contract.getIndexingMapsArray();
    auto types = contract.getIteratorTypesArray();
    if (!resultType || resultType.getRank() != 2 || types.size() != 3 ||
        contract.getKind() != vector::CombiningKind::ADD || !maps[2].isProjectedPermutation())
      return contract.emitOpError("the tensor core has products of two matrices, added up");
    unsigned m = maps[2].getDimPosition(0), n = maps[2].getDimPosition(1), k = 3 - m - n;
    left = trace(contract.getLhs(), atoms);
    right = trace(contract.getRhs(), atoms);
    AffineMap leftMap = maps[0], rightMap = maps[1];
    if (!position(leftMap, m)) {
      std::swap(left, right);
      std::swap(leftMap, rightMap);
    }
    if (!position(leftMap, m) || !position(leftMap, k) || !position(rightMap, k) ||
        !position(rightMap, n))
      return contract.emitOpError("the tensor core has products of two matrices, added up");
    left.isTransposed = *position(leftMap, m) == 1;
    right.isTransposed = *position(rightMap, n) == 0;
    if (!right.source)
      return contract.emitOpError("the right operand has elements of ")
             << getElementTypeOrSelf(right.value.getType()) << "; the tensor core takes "
             << target::listOperands(atoms);
    const target::MmaAtom &atom =
        *target::findMmaAtom(atoms, getElementTypeOrSelf(right.source.getType()));
    if (!target::isType(atom.accumulator, resultType.getElementType()))
      return contract.emitOpError()
             << "the tensor core accumulates in " << target::getName(atom.accumulator) << ", got "
             << resultType.getElementType();
    if (!right.read)
      return contract.emitOpError("the right operand is computed in registers; the tensor core "
                                  "takes it from shared memory, so it must be read from a memref");
    if (left.isTransposed && !left.read && !left.gather)
      return contract.emitOpError("the left operand is computed in registers and transposed; the "
                                  "tensor core transposes tiles in shared memory only");
    for (const Operand &operand : {left, right})
      if (operand.read && findRows(operand.read) % 8)
        return contract.emitOpError("tiles in shared memory have a multiple of 8 rows, got ")
               << findRows(operand.read);
    return success();
  }

  /// Of a tile as it lies in memory.
  static int64_t findRows(vector::TransferReadOp read) {
    return read.getVectorType().getDimSize(read.getPermutationMap().isMinorIdentity() ? 0 : 1);
  }

  /// Rows of all warpgroups, rounded, through shared memory.
  Value share(tile::GatherOp gather, Type element) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(gather);
    Value part = gather.getPart();
    auto type = cast<VectorType>(part.getType());
    if (type.getElementType() != element)
      part = arith::TruncFOp::create(b, gather.getLoc(), VectorType::get(type.getShape(), element),
                                     part);
    auto whole = cast<VectorType>(gather.getWhole().getType());
    int64_t rows = whole.getDimSize(0), columns = whole.getDimSize(1);
    tile::SmemType tile = hopper::getTileType(VectorType::get({rows, type.getDimSize(1)}, element));
    Value all = tile::ShareOp::create(b, gather.getLoc(), tile, part);
    if (columns == type.getDimSize(1))
      return all;
    auto own = tile::SmemType::get({rows, columns}, element, tile.getSwizzle());
    scf::ForallOp warpgroups = hopper::getWarpgroupLoop(gather);
    Value first = affine::makeComposedAffineApply(b, gather.getLoc(),
                                                  getAffineDimExpr(0, b.getContext()) * columns,
                                                  {OpFoldResult(warpgroups.getInductionVar(0))});
    return tile::ColumnsOp::create(b, gather.getLoc(), own, all, first);
  }

  Value load(Operand &operand, bool perWarpgroup) {
    OpBuilder::InsertionGuard guard(b);
    vector::TransferReadOp read = operand.read;
    Value &known = loads[{read, unsigned(perWarpgroup)}];
    if (!known) {
      b.setInsertionPoint(read);
      known = hopper::loadTile(b, read, perWarpgroup);
    }
    return known;
  }

  vector::ContractionOp contract;
  ArrayRef<target::MmaAtom> atoms;
  int64_t tf32;
  Loads &loads;
  OpBuilder b;
};

struct FormProductsPass : attn::impl::HopperFormProductsBase<FormProductsPass> {
  using Base::Base;
  void runOnOperation() override {
    SmallVector<vector::ContractionOp> contracts;
    getOperation().walk([&](vector::ContractionOp op) { contracts.push_back(op); });
    ArrayRef<target::MmaAtom> atoms(target::sm90::kAtoms);
    if (byWarps)
      atoms = tile::kAtoms;
    Loads loads;
    for (vector::ContractionOp contract : contracts)
      if (failed(Former(contract, atoms, tf32, loads).run()))
        return signalPassFailure();
    // Reads whose tile is in shared memory now.
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) { ops.push_back(op); });
    for (Operation *op : llvm::reverse(ops))
      if (isOpTriviallyDead(op) || (isa<vector::TransferReadOp>(op) && op->use_empty()))
        op->erase();
  }
};

} // namespace
