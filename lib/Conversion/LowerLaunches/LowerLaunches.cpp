// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host side of a CUDA program: launches, tensor maps and workspaces become
// calls of the runtime (attn/Runtime/CudaHostInterface.h), whose first argument
// is the call that is going on.

#include "PtxKernels.h"
#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace attn {
#define GEN_PASS_DEF_ATTNLOWERLAUNCHES
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;
using attn::hopper::TensorMapOp;
using attn::hopper::TensorMapType;
using attn::hopper::TmaReachesOp;
using attn::tile::SmemType;

static attn::Done numLowered("attn-lower-launches", "lowered",
                             "Launches that became calls of the runtime");

namespace {
/// Of CUtensorMap.
constexpr int64_t tensorMapBytes = 128;

struct LowerLaunches : attn::impl::AttnLowerLaunchesBase<LowerLaunches> {
  void runOnOperation() override;

private:
  LogicalResult checkHostOps(func::FuncOp function);
  void addContexts(ArrayRef<func::FuncOp> functions);
  LogicalResult lower(func::FuncOp function);

  LogicalResult lowerLaunch(gpu::LaunchFuncOp launch);
  LogicalResult lowerAlloc(memref::AllocOp alloc);
  LogicalResult lowerDealloc(memref::DeallocOp dealloc);
  void lowerTensorMap(TensorMapOp map);
  void lowerReaches(TmaReachesOp op);
  /// The position of the launch's kernel in `kernels`, and its parameters.
  FailureOr<SmallVector<attn::PtxParameter>> findKernel(gpu::LaunchFuncOp launch, int32_t &index);
  /// The values that a kernel operand is passed as.
  FailureOr<SmallVector<Value>> expand(OpBuilder &b, gpu::LaunchFuncOp launch, Value operand);

  func::FuncOp runtime(StringRef name, TypeRange inputs, TypeRange results);
  void call(OpBuilder &b, Location loc, StringRef name, ValueRange arguments);
  /// Memory in the frame of the function that `b` is in.
  Value allocate(OpBuilder &b, Location loc, Type type, int64_t count, unsigned alignment = 0);
  void store(OpBuilder &b, Location loc, Value value, Value base, Type element, int32_t position);
  /// An array of i64 in the frame.
  Value makeArray(OpBuilder &b, Location loc, ValueRange values);

  std::pair<Value, Value> getRoom(OpBuilder &b, Location loc, Value memref);

  Value context(Operation *op) { return op->getParentOfType<func::FuncOp>().getArgument(0); }
  LLVM::LLVMPointerType pointer() { return LLVM::LLVMPointerType::get(&getContext()); }

  SmallVector<Attribute> kernels;
};

bool isDeviceOp(Operation *op) {
  return isa<gpu::LaunchFuncOp, memref::AllocOp, memref::DeallocOp, TensorMapOp, TmaReachesOp>(op);
}

Value toI64(OpBuilder &b, Location loc, Value value) {
  if (value.getType().isIndex())
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), value);
  return arith::ExtSIOp::create(b, loc, b.getI64Type(), value);
}

Value constant(OpBuilder &b, Location loc, int32_t value) {
  return arith::ConstantIntOp::create(b, loc, value, 32);
}

/// The argument of the function that the memref is (a view of), or -1.
int32_t findArgument(Value memref) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  auto argument = dyn_cast<BlockArgument>(memref);
  if (!argument || !isa<func::FuncOp>(argument.getOwner()->getParentOp()))
    return -1;
  return int32_t(argument.getArgNumber()) - 1; // after the context
}
} // namespace

//===----------------------------------------------------------------------===//
// What the host may do
//===----------------------------------------------------------------------===//

LogicalResult LowerLaunches::checkHostOps(func::FuncOp function) {
  WalkResult result = function.walk([&](Operation *op) {
    if (op == function || isDeviceOp(op) || isa<func::ReturnOp>(op))
      return WalkResult::advance();
    if (auto call = dyn_cast<func::CallOp>(op)) {
      auto callee = getOperation().lookupSymbol<func::FuncOp>(call.getCallee());
      if (callee && !callee.isDeclaration())
        return WalkResult::advance();
      if (llvm::none_of(call.getOperandTypes(), llvm::IsaPred<BaseMemRefType>))
        return WalkResult::advance();
    }
    if (isa<memref::GetGlobalOp>(op)) {
      op->emitOpError("names memory of the host, which no kernel can read");
      return WalkResult::interrupt();
    }
    // Ops with regions are as good as what is in them, unless they say more.
    auto effects = dyn_cast<MemoryEffectOpInterface>(op);
    if (effects ? effects.hasNoEffect() : op->hasTrait<OpTrait::HasRecursiveMemoryEffects>())
      return WalkResult::advance();
    op->emitOpError("did not become part of a kernel, and the host cannot "
                    "reach the memory of the device");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

void LowerLaunches::addContexts(ArrayRef<func::FuncOp> functions) {
  for (func::FuncOp function : functions) {
    (void)function.insertArgument(0, pointer(), {}, function.getLoc());
    if (function.isPublic())
      function->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(), UnitAttr::get(&getContext()));
    function.walk([&](func::CallOp call) {
      auto callee = getOperation().lookupSymbol<func::FuncOp>(call.getCallee());
      if (callee && !callee.isDeclaration())
        call->insertOperands(0, function.getArgument(0));
    });
  }
}

//===----------------------------------------------------------------------===//
// Pieces of host code
//===----------------------------------------------------------------------===//

func::FuncOp LowerLaunches::runtime(StringRef name, TypeRange inputs, TypeRange results) {
  if (auto known = getOperation().lookupSymbol<func::FuncOp>(name))
    return known;
  OpBuilder b = OpBuilder::atBlockBegin(getOperation().getBody());
  auto function =
      func::FuncOp::create(b, getOperation().getLoc(), name, b.getFunctionType(inputs, results));
  function.setPrivate();
  return function;
}

void LowerLaunches::call(OpBuilder &b, Location loc, StringRef name, ValueRange arguments) {
  func::CallOp::create(b, loc, runtime(name, arguments.getTypes(), {}), arguments);
}

Value LowerLaunches::allocate(OpBuilder &b, Location loc, Type type, int64_t count,
                              unsigned alignment) {
  // In the entry block, so that a surrounding loop does not grow the stack.
  OpBuilder::InsertionGuard guard(b);
  auto function = b.getInsertionBlock()->getParentOp()->getParentOfType<func::FuncOp>();
  if (!function)
    function = cast<func::FuncOp>(b.getInsertionBlock()->getParentOp());
  b.setInsertionPointToStart(&function.getBody().front());
  Value size = LLVM::ConstantOp::create(b, loc, b.getI64IntegerAttr(count));
  return LLVM::AllocaOp::create(b, loc, pointer(), type, size, alignment);
}

void LowerLaunches::store(OpBuilder &b, Location loc, Value value, Value base, Type element,
                          int32_t position) {
  Value address =
      LLVM::GEPOp::create(b, loc, pointer(), element, base, ArrayRef<LLVM::GEPArg>{position});
  LLVM::StoreOp::create(b, loc, value, address);
}

Value LowerLaunches::makeArray(OpBuilder &b, Location loc, ValueRange values) {
  Value array = allocate(b, loc, b.getI64Type(), std::max<int64_t>(values.size(), 1));
  for (auto [position, value] : llvm::enumerate(values))
    store(b, loc, toI64(b, loc, value), array, b.getI64Type(), int32_t(position));
  return array;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Where a memref starts, and its bytes if no others are between them, else 0, i64.
std::pair<Value, Value> LowerLaunches::getRoom(OpBuilder &b, Location loc, Value memref) {
  auto index = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(b, loc, value);
  };
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, loc, x, y); };
  auto multiply = [&](Value x, Value y) -> Value { return arith::MulIOp::create(b, loc, x, y); };
  auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, memref);
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  Value bytes = index(attn::tile::getElementBytes(element));
  Value count = index(1), last = index(0), least = index(0);
  for (auto [size, stride] : llvm::zip_equal(metadata.getSizes(), metadata.getStrides())) {
    count = multiply(count, size);
    last = add(last, multiply(arith::SubIOp::create(b, loc, size, index(1)), stride));
    least = arith::MinSIOp::create(b, loc, least, stride);
  }
  // No two elements are in one place.
  auto isEqual = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, y);
  };
  Value isDense =
      arith::AndIOp::create(b, loc, isEqual(add(last, index(1)), count), isEqual(least, index(0)));
  Value room = arith::SelectOp::create(b, loc, isDense, multiply(count, bytes), index(0));
  Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, memref);
  start = add(start, multiply(metadata.getOffset(), bytes));
  return {toI64(b, loc, start), toI64(b, loc, room)};
}

LogicalResult LowerLaunches::lowerAlloc(memref::AllocOp alloc) {
  MemRefType type = alloc.getType();
  if (!type.getLayout().isIdentity() || type.getMemorySpace())
    return alloc.emitOpError("expected a workspace of identity layout in the "
                             "default memory space, got ")
           << type;
  OpBuilder b(alloc);
  Location loc = alloc.getLoc();
  uint64_t elementBytes = DataLayout::closest(alloc).getTypeSize(type.getElementType());
  Value bytes = arith::ConstantIndexOp::create(b, loc, int64_t(elementBytes));
  auto dynamic = alloc.getDynamicSizes().begin();
  for (int64_t size : type.getShape()) {
    Value factor =
        ShapedType::isDynamic(size) ? *dynamic++ : arith::ConstantIndexOp::create(b, loc, size);
    bytes = arith::MulIOp::create(b, loc, bytes, factor);
  }
  Value bytes64 = toI64(b, loc, bytes);
  SmallVector<Value> arguments = {context(alloc), bytes64};
  StringRef name = "attnCudaAllocate";
  if (auto aliases = alloc->getAttrOfType<IntegerAttr>(attn::hopper::kAliasesAttr)) {
    name = "attnCudaAllocateAliasing";
    FailureOr<Value> argument = attn::hopper::findAliased(alloc, aliases, /*first=*/1);
    if (failed(argument))
      return failure();
    arguments.push_back(constant(b, loc, int32_t(aliases.getInt())));
    auto [start, room] = getRoom(b, loc, *argument);
    llvm::append_values(arguments, start, room);
  }
  auto function = runtime(name, ValueRange(arguments).getTypes(), {pointer()});
  Value data = func::CallOp::create(b, loc, function, arguments).getResult(0);
  // A memref of bytes from the pointer, and a view of it.
  LLVMTypeConverter converter(&getContext());
  auto byteType = MemRefType::get({ShapedType::kDynamic}, IntegerType::get(&getContext(), 8));
  auto descriptor = MemRefDescriptor::poison(b, loc, converter.convertType(byteType));
  descriptor.setAllocatedPtr(b, loc, data);
  descriptor.setAlignedPtr(b, loc, data);
  descriptor.setConstantOffset(b, loc, 0);
  descriptor.setSize(b, loc, 0, bytes64);
  descriptor.setConstantStride(b, loc, 0, 1);
  Value raw = UnrealizedConversionCastOp::create(b, loc, byteType, Value(descriptor)).getResult(0);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value view = memref::ViewOp::create(b, loc, type, raw, zero, alloc.getDynamicSizes());
  alloc.replaceAllUsesWith(view);
  alloc.erase();
  return success();
}

LogicalResult LowerLaunches::lowerDealloc(memref::DeallocOp dealloc) {
  if (!isa<MemRefType>(dealloc.getMemref().getType()))
    return dealloc.emitOpError("expected a ranked memref, got ") << dealloc.getMemref().getType();
  OpBuilder b(dealloc);
  Location loc = dealloc.getLoc();
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, dealloc.getMemref());
  call(b, loc, "attnCudaFree", {context(dealloc), toI64(b, loc, address)});
  dealloc.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Tensor maps
//===----------------------------------------------------------------------===//

void LowerLaunches::lowerTensorMap(TensorMapOp map) {
  OpBuilder b(map);
  Location loc = map.getLoc();
  SmemType tile = map.getMap().getType().getTile();
  Type element = tile.getElementType();
  // As in CudaHostInterface.h.
  int32_t kind = element.isF16() ? 0 : element.isBF16() ? 1 : 2;
  Value source = map.getSource();
  auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, source);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, source);
  Value bytes = arith::ConstantIndexOp::create(b, loc, attn::tile::getElementBytes(element));
  Value offset = arith::MulIOp::create(b, loc, metadata.getOffset(), bytes);
  Value first = arith::AddIOp::create(b, loc, address, offset);
  Value slot = allocate(b, loc, b.getI8Type(), tensorMapBytes, tensorMapBytes);
  int64_t rank = cast<MemRefType>(source.getType()).getRank();
  call(b, loc, "attnCudaTensorMap",
       {context(map), slot, constant(b, loc, findArgument(source)), constant(b, loc, kind),
        constant(b, loc, int32_t(rank)), toI64(b, loc, first),
        makeArray(b, loc, metadata.getSizes()), makeArray(b, loc, metadata.getStrides()),
        constant(b, loc, int32_t(tile.getRows())), constant(b, loc, int32_t(tile.getSlabColumns())),
        constant(b, loc, int32_t(tile.getSwizzle()))});
  // Launches look through the cast.
  auto cast = UnrealizedConversionCastOp::create(b, loc, map.getType(), slot);
  map.replaceAllUsesWith(cast.getResult(0));
  map.erase();
}

/// What Call::encode demands.
void LowerLaunches::lowerReaches(TmaReachesOp op) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  auto index = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, value); };
  Value source = op.getSource();
  auto type = cast<MemRefType>(source.getType());
  Value bytes = index(attn::tile::getElementBytes(type.getElementType()));
  auto metadata = memref::ExtractStridedMetadataOp::create(b, source);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, source);
  Value offset = arith::MulIOp::create(b, metadata.getOffset(), bytes);
  Value bits = arith::AddIOp::create(b, address, offset);
  Value inRange = arith::ConstantIntOp::create(b, 1, 1);
  for (int64_t dim = 0; dim + 1 < type.getRank(); ++dim) {
    Value stride = arith::MulIOp::create(b, metadata.getStrides()[dim], bytes);
    Value isOne =
        arith::CmpIOp::create(b, arith::CmpIPredicate::eq, metadata.getSizes()[dim], index(1));
    stride = arith::SelectOp::create(b, isOne, index(16), stride);
    bits = arith::OrIOp::create(b, bits, stride);
    // From 1 to 2^40 - 1.
    Value isUsual = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                          arith::SubIOp::create(b, stride, index(1)),
                                          index((int64_t(1) << 40) - 1));
    inRange = arith::AndIOp::create(b, inRange, isUsual);
  }
  Value rest = arith::AndIOp::create(b, bits, index(15));
  Value isAligned = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, rest, index(0));
  op.replaceAllUsesWith(arith::AndIOp::create(b, isAligned, inRange).getResult());
  op.erase();
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

FailureOr<SmallVector<attn::PtxParameter>> LowerLaunches::findKernel(gpu::LaunchFuncOp launch,
                                                                     int32_t &index) {
  auto binary = getOperation().lookupSymbol<gpu::BinaryOp>(launch.getKernelModuleName());
  gpu::ObjectAttr object;
  if (binary && binary.getObjects().size() == 1)
    object = cast<gpu::ObjectAttr>(binary.getObjects()[0]);
  if (!object || object.getFormat() != gpu::CompilationTarget::Assembly)
    return launch.emitOpError("expected '")
           << launch.getKernelModuleName().getValue()
           << "' to be a gpu.binary with PTX (gpu-module-to-binary{format=isa})";
  auto parameters = attn::findPtxKernel(object.getObject().getValue(), launch.getKernelName());
  if (!parameters)
    return launch.emitOpError("expected the PTX of '")
           << launch.getKernelModuleName().getValue() << "' to have an entry '"
           << launch.getKernelName().getValue() << "'";
  auto known = llvm::find(kernels, launch.getKernel());
  index = int32_t(known - kernels.begin());
  if (known == kernels.end())
    kernels.push_back(launch.getKernel());
  return *parameters;
}

FailureOr<SmallVector<Value>> LowerLaunches::expand(OpBuilder &b, gpu::LaunchFuncOp launch,
                                                    Value operand) {
  Location loc = launch.getLoc();
  Type type = operand.getType();
  if (isa<TensorMapType>(type)) {
    auto cast = operand.getDefiningOp<UnrealizedConversionCastOp>();
    if (!cast)
      return launch.emitOpError("expected a tensor map to come from hopper.tensor_map directly");
    return SmallVector<Value>{cast.getOperand(0)};
  }
  if (isa<IndexType, IntegerType, FloatType>(type))
    return SmallVector<Value>{operand};
  if (!isa<MemRefType>(type))
    return launch.emitOpError("cannot pass ") << type << " to a kernel";
  auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, operand);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, operand);
  SmallVector<Value> values = {address, address, metadata.getOffset()};
  llvm::append_range(values, metadata.getSizes());
  llvm::append_range(values, metadata.getStrides());
  return values;
}

LogicalResult LowerLaunches::lowerLaunch(gpu::LaunchFuncOp launch) {
  if (launch.getAsyncToken() || !launch.getAsyncDependencies().empty() || launch.getAsyncObject())
    return launch.emitOpError("expected a launch without tokens or streams of "
                              "its own: the caller gives the stream");
  int32_t index;
  auto parameters = findKernel(launch, index);
  if (failed(parameters))
    return failure();
  numLowered.at(launch) << remark::metric("Parameters", parameters->size());
  OpBuilder b(launch);
  Location loc = launch.getLoc();
  SmallVector<Value> values;
  for (Value operand : launch.getKernelOperands()) {
    auto expanded = expand(b, launch, operand);
    if (failed(expanded))
      return failure();
    llvm::append_range(values, *expanded);
  }
  if (values.size() != parameters->size())
    return launch.emitOpError("passes ")
           << values.size() << " values, but the kernel takes " << parameters->size();

  Value slots = allocate(b, loc, pointer(), std::max<int64_t>(values.size(), 1));
  for (auto [position, pair] : llvm::enumerate(llvm::zip(values, *parameters))) {
    auto [value, parameter] = pair;
    Value slot = value;
    if (parameter.isStruct != isa<LLVM::LLVMPointerType>(value.getType()))
      return launch.emitOpError("passes ")
             << value.getType() << " as parameter " << position << ", but the kernel takes "
             << parameter.bytes << " bytes";
    if (parameter.isStruct) {
      if (parameter.bytes != tensorMapBytes)
        return launch.emitOpError("passes a tensor map as parameter ")
               << position << ", but the kernel takes " << parameter.bytes << " bytes";
    } else {
      if (value.getType().isIndex())
        value = arith::IndexCastOp::create(b, loc, b.getIntegerType(unsigned(parameter.bytes) * 8),
                                           value);
      unsigned bits = value.getType().getIntOrFloatBitWidth();
      if (std::max(bits, 8u) != parameter.bytes * 8)
        return launch.emitOpError("passes ")
               << value.getType() << " as parameter " << position << ", but the kernel takes "
               << parameter.bytes << " bytes";
      if (bits == 1)
        value = arith::ExtUIOp::create(b, loc, b.getI8Type(), value);
      slot = allocate(b, loc, value.getType(), 1);
      LLVM::StoreOp::create(b, loc, value, slot);
    }
    store(b, loc, slot, slots, pointer(), int32_t(position));
  }

  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  SmallVector<Value> dims = {launch.getGridSizeX(),  launch.getGridSizeY(),
                             launch.getGridSizeZ(),  launch.getBlockSizeX(),
                             launch.getBlockSizeY(), launch.getBlockSizeZ()};
  if (launch.hasClusterSize())
    dims.append({launch.getClusterSizeX(), launch.getClusterSizeY(), launch.getClusterSizeZ()});
  else
    dims.append(3, one);
  auto early = launch->getAttrOfType<IntegerAttr>(attn::hopper::kEarlyAttr);
  for (int64_t number :
       {int64_t(launch->hasAttr(attn::hopper::kCooperativeAttr)), early ? early.getInt() : 0})
    dims.push_back(arith::ConstantIndexOp::create(b, loc, number));
  Value shared = launch.getDynamicSharedMemorySize();
  if (!shared)
    shared = constant(b, loc, 0);
  call(b, loc, "attnCudaLaunch",
       {context(launch), constant(b, loc, index), makeArray(b, loc, dims), shared, slots});
  launch.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

LogicalResult LowerLaunches::lower(func::FuncOp function) {
  SmallVector<Operation *> ops;
  // Tensor maps before the launches that take them.
  function.walk([&](Operation *op) {
    if (isDeviceOp(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    LogicalResult result = success();
    if (auto map = dyn_cast<TensorMapOp>(op))
      lowerTensorMap(map);
    else if (auto reaches = dyn_cast<TmaReachesOp>(op))
      lowerReaches(reaches);
    else if (auto alloc = dyn_cast<memref::AllocOp>(op))
      result = lowerAlloc(alloc);
    else if (auto dealloc = dyn_cast<memref::DeallocOp>(op))
      result = lowerDealloc(dealloc);
    else
      result = lowerLaunch(cast<gpu::LaunchFuncOp>(op));
    if (failed(result))
      return failure();
  }
  // The casts that stood for tensor maps.
  function.walk([](UnrealizedConversionCastOp cast) {
    if (cast->getNumResults() == 1 && cast->use_empty() &&
        isa<TensorMapType>(cast->getResult(0).getType()))
      cast.erase();
  });
  return success();
}

void LowerLaunches::runOnOperation() {
  kernels.clear();
  SmallVector<func::FuncOp> functions;
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    if (failed(checkHostOps(function)))
      return signalPassFailure();
    if (!function.isDeclaration())
      functions.push_back(function);
  }
  addContexts(functions);
  for (func::FuncOp function : functions)
    if (failed(lower(function)))
      return signalPassFailure();
  getOperation()->setAttr(attn::kKernelsAttr, ArrayAttr::get(&getContext(), kernels));
}
