// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of single warps: `mma.sync` (m16n8k16) for 16-bit operands, whose accumulator and left
// operand are the fragments of a tile as it is, and FMAs for f32 and f64.

#include "Lowering.h"

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

/// Of one instruction.
static constexpr int64_t kM = 16, kN = 8, kK = 16;

/// Two or four 8 x 8 blocks of 16 bits, a word of each thread for each.
SmallVector<Value> KernelLowering::loadBlocks(Value pointer, int32_t count, bool transpose) {
  Type word = b.getI32Type();
  auto types = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(count, word));
  Value all = NVVM::LdMatrixOp::create(
      b, types, pointer, count, transpose ? NVVM::MMALayout::col : NVVM::MMALayout::row,
      NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8), NVVM::LdStMatrixEltType::B16);
  SmallVector<Value> words;
  for (int64_t n = 0; n < count; ++n)
    words.push_back(LLVM::ExtractValueOp::create(b, all, n));
  return words;
}

/// For each 16 of k: the left operand's fragments of all rows, then 16 columns at a time of the
/// right one, which all rows share.
void KernelLowering::multiplyFragments(tile::MmaOp op) {
  VectorType type = op.getResult().getType();
  tile::SmemType bTile = op.getB().getType();
  Type element = bTile.getElementType(), word = b.getI32Type(), f32 = b.getF32Type();
  int64_t n = type.getDimSize(1);
  int64_t k = op.getTransposeB() ? bTile.getColumns() : bTile.getRows();
  int64_t halves = registers.rows / 2;
  SmallVector<Value> sums = parts(op.getAccumulator(), Layout::Tile).values;
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  auto times = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, x, constantI32(y));
  };
  Value inBlock = bitsOfLane(0, 7), low = bitsOfLane(3, 1), high = bitsOfLane(4, 1);
  // Blocks of 16 x 16 of B: k and then n.
  Matrices bBlocks = op.getTransposeB() // rows are n
                         ? placeMatrices(op.getB(), bTile, add(inBlock, times(high, 8)), low)
                         : placeMatrices(op.getB(), bTile, add(inBlock, times(low, 8)), high);
  std::optional<Matrices> aBlocks;
  SmallVector<Value> aWords;
  if (auto aTile = dyn_cast<tile::SmemType>(op.getA().getType())) {
    Value ofWarp = times(warp, group.rowsOfWarp());
    aBlocks = op.getTransposeA()
                  ? placeMatrices(op.getA(), aTile, add(inBlock, times(high, 8)),
                                  add(low, times(warp, group.rowsOfWarp() / 8)))
                  : placeMatrices(op.getA(), aTile, add(add(inBlock, times(low, 8)), ofWarp), high);
  } else {
    for (Value pair : parts(op.getA(), Layout::Tile).values)
      aWords.push_back(LLVM::BitcastOp::create(b, word, pair));
  }
  /// Registers of a fragment: rows g and g + 8, then the same 8 further along k.
  auto fragmentOfA = [&](int64_t half, int64_t step) {
    if (!aBlocks) {
      SmallVector<Value> fragment;
      for (int64_t column : {16 * step, 16 * step + 8})
        for (unsigned row : {0, 1})
          fragment.push_back(
              aWords[registers.at(unsigned(2 * half) + row, unsigned(column / 4)) / 2]);
      return fragment;
    }
    Value pointer = op.getTransposeA() ? pointerTo(*aBlocks, step * kK, half * kM / 8)
                                       : pointerTo(*aBlocks, half * kM, step * kK / 8);
    return loadBlocks(pointer, 4, op.getTransposeA());
  };
  auto asOperands = [&](ArrayRef<Value> words) {
    if (!element.isF16())
      return SmallVector<Value>(words);
    return llvm::map_to_vector(words, [&](Value each) -> Value {
      return LLVM::BitcastOp::create(b, VectorType::get(2, element), each);
    });
  };
  auto result = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, f32));
  auto ptxType = element.isF16() ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  for (int64_t step = 0, steps = llvm::divideCeil(k, kK); step < steps; ++step) {
    SmallVector<SmallVector<Value>> a;
    for (int64_t half = 0; half < halves; ++half)
      a.push_back(asOperands(fragmentOfA(half, step)));
    for (int64_t column = 0; column < n; column += 2 * kN) {
      int32_t count = column + kN < n ? 4 : 2;
      Value pointer = op.getTransposeB() ? pointerTo(bBlocks, column, step * kK / 8)
                                         : pointerTo(bBlocks, step * kK, column / 8);
      SmallVector<Value> words = asOperands(loadBlocks(pointer, count, !op.getTransposeB()));
      for (int64_t block = 0; block < count / 2; ++block)
        for (int64_t half = 0; half < halves; ++half) {
          unsigned first = registers.at(unsigned(2 * half), unsigned((column + block * kN) / 4));
          Value product = NVVM::MmaOp::create(
              b, result, a[size_t(half)], ArrayRef(words).slice(size_t(2 * block), 2),
              ArrayRef(sums).slice(first, 4), ArrayRef<int64_t>{kM, kN, kK}, std::nullopt,
              std::nullopt, std::array{ptxType, ptxType},
              std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
          for (unsigned i = 0; i < 4; ++i)
            sums[first + i] = LLVM::ExtractValueOp::create(b, product, i);
        }
    }
  }
  setParts(op.getResult(), Layout::Tile, Parts(sums));
}

/// f32 and f64: each thread its rows by its columns, 16 bytes along k at a time. A lies in shared
/// memory by rows; the rows of a warp are its own.
void KernelLowering::multiplyElements(tile::MmaOp op) {
  VectorType type = op.getResult().getType();
  auto aTile = cast<tile::SmemType>(op.getA().getType());
  tile::SmemType bTile = op.getB().getType();
  Type element = bTile.getElementType();
  const int64_t bytes = tile::getElementBytes(element), atATime = 16 / bytes;
  auto chunk = VectorType::get(atATime, element);
  int64_t columns = type.getDimSize(1) / kLanesOfRow;
  int64_t k = op.getTransposeB() ? bTile.getColumns() : bTile.getRows();
  SmallVector<Value> sums = elements(op.getAccumulator(), Layout::Tile);
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  auto times = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, x, constantI32(y));
  };
  // Several steps at a time, of one slab, so that loads of one run beside the additions of another.
  int64_t steps = k / atATime, unrolled = 1;
  for (int64_t more : {4, 2})
    if (unrolled == 1 && steps % more == 0 && aTile.getSwizzle() / 16 >= more &&
        bTile.getSwizzle() / 16 >= more)
      unrolled = more;
  auto loop =
      scf::ForOp::create(b, constantIndex(0), constantIndex(steps), constantIndex(unrolled), sums);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> carried(loop.getRegionIterArgs());
    Value first = toI32(loop.getInductionVar());
    int64_t step = 0; // behind it
    /// Where a row's chunk `first + step` is, whose permutation is `bits`.
    auto chunkOf = [&](tile::SmemType tile, Value bits) {
      int64_t chunks = tile.getSwizzle() / 16;
      Value slab = arith::DivUIOp::create(b, first, constantI32(chunks));
      Value within = times(arith::RemUIOp::create(b, first, constantI32(chunks)), 16);
      Value place = arith::XOrIOp::create(b, within, bits);
      if (step)
        place = arith::XOrIOp::create(b, place, constantI32(step * 16));
      return add(times(slab, tile.getSlabBytes()), place);
    };
    auto elementAt = [&](int64_t e) { return addI32(times(first, atATime), step * atATime + e); };
    auto loadChunk = [&](Value address, int64_t offset) {
      Value all = LLVM::LoadOp::create(b, chunk, sharedPointer(address, offset), 16);
      SmallVector<Value> values;
      for (int64_t e = 0; e < atATime; ++e)
        values.push_back(vector::ExtractOp::create(b, all, e));
      return values;
    };
    auto constant = [&](int64_t value) { return constantI32(value); };
    Value row = toI32(firstRow), column = toI32(firstColumn);
    for (; step < unrolled; ++step) {
      SmallVector<SmallVector<Value>> a;
      Value ofRow = add(add(scalar(op.getA()), times(row, aTile.getSwizzle())),
                        chunkOf(aTile, swizzleOf(row, aTile.getSwizzle(), b, constant)));
      for (int64_t r = 0; r < registers.rows; ++r)
        a.push_back(loadChunk(ofRow, rowOffset(r) * aTile.getSwizzle()));
      auto accumulate = [&](int64_t c, int64_t e, Value value) {
        for (int64_t r = 0; r < registers.rows; ++r) {
          Value &sum = carried[registers.at(unsigned(r), unsigned(c))];
          sum = LLVM::FMAOp::create(b, a[size_t(r)][size_t(e)], value, sum);
        }
      };
      if (op.getTransposeB()) {  // rows are columns of the result, a chunk along k of each
        SmallVector<Value> from; // of the columns that a thread has side by side
        for (int64_t c = 0; c < piece; ++c) {
          Value own = addI32(column, c);
          from.push_back(add(add(scalar(op.getB()), times(own, bTile.getSwizzle())),
                             chunkOf(bTile, swizzleOf(own, bTile.getSwizzle(), b, constant))));
        }
        for (int64_t c = 0; c < columns; ++c) {
          int64_t further = columnOffset(unsigned(c - c % piece), piece);
          SmallVector<Value> values =
              loadChunk(from[size_t(c % piece)], further * bTile.getSwizzle());
          for (int64_t e = 0; e < atATime; ++e)
            accumulate(c, e, values[size_t(e)]);
        }
      } else { // rows are k
        auto some = VectorType::get(piece, element);
        for (int64_t e = 0; e < atATime; ++e) {
          Value own = elementAt(e);
          Value bits = swizzleOf(own, bTile.getSwizzle(), b, constant);
          Value base = add(scalar(op.getB()), times(own, bTile.getSwizzle()));
          for (int64_t c = 0; c < columns; c += piece) {
            // Bits of the thread's columns and of the constant do not meet.
            int64_t further = columnOffset(unsigned(c), piece) * bytes;
            Value within = arith::XOrIOp::create(
                b, addI32(times(column, bytes), further % bTile.getSwizzle()), bits);
            Value all =
                LLVM::LoadOp::create(b, some,
                                     sharedPointer(add(base, within), further / bTile.getSwizzle() *
                                                                          bTile.getSlabBytes()),
                                     unsigned(piece * bytes));
            for (int64_t n = 0; n < piece; ++n)
              accumulate(c + n, e, vector::ExtractOp::create(b, all, n));
          }
        }
      }
    }
    scf::YieldOp::create(b, carried);
  }
  setParts(op.getResult(), Layout::Tile, Parts(loop.getResults()));
}

/// x as the sum of one or two numbers of TF32, the large one first.
SmallVector<Value> KernelLowering::splitTf32(Value x, int64_t terms) {
  auto round = [&](Value value) {
    return inlineAsm(b.getI32Type(), value, "cvt.rna.tf32.f32 $0, $1;", "=r,f",
                     /*sideEffects=*/false);
  };
  SmallVector<Value> parts = {round(x)};
  if (terms == 1)
    return parts;
  Value large = LLVM::BitcastOp::create(b, b.getF32Type(), parts[0]);
  parts.push_back(round(arith::SubFOp::create(b, x, large)));
  return parts;
}

/// f32 by the tensor core (m16n8k8 of TF32). A left operand in registers has columns 2 t and 2 t +
/// 1 where the instruction has t and t + 4 of k: the rows of B are taken in the same order.
LogicalResult KernelLowering::multiplyTf32(tile::MmaOp op) {
  constexpr int64_t kStep = 8, kChunks = 2; // of k, and its chunks of 16 bytes
  VectorType type = op.getResult().getType();
  tile::SmemType bTile = op.getB().getType();
  auto aTile = dyn_cast<tile::SmemType>(op.getA().getType());
  if (!aTile && op.getTransposeB())
    return op.emitOpError("of TF32 with a left operand in registers takes right ones by rows");
  int64_t terms = *op.getTf32(), n = type.getDimSize(1), halves = registers.rows / 2;
  int64_t k = op.getTransposeB() ? bTile.getColumns() : bTile.getRows();
  SmallVector<Value> sums = elements(op.getAccumulator(), Layout::Tile), aValues;
  if (!aTile)
    aValues = elements(op.getA(), Layout::Tile);
  Type f32 = b.getF32Type();
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  auto times = [&](Value x, int64_t y) -> Value {
    return arith::MulIOp::create(b, x, constantI32(y));
  };
  auto asFloat = [&](Value word) -> Value { return LLVM::BitcastOp::create(b, f32, word); };
  Value inBlock = bitsOfLane(0, 7), low = bitsOfLane(3, 1), high = bitsOfLane(4, 1);
  Value group4 = bitsOfLane(2, 7), ofGroup = bitsOfLane(0, 3);
  std::optional<Matrices> aBlocks, bBlocks;
  if (aTile)
    aBlocks = placeMatrices(
        op.getA(), aTile, add(add(inBlock, times(low, 8)), times(warp, group.rowsOfWarp())), high);
  // Rows of B that a thread has of each 8, where rows are k.
  SmallVector<Matrices> bRows;
  if (op.getTransposeB()) {
    bBlocks = placeMatrices(op.getB(), bTile, add(inBlock, times(high, 8)), low);
  } else {
    for (int64_t second : {0, 1}) {
      Value row = aTile ? addI32(ofGroup, 4 * second) : addI32(times(ofGroup, 2), second);
      Matrices place =
          placeMatrices(op.getB(), bTile, row, arith::ShRUIOp::create(b, group4, constantI32(2)));
      // And the element of the chunk.
      place.base = add(place.base, times(arith::AndIOp::create(b, group4, constantI32(3)), 4));
      bRows.push_back(place);
    }
  }
  auto result = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, f32));
  for (int64_t step = 0; step < k / kStep; ++step) {
    // By half and part: four registers.
    SmallVector<SmallVector<SmallVector<Value>>> a;
    for (int64_t half = 0; half < halves; ++half) {
      SmallVector<Value> values;
      if (aBlocks)
        for (Value word : loadBlocks(pointerTo(*aBlocks, half * kM, step * kChunks), 4, false))
          values.push_back(asFloat(word));
      else
        for (unsigned column : {0, 1})
          for (unsigned row : {0, 1})
            values.push_back(
                aValues[registers.at(unsigned(2 * half) + row, unsigned(2 * step) + column)]);
      SmallVector<SmallVector<Value>> split(terms == 1 ? 1 : 2);
      for (Value value : values)
        for (auto [part, word] : llvm::enumerate(splitTf32(value, terms)))
          split[part].push_back(word);
      a.push_back(std::move(split));
    }
    for (int64_t column = 0; column < n; column += 2 * kN) {
      int64_t blocks = column + kN < n ? 2 : 1;
      SmallVector<Value> values; // two for each block
      if (bBlocks) {
        for (Value word :
             loadBlocks(pointerTo(*bBlocks, column, step * kChunks), int32_t(2 * blocks), false))
          values.push_back(asFloat(word));
      } else {
        for (int64_t block = 0; block < blocks; ++block)
          for (const Matrices &row : bRows)
            values.push_back(LLVM::LoadOp::create(
                b, f32, pointerTo(row, step * kStep, (column + block * kN) / 4)));
      }
      for (int64_t block = 0; block < blocks; ++block) {
        SmallVector<SmallVector<Value>> parts(terms == 1 ? 1 : 2);
        for (int64_t e : {0, 1})
          for (auto [part, word] : llvm::enumerate(splitTf32(values[size_t(2 * block + e)], terms)))
            parts[part].push_back(word);
        for (int64_t half = 0; half < halves; ++half) {
          unsigned first = registers.at(unsigned(2 * half), unsigned((column + block * kN) / 4));
          // Small products first.
          constexpr std::pair<int, int> kTerms[] = {{1, 0}, {0, 1}, {0, 0}};
          for (auto [ofA, ofB] : ArrayRef(kTerms).take_back(size_t(terms))) {
            Value product = NVVM::MmaOp::create(
                b, result, a[size_t(half)][size_t(ofA)], parts[size_t(ofB)],
                ArrayRef(sums).slice(first, 4), ArrayRef<int64_t>{kM, kN, kStep}, std::nullopt,
                std::nullopt, std::array{NVVM::MMATypes::tf32, NVVM::MMATypes::tf32},
                std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
            for (unsigned i = 0; i < 4; ++i)
              sums[first + i] = LLVM::ExtractValueOp::create(b, product, i);
          }
        }
      }
    }
  }
  setParts(op.getResult(), Layout::Tile, Parts(sums));
  return success();
}

LogicalResult KernelLowering::lowerMma(tile::MmaOp op) {
  Type element = op.getB().getType().getElementType();
  if (!element.isF32() && !element.isF64()) {
    multiplyFragments(op);
    return success();
  }
  if (op.getTransposeA())
    return op.emitOpError() << "of " << element << " takes left operands by rows";
  if (op.getTf32())
    return multiplyTf32(op);
  if (!isa<tile::SmemType>(op.getA().getType()))
    return op.emitOpError() << "of " << element
                            << " expects its left operand in shared memory (hopper-stage-loads)";
  multiplyElements(op);
  return success();
}
