// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What passes say of what they do: each outcome is counted, which attn-opt --attn-statistics
// prints, and a remark of MLIR (mlir/IR/Remarks.h), which --remarks-filter=PASS and attn-run
// --remarks show.
//
// MLIR's own statistics of passes count in builds of LLVM with assertions only, which packages of
// LLVM do not have; LLVM's TrackingStatistic counts in all.

#ifndef ATTN_UTILS_OUTCOMES_H
#define ATTN_UTILS_OUTCOMES_H

#include "mlir/IR/Operation.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/Statistic.h"
#include "llvm/Support/Error.h"

namespace attn {

/// Something that a pass does, or leaves, a constant of the pass's file:
///
///   static Done fused("attn-fuse-reductions", "fused", "Cascades that became folds");
///   ...
///   fused.at(fold) << remark::metric("Statements", count);
///
/// `pass` is its argument and the remark's category, `name` the remark's name, `what` says what is
/// counted.
template <mlir::remark::detail::InFlightRemark (*Emit)(mlir::Location, mlir::remark::RemarkOpts)>
class Outcome : public llvm::TrackingStatistic {
public:
  constexpr Outcome(const char *pass, const char *name, const char *what)
      : TrackingStatistic(pass, name, what) {}

  /// Counts it once. What follows by `<<` is computed only if the remark is shown.
  mlir::remark::detail::InFlightRemark at(mlir::Location loc) {
    ++*this;
    return Emit(loc, mlir::remark::RemarkOpts::name(getName()).category(getDebugType()));
  }
  mlir::remark::detail::InFlightRemark at(mlir::Operation *op) { return at(op->getLoc()); }
};

/// What a pass has changed.
using Done = Outcome<mlir::remark::passed>;
/// What a pass could have changed, and has not: `<< remark::reason(...)` says why.
using Left = Outcome<mlir::remark::missed>;

/// Lets passes whose arguments match the regular expression `passes` emit these remarks, as
/// diagnostics of the context, which has one thread from then on. An error if it is none.
llvm::Error enableRemarks(mlir::MLIRContext &context, llvm::StringRef passes);

} // namespace attn

#endif
