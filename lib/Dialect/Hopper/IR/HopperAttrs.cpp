// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attributes of the hopper dialect: schedules, and when a version of a function runs.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn::hopper;

#include "attn/Dialect/Hopper/IR/HopperEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Hopper/IR/HopperAttrs.cpp.inc"

void HopperDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "attn/Dialect/Hopper/IR/HopperAttrs.cpp.inc"
      >();
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t blockM,
                                   int64_t blockN, int64_t parts, int64_t stages, int64_t ctas,
                                   int64_t occupancy, int64_t cluster, int64_t producerRegisters,
                                   OutputMemory, Maxima maxima, bool pipeline, bool overlap,
                                   bool pingPong, bool trim, FloatAttr threshold, int64_t emulation,
                                   bool addsSums, bool ordered, bool storesFirst, bool,
                                   bool loadsTiles, Products products, int64_t groupWarps,
                                   int64_t tf32, int64_t productColumns) {
  if (blockM < 1 || blockN < 1 || stages < 1 || occupancy < 1 || cluster < 1)
    return emitError() << "expected tiles, stages, occupancy and cluster of 1 or more";
  if (parts < 0 || ctas < 0 || producerRegisters < 0 || emulation < 0 ||
      (threshold && threshold.getValueAsDouble() < 0))
    return emitError() << "expected numbers of 0 or more";
  if (trim && overlap)
    return emitError() << "'trim' excludes 'overlap': the assembler would run the products one "
                          "after the other";
  if (trim && !pipeline)
    return emitError() << "'trim' needs 'pipeline': what is left out is the product that runs "
                          "beside the next iteration";
  if (maxima != Maxima::Running && cluster != 1)
    return emitError() << "fixed maxima exclude 'cluster': a CTA that ends alone leaves the others "
                          "of its cluster without their part of the copies";
  if (parts != 1 && maxima != Maxima::Running)
    return emitError() << "parts of the keys exclude fixed maxima: what a part leaves is not the "
                          "row's result";
  if (parts == 0 && ctas == 0)
    return emitError() << "a number of parts that sizes give needs 'ctas', which it fills";
  if (ordered && !addsSums)
    return emitError() << "'ordered' needs 'adds_sums': there is nothing to order";
  if (groupWarps != 4 && (products == Products::Wgmma || groupWarps != 2))
    return emitError() << "64 rows are held by 4 warps, or, with products of warps, by 2; got "
                       << groupWarps;
  if (products == Products::Mma &&
      (cluster != 1 || maxima != Maxima::Running || pipeline || overlap || pingPong || trim ||
       ordered || storesFirst || loadsTiles))
    return emitError() << "products of warps exclude clusters, fixed maxima, 'pipeline', "
                          "'overlap', 'ping_pong', 'trim', 'ordered', 'stores_first' and "
                          "'loads_tiles', which have roles that copy";
  if (tf32 != 0 && (products != Products::Mma || (tf32 != 1 && tf32 != 3)))
    return emitError() << "'tf32' is 1 or 3 products of warps, got " << tf32;
  if (productColumns != 0 &&
      (products != Products::Mma || productColumns < 0 || productColumns % 16 != 0))
    return emitError() << "'product_columns' is a multiple of 16 for products of warps, got "
                       << productColumns;
  return success();
}

//===----------------------------------------------------------------------===//
// Conditions of versions
//===----------------------------------------------------------------------===//

/// Arguments of a function that TMA copies.
static llvm::SmallSetVector<unsigned, 8> findCopiedArguments(FunctionOpInterface function) {
  llvm::SmallSetVector<unsigned, 8> numbers;
  function.walk([&](TensorMapOp map) {
    Value root = memref::skipViewLikeOps(cast<MemrefValue>(map.getSource()));
    if (auto argument = dyn_cast<BlockArgument>(root))
      numbers.insert(argument.getArgNumber());
  });
  return numbers;
}

/// Whether TMA reaches what `version` copies and `last` does not; null where that is nothing.
static Value createReaches(OpBuilder &b, FunctionOpInterface version, FunctionOpInterface last) {
  auto always = findCopiedArguments(last);
  Location loc = version.getLoc();
  Value all;
  for (unsigned number : findCopiedArguments(version)) {
    if (always.contains(number))
      continue;
    Value reaches = TmaReachesOp::create(b, loc, version.getArgument(number));
    all = all ? arith::AndIOp::create(b, loc, all, reaches) : reaches;
  }
  return all;
}

Value ReachConditionAttr::build(OpBuilder &b, FunctionOpInterface version,
                                FunctionOpInterface last) const {
  Value reaches = createReaches(b, version, last);
  return reaches ? reaches : arith::ConstantIntOp::create(b, version.getLoc(), 0, 1);
}

Value ReachIfAnyConditionAttr::build(OpBuilder &b, FunctionOpInterface version,
                                     FunctionOpInterface last) const {
  return createReaches(b, version, last);
}

Value ResidentConditionAttr::build(OpBuilder &b, FunctionOpInterface version,
                                   FunctionOpInterface) const {
  Value grid;
  version.walk([&](gpu::LaunchOp launch) {
    if (launch->hasAttr(kCooperativeAttr))
      grid = launch.getGridSizeX();
  });
  if (!grid)
    return {};
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  if (failed(getBackwardSlice(grid, &slice, options)))
    return {};
  IRMapping mapping;
  for (Operation *op : slice)
    b.clone(*op, mapping);
  Value most = arith::ConstantIndexOp::create(b, version.getLoc(), getCtas());
  return arith::CmpIOp::create(b, version.getLoc(), arith::CmpIPredicate::ule,
                               mapping.lookupOrDefault(grid), most);
}
