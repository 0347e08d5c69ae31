// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// hopper: products of tiles, at once (mma, load) and later (wgmma, wait).

#include "Elementwise.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;
using namespace attn::hopper;

//===----------------------------------------------------------------------===//
// Asynchronous
//===----------------------------------------------------------------------===//

/// `paddedColumns` where the product reads beyond the tile's columns.
static LogicalResult readTile(Fiber &fiber, const Instruction &i, unsigned operand,
                              std::shared_ptr<Event> event, bool padding) {
  auto type = dyn_cast<tile::SmemType>(i.op->getOperand(operand).getType());
  if (!type)
    return success();
  const auto &view = fiber.operand(i, operand).as<SmemView>();
  if (view.own)
    return checkReleased(fiber, view, i.op);
  if (failed(fiber.cluster->access(fiber, view, type, event, /*write=*/false)))
    return failure();
  return fiber.cluster->checkWritten(i.op, view, type, padding);
}

/// Whether steps along k go on behind the last of B's.
static bool readsPadding(tile::SmemType b, bool transposed) {
  const target::MmaAtom *atom = target::findMmaAtom(tile::kAtoms, b.getElementType());
  return (transposed ? b.getColumns() : b.getRows()) % atom->k != 0;
}

static Step startProduct(Fiber &fiber, const Instruction &i) {
  auto op = cast<WgmmaOp>(i.op);
  auto product = std::make_shared<Product>();
  product->op = op;
  product->event = fiber.cluster->begin(fiber, i.op, {Threads::All, {}, false}, true);
  tile::SmemType b = op.getB().getType();
  bool padding = readsPadding(b, op.getTransposeB());
  if (failed(readTile(fiber, i, 0, product->event, padding)) ||
      failed(readTile(fiber, i, 1, product->event, padding)))
    return Step::Failed;
  product->a = fiber.operand(i, 0);
  product->b = fiber.operand(i, 1);
  for (unsigned operand : {0, 1})
    if (isa<tile::SmemType>(op->getOperand(operand).getType()))
      product->received.push_back(fiber.operand(i, operand).as<SmemView>().released);
  if (op.getAccumulator() && isa<PendingType>(op.getAccumulator().getType()))
    product->previous = fiber.operand(i, 2).as<PendingTile>().product;
  else if (op.getAccumulator())
    product->accumulator = fiber.operand(i, 2);
  fiber.products.push_back(product);
  if (fiber.machine->isEarly())
    fiber.cluster->finishProduct(fiber, *product);
  auto pending = std::make_shared<PendingTile>();
  pending->product = product;
  fiber.result(i).object = pending;
  return Step::Next;
}

static Step waitForProduct(Fiber &fiber, const Instruction &i) {
  auto pending = size_t(cast<WaitOp>(i.op).getPending());
  std::shared_ptr<Product> product = fiber.operand(i, 0).as<PendingTile>().product;
  auto at = llvm::find(fiber.products, product);
  if (at != fiber.products.end()) {
    size_t after = size_t(std::distance(at, fiber.products.end())) - 1;
    if (pending > after) {
      InFlightDiagnostic diagnostic = fiber.cluster->error(i.op);
      diagnostic << "the product may be unfinished: the wait leaves " << pending
                 << " pending, and only " << after << " started after it";
      diagnostic.attachNote(product->event->op->getLoc()) << "the product";
      return Step::Failed;
    }
  }
  while (fiber.products.size() > pending) {
    std::shared_ptr<Product> oldest = fiber.products.front();
    fiber.cluster->finishProduct(fiber, *oldest);
    fiber.cluster->end(fiber, *oldest->event);
    fiber.products.pop_front();
  }
  fiber.result(i).object = product->result;
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// With value semantics
//===----------------------------------------------------------------------===//

std::shared_ptr<Floats> interpreter::copyTile(const MemRef &source, ArrayRef<int64_t> coordinates,
                                              tile::SmemType type) {
  int64_t columns = paddedColumns(type);
  auto tile = std::make_shared<Floats>(type.getRows() * columns);
  forEachElement(source, coordinates, type.getRows(), columns,
                 [&](int64_t row, int64_t column, const char *element) {
                   tile->data[size_t(row * columns + column)] =
                       element ? loadNumber(source.kind, element) : 0;
                 });
  return tile;
}

LogicalResult interpreter::checkReleased(Fiber &fiber, const SmemView &view, Operation *op) {
  if (!view.released || !*view.released)
    return success();
  InFlightDiagnostic diagnostic = fiber.cluster->error(op);
  diagnostic << "reads a tile that its warpgroup has released";
  diagnostic.attachNote((*view.released)->getLoc()) << "the release";
  return diagnostic;
}

static Step loadValue(Fiber &fiber, const Instruction &i) {
  SmallVector<int64_t> coordinates;
  for (unsigned k = 1; k < i.operands.size(); ++k)
    coordinates.push_back(fiber.integer(i, k));
  ++fiber.machine->statistics.copies;
  auto view = std::make_shared<SmemView>();
  view->own = copyTile(fiber.operand(i, 0).as<MemRef>(), coordinates,
                       cast<tile::LoadOp>(i.op).getTile().getType());
  fiber.result(i).object = view;
  return Step::Next;
}

static Step multiplyNow(Fiber &fiber, const Instruction &i) {
  auto op = cast<tile::MmaOp>(i.op);
  auto event = fiber.cluster->begin(fiber, i.op, {Threads::All, {}, false}, false);
  fiber.cluster->end(fiber, *event);
  auto ofRows = fiber.cluster->begin(
      fiber, i.op, {op.getTransposeA() ? Threads::All : Threads::Rows, {}, false}, false);
  fiber.cluster->end(fiber, *ofRows);
  tile::SmemType b = op.getB().getType();
  bool padding = readsPadding(b, op.getTransposeB());
  if (failed(readTile(fiber, i, 0, ofRows, padding)) ||
      failed(readTile(fiber, i, 1, event, padding)))
    return Step::Failed;
  ++fiber.machine->statistics.products;
  double *result = fiber.newFloats(i);
  std::copy_n(fiber.floats(i, 2), i.count, result);
  multiply(*fiber.cluster, fiber.operand(i, 0), op.getA().getType(), op.getTransposeA(),
           fiber.operand(i, 1), b, op.getTransposeB(), op.getResult().getType(), result,
           op.getTf32().value_or(0));
  return Step::Next;
}

/// A tile as a value; tiles are those of a CTA.
template <Instruction::Handler handler>
static LogicalResult translateInLaunch(Translator &translator, Operation *op) {
  if (!translator.launch)
    return op->emitError("expects to be in a launch");
  return setShape(translator.emit(op, handler), op->getResult(0).getType());
}

void interpreter::registerHopperProducts(Translator &translator) {
  translator.add("hopper.wgmma", startProduct);
  translator.add("hopper.wait", waitForProduct);
  translator.add("tile.load", translateInLaunch<loadValue>);
  translator.add("tile.mma", translateInLaunch<multiplyNow>);
}
