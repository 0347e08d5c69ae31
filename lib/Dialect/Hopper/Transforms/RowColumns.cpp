// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elements of rows in memory: pieces of 16 bytes, and the elements in front of the first and behind
// the last one. See RowLaunch.h.

#include "RowLaunch.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

bool attn::hopper::hasPieces(const RowSpace &space, Value memref, int64_t size) {
  const RowMemory &memory = space.memory.find(memref)->second;
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  Type element = type.getElementType();
  if (!memory.hasColumns || !(memory.isRead || memory.isKept) ||
      failed(type.getStridesAndOffset(strides, offset)) || strides.back() != 1 ||
      memory.dims.back() != space.columns || !element.isIntOrFloat())
    return false;
  int64_t bits = element.getIntOrFloatBitWidth();
  return (bits == 16 || bits == 32) && size * bits <= 8 * kPieceBytes;
}

/// Elements in front of the row's first one, from a multiple of a piece's size on.
Value RowLaunch::findMisalignment(Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
  Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  Value place = arith::DivUIOp::create(b, start, index(bytes));
  place = add(place, metadata.getOffset());
  for (auto [dim, stride] :
       llvm::zip_equal(space.memory.find(memref)->second.dims, metadata.getStrides()))
    if (dim && *dim != space.columns)
      place = add(place, mul(coordinateOf(*dim), stride));
  return arith::AndIOp::create(b, place, index(form.size - 1));
}

/// Pieces begin at multiples of their size in the first memory that has pieces; there, and where
/// rows begin alike, they are read and written whole.
void RowLaunch::findColumns(Value length) {
  for (auto &[memref, each] : space.memory) {
    if (!hasPieces(space, memref, form.size))
      continue;
    Value own = findMisalignment(memref);
    if (!shift)
      shift = own;
    else
      isAligned[memref] = compare(arith::CmpIPredicate::eq, own, shift);
    aligned.insert(memref);
  }
  if (!shift)
    shift = index(0);
  rowLength = length;
}

/// The elements from `start` on, which is a multiple of a piece from the first one.
void RowLaunch::enterChunk(Value start) {
  origin = sub(start, shift);
  firstColumn = add(origin, toIndex(firstPiece));
  Value zero = index(0);
  low = toI32(arith::MaxSIOp::create(b, sub(zero, origin), zero));
  Value end = arith::MinSIOp::create(b, sub(rowLength, origin), index(form.capacity()));
  high = arith::MaxSIOp::create(b, toI32(arith::MaxSIOp::create(b, end, zero)), low);
  // Few values for all pieces: each is compared with numbers.
  numWhole = countPieces(sub(high, i32(form.size)));
  numSome = countPieces(sub(high, i32(1)));
  beginsInside = compare(arith::CmpIPredicate::sge, firstPiece, low);
}

/// How many of the thread's pieces begin at `last` or before.
Value RowLaunch::countPieces(Value last) {
  Value room = add(sub(last, firstPiece), i32(step()));
  return arith::ShRSIOp::create(b, room, i32(llvm::Log2_64(uint64_t(step()))));
}

/// Whether element e is one of the row.
Value RowLaunch::isInside(size_t e) {
  Value place = add(firstPiece, i32(placeOf(e)));
  return compare(arith::CmpIPredicate::ult, sub(place, low), sub(high, low));
}

/// Whether a piece is one of the first `count`; only the first one may begin in front of the row.
Value RowLaunch::isAmong(int64_t piece, Value count, Value begins) {
  Value is = compare(arith::CmpIPredicate::slt, i32(piece), count);
  return piece == 0 ? both(is, begins) : is;
}

SmallVector<Value> RowLaunch::indicesOf(Value memref, Value column) {
  SmallVector<Value> indices;
  for (std::optional<Dim> dim : space.memory.find(memref)->second.dims)
    indices.push_back(!dim ? index(0) : *dim == space.columns ? column : coordinateOf(*dim));
  return indices;
}

llvm::MaybeAlign RowLaunch::alignmentOf(Type element) const {
  return llvm::Align(uint64_t(form.size) * element.getIntOrFloatBitWidth() / 8);
}

Value RowLaunch::loadElement(Value memref, size_t e) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  auto branch = scf::IfOp::create(b, element, isInside(e), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, zeroOf(element));
  b.setInsertionPointToStart(branch.thenBlock());
  Value loaded = memref::LoadOp::create(b, memref, indicesOf(memref, columnOf(e)));
  scf::YieldOp::create(b, loaded);
  return branch.getResult(0);
}

/// The memory of a view as one row, and where a row of it starts there.
std::pair<Value, Value> RowLaunch::flatten(Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
  Value start = index(0), span = index(1);
  for (auto [dim, size, stride] : llvm::zip_equal(space.memory.find(memref)->second.dims,
                                                  metadata.getSizes(), metadata.getStrides())) {
    span = add(span, mul(sub(size, index(1)), stride));
    if (dim && *dim != space.columns)
      start = add(start, mul(coordinateOf(*dim), stride));
  }
  auto layout = StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, {1});
  auto flat =
      MemRefType::get({ShapedType::kDynamic}, type.getElementType(), layout, type.getMemorySpace());
  Value view = memref::ReinterpretCastOp::create(
      b, flat, metadata.getBaseBuffer(), OpFoldResult(metadata.getOffset()),
      ArrayRef<OpFoldResult>{OpFoldResult(span)},
      ArrayRef<OpFoldResult>{OpFoldResult(b.getIndexAttr(1))});
  return {view, start};
}

/// Reads pieces; of one that is not all in the row, what is beside it too, where that is memory
/// of the same view.
Content RowLaunch::loadColumns(Value memref) {
  Content content;
  auto type = cast<MemRefType>(memref.getType());
  Type element = type.getElementType();
  if (!aligned.contains(memref)) {
    for (int64_t e = 0; e < form.pieces * form.size; ++e)
      content.elements.push_back(loadElement(memref, size_t(e)));
    return content;
  }
  auto [flat, start] = flatten(memref);
  Value count = numWhole, begins = beginsInside;
  if (!space.memory.find(memref)->second.isWritten) {
    // What is beside the row is memory of the view, too, but in front of its first row and behind
    // its last one.
    Value firstPlace = add(start, firstColumn);
    Value room = sub(sub(memref::DimOp::create(b, flat, 0), index(form.size)), firstPlace);
    room = arith::MinSIOp::create(b, room, index(form.capacity()));
    room = arith::MaxSIOp::create(b, room, index(-2 * step()));
    Value fits = arith::ShRSIOp::create(b, add(toI32(room), i32(step())),
                                        i32(llvm::Log2_64(uint64_t(step()))));
    count = arith::MinSIOp::create(b, numSome, fits);
    begins = compare(arith::CmpIPredicate::sge, firstPlace, index(0));
  }
  if (Value is = isAligned.lookup(memref))
    count = arith::SelectOp::create(b, is, count, i32(0));
  auto vector = VectorType::get(form.size, element);
  for (int64_t piece = 0; piece < form.pieces; ++piece) {
    size_t first = size_t(piece * form.size);
    Value place = add(start, columnOf(first));
    Value reads = isAmong(piece, count, begins);
    OpBuilder::InsertionGuard guard(b);
    auto whole = scf::IfOp::create(b, vector, reads, /*withElseRegion=*/true);
    b.setInsertionPointToStart(whole.thenBlock());
    Value loaded = vector::LoadOp::create(b, vector, flat, ValueRange{place},
                                          /*nontemporal=*/false, alignmentOf(element));
    scf::YieldOp::create(b, loaded);
    b.setInsertionPointToStart(whole.elseBlock());
    auto some = scf::IfOp::create(b, vector, isSome(piece), /*withElseRegion=*/true);
    scf::YieldOp::create(b, some.getResult(0));
    b.setInsertionPointToStart(some.elseBlock());
    scf::YieldOp::create(b, zeroOf(vector));
    b.setInsertionPointToStart(some.thenBlock());
    SmallVector<Value> parts;
    for (int64_t e = 0; e < form.size; ++e)
      parts.push_back(loadElement(memref, first + size_t(e)));
    scf::YieldOp::create(b, Value(vector::FromElementsOp::create(b, vector, parts)));
    content.pieces.push_back(whole.getResult(0));
  }
  return content;
}

void RowLaunch::storeElement(Value memref, size_t e, Value value) {
  auto branch = scf::IfOp::create(b, both(isInside(e), isRow));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  memref::StoreOp::create(b, value, memref, indicesOf(memref, columnOf(e)));
}

void RowLaunch::storeColumns(Value memref, const Content &content) {
  auto vector = VectorType::get(form.size, cast<MemRefType>(memref.getType()).getElementType());
  Type element = vector.getElementType();
  Value count = numWhole;
  for (Value is : {isAligned.lookup(memref), isRow})
    if (is)
      count = arith::SelectOp::create(b, is, count, i32(0));
  for (int64_t piece = 0; piece < form.pieces; ++piece) {
    auto at = [&](int64_t e) { return size_t(piece * form.size + e); };
    SmallVector<Value> parts;
    auto storeAll = [&] {
      for (int64_t e = 0; e < form.size; ++e)
        storeElement(memref, at(e), parts[size_t(e)]);
    };
    for (int64_t e = 0; e < form.size; ++e)
      parts.push_back(get(content, at(e)));
    if (!aligned.contains(memref)) {
      storeAll();
      continue;
    }
    Value all = vector::FromElementsOp::create(b, vector, parts);
    OpBuilder::InsertionGuard guard(b);
    auto whole = scf::IfOp::create(b, TypeRange(), isAmong(piece, count, beginsInside),
                                   /*withElseRegion=*/true);
    b.setInsertionPointToStart(whole.thenBlock());
    vector::StoreOp::create(b, all, memref, indicesOf(memref, columnOf(at(0))),
                            /*nontemporal=*/false, alignmentOf(element));
    b.setInsertionPointToStart(whole.elseBlock());
    auto some = scf::IfOp::create(b, both(isSome(piece), isRow));
    b.setInsertionPointToStart(some.thenBlock());
    storeAll();
  }
}
