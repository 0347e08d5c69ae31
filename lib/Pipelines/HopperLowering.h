// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The passes from nests of statements to the protocol form of the hopper dialect.

#ifndef ATTN_LIB_PIPELINES_HOPPERLOWERING_H
#define ATTN_LIB_PIPELINES_HOPPERLOWERING_H

#include "HopperTable.h"
#include "mlir/Pass/PassManager.h"

namespace attn {

/// What the passes are told: a row of the table, with options in the place of what they override.
struct Lowering {
  Schedule schedule;
  /// CTAs of a persistent launch that run at a time on a multiprocessor each; 0 launches one per
  /// tile.
  int64_t ctas;
  int64_t cluster, producerRegisters;
  /// What a score reads by row and column is copied by TMA.
  bool copiesTiles;
  /// What several CTAs add to memory has one order.
  bool ordersSums;
  /// Maxima are fixed for short streams, too.
  bool fixesShort;
};

void addLowering(mlir::OpPassManager &pm, const Lowering &lowering);

} // namespace attn

#endif
