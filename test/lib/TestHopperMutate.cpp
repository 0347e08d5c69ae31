// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes one mistake in a hopper program: deletes or weakens one barrier, wait,
// fence or arrival. What a checker of such programs must find.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

namespace {
struct Mutation {
  Operation *op;
  std::string text;
  std::function<void()> apply;
};

/// All mistakes that can be made, in the order of the ops.
class Mutations {
public:
  explicit Mutations(Operation *root) {
    root->walk([&](Operation *op) { add(op); });
  }
  std::vector<Mutation> all;

private:
  void add(Operation *op);
  void addDeletion(Operation *op) {
    all.push_back({op, "deletes this", [op] { op->erase(); }});
  }
  void addAttribute(Operation *op, StringRef name, int64_t from, int64_t to) {
    std::string attribute = name.str();
    all.push_back(
        {op, attribute + " " + std::to_string(from) + " becomes " + std::to_string(to),
         [op, attribute, to] { op->setAttr(attribute, Builder(op).getI64IntegerAttr(to)); }});
  }
  void addConstant(OpOperand &operand, int64_t to, const std::string &text);
  void addBarriers(Operation *op);
  void addRing(Operation *op);
  void addHoist(Operation *arrive);
  void addAnswers(Operation *op, const std::string &which);
  void addCluster(Operation *op);
  void addThreads(Operation *op);
};
} // namespace

/// The operand becomes another constant.
void Mutations::addConstant(OpOperand &operand, int64_t to, const std::string &text) {
  all.push_back({operand.getOwner(), text + " becomes " + std::to_string(to), [&operand, to] {
                   OpBuilder builder(operand.getOwner());
                   Type type = operand.get().getType();
                   Location loc = operand.getOwner()->getLoc();
                   operand.set(
                       arith::ConstantOp::create(builder, loc, builder.getIntegerAttr(type, to)));
                 }});
}

/// An arrival moves before the wait or product that comes before it.
void Mutations::addHoist(Operation *arrive) {
  for (Operation *before = arrive->getPrevNode(); before; before = before->getPrevNode()) {
    if (!isa<WaitOp, WgmmaOp, MBarrierWaitOp, tile::WriteOp, TmaWaitOp>(before))
      continue;
    // What it reads is defined before in any case, or it cannot move.
    bool uses = llvm::any_of(arrive->getOperands(), [&](Value operand) {
      Operation *def = operand.getDefiningOp();
      return def && def->getBlock() == before->getBlock() && before->isBeforeInBlock(def);
    });
    if (!uses)
      all.push_back({arrive, "moves before '" + before->getName().getStringRef().str() + "'",
                     [arrive, before] { arrive->moveBefore(before); }});
    return;
  }
}

/// Whoever asks whether it is the first, or the last, is told the same each time.
void Mutations::addAnswers(Operation *op, const std::string &which) {
  for (bool answer : {false, true})
    all.push_back({op, (answer ? "is always the " : "is never the ") + which, [op, answer] {
                     OpBuilder b(op);
                     op->getResult(0).replaceAllUsesWith(
                         arith::ConstantIntOp::create(b, op->getLoc(), answer, 1).getResult());
                   }});
}

void Mutations::addBarriers(Operation *op) {
  if (auto barrier = dyn_cast<MBarrierOp>(op)) {
    int64_t arrivals = int64_t(barrier.getArrivals());
    addAttribute(op, "arrivals", arrivals, arrivals + 1);
    if (arrivals > 1)
      addAttribute(op, "arrivals", arrivals, arrivals - 1);
  }
  if (auto expect = dyn_cast<MBarrierExpectOp>(op)) {
    int64_t bytes = int64_t(expect.getBytes());
    addAttribute(op, "bytes", bytes, bytes + 16);
    addAttribute(op, "bytes", bytes, bytes - 16);
  }
  if (auto wait = dyn_cast<MBarrierWaitOp>(op))
    all.push_back({op, "waits for the other parity", [wait]() mutable {
                     OpBuilder builder(wait);
                     Value one = arith::ConstantIntOp::create(builder, wait.getLoc(), 1, 32);
                     Value other =
                         arith::XOrIOp::create(builder, wait.getLoc(), wait.getPhase(), one);
                     wait.getPhaseMutable().set(other);
                   }});
  if (isa<BarrierSyncOp, BarrierArriveOp>(op)) {
    int64_t warpgroups = op->getAttrOfType<IntegerAttr>("warpgroups").getInt();
    addAttribute(op, "warpgroups", warpgroups, warpgroups + 1);
    if (warpgroups > 1)
      addAttribute(op, "warpgroups", warpgroups, warpgroups - 1);
  }
}

/// What concerns all CTAs of a cluster concerns one only.
void Mutations::addCluster(Operation *op) {
  for (StringRef name : {"cluster", "multicast"})
    if (op->getInherentAttr(name).value_or(Attribute()))
      all.push_back({op, "loses '" + name.str() + "'", [op, name] { op->removeAttr(name); }});
}

/// Where a ring's counters start, and where they wrap.
void Mutations::addRing(Operation *op) {
  if (!op->getParentOfType<RolesOp>())
    return;
  APInt value;
  if (auto loop = dyn_cast<scf::ForOp>(op))
    for (OpOperand &init : loop.getInitArgsMutable()) {
      if (!init.get().getType().isIntOrIndex() || !matchPattern(init.get(), m_ConstantInt(&value)))
        continue;
      bool phase = init.get().getType().isInteger(32);
      int64_t start = value.getSExtValue();
      addConstant(init,
                  phase        ? start ^ 1
                  : start == 0 ? 1
                               : start - 1,
                  (phase ? "a phase's start " : "a counter's start ") + std::to_string(start));
    }
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    if (compare.getPredicate() == arith::CmpIPredicate::eq &&
        matchPattern(compare.getRhs(), m_ConstantInt(&value)) && value.getSExtValue() > 1)
      addConstant(compare->getOpOperand(1), value.getSExtValue() - 1,
                  "the depth " + std::to_string(value.getSExtValue()));
}

/// What threads do together.
void Mutations::addThreads(Operation *op) {
  APInt value;
  if (isa<gpu::BarrierOp, ClusterArriveOp, ClusterWaitOp, GridSyncOp>(op))
    addDeletion(op);
  if (auto shuffle = dyn_cast<gpu::ShuffleOp>(op))
    if (matchPattern(shuffle.getOffset(), m_ConstantInt(&value)))
      addConstant(shuffle.getOffsetMutable(),
                  value.getSExtValue() == 16 ? 8 : 2 * value.getSExtValue(),
                  "the distance " + std::to_string(value.getSExtValue()));
  auto launch = op->getParentOfType<gpu::LaunchOp>();
  bool ofThreads = launch && !launch.getBody().getOps<ThreadsOp>().empty();
  if (isa<GridSyncOp>(op) || (isa<ClusterSyncOp>(op) && ofThreads))
    all.push_back({op, "becomes a barrier of the CTA", [op] {
                     OpBuilder b(op);
                     gpu::BarrierOp::create(b, op->getLoc());
                     op->erase();
                   }});
  if (auto wait = dyn_cast<SemaphoreWaitOp>(op); wait && ofThreads)
    all.push_back({op, "waits for the number before", [wait]() mutable {
                     OpBuilder b(wait);
                     Value one = arith::ConstantIntOp::create(b, wait.getLoc(), 1, 32);
                     wait.getNumberMutable().set(
                         arith::SubIOp::create(b, wait.getLoc(), wait.getNumber(), one));
                   }});
  if (auto last = dyn_cast<LastArrivalOp>(op)) {
    addAnswers(op, "last");
    all.push_back({op, "counts one less", [last]() mutable {
                     OpBuilder b(last);
                     Value one = arith::ConstantIndexOp::create(b, last.getLoc(), 1);
                     last.getCountMutable().set(
                         arith::SubIOp::create(b, last.getLoc(), last.getCount(), one));
                   }});
  }
  if (isa<ClusterArriveOp>(op))
    for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode())
      if (isa<RemoteLoadOp>(before))
        return all.push_back(
            {op, "moves before 'hopper.remote.load'", [op, before] { op->moveBefore(before); }});
  if (auto store = dyn_cast<memref::StoreOp>(op))
    if (isa_and_nonnull<gpu::AddressSpaceAttr>(store.getMemRefType().getMemorySpace()))
      addDeletion(op);
}

void Mutations::add(Operation *op) {
  addThreads(op);
  if (isa<MBarrierWaitOp, MBarrierArriveOp, MBarrierExpectOp, BarrierSyncOp, BarrierArriveOp,
          FenceAsyncOp, TmaWaitOp, ClusterSyncOp, SemaphoreWaitOp, SemaphoreReleaseOp, tile::CopyOp,
          tile::CommitOp, tile::AwaitOp, tile::WarpSyncOp>(op))
    addDeletion(op);
  if (auto await = dyn_cast<tile::AwaitOp>(op))
    addAttribute(op, "pending", int64_t(await.getPending()), int64_t(await.getPending()) + 1);
  if (isa<MBarrierArriveOp>(op))
    addHoist(op);
  if (isa<MBarrierArriveOp, BarrierArriveOp>(op))
    all.push_back({op, "happens twice", [op] { OpBuilder(op).clone(*op); }});
  if (isa<SemaphoreFirstTouchOp>(op))
    addAnswers(op, "first");
  addBarriers(op);
  if (isa<MBarrierOp, MBarrierArriveOp, TmaLoadOp>(op))
    addCluster(op);
  addRing(op);
  if (auto wait = dyn_cast<WaitOp>(op))
    addAttribute(op, "pending", int64_t(wait.getPending()), int64_t(wait.getPending()) + 1);
  if (auto wait = dyn_cast<TmaWaitOp>(op))
    addAttribute(op, "pending", int64_t(wait.getPending()), int64_t(wait.getPending()) + 1);
}

namespace {
struct TestHopperMutate : PassWrapper<TestHopperMutate, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TestHopperMutate)
  TestHopperMutate() = default;
  TestHopperMutate(const TestHopperMutate &) {}
  StringRef getArgument() const final { return "test-hopper-mutate"; }
  StringRef getDescription() const final {
    return "Make one mistake in the protocol of a hopper program, or list all of them";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect>();
  }
  Option<int64_t> index{*this, "index", llvm::cl::desc("Which mistake; -1 lists them as remarks"),
                        llvm::cl::init(-1)};

  void runOnOperation() override {
    Mutations mutations(getOperation());
    if (index >= int64_t(mutations.all.size())) {
      getOperation()->emitError() << "there are " << mutations.all.size() << " mutations";
      return signalPassFailure();
    }
    if (index >= 0)
      return mutations.all[size_t(index)].apply();
    for (auto [number, mutation] : llvm::enumerate(mutations.all))
      mutation.op->emitRemark() << "mutation " << number << ": '" << mutation.op->getName()
                                << "': " << mutation.text;
  }
};
} // namespace

namespace attn::test {
void registerTestHopperMutate() { PassRegistration<TestHopperMutate>(); }
} // namespace attn::test
