// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parts of loops.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace attn;

std::pair<Value, Value> attn::expandPart(PartOp part) {
  Location loc = part.getLoc();
  Value lower = part.getLower(), upper = part.getUpper(), parts = part.getParts();
  OpBuilder b(part);
  auto forall = part->getParentOfType<scf::ForallOp>();
  auto isOutside = [&](Value value) {
    return !forall->isAncestor(value.getParentBlock()->getParentOp());
  };
  if (forall && isOutside(lower) && isOutside(upper) && isOutside(parts))
    b.setInsertionPoint(forall);
  auto index = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(b, loc, value);
  };
  Value step = index(int64_t(part.getStep()));
  Value length = b.createOrFold<arith::SubIOp>(loc, upper, lower);
  length = b.createOrFold<arith::MaxSIOp>(loc, length, index(0));
  Value tiles = b.createOrFold<arith::CeilDivUIOp>(loc, length, step);
  Value most = b.createOrFold<arith::CeilDivUIOp>(loc, tiles, parts);
  b.setInsertionPoint(part);
  Value first = b.createOrFold<arith::MulIOp>(loc, part.getPart(), most);
  first = b.createOrFold<arith::MinUIOp>(loc, first, tiles);
  Value begin = b.createOrFold<arith::MulIOp>(loc, first, step);
  begin = b.createOrFold<arith::AddIOp>(loc, lower, begin);
  begin = b.createOrFold<arith::MinSIOp>(loc, begin, upper);
  Value end = b.createOrFold<arith::MulIOp>(loc, most, step);
  end = b.createOrFold<arith::AddIOp>(loc, begin, end);
  end = b.createOrFold<arith::MinSIOp>(loc, end, upper);
  part.getBegin().replaceAllUsesWith(begin);
  part.getEnd().replaceAllUsesWith(end);
  part.erase();
  return {begin, end};
}
