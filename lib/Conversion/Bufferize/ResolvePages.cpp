// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles of sequences in pages: copied to scratch, each row from where a table says.

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNRESOLVEPAGES
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numTiles("attn-resolve-pages", "tiles", "Tiles that are read row by row");
static attn::Done numElements("attn-resolve-pages", "elements", "Elements that are looked up");

namespace {
/// Dimensions of sequences.
constexpr unsigned kSequence = 0, kHead = 1, kRow = 2, kColumn = 3;

/// Reads at one place of the program.
class PageReader {
public:
  PageReader(PagesOp pages, Operation *position) : pages(pages), b(position->getLoc(), position) {}

  void replace(vector::TransferReadOp read) {
    auto type = read.getVectorType();
    AffineMap map = read.getPermutationMap();
    // What the tile has of rows and columns.
    int64_t sizes[] = {1, 1};
    for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
      unsigned at = cast<AffineDimExpr>(expr).getPosition() - kRow;
      sizes[at] = type.getDimSize(dim);
    }
    auto scratchType = MemRefType::get({sizes[0], sizes[1]}, type.getElementType());
    Value scratch;
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(findTop(read));
      scratch = memref::AllocaOp::create(b, scratchType);
    }
    Value zero = index(0), one = index(1);
    auto loop = scf::ForOp::create(b, zero, index(sizes[0]), one);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      copyRow(read, sizes[1], loop.getInductionVar(), scratch);
    }
    // The permutation of the read, of what the scratch has.
    SmallVector<AffineExpr> exprs;
    for (AffineExpr expr : map.getResults())
      exprs.push_back(b.getAffineDimExpr(cast<AffineDimExpr>(expr).getPosition() - kRow));
    auto own = vector::TransferReadOp::create(
        b, type, scratch, ValueRange{zero, zero}, read.getPadding(),
        AffineMap::get(2, 0, exprs, b.getContext()), SmallVector<bool>(exprs.size(), true));
    read.replaceAllUsesWith(own.getResult());
    read.erase();
  }

  void replace(memref::LoadOp load) {
    OperandRange at = load.getIndices();
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(load.getType()));
    auto branch = scf::IfOp::create(b, load.getType(), isThere(at[kSequence], at[kRow]),
                                    /*withElseRegion=*/true);
    b.setInsertionPointToStart(branch.thenBlock());
    SmallVector<Value> place = find(at, at[kRow]);
    scf::YieldOp::create(b, memref::LoadOp::create(b, pages.getPool(), place).getResult());
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, zero);
    load.replaceAllUsesWith(branch.getResult(0));
    load.erase();
  }

private:
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, value); }

  /// Scratch is made once for each worker.
  static Block *findTop(Operation *op) {
    Operation *around = op->getParentOp();
    while (!isa<scf::ForallOp, func::FuncOp>(around))
      around = around->getParentOp();
    return &around->getRegion(0).front();
  }

  /// Whether a sequence has a row.
  Value isThere(Value sequence, Value row) {
    Value length = memref::LoadOp::create(b, pages.getLengths(), sequence);
    length = getValueOrCreateCastToIndexLike(b, b.getLoc(), b.getIndexType(), length);
    Value entries = getValueOrCreateConstantIndexOp(
        b, b.getLoc(), memref::getMixedSize(b, b.getLoc(), pages.getTable(), 1));
    Value space = arith::MulIOp::create(b, entries, index(pages.getPageSize()));
    Value rows = arith::MinSIOp::create(b, length, space);
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, rows);
  }

  /// Where a row of a sequence that has it lies in the pool.
  SmallVector<Value> find(ValueRange at, Value row) {
    Value size = index(pages.getPageSize());
    Value number = arith::DivUIOp::create(b, row, size);
    Value entry = memref::LoadOp::create(b, pages.getTable(), ValueRange{at[kSequence], number});
    entry = getValueOrCreateCastToIndexLike(b, b.getLoc(), b.getIndexType(), entry);
    return {entry, at[kHead], arith::RemUIOp::create(b, row, size), at[kColumn]};
  }

  void copyRow(vector::TransferReadOp read, int64_t columns, Value r, Value scratch) {
    auto rowType = VectorType::get({columns}, read.getVectorType().getElementType());
    Value row = arith::AddIOp::create(b, read.getIndices()[kRow], r);
    Value zero = index(0);
    auto branch =
        scf::IfOp::create(b, isThere(read.getIndices()[kSequence], row), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    auto write = [&](Value value) {
      vector::TransferWriteOp::create(b, value, scratch, ValueRange{r, zero},
                                      AffineMap::get(2, 0, b.getAffineDimExpr(1)),
                                      ArrayRef<bool>{true});
    };
    b.setInsertionPointToStart(branch.thenBlock());
    SmallVector<Value> place = find(read.getIndices(), row);
    std::optional<int64_t> column = getConstantIntValue(place[kColumn]);
    bool isInside = column && *column + columns <= pages.getPoolType().getDimSize(kColumn);
    write(vector::TransferReadOp::create(b, rowType, pages.getPool(), place, read.getPadding(),
                                         AffineMap::get(4, 0, b.getAffineDimExpr(kColumn)),
                                         ArrayRef<bool>{isInside}));
    b.setInsertionPointToStart(branch.elseBlock());
    write(arith::ConstantOp::create(b, b.getZeroAttr(rowType)));
  }

  PagesOp pages;
  ImplicitLocOpBuilder b;
};

struct ResolvePages : attn::impl::AttnResolvePagesBase<ResolvePages> {
  void runOnOperation() override {
    SmallVector<PagesOp> views;
    getOperation()->walk([&](PagesOp op) { views.push_back(op); });
    for (PagesOp pages : views) {
      if (!isa<MemRefType>(pages.getResult().getType()))
        continue;
      for (Operation *user : llvm::make_early_inc_range(pages->getUsers()))
        if (failed(replace(pages, user)))
          return signalPassFailure();
      pages.erase();
    }
  }

  static LogicalResult replace(PagesOp pages, Operation *user) {
    if (auto read = dyn_cast<vector::TransferReadOp>(user);
        read && !read.getMask() &&
        llvm::all_of(read.getPermutationMap().getResults(), [](AffineExpr expr) {
          auto dim = dyn_cast<AffineDimExpr>(expr);
          return dim && dim.getPosition() >= kRow;
        })) {
      numTiles.at(read);
      PageReader(pages, read).replace(read);
      return success();
    }
    if (auto load = dyn_cast<memref::LoadOp>(user)) {
      numElements.at(load);
      PageReader(pages, load).replace(load);
      return success();
    }
    InFlightDiagnostic error = pages.emitOpError("is read in a way that finds no rows in pages");
    error.attachNote(user->getLoc()) << "by '" << user->getName() << "'";
    return error;
  }
};
} // namespace
