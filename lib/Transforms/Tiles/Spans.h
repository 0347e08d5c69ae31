// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How far the integers of tile loops reach: whether an expression that is read
// as a number of any size stays within its type.

#ifndef ATTN_LIB_TRANSFORMS_TILES_SPANS_H
#define ATTN_LIB_TRANSFORMS_TILES_SPANS_H

#include "attn/Utils/Tiles.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Value.h"
#include <cstdint>
#include <limits>

namespace attn::tiles {

/// The least and the greatest value; the limits of 64 bits are no bounds.
struct Span {
  static constexpr int64_t kNoLeast = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kNoMost = std::numeric_limits<int64_t>::max();

  int64_t least = kNoLeast, most = kNoMost;

  static Span point(int64_t value) { return {value, value}; }
  /// All numbers of an integer type, or of a vector's elements.
  static Span ofType(mlir::Type type);

  Span operator+(Span other) const;
  Span operator*(int64_t factor) const;
  Span floorDiv(int64_t by) const; // by > 0
  bool isWithin(Span other) const { return least >= other.least && most <= other.most; }
};

/// The span of an affine expression, by those of its dimensions and symbols.
Span getSpan(mlir::AffineExpr e, llvm::function_ref<Span(mlir::AffineExpr)> leaf);

/// The span of a scalar: of loop variables, sizes and what is computed from them.
/// Of a vector that of its type.
Span getSpan(mlir::Value value);

/// Whether `value` bounds a loop or sizes a tensor.
bool isExtent(mlir::Value value);

} // namespace attn::tiles

#endif
