// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tensor results of public functions become buffers that the caller gives.
// Doing this before bufferization lets empty-tensor elimination compute in the
// caller's memory; afterwards there would be an allocation and a copy.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

namespace attn {
#define GEN_PASS_DEF_ATTNAPPENDOUTPUTS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numAppended("attn-append-outputs", "appended", "Results that became arguments");

MemRefType attn::boundaryMemRefType(RankedTensorType type) {
  int64_t rank = type.getRank();
  if (rank == 0)
    return MemRefType::get({}, type.getElementType());
  SmallVector<int64_t> strides(rank, ShapedType::kDynamic);
  strides.back() = 1;
  auto layout = StridedLayoutAttr::get(type.getContext(), ShapedType::kDynamic, strides);
  return MemRefType::get(type.getShape(), type.getElementType(), layout);
}

namespace {
struct AppendOutputs : attn::impl::AttnAppendOutputsBase<AppendOutputs> {
  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (func.isPublic() && !func.isExternal() && failed(convert(func)))
        return signalPassFailure();
  }

  /// Tensors that only say where a result goes are made once per use. Shared,
  /// one of them would put two results into one caller's buffer, and the copy
  /// of the first would overwrite the second.
  void separateDestinations(func::FuncOp func) {
    SmallVector<Operation *> destinations;
    func.walk([&](Operation *op) {
      if (isa<tensor::EmptyOp, linalg::FillOp>(op) && op->getNumResults() == 1)
        destinations.push_back(op);
    });
    // Users first: a copied fill is one more use of what it fills.
    for (Operation *op : llvm::reverse(destinations)) {
      SmallVector<OpOperand *> uses;
      for (OpOperand &use : op->getUses())
        uses.push_back(&use);
      for (OpOperand *use : ArrayRef(uses).drop_front(uses.empty() ? 0 : 1)) {
        OpBuilder b(op);
        b.setInsertionPointAfter(op);
        use->set(b.clone(*op)->getResult(0));
      }
    }
  }

  /// The tensor that says where `value` is computed, or null.
  static tensor::EmptyOp findDestination(Value value) {
    while (auto result = dyn_cast<OpResult>(value)) {
      if (auto empty = dyn_cast<tensor::EmptyOp>(result.getOwner()))
        return empty;
      if (auto forall = dyn_cast<scf::ForallOp>(result.getOwner()))
        value = forall.getTiedOpOperand(result)->get();
      else if (auto op = dyn_cast<DestinationStyleOpInterface>(result.getOwner()))
        value = op.getTiedOpOperand(result)->get();
      else
        break;
    }
    return {};
  }

  /// Where a result is another tensor with dimensions joined (query heads, of
  /// key heads and groups), the caller's buffer is split in the same way, so
  /// that the tensor is computed in it. The new `result` and `destination`.
  static void splitDestination(Value &result, Value &destination) {
    auto collapse = result.getDefiningOp<tensor::CollapseShapeOp>();
    if (!collapse)
      return;
    tensor::EmptyOp empty = findDestination(collapse.getSrc());
    if (!empty || empty->getBlock() != collapse->getBlock() ||
        empty.getType() != collapse.getSrcType())
      return;
    OpBuilder b(empty);
    SmallVector<OpFoldResult> sizes = empty.getMixedSizes();
    auto type = memref::ExpandShapeOp::computeExpandedType(cast<MemRefType>(destination.getType()),
                                                           collapse.getSrcType().getShape(),
                                                           collapse.getReassociationIndices());
    if (failed(type))
      return;
    destination = memref::ExpandShapeOp::create(b, collapse.getLoc(), *type, destination,
                                                collapse.getReassociationIndices(), sizes);
    result = collapse.getSrc();
  }

  /// Puts a result that is joined from parts together in the caller's buffer. Elimination of empty
  /// tensors gives each part its slice of what they are joined in, but does not then replace that.
  static void joinInDestination(Value result, Value destination) {
    auto join = result.getDefiningOp<tensor::InsertSliceOp>();
    while (join && join.getDest().getDefiningOp<tensor::InsertSliceOp>() &&
           join.getDest().hasOneUse())
      join = join.getDest().getDefiningOp<tensor::InsertSliceOp>();
    auto empty = join ? join.getDest().getDefiningOp<tensor::EmptyOp>() : tensor::EmptyOp();
    auto type = cast<MemRefType>(destination.getType());
    if (!empty || !empty->hasOneUse() || empty.getType().getShape() != type.getShape())
      return;
    OpBuilder b(empty);
    auto tensor = bufferization::ToTensorOp::create(b, empty.getLoc(), empty.getType(), destination,
                                                    /*restrict=*/true, /*writable=*/true);
    empty.replaceAllUsesWith(tensor.getResult());
    empty.erase();
  }

  LogicalResult convert(func::FuncOp func) {
    func->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(), UnitAttr::get(&getContext()));
    if (llvm::none_of(func.getResultTypes(), llvm::IsaPred<TensorType>))
      return success();
    for (Type type : func.getResultTypes())
      if (!isa<RankedTensorType>(type))
        return func.emitError("expected results that are all ranked tensors, got ") << type;
    if (!SymbolTable::symbolKnownUseEmpty(func, getOperation()))
      return func.emitError("expected a public function with results not to be "
                            "called in its "
                            "module, got a use of '")
             << func.getName() << "'";
    if (!func.getBody().hasOneBlock())
      return func.emitError("expected a function of one block, got ")
             << func.getBody().getBlocks().size();
    separateDestinations(func);
    Operation *end = func.getBody().front().getTerminator();
    OpBuilder b(end);
    for (Value result : end->getOperands()) {
      MemRefType type = attn::boundaryMemRefType(cast<RankedTensorType>(result.getType()));
      if (failed(func.insertArgument(func.getNumArguments(), type, {}, func.getLoc())))
        return failure();
      Value destination = func.getArguments().back();
      splitDestination(result, destination);
      joinInDestination(result, destination);
      auto copy =
          bufferization::MaterializeInDestinationOp::create(b, end->getLoc(), result, destination);
      numAppended.at(func);
      copy.setRestrict(true);
      copy.setWritable(true);
    }
    llvm::SetVector<Value> results; // of which two may be one
    results.insert_range(end->getOperands());
    end->setOperands({});
    // A join of dimensions without a use would still be a copy in memory.
    for (Value result : results)
      if (auto collapse = result.getDefiningOp<tensor::CollapseShapeOp>();
          collapse && collapse->use_empty())
        collapse.erase();
    func.setFunctionType(FunctionType::get(func.getContext(), func.getArgumentTypes(), {}));
    func.setAllResultAttrs(ArrayRef<DictionaryAttr>{});
    return success();
  }
};
} // namespace
