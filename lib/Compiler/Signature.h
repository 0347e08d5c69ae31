// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a function takes and gives, read off its IR.

#ifndef ATTN_LIB_COMPILER_SIGNATURE_H
#define ATTN_LIB_COMPILER_SIGNATURE_H

#include "attn/Compiler/Executable.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Arguments are tensors, memrefs or scalars; results are tensors.
llvm::Expected<Signature> makeSignature(mlir::func::FuncOp function);

/// Refuses sizes and strides that the code was not compiled for, before it runs.
/// `results` may be null.
llvm::Error checkValues(const Signature &signature, const TensorReference *arguments,
                        const TensorReference *results);

} // namespace attn

#endif
