// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arithmetic for attn.random_bits, whose description has the formulas.

#ifndef ATTN_CONVERSION_RANDOMBITS_H
#define ATTN_CONVERSION_RANDOMBITS_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <array>

namespace attn {

/// Of i and j, the bit that says which word of a call is a pair's.
constexpr int64_t kRandomWordBit = 8;

/// Of j, the bit that says whether a pair has the word's halves swapped.
constexpr int64_t kRandomHalfBit = 1;

/// The words k of a head. `seed` and `offset` are of i64, the rest of i32; all are numbers, or
/// vectors of one shape.
std::array<mlir::Value, 4> buildRandomKey(mlir::ImplicitLocOpBuilder &b, mlir::Value seed,
                                          mlir::Value offset, mlir::Value batch, mlir::Value head);

/// The words of eight pairs: `query` is without kRandomWordBit, `key` without that and
/// kRandomHalfBit.
std::array<mlir::Value, 4> buildRandomWords(mlir::ImplicitLocOpBuilder &b,
                                            const std::array<mlir::Value, 4> &ofHead,
                                            mlir::Value query, mlir::Value key);

} // namespace attn

#endif
