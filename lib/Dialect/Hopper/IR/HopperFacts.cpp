// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Verification of facts of the hopper dialect: what one op shows.

#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

static LogicalResult verifyNonempty(Operation *op) {
  auto loop = cast<scf::ForOp>(op);
  std::optional<int64_t> first = getConstantIntValue(loop.getLowerBound());
  std::optional<int64_t> end = getConstantIntValue(loop.getUpperBound());
  if (first && end && *first >= *end)
    return op->emitError() << "'" << kNonemptyAttr << "' on a loop from " << *first << " to "
                           << *end;
  return success();
}

static LogicalResult verifyEmulated(Operation *op) {
  auto type = dyn_cast<VectorType>(op->getResult(0).getType());
  if (type && type.getRank() == 2 && type.getElementType().isF32())
    return success();
  return op->emitError() << "'" << kEmulatedAttr << "' needs a tile of f32, got "
                         << op->getResult(0).getType();
}

static LogicalResult verifyDealt(Operation *op) {
  // Tiles are dealt to CTAs that wait for each other.
  if (op->hasAttr(kCooperativeAttr))
    return success();
  return op->emitError() << "'" << kDealtAttr << "' needs '" << kCooperativeAttr << "'";
}

static LogicalResult verifyCooperative(Operation *op) {
  auto launch = dyn_cast<gpu::LaunchOp>(op);
  if (!launch || op->hasAttr(kDealtAttr) || !launch.getBody().getOps<ThreadsOp>().empty())
    return success();
  return op->emitError() << "'" << kCooperativeAttr << "' needs '" << kDealtAttr
                         << "': tiles as CTAs that run at the same time have them";
}

/// What a multiprocessor has room for.
static LogicalResult verifyOccupancy(Operation *op) {
  constexpr int64_t kMostThreads = 2048, kMostCtas = 32;
  int64_t occupancy = op->getAttrOfType<IntegerAttr>(kOccupancyAttr).getInt();
  if (occupancy > kMostCtas)
    return op->emitError() << "'" << kOccupancyAttr << "' is " << occupancy << ", at most "
                           << kMostCtas << " CTAs share a multiprocessor";
  auto function = dyn_cast<gpu::GPUFuncOp>(op);
  std::optional<ArrayRef<int32_t>> block =
      function ? function.getKnownBlockSize() : std::optional<ArrayRef<int32_t>>();
  int64_t threads = 1;
  for (int32_t size : block.value_or(ArrayRef<int32_t>()))
    threads *= size;
  if (threads * occupancy > kMostThreads)
    return op->emitError() << "'" << kOccupancyAttr << "' is " << occupancy << ", for CTAs of "
                           << threads << " threads; a multiprocessor has " << kMostThreads;
  auto bytes = op->getAttrOfType<IntegerAttr>(kSharedBytesAttr);
  if (bytes && bytes.getInt() > getSharedMemoryBytes(occupancy))
    return op->emitError() << "'" << kOccupancyAttr << "' is " << occupancy << ", for CTAs of "
                           << bytes.getInt() << " bytes of shared memory; each has "
                           << getSharedMemoryBytes(occupancy);
  return success();
}

template <typename Type> static LogicalResult verifyTyped(Operation *op, StringRef name) {
  if (isa<Type>(op->getAttr(name)))
    return success();
  return op->emitError() << "'" << name << "' is a #" << Type::name << ", got "
                         << op->getAttr(name);
}
static LogicalResult verifyNests(Operation *op) { return verifyTyped<NestsAttr>(op, kNestsAttr); }
static LogicalResult verifySchedule(Operation *op) {
  return verifyTyped<ScheduleAttr>(op, kScheduleAttr);
}

static constexpr Fact kFacts[] = {
    {kNestsAttr, "builtin.module", FactType::Typed, verifyNests},
    {kScheduleAttr, "builtin.module", FactType::Typed, verifySchedule},
    {kRefusedAttr, "builtin.module", FactType::Name},
    {kRunningMaximaAttr, "builtin.module", FactType::Unit},
    {kWarpsAttr, "builtin.module", FactType::Unit},
    {kRowsAttr, "builtin.module", FactType::Unit},
    {kNonemptyAttr, "scf.for", FactType::Unit, verifyNonempty},
    {kTrimmedAttr, "scf.for", FactType::Unit},
    {kAddingAttr, "scf.for", FactType::Unit},
    {kDealtAttr, "gpu.launch", FactType::Unit, verifyDealt},
    {kCooperativeAttr, "gpu.launch, gpu.func, gpu.launch_func, llvm.func", FactType::Unit,
     verifyCooperative},
    {kEmulatedAttr, "math.exp2", FactType::Positive, verifyEmulated},
    {kAliasesAttr, "memref.alloc", FactType::Argument},
    {kEarlyAttr, "gpu.func, gpu.launch_func, llvm.func", FactType::Positive},
    {kOccupancyAttr, "gpu.func, llvm.func", FactType::Positive, verifyOccupancy},
    {kSharedBytesAttr, "gpu.func, llvm.func", FactType::Count},
    {kTensorMapsAttr, "gpu.func, llvm.func", FactType::Numbers},
};

LogicalResult HopperDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  return verifyFact(kFacts, op, attribute);
}

LogicalResult HopperDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned,
                                                      NamedAttribute attribute) {
  return verifyFactOfArgument(kFacts, op, /*isResult=*/false, attribute);
}

LogicalResult HopperDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned,
                                                         NamedAttribute attribute) {
  return verifyFactOfArgument(kFacts, op, /*isResult=*/true, attribute);
}
