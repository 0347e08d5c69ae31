// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements that belong to no nest, and copies, become tile programs: the host cannot touch
// the memory of the device.

#include "ScatterSums.h"
#include "attn/Transforms/Programs/Loops.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNTILESTATEMENTS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numTiled("attn-tile-statements", "tiled", "Statements that became programs");

namespace {

/// Columns of a tile: a thread holds half as many elements.
constexpr int64_t kMostColumns = 128;
/// What columns are a multiple of.
constexpr int64_t kUnit = 8;
/// Those of a part of a row.
constexpr int64_t kPartColumns = 64;

/// A memref of rank 0 as one of rank 1 with one element.
Value withDimension(OpBuilder &b, Location loc, Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  if (type.getRank() > 0)
    return memref;
  return memref::ReinterpretCastOp::create(b, loc, MemRefType::get(1, type.getElementType()),
                                           memref, /*offset=*/0, ArrayRef<int64_t>{1},
                                           ArrayRef<int64_t>{1});
}

/// A loop of one iteration that stays one.
scf::ForallOp createOneIteration(ImplicitLocOpBuilder &b) {
  return scf::ForallOp::create(b, SmallVector<OpFoldResult>{b.getIndexAttr(1)}, ValueRange(),
                               programs::getBlockMapping(b.getContext(), 1));
}

/// One statement on memrefs: parallel over its parallel loops, of which the last
/// is divided into vectors, or the last two into tiles (with rows of a head's size,
/// or parts of longer ones); loops in order over what it reduces.
class StatementTiler {
public:
  StatementTiler(linalg::GenericOp op, int64_t lanes, int64_t rows)
      : op(op), b(op.getLoc(), op), lanes(lanes), rows(rows) {}

  LogicalResult run() {
    if (op.getNumDpsInits() != 1)
      return op.emitOpError("expected one result");
    for (AffineMap map : op.getIndexingMapsArray())
      if (!map.isProjectedPermutation(/*allowZeroInResults=*/true))
        return op.emitOpError("expected operands that are indexed by loops, got ")
               << AffineMapAttr::get(map);
    for (OpOperand &operand : op->getOpOperands())
      if (isa<MemRefType>(operand.get().getType()))
        operand.set(withDimension(b, op.getLoc(), operand.get()));
    for (Range range : cast<linalg::LinalgOp>(op.getOperation()).createLoopRanges(b, op.getLoc()))
      sizes.push_back(range.size);
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
      if (op.getIteratorTypesArray()[loop] == utils::IteratorType::parallel)
        lane = loop;
    findRow();
    createForall();
    FailureOr<Value> result = emitReductions();
    if (failed(result))
      return failure();
    write(*result);
    op.erase();
    return success();
  }

private:
  VectorType vectorType(Type element) {
    return row ? VectorType::get({rows, columns}, element) : VectorType::get(lanes, element);
  }

  /// The loop over rows of tiles, for statements without reduction or index.
  void findRow() {
    if (op.getNumReductionLoops() > 0 || op.getNumLoops() < 2 || *lane + 1 != op.getNumLoops() ||
        !op.getBlock()->getOps<linalg::IndexOp>().empty())
      return;
    std::optional<int64_t> size = getConstantIntValue(sizes[*lane]);
    isWholeRow = size && *size >= kUnit && *size <= kMostColumns;
    if (!isWholeRow && (op.getNumLoops() < 3 || (size && *size < kPartColumns)))
      return;
    columns = isWholeRow ? llvm::alignTo(*size, kUnit) : kPartColumns;
    endsInside = !isWholeRow || columns != *size;
    // Rows of a tile before columns.
    for (AffineMap map : op.getIndexingMapsArray()) {
      auto at = [&](unsigned loop) { return map.getResultPosition(b.getAffineDimExpr(loop)); };
      if (at(*lane) && at(*lane - 1) && *at(*lane) < *at(*lane - 1))
        return;
    }
    row = *lane - 1;
  }

  void createForall() {
    SmallVector<OpFoldResult> bounds;
    AffineExpr i = b.getAffineDimExpr(0);
    auto isWhole = [&](unsigned loop) { return row && loop == lane && isWholeRow; };
    auto isDivided = [&](unsigned loop) { return (loop == lane || loop == row) && !isWhole(loop); };
    auto sizeOf = [&](unsigned loop) { return !row ? lanes : loop == row ? rows : columns; };
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
      if (op.getIteratorTypesArray()[loop] == utils::IteratorType::parallel && !isWhole(loop))
        bounds.push_back(isDivided(loop)
                             ? affine::makeComposedFoldedAffineApply(
                                   b, b.getLoc(), i.ceilDiv(sizeOf(loop)), {sizes[loop]})
                             : sizes[loop]);
    auto forall = bounds.empty()
                      ? createOneIteration(b)
                      : scf::ForallOp::create(b, bounds, ValueRange(), /*mapping=*/std::nullopt);
    b.setInsertionPointToStart(forall.getBody());
    indices.resize(op.getNumLoops());
    unsigned next = 0;
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
      if (op.getIteratorTypesArray()[loop] != utils::IteratorType::parallel)
        continue;
      if (isWhole(loop)) {
        indices[loop] = arith::ConstantIndexOp::create(b, 0);
        continue;
      }
      Value iv = forall.getInductionVar(next++);
      indices[loop] = iv;
      if (isDivided(loop))
        indices[loop] =
            affine::makeComposedAffineApply(b, b.getLoc(), i * sizeOf(loop), {OpFoldResult(iv)});
    }
  }

  /// Positions in a memref, and which of its dimensions each of the vector's runs
  /// over: a constant where it has none.
  SmallVector<Value> positions(OpOperand &operand, SmallVector<AffineExpr> &dims) {
    SmallVector<Value> at;
    dims.assign(row ? 2 : 1, b.getAffineConstantExpr(0));
    for (AffineExpr expr : op.getMatchingIndexingMap(&operand).getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (dim && lane == dim.getPosition())
        dims.back() = b.getAffineDimExpr(at.size());
      if (dim && row == dim.getPosition())
        dims.front() = b.getAffineDimExpr(at.size());
      at.push_back(dim ? indices[dim.getPosition()] : arith::ConstantIndexOp::create(b, 0));
    }
    if (at.empty())
      at.push_back(arith::ConstantIndexOp::create(b, 0));
    return at;
  }

  Value read(OpOperand &operand) {
    Value source = operand.get();
    auto type = dyn_cast<MemRefType>(source.getType());
    if (!type)
      return vector::BroadcastOp::create(b, vectorType(source.getType()), source);
    SmallVector<AffineExpr> dims;
    SmallVector<Value> at = positions(operand, dims);
    Value padding = arith::ConstantOp::create(b, b.getZeroAttr(type.getElementType()));
    return vector::TransferReadOp::create(b, vectorType(type.getElementType()), source, at, padding,
                                          AffineMap::get(type.getRank(), 0, dims, b.getContext()),
                                          areInBounds(dims));
  }

  void write(Value result) {
    OpOperand &out = *op.getDpsInitOperand(0);
    SmallVector<AffineExpr> dims;
    SmallVector<Value> at = positions(out, dims);
    auto type = cast<MemRefType>(out.get().getType());
    // Without a parallel loop there is one element: the first lane's.
    if (isa<AffineConstantExpr>(dims.back()))
      dims.back() = b.getAffineDimExpr(0);
    vector::TransferWriteOp::create(b, result, out.get(), at,
                                    AffineMap::get(type.getRank(), 0, dims, b.getContext()),
                                    areInBounds(dims));
  }

  /// A head's rows may fill a tile's; other dimensions may end in a vector.
  SmallVector<bool> areInBounds(ArrayRef<AffineExpr> dims) {
    SmallVector<bool> inBounds;
    for (auto [d, dim] : llvm::enumerate(dims))
      inBounds.push_back(isa<AffineConstantExpr>(dim) || (row && d == 1 && !endsInside));
    return inBounds;
  }

  FailureOr<Value> emitReductions() {
    OpOperand &out = *op.getDpsInitOperand(0);
    SmallVector<unsigned> reduced;
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
      if (op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction)
        reduced.push_back(loop);
    Value start;
    if (op.payloadUsesValueFromOperand(&out))
      start = read(out);
    return emitLoops(reduced, start);
  }

  FailureOr<Value> emitLoops(ArrayRef<unsigned> loops, Value state) {
    if (loops.empty())
      return emitBody(state);
    Value zero = arith::ConstantIndexOp::create(b, 0), one = arith::ConstantIndexOp::create(b, 1);
    Value size = getValueOrCreateConstantIndexOp(b, b.getLoc(), sizes[loops.front()]);
    auto loop = scf::ForOp::create(b, zero, size, one, state);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    indices[loops.front()] = loop.getInductionVar();
    FailureOr<Value> next = emitLoops(loops.drop_front(), loop.getRegionIterArg(0));
    if (failed(next))
      return failure();
    scf::YieldOp::create(b, *next);
    return Value(loop.getResult(0));
  }

  FailureOr<Value> emitBody(Value state) {
    IRMapping mapping;
    Block *body = op.getBlock();
    for (OpOperand *input : op.getDpsInputOperands())
      if (op.payloadUsesValueFromOperand(input))
        mapping.map(body->getArgument(input->getOperandNumber()), read(*input));
    if (state)
      mapping.map(body->getArguments().back(), state);
    auto vectorOf = [&](Value value) -> Value {
      if (Value known = mapping.lookupOrNull(value))
        return known;
      return vector::BroadcastOp::create(b, vectorType(value.getType()), value);
    };
    for (Operation &inner : body->without_terminator()) {
      FailureOr<Value> vector = emit(inner, vectorOf);
      if (failed(vector))
        return failure();
      mapping.map(inner.getResult(0), *vector);
    }
    return vectorOf(body->getTerminator()->getOperand(0));
  }

  FailureOr<Value> emit(Operation &inner, function_ref<Value(Value)> vectorOf) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      VectorType type = vectorType(b.getIndexType());
      Value base = vector::BroadcastOp::create(b, type, indices[index.getDim()]);
      if (lane != index.getDim())
        return base;
      Value step = vector::StepOp::create(b, type);
      return Value(arith::AddIOp::create(b, step, base));
    }
    if (auto constant = dyn_cast<arith::ConstantOp>(inner))
      return Value(
          arith::ConstantOp::create(b, DenseElementsAttr::get(vectorType(constant.getType()),
                                                              Attribute(constant.getValue()))));
    if (auto load = dyn_cast<memref::LoadOp>(inner))
      return emitLoad(load, vectorOf);
    if (!OpTrait::hasElementwiseMappableTraits(&inner) || inner.getNumResults() != 1)
      return inner.emitOpError("has no tile form, expected an elementwise op");
    OperationState state(inner.getLoc(), inner.getName());
    for (Value operand : inner.getOperands())
      state.addOperands(vectorOf(operand));
    state.addTypes(vectorType(inner.getResult(0).getType()));
    state.addAttributes(inner.getAttrs());
    return b.create(state)->getResult(0);
  }

  /// What a body reads at loops and constants; of memory with one dimension, at anything.
  FailureOr<Value> emitLoad(memref::LoadOp load, function_ref<Value(Value)> vectorOf) {
    MemRefType type = load.getMemRefType();
    VectorType result = vectorType(type.getElementType());
    Value source = withDimension(b, load.getLoc(), load.getMemRef());
    SmallVector<Value> at;
    SmallVector<AffineExpr> dims(row ? 2 : 1, b.getAffineConstantExpr(0));
    bool isPlain = true;
    for (Value index : load.getIndices()) {
      auto loop = index.getDefiningOp<linalg::IndexOp>();
      isPlain &=
          loop || index.getParentBlock() != op.getBlock() || matchPattern(index, m_Constant());
      if (loop && lane == loop.getDim())
        dims.back() = b.getAffineDimExpr(at.size());
      if (auto constant = getConstantIntValue(index))
        at.push_back(arith::ConstantIndexOp::create(b, *constant));
      else
        at.push_back(loop ? indices[loop.getDim()] : index);
    }
    if (!isPlain && type.getRank() > 1)
      return load.emitOpError("has no tile form, expected indices that are loops, or one index");
    Value padding = arith::ConstantOp::create(b, b.getZeroAttr(type.getElementType()));
    Value zero = arith::ConstantIndexOp::create(b, 0);
    if (at.empty())
      at.push_back(zero);
    if (isPlain)
      return Value(vector::TransferReadOp::create(
          b, result, source, at, padding, AffineMap::get(at.size(), 0, dims, b.getContext()),
          areInBounds(dims)));
    // Lanes beyond the end may have any index.
    Value index = vectorOf(load.getIndices().front());
    Value size =
        vector::BroadcastOp::create(b, index.getType(), memref::DimOp::create(b, source, 0));
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, index, size);
    Value rest = vector::BroadcastOp::create(b, result, padding);
    return Value(vector::GatherOp::create(b, result, source, zero, index, inside, rest));
  }

  linalg::GenericOp op;
  ImplicitLocOpBuilder b;
  int64_t lanes, rows; // elements of a vector, rows of a tile
  SmallVector<OpFoldResult> sizes;
  std::optional<unsigned> lane, row;
  int64_t columns = 0;                        // of a tile
  bool isWholeRow = false, endsInside = true; // a tile has whole rows; they may end in it
  SmallVector<Value> indices;                 // of the loops; the vector's first
};

/// A scalar that goes from memory to memory.
void tileStore(memref::StoreOp store, int64_t lanes) {
  auto load = store.getValueToStore().getDefiningOp<memref::LoadOp>();
  if (!load)
    return;
  ImplicitLocOpBuilder b(store.getLoc(), store);
  Value from = withDimension(b, store.getLoc(), load.getMemRef());
  Value to = withDimension(b, store.getLoc(), store.getMemRef());
  auto forall = createOneIteration(b);
  b.setInsertionPointToStart(forall.getBody());
  Value zero = arith::ConstantIndexOp::create(b, 0);
  auto indices = [&](OperandRange range) {
    SmallVector<Value> values(range);
    if (values.empty())
      values.push_back(zero);
    return values;
  };
  Type element = store.getMemRefType().getElementType();
  auto type = VectorType::get(lanes, element);
  Value padding = arith::ConstantOp::create(b, b.getZeroAttr(element));
  auto rank = [](Value memref) { return cast<MemRefType>(memref.getType()).getRank(); };
  Value value = vector::TransferReadOp::create(
      b, type, from, indices(load.getIndices()), padding,
      AffineMap::get(rank(from), 0, b.getAffineConstantExpr(0)), ArrayRef<bool>{true});
  // A view of one element: only the first lane writes.
  SmallVector<OpFoldResult> offsets, sizes(rank(to), b.getIndexAttr(1)),
      strides(rank(to), b.getIndexAttr(1));
  for (Value index : indices(store.getIndices()))
    offsets.push_back(index);
  Value target = memref::SubViewOp::create(b, to, offsets, sizes, strides);
  vector::TransferWriteOp::create(b, value, target, SmallVector<Value>(rank(to), zero),
                                  AffineMap::get(rank(to), 0, b.getAffineDimExpr(rank(to) - 1)),
                                  ArrayRef<bool>{false});
  store.erase();
  if (load->use_empty())
    load.erase();
}

/// A copy as a statement, where that is worth a loop.
void stateCopy(memref::CopyOp copy) {
  auto type = dyn_cast<MemRefType>(copy.getSource().getType());
  if (!type || type.getRank() == 0 || !isa<MemRefType>(copy.getTarget().getType()) ||
      !type.getElementType().isIntOrIndexOrFloat())
    return;
  OpBuilder b(copy);
  linalg::makeMemRefCopyOp(b, copy.getLoc(), copy.getSource(), copy.getTarget());
  copy.erase();
}

struct TileStatementsPass : attn::impl::AttnTileStatementsBase<TileStatementsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (lanes < 1 || rows < 1) {
      getOperation().emitError("expected lanes and rows to be at least 1");
      return signalPassFailure();
    }
    for (auto copy : llvm::make_early_inc_range(getOperation().getOps<memref::CopyOp>()))
      stateCopy(copy);
    IRRewriter rewriter(&getContext());
    for (auto sum : llvm::make_early_inc_range(getOperation().getOps<ScatterSumOp>()))
      programs::stateScatterSum(rewriter, sum);
    SmallVector<linalg::LinalgOp> statements(getOperation().getOps<linalg::LinalgOp>());
    for (linalg::LinalgOp statement : statements) {
      if (!statement.hasPureBufferSemantics())
        continue;
      rewriter.setInsertionPoint(statement);
      auto generic = dyn_cast<linalg::GenericOp>(statement.getOperation());
      if (!generic) {
        FailureOr<linalg::GenericOp> made = linalg::generalizeNamedOp(rewriter, statement);
        if (failed(made)) {
          statement.emitOpError("has no tile form");
          return signalPassFailure();
        }
        generic = *made;
      }
      Location at = generic.getLoc();
      if (failed(StatementTiler(generic, lanes, rows).run()))
        return signalPassFailure();
      numTiled.at(at);
    }
    for (auto store : llvm::make_early_inc_range(getOperation().getOps<memref::StoreOp>()))
      tileStore(store, lanes);
  }
};

} // namespace
