// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a compiled program is known by in the cache.

#ifndef ATTN_COMPILER_PROGRAMKEY_H
#define ATTN_COMPILER_PROGRAMKEY_H

#include "llvm/Support/Error.h"
#include <string>

namespace mlir {
class ModuleOp;
}

namespace attn {

struct PipelineOptions;

namespace target {
class Target;
struct CodeOptions;
} // namespace target

/// Of the target (Target::getKey), the module's text without locations, the options and the build
/// of the compiler. Empty where the build is not known: an old result could be taken for a new
/// one.
llvm::Expected<std::string> makeProgramKey(const target::Target &target, mlir::ModuleOp module,
                                           const PipelineOptions &options,
                                           const target::CodeOptions &code);

} // namespace attn

#endif
