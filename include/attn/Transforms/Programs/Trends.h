// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How values change with a coordinate of a tile.

#ifndef ATTN_TRANSFORMS_PROGRAMS_TRENDS_H
#define ATTN_TRANSFORMS_PROGRAMS_TRENDS_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>

namespace attn::programs {

/// How a value changes with a coordinate: it grows (1), stays (0) or falls (-1), or none
/// of these everywhere.
using Trend = std::optional<int>;

/// How values change with one coordinate.
class Trends {
public:
  explicit Trends(mlir::Value coordinate) { known[coordinate] = 1; }

  Trend find(mlir::Value value);

private:
  Trend ofOp(mlir::Operation *op);

  llvm::DenseMap<mlir::Value, Trend> known;
};

} // namespace attn::programs

#endif
