// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arithmetic for attn.random_bits, whose description has the formulas.

#ifndef ATTN_CONVERSION_RANDOMBITS_H
#define ATTN_CONVERSION_RANDOMBITS_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <array>

namespace attn {

/// Of i and j, the bit that says which word of a call is a pair's.
constexpr int64_t kRandomWordBit = 8;

/// The words k of a head. `seed` and `offset` are of i64, the rest of i32; all are numbers, or
/// vectors of one shape.
std::array<mlir::Value, 4> buildRandomKey(mlir::ImplicitLocOpBuilder &b, mlir::Value seed,
                                          mlir::Value offset, mlir::Value batch, mlir::Value head);

/// The words of four pairs: `query` and `key` are without kRandomWordBit.
std::array<mlir::Value, 4> buildRandomWords(mlir::ImplicitLocOpBuilder &b,
                                            const std::array<mlir::Value, 4> &ofHead,
                                            mlir::Value query, mlir::Value key);

} // namespace attn

#endif
