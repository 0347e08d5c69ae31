// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions written as text, for the tests of the reference.

#ifndef ATTN_UNITTESTS_REFERENCE_PARSEFUNCTION_H
#define ATTN_UNITTESTS_REFERENCE_PARSEFUNCTION_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Reference/Reference.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

namespace attn {

/// The first function of a module given as text.
class ParsedFunction {
public:
  explicit ParsedFunction(llvm::StringRef text) {
    context.loadDialect<AttnDialect, mlir::affine::AffineDialect, mlir::arith::ArithDialect,
                        mlir::func::FuncDialect, mlir::linalg::LinalgDialect,
                        mlir::math::MathDialect, mlir::tensor::TensorDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(bool(module));
  }
  mlir::func::FuncOp operator*() { return *module->getOps<mlir::func::FuncOp>().begin(); }

  mlir::func::FuncOp operator[](llvm::StringRef name) {
    return module->lookupSymbol<mlir::func::FuncOp>(name);
  }

private:
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

inline RefTensorPtr floats(llvm::ArrayRef<int64_t> shape, std::vector<double> values,
                           ElementKind kind = ElementKind::F32) {
  auto tensor = std::make_shared<RefTensor>(kind, shape);
  EXPECT_EQ(tensor->floats.size(), values.size());
  tensor->floats = std::move(values);
  return tensor;
}

inline RefTensorPtr integers(llvm::ArrayRef<int64_t> shape, std::vector<int64_t> values,
                             ElementKind kind = ElementKind::I64) {
  auto tensor = std::make_shared<RefTensor>(kind, shape);
  EXPECT_EQ(tensor->integers.size(), values.size());
  tensor->integers = std::move(values);
  return tensor;
}

} // namespace attn

#endif
