// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the statements of gradients and tangents begin with: weights of pairs that are computed
// again from the log-sum-exp. Used by attn-expand.

#ifndef ATTN_LIB_DIALECT_ATTN_TRANSFORMS_RECOMPUTE_H
#define ATTN_LIB_DIALECT_ATTN_TRANSFORMS_RECOMPUTE_H

#include "Statements.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace attn {

mlir::Value zero(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type);

class Recomputed : public AttentionStatements {
public:
  /// `op` is an attn.backward, attn.jvp or attn.backward_jvp.
  template <typename OpTy>
  Recomputed(OpTy op, mlir::Region &gradient, LargeScores largeScores)
      : AttentionStatements(op, gradient), sink(op.getSink()), mayBeDead(!op.getRowsHaveKeys()),
        largeScores(largeScores) {}

protected:
  mlir::Value number(mlir::OpBuilder &builder, mlir::Location loc, double value);
  mlir::Value compareSize(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::arith::CmpFPredicate predicate, mlir::Value rowLse);
  mlir::Value alive(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value rowLse,
                    mlir::Value value);
  mlir::Value finiteLse(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value rowLse);
  mlir::Value isLarge(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value rowLse);
  void buildLogSums();
  llvm::SmallVector<Access> normalizers(llvm::ArrayRef<Access> before);
  mlir::Value weight(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value score,
                     mlir::ValueRange normalizers);
  mlir::Value isDead(mlir::OpBuilder &builder, mlir::Location loc, mlir::ValueRange of);
  /// exp(t - LSE) of all pairs.
  mlir::Value weights(mlir::Value t);
  mlir::Value dropDeadRows(mlir::Value given, mlir::Value output);
  mlir::Value contract(mlir::Value x, Dims xDims, mlir::Value y, Dims yDims, Dims out);
  mlir::Value gradientOf(mlir::Value sum, Dims dims, bool isQuery, mlir::Type type,
                         mlir::Value factor = {});

  mlir::Value sink;
  /// Whether a row may have no key (with a sink, only if that is -inf).
  bool mayBeDead;
  LargeScores largeScores;
  mlir::Value lse; // with its heads split
  /// The parts of LSE that weights of large rows are made from, p = exp((t - shift) - logSum): the
  /// maximum and the logarithm of the sum. Null: all are made from LSE.
  mlir::Value shift, logSum;
};

} // namespace attn

#endif
