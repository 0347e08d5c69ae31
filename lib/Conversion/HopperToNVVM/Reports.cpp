// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a CTA reports to the CTA of the same number in a launch behind.

#include "Lowering.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn::hopper;

/// Of this CTA's flag.
Value KernelLowering::reportAddress(Value reports) {
  return flagAddress(reports, NVVM::BlockIdXOp::create(b, b.getI32Type()));
}

/// Of the flag of a number, i32 or index.
Value KernelLowering::flagAddress(Value flags, Value number) {
  Type i64 = b.getI64Type();
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, scalar(flags));
  Value wide = number.getType().isIndex() ? arith::IndexCastOp::create(b, i64, number).getResult()
                                          : arith::ExtUIOp::create(b, i64, number).getResult();
  Value offset = arith::ShLIOp::create(b, wide, arith::ConstantIntOp::create(b, i64, 2));
  return arith::AddIOp::create(b, arith::IndexCastOp::create(b, i64, base), offset);
}

/// One thread writes 0 before any other thread reports for the CTA.
void KernelLowering::clearReports(Region &body) {
  llvm::SetVector<Value> all;
  body.walk([&](ReportOp op) {
    if (!op.getWarpgroups())
      all.insert(op.getReports());
  });
  if (all.empty())
    return;
  inFirstThread([&] {
    for (Value reports : all)
      inlineAsm(Type(), {reportAddress(reports), constantI32(0)}, "st.global.b32 [$0], $1;",
                "l,r,~{memory}", /*sideEffects=*/true);
  });
  gpu::BarrierOp::create(b);
}

void KernelLowering::lowerReport(ReportOp op) {
  Layout layout = op.getValue().getType().getRank() == 1 ? Layout::Rows : Layout::Tile;
  Value any = reduceThread(vector::CombiningKind::OR, elements(op.getValue(), layout));
  if (op.getWarpgroups())
    return reportWarp(op, any);
  auto branch = scf::IfOp::create(b, any);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  inlineAsm(Type(), {reportAddress(op.getReports()), constantI32(1)}, "st.global.b32 [$0], $1;",
            "l,r,~{memory}", /*sideEffects=*/true);
}

/// Each warp has its part of the warpgroup's flag: none waits for another one.
void KernelLowering::reportWarp(ReportOp op, Value any) {
  any = NVVM::VoteSyncOp::create(b, b.getI1Type(), constantI32(-1), any, NVVM::VoteSyncKind::any);
  auto branch = scf::IfOp::create(b, isLane0);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  auto [first, count] = op.getWarpgroupsOfRole();
  Type i32 = b.getI32Type();
  Value tile = op.getTile() ? arith::IndexCastOp::create(b, i32, scalar(op.getTile())).getResult()
                            : NVVM::BlockIdXOp::create(b, i32).getResult();
  Value number =
      arith::AddIOp::create(b, arith::MulIOp::create(b, tile, constantI32(int32_t(count))),
                            addI32(warpgroup, int32_t(-first)));
  constexpr int64_t kFlagBytes = 4;
  Value own = arith::MulIOp::create(b, warp, constantI32(kFlagBytes / group.warps));
  Value address = arith::AddIOp::create(b, flagAddress(op.getReports(), number),
                                        arith::ExtUIOp::create(b, b.getI64Type(), own));
  bool isByte = group.warps == 4;
  inlineAsm(Type(), {address, arith::ExtUIOp::create(b, isByte ? i32 : Type(b.getI16Type()), any)},
            isByte ? "st.global.b8 [$0], $1;" : "st.global.b16 [$0], $1;",
            isByte ? "l,r,~{memory}" : "l,h,~{memory}", /*sideEffects=*/true);
}

/// Whether one of the flags is not 0: each thread looks at some, several at a time, then all agree.
Value KernelLowering::isAnySet(Value flags) {
  constexpr int64_t kAtATime = 8, kOfLoad = 4;
  Type i32 = b.getI32Type();
  auto number = [&](int64_t n) { return arith::ConstantIndexOp::create(b, n).getResult(); };
  Value size = memref::DimOp::create(b, scalar(flags), 0);
  Value loads = arith::DivUIOp::create(b, size, number(kOfLoad));
  Value last = arith::SubIOp::create(b, loads, number(1));
  Value thread = gpu::ThreadIdOp::create(b, gpu::Dimension::x);
  Value threads = gpu::BlockDimOp::create(b, gpu::Dimension::x);
  // What is left over by loads of four.
  Value at = arith::AddIOp::create(b, arith::MulIOp::create(b, loads, number(kOfLoad)), thread);
  Value isLeft = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, at, size);
  Value first = load(i32, flagAddress(flags, at), isLeft, constantI32(0));
  auto loop = scf::ForOp::create(b, thread, loads,
                                 arith::MulIOp::create(b, threads, number(kAtATime)), first);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value index = loop.getInductionVar(), any = loop.getRegionIterArg(0);
    for (int64_t n = 0; n < kAtATime; ++n) {
      Value at = n == 0 ? index : arith::MinUIOp::create(b, index, last).getResult();
      at = arith::MulIOp::create(b, at, number(kOfLoad));
      for (Value flag : loadWords(flagAddress(flags, at), kOfLoad, Value(), Value()))
        any = arith::OrIOp::create(b, any, flag);
      index = arith::AddIOp::create(b, index, threads);
    }
    scf::YieldOp::create(b, any);
  }
  Value has = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, loop.getResult(0), constantI32(0));
  auto kind = NVVM::BarrierReductionAttr::get(b.getContext(), NVVM::BarrierReduction::OR);
  Value any =
      NVVM::BarrierOp::create(b, i32, Value(), Value(), kind, arith::ExtUIOp::create(b, i32, has))
          .getResult(0);
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, any, constantI32(0));
}

void KernelLowering::lowerRunIf(RunIfOp op) {
  Value any = isAnySet(op.getFlags());
  if (op.getNone())
    any = arith::XOrIOp::create(b, any, arith::ConstantIntOp::create(b, b.getI1Type(), 1));
  endUnless(any);
}

/// Goes on in a new block where `runs`; else the kernel ends.
void KernelLowering::endUnless(Value runs) {
  Block *here = b.getInsertionBlock();
  Region *region = here->getParent();
  Block *end = b.createBlock(region, region->end());
  Block *rest = b.createBlock(region, region->end());
  b.setInsertionPointToEnd(here);
  cf::CondBranchOp::create(b, runs, rest, end);
  b.setInsertionPointToEnd(end);
  gpu::ReturnOp::create(b);
  b.setInsertionPointToEnd(rest);
}

/// Only a kernel that may have nothing to do looks.
void KernelLowering::lowerRedo(RedoOp op) {
  Block *here = b.getInsertionBlock();
  Region *region = here->getParent();
  Block *look = b.createBlock(region, region->end());
  Block *end = b.createBlock(region, region->end());
  Block *rest = b.createBlock(region, region->end());
  b.setInsertionPointToEnd(here);
  cf::CondBranchOp::create(b, scalar(op.getAlways()), rest, look);
  b.setInsertionPointToEnd(look);
  Value flag = inlineAsm(b.getI32Type(), reportAddress(op.getReports()), "ld.global.b32 $0, [$1];",
                         "=r,l,~{memory}", /*sideEffects=*/true);
  Value has = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, flag, constantI32(0));
  cf::CondBranchOp::create(b, has, rest, end);
  b.setInsertionPointToEnd(end);
  gpu::ReturnOp::create(b);
  b.setInsertionPointToEnd(rest);
}
