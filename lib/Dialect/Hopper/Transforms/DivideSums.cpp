// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two sums that one warpgroup cannot hold go to a role each: loop distribution, whose parts run
// at the same time and hand each other tiles (decoupled software pipelining; Ottoni, Rangan,
// Stoler and August, "Automatic Thread Extraction with Decoupled Software Pipelining", 2005).

#include "Roles.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERDIVIDESUMS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numDivided("hopper-divide-sums", "divided",
                             "Launches with two sums that became those of two roles");

namespace {

bool isTile(Value value) {
  auto type = dyn_cast<VectorType>(value.getType());
  return type && type.getRank() == 2;
}

/// A tile that products add to, carried through a nest of loops.
struct Sum {
  /// From the outermost loop inwards: the loop, and which of its carried values it is.
  SmallVector<std::pair<scf::ForOp, unsigned>> loops;
  tile::MmaOp product;
  SetVector<Operation *> slice; // what the product needs in the innermost loop, and it

  scf::ForOp getLoop() const { return loops.back().first; }
  Value getResult() const {
    auto [loop, number] = loops.front();
    return scf::ForOp(loop).getResult(number);
  }
  int64_t getColumns() const { return cast<VectorType>(getResult().getType()).getDimSize(1); }
};

class Divider {
public:
  Divider(gpu::LaunchOp launch, hopper::RolesOp roles)
      : launch(launch), roles(roles), region(roles.getBodies().back()), b(launch.getContext()) {}

  LogicalResult run(int64_t columns) {
    scf::ForOp outermost = findLoop(columns);
    if (!outermost)
      return success();
    // Its second half goes behind it.
    if (hopper::findComputeRole(roles) != roles.getBodies().size() - 1)
      return roles.emitOpError("expected the role that computes to be the last one");
    if (roles.getWarpgroups().back() != 1)
      return outermost.emitOpError() << "carries sums that a warpgroup cannot hold beside each "
                                        "other, and so do several warpgroups: expected one";
    for (unsigned number : numbers) {
      std::optional<Sum> sum = trace(outermost, number);
      if (!sum)
        return outermost.emitOpError("carries more than two sums of products: their statements "
                                     "cannot be told from each other");
      sums.push_back(*sum);
    }
    if (sums[0].getLoop() != sums[1].getLoop())
      return outermost.emitOpError("expected two sums that are added to in one loop");
    if (countProducts(sums[0]) > countProducts(sums[1]))
      std::swap(sums[0], sums[1]);
    if (sums[1].slice.contains(sums[0].product)) {
      InFlightDiagnostic error = sums[1].product.emitOpError(
          "needs what the other sum adds, so the two cannot be divided");
      error.attachNote(sums[0].product.getLoc()) << "the other sum";
      return error;
    }
    if (failed(assign()) || failed(checkWrites()) || failed(findRegisters()))
      return failure();
    numDivided.at(launch);
    divide();
    return success();
  }

private:
  /// The outermost loop that carries more than `columns` columns of tiles.
  scf::ForOp findLoop(int64_t columns) {
    for (auto loop : region.front().getOps<scf::ForOp>()) {
      int64_t all = 0;
      numbers.clear();
      for (auto [number, value] : llvm::enumerate(loop.getRegionIterArgs())) {
        if (!isTile(value))
          continue;
        numbers.push_back(number);
        all += cast<VectorType>(value.getType()).getDimSize(1);
      }
      if (all > columns && numbers.size() > 1)
        return loop;
    }
    return {};
  }

  /// What the operation and its regions use that the body of the loop defines.
  static SmallVector<Operation *> findDefinitions(Operation *op, Block *body) {
    SmallVector<Operation *> definitions;
    auto add = [&](Value value) {
      Operation *definition = value.getDefiningOp();
      if (definition && definition->getBlock() == body)
        definitions.push_back(definition);
    };
    for (Value operand : op->getOperands())
      add(operand);
    for (Region &nested : op->getRegions())
      visitUsedValuesDefinedAbove(nested, [&](OpOperand *use) { add(use->get()); });
    return definitions;
  }

  static void collect(Operation *op, Block *body, SetVector<Operation *> &slice) {
    if (!slice.insert(op))
      return;
    for (Operation *definition : findDefinitions(op, body))
      collect(definition, body, slice);
  }

  static std::optional<Sum> trace(scf::ForOp loop, unsigned number) {
    Sum sum;
    while (true) {
      sum.loops.push_back({loop, number});
      if (loop.getNumRegionIterArgs() != 2)
        return std::nullopt;
      BlockArgument carried = loop.getRegionIterArg(number);
      Value next = loop.getBody()->getTerminator()->getOperand(number);
      if (!carried.hasOneUse())
        return std::nullopt;
      if (auto product = next.getDefiningOp<tile::MmaOp>()) {
        if (product.getAccumulator() != carried || product->getBlock() != loop.getBody())
          return std::nullopt;
        sum.product = product;
        collect(product, loop.getBody(), sum.slice);
        return sum;
      }
      auto inner = next.getDefiningOp<scf::ForOp>();
      if (!inner || inner->getBlock() != loop.getBody())
        return std::nullopt;
      number = cast<OpResult>(next).getResultNumber();
      if (inner.getInitArgs()[number] != carried)
        return std::nullopt;
      loop = inner;
    }
  }

  static int64_t countProducts(const Sum &sum) {
    return llvm::count_if(sum.slice, llvm::IsaPred<tile::MmaOp>);
  }

  /// Which products of `among` an operation follows from.
  bool follows(Operation *op, llvm::function_ref<bool(Operation *)> among) {
    SetVector<Operation *> slice;
    collect(op, sums[0].getLoop().getBody(), slice);
    return llvm::any_of(slice,
                        [&](Operation *each) { return isa<tile::MmaOp>(each) && among(each); });
  }

  /// The first role computes its own sum and whatever the second one's needs of products that both
  /// need; where that leaves the first role's statements, tiles cross.
  LogicalResult assign() {
    Sum &first = sums[0], &second = sums[1];
    auto isShared = [&](Operation *op) { return first.slice.contains(op); };
    auto isOwn = [&](Operation *op) { return !first.slice.contains(op); };
    SetVector<Operation *> ofFirst;
    for (Operation *op : second.slice)
      if (op != second.product && follows(op, isShared) && !follows(op, isOwn))
        ofFirst.insert(op);
    for (Operation *op : second.slice) {
      if (ofFirst.contains(op))
        continue;
      for (Operation *definition : findDefinitions(op, second.getLoop().getBody())) {
        if (!ofFirst.contains(definition))
          continue;
        for (Value value : definition->getResults())
          if (llvm::any_of(value.getUsers(), [&](Operation *user) { return op->isAncestor(user); }))
            crossing.insert(value);
      }
    }
    for (Value value : crossing) {
      auto type = dyn_cast<VectorType>(value.getType());
      if (!type || type.getRank() != 2 || type.getDimSize(0) != hopper::kWarpgroupRows ||
          !type.getElementType().isF32()) {
        InFlightDiagnostic error = second.product.emitOpError()
                                   << "needs a value of type " << value.getType()
                                   << " from the other sum's role: tiles of f32 can be handed over";
        error.attachNote(value.getLoc()) << "the value";
        return error;
      }
    }
    return success();
  }

  /// What is written, after the loops, belongs to one of the sums.
  LogicalResult checkWrites() {
    WalkResult walk = region.walk([&](Operation *op) {
      if (op->getNumRegions() > 0 || isMemoryEffectFree(op) ||
          isa<hopper::HopperDialect, tile::TileDialect>(op->getDialect()) ||
          hasSingleEffect<MemoryEffects::Read>(op))
        return WalkResult::advance();
      bool ofFirst = false, ofSecond = false;
      for (Value operand : op->getOperands()) {
        ofFirst |= programs::dependsOn(operand, sums[0].getResult());
        ofSecond |= programs::dependsOn(operand, sums[1].getResult());
      }
      if (ofFirst != ofSecond)
        return WalkResult::advance();
      op->emitOpError() << "needs " << (ofFirst ? "both sums" : "neither sum")
                        << " of the loop, so it belongs to none of two roles";
      return WalkResult::interrupt();
    });
    return failure(walk.wasInterrupted());
  }

  /// What both roles may have beside the others.
  LogicalResult findRegisters() {
    constexpr int64_t kUnit = 8;
    int64_t warpgroups = roles.getNumWarpgroups() + 1, others = 0;
    for (auto [count, each] : llvm::zip(roles.getWarpgroups(), roles.getRegisters()))
      others += count * each;
    others -= roles.getRegisters().back();
    int64_t all = hopper::getInitialRegisters(warpgroups, roles.getOccupancy()) * warpgroups;
    registersOfRole = std::min(roles.getRegisters().back(), (all - others) / 2 / kUnit * kUnit);
    // Half a register for each column of a sum, and for each of a score and of what is handed over.
    int64_t needed = 0;
    for (const Sum &sum : sums) {
      int64_t columns = sum.getColumns();
      for (Value value : crossing)
        columns += 2 * cast<VectorType>(value.getType()).getDimSize(1);
      needed = std::max(needed, columns / 2);
    }
    if (registersOfRole < needed)
      return roles.emitOpError() << "leaves " << registersOfRole
                                 << " registers for each of two roles, their sums and scores need "
                                 << needed;
    return success();
  }

  void divide() {
    Location loc = roles.getLoc();
    b.setInsertionPoint(roles);
    SmallVector<Value> channels;
    for (Value value : crossing) {
      auto type = cast<VectorType>(value.getType());
      auto tile = tile::SmemType::get(type.getShape(), type.getElementType(), /*swizzle=*/0);
      channels.push_back(hopper::ChannelOp::create(b, value.getLoc(),
                                                   hopper::ChannelType::get(b.getContext(), tile),
                                                   /*depth=*/1, /*multicast=*/IntegerAttr()));
    }
    SmallVector<Attribute> names(roles.getNames().getValue());
    SmallVector<int64_t> counts(roles.getWarpgroups()), registers(roles.getRegisters());
    std::string name = cast<StringAttr>(names.back()).str();
    names.back() = b.getStringAttr(name + " first");
    names.push_back(b.getStringAttr(name + " second"));
    counts.push_back(1);
    registers.back() = registersOfRole;
    registers.push_back(registersOfRole);
    auto divided =
        hopper::RolesOp::create(b, loc, b.getArrayAttr(names), b.getDenseI64ArrayAttr(counts),
                                b.getDenseI64ArrayAttr(registers), names.size());
    for (auto [from, to] : llvm::zip(roles.getBodies(), divided.getBodies()))
      to.takeBody(from);
    Region &one = divided.getBodies()[names.size() - 2], &other = divided.getBodies().back();
    IRMapping mapping;
    one.cloneInto(&other, mapping);
    drop(one, sums[1], IRMapping());
    drop(other, sums[0], mapping);
    for (auto [value, channel] : llvm::zip_equal(crossing, channels)) {
      b.setInsertionPointAfterValue(value);
      send(value, channel);
      receive(mapping.lookup(value), channel);
    }
    roles.erase();
    roles = divided;
    for (Region *role : {&one, &other}) {
      eraseUnused(*role);
      releaseEarly(*role);
    }
    b.setInsertionPoint(launch);
    launch.getBlockSizeXMutable().assign(arith::ConstantIndexOp::create(
        b, loc, divided.getNumWarpgroups() * hopper::kThreadsPerWarpgroup));
  }

  /// Takes a sum out of a role: its loops carry what they got, and nothing is written of it.
  static void drop(Region &role, const Sum &without, const IRMapping &mapping) {
    Value result = mapping.lookupOrDefault(without.getResult());
    SmallVector<Operation *> writes;
    role.walk([&](Operation *op) {
      if (!isMemoryEffectFree(op) && op->getNumRegions() == 0 &&
          llvm::any_of(op->getOperands(),
                       [&](Value value) { return programs::dependsOn(value, result); }))
        writes.push_back(op);
    });
    for (Operation *write : writes)
      write->erase();
    for (auto [loop, number] : without.loops) {
      Value carried = mapping.lookupOrDefault(Value(scf::ForOp(loop).getRegionIterArg(number)));
      auto argument = cast<BlockArgument>(carried);
      argument.getOwner()->getTerminator()->setOperand(number, argument);
    }
  }

  void send(Value value, Value channel) {
    Location loc = value.getLoc();
    auto tile = cast<hopper::ChannelType>(channel.getType()).getTile();
    Value slot = hopper::AcquireOp::create(b, loc, tile, channel);
    tile::WriteOp::create(b, loc, value, slot, /*transpose=*/false);
    hopper::CommitOp::create(b, loc, channel);
  }

  void receive(Value value, Value channel) {
    Location loc = value.getLoc();
    auto tile = cast<hopper::ChannelType>(channel.getType()).getTile();
    b.setInsertionPointAfterValue(value);
    Value slot = hopper::ReceiveOp::create(b, loc, tile, channel);
    auto type = cast<VectorType>(value.getType());
    Value loaded = tile::ReadOp::create(b, loc, type, slot, /*transpose=*/false);
    hopper::ReleaseOp::create(b, loc, channel);
    value.replaceAllUsesWith(loaded);
  }

  /// What nothing needs any more; tiles that are not read are not received.
  static void eraseUnused(Region &role) {
    bool isChanged = true;
    while (isChanged) {
      isChanged = false;
      SmallVector<Operation *> order;
      role.walk<WalkOrder::PreOrder>([&](Operation *op) { order.push_back(op); });
      for (Operation *op : llvm::reverse(order)) {
        if (auto receive = dyn_cast<hopper::ReceiveOp>(op); receive && op->use_empty()) {
          for (Operation *user : llvm::make_early_inc_range(receive.getChannel().getUsers()))
            if (isa<hopper::ReleaseOp>(user) && role.isAncestor(user->getParentRegion()) &&
                user != op)
              user->erase();
          op->erase();
          isChanged = true;
          break; // the order may have what has just been erased
        }
        if (isOpTriviallyDead(op)) {
          op->erase();
          isChanged = true;
        }
      }
    }
  }

  /// Tiles are given back behind the role's own last use.
  static void releaseEarly(Region &role) {
    role.walk([&](hopper::ReceiveOp receive) {
      Block *block = receive->getBlock();
      Operation *last = receive;
      for (Operation *user : receive->getUsers())
        if (Operation *op = block->findAncestorOpInBlock(*user); last->isBeforeInBlock(op))
          last = op;
      for (Operation *user : receive.getChannel().getUsers())
        if (isa<hopper::ReleaseOp>(user) && user->getBlock() == block)
          user->moveAfter(last);
    });
  }

  gpu::LaunchOp launch;
  hopper::RolesOp roles;
  Region &region;
  OpBuilder b;
  SmallVector<unsigned> numbers;
  SmallVector<Sum, 2> sums;
  SetVector<Value> crossing;
  int64_t registersOfRole = 0;
};

struct DivideSumsPass : attn::impl::HopperDivideSumsBase<DivideSumsPass> {
  using Base::Base;

  void runOnOperation() override {
    WalkResult walk = getOperation().walk([&](gpu::LaunchOp launch) {
      for (auto roles : llvm::to_vector(launch.getBody().front().getOps<hopper::RolesOp>()))
        if (failed(Divider(launch, roles).run(columns)))
          return WalkResult::interrupt();
      return WalkResult::skip();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
