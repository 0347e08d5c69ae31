// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ReduceTile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

Value attn::reduceTile(OpBuilder &b, Location loc, vector::CombiningKind kind,
                       Value tile) {
  using Kind = vector::CombiningKind;
  auto type = cast<VectorType>(tile.getType());
  if (type.getRank() > 1) {
    unsigned width = type.getElementType().isIndex()
                         ? 64
                         : type.getElementType().getIntOrFloatBitWidth();
    APInt neutral = kind == Kind::AND     ? APInt::getAllOnes(width)
                    : kind == Kind::MINSI ? APInt::getSignedMaxValue(width)
                    : kind == Kind::MAXSI ? APInt::getSignedMinValue(width)
                                          : APInt::getZero(width);
    VectorType row =
        VectorType::get(type.getShape().back(), type.getElementType());
    Value start = arith::ConstantOp::create(
        b, loc, DenseElementsAttr::get(row, neutral));
    SmallVector<bool> reduced(type.getRank(), true);
    reduced.back() = false;
    tile = vector::MultiDimReductionOp::create(b, loc, tile, start, reduced,
                                               kind);
  }
  return vector::ReductionOp::create(b, loc, kind, tile);
}
