// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One kind of warpgroup becomes several: the consumers keep the body, the producer gets the
// loops around its loads, and an adder those around additions to memory.

#include "Roles.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSPECIALIZEWARPS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numSpecialized("hopper-specialize-warps", "specialized",
                                 "Launches in which warpgroups have several roles");
static attn::Done numApart("hopper-specialize-warps", "apart",
                           "Launches in which each warpgroup is a CTA");

namespace {

/// Registers per thread (FlashAttention-3's division of the register file; one consumer has
/// more than it can address).
struct Registers {
  int64_t producer, consumer;
};
Registers getRegisters(int64_t consumers, int64_t others, int64_t ofProducer, int64_t occupancy) {
  if (ofProducer == 0)
    ofProducer = consumers == 3 ? 32 : 24;
  // The consumers have what is left of what the threads of a CTA start with.
  int64_t warpgroups = consumers + others;
  int64_t all = hopper::getInitialRegisters(warpgroups, occupancy) * warpgroups;
  int64_t rest = (all - ofProducer * others) / consumers;
  return {ofProducer, std::min<int64_t>(240, rest / 8 * 8)};
}

/// Elements of a vector that the producer has at a time.
constexpr int64_t kPiece = 32;

class Specializer {
public:
  Specializer(gpu::LaunchOp launch, hopper::RolesOp roles, int64_t producerRegisters,
              int64_t occupancy, bool adderFences)
      : launch(launch), roles(roles), body(&roles.getBodies().front()),
        producerRegisters(producerRegisters), occupancy(occupancy), adderFences(adderFences),
        b(launch), loc(launch.getLoc()), block(launch.getBlockIds().x),
        warpgroups(roles.getWarpgroups().front()) {}

  LogicalResult run() {
    body->walk([&](tile::LoadOp load) { loads.push_back(load); });
    for (tile::LoadOp load : loads)
      if (launch.getBody().isAncestor(load.getSource().getParentRegion()))
        return load.emitOpError("expects memory from outside of the launch");
    findAdditions();
    if (loads.empty() && additions.empty()) {
      stayAlone();
      return success();
    }
    createRoles();
    if (!loads.empty() && failed(createHelper(/*adder=*/false)))
      return failure();
    if (!additions.empty() && failed(createHelper(/*adder=*/true)))
      return failure();
    if (!loads.empty() && !additions.empty() && hasVectors(roles.getBodies().front()))
      separateHelpers();
    createConsumers();
    numSpecialized.at(launch) << remark::metric("Roles", roles.getBodies().size())
                              << remark::metric("Loads", loads.size())
                              << remark::metric("Additions", additions.size());
    return success();
  }

private:
  /// A tile that is added to memory, of which each warpgroup has some rows or columns.
  struct Addition {
    TileAddOp op;
    Value memory;
    SmallVector<Value> indices;
    bool inRows = false; // else in columns
    tile::SmemType whole = {}, part = {};
    Value channel = {};
  };

  /// Those in loops of tiles in f32, to memory that the host describes to TMA. The consumers keep
  /// others.
  void findAdditions() {
    OpBuilder::InsertionGuard guard(b);
    body->walk([&](TileAddOp op) {
      Addition addition{op, op.getDest(), SmallVector<Value>(op.getIndices())};
      b.setInsertionPoint(op);
      if (auto view = addition.memory.getDefiningOp<memref::SubViewOp>())
        programs::lookThroughView(b, view, addition.memory, addition.indices);
      auto type = dyn_cast<VectorType>(op.getValues().getType());
      bool isOutside = !launch.getBody().isAncestor(addition.memory.getParentRegion());
      if (!type || type.getRank() != 2 || !type.getElementType().isF32() || !isOutside ||
          type.getDimSize(1) % 32 || !isa<scf::ForOp>(op->getParentOp()))
        return;
      SmallVector<int64_t> shape(type.getShape());
      size_t rank = addition.indices.size();
      Value warpgroup = body->getArgument(0);
      addition.inRows = programs::dependsOn(addition.indices[rank - 2], warpgroup);
      if (addition.inRows == programs::dependsOn(addition.indices[rank - 1], warpgroup))
        return;
      addition.part = tile::SmemType::get(shape, type.getElementType(), 128);
      shape[addition.inRows ? 0 : 1] *= warpgroups;
      addition.whole = tile::SmemType::get(shape, type.getElementType(), 128);
      if (addition.inRows)
        addition.part = tile::SmemType::get(b.getContext(), type.getShape(), type.getElementType(),
                                            128, shape.front());
      op->getParentOp()->setAttr(hopper::kAddingAttr, b.getUnitAttr());
      additions.push_back(addition);
    });
  }

  /// Uses of a tile: in front of the end of the region that it is received in.
  static Operation *findLastUse(Operation *definition, Value tile) {
    Operation *last = definition;
    for (Operation *user : tile.getUsers()) {
      Operation *ancestor = definition->getBlock()->findAncestorOpInBlock(*user);
      if (isa<tile::RowsOp, tile::ColumnsOp>(user))
        ancestor = findLastUse(user, user->getResult(0));
      if (last->isBeforeInBlock(ancestor))
        last = ancestor;
    }
    return last;
  }

  /// One role that neither copies nor adds, whose warpgroups are CTAs if they may be.
  void stayAlone() {
    Registers each = getRegisters(warpgroups, /*others=*/1, producerRegisters, occupancy);
    // What waits for memory only waits less in smaller CTAs.
    if (warpgroups > 1 && areApart()) {
      numApart.at(launch) << remark::metric("Warpgroups", warpgroups);
      divideTile();
    }
    roles.setRegisters({getRegistersAlone(each.consumer)});
  }

  /// A CTA for each warpgroup of a tile.
  void divideTile() {
    b.setInsertionPoint(launch);
    Value tiles = launch.getGridSizeX();
    Value count = arith::ConstantIndexOp::create(b, loc, warpgroups);
    launch.getGridSizeXMutable().assign(arith::MulIOp::create(b, loc, tiles, count));
    setWarpgroups(1);
    // The last coordinate of a CTA is its warpgroup, the others are those of the tile.
    SmallVector<OpFoldResult> sizes{tiles};
    auto position = dyn_cast<affine::AffineDelinearizeIndexOp>(body->front().front());
    bool isOnly = position && block.hasOneUse() && position.getLinearIndex() == block;
    if (isOnly)
      sizes = position.getMixedBasis();
    sizes.push_back(b.getIndexAttr(warpgroups));
    b.setInsertionPointToStart(&body->front());
    auto parts = affine::AffineDelinearizeIndexOp::create(
        b, loc, block, sizes, /*hasOuterBound=*/!isOnly || position.hasOuterBound());
    ValueRange coordinates = parts.getResults();
    body->getArgument(0).replaceAllUsesWith(coordinates.back());
    if (isOnly) {
      position.replaceAllUsesWith(coordinates.drop_back());
      position.erase();
    } else {
      block.replaceAllUsesExcept(coordinates.front(), parts);
    }
    roles.setWarpgroups({1});
    warpgroups = 1;
  }

  /// How many warpgroups a CTA has.
  void setWarpgroups(int64_t count) {
    b.setInsertionPoint(launch);
    launch.getBlockSizeXMutable().assign(
        arith::ConstantIndexOp::create(b, loc, count * hopper::kThreadsPerWarpgroup));
  }

  /// Channels, and helpers in front of the role that computes, which they have nothing to do in
  /// yet.
  void createRoles() {
    Registers each = getRegisters(warpgroups, /*others=*/1, producerRegisters, occupancy);
    setWarpgroups(warpgroups + 1);
    b.setInsertionPoint(roles);
    for (tile::LoadOp load : loads)
      channels.push_back(hopper::ChannelOp::create(
          b, load.getLoc(), hopper::ChannelType::get(b.getContext(), load.getTile().getType()),
          /*depth=*/1, /*multicast=*/IntegerAttr()));
    for (Addition &addition : additions)
      addition.channel = hopper::ChannelOp::create(
          b, addition.op.getLoc(), hopper::ChannelType::get(b.getContext(), addition.whole),
          /*depth=*/1, /*multicast=*/IntegerAttr());
    SmallVector<StringRef> names;
    SmallVector<int64_t> counts, registers;
    auto addHelper = [&](StringRef name) {
      counts.push_back(names.empty() ? 1 : 0); // one warpgroup has warps for several
      registers.push_back(each.producer);
      names.push_back(name);
    };
    if (!loads.empty())
      addHelper(hopper::kLoadRole);
    if (!additions.empty())
      addHelper(hopper::kAddRole);
    names.push_back(hopper::kComputeRole);
    counts.push_back(warpgroups);
    registers.push_back(each.consumer);
    auto all =
        hopper::RolesOp::create(b, loc, b.getStrArrayAttr(names), b.getDenseI64ArrayAttr(counts),
                                b.getDenseI64ArrayAttr(registers), names.size());
    for (Region &region : all.getBodies().drop_back()) {
      Block *start = b.createBlock(&region);
      start->addArgument(b.getIndexType(), loc);
      hopper::YieldOp::create(b, loc);
    }
    all.getBodies().back().takeBody(*body);
    body = &all.getBodies().back();
    roles.erase();
    roles = all;
  }

  /// Whether the warpgroups of a tile have nothing to do with each other: each may be a CTA.
  bool areApart() {
    if (!llvm::all_of(block.getUsers(),
                      [&](Operation *user) { return body->isAncestor(user->getParentRegion()); }))
      return false;
    WalkResult walk = launch.walk([](Operation *op) {
      if (auto report = dyn_cast<hopper::ReportOp>(op);
          report && report.getWarpgroups() && !report.getTile())
        return WalkResult::advance();
      return isa<hopper::BarrierSyncOp, hopper::BarrierArriveOp, hopper::BarrierReduceOp,
                 tile::ShareOp, tile::GatherOp, hopper::ReportOp, hopper::RedoOp>(op)
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    return !walk.wasInterrupted();
  }

  /// What waits for memory only has more CTAs on a multiprocessor where its tiles, which it does
  /// not write again, leave them the registers: one computes while others wait.
  int64_t getRegistersAlone(int64_t all) {
    constexpr int64_t kFew = 128, kMostColumns = 128;
    WalkResult walk = body->walk([&](Operation *op) {
      auto isWide = [](Type type) {
        auto vector = dyn_cast<VectorType>(type);
        return vector && vector.getRank() == 2 && vector.getDimSize(1) > kMostColumns;
      };
      auto write = dyn_cast<vector::TransferWriteOp>(op);
      bool keepsTile = write && write.getVectorType().getRank() > 1 &&
                       !matchPattern(write.getVector(), m_AnyZeroFloat());
      bool isLong = isa<tile::MmaOp, scf::ForOp>(op) || keepsTile ||
                    llvm::any_of(op->getResultTypes(), isWide);
      return isLong ? WalkResult::interrupt() : WalkResult::advance();
    });
    return walk.wasInterrupted() || warpgroups > 2 ? all : std::min(all, kFew);
  }

  static bool hasVectors(Region &region) {
    auto isVector = [](Type type) { return isa<VectorType>(type); };
    WalkResult walk = region.walk([&](Operation *op) {
      return llvm::any_of(op->getResultTypes(), isVector) ? WalkResult::interrupt()
                                                          : WalkResult::advance();
    });
    return walk.wasInterrupted();
  }

  /// A producer all of whose warps work leaves none to the adder.
  void separateHelpers() {
    Registers each = getRegisters(warpgroups, /*others=*/2, producerRegisters, occupancy);
    roles.setWarpgroups({1, 1, warpgroups});
    roles.setRegisters({each.producer, each.producer, each.consumer});
    setWarpgroups(warpgroups + 2);
  }

  /// The producer, or the adder.
  LogicalResult createHelper(bool adder) {
    isAdder = adder;
    Region &region = roles.getBodies()[adder && !loads.empty() ? 1 : 0];
    b.setInsertionPointToStart(&region.front());
    IRMapping mapping;
    // Which tile it is comes first.
    if (auto position = dyn_cast<affine::AffineDelinearizeIndexOp>(body->front().front());
        position && position.getLinearIndex() == block)
      b.clone(*position, mapping);
    if (adder) // whole tiles start where those of the first warpgroup do
      mapping.map(body->getArgument(0), arith::ConstantIndexOp::create(b, loc, 0).getResult());
    if (failed(copySites(&body->front(), mapping)))
      return failure();
    if (!adder)
      return success();
    b.setInsertionPoint(region.front().getTerminator());
    hopper::TmaWaitOp::create(b, loc, 0, /*read=*/false); // shared memory outlives the copies
    return success();
  }

  /// Clones what `value` needs. Fails at an op that only consumers can run.
  LogicalResult copySlice(Value value, IRMapping &mapping, Operation *user) {
    if (mapping.contains(value) || !body->isAncestor(value.getParentRegion()))
      return success();
    Operation *op = value.getDefiningOp();
    if (auto reduction = dyn_cast_or_null<vector::ReductionOp>(op)) {
      llvm::SetVector<Value> scalars;
      auto type = cast<VectorType>(reduction.getVector().getType());
      if (!reduction.getAcc() && type.getDimSize(0) % kPiece == 0 &&
          isPiecewise(reduction.getVector(), scalars))
        return copyReduction(reduction, scalars.getArrayRef(), mapping, user);
    }
    // Vectors, too: those of a loop's bounds. Its warps then all do the work.
    bool isPlain = op && op->getNumRegions() == 0 && (isPure(op) || hasReadOnly(op)) &&
                   !isa<tile::MmaOp, tile::RowsOp, tile::ColumnsOp, tile::ShareOp>(op);
    if (!isPlain) {
      InFlightDiagnostic error = user->emitOpError("cannot be done by the ")
                                 << getHelper()
                                 << ": it depends on a value that the consumers compute";
      if (op)
        error.attachNote(op->getLoc()) << "computed here";
      return error;
    }
    for (Value operand : op->getOperands()) {
      auto memref = dyn_cast<MemrefValue>(operand);
      if (memref && hasReadOnly(op) && programs::isWrittenIn(roles, memref)) {
        InFlightDiagnostic error = user->emitOpError("cannot be done by the ")
                                   << getHelper()
                                   << ": it depends on memory that the consumers write";
        error.attachNote(op->getLoc()) << "read here";
        return error;
      }
      if (failed(copySlice(operand, mapping, user)))
        return failure();
    }
    b.clone(*op, mapping);
    return success();
  }

  /// Whether elements of a vector can be computed a few at a time, and the
  /// scalars that this takes.
  static bool isPiecewise(Value vector, llvm::SetVector<Value> &scalars) {
    Operation *op = vector.getDefiningOp();
    auto type = cast<VectorType>(vector.getType());
    if (!op || type.getRank() != 1)
      return false;
    auto read = dyn_cast<vector::TransferReadOp>(op);
    if (read ? bool(read.getMask()) || !isa<AffineDimExpr>(read.getPermutationMap().getResult(0))
             : !OpTrait::hasElementwiseMappableTraits(op) &&
                   !isa<arith::ConstantOp, vector::StepOp, vector::BroadcastOp>(op))
      return false;
    for (Value operand : op->getOperands()) {
      if (!isa<VectorType>(operand.getType()))
        scalars.insert(operand);
      else if (!isPiecewise(operand, scalars))
        return false;
    }
    return true;
  }

  /// `count` elements of a vector from element `first` on.
  Value copyPiece(Value vector, Value first, int64_t count, const IRMapping &mapping) {
    Operation *op = vector.getDefiningOp();
    auto type = VectorType::get(count, cast<VectorType>(vector.getType()).getElementType());
    if (auto constant = dyn_cast<arith::ConstantOp>(op))
      return arith::ConstantOp::create(
          b, op->getLoc(), cast<DenseElementsAttr>(constant.getValue()).resizeSplat(type));
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(isa<VectorType>(operand.getType())
                             ? copyPiece(operand, first, count, mapping)
                             : mapping.lookupOrDefault(operand));
    Operation *copy = b.clone(*op);
    copy->setOperands(operands);
    copy->getResult(0).setType(type);
    if (auto read = dyn_cast<vector::TransferReadOp>(copy)) {
      unsigned dim = cast<AffineDimExpr>(read.getPermutationMap().getResult(0)).getPosition();
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(copy);
      OpOperand &index = read.getIndicesMutable()[dim];
      index.set(arith::AddIOp::create(b, op->getLoc(), index.get(), first));
    }
    if (!isa<vector::StepOp>(copy))
      return copy->getResult(0);
    Value start = vector::BroadcastOp::create(b, op->getLoc(), type, first);
    return arith::AddIOp::create(b, op->getLoc(), copy->getResult(0), start);
  }

  /// A reduction in a loop: the producer has few registers.
  LogicalResult copyReduction(vector::ReductionOp op, ArrayRef<Value> scalars, IRMapping &mapping,
                              Operation *user) {
    if (failed(copySlices(scalars, mapping, user)))
      return failure();
    Location at = op.getLoc();
    int64_t length = op.getVector().getType().getDimSize(0);
    auto index = [&](int64_t value) { return arith::ConstantIndexOp::create(b, at, value); };
    auto reduce = [&](Value first) -> Value {
      return vector::ReductionOp::create(b, at, op.getKind(),
                                         copyPiece(op.getVector(), first, kPiece, mapping));
    };
    Value start = reduce(index(0));
    auto loop = scf::ForOp::create(b, at, index(kPiece), index(length), index(kPiece), start);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value piece = reduce(loop.getInductionVar());
      Value both = vector::makeArithReduction(b, at, op.getKind(), loop.getRegionIterArg(0), piece);
      scf::YieldOp::create(b, at, both);
    }
    mapping.map(op.getResult(), loop.getResult(0));
    return success();
  }

  static bool hasReadOnly(Operation *op) {
    auto effects = dyn_cast<MemoryEffectOpInterface>(op);
    SmallVector<MemoryEffects::EffectInstance> all;
    if (effects)
      effects.getEffects(all);
    return effects && llvm::all_of(all, [](const MemoryEffects::EffectInstance &effect) {
             return isa<MemoryEffects::Read>(effect.getEffect());
           });
  }

  LogicalResult copySlices(ValueRange values, IRMapping &mapping, Operation *user) {
    for (Value value : values)
      if (failed(copySlice(value, mapping, user)))
        return failure();
    return success();
  }

  StringRef getHelper() const { return isAdder ? "adder" : "producer"; }

  /// Whether the helper does something in an op.
  bool hasSite(Operation *op) const {
    return op
        ->walk([&](Operation *inside) {
          return (isAdder ? isa<TileAddOp>(inside) : isa<tile::LoadOp>(inside))
                     ? WalkResult::interrupt()
                     : WalkResult::advance();
        })
        .wasInterrupted();
  }

  /// Adds a tile as a whole once all warpgroups have brought their parts.
  LogicalResult copyAddition(Addition &addition, IRMapping &mapping) {
    if (failed(copySlices(addition.indices, mapping, addition.op)))
      return failure();
    SmallVector<Value> indices;
    for (Value index : addition.indices)
      indices.push_back(mapping.lookupOrDefault(index));
    Location at = addition.op.getLoc();
    Value tile = hopper::ReceiveOp::create(b, at, addition.whole, addition.channel);
    if (adderFences)
      hopper::FenceAsyncOp::create(b, at);
    hopper::AddOp::create(b, at, tile, addition.memory, indices, /*first=*/Value());
    hopper::TmaWaitOp::create(b, at, 0, /*read=*/true);
    hopper::ReleaseOp::create(b, at, addition.channel);
    return success();
  }

  LogicalResult copySites(Block *from, IRMapping &mapping) {
    for (Operation &op : from->without_terminator()) {
      if (auto load = dyn_cast<tile::LoadOp>(op); load && !isAdder) {
        if (failed(copySlices(load.getIndices(), mapping, load)))
          return failure();
        SmallVector<Value> indices;
        for (Value index : load.getIndices())
          indices.push_back(mapping.lookupOrDefault(index));
        unsigned number = llvm::find(loads, load) - loads.begin();
        hopper::SendOp::create(b, load.getLoc(), load.getSource(), indices, channels[number],
                               /*marks=*/Value(), /*groups=*/Value(), /*some=*/Value());
        continue;
      }
      if (isAdder && isa<TileAddOp>(op)) {
        Addition *addition =
            llvm::find_if(additions, [&](const Addition &each) { return each.op == &op; });
        if (failed(copyAddition(*addition, mapping)))
          return failure();
        continue;
      }
      if (!hasSite(&op))
        continue;
      if (failed(copyNest(&op, mapping)))
        return failure();
    }
    return success();
  }

  LogicalResult copyNest(Operation *op, IRMapping &mapping) {
    OpBuilder::InsertionGuard guard(b);
    if (failed(copySlices(op->getOperands().take_front(isa<scf::IfOp>(op) ? 1 : 3), mapping, op)))
      return failure();
    auto at = [&](Value value) { return mapping.lookupOrDefault(value); };
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      auto copy = scf::ForOp::create(b, op->getLoc(), at(loop.getLowerBound()),
                                     at(loop.getUpperBound()), at(loop.getStep()));
      if (loop->hasAttr(hopper::kAddingAttr))
        copy->setAttr(hopper::kAddingAttr, b.getUnitAttr());
      IRMapping inside = mapping;
      inside.map(loop.getInductionVar(), copy.getInductionVar());
      b.setInsertionPointToStart(copy.getBody());
      return copySites(loop.getBody(), inside);
    }
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      bool hasElse = branch.elseBlock();
      auto copy =
          scf::IfOp::create(b, op->getLoc(), TypeRange(), at(branch.getCondition()), hasElse);
      IRMapping thenMapping = mapping, elseMapping = mapping;
      b.setInsertionPointToStart(copy.thenBlock());
      if (failed(copySites(branch.thenBlock(), thenMapping)))
        return failure();
      if (!hasElse)
        return success();
      b.setInsertionPointToStart(copy.elseBlock());
      return copySites(branch.elseBlock(), elseMapping);
    }
    return op->emitOpError("what is inside of this op cannot be moved to the ") << getHelper();
  }

  void createConsumers() {
    for (auto [load, channel] : llvm::zip_equal(loads, channels)) {
      Operation *last = findLastUse(load, load.getTile());
      b.setInsertionPointAfter(last);
      hopper::ReleaseOp::create(b, load.getLoc(), channel);
      b.setInsertionPoint(load);
      auto receive = hopper::ReceiveOp::create(b, load.getLoc(), load.getTile().getType(), channel);
      load.replaceAllUsesWith(receive.getTile());
      load.erase();
    }
    for (Addition &addition : additions)
      createSend(addition);
  }

  /// A warpgroup's part of a tile to the adder.
  void createSend(Addition &addition) {
    b.setInsertionPoint(addition.op);
    Location at = addition.op.getLoc();
    Value tile = hopper::AcquireOp::create(b, at, addition.whole, addition.channel);
    Value size = arith::ConstantIndexOp::create(
        b, at, addition.inRows ? addition.part.getRows() : addition.part.getColumns());
    Value first = arith::MulIOp::create(b, at, body->getArgument(0), size);
    Value part = addition.inRows
                     ? tile::RowsOp::create(b, at, addition.part, tile, first).getTile()
                     : tile::ColumnsOp::create(b, at, addition.part, tile, first).getTile();
    tile::WriteOp::create(b, at, addition.op.getValues(), part, /*transpose=*/false);
    if (!adderFences)
      hopper::FenceAsyncOp::create(b, at);
    hopper::CommitOp::create(b, at, addition.channel);
    addition.op->erase();
  }

  gpu::LaunchOp launch;
  hopper::RolesOp roles;
  Region *body; // of the role that computes
  int64_t producerRegisters, occupancy;
  bool adderFences, isAdder = false;
  OpBuilder b;
  Location loc;
  Value block;        // the number of the CTA
  int64_t warpgroups; // that compute
  SmallVector<tile::LoadOp> loads;
  SmallVector<Addition, 1> additions;
  SmallVector<Value> channels;
};

struct SpecializeWarpsPass : attn::impl::HopperSpecializeWarpsBase<SpecializeWarpsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (producerRegisters != 0 &&
        (producerRegisters < 24 || producerRegisters > 128 || producerRegisters % 8)) {
      getOperation().emitError() << "a producer has a multiple of 8 between 24 and 128 registers, "
                                    "or 0 for those of the table; got "
                                 << int64_t(producerRegisters);
      return signalPassFailure();
    }
    if (occupancy < 1 || occupancy > 4) {
      getOperation().emitError() << "1 to 4 CTAs share the registers of a multiprocessor, got "
                                 << int64_t(occupancy);
      return signalPassFailure();
    }
    SmallVector<std::pair<gpu::LaunchOp, hopper::RolesOp>> all;
    getOperation().walk([&](gpu::LaunchOp launch) {
      for (auto roles : launch.getBody().front().getOps<hopper::RolesOp>())
        if (roles.getBodies().size() == 1 && hopper::findComputeRole(roles))
          all.push_back({launch, roles});
    });
    for (auto [launch, roles] : all)
      if (failed(Specializer(launch, roles, producerRegisters, occupancy, adderFences).run()))
        return signalPassFailure();
  }
};

} // namespace
