// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Flags that programs leave for others about the rows of a tensor.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROWFLAGS_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROWFLAGS_H

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Transforms/Programs/Arithmetic.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace attn::hopper {

/// A flag for each `step` rows of a tensor in memory (its last dimension but one).
class RowFlags {
public:
  using Value = mlir::Value;
  static constexpr int64_t kStep = kWarpgroupRows;

  /// Flags that are there already.
  explicit RowFlags(Value flags) : flags(flags) {}

  /// Makes them, on the host, `apart` elements of memory for each.
  static RowFlags create(const programs::Arithmetic &a, Value tensor, mlir::Type type,
                         int64_t step = kStep, int64_t apart = 1) {
    int64_t rank = mlir::cast<mlir::MemRefType>(tensor.getType()).getRank();
    llvm::SmallVector<Value> sizes, strides(size_t(rank - 1));
    for (int64_t number = 0; number + 1 < rank; ++number)
      sizes.push_back(mlir::memref::DimOp::create(a.b, a.loc, tensor, number));
    if (step > 1)
      sizes.back() = a.divideUp(sizes.back(), a.number(step));
    Value count = a.number(apart);
    for (auto [size, stride] : llvm::reverse(llvm::zip_equal(sizes, strides))) {
      stride = count;
      count = a.multiply(count, size);
    }
    Value memory = mlir::memref::AllocOp::create(
        a.b, a.loc, mlir::MemRefType::get(mlir::ShapedType::kDynamic, type), count);
    // Of one type, whatever the tensor's: kernels that do the same are one.
    llvm::SmallVector<int64_t> any(sizes.size(), mlir::ShapedType::kDynamic), steps(any);
    steps.back() = apart;
    auto layout = mlir::StridedLayoutAttr::get(a.b.getContext(), /*offset=*/0, steps);
    llvm::SmallVector<mlir::OpFoldResult> extents(sizes.begin(), sizes.end());
    llvm::SmallVector<mlir::OpFoldResult> mixed(strides.begin(), strides.end());
    mixed.back() = a.b.getIndexAttr(apart);
    Value view = mlir::memref::ReinterpretCastOp::create(
        a.b, a.loc, mlir::MemRefType::get(any, type, layout), memory,
        mlir::OpFoldResult(a.b.getIndexAttr(0)), extents, mixed);
    RowFlags made(view);
    made.allocation = memory;
    made.step = step;
    return made;
  }

  Value getMemory() const { return flags; }
  /// The memory of all flags, where they have just been made.
  Value getAllocation() const { return allocation; }

  /// Where the flag of a row is.
  llvm::SmallVector<Value> createIndices(const programs::Arithmetic &a, mlir::ValueRange leading,
                                         Value row) const {
    llvm::SmallVector<Value> indices(leading);
    indices.push_back(a.widen(a.divide(row, a.number(step))));
    return indices;
  }

private:
  Value flags, allocation;
  int64_t step = kStep;
};

} // namespace attn::hopper

#endif
