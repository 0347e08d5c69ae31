// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ops that add to memory, or to a tensor, at an offset or at computed indices.

#include "attn/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// TileAddOp
//===----------------------------------------------------------------------===//

LogicalResult TileAddOp::verify() {
  auto dest = cast<ShapedType>(getDest().getType());
  auto values = cast<VectorType>(getValues().getType());
  if (int64_t(getIndices().size()) != dest.getRank())
    return emitOpError("expected an index for each dimension of ")
           << dest << ", got " << getIndices().size();
  if (values.getElementType() != dest.getElementType() || values.getRank() > dest.getRank())
    return emitOpError("expected a tile of ")
           << dest.getElementType() << " of at most rank " << dest.getRank() << ", got " << values;
  bool isTensor = isa<RankedTensorType>(dest);
  if (isTensor != bool(getResult()))
    return emitOpError("expected a result exactly where the destination is a tensor");
  if (isTensor && getResult().getType() != dest)
    return emitOpError("expected a result of type ") << dest << ", got " << getResult().getType();
  return success();
}

void TileAddOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (!isa<MemRefType>(getDest().getType()))
    return;
  OpOperand &dest = getDestMutable();
  effects.emplace_back(MemoryEffects::Read::get(), &dest);
  effects.emplace_back(MemoryEffects::Write::get(), &dest);
}

//===----------------------------------------------------------------------===//
// ScatterAddOp
//===----------------------------------------------------------------------===//

LogicalResult ScatterAddOp::verify() {
  auto table = cast<ShapedType>(getTable().getType());
  auto values = cast<VectorType>(getValues().getType());
  if (getIndices().empty() || int64_t(getIndices().size()) != table.getRank())
    return emitOpError("expected a vector of indices for each dimension of the "
                       "table, got ")
           << getIndices().size() << " for " << table;
  if (values.getElementType() != table.getElementType())
    return emitOpError("expected values of the table's type ")
           << table.getElementType() << ", got " << values;
  for (Value index : getIndices())
    if (cast<VectorType>(index.getType()).getShape() != values.getShape())
      return emitOpError("expected indices of the shape of ")
             << values << ", got " << index.getType();
  bool isTensor = isa<RankedTensorType>(table);
  if (isTensor != bool(getResult()))
    return emitOpError("expected a result exactly where the table is a tensor");
  if (isTensor && getResult().getType() != table)
    return emitOpError("expected a result of type ") << table << ", got " << getResult().getType();
  return success();
}

void ScatterAddOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (!isa<MemRefType>(getTable().getType()))
    return;
  OpOperand &table = getTableMutable();
  effects.emplace_back(MemoryEffects::Read::get(), &table);
  effects.emplace_back(MemoryEffects::Write::get(), &table);
}

//===----------------------------------------------------------------------===//
// ScatterSumOp
//===----------------------------------------------------------------------===//

LogicalResult ScatterSumOp::verify() {
  auto dest = cast<ShapedType>(getDest().getType());
  auto values = cast<ShapedType>(getValues().getType());
  bool isTensor = isa<RankedTensorType>(dest);
  if (isTensor != isa<RankedTensorType>(values))
    return emitOpError("expected values and destination to be both tensors or both memrefs, got ")
           << values << " and " << dest;
  if (values.getElementType() != dest.getElementType())
    return emitOpError("expected values of the destination's type ")
           << dest.getElementType() << ", got " << values;
  if (isTensor != bool(getResult()))
    return emitOpError("expected a result exactly where the destination is a tensor");
  if (isTensor && getResult().getType() != dest)
    return emitOpError("expected a result of type ") << dest << ", got " << getResult().getType();
  return success();
}

LogicalResult ScatterSumOp::verifyRegions() {
  auto isIndex = [](Type type) { return type.isIndex(); };
  auto dest = cast<ShapedType>(getDest().getType());
  auto values = cast<ShapedType>(getValues().getType());
  TypeRange arguments = getAt().front().getArgumentTypes(), yielded = getIndices().getTypes();
  if (int64_t(arguments.size()) != values.getRank() || !llvm::all_of(arguments, isIndex))
    return emitOpError("expected a region that takes an index for each dimension of ")
           << values << ", got one that takes (" << arguments << ")";
  if (int64_t(yielded.size()) != dest.getRank() || !llvm::all_of(yielded, isIndex))
    return emitOpError("expected a region that yields an index for each dimension of ")
           << dest << ", got one that yields (" << yielded << ")";
  return success();
}

void ScatterSumOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (!isa<MemRefType>(getDest().getType()))
    return;
  OpOperand &dest = getDestMutable();
  effects.emplace_back(MemoryEffects::Read::get(), &getValuesMutable());
  effects.emplace_back(MemoryEffects::Read::get(), &dest);
  effects.emplace_back(MemoryEffects::Write::get(), &dest);
}
