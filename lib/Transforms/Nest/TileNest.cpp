// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-tile-nest: folds and their surroundings to tile programs (L1 to L2).
//
// The three loop orders are the legal orders of one nest: rows outside
// (FlashAttention-2, Dao 2023), streamed tiles outside (FlashAttention, Dao et
// al. 2022, algorithm 1), and parts of the streamed dimension in parallel with
// a merge (Flash-Decoding).

#include "CostModel.h"
#include "TileEmitter.h"
#include "attn/Transforms/Nest/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

namespace attn {
#define GEN_PASS_DEF_ATTNTILENEST
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using Role = TileDim::Role;

namespace {

struct Options {
  int64_t rowTile, streamTile, parts, threads, assumedSize;
  /// Nothing: the cheapest legal one.
  std::optional<Order> order;
  bool explain;
};

/// A fold, what prepares its start values and what finishes its results.
class Nest {
public:
  Nest(FoldOp first, const Options &options)
      : block(*first->getBlock()), options(options) {
    collect(first);
  }

  LogicalResult tile();

private:
  void collect(FoldOp first);
  bool joins(Operation *op);
  LogicalResult assignRoles();
  OpFoldResult sizeOfClass(unsigned dim);
  void findOutputs();
  bool isPrologue(GenericOp op) const;

  /// The tensors that worker loops fill, as region arguments of the forall.
  struct Output {
    Value result;                  // the tensor of the nest
    SmallVector<unsigned> dims;    // its dimensions' classes
    Value slice;                   // the worker's part, while emitting
    SmallVector<OpFoldResult> offsets, sizes;
  };

  NestSize measure();
  FailureOr<Order> pickOrder();
  LogicalResult tileRows();
  LogicalResult tileStream();
  LogicalResult tileSplit();
  scf::ForallOp createForall(ArrayRef<Value> outs, ArrayRef<Output> outputs,
                             bool withRows, int64_t parts,
                             function_ref<LogicalResult(SmallVector<Output> &,
                                                        Value part)>
                                 body);
  LogicalResult emitPrologue();
  LogicalResult emitEpilogue(SmallVectorImpl<Output> &outputs);
  FailureOr<SmallVector<Value>> emitFold(FoldOp fold,
                                         SmallVectorImpl<Output> &outputs,
                                         Value from, Value to);
  LogicalResult emitBody(FoldOp fold);
  SmallVector<Tile> startTiles(FoldOp fold);
  Tile stateTile(Value state, Value vector);
  LogicalResult emitMerge(FoldOp fold, ArrayRef<Value> a, ArrayRef<Value> b,
                          SmallVectorImpl<Value> &merged);
  SmallVector<Value> outputTensors();
  void replaceResults(ValueRange results);
  void slicePart(Output &output, Value tensor);
  scf::ForOp createLoop(Value from, Value to, int64_t step, ValueRange inits,
                        function_ref<LogicalResult(Value, ValueRange,
                                                   SmallVectorImpl<Value> &)>
                            body,
                        LogicalResult &status);
  Value sizeValue(unsigned dim) {
    return getValueOrCreateConstantIndexOp(b, b.getLoc(),
                                           emitter->dims[dim].size);
  }
  Value index(int64_t value) {
    return arith::ConstantIndexOp::create(b, value);
  }

  Block &block;
  const Options &options;
  llvm::SetVector<Operation *> ops; // the nest, in block order after collect
  SmallVector<FoldOp> folds;
  SmallVector<Output> outputs;
  std::unique_ptr<DimClasses> classes;
  ImplicitLocOpBuilder b{UnknownLoc::get(block.getParentOp()->getContext()),
                         block.getParentOp()->getContext()};
  std::unique_ptr<TileEmitter> emitter;
  std::optional<unsigned> rowDim;
  unsigned streamDim = 0;
};

/// Whether a statement or fold after the first fold belongs to its nest: it
/// finishes results of the nest, row by row.
bool Nest::joins(Operation *op) {
  auto inNest = [&](Value value) {
    Operation *source = value.getDefiningOp();
    return source && ops.contains(source);
  };
  if (auto generic = dyn_cast<GenericOp>(op))
    return generic.getNumReductionLoops() == 0 &&
           llvm::any_of(generic.getDpsInputs(), inNest);
  auto fold = dyn_cast<FoldOp>(op);
  if (!fold || llvm::any_of(fold.getInputs(), inNest))
    return false;
  bool shares = llvm::any_of(fold.getInputs(), [&](Value input) {
    return llvm::is_contained(folds.front().getInputs(), input);
  });
  bool reads = false;
  fold.getBody().walk([&](Operation *inner) {
    reads |= llvm::any_of(inner->getOperands(), inNest);
  });
  return shares && reads;
}

/// A statement without reduction that only prepares values for the nest.
bool Nest::isPrologue(GenericOp op) const {
  if (op.getNumReductionLoops() != 0 || op->getNumResults() != 1)
    return false;
  return llvm::all_of(op->getUsers(), [&](Operation *user) {
    Operation *top = block.findAncestorOpInBlock(*user);
    if (!ops.contains(top))
      return false;
    auto fold = dyn_cast<FoldOp>(top);
    return !fold || !llvm::is_contained(fold.getInputs(), op.getResult(0));
  });
}

void Nest::collect(FoldOp first) {
  ops.insert(first);
  folds.push_back(first);
  for (Operation &op : llvm::make_range(std::next(first->getIterator()),
                                        block.end()))
    if (joins(&op)) {
      ops.insert(&op);
      if (auto fold = dyn_cast<FoldOp>(op))
        folds.push_back(fold);
    }
  Operation *last = ops.back();
  for (Operation &op : llvm::reverse(block)) {
    auto generic = dyn_cast<GenericOp>(op);
    if (generic && !ops.contains(generic) && generic->isBeforeInBlock(last) &&
        isPrologue(generic))
      ops.insert(generic);
  }
  SmallVector<Operation *> sorted(ops.begin(), ops.end());
  llvm::sort(sorted, [](Operation *a, Operation *b) {
    return a->isBeforeInBlock(b);
  });
  ops.clear();
  ops.insert(sorted.begin(), sorted.end());
}

/// The size of a dimension, from a tensor that the nest does not produce.
OpFoldResult Nest::sizeOfClass(unsigned dim) {
  auto fromOutside = [&](GenericOp op) -> OpFoldResult {
    for (OpOperand &operand : op->getOpOperands()) {
      AffineMap map = op.getMatchingIndexingMap(&operand);
      for (unsigned d = 0; d < map.getNumResults(); ++d) {
        std::optional<unsigned> loop = getLoop(map, d);
        if (!loop || classes->ofLoop(op, *loop) != dim)
          continue;
        Value root = operand.get();
        while (auto dest = root.getDefiningOp<DestinationStyleOpInterface>())
          root = dest.getDpsInits()[cast<OpResult>(root).getResultNumber()];
        auto empty = root.getDefiningOp<tensor::EmptyOp>();
        if (empty && empty->getBlock() == &block)
          return empty.getMixedSizes()[d];
        if (root.getParentBlock() == &block)
          return tensor::getMixedSize(b, b.getLoc(), root, d);
        // Inside of a fold: sizes of its own tensors come from outside.
        if (empty) {
          OpFoldResult size = empty.getMixedSizes()[d];
          auto value = dyn_cast<Value>(size);
          if (!value || value.getParentBlock() == &block)
            return size;
        }
        auto type = cast<RankedTensorType>(root.getType());
        if (!type.isDynamicDim(d))
          return b.getIndexAttr(type.getDimSize(d));
        if (auto argument = dyn_cast<BlockArgument>(root))
          if (auto fold = dyn_cast<FoldOp>(argument.getOwner()->getParentOp()))
            for (auto [block, input] :
                 llvm::zip(fold.getBlocks(), fold.getInputs()))
              if (block == root)
                return tensor::getMixedSize(b, b.getLoc(), input, d);
      }
    }
    return {};
  };
  for (Operation *op : ops) {
    if (auto generic = dyn_cast<GenericOp>(op)) {
      if (OpFoldResult size = fromOutside(generic))
        return size;
      continue;
    }
    auto fold = cast<FoldOp>(op);
    if (classes->ofStream(fold) == dim)
      return fold.getExtent();
    for (auto init : fold.getInits())
      for (int64_t d = 0, e = cast<RankedTensorType>(init.getType()).getRank();
           d < e; ++d)
        if (auto known = classes->ofValue(
                fold.getResult(llvm::find(fold.getInits(), init) -
                               fold.getInits().begin()),
                d);
            known == dim) {
          Value root = init;
          while (auto dest = root.getDefiningOp<DestinationStyleOpInterface>())
            root = dest.getDpsInits()[cast<OpResult>(root).getResultNumber()];
          return tensor::getMixedSize(b, b.getLoc(), root, d);
        }
    for (auto generic : fold.getBody().getOps<GenericOp>())
      if (OpFoldResult size = fromOutside(generic))
        return size;
  }
  return {};
}

static int64_t tileFor(int64_t wanted, OpFoldResult size) {
  std::optional<int64_t> known = getConstantIntValue(size);
  if (!known)
    return wanted;
  // A short dimension needs no tile beyond its end, up to a vector's length.
  return std::min(wanted, std::max<int64_t>(16, llvm::alignTo(*known, 16)));
}

LogicalResult Nest::assignRoles() {
  classes = std::make_unique<DimClasses>(ops.getArrayRef());
  emitter = std::make_unique<TileEmitter>(b, *classes);
  FoldOp first = folds.front();
  streamDim = classes->ofStream(first);
  for (FoldOp fold : folds)
    if (classes->ofStream(fold) != streamDim)
      return fold.emitError("expected one streamed dimension in a nest, got a "
                            "second");
  // Canonical order: as the folds' statements name their loops first.
  SmallVector<unsigned> order;
  std::optional<SmallVector<unsigned>> workers;
  auto visit = [&](GenericOp op) {
    SmallVector<unsigned> span;
    bool streams = false;
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
      unsigned dim = classes->ofLoop(op, loop);
      if (!llvm::is_contained(order, dim))
        order.push_back(dim);
      streams |= dim == streamDim;
      if (op.getIteratorTypesArray()[loop] == utils::IteratorType::parallel)
        span.push_back(dim);
    }
    return std::make_pair(streams, span);
  };
  auto restrict = [&](ArrayRef<unsigned> span) {
    if (!workers)
      workers.emplace(span.begin(), span.end());
    llvm::erase_if(*workers, [&](unsigned dim) {
      return dim == streamDim || !llvm::is_contained(span, dim);
    });
  };
  for (FoldOp fold : folds) {
    for (auto op : fold.getBody().getOps<GenericOp>())
      if (auto [streams, span] = visit(op); streams)
        restrict(span);
    for (Value state : fold.getState()) {
      SmallVector<unsigned> span;
      for (int64_t d = 0,
                   e = cast<RankedTensorType>(state.getType()).getRank();
           d < e; ++d)
        span.push_back(*classes->ofValue(state, d));
      restrict(span);
    }
  }
  for (Operation *op : ops)
    if (auto generic = dyn_cast<GenericOp>(op))
      visit(generic);
  if (!workers)
    return first.emitError("expected a statement over the streamed dimension");

  // The row dimension: rows share what is streamed, so no streamed input has
  // it; without such a dimension the last one.
  DenseSet<unsigned> streamedDims;
  for (FoldOp fold : folds)
    for (auto op : fold.getBody().getOps<GenericOp>())
      for (OpOperand *input : op.getDpsInputOperands())
        if (llvm::is_contained(fold.getBlocks(), input->get())) {
          AffineMap map = op.getMatchingIndexingMap(input);
          for (unsigned d = 0; d < map.getNumResults(); ++d)
            if (std::optional<unsigned> loop = getLoop(map, d))
              streamedDims.insert(classes->ofLoop(op, *loop));
        }
  for (unsigned dim : order)
    if (llvm::is_contained(*workers, dim) &&
        (!rowDim || !streamedDims.contains(dim) ||
         streamedDims.contains(*rowDim)))
      rowDim = dim;

  b.setInsertionPoint(ops.back());
  b.setLoc(first.getLoc());
  for (unsigned dim : order) {
    TileDim info;
    info.size = sizeOfClass(dim);
    if (!info.size)
      return first.emitError("cannot find the size of a dimension of the nest");
    if (auto value = dyn_cast<Value>(info.size))
      if (std::optional<int64_t> known = getConstantIntValue(value))
        info.size = b.getIndexAttr(*known);
    std::optional<int64_t> known = getConstantIntValue(info.size);
    if (dim == streamDim) {
      info.role = Role::Stream;
      info.tile = tileFor(options.streamTile, info.size);
      info.exact = known && *known % info.tile == 0;
    } else if (dim == rowDim) {
      info.role = Role::Row;
      info.tile = tileFor(options.rowTile, info.size);
      info.exact = known && *known % info.tile == 0;
    } else if (llvm::is_contained(*workers, dim)) {
      info.role = Role::Worker;
    } else if (known) {
      info.role = Role::Full;
      info.tile = *known;
      info.exact = true;
    } else {
      return first.emitError("expected a static size of a dimension that is "
                             "whole in each tile (a head size), got a dynamic one");
    }
    emitter->dims[dim] = info;
  }
  return success();
}

/// Results that something outside of the nest reads.
void Nest::findOutputs() {
  for (Operation *op : ops)
    for (Value result : op->getResults()) {
      bool escapes = llvm::any_of(result.getUsers(), [&](Operation *user) {
        return !ops.contains(block.findAncestorOpInBlock(*user));
      });
      if (!escapes)
        continue;
      Output output;
      output.result = result;
      for (int64_t d = 0,
                   e = cast<RankedTensorType>(result.getType()).getRank();
           d < e; ++d)
        output.dims.push_back(*classes->ofValue(result, d));
      outputs.push_back(output);
    }
}

SmallVector<Value> Nest::outputTensors() {
  SmallVector<Value> tensors;
  for (Output &output : outputs) {
    auto type = cast<RankedTensorType>(output.result.getType());
    SmallVector<OpFoldResult> sizes;
    for (auto [d, dim] : llvm::enumerate(output.dims)) {
      if (type.isDynamicDim(d))
        sizes.push_back(getValueOrCreateConstantIndexOp(
            b, b.getLoc(), emitter->dims[dim].size));
      else
        sizes.push_back(b.getIndexAttr(type.getDimSize(d)));
    }
    tensors.push_back(
        tensor::EmptyOp::create(b, sizes, type.getElementType()));
  }
  return tensors;
}

/// The part of `tensor` that the current worker (and row tile) writes.
void Nest::slicePart(Output &output, Value tensor) {
  output.offsets.clear();
  output.sizes.clear();
  for (unsigned dim : output.dims) {
    TileDim &info = emitter->dims[dim];
    OpFoldResult zero = b.getIndexAttr(0);
    output.offsets.push_back(
        info.base && info.role != Role::Stream ? OpFoldResult(info.base) : zero);
    if (info.isScalar()) {
      output.sizes.push_back(b.getIndexAttr(1));
    } else if (info.role == Role::Row && info.base && !info.exact) {
      AffineExpr d0, d1;
      bindDims(b.getContext(), d0, d1);
      AffineMap map = AffineMap::get(
          2, 0, {b.getAffineConstantExpr(info.tile), d1 - d0}, b.getContext());
      output.sizes.push_back(affine::makeComposedFoldedAffineMin(
          b, b.getLoc(), map, {info.base, sizeValue(dim)}));
    } else if (info.role == Role::Row && info.base) {
      output.sizes.push_back(b.getIndexAttr(info.tile));
    } else {
      output.sizes.push_back(info.size);
    }
  }
  SmallVector<OpFoldResult> strides(output.dims.size(), b.getIndexAttr(1));
  output.slice = tensor::ExtractSliceOp::create(b, tensor, output.offsets,
                                                output.sizes, strides);
}

/// A parallel loop over workers, row tiles (with `withRows`) and `parts`, whose
/// body fills `outputs`' slices of `outs`.
scf::ForallOp Nest::createForall(
    ArrayRef<Value> outs, ArrayRef<Output> outputs, bool withRows,
    int64_t parts,
    function_ref<LogicalResult(SmallVector<Output> &, Value part)> body) {
  SmallVector<OpFoldResult> bounds;
  SmallVector<unsigned> loopDims;
  for (auto &[dim, info] : emitter->dims)
    if (info.role == Role::Worker) {
      bounds.push_back(info.size);
      loopDims.push_back(dim);
    }
  if (withRows && rowDim) {
    TileDim &row = emitter->dims[*rowDim];
    AffineExpr d0 = b.getAffineDimExpr(0);
    bounds.push_back(affine::makeComposedFoldedAffineApply(
        b, b.getLoc(), d0.ceilDiv(row.tile), {row.size}));
    loopDims.push_back(*rowDim);
  }
  if (parts)
    bounds.push_back(b.getIndexAttr(parts));
  auto forall = scf::ForallOp::create(b, bounds, ValueRange(outs), std::nullopt);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(forall.getBody());
  SmallVector<Value> ivs = forall.getInductionVars();
  for (auto [iv, dim] : llvm::zip(ivs, loopDims)) {
    TileDim &info = emitter->dims[dim];
    if (info.role == Role::Worker) {
      info.base = iv;
      continue;
    }
    AffineExpr d0 = b.getAffineDimExpr(0);
    info.base = affine::AffineApplyOp::create(
        b, AffineMap::get(1, 0, d0 * info.tile), iv);
  }
  SmallVector<Output> local(outputs.begin(), outputs.end());
  for (auto [output, tensor] : llvm::zip(local, forall.getRegionIterArgs()))
    slicePart(output, tensor);
  if (failed(body(local, parts ? ivs.back() : Value())))
    return {};
  b.setInsertionPointToStart(forall.getTerminator().getBody());
  for (auto [output, tensor] : llvm::zip(local, forall.getRegionIterArgs())) {
    SmallVector<OpFoldResult> strides(output.offsets.size(), b.getIndexAttr(1));
    tensor::ParallelInsertSliceOp::create(b, output.slice, tensor,
                                          output.offsets, output.sizes, strides);
  }
  for (unsigned dim : loopDims)
    emitter->dims[dim].base = {};
  return forall;
}

scf::ForOp Nest::createLoop(
    Value from, Value to, int64_t step, ValueRange inits,
    function_ref<LogicalResult(Value, ValueRange, SmallVectorImpl<Value> &)>
        body,
    LogicalResult &status) {
  auto loop = scf::ForOp::create(b, from, to, index(step), inits);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next;
  status = body(loop.getInductionVar(), loop.getRegionIterArgs(), next);
  if (failed(status))
    next.assign(loop.getRegionIterArgs().begin(),
                loop.getRegionIterArgs().end());
  if (!inits.empty())
    scf::YieldOp::create(b, next);
  return loop;
}

LogicalResult Nest::emitPrologue() {
  for (Operation *op : ops) {
    if (op == folds.front())
      break;
    if (auto generic = dyn_cast<GenericOp>(op))
      if (failed(emitter->emit(generic)))
        return failure();
  }
  return success();
}

Tile Nest::stateTile(Value state, Value vector) {
  Tile tile;
  tile.value = vector;
  tile.dims = emitter->spanOf(state);
  return tile;
}

/// The tiles that a fold starts from.
SmallVector<Tile> Nest::startTiles(FoldOp fold) {
  SmallVector<Tile> tiles;
  for (auto [init, state] : llvm::zip(fold.getInits(), fold.getState())) {
    Tile tile;
    if (auto known = emitter->tiles.find(init); known != emitter->tiles.end()) {
      tile = known->second;
    } else if (Value fill = getFillValue(init)) {
      tile.value = fill;
    } else {
      SmallVector<std::optional<unsigned>> access;
      for (int64_t d = 0, e = cast<RankedTensorType>(init.getType()).getRank();
           d < e; ++d)
        access.push_back(classes->ofValue(state, d));
      tile = emitter->read(init, access);
    }
    Type element = cast<RankedTensorType>(init.getType()).getElementType();
    SmallVector<unsigned, 2> span = emitter->spanOf(state);
    Tile whole;
    whole.value = emitter->toVector(tile, span, element);
    whole.dims = span;
    tiles.push_back(whole);
  }
  return tiles;
}

/// The statements of a fold's body on the current tiles.
LogicalResult Nest::emitBody(FoldOp fold) {
  for (auto [block, input] : llvm::zip(fold.getBlocks(), fold.getInputs()))
    emitter->sources[block] = input;
  emitter->scalars[fold.getOffset()] = emitter->dims[streamDim].base;
  for (auto op : fold.getBody().getOps<GenericOp>())
    if (failed(emitter->emit(op)))
      return failure();
  return success();
}

/// The loop over streamed tiles [from, to); final state vectors.
FailureOr<SmallVector<Value>>
Nest::emitFold(FoldOp fold, SmallVectorImpl<Output> &outputs, Value from,
               Value to) {
  SmallVector<Value> inits;
  for (const Tile &tile : startTiles(fold))
    inits.push_back(tile.value);
  unsigned carried = inits.size();
  SmallVector<Output *> maps;
  for (Value result : fold.getResults().drop_front(carried)) {
    auto output = llvm::find_if(
        outputs, [&](Output &other) { return other.result == result; });
    maps.push_back(output == outputs.end() ? nullptr : &*output);
    if (maps.back())
      inits.push_back(maps.back()->slice);
  }
  TileDim &stream = emitter->dims[streamDim];
  LogicalResult status = success();
  auto outer = emitter->tiles;
  scf::ForOp loop = createLoop(
      from, to, stream.tile, inits,
      [&](Value iv, ValueRange args,
          SmallVectorImpl<Value> &next) -> LogicalResult {
        stream.base = iv;
        for (auto [state, argument] : llvm::zip(fold.getState(), args))
          emitter->tiles[state] = stateTile(state, argument);
        if (failed(emitBody(fold)))
          return failure();
        unsigned tensors = carried;
        for (auto [position, yielded] :
             llvm::enumerate(fold.getYield()->getOperands())) {
          Tile tile = emitter->tiles.lookup(yielded);
          if (!tile.value)
            return fold.emitError("expected a statement's result as yielded "
                                  "value #")
                   << position;
          Type element =
              cast<RankedTensorType>(yielded.getType()).getElementType();
          if (position < carried)
            next.push_back(emitter->toVector(
                tile, emitter->spanOf(fold.getState()[position]), element));
          else if (Output *output = maps[position - carried])
            next.push_back(
                emitter->write(tile, args[tensors++], output->dims));
        }
        return success();
      },
      status);
  if (failed(status))
    return failure();
  emitter->tiles = outer;
  stream.base = {};
  if (carried)
    loop->setAttr("attn.fold", b.getUnitAttr());
  moveLoopInvariantCode(cast<LoopLikeOpInterface>(loop.getOperation()));
  b.setInsertionPointAfter(loop);
  unsigned at = carried;
  for (Output *output : maps)
    if (output)
      output->slice = loop.getResult(at++);
  return SmallVector<Value>(loop.getResults().take_front(carried));
}

/// What follows the first fold: statements on its results, further folds.
LogicalResult Nest::emitEpilogue(SmallVectorImpl<Output> &outputs) {
  bool after = false;
  for (Operation *op : ops) {
    after |= op == folds.front();
    if (!after || op == folds.front())
      continue;
    if (auto generic = dyn_cast<GenericOp>(op)) {
      if (failed(emitter->emit(generic)))
        return failure();
      continue;
    }
    auto fold = cast<FoldOp>(op);
    FailureOr<SmallVector<Value>> states =
        emitFold(fold, outputs, index(0), sizeValue(streamDim));
    if (failed(states))
      return failure();
    for (auto [position, state] : llvm::enumerate(*states))
      emitter->tiles[fold.getResult(position)] =
          stateTile(fold.getState()[position], state);
  }
  for (Output &output : outputs)
    if (auto known = emitter->tiles.find(output.result);
        known != emitter->tiles.end())
      output.slice =
          emitter->write(known->second, output.slice, output.dims);
  return success();
}

LogicalResult Nest::tileRows() {
  FoldOp fold = folds.front();
  SmallVector<Value> outs = outputTensors();
  scf::ForallOp forall = createForall(
      outs, outputs, /*withRows=*/true, /*parts=*/0,
      [&](SmallVector<Output> &local, Value) -> LogicalResult {
        if (failed(emitPrologue()))
          return failure();
        FailureOr<SmallVector<Value>> states =
            emitFold(fold, local, index(0), sizeValue(streamDim));
        if (failed(states))
          return failure();
        for (auto [position, state] : llvm::enumerate(*states))
          emitter->tiles[fold.getResult(position)] =
              stateTile(fold.getState()[position], state);
        return emitEpilogue(local);
      });
  if (!forall)
    return failure();
  replaceResults(forall.getResults());
  return success();
}

void Nest::replaceResults(ValueRange results) {
  for (auto [output, result] : llvm::zip(outputs, results)) {
    Value value = result;
    if (value.getType() != output.result.getType())
      value = tensor::CastOp::create(b, output.result.getType(), value);
    output.result.replaceUsesWithIf(value, [&](OpOperand &use) {
      return !ops.contains(block.findAncestorOpInBlock(*use.getOwner()));
    });
  }
  for (Operation *op : llvm::reverse(ops.getArrayRef()))
    if (op->use_empty())
      op->erase();
  sortTopologically(&block);
}

LogicalResult Nest::tile() {
  if (failed(assignRoles()))
    return failure();
  findOutputs();
  emitter->outside = ops.back();
  // Sizes are computed before the program.
  auto anchor = arith::ConstantIndexOp::create(b, 0);
  emitter->outside = anchor;
  FailureOr<Order> order = pickOrder();
  if (failed(order))
    return failure();
  switch (*order) {
  case Order::Rows:
    return tileRows();
  case Order::Stream:
    return tileStream();
  case Order::Split:
    return tileSplit();
  }
  llvm_unreachable("all orders are handled");
}

/// The nest in numbers; dynamic sizes as the options assume them.
NestSize Nest::measure() {
  NestSize size;
  auto sizeOf = [&](unsigned dim) -> double {
    const TileDim &info = emitter->dims[dim];
    if (std::optional<int64_t> known = getConstantIntValue(info.size))
      return *known;
    return info.role == Role::Worker ? 8 : options.assumedSize;
  };
  // Bytes of a tensor per element of the dimensions that vary with tiles.
  auto bytesOf = [&](Type type, ArrayRef<unsigned> span) {
    double bytes =
        cast<RankedTensorType>(type).getElementTypeBitWidth() / 8.0;
    for (unsigned dim : span)
      if (emitter->dims[dim].role == Role::Full)
        bytes *= sizeOf(dim);
    return bytes;
  };
  auto spanOf = [&](Value tensor) {
    SmallVector<unsigned> span;
    for (int64_t d = 0, e = cast<RankedTensorType>(tensor.getType()).getRank();
         d < e; ++d)
      span.push_back(*classes->ofValue(tensor, d));
    return span;
  };
  size.parts = options.parts;
  size.threads = options.threads;
  for (auto &[dim, info] : emitter->dims) {
    if (info.role == Role::Worker)
      size.workers *= sizeOf(dim);
    if (info.role == Role::Row)
      size.rows = sizeOf(dim), size.rowTile = info.tile;
    if (info.role == Role::Stream)
      size.streamed = sizeOf(dim), size.streamTile = info.tile;
  }
  DenseSet<Value> seen;
  for (FoldOp fold : folds) {
    for (Value state : fold.getState())
      size.stateBytes += bytesOf(state.getType(), spanOf(state));
    for (auto op : fold.getBody().getOps<GenericOp>()) {
      double flops = 1;
      bool overStream = false;
      for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
        unsigned dim = classes->ofLoop(op, loop);
        overStream |= dim == streamDim;
        if (emitter->dims[dim].role == Role::Full)
          flops *= sizeOf(dim);
      }
      if (overStream)
        size.pointFlops += flops * (op.getNumReductionLoops() ? 2 : 1);
      for (OpOperand *input : op.getDpsInputOperands()) {
        if (!seen.insert(input->get()).second ||
            emitter->tiles.contains(input->get()) ||
            classes->ofValue(input->get(), 0))
          continue;
        SmallVector<unsigned> span;
        AffineMap map = op.getMatchingIndexingMap(input);
        for (unsigned d = 0; d < map.getNumResults(); ++d)
          if (std::optional<unsigned> loop = getLoop(map, d))
            span.push_back(classes->ofLoop(op, *loop));
        double bytes = bytesOf(input->get().getType(), span);
        if (llvm::is_contained(span, streamDim))
          size.streamBytes += bytes;
        else if (rowDim && llvm::is_contained(span, *rowDim))
          size.rowBytes += bytes;
      }
    }
  }
  for (const Output &output : outputs)
    size.outBytes += bytesOf(output.result.getType(), output.dims);
  return size;
}

FailureOr<Order> Nest::pickOrder() {
  FoldOp fold = folds.front();
  SmallVector<OrderCost> costs = estimateOrders(measure());
  if (folds.size() > 1)
    costs[1].illegal = costs[2].illegal =
        "a second pass over the streamed dimension needs the finished state "
        "of a row";
  else if (fold.getState().empty() || !rowDim)
    costs[1].illegal = costs[2].illegal = "the nest carries no state per row";
  else if (fold.getMerge().empty())
    costs[2].illegal = "the fold has no merge region, because a start value "
                       "that is not neutral would be counted once per part";
  Order order = options.order ? *options.order : chooseOrder(costs);
  for (const OrderCost &cost : costs)
    if (cost.order == order && !cost.illegal.empty())
      return fold.emitError("cannot take loop order ")
             << stringifyOrder(order) << ": " << cost.illegal;
  if (options.explain) {
    InFlightDiagnostic remark = emitRemark(fold.getLoc())
                                << "loop order " << stringifyOrder(order)
                                << (options.order ? " (requested)"
                                                  : " (cheapest)");
    for (const OrderCost &cost : costs) {
      Diagnostic &note = remark.attachNote();
      note << stringifyOrder(cost.order) << ": ";
      if (!cost.illegal.empty())
        note << "illegal, " << cost.illegal;
      else
        note << llvm::formatv("{0:f1} MB moved, {1} tiles in parallel, {2:f3} "
                              "ms estimated",
                              cost.bytes / 1e6, int64_t(cost.parallelism),
                              cost.seconds * 1e3)
                    .str();
    }
  }
  return order;
}

/// Streamed tiles outside, rows inside; the state of all rows is in memory.
LogicalResult Nest::tileStream() {
  FoldOp fold = folds.front();
  TileDim &row = emitter->dims[*rowDim];
  TileDim &stream = emitter->dims[streamDim];
  // One row of state per row; workers hold their own.
  SmallVector<Output> states;
  for (Value state : fold.getState()) {
    Output output;
    output.result = state;
    for (int64_t d = 0, e = cast<RankedTensorType>(state.getType()).getRank();
         d < e; ++d) {
      unsigned dim = *classes->ofValue(state, d);
      if (!emitter->dims[dim].isScalar())
        output.dims.push_back(dim);
    }
    states.push_back(output);
  }
  SmallVector<Value> outs = outputTensors();
  // Reads and writes a tile of each state at the current row.
  auto atRow = [&](ArrayRef<unsigned> dims) {
    SmallVector<std::optional<unsigned>> access(dims.begin(), dims.end());
    return access;
  };
  auto store = [&](Output &state, Value tensor, Value vector) {
    // write() counts from the tile's first element; here the tensor is whole.
    Output part = state;
    slicePart(part, tensor);
    Value written =
        emitter->write(stateTile(state.result, vector), part.slice, part.dims);
    SmallVector<OpFoldResult> strides(part.offsets.size(), b.getIndexAttr(1));
    return tensor::InsertSliceOp::create(b, written, tensor, part.offsets,
                                         part.sizes, strides)
        .getResult();
  };
  auto rowLoop = [&](ValueRange inits,
                     function_ref<LogicalResult(ValueRange,
                                                SmallVectorImpl<Value> &)>
                         body) -> FailureOr<scf::ForOp> {
    LogicalResult status = success();
    auto outer = emitter->tiles;
    scf::ForOp loop = createLoop(
        index(0), sizeValue(*rowDim), row.tile, inits,
        [&](Value iv, ValueRange args, SmallVectorImpl<Value> &next) {
          row.base = iv;
          return body(args, next);
        },
        status);
    emitter->tiles = outer;
    row.base = {};
    if (failed(status))
      return failure();
    b.setInsertionPointAfter(loop);
    return loop;
  };
  scf::ForallOp forall = createForall(
      outs, outputs, /*withRows=*/false, /*parts=*/0,
      [&](SmallVector<Output> &local, Value) -> LogicalResult {
        SmallVector<Value> memory;
        for (Output &state : states) {
          SmallVector<OpFoldResult> sizes;
          for (unsigned dim : state.dims)
            sizes.push_back(emitter->dims[dim].size);
          memory.push_back(tensor::EmptyOp::create(
              b, sizes,
              cast<RankedTensorType>(state.result.getType()).getElementType()));
        }
        auto start = rowLoop(memory, [&](ValueRange args,
                                         SmallVectorImpl<Value> &next)
                                         -> LogicalResult {
          if (failed(emitPrologue()))
            return failure();
          for (auto [state, tensor, tile] :
               llvm::zip(states, args, startTiles(fold)))
            next.push_back(store(state, tensor, tile.value));
          return success();
        });
        if (failed(start))
          return failure();
        LogicalResult status = success();
        scf::ForOp outer = createLoop(
            index(0), sizeValue(streamDim), stream.tile, start->getResults(),
            [&](Value iv, ValueRange args,
                SmallVectorImpl<Value> &next) -> LogicalResult {
              stream.base = iv;
              auto inner = rowLoop(args, [&](ValueRange tensors,
                                             SmallVectorImpl<Value> &stored)
                                             -> LogicalResult {
                for (auto [state, tensor] : llvm::zip(states, tensors))
                  emitter->tiles[state.result] =
                      emitter->read(tensor, atRow(state.dims));
                if (failed(emitBody(fold)))
                  return failure();
                for (auto [position, state, tensor] :
                     llvm::enumerate(states, tensors)) {
                  Value yielded = fold.getYield()->getOperand(position);
                  Type element =
                      cast<RankedTensorType>(yielded.getType()).getElementType();
                  Value vector = emitter->toVector(
                      emitter->tiles.lookup(yielded),
                      emitter->spanOf(state.result), element);
                  stored.push_back(store(state, tensor, vector));
                }
                return success();
              });
              if (failed(inner))
                return failure();
              (*inner)->setAttr("attn.fold", b.getUnitAttr());
              moveLoopInvariantCode(
                  cast<LoopLikeOpInterface>(inner->getOperation()));
              b.setInsertionPointAfter(*inner);
              next.append(inner->result_begin(), inner->result_end());
              return success();
            },
            status);
        if (failed(status))
          return failure();
        stream.base = {};
        b.setInsertionPointAfter(outer);
        SmallVector<Value> slices;
        for (Output &output : local)
          slices.push_back(output.slice);
        auto finish = rowLoop(slices, [&](ValueRange args,
                                          SmallVectorImpl<Value> &next)
                                          -> LogicalResult {
          for (auto [position, state, tensor] :
               llvm::enumerate(states, outer.getResults()))
            emitter->tiles[fold.getResult(position)] =
                emitter->read(tensor, atRow(state.dims));
          // The worker's slice is whole along rows: take this tile's part.
          SmallVector<Output> parts(local.begin(), local.end());
          for (auto [part, tensor] : llvm::zip(parts, args)) {
            SmallVector<Value> bases;
            for (auto &[dim, info] : emitter->dims) {
              bases.push_back(info.base);
              if (info.isScalar())
                info.base = {};
            }
            slicePart(part, tensor);
            for (auto [entry, base] : llvm::zip(emitter->dims, bases))
              entry.second.base = base;
          }
          if (failed(emitEpilogue(parts)))
            return failure();
          for (auto [part, tensor] : llvm::zip(parts, args)) {
            SmallVector<OpFoldResult> strides(part.offsets.size(),
                                              b.getIndexAttr(1));
            next.push_back(tensor::InsertSliceOp::create(
                b, part.slice, tensor, part.offsets, part.sizes, strides));
          }
          return success();
        });
        if (failed(finish))
          return failure();
        for (auto [output, result] : llvm::zip(local, finish->getResults()))
          output.slice = result;
        return success();
      });
  if (!forall)
    return failure();
  replaceResults(forall.getResults());
  return success();
}

/// Two states of disjoint parts, by the fold's merge region.
LogicalResult Nest::emitMerge(FoldOp fold, ArrayRef<Value> left,
                              ArrayRef<Value> right,
                              SmallVectorImpl<Value> &merged) {
  Block &merge = fold.getMerge().front();
  unsigned count = left.size();
  for (unsigned position = 0; position < count; ++position) {
    Value state = fold.getState()[position];
    emitter->tiles[merge.getArgument(position)] =
        stateTile(state, left[position]);
    emitter->tiles[merge.getArgument(count + position)] =
        stateTile(state, right[position]);
  }
  for (auto op : merge.getOps<GenericOp>())
    if (failed(emitter->emit(op)))
      return failure();
  for (auto [position, yielded] :
       llvm::enumerate(merge.getTerminator()->getOperands())) {
    Type element = cast<RankedTensorType>(yielded.getType()).getElementType();
    merged.push_back(
        emitter->toVector(emitter->tiles.lookup(yielded),
                         emitter->spanOf(fold.getState()[position]), element));
  }
  return success();
}

/// Parts of the streamed dimension in parallel, then a merge per row tile.
LogicalResult Nest::tileSplit() {
  FoldOp fold = folds.front();
  TileDim &stream = emitter->dims[streamDim];
  // A whole number of tiles per part.
  AffineExpr d0 = b.getAffineDimExpr(0);
  OpFoldResult chunk = affine::makeComposedFoldedAffineApply(
      b, b.getLoc(),
      d0.ceilDiv(options.parts * stream.tile) * stream.tile, {stream.size});
  Value chunkValue = getValueOrCreateConstantIndexOp(b, b.getLoc(), chunk);

  // Workspace: each state with a leading dimension of parts.
  SmallVector<Value> workspace;
  SmallVector<Output> states;
  for (Value state : fold.getState()) {
    Output output;
    output.result = state;
    auto type = cast<RankedTensorType>(state.getType());
    SmallVector<OpFoldResult> sizes = {b.getIndexAttr(options.parts)};
    for (int64_t d = 0; d < type.getRank(); ++d) {
      output.dims.push_back(*classes->ofValue(state, d));
      sizes.push_back(emitter->dims[output.dims.back()].size);
    }
    states.push_back(output);
    workspace.push_back(
        tensor::EmptyOp::create(b, sizes, type.getElementType()));
  }
  // The part of a state's workspace that a worker uses: rank-reduced.
  auto partSlice = [&](Output &output, Value tensor, Value part) {
    slicePart(output, tensor::EmptyOp::create(
                          b, [&] {
                            SmallVector<OpFoldResult> sizes;
                            for (unsigned dim : output.dims)
                              sizes.push_back(emitter->dims[dim].size);
                            return sizes;
                          }(),
                          cast<RankedTensorType>(tensor.getType())
                              .getElementType()));
    output.offsets.insert(output.offsets.begin(), part);
    output.sizes.insert(output.sizes.begin(), b.getIndexAttr(1));
    SmallVector<OpFoldResult> strides(output.offsets.size(), b.getIndexAttr(1));
    auto reduced = cast<RankedTensorType>(output.slice.getType());
    output.slice = tensor::ExtractSliceOp::create(
        b, reduced, tensor, output.offsets, output.sizes, strides);
  };
  scf::ForallOp partial = createForall(
      workspace, {}, /*withRows=*/true, options.parts,
      [&](SmallVector<Output> &, Value part) -> LogicalResult {
        auto self = cast<scf::ForallOp>(b.getInsertionBlock()->getParentOp());
        Value from = arith::MulIOp::create(b, part, chunkValue);
        Value end = arith::AddIOp::create(b, from, chunkValue);
        Value to = arith::MinUIOp::create(b, end, sizeValue(streamDim));
        if (failed(emitPrologue()))
          return failure();
        SmallVector<Output> none;
        FailureOr<SmallVector<Value>> final = emitFold(fold, none, from, to);
        if (failed(final))
          return failure();
        for (auto [state, tensor, vector] :
             llvm::zip(states, self.getRegionIterArgs(), *final)) {
          partSlice(state, tensor, part);
          Value written = emitter->write(stateTile(state.result, vector),
                                        state.slice, state.dims);
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToEnd(self.getTerminator().getBody());
          SmallVector<OpFoldResult> strides(state.offsets.size(),
                                            b.getIndexAttr(1));
          tensor::ParallelInsertSliceOp::create(b, written, tensor,
                                                state.offsets, state.sizes,
                                                strides);
        }
        return success();
      });
  if (!partial)
    return failure();
  emitter->tiles.clear();
  b.setInsertionPointAfter(partial);

  SmallVector<Value> outs = outputTensors();
  scf::ForallOp forall = createForall(
      outs, outputs, /*withRows=*/true, /*parts=*/0,
      [&](SmallVector<Output> &local, Value) -> LogicalResult {
        if (failed(emitPrologue()))
          return failure();
        auto load = [&](Value part) {
          SmallVector<Value> vectors;
          for (auto [state, tensor] : llvm::zip(states, partial.getResults())) {
            Output output = state;
            partSlice(output, tensor, part);
            // The slice starts at the tile.
            SmallVector<Value> bases;
            for (auto &[dim, info] : emitter->dims) {
              bases.push_back(info.base);
              info.base = {};
            }
            for (auto &[dim, info] : emitter->dims)
              if (info.isScalar())
                info.base = index(0);
            SmallVector<std::optional<unsigned>> access(state.dims.begin(),
                                                        state.dims.end());
            vectors.push_back(emitter->read(output.slice, access).value);
            for (auto [entry, base] : llvm::zip(emitter->dims, bases))
              entry.second.base = base;
          }
          return vectors;
        };
        SmallVector<Value> first = load(index(0));
        LogicalResult status = success();
        auto outer = emitter->tiles;
        scf::ForOp loop = createLoop(
            index(1), index(options.parts), 1, first,
            [&](Value iv, ValueRange args, SmallVectorImpl<Value> &next) {
              SmallVector<Value> left(args.begin(), args.end());
              return emitMerge(fold, left, load(iv), next);
            },
            status);
        if (failed(status))
          return failure();
        emitter->tiles = outer;
        b.setInsertionPointAfter(loop);
        for (auto [position, state] : llvm::enumerate(loop.getResults()))
          emitter->tiles[fold.getResult(position)] =
              stateTile(fold.getState()[position], state);
        return emitEpilogue(local);
      });
  if (!forall)
    return failure();
  replaceResults(forall.getResults());
  return success();
}

struct TileNestPass : attn::impl::AttnTileNestBase<TileNestPass> {
  using AttnTileNestBase::AttnTileNestBase;
  void runOnOperation() override {
    Options options{rowTile, streamTile,   parts,  threads,
                    assumedSize, std::nullopt, explain};
    for (Order known : {Order::Rows, Order::Stream, Order::Split})
      if (order == stringifyOrder(known))
        options.order = known;
    if (!options.order && order != "auto") {
      getOperation().emitError(
          "expected order to be auto, rows, stream or split, got ")
          << StringRef(order);
      return signalPassFailure();
    }
    if (rowTile < 1 || streamTile < 1 || parts < 1 || threads < 1 || assumedSize < 1) {
      getOperation().emitError("expected tiles, parts, threads and the assumed size to be at least 1");
      return signalPassFailure();
    }
    for (Block &block : getOperation().getBody()) {
      while (true) {
        auto folds = block.getOps<FoldOp>();
        if (folds.empty())
          break;
        if (failed(Nest(*folds.begin(), options).tile()))
          return signalPassFailure();
      }
    }
  }
};
} // namespace
