// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles and their products: which shapes and types fit each other.

#include "attn/Dialect/Tile/IR/Tile.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace attn::tile;

#include "attn/Dialect/Tile/IR/TileDialect.cpp.inc"

void TileDialect::initialize() {
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Tile/IR/TileOps.cpp.inc"
      >();
}

LogicalResult attn::tile::verifyTmaSource(Operation *op, MemRefType memref, SmemType tile,
                                          std::optional<size_t> coordinates) {
  int64_t rank = memref.getRank();
  if (rank < 1 || rank > 5)
    return op->emitOpError() << "TMA walks tensors of rank 1 to 5, got " << memref;
  if (tile.getRank() > rank)
    return op->emitOpError() << "a tile of rank " << tile.getRank()
                             << " needs as many dimensions, got " << memref;
  if (memref.getElementType() != tile.getElementType())
    return op->emitOpError() << "element types differ: " << memref.getElementType() << " and "
                             << tile.getElementType();
  if (coordinates && int64_t(*coordinates) != rank)
    return op->emitOpError() << "expects " << rank << " indices, got " << *coordinates;
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(strides, offset)) || strides.back() != 1)
    return op->emitOpError() << "TMA needs a unit innermost stride, got " << memref;
  int64_t bytes = getElementBytes(memref.getElementType());
  for (int64_t stride : ArrayRef(strides).drop_back())
    if (!ShapedType::isDynamic(stride) && stride * bytes % 16)
      return op->emitOpError() << "TMA needs strides that are multiples of 16 bytes, got "
                               << memref;
  if (tile.getRows() > 256)
    return op->emitOpError() << "a box of TMA has at most 256 rows, got " << tile.getRows();
  if (tile.getSlabRows() != tile.getRows())
    return op->emitOpError() << "TMA copies whole tiles, not some rows of one";
  return success();
}

/// Memory whose last dimensions a tile is of.
static LogicalResult verifySource(Operation *op, MemRefType memref, SmemType tile, size_t indices) {
  if (memref.getRank() < tile.getRank())
    return op->emitOpError() << "a tile of rank " << tile.getRank()
                             << " needs as many dimensions, got " << memref;
  if (memref.getElementType() != tile.getElementType())
    return op->emitOpError() << "element types differ: " << memref.getElementType() << " and "
                             << tile.getElementType();
  if (int64_t(indices) != memref.getRank())
    return op->emitOpError() << "expects " << memref.getRank() << " indices, got " << indices;
  if (tile.getSlabRows() != tile.getRows())
    return op->emitOpError() << "copies whole tiles, not some rows of one";
  return success();
}

LogicalResult LoadOp::verify() {
  return verifySource(*this, cast<MemRefType>(getSource().getType()), getTile().getType(),
                      getIndices().size());
}

LogicalResult CopyOp::verify() {
  SmemType tile = getTile().getType();
  if (tile.getRank() != 2 || tile.isInRegisterOrder())
    return emitOpError() << "copies a tile of rows of slabs, or one row, got " << tile;
  auto source = cast<MemRefType>(getSource().getType());
  if (bool(getTable()) != bool(getLengths()))
    return emitOpError("expects a table of pages and lengths, or neither");
  if (getAlignedRows() && !getTable())
    return emitOpError("expects pages where 'aligned_rows' says how rows begin");
  if (getTable() && (source.getRank() != 4 || source.isDynamicDim(2)))
    return emitOpError() << "expects a pool of (page, head, row, column) with pages of a static "
                            "size, got "
                         << source;
  return verifySource(*this, source, tile, getIndices().size());
}

LogicalResult RowsOp::verify() {
  SmemType source = getSource().getType(), tile = getTile().getType();
  if (tile.getColumns() != source.getColumns() || tile.getSwizzle() != source.getSwizzle() ||
      tile.getElementType() != source.getElementType() ||
      tile.getSlabRows() != source.getSlabRows() || tile.getRows() > source.getRows())
    return emitOpError() << tile << " is no part of the rows of " << source;
  APInt offset;
  if (matchPattern(getOffset(), m_ConstantInt(&offset)) &&
      (offset.getSExtValue() % 8 || offset.getSExtValue() < 0 ||
       offset.getSExtValue() + tile.getRows() > source.getRows()))
    return emitOpError() << "rows from " << offset.getSExtValue() << " are no part of " << source;
  return success();
}

LogicalResult ColumnsOp::verify() {
  SmemType source = getSource().getType(), tile = getTile().getType();
  if (tile.getRows() != source.getRows() || tile.getSwizzle() != source.getSwizzle() ||
      tile.getElementType() != source.getElementType() ||
      tile.getSlabRows() != source.getSlabRows() || tile.getColumns() > source.getColumns() ||
      (tile.getColumns() % source.getSlabColumns() && source.getSlabColumns() % tile.getColumns()))
    return emitOpError() << tile << " is no part of the slabs of " << source;
  APInt offset;
  int64_t unit = std::min(source.getSlabColumns(), tile.getColumns());
  if (matchPattern(getOffset(), m_ConstantInt(&offset)) &&
      (offset.getSExtValue() % unit || offset.getSExtValue() < 0 ||
       offset.getSExtValue() + tile.getColumns() > source.getColumns()))
    return emitOpError() << "columns from " << offset.getSExtValue()
                         << " are no part of the slabs of " << source;
  return success();
}

/// Rows of one warpgroup, and those of all.
static LogicalResult verifyWhole(Operation *op, VectorType part, ArrayRef<int64_t> whole,
                                 Type element) {
  if (part.getElementType() != element || whole.size() != 2 || part.getDimSize(1) != whole[1] ||
      whole[0] % part.getDimSize(0))
    return op->emitOpError("expects a whole number of parts of the type of ") << part;
  return success();
}

LogicalResult GatherOp::verify() {
  auto whole = cast<VectorType>(getWhole().getType());
  auto part = cast<VectorType>(getPart().getType());
  // All columns, or each warpgroup's share of them.
  int64_t columns = whole.getDimSize(1);
  if (columns * (whole.getDimSize(0) / part.getDimSize(0)) == part.getDimSize(1))
    columns = part.getDimSize(1);
  return verifyWhole(*this, part, {whole.getDimSize(0), columns}, whole.getElementType());
}

LogicalResult ShareOp::verify() {
  SmemType tile = getTile().getType();
  return verifyWhole(*this, cast<VectorType>(getPart().getType()), tile.getShape(),
                     tile.getElementType());
}

LogicalResult attn::tile::verifyProduct(Operation *op, ArrayRef<target::MmaAtom> atoms, Type aType,
                                        SmemType b, VectorType accumulator, bool transposeA,
                                        bool transposeB) {
  int64_t m = accumulator.getDimSize(0), n = accumulator.getDimSize(1);
  Type element = b.getElementType();
  const target::MmaAtom *atom = target::findMmaAtom(atoms, element);
  if (!atom)
    return op->emitOpError() << "expects operands of " << target::listOperands(atoms) << ", got "
                             << element;
  if (!target::isType(atom->accumulator, accumulator.getElementType()))
    return op->emitOpError() << "products of " << element << " are added up in "
                             << target::getName(atom->accumulator) << ", got "
                             << accumulator.getElementType();
  if (!atom->n.contains(n))
    return op->emitOpError() << "n is a multiple of " << atom->n.step << " and at most "
                             << atom->n.most << ", got " << n;
  int64_t aRows, k;
  bool inRegisters = false;
  if (auto a = dyn_cast<SmemType>(aType)) {
    if (a.getElementType() != element)
      return op->emitOpError() << "element types differ: " << a.getElementType() << " and "
                               << element;
    if (a.getRank() != 2)
      return op->emitOpError("expects tiles of rank 2");
    aRows = transposeA ? a.getColumns() : a.getRows();
    k = transposeA ? a.getRows() : a.getColumns();
  } else {
    auto vector = cast<VectorType>(aType);
    inRegisters = true;
    if (vector.getElementType() != element)
      return op->emitOpError() << "element types differ: " << vector.getElementType() << " and "
                               << element;
    if (transposeA)
      return op->emitOpError("a vector cannot be transposed");
    aRows = vector.getDimSize(0);
    k = vector.getDimSize(1);
  }
  if (b.getRank() != 2)
    return op->emitOpError("expects tiles of rank 2");
  int64_t bRows = transposeB ? b.getColumns() : b.getRows();
  int64_t bColumns = transposeB ? b.getRows() : b.getColumns();
  if (aRows != m)
    return op->emitOpError() << "A has " << aRows << " rows, the accumulator " << m;
  if (bColumns != n)
    return op->emitOpError() << "B has " << bColumns << " columns, the accumulator " << n;
  if (k != bRows)
    return op->emitOpError() << "A has " << k << " columns, B has " << bRows << " rows";
  // k runs along padded columns of both tiles, or else over whole steps.
  bool padded = !inRegisters && !transposeA && transposeB;
  if (int64_t step = padded ? 8 : atom->k; k % step)
    return op->emitOpError() << "k is a multiple of " << step << ", got " << k;
  return success();
}

LogicalResult MmaOp::verify() {
  VectorType accumulator = getAccumulator().getType();
  if (int64_t m = kAtoms[0].m; accumulator.getDimSize(0) % m)
    return emitOpError() << "m is a multiple of " << m << ", got " << accumulator.getDimSize(0);
  if (std::optional<int64_t> terms = getTf32();
      terms && ((*terms != 1 && *terms != 3) || !getB().getType().getElementType().isF32()))
    return emitOpError() << "one product of f32 is 1 or 3 of TF32, got " << *terms << " of "
                         << getB().getType().getElementType();
  return verifyProduct(*this, kAtoms, getA().getType(), getB().getType(), accumulator,
                       getTransposeA(), getTransposeB());
}

LogicalResult WriteOp::verify() {
  VectorType value = getValue().getType();
  SmemType tile = getTile().getType();
  if (tile.getRows() == 1)
    return emitOpError() << "writes tiles of several rows, got " << tile;
  int64_t rows = value.getDimSize(0), columns = value.getDimSize(1);
  if (getTranspose())
    std::swap(rows, columns);
  if (value.getElementType() != tile.getElementType() || rows != tile.getRows() ||
      columns != tile.getColumns() || (getTranspose() && tile.isInRegisterOrder()))
    return emitOpError() << value << " does not fit " << tile;
  return success();
}

LogicalResult ReadOp::verify() {
  SmemType tile = getTile().getType();
  bool isVector = cast<VectorType>(getValue().getType()).getRank() == 1;
  if (!isVector && getElementBytes(tile.getElementType()) != 2 && !tile.isInRegisterOrder())
    return emitOpError() << "reads tiles with elements of 16 bits, or in the order of registers, "
                            "got "
                         << tile;
  SmallVector<int64_t> shape(tile.getShape());
  if (getTranspose() && (isVector || tile.isInRegisterOrder()))
    return emitOpError() << (isVector ? "a vector" : "a tile in the order of registers")
                         << " has no transpose";
  if (isVector && tile.getRows() == 1)
    shape.erase(shape.begin());
  if (getTranspose())
    std::reverse(shape.begin(), shape.end());
  if (getValue().getType() != VectorType::get(shape, tile.getElementType()))
    return emitOpError() << getValue().getType() << " is not what " << tile << " holds";
  return success();
}

#define GET_OP_CLASSES
#include "attn/Dialect/Tile/IR/TileOps.cpp.inc"
