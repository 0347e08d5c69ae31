// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Words in memory by which CTAs that add to a sum know of each other.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROWWORDS_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROWWORDS_H

#include "Arithmetic.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace attn::hopper {

/// A word of 16 bits for each `kStep` rows of a sum in memory (its last dimension but one).
class RowWords {
public:
  using Value = mlir::Value;
  static constexpr int64_t kStep = kWarpgroupRows;

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

  /// Where the word of a row is, which is a multiple of `kStep`.
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
