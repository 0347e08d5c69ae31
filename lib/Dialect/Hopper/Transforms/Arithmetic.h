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

/// A word of 16 bits for each `kStep` rows of a sum in memory (its last dimension but one).
class RowWords {
public:
  using Value = mlir::Value;
  static constexpr int64_t kStep = 64;

  /// Words that are there already.
  explicit RowWords(Value words) : words(words) {}

  /// The first elements of these rows of an output that is as large as the sum.
  static RowWords createIn(const Arithmetic &a, Value output) {
    auto metadata = mlir::memref::ExtractStridedMetadataOp::create(a.b, a.loc, output);
    llvm::SmallVector<Value> sizes(metadata.getSizes()), strides(metadata.getStrides());
    sizes.pop_back();
    strides.pop_back();
    sizes.back() = a.divideUp(sizes.back(), a.number(kStep));
    strides.back() = a.multiply(strides.back(), a.number(kStep));
    return RowWords(createView(a, output, metadata.getOffset(), sizes, strides));
  }

  /// Memory of their own, on the host.
  static RowWords create(const Arithmetic &a, Value sum, mlir::Type type) {
    int64_t rank = mlir::cast<mlir::MemRefType>(sum.getType()).getRank();
    llvm::SmallVector<Value> sizes, strides(size_t(rank - 1));
    for (int64_t number = 0; number + 1 < rank; ++number)
      sizes.push_back(mlir::memref::DimOp::create(a.b, a.loc, sum, number));
    sizes.back() = a.divideUp(sizes.back(), a.number(kStep));
    Value count = a.number(1);
    for (auto [size, stride] : llvm::reverse(llvm::zip_equal(sizes, strides))) {
      stride = count;
      count = a.multiply(count, size);
    }
    Value memory = mlir::memref::AllocOp::create(
        a.b, a.loc, mlir::MemRefType::get(mlir::ShapedType::kDynamic, type), count);
    RowWords made(createView(a, memory, a.number(0), sizes, strides));
    made.allocation = memory;
    return made;
  }

  Value getMemory() const { return words; }
  /// All words side by side, where they have just got memory of their own.
  Value getAllocation() const { return allocation; }

  /// Where the word of a row is, which is a multiple of `kStep`; numbers are narrow.
  llvm::SmallVector<Value> createIndices(const Arithmetic &a, mlir::ValueRange leading,
                                         Value row) const {
    llvm::SmallVector<Value> indices(leading);
    indices.push_back(a.widen(a.divide(row, a.number(kStep))));
    return indices;
  }

private:
  /// Of one type, whatever memory it is of: kernels that do the same are one.
  static Value createView(const Arithmetic &a, Value memory, Value offset,
                          llvm::ArrayRef<Value> sizes, llvm::ArrayRef<Value> strides) {
    constexpr int64_t kAny = mlir::ShapedType::kDynamic;
    llvm::SmallVector<int64_t> any(sizes.size(), kAny);
    auto layout = mlir::StridedLayoutAttr::get(a.b.getContext(), kAny, any);
    auto element = mlir::cast<mlir::MemRefType>(memory.getType()).getElementType();
    auto type = mlir::MemRefType::get(any, element, layout);
    return mlir::memref::ReinterpretCastOp::create(a.b, a.loc, type, memory, offset, sizes,
                                                   strides);
  }

  Value words, allocation;
};

} // namespace attn::hopper

#endif
