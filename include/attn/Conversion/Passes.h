// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions between the levels below the tile program. See Passes.td.

#ifndef ATTN_CONVERSION_PASSES_H
#define ATTN_CONVERSION_PASSES_H

#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/Pass/Pass.h"

namespace attn {
/// The memref that a tensor is passed as: dynamic offset and strides with a
/// unit innermost stride.
mlir::MemRefType boundaryMemRefType(mlir::RankedTensorType type);

/// Lets one-shot bufferization handle attn.scatter_add.
void registerBufferizableOpInterfaceExternalModels(mlir::DialectRegistry &registry);

#define GEN_PASS_DECL
#include "attn/Conversion/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

#endif
