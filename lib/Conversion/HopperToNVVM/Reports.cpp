// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a CTA reports to the CTA of the same number in a launch behind.

#include "Lowering.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace attn::hopper;

/// Of this CTA's word; with `count` words for each CTA, of word `number`.
Value KernelLowering::reportAddress(Value reports, int64_t count, Value number) {
  Type i64 = b.getI64Type();
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, scalar(reports));
  Value word = NVVM::BlockIdXOp::create(b, b.getI32Type());
  if (number)
    word = arith::AddIOp::create(
        b, arith::MulIOp::create(b, word, constantI32(int32_t(count))), number);
  Value offset = arith::ShLIOp::create(b, arith::ExtUIOp::create(b, i64, word),
                                       arith::ConstantIntOp::create(b, i64, 2));
  return arith::AddIOp::create(b, arith::IndexCastOp::create(b, i64, base), offset);
}

/// How many words a CTA has.
static int64_t countWords(ReportOp op) {
  return op.getWarpgroups() ? op->getParentOfType<RolesOp>().getWarpgroups().front() : 1;
}

/// One thread writes 0 before any other thread reports.
void KernelLowering::clearReports(Region &body) {
  llvm::MapVector<Value, int64_t> all;
  body.walk([&](ReportOp op) { all[op.getReports()] = countWords(op); });
  if (all.empty())
    return;
  inFirstThread([&] {
    for (auto [reports, count] : all)
      for (int64_t n = 0; n < count; ++n)
        inlineAsm(Type(), {reportAddress(reports, count, constantI32(int32_t(n))), constantI32(0)},
                  "st.global.b32 [$0], $1;", "l,r,~{memory}", /*sideEffects=*/true);
  });
  gpu::BarrierOp::create(b);
}

void KernelLowering::lowerReport(ReportOp op) {
  Layout layout = op.getValue().getType().getRank() == 1 ? Layout::Rows : Layout::Tile;
  Value any = reduceThread(vector::CombiningKind::OR, elements(op.getValue(), layout));
  auto branch = scf::IfOp::create(b, any);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value address = reportAddress(op.getReports(), countWords(op),
                                op.getWarpgroups() ? warpgroup : Value());
  inlineAsm(Type(), {address, constantI32(1)}, "st.global.b32 [$0], $1;", "l,r,~{memory}",
            /*sideEffects=*/true);
}

/// Whether one of the words is not 0: each thread looks at some, several at a time, then all agree.
Value KernelLowering::isAnySet(Value words) {
  constexpr int64_t kAtATime = 8;
  Value memory = scalar(words);
  Value size = memref::DimOp::create(b, memory, 0);
  Value last = arith::SubIOp::create(b, size, arith::ConstantIndexOp::create(b, 1));
  Value thread = gpu::ThreadIdOp::create(b, gpu::Dimension::x);
  Value threads = gpu::BlockDimOp::create(b, gpu::Dimension::x);
  Value step = arith::MulIOp::create(b, threads, arith::ConstantIndexOp::create(b, kAtATime));
  auto loop = scf::ForOp::create(
      b, thread, size, step, ValueRange{constantI32(0)},
      [&](OpBuilder &builder, Location loc, Value index, ValueRange all) {
        Value any = all[0];
        for (int64_t n = 0; n < kAtATime; ++n) {
          Value at = n == 0 ? index : arith::MinUIOp::create(builder, loc, index, last);
          any = arith::OrIOp::create(builder, loc, any,
                                     memref::LoadOp::create(builder, loc, memory, at));
          index = arith::AddIOp::create(builder, loc, index, threads);
        }
        scf::YieldOp::create(builder, loc, any);
      });
  Value has = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, loop.getResult(0), constantI32(0));
  auto kind = NVVM::BarrierReductionAttr::get(b.getContext(), NVVM::BarrierReduction::OR);
  Value any = NVVM::BarrierOp::create(b, b.getI32Type(), Value(), Value(), kind,
                                      arith::ExtUIOp::create(b, b.getI32Type(), has))
                  .getResult(0);
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, any, constantI32(0));
}

void KernelLowering::lowerRunIf(RunIfOp op) {
  Value any = isAnySet(op.getWords());
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
  Value word = inlineAsm(b.getI32Type(), reportAddress(op.getReports()),
                         "ld.global.b32 $0, [$1];", "=r,l,~{memory}", /*sideEffects=*/true);
  Value has = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, word, constantI32(0));
  cf::CondBranchOp::create(b, has, rest, end);
  b.setInsertionPointToEnd(end);
  gpu::ReturnOp::create(b);
  b.setInsertionPointToEnd(rest);
}
