// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dialects and passes that the tools know.

#ifndef ATTN_REGISTRATION_REGISTRATION_H
#define ATTN_REGISTRATION_REGISTRATION_H

namespace mlir {
class DialectRegistry;
}

namespace attn {
/// Adds every dialect that attention IR passes through, from L0 to LLVM, with
/// the external interface models that the passes need.
void registerDialects(mlir::DialectRegistry &registry);

/// Registers our passes and pipelines, and the upstream passes that go with
/// them, for use in textual pipelines.
void registerPasses();
} // namespace attn

#endif
