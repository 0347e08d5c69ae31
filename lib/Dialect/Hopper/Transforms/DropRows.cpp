// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tensor is not written a second time where that differs in some rows of zeros only: such rows
// are marked, and left out where its tiles are copied.

#include "Barriers.h"
#include "Roles.h"
#include "RowFlags.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Arithmetic.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Memory.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERDROPROWS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using hopper::RowFlags;
using programs::Arithmetic;

static attn::Done numDropped("hopper-drop-rows", "dropped",
                             "Copies of rows of which some tiles are left out");

namespace {

/// Tiles whose columns are all alike, as the vector of one of them.
class Rows {
public:
  /// Whether the columns of a tile are all alike.
  static bool areAlike(Value tile) {
    if (!isa<VectorType>(tile.getType()) || getSource(tile))
      return true;
    Operation *op = tile.getDefiningOp();
    SplatElementsAttr splat;
    if (!op || matchPattern(op, m_Constant(&splat)))
      return op;
    if (auto read = dyn_cast<vector::TransferReadOp>(op))
      return isColumn(read) && !isWrittenBeside(read);
    return OpTrait::hasElementwiseMappableTraits(op) && op->getNumResults() == 1 &&
           llvm::all_of(op->getOperands(), areAlike);
  }

  explicit Rows(OpBuilder &b) : b(b) {}

  Value getColumn(Value tile) {
    auto type = dyn_cast<VectorType>(tile.getType());
    if (!type)
      return tile;
    if (Value source = getSource(tile))
      return isa<VectorType>(source.getType())
                 ? source
                 : vector::BroadcastOp::create(b, tile.getLoc(), getColumnType(type), source);
    Operation *op = tile.getDefiningOp();
    if (auto read = dyn_cast<vector::TransferReadOp>(op)) {
      AffineMap map = read.getPermutationMap().getMajorSubMap(1);
      return vector::TransferReadOp::create(b, read.getLoc(), getColumnType(type), read.getBase(),
                                            read.getIndices(), read.getPadding(), map,
                                            ArrayRef<bool>{read.getInBoundsValues().front()});
    }
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, getColumn(operand));
    Operation *copy = b.clone(*op, mapping);
    if (auto constant = dyn_cast<arith::ConstantOp>(copy))
      constant.setValueAttr(
          cast<SplatElementsAttr>(constant.getValue()).resizeSplat(getColumnType(type)));
    copy->getResult(0).setType(getColumnType(type));
    return copy->getResult(0);
  }

private:
  static VectorType getColumnType(VectorType tile) {
    return VectorType::get(tile.getDimSize(0), tile.getElementType());
  }

  static bool isColumn(vector::TransferReadOp read) {
    AffineMap map = read.getPermutationMap();
    return !read.getMask() && map.getNumResults() == 2 && isa<AffineDimExpr>(map.getResult(0)) &&
           isa<AffineConstantExpr>(map.getResult(1));
  }

  /// Whether what is read might be something else when it is read again.
  static bool isWrittenBeside(vector::TransferReadOp read) {
    auto memory = dyn_cast<MemrefValue>(read.getBase());
    auto launch = read->getParentOfType<gpu::LaunchOp>();
    return !memory || !launch || programs::isWrittenIn(launch, memory);
  }

  /// The number, or the vector of a column, that a tile repeats; null if it repeats none.
  static Value getSource(Value tile) {
    if (auto repeated = tile.getDefiningOp<vector::BroadcastOp>())
      return isa<VectorType>(repeated.getSourceType()) ? Value() : repeated.getSource();
    auto transposed = tile.getDefiningOp<vector::TransposeOp>();
    auto repeated = transposed ? transposed.getVector().getDefiningOp<vector::BroadcastOp>()
                               : vector::BroadcastOp();
    auto source = repeated ? dyn_cast<VectorType>(repeated.getSourceType()) : VectorType();
    bool isColumn = source && source.getRank() == 1 &&
                    repeated.getResultVectorType().getRank() == 2 &&
                    transposed.getPermutation() == ArrayRef<int64_t>{1, 0};
    return isColumn ? repeated.getSource() : Value();
  }

  OpBuilder &b;
};

/// Whether a role is the one that computes.
bool computes(Region &role) {
  auto roles = cast<hopper::RolesOp>(role.getParentOp());
  std::optional<unsigned> number = hopper::findComputeRole(roles);
  return number && &roles.getBodies()[*number] == &role;
}

/// A tensor that is written again, but for some rows, and the tiles of it that are sent.
class Copy {
public:
  /// `barriers`: those at which a role's warpgroups agree with themselves on marks.
  Copy(vector::TransferWriteOp write, llvm::DenseMap<Region *, Value> &barriers)
      : write(write), barriers(barriers), b(write) {}

  void run() {
    if (!findRows() || !findSends())
      return;
    numDropped.at(write) << remark::metric("Sends", sends.size());
    createMarks();
    mark();
    for (hopper::SendOp send : sends)
      replace(send);
    write.erase();
  }

private:
  static bool isPlain(VectorTransferOpInterface transfer) {
    return !transfer.getMask() && transfer.getPermutationMap().isMinorIdentity();
  }

  /// The launch that an op is in, of those in the function's body.
  Operation *findLaunch(Operation *op) {
    Operation *ancestor = body->findAncestorOpInBlock(*op);
    return isa_and_nonnull<gpu::LaunchOp>(ancestor) ? ancestor : nullptr;
  }

  /// Whether rows of what is read elsewhere are written, or zeros.
  bool findRows() {
    auto function = write->getParentOfType<func::FuncOp>();
    body = &function.front();
    VectorType type = write.getVectorType();
    auto choice = write.getVector().getDefiningOp<arith::SelectOp>();
    Region *role = hopper::getRole(write);
    if (!choice || type.getRank() != 2 || type.getDimSize(0) != RowFlags::kStep ||
        !isa<FloatType>(type.getElementType()) || type.getElementTypeBitWidth() != 16 ||
        !isPlain(write) || !role || !computes(*role) ||
        !isa<VectorType>(choice.getCondition().getType()))
      return false;
    condition = choice.getCondition();
    dropsWhereTrue = matchPattern(choice.getTrueValue(), m_AnyZeroFloat());
    Value kept = dropsWhereTrue ? choice.getFalseValue() : choice.getTrueValue();
    Value dropped = dropsWhereTrue ? choice.getTrueValue() : choice.getFalseValue();
    auto read = kept.getDefiningOp<vector::TransferReadOp>();
    if (!read || !matchPattern(dropped, m_AnyZeroFloat()) || !isPlain(read) ||
        !matchPattern(read.getPadding(), m_AnyZeroFloat()) || !Rows::areAlike(condition))
      return false;
    indices.assign(read.getIndices().begin(), read.getIndices().end());
    source = dyn_cast<MemrefValue>(read.getBase());
    target = dyn_cast<MemrefValue>(write.getBase());
    if (!source || !isWrittenAt(indices) || !target || !hasWholeRows(type))
      return false;
    launch = findLaunch(write);
    return launch && source.getParentBlock() == body && target.getParentBlock() == body &&
           haveOneShape() && !programs::isWrittenIn(function, source);
  }

  /// Whether what is written starts at these indices, looking through a view in the launch.
  bool isWrittenAt(ValueRange indices) {
    SmallVector<OpFoldResult> starts(write.getIndices().size(), b.getIndexAttr(0));
    auto view = write.getBase().getDefiningOp<memref::SubViewOp>();
    if (view && view->getBlock() != body) {
      if (!view.hasUnitStride() || view.getSourceType().getRank() != view.getType().getRank())
        return false;
      starts = view.getMixedOffsets();
      target = dyn_cast<MemrefValue>(view.getSource());
    }
    return indices.size() == starts.size() &&
           llvm::all_of(llvm::zip_equal(starts, write.getIndices(), indices), [&](auto places) {
             auto [start, index, other] = places;
             return areEqual(start, index, other);
           });
  }

  /// Whether `start` and `index` add up to `other`.
  bool areEqual(OpFoldResult start, Value index, Value other) {
    AffineExpr first = b.getAffineSymbolExpr(0), second = b.getAffineSymbolExpr(1);
    SmallVector<Value> operands = {index, other};
    AffineExpr sum = first - second;
    if (std::optional<int64_t> constant = getConstantIntValue(start)) {
      sum = sum + *constant;
    } else {
      operands.push_back(cast<Value>(start));
      sum = sum + b.getAffineSymbolExpr(2);
    }
    AffineMap map = AffineMap::get(0, unsigned(operands.size()), sum);
    affine::fullyComposeAffineMapAndOperands(&map, &operands);
    affine::canonicalizeMapAndOperands(&map, &operands);
    map = simplifyAffineMap(map);
    return map.isSingleConstant() && map.getSingleConstantResult() == 0;
  }

  /// Whether a write is of all columns of the rows that a flag stands for.
  bool hasWholeRows(VectorType tile) {
    return isConstantIntValue(indices.back(), 0) &&
           tile.getDimSize(1) >= target.getType().getShape().back() &&
           !target.getType().isDynamicDim(target.getType().getRank() - 1) &&
           programs::isMultiple(indices[indices.size() - 2], RowFlags::kStep);
  }

  /// Whether TMA reaches the source as it does the copy. (They have one size: a statement reads
  /// the one and writes the other at the same indices.)
  bool haveOneShape() {
    SmallVector<int64_t> strides;
    int64_t offset;
    auto type = cast<MemRefType>(source.getType());
    if (failed(type.getStridesAndOffset(strides, offset)) || strides.back() != 1)
      return false;
    return llvm::all_of(
        llvm::zip_equal(source.getType().getShape(), target.getType().getShape()), [](auto sizes) {
          auto [size, other] = sizes;
          return size == other || ShapedType::isDynamic(size) || ShapedType::isDynamic(other);
        });
  }

  /// Whether what is written is memory that launches behind this one send, and nothing else
  /// touches.
  bool findSends() {
    if (!target.getDefiningOp<memref::AllocOp>())
      return false;
    for (Operation *access : collectAccesses(target)) {
      if (access == write || isa<memref::DeallocOp>(access))
        continue;
      auto send = dyn_cast<hopper::SendOp>(access);
      Operation *place = findLaunch(access);
      if (!send || send.getSource() != target || !canDrop(send) || !place ||
          !launch->isBeforeInBlock(place))
        return false;
      sends.push_back(send);
    }
    return !sends.empty();
  }

  static bool canDrop(hopper::SendOp send) {
    constexpr int64_t kRowBytes = 128;
    auto channel = send.getChannel().getDefiningOp<hopper::ChannelOp>();
    return !send.getMarks() && channel && !channel.getMulticast() &&
           send.getChannel().getType().getTile().getSwizzle() == kRowBytes;
  }

  void createMarks() {
    b.setInsertionPoint(launch);
    Arithmetic a{b, write.getLoc(), /*isNarrow=*/false};
    Type type = write.getVectorType().getElementType();
    count = memref::DimOp::create(b, a.loc, target, target.getType().getRank() - 2);
    rows = RowFlags::create(a, target, type, /*step=*/1).getMemory();
    some = RowFlags::create(a, target, type);
  }

  Value createNumber(const Arithmetic &a, Value isOne) {
    auto type = cast<MemRefType>(rows.getType()).getElementType();
    auto number = [&](double value) -> Value {
      return arith::ConstantOp::create(b, a.loc, b.getFloatAttr(type, value));
    };
    Value one = number(1), zero = number(0);
    if (auto vector = dyn_cast<VectorType>(isOne.getType())) {
      auto all = VectorType::get(vector.getShape(), type);
      one = vector::BroadcastOp::create(b, a.loc, all, one);
      zero = vector::BroadcastOp::create(b, a.loc, all, zero);
    }
    return a.select(isOne, one, zero);
  }

  /// Rows that are dropped are marked where one is.
  void mark() {
    b.setInsertionPoint(write);
    Arithmetic a{b, write.getLoc(), /*isNarrow=*/false};
    if (!dropsWhereTrue) {
      Value all = arith::ConstantOp::create(
          b, a.loc, DenseElementsAttr::get(cast<VectorType>(condition.getType()), true));
      condition = a.differ(condition, all);
    }
    Region *role = hopper::getRole(write);
    Value &first = barriers[role];
    if (!first) {
      auto roles = cast<hopper::RolesOp>(role->getParentOp());
      first = hopper::createNamedBarriers(roles->getBlock(), a.loc,
                                          roles.getWarpgroups()[role->getRegionNumber()]);
    }
    Value any = hopper::BarrierReduceOp::create(b, a.loc, a.add(role->getArgument(0), first),
                                                condition, /*warpgroups=*/1);
    auto branch = scf::IfOp::create(b, a.loc, any);
    ValueRange place = ValueRange(indices).drop_back();
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      Value marks = createNumber(a, Rows(b).getColumn(condition));
      vector::TransferWriteOp::create(b, a.loc, marks, rows, place, ArrayRef<bool>{false});
    }
    auto inside = scf::IfOp::create(b, a.loc, a.isLess(place.back(), count));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(inside.thenBlock());
    memref::StoreOp::create(b, a.loc, createNumber(a, any), some->getMemory(),
                            some->createIndices(a, place.drop_back(), place.back()));
  }

  /// Looks early whether a tile has rows to drop: where its place is known.
  void replace(hopper::SendOp send) {
    Operation *known = nullptr;
    for (Value index : send.getIndices())
      if (Operation *op = index.getDefiningOp(); op && op->getBlock() == send->getBlock())
        known = known && op->isBeforeInBlock(known) ? known : op;
    if (known)
      b.setInsertionPointAfter(known);
    else
      b.setInsertionPointToStart(send->getBlock());
    Arithmetic a{b, send.getLoc(), /*isNarrow=*/true};
    ValueRange indices = send.getIndices();
    constexpr int64_t kStep = RowFlags::kStep;
    int64_t tile = send.getChannel().getType().getTile().getRows();
    bool isWhole = tile % kStep == 0 && programs::isMultiple(indices[indices.size() - 2], kStep);
    int64_t flags = isWhole ? tile / kStep : (tile - 1) / kStep + 2;
    Value row = a.narrow(indices[indices.size() - 2]);
    Value end = a.subtract(a.narrow(count), a.number(1)), any;
    for (int64_t flag = 0; flag < flags; ++flag) {
      Value at = a.min(a.add(row, a.number(flag * kStep)), end);
      Value mark = memref::LoadOp::create(b, a.loc, some->getMemory(),
                                          some->createIndices(a, indices.drop_back(2), at));
      Value bits = b.createOrFold<arith::BitcastOp>(a.loc, b.getI16Type(), mark);
      Value zero = arith::ConstantIntOp::create(b, a.loc, 0, 16);
      Value isMarked = arith::CmpIOp::create(b, a.loc, arith::CmpIPredicate::ne, bits, zero);
      any = any ? arith::OrIOp::create(b, a.loc, any, isMarked) : isMarked;
    }
    send.getSourceMutable().assign(source);
    send.getMarksMutable().assign(rows);
    send.getGroupsMutable().assign(some->getMemory());
    send.getSomeMutable().assign(any);
  }

  vector::TransferWriteOp write;
  llvm::DenseMap<Region *, Value> &barriers;
  OpBuilder b;
  Block *body = nullptr; // of the function
  MemrefValue source, target;
  SmallVector<Value> indices; // that tiles start at, in both
  Value condition;
  bool dropsWhereTrue = false;
  Operation *launch = nullptr; // that writes
  SmallVector<hopper::SendOp> sends;
  Value rows, count;            // a mark for each row, and how many there are
  std::optional<RowFlags> some; // a mark for each 64 rows
};

struct DropRowsPass : attn::impl::HopperDropRowsBase<DropRowsPass> {
  void runOnOperation() override {
    SmallVector<vector::TransferWriteOp> writes;
    getOperation().walk([&](vector::TransferWriteOp write) { writes.push_back(write); });
    llvm::DenseMap<Region *, Value> barriers;
    for (vector::TransferWriteOp write : writes)
      Copy(write, barriers).run();
  }
};

} // namespace
