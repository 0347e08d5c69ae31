// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// vector: shapes, parts and reductions of tiles.

#include "Elementwise.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/Vector/Utils/VectorUtils.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

//===----------------------------------------------------------------------===//
// Elements in another order
//===----------------------------------------------------------------------===//

namespace {
/// Elements of one array, in row-major order of `shape`, each `strides` apart in
/// another.
struct Walk {
  SmallVector<int64_t> shape, strides;
  int64_t offset = 0;
};
} // namespace

/// Calls `visit(position in the walk, position in the other array, length,
/// stride)` for each innermost run.
template <typename Visit> static void forEachRun(const Walk &walk, Visit visit) {
  size_t rank = walk.shape.size();
  int64_t length = rank ? walk.shape.back() : 1, stride = rank ? walk.strides.back() : 0;
  SmallVector<int64_t> index(rank ? rank - 1 : 0, 0);
  int64_t position = 0, other = walk.offset;
  while (true) {
    visit(position, other, length, stride);
    position += length;
    size_t dim = index.size();
    while (dim-- > 0) {
      other += walk.strides[dim];
      if (++index[dim] < walk.shape[dim])
        break;
      other -= walk.strides[dim] * walk.shape[dim];
      index[dim] = 0;
    }
    if (dim == size_t(-1))
      return;
  }
}

template <typename T> static void gatherElements(const Walk &walk, const T *from, T *to) {
  forEachRun(walk, [&](int64_t position, int64_t other, int64_t length, int64_t stride) {
    for (int64_t k = 0; k < length; ++k)
      to[position + k] = from[other + k * stride];
  });
}

static SmallVector<int64_t> rowMajor(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;)
    strides[dim - 1] = strides[dim] * shape[dim];
  return strides;
}

/// result[k] = operand[walk(k)].
static Step rearrange(Fiber &fiber, const Instruction &i) {
  const Walk &walk = i.get<Walk>();
  if (isFloat(i.kind))
    gatherElements(walk, fiber.floats(i, 0), fiber.newFloats(i));
  else
    gatherElements(walk, fiber.ints(i, 0), fiber.newInts(i));
  return Step::Next;
}

static LogicalResult emitWalk(Translator &translator, Operation *op, Walk walk) {
  Instruction &instruction = translator.emit(op, rearrange);
  instruction.data = std::make_shared<const Walk>(std::move(walk));
  return setShape(instruction, op->getResult(0).getType());
}

static ArrayRef<int64_t> shapeOf(mlir::Value value) {
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    return vector.getShape();
  return {};
}

static LogicalResult translateBroadcast(Translator &translator, Operation *op) {
  ArrayRef<int64_t> to = shapeOf(op->getResult(0)), from = shapeOf(op->getOperand(0));
  SmallVector<int64_t> strides = rowMajor(from);
  Walk walk;
  walk.shape.assign(to.begin(), to.end());
  walk.strides.assign(to.size() - from.size(), 0);
  for (auto [size, stride] : llvm::zip(from, strides))
    walk.strides.push_back(size == 1 ? 0 : stride);
  return emitWalk(translator, op, std::move(walk));
}

static LogicalResult translateTranspose(Translator &translator, Operation *op) {
  auto transpose = cast<vector::TransposeOp>(op);
  SmallVector<int64_t> strides = rowMajor(transpose.getSourceVectorType().getShape());
  Walk walk;
  for (int64_t dim : transpose.getPermutation()) {
    walk.shape.push_back(transpose.getSourceVectorType().getDimSize(unsigned(dim)));
    walk.strides.push_back(strides[size_t(dim)]);
  }
  return emitWalk(translator, op, std::move(walk));
}

static LogicalResult translateExtractStrided(Translator &translator, Operation *op) {
  auto extract = cast<vector::ExtractStridedSliceOp>(op);
  ArrayRef<int64_t> from = extract.getSourceVectorType().getShape();
  Walk walk;
  walk.strides = rowMajor(from);
  walk.shape.assign(extract.getType().getShape().begin(), extract.getType().getShape().end());
  for (auto [dim, offset, step] :
       llvm::enumerate(extract.getOffsets().getAsValueRange<IntegerAttr>(),
                       extract.getStrides().getAsValueRange<IntegerAttr>())) {
    walk.offset += offset.getSExtValue() * walk.strides[dim];
    walk.strides[dim] *= step.getSExtValue();
  }
  return emitWalk(translator, op, std::move(walk));
}

static Step sameValue(Fiber &fiber, const Instruction &i) {
  fiber.result(i) = fiber.operand(i, 0);
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

/// numbers: the strides of the indexed dimensions, then static positions with
/// kDynamic for those that are operands, from operand numbers.front() on.
static bool findPart(Fiber &fiber, const Instruction &i, ArrayRef<int64_t> shape, int64_t &offset) {
  size_t operand = size_t(i.numbers.front());
  offset = 0;
  ArrayRef<int64_t> positions = ArrayRef(i.numbers).drop_front();
  SmallVector<int64_t> strides = rowMajor(shape);
  for (auto [dim, position] : llvm::enumerate(positions)) {
    int64_t at = ShapedType::isDynamic(position) ? fiber.integer(i, unsigned(operand++)) : position;
    if (at < 0 || at >= shape[dim]) {
      i.op->emitError() << "position " << at << " is outside of dimension " << dim << " of size "
                        << shape[dim];
      return false;
    }
    offset += at * strides[dim];
  }
  return true;
}

static Step extractPart(Fiber &fiber, const Instruction &i) {
  int64_t offset;
  if (!findPart(fiber, i, shapeOf(i.op->getOperand(0)), offset))
    return Step::Failed;
  if (isFloat(i.kind))
    std::copy_n(fiber.floats(i, 0) + offset, i.count, fiber.newFloats(i));
  else
    std::copy_n(fiber.ints(i, 0) + offset, i.count, fiber.newInts(i));
  return Step::Next;
}

static Step insertPart(Fiber &fiber, const Instruction &i) {
  int64_t offset;
  if (!findPart(fiber, i, shapeOf(i.op->getResult(0)), offset))
    return Step::Failed;
  int64_t part = 1;
  for (int64_t size : shapeOf(i.op->getOperand(0)))
    part *= size;
  if (isFloat(i.kind)) {
    double *to = fiber.newFloats(i);
    std::copy_n(fiber.floats(i, 1), i.count, to);
    std::copy_n(fiber.floats(i, 0), part, to + offset);
  } else {
    int64_t *to = fiber.newInts(i);
    std::copy_n(fiber.ints(i, 1), i.count, to);
    std::copy_n(fiber.ints(i, 0), part, to + offset);
  }
  return Step::Next;
}

template <typename OpTy>
static LogicalResult translatePart(Translator &translator, Operation *op,
                                   Instruction::Handler handler, int64_t firstIndex) {
  Instruction &instruction = translator.emit(op, handler);
  instruction.numbers = {firstIndex};
  llvm::append_range(instruction.numbers, cast<OpTy>(op).getStaticPosition());
  return setShape(instruction, op->getResult(0).getType());
}

static LogicalResult translateInsertStrided(Translator &translator, Operation *op) {
  auto insert = cast<vector::InsertStridedSliceOp>(op);
  for (const APInt &step : insert.getStrides().getAsValueRange<IntegerAttr>())
    if (!step.isOne())
      return op->emitError("the interpreter executes unit strides only");
  ArrayRef<int64_t> part = insert.getSourceVectorType().getShape();
  Walk walk;
  walk.shape.assign(part.begin(), part.end());
  SmallVector<int64_t> strides = rowMajor(insert.getDestVectorType().getShape());
  for (auto [dim, offset] : llvm::enumerate(insert.getOffsets().getAsValueRange<IntegerAttr>()))
    walk.offset += offset.getSExtValue() * strides[dim];
  walk.strides.assign(strides.end() - int64_t(part.size()), strides.end());
  Instruction &instruction = translator.emit(op, [](Fiber &fiber, const Instruction &i) {
    auto scatter = [&](auto *part, auto *whole, auto *to) {
      std::copy_n(whole, i.count, to);
      forEachRun(i.get<Walk>(), [&](int64_t position, int64_t other, int64_t length, int64_t) {
        std::copy_n(part + position, length, to + other);
      });
    };
    if (isFloat(i.kind))
      scatter(fiber.floats(i, 0), fiber.floats(i, 1), fiber.newFloats(i));
    else
      scatter(fiber.ints(i, 0), fiber.ints(i, 1), fiber.newInts(i));
    return Step::Next;
  });
  instruction.data = std::make_shared<const Walk>(std::move(walk));
  return setShape(instruction, op->getResult(0).getType());
}

static Step joinElements(Fiber &fiber, const Instruction &i) {
  for (unsigned k = 0; k < i.count; ++k) {
    if (isFloat(i.kind))
      (k ? const_cast<double *>(fiber.result(i).floats()) : fiber.newFloats(i))[k] =
          fiber.operand(i, k).number;
    else
      (k ? const_cast<int64_t *>(fiber.result(i).ints()) : fiber.newInts(i))[k] =
          fiber.integer(i, k);
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Index vectors and masks
//===----------------------------------------------------------------------===//

static Step countUp(Fiber &fiber, const Instruction &i) {
  int64_t *r = fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = k;
  return Step::Next;
}

/// 1 where each index is below its bound.
static void fillMask(ArrayRef<int64_t> shape, ArrayRef<int64_t> bounds, int64_t *mask) {
  Walk walk;
  walk.shape.assign(shape.begin(), shape.end());
  walk.strides = rowMajor(shape);
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  for (int64_t k = 0; k < count; ++k) {
    bool inside = true;
    for (auto [dim, bound] : llvm::enumerate(bounds))
      inside &= k / walk.strides[dim] % shape[dim] < bound;
    mask[k] = inside;
  }
}

static Step createMask(Fiber &fiber, const Instruction &i) {
  SmallVector<int64_t> bounds(i.numbers.begin(), i.numbers.end());
  for (unsigned k = 0; k < i.operands.size(); ++k)
    bounds.push_back(fiber.integer(i, k));
  fillMask(shapeOf(i.op->getResult(0)), bounds, fiber.newInts(i));
  return Step::Next;
}

static LogicalResult translateConstantMask(Translator &translator, Operation *op) {
  Instruction &instruction = translator.emit(op, createMask);
  llvm::append_range(instruction.numbers, cast<vector::ConstantMaskOp>(op).getMaskDimSizes());
  return setShape(instruction, op->getResult(0).getType());
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

namespace {
struct Reduction {
  Walk walk; // from the source into the result
  vector::CombiningKind kind;
  bool hasAccumulator = true;
};
} // namespace

template <typename T, typename Combine>
static void reduceRuns(const Walk &walk, const T *from, T *to, Combine combine) {
  forEachRun(walk, [&](int64_t position, int64_t other, int64_t length, int64_t stride) {
    if (stride == 0) {
      // The columns of a row are in four lanes, with two chains each.
      T chains[8];
      int64_t count = std::min<int64_t>(length, 8);
      std::copy_n(from + position, count, chains);
      for (int64_t k = count; k < length; ++k)
        chains[k % 8] = combine(chains[k % 8], from[position + k]);
      for (int64_t step = 1; step < count; step *= 2)
        for (int64_t k = 0; k + step < count; k += 2 * step)
          chains[k] = combine(chains[k], chains[k + step]);
      if (count > 0)
        to[other] = combine(to[other], chains[0]);
      return;
    }
    for (int64_t k = 0; k < length; ++k)
      to[other + k * stride] = combine(to[other + k * stride], from[position + k]);
  });
}

/// Sums and products in f32 where elements have no more bits.
static bool reduceFloats(const Reduction &reduction, ElementKind kind, const double *from,
                         double *to) {
  using K = vector::CombiningKind;
  const Walk &walk = reduction.walk;
  bool isWide = kind == ElementKind::F64;
  switch (reduction.kind) {
  case K::ADD:
    isWide ? reduceRuns(walk, from, to, [](double a, double b) { return a + b; })
           : reduceRuns(walk, from, to, [](double a, double b) { return double(float(a + b)); });
    return true;
  case K::MUL:
    isWide ? reduceRuns(walk, from, to, [](double a, double b) { return a * b; })
           : reduceRuns(walk, from, to, [](double a, double b) { return double(float(a * b)); });
    return true;
  case K::MAXNUMF:
    reduceRuns(walk, from, to, [](double a, double b) { return a != a || a < b ? b : a; });
    return true;
  case K::MINNUMF:
    reduceRuns(walk, from, to, [](double a, double b) { return a != a || a > b ? b : a; });
    return true;
  case K::MAXIMUMF:
    reduceRuns(walk, from, to, [](double a, double b) { return b != b || a < b ? b : a; });
    return true;
  case K::MINIMUMF:
    reduceRuns(walk, from, to, [](double a, double b) { return b != b || a > b ? b : a; });
    return true;
  default:
    return false;
  }
}

static bool reduceInts(const Reduction &reduction, const int64_t *from, int64_t *to) {
  using K = vector::CombiningKind;
  const Walk &walk = reduction.walk;
  using I = int64_t;
  switch (reduction.kind) {
  case K::ADD:
    reduceRuns(walk, from, to, [](I a, I b) { return I(uint64_t(a) + uint64_t(b)); });
    return true;
  case K::MUL:
    reduceRuns(walk, from, to, [](I a, I b) { return I(uint64_t(a) * uint64_t(b)); });
    return true;
  case K::MAXSI:
    reduceRuns(walk, from, to, [](I a, I b) { return std::max(a, b); });
    return true;
  case K::MINSI:
    reduceRuns(walk, from, to, [](I a, I b) { return std::min(a, b); });
    return true;
  case K::AND:
    reduceRuns(walk, from, to, [](I a, I b) { return a & b; });
    return true;
  case K::OR:
    reduceRuns(walk, from, to, [](I a, I b) { return a | b; });
    return true;
  case K::XOR:
    reduceRuns(walk, from, to, [](I a, I b) { return a ^ b; });
    return true;
  default:
    return false;
  }
}

/// Rounded to its type at the end. Operand 1 is the
/// start; without it the first element is.
static Step reduce(Fiber &fiber, const Instruction &i) {
  const Reduction &reduction = i.get<Reduction>();
  Reduction rest = reduction;
  int64_t skip = reduction.hasAccumulator ? 0 : 1;
  rest.walk.shape.back() -= skip;
  bool known;
  if (isFloat(i.kind)) {
    const double *from = fiber.floats(i, 0);
    const double *start = skip ? from : fiber.floats(i, 1);
    double *to = fiber.newFloats(i);
    std::copy_n(start, i.count, to);
    known = reduceFloats(rest, i.kind, from + skip, to);
    roundAll(i, to);
  } else {
    const int64_t *from = fiber.ints(i, 0);
    const int64_t *start = skip ? from : fiber.ints(i, 1);
    int64_t *to = fiber.newInts(i);
    std::copy_n(start, i.count, to);
    known = reduceInts(rest, from + skip, to);
    for (int64_t k = 0; k < i.count; ++k)
      to[k] = wrap(i.kind, to[k]);
  }
  if (known)
    return Step::Next;
  i.op->emitError("the interpreter does not execute this kind of reduction");
  return Step::Failed;
}

static LogicalResult translateMultiReduction(Translator &translator, Operation *op) {
  auto multi = cast<vector::MultiDimReductionOp>(op);
  Reduction reduction;
  reduction.kind = multi.getKind();
  ArrayRef<int64_t> shape = multi.getSourceVectorType().getShape();
  reduction.walk.shape.assign(shape.begin(), shape.end());
  SmallVector<bool> reduced = multi.getReductionMask();
  SmallVector<int64_t> strides = rowMajor(shapeOf(multi.getResult()));
  size_t kept = 0;
  for (bool isReduced : reduced)
    reduction.walk.strides.push_back(isReduced ? 0 : strides[kept++]);
  Instruction &instruction = translator.emit(op, reduce);
  instruction.data = std::make_shared<const Reduction>(std::move(reduction));
  return setShape(instruction, op->getResult(0).getType());
}

static LogicalResult translateReduction(Translator &translator, Operation *op) {
  auto source = cast<vector::ReductionOp>(op);
  Reduction reduction;
  reduction.kind = source.getKind();
  reduction.walk.shape = {source.getSourceVectorType().getNumElements()};
  reduction.walk.strides = {0};
  reduction.hasAccumulator = bool(source.getAcc());
  Instruction &instruction = translator.emit(op, reduce);
  instruction.data = std::make_shared<const Reduction>(std::move(reduction));
  return setShape(instruction, op->getResult(0).getType());
}

void interpreter::registerVector(Translator &translator) {
  translator.add("vector.broadcast", translateBroadcast);
  translator.add("vector.transpose", translateTranspose);
  translator.add("vector.extract_strided_slice", translateExtractStrided);
  translator.add("vector.insert_strided_slice", translateInsertStrided);
  translator.add("vector.shape_cast", sameValue);
  translator.add("vector.extract", [](Translator &t, Operation *op) {
    return translatePart<vector::ExtractOp>(t, op, extractPart, 1);
  });
  translator.add("vector.insert", [](Translator &t, Operation *op) {
    return translatePart<vector::InsertOp>(t, op, insertPart, 2);
  });
  translator.add("vector.from_elements", joinElements);
  translator.add("vector.step", countUp);
  translator.add("vector.create_mask", createMask);
  translator.add("vector.constant_mask", translateConstantMask);
  translator.add("vector.multi_reduction", translateMultiReduction);
  translator.add("vector.reduction", translateReduction);
}
