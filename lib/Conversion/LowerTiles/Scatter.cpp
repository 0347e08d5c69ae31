// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums at computed indices: one load, one addition and one store per element.

#include "Groups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::tiles;

namespace {
/// Positions of the lane class that add to copies of their own.
int64_t copiesOf(int64_t elements, int64_t extent) {
  constexpr int64_t room = 2048, most = 8;
  int64_t copies = 1;
  while (copies < most && 2 * copies * elements <= room && extent % (2 * copies) == 0)
    copies *= 2;
  return copies;
}

class ScatterEmitter {
public:
  ScatterEmitter(Context &context, attn::ScatterAddOp op, Value scratch)
      : op(op), scratch(scratch), nest(context, op), classes(context.classes) {}

  void run() {
    if (scratch)
      clear();
    SmallVector<int> outer = classes.domain(op.getValues());
    int lane = classes.lane(outer);
    llvm::erase(outer, lane);
    int64_t copies = scratch ? cast<MemRefType>(scratch.getType()).getDimSize(0) : 1;
    nest.loops(outer, {}, [&](ValueRange) -> SmallVector<Value> {
      if (lane < 0) {
        addElement(0);
        return {};
      }
      Value first = nest.open(-1, 0, classes.extent(lane), copies).getInductionVar();
      for (int64_t copy = 0; copy < copies; ++copy) {
        nest.builder();
        nest.bind(lane, nest.addConstant(first, copy));
        addElement(copy);
      }
      nest.close();
      return {};
    });
    if (scratch)
      flush();
  }

private:
  Type element() { return cast<MemRefType>(op.getTable().getType()).getElementType(); }

  Value sizeOf(unsigned dim) {
    return nest.builder().createOrFold<memref::DimOp>(nest.loc, op.getTable(), dim);
  }

  /// Where there is no such element in scratch, 0 is added to the first.
  void addElement(int64_t copy) {
    Value value = nest.eval(op.getValues());
    SmallVector<Value> at;
    for (Value index : op.getIndices())
      at.push_back(nest.eval(index));
    Value inside;
    for (auto [dim, index] : llvm::enumerate(at)) {
      Value size = sizeOf(dim);
      Value fits =
          arith::CmpIOp::create(nest.builder(), nest.loc, arith::CmpIPredicate::ult, index, size);
      inside =
          inside ? arith::AndIOp::create(nest.builder(), nest.loc, inside, fits).getResult() : fits;
    }
    OpBuilder &b = nest.builder();
    if (!scratch) {
      auto branch = scf::IfOp::create(b, nest.loc, inside, /*withElseRegion=*/false);
      OpBuilder then = branch.getThenBodyBuilder();
      addTo(then, op.getTable(), at, value);
      return;
    }
    for (Value &index : at)
      index = arith::SelectOp::create(b, nest.loc, inside, index, nest.constant(0));
    Value zero = arith::ConstantOp::create(b, nest.loc, b.getZeroAttr(element()));
    value = arith::SelectOp::create(b, nest.loc, inside, value, zero);
    at.insert(at.begin(), nest.constant(copy));
    addTo(nest.builder(), scratch, at, value);
  }

  void addTo(OpBuilder &b, Value target, ValueRange at, Value value) {
    Value old = memref::LoadOp::create(b, nest.loc, target, at);
    Value sum = arith::AddFOp::create(b, nest.loc, old, value);
    memref::StoreOp::create(b, nest.loc, sum, target, at);
  }

  /// Loops over [0, shape[0]) x ..., with `body` at each index.
  void forEach(ArrayRef<int64_t> shape, llvm::function_ref<void(ArrayRef<Value>)> body,
               SmallVector<Value> at = {}) {
    if (at.size() == shape.size())
      return body(at);
    at.push_back(nest.open(-1, 0, shape[at.size()], 1).getInductionVar());
    forEach(shape, body, at);
    nest.close();
  }

  void clear() {
    forEach(cast<MemRefType>(scratch.getType()).getShape(), [&](ArrayRef<Value> at) {
      OpBuilder &b = nest.builder();
      Value zero = arith::ConstantOp::create(b, nest.loc, b.getZeroAttr(element()));
      memref::StoreOp::create(b, nest.loc, zero, scratch, at);
    });
  }

  void flush() {
    ArrayRef<int64_t> shape = cast<MemRefType>(scratch.getType()).getShape();
    forEach(shape.drop_front(), [&](ArrayRef<Value> at) {
      Value total;
      for (int64_t copy = 0; copy < shape[0]; ++copy) {
        SmallVector<Value> from = {nest.constant(copy)};
        llvm::append_range(from, at);
        OpBuilder &b = nest.builder();
        Value part = memref::LoadOp::create(b, nest.loc, scratch, from);
        total = total ? arith::AddFOp::create(b, nest.loc, total, part).getResult() : part;
      }
      addTo(nest.builder(), op.getTable(), at, total);
    });
  }

  attn::ScatterAddOp op;
  Value scratch;
  Nest nest;
  DimClasses &classes;
};
} // namespace

MemRefType attn::tiles::scatterScratchType(DimClasses &classes, attn::ScatterAddOp op) {
  constexpr int64_t most = 4096;
  auto table = cast<MemRefType>(op.getTable().getType());
  if (!table.hasStaticShape() || table.getNumElements() == 0 || table.getNumElements() > most)
    return {};
  int lane = classes.lane(classes.domain(op.getValues()));
  SmallVector<int64_t> shape = {lane < 0 ? 1
                                         : copiesOf(table.getNumElements(), classes.extent(lane))};
  llvm::append_range(shape, table.getShape());
  return MemRefType::get(shape, table.getElementType());
}

void attn::tiles::emitScatter(Context &context, Group &group, Value scratch) {
  ScatterEmitter(context, cast<attn::ScatterAddOp>(group.position), scratch).run();
}
