// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// vector.transfer_read, transfer_write, load, store and gather: tiles between
// registers and global memory.

#include "Elementwise.h"
#include "GlobalAccesses.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

namespace {
/// How the elements of a vector lie in a memref: dimension `dims[v]` of the
/// memref, or -1 where the vector's dimension is a broadcast.
struct Layout {
  SmallVector<int64_t> shape, dims;
  SmallVector<bool> inBounds;
  /// Operands of an instruction: the memref, the first index, mask or 0.
  unsigned memref = 0, indices = 1, mask = 0;
  int64_t rank = 0;
};
} // namespace

/// Calls `visit(k, element)` for each element of the vector; `element` is null
/// where the mask is false or the memref has none.
template <typename Visit>
static LogicalResult forEachElement(Fiber &fiber, const Instruction &i, const Layout &layout,
                                    Visit visit) {
  const auto &memref = fiber.operand(i, layout.memref).as<MemRef>();
  const int64_t *mask = layout.mask ? fiber.ints(i, layout.mask) : nullptr;
  SmallVector<int64_t> start, index(layout.shape.size(), 0);
  for (unsigned dim = 0; dim < layout.rank; ++dim)
    start.push_back(fiber.integer(i, layout.indices + dim));
  int64_t count = 1;
  for (int64_t size : layout.shape)
    count *= size;
  SmallVector<int64_t> at;
  for (int64_t k = 0; k < count; ++k) {
    at = start;
    bool inside = true;
    for (size_t dim = 0; dim < index.size(); ++dim) {
      int64_t target = layout.dims[dim];
      if (target < 0)
        continue;
      at[size_t(target)] += index[dim];
      if (!layout.inBounds[dim])
        inside &= at[size_t(target)] >= 0 && at[size_t(target)] < memref.sizes[size_t(target)];
    }
    char *element = nullptr;
    if (inside && (!mask || mask[k]))
      if (!(element = findElement(i.op, memref, at)) ||
          failed(noteAccess(fiber, memref, element, i.op, /*write=*/layout.memref > 0)))
        return failure();
    visit(k, element);
    for (size_t dim = index.size(); dim-- > 0;) {
      if (++index[dim] < layout.shape[dim])
        break;
      index[dim] = 0;
    }
  }
  return success();
}

static Step readVector(Fiber &fiber, const Instruction &i) {
  const Layout &layout = i.get<Layout>();
  // numbers[0]: the operand that stands for missing elements, or -1.
  auto missing = [&](unsigned k) -> interpreter::Value {
    if (i.numbers[0] < 0)
      return {};
    const interpreter::Value &value = fiber.operand(i, unsigned(i.numbers[0]));
    if (!value.object)
      return value;
    interpreter::Value element;
    if (isFloat(i.kind))
      element.number = value.floats()[k];
    else
      element.integer = value.ints()[k];
    return element;
  };
  LogicalResult done = success();
  if (isFloat(i.kind)) {
    double *r = fiber.newFloats(i);
    done = forEachElement(fiber, i, layout, [&](int64_t k, const char *element) {
      r[k] = element ? loadNumber(i.kind, element) : missing(unsigned(k)).number;
    });
  } else {
    int64_t *r = fiber.newInts(i);
    done = forEachElement(fiber, i, layout, [&](int64_t k, const char *element) {
      r[k] = element ? wrap(i.kind, loadInteger(i.kind, element)) : missing(unsigned(k)).integer;
    });
  }
  return succeeded(done) ? Step::Next : Step::Failed;
}

static Step writeVector(Fiber &fiber, const Instruction &i) {
  LogicalResult done = success();
  if (isFloat(i.kind)) {
    const double *values = fiber.floats(i, 0);
    done = forEachElement(fiber, i, i.get<Layout>(), [&](int64_t k, char *element) {
      if (element)
        storeNumber(i.kind, element, values[k]);
    });
  } else {
    const int64_t *values = fiber.ints(i, 0);
    done = forEachElement(fiber, i, i.get<Layout>(), [&](int64_t k, char *element) {
      if (element)
        storeInteger(i.kind, element, values[k]);
    });
  }
  return succeeded(done) ? Step::Next : Step::Failed;
}

static Step addVector(Fiber &fiber, const Instruction &i) {
  const double *values = fiber.floats(i, 0);
  LogicalResult done = forEachElement(fiber, i, i.get<Layout>(), [&](int64_t k, char *element) {
    if (element)
      storeNumber(i.kind, element, loadNumber(i.kind, element) + values[k]);
  });
  return succeeded(done) ? Step::Next : Step::Failed;
}

template <typename OpTy>
static LogicalResult layOutTransfer(OpTy op, Layout &layout, unsigned maskOperand) {
  if (!isa<MemRefType>(op.getBase().getType()))
    return op->emitError("the interpreter transfers vectors to and from memrefs only");
  VectorType type = op.getVectorType();
  layout.shape.assign(type.getShape().begin(), type.getShape().end());
  layout.rank = op.getTransferRank() + op.getLeadingShapedRank();
  for (AffineExpr expr : op.getPermutationMap().getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    layout.dims.push_back(dim ? int64_t(dim.getPosition()) : -1);
  }
  layout.inBounds = op.getInBoundsValues();
  if (op.getMask()) {
    // The mask is in the order of the memref's dimensions.
    SmallVector<int64_t> sorted = layout.dims;
    llvm::sort(sorted);
    if (sorted != layout.dims || llvm::is_contained(layout.dims, -1))
      return op->emitError("the interpreter executes masks of transfers in the memref's order");
    layout.mask = maskOperand;
  }
  return success();
}

static LogicalResult translateRead(Translator &translator, Operation *op) {
  auto read = cast<vector::TransferReadOp>(op);
  Layout layout;
  unsigned padding = 1 + unsigned(read.getIndices().size());
  if (failed(layOutTransfer(read, layout, padding + 1)))
    return failure();
  Instruction &instruction = translator.emit(op, readVector);
  instruction.numbers = {int64_t(padding)};
  instruction.data = std::make_shared<const Layout>(std::move(layout));
  return setShape(instruction, read.getType());
}

static LogicalResult translateWrite(Translator &translator, Operation *op) {
  auto write = cast<vector::TransferWriteOp>(op);
  if (op->getNumResults())
    return op->emitError("the interpreter transfers vectors to and from memrefs only");
  Layout layout;
  layout.memref = 1;
  layout.indices = 2;
  if (failed(layOutTransfer(write, layout, 2 + unsigned(write.getIndices().size()))))
    return failure();
  Instruction &instruction = translator.emit(op, writeVector);
  instruction.data = std::make_shared<const Layout>(std::move(layout));
  return setShape(instruction, write.getVectorType());
}

/// attn.tile_add: the last dimensions, as far as the memref goes.
static LogicalResult translateAdd(Translator &translator, Operation *op) {
  auto add = cast<TileAddOp>(op);
  auto type = dyn_cast<MemRefType>(add.getDest().getType());
  auto vector = cast<VectorType>(add.getValues().getType());
  if (!type)
    return op->emitError("the interpreter adds vectors to memrefs only");
  Layout layout;
  layout.shape.assign(vector.getShape().begin(), vector.getShape().end());
  layout.memref = 1;
  layout.indices = 2;
  layout.rank = type.getRank();
  for (int64_t dim = 0; dim < vector.getRank(); ++dim)
    layout.dims.push_back(type.getRank() - vector.getRank() + dim);
  layout.inBounds.assign(size_t(vector.getRank()), false);
  translator.program.addsInAnyOrder = true;
  Instruction &instruction = translator.emit(op, addVector);
  instruction.data = std::make_shared<const Layout>(std::move(layout));
  return setShape(instruction, vector);
}

/// Access that promises an alignment, in bytes (the last number).
template <Instruction::Handler access>
static Step accessAligned(Fiber &fiber, const Instruction &i) {
  const auto &layout = i.get<Layout>();
  SmallVector<int64_t> indices;
  for (int64_t dim = 0; dim < int64_t(layout.rank); ++dim)
    indices.push_back(fiber.integer(i, unsigned(layout.indices + dim)));
  const char *first =
      findElement(i.op, fiber.operand(i, unsigned(layout.memref)).as<MemRef>(), indices);
  if (!first)
    return Step::Failed;
  if (reinterpret_cast<uintptr_t>(first) % uintptr_t(i.numbers.back())) {
    i.op->emitError() << "accesses memory that is no multiple of " << i.numbers.back() << " bytes";
    return Step::Failed;
  }
  return access(fiber, i);
}

/// vector.load and vector.store: the last dimensions, all in bounds.
static LogicalResult translateAccess(Translator &translator, Operation *op, bool store) {
  unsigned memref = store ? 1 : 0;
  auto type = dyn_cast<MemRefType>(op->getOperand(memref).getType());
  auto vector = cast<VectorType>(store ? op->getOperand(0).getType() : op->getResult(0).getType());
  if (!type || isa<VectorType>(type.getElementType()))
    return op->emitError("the interpreter executes memrefs of scalars only");
  Layout layout;
  layout.shape.assign(vector.getShape().begin(), vector.getShape().end());
  layout.memref = memref;
  layout.indices = memref + 1;
  layout.rank = type.getRank();
  for (int64_t dim = 0; dim < vector.getRank(); ++dim)
    layout.dims.push_back(type.getRank() - vector.getRank() + dim);
  layout.inBounds.assign(size_t(vector.getRank()), true);
  Instruction &instruction = translator.emit(op, store ? writeVector : readVector);
  instruction.numbers = {-1};
  instruction.data = std::make_shared<const Layout>(std::move(layout));
  instruction.yields = mayRace(translator, op->getOperand(memref));
  if (auto alignment = op->getAttrOfType<IntegerAttr>("alignment")) {
    instruction.run = store ? accessAligned<writeVector> : accessAligned<readVector>;
    instruction.numbers.push_back(alignment.getInt());
  }
  return setShape(instruction, vector);
}

/// Operands: memref, offsets, indices, mask, pass-through. Each element lies
/// `indices` of the last dimension's elements from the first.
static Step gather(Fiber &fiber, const Instruction &i) {
  const auto &memref = fiber.operand(i, 0).as<MemRef>();
  unsigned rank = unsigned(memref.sizes.size());
  SmallVector<int64_t> start;
  for (unsigned dim = 0; dim < rank; ++dim)
    start.push_back(fiber.integer(i, 1 + dim));
  const int64_t *indices = fiber.ints(i, 1 + rank), *mask = fiber.ints(i, 2 + rank);
  const interpreter::Value other = fiber.operand(i, 3 + rank);
  auto find = [&](int64_t k) {
    SmallVector<int64_t> at(start);
    at.back() += indices[k];
    return findElement(i.op, memref, at);
  };
  double *floats = isFloat(i.kind) ? fiber.newFloats(i) : nullptr;
  int64_t *ints = isFloat(i.kind) ? nullptr : fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k) {
    const char *element = nullptr;
    if (mask[k] && !(element = find(k)))
      return Step::Failed;
    if (floats)
      floats[k] = element ? loadNumber(i.kind, element) : other.floats()[k];
    else
      ints[k] = element ? wrap(i.kind, loadInteger(i.kind, element)) : other.ints()[k];
  }
  return Step::Next;
}

static LogicalResult translateGather(Translator &translator, Operation *op) {
  if (!isa<MemRefType>(op->getOperand(0).getType()))
    return op->emitError("the interpreter gathers from memrefs only");
  return setShape(translator.emit(op, gather), op->getResult(0).getType());
}

/// Operands: values, indices for each dimension, table. What lies outside of the table
/// is left out.
static Step scatterAdd(Fiber &fiber, const Instruction &i) {
  unsigned rank = i.op->getNumOperands() - 2;
  const auto &table = fiber.operand(i, 1 + rank).as<MemRef>();
  const double *values = fiber.floats(i, 0);
  SmallVector<const int64_t *> indices;
  for (unsigned dim = 0; dim < rank; ++dim)
    indices.push_back(fiber.ints(i, 1 + dim));
  SmallVector<int64_t> at(rank);
  for (int64_t k = 0; k < i.count; ++k) {
    bool isInside = true;
    for (unsigned dim = 0; dim < rank; ++dim) {
      at[dim] = indices[dim][k];
      isInside &= at[dim] >= 0 && at[dim] < table.sizes[dim];
    }
    if (!isInside)
      continue;
    char *element = findElement(i.op, table, at);
    if (!element)
      return Step::Failed;
    storeNumber(i.kind, element, loadNumber(i.kind, element) + values[k]);
  }
  return Step::Next;
}

static LogicalResult translateScatter(Translator &translator, Operation *op) {
  auto scatter = cast<ScatterAddOp>(op);
  if (!isa<MemRefType>(scatter.getTable().getType()))
    return op->emitError("the interpreter adds vectors to memrefs only");
  return setShape(translator.emit(op, scatterAdd), scatter.getValues().getType());
}

void interpreter::registerTransfers(Translator &translator) {
  translator.add("vector.transfer_read", translateRead);
  translator.add("vector.transfer_write", translateWrite);
  translator.add("vector.load",
                 [](Translator &t, Operation *op) { return translateAccess(t, op, false); });
  translator.add("vector.store",
                 [](Translator &t, Operation *op) { return translateAccess(t, op, true); });
  translator.add("vector.gather", translateGather);
  translator.add("attn.tile_add", translateAdd);
  translator.add("attn.scatter_add", translateScatter);
}
