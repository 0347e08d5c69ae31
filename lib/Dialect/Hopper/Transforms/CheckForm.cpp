// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a program is after each stage of its lowering.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Views.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/StringSwitch.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERCHECKFORM
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

namespace {
enum class Form { Arithmetic, Programs, Tiles, Channels, Protocol, Unknown };

/// Whether a type is one of values that are no memory yet.
bool isTensor(Type type) { return isa<TensorType>(type); }

/// What an op should not be in a form; empty if it may be there. Forms keep what those before
/// them have promised.
StringRef findFault(Operation *op, Form form, bool usesWarps) {
  if (isa<FoldOp, ForwardOp, BackwardOp, SoftmaxOp, SoftmaxBackwardOp>(op))
    return "nests have become tiles";
  if (llvm::any_of(op->getOperandTypes(), isTensor) || llvm::any_of(op->getResultTypes(), isTensor))
    return "values are in memory";
  if (auto view = dyn_cast<memref::SubViewOp>(op); view && isAmbiguous(view))
    return "views tell which dimensions they leave out";
  // Statements outside of nests, and those of f64, keep what they have.
  if (auto exp = dyn_cast<math::ExpOp>(op); exp && isa<VectorType>(exp.getType()) &&
                                            exp->getParentOfType<scf::ForOp>() &&
                                            !getElementTypeOrSelf(exp.getType()).isF64())
    return "exponentials of tiles are to the base 2";
  if (form == Form::Arithmetic)
    return "";
  if (isa<linalg::LinalgOp>(op))
    return "statements have become programs of tiles";
  if (auto inner = dyn_cast<scf::ForallOp>(op); inner && inner->getParentOfType<scf::ForallOp>()) {
    std::optional<ArrayAttr> mapping = inner.getMapping();
    if (!mapping || !llvm::all_of(*mapping, llvm::IsaPred<gpu::GPUWarpgroupMappingAttr>))
      return "a program of a tile is divided among warpgroups, and holds no other";
  }
  if (form == Form::Programs)
    return "";
  if (auto product = dyn_cast<vector::ContractionOp>(op);
      product && findAtom(product.getLhsType().getElementType()) &&
      product.getLhsType().getRank() == 2 && product.getRhsType().getRank() == 2)
    return "products of matrices read tiles in shared memory";
  if (form == Form::Tiles)
    return "";
  if (isa<scf::ForallOp>(op))
    return "programs of tiles have become launches";
  if (!usesWarps && isa<tile::LoadOp>(op) && op->getParentOfType<RolesOp>())
    return "roles send each other what they load";
  if (form == Form::Channels)
    return "";
  if (isa<ChannelOp, SendOp, ReceiveOp, ReleaseOp, HeldOp, AcquireOp, CommitOp>(op))
    return "channels have become rings and barriers";
  if (isa<tile::LoadOp>(op))
    return "loads have become copies";
  if (!usesWarps && isa<tile::MmaOp>(op))
    return "products are asynchronous";
  if (isa<NamedBarriersOp>(op))
    return "named barriers have numbers";
  return "";
}

/// Each channel has one role that sends, and others that receive.
LogicalResult checkChannel(ChannelOp channel) {
  llvm::SmallPtrSet<Region *, 4> senders, receivers;
  for (Operation *user : channel.getChannel().getUsers()) {
    Region *role = getRole(user);
    if (isa<SendOp, AcquireOp, CommitOp>(user))
      senders.insert(role);
    else if (isa<ReceiveOp>(user))
      receivers.insert(role);
  }
  if (senders.size() == 1 && !receivers.empty() && !receivers.contains(*senders.begin()))
    return success();
  return channel.emitOpError() << "expects one role that sends and others that receive, got "
                               << senders.size() << " and " << receivers.size();
}

struct CheckFormPass : attn::impl::HopperCheckFormBase<CheckFormPass> {
  using Base::Base;

  void runOnOperation() override {
    Form wanted = llvm::StringSwitch<Form>(form)
                      .Case("arithmetic", Form::Arithmetic)
                      .Case("programs", Form::Programs)
                      .Case("tiles", Form::Tiles)
                      .Case("channels", Form::Channels)
                      .Case("protocol", Form::Protocol)
                      .Default(Form::Unknown);
    if (wanted == Form::Unknown) {
      getOperation().emitError() << "expected a form arithmetic, programs, tiles, channels or "
                                 << "protocol, got '" << form << "'";
      return signalPassFailure();
    }
    auto module = getOperation()->getParentOfType<ModuleOp>();
    auto schedule = module ? module->getAttrOfType<ScheduleAttr>(kScheduleAttr) : ScheduleAttr();
    bool usesWarps = schedule && schedule.getProducts() == Products::Mma;
    WalkResult walk = getOperation().walk([&](Operation *op) {
      if (StringRef fault = findFault(op, wanted, usesWarps); !fault.empty()) {
        op->emitOpError() << "is not in the form '" << form << "': " << fault;
        return WalkResult::interrupt();
      }
      if (auto channel = dyn_cast<ChannelOp>(op))
        return WalkResult(checkChannel(channel));
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
