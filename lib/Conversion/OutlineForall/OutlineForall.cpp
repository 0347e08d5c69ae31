// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parallel loops to calls of the runtime: the body becomes a function of a
// linear index and a context, a struct on the caller's stack that holds what
// the body uses from outside.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/RegionUtils.h"

namespace attn {
#define GEN_PASS_DEF_ATTNOUTLINEFORALLS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numOutlined("attn-outline-foralls", "outlined",
                              "Parallel loops whose body is a task");

namespace {
constexpr StringLiteral runtimeName = "attnRuntimeParallelFor";

struct OutlineForalls : attn::impl::AttnOutlineForallsBase<OutlineForalls> {
  void runOnOperation() override {
    SmallVector<scf::ForallOp> loops;
    getOperation()->walk<WalkOrder::PreOrder>([&](scf::ForallOp loop) {
      loops.push_back(loop);
      return WalkResult::skip(); // inner ones run within one task
    });
    for (scf::ForallOp loop : loops)
      if (failed(outline(loop)))
        return signalPassFailure();
  }

  LogicalResult outline(scf::ForallOp loop);
  func::FuncOp runtime();
  func::FuncOp makeTask(scf::ForallOp loop, ArrayRef<Value> captures, ArrayRef<Type> fields,
                        ArrayRef<Value> counts);
};

/// The captured values of a loop. Constants are copied into the body instead,
/// and so is what makes a vector (CSE may have found an equal one outside).
SmallVector<Value> captureValues(scf::ForallOp loop) {
  SmallVector<Value> captures;
  while (true) {
    SetVector<Value> used;
    getUsedValuesDefinedAbove(loop.getRegion(), used);
    captures.clear();
    bool copied = false;
    for (Value value : used) {
      Operation *op = value.getDefiningOp();
      bool copies = op && (op->hasTrait<OpTrait::ConstantLike>() ||
                           (isa<VectorType>(value.getType()) && isPure(op)));
      if (!copies) {
        captures.push_back(value);
        continue;
      }
      // In front of copies that use it.
      OpBuilder b = OpBuilder::atBlockBegin(loop.getBody());
      replaceAllUsesInRegionWith(value, b.clone(*op)->getResult(0), loop.getRegion());
      copied = true;
    }
    if (!copied)
      break;
  }
  return captures;
}
} // namespace

func::FuncOp OutlineForalls::runtime() {
  if (auto known = getOperation().lookupSymbol<func::FuncOp>(runtimeName))
    return known;
  OpBuilder b = OpBuilder::atBlockBegin(getOperation().getBody());
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  auto type = b.getFunctionType({b.getI64Type(), pointer, pointer}, {});
  auto func = func::FuncOp::create(b, getOperation().getLoc(), runtimeName, type);
  func.setPrivate();
  return func;
}

func::FuncOp OutlineForalls::makeTask(scf::ForallOp loop, ArrayRef<Value> captures,
                                      ArrayRef<Type> fields, ArrayRef<Value> counts) {
  MLIRContext *context = &getContext();
  Location loc = loop.getLoc();
  auto parent = loop->getParentOfType<func::FuncOp>();
  OpBuilder b(parent);
  auto pointer = LLVM::LLVMPointerType::get(context);
  auto task = func::FuncOp::create(b, loc, (parent.getName() + "_task").str(),
                                   b.getFunctionType({b.getI64Type(), pointer}, {}));
  task.setPrivate();
  SymbolTable(getOperation()).insert(task);
  Block *entry = task.addEntryBlock();
  b.setInsertionPointToStart(entry);
  auto record = LLVM::LLVMStructType::getLiteral(context, fields);
  SmallVector<Value> inside;
  for (auto [field, type] : llvm::enumerate(fields)) {
    Value address = LLVM::GEPOp::create(b, loc, pointer, record, entry->getArgument(1),
                                        ArrayRef<LLVM::GEPArg>{0, int32_t(field)});
    Value value = LLVM::LoadOp::create(b, loc, type, address);
    if (field < captures.size() && type != captures[field].getType())
      value =
          UnrealizedConversionCastOp::create(b, loc, captures[field].getType(), value).getResult(0);
    inside.push_back(value);
  }
  // The last dimension runs fastest.
  Value rest = arith::IndexCastOp::create(b, loc, b.getIndexType(), entry->getArgument(0));
  SmallVector<Value> indices(counts.size());
  auto lower = loop.getMixedLowerBound();
  auto step = loop.getMixedStep();
  auto constantOrCapture = [&](OpFoldResult value) -> Value {
    if (auto fixed = getConstantIntValue(value))
      return arith::ConstantIndexOp::create(b, loc, *fixed);
    return inside[llvm::find(captures, cast<Value>(value)) - captures.begin()];
  };
  for (int64_t dim = counts.size() - 1; dim >= 0; --dim) {
    Value count =
        UnrealizedConversionCastOp::create(b, loc, b.getIndexType(), inside[captures.size() + dim])
            .getResult(0);
    Value position = dim == 0 ? rest : arith::RemUIOp::create(b, loc, rest, count).getResult();
    if (dim > 0)
      rest = arith::DivUIOp::create(b, loc, rest, count);
    Value scaled = arith::MulIOp::create(b, loc, position, constantOrCapture(step[dim]));
    indices[dim] = arith::AddIOp::create(b, loc, scaled, constantOrCapture(lower[dim]));
  }
  loop.getTerminator()->erase();
  for (auto [iv, index] : llvm::zip_equal(loop.getInductionVars(), indices))
    iv.replaceAllUsesWith(index);
  entry->getOperations().splice(entry->end(), loop.getBody()->getOperations());
  b.setInsertionPointToEnd(entry);
  func::ReturnOp::create(b, loc);
  for (auto [outer, inner] :
       llvm::zip_equal(captures, ArrayRef(inside).take_front(captures.size())))
    replaceAllUsesInRegionWith(outer, inner, task.getBody());
  return task;
}

LogicalResult OutlineForalls::outline(scf::ForallOp loop) {
  if (loop.getNumResults() > 0)
    return loop.emitOpError("expected a parallel loop on buffers, got one with ")
           << loop.getNumResults() << " tensor results";
  if (!loop->getParentOfType<func::FuncOp>())
    return loop.emitOpError("expected a parallel loop in a function");
  OpBuilder b(loop);
  Location loc = loop.getLoc();
  SmallVector<Value> captures = captureValues(loop);
  auto add = [&](OpFoldResult value) {
    if (auto dynamic = dyn_cast<Value>(value))
      if (!getConstantIntValue(value) && !llvm::is_contained(captures, dynamic))
        captures.push_back(dynamic);
  };
  for (OpFoldResult value :
       llvm::concat<OpFoldResult>(loop.getMixedLowerBound(), loop.getMixedStep()))
    add(value);
  // Iterations per dimension, none where the range is empty.
  SmallVector<Value> counts;
  Value total = arith::ConstantIndexOp::create(b, loc, 1);
  for (auto [lower, upper, step] :
       llvm::zip_equal(loop.getLowerBound(b), loop.getUpperBound(b), loop.getStep(b))) {
    Value length = arith::SubIOp::create(b, loc, upper, lower);
    Value count = arith::CeilDivSIOp::create(b, loc, length, step);
    count = arith::MaxSIOp::create(b, loc, count, arith::ConstantIndexOp::create(b, loc, 0));
    counts.push_back(count);
    total = arith::MulIOp::create(b, loc, total, count);
  }
  LLVMTypeConverter converter(&getContext());
  SmallVector<Type> fields;
  for (Value value : captures) {
    Type type = converter.convertType(value.getType());
    if (!type || isa<TensorType, VectorType>(value.getType()))
      return loop.emitOpError("expected to capture scalars and memrefs, got ") << value.getType();
    fields.push_back(type);
  }
  fields.append(counts.size(), b.getI64Type());

  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  auto record = LLVM::LLVMStructType::getLiteral(&getContext(), fields);
  Value storage;
  {
    // In the entry block, so that a surrounding loop does not grow the stack.
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&loop->getParentOfType<func::FuncOp>().getBody().front());
    Value unit = LLVM::ConstantOp::create(b, loc, b.getI64IntegerAttr(1));
    storage = LLVM::AllocaOp::create(b, loc, pointer, record, unit);
  }
  for (auto [field, value] : llvm::enumerate(llvm::concat<Value>(captures, counts))) {
    Value address = LLVM::GEPOp::create(b, loc, pointer, record, storage,
                                        ArrayRef<LLVM::GEPArg>{0, int32_t(field)});
    Value stored = value;
    if (value.getType() != fields[field])
      stored = UnrealizedConversionCastOp::create(b, loc, fields[field], value).getResult(0);
    LLVM::StoreOp::create(b, loc, stored, address);
  }
  func::FuncOp task = makeTask(loop, captures, fields, counts);
  Value body = func::ConstantOp::create(b, loc, task.getFunctionType(),
                                        FlatSymbolRefAttr::get(task.getNameAttr()));
  body = UnrealizedConversionCastOp::create(b, loc, pointer, body).getResult(0);
  total = arith::IndexCastOp::create(b, loc, b.getI64Type(), total);
  func::CallOp::create(b, loc, runtime(), ValueRange{total, body, storage});
  numOutlined.at(loop) << remark::metric("Captures", captures.size());
  loop.erase();
  return success();
}
