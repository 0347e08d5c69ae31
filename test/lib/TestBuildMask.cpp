// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fills the mask of every attn.forward by a named builder, for FileCheck.

#include "attn/Dialect/Attn/IR/Masks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using namespace attn;

namespace {
struct TestBuildMask : PassWrapper<TestBuildMask, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TestBuildMask)
  TestBuildMask() = default;
  TestBuildMask(const TestBuildMask &) {}
  StringRef getArgument() const final { return "test-attn-build-mask"; }
  StringRef getDescription() const final {
    return "Fill the mask of attn.forward by a named builder";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, tensor::TensorDialect>();
  }
  Option<std::string> name{*this, "name", llvm::cl::desc("Name of the mask"),
                           llvm::cl::init("causal")};

  void runOnOperation() override {
    getOperation()->walk([&](ForwardOp op) {
      OpBuilder builder(op);
      // The last argument of the function is the captured length or table.
      Value last = op->getBlock()->getArguments().back();
      if (name == "causal")
        buildMask(op, {}, [](MaskBuilder &mask, ValueRange) { return mask.causal(); });
      else if (name == "bottom-right")
        buildMask(op, buildBottomRightOffset(builder, op),
                  [](MaskBuilder &mask, ValueRange captures) { return mask.causal(captures[0]); });
      else if (name == "window")
        buildMask(op, {}, [](MaskBuilder &mask, ValueRange) {
          return mask.both(mask.window(8, std::nullopt), mask.window({}, 4));
        });
      else if (name == "prefix")
        buildMask(op, last,
                  [](MaskBuilder &mask, ValueRange captures) { return mask.prefix(captures[0]); });
      else if (name == "document")
        buildMask(op, last, [](MaskBuilder &mask, ValueRange captures) {
          return mask.both(mask.document(captures[0], captures[0]), mask.causal());
        });
    });
  }
};
} // namespace

namespace attn::test {
void registerTestBuildMask() { PassRegistration<TestBuildMask>(); }
} // namespace attn::test
