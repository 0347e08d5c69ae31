// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions in several versions, and when each of them runs.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace attn;

#include "attn/Dialect/Attn/IR/AttnInterfaces.cpp.inc"

SmallVector<ModuleOp> VersionsOp::getModules() {
  SmallVector<ModuleOp> modules;
  for (Region &region : getVersions())
    modules.push_back(cast<ModuleOp>(region.front().front()));
  return modules;
}

FunctionOpInterface VersionsOp::getFunction(ModuleOp version) {
  return version.lookupSymbol<FunctionOpInterface>(getSymName());
}

LogicalResult VersionsOp::verify() {
  if (getVersions().empty())
    return emitOpError("expects a version");
  for (auto [number, region] : llvm::enumerate(getVersions())) {
    Block &block = region.front();
    auto module = block.empty() ? ModuleOp() : dyn_cast<ModuleOp>(block.front());
    if (!module || !llvm::hasSingleElement(block))
      return emitOpError() << "expects one module in each region, region " << number
                           << " has something else";
    // A version may itself be in versions.
    if (!module.lookupSymbol(getSymName()))
      return emitOpError() << "expects a function @" << getSymName() << " in version " << number;
    bool isLast = number + 1 == getVersions().size();
    if (auto when = module->getAttrOfType<ArrayAttr>(kWhenAttr); isLast && when && !when.empty())
      return emitOpError() << "expects a last version without conditions, got " << when;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

static Value createSize(OpBuilder &b, FunctionOpInterface function, unsigned argument,
                        unsigned dim) {
  Value memory = function.getArgument(argument);
  return memref::DimOp::create(b, function.getLoc(), memory, dim);
}

Value SizeConditionAttr::build(OpBuilder &b, FunctionOpInterface version,
                               FunctionOpInterface) const {
  Location loc = version.getLoc();
  Value size = createSize(b, version, getArgument(), getDim());
  Value limit = arith::ConstantIndexOp::create(b, loc, getSize());
  auto getPredicate = [&] {
    switch (getRelation()) {
    case SizeRelation::AtMost:
      return arith::CmpIPredicate::ule;
    case SizeRelation::Above:
      return arith::CmpIPredicate::ugt;
    case SizeRelation::Exactly:
      return arith::CmpIPredicate::eq;
    }
    llvm_unreachable("all relations are handled");
  };
  return arith::CmpIOp::create(b, loc, getPredicate(), size, limit);
}

Value DividedConditionAttr::build(OpBuilder &b, FunctionOpInterface version,
                                  FunctionOpInterface) const {
  Operation *count = nullptr;
  version.walk([&](Operation *op) {
    if (op->hasAttr(kPartCountAttr))
      count = op;
  });
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  if (!count || failed(getBackwardSlice(count, &slice, options)))
    return {};
  IRMapping mapping;
  for (Operation *op : slice)
    b.clone(*op, mapping);
  Location loc = version.getLoc();
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt,
                               mapping.lookup(count->getResult(0)),
                               arith::ConstantIndexOp::create(b, loc, 1));
}

Value OrderedSizesConditionAttr::build(OpBuilder &b, FunctionOpInterface version,
                                       FunctionOpInterface) const {
  Value less = createSize(b, version, getLess(), getDim());
  Value more = createSize(b, version, getMore(), getDim());
  return arith::CmpIOp::create(b, version.getLoc(), arith::CmpIPredicate::ule, less, more);
}
