// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands of matrix units: tiles of bf16 as pairs of elements along the sum. Both AVX512-BF16 and
// AMX multiply pairs (Intel 64 and IA-32 Architectures Software Developer's Manual, VDPBF16PS and
// TDPBF16PS): one operand has them as (pair, other), which is how AMX wants its right tiles, too.

#include "Aliases.h"
#include "Groups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"

using namespace mlir;
using namespace attn::tiles;

/// Elements of a vector of f32, and the pairs of a vector of bf16.
static constexpr int64_t kLanes = 16;

static Value getExtended(Value value) {
  auto extension = value.getDefiningOp<arith::ExtFOp>();
  return extension && getElementTypeOrSelf(extension.getIn().getType()).isBF16() ? extension.getIn()
                                                                                 : Value();
}

MatrixOperands attn::tiles::matchMatrixOperands(DimClasses &classes, const Kernel &kernel,
                                                MatrixUnit unit) {
  MatrixOperands none, operands{unit, getExtended(kernel.lanes), getExtended(kernel.rows)};
  if (unit == MatrixUnit::None || !operands.lanes || !operands.rows || kernel.rowClass < 0 ||
      kernel.sumClass < 0 || mayCancel(classes, kernel.op))
    return none;
  int64_t rows = classes.extent(kernel.rowClass);
  if (rows <= kFewRows || classes.extent(kernel.laneClass) % kLanes != 0 ||
      classes.extent(kernel.sumClass) % (2 * kLanes) != 0)
    return none;
  // Tiles of AMX have 16 rows; other numbers are rare, and of narrow heads.
  if (unit == MatrixUnit::Amx && rows % kLanes != 0)
    operands.unit = MatrixUnit::Avx512Bf16;
  return operands;
}

vector::TransferReadOp attn::tiles::matchRowsInMemory(DimClasses &classes, const Kernel &kernel,
                                                      Value rows) {
  vector::TransferReadOp read = matchDirectRead(classes, rows);
  bool isAlong = read && contiguousClass(classes, read) == kernel.sumClass &&
                 !mayChangeBefore(read, kernel.op);
  return isAlong ? read : vector::TransferReadOp();
}

Value attn::tiles::getPairsSource(const Pairs &pairs) {
  auto rounded = pairs.value.getDefiningOp<arith::TruncFOp>();
  bool isOfF32 = rounded && getElementTypeOrSelf(rounded.getIn().getType()).isF32();
  return isOfF32 ? rounded.getIn() : pairs.value;
}

MemRefType attn::tiles::getPairsType(DimClasses &classes, const Pairs &pairs) {
  int64_t count = classes.extent(pairs.sum) / 2, others = classes.extent(pairs.other);
  Type element = IntegerType::get(pairs.value.getContext(), 32);
  return MemRefType::get(
      pairs.isAlong ? ArrayRef<int64_t>{others, count} : ArrayRef<int64_t>{count, others}, element);
}

namespace {
class PairsEmitter {
public:
  PairsEmitter(Context &context, Group &group, Value scratch)
      : context(context), pairs(group.pairs), source(getPairsSource(group.pairs)),
        nest(context, group.position), scratch(scratch) {}

  void run() {
    bool isSum = findWalk() == pairs.sum;
    int64_t count = context.classes.extent(pairs.sum) / 2;
    int64_t others = context.classes.extent(pairs.other), whole = others / kLanes * kLanes;
    // Rows that need no transposition are taken one by one.
    if (isSum == pairs.isAlong) {
      int64_t steps = isSum ? others : count, width = isSum ? 2 * count : others;
      Value outer = nest.open(-1, 0, steps, 1).getInductionVar();
      for (const LaneRun &run : laneRuns(width, kLanes, 1)) {
        Value inner = nest.constant(run.begin);
        if (run.count > 1)
          inner = nest.open(-1, 0, run.count * run.width, run.width).getInductionVar();
        if (isSum)
          store(outer, halve(inner), loadAlong(outer, inner, run.width));
        else
          store(outer, inner, loadBeside(outer, inner, run.width));
        if (run.count > 1)
          nest.close();
      }
      nest.close();
      return;
    }
    if (whole) {
      Value other = nest.open(-1, 0, whole, kLanes).getInductionVar();
      Value pair = nest.open(-1, 0, count, kLanes).getInductionVar();
      SmallVector<Value> rows;
      for (int64_t k = 0; k < kLanes; ++k)
        rows.push_back(isSum ? loadAlong(offset(other, k), twice(pair), 2 * kLanes)
                             : loadBeside(offset(pair, k), other, kLanes));
      rows = transposeBlock(nest.builder(), nest.loc, rows);
      for (auto [k, row] : llvm::enumerate(rows)) {
        Value first = offset(pairs.isAlong ? other : pair, k);
        store(first, pairs.isAlong ? pair : other, row);
      }
      nest.close();
      nest.close();
    }
    if (whole < others)
      elements(whole, others, count);
  }

private:
  /// The class along which the source lies in memory.
  int findWalk() {
    Value value = source;
    if (auto kept = context.buffers.find(value); kept != context.buffers.end())
      return kept->second.layout.back();
    while (auto transpose = value.getDefiningOp<vector::TransposeOp>())
      value = transpose.getVector();
    if (auto read = value.getDefiningOp<vector::TransferReadOp>())
      if (int walk = contiguousClass(context.classes, read); walk >= 0)
        return walk;
    return context.classes.lane(context.classes.domain(source));
  }

  Value offset(Value index, int64_t k) {
    nest.builder();
    return nest.addConstant(index, k);
  }
  Value twice(Value index) {
    OpBuilder &b = nest.builder();
    return arith::MulIOp::create(b, nest.loc, index,
                                 arith::ConstantIndexOp::create(b, nest.loc, 2));
  }
  Value halve(Value index) {
    OpBuilder &b = nest.builder();
    return arith::DivUIOp::create(b, nest.loc, index,
                                  arith::ConstantIndexOp::create(b, nest.loc, 2));
  }

  /// What the nest has at its point, in bf16.
  Value eval(int64_t width) {
    Value value = nest.evalWide(source);
    OpBuilder &b = nest.builder();
    Type bf16 = b.getBF16Type();
    if (getElementTypeOrSelf(value.getType()) == bf16)
      return value;
    auto type = VectorType::get({width}, bf16);
    if (width == kLanes || width == kLanes / 2)
      return x86vector::CvtPackedF32ToBF16Op::create(b, nest.loc, type, value);
    return arith::TruncFOp::create(b, nest.loc, type, value);
  }

  /// `width` elements along the sum as half as many pairs.
  Value loadAlong(Value other, Value element, int64_t width) {
    nest.builder();
    nest.bind(pairs.other, other);
    nest.setLanes(pairs.sum, element, width);
    return asPairs(eval(width), width / 2);
  }

  /// The pairs of `width` positions of the other dimension.
  Value loadBeside(Value pair, Value other, int64_t width) {
    Value first = twice(pair);
    SmallVector<Value> halves;
    for (Value element : {first, offset(first, 1)}) {
      nest.builder();
      nest.bind(pairs.sum, element);
      nest.setLanes(pairs.other, other, width);
      halves.push_back(eval(width));
    }
    OpBuilder &b = nest.builder();
    return asPairs(vector::InterleaveOp::create(b, nest.loc, halves[0], halves[1]), width);
  }

  Value asPairs(Value vector, int64_t count) {
    OpBuilder &b = nest.builder();
    return vector::BitCastOp::create(b, nest.loc, VectorType::get({count}, b.getI32Type()), vector);
  }

  void store(Value first, Value second, Value vector) {
    vector::StoreOp::create(nest.builder(), nest.loc, vector, scratch, ValueRange{first, second});
  }

  /// Positions that are no whole vector, pair by pair.
  void elements(int64_t begin, int64_t end, int64_t count) {
    Value other = nest.open(-1, begin, end, 1).getInductionVar();
    Value pair = nest.open(-1, 0, count, 1).getInductionVar();
    Value vector = loadAlong(other, twice(pair), 2);
    if (pairs.isAlong)
      store(other, pair, vector);
    else
      store(pair, other, vector);
    nest.close();
    nest.close();
  }

  Context &context;
  const Pairs &pairs;
  Value source;
  Nest nest;
  Value scratch;
};
} // namespace

void attn::tiles::emitPairs(Context &context, Group &group, Value scratch) {
  PairsEmitter(context, group, scratch).run();
}
