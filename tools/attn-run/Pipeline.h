// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the file's IR to the LLVM dialect.

#ifndef ATTN_TOOLS_ATTN_RUN_PIPELINE_H
#define ATTN_TOOLS_ATTN_RUN_PIPELINE_H

#include <string>

namespace mlir {
class OpPassManager;
}

namespace attn {

struct PipelineRequest {
  /// Report every executed tile to the runtime's counters.
  bool countTiles = false;
  /// The loop order asked for, or nothing: the cost model chooses.
  std::string loopOrder;
};

/// Adds the passes that make a module executable on the CPU: inputs, then
/// outputs, as memrefs behind a C interface.
void buildPipeline(mlir::OpPassManager &manager,
                   const PipelineRequest &request);

} // namespace attn

#endif
