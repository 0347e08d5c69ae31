// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared memory, and what may access it when: every two accesses of which one
// writes must be ordered by barriers and waits, whatever order they happened in.

#include "Cluster.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

Cluster::Cluster(const LaunchInfo &launch, unsigned ctas, unsigned warpgroups, Machine &machine)
    : launch(launch), machine(machine), ctas(ctas), fibers(ctas * warpgroups),
      rounds(ctas * hopper::kNamedBarriers + 1) {
  for (unsigned rank = 0; rank < ctas; ++rank)
    addMemory();
  Clock fresh(barrierComponent(rounds.size()));
  for (MBarrier &barrier : barriers)
    barrier.arriving = barrier.completed = fresh;
  for (Fiber &fiber : fibers)
    fiber.clock = fresh;
  for (std::shared_ptr<Round> &round : rounds) {
    round = std::make_shared<Round>();
    round->clock = fresh;
  }
  constexpr unsigned kLanes = 32;
  if (launch.ofThreads)
    exchanges.resize(llvm::divideCeil(fibers.size(), kLanes));
}

/// What one CTA has.
void Cluster::addMemory() {
  for (Operation *op : launch.allocations) {
    SmemMemory &memory = memories.emplace_back();
    memory.op = op;
    memory.type = cast<hopper::AllocOp>(op).getMemory().getType();
    memory.columns = paddedColumns(memory.type);
    // Slots may be used for tiles of other elements.
    for (Operation *user : op->getUsers())
      if (auto slot = dyn_cast<hopper::SlotOp>(user))
        memory.columns = std::max(memory.columns, paddedColumns(slot.getTile().getType()));
    int64_t rows = memory.type.getDepth() * memory.type.getRows();
    memory.data.assign(size_t(rows * memory.columns), std::numeric_limits<float>::quiet_NaN());
    memory.slots.resize(size_t(memory.type.getDepth()));
    for (SmemMemory::Slot &slot : memory.slots)
      slot.written.assign(size_t(memory.type.getRows()), 0);
  }
  for (Operation *op : launch.barriers) {
    auto ring = cast<hopper::MBarrierOp>(op);
    for (int64_t index = 0; index < ring.getBarriers().getType().getDepth(); ++index) {
      MBarrier &barrier = barriers.emplace_back();
      barrier.op = op;
      barrier.index = index;
      barrier.count = int64_t(ring.getArrivals()) * (ring.getCluster() ? ctas : 1);
      barrier.component = unsigned(fibers.size() + barriers.size()) - 1;
      barrier.observations.resize(fibers.size());
      barrier.remote.resize(fibers.size());
    }
  }
  for (Operation *op : launch.channels) {
    ChannelState &channel = channels.emplace_back();
    channel.op = op;
    channel.received.assign(fibers.size(), 0);
    channel.released.assign(fibers.size(), 0);
    channel.views.resize(fibers.size());
  }
}

std::string Cluster::nameOf(unsigned warpgroup) const {
  unsigned ofCta = countWarpgroups();
  std::string name =
      (launch.ofThreads ? "thread " : "warpgroup ") + std::to_string(warpgroup % ofCta);
  return ctas == 1 ? name : name + " of CTA " + std::to_string(warpgroup / ofCta);
}

InFlightDiagnostic Cluster::error(Operation *op) { return op->emitError(); }

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

std::shared_ptr<Event> Cluster::begin(Fiber &fiber, Operation *op, Threads threads,
                                      bool asynchronous) {
  auto event = std::make_shared<Event>();
  event->op = op;
  event->warpgroup = fiber.warpgroup;
  event->threads = threads;
  event->asynchronous = asynchronous;
  return event;
}

void Cluster::end(Fiber &fiber, Event &event) {
  event.ended = true;
  event.component = fiber.warpgroup;
  event.epoch = fiber.now;
}

bool Cluster::isOrdered(const Event &event, const Fiber &fiber, const Event &later) const {
  if (!event.ended)
    return false;
  if (fiber.clock[event.component] >= event.epoch)
    return true;
  if (event.component != fiber.warpgroup)
    return false;
  bool isByRows = event.threads.isByRows() && later.threads.isByRows();
  return event.threads.inOrderWith(later.threads) || (isByRows && event.epoch < fiber.warpsMet);
}

/// Whether a fence came after the write, by the writers or by who knew of it, and
/// before what the fiber knows.
bool Cluster::isFenced(const Event &event, const Fiber &fiber) const {
  if (fiber.clock.getFenced(event.component) >= event.epoch)
    return true;
  const auto &fences = fibers[event.warpgroup].fences;
  auto fence = llvm::lower_bound(fences, event.epoch);
  return fence != fences.end() && fiber.clock[event.warpgroup] >= *fence;
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

static StringRef nameOf(Operation *op) {
  if (isa<hopper::TmaLoadOp>(op))
    return "copy";
  if (isa<hopper::TmaStoreOp>(op))
    return "store by TMA";
  if (isa<hopper::TmaReduceOp>(op))
    return "reduction by TMA";
  if (isa<hopper::WgmmaOp>(op))
    return "product";
  if (isa<tile::MmaOp>(op))
    return "product";
  if (isa<tile::CopyOp>(op))
    return "copy";
  if (isa<tile::ReadOp>(op))
    return "tile.read";
  return "tile.write";
}

static std::string nameOf(const SmemMemory &memory, unsigned slot) {
  return memory.type.isRing() ? "slot " + std::to_string(slot) + " of a ring" : "a tile";
}

void Cluster::report(Fiber &fiber, const SmemView &view, const SmemMemory::Access &earlier,
                     const Event &later, bool write) {
  const SmemMemory &memory = memories[view.memory];
  const Event &event = *earlier.event;
  InFlightDiagnostic diagnostic = error(later.op);
  diagnostic << (write ? "writes " : "reads ") << ::nameOf(memory, view.slot) << " that a "
             << ::nameOf(event.op) << " of "
             << (event.warpgroup == fiber.warpgroup ? "the same warpgroup" : "another warpgroup")
             << (earlier.write ? " may still be writing" : " may still be reading");
  if (event.ended && isOrdered(event, fiber, later) && !isFenced(event, fiber))
    diagnostic << ": its writes are not visible to TMA and WGMMA without a hopper.fence.async, "
                  "by the writers in front of a barrier or by somebody behind it";
  else if (!event.ended && event.warpgroup == fiber.warpgroup)
    diagnostic << ": no wait covers it";
  else if (event.component == fiber.warpgroup && event.ended)
    diagnostic << ": other threads of the warpgroup may be behind, and no barrier is in between";
  else
    diagnostic << ": no barrier orders the two";
  diagnostic.attachNote(event.op->getLoc())
      << "the " << ::nameOf(event.op) << " (" << nameOf(event.warpgroup) << ")";
  diagnostic.attachNote(memory.op->getLoc()) << "the shared memory";
}

LogicalResult Cluster::access(Fiber &fiber, const SmemView &view, tile::SmemType type,
                              std::shared_ptr<Event> event, bool write) {
  SmemMemory::Slot &slot = memories[view.memory].slots[view.slot];
  int64_t begin = view.row, end = view.row + type.getRows();
  int64_t left = view.column, right = view.column + paddedColumns(type);
  auto overlaps = [&](const SmemMemory::Access &access) {
    return access.begin < end && begin < access.end && access.left < right && left < access.right;
  };
  for (const SmemMemory::Access &earlier : slot.accesses) {
    if (!overlaps(earlier) || (!write && !earlier.write))
      continue;
    bool ordered = isOrdered(*earlier.event, fiber, *event);
    bool fenced =
        !event->asynchronous || earlier.event->asynchronous || isFenced(*earlier.event, fiber);
    if (!ordered || !fenced) {
      report(fiber, view, earlier, *event, write);
      return failure();
    }
  }
  // What is ordered before a write needs no more looking at: whoever is ordered
  // after the write is ordered after it too. A read replaces older reads of the
  // same warpgroup.
  llvm::erase_if(slot.accesses, [&](const SmemMemory::Access &access) {
    bool covered =
        begin <= access.begin && access.end <= end && left <= access.left && access.right <= right;
    if (write)
      return covered;
    return covered && !access.write && access.event->ended &&
           access.event->component == fiber.warpgroup &&
           access.event->threads.kind == event->threads.kind;
  });
  slot.accesses.push_back({std::move(event), write, begin, end, left, right});
  return success();
}

LogicalResult Cluster::checkWritten(Operation *op, const SmemView &view, tile::SmemType type,
                                    bool padding) {
  const SmemMemory &memory = memories[view.memory];
  for (int64_t row = view.row; row < view.row + type.getRows(); ++row) {
    uint8_t written = memory.slots[view.slot].written[size_t(row)];
    if (written > (padding ? 1 : 0))
      continue;
    InFlightDiagnostic diagnostic = error(op);
    diagnostic << "reads row " << row << " of " << ::nameOf(memory, view.slot) << ", "
               << (written ? "whose padding of the last slab nothing has written"
                           : "which nothing has written");
    diagnostic.attachNote(memory.op->getLoc()) << "the shared memory";
    return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// The end
//===----------------------------------------------------------------------===//

LogicalResult Cluster::checkFinished(Fiber &fiber) {
  if (failed(checkRead(fiber)))
    return failure();
  if (!fiber.products.empty())
    return error(fiber.products.front()->event->op)
           << nameOf(fiber.warpgroup) << " ends and has not waited for this product";
  for (const std::shared_ptr<TmaStore> &store : fiber.stores)
    if (!store->event->ended)
      return error(store->event->op)
             << nameOf(fiber.warpgroup)
             << " ends while TMA may still read the tile: no hopper.tma.wait covers this";
  return success();
}

LogicalResult Cluster::checkFinished() {
  for (size_t number = 0; number < barriers.size(); ++number) {
    const MBarrier &barrier = barriers[number];
    unsigned rank = unsigned(number / (barriers.size() / ctas));
    ArrayRef<Fiber> ofCta = ArrayRef(fibers).slice(rank * countWarpgroups(), countWarpgroups());
    auto knows = [&](const Fiber &fiber) {
      return int64_t(fiber.clock[barrier.component]) > barrier.lastLoadPhase;
    };
    if (barrier.lastLoad && llvm::none_of(ofCta, knows))
      return error(barrier.lastLoad)
             << "the CTA may end while this copy writes its shared memory: nobody waits for phase "
             << barrier.lastLoadPhase << " of mbarrier " << barrier.index;
    for (unsigned warpgroup = 0; warpgroup < barrier.remote.size(); ++warpgroup) {
      const MBarrier::Observation &arrival = barrier.remote[warpgroup];
      auto saw = [&](const Fiber &fiber) { return fiber.clock[warpgroup] >= arrival.epoch; };
      if (arrival.op && llvm::none_of(ofCta, saw))
        return error(arrival.op) << "CTA " << rank << " may end before this arrival of "
                                 << nameOf(warpgroup) << " at its mbarrier " << barrier.index
                                 << ": no hopper.cluster.sync comes in between";
    }
  }
  for (size_t number = 0; number < channels.size(); ++number) {
    const ChannelState &channel = channels[number];
    const ChannelState &first = channels[getPlace(channels, number, 0)];
    if (cast<hopper::ChannelOp>(channel.op).getMulticast() &&
        channel.sent.size() != first.sent.size())
      return error(channel.op) << "the CTAs of a cluster send " << first.sent.size() << " and "
                               << channel.sent.size() << " tiles to a multicast channel";
  }
  return success();
}

static void describeWait(Cluster &cluster, const Fiber &fiber, Diagnostic &note) {
  Operation *op = fiber.machine->program.instructions[fiber.next].op;
  note << cluster.nameOf(fiber.warpgroup) << " waits here";
  const Instruction &i = fiber.machine->program.instructions[fiber.next];
  bool waits = isa<hopper::SemaphoreWaitOp>(op);
  if (waits || isa<hopper::SemaphoreFirstTouchOp>(op)) {
    auto indices = ArrayRef(i.operands).drop_front().drop_back();
    if (waits)
      note << ", for number " << fiber.frame[i.operands.back()].integer;
    note << (waits ? " at semaphore " : ", for the first CTA at semaphore ");
    llvm::interleaveComma(indices, note, [&](auto index) { note << fiber.frame[index].integer; });
  }
  if (fiber.gridRound)
    note << ", at a meeting of the grid: " << fiber.gridRound->arrived << " of "
         << fiber.machine->accesses->threads << " threads have come";
  if (!isa<hopper::MBarrierWaitOp>(op))
    return;
  const MBarrier &barrier = cluster.barriers[size_t(fiber.frame[i.operands[0]].integer +
                                                    fiber.frame[i.operands[1]].integer)];
  note << ", for phase " << barrier.phase << " of mbarrier " << barrier.index << ": "
       << barrier.arrived << " of " << barrier.count << " arrivals, " << barrier.copied << " of "
       << barrier.expected << " bytes";
}

LogicalResult Cluster::reportDeadlock() {
  InFlightDiagnostic diagnostic = error(launch.op);
  auto goesOn = [](const Fiber &fiber) { return !fiber.finished; };
  const int64_t *block = llvm::find_if(fibers, goesOn)->block;
  diagnostic << "deadlock: in block (" << block[0] << ", " << block[1] << ", " << block[2]
             << (ctas == 1 ? ")" : ") and its cluster")
             << (launch.ofThreads ? " no thread can go on" : " no warpgroup can go on");
  Operation *said = nullptr; // threads mostly wait at the same place
  for (const Fiber &fiber : fibers) {
    if (fiber.finished)
      continue;
    if (launch.ofThreads && said == fiber.machine->program.instructions[fiber.next].op)
      continue;
    said = fiber.machine->program.instructions[fiber.next].op;
    Operation *op = fiber.machine->program.instructions[fiber.next].op;
    describeWait(*this, fiber, diagnostic.attachNote(op->getLoc()));
  }
  return diagnostic;
}
