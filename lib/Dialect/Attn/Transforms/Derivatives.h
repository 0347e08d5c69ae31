// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What derivatives in both modes have in common: regions that are derived from a score region, and
// functions that get another one beside them.

#ifndef ATTN_LIB_DIALECT_ATTN_TRANSFORMS_DERIVATIVES_H
#define ATTN_LIB_DIALECT_ATTN_TRANSFORMS_DERIVATIVES_H

#include "Adjoints.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// An error at an op without a rule.
mlir::LogicalResult refuse(mlir::Operation *op);
void eraseDeadOps(mlir::Block &block);

/// Type of the gradient of a float value: its own, or a tensor without
/// dimensions for a scalar.
mlir::RankedTensorType getGradientType(mlir::Type type);
llvm::SmallVector<mlir::Type> getCaptureGradientTypes(mlir::ValueRange captures);
bool isFloatTensor(mlir::Type type);

/// Fills `gradient` with the derivative of `score`, as attn.backward takes it.
mlir::LogicalResult buildScoreGradient(mlir::Region &score, unsigned captureCount,
                                       mlir::Region &gradient);
/// Fills `tangent` with that which attn.jvp takes; `captures`: the positions of those that have a
/// tangent.
mlir::LogicalResult buildScoreTangent(mlir::Region &score, llvm::ArrayRef<int64_t> captures,
                                      mlir::Region &tangent);
/// Fills `gradient` with that which attn.backward_jvp takes: reverse mode of score and tangent.
mlir::LogicalResult buildSecondGradient(mlir::Region &score, unsigned captureCount,
                                        llvm::ArrayRef<int64_t> captures, mlir::Region &gradient);

/// Tangents of what an attn.forward or attn.backward reads; null: 0.
struct Tangents {
  mlir::Value query, key, value, sink;
  /// One for each capture.
  llvm::SmallVector<mlir::Value> captures;

  bool empty() const;
};
/// The attn.jvp of what `op`, an attn.backward or an attn.forward with a log-sum-exp, reads.
template <typename OpTy>
llvm::FailureOr<JvpOp> createJvp(mlir::ImplicitLocOpBuilder &b, OpTy op, const Tangents &tangents);
/// The attn.backward_jvp of `op`, given the tangents of its other operands.
llvm::FailureOr<BackwardJvpOp> createBackwardJvp(mlir::ImplicitLocOpBuilder &b, BackwardOp op,
                                                 const Tangents &tangents,
                                                 mlir::Value outputTangent, mlir::Value lseTangent,
                                                 mlir::Value outputGradientTangent,
                                                 mlir::Value lseGradientTangent,
                                                 bool hasSinkResult);

/// The same op with a log-sum-exp, which takes its place.
ForwardOp addLse(ForwardOp op);
/// Fails, with an error, where a factor reads a float capture that `isActive`.
mlir::LogicalResult checkFactor(mlir::Operation *op, mlir::Region &factor,
                                mlir::ValueRange captures,
                                llvm::function_ref<bool(mlir::Value)> isActive);

/// What the new function takes and gives.
struct DerivativeSignature {
  bool savedResults;
  /// Positions; empty for all.
  llvm::ArrayRef<int64_t> arguments, results;
};
bool isWanted(llvm::ArrayRef<int64_t> positions, int64_t position);
/// Replaces, in a clone, float-tensor results at the positions `outputs` by `saved`.
void useSaved(mlir::Operation *terminator, llvm::ArrayRef<unsigned> outputs,
              llvm::ArrayRef<mlir::Value> saved);

/// For each function of `module` that can be differentiated, or the one called `name`: a clone
/// behind it, its name with `suffix`, that `build` makes into the derivative.
mlir::LogicalResult
addDerivatives(mlir::ModuleOp module, llvm::StringRef name, llvm::StringRef suffix,
               const DerivativeSignature &signature,
               llvm::function_ref<mlir::LogicalResult(mlir::func::FuncOp)> build,
               llvm::function_ref<void(mlir::func::FuncOp)> done);

} // namespace attn

#endif
