// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Contractions as a register-blocked kernel: a block of rows times a few
// vectors of lanes stays in registers while the innermost loop runs along the
// summed dimension, loading one vector per lane block and broadcasting one
// scalar per row. Blocking after Goto and van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication" (2008); tiles replace the packing.

#include "Aliases.h"
#include "Groups.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace attn::tiles;

Kernel attn::tiles::matchKernel(DimClasses &classes, vector::ContractionOp op) {
  Kernel none, kernel;
  auto result = dyn_cast<VectorType>(op.getResult().getType());
  if (!result || !isa<FloatType>(result.getElementType()) ||
      op.getKind() != vector::CombiningKind::ADD)
    return none;
  for (Value operand : op->getOperands())
    if (getElementTypeOrSelf(operand.getType()) != result.getElementType())
      return none;
  SmallVector<int> domain = classes.domain(op.getResult());
  kernel.laneClass = classes.lane(domain);
  if (kernel.laneClass < 0 || domain.size() > 2)
    return none;
  bool inLhs = llvm::is_contained(classes.domain(op.getLhs()), kernel.laneClass);
  bool inRhs = llvm::is_contained(classes.domain(op.getRhs()), kernel.laneClass);
  if (inLhs == inRhs)
    return none;
  kernel.lanes = inLhs ? op.getLhs() : op.getRhs();
  kernel.rows = inLhs ? op.getRhs() : op.getLhs();
  for (int cls : domain)
    if (cls != kernel.laneClass)
      kernel.rowClass = cls;
  SmallVector<int> rows = classes.domain(kernel.rows);
  SmallVector<int> lanes = classes.domain(kernel.lanes);
  if (kernel.rowClass >= 0 &&
      (!llvm::is_contained(rows, kernel.rowClass) || llvm::is_contained(lanes, kernel.rowClass)))
    return none;
  llvm::erase(rows, kernel.rowClass);
  llvm::erase(lanes, kernel.laneClass);
  if (rows.size() > 1 || rows != lanes)
    return none;
  if (!rows.empty())
    kernel.sumClass = rows.front();
  kernel.op = op;
  return kernel;
}

vector::TransferReadOp attn::tiles::matchDirectRead(DimClasses &classes, Value value) {
  while (auto transpose = value.getDefiningOp<vector::TransposeOp>())
    value = transpose.getVector();
  auto read = value.getDefiningOp<vector::TransferReadOp>();
  if (!read)
    return {};
  AffineMap map = read.getPermutationMap();
  SmallVector<int> dims = classes.dims(read.getResult());
  for (unsigned dim = 0; dim < map.getNumResults(); ++dim)
    if (memoryDim(map, dim) < 0 || dims[dim] < 0)
      return {};
  return read;
}

bool attn::tiles::mayCancel(DimClasses &classes, vector::ContractionOp op) {
  size_t rank = classes.domain(op.getResult()).size();
  return llvm::any_of(op->getUsers(), [&](Operation *user) {
    if (!isa<arith::SubFOp>(user))
      return false;
    Value other = user->getOperand(user->getOperand(0) == op.getResult() ? 1 : 0);
    while (Operation *source = other.getDefiningOp()) {
      if (!isa<vector::TransposeOp, vector::ShapeCastOp, vector::BroadcastOp>(source))
        break;
      other = source->getOperand(0);
    }
    return classes.domain(other).size() < rank;
  });
}

/// No element of the other operand is used often enough to be copied first.
static bool hasFewRows(DimClasses &classes, const Kernel &kernel) {
  return kernel.rowClass < 0 || classes.isFew(kernel.rowClass);
}

/// Where memory can be read along one of a kernel's dimensions, if necessary with a conversion.
static std::optional<LaneSource::Kind> matchRead(DimClasses &classes, const Kernel &kernel) {
  Value value = kernel.lanes;
  if (auto extension = value.getDefiningOp<arith::ExtFOp>())
    value = extension.getIn();
  vector::TransferReadOp read = matchDirectRead(classes, value);
  if (!read || mayChangeBefore(read, kernel.op))
    return std::nullopt;
  int walk = contiguousClass(classes, read);
  if (walk < 0)
    return std::nullopt;
  if (walk == kernel.laneClass)
    return LaneSource::Lazy;
  if (walk == kernel.sumClass)
    return LaneSource::Sums;
  return std::nullopt;
}

LaneSource attn::tiles::findLaneSource(DimClasses &classes, const Kernel &kernel) {
  LaneSource source{LaneSource::Own, kernel.lanes, kernel.laneClass};
  if (hasFewRows(classes, kernel))
    if (std::optional<LaneSource::Kind> kind = matchRead(classes, kernel)) {
      source.kind = *kind;
      return source;
    }
  vector::TransferReadOp read = matchDirectRead(classes, kernel.lanes);
  if (read && contiguousClass(classes, read) == kernel.laneClass &&
      !mayChangeBefore(read, kernel.op))
    source.kind = LaneSource::Memory;
  else if (classes.lane(classes.domain(kernel.lanes)) != kernel.laneClass)
    source.kind = LaneSource::Copy;
  return source;
}

namespace {
class KernelEmitter {
public:
  KernelEmitter(Context &context, Group &group)
      : context(context), group(group), kernel(group.kernel) {}

  void run() {
    rows =
        group.rowsView ? context.views.lookup(group.rowsView) : context.buffers.lookup(kernel.rows);
    LaneSource source = context.laneSources.lookup(kernel.op);
    if (group.lanesView)
      lanesFrom = context.views.lookup(group.lanesView);
    else if (!group.pairs.value && source.kind == LaneSource::Copy)
      lanesFrom = context.copies.lookup({source.value, source.lane});
    Nest nest(context, group.position);
    Type element = cast<VectorType>(kernel.op.getResult().getType()).getElementType();
    int64_t width = laneCountFor(element, context.vectorBits);
    if (group.pairs.value) {
      lanePairs = context.pairs.at(group.pairs);
      rowPairs = group.rowsView ? Value() : context.pairs.at(group.rowPairs);
      if (context.matrixOperands.lookup(kernel.op).unit == MatrixUnit::Amx)
        return multiplyTiles(nest);
    } else if (source.kind == LaneSource::Sums) {
      return sumAlongLanes(nest, width);
    }
    int64_t extent = context.classes.extent(kernel.laneClass);
    auto [vectors, block] = blocking(extent, width);
    for (const LaneRun &run : laneRuns(extent, width, vectors)) {
      bool loop = run.count > 1;
      Value base = nest.constant(run.begin);
      if (loop)
        base = nest.open(-1, 0, run.count * run.vectors * run.width, run.vectors * run.width)
                   .getInductionVar();
      SmallVector<Value> lanes;
      for (int64_t k = 0; k < run.vectors; ++k) {
        nest.builder();
        lanes.push_back(nest.addConstant(base, k * run.width));
        nest.setLanes(kernel.laneClass, lanes.back(), run.width);
      }
      rowBlocks(nest, lanes, run.width, block);
      if (loop)
        nest.close();
    }
  }

private:
  /// Vectors of lanes and rows of one block. The accumulators, one vector of
  /// each lane block and one broadcast share the registers.
  std::pair<int64_t, int64_t> blocking(int64_t extent, int64_t width) {
    int64_t rowCount = kernel.rowClass < 0 ? 1 : context.classes.extent(kernel.rowClass);
    // With few rows as much as fits of what lies beside each other in memory.
    int64_t most = hasFewRows(context.classes, kernel)
                       ? (context.vectorRegisters - 1) / (rowCount + 1)
                       : (context.vectorRegisters >= 32 ? 4 : 2);
    int64_t vectors =
        std::min<int64_t>(std::min<int64_t>(most, 8), std::max<int64_t>(extent / width, 1));
    int64_t largest = (context.vectorRegisters - 1 - vectors) / vectors;
    largest = std::min<int64_t>(largest, 12);
    // A divisor of the rows needs no second kernel for what is left.
    for (int64_t block = largest; block >= std::max<int64_t>(largest * 2 / 3, 1); --block)
      if (rowCount % block == 0)
        return {vectors, block};
    return {vectors, largest};
  }

  Value loadLanes(Nest &nest) {
    if (!lanesFrom.memref)
      return nest.evalWide(kernel.lanes);
    OpBuilder &b = nest.builder();
    SmallVector<Value> at;
    for (int cls : lanesFrom.layout)
      at.push_back(nest.indexOf(cls));
    auto type = cast<MemRefType>(lanesFrom.memref.getType());
    auto vector = cast<VectorType>(nest.wide(type.getElementType()));
    return vector::LoadOp::create(b, nest.loc, vector, lanesFrom.memref, at);
  }

  void rowBlocks(Nest &nest, ArrayRef<Value> lanes, int64_t width, int64_t block) {
    int64_t extent = kernel.rowClass < 0 ? 1 : context.classes.extent(kernel.rowClass);
    int64_t whole = extent / block * block;
    if (whole > block) {
      Value base = nest.open(-1, 0, whole, block).getInductionVar();
      registerBlock(nest, lanes, width, base, block);
      nest.close();
    } else if (whole) {
      registerBlock(nest, lanes, width, nest.constant(0), block);
    }
    if (whole < extent)
      registerBlock(nest, lanes, width, nest.constant(whole), extent - whole);
  }

  void registerBlock(Nest &nest, ArrayRef<Value> lanes, int64_t width, Value rowBase,
                     int64_t rowCount) {
    SmallVector<Value> rowIndices, accs;
    for (int64_t row = 0; row < rowCount; ++row) {
      nest.builder();
      rowIndices.push_back(nest.addConstant(rowBase, row));
      if (kernel.rowClass >= 0)
        nest.bind(kernel.rowClass, rowIndices.back());
      for (Value lane : lanes) {
        nest.selectLanes(kernel.laneClass, lane, width);
        Type type = nest.wide(getElementTypeOrSelf(kernel.op.getAcc().getType()));
        accs.push_back(
            arith::ConstantOp::create(nest.builder(), nest.loc, nest.builder().getZeroAttr(type)));
      }
    }
    if (lanePairs) {
      accs = multiplyPairs(nest, lanes, width, rowIndices, accs);
      return storeSums(nest, lanes, width, rowIndices, accs);
    }
    SmallVector<int> sum;
    if (kernel.sumClass >= 0)
      sum.push_back(kernel.sumClass);
    bool isLazy = context.laneSources.lookup(kernel.op).kind == LaneSource::Lazy;
    auto multiplyAdd = [&](ValueRange carried) {
      SmallVector<Value> next, vectors;
      if (isLazy && kernel.sumClass >= 0)
        prefetchAhead(nest, kernel.sumClass, nest.indexOf(kernel.sumClass), kernel.laneClass, lanes,
                      width);
      for (Value lane : lanes) {
        nest.selectLanes(kernel.laneClass, lane, width);
        vectors.push_back(loadLanes(nest));
      }
      for (auto [row, index] : llvm::enumerate(rowIndices)) {
        OpBuilder &b = nest.builder();
        SmallVector<Value> at;
        for (int cls : rows.layout)
          at.push_back(cls == kernel.rowClass ? index : nest.indexOf(cls));
        Value scalar = nest.splat(memref::LoadOp::create(b, nest.loc, rows.memref, at));
        for (auto [k, vector] : llvm::enumerate(vectors))
          next.push_back(
              vector::FMAOp::create(b, nest.loc, scalar, vector, carried[row * lanes.size() + k]));
      }
      return next;
    };
    int64_t block = sum.empty() ? 0 : productSumBlock(context.classes.extent(sum.front()));
    if (block == 0) {
      accs = nest.loops(sum, accs, multiplyAdd);
    } else {
      scf::ForOp outer = nest.open(-1, 0, context.classes.extent(sum.front()), block, accs);
      scf::ForOp inner = nest.open(-1, 0, block, 1, accs);
      nest.builder();
      nest.bind(sum.front(), nest.add(outer.getInductionVar(), inner.getInductionVar()));
      nest.close(multiplyAdd(SmallVector<Value>(inner.getRegionIterArgs())));
      SmallVector<Value> totals;
      for (auto [total, part] : llvm::zip_equal(outer.getRegionIterArgs(), inner.getResults()))
        totals.push_back(arith::AddFOp::create(nest.builder(), nest.loc, total, part));
      nest.close(totals);
      accs = SmallVector<Value>(outer.getResults());
    }
    storeSums(nest, lanes, width, rowIndices, accs);
  }

  void storeSums(Nest &nest, ArrayRef<Value> lanes, int64_t width, ArrayRef<Value> rowIndices,
                 ArrayRef<Value> accs) {
    unsigned acc = 0;
    for (Value index : rowIndices) {
      if (kernel.rowClass >= 0)
        nest.bind(kernel.rowClass, index);
      for (Value lane : lanes) {
        nest.selectLanes(kernel.laneClass, lane, width);
        nest.store(group.result, addStart(nest, accs[acc++]));
      }
    }
  }

  /// Pairs of a row, as a vector of bf16.
  Value loadRowPair(Nest &nest, Value row, Value pair) {
    OpBuilder &b = nest.builder();
    auto one = VectorType::get({1}, b.getI32Type());
    Value value;
    if (rowPairs) {
      SmallVector<Value> at = {pair, row};
      if (group.rowPairs.isAlong)
        std::swap(at[0], at[1]);
      value = memref::LoadOp::create(b, nest.loc, rowPairs, at);
    } else {
      Value element =
          arith::MulIOp::create(b, nest.loc, pair, arith::ConstantIndexOp::create(b, nest.loc, 2));
      SmallVector<Value> at;
      for (int cls : rows.layout)
        at.push_back(cls == kernel.rowClass ? row : element);
      Value two = vector::LoadOp::create(b, nest.loc, VectorType::get({2}, b.getBF16Type()),
                                         rows.memref, at);
      value = vector::ExtractOp::create(
          b, nest.loc, vector::BitCastOp::create(b, nest.loc, one, two), ArrayRef<int64_t>{0});
    }
    Value all =
        vector::BroadcastOp::create(b, nest.loc, VectorType::get({16}, b.getI32Type()), value);
    return asElements(nest, all);
  }

  Value asElements(Nest &nest, Value pairs) {
    OpBuilder &b = nest.builder();
    return vector::BitCastOp::create(b, nest.loc, VectorType::get({32}, b.getBF16Type()), pairs);
  }

  /// The sums of products of pairs, in blocks as those of f32.
  SmallVector<Value> multiplyPairs(Nest &nest, ArrayRef<Value> lanes, int64_t width,
                                   ArrayRef<Value> rowIndices, ArrayRef<Value> zeros) {
    int64_t extent = context.classes.extent(kernel.sumClass), block = productSumBlock(extent);
    auto multiplyAdd = [&](Value pair, ValueRange carried) {
      SmallVector<Value> next, vectors;
      for (Value lane : lanes) {
        OpBuilder &b = nest.builder();
        auto type = VectorType::get({width}, b.getI32Type());
        vectors.push_back(asElements(
            nest, vector::LoadOp::create(b, nest.loc, type, lanePairs, ValueRange{pair, lane})));
      }
      for (Value row : rowIndices) {
        Value scalar = loadRowPair(nest, row, pair);
        for (Value vector : vectors)
          next.push_back(x86vector::DotBF16Op::create(nest.builder(), nest.loc,
                                                      carried[next.size()].getType(),
                                                      carried[next.size()], vector, scalar));
      }
      return next;
    };
    if (block == 0)
      block = extent;
    scf::ForOp outer = nest.open(-1, 0, extent / 2, block / 2, zeros);
    scf::ForOp inner = nest.open(-1, 0, block / 2, 1, zeros);
    nest.builder();
    Value pair = nest.add(outer.getInductionVar(), inner.getInductionVar());
    nest.close(multiplyAdd(pair, SmallVector<Value>(inner.getRegionIterArgs())));
    SmallVector<Value> totals;
    for (auto [total, part] : llvm::zip_equal(outer.getRegionIterArgs(), inner.getResults()))
      totals.push_back(arith::AddFOp::create(nest.builder(), nest.loc, total, part));
    nest.close(totals);
    return SmallVector<Value>(outer.getResults());
  }

  /// Two by two tiles of AMX at a time, or what is left, added up in tile registers.
  void multiplyTiles(Nest &nest) {
    int64_t rowCount = context.classes.extent(kernel.rowClass);
    int64_t laneCount = context.classes.extent(kernel.laneClass);
    auto forBlocks = [&](int64_t extent, auto body) {
      int64_t whole = extent / 32 * 32;
      if (whole) {
        Value base = nest.open(-1, 0, whole, 32).getInductionVar();
        body(base, 2);
        nest.close();
      }
      if (whole < extent)
        body(nest.constant(whole), 1);
    };
    forBlocks(laneCount, [&](Value lane, int64_t laneTiles) {
      forBlocks(rowCount, [&](Value row, int64_t rowTiles) {
        multiplyTileBlock(nest, row, rowTiles, lane, laneTiles);
      });
    });
  }

  void multiplyTileBlock(Nest &nest, Value row, int64_t rowTiles, Value lane, int64_t laneTiles) {
    OpBuilder &b = nest.builder();
    Location loc = nest.loc;
    auto offset = [&](Value index, int64_t k) {
      nest.builder();
      return nest.addConstant(index, k);
    };
    auto operand = amx::TileType::get({16, 32}, b.getBF16Type());
    auto sums = amx::TileType::get({16, 16}, b.getF32Type());
    SmallVector<Value> totals;
    for (int64_t k = 0; k < rowTiles * laneTiles; ++k)
      totals.push_back(amx::TileZeroOp::create(nest.builder(), loc, sums));
    for (int64_t term = 0; term < context.classes.extent(kernel.sumClass); term += 32) {
      SmallVector<Value> lefts, rights;
      for (int64_t k = 0; k < rowTiles; ++k) {
        Value at = offset(row, 16 * k), first = nest.constant(rowPairs ? term / 2 : term);
        lefts.push_back(amx::TileLoadOp::create(nest.builder(), loc, operand,
                                                rowPairs ? rowPairs : rows.memref,
                                                ValueRange{at, first}));
      }
      for (int64_t k = 0; k < laneTiles; ++k) {
        Value pair = nest.constant(term / 2), at = offset(lane, 16 * k);
        rights.push_back(
            amx::TileLoadOp::create(nest.builder(), loc, operand, lanePairs, ValueRange{pair, at}));
      }
      for (int64_t i = 0; i < rowTiles; ++i)
        for (int64_t j = 0; j < laneTiles; ++j) {
          Value &total = totals[i * laneTiles + j];
          total = amx::TileMulFOp::create(nest.builder(), loc, sums, lefts[i], rights[j], total);
        }
    }
    bool isZero = matchPattern(kernel.op.getAcc(), m_AnyZeroFloat());
    for (int64_t i = 0; i < rowTiles; ++i)
      for (int64_t j = 0; j < laneTiles; ++j) {
        Value first = offset(row, 16 * i), position = offset(lane, 16 * j);
        Value total = totals[i * laneTiles + j];
        if (isZero) {
          amx::TileStoreOp::create(nest.builder(), loc, group.result.memref,
                                   ValueRange{first, position}, total);
          continue;
        }
        Value zero = nest.constant(0);
        amx::TileStoreOp::create(nest.builder(), loc, group.tile, ValueRange{zero, zero}, total);
        Value k = nest.open(-1, 0, 16, 1).getInductionVar();
        auto type = VectorType::get({16}, b.getF32Type());
        Value sum =
            vector::LoadOp::create(nest.builder(), loc, type, group.tile, ValueRange{k, zero});
        nest.builder();
        nest.bind(kernel.rowClass, nest.add(first, k));
        nest.setLanes(kernel.laneClass, position, 16);
        nest.store(group.result, addStart(nest, sum));
        nest.close();
      }
  }

  /// Memory is read along the sum: one accumulator for each row and position of the lanes, the
  /// elements of which are added up at the end, a vector of accumulators into a vector of results.
  void sumAlongLanes(Nest &nest, int64_t width) {
    for (const LaneRun &run : laneRuns(context.classes.extent(kernel.laneClass), width, 1)) {
      bool loop = run.count > 1;
      Value base = nest.constant(run.begin);
      if (loop)
        base = nest.open(-1, 0, run.count * run.width, run.width).getInductionVar();
      int64_t rowCount = kernel.rowClass < 0 ? 1 : context.classes.extent(kernel.rowClass);
      for (int64_t row = 0; row < rowCount;) {
        int64_t rows = llvm::bit_floor<uint64_t>(rowCount - row);
        rows = std::min(rows, width);
        sumBlock(nest, base, run.width, row, rows, width);
        row += rows;
      }
      if (loop)
        nest.close();
    }
  }

  /// The sums of `rows` rows, a power of two, and `count` positions from `base` on.
  void sumBlock(Nest &nest, Value base, int64_t count, int64_t row, int64_t rows, int64_t width) {
    Type element = getElementTypeOrSelf(kernel.op.getResult().getType());
    int64_t most = width / rows;
    SmallVector<SmallVector<Value>> results(rows);
    for (int64_t begin = 0; begin < count; begin += most) {
      int64_t part = std::min(most, count - begin);
      Value total = addElements(nest, sumProducts(nest, base, begin, part, row, rows, width), most,
                                part, rows, width);
      for (int64_t k = 0; k < rows; ++k)
        for (int64_t i = 0; i < part; ++i)
          results[k].push_back(
              vector::ExtractOp::create(nest.builder(), nest.loc, total, k * most + i));
    }
    for (int64_t k = 0; k < rows; ++k) {
      OpBuilder &b = nest.builder();
      Value vector = vector::FromElementsOp::create(b, nest.loc, VectorType::get({count}, element),
                                                    results[k]);
      if (kernel.rowClass >= 0)
        nest.bind(kernel.rowClass, nest.constant(row + k));
      nest.setLanes(kernel.laneClass, base, count);
      nest.store(group.result, addStart(nest, vector));
    }
  }

  /// A vector of terms for each row and position, positions of a row side by side.
  SmallVector<Value> sumProducts(Nest &nest, Value base, int64_t begin, int64_t count, int64_t row,
                                 int64_t rows, int64_t width) {
    Type element = getElementTypeOrSelf(kernel.op.getResult().getType());
    auto zero = [&](int64_t lanes) -> Value {
      auto type = VectorType::get({lanes}, element);
      OpBuilder &b = nest.builder();
      return arith::ConstantOp::create(b, nest.loc, b.getZeroAttr(type));
    };
    SmallVector<Value> positions, rowIndices;
    for (int64_t k = 0; k < count; ++k) {
      nest.builder();
      positions.push_back(nest.addConstant(base, begin + k));
    }
    for (int64_t k = 0; k < rows; ++k)
      rowIndices.push_back(nest.constant(row + k));
    auto multiplyAdd = [&](Value at, int64_t lanes, ValueRange sums) {
      nest.setLanes(kernel.sumClass, at, lanes);
      SmallVector<Value> others, next;
      for (Value position : positions) {
        nest.bind(kernel.laneClass, position);
        others.push_back(nest.evalWide(kernel.lanes));
      }
      for (Value index : rowIndices) {
        if (kernel.rowClass >= 0)
          nest.bind(kernel.rowClass, index);
        Value own = nest.evalWide(kernel.rows);
        for (Value other : others)
          next.push_back(
              vector::FMAOp::create(nest.builder(), nest.loc, own, other, sums[next.size()]));
      }
      return next;
    };
    SmallVector<Value> sums(rows * count, zero(width));
    int64_t extent = context.classes.extent(kernel.sumClass);
    if (extent % width == 0 && extent / width <= 16) {
      for (int64_t i = 0; i < count; ++i) {
        SmallVector<Value> terms;
        for (int64_t at = 0; at < extent; at += width)
          terms.push_back(nest.constant(at));
        nest.setLanes(kernel.sumClass, terms.front(), width);
        prefetchAhead(nest, kernel.laneClass, positions[i], kernel.sumClass, terms, width);
        for (int64_t at = 0; at < extent; at += width) {
          nest.setLanes(kernel.sumClass, nest.constant(at), width);
          nest.bind(kernel.laneClass, positions[i]);
          Value other = nest.evalWide(kernel.lanes);
          for (int64_t k = 0; k < rows; ++k) {
            if (kernel.rowClass >= 0)
              nest.bind(kernel.rowClass, rowIndices[k]);
            Value own = nest.evalWide(kernel.rows);
            Value &sum = sums[k * count + i];
            sum = vector::FMAOp::create(nest.builder(), nest.loc, own, other, sum);
          }
        }
      }
      return sums;
    }
    for (const LaneRun &run : laneRuns(context.classes.extent(kernel.sumClass), width, 1)) {
      if (run.width == width) {
        scf::ForOp loop = nest.open(-1, run.begin, run.begin + run.count * width, width, sums);
        nest.close(multiplyAdd(loop.getInductionVar(), width,
                               SmallVector<Value>(loop.getRegionIterArgs())));
        sums = SmallVector<Value>(loop.getResults());
        continue;
      }
      SmallVector<Value> narrow(sums.size(), zero(run.width));
      narrow = multiplyAdd(nest.constant(run.begin), run.width, narrow);
      for (auto [sum, part] : llvm::zip_equal(sums, narrow))
        sum = addToFirst(nest.builder(), nest.loc, sum, part);
    }
    return sums;
  }

  /// Asks for what is read soon: what lies at the positions `at` of `along`, some positions of
  /// `cls` behind `position`. What is read once comes as fast as memory is asked for it, and where
  /// bytes take several instructions too little is asked for at a time.
  void prefetchAhead(Nest &nest, int cls, Value position, int along, ArrayRef<Value> at,
                     int64_t step) {
    constexpr int64_t bytesAhead = 4096, line = 64;
    auto extension = kernel.lanes.getDefiningOp<arith::ExtFOp>();
    vector::TransferReadOp read =
        extension ? matchDirectRead(context.classes, extension.getIn()) : vector::TransferReadOp();
    if (!read || context.buffers.count(read.getResult()))
      return;
    int64_t size =
        llvm::divideCeil(getElementTypeOrSelf(read.getType()).getIntOrFloatBitWidth(), 8);
    int64_t ahead = std::max<int64_t>(bytesAhead / (context.classes.extent(along) * size), 1);
    int64_t perLine = std::max<int64_t>(line / (size * step), 1);
    nest.builder();
    nest.bind(cls, nest.addConstant(position, ahead));
    for (size_t k = 0; k < at.size(); k += perLine) {
      nest.selectLanes(along, at[k], step);
      nest.prefetch(read);
    }
    nest.bind(cls, position);
  }

  /// Element `row * most + i` of the result is the sum of the elements of vector
  /// `row * count + i`: each round halves the vectors and what each of them has of one sum.
  Value addElements(Nest &nest, ArrayRef<Value> sums, int64_t most, int64_t count, int64_t rows,
                    int64_t width) {
    OpBuilder &b = nest.builder();
    Value zero = arith::ConstantOp::create(b, nest.loc, b.getZeroAttr(sums.front().getType()));
    SmallVector<Value> vectors(width, zero);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < count; ++i)
        vectors[row * most + i] = sums[row * count + i];
    auto [low, high] = getInterleaving(width);
    while (vectors.size() > 1) {
      size_t half = vectors.size() / 2;
      for (size_t k = 0; k < half; ++k) {
        Value first = vectors[k], second = vectors[k + half];
        vectors[k] = arith::AddFOp::create(
            b, nest.loc, vector::ShuffleOp::create(b, nest.loc, first, second, low),
            vector::ShuffleOp::create(b, nest.loc, first, second, high));
      }
      vectors.resize(half);
    }
    return vectors.front();
  }

  /// The tile's sum joins what is accumulated already at its end: a running sum
  /// over all tiles would collect the rounding errors of all their terms.
  Value addStart(Nest &nest, Value sum) {
    if (matchPattern(kernel.op.getAcc(), m_AnyZeroFloat()))
      return sum;
    Value start = nest.evalWide(kernel.op.getAcc());
    return arith::AddFOp::create(nest.builder(), nest.loc, start, sum);
  }

  Context &context;
  Group &group;
  Kernel kernel;
  /// Where the operands are; without `lanesFrom`, the lanes are evaluated.
  Buffer rows, lanesFrom;
  /// Operands of a matrix unit; rows in memory have no pairs.
  Value lanePairs, rowPairs;
};
} // namespace

void attn::tiles::emitContraction(Context &context, Group &group) {
  KernelEmitter(context, group).run();
}
