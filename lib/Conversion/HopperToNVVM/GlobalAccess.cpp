// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Addresses of global memory, 64 bits wide, and the instructions that access one element or some
// words, with a predicate where they may lie outside.

#include "GlobalAccess.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::hopper;

/// Of how many elements, up to `most`, the starts of rows are a multiple, looking through
/// views: memory that is not strided starts at a multiple of more.
static int64_t findAlignment(Value memref, OpFoldResult lastIndex, int64_t most) {
  int64_t start = getConstantIntValue(lastIndex).value_or(1);
  while (auto view = memref.getDefiningOp<memref::SubViewOp>()) {
    if (!view.hasUnitStride())
      return 1;
    start += getConstantIntValue(view.getMixedOffsets().back()).value_or(1);
    memref = view.getSource();
  }
  auto type = cast<MemRefType>(memref.getType());
  if (!type.getLayout().isIdentity() || type.isDynamicDim(type.getRank() - 1))
    return 1;
  int64_t aligned = 1;
  while (aligned < most && type.getShape().back() % (2 * aligned) == 0 &&
         start % (2 * aligned) == 0)
    aligned *= 2;
  return aligned;
}

FailureOr<KernelLowering::Access> KernelLowering::makeAccess(Operation *op, Value memref,
                                                             ValueRange indices, VectorType type,
                                                             AffineMap map, ArrayRef<bool> inBounds,
                                                             Layout layout) {
  auto memrefType = cast<MemRefType>(memref.getType());
  SmallVector<int64_t> staticStrides;
  int64_t staticOffset;
  if (failed(memrefType.getStridesAndOffset(staticStrides, staticOffset)) ||
      !memrefType.getElementType().isIntOrIndexOrFloat())
    return op->emitOpError() << "expects a strided memref of scalars, got " << memrefType;
  if (Attribute space = memrefType.getMemorySpace(); space && space != b.getI64IntegerAttr(1))
    return op->emitOpError() << "expects global memory, got " << memrefType;
  Access access;
  access.registers = registers;
  access.element = memrefType.getElementType();
  int64_t bytes = std::max<int64_t>(
      access.element.isIndex() ? 8 : llvm::divideCeil(access.element.getIntOrFloatBitWidth(), 8),
      1);
  Value source = scalar(memref);
  auto metadata = memref::ExtractStridedMetadataOp::create(b, source);
  SmallVector<Value> strides(metadata.getStrides());
  for (auto [stride, known] : llvm::zip_equal(strides, staticStrides))
    if (!ShapedType::isDynamic(known))
      stride = constantIndex(known);
  SmallVector<Value> starts;
  for (Value index : indices)
    starts.push_back(scalar(index));
  auto bytesTo = [&](ValueRange indices) {
    Value position = ShapedType::isDynamic(staticOffset) ? Value(metadata.getOffset())
                                                         : constantIndex(staticOffset);
    for (auto [index, stride] : llvm::zip_equal(indices, strides))
      position = arith::AddIOp::create(b, position, arith::MulIOp::create(b, index, stride));
    return arith::MulIOp::create(b, position, constantIndex(bytes));
  };
  auto toI64 = [&](Value value) { return arith::IndexCastOp::create(b, b.getI64Type(), value); };
  Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, source);
  Value zero = constantIndex(0), tile = arith::AddIOp::create(b, start, bytesTo(starts));
  for (unsigned d = 0; d < map.getNumResults(); ++d) {
    auto dimension = dyn_cast<AffineDimExpr>(map.getResult(d));
    bool isRow = layout == Layout::Rows || (layout == Layout::Tile && d == 0);
    if (!dimension) // the same for all rows, or columns
      continue;
    unsigned m = dimension.getPosition();
    Value tileStart = starts[m];
    Value first = arith::AddIOp::create(b, tileStart, isRow ? firstRow : firstColumn);
    starts[m] = first;
    if (isRow)
      tile =
          arith::OrIOp::create(b, tile, arith::MulIOp::create(b, strides[m], constantIndex(bytes)));
    int64_t count = isRow ? registers.rows : type.getShape().back() / kLanesOfRow;
    access.isContiguous |= !isRow && staticStrides[m] == 1;
    auto &offsets = isRow ? access.rowOffsets : access.columnOffsets;
    for (int64_t e = 0; e < count; ++e) {
      int64_t scale = (isRow ? rowOffset(e) : columnOffset(e, piece)) * bytes;
      Value offset = ShapedType::isDynamic(staticStrides[m])
                         ? Value(arith::MulIOp::create(b, strides[m], constantIndex(scale)))
                         : constantIndex(scale * staticStrides[m]);
      offsets.push_back(toI64(offset));
    }
    if (inBounds[d])
      continue;
    // first + e < size as e < size - first, in 32 bits as for masks.
    Value size = memrefType.isDynamicDim(m) ? Value(metadata.getSizes()[m])
                                            : constantIndex(memrefType.getDimSize(m));
    Value room = arith::SubIOp::create(b, size, first);
    room = arith::MaxSIOp::create(b, room, zero);
    room = toI32(arith::MinSIOp::create(b, room, constantIndex(int64_t(1) << 30)));
    auto &inside = isRow ? access.rowInside : access.columnInside;
    for (int64_t e = 0; e < count; ++e)
      inside.push_back(
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                constantI32(isRow ? rowOffset(e) : columnOffset(e, piece)), room));
    if (!isRow)
      access.hasColumns = arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                                                arith::SubIOp::create(b, size, tileStart),
                                                constantIndex(type.getShape().back()));
  }
  if (access.isContiguous)
    access.aligned = findAlignment(memref, indices.back(), piece);
  access.alignment = toI64(tile);
  access.base = toI64(arith::AddIOp::create(b, start, bytesTo(starts)));
  return access;
}

/// Where a load or a store without a map reads or writes.
FailureOr<KernelLowering::Access> KernelLowering::makeAccess(Operation *op, Value base,
                                                             ValueRange indices, VectorType type,
                                                             Layout layout) {
  auto memref = cast<MemRefType>(base.getType());
  if (!memref.getElementType().isIntOrIndexOrFloat() || type.getRank() > memref.getRank())
    return op->emitOpError("expects a memref of scalars");
  AffineMap map = AffineMap::getMinorIdentityMap(memref.getRank(), type.getRank(), b.getContext());
  return makeAccess(op, base, indices, type, map, SmallVector<bool>(type.getRank(), true), layout);
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

/// The same for all threads: no dimension is one of a vector.
FailureOr<Value> KernelLowering::elementAddress(Operation *op, Value memref, ValueRange indices) {
  if (ofThreads)
    return threadAddress(memref, indices);
  auto type = cast<MemRefType>(memref.getType());
  auto none = AffineMap::get(type.getRank(), 0, {}, b.getContext());
  FailureOr<Access> access = makeAccess(
      op, memref, indices, VectorType::get(1, type.getElementType()), none, {}, Layout::Tile);
  return failed(access) ? FailureOr<Value>(failure()) : access->base;
}

/// The register of an asm operand, and the suffix of an untyped access.
static std::pair<StringRef, StringRef> registerOf(Type type) {
  unsigned bits = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  if (bits <= 8)
    return {"h", "b8"};
  if (bits == 16)
    return {"h", "b16"};
  if (bits == 32)
    return {isa<FloatType>(type) ? "f" : "r", "b32"};
  return {isa<FloatType>(type) ? "d" : "l", "b64"};
}

/// A value as an asm operand takes it.
static Type operandType(Type type, OpBuilder &b) {
  unsigned bits = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  if (bits <= 16)
    return b.getIntegerType(16);
  return type.isIndex() ? Type(b.getI64Type()) : type;
}

static Value toOperand(Value value, ImplicitLocOpBuilder &b) {
  Type type = value.getType(), to = operandType(type, b);
  if (type == to)
    return value;
  if (type.isIndex())
    return arith::IndexCastOp::create(b, to, value);
  if (isa<FloatType>(type))
    value = arith::BitcastOp::create(b, b.getIntegerType(type.getIntOrFloatBitWidth()), value);
  return value.getType() == to ? value : arith::ExtUIOp::create(b, to, value);
}

static Value fromOperand(Value value, Type type, ImplicitLocOpBuilder &b) {
  if (value.getType() == type)
    return value;
  if (type.isIndex())
    return arith::IndexCastOp::create(b, type, value);
  Type integer = b.getIntegerType(type.getIntOrFloatBitWidth());
  if (value.getType() != integer)
    value = arith::TruncIOp::create(b, integer, value);
  return isa<FloatType>(type) ? Value(arith::BitcastOp::create(b, type, value)) : value;
}

static Value globalPointer(Value address, ImplicitLocOpBuilder &b) {
  return LLVM::IntToPtrOp::create(
      b, LLVM::LLVMPointerType::get(b.getContext(), unsigned(NVVM::NVVMMemorySpace::Global)),
      address);
}

/// `other` where the predicate is false; nothing is read then.
Value KernelLowering::load(Type type, Value address, Value predicate, Value other) {
  if (!predicate) {
    Type in = type.isIndex() ? Type(b.getI64Type()) : type;
    return fromOperand(LLVM::LoadOp::create(b, in, globalPointer(address, b)), type, b);
  }
  auto [constraint, width] = registerOf(type);
  StringRef move = width == "b8" ? "b16" : width;
  Value result =
      inlineAsm(operandType(type, b), {address, predicate, toOperand(other, b)},
                "mov." + move + " $0, $3; @$2 ld.global." + width + " $0, [$1];",
                "=&" + constraint + ",l,b," + constraint + ",~{memory}", /*sideEffects=*/true);
  return fromOperand(result, type, b);
}

void KernelLowering::store(Value value, Value address, Value predicate) {
  auto [constraint, width] = registerOf(value.getType());
  if (!predicate) {
    if (value.getType().isIndex())
      value = toOperand(value, b);
    LLVM::StoreOp::create(b, value, globalPointer(address, b));
    return;
  }
  inlineAsm(Type(), {predicate, address, toOperand(value, b)},
            "@$0 st.global." + width + " [$1], $2;", "b,l," + constraint + ",~{memory}",
            /*sideEffects=*/true);
}

/// "{$0, $1}", or "$0" alone, from operand `first` on.
static std::string listOperands(int64_t first, int64_t count) {
  std::string list;
  for (int64_t n = 0; n < count; ++n)
    list += (n ? ", $" : "$") + std::to_string(first + n);
  return count > 1 ? "{" + list + "}" : list;
}

static std::string suffixOf(int64_t words) {
  return (words > 1 ? ".v" + std::to_string(words) : "") + ".b32";
}

/// 1, 2 or 4 neighbouring words of 32 bits; `other` where the predicate is false.
SmallVector<Value> KernelLowering::loadWords(Value address, int64_t count, Value predicate,
                                             Value other) {
  Type i32 = b.getI32Type();
  if (count == 1)
    return {load(i32, address, predicate, other)};
  if (!predicate) {
    Value all = LLVM::LoadOp::create(b, VectorType::get(count, i32), globalPointer(address, b),
                                     /*alignment=*/4 * count);
    return llvm::map_to_vector(llvm::seq<int64_t>(0, count), [&](int64_t n) -> Value {
      return vector::ExtractOp::create(b, all, n);
    });
  }
  std::string text, constraints;
  for (int64_t n = 0; n < count; ++n) {
    text += "mov.b32 $" + std::to_string(n) + ", $" + std::to_string(count + 2) + "; ";
    constraints += "=&r,";
  }
  text += "@$" + std::to_string(count + 1) + " ld.global" + suffixOf(count) + " " +
          listOperands(0, count) + ", [$" + std::to_string(count) + "];";
  Value all = inlineAsm(
      LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(count, i32)),
      {address, predicate, other}, text, constraints + "l,b,r,~{memory}", /*sideEffects=*/true);
  return llvm::map_to_vector(llvm::seq<int64_t>(0, count), [&](int64_t n) -> Value {
    return LLVM::ExtractValueOp::create(b, all, n);
  });
}

void KernelLowering::storeWords(ArrayRef<Value> words, Value address, Value predicate) {
  SmallVector<Value> operands = {address};
  operands.append(words.begin(), words.end());
  std::string constraints = "l";
  for (size_t n = 0; n < words.size(); ++n)
    constraints += ",r";
  std::string text;
  if (predicate) {
    operands.push_back(predicate);
    constraints += ",b";
    text = "@$" + std::to_string(words.size() + 1) + " ";
  }
  text += "st.global" + suffixOf(words.size()) + " [$0], " + listOperands(1, words.size()) + ";";
  inlineAsm(Type(), operands, text, constraints + ",~{memory}", /*sideEffects=*/true);
}
