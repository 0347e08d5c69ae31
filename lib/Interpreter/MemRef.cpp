// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// memref: views of global memory, and single elements.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "Cluster.h"
#include "Elementwise.h"
#include "GlobalMemory.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

char *interpreter::findElement(Operation *op, const MemRef &memref, ArrayRef<int64_t> indices) {
  int64_t element = memref.offset;
  for (auto [dim, index] : llvm::enumerate(indices)) {
    if (index < 0 || index >= memref.sizes[dim]) {
      op->emitError() << "index " << index << " is outside of dimension " << dim << " of size "
                      << memref.sizes[dim];
      return nullptr;
    }
    element += index * memref.strides[dim];
  }
  if (element < 0 || element >= memref.extent) {
    op->emitError() << "element " << element << " is outside of an allocation of " << memref.extent;
    return nullptr;
  }
  return memref.at(element);
}

static SmallVector<int64_t> readIndices(Fiber &fiber, const Instruction &i, unsigned first) {
  SmallVector<int64_t> indices;
  for (unsigned k = first; k < i.operands.size(); ++k)
    indices.push_back(fiber.integer(i, k));
  return indices;
}

static Step loadElement(Fiber &fiber, const Instruction &i) {
  const char *element =
      findElement(i.op, fiber.operand(i, 0).as<MemRef>(), readIndices(fiber, i, 1));
  if (!element ||
      failed(noteAccess(fiber, fiber.operand(i, 0).as<MemRef>(), element, i.op, /*write=*/false)))
    return Step::Failed;
  if (isFloat(i.kind))
    fiber.result(i).number = loadNumber(i.kind, element);
  else
    fiber.result(i).integer = wrap(i.kind, loadInteger(i.kind, element));
  return Step::Next;
}

static Step storeElement(Fiber &fiber, const Instruction &i) {
  char *element = findElement(i.op, fiber.operand(i, 1).as<MemRef>(), readIndices(fiber, i, 2));
  if (!element ||
      failed(noteAccess(fiber, fiber.operand(i, 1).as<MemRef>(), element, i.op, /*write=*/true)))
    return Step::Failed;
  if (isFloat(i.kind))
    storeNumber(i.kind, element, fiber.operand(i, 0).number);
  else
    storeInteger(i.kind, element, fiber.integer(i, 0));
  return Step::Next;
}

static Step readDim(Fiber &fiber, const Instruction &i) {
  const auto &memref = fiber.operand(i, 0).as<MemRef>();
  int64_t dim = fiber.integer(i, 1);
  if (dim < 0 || dim >= int64_t(memref.sizes.size())) {
    i.op->emitError() << "a memref of rank " << memref.sizes.size() << " has no dimension " << dim;
    return Step::Failed;
  }
  fiber.result(i).integer = memref.sizes[size_t(dim)];
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Allocation
//===----------------------------------------------------------------------===//

/// Memory of an argument that is dense, as in the runtime of CUDA programs; null if there is not
/// enough left.
static char *takeLent(MemRef &argument, size_t bytes) {
  constexpr uint64_t kAlignment = 256;
  int64_t count = 1, last = 0;
  bool goesUp = true;
  for (auto [size, stride] : llvm::zip(argument.sizes, argument.strides)) {
    count *= size;
    last += (size - 1) * stride;
    goesUp &= stride >= 0;
  }
  uint64_t first = llvm::alignTo(uint64_t(argument.aliased), kAlignment);
  if (!goesUp || last + 1 != count || first + bytes > uint64_t(count) * elementSize(argument.kind))
    return nullptr;
  argument.aliased = int64_t(first + bytes);
  return argument.at(argument.offset) + first;
}

static Step allocate(Fiber &fiber, const Instruction &i) {
  auto type = cast<MemRefType>(i.op->getResult(0).getType());
  auto memref = std::make_shared<MemRef>();
  memref->kind = i.kind;
  unsigned operand = 0;
  for (int64_t size : type.getShape())
    memref->sizes.push_back(ShapedType::isDynamic(size) ? fiber.integer(i, operand++) : size);
  llvm::Expected<int64_t> count = countElements(memref->sizes);
  if (!count) {
    i.op->emitError() << toString(count.takeError());
    return Step::Failed;
  }
  memref->extent = *count;
  memref->strides.assign(memref->sizes.size(), 1);
  for (size_t dim = memref->sizes.size(); dim-- > 1;)
    memref->strides[dim - 1] = memref->strides[dim] * memref->sizes[dim];
  // Fresh memory holds NaN, or an integer that no program expects.
  constexpr char kFresh = char(0xff);
  size_t bytes = size_t(*count) * elementSize(i.kind);
  if (i.operands.size() > operand)
    memref->base = takeLent(static_cast<MemRef &>(*fiber.operand(i, operand).object), bytes);
  if (memref->base) {
    std::fill_n(memref->base, bytes, kFresh);
  } else {
    memref->owner = std::make_shared<std::vector<char>>(bytes, kFresh);
    memref->base = memref->owner->data();
  }
  memref->isLocal = fiber.cluster;
  fiber.result(i).object = memref;
  return Step::Next;
}

static LogicalResult translateAlloc(Translator &translator, Operation *op) {
  auto type = cast<MemRefType>(op->getResult(0).getType());
  bool isLocal = isa<memref::AllocaOp>(op) && translator.launch && translator.launch->ofThreads;
  if (translator.launch && !isLocal)
    return op->emitError("the interpreter allocates global memory on the host only, and memory of "
                         "a thread by memref.alloca in launches of threads");
  if (!type.getLayout().isIdentity())
    return op->emitError("the interpreter allocates dense memory only");
  Instruction &instruction = translator.emit(op, allocate);
  if (auto aliases = op->getAttrOfType<IntegerAttr>(hopper::kAliasesAttr)) {
    FailureOr<mlir::Value> argument = hopper::findAliased(op, aliases);
    if (failed(argument))
      return failure();
    instruction.operands.push_back(translator.slot(*argument));
  }
  return setShape(instruction, type);
}

static Step doNothing(Fiber &, const Instruction &) { return Step::Next; }

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

static Step sameMemory(Fiber &fiber, const Instruction &i) {
  const auto &source = fiber.operand(i, 0).as<MemRef>();
  auto type = cast<MemRefType>(i.op->getResult(0).getType());
  for (auto [dim, size] : llvm::enumerate(type.getShape()))
    if (!ShapedType::isDynamic(size) && size != source.sizes[dim]) {
      i.op->emitError() << "dimension " << dim << " is " << source.sizes[dim] << ", not " << size;
      return Step::Failed;
    }
  fiber.result(i) = fiber.operand(i, 0);
  return Step::Next;
}

/// Static values with dynamic ones from the operands.
static SmallVector<int64_t> mixed(Fiber &fiber, const Instruction &i, ArrayRef<int64_t> values,
                                  unsigned &operand) {
  SmallVector<int64_t> result(values);
  for (int64_t &value : result)
    if (ShapedType::isDynamic(value))
      value = fiber.integer(i, operand++);
  return result;
}

static Step subview(Fiber &fiber, const Instruction &i) {
  auto op = cast<memref::SubViewOp>(i.op);
  const auto &source = fiber.operand(i, 0).as<MemRef>();
  unsigned operand = 1;
  SmallVector<int64_t> offsets = mixed(fiber, i, op.getStaticOffsets(), operand);
  SmallVector<int64_t> sizes = mixed(fiber, i, op.getStaticSizes(), operand);
  SmallVector<int64_t> steps = mixed(fiber, i, op.getStaticStrides(), operand);
  auto result = std::make_shared<MemRef>(source);
  result->sizes.clear();
  result->strides.clear();
  llvm::SmallBitVector dropped = op.getDroppedDims();
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    int64_t last = offsets[dim] + (sizes[dim] - 1) * steps[dim];
    if (sizes[dim] < 0 || (sizes[dim] > 0 && (offsets[dim] < 0 || last >= source.sizes[dim]))) {
      i.op->emitError() << "elements " << offsets[dim] << " to " << last
                        << " are outside of dimension " << dim << " of size " << source.sizes[dim];
      return Step::Failed;
    }
    result->offset += offsets[dim] * source.strides[dim];
    if (dropped[unsigned(dim)])
      continue;
    result->sizes.push_back(sizes[dim]);
    result->strides.push_back(source.strides[dim] * steps[dim]);
  }
  fiber.result(i).object = result;
  return Step::Next;
}

static Step reinterpret(Fiber &fiber, const Instruction &i) {
  auto op = cast<memref::ReinterpretCastOp>(i.op);
  auto result = std::make_shared<MemRef>(fiber.operand(i, 0).as<MemRef>());
  unsigned operand = 1;
  result->offset = mixed(fiber, i, op.getStaticOffsets(), operand)[0];
  SmallVector<int64_t> sizes = mixed(fiber, i, op.getStaticSizes(), operand);
  SmallVector<int64_t> strides = mixed(fiber, i, op.getStaticStrides(), operand);
  result->sizes.assign(sizes.begin(), sizes.end());
  result->strides.assign(strides.begin(), strides.end());
  fiber.result(i).object = result;
  return Step::Next;
}

/// Results: base, offset, sizes, strides.
static Step takeApart(Fiber &fiber, const Instruction &i) {
  const auto &source = fiber.operand(i, 0).as<MemRef>();
  auto base = std::make_shared<MemRef>(source);
  base->offset = 0;
  base->sizes.clear();
  base->strides.clear();
  fiber.result(i, 0).object = base;
  fiber.result(i, 1).integer = source.offset;
  unsigned rank = unsigned(source.sizes.size());
  for (unsigned dim = 0; dim < rank; ++dim) {
    fiber.result(i, 2 + dim).integer = source.sizes[dim];
    fiber.result(i, 2 + rank + dim).integer = source.strides[dim];
  }
  return Step::Next;
}

static Step expandShape(Fiber &fiber, const Instruction &i) {
  auto op = cast<memref::ExpandShapeOp>(i.op);
  const auto &source = fiber.operand(i, 0).as<MemRef>();
  unsigned operand = 1;
  SmallVector<int64_t> sizes = mixed(fiber, i, op.getStaticOutputShape(), operand);
  auto result = std::make_shared<MemRef>(source);
  result->sizes.assign(sizes.begin(), sizes.end());
  result->strides.assign(sizes.size(), 0);
  for (auto [dim, group] : llvm::enumerate(op.getReassociationIndices())) {
    int64_t stride = source.strides[dim];
    for (int64_t part : llvm::reverse(group)) {
      result->strides[size_t(part)] = stride;
      stride *= sizes[size_t(part)];
    }
    if (stride != source.strides[dim] * source.sizes[dim]) {
      i.op->emitError() << "dimension " << dim << " of size " << source.sizes[dim]
                        << " is expanded to another number of elements";
      return Step::Failed;
    }
  }
  fiber.result(i).object = result;
  return Step::Next;
}

static Step collapseShape(Fiber &fiber, const Instruction &i) {
  auto op = cast<memref::CollapseShapeOp>(i.op);
  const auto &source = fiber.operand(i, 0).as<MemRef>();
  auto result = std::make_shared<MemRef>(source);
  result->sizes.clear();
  result->strides.clear();
  for (const ReassociationIndices &group : op.getReassociationIndices()) {
    int64_t size = 1, stride = 0;
    for (int64_t part : llvm::reverse(group)) {
      // A dimension of one element may have any stride.
      if (source.sizes[size_t(part)] != 1) {
        if (size == 1)
          stride = source.strides[size_t(part)];
        else if (source.strides[size_t(part)] != stride * size && source.sizes[size_t(part)] != 0) {
          i.op->emitError() << "dimension " << part << " is not contiguous with the next";
          return Step::Failed;
        }
      }
      size *= source.sizes[size_t(part)];
    }
    result->sizes.push_back(size);
    result->strides.push_back(stride ? stride : source.strides[size_t(group.back())]);
  }
  fiber.result(i).object = result;
  return Step::Next;
}

/// In launches of threads others run before an access of memory that threads share.
static Instruction &emitAccess(Translator &translator, Operation *op,
                               Instruction::Handler handler) {
  Instruction &instruction = translator.emit(op, handler);
  instruction.yields = mayRace(translator, op->getOperand(isa<memref::StoreOp>(op) ? 1 : 0));
  return instruction;
}

void interpreter::registerMemRef(Translator &translator) {
  translator.add("memref.load", [](Translator &t, Operation *op) {
    if (isShared(cast<memref::LoadOp>(op).getMemRefType()))
      return translateShared(t, op);
    return setShape(emitAccess(t, op, loadElement), op->getResult(0).getType());
  });
  translator.add("memref.store", [](Translator &t, Operation *op) {
    if (isShared(cast<memref::StoreOp>(op).getMemRefType()))
      return translateShared(t, op);
    return setShape(emitAccess(t, op, storeElement), op->getOperand(0).getType());
  });
  translator.add("memref.dim", readDim);
  translator.add("memref.alloc", translateAlloc);
  translator.add("memref.alloca", translateAlloc);
  translator.add("memref.dealloc", doNothing);
  translator.add("memref.cast", sameMemory);
  translator.add("memref.subview", subview);
  translator.add("memref.reinterpret_cast", reinterpret);
  translator.add("memref.extract_strided_metadata", takeApart);
  translator.add("memref.extract_aligned_pointer_as_index", [](Fiber &fiber, const Instruction &i) {
    fiber.result(i).integer =
        int64_t(reinterpret_cast<intptr_t>(fiber.operand(i, 0).as<MemRef>().base));
    return Step::Next;
  });
  translator.add("memref.expand_shape", expandShape);
  translator.add("memref.collapse_shape", collapseShape);
}
