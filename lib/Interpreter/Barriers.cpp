// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// mbarriers and named barriers. What a wait lets through is what the hardware
// lets through; what makes that depend on timing is an error.

#include "Cluster.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

//===----------------------------------------------------------------------===//
// mbarriers
//===----------------------------------------------------------------------===//

/// The arrival counts for the phase that is current when it happens. That must
/// not depend on timing: the warpgroup must know that the phase before is
/// complete.
static LogicalResult checkPhase(Fiber &fiber, MBarrier &barrier, Operation *op, StringRef what) {
  if (int64_t(fiber.clock[barrier.component]) >= barrier.phase)
    return success();
  InFlightDiagnostic diagnostic = fiber.cluster->error(op);
  diagnostic << what << " phase " << barrier.phase << " of mbarrier " << barrier.index
             << " here, but may count for phase " << barrier.phase - 1 << ": "
             << fiber.cluster->nameOf(fiber.warpgroup) << " cannot know that it is complete";
  diagnostic.attachNote(barrier.op->getLoc())
      << "the mbarrier, of " << barrier.count << (barrier.count == 1 ? " arrival" : " arrivals");
  return diagnostic;
}

LogicalResult Cluster::arrive(Fiber &fiber, MBarrier &barrier, Operation *op,
                              std::optional<int64_t> bytes) {
  if (failed(checkPhase(fiber, barrier, op, "arrives in")))
    return failure();
  if (barrier.arrived == barrier.count) {
    InFlightDiagnostic diagnostic = error(op);
    diagnostic << "more arrivals than " << barrier.count << " in phase " << barrier.phase
               << " of mbarrier " << barrier.index;
    for (Operation *other : barrier.arrivals)
      diagnostic.attachNote(other->getLoc()) << "an arrival in this phase";
    return diagnostic;
  }
  ++barrier.arrived;
  barrier.arrivals.push_back(op);
  barrier.arriving.join(fiber.clock);
  uint32_t &own = barrier.arriving[fiber.warpgroup];
  own = std::max(own, fiber.now);
  if (bytes) {
    barrier.expected += *bytes;
    barrier.lastExpect = op;
  }
  int64_t phase = barrier.phase;
  if (failed(completePhase(barrier, op)))
    return failure();
  // The only arrival of a phase without bytes completes it for sure.
  if (barrier.phase > phase && barrier.count == 1 && !bytes)
    fiber.clock[barrier.component] = uint32_t(barrier.phase);
  changed();
  return success();
}

LogicalResult Cluster::arriveAll(Fiber &fiber, const MBarrier &barrier, Operation *op) {
  size_t number = size_t(&barrier - barriers.data());
  for (unsigned rank = 0; rank < ctas; ++rank) {
    MBarrier &target = barriers[getPlace(barriers, number, rank)];
    if (failed(arrive(fiber, target, op, std::nullopt)))
      return failure();
    if (rank != fiber.rank)
      target.remote[fiber.warpgroup] = {target.phase, fiber.now, op};
  }
  return success();
}

LogicalResult Cluster::startLoad(Fiber &fiber, std::shared_ptr<TmaLoad> load) {
  MBarrier &barrier = barriers[load->barrier];
  if (failed(checkPhase(fiber, barrier, load->op, "completes in")))
    return failure();
  auto type = cast<hopper::TmaLoadOp>(load->op).getTile().getType();
  std::shared_ptr<Event> event = begin(fiber, load->op, {Threads::One, {}, false}, true);
  event->ended = true;
  event->component = barrier.component;
  event->epoch = uint32_t(barrier.phase + 1);
  if (failed(access(fiber, load->tile, type, event, /*write=*/true)))
    return failure();
  SmemMemory &memory = memories[load->tile.memory];
  for (int64_t row = load->tile.row; row < load->tile.row + type.getRows(); ++row) {
    // Nobody may read it now; who does should see that.
    std::fill_n(memory.row(load->tile.slot, row), memory.columns,
                std::numeric_limits<float>::quiet_NaN());
    memory.slots[load->tile.slot].written[size_t(row)] = 2;
  }
  // The phase is not complete before the copy, nor that before what the copy waited for.
  for (size_t phases = fibers.size(); phases < barrierComponent(0); ++phases)
    barrier.arriving[phases] = std::max(barrier.arriving[phases], fiber.clock[phases]);
  barrier.loads.push_back(load);
  barrier.lastLoad = load->op;
  barrier.lastLoadPhase = barrier.phase;
  if (machine.isEarly())
    return finishLoad(*load);
  loads.push_back(std::move(load));
  return success();
}

/// Completes the phase if it is; `op` is what did it.
LogicalResult Cluster::completePhase(MBarrier &barrier, Operation *op) {
  if (barrier.arrived < barrier.count || barrier.copied != barrier.expected)
    return success();
  for (const std::shared_ptr<TmaLoad> &load : barrier.loads) {
    if (load->done)
      continue;
    InFlightDiagnostic diagnostic = error(barrier.lastExpect ? barrier.lastExpect : op);
    diagnostic << "phase " << barrier.phase << " of mbarrier " << barrier.index
               << " expects too few bytes: " << barrier.expected
               << ", which is complete before a copy of " << load->bytes << " bytes";
    diagnostic.attachNote(load->op->getLoc()) << "the copy";
    return diagnostic;
  }
  for (auto [warpgroup, seen] : llvm::enumerate(barrier.observations)) {
    if (seen.phase != barrier.phase - 1 || barrier.arriving[unsigned(warpgroup)] >= seen.epoch)
      continue;
    InFlightDiagnostic diagnostic = error(op);
    diagnostic << "phase " << barrier.phase << " of mbarrier " << barrier.index
               << " may be complete before " << nameOf(unsigned(warpgroup))
               << " has waited for phase " << seen.phase
               << ", whose parity then comes again only two phases later";
    diagnostic.attachNote(seen.op->getLoc()) << "the wait";
    return diagnostic;
  }
  barrier.completed = barrier.arriving;
  barrier.completed[barrier.component] = uint32_t(++barrier.phase);
  barrier.arriving.clear();
  barrier.arrived = barrier.expected = barrier.copied = 0;
  barrier.arrivals.clear();
  barrier.loads.clear();
  barrier.lastExpect = nullptr;
  return success();
}

/// A wait that the phase has overtaken: what it waits for is not what the
/// program means.
static Step reportOvertaken(Fiber &fiber, MBarrier &barrier, Operation *op, int64_t parity) {
  int64_t known = int64_t(fiber.clock[barrier.component]) - 1;
  InFlightDiagnostic diagnostic = fiber.cluster->error(op);
  diagnostic << "waits for parity " << parity << " of mbarrier " << barrier.index << " when phase "
             << barrier.phase - 1 << " is complete already";
  if (known < 0)
    diagnostic << "; " << fiber.cluster->nameOf(fiber.warpgroup) << " knows of none";
  else
    diagnostic << "; the last that " << fiber.cluster->nameOf(fiber.warpgroup) << " knows of is "
               << known;
  diagnostic << ": the parity is ambiguous";
  diagnostic.attachNote(barrier.op->getLoc()) << "the mbarrier";
  return Step::Failed;
}

Step Cluster::wait(Fiber &fiber, MBarrier &barrier, Operation *op, int64_t parity) {
  int64_t known = int64_t(fiber.clock[barrier.component]) - 1, complete = barrier.phase - 1;
  if (parity != 0 && parity != 1) {
    error(op) << "waits for parity " << parity;
    return Step::Failed;
  }
  bool passes = (complete & 1) == parity;
  // The phase that is meant: the last that is known, or the one after.
  int64_t meant = (known & 1) == parity ? known : known + 1;
  if (complete > meant)
    return reportOvertaken(fiber, barrier, op, parity);
  if (!passes)
    return Step::Blocked;
  if (complete >= 0)
    fiber.clock.join(barrier.completed);
  barrier.observations[fiber.warpgroup] = {complete, fiber.now, op};
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Named barriers
//===----------------------------------------------------------------------===//

static LogicalResult checkId(Fiber &fiber, int64_t id, Operation *op) {
  if (id < 1 || id >= hopper::kNamedBarriers)
    return fiber.cluster->error(op) << "named barriers are 1 to 15, got " << id;
  return success();
}

static LogicalResult checkRound(Fiber &fiber, const Round &round, int64_t id, int64_t warpgroups,
                                Operation *op) {
  Cluster &cluster = *fiber.cluster;
  if (warpgroups > int64_t(cluster.countWarpgroups()))
    return cluster.error(op) << "waits for " << warpgroups << " warpgroups of "
                             << cluster.countWarpgroups();
  for (const Round::Arrival &other : round.arrivals) {
    if (warpgroups == round.expected && other.warpgroup != fiber.warpgroup)
      continue;
    InFlightDiagnostic diagnostic = cluster.error(op);
    if (warpgroups != round.expected)
      diagnostic << "named barrier " << id << " is for " << warpgroups
                 << " warpgroups here and for " << round.expected << " elsewhere";
    else
      diagnostic << cluster.nameOf(fiber.warpgroup) << " arrives at named barrier " << id
                 << " a second time before it is complete";
    diagnostic.attachNote(other.op->getLoc()) << "the other arrival";
    return diagnostic;
  }
  return success();
}

static LogicalResult checkKnown(Fiber &fiber, const Round &round, size_t at, int64_t id,
                                Operation *op) {
  if (int64_t(fiber.clock[fiber.cluster->barrierComponent(at)]) >= round.number)
    return success();
  return fiber.cluster->error(op) << "arrives at named barrier " << id << " for its use "
                                  << round.number << " here, but may count for the one before: "
                                  << fiber.cluster->nameOf(fiber.warpgroup)
                                  << " cannot know that it is complete";
}

Step Cluster::arriveNamed(Fiber &fiber, int64_t id, int64_t warpgroups, Operation *op, bool sync,
                          bool any, bool all) {
  size_t at = size_t(fiber.rank) * hopper::kNamedBarriers + size_t(id);
  if (!fiber.round && (failed(checkId(fiber, id, op)) ||
                       failed(checkRound(fiber, *rounds[at], id, warpgroups, op)) ||
                       failed(checkKnown(fiber, *rounds[at], at, id, op))))
    return Step::Failed;
  return meet(fiber, at, warpgroups, op, sync, any, all);
}

Step Cluster::sync(Fiber &fiber, Operation *op) {
  return meet(fiber, rounds.size() - 1, int64_t(fibers.size()), op, /*sync=*/true, /*any=*/false,
              /*all=*/true);
}

/// The round number `at`.
Step Cluster::meet(Fiber &fiber, size_t at, int64_t warpgroups, Operation *op, bool sync, bool any,
                   bool all) {
  if (fiber.round) { // has arrived already
    if (!fiber.round->complete)
      return Step::Blocked;
    fiber.clock.join(fiber.round->clock);
    fiber.knowledge.join(fiber.round->knowledge);
    fiber.any = fiber.round->any;
    fiber.all = fiber.round->all;
    fiber.round.reset();
    return Step::Next;
  }
  std::shared_ptr<Round> round = rounds[at];
  round->expected = warpgroups;
  round->arrivals.push_back({fiber.warpgroup, op});
  round->any |= any;
  round->all &= all;
  round->clock.join(fiber.clock);
  round->knowledge.join(fiber.knowledge);
  round->clock[fiber.warpgroup] = std::max(round->clock[fiber.warpgroup], fiber.now);
  changed();
  if (int64_t(round->arrivals.size()) == warpgroups) {
    round->complete = true;
    round->clock[barrierComponent(at)] = uint32_t(round->number + 1);
    auto next = std::make_shared<Round>();
    next->number = round->number + 1;
    next->clock = Clock(barrierComponent(rounds.size()));
    rounds[at] = next;
  }
  if (!sync)
    return Step::Next;
  fiber.round = round;
  return meet(fiber, at, warpgroups, op, sync, any, all);
}
