// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// mbarriers and named barriers. What a wait lets through is what the hardware
// lets through; what makes that depend on timing is an error.

#include "Cta.h"

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
  InFlightDiagnostic diagnostic = fiber.cta->error(op);
  diagnostic << what << " phase " << barrier.phase << " of mbarrier " << barrier.index
             << " here, but may count for phase " << barrier.phase - 1
             << ": warpgroup " << fiber.warpgroup << " cannot know that it is complete";
  diagnostic.attachNote(barrier.op->getLoc()) << "the mbarrier, of " << barrier.count
                                              << (barrier.count == 1 ? " arrival" : " arrivals");
  return diagnostic;
}

LogicalResult Cta::arrive(Fiber &fiber, MBarrier &barrier, Operation *op,
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

LogicalResult Cta::startLoad(Fiber &fiber, std::shared_ptr<TmaLoad> load) {
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
  barrier.loads.push_back(load);
  barrier.lastLoad = load->op;
  barrier.lastLoadPhase = barrier.phase;
  if (machine.isEarly())
    return finishLoad(*load);
  loads.push_back(std::move(load));
  return success();
}

/// Completes the phase if it is; `op` is what did it.
LogicalResult Cta::completePhase(MBarrier &barrier, Operation *op) {
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
               << " may be complete before warpgroup " << warpgroup << " has waited for phase "
               << seen.phase << ", whose parity then comes again only two phases later";
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
  InFlightDiagnostic diagnostic = fiber.cta->error(op);
  diagnostic << "waits for parity " << parity << " of mbarrier " << barrier.index
             << " when phase " << barrier.phase - 1 << " is complete already";
  if (known < 0)
    diagnostic << "; warpgroup " << fiber.warpgroup << " knows of none";
  else
    diagnostic << "; the last that warpgroup " << fiber.warpgroup << " knows of is " << known;
  diagnostic << ": the parity is ambiguous";
  diagnostic.attachNote(barrier.op->getLoc()) << "the mbarrier";
  return Step::Failed;
}

Step Cta::wait(Fiber &fiber, MBarrier &barrier, Operation *op, int64_t parity) {
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

static LogicalResult checkRound(Fiber &fiber, const Round &round, int64_t id, int64_t warpgroups,
                                Operation *op) {
  Cta &cta = *fiber.cta;
  if (id < 1 || id >= hopper::kNamedBarriers)
    return cta.error(op) << "named barriers are 1 to 15, got " << id;
  if (warpgroups > int64_t(cta.fibers.size()))
    return cta.error(op) << "waits for " << warpgroups << " warpgroups of "
                         << cta.fibers.size();
  for (const Round::Arrival &other : round.arrivals) {
    if (warpgroups == round.expected && other.warpgroup != fiber.warpgroup)
      continue;
    InFlightDiagnostic diagnostic = cta.error(op);
    if (warpgroups != round.expected)
      diagnostic << "named barrier " << id << " is for " << warpgroups
                 << " warpgroups here and for " << round.expected << " elsewhere";
    else
      diagnostic << "warpgroup " << fiber.warpgroup << " arrives at named barrier " << id
                 << " a second time before it is complete";
    diagnostic.attachNote(other.op->getLoc()) << "the other arrival";
    return diagnostic;
  }
  return success();
}

static LogicalResult checkKnown(Fiber &fiber, const Round &round, int64_t id, Operation *op) {
  if (int64_t(fiber.clock[fiber.cta->barrierComponent(id)]) >= round.number)
    return success();
  return fiber.cta->error(op) << "arrives at named barrier " << id << " for its use "
                              << round.number << " here, but may count for the one before: "
                              << "warpgroup " << fiber.warpgroup
                              << " cannot know that it is complete";
}

Step Cta::arriveNamed(Fiber &fiber, int64_t id, int64_t warpgroups, Operation *op, bool sync,
                      bool any, bool all) {
  if (fiber.round) { // has arrived already
    if (!fiber.round->complete)
      return Step::Blocked;
    fiber.clock.join(fiber.round->clock);
    fiber.any = fiber.round->any;
    fiber.all = fiber.round->all;
    fiber.round.reset();
    return Step::Next;
  }
  if (id >= 1 && id < hopper::kNamedBarriers && !rounds[id]) {
    rounds[id] = std::make_shared<Round>();
    rounds[id]->clock = Clock(barrierComponent(hopper::kNamedBarriers));
  }
  std::shared_ptr<Round> round =
      id >= 1 && id < hopper::kNamedBarriers ? rounds[id] : std::make_shared<Round>();
  if (failed(checkRound(fiber, *round, id, warpgroups, op)) ||
      failed(checkKnown(fiber, *round, id, op)))
    return Step::Failed;
  round->expected = warpgroups;
  round->arrivals.push_back({fiber.warpgroup, op});
  round->any |= any;
  round->all &= all;
  round->clock.join(fiber.clock);
  round->clock[fiber.warpgroup] = std::max(round->clock[fiber.warpgroup], fiber.now);
  changed();
  if (int64_t(round->arrivals.size()) == warpgroups) {
    round->complete = true;
    round->clock[barrierComponent(id)] = uint32_t(round->number + 1);
    auto next = std::make_shared<Round>();
    next->number = round->number + 1;
    next->clock = Clock(barrierComponent(hopper::kNamedBarriers));
    rounds[id] = next;
  }
  if (!sync)
    return Step::Next;
  fiber.round = round;
  return arriveNamed(fiber, id, warpgroups, op, sync);
}
