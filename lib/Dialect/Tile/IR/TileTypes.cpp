// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles in shared memory: their layout, syntax and limits.

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Utils/Tiles.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn::tile;

#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Tile/IR/TileTypes.cpp.inc"

void TileDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "attn/Dialect/Tile/IR/TileTypes.cpp.inc"
      >();
}

int64_t attn::tile::getElementBytes(Type type) { return attn::getBits(type) / 8; }

SmemType SmemType::getTile() const {
  if (!isRing())
    return *this;
  return SmemType::get(getContext(), getShape().drop_front(), getElementType(), getSwizzle(),
                       getSlabRows());
}

int64_t SmemType::getSlabColumns() const {
  return getSwizzle() ? getSwizzle() / getElementBytes(getElementType()) : getColumns();
}

int64_t SmemType::getSlabs() const { return llvm::divideCeil(getColumns(), getSlabColumns()); }

int64_t SmemType::getTileBytes() const {
  return getRows() * getSlabs() * getSlabColumns() * getElementBytes(getElementType());
}

LogicalResult SmemType::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                               llvm::ArrayRef<int64_t> shape, Type elementType, int64_t swizzle,
                               int64_t slabRows) {
  if (shape.size() < 2 || shape.size() > 3)
    return emitError() << "expects rank 2 or 3, got " << shape.size();
  for (int64_t size : shape)
    if (size <= 0)
      return emitError() << "expects positive static sizes, got " << size;
  if (!target::findMmaAtom(kAtoms, elementType))
    return emitError() << "expects elements of " << target::listOperands(kAtoms) << ", got "
                       << elementType;
  int64_t rows = shape[shape.size() - 2];
  if (rows == 1) {
    int64_t bytes = shape.back() * getElementBytes(elementType);
    if (swizzle != 128 && (swizzle != 0 || bytes % 128))
      return emitError() << "one row has no swizzle and a multiple of 128 bytes, or, of a tile, a "
                            "swizzle of 128 bytes; got a swizzle of "
                         << swizzle << " and " << bytes << " bytes";
    return success();
  }
  if (swizzle == 0 && elementType.isF32() && rows == kAtoms[0].m && slabRows == rows &&
      shape.back() % 8 == 0)
    return success(); // in the order of registers
  if (swizzle != 128 && swizzle != 64 && swizzle != 32)
    return emitError() << "expects a swizzle of 128, 64 or 32 bytes, got " << swizzle;
  if (rows % 8)
    return emitError() << "expects a multiple of 8 rows, got " << rows;
  if (slabRows < rows)
    return emitError() << "a slab of " << slabRows << " rows cannot hold " << rows;
  return success();
}

Type SmemType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type element;
  int64_t swizzle = 0;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(element))
    return {};
  int64_t slabRows = shape.size() < 2 ? 0 : shape[shape.size() - 2];
  while (succeeded(parser.parseOptionalComma())) {
    StringRef key;
    SMLoc keyLocation = parser.getCurrentLocation();
    int64_t value;
    if (parser.parseKeyword(&key) || parser.parseEqual() || parser.parseInteger(value))
      return {};
    if (key == "swizzle")
      swizzle = value;
    else if (key == "slab_rows")
      slabRows = value;
    else
      return parser.emitError(keyLocation, "expected swizzle or slab_rows"), Type();
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<SmemType>(location, parser.getContext(), shape, element, swizzle,
                                     slabRows);
}

void SmemType::print(AsmPrinter &printer) const {
  printer << '<';
  printer.printDimensionList(getShape());
  printer << 'x' << getElementType();
  if (getSwizzle())
    printer << ", swizzle = " << getSwizzle();
  if (getSlabRows() != getRows())
    printer << ", slab_rows = " << getSlabRows();
  printer << '>';
}
