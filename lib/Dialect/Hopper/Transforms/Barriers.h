// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Named barriers that passes ask for.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_BARRIERS_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_BARRIERS_H

#include "attn/Dialect/Hopper/IR/Hopper.h"

namespace attn::hopper {

/// The first of `count` named barriers that nobody else in the CTA has. `body` is that of a launch,
/// or of a program that becomes one. Who asks last comes first, and so gets the lowest numbers.
inline mlir::Value createNamedBarriers(mlir::Block *body, mlir::Location loc, int64_t count) {
  mlir::OpBuilder b = mlir::OpBuilder::atBlockBegin(body);
  return NamedBarriersOp::create(b, loc, count);
}

} // namespace attn::hopper

#endif
