// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What it costs to sum the same values along two dimensions, in one pass and in
// two (attn-fuse-reductions), and the registers that a sum takes (attn-split-sums,
// attn-slice-sums).

#ifndef ATTN_LIB_TRANSFORMS_NEST_SUMCOSTS_H
#define ATTN_LIB_TRANSFORMS_NEST_SUMCOSTS_H

#include "Cascade.h"

namespace attn {

/// In two passes (apart), the shared values are computed twice and all tiles
/// are parallel; in one, only what neither sum runs over is.
struct SumCosts {
  double flopsApart = 0, flopsTogether = 0;
  double tilesApart = 1, tilesTogether = 1; ///< that can run at once
  double apart = 0, together = 0;           ///< seconds, estimated
};

/// The costs of a cascade along loop `loop` of `root` that has other sums.
/// Counts on a dynamic dimension that is summed over to have `assumedSize`
/// elements, and on any other to have 8, as the loop orders' model does.
SumCosts estimateSums(Cascade &cascade, const DimClasses &classes, mlir::linalg::GenericOp root,
                      unsigned loop, int64_t threads, int64_t assumedSize);

/// The columns of a carried value (its last dimension, where it is static and there is another
/// one for the rows), in registers of 32 bits; 1 of others.
int64_t getSumColumns(mlir::Value state);

} // namespace attn

#endif
