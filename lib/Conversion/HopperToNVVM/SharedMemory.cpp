// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles in shared memory: their places, and writing registers to them. The
// address of a byte is XORed with its own bits above: bits 4 to 6 with bits 7 to
// 9 for a swizzle of 128 bytes (PTX ISA, "Swizzling modes"), one or two bits less
// for 64 and 32. Tiles are aligned to 1024 bytes, so that offsets within a slab
// tell all of these bits.

#include "Lowering.h"

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

constexpr int64_t kTileAlignment = 1024;
/// Registers that a thread stores, or loads, at once.
constexpr int64_t kRegistersOfAccess = 4;

FailureOr<SharedMemory> attn::hopper::planSharedMemory(gpu::GPUFuncOp function) {
  SharedMemory memory;
  std::string sizes;
  llvm::raw_string_ostream text(sizes);
  auto place = [&](Value value, int64_t bytes, int64_t alignment) {
    memory.bytes = llvm::alignTo(memory.bytes, alignment);
    memory.offsets[value] = memory.bytes;
    memory.bytes += bytes;
    text << (sizes.empty() ? "" : ", ") << value.getType() << " = " << bytes;
  };
  Operation *last = nullptr;
  function.walk([&](AllocOp op) {
    place(op.getMemory(), op.getMemory().getType().getBytes(), kTileAlignment);
    last = op;
  });
  function.walk([&](MBarrierOp op) {
    place(op.getBarriers(), 8 * op.getBarriers().getType().getDepth(), 8);
    // mbarrier.arrive is one arrival per warp, by one lane, so that each warp
    // need only know of its own reads. Where nothing but expect arrives, by one
    // thread, arrivals are counted as they are.
    memory.perWarp[op.getBarriers()] = llvm::any_of(
        op.getBarriers().getUsers(), [](Operation *user) { return isa<MBarrierArriveOp>(user); });
  });
  if (memory.bytes > kSharedMemoryBytes)
    return last->emitOpError() << "the kernel needs " << memory.bytes
                               << " bytes of shared memory, a CTA has " << kSharedMemoryBytes
                               << ": " << sizes;
  return memory;
}

void KernelLowering::lowerSlot(SlotOp op) {
  Value step = arith::MulIOp::create(b, toI32(scalar(op.getIndex())),
                                     constantI32(op.getRing().getType().getTileBytes()));
  setScalar(op.getTile(), arith::AddIOp::create(b, scalar(op.getRing()), step));
}

void KernelLowering::lowerRows(tile::RowsOp op) {
  Value step = arith::MulIOp::create(b, toI32(scalar(op.getOffset())),
                                     constantI32(op.getSource().getType().getSwizzle()));
  setScalar(op.getTile(), arith::AddIOp::create(b, scalar(op.getSource()), step));
}

void KernelLowering::lowerColumns(tile::ColumnsOp op) {
  tile::SmemType source = op.getSource().getType();
  Value offset = toI32(scalar(op.getOffset())), columns = constantI32(source.getSlabColumns());
  Value slab = arith::DivUIOp::create(b, offset, columns);
  Value step = arith::MulIOp::create(b, slab, constantI32(source.getSlabBytes()));
  // In a slab, rows of swizzle bytes follow each other: the product's addresses are
  // permuted by their own bits, whatever they start from.
  Value within = arith::MulIOp::create(b, arith::RemUIOp::create(b, offset, columns),
                                       constantI32(tile::getElementBytes(source.getElementType())));
  step = arith::AddIOp::create(b, step, within);
  setScalar(op.getTile(), arith::AddIOp::create(b, scalar(op.getSource()), step));
}

LogicalResult KernelLowering::lowerTileWrite(tile::WriteOp op) {
  auto type = op.getTile().getType();
  if (type.isInRegisterOrder())
    storeRegisters(op);
  else if (piece == kPieceOfMemory)
    storePieces(op);
  else if (tile::getElementBytes(type.getElementType()) == 2)
    capability < 90 ? storePairs(op) : storeMatrices(op);
  else if (type.getElementType().isF64())
    storeDoubles(op);
  else
    storeWords(op);
  return success();
}

Value attn::hopper::swizzleOf(Value row, int64_t swizzle, ImplicitLocOpBuilder &b,
                              function_ref<Value(int64_t)> constant) {
  Value offset = arith::MulIOp::create(b, row, constant(swizzle));
  return arith::AndIOp::create(b, arith::ShRUIOp::create(b, offset, constant(3)),
                               constant(swizzle - 16));
}

KernelLowering::Matrices KernelLowering::placeMatrices(Value tile, tile::SmemType type, Value row,
                                                       Value chunk, bool transpose) {
  int64_t swizzle = type.getSwizzle(), chunks = swizzle / 16;
  auto constant = [&](int64_t value) { return constantI32(value); };
  auto times = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, x, constant(y));
  };
  // Some columns of a slab (tile.columns) start within its rows: those bytes are permuted, too.
  Value start = scalar(tile);
  Value columns = arith::AndIOp::create(b, start, constant(swizzle - 1));
  start = arith::SubIOp::create(b, start, columns);
  Value base = arith::AddIOp::create(b, start, times(row, swizzle));
  Value slab = arith::DivUIOp::create(b, chunk, constant(chunks));
  base = arith::AddIOp::create(b, base, times(slab, type.getSlabBytes()));
  Value inSlab = times(arith::RemUIOp::create(b, chunk, constant(chunks)), 16);
  Value inRow = arith::XOrIOp::create(b, arith::AddIOp::create(b, inSlab, columns),
                                      swizzleOf(row, swizzle, b, constant));
  return {type, transpose, base, inRow};
}

/// The row and chunk that are `rows` and `chunks` further: a multiple of 8 rows, and chunks whose
/// bits this lane's own have not.
Value KernelLowering::pointerTo(const Matrices &matrices, int64_t rows, int64_t chunks) {
  tile::SmemType type = matrices.type;
  int64_t ofSlab = type.getSwizzle() / 16, byte = chunks % ofSlab * 16;
  Value within =
      byte ? Value(arith::XOrIOp::create(b, matrices.inRow, constantI32(byte))) : matrices.inRow;
  return sharedPointer(arith::AddIOp::create(b, matrices.base, within),
                       rows * type.getSwizzle() + chunks / ofSlab * type.getSlabBytes());
}

/// (lane >> shift) & mask.
Value KernelLowering::bitsOfLane(int64_t shift, int64_t mask) {
  Value shifted = shift ? Value(arith::ShRUIOp::create(b, lane, constantI32(shift))) : lane;
  return arith::AndIOp::create(b, shifted, constantI32(mask));
}

/// As the fragments of a value are: lane l gives the address of row l % 8 of block l / 8. Blocks of
/// a thread with two rows are 8 rows apart, and 2 and 3 are 8 columns further; with four rows all
/// are below each other. Transposed, a row of memory is a column of the value.
KernelLowering::Matrices KernelLowering::placeValue(Value tile, tile::SmemType type,
                                                    bool transpose) {
  Value below = bitsOfLane(3, registers.rows - 1);
  Value right = registers.rows == 2 ? bitsOfLane(4, 1) : constantI32(0);
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  auto times = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, x, constantI32(y));
  };
  Value inBlock = bitsOfLane(0, 7);
  if (transpose)
    return placeMatrices(tile, type, add(inBlock, times(right, 8)),
                         add(below, times(warp, group.rowsOfWarp() / 8)), transpose);
  return placeMatrices(tile, type,
                       add(add(inBlock, times(below, 8)), times(warp, group.rowsOfWarp())), right,
                       transpose);
}

/// Where the blocks from a column of the value on are.
Value KernelLowering::pointerToColumn(const Matrices &matrices, int64_t column) {
  return matrices.transpose ? pointerTo(matrices, column, 0) : pointerTo(matrices, 0, column / 8);
}

void KernelLowering::storeMatrices(tile::WriteOp op) {
  Matrices matrices = placeValue(op.getTile(), op.getTile().getType(), op.getTranspose());
  const SmallVector<Value> &pairs = parts(op.getValue(), Layout::Tile).values;
  SmallVector<Value> words;
  for (Value pair : pairs)
    words.push_back(LLVM::BitcastOp::create(b, b.getI32Type(), pair));
  for (size_t p = 0; p < words.size(); p += 4)
    NVVM::StMatrixOp::create(b, pointerToColumn(matrices, int64_t(p) * 8 / registers.rows),
                             ArrayRef(words).slice(p, std::min<size_t>(4, words.size() - p)),
                             op.getTranspose() ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                             NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8),
                             NVVM::LdStMatrixEltType::B16);
}

/// The same without stmatrix (before sm_90): two columns at once, or, transposed, one element.
void KernelLowering::storePairs(tile::WriteOp op) {
  tile::SmemType type = op.getTile().getType();
  SmallVector<Value> values;
  if (op.getTranspose())
    values = elements(op.getValue(), Layout::Tile);
  else
    values = parts(op.getValue(), Layout::Tile).values;
  int64_t perValue = op.getTranspose() ? 1 : 2;
  Value row = toI32(firstRow), column = toI32(firstColumn);
  for (auto [n, value] : llvm::enumerate(values)) {
    unsigned r = unsigned(n) * unsigned(perValue);
    Value ofRow = addI32(row, rowOffset(registers.row(r)));
    Value ofColumn = addI32(column, columnOffset(registers.column(r)));
    if (op.getTranspose())
      std::swap(ofRow, ofColumn);
    LLVM::StoreOp::create(b, value, pointerToElement(op.getTile(), type, ofRow, ofColumn),
                          /*alignment=*/2 * perValue);
  }
}

/// Two columns at once, which are a chunk, or, transposed, one element.
void KernelLowering::storeDoubles(tile::WriteOp op) {
  tile::SmemType type = op.getTile().getType();
  SmallVector<Value> values = elements(op.getValue(), Layout::Tile);
  size_t atOnce = op.getTranspose() ? 1 : 2;
  Value row = toI32(firstRow), column = toI32(firstColumn);
  for (size_t r = 0; r < values.size(); r += atOnce) {
    Value ofRow = addI32(row, rowOffset(registers.row(unsigned(r))));
    Value ofColumn = addI32(column, columnOffset(registers.column(unsigned(r))));
    if (op.getTranspose())
      std::swap(ofRow, ofColumn);
    auto vector = VectorType::get(int64_t(atOnce), type.getElementType());
    LLVM::StoreOp::create(
        b, vector::FromElementsOp::create(b, vector, ArrayRef(values).slice(r, atOnce)),
        pointerToElement(op.getTile(), type, ofRow, ofColumn), unsigned(8 * atOnce));
  }
}

/// Any element of a tile.
Value KernelLowering::pointerToElement(Value tile, tile::SmemType type, Value row, Value column) {
  auto constant = [&](int64_t value) { return constantI32(value); };
  int64_t swizzle = type.getSwizzle();
  Value bytes =
      arith::MulIOp::create(b, column, constant(tile::getElementBytes(type.getElementType())));
  Value slab = arith::DivUIOp::create(b, bytes, constant(swizzle));
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  auto times = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, x, constant(y));
  };
  Value address =
      add(add(scalar(tile), times(slab, type.getSlabBytes())),
          add(times(row, swizzle), arith::RemUIOp::create(b, bytes, constant(swizzle))));
  Value bits = arith::AndIOp::create(b, arith::ShRUIOp::create(b, address, constant(3)),
                                     constant(swizzle - 16));
  return sharedPointer(arith::XOrIOp::create(b, address, bits));
}

/// 8 columns of 16 bits at once, where a thread has these side by side.
void KernelLowering::storePieces(tile::WriteOp op) {
  tile::SmemType type = op.getTile().getType();
  int64_t swizzle = type.getSwizzle(), slabColumns = type.getSlabColumns();
  auto constant = [&](int64_t value) { return constantI32(value); };
  Value row = toI32(firstRow), bytes = arith::MulIOp::create(b, toI32(firstColumn), constant(2));
  Value base = arith::AddIOp::create(b, scalar(op.getTile()),
                                     arith::MulIOp::create(b, row, constant(swizzle)));
  // Rows 8 apart are swizzled alike.
  Value inRow = arith::XOrIOp::create(b, bytes, swizzleOf(row, swizzle, b, constant));
  const SmallVector<Value> &pairs = parts(op.getValue(), Layout::Tile).values;
  auto words = VectorType::get(kPieceOfMemory / 2, b.getI32Type());
  int64_t columns = cast<VectorType>(op.getValue().getType()).getDimSize(1);
  for (int64_t first = 0; first < columns; first += kLanesOfRow * kPieceOfMemory)
    for (unsigned below = 0; below < registers.rows; ++below) {
      SmallVector<Value> values;
      for (unsigned k = 0; k < kPieceOfMemory; k += 2)
        values.push_back(LLVM::BitcastOp::create(
            b, b.getI32Type(), pairs[registers.at(below, first / kLanesOfRow + k) / 2]));
      Value within = arith::XOrIOp::create(b, inRow, constant(first % slabColumns * 2));
      int64_t offset = first / slabColumns * type.getSlabBytes() + 8 * below * swizzle;
      LLVM::StoreOp::create(b, vector::FromElementsOp::create(b, words, values),
                            sharedPointer(arith::AddIOp::create(b, base, within), offset),
                            /*alignment=*/16);
    }
}

/// Neighbouring columns at once.
void KernelLowering::loadVector(tile::ReadOp op, Layout layout) {
  auto type = cast<VectorType>(op.getValue().getType());
  bool isColumns = layout == Layout::Columns;
  Value first = toI32(isColumns ? firstColumn : firstRow);
  Type element = type.getElementType();
  int64_t bytes = tile::getElementBytes(element);
  Value base = arith::AddIOp::create(b, scalar(op.getTile()),
                                     arith::MulIOp::create(b, first, constantI32(bytes)));
  int64_t count = elementsPerThread(type, layout), width = isColumns ? 2 : 1;
  Parts result;
  for (int64_t e = 0; e < count; e += width) {
    Value pointer = sharedPointer(base, bytes * (isColumns ? columnOffset(e) : rowOffset(e)));
    if (!isColumns) {
      result.values.push_back(LLVM::LoadOp::create(b, element, pointer));
      continue;
    }
    Value pair = LLVM::LoadOp::create(b, VectorType::get(2, element), pointer, unsigned(2 * bytes));
    for (int64_t k : {0, 1})
      result.values.push_back(vector::ExtractOp::create(b, pair, k));
  }
  setParts(op.getValue(), layout, std::move(result));
}

/// Where four of a thread's registers lie: beside those of its neighbours, so that a quarter of a
/// warp has all banks.
Value KernelLowering::pointerToRegisters(Value tile, int64_t first) {
  Value thread = arith::AddIOp::create(b, lane, arith::MulIOp::create(b, warp, constantI32(32)));
  Value offset = arith::MulIOp::create(b, thread, constantI32(4 * kRegistersOfAccess));
  return sharedPointer(arith::AddIOp::create(b, scalar(tile), offset), first * 4 * group.threads());
}

void KernelLowering::storeRegisters(tile::WriteOp op) {
  SmallVector<Value> values = elements(op.getValue(), Layout::Tile);
  auto type = VectorType::get(kRegistersOfAccess, b.getF32Type());
  for (size_t r = 0; r < values.size(); r += kRegistersOfAccess)
    LLVM::StoreOp::create(
        b, vector::FromElementsOp::create(b, type, ArrayRef(values).slice(r, kRegistersOfAccess)),
        pointerToRegisters(op.getTile(), r), /*alignment=*/16);
}

void KernelLowering::loadRegisters(tile::ReadOp op) {
  auto type = VectorType::get(kRegistersOfAccess, b.getF32Type());
  int64_t count = elementsPerThread(cast<VectorType>(op.getValue().getType()), Layout::Tile);
  Parts result;
  for (int64_t r = 0; r < count; r += kRegistersOfAccess) {
    Value four = LLVM::LoadOp::create(b, type, pointerToRegisters(op.getTile(), r), 16);
    for (int64_t k = 0; k < kRegistersOfAccess; ++k)
      result.values.push_back(vector::ExtractOp::create(b, four, k));
  }
  setParts(op.getValue(), Layout::Tile, std::move(result));
}

void KernelLowering::lowerTileRead(tile::ReadOp op) {
  if (op.getTile().getType().isInRegisterOrder())
    return loadRegisters(op);
  if (cast<VectorType>(op.getValue().getType()).getRank() == 1) {
    for (Layout layout : layouts.of(op.getValue()))
      loadVector(op, layout);
    return;
  }
  tile::SmemType type = op.getTile().getType();
  Matrices matrices = placeValue(op.getTile(), type, op.getTranspose());
  int64_t columns = cast<VectorType>(op.getValue().getType()).getDimSize(1);
  auto layout = op.getTranspose() ? NVVM::MMALayout::col : NVVM::MMALayout::row;
  Type pair = VectorType::get(2, type.getElementType()), word = b.getI32Type();
  Parts result;
  // 8 columns are as many blocks as a thread has rows.
  int64_t atATime = 32 / registers.rows;
  for (int64_t column = 0; column < columns; column += atATime) {
    int32_t count = column + atATime <= columns ? 4 : 2;
    auto types = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(count, word));
    Value words = NVVM::LdMatrixOp::create(
        b, types, pointerToColumn(matrices, column), count, layout,
        NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8), NVVM::LdStMatrixEltType::B16);
    for (int64_t n = 0; n < count; ++n)
      result.values.push_back(
          LLVM::BitcastOp::create(b, pair, LLVM::ExtractValueOp::create(b, words, n)));
  }
  setParts(op.getValue(), Layout::Tile, std::move(result));
}

/// 32-bit elements: two neighbours at once, or one if transposed. Half a warp stores 32
/// bytes of each of four rows at a time; with the swizzle alone, those of rows 2 n and
/// 2 n + 1 would be in the same banks. Odd rows store what is 64 bytes further, or
/// before, in their place, and the other way round.
void KernelLowering::storeWords(tile::WriteOp op) {
  tile::SmemType type = op.getTile().getType();
  int64_t swizzle = type.getSwizzle();
  bool takesTurns = swizzle == 128 && type.getColumns() % type.getSlabColumns() == 0;
  auto constant = [&](int64_t value) { return constantI32(value); };
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  auto times = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, x, constant(y));
  };
  auto pointer = [&](Value row, Value columnBytes, int64_t moreRows, int64_t moreBytes,
                     Value permutation) -> Value {
    // Bytes of columns beyond the thread's first are multiples of 32, or of 8 rows.
    Value bytes = addI32(columnBytes, moreBytes);
    Value slab = arith::DivUIOp::create(b, bytes, constant(swizzle));
    Value within = arith::RemUIOp::create(b, bytes, constant(swizzle));
    within = arith::XOrIOp::create(b, within, permutation);
    Value offset = add(times(slab, type.getSlabBytes()), add(times(row, swizzle), within));
    return sharedPointer(add(scalar(op.getTile()), offset), moreRows * swizzle);
  };
  SmallVector<Value> values = elements(op.getValue(), Layout::Tile);
  Value row = toI32(firstRow), column = toI32(firstColumn);
  if (op.getTranspose()) {
    for (size_t r = 0; r < values.size(); ++r) {
      int64_t rows = rowOffset(registers.row(r)), columns = columnOffset(registers.column(r) & ~1u);
      Value memoryRow = addI32(column, r & 1);
      LLVM::StoreOp::create(b, values[r],
                            pointer(memoryRow, times(row, 4), columns, 4 * rows,
                                    swizzleOf(memoryRow, swizzle, b, constant)));
    }
    return;
  }
  Value permutation = swizzleOf(row, swizzle, b, constant);
  constexpr int64_t kFurther = 64; // bytes: 16 columns, two groups of registers
  Value isOdd = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                      arith::AndIOp::create(b, row, constant(1)), constant(0));
  if (takesTurns)
    permutation = arith::XOrIOp::create(
        b, permutation, arith::SelectOp::create(b, isOdd, constant(kFurther), constant(0)));
  for (size_t r = 0; r < values.size(); r += 2) {
    int64_t rows = rowOffset(registers.row(r)), columns = columnOffset(registers.column(r));
    SmallVector<Value, 2> both(ArrayRef(values).slice(r, 2));
    if (takesTurns)
      for (size_t k : {0, 1})
        both[k] = arith::SelectOp::create(b, isOdd, values[(r + k) ^ size_t(4 * registers.rows)],
                                          both[k]);
    auto pair = vector::FromElementsOp::create(b, VectorType::get(2, b.getF32Type()), both);
    LLVM::StoreOp::create(b, pair, pointer(row, times(column, 4), rows, 4 * columns, permutation),
                          /*alignment=*/8);
  }
}
