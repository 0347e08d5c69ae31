// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads and writes of vectors in global memory: by neighbouring words where addresses allow it,
// else one access per element.

#include "GlobalAccess.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::hopper;

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
      return isTile ? registers.at(row, e) : e;
    };
    Type held = bytes == 4 ? access.element : VectorType::get(2, access.element);
    SmallVector<Value> values(elementsPerThread(type, layout) * bytes / 4);
    for (int64_t row = 0; row < (isTile ? registers.rows : 1); ++row)
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
  int64_t columns = int64_t(tile.values.size()) * perWord / registers.rows;
  DenseMap<Value, Value> rows;
  for (int64_t row = 0; row < registers.rows; ++row)
    for (int64_t e = 0; e < columns; e += size) {
      SmallVector<Value> words;
      for (int64_t column = e; column < e + size; column += perWord)
        words.push_back(LLVM::BitcastOp::create(b, b.getI32Type(),
                                                tile.values[registers.at(row, column) / perWord]));
      unsigned r = registers.at(row, e);
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
  int64_t wordsOfRow = int64_t(tile.values.size()) / registers.rows;
  Value ofRow = arith::AndIOp::create(b, lane, constantI32(kLanesOfRow - 1));
  Value further = arith::MulIOp::create(b, ofRow, constantI32(kBytesOfRows - 4));
  Value whole =
      arith::AddIOp::create(b, access.base, arith::ExtUIOp::create(b, b.getI64Type(), further));
  DenseMap<Value, Value> rows, rowsOfWhole;
  for (int64_t row = 0; row < registers.rows; ++row)
    for (int64_t n = 0, count; n < wordsOfRow; n += count) {
      count = n + kLanesOfRow <= wordsOfRow ? kLanesOfRow : 1;
      SmallVector<Value> words;
      for (int64_t of = n; of < n + count; ++of)
        words.push_back(LLVM::BitcastOp::create(
            b, b.getI32Type(),
            tile.values[registers.at(row, kColumnsPerWord * of) / kColumnsPerWord]));
      if (count > 1)
        transposeInRow(words);
      unsigned r = registers.at(row, kColumnsPerWord * n);
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

/// Element by element, where the device adds no two at once: a lane and the one of the next row
/// exchange one of two neighbours, so that each instruction of a warp adds to 8 columns of four
/// rows, whole sectors. `rowBytes` leads from a row to the next.
void KernelLowering::addByElements(const Access &access, ArrayRef<Value> values, Value rowBytes) {
  constexpr int64_t kNextRow = kLanesOfRow; // lanes
  Value zero = constant(b.getI64IntegerAttr(0)), four = constant(b.getI64IntegerAttr(4));
  Value isOdd =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne, bitsOfLane(2, 1), constantI32(0));
  auto choose = [&](Value ofOdd, Value ofEven) -> Value {
    return arith::SelectOp::create(b, isOdd, ofOdd, ofEven);
  };
  // From the even row of both, in the column that this lane takes.
  Value bases[2];
  bases[0] = arith::AddIOp::create(b, access.base, choose(four, zero));
  bases[0] = arith::SubIOp::create(b, bases[0], choose(rowBytes, zero));
  bases[1] = arith::AddIOp::create(b, bases[0], rowBytes);
  DenseMap<Value, Value> rows[2], others;
  for (unsigned r = 0; r < values.size(); r += 2) {
    Value kept = choose(values[r + 1], values[r]);
    Value got = shuffle(choose(values[r], values[r + 1]), kNextRow);
    Value ownInside = access.outer(access.rowInside, Layout::Tile, r, true), otherInside;
    if (ownInside) {
      Value &known = others[ownInside];
      known = known ? known : shuffle(ownInside, kNextRow);
      otherInside = known;
    }
    for (bool ofOdd : {false, true}) {
      Value value = ofOdd ? choose(kept, got) : choose(got, kept), inside;
      if (ownInside)
        inside = ofOdd ? choose(ownInside, otherInside) : choose(otherInside, ownInside);
      inside = both(inside, access.outer(access.columnInside, Layout::Tile, r, false), b);
      Value address =
          addressOf(bases[ofOdd], access.outer(access.rowOffsets, Layout::Tile, r, true),
                    access.outer(access.columnOffsets, Layout::Tile, r, false), rows[ofOdd], b);
      SmallVector<Value> operands = {address, value};
      if (inside)
        operands.push_back(inside);
      inlineAsm(Type(), operands,
                std::string(inside ? "@$2 " : "") + "red.global.add.f32 [$0], $1;",
                std::string("l,f,") + (inside ? "b," : "") + "~{memory}", /*sideEffects=*/true);
    }
  }
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
  if (capability < 90) {
    int64_t stride = strides[strides.size() - 2];
    Value elements = ShapedType::isDynamic(stride)
                         ? Value(memref::ExtractStridedMetadataOp::create(b, scalar(op.getDest()))
                                     .getStrides()[strides.size() - 2])
                         : constantIndex(stride);
    Value bytes = arith::MulIOp::create(b, elements, constantIndex(4));
    addByElements(*access, values, arith::IndexCastOp::create(b, b.getI64Type(), bytes));
    return success();
  }
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
