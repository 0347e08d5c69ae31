// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Index and phase of waits: that they go round the ring together.

#include "CheckProtocol.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn::hopper;

namespace {

/// Follows an index and a phase back to the constants that they start with.
class CounterCheck {
public:
  CounterCheck(Protocol &protocol, BarrierUses &uses, MBarrierWaitOp wait)
      : protocol(protocol), uses(uses), wait(wait),
        depth(uses.barrier.getBarriers().getType().getDepth()) {}

  void run();

private:
  enum class Verdict { Right, Wrong, Unknown };
  /// `user` is the op that takes the values: what was waited for before it counts.
  Verdict follow(Value index, Value phase, Operation *user);
  Verdict followCarried(Value index, Value phase);
  Verdict checkStart(Operation *user, int64_t start, int64_t parity);
  std::optional<int64_t> getFirstParity();

  Protocol &protocol;
  BarrierUses &uses;
  MBarrierWaitOp wait;
  int64_t depth;
  llvm::DenseSet<std::pair<Value, Value>> seen;
};

/// index = select(base + 1 == depth, 0, base + 1).
struct Advance {
  Value base, wraps;
  Operation *compare = nullptr;
  int64_t depth = 0;
};

} // namespace

static std::optional<int64_t> getConstant(Value value) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return constant.getSExtValue();
  return std::nullopt;
}

static std::optional<Advance> matchAdvance(Value index) {
  auto select = index.getDefiningOp<arith::SelectOp>();
  if (!select || getConstant(select.getTrueValue()) != 0)
    return std::nullopt;
  auto compare = select.getCondition().getDefiningOp<arith::CmpIOp>();
  auto add = select.getFalseValue().getDefiningOp<arith::AddIOp>();
  if (!compare || !add || compare.getPredicate() != arith::CmpIPredicate::eq ||
      compare.getLhs() != add.getResult() || getConstant(add.getRhs()) != 1)
    return std::nullopt;
  std::optional<int64_t> depth = getConstant(compare.getRhs());
  if (!depth)
    return std::nullopt;
  return Advance{add.getLhs(), select.getCondition(), compare, *depth};
}

/// `phase` = base xor 1; null where it is not.
static Value matchFlip(Value phase) {
  auto flip = phase.getDefiningOp<arith::XOrIOp>();
  if (flip && getConstant(flip.getRhs()) == 1)
    return flip.getLhs();
  return {};
}

/// A wait of a role that then fills the slot passes on a fresh barrier; one of a
/// role that reads what others fill does not.
std::optional<int64_t> CounterCheck::getFirstParity() {
  if (!uses.loads.empty() || !uses.expects.empty())
    return 0;
  for (Operation *op = wait->getNextNode(); op; op = op->getNextNode()) {
    if (auto other = dyn_cast<MBarrierWaitOp>(op);
        other && other.getBarriers() == wait.getBarriers())
      break;
    if (op->walk([](TmaLoadOp) { return WalkResult::interrupt(); }).wasInterrupted())
      return 1;
  }
  return std::nullopt;
}

/// The counter starts after the tiles that have been waited for one by one.
CounterCheck::Verdict CounterCheck::checkStart(Operation *user, int64_t start, int64_t parity) {
  std::optional<int64_t> first = getFirstParity();
  if (!first)
    return Verdict::Unknown;
  DominanceInfo dominance;
  int64_t before = 0;
  for (MBarrierWaitOp other : uses.waits)
    if (other != wait && getConstant(other.getIndex()) && getConstant(other.getPhase()) &&
        protocol.getRole(other) == protocol.getRole(wait) &&
        dominance.properlyDominates(other.getOperation(), user))
      ++before;
  int64_t expectedStart = before % depth, expectedParity = *first ^ (before / depth % 2);
  if (start == expectedStart && parity == expectedParity)
    return Verdict::Right;
  InFlightDiagnostic diagnostic = protocol.error(wait);
  diagnostic << "waits first for index " << start << ", phase " << parity << "; after " << before
             << " tile(s), index " << expectedStart << ", phase " << expectedParity << " is next";
  diagnostic.attachNote(uses.barrier.getLoc()) << "the ring, of " << depth;
  return Verdict::Wrong;
}

/// Both are results or arguments of the same loop or branch: all values that
/// they can come from must go together.
CounterCheck::Verdict CounterCheck::followCarried(Value index, Value phase) {
  auto join = [&](ValueRange indices, ValueRange phases, ArrayRef<Operation *> users) {
    Verdict verdict = Verdict::Right;
    for (auto [i, p, user] : llvm::zip_equal(indices, phases, users)) {
      Verdict one = follow(i, p, user);
      if (one == Verdict::Wrong)
        return one;
      if (one == Verdict::Unknown)
        verdict = one;
    }
    return verdict;
  };
  // A constant index, of a ring of one, goes through loops as it is; either constant
  // through branches.
  auto argumentOf = [](Value value) -> BlockArgument {
    if (auto result = dyn_cast<OpResult>(value))
      if (auto loop = dyn_cast<scf::ForOp>(result.getOwner()))
        return loop.getRegionIterArg(result.getResultNumber());
    return dyn_cast<BlockArgument>(value);
  };
  BlockArgument p = argumentOf(phase), i = argumentOf(index);
  bool fixedIndex = getConstant(index).has_value(), fixedPhase = getConstant(phase).has_value();
  if (p && (fixedIndex || i)) {
    auto loop = dyn_cast<scf::ForOp>(p.getOwner()->getParentOp());
    if (!loop || p == loop.getInductionVar() || (!fixedIndex && i.getOwner() != p.getOwner()) ||
        (!fixedIndex && i == loop.getInductionVar()))
      return Verdict::Unknown;
    auto incoming = [&](BlockArgument argument) -> SmallVector<Value> {
      unsigned at = argument.getArgNumber() - 1;
      return {loop.getInitArgs()[at], loop.getYieldedValues()[at]};
    };
    return join(fixedIndex ? SmallVector<Value>{index, index} : incoming(i), incoming(p),
                {loop, loop.getBody()->getTerminator()});
  }
  auto branch = (fixedPhase ? index : phase).getDefiningOp<scf::IfOp>();
  if (!branch || (!fixedIndex && index.getDefiningOp() != branch))
    return Verdict::Unknown;
  auto yielded = [&](Value value, scf::YieldOp yield) {
    auto result = dyn_cast<OpResult>(value);
    return result && result.getOwner() == branch ? yield.getOperand(result.getResultNumber())
                                                 : value;
  };
  scf::YieldOp then = branch.thenYield(), otherwise = branch.elseYield();
  return join({yielded(index, then), yielded(index, otherwise)},
              {yielded(phase, then), yielded(phase, otherwise)}, {then, otherwise});
}

CounterCheck::Verdict CounterCheck::follow(Value index, Value phase, Operation *user) {
  if (!seen.insert({index, phase}).second)
    return Verdict::Right; // as right as where it came from
  std::optional<int64_t> start = getConstant(index), parity = getConstant(phase);
  if (start && parity)
    return checkStart(user, *start, *parity);
  if (Value before = matchFlip(phase)) {
    if (depth == 1)
      return follow(index, before, user);
    protocol.error(wait) << "the phase flips each time, and not when the index of " << depth
                         << " wraps";
    return Verdict::Wrong;
  }
  std::optional<Advance> advance = matchAdvance(index);
  if (!advance)
    return followCarried(index, phase);
  if (advance->depth != depth) {
    InFlightDiagnostic diagnostic = protocol.error(advance->compare);
    diagnostic << "the index wraps at " << advance->depth << ", the ring has " << depth;
    diagnostic.attachNote(uses.barrier.getLoc()) << "the ring";
    return Verdict::Wrong;
  }
  auto select = phase.getDefiningOp<arith::SelectOp>();
  if (select && select.getCondition() == advance->wraps &&
      matchFlip(select.getTrueValue()) == select.getFalseValue())
    return follow(advance->base, select.getFalseValue(), user);
  InFlightDiagnostic diagnostic = protocol.error(wait);
  diagnostic << "the phase does not flip when the index wraps";
  diagnostic.attachNote(advance->compare->getLoc()) << "where the index wraps";
  return Verdict::Wrong;
}

void CounterCheck::run() {
  if (follow(wait.getIndex(), wait.getPhase(), wait) == Verdict::Unknown)
    protocol.remark(wait, "index and phase not checked: they are not carried together, or where "
                          "they start is not known");
}

void attn::hopper::checkCounters(Protocol &protocol) {
  for (auto &[value, uses] : protocol.barriers)
    for (MBarrierWaitOp wait : uses.waits)
      CounterCheck(protocol, uses, wait).run();
}
