// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See HopperForms.h.

#include "HopperForms.h"
#include "HopperSchedules.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Utils/Slices.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn;

int64_t attn::findColumns(Operation *root) {
  int64_t columns = 0;
  root->walk([&](linalg::GenericOp op) {
    if (op.getNumReductionLoops() == 0)
      return;
    for (Value input : op.getInputs())
      if (auto type = dyn_cast<RankedTensorType>(input.getType());
          type && type.getRank() >= 2 && !type.isDynamicDim(type.getRank() - 1) &&
          getBits(type.getElementType()) == 16)
        columns = std::max(columns, type.getShape().back());
  });
  return columns;
}

/// Whether `value` depends on one of the statement's last two loops.
static bool variesInTile(Value value, linalg::GenericOp statement) {
  auto isIn = [&](Operation *op) { return op->getBlock() == statement.getBody(); };
  return followsFrom(
      value,
      [&](Value each) {
        auto index = each.getDefiningOp<linalg::IndexOp>();
        return index && isIn(index) && index.getDim() + 2 >= statement.getNumLoops();
      },
      isIn);
}

/// What a value in a statement's body follows from, in that body.
static SetVector<Operation *> getSlice(Value value, linalg::GenericOp op) {
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.filter = [&](Operation *each) { return each->getBlock() == op.getBody(); };
  (void)getBackwardSlice(value, &slice, options);
  return slice;
}

/// What a statement does for rare rows only, which a kernel of their own computes
/// (hopper-version-programs): the first of two exponentials that it chooses from, and the choice.
static SetVector<Operation *> findRare(linalg::GenericOp op) {
  SetVector<Operation *> rare;
  for (auto select : op.getBody()->getOps<arith::SelectOp>()) {
    if (!select.getTrueValue().getDefiningOp<math::ExpOp>() ||
        !select.getFalseValue().getDefiningOp<math::ExpOp>())
      continue;
    rare.insert(select);
    for (Value value : {select.getCondition(), select.getTrueValue()})
      rare.set_union(getSlice(value, op));
    rare.set_subtract(getSlice(select.getFalseValue(), op));
  }
  return rare;
}

/// How many operations per element the longest statement along rows and columns has, of
/// those that count.
static unsigned countOperations(
    Operation *root,
    llvm::function_ref<bool(Operation &)> counts = [](Operation &) { return true; }) {
  unsigned most = 0;
  root->walk([&](linalg::GenericOp op) {
    if (op.getNumReductionLoops() > 0)
      return;
    // What a head or a batch has once costs nothing per element.
    SetVector<Operation *> rare = findRare(op);
    unsigned count = llvm::count_if(*op.getBody(), [&](Operation &inner) {
      return counts(inner) && !rare.contains(&inner) &&
             llvm::any_of(inner.getOperands(), [&](Value operand) {
               return isa<BlockArgument>(operand) || variesInTile(operand, op);
             });
    });
    most = std::max(most, count);
  });
  return most;
}

bool attn::isLong(Operation *root) {
  constexpr unsigned kLong = 12;
  return countOperations(root) > kLong;
}

bool attn::keepsFmaUnitsBusy(Operation *root) {
  // A score that is scaled, its exponential or its derivative have fewer.
  constexpr unsigned kFew = 3;
  auto isArithmetic = [](Operation &op) {
    return op.getNumResults() == 1 && isa<FloatType>(op.getResult(0).getType()) &&
           !isa<arith::SelectOp, tensor::ExtractOp>(op);
  };
  return countOperations(root, isArithmetic) > kFew;
}

/// Whether statements along rows and columns read elements of some type by row or column.
static bool readsInTile(Operation *root, llvm::function_ref<bool(Type)> counts) {
  WalkResult walk = root->walk([&](tensor::ExtractOp extract) {
    auto op = dyn_cast<linalg::GenericOp>(extract->getParentOp());
    bool reads =
        op && op.getNumReductionLoops() == 0 && counts(extract.getType()) &&
        llvm::any_of(extract.getIndices(), [&](Value index) { return variesInTile(index, op); });
    return reads ? WalkResult::interrupt() : WalkResult::advance();
  });
  return walk.wasInterrupted();
}

static bool drawsBits(Operation *root) {
  return root->walk([](RandomBitsOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

bool attn::needsRegisters(Operation *root) {
  return readsInTile(root, [](Type) { return true; }) || isLong(root) || drawsBits(root);
}

bool attn::hasPlainScores(Operation *root) {
  return !keepsFmaUnitsBusy(root) && !isLong(root) &&
         !readsInTile(root, [](Type type) { return isa<FloatType>(type); });
}

bool attn::readsTiles(Operation *root) {
  return root
      ->walk([&](tensor::ExtractOp extract) {
        auto op = dyn_cast<linalg::GenericOp>(extract->getParentOp());
        if (!op || op.getNumReductionLoops() > 0 || extract.getIndices().size() < 2 ||
            getBits(extract.getType()) != 16)
          return WalkResult::advance();
        auto indices = extract.getIndices().take_back(2);
        bool isTile = variesInTile(indices[0], op) && variesInTile(indices[1], op);
        return isTile ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Whether a value depends on the last two loops, both.
static bool dependsOnRowAndColumn(Value value, linalg::GenericOp op) {
  SetVector<Operation *> slice = getSlice(value, op);
  auto uses = [&](unsigned fromEnd) {
    return llvm::any_of(slice, [&](Operation *each) {
      auto index = dyn_cast<linalg::IndexOp>(each);
      return index && index.getDim() + fromEnd == op.getNumLoops();
    });
  };
  return op.getNumLoops() >= 2 && uses(1) && uses(2);
}

MaskForm attn::findMaskForm(Operation *root) {
  MaskForm form;
  root->walk([&](arith::SelectOp select) {
    auto op = dyn_cast<linalg::GenericOp>(select->getParentOp());
    if (!op || !dependsOnRowAndColumn(select.getCondition(), op))
      return;
    // Dropout leaves out no tile.
    SetVector<Operation *> condition = getSlice(select.getCondition(), op);
    if (llvm::any_of(condition, llvm::IsaPred<RandomBitsOp>))
      return;
    form.isMasked = true;
    auto isBound = [&](Operation *each) {
      auto compare = dyn_cast<arith::CmpIOp>(each);
      return compare && compare.getLhs().getType().isIndex() &&
             compare.getPredicate() != arith::CmpIPredicate::eq &&
             compare.getPredicate() != arith::CmpIPredicate::ne &&
             dependsOnRowAndColumn(compare, op);
    };
    form.isBanded |= llvm::count_if(condition, isBound) >= 2;
  });
  return form;
}

bool attn::numbersColumns(Operation *root) {
  WalkResult walk = root->walk([&](Operation *conversion) {
    auto op = dyn_cast_or_null<linalg::GenericOp>(conversion->getParentOp());
    if (!op || !isa<arith::SIToFPOp, arith::UIToFPOp>(conversion))
      return WalkResult::advance();
    Value number = conversion->getOperand(0);
    bool isColumns = llvm::any_of(getSlice(number, op), [&](Operation *each) {
      auto index = dyn_cast<linalg::IndexOp>(each);
      return index && index.getDim() + 1 == op.getNumLoops();
    });
    return isColumns && !dependsOnRowAndColumn(number, op) ? WalkResult::interrupt()
                                                           : WalkResult::advance();
  });
  return walk.wasInterrupted();
}

bool attn::hasFewRows(ModuleOp module) {
  constexpr int64_t kMostRows = 64; // of one warpgroup
  SmallVector<FoldOp> folds;
  module.walk([&](FoldOp fold) { folds.push_back(fold); });
  if (folds.size() != 1 || folds.front().getState().empty())
    return false;
  // A maximum, a sum: what is carried for each row has no columns.
  auto rank = [](Value state) { return cast<RankedTensorType>(state.getType()).getRank(); };
  Value ofRows = *llvm::min_element(folds.front().getState(),
                                    [&](Value a, Value b) { return rank(a) < rank(b); });
  auto type = cast<RankedTensorType>(ofRows.getType());
  return type.getRank() > 0 && !type.isDynamicDim(type.getRank() - 1) &&
         type.getShape().back() <= kMostRows;
}

std::optional<StreamLength> attn::findStreamLength(ModuleOp module, bool ofGradient) {
  SmallVector<FoldOp> folds;
  module.walk([&](FoldOp fold) {
    if (!ofGradient || addsSums(fold))
      folds.push_back(fold);
  });
  if (folds.size() != 1)
    return std::nullopt;
  Value extent = folds.front().getExtent();
  StreamLength length{getConstantIntValue(extent)};
  if (length.number)
    return length;
  auto dim = extent.getDefiningOp<tensor::DimOp>();
  std::optional<int64_t> at = dim ? dim.getConstantIndex() : std::nullopt;
  Value source = dim ? dim.getSource() : Value();
  // Heads that are split leave the other dimensions as they are.
  if (auto expand = at ? source.getDefiningOp<tensor::ExpandShapeOp>() : nullptr)
    for (auto [from, group] : llvm::enumerate(expand.getReassociationIndices()))
      if (group == ReassociationIndices{*at}) {
        source = expand.getSrc();
        at = from;
        break;
      }
  auto argument = dyn_cast_if_present<BlockArgument>(source);
  if (!argument || !at || !isa<func::FuncOp>(argument.getOwner()->getParentOp()))
    return std::nullopt;
  return StreamLength{std::nullopt, argument.getArgNumber(), *at};
}
