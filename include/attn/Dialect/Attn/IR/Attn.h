// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The attn dialect and its ops; AttnOps.td has their meaning.

#ifndef ATTN_DIALECT_ATTN_IR_ATTN_H
#define ATTN_DIALECT_ATTN_IR_ATTN_H

#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "attn/Dialect/Attn/IR/AttnDialect.h.inc"
#include "attn/Dialect/Attn/IR/AttnEnums.h.inc"
#include "attn/Dialect/Attn/IR/AttnInterfaces.h.inc"
#include "attn/Dialect/Attn/IR/AttnOpInterfaces.h.inc"

namespace attn {
/// `type`, a scalar's or a shaped one, with other elements.
mlir::Type withElement(mlir::Type type, mlir::Type element);
} // namespace attn

#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Attn/IR/AttnAttrs.h.inc"

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnOps.h.inc"

namespace attn {

/// Whether a program, or a launch of one, is for rare calls: with this body it ends at once in
/// others.
bool runsRarely(mlir::Block &body);

/// Arithmetic for the bounds of a part, in its place; what programs have in common in front of the
/// parallel loop around it.
std::pair<mlir::Value, mlir::Value> expandPart(PartOp part);

/// The treatment's name in the dependence graph: "grid-phases".
std::string getGraphName(LoopTreatment treatment);

} // namespace attn

#endif
