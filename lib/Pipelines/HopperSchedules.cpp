// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sizes of tiles for folds of several products. See HopperSchedules.h.

#include "HopperSchedules.h"
#include "HopperForms.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Statement.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

namespace {

/// What a fold gets whose carried sums have at most `columns` columns together,
/// and number `sums`. A thread of a warpgroup holds, of 64 rows, columns / 2 sums
/// and, for each streamed element, 1/2 of a score, 1/2 of its derivative and 1/4
/// or 1/2 of both rounded: at most 216 of its 240 registers. The last two sums are those of two
/// warpgroups (hopper-divide-sums).
struct TileSizes {
  unsigned sums;
  int64_t columns, rows, stream;
  int64_t streamOfHeavy; // where there is more to compute between the products
};
constexpr TileSizes kTileSizes[] = {
    {1, 64, 128, 128, 96}, {1, 128, 128, 96, 80}, {1, 192, 128, 64, 64}, {1, 256, 128, 64, 32},
    {2, 128, 128, 96, 64}, {2, 256, 128, 64, 48}, {2, 512, 64, 64, 64},
};
/// Streamed elements of a fold that also adds to memory: the rows of a product, of one
/// warpgroup's part of it where its carried sums have at most `kFewCarriedColumns`, no
/// score is needed twice and no mask reads memory.
constexpr int64_t kAddedRows = 64, kMostAddedRows = 128;
constexpr int64_t kFewCarriedColumns = 128;
/// Streamed elements of a fold that carries nothing: a sum of its tiles may be carried in
/// their place (attn-carry-sums).
constexpr int64_t kMappedStream = 96;
/// Streamed elements of a fold with one product: maxima and sums of rows, for few of them.
constexpr int64_t kRareStream = 64;
/// What the carried sums of such a fold may have together.
constexpr int64_t kMostCarriedColumns = 256, kMostColumns = 128;

/// A sum over products of two operands, neither of which has all dimensions.
bool isMatrixProduct(GenericOp op) {
  if (op.getNumReductionLoops() == 0 || op.getNumDpsInputs() != 2)
    return false;
  return llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *input) {
    return op.getMatchingIndexingMap(input).getNumResults() < op.getNumLoops();
  });
}

unsigned countProducts(FoldOp fold) {
  return llvm::count_if(fold.getBody().getOps<GenericOp>(), isMatrixProduct);
}

/// Whether more than one statement reads a product: the derivative of a score, too.
bool keepsProducts(FoldOp fold) {
  return llvm::any_of(fold.getBody().getOps<GenericOp>(),
                      [](GenericOp op) { return isMatrixProduct(op) && !op->hasOneUse(); });
}

/// Whether a fold also maps sums: products that it does not carry.
bool addsSums(FoldOp fold) {
  ValueRange yielded = fold.getYield()->getOperands();
  return countProducts(fold) > 2 &&
         llvm::any_of(yielded.drop_front(fold.getState().size()), [](Value value) {
           auto sum = value.getDefiningOp<GenericOp>();
           return sum && isMatrixProduct(sum);
         });
}

void assign(FoldOp fold, int64_t ofOneSum, int64_t ofTwoSums) {
  unsigned products = countProducts(fold);
  int64_t rows = 0, stream = 0;
  if (products == 0) {
    rows = hopper::kProgramRows; // a fold without products of matrices
  } else if (products == 1) {
    rows = hopper::kWarpgroupRows;
    stream = kRareStream;
  } else if (products == 2 && fold.getState().empty()) {
    stream = ofOneSum ? ofOneSum : kMappedStream;
  } else if (products > 2) {
    unsigned sums = 0;
    int64_t columns = 0;
    for (auto [state, yielded] : llvm::zip(fold.getState(), fold.getYield()->getOperands())) {
      auto sum = yielded.getDefiningOp<GenericOp>();
      if (!sum || !isMatrixProduct(sum))
        continue;
      ++sums;
      columns += cast<RankedTensorType>(state.getType()).getShape().back();
    }
    for (const TileSizes &sizes : kTileSizes)
      if (rows == 0 && sizes.sums == std::max(sums, 1u) && columns <= sizes.columns) {
        rows = sizes.rows;
        stream = needsRegisters(fold) ? sizes.streamOfHeavy : sizes.stream;
      }
    if (int64_t wanted = sums > 1 ? ofTwoSums : ofOneSum)
      stream = wanted;
    if (addsSums(fold)) {
      std::optional<int64_t> extent = getConstantIntValue(fold.getExtent());
      bool hasRows = !extent || *extent >= kMostAddedRows;
      bool isWide =
          columns <= kFewCarriedColumns && hasRows && !keepsProducts(fold) && !needsRegisters(fold);
      stream = isWide ? kMostAddedRows : kAddedRows;
    }
  }
  Builder b(fold.getContext());
  if (rows)
    fold->setAttr(kBlockMAttr, b.getI64IntegerAttr(rows));
  if (stream)
    fold->setAttr(kBlockNAttr, b.getI64IntegerAttr(stream));
}

} // namespace

bool attn::canAddSums(ModuleOp module) {
  auto columnsOf = [](Value value) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
    return shape.empty() ? 1 : shape.back();
  };
  WalkResult walk = module.walk([&](FoldOp fold) {
    // A table at computed indices is added to by a kernel of its own.
    if (llvm::any_of(fold.getBody().getOps<GenericOp>(), [](GenericOp op) {
          return op.getNumReductionLoops() > 1 && matchScatterSum(op);
        }))
      return WalkResult::interrupt();
    if (!::addsSums(fold))
      return WalkResult::advance();
    ValueRange yielded = fold.getYield()->getOperands();
    unsigned states = fold.getState().size();
    int64_t all = 0;
    // Fewer rows or streamed elements get smaller tiles: one warpgroup, or no rows of
    // a product.
    auto atLeast = [](int64_t size, int64_t least) {
      return ShapedType::isDynamic(size) || size >= least;
    };
    std::optional<int64_t> extent = getConstantIntValue(fold.getExtent());
    bool fits = !isLong(fold) && atLeast(extent.value_or(ShapedType::kDynamic), kAddedRows);
    for (Value value : yielded.take_front(states)) {
      ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
      all += columnsOf(value);
      fits &= columnsOf(value) <= kMostColumns && shape.size() >= 2 &&
              atLeast(shape[shape.size() - 2], hopper::kWarpgroupRows + 1);
    }
    for (Value value : yielded.drop_front(states)) {
      // Each of two warpgroups has half of the columns: a slab, or half of one.
      auto sum = value.getDefiningOp<GenericOp>();
      fits &= sum && isMatrixProduct(sum) && (columnsOf(value) == 64 || columnsOf(value) == 128);
    }
    return fits && all <= kMostCarriedColumns ? WalkResult::advance() : WalkResult::interrupt();
  });
  return !walk.wasInterrupted();
}

bool attn::addsSums(Operation *root) {
  return root
      ->walk([](FoldOp fold) {
        return ::addsSums(fold) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

bool attn::hasGradient(Operation *function) {
  return function
      ->walk([](FoldOp fold) {
        return countProducts(fold) > 2 ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

void attn::assignTiles(ModuleOp module, int64_t ofOneSum, int64_t ofTwoSums) {
  module.walk([&](FoldOp fold) { assign(fold, ofOneSum, ofTwoSums); });
}

void attn::printTileSizes(llvm::raw_ostream &os) {
  os << "## Tiles of folds that recompute what they sum up\n\n"
     << "| sums | their columns up to | rows | streamed | streamed, with more to compute |\n"
     << "|---|---|---|---|---|\n";
  for (const TileSizes &row : kTileSizes)
    os << "| " << row.sums << " | " << row.columns << " | " << row.rows << " | " << row.stream
       << " | " << row.streamOfHeavy << " |\n";
  os << "\nA fold that also adds to memory streams " << kAddedRows << " or " << kMostAddedRows
     << "; one that carries nothing " << kMappedStream << "; one with one product " << kRareStream
     << ".\n";
}
