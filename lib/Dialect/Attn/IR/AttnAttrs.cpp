// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attributes of the attn dialect: the plan of a nest.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;

#include "attn/Dialect/Attn/IR/AttnEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Attn/IR/AttnAttrs.cpp.inc"

std::string attn::getGraphName(LoopTreatment treatment) {
  std::string name = stringifyLoopTreatment(treatment).str();
  llvm::replace(name, '_', '-');
  return name;
}

void AttnDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "attn/Dialect/Attn/IR/AttnAttrs.cpp.inc"
      >();
}

LoopPlanAttr PlanAttr::find(LoopRole role) const {
  for (LoopPlanAttr loop : getLoops())
    if (loop.getRole() == role)
      return loop;
  return {};
}

LogicalResult PlanAttr::verify(function_ref<InFlightDiagnostic()> emitError, LoopOrder order,
                               int64_t parts, int64_t programs, ArrayRef<LoopPlanAttr> loops) {
  auto count = [&](LoopRole role) {
    return llvm::count_if(loops, [&](LoopPlanAttr loop) { return loop.getRole() == role; });
  };
  if (count(LoopRole::Streamed) != 1)
    return emitError() << "expected one streamed loop in a plan, got " << count(LoopRole::Streamed);
  if (count(LoopRole::Row) > 1)
    return emitError() << "expected at most one row loop in a plan, got " << count(LoopRole::Row);
  bool isSplit = order == LoopOrder::SplitKV;
  if (isSplit ? parts < 0 : parts != 1)
    return emitError() << "expected " << (isSplit ? "0 parts or more" : "1 part")
                       << " in a plan of order " << stringifyLoopOrder(order) << ", got " << parts;
  if (parts == 0 ? programs < 1 : programs != 0)
    return emitError() << "expected " << (parts == 0 ? "at least 1 program" : "0 programs")
                       << " in a plan of " << parts << " parts, got " << programs;
  for (LoopPlanAttr loop : loops) {
    SmallVector<LoopTreatment> fitting = {LoopTreatment::OwnerComputes};
    switch (loop.getRole()) {
    case LoopRole::Worker:
      fitting = {LoopTreatment::Parallel};
      break;
    case LoopRole::Row:
      if (order != LoopOrder::NOuter)
        fitting = {LoopTreatment::Parallel, LoopTreatment::Atomics, LoopTreatment::OwnerComputes};
      break;
    case LoopRole::Streamed:
      if (isSplit)
        fitting = {LoopTreatment::PartialAndMerge};
      break;
    case LoopRole::Around:
    case LoopRole::Whole:
    case LoopRole::Table:
      break;
    }
    if (!llvm::is_contained(fitting, loop.getTreatment()))
      return emitError() << "expected " << stringifyLoopTreatment(fitting.front()) << " for the "
                         << stringifyLoopRole(loop.getRole()) << " loop " << loop.getName()
                         << " in a plan of order " << stringifyLoopOrder(order) << ", got "
                         << stringifyLoopTreatment(loop.getTreatment());
  }
  return success();
}
