// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// 16-bit floats move as integers.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinDialect.h"

namespace attn {
#define GEN_PASS_DEF_ATTNMOVEFLOAT16ASINTEGERS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numMoved("attn-move-float16-as-integers", "moved",
                           "Functions whose 16-bit floats move as integers");

namespace {
struct MoveFloat16AsIntegers : attn::impl::AttnMoveFloat16AsIntegersBase<MoveFloat16AsIntegers> {
  void runOnOperation() override {
    integer = IntegerType::get(&getContext(), 16);
    replacer.addReplacement([this](FloatType type) {
      return isa<BFloat16Type, Float16Type>(type) ? std::optional<Type>(integer) : std::nullopt;
    });
    // Types of other dialects (tiles in shared memory) may not hold integers.
    replacer.addReplacement([](Type type) -> std::optional<std::pair<Type, WalkResult>> {
      if (isa<BuiltinDialect, LLVM::LLVMDialect>(type.getDialect()))
        return std::nullopt;
      return std::pair(type, WalkResult::skip());
    });
    SmallVector<Operation *> ops;
    getOperation()->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (isa<LLVM::GlobalOp>(op)) // data
        return WalkResult::skip();
      ops.push_back(op);
      return WalkResult::advance();
    });
    SmallVector<Operation *> moving;
    for (Operation *op : ops)
      if (moves(op))
        moving.push_back(op);
      else if (failed(keepFloats(op, moving)))
        return signalPassFailure();
    for (Operation *op : ops)
      convertSignature(op);
    for (Operation *op : moving)
      convertResults(op);
    numMoved.at(getOperation()) << remark::metric("Operations", moving.size());
  }

private:
  /// Ops that do not care what their values are.
  static bool moves(Operation *op) {
    return isa<LLVM::LoadOp, LLVM::StoreOp, LLVM::MaskedLoadOp, LLVM::MaskedStoreOp,
               LLVM::masked_gather, LLVM::masked_scatter, LLVM::SelectOp, LLVM::ShuffleVectorOp,
               LLVM::InsertElementOp, LLVM::ExtractElementOp, LLVM::InsertValueOp,
               LLVM::ExtractValueOp, LLVM::BitcastOp, LLVM::UndefOp, LLVM::PoisonOp, LLVM::ZeroOp,
               LLVM::FreezeOp, LLVM::ConstantOp, LLVM::BrOp, LLVM::CondBrOp, LLVM::SwitchOp,
               LLVM::ReturnOp, LLVM::CallOp>(op);
  }

  /// Casts between integers and what an op computes with; those that are to become nothing are
  /// appended to `moving`.
  LogicalResult keepFloats(Operation *op, SmallVectorImpl<Operation *> &moving) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    auto isFloat16 = [&](Value value) {
      return replacer.replace(value.getType()) != value.getType();
    };
    auto cast = [&](Value value, bool isNothing) {
      Type type = value.getType();
      auto bits = LLVM::BitcastOp::create(b, loc, replacer.replace(type), value);
      auto back = LLVM::BitcastOp::create(b, loc, type, bits);
      if (isNothing)
        moving.push_back(back);
      return std::pair(bits, back);
    };
    auto refuse = [&](Type type) -> LogicalResult {
      return op->emitOpError() << "computes with " << type << "; expected a number or a vector";
    };
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isFloat16(operand.get()))
        continue;
      if (!LLVM::isCompatibleFloatingPointType(getElementTypeOrSelf(operand.get())))
        return refuse(operand.get().getType());
      operand.set(cast(operand.get(), /*isNothing=*/false).second);
    }
    b.setInsertionPointAfter(op);
    for (Value result : op->getResults()) {
      if (!isFloat16(result))
        continue;
      if (!LLVM::isCompatibleFloatingPointType(getElementTypeOrSelf(result)))
        return refuse(result.getType());
      if (isa<BFloat16Type>(result.getType()))
        return op->emitOpError() << "computes a number of type " << result.getType()
                                 << "; expected f32 and a rounding by integers";
      auto [bits, back] = cast(result, /*isNothing=*/true);
      result.replaceAllUsesExcept(back, bits);
    }
    return success();
  }

  void convertSignature(Operation *op) {
    if (auto function = dyn_cast<LLVM::LLVMFuncOp>(op))
      function.setFunctionType(
          cast<LLVM::LLVMFunctionType>(replacer.replace(function.getFunctionType())));
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          argument.setType(replacer.replace(argument.getType()));
  }

  void convertResults(Operation *op) {
    if (auto constant = dyn_cast<LLVM::ConstantOp>(op))
      constant.setValueAttr(getBits(constant.getValue()));
    for (Value result : op->getResults())
      result.setType(replacer.replace(result.getType()));
  }

  Attribute getBits(Attribute value) {
    if (auto elements = dyn_cast<DenseFPElementsAttr>(value))
      if (replacer.replace(elements.getElementType()) == integer)
        return elements.bitcast(integer);
    if (auto number = dyn_cast<FloatAttr>(value))
      if (replacer.replace(number.getType()) == integer)
        return IntegerAttr::get(integer, number.getValue().bitcastToAPInt());
    return value;
  }

  AttrTypeReplacer replacer;
  Type integer;
};
} // namespace
