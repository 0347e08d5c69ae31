// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads and writes of global memory: one access per element, with a predicate
// where it may lie outside. Addresses are 64 bits wide.

#include "Lowering.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::hopper;

/// Where a thread's elements are. Offsets of rows and columns add up.
struct KernelLowering::Access {
  Type element;
  Value base;                                 // address of this thread's first element, i64
  SmallVector<Value> rowOffsets;              // bytes, i64; empty: the rows do not matter
  SmallVector<Value> columnOffsets;           // the same for the columns
  SmallVector<Value> rowInside, columnInside; // i1; empty: all are inside
  bool isContiguous = false;                  // columns follow each other in memory
  int64_t aligned = 1;                        // and rows start at multiples of so many elements
  // Of a tile, the same in all threads:
  Value alignment;  // its address and the bytes from row to row, ored, i64
  Value hasColumns; // whether all columns are inside, i1; null: they are

  Value outer(SmallVector<Value> const &values, Layout layout, unsigned r, bool isRow) const {
    if (values.empty())
      return Value();
    unsigned e = layout == Layout::Tile ? (isRow ? rowOfRegister(r) : columnOfRegister(r)) : r;
    return values[e];
  }
};

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
    int64_t count = isRow ? 2 : type.getShape().back() / 4;
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

//===----------------------------------------------------------------------===//
// One element
//===----------------------------------------------------------------------===//

/// The same for all threads: no dimension is one of a vector.
FailureOr<Value> KernelLowering::elementAddress(Operation *op, Value memref, ValueRange indices) {
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

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

static Value both(Value a, Value c, ImplicitLocOpBuilder &b) {
  return !a ? c : !c ? a : Value(arith::AndIOp::create(b, a, c));
}

/// The address of element r, sharing the sums of a row.
static Value addressOf(Value base, Value row, Value column, DenseMap<Value, Value> &rows,
                       ImplicitLocOpBuilder &b) {
  Value address = base;
  if (row) {
    Value &known = rows[row];
    if (!known)
      known = arith::AddIOp::create(b, base, row);
    address = known;
  }
  return column ? Value(arith::AddIOp::create(b, address, column)) : address;
}

/// Columns that move together: as many as a thread has side by side, in at most 16 bytes and
/// whole words, where all columns are inside; 1 if there are no such.
int64_t KernelLowering::sizeOfPiece(const Access &access, Layout layout) const {
  if ((layout != Layout::Tile && layout != Layout::Columns) || !access.isContiguous ||
      !access.columnInside.empty() || !isa<FloatType>(access.element))
    return 1;
  int64_t bits = access.element.getIntOrFloatBitWidth();
  return bits == 16 || bits == 32 ? std::min(piece, 128 / bits) : 1;
}

/// Neighbouring columns by one load. Where it is not known that rows start at multiples of
/// `size` elements, the addresses tell.
Parts KernelLowering::readPieces(const Access &access, VectorType type, Layout layout, int64_t size,
                                 ArrayRef<Value> other) {
  int64_t bytes = access.element.getIntOrFloatBitWidth() / 8;
  auto loadAll = [&] {
    Value padding = other.empty() ? Value() : other.front();
    if (padding) {
      auto word = VectorType::get(4 / bytes, access.element);
      padding = LLVM::BitcastOp::create(
          b, b.getI32Type(),
          vector::FromElementsOp::create(b, word, SmallVector<Value>(4 / bytes, padding)));
    }
    DenseMap<Value, Value> rows;
    bool isTile = layout == Layout::Tile;
    auto placeOf = [&](int64_t row, int64_t e) -> unsigned {
      return isTile ? registerAt(row, e) : e;
    };
    Type held = bytes == 4 ? access.element : VectorType::get(2, access.element);
    SmallVector<Value> values(elementsPerThread(type, layout) * bytes / 4);
    for (int64_t row = 0; row < (isTile ? 2 : 1); ++row)
      for (int64_t e = 0, columns = type.getShape().back() / kLanesOfRow; e < columns; e += size) {
        unsigned r = placeOf(row, e);
        Value address = addressOf(access.base, access.outer(access.rowOffsets, layout, r, true),
                                  access.outer(access.columnOffsets, layout, r, false), rows, b);
        SmallVector<Value> words = loadWords(
            address, size * bytes / 4, access.outer(access.rowInside, layout, r, true), padding);
        for (auto [n, word] : llvm::enumerate(words))
          values[placeOf(row, e + n * 4 / bytes) * bytes / 4] =
              LLVM::BitcastOp::create(b, held, word);
      }
    return Parts(values);
  };
  if (access.aligned % size == 0)
    return loadAll();
  Value bits = access.base;
  for (Value offset : access.rowOffsets)
    bits = arith::OrIOp::create(b, bits, offset);
  bits = arith::AndIOp::create(b, bits, constant(b.getI64IntegerAttr(size * bytes - 1)));
  Value isAligned =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, bits, constant(b.getI64IntegerAttr(0)));
  Type held = bytes == 4 ? access.element : VectorType::get(2, access.element);
  SmallVector<Type> types(elementsPerThread(type, layout) * bytes / 4, held);
  auto branch = scf::IfOp::create(b, types, isAligned, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (bool whole : {true, false}) {
    b.setInsertionPointToStart(whole ? branch.thenBlock() : branch.elseBlock());
    scf::YieldOp::create(
        b, (whole ? loadAll() : readElement(access, type, layout, /*mask=*/{}, other)).values);
  }
  return Parts(branch.getResults());
}

/// A thread whose last column is inside has all of them inside: no predicates, and
/// offsets that are part of the instructions.
Parts KernelLowering::readColumns(const Access &access, VectorType type, ArrayRef<Value> other) {
  int64_t count = elementsPerThread(type, Layout::Columns);
  auto loadAll = [&](bool isChecked) {
    SmallVector<Value> values;
    for (int64_t e = 0; e < count; ++e)
      values.push_back(load(access.element,
                            arith::AddIOp::create(b, access.base, access.columnOffsets[e]),
                            isChecked ? access.columnInside[e] : Value(),
                            other.empty() ? Value() : other[other.size() == 1 ? 0 : e]));
    return values;
  };
  auto branch = scf::IfOp::create(b, SmallVector<Type>(count, access.element),
                                  access.columnInside.back(), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (bool isChecked : {false, true}) {
    b.setInsertionPointToStart(isChecked ? branch.elseBlock() : branch.thenBlock());
    SmallVector<Value> values = loadAll(isChecked);
    scf::YieldOp::create(b, values);
  }
  return Parts(branch.getResults());
}

Parts KernelLowering::readElement(const Access &access, VectorType type, Layout layout,
                                  ArrayRef<Value> mask, ArrayRef<Value> other) {
  DenseMap<Value, Value> rows;
  SmallVector<Value> values;
  for (int64_t r = 0, count = elementsPerThread(type, layout); r < count; ++r) {
    Value address = addressOf(access.base, access.outer(access.rowOffsets, layout, r, true),
                              access.outer(access.columnOffsets, layout, r, false), rows, b);
    Value inside = both(access.outer(access.rowInside, layout, r, true),
                        access.outer(access.columnInside, layout, r, false), b);
    if (!mask.empty())
      inside = both(inside, mask[r], b);
    values.push_back(load(access.element, address, inside,
                          other.empty() ? Value() : other[other.size() == 1 ? 0 : r]));
  }
  return isPacked(type, layout) ? pack(values) : Parts(values);
}

Parts KernelLowering::readElements(const Access &access, VectorType type, Layout layout,
                                   ArrayRef<Value> mask, ArrayRef<Value> other) {
  if (layout == Layout::Columns && mask.empty() && !access.columnInside.empty())
    return readColumns(access, type, other);
  // Tiles of 16-bit floats mostly lie where they can be read by pieces, which only their
  // addresses tell; of others it has to be known.
  int64_t size = mask.empty() ? sizeOfPiece(access, layout) : 1;
  bool isWorthATest =
      isPacked(type, layout) || (layout == Layout::Tile && piece > kPieceOfAccumulator);
  if (size > 1 && (access.aligned % size == 0 || isWorthATest) &&
      (isPacked(type, layout) || access.element.isF32()))
    return readPieces(access, type, layout, size, other);
  return readElement(access, type, layout, mask, other);
}

/// Neighbouring columns of a tile by one store.
void KernelLowering::writePieces(const Access &access, const Parts &tile, int64_t size) {
  int64_t bytes = access.element.getIntOrFloatBitWidth() / 8, perWord = 4 / bytes;
  int64_t columns = int64_t(tile.values.size()) * perWord / 2;
  DenseMap<Value, Value> rows;
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t e = 0; e < columns; e += size) {
      SmallVector<Value> words;
      for (int64_t column = e; column < e + size; column += perWord)
        words.push_back(LLVM::BitcastOp::create(b, b.getI32Type(),
                                                tile.values[registerAt(row, column) / perWord]));
      unsigned r = registerAt(row, e);
      Value address =
          addressOf(access.base, access.outer(access.rowOffsets, Layout::Tile, r, true),
                    access.outer(access.columnOffsets, Layout::Tile, r, false), rows, b);
      storeWords(words, address, access.outer(access.rowInside, Layout::Tile, r, true));
    }
}

/// What a thread writes at a time where the threads of a row write together, and their columns.
constexpr int64_t kBytesOfRows = 16, kColumnsOfRows = kLanesOfRow * kBytesOfRows / 2;

/// Word n of the thread t of a row becomes word t of the thread n.
void KernelLowering::transposeInRow(MutableArrayRef<Value> words) {
  for (int64_t distance = 1; distance < kLanesOfRow; distance *= 2) {
    Value isUpper = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                          arith::AndIOp::create(b, lane, constantI32(distance)),
                                          constantI32(0));
    for (int64_t low = 0; low < kLanesOfRow; ++low) {
      if (low & distance)
        continue;
      Value &first = words[low], &second = words[low + distance];
      Value other = shuffle(arith::SelectOp::create(b, isUpper, first, second), distance);
      Value newFirst = arith::SelectOp::create(b, isUpper, other, first);
      second = arith::SelectOp::create(b, isUpper, second, other);
      first = newFirst;
    }
  }
}

/// A tile of 16-bit floats in the layout of the accumulator. A thread has 4 bytes side by side, so
/// that each store of a warp would write halves of sectors: the threads of a row exchange words,
/// and each writes `kBytesOfRows`. All columns must be inside and rows be aligned to that.
void KernelLowering::writeRows(const Access &access, const Parts &tile) {
  constexpr int64_t kColumnsPerWord = 2;
  int64_t wordsOfRow = tile.values.size() / 2;
  Value ofRow = arith::AndIOp::create(b, lane, constantI32(kLanesOfRow - 1));
  Value further = arith::MulIOp::create(b, ofRow, constantI32(kBytesOfRows - 4));
  Value whole =
      arith::AddIOp::create(b, access.base, arith::ExtUIOp::create(b, b.getI64Type(), further));
  DenseMap<Value, Value> rows, rowsOfWhole;
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t n = 0, count; n < wordsOfRow; n += count) {
      count = n + kLanesOfRow <= wordsOfRow ? kLanesOfRow : 1;
      SmallVector<Value> words;
      for (int64_t of = n; of < n + count; ++of)
        words.push_back(LLVM::BitcastOp::create(
            b, b.getI32Type(),
            tile.values[registerAt(row, kColumnsPerWord * of) / kColumnsPerWord]));
      if (count > 1)
        transposeInRow(words);
      unsigned r = registerAt(row, kColumnsPerWord * n);
      Value address = addressOf(count > 1 ? whole : access.base,
                                access.outer(access.rowOffsets, Layout::Tile, r, true),
                                access.outer(access.columnOffsets, Layout::Tile, r, false),
                                count > 1 ? rowsOfWhole : rows, b);
      storeWords(words, address, access.outer(access.rowInside, Layout::Tile, r, true));
    }
}

/// Every element by one thread: of the copies of a row or column vector, the
/// first writes.
void KernelLowering::writeElement(const Access &access, Value value, Layout layout,
                                  ArrayRef<Value> mask) {
  auto equal = [&](Value x, int64_t mask, int64_t to) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                 arith::AndIOp::create(b, x, constantI32(mask)), constantI32(to));
  };
  Value writes;
  if (layout == Layout::Rows)
    writes = equal(lane, 3, 0);
  else if (layout == Layout::Columns)
    writes = both(equal(lane, 28, 0), equal(warp, 3, 0), b);
  DenseMap<Value, Value> rows;
  SmallVector<Value> values = elements(value, layout);
  for (size_t r = 0; r < values.size(); ++r) {
    Value address = addressOf(access.base, access.outer(access.rowOffsets, layout, r, true),
                              access.outer(access.columnOffsets, layout, r, false), rows, b);
    Value inside = both(access.outer(access.rowInside, layout, r, true),
                        access.outer(access.columnInside, layout, r, false), b);
    if (!mask.empty())
      inside = both(inside, mask[r], b);
    store(values[r], address, both(inside, writes, b));
  }
}

void KernelLowering::writeElements(const Access &access, Value value, Layout layout,
                                   ArrayRef<Value> mask) {
  int64_t size = sizeOfPiece(access, layout);
  auto writeByThread = [&] {
    if (layout == Layout::Tile && mask.empty() && size > 1 && access.aligned % size == 0)
      writePieces(access, parts(value, layout), size);
    else
      writeElement(access, value, layout, mask);
  };
  auto type = dyn_cast<VectorType>(value.getType());
  if (!type || !isPacked(type, layout) || !mask.empty() || !access.isContiguous ||
      piece != kPieceOfAccumulator || type.getDimSize(1) < kColumnsOfRows)
    return writeByThread();
  // The same in all threads, which exchange what they write.
  Value low =
      arith::AndIOp::create(b, access.alignment, constant(b.getI64IntegerAttr(kBytesOfRows - 1)));
  Value isAligned =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, low, constant(b.getI64IntegerAttr(0)));
  auto branch =
      scf::IfOp::create(b, both(isAligned, access.hasColumns, b), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  writeRows(access, parts(value, layout));
  b.setInsertionPointToStart(branch.elseBlock());
  writeByThread();
}

LogicalResult KernelLowering::lowerRead(vector::TransferReadOp op) {
  for (Layout layout : layouts.of(op.getVector())) {
    FailureOr<Access> access = makeAccess(op, op.getBase(), op.getIndices(), op.getVectorType(),
                                          op.getPermutationMap(), op.getInBoundsValues(), layout);
    if (failed(access))
      return failure();
    SmallVector<Value> mask;
    if (op.getMask())
      mask = elements(op.getMask(), layout);
    setParts(op.getVector(), layout,
             readElements(*access, op.getVectorType(), layout, mask, scalar(op.getPadding())));
  }
  return success();
}

LogicalResult KernelLowering::lowerWrite(vector::TransferWriteOp op) {
  // A value that is needed both ways is written once.
  Layout layout = layouts.of(op.getValueToStore()).front();
  FailureOr<Access> access = makeAccess(op, op.getBase(), op.getIndices(), op.getVectorType(),
                                        op.getPermutationMap(), op.getInBoundsValues(), layout);
  if (failed(access))
    return failure();
  SmallVector<Value> mask;
  if (op.getMask())
    mask = elements(op.getMask(), layout);
  writeElements(*access, op.getValueToStore(), layout, mask);
  return success();
}

/// Two neighbours at once: the threads of a row then add to whole sectors.
LogicalResult KernelLowering::lowerAdd(TileAddOp op) {
  auto type = cast<VectorType>(op.getValues().getType());
  auto memref = dyn_cast<MemRefType>(op.getDest().getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  if (!memref || type.getRank() != 2 || !type.getElementType().isF32() ||
      failed(memref.getStridesAndOffset(strides, offset)) || strides.back() != 1 ||
      llvm::any_of(ArrayRef(strides).drop_back(),
                   [](int64_t stride) { return !ShapedType::isDynamic(stride) && stride % 2; }))
    return op.emitOpError() << "expects a tile of rank 2 of f32 and a memref with rows of a "
                               "multiple of 2 elements, got "
                            << type << " and " << op.getDest().getType();
  AffineMap map = AffineMap::getMinorIdentityMap(memref.getRank(), 2, b.getContext());
  // Columns are bounded where the tile's multiple of 8 does not divide the memref's.
  bool hasColumns = !memref.isDynamicDim(memref.getRank() - 1) &&
                    memref.getShape().back() % type.getDimSize(1) == 0;
  FailureOr<Access> access =
      makeAccess(op, op.getDest(), op.getIndices(), type, map, {false, hasColumns}, Layout::Tile);
  if (failed(access))
    return failure();
  DenseMap<Value, Value> rows;
  SmallVector<Value> values = elements(op.getValues(), Layout::Tile);
  for (unsigned r = 0; r < values.size(); r += 2) {
    Value address =
        addressOf(access->base, access->outer(access->rowOffsets, Layout::Tile, r, true),
                  access->outer(access->columnOffsets, Layout::Tile, r, false), rows, b);
    Value inside = both(access->outer(access->rowInside, Layout::Tile, r, true),
                        access->outer(access->columnInside, Layout::Tile, r, false), b);
    SmallVector<Value> operands = {address, values[r], values[r + 1]};
    if (inside)
      operands.push_back(inside);
    inlineAsm(Type(), operands,
              std::string(inside ? "@$3 " : "") + "red.global.add.v2.f32 [$0], {$1, $2};",
              std::string("l,f,f,") + (inside ? "b," : "") + "~{memory}", /*sideEffects=*/true);
  }
  return success();
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

LogicalResult KernelLowering::lowerVectorLoad(vector::LoadOp op) {
  VectorType type = op.getVectorType();
  for (Layout layout : layouts.of(op.getResult())) {
    FailureOr<Access> access = makeAccess(op, op.getBase(), op.getIndices(), type, layout);
    if (failed(access))
      return failure();
    setParts(op.getResult(), layout, readElements(*access, type, layout, {}, {}));
  }
  return success();
}

LogicalResult KernelLowering::lowerVectorStore(vector::StoreOp op) {
  Layout layout = layouts.of(op.getValueToStore()).front();
  FailureOr<Access> access =
      makeAccess(op, op.getBase(), op.getIndices(), op.getVectorType(), layout);
  if (failed(access))
    return failure();
  writeElements(*access, op.getValueToStore(), layout, {});
  return success();
}

LogicalResult KernelLowering::lowerGather(vector::GatherOp op) {
  auto memref = dyn_cast<MemRefType>(op.getBase().getType());
  if (!memref)
    return op.emitOpError("expects a memref");
  VectorType type = op.getVectorType();
  // The address of the first element; each index vector's element adds to the
  // innermost dimension.
  AffineMap map = AffineMap::get(memref.getRank(), 0, {}, b.getContext());
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(strides, offset)) || strides.back() != 1)
    return op.emitOpError() << "expects a unit innermost stride, got " << memref;
  for (Layout layout : layouts.of(op.getResult())) {
    FailureOr<Access> access = makeAccess(op, op.getBase(), op.getOffsets(), type, map, {}, layout);
    if (failed(access))
      return failure();
    int64_t bytes = std::max<unsigned>(
        access->element.isIndex() ? 8 : access->element.getIntOrFloatBitWidth() / 8, 1);
    SmallVector<Value> indices = elements(op.getIndices(), layout),
                       mask = elements(op.getMask(), layout),
                       other = elements(op.getPassThru(), layout), values;
    for (auto [index, bit, instead] : llvm::zip_equal(indices, mask, other)) {
      Value wide = index;
      if (index.getType().isIndex())
        wide = arith::IndexCastOp::create(b, b.getI64Type(), index);
      else if (!index.getType().isInteger(64))
        wide = arith::ExtSIOp::create(b, b.getI64Type(), index);
      Value scaled = arith::MulIOp::create(b, wide, constant(b.getI64IntegerAttr(bytes)));
      values.push_back(
          load(access->element, arith::AddIOp::create(b, access->base, scaled), bit, instead));
    }
    setParts(op.getResult(), layout, isPacked(type, layout) ? pack(values) : Parts(values));
  }
  return success();
}
