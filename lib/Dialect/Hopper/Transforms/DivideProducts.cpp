// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// hopper-divide-products: products of wide tiles, piece by piece.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERDIVIDEPRODUCTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numDivided("hopper-divide-products", "divided",
                             "Products that became loops over pieces of their operands");
static attn::Left numWhole("hopper-divide-products", "not divided",
                           "Products of wide tiles that are loaded whole");

namespace {

/// An operand that is loaded, or rows of such a tile.
struct Loaded {
  tile::LoadOp load;
  tile::RowsOp rows; // null for all

  static std::optional<Loaded> match(Value operand) {
    auto rows = operand.getDefiningOp<tile::RowsOp>();
    if (auto load = (rows ? rows.getSource() : operand).getDefiningOp<tile::LoadOp>())
      return Loaded{load, rows};
    return std::nullopt;
  }

  static tile::SmemType withColumns(tile::SmemType type, int64_t columns) {
    return tile::SmemType::get(type.getContext(), {type.getRows(), columns}, type.getElementType(),
                               type.getSwizzle(), type.getSlabRows());
  }

  /// `columns` columns of it, `further` behind its first.
  Value loadPiece(OpBuilder &b, Value further, int64_t columns) {
    Location loc = load.getLoc();
    SmallVector<Value> indices(load.getIndices());
    indices.back() = arith::AddIOp::create(b, loc, indices.back(), further);
    Value piece = tile::LoadOp::create(b, loc, withColumns(load.getTile().getType(), columns),
                                       load.getSource(), indices);
    if (!rows)
      return piece;
    return tile::RowsOp::create(b, loc, withColumns(rows.getTile().getType(), columns), piece,
                                rows.getOffset());
  }

  void eraseIfUnused() {
    if (rows && rows->use_empty())
      rows.erase();
    if (load->use_empty())
      load.erase();
  }
};

struct DivideProductsPass : attn::impl::HopperDivideProductsBase<DivideProductsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (columns < 16 || columns % 16) {
      getOperation().emitError("expected pieces of a multiple of 16 columns, got ")
          << int64_t(columns);
      return signalPassFailure();
    }
    SmallVector<tile::MmaOp> products;
    getOperation().walk([&](tile::MmaOp product) { products.push_back(product); });
    for (tile::MmaOp product : products)
      divide(product);
  }

  void divide(tile::MmaOp product) {
    std::optional<Loaded> a = Loaded::match(product.getA()), right = Loaded::match(product.getB());
    int64_t all = product.getB().getType().getColumns();
    if (all <= columns)
      return;
    if (!a || !right || product.getTransposeA() || !product.getTransposeB()) {
      if (right)
        numWhole.at(product) << remark::reason(
            "it sums along the rows of an operand, or one is computed");
      return;
    }
    numDivided.at(product) << remark::metric("Columns", all);
    OpBuilder b(product);
    Location loc = product.getLoc();
    auto number = [&](int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); };
    auto loop = scf::ForOp::create(b, loc, number(0), number(all), number(columns),
                                   product.getAccumulator());
    OpBuilder inner = OpBuilder::atBlockBegin(loop.getBody());
    Value further = loop.getInductionVar();
    Value ofA = a->loadPiece(inner, further, columns);
    Value ofB = right->loadPiece(inner, further, columns);
    auto sum =
        tile::MmaOp::create(inner, loc, ofA, ofB, loop.getRegionIterArg(0),
                            /*transposeA=*/false, /*transposeB=*/true, product.getTf32Attr());
    scf::YieldOp::create(inner, loc, sum.getResult());
    product.replaceAllUsesWith(loop.getResult(0));
    product.erase();
    a->eraseIfUnused();
    right->eraseIfUnused();
  }
};

} // namespace
