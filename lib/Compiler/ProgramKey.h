// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a compiled program is known by in the cache.

#ifndef ATTN_LIB_COMPILER_PROGRAMKEY_H
#define ATTN_LIB_COMPILER_PROGRAMKEY_H

#include "attn/Compiler/DiskCache.h"

namespace mlir {
class ModuleOp;
}

namespace attn {

struct PipelineOptions;

/// Of the module's text without locations, the options and the build of the
/// compiler; `kind` is what the program is for. Empty where the build is not
/// known: an old result could be taken for a new one.
std::string makeProgramKey(llvm::StringRef kind, mlir::ModuleOp module,
                           const PipelineOptions &options);

} // namespace attn

#endif
