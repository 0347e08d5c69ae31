// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands of kernels that are used where they lie in memory: a tile that lies
// inside its memref, with adjacent rows, is a subview; any other is copied to
// scratch with its padding. The choice is made when the program runs, once for
// all kernels that use the tile.

#include "Groups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::tiles;

namespace {
class ViewEmitter {
public:
  ViewEmitter(Context &context, vector::TransferReadOp read, Operation *position,
              AllocateFn allocate)
      : context(context), read(read), b(position), loc(read.getLoc()),
        type(cast<MemRefType>(read.getBase().getType())), allocate(allocate),
        shape(type.getRank(), 1), layout(type.getRank(), -1) {}

  Buffer run() {
    AffineMap map = read.getPermutationMap();
    SmallVector<int> dims = context.classes.dims(read.getResult());
    for (unsigned dim = 0; dim < map.getNumResults(); ++dim) {
      int where = memoryDim(map, dim);
      shape[where] = context.classes.extent(dims[dim]);
      layout[where] = dims[dim];
    }
    Value isUsable = both(isInside(), isDense());
    for (auto [size, cls] : llvm::zip_equal(shape, layout))
      if (cls >= 0)
        tileShape.push_back(size);
    llvm::erase(layout, -1);
    Value view = makeView();
    if (!isUsable)
      return {view, layout};
    return {choose(isUsable, view), layout};
  }

private:
  Value both(Value left, Value right) {
    if (!left || !right)
      return left ? left : right;
    return arith::AndIOp::create(b, loc, left, right);
  }

  /// Whether the tile lies inside of its memref; null where it is known to.
  Value isInside() {
    auto transfer = cast<VectorTransferOpInterface>(read.getOperation());
    AffineMap map = read.getPermutationMap();
    Value all;
    for (unsigned dim = 0; dim < map.getNumResults(); ++dim) {
      if (transfer.isDimInBounds(dim))
        continue;
      int where = memoryDim(map, dim);
      Value size = memref::DimOp::create(b, loc, read.getBase(), where);
      Value last = arith::AddIOp::create(b, loc, read.getIndices()[where],
                                         arith::ConstantIndexOp::create(b, loc, shape[where]));
      all = both(all, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, last, size));
    }
    return all;
  }

  /// Whether the rows of the tile lie one after another; null where they are
  /// known to. Rows far apart fall into few sets of the cache and are better
  /// copied.
  Value isDense() {
    int64_t inner = type.getRank() - 1;
    SmallVector<int64_t> strides = type.getStridesAndOffset().first;
    Value all;
    for (int64_t dim = 0; dim < inner; ++dim) {
      if (layout[dim] < 0 || layout[inner] < 0 || strides[dim] == shape[inner])
        continue;
      Value stride;
      if (strides[dim] == ShapedType::kDynamic)
        stride = memref::ExtractStridedMetadataOp::create(b, loc, read.getBase()).getStrides()[dim];
      else
        stride = arith::ConstantIndexOp::create(b, loc, strides[dim]);
      Value length = arith::ConstantIndexOp::create(b, loc, shape[inner]);
      all = both(all, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, stride, length));
    }
    return all;
  }

  Value makeView() {
    SmallVector<OpFoldResult> offsets(read.getIndices().begin(), read.getIndices().end());
    SmallVector<OpFoldResult> sizes, strides(shape.size(), b.getIndexAttr(1));
    for (int64_t size : shape)
      sizes.push_back(b.getIndexAttr(size));
    auto viewType = cast<MemRefType>(
        memref::SubViewOp::inferRankReducedResultType(tileShape, type, offsets, sizes, strides));
    return memref::SubViewOp::create(b, loc, viewType, read.getBase(), offsets, sizes, strides);
  }

  Value choose(Value isUsable, Value view) {
    // Both sides need one type: everything dynamic but a unit innermost stride.
    auto viewType = cast<MemRefType>(view.getType());
    SmallVector<int64_t> anyStrides(tileShape.size(), ShapedType::kDynamic);
    if (viewType.isLastDimUnitStride())
      anyStrides.back() = 1;
    auto common =
        MemRefType::get(tileShape, type.getElementType(),
                        StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, anyStrides));
    auto choice = scf::IfOp::create(b, loc, TypeRange{common}, isUsable,
                                    /*withElseRegion=*/true);
    // A subview outside of its memref would be wrong even if not used.
    view.getDefiningOp()->moveBefore(choice.thenBlock(), choice.thenBlock()->begin());
    b.setInsertionPointToEnd(choice.thenBlock());
    scf::YieldOp::create(b, loc, castTo(view, common));
    b.setInsertionPointToStart(choice.elseBlock());
    Buffer copy = allocate(read.getResult(), layout);
    fill(copy, scf::YieldOp::create(b, loc, castTo(copy.memref, common)));
    return choice.getResult(0);
  }

  Value castTo(Value memref, MemRefType wanted) {
    return memref.getType() == wanted ? memref
                                      : memref::CastOp::create(b, loc, wanted, memref).getResult();
  }

  /// Copies as it lies in memory, also what is kept in another order.
  void fill(const Buffer &copy, Operation *position) {
    Buffer kept = context.buffers.lookup(read.getResult());
    context.buffers.erase(read.getResult());
    Group group;
    group.position = position;
    group.domain = context.classes.domain(read.getResult());
    group.sinks.push_back({Sink::Store, read.getResult(), nullptr, copy});
    group.lane = copy.layout.back();
    emitLoops(context, group);
    if (kept)
      context.buffers[read.getResult()] = kept;
  }

  Context &context;
  vector::TransferReadOp read;
  OpBuilder b;
  Location loc;
  MemRefType type;
  AllocateFn allocate;
  SmallVector<int64_t> shape, tileShape;
  SmallVector<int> layout; // the class of each dimension in memory
};
} // namespace

Buffer attn::tiles::emitView(Context &context, vector::TransferReadOp read, Operation *position,
                             AllocateFn allocate) {
  return ViewEmitter(context, read, position, allocate).run();
}
