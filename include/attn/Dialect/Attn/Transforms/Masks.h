// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What masks are proved to keep.

#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_MASKS_H
#define ATTN_DIALECT_ATTN_TRANSFORMS_MASKS_H

#include "mlir/IR/Region.h"

namespace attn {

/// Whether a mask, of (b, h, i, j, captures...), or none where the region is empty, keeps a key
/// for each row whatever is captured: the first one, or, if there are no more rows than keys, the
/// one of the row's own number.
bool keepsKeys(mlir::Region &mask);

/// Whether a mask is the same for all rows of a head.
bool ignoresRows(mlir::Region &mask);

} // namespace attn

#endif
