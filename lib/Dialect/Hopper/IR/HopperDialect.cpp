// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the hardware would refuse, refused here, where the op has a location.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

#include "attn/Dialect/Hopper/IR/HopperDialect.cpp.inc"

void HopperDialect::initialize() {
  registerTypes();
  registerAttributes();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Hopper/IR/HopperOps.cpp.inc"
      >();
}

LogicalResult ChannelOp::verify() {
  std::optional<uint64_t> parts = getMulticast();
  int64_t rows = getChannel().getType().getTile().getRows();
  if (parts && rows % (8 * int64_t(*parts)))
    return emitOpError() << "tiles of " << rows << " rows have no " << *parts
                         << " parts of a multiple of 8 rows";
  return success();
}

/// What marks rows of a tile that are to be zeros.
template <typename Op> static LogicalResult verifyMarks(Op op, tile::SmemType tile, int64_t rank) {
  if (bool(op.getMarks()) != bool(op.getSome()) || bool(op.getMarks()) != bool(op.getGroups()))
    return op.emitOpError("expects marks of rows and groups, and whether there are any, or none");
  if (!op.getMarks())
    return success();
  for (Value memory : {op.getMarks(), op.getGroups()}) {
    auto type = cast<MemRefType>(memory.getType());
    if (type.getRank() != rank - 1)
      return op.emitOpError() << "expects marks of rank " << rank - 1 << ", got " << type;
    if (!type.getElementType().isIntOrFloat() || type.getElementTypeBitWidth() != 16)
      return op.emitOpError() << "expects marks of 16 bits, got " << type;
  }
  if (tile.getSwizzle() != 128 || tile.getRows() == 1)
    return op.emitOpError() << "rows of 128 bytes can be copied one by one, those of " << tile
                            << " cannot";
  return success();
}

LogicalResult SendOp::verify() {
  tile::SmemType tile = getChannel().getType().getTile();
  if (failed(verifyMarks(*this, tile, getSource().getType().getRank())))
    return failure();
  if (auto channel = getChannel().getDefiningOp<ChannelOp>();
      channel && channel.getMulticast() && getMarks())
    return emitOpError("cannot drop rows of what all CTAs of a cluster get");
  return tile::verifyTmaSource(*this, cast<MemRefType>(getSource().getType()), tile,
                               getIndices().size());
}

LogicalResult TensorMapOp::verify() {
  auto memref = cast<MemRefType>(getSource().getType());
  if (memref.getRank() != getMap().getType().getRank())
    return emitOpError() << "rank " << getMap().getType().getRank() << " does not fit " << memref;
  return tile::verifyTmaSource(*this, memref, getMap().getType().getTile(), std::nullopt);
}

static LogicalResult verifyTmaCopy(Operation *op, TensorMapType map, size_t coordinates,
                                   tile::SmemType tile) {
  // Some rows of a tile are copied like a tile of their own.
  auto compact = tile::SmemType::get(tile.getShape(), tile.getElementType(), tile.getSwizzle());
  if (map.getTile() != compact)
    return op->emitOpError() << "the map is for tiles " << map.getTile() << ", not " << tile;
  if (int64_t(coordinates) != map.getRank())
    return op->emitOpError() << "expects " << map.getRank() << " coordinates, got " << coordinates;
  return success();
}

LogicalResult TmaLoadOp::verify() {
  tile::SmemType tile = getTile().getType();
  if (failed(verifyMarks(*this, tile, getMap().getType().getRank())))
    return failure();
  if (bool(getMarks()) != bool(getRowMap()))
    return emitOpError("expects a tensor map of one row where rows may be dropped, and only there");
  if (getMarks() && getMulticast())
    return emitOpError("cannot drop rows of what all CTAs of a cluster get");
  if (getRowMap()) {
    auto row =
        tile::SmemType::get({1, tile.getColumns()}, tile.getElementType(), tile.getSwizzle());
    TensorMapType map = getRowMap().getType();
    if (map.getTile() != row || map.getRank() != getMap().getType().getRank())
      return emitOpError() << "expects a map of rank " << getMap().getType().getRank()
                           << " for tiles " << row << ", got " << map;
  }
  return verifyTmaCopy(*this, getMap().getType(), getCoordinates().size(), getTile().getType());
}
LogicalResult TmaStoreOp::verify() {
  return verifyTmaCopy(*this, getMap().getType(), getCoordinates().size(), getTile().getType());
}
static LogicalResult verifyAddedType(Operation *op, tile::SmemType tile) {
  if (tile.getElementType().isF32())
    return success();
  return op->emitOpError("adds in f32 only: a sum of 16-bit values depends on the order too much");
}

LogicalResult AddOp::verify() {
  if (failed(verifyAddedType(*this, getTile().getType())))
    return failure();
  return tile::verifyTmaSource(*this, cast<MemRefType>(getDest().getType()), getTile().getType(),
                               getIndices().size());
}

LogicalResult TmaReduceOp::verify() {
  if (failed(verifyAddedType(*this, getTile().getType())))
    return failure();
  return verifyTmaCopy(*this, getMap().getType(), getCoordinates().size(), getTile().getType());
}

/// An index for each dimension.
template <typename Op> static LogicalResult verifySemaphore(Op op) {
  MemRefType type = op.getSemaphores().getType();
  if (int64_t(op.getIndices().size()) == type.getRank())
    return success();
  return op.emitOpError() << "expects " << type.getRank() << " indices for " << type;
}
LogicalResult SemaphoreWaitOp::verify() { return verifySemaphore(*this); }
LogicalResult SemaphorePeekOp::verify() { return verifySemaphore(*this); }
LogicalResult SemaphoreFirstTouchOp::verify() { return verifySemaphore(*this); }
LogicalResult SemaphoreReleaseOp::verify() { return verifySemaphore(*this); }

LogicalResult SlotOp::verify() {
  tile::SmemType tile = getTile().getType(), whole = getRing().getType().getTile();
  // Other elements in the same slabs, where there are as many or fewer of these.
  bool fits = tile.getRows() == whole.getRows() && tile.getSlabRows() == whole.getSlabRows() &&
              tile.getSwizzle() == whole.getSwizzle() && tile.getSwizzle() != 0 &&
              tile.getSlabs() <= whole.getSlabs();
  if (tile != whole && !fits)
    return emitOpError() << "a tile of the ring has type " << whole;
  return success();
}

static LogicalResult verifyReceived(Operation *op, tile::SmemType tile, ChannelType channel) {
  if (tile != channel.getTile())
    return op->emitOpError() << "the channel has tiles of type " << channel.getTile();
  return success();
}

LogicalResult ReceiveOp::verify() {
  return verifyReceived(*this, getTile().getType(), getChannel().getType());
}

LogicalResult AcquireOp::verify() {
  return verifyReceived(*this, getTile().getType(), getChannel().getType());
}

LogicalResult HeldOp::verify() {
  return verifyReceived(*this, getTile().getType(), getChannel().getType());
}

const attn::target::MmaAtom *attn::hopper::findAtom(Type operands) {
  return target::findMmaAtom(target::sm90::kAtoms, operands);
}

LogicalResult WgmmaOp::verify() {
  VectorType result = getResult().getType().getTile();
  if (result.getRank() != 2 || !result.getElementType().isF32() ||
      result.getDimSize(0) != kWarpgroupRows)
    return emitOpError() << "expects a result of " << kWarpgroupRows << " rows of f32, got "
                         << result;
  if (Value accumulator = getAccumulator()) {
    Type type = accumulator.getType();
    if (auto pending = dyn_cast<PendingType>(type))
      type = pending.getTile();
    if (type != result)
      return emitOpError() << "adds to " << type << " but gives " << result;
  }
  return tile::verifyProduct(*this, attn::target::sm90::kAtoms, getA().getType(), getB().getType(),
                             result, getTransposeA(), getTransposeB());
}

LogicalResult WaitOp::verify() {
  if (getResult().getType() != getProduct().getType().getTile())
    return emitOpError() << "the product is of type " << getProduct().getType().getTile();
  return success();
}

static LogicalResult verifyNamedBarrier(Operation *op, Value id) {
  APInt value;
  if (matchPattern(id, m_ConstantInt(&value)) &&
      (value.getSExtValue() < 1 || value.getSExtValue() >= kNamedBarriers))
    return op->emitOpError() << "named barriers are 1 to 15, got " << value.getSExtValue();
  return success();
}
LogicalResult BarrierSyncOp::verify() { return verifyNamedBarrier(*this, getId()); }
LogicalResult BarrierArriveOp::verify() { return verifyNamedBarrier(*this, getId()); }

bool RunIfOp::isRare() { return !getNone(); }

std::pair<int64_t, int64_t> ReportOp::getWarpgroupsOfRole() {
  Region *region = getRole(*this);
  ArrayRef<int64_t> counts = cast<RolesOp>(region->getParentOp()).getWarpgroups();
  unsigned role = region->getRegionNumber();
  return {std::accumulate(counts.begin(), counts.begin() + role, int64_t(0)), counts[role]};
}

LogicalResult ReportOp::verify() {
  auto roles = (*this)->getParentOfType<RolesOp>();
  if (getTile())
    return getWarpgroups() ? success() : emitOpError("expects `warpgroups` with a tile");
  if (getWarpgroups() && roles && roles.getBodies().size() > 1)
    return emitOpError("expects one role: a flag for each warpgroup is one for those that compute");
  if (getWarpgroups() && roles && (*this)->getParentOp() != roles)
    return emitOpError("expects to be in no loop or branch: the flag is written once");
  return success();
}

static LogicalResult verifyInFrontOfRoles(Operation *op) {
  if (op->getParentOfType<RolesOp>())
    return op->emitOpError("expects to be in front of the roles: all warpgroups of a CTA end");
  return success();
}
LogicalResult ThreadsOp::verify() {
  if (!isa<gpu::LaunchOp, gpu::GPUFuncOp>(getOperation()->getParentOp()))
    return emitOpError("expected to be in a launch or a kernel");
  LogicalResult result = success();
  getOperation()->getParentOp()->walk([&](RolesOp roles) {
    InFlightDiagnostic error = emitOpError("is of code without roles");
    error.attachNote(roles.getLoc()) << "the roles of warpgroups";
    result = failure();
    return WalkResult::interrupt();
  });
  return result;
}

LogicalResult RemoteLoadOp::verify() {
  MemRefType type = getMemory().getType();
  auto space = dyn_cast_if_present<gpu::AddressSpaceAttr>(type.getMemorySpace());
  if (!space || space.getValue() != gpu::AddressSpace::Workgroup || !type.hasStaticShape() ||
      !type.getLayout().isIdentity())
    return emitOpError() << "expected shared memory of static shape, got " << type;
  return success();
}

LogicalResult GridSyncOp::verify() {
  if (getCounter().getType().getDimSize(0) != 1)
    return emitOpError() << "expected a counter of one element, got " << getCounter().getType();
  return success();
}

LogicalResult RedoOp::verify() { return verifyInFrontOfRoles(*this); }
LogicalResult RunIfOp::verify() { return verifyInFrontOfRoles(*this); }

LogicalResult BarrierReduceOp::verify() { return verifyNamedBarrier(*this, getId()); }

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

Region *attn::hopper::getRole(Operation *op) {
  Region *region = op->getParentRegion();
  while (region && !isa<RolesOp>(region->getParentOp()))
    region = region->getParentRegion();
  return region;
}

FailureOr<Value> attn::hopper::findAliased(Operation *alloc, IntegerAttr aliases, unsigned first) {
  auto function = alloc->getParentOfType<FunctionOpInterface>();
  int64_t number = aliases.getInt(), count = function ? function.getNumArguments() : 0;
  if (number >= 0 && number + first < count)
    if (Value argument = function.getArgument(unsigned(number) + first);
        isa<MemRefType>(argument.getType()))
      return argument;
  return alloc->emitOpError() << "may lie in argument " << number << ", which is no memory";
}

bool attn::hopper::isSingleThreaded(Region &region) {
  auto isVector = [](Type type) { return isa<VectorType, PendingType>(type); };
  WalkResult walk = region.walk([&](Operation *op) {
    bool whole = isa<BarrierSyncOp, BarrierArriveOp, gpu::BarrierOp>(op) ||
                 llvm::any_of(op->getOperandTypes(), isVector) ||
                 llvm::any_of(op->getResultTypes(), isVector);
    return whole ? WalkResult::interrupt() : WalkResult::advance();
  });
  return !walk.wasInterrupted();
}

int64_t RolesOp::getNumRegisters() {
  int64_t registers = 0;
  for (auto [warpgroups, perThread] : llvm::zip_equal(getWarpgroups(), getRegisters()))
    registers += warpgroups * perThread * kThreadsPerWarpgroup;
  return registers;
}

int64_t RolesOp::getOccupancy() {
  constexpr int64_t kThreads = attn::target::sm90::kLimits.threadsPerMultiprocessor;
  return std::min(kRegistersPerCta / getNumRegisters(),
                  kThreads / (getNumWarpgroups() * kThreadsPerWarpgroup));
}

LogicalResult RolesOp::verify() {
  size_t count = getBodies().size();
  if (count == 0 || getNames().size() != count || getWarpgroups().size() != count ||
      getRegisters().size() != count)
    return emitOpError("expects a name, warpgroups and registers for each role");
  for (auto [r, warpgroups, perThread] : llvm::enumerate(getWarpgroups(), getRegisters())) {
    if (warpgroups < 0 || (warpgroups == 0 && r == 0))
      return emitOpError() << "role " << getNames()[r] << " has no warpgroup";
    constexpr size_t kWarps = 4;
    size_t first = r;
    while (getWarpgroups()[first] == 0)
      --first;
    if (warpgroups == 0 &&
        (getWarpgroups()[first] != 1 || r - first >= kWarps || perThread != getRegisters()[first]))
      return emitOpError() << "role " << getNames()[r]
                           << ": expected a warpgroup before it with a warp to spare, and its "
                              "number of registers";
    constexpr int64_t kMost = attn::target::sm90::kLimits.registersPerThread;
    if (perThread < 24 || perThread > kMost || perThread % 8)
      return emitOpError() << "role " << getNames()[r]
                           << ": registers are a multiple of 8 between 24 and " << kMost << ", got "
                           << perThread << " (setmaxnreg)";
  }
  if (int64_t registers = getNumRegisters(); registers > kRegistersPerCta)
    return emitOpError() << "the roles ask for " << registers << " registers, a CTA has "
                         << kRegistersPerCta;
  constexpr int64_t kMostWarpgroups =
      attn::target::sm90::kLimits.threadsPerCta / kThreadsPerWarpgroup;
  if (getNumWarpgroups() > kMostWarpgroups)
    return emitOpError() << "a CTA has at most " << kMostWarpgroups << " warpgroups, got "
                         << getNumWarpgroups();
  int64_t threads = getNumWarpgroups() * kThreadsPerWarpgroup;
  if (int64_t initial = getInitialRegisters(getNumWarpgroups(), getOccupancy()) * threads;
      count > 1 && getNumRegisters() > initial)
    return emitOpError() << "the roles ask for " << getNumRegisters() << " registers, the "
                         << initial << " that " << threads
                         << " threads start with are all that they can share: who asks last "
                            "waits forever";
  for (Region &body : getBodies())
    if (body.getNumArguments() != 1 || !body.getArgument(0).getType().isIndex())
      return emitOpError("expects one argument of type index in each role");
  return success();
}

ParseResult RolesOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<Attribute> names;
  SmallVector<int64_t> warpgroups, registers;
  Builder &builder = parser.getBuilder();
  while (succeeded(parser.parseOptionalKeyword("role"))) {
    std::string name;
    int64_t count, perThread;
    OpAsmParser::Argument argument;
    argument.type = builder.getIndexType();
    Region *body = result.addRegion();
    if (parser.parseString(&name) || parser.parseKeyword("warpgroups") || parser.parseLParen() ||
        parser.parseInteger(count) || parser.parseRParen() || parser.parseKeyword("registers") ||
        parser.parseLParen() || parser.parseInteger(perThread) || parser.parseRParen() ||
        parser.parseLParen() || parser.parseArgument(argument) || parser.parseRParen() ||
        parser.parseRegion(*body, argument))
      return failure();
    ensureTerminator(*body, builder, result.location);
    names.push_back(builder.getStringAttr(name));
    warpgroups.push_back(count);
    registers.push_back(perThread);
  }
  auto &properties = result.getOrAddProperties<Properties>();
  properties.names = builder.getArrayAttr(names);
  properties.warpgroups = builder.getDenseI64ArrayAttr(warpgroups);
  properties.registers = builder.getDenseI64ArrayAttr(registers);
  return parser.parseOptionalAttrDictWithKeyword(result.attributes);
}

void RolesOp::print(OpAsmPrinter &printer) {
  for (auto [r, body] : llvm::enumerate(getBodies())) {
    printer.printNewline();
    printer << "  role " << getNames()[r] << " warpgroups(" << getWarpgroups()[r] << ") registers("
            << getRegisters()[r] << ") (";
    printer.printRegionArgument(body.getArgument(0), {}, /*omitType=*/true);
    printer << ") ";
    printer.printRegion(body, /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/false);
  }
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {"names", "warpgroups", "registers"});
}

#define GET_OP_CLASSES
#include "attn/Dialect/Hopper/IR/HopperOps.cpp.inc"
