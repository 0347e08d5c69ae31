// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which instruction of which warpgroup is next.

#include "Cluster.h"
#include "GlobalMemory.h"
#include "attn/Runtime/FloatConvert.h"
#include "attn/Runtime/HostTensor.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

double interpreter::loadNumber(ElementKind kind, const char *element) {
  uint16_t half;
  float single;
  double number;
  if (kind == ElementKind::F64) {
    std::memcpy(&number, element, 8);
    return number;
  }
  if (kind == ElementKind::F32) {
    std::memcpy(&single, element, 4);
    return single;
  }
  std::memcpy(&half, element, 2);
  return kind == ElementKind::BF16 ? bfloatToFloat(half) : halfToFloat(half);
}

void interpreter::storeNumber(ElementKind kind, char *element, double value) {
  auto single = float(value);
  if (kind == ElementKind::F64) {
    std::memcpy(element, &value, 8);
  } else if (kind == ElementKind::F32) {
    std::memcpy(element, &single, 4);
  } else {
    uint16_t half = kind == ElementKind::BF16 ? floatToBfloat(single) : floatToHalf(single);
    std::memcpy(element, &half, 2);
  }
}

double interpreter::roundNumber(ElementKind kind, double value) {
  if (kind == ElementKind::F64)
    return value;
  auto single = float(value);
  if (kind == ElementKind::BF16)
    return bfloatToFloat(floatToBfloat(single));
  return kind == ElementKind::F16 ? halfToFloat(floatToHalf(single)) : single;
}

//===----------------------------------------------------------------------===//
// One warpgroup
//===----------------------------------------------------------------------===//

Step Machine::resume(Fiber &fiber) {
  while (true) {
    const Instruction &instruction = program.instructions[fiber.next];
    ++statistics.instructions;
    if (instruction.yields)
      ++fiber.now;
    Step step = instruction.run(fiber, instruction);
    if (step == Step::Next)
      ++fiber.next;
    else if (step != Step::Jumped)
      return step;
    if (instruction.yields && fiber.cluster)
      return Step::Next;
  }
}

//===----------------------------------------------------------------------===//
// One cluster
//===----------------------------------------------------------------------===//

static Fiber *chooseFiber(Cluster &cluster, Machine &machine) {
  SmallVector<Fiber *, 8> ready;
  for (Fiber &fiber : cluster.fibers)
    if (!fiber.finished && fiber.blockedAt != cluster.version)
      ready.push_back(&fiber);
  if (ready.empty())
    return nullptr;
  switch (machine.options.order) {
  case InterpreterOrder::Random:
    return ready[machine.pick(ready.size())];
  case InterpreterOrder::Ahead:
    return ready.front();
  case InterpreterOrder::Behind:
    return ready.back();
  case InterpreterOrder::RoundRobin:
    break;
  }
  for (Fiber *fiber : ready)
    if (fiber->warpgroup > cluster.last)
      return cluster.last = fiber->warpgroup, fiber;
  return cluster.last = ready.front()->warpgroup, ready.front();
}

/// Lets something happen in the cluster; finished where all has.
static Step advance(Cluster &cluster, Machine &machine) {
  LogicalResult status = success();
  bool early = machine.options.timing == InterpreterTiming::Random && machine.pick(2);
  if (early && cluster.progress(status, /*loadsOnly=*/false))
    return succeeded(status) ? Step::Next : Step::Failed;
  Fiber *fiber = chooseFiber(cluster, machine);
  if (!fiber) {
    bool ended = llvm::all_of(cluster.fibers, [](const Fiber &fiber) { return fiber.finished; });
    if (cluster.progress(status, /*loadsOnly=*/!ended))
      return succeeded(status) ? Step::Next : Step::Failed;
    if (!ended)
      return Step::Blocked;
    return succeeded(cluster.checkFinished()) ? Step::Finished : Step::Failed;
  }
  switch (machine.resume(*fiber)) {
  case Step::Blocked:
    fiber->blockedAt = cluster.version;
    return Step::Next;
  case Step::Failed:
    return Step::Failed;
  case Step::Finished:
    fiber->finished = true;
    cluster.changed();
    return succeeded(cluster.checkFinished(*fiber)) ? Step::Next : Step::Failed;
  default:
    return Step::Next;
  }
}

//===----------------------------------------------------------------------===//
// A launch
//===----------------------------------------------------------------------===//

static LogicalResult checkSharedMemory(const LaunchInfo &launch, std::optional<int64_t> given) {
  int64_t limit = std::min(hopper::kSharedMemoryBytes, given.value_or(hopper::kSharedMemoryBytes));
  int64_t bytes = 0;
  auto check = [&](Operation *op, int64_t more) -> LogicalResult {
    bytes += more;
    if (bytes <= limit)
      return success();
    return op->emitError() << "the launch has " << limit << " bytes of shared memory; with this, "
                           << bytes << " are needed";
  };
  for (Operation *op : launch.allocations)
    if (failed(check(
            op, int64_t(llvm::alignTo(
                    uint64_t(cast<hopper::AllocOp>(op).getMemory().getType().getBytes()), 1024)))))
      return failure();
  for (Operation *op : launch.barriers)
    if (failed(check(op, 8 * cast<hopper::MBarrierOp>(op).getBarriers().getType().getDepth())))
      return failure();
  return success();
}

/// Threads that one fiber stands for: one, a warpgroup, or the pair of warps that has its rows.
static int64_t getThreadsOfAgent(const LaunchInfo &launch, int64_t threads) {
  if (launch.ofThreads)
    return 1;
  auto roles = dyn_cast_if_present<hopper::RolesOp>(launch.roles);
  bool hasPairs = roles && roles.getNumWarpgroups() * hopper::kThreadsOfWarpPair == threads;
  return hasPairs ? hopper::kThreadsOfWarpPair : hopper::kThreadsPerWarpgroup;
}

/// The cluster of number `number`; its CTAs lie side by side in x.
static std::unique_ptr<Cluster> makeCluster(Fiber &host, const LaunchInfo &launch,
                                            const int64_t grid[3], int64_t ctas, int64_t threads,
                                            int64_t number, Machine &machine) {
  // Roles of one thread beside another one go their own way, too.
  int64_t ofAgent = getThreadsOfAgent(launch, threads);
  int64_t warpgroups = threads / ofAgent;
  if (auto roles = dyn_cast_if_present<hopper::RolesOp>(launch.roles))
    warpgroups += roles.getNumAgents() - roles.getNumWarpgroups();
  auto cluster = std::make_unique<Cluster>(launch, unsigned(ctas), unsigned(warpgroups), machine);
  std::copy_n(grid, 3, cluster->grid);
  cluster->number = unsigned(number);
  for (auto [warpgroup, fiber] : llvm::enumerate(cluster->fibers)) {
    int64_t rank = int64_t(warpgroup) / warpgroups, cta = number * ctas + rank;
    int64_t thread = int64_t(warpgroup) % warpgroups * ofAgent;
    fiber.rank = unsigned(rank);
    fiber.block[0] = cta % grid[0];
    fiber.block[1] = cta / grid[0] % grid[1];
    fiber.block[2] = cta / grid[0] / grid[1];
    fiber.frame = host.frame;
    fiber.next = launch.body;
    fiber.cluster = cluster.get();
    fiber.machine = &machine;
    fiber.warpgroup = unsigned(warpgroup);
    const int64_t *block = fiber.block;
    // clang-format off
    int64_t values[18] = {block[0], block[1], block[2],
                          thread, 0, 0,
                          grid[0], grid[1], grid[2],
                          threads, 1, 1,
                          block[0] / ctas, block[1], block[2],
                          ctas, 1, 1};
    // clang-format on
    for (auto [slot, value] : llvm::zip(launch.arguments, values))
      fiber.frame[slot].integer = value;
    // A CTA starts without reports.
    for (unsigned slot : launch.reports)
      if (thread == 0)
        if (char *flag = findElement(launch.op, host.frame[slot].as<MemRef>(), block[0]))
          storeInteger(ElementKind::I32, flag, 0);
  }
  if (launch.ofThreads)
    for (unsigned rank = 0; rank < unsigned(ctas); ++rank)
      cluster->addShared(rank);
  machine.statistics.ctas += uint64_t(ctas);
  return cluster;
}

/// Which of several clusters goes on.
static size_t chooseCluster(size_t count, Machine &machine) {
  if (machine.options.order == InterpreterOrder::Random)
    return count > 1 ? machine.pick(count) : 0;
  return machine.options.order == InterpreterOrder::Behind ? count - 1 : 0;
}

/// Of the GPU that is interpreted.
constexpr int64_t kMultiprocessors = 132;

LogicalResult Machine::runLaunch(Fiber &host, const LaunchInfo &launch, const int64_t grid[3],
                                 int64_t ctas, int64_t threads,
                                 std::optional<int64_t> sharedMemory) {
  int64_t multiple = launch.ofThreads ? 32 : getThreadsOfAgent(launch, threads);
  if (threads <= 0 || threads > 1024 || threads % multiple)
    return launch.op->emitError() << "a block has a multiple of " << multiple
                                  << " threads, at most 1024, got " << threads;
  if (grid[0] < 0 || grid[1] < 0 || grid[2] < 0)
    return launch.op->emitError() << "a grid of " << grid[0] << " x " << grid[1] << " x "
                                  << grid[2];
  if (ctas < 1 || ctas > hopper::kCtasPerCluster || grid[0] % ctas)
    return launch.op->emitError() << "a grid of " << grid[0] << " x " << grid[1] << " x " << grid[2]
                                  << " in clusters of " << ctas;
  if (failed(checkSharedMemory(launch, sharedMemory)))
    return failure();
  int64_t total = grid[0] * grid[1] * grid[2] / ctas, next = 0;
  statistics.launches += total > 0; // the host leaves out the others
  int64_t window = options.order == InterpreterOrder::Random ? std::max(1u, options.ctas) : 1;
  if (launch.hasSemaphores) {
    int64_t resident =
        options.residentCtas ? options.residentCtas : kMultiprocessors * launch.occupancy;
    if (launch.op->hasAttr(hopper::kCooperativeAttr) && total * ctas > resident)
      return launch.op->emitError() << "a cooperative launch of " << total * ctas
                                    << " CTAs, of which " << resident << " run at a time";
    window = std::min(total, std::max<int64_t>(1, resident / ctas));
  }
  accesses.reset();
  if (launch.ofThreads) {
    accesses = std::make_unique<GlobalAccesses>();
    accesses->ctas = total * ctas;
    accesses->threads = total * ctas * threads;
    for (unsigned slot : launch.written)
      accesses->written.insert(host.frame[slot].as<MemRef>().base);
  }
  std::vector<std::unique_ptr<Cluster>> active;
  while (next < total || !active.empty()) {
    while (next < total && int64_t(active.size()) < window)
      active.push_back(makeCluster(host, launch, grid, ctas, threads, next++, *this));
    SmallVector<size_t> ready;
    for (auto [number, cluster] : llvm::enumerate(active))
      if (!cluster->isStuck || cluster->seenReleases != releases)
        ready.push_back(number);
    if (ready.empty())
      return active.front()->reportDeadlock();
    size_t chosen = ready[chooseCluster(ready.size(), *this)];
    Cluster &cluster = *active[chosen];
    if (cluster.seenReleases != releases) // who has waited in vain looks again
      cluster.changed();
    cluster.seenReleases = releases;
    cluster.isStuck = false;
    switch (advance(cluster, *this)) {
    case Step::Failed:
      return failure();
    case Step::Finished:
      active.erase(active.begin() + int64_t(chosen));
      break;
    case Step::Blocked:
      cluster.isStuck = true;
      break;
    default:
      break;
    }
  }
  return success();
}
