// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builders of integer arithmetic that several passes make.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ARITHMETIC_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ARITHMETIC_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace attn::hopper {

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
  /// Of an index or a number of 32 bits, one of this arithmetic.
  Value take(Value x) const { return isNarrow ? narrow(x) : widen(x); }
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

/// A word of 32 bits for each `step` rows of a sum in memory (its last dimension but one).
class RowWords {
public:
  using Value = mlir::Value;

  /// Computes the sizes, on the host.
  RowWords(const Arithmetic &a, Value sum, int64_t step) : step(step) {
    size_t rank = mlir::cast<mlir::MemRefType>(sum.getType()).getRank();
    auto dim = [&](size_t number) -> Value {
      return mlir::memref::DimOp::create(a.b, a.loc, sum, int64_t(number));
    };
    for (size_t number = 0; number + 2 < rank; ++number)
      sizes.push_back(dim(number));
    sizes.push_back(a.divideUp(dim(rank - 2), a.number(step)));
  }

  Value createCount(const Arithmetic &a) const {
    Value count = sizes.front();
    for (Value size : llvm::ArrayRef(sizes).drop_front())
      count = a.multiply(count, size);
    return count;
  }

  /// The first word at leading indices of the sum.
  Value createFirst(const Arithmetic &a, mlir::ValueRange leading) const {
    Value first = a.number(0);
    for (auto [index, size] : llvm::zip_equal(leading, llvm::ArrayRef(sizes).drop_back()))
      first = a.add(a.multiply(first, a.take(size)), a.take(index));
    return a.multiply(first, a.take(sizes.back()));
  }

  /// The word of a row.
  Value createIndex(const Arithmetic &a, Value first, Value row) const {
    return a.add(first, a.divide(row, a.number(step)));
  }

private:
  int64_t step;
  llvm::SmallVector<Value> sizes; // leading ones, and words of the rows
};

} // namespace attn::hopper

#endif
