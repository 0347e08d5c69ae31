// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shape functions: a copy of the function that returns tensor.dim of the
// results. Reifying those through every op, by upstream's patterns, leaves all
// computation on elements dead; what is then still alive must be arithmetic on
// sizes.

#include "attn/Transforms/Host/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEMITSHAPEFUNCTION
#include "attn/Transforms/Host/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numEmitted("attn-emit-shape-function", "emitted",
                             "Functions that got a shape function");

/// Makes `shape`, a copy of a function, return the sizes of its tensor results.
static void returnSizes(func::FuncOp shape) {
  func::ReturnOp terminator = cast<func::ReturnOp>(shape.getBody().front().getTerminator());
  OpBuilder builder(terminator);
  Location loc = terminator.getLoc();
  SmallVector<Value> sizes;
  for (Value result : terminator.getOperands())
    if (auto type = dyn_cast<RankedTensorType>(result.getType()))
      for (int64_t dim = 0; dim < type.getRank(); ++dim)
        sizes.push_back(getValueOrCreateConstantIndexOp(
            builder, loc, tensor::getMixedSize(builder, loc, result, dim)));
  terminator.getOperandsMutable().assign(sizes);
  SmallVector<Type> types(sizes.size(), builder.getIndexType());
  shape.setType(builder.getFunctionType(shape.getArgumentTypes(), types));
}

/// An op that a shape function may keep: scalar arithmetic, or the size of an
/// argument.
static bool isSizeArithmetic(Operation &op) {
  if (isa<func::ReturnOp>(op))
    return true;
  if (auto dim = dyn_cast<tensor::DimOp>(op))
    return isa<BlockArgument>(dim.getSource());
  auto isScalar = [](Type type) { return type.isIntOrIndex(); };
  return op.getNumRegions() == 0 && isMemoryEffectFree(&op) &&
         llvm::all_of(op.getOperandTypes(), isScalar) &&
         llvm::all_of(op.getResultTypes(), isScalar);
}

/// The op that a size depends on and that cannot be in a shape function, if
/// any.
static Operation *findObstacle(Block &body) {
  // A size that stayed the size of a result names the op behind it best.
  for (auto dim : body.getOps<tensor::DimOp>())
    if (Operation *source = dim.getSource().getDefiningOp())
      return source;
  for (Operation &op : body)
    if (!isSizeArithmetic(op))
      return &op;
  return nullptr;
}

namespace {
/// An elementwise op's result has its operands' sizes. Upstream's patterns know
/// structured ops only.
struct DimOfElementwise : OpRewritePattern<tensor::DimOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(tensor::DimOp dim, PatternRewriter &rewriter) const override {
    Operation *source = dim.getSource().getDefiningOp();
    if (!source || !OpTrait::hasElementwiseMappableTraits(source))
      return failure();
    for (Value operand : source->getOperands())
      if (isa<RankedTensorType>(operand.getType())) {
        rewriter.replaceOpWithNewOp<tensor::DimOp>(dim, operand, dim.getIndex());
        return success();
      }
    return failure();
  }
};

struct EmitShapeFunctionPass : attn::impl::AttnEmitShapeFunctionBase<EmitShapeFunctionPass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
      if (function.isPublic() && !function.isDeclaration() && function.getBody().hasOneBlock() &&
          llvm::any_of(function.getResultTypes(), llvm::IsaPred<RankedTensorType>) &&
          failed(emit(function, symbols)))
        return signalPassFailure();
  }

  LogicalResult emit(func::FuncOp function, SymbolTable &symbols) {
    std::string name = (function.getName() + "_shape").str();
    if (symbols.lookup(name))
      return function.emitError("expected the name '")
             << name << "' to be free for the shape function";
    func::FuncOp shape = function.clone();
    shape.setName(name);
    shape.removeResAttrsAttr();
    symbols.insert(shape, std::next(function->getIterator()));
    returnSizes(shape);

    MLIRContext *context = &getContext();
    RewritePatternSet patterns(context);
    memref::populateResolveRankedShapedTypeResultDimsPatterns(patterns);
    tensor::DimOp::getCanonicalizationPatterns(patterns, context);
    tensor::CastOp::getCanonicalizationPatterns(patterns, context);
    affine::AffineApplyOp::getCanonicalizationPatterns(patterns, context);
    patterns.add<DimOfElementwise>(context);
    if (failed(applyPatternsGreedily(shape, std::move(patterns))))
      return function.emitError("computing result sizes did not come to an end");
    if (Operation *obstacle = findObstacle(shape.getBody().front())) {
      InFlightDiagnostic diagnostic =
          function.emitError("expected result sizes that follow from the "
                             "arguments' sizes, got one that depends on '")
          << obstacle->getName() << "'";
      diagnostic.attachNote(obstacle->getLoc()) << "this op";
      shape.erase();
      return diagnostic;
    }
    numEmitted.at(function);
    return success();
  }
};
} // namespace
