// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The frame of a kernel: arguments, thread numbers, shared memory, and the
// dispatch over ops.

#include "Lowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

KernelLowering::KernelLowering(gpu::GPUFuncOp function, const VectorLayouts &layouts,
                               SharedMemory memory)
    : function(function), layouts(layouts), memory(std::move(memory)), carried(function),
      piece(findPiece(function)), group(findGroup(function)), registers{group.rowsOfWarp() / 8},
      capability(findCapability(function)), b(function.getLoc(), function.getContext()),
      syncedArrivals(findSyncedArrivals(function)) {}

Group attn::hopper::findGroup(gpu::GPUFuncOp function) {
  Group group;
  std::optional<ArrayRef<int32_t>> size = function.getKnownBlockSize();
  function.walk([&](RolesOp op) {
    if (size)
      group.warps = (*size)[0] / op.getNumWarpgroups() / 32;
  });
  return group;
}

int64_t attn::hopper::findCapability(gpu::GPUFuncOp function) {
  int64_t capability = target::sm90::kCapability;
  ArrayAttr targets = function->getParentOfType<gpu::GPUModuleOp>().getTargetsAttr();
  for (Attribute each : targets ? targets.getValue() : ArrayRef<Attribute>())
    if (auto target = dyn_cast<NVVM::NVVMTargetAttr>(each)) {
      StringRef chip = target.getChip();
      chip.consume_front("sm_");
      chip.consumeInteger(10, capability);
    }
  return capability;
}

LogicalResult KernelLowering::run() {
  Region old;
  old.takeBody(function.getBody());
  entry = &function.getBody().emplaceBlock();
  b.setInsertionPointToStart(entry);
  SmallVector<Type> types;
  SmallVector<int64_t> maps;
  int64_t parameter = 0; // number after memrefs have become their descriptors
  for (Value argument : old.getArguments()) {
    Type type = argument.getType();
    if (isa<TensorMapType>(type)) {
      maps.push_back(parameter);
      type = LLVM::LLVMPointerType::get(b.getContext());
    }
    auto memref = dyn_cast<MemRefType>(type);
    parameter += memref ? 3 + 2 * memref.getRank() : 1;
    types.push_back(type);
    setScalar(argument, entry->addArgument(type, argument.getLoc()));
  }
  function.setFunctionType(b.getFunctionType(types, {}));
  function->setAttr(kTensorMapsAttr, b.getDenseI64ArrayAttr(maps));
  emitPrologue(old);
  LogicalResult result = lowerBlock(old.front());
  if (succeeded(result))
    gpu::ReturnOp::create(b);
  old.dropAllReferences();
  return result;
}

/// Thread numbers and the base of shared memory.
void KernelLowering::emitPrologue(Region &body) {
  Type i32 = b.getI32Type();
  auto shifted = [&](Value x, int64_t by) -> Value {
    return arith::ShRUIOp::create(b, x, constantI32(by));
  };
  auto masked = [&](Value x, int64_t mask) -> Value {
    return arith::AndIOp::create(b, x, constantI32(mask));
  };
  Value thread = NVVM::ThreadIdXOp::create(b, i32, LLVM::ConstantRangeAttr());
  lane = masked(thread, 31);
  // By a shuffle, so that what depends on it is known to be uniform in a warp.
  Value warpOfCta =
      NVVM::ShflOp::create(b, i32, constantI32(-1), shifted(thread, 5), constantI32(0),
                           constantI32(31), NVVM::ShflKind::idx, UnitAttr());
  warpgroup = shifted(warpOfCta, llvm::Log2_64(uint64_t(group.warps)));
  warp = masked(warpOfCta, group.warps - 1);
  auto equal = [&](Value x, int64_t to) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, constantI32(to));
  };
  isLane0 = equal(lane, 0);
  isLeader = equal(masked(thread, group.threads() - 1), 0);
  auto index = [&](Value x) -> Value {
    return arith::IndexCastUIOp::create(b, b.getIndexType(), x);
  };
  Value row = arith::AddIOp::create(
      b, arith::MulIOp::create(b, warp, constantI32(group.rowsOfWarp())), shifted(lane, 2));
  firstRow = index(row);
  firstColumn = index(arith::MulIOp::create(b, masked(lane, 3), constantI32(piece)));
  auto needsCluster = [](Operation *op) {
    bool needs = isa<ClusterSyncOp>(op) ||
                 (isa<TmaLoadOp>(op) && cast<TmaLoadOp>(op).getMulticast()) ||
                 (isa<MBarrierArriveOp>(op) && cast<MBarrierArriveOp>(op).getCluster()) ||
                 (isa<MBarrierOp>(op) && cast<MBarrierOp>(op).getCluster());
    return needs ? WalkResult::interrupt() : WalkResult::advance();
  };
  if (body.walk(needsCluster).wasInterrupted())
    clusterSize = NVVM::ClusterDimBlocksXOp::create(b, i32, LLVM::ConstantRangeAttr());
  if (memory.bytes) {
    auto pointer =
        LLVM::LLVMPointerType::get(b.getContext(), unsigned(NVVM::NVVMMemorySpace::Shared));
    Value base = LLVM::AddressOfOp::create(b, pointer, "hopper_shared_memory");
    sharedBase = LLVM::PtrToIntOp::create(b, i32, base);
    emitBarrierInitialization(body);
  }
  // A kernel with roles has few CTAs, and much to do before they touch memory; in one with a CTA
  // for each tile, if these are many, the wait costs more than it hides.
  constexpr int64_t kFewBlocks = 512, kAllBlocks = std::numeric_limits<int32_t>::max();
  auto hasRoles = [](RolesOp op) {
    return op.getBodies().size() > 1 ? WalkResult::interrupt() : WalkResult::advance();
  };
  isRare = runsRarely(body.front());
  multipliesByWarps =
      body.walk([](tile::MmaOp) { return WalkResult::interrupt(); }).wasInterrupted();
  emitGridWait(body.walk(hasRoles).wasInterrupted() ? kAllBlocks : kFewBlocks);
  clearReports(body);
}

/// With up to `blocks` of them, the kernel is launched while those before it in the stream end, and
/// waits here until they have. Not by NVVM's op: LLVM would move accesses to memory in front of it.
void KernelLowering::emitGridWait(int64_t blocks) {
  if (capability < 90)
    return;
  // What is behind a kernel that ends at once in most calls need not wait for its start.
  if (isRare)
    inlineAsm(Type(), {}, "griddepcontrol.launch_dependents;", "~{memory}", /*sideEffects=*/true);
  inlineAsm(Type(), {}, "griddepcontrol.wait;", "~{memory}", /*sideEffects=*/true);
  function->setAttr(kEarlyAttr, b.getI64IntegerAttr(blocks));
}

/// One thread initialises all mbarriers, before any role starts.
void KernelLowering::emitBarrierInitialization(Region &body) {
  SmallVector<MBarrierOp> barriers;
  body.walk([&](MBarrierOp op) { barriers.push_back(op); });
  if (barriers.empty())
    return;
  inFirstThread([&] {
    for (Value argument : body.getArguments())
      if (isa<TensorMapType>(argument.getType()))
        NVVM::PrefetchOp::create(b, NVVM::PrefetchCacheLevelAttr(),
                                 NVVM::CacheEvictionPriorityAttr(), scalar(argument), Value(),
                                 /*tensormap=*/b.getUnitAttr(), UnitAttr(), UnitAttr());
    for (MBarrierOp op : barriers) {
      Value result = op.getBarriers();
      Value count = constantI32(op.getArrivals() * (memory.perWarp[result] ? group.warps : 1));
      if (op.getCluster())
        count = arith::MulIOp::create(b, count, clusterSize);
      for (int64_t i = 0; i < op.getBarriers().getType().getDepth(); ++i)
        NVVM::MBarrierInitOp::create(b, sharedPointer(sharedBase, memory.offsets[result] + 8 * i),
                                     count, Value());
    }
    NVVM::FenceMbarrierInitOp::create(b);
  });
  if (!clusterSize)
    return void(gpu::BarrierOp::create(b));
  NVVM::ClusterArriveOp::create(b, b.getUnitAttr());
  NVVM::ClusterWaitOp::create(b, b.getUnitAttr());
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

const Parts &KernelLowering::parts(Value value, Layout layout) const {
  auto it = map.find({value, unsigned(layout)});
  assert(it != map.end() && "a value is lowered before its uses");
  return it->second;
}

void KernelLowering::setParts(Value value, Layout layout, Parts parts) {
  map[{value, unsigned(layout)}] = std::move(parts);
}

void KernelLowering::flattenAs(Value value, Value like, SmallVectorImpl<Value> &to) {
  for (Layout layout : layouts.of(like)) {
    const Parts &from = parts(value, layout);
    for (size_t e = 0; e < from.values.size(); ++e)
      to.push_back(element(from, e));
  }
  if (carried.narrow.contains(like))
    to.back() = toI32(to.back());
}

void KernelLowering::flattenTypes(Value value, SmallVectorImpl<Type> &to) const {
  Type type = value.getType(), i32 = IntegerType::get(type.getContext(), 32);
  if (auto pending = dyn_cast<PendingType>(type)) {
    to.append(elementsPerThread(pending.getTile(), Layout::Tile),
              pending.getTile().getElementType());
    return;
  }
  auto vector = dyn_cast<VectorType>(type);
  if (!vector) {
    bool isWord = isa<tile::SmemType, MBarrierType>(type) || carried.narrow.contains(value);
    to.push_back(isWord ? i32 : type);
    return;
  }
  for (Layout layout : layouts.of(value)) {
    bool packed = isPacked(vector, layout);
    Type part =
        packed ? Type(VectorType::get(2, vector.getElementType())) : vector.getElementType();
    to.append(elementsPerThread(vector, layout) / (packed ? 2 : 1), part);
  }
}

void KernelLowering::bind(Value value, ValueRange &from) {
  auto take = [&](size_t count) {
    Parts parts(from.take_front(count));
    from = from.drop_front(count);
    return parts;
  };
  if (auto pending = dyn_cast<PendingType>(value.getType()))
    return setParts(value, Layout::Scalar,
                    take(elementsPerThread(pending.getTile(), Layout::Tile)));
  auto vector = dyn_cast<VectorType>(value.getType());
  if (carried.narrow.contains(value))
    return setScalar(value,
                     arith::IndexCastOp::create(b, b.getIndexType(), take(1).values.front()));
  if (!vector)
    return setParts(value, Layout::Scalar, take(1));
  for (Layout layout : layouts.of(value))
    setParts(value, layout,
             take(elementsPerThread(vector, layout) / (isPacked(vector, layout) ? 2 : 1)));
}

Value KernelLowering::constant(TypedAttr attribute) {
  Value &value = constants[attribute];
  if (!value) {
    // At the top of the kernel, so that every use is dominated.
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(entry);
    value = arith::ConstantOp::create(b, attribute);
  }
  return value;
}

Value KernelLowering::element(const Parts &parts, size_t e) {
  if (parts.offset(e) == 0)
    return parts.values[e];
  return arith::AddIOp::create(b, parts.values[e], constantIndex(parts.offset(e)));
}

Value KernelLowering::toI32(Value index) {
  return arith::IndexCastOp::create(b, b.getI32Type(), index);
}

SmallVector<Value> KernelLowering::unpack(const Parts &parts) {
  SmallVector<Value> values;
  for (Value pair : parts.values)
    for (int64_t i : {0, 1})
      values.push_back(vector::ExtractOp::create(b, pair, i));
  return values;
}

Parts KernelLowering::pack(ArrayRef<Value> values) {
  Parts parts;
  auto type = VectorType::get(2, values.front().getType());
  for (size_t i = 0; i < values.size(); i += 2)
    parts.values.push_back(vector::FromElementsOp::create(b, type, values.slice(i, 2)));
  return parts;
}

SmallVector<Value> KernelLowering::elements(Value value, Layout layout) {
  const Parts &from = parts(value, layout);
  auto type = dyn_cast<VectorType>(value.getType());
  if (type && isPacked(type, layout))
    return unpack(from);
  SmallVector<Value> values;
  for (size_t e = 0; e < from.values.size(); ++e)
    values.push_back(element(from, e));
  return values;
}

Value KernelLowering::addI32(Value value, int64_t constant) {
  return constant == 0 ? value : arith::AddIOp::create(b, value, constantI32(constant));
}

Value KernelLowering::sharedPointer(Value address, int64_t offset) {
  auto pointer =
      LLVM::LLVMPointerType::get(b.getContext(), unsigned(NVVM::NVVMMemorySpace::Shared));
  return LLVM::IntToPtrOp::create(b, pointer, addI32(address, offset));
}

Value KernelLowering::inlineAsm(Type result, ValueRange operands, const Twine &text,
                                const Twine &constraints, bool sideEffects) {
  auto op = LLVM::InlineAsmOp::create(
      b, result ? TypeRange(result) : TypeRange(), operands, b.getStringAttr(text),
      b.getStringAttr(constraints), sideEffects ? b.getUnitAttr() : UnitAttr(), UnitAttr(),
      LLVM::TailCallKindAttr::get(b.getContext(), LLVM::TailCallKind::None),
      LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
  return result ? op.getResult(0) : Value();
}

void KernelLowering::inFirstThread(function_ref<void()> emit) {
  Value isFirst = arith::AndIOp::create(
      b, isLeader, arith::CmpIOp::create(b, arith::CmpIPredicate::eq, warpgroup, constantI32(0)));
  auto branch = scf::IfOp::create(b, isFirst);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  emit();
}

void KernelLowering::inLeader(function_ref<void()> emit) {
  if (singleThread)
    return emit();
  auto branch = scf::IfOp::create(b, isLeader);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  emit();
}

//===----------------------------------------------------------------------===//
// Dispatch
//===----------------------------------------------------------------------===//

LogicalResult KernelLowering::lowerBlock(Block &block) {
  for (Operation &op : block) {
    if (isa<gpu::ReturnOp, YieldOp, scf::YieldOp, scf::ConditionOp>(op))
      continue; // by the parent
    b.setLoc(op.getLoc());
    if (failed(lower(&op)))
      return failure();
  }
  return success();
}

LogicalResult KernelLowering::lowerHopperOp(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](ClusterSyncOp) { return lowerClusterSync(), success(); })
      .Case([&](RolesOp op) { return lowerRoles(op); })
      .Case([&](tile::WriteOp op) { return lowerTileWrite(op); })
      .Case([&](tile::ReadOp op) { return lowerTileRead(op), success(); })
      .Case<AllocOp, MBarrierOp>([&](auto op) {
        Value result = op->getResult(0);
        setScalar(result, addI32(sharedBase, memory.offsets[result]));
        return success();
      })
      .Case([&](SlotOp op) { return lowerSlot(op), success(); })
      .Case([&](tile::CopyOp op) { return lowerTileCopy(op); })
      .Case([&](tile::CommitOp) {
        NVVM::CpAsyncCommitGroupOp::create(b);
        return success();
      })
      .Case([&](tile::WarpSyncOp) {
        NVVM::SyncWarpOp::create(b, constantI32(-1));
        return success();
      })
      .Case([&](tile::AwaitOp op) { return lowerAwait(op), success(); })
      .Case([&](tile::MmaOp op) { return lowerMma(op); })
      .Case([&](tile::RowsOp op) { return lowerRows(op), success(); })
      .Case([&](tile::ColumnsOp op) { return lowerColumns(op), success(); })
      .Case([&](MBarrierExpectOp op) { return lowerExpect(op), success(); })
      .Case([&](MBarrierArriveOp op) { return lowerArrive(op), success(); })
      .Case([&](MBarrierWaitOp op) { return lowerMBarrierWait(op), success(); })
      .Case([&](TmaLoadOp op) { return lowerTmaLoad(op), success(); })
      .Case<TmaStoreOp, TmaReduceOp>([&](auto op) { return lowerTmaStore(op), success(); })
      .Case([&](TmaWaitOp op) { return lowerTmaWait(op), success(); })
      .Case([&](SemaphoreWaitOp op) { return lowerSemaphoreWait(op); })
      .Case([&](SemaphorePeekOp op) { return lowerSemaphorePeek(op); })
      .Case([&](SemaphoreFirstTouchOp op) { return lowerFirstTouch(op); })
      .Case([&](SemaphoreReleaseOp op) { return lowerSemaphoreRelease(op); })
      .Case<BarrierSyncOp, BarrierArriveOp>(
          [&](auto op) { return lowerNamedBarrier(op), success(); })
      .Case([&](BarrierReduceOp op) { return lowerBarrierReduce(op), success(); })
      .Case([&](ReportOp op) { return lowerReport(op), success(); })
      .Case([&](RedoOp op) { return lowerRedo(op), success(); })
      .Case([&](RunIfOp op) { return lowerRunIf(op), success(); })
      .Case([&](WgmmaOp op) { return lowerWgmma(op), success(); })
      .Case([&](WaitOp op) { return lowerWait(op), success(); })
      .Case([&](FenceAsyncOp op) {
        if (capability < 90) // which has no other proxy
          return success();
        NVVM::FenceProxyOp::create(
            b, NVVM::ProxyKindAttr::get(b.getContext(), NVVM::ProxyKind::async_shared),
            NVVM::SharedSpaceAttr::get(b.getContext(), NVVM::SharedSpace::shared_cta));
        return success();
      })
      .Default([](Operation *op) {
        return op->emitOpError("is not of the protocol form: lower channels and tiles first");
      });
}

LogicalResult KernelLowering::lowerVectorOp(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](arith::ConstantOp op) { return lowerConstant(op); })
      .Case([&](vector::BroadcastOp op) { return lowerBroadcast(op); })
      .Case([&](vector::TransposeOp op) { return lowerTranspose(op); })
      .Case([&](vector::ShapeCastOp op) { return lowerShapeCast(op); })
      .Case([&](vector::ExtractStridedSliceOp op) { return lowerSlice(op); })
      .Case([&](vector::StepOp op) { return lowerStep(op); })
      .Case([&](vector::MultiDimReductionOp op) { return lowerMultiReduction(op); })
      .Case([&](vector::ReductionOp op) { return lowerReduction(op); })
      .Case([&](vector::TransferReadOp op) { return lowerRead(op); })
      .Case([&](vector::TransferWriteOp op) { return lowerWrite(op); })
      .Case([&](TileAddOp op) { return lowerAdd(op); })
      .Case([&](ScatterAddOp op) { return lowerScatter(op); })
      .Case([&](vector::GatherOp op) { return lowerGather(op); })
      .Case([&](vector::LoadOp op) { return lowerVectorLoad(op); })
      .Case([&](vector::StoreOp op) { return lowerVectorStore(op); })
      .Default([](Operation *op) {
        return op->emitOpError("is not supported on tiles of a warpgroup");
      });
}

LogicalResult KernelLowering::lower(Operation *op) {
  if (isa_and_nonnull<HopperDialect, tile::TileDialect>(op->getDialect()))
    return lowerHopperOp(op);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return lowerFor(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return lowerIf(branch);
  if (auto loop = dyn_cast<scf::WhileOp>(op))
    return lowerWhile(loop);
  if (op->getNumRegions() || op->getNumSuccessors())
    return op->emitOpError("is not supported in a kernel: expects scf.for, scf.if and scf.while");
  if (op->hasTrait<OpTrait::Elementwise>() && op->getNumResults() == 1)
    return lowerElementwise(op);
  auto isVector = [](Type type) { return isa<VectorType>(type); };
  if (llvm::any_of(op->getOperandTypes(), isVector) || llvm::any_of(op->getResultTypes(), isVector))
    return lowerVectorOp(op);
  if (isa<memref::AtomicRMWOp>(op) && !singleThread)
    return op->emitOpError("expects a role of one thread: its result would differ in each thread");
  // Scalars: every thread does the same.
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, scalar(operand));
  Operation *clone = b.clone(*op, mapping);
  for (auto [result, to] : llvm::zip_equal(op->getResults(), clone->getResults()))
    setScalar(result, to);
  return success();
}
