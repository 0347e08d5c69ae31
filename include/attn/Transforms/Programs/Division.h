// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Division in kernels by numbers that only the host knows.

#ifndef ATTN_TRANSFORMS_PROGRAMS_DIVISION_H
#define ATTN_TRANSFORMS_PROGRAMS_DIVISION_H

#include "mlir/IR/Builders.h"

namespace attn::programs {

/// Division of numbers below 2^31 by a divisor that the host knows: a product
/// and a shift (Granlund and Montgomery, "Division by invariant integers using
/// multiplication", 1994).
struct Divisor {
  mlir::Value divisor, factor, shift; // i32, i64, i64

  Divisor(mlir::OpBuilder &host, mlir::Location loc, mlir::Value size);

  mlir::Value divide(mlir::OpBuilder &b, mlir::Location loc, mlir::Value number) const;
};

} // namespace attn::programs

#endif
