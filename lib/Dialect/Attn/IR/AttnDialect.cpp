// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The attn dialect: registration, and what the declarative forms of its ops ask for.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace attn;

#include "attn/Dialect/Attn/IR/AttnDialect.cpp.inc"
#include "attn/Dialect/Attn/IR/AttnOpInterfaces.cpp.inc"

bool attn::runsRarely(Block &body) {
  return llvm::any_of(body.getOps<RunConditionOpInterface>(),
                      [](RunConditionOpInterface op) { return op.isRare(); });
}

/// Prints or parses ` scale 0.125` (attribute) or ` scale(%s : f32)` (operand).
static ParseResult parseScale(OpAsmParser &parser,
                              std::optional<OpAsmParser::UnresolvedOperand> &operand, Type &type,
                              FloatAttr &attr) {
  if (failed(parser.parseOptionalKeyword("scale")))
    return success();
  if (succeeded(parser.parseOptionalLParen())) {
    operand.emplace();
    return failure(parser.parseOperand(*operand) || parser.parseColonType(type) ||
                   parser.parseRParen());
  }
  double value;
  if (parser.parseFloat(value))
    return failure();
  attr = parser.getBuilder().getF64FloatAttr(value);
  return success();
}

static void printScale(OpAsmPrinter &printer, Operation *, Value operand, Type type,
                       FloatAttr attr) {
  if (operand)
    printer << "scale(" << operand << " : " << type << ")";
  else if (attr) {
    printer << "scale ";
    printer.printFloat(attr.getValue());
  }
}

/// Prints or parses the types of attn.scatter_add; those of the indices have the
/// shape of the values.
static ParseResult parseScatterTypes(OpAsmParser &parser, Type &values,
                                     SmallVectorImpl<Type> &indices,
                                     ArrayRef<OpAsmParser::UnresolvedOperand> operands, Type &table,
                                     Type &result) {
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseType(values) || parser.parseComma() || parser.parseType(table))
    return failure();
  auto vector = dyn_cast<VectorType>(values);
  if (!vector)
    return parser.emitError(loc, "expected a vector of values, got ") << values;
  indices.assign(operands.size(), vector.clone(parser.getBuilder().getIndexType()));
  return succeeded(parser.parseOptionalArrow()) ? parser.parseType(result) : success();
}

static void printScatterTypes(OpAsmPrinter &printer, Operation *, Type values, TypeRange,
                              OperandRange, Type table, Type result) {
  printer << values << ", " << table;
  if (result)
    printer << " -> " << result;
}

/// A region with a name scope of its own. Without one, a name used in front of
/// the op and defined nowhere else would be bound to a value inside of the
/// region, and dangle if the op then fails to parse.
static ParseResult parseIsolatedRegion(OpAsmParser &parser, Region &region) {
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseRegion(region, /*arguments=*/{},
                         /*enableNameShadowing=*/true))
    return failure();
  if (region.empty())
    return parser.emitError(loc, "expected a region with a block");
  return success();
}

static void printIsolatedRegion(OpAsmPrinter &printer, Operation *, Region &region) {
  printer.printRegion(region);
}

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnOps.cpp.inc"

namespace {
/// Attention may be inlined wherever it is called.
struct AttnInlinerInterface : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final { return true; }
};
} // namespace

void AttnDialect::initialize() {
  registerAttributes();
  addInterfaces<AttnInlinerInterface>();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Attn/IR/AttnOps.cpp.inc"
      >();
}
