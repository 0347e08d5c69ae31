// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles of global memory to shared memory by the threads of a CTA: chunks of 16 bytes, 8 (4, 2) of
// which are a row of a slab. Where addresses are no multiples of 16 bytes, four words, and where
// they are none of 4, or elements of a row do not follow each other, elements.

#include "Lowering.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

static constexpr int64_t kChunkBytes = 16, kWordBytes = 4;
/// Columns that products read: multiples of so many bytes.
static constexpr int64_t kColumnBytes = 32;
/// Dimensions of sequences in pages.
static constexpr unsigned kSequence = 0, kRow = 2;

/// A sequence whose rows lie in pages.
struct KernelLowering::Pages {
  int64_t size;     // rows of a page
  Value tileRow;    // the tile's first row in the sequence, i64
  Value pageBytes;  // from one page of the pool to the next, i64
  Value table;      // address of the sequence's first entry, i64
  Value entryBytes; // from one entry to the next, i64
  Type entry;
  int64_t together = 1;      // rows of the tile that lie in one page, in whole steps of a thread's
  SmallVector<Value> places; // where the first of each so many lies, from a head's first byte, i64
};

/// What a thread copies of a tile: a chunk of each slab, in rows `rowStep` apart.
struct KernelLowering::TileCopy {
  tile::SmemType type;
  Type element;
  int64_t bytes;                // of an element
  Value first;                  // address of the tile's first element, i64
  Value rowBytes, elementBytes; // from one to the next, i64
  Value rows, columns;          // that lie inside, i32
  Value row, chunk;             // of this thread, i32
  int64_t rowStep;
  Value place;                 // where the first chunk goes: an address in shared memory, i32
  std::optional<Pages> pages;  // rows are found in
  Value isInWords, isInChunks; // i1: how rows are aligned
};

static Value globalPointer(Value address, ImplicitLocOpBuilder &b) {
  return LLVM::IntToPtrOp::create(
      b, LLVM::LLVMPointerType::get(b.getContext(), unsigned(NVVM::NVVMMemorySpace::Global)),
      address);
}

/// Bytes of a row of a slab.
static int64_t getSpan(tile::SmemType type) {
  return type.getSwizzle() ? type.getSwizzle() : type.getTileBytes();
}

/// An integer of memory that nothing writes while the kernel runs, as i64.
Value KernelLowering::readInvariant(Type type, Value address) {
  auto loaded = LLVM::LoadOp::create(b, type, globalPointer(address, b));
  loaded.setInvariant(true);
  return type.isInteger(64) ? Value(loaded)
                            : Value(arith::ExtSIOp::create(b, b.getI64Type(), loaded));
}

/// The table of the sequence that a copy is of, and how many rows of the tile it has.
void KernelLowering::planPages(tile::CopyOp op, Value pageBytes, TileCopy &copy) {
  Type i64 = b.getI64Type();
  auto wide = [&](Value index) -> Value { return arith::IndexCastOp::create(b, i64, index); };
  auto times = [&](Value x, Value y) -> Value { return arith::MulIOp::create(b, x, y); };
  auto plus = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  /// The address of an entry, and the bytes from one to the next.
  auto find = [&](Value memref, Value row) -> std::pair<Value, Value> {
    Value source = scalar(memref);
    auto metadata = memref::ExtractStridedMetadataOp::create(b, source);
    Type type = cast<MemRefType>(memref.getType()).getElementType();
    Value bytes = constant(b.getI64IntegerAttr(type.getIntOrFloatBitWidth() / 8));
    Value start = wide(memref::ExtractAlignedPointerAsIndexOp::create(b, source));
    Value position = plus(wide(metadata.getOffset()), times(row, wide(metadata.getStrides()[0])));
    return {plus(start, times(position, bytes)), times(wide(metadata.getStrides().back()), bytes)};
  };
  Value sequence = wide(scalar(op.getIndices()[kSequence]));
  auto [length, unused] = find(op.getLengths(), sequence);
  Pages pages;
  pages.size = cast<MemRefType>(op.getSource().getType()).getDimSize(kRow);
  pages.pageBytes = pageBytes;
  pages.tileRow = wide(scalar(op.getIndices()[kRow]));
  auto table = cast<MemRefType>(op.getTable().getType());
  pages.entry = table.getElementType();
  std::tie(pages.table, pages.entryBytes) = find(op.getTable(), sequence);
  Value entries = constantIndex(table.getDimSize(1));
  if (table.isDynamicDim(1))
    entries = memref::ExtractStridedMetadataOp::create(b, scalar(op.getTable())).getSizes()[1];
  auto number = [&](int64_t value) { return constant(b.getI64IntegerAttr(value)); };
  Value rows = arith::MinSIOp::create(
      b, readInvariant(cast<MemRefType>(op.getLengths().getType()).getElementType(), length),
      times(wide(entries), number(pages.size)));
  rows = arith::SubIOp::create(b, rows, pages.tileRow);
  rows = arith::MinSIOp::create(b, arith::MaxSIOp::create(b, rows, number(0)),
                                number(copy.type.getRows()));
  copy.rows = arith::TruncIOp::create(b, b.getI32Type(), rows);
  copy.pages = pages;
}

/// Looks up the pages of a tile that begins where pages do, or lies within one.
void KernelLowering::findPages(tile::CopyOp op, TileCopy &copy) {
  Pages &pages = *copy.pages;
  int64_t rows = copy.type.getRows(), aligned = op.getAlignedRows().value_or(1);
  if (aligned % pages.size == 0)
    pages.together = std::min(pages.size, rows);
  else if (pages.size % aligned == 0 && aligned % rows == 0)
    pages.together = rows;
  if (pages.together % copy.rowStep != 0 || copy.rowStep > rows) {
    pages.together = 1;
    return;
  }
  for (int64_t row = 0; row < rows; row += pages.together) {
    Value isInside =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, constantI32(row), copy.rows);
    pages.places.push_back(placeInPages(copy, constantI32(row), isInside));
  }
}

/// Where the first element of a row of the tile lies, from a head's first one, if the sequence has
/// that row.
Value KernelLowering::placeInPages(const TileCopy &copy, Value row, Value isInside) {
  const Pages &pages = *copy.pages;
  auto number = [&](int64_t value) { return constant(b.getI64IntegerAttr(value)); };
  auto times = [&](Value x, Value y) -> Value { return arith::MulIOp::create(b, x, y); };
  auto plus = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  Value place = plus(pages.tileRow, arith::ExtUIOp::create(b, b.getI64Type(), row));
  Value entry = arith::DivUIOp::create(b, place, number(pages.size));
  Value inPage = arith::RemUIOp::create(b, place, number(pages.size));
  // Each sequence has a first entry; what it is does not matter where there is no row.
  entry = arith::SelectOp::create(b, isInside, entry, number(0));
  Value page = readInvariant(pages.entry, plus(pages.table, times(entry, pages.entryBytes)));
  return plus(times(page, pages.pageBytes), times(inPage, copy.rowBytes));
}

FailureOr<KernelLowering::TileCopy> KernelLowering::planCopy(tile::CopyOp op) {
  TileCopy copy;
  copy.type = op.getTile().getType();
  copy.element = copy.type.getElementType();
  copy.bytes = tile::getElementBytes(copy.element);
  auto memref = cast<MemRefType>(op.getSource().getType());
  SmallVector<int64_t> known;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(known, offset)))
    return op.emitOpError() << "expects a strided memref, got " << memref;
  Type i64 = b.getI64Type();
  auto wide = [&](Value index) -> Value { return arith::IndexCastOp::create(b, i64, index); };
  auto i64Constant = [&](int64_t value) { return constant(b.getI64IntegerAttr(value)); };
  Value source = scalar(op.getSource());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, source);
  unsigned rank = unsigned(memref.getRank());
  SmallVector<Value> strides(metadata.getStrides());
  for (auto [stride, value] : llvm::zip_equal(strides, known))
    if (!ShapedType::isDynamic(value))
      stride = constantIndex(value);
  Value position =
      ShapedType::isDynamic(offset) ? Value(metadata.getOffset()) : constantIndex(offset);
  for (auto [dim, index, stride] : llvm::enumerate(op.getIndices(), strides))
    if (!op.getTable() || (dim != kSequence && dim != kRow))
      position =
          arith::AddIOp::create(b, position, arith::MulIOp::create(b, scalar(index), stride));
  auto toBytes = [&](Value elements) -> Value {
    return arith::MulIOp::create(b, wide(elements), i64Constant(copy.bytes));
  };
  Value start = wide(memref::ExtractAlignedPointerAsIndexOp::create(b, source));
  copy.first = arith::AddIOp::create(b, start, toBytes(position));
  bool hasRows = rank > 1;
  copy.rowBytes = hasRows ? toBytes(strides[rank - 2]) : i64Constant(0);
  copy.elementBytes = toBytes(strides[rank - 1]);
  // Clamped to what a tile may have, so that 32 bits hold it.
  auto inside = [&](unsigned dim, int64_t most) -> Value {
    Value size = memref.isDynamicDim(dim) ? Value(metadata.getSizes()[dim])
                                          : constantIndex(memref.getDimSize(dim));
    Value rest = arith::SubIOp::create(b, size, scalar(op.getIndices()[dim]));
    rest = arith::MinSIOp::create(b, arith::MaxSIOp::create(b, rest, constantIndex(0)),
                                  constantIndex(most));
    return toI32(rest);
  };
  if (op.getTable())
    planPages(op, toBytes(strides[kSequence]), copy);
  else
    copy.rows = hasRows ? inside(rank - 2, copy.type.getRows()) : constantI32(1);
  copy.columns = inside(rank - 1, copy.type.getColumns());
  // Addresses of rows: those of all that the loop copies have the same bits.
  Value bits = arith::OrIOp::create(b, copy.first, copy.rowBytes);
  if (copy.pages)
    bits = arith::OrIOp::create(b, bits, copy.pages->pageBytes);
  Value isDense = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, copy.elementBytes,
                                        i64Constant(copy.bytes));
  auto isAligned = [&](int64_t to) -> Value {
    Value low = arith::AndIOp::create(b, bits, i64Constant(to - 1));
    return arith::AndIOp::create(
        b, isDense, arith::CmpIOp::create(b, arith::CmpIPredicate::eq, low, i64Constant(0)));
  };
  copy.isInChunks = isAligned(kChunkBytes);
  copy.isInWords = isAligned(kWordBytes);

  // One row has no swizzle, and is one slab.
  int64_t swizzle = getSpan(copy.type), chunks = swizzle / kChunkBytes;
  Value thread = NVVM::ThreadIdXOp::create(b, b.getI32Type(), LLVM::ConstantRangeAttr());
  copy.row = arith::DivUIOp::create(b, thread, constantI32(chunks));
  copy.chunk = arith::RemUIOp::create(b, thread, constantI32(chunks));
  copy.rowStep = std::max<int64_t>(1, (*function.getKnownBlockSize())[0] / chunks);
  copy.place =
      arith::AddIOp::create(b, scalar(op.getTile()), swizzledOffset(copy.row, copy.chunk, swizzle));
  if (copy.pages)
    findPages(op, copy);
  return copy;
}

/// Of a chunk of a slab; wider rows than 128 bytes are not permuted.
Value KernelLowering::swizzledOffset(Value row, Value chunk, int64_t swizzle) {
  if (swizzle > 128)
    return arith::MulIOp::create(b, chunk, constantI32(kChunkBytes));
  auto times = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, x, constantI32(y));
  };
  Value bits = swizzleOf(row, swizzle, b, [&](int64_t value) { return constantI32(value); });
  return arith::AddIOp::create(b, times(row, swizzle),
                               arith::XOrIOp::create(b, times(chunk, kChunkBytes), bits));
}

/// Calls `emit` for each chunk of this thread: where it goes (i32), where it comes from (i64), and
/// how many of its bytes lie inside (i32).
void KernelLowering::forEachChunk(const TileCopy &copy,
                                  function_ref<void(Value, Value, Value)> emit) {
  Type i64 = b.getI64Type();
  int64_t swizzle = getSpan(copy.type), slabColumns = copy.type.getSlabColumns();
  int64_t rows = copy.type.getRows(), perChunk = kChunkBytes / copy.bytes;
  Value firstInRow = arith::MulIOp::create(b, copy.chunk, constantI32(perChunk));
  Value firstRow = arith::AddIOp::create(
      b, copy.first,
      arith::MulIOp::create(b, arith::ExtUIOp::create(b, i64, copy.row), copy.rowBytes));
  for (int64_t slab = 0; slab < copy.type.getSlabs(); ++slab) {
    // What products read of the slab, in chunks.
    int64_t needed =
        std::min(slabColumns, int64_t(llvm::alignTo(copy.type.getColumns() - slab * slabColumns,
                                                    kColumnBytes / copy.bytes)));
    Value column = addI32(firstInRow, slab * slabColumns);
    Value left = arith::SubIOp::create(b, copy.columns, column);
    left = arith::MinSIOp::create(b, arith::MaxSIOp::create(b, left, constantI32(0)),
                                  constantI32(perChunk));
    Value bytes = arith::MulIOp::create(b, left, constantI32(copy.bytes));
    Value columnBytes =
        arith::MulIOp::create(b, arith::ExtUIOp::create(b, i64, column), copy.elementBytes);
    Value start = arith::AddIOp::create(b, firstRow, columnBytes);
    Value isNeeded; // by this thread
    auto both = [&](Value x, Value y) -> Value {
      return !x ? y : !y ? x : Value(arith::AndIOp::create(b, x, y));
    };
    if (needed < slabColumns)
      isNeeded =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, firstInRow, constantI32(needed));
    Value address = start;
    Value step =
        arith::MulIOp::create(b, copy.rowBytes, constant(b.getI64IntegerAttr(copy.rowStep)));
    for (int64_t row = 0; row < rows; row += copy.rowStep) {
      if (row && !copy.pages)
        address = arith::AddIOp::create(b, address, step);
      Value own = addI32(copy.row, row), isHere = isNeeded;
      if (row + copy.rowStep > rows)
        isHere = both(isHere,
                      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, own, constantI32(rows)));
      Value isInside = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, own, copy.rows);
      if (copy.pages && copy.pages->places.empty()) {
        Value place = placeInPages(copy, own, isInside);
        address =
            arith::AddIOp::create(b, arith::AddIOp::create(b, copy.first, place), columnBytes);
      } else if (copy.pages) {
        auto [page, inPage] = std::div(row, copy.pages->together);
        Value skipped =
            arith::MulIOp::create(b, copy.rowBytes, constant(b.getI64IntegerAttr(inPage)));
        Value place = arith::AddIOp::create(b, copy.pages->places[size_t(page)], skipped);
        address = arith::AddIOp::create(b, start, place);
      }
      Value inside = arith::SelectOp::create(b, isInside, bytes, constantI32(0));
      // Nothing is read where nothing lies inside; the address then is that of the tile.
      Value isRead = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, inside, constantI32(0));
      Value from = arith::SelectOp::create(b, isRead, address, copy.first);
      Value to = addI32(copy.place, slab * copy.type.getSlabBytes() + row * swizzle);
      // Rows of one thread are multiples of 8 apart, but for few threads.
      if (copy.rowStep % 8 && rows > 1)
        to = addI32(
            arith::AddIOp::create(
                b,
                arith::SubIOp::create(b, copy.place, swizzledOffset(copy.row, copy.chunk, swizzle)),
                swizzledOffset(own, copy.chunk, swizzle)),
            slab * copy.type.getSlabBytes());
      if (!isHere) {
        emit(to, from, inside);
        continue;
      }
      auto branch = scf::IfOp::create(b, isHere);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      emit(to, from, inside);
    }
  }
}

/// By `cp.async`, of 16 or of 4 bytes; the rest of a chunk is zeros.
void KernelLowering::copyAsync(const TileCopy &copy, int64_t size) {
  auto cache =
      size == kChunkBytes ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA;
  forEachChunk(copy, [&](Value to, Value from, Value bytes) {
    for (int64_t byte = 0; byte < kChunkBytes; byte += size) {
      Value own = bytes, address = from;
      if (size < kChunkBytes) {
        own = arith::SubIOp::create(b, bytes, constantI32(byte));
        own = arith::MinSIOp::create(b, arith::MaxSIOp::create(b, own, constantI32(0)),
                                     constantI32(size));
        Value isRead = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, own, constantI32(0));
        address = arith::SelectOp::create(
            b, isRead, arith::AddIOp::create(b, from, constant(b.getI64IntegerAttr(byte))), from);
      }
      NVVM::CpAsyncOp::create(b, sharedPointer(to, byte), globalPointer(address, b), int32_t(size),
                              cache, own);
    }
  });
}

/// Element by element, in a loop over the rows of a slab: one chunk of a thread at a time.
void KernelLowering::copyElements(const TileCopy &copy) {
  Type i64 = b.getI64Type(), i32 = b.getI32Type();
  int64_t swizzle = getSpan(copy.type), slabColumns = copy.type.getSlabColumns();
  int64_t perChunk = kChunkBytes / copy.bytes;
  int64_t perWord = std::max<int64_t>(1, kWordBytes / copy.bytes);
  Value tile = arith::SubIOp::create(b, copy.place, swizzledOffset(copy.row, copy.chunk, swizzle));
  auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(copy.type.getSlabs()),
                                 constantIndex(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value slab = toI32(loop.getInductionVar());
  auto asIndex = [&](Value value) -> Value {
    return arith::IndexCastUIOp::create(b, b.getIndexType(), value);
  };
  auto rows = scf::ForOp::create(b, asIndex(copy.row), constantIndex(copy.type.getRows()),
                                 constantIndex(copy.rowStep));
  b.setInsertionPointToStart(rows.getBody());
  Value row = toI32(rows.getInductionVar());
  Value column = arith::AddIOp::create(b, arith::MulIOp::create(b, slab, constantI32(slabColumns)),
                                       arith::MulIOp::create(b, copy.chunk, constantI32(perChunk)));
  Value isInside = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, copy.rows);
  Value place =
      copy.pages
          ? placeInPages(copy, row, isInside)
          : Value(arith::MulIOp::create(b, arith::ExtUIOp::create(b, i64, row), copy.rowBytes));
  Value address = arith::AddIOp::create(b, copy.first, place);
  Type bitsType = b.getIntegerType(unsigned(8 * copy.bytes));
  Type wordType = copy.bytes == 2 ? i32 : bitsType;
  SmallVector<Value> words;
  for (int64_t word = 0; word < perChunk / perWord; ++word) {
    Value all;
    for (int64_t n = 0; n < perWord; ++n) {
      Value own = addI32(column, word * perWord + n);
      Value isRead = arith::AndIOp::create(
          b, isInside, arith::CmpIOp::create(b, arith::CmpIPredicate::slt, own, copy.columns));
      Value at = arith::AddIOp::create(
          b, address,
          arith::MulIOp::create(b, arith::ExtUIOp::create(b, i64, own), copy.elementBytes));
      Value zero = arith::ConstantOp::create(b, bitsType, b.getZeroAttr(bitsType));
      Value bits = load(bitsType, at, isRead, zero);
      if (copy.bytes == 2)
        bits = arith::ExtUIOp::create(b, i32, bits);
      all = n ? Value(arith::OrIOp::create(b, all, arith::ShLIOp::create(b, bits, constantI32(16))))
              : bits;
    }
    words.push_back(all);
  }
  Value to = arith::AddIOp::create(b, tile, swizzledOffset(row, copy.chunk, swizzle));
  to = arith::AddIOp::create(b, to,
                             arith::MulIOp::create(b, slab, constantI32(copy.type.getSlabBytes())));
  auto type = VectorType::get(int64_t(words.size()), wordType);
  LLVM::StoreOp::create(b, vector::FromElementsOp::create(b, type, words), sharedPointer(to),
                        /*alignment=*/kChunkBytes);
}

LogicalResult KernelLowering::lowerTileCopy(tile::CopyOp op) {
  FailureOr<TileCopy> copy = planCopy(op);
  if (failed(copy))
    return failure();
  auto chunks = scf::IfOp::create(b, TypeRange(), copy->isInChunks, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(chunks.thenBlock());
  copyAsync(*copy, kChunkBytes);
  b.setInsertionPointToStart(chunks.elseBlock());
  auto words = scf::IfOp::create(b, TypeRange(), copy->isInWords, /*withElseRegion=*/true);
  b.setInsertionPointToStart(words.thenBlock());
  copyAsync(*copy, kWordBytes);
  b.setInsertionPointToStart(words.elseBlock());
  copyElements(*copy);
  return success();
}

void KernelLowering::lowerAwait(tile::AwaitOp op) {
  NVVM::CpAsyncWaitGroupOp::create(b, int32_t(op.getPending()));
  gpu::BarrierOp::create(b);
}
