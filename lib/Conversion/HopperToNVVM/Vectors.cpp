// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Broadcasts, positions and reductions of tiles.

#include "Lowering.h"
#include <limits>

using namespace mlir;
using namespace attn::hopper;

LogicalResult KernelLowering::lowerBroadcast(vector::BroadcastOp op) {
  if (isBroadcastToTranspose(op))
    return success(); // by the transpose
  auto source = dyn_cast<VectorType>(op.getSourceType());
  for (Layout layout : layouts.of(op.getResult())) {
    if (!source) {
      setParts(op.getResult(), layout, splat(scalar(op.getSource()), op.getType(), layout));
    } else if (source.getShape() == op.getType().getShape()) {
      setParts(op.getResult(), layout, Parts(parts(op.getSource(), layout)));
    } else if (layout == Layout::Tile && source.getNumElements() > 1) {
      // vector<N> and vector<1xN> along the rows, vector<64x1> along the
      // columns.
      bool isColumns = source.getRank() == 1 || source.getDimSize(0) == 1;
      setTile(op.getResult(), op.getSource(), isColumns ? Layout::Columns : Layout::Rows);
    } else {
      return op.emitOpError() << "from " << source << " is not supported";
    }
  }
  return success();
}

/// The same value in each element.
Parts KernelLowering::splat(Value value, VectorType type, Layout layout) {
  SmallVector<Value> values(elementsPerThread(type, layout), value);
  return isPacked(type, layout) ? pack(values) : Parts(values);
}

/// A tile that repeats a row or column vector.
void KernelLowering::setTile(Value tile, Value source, Layout layout) {
  auto type = cast<VectorType>(tile.getType());
  Parts from = parts(source, layout), to;
  for (int64_t r = 0, count = elementsPerThread(type, Layout::Tile); r < count; ++r) {
    unsigned e = layout == Layout::Rows ? registers.row(r) : registers.column(r);
    to.values.push_back(from.values[e]);
    if (!from.offsets.empty())
      to.offsets.push_back(from.offsets[e]);
  }
  setParts(tile, Layout::Tile, isPacked(type, Layout::Tile) ? pack(to.values) : std::move(to));
}

LogicalResult KernelLowering::lowerTranspose(vector::TransposeOp op) {
  auto broadcast = op.getVector().getDefiningOp<vector::BroadcastOp>();
  if (!broadcast || op.getPermutation() != ArrayRef<int64_t>{1, 0})
    return op.emitOpError("expects a broadcast: elements would have to change threads");
  if (layouts.of(op.getResult()).empty())
    return success();
  auto source = dyn_cast<VectorType>(broadcast.getSourceType());
  if (source && source.getRank() != 1)
    return op.emitOpError("expects a broadcast of a vector of rank 1");
  if (source)
    setTile(op.getResult(), broadcast.getSource(), Layout::Rows);
  else
    setParts(op.getResult(), Layout::Tile,
             splat(scalar(broadcast.getSource()), op.getType(), Layout::Tile));
  return success();
}

LogicalResult KernelLowering::lowerShapeCast(vector::ShapeCastOp op) {
  for (Layout layout : layouts.of(op.getResult()))
    setParts(op.getResult(), layout, Parts(parts(op.getSource(), layout)));
  return success();
}

/// Some columns of a tile: each thread has them at the same place.
LogicalResult KernelLowering::lowerSlice(vector::ExtractStridedSliceOp op) {
  auto type = op.getSourceVectorType();
  SmallVector<int64_t> offsets, sizes;
  for (auto [offset, size] : llvm::zip_equal(op.getOffsets().getAsRange<IntegerAttr>(),
                                             op.getSizes().getAsRange<IntegerAttr>())) {
    offsets.push_back(offset.getInt());
    sizes.push_back(size.getInt());
  }
  if (type.getRank() != 2 || sizes.size() != 2 || sizes[0] != type.getDimSize(0) ||
      offsets[1] % kColumnGroup || sizes[1] % kColumnGroup)
    return op.emitOpError("expects all rows of a tile and whole groups of ")
           << kColumnGroup << " columns";
  for (Layout layout : layouts.of(op.getResult())) {
    const Parts &all = parts(op.getSource(), layout);
    size_t each = all.values.size() / size_t(type.getDimSize(1) / kColumnGroup);
    size_t first = size_t(offsets[1] / kColumnGroup) * each,
           count = size_t(sizes[1] / kColumnGroup) * each;
    Parts result(ArrayRef(all.values).slice(first, count));
    if (!all.offsets.empty())
      result.offsets.assign(all.offsets.begin() + first, all.offsets.begin() + first + count);
    setParts(op.getResult(), layout, std::move(result));
  }
  return success();
}

LogicalResult KernelLowering::lowerStep(vector::StepOp op) {
  for (Layout layout : layouts.of(op.getResult())) {
    bool isRows = layout == Layout::Rows;
    Parts result;
    for (int64_t e = 0, count = elementsPerThread(op.getType(), layout); e < count; ++e) {
      result.values.push_back(isRows ? firstRow : firstColumn);
      result.offsets.push_back(isRows ? rowOffset(e) : columnOffset(e, piece));
    }
    setParts(op.getResult(), layout, std::move(result));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

Value KernelLowering::combine(vector::CombiningKind kind, Value a, Value c) {
  using Kind = vector::CombiningKind;
  auto contract = arith::FastMathFlagsAttr::get(b.getContext(), arith::FastMathFlags::contract);
  bool isFloat = isa<FloatType>(a.getType());
  switch (kind) {
  case Kind::ADD:
    return isFloat ? Value(arith::AddFOp::create(b, a, c, contract))
                   : Value(arith::AddIOp::create(b, a, c));
  case Kind::MUL:
    return isFloat ? Value(arith::MulFOp::create(b, a, c, contract))
                   : Value(arith::MulIOp::create(b, a, c));
  case Kind::MAXNUMF:
    return LLVM::MaxNumOp::create(b, a, c);
  case Kind::MINNUMF:
    return LLVM::MinNumOp::create(b, a, c);
  case Kind::MAXIMUMF:
    return LLVM::MaximumOp::create(b, a, c);
  case Kind::MINIMUMF:
    return LLVM::MinimumOp::create(b, a, c);
  case Kind::MAXSI:
    return arith::MaxSIOp::create(b, a, c);
  case Kind::MINSI:
    return arith::MinSIOp::create(b, a, c);
  case Kind::MAXUI:
    return arith::MaxUIOp::create(b, a, c);
  case Kind::MINUI:
    return arith::MinUIOp::create(b, a, c);
  case Kind::AND:
    return arith::AndIOp::create(b, a, c);
  case Kind::OR:
    return arith::OrIOp::create(b, a, c);
  case Kind::XOR:
    return arith::XOrIOp::create(b, a, c);
  }
  llvm_unreachable("unknown combining kind");
}

/// In two chains, which may run side by side.
Value KernelLowering::reduceThread(vector::CombiningKind kind, ArrayRef<Value> values) {
  SmallVector<Value, 2> chains(values.take_front(2));
  for (size_t e = 2; e < values.size(); ++e)
    chains[e % 2] = combine(kind, chains[e % 2], values[e]);
  return chains.size() == 1 ? chains[0] : combine(kind, chains[0], chains[1]);
}

/// What a thread has of its rows.
SmallVector<SmallVector<Value>> KernelLowering::elementsOfRows(Value tile) {
  SmallVector<SmallVector<Value>> rows(registers.rows);
  for (auto [r, value] : llvm::enumerate(elements(tile, Layout::Tile)))
    rows[registers.row(r)].push_back(value);
  return rows;
}

Value KernelLowering::shuffle(Value value, int64_t distance) {
  Type type = value.getType(), i32 = b.getI32Type();
  auto exchange = [&](Value word) -> Value {
    return NVVM::ShflOp::create(b, word.getType(), constantI32(-1), word, constantI32(distance),
                                constantI32(31), NVVM::ShflKind::bfly, UnitAttr());
  };
  if (type.isF64()) {
    Value bits = arith::BitcastOp::create(b, b.getI64Type(), value);
    return arith::BitcastOp::create(b, type, shuffle(bits, distance));
  }
  if (!type.isInteger() || type.isInteger(32))
    return exchange(value);
  if (!type.isInteger(64))
    return arith::TruncIOp::create(b, type, exchange(arith::ExtUIOp::create(b, i32, value)));
  Value half = arith::ConstantIntOp::create(b, type, 32);
  Value low = arith::TruncIOp::create(b, i32, value);
  Value high = arith::TruncIOp::create(b, i32, arith::ShRUIOp::create(b, value, half));
  low = arith::ExtUIOp::create(b, type, exchange(low));
  high = arith::ExtUIOp::create(b, type, exchange(high));
  return arith::OrIOp::create(b, arith::ShLIOp::create(b, high, half), low);
}

/// Over so many neighbouring lanes, a power of two: every lane gets the same bits, for each
/// step combines the same two values.
Value KernelLowering::reduceLanes(vector::CombiningKind kind, Value value, int64_t lanes) {
  for (int64_t distance = 1; distance < lanes; distance *= 2)
    value = combine(kind, value, shuffle(value, distance));
  return value;
}

static bool fitsShuffle(Type type) {
  return type.isF32() || type.isF64() ||
         (type.isInteger() && (type.getIntOrFloatBitWidth() <= 32 || type.isInteger(64)));
}

LogicalResult KernelLowering::lowerMultiReduction(vector::MultiDimReductionOp op) {
  auto type = op.getSourceVectorType();
  if (type.getRank() != 2 || op.getReductionDims() != ArrayRef<int64_t>{1})
    return op.emitOpError("expects a reduction over dimension 1: rows are in different warps");
  if (!fitsShuffle(type.getElementType()))
    return op.emitOpError() << "expects f32, f64 or integers of at most 32 or of 64 bits, got "
                            << type.getElementType();
  if (layouts.of(op.getResult()).empty())
    return success();
  SmallVector<SmallVector<Value>> rows = elementsOfRows(op.getSource());
  Parts accumulator = parts(op.getAcc(), Layout::Rows), result;
  for (unsigned i = 0; i < rows.size(); ++i) {
    Value own = reduceThread(op.getKind(), rows[i]);
    if (!carried.partialReductions.contains(op))
      own = reduceLanes(op.getKind(), own, kLanesOfRow);
    result.values.push_back(combine(op.getKind(), accumulator.values[i], own));
  }
  setParts(op.getResult(), Layout::Rows, std::move(result));
  return success();
}

/// Each thread asks its own part of a row, as soon as it has it: nobody waits for the others'
/// parts.
LogicalResult KernelLowering::lowerReduction(vector::ReductionOp op) {
  if (!fitsShuffle(op.getVector().getType().getElementType()))
    return op.emitOpError("expects f32, f64 or integers of at most 32 or of 64 bits");
  SmallVector<Layout, 2> from = layouts.of(op.getVector());
  if (!llvm::is_contained(from, Layout::Columns))
    return op.emitOpError("expects a value per column: rows are in different warps");
  Value value = reduceLanes(op.getKind(),
                            reduceThread(op.getKind(), elements(op.getVector(), Layout::Columns)),
                            kLanesOfRow);
  if (Value accumulator = op.getAcc())
    value = combine(op.getKind(), scalar(accumulator), value);
  setScalar(op.getResult(), value);
  return success();
}
