// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bytes and arrivals of mbarriers, and who meets at named barriers.

#include "CheckProtocol.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn::hopper;

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

/// Bytes that the copies of the expect's block bring to its barrier.
static void checkExpect(Protocol &protocol, BarrierUses &uses, MBarrierExpectOp expect) {
  int64_t expected = 0, copied = 0;
  SmallVector<TmaLoadOp> loads;
  bool elsewhere = false;
  for (MBarrierExpectOp other : uses.expects)
    if (other->getBlock() == expect->getBlock() && isSameIndex(other.getIndex(), expect.getIndex()))
      expected += int64_t(other.getBytes());
  for (TmaLoadOp load : uses.loads) {
    Copy copy = getCopy(load);
    // Parts of a tile come from all CTAs if they go to all.
    if (load.getMulticast() == (copy.parts > 1) && copy.op->getBlock() == expect->getBlock() &&
        isSameIndex(load.getIndex(), expect.getIndex())) {
      copied += copy.parts * load.getTile().getType().getTileBytes();
      loads.push_back(load);
    } else if (expect->getBlock()->findAncestorOpInBlock(*load)) {
      elsewhere = true;
    }
  }
  if (expected == copied && !loads.empty())
    return;
  if (elsewhere) {
    protocol.remark(expect,
                    "bytes not checked: copies to this mbarrier are in other blocks, or have "
                    "another index");
    return;
  }
  InFlightDiagnostic diagnostic = protocol.error(expect);
  diagnostic << "expects " << expected << " bytes, the copies bring " << copied;
  for (TmaLoadOp load : loads)
    diagnostic.attachNote(load.getLoc())
        << "a copy of " << load.getTile().getType().getTileBytes() << " bytes";
}

void attn::hopper::checkBytes(Protocol &protocol) {
  for (auto &[value, uses] : protocol.barriers) {
    for (MBarrierExpectOp expect : uses.expects)
      checkExpect(protocol, uses, expect);
    for (TmaLoadOp load : uses.loads)
      if (uses.expects.empty())
        protocol.error(load) << "nobody expects the bytes of this copy";
  }
}

//===----------------------------------------------------------------------===//
// Arrivals
//===----------------------------------------------------------------------===//

/// Whether only some warpgroups of the role get to `op`: a branch or a loop
/// around it depends on the warpgroup's number.
static bool isDivergent(Protocol &protocol, Operation *op) {
  int role = protocol.getRole(op);
  Region &body = protocol.roles.getBodies()[size_t(role)];
  if (protocol.getWarpgroups(role) == 1)
    return false;
  llvm::DenseSet<Value> divergent = {body.getArgument(0)};
  body.walk<WalkOrder::PreOrder>([&](Operation *other) {
    if (llvm::any_of(other->getOperands(), [&](Value v) { return divergent.contains(v); }))
      divergent.insert(other->result_begin(), other->result_end());
  });
  for (Operation *parent = op->getParentOp(); parent && parent != protocol.roles;
       parent = parent->getParentOp())
    if (llvm::any_of(parent->getOperands(), [&](Value v) { return divergent.contains(v); }))
      return true;
  return false;
}

/// Whether two arrivals of one block at one index are for different uses of the slot: in between
/// the role waits for another barrier of that slot.
static bool areOfOtherUses(Operation *a, Operation *b) {
  if (b->isBeforeInBlock(a))
    std::swap(a, b);
  for (Operation *op = a; op != b; op = op->getNextNode())
    if (auto wait = dyn_cast<MBarrierWaitOp>(op); wait && wait.getBarriers() != a->getOperand(0) &&
                                                  isSameIndex(wait.getIndex(), a->getOperand(1)))
      return true;
  return false;
}

/// Arrivals of a role for one use of the barrier: as many as in each block that
/// has any, if all have as many.
static std::optional<int64_t> countArrivals(ArrayRef<Operation *> sites) {
  std::optional<int64_t> common;
  for (Operation *site : sites) {
    int64_t count = llvm::count_if(sites, [&](Operation *other) {
      return other->getBlock() == site->getBlock() &&
             isSameIndex(other->getOperand(1), site->getOperand(1)) &&
             (other == site || !areOfOtherUses(site, other));
    });
    if (common && *common != count)
      return std::nullopt;
    common = count;
  }
  return common.value_or(0);
}

void attn::hopper::checkArrivals(Protocol &protocol) {
  for (auto &[value, uses] : protocol.barriers) {
    SmallVector<Operation *> sites(uses.expects.begin(), uses.expects.end());
    sites.append(uses.arrives.begin(), uses.arrives.end());
    int64_t total = 0;
    bool known = llvm::none_of(sites, [&](Operation *op) { return isDivergent(protocol, op); });
    for (int role = 0; role < int(protocol.roles.getBodies().size()) && known; ++role) {
      SmallVector<Operation *> ofRole;
      for (Operation *site : sites)
        if (protocol.getRole(site) == role)
          ofRole.push_back(site);
      std::optional<int64_t> count = countArrivals(ofRole);
      known = count.has_value();
      total += count.value_or(0) * protocol.getWarpgroups(role);
    }
    if (!known) {
      protocol.remark(uses.barrier, "arrivals not checked: not every use has as many, or not every "
                                    "warpgroup arrives");
      continue;
    }
    if (total == int64_t(uses.barrier.getArrivals()) || (sites.empty() && uses.waits.empty()))
      continue;
    InFlightDiagnostic diagnostic = protocol.error(uses.barrier);
    diagnostic << "is for " << uses.barrier.getArrivals() << " arrivals per phase, the roles make "
               << total;
    for (Operation *site : sites)
      diagnostic.attachNote(site->getLoc())
          << "arrives here, " << protocol.getWarpgroups(protocol.getRole(site)) << " warpgroup(s)";
  }
}

//===----------------------------------------------------------------------===//
// Clusters
//===----------------------------------------------------------------------===//

void attn::hopper::checkClusters(Protocol &protocol) {
  Operation *remote = nullptr;
  for (auto &[value, uses] : protocol.barriers) {
    bool ofAll = uses.barrier.getCluster();
    for (MBarrierArriveOp arrive : uses.arrives) {
      if (arrive.getCluster())
        remote = arrive;
      if (arrive.getCluster() == ofAll)
        continue;
      InFlightDiagnostic diagnostic = protocol.error(arrive);
      diagnostic << "arrives at the mbarrier of " << (ofAll ? "its own CTA" : "each CTA")
                 << ", which counts arrivals of " << (ofAll ? "each CTA" : "its own CTA");
      diagnostic.attachNote(uses.barrier.getLoc()) << "the mbarrier";
    }
    for (MBarrierExpectOp expect : uses.expects)
      if (ofAll)
        protocol.error(expect)
            << "arrives at the mbarrier of its own CTA, which counts arrivals of each CTA";
    for (TmaLoadOp load : uses.loads)
      if (load.getMulticast())
        remote = load;
  }
  auto isSync = [](Operation &op) { return isa<ClusterSyncOp>(op); };
  Block *body = protocol.roles->getBlock();
  if (remote &&
      llvm::none_of(llvm::make_range(std::next(protocol.roles->getIterator()), body->end()),
                    isSync))
    protocol.error(remote) << "reaches other CTAs, which may have ended: no hopper.cluster.sync "
                              "follows the roles";
}

//===----------------------------------------------------------------------===//
// Named barriers
//===----------------------------------------------------------------------===//

/// An integer for one warpgroup of a role, where it follows from its number.
static std::optional<int64_t> evaluate(Value value, Value number, int64_t warpgroup) {
  APInt constant;
  if (value == number)
    return warpgroup;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return value.getType().isInteger(1) ? int64_t(constant.getZExtValue())
                                        : constant.getSExtValue();
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions() || op->getNumResults() != 1 ||
      !isa<arith::ArithDialect>(op->getDialect()))
    return std::nullopt;
  SmallVector<Attribute> operands;
  for (Value operand : op->getOperands()) {
    std::optional<int64_t> known = evaluate(operand, number, warpgroup);
    if (!known)
      return std::nullopt;
    operands.push_back(IntegerAttr::get(operand.getType(), *known));
  }
  SmallVector<OpFoldResult> folded;
  // Folding may look at the op's operands, but only reads them.
  if (failed(op->fold(operands, folded)) || folded.size() != 1)
    return std::nullopt;
  if (auto attribute = dyn_cast<Attribute>(folded[0])) {
    auto integer = dyn_cast<IntegerAttr>(attribute);
    if (!integer)
      return std::nullopt;
    return integer.getType().isInteger(1) ? int64_t(integer.getValue().getZExtValue())
                                          : integer.getValue().getSExtValue();
  }
  return evaluate(cast<Value>(folded[0]), number, warpgroup);
}

/// Whether the warpgroup gets to `op`, as far as branches tell; unknown is yes.
static bool mayReach(Operation *op, Value number, int64_t warpgroup) {
  for (Operation *parent = op->getParentOp(); !isa<RolesOp>(parent);
       op = parent, parent = parent->getParentOp())
    if (auto branch = dyn_cast<scf::IfOp>(parent))
      if (auto taken = evaluate(branch.getCondition(), number, warpgroup))
        if (bool(*taken) != branch.getThenRegion().isAncestor(op->getParentRegion()))
          return false;
  return true;
}

namespace {
struct Meeting {
  Operation *op;
  int64_t warpgroup; // in the CTA
  int64_t expected;
};
} // namespace

/// All uses of one named barrier.
static void checkMeetings(Protocol &protocol, int64_t id, ArrayRef<Meeting> meetings) {
  llvm::DenseSet<int64_t> warpgroups;
  for (const Meeting &meeting : meetings) {
    warpgroups.insert(meeting.warpgroup);
    if (meeting.expected == meetings.front().expected)
      continue;
    InFlightDiagnostic diagnostic = protocol.error(meeting.op);
    diagnostic << "named barrier " << id << " is for " << meeting.expected
               << " warpgroups here and for " << meetings.front().expected << " elsewhere";
    diagnostic.attachNote(meetings.front().op->getLoc()) << "the other use";
    return;
  }
  const Meeting &first = meetings.front();
  if (int64_t(warpgroups.size()) == first.expected)
    return;
  InFlightDiagnostic diagnostic = protocol.error(first.op);
  diagnostic << "named barrier " << id << " is for " << first.expected << " warpgroups, "
             << warpgroups.size() << (warpgroups.size() == 1 ? " uses it" : " use it");
  for (const Meeting &meeting : meetings)
    if (meeting.op != first.op)
      diagnostic.attachNote(meeting.op->getLoc()) << "used here by warpgroup " << meeting.warpgroup;
}

void attn::hopper::checkNamedBarriers(Protocol &protocol) {
  llvm::MapVector<int64_t, SmallVector<Meeting>> meetings;
  Operation *unknown = nullptr;
  int64_t first = 0;
  for (auto [region, count] :
       llvm::zip(protocol.roles.getBodies(), protocol.roles.getWarpgroups())) {
    region.walk([&, count = count, &region = region](Operation *op) {
      if (!isa<BarrierSyncOp, BarrierArriveOp, BarrierReduceOp>(op))
        return;
      Value number = region.getArgument(0);
      for (int64_t warpgroup = 0; warpgroup < count; ++warpgroup) {
        if (!mayReach(op, number, warpgroup))
          continue;
        std::optional<int64_t> id = evaluate(op->getOperand(0), number, warpgroup);
        if (!id) {
          unknown = op;
          return;
        }
        meetings[*id].push_back(
            {op, first + warpgroup, op->getAttrOfType<IntegerAttr>("warpgroups").getInt()});
      }
    });
    first += count;
  }
  if (unknown) {
    protocol.remark(unknown, "named barriers not checked: this id does not follow from the "
                             "warpgroup's number");
    return;
  }
  for (auto &[id, uses] : meetings)
    checkMeetings(protocol, id, uses);
}
