// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builders of integer arithmetic that several passes make.

#ifndef ATTN_TRANSFORMS_PROGRAMS_ARITHMETIC_H
#define ATTN_TRANSFORMS_PROGRAMS_ARITHMETIC_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace attn::programs {

/// Arithmetic: of indices on the host, on the device in 32 bits (a division in 64 is a call, and
/// roles that compute nothing have few registers).
struct Arithmetic {
  mlir::OpBuilder &b;
  mlir::Location loc;
  bool isNarrow;

  using Value = mlir::Value;

  Value number(int64_t value) const {
    if (isNarrow)
      return mlir::arith::ConstantIntOp::create(b, loc, value, 32);
    return mlir::arith::ConstantIndexOp::create(b, loc, value);
  }
  Value narrow(Value x) const { return cast(b.getI32Type(), x); }
  Value widen(Value x) const { return cast(b.getIndexType(), x); }
  Value add(Value x, Value y) const { return mlir::arith::AddIOp::create(b, loc, x, y); }
  Value subtract(Value x, Value y) const { return mlir::arith::SubIOp::create(b, loc, x, y); }
  Value multiply(Value x, Value y) const { return mlir::arith::MulIOp::create(b, loc, x, y); }
  Value divide(Value x, Value y) const { return mlir::arith::DivUIOp::create(b, loc, x, y); }
  Value divideUp(Value x, Value y) const { return divide(add(x, subtract(y, number(1))), y); }
  Value min(Value x, Value y) const { return mlir::arith::MinSIOp::create(b, loc, x, y); }
  Value max(Value x, Value y) const { return mlir::arith::MaxSIOp::create(b, loc, x, y); }
  Value both(Value x, Value y) const { return mlir::arith::AndIOp::create(b, loc, x, y); }
  Value differ(Value x, Value y) const { return mlir::arith::XOrIOp::create(b, loc, x, y); }
  Value select(Value condition, Value x, Value y) const {
    return mlir::arith::SelectOp::create(b, loc, condition, x, y);
  }
  Value isLess(Value x, Value y) const { return compare(mlir::arith::CmpIPredicate::slt, x, y); }
  Value isAtMost(Value x, Value y) const { return compare(mlir::arith::CmpIPredicate::sle, x, y); }
  Value isEqual(Value x, Value y) const { return compare(mlir::arith::CmpIPredicate::eq, x, y); }

private:
  Value cast(mlir::Type type, Value x) const {
    return x.getType() == type ? x : mlir::arith::IndexCastOp::create(b, loc, type, x).getResult();
  }
  Value compare(mlir::arith::CmpIPredicate predicate, Value x, Value y) const {
    return mlir::arith::CmpIOp::create(b, loc, predicate, x, y);
  }
};

} // namespace attn::programs

#endif
