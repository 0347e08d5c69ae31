// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Contractions as a register-blocked kernel: a block of rows times a few
// vectors of lanes stays in registers while the innermost loop runs along the
// summed dimension, loading one vector per lane block and broadcasting one
// scalar per row. Blocking after Goto and van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication" (2008); tiles replace the packing.

#include "Aliases.h"
#include "Groups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

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

LaneSource attn::tiles::findLaneSource(DimClasses &classes, const Kernel &kernel) {
  LaneSource source{LaneSource::Own, kernel.lanes, kernel.laneClass};
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
    else if (source.kind == LaneSource::Copy)
      lanesFrom = context.copies.lookup({source.value, source.lane});
    Nest nest(context, group.position);
    Type element = cast<VectorType>(kernel.op.getResult().getType()).getElementType();
    int64_t width = laneCountFor(element, context.vectorBits);
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
    int64_t vectors = std::min<int64_t>(context.vectorRegisters >= 32 ? 4 : 2,
                                        std::max<int64_t>(extent / width, 1));
    int64_t most = (context.vectorRegisters - 1 - vectors) / vectors;
    most = std::min<int64_t>(most, 12);
    int64_t rows = kernel.rowClass < 0 ? 1 : context.classes.extent(kernel.rowClass);
    // A divisor of the rows needs no second kernel for what is left.
    for (int64_t block = most; block >= std::max<int64_t>(most * 2 / 3, 1); --block)
      if (rows % block == 0)
        return {vectors, block};
    return {vectors, most};
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
    SmallVector<int> sum;
    if (kernel.sumClass >= 0)
      sum.push_back(kernel.sumClass);
    auto multiplyAdd = [&](ValueRange carried) {
      SmallVector<Value> next, vectors;
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
};
} // namespace

void attn::tiles::emitContraction(Context &context, Group &group) {
  KernelEmitter(context, group).run();
}
