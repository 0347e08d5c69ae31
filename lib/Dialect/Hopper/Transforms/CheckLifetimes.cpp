// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// When tiles may be read, and when they may be written again.

#include "CheckProtocol.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Dominance.h"

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Products started after `product` and before `end`, where both are in one
/// block; those in nested regions make it unknown.
static std::optional<int64_t> countAfter(Operation *product, Operation *end) {
  if (product->getBlock() != end->getBlock() || !product->isBeforeInBlock(end))
    return std::nullopt;
  int64_t count = 0;
  for (Operation *op = product->getNextNode(); op != end; op = op->getNextNode()) {
    if (isa<WgmmaOp>(op))
      ++count;
    else if (op->walk([](WgmmaOp) { return WalkResult::interrupt(); }).wasInterrupted())
      return std::nullopt;
  }
  return count;
}

/// Whether some wait between the two covers the product.
static bool isWaitedFor(WgmmaOp product, Operation *before) {
  for (Operation *op = product->getNextNode(); op && op != before; op = op->getNextNode())
    if (auto wait = dyn_cast<WaitOp>(op)) {
      std::optional<int64_t> after = countAfter(product, wait);
      if (!after || int64_t(wait.getPending()) <= *after)
        return true;
    }
  return false;
}

void attn::hopper::checkProductWaits(Protocol &protocol) {
  protocol.roles.walk([&](WaitOp wait) {
    auto product = wait.getProduct().getDefiningOp<WgmmaOp>();
    std::optional<int64_t> after = product ? countAfter(product, wait) : std::nullopt;
    if (!after) {
      protocol.remark(wait, "pending not checked: the product starts in another block");
      return;
    }
    if (int64_t(wait.getPending()) <= *after || isWaitedFor(product, wait))
      return;
    InFlightDiagnostic diagnostic = protocol.error(wait);
    diagnostic << "leaves " << wait.getPending() << " products pending, and only " << *after
               << " started after the one that it gives";
    diagnostic.attachNote(product.getLoc()) << "the product";
  });
  protocol.roles.walk([&](WgmmaOp product) {
    if (product.getResult().use_empty() && !isWaitedFor(product, nullptr))
      protocol.error(product) << "nobody waits for this product";
  });
}

//===----------------------------------------------------------------------===//
// Tiles that copies fill
//===----------------------------------------------------------------------===//

namespace {
/// A ring (or tile) that copies fill: the barriers of the two directions.
struct Filled {
  TmaLoadOp load;
  Value full;
  /// The barrier that the role of the copy waits for first; null where the tile
  /// is filled once.
  Value empty;
  /// The copy's slot and mbarriers have the same index.
  bool aligned = true;
};
} // namespace

/// The wait in the block before the copy whose barrier has no copies itself.
static MBarrierWaitOp findRoomWait(Protocol &protocol, TmaLoadOp load) {
  for (Operation *op = getCopy(load).op->getPrevNode(); op; op = op->getPrevNode())
    if (auto wait = dyn_cast<MBarrierWaitOp>(op))
      if (auto uses = protocol.barriers.find(wait.getBarriers());
          uses != protocol.barriers.end() && uses->second.loads.empty())
        return wait;
  return {};
}

static llvm::MapVector<Value, Filled> findFilled(Protocol &protocol) {
  llvm::MapVector<Value, Filled> filled;
  for (auto &[full, uses] : protocol.barriers)
    for (TmaLoadOp load : uses.loads) {
      TileOrigin origin = getTileOrigin(load.getTile());
      if (!origin.memory)
        continue;
      Filled &entry = filled[origin.memory];
      MBarrierWaitOp room = findRoomWait(protocol, load);
      bool again = entry.load != nullptr;
      if (again && (entry.full != full || entry.empty != (room ? room.getBarriers() : Value())))
        entry.aligned = false;
      entry.load = load;
      entry.full = full;
      entry.empty = room ? room.getBarriers() : Value();
      if (origin.index && !isSameIndex(origin.index, load.getIndex()))
        entry.aligned = false;
      if (room && !isSameIndex(room.getIndex(), load.getIndex()))
        entry.aligned = false;
    }
  return filled;
}

/// The last wait for the copy before the product (or read), with its index.
static void checkWaited(Protocol &protocol, const Filled &filled, Operation *product, Value index) {
  const BarrierUses &uses = protocol.barriers.find(filled.full)->second;
  DominanceInfo dominance;
  bool maybe = false;
  for (MBarrierWaitOp wait : uses.waits) {
    if (!dominance.properlyDominates(wait.getOperation(), product)) {
      // In a branch before it?
      for (Operation *parent = product; !isa<RolesOp>(parent); parent = parent->getParentOp())
        if (Operation *other = parent->getBlock()->findAncestorOpInBlock(*wait))
          maybe |= other->isBeforeInBlock(parent);
      continue;
    }
    if (!index || isSameIndex(wait.getIndex(), index))
      return;
    maybe = true;
  }
  if (maybe) {
    protocol.remark(product,
                    "not checked: waits for the copy of its tile have another index, or are "
                    "in branches");
    return;
  }
  InFlightDiagnostic diagnostic = protocol.error(product);
  diagnostic << "reads a tile, and no wait for its copy comes before";
  TmaLoadOp load = filled.load;
  diagnostic.attachNote(load.getLoc()) << "the copy";
}

/// Whether TMA's writes after an arrival come after a read before it.
static bool isFenced(Operation *read, Operation *arrive) {
  for (Operation *op = read->getNextNode(); op != arrive; op = op->getNextNode())
    if (isa<FenceAsyncOp>(op))
      return true;
  return false;
}

/// The arrival that gives the tile of a product or read back, in its block.
static void checkGivenBack(Protocol &protocol, const Filled &filled, Operation *reader,
                           Value index) {
  auto product = dyn_cast<WgmmaOp>(reader);
  for (MBarrierArriveOp arrive : protocol.barriers.find(filled.empty)->second.arrives) {
    if (arrive->getBlock() != reader->getBlock() ||
        (index && !isSameIndex(arrive.getIndex(), index)))
      continue;
    bool early = arrive->isBeforeInBlock(reader);
    if (early) {
      // Another round of the ring has begun since, if there is a wait in between.
      for (MBarrierWaitOp wait : protocol.barriers.find(filled.full)->second.waits)
        if (wait->getBlock() == arrive->getBlock() && arrive->isBeforeInBlock(wait) &&
            wait->isBeforeInBlock(reader))
          early = false;
      if (!early)
        continue;
    } else if (product ? isWaitedFor(product, arrive) : isFenced(reader, arrive)) {
      continue;
    }
    InFlightDiagnostic diagnostic = protocol.error(arrive);
    diagnostic << "gives a tile back that a " << (product ? "product " : "tile.read ")
               << (early     ? "reads afterwards"
                   : product ? "may still read"
                             : "has read, without a hopper.fence.async in between");
    diagnostic.attachNote(reader->getLoc()) << (product ? "the product" : "the read");
  }
}

/// A loop that waits for the copies must give the tiles back.
static void checkReleases(Protocol &protocol, const Filled &filled) {
  for (MBarrierWaitOp wait : protocol.barriers.find(filled.full)->second.waits) {
    bool inLoop = isa<scf::ForOp, scf::WhileOp>(wait->getParentOp());
    const auto &arrives = protocol.barriers.find(filled.empty)->second.arrives;
    bool released = llvm::any_of(arrives, [&](MBarrierArriveOp arrive) {
      return isSameIndex(arrive.getIndex(), wait.getIndex()) &&
             wait->getBlock()->findAncestorOpInBlock(*arrive);
    });
    if (released)
      continue;
    bool elsewhere = llvm::any_of(arrives, [&](MBarrierArriveOp arrive) {
      return protocol.getRole(arrive) == protocol.getRole(wait) &&
             (wait->getParentOp()->isProperAncestor(arrive) ||
              arrive->getParentOp()->isProperAncestor(wait));
    });
    if (!inLoop || elsewhere) {
      protocol.remark(wait, "not checked: no arrival with this index gives the tile back");
      continue;
    }
    InFlightDiagnostic diagnostic = protocol.error(wait);
    diagnostic << "the loop waits for tiles and never gives them back";
    TmaLoadOp load = filled.load;
    diagnostic.attachNote(load.getLoc()) << "the copy that needs the room";
  }
}

void attn::hopper::checkTileLifetimes(Protocol &protocol) {
  llvm::MapVector<Value, Filled> filled = findFilled(protocol);
  for (auto &[memory, entry] : filled) {
    if (entry.load.getMulticast() && entry.empty &&
        !protocol.barriers.find(entry.empty)->second.barrier.getCluster())
      protocol.error(entry.load) << "fills tiles of all CTAs, and waits for room in its own only";
    if (!entry.aligned)
      protocol.remark(entry.load, "tiles not checked: the slot and its mbarriers have different "
                                  "indices, or copies use different mbarriers");
    else if (entry.empty)
      checkReleases(protocol, entry);
    else if (isa<scf::ForOp, scf::WhileOp>(getCopy(entry.load).op->getParentOp()))
      protocol.error(entry.load) << "a loop fills the tile again, and does not wait for room";
  }
  protocol.roles.walk([&](Operation *reader) {
    if (!isa<WgmmaOp, tile::ReadOp>(reader))
      return;
    for (Value operand : reader->getOperands()) {
      if (!isa<tile::SmemType>(operand.getType()))
        continue;
      TileOrigin origin = getTileOrigin(operand);
      auto entry = filled.find(origin.memory);
      if (entry == filled.end() || !entry->second.aligned)
        continue;
      checkWaited(protocol, entry->second, reader, origin.index);
      if (entry->second.empty)
        checkGivenBack(protocol, entry->second, reader, origin.index);
    }
  });
}

//===----------------------------------------------------------------------===//
// Stores
//===----------------------------------------------------------------------===//

/// Whether `op`, or what is nested in it, is one of `Ops`.
template <typename... Ops> static bool has(Operation *op) {
  return op
      ->walk([](Operation *nested) {
        return isa<Ops...>(nested) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// A fence and a barrier between store and reader: the fence is by the writers, or behind the
/// barrier by the readers.
static void checkFence(Protocol &protocol, tile::WriteOp store, Operation *reader) {
  bool fenced = false, synced = false;
  for (Operation *op = store->getNextNode(); op != reader; op = op->getNextNode()) {
    fenced |= has<FenceAsyncOp>(op);
    synced |= has<BarrierSyncOp, MBarrierWaitOp>(op);
  }
  if (fenced && synced)
    return;
  InFlightDiagnostic diagnostic = protocol.error(reader);
  diagnostic << "reads a tile that is stored without "
             << (fenced ? "a barrier beside the fence" : "a hopper.fence.async before it");
  diagnostic.attachNote(store.getLoc()) << "the store";
}

/// Whether a copy or product reads tiles of some memory.
static bool readsTilesOf(Operation *op, Value memory) {
  return isa<TmaStoreOp, TmaReduceOp, WgmmaOp>(op) &&
         llvm::any_of(op->getOperands(), [&](Value operand) {
           return isa<tile::SmemType>(operand.getType()) && getTileOrigin(operand).memory == memory;
         });
}

static void checkReaders(Protocol &protocol, tile::WriteOp store) {
  TileOrigin origin = getTileOrigin(store.getTile());
  if (!origin.memory)
    return;
  bool fenced = false, known = false;
  for (Operation *op = store->getNextNode(); op; op = op->getNextNode()) {
    fenced |= has<FenceAsyncOp>(op);
    if (!readsTilesOf(op, origin.memory))
      continue;
    checkFence(protocol, store, op);
    known = true;
  }
  // What threads alone read needs no fence.
  bool isRead = protocol.roles
                    .walk([&](Operation *op) {
                      return readsTilesOf(op, origin.memory) ? WalkResult::interrupt()
                                                             : WalkResult::advance();
                    })
                    .wasInterrupted();
  if (known || !isRead)
    return;
  // Another role that reads the tile may have the fence, in front of that.
  protocol.roles.walk([&](Operation *op) {
    if (!readsTilesOf(op, origin.memory) || protocol.getRole(op) == protocol.getRole(store))
      return;
    for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode())
      fenced |= has<FenceAsyncOp>(before);
  });
  if (!fenced && store->getParentOp() == protocol.roles)
    protocol.error(store) << "no hopper.fence.async follows: TMA and WGMMA may not see the tile";
  else
    protocol.remark(store,
                    "the fence and the barrier after this are not checked: who reads the tile "
                    "is in another block");
}

void attn::hopper::checkStores(Protocol &protocol) {
  protocol.roles.walk([&](tile::WriteOp store) { checkReaders(protocol, store); });
  for (Region &role : protocol.roles.getBodies()) {
    SmallVector<TmaWaitOp> waits;
    role.walk([&](TmaWaitOp wait) { waits.push_back(wait); });
    role.walk([&](Operation *op) {
      if (!isa<TmaStoreOp, TmaReduceOp>(op))
        return;
      // After the copy, in its block or around it.
      bool waited = llvm::any_of(waits, [&](TmaWaitOp wait) {
        Operation *ancestor = wait->getBlock()->findAncestorOpInBlock(*op);
        return wait.getPending() == 0 && ancestor && ancestor->isBeforeInBlock(wait);
      });
      if (waited)
        return;
      if (waits.empty())
        protocol.error(op) << "the role ends while TMA may still read the tile: no hopper.tma.wait";
      else
        protocol.remark(op,
                        "not checked: no hopper.tma.wait for all copies follows in this block or "
                        "around it");
    });
  }
}
