// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Transforms/Programs/Division.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn::programs;

Divisor::Divisor(OpBuilder &host, Location loc, Value size) {
  auto constant = [&](int64_t value, unsigned bits) -> Value {
    return arith::ConstantIntOp::create(host, loc, value, bits);
  };
  divisor = arith::IndexCastOp::create(host, loc, host.getI32Type(), size);
  Value below = arith::SubIOp::create(host, loc, divisor, constant(1, 32));
  Value zeros = math::CountLeadingZerosOp::create(host, loc, below);
  Value bits = arith::SubIOp::create(host, loc, constant(63, 32), zeros);
  shift = arith::ExtUIOp::create(host, loc, host.getI64Type(), bits);
  Value power = arith::ShLIOp::create(host, loc, constant(1, 64), shift);
  Value wide = arith::ExtUIOp::create(host, loc, host.getI64Type(), divisor);
  // Without tiles nothing is divided, but the host must not divide by zero.
  Value safe = arith::MaxUIOp::create(host, loc, wide, constant(1, 64));
  factor = arith::CeilDivUIOp::create(host, loc, power, safe);
}

Value Divisor::divide(OpBuilder &b, Location loc, Value number) const {
  Value wide = arith::ExtUIOp::create(b, loc, b.getI64Type(), number);
  Value product = arith::MulIOp::create(b, loc, wide, factor);
  Value shifted = arith::ShRUIOp::create(b, loc, product, shift);
  return arith::TruncIOp::create(b, loc, b.getI32Type(), shifted);
}
