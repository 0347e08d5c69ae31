// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// --target=interpreter: hopper IR on the host, in several interleavings.

#ifndef ATTN_TOOLS_ATTN_RUN_INTERPRET_H
#define ATTN_TOOLS_ATTN_RUN_INTERPRET_H

#include "Arguments.h"
#include "Diagnostics.h"

namespace attn {

/// Runs `entry`, a function of memrefs and scalars without results, on
/// `arguments`, once for each interleaving; all must leave the same bits in the
/// memrefs. Writes the memrefs that --output names, and prints what was run.
llvm::Error interpret(mlir::func::FuncOp entry, Arguments &arguments, const Options &options,
                      const Diagnostics &diagnostics);

} // namespace attn

#endif
