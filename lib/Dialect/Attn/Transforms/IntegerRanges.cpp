// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "IntegerRanges.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

ConstantIntRanges IntegerRanges::get(Value value) const {
  APInt constant; // which may stand in front of the block
  if (matchPattern(value, m_ConstantInt(&constant)))
    return ConstantIntRanges::constant(constant);
  auto known = ranges.find(value);
  return known != ranges.end()
             ? known->second
             : ConstantIntRanges::maxRange(ConstantIntRanges::getStorageBitwidth(value.getType()));
}

void IntegerRanges::set(Value value, uint64_t least, uint64_t most) {
  unsigned bits = ConstantIntRanges::getStorageBitwidth(value.getType());
  ranges.insert({value, ConstantIntRanges::fromUnsigned(APInt(bits, least), APInt(bits, most))});
}

void IntegerRanges::infer(Block &block) {
  auto isInteger = [](Value value) { return value.getType().isIntOrIndex(); };
  for (Operation &op : block) {
    if (auto index = dyn_cast<linalg::IndexOp>(op))
      set(index.getResult(), 0, kMaxExtent);
    auto infer = dyn_cast<InferIntRangeInterface>(op);
    // (What promises not to wrap wraps.)
    auto flags = dyn_cast<arith::ArithIntegerOverflowFlagsInterface>(op);
    bool promises =
        flags && flags.getOverflowAttr().getValue() != arith::IntegerOverflowFlags::none;
    if (!infer || promises || !llvm::all_of(op.getOperands(), isInteger))
      continue;
    infer.inferResultRanges(
        llvm::map_to_vector(op.getOperands(), [&](Value value) { return get(value); }),
        [&](Value result, const ConstantIntRanges &range) { ranges.insert({result, range}); });
  }
}
