// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Utils/Outcomes.h"
#include "mlir/IR/MLIRContext.h"

using namespace llvm;

Error attn::enableRemarks(mlir::MLIRContext &context, StringRef passes) {
  std::string reason;
  if (!Regex(passes).isValid(reason))
    return createStringError("remarks: expected a regular expression for names of passes, got '" +
                             passes + "': " + reason);
  // Remarks of functions that threads compile at once can get lost.
  context.disableMultithreading();
  mlir::remark::RemarkCategories categories;
  // A kind of remark without a filter of its own is off.
  categories.passed = categories.missed = categories.failed = categories.analysis = passes.str();
  if (failed(mlir::remark::enableOptimizationRemarks(
          context, /*streamer=*/nullptr, std::make_unique<mlir::remark::RemarkEmittingPolicyAll>(),
          categories, /*printAsEmitRemarks=*/true)))
    return createStringError("remarks: cannot be enabled");
  return Error::success();
}
