// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The naive chain of statements of an attention op: each one is a
// linalg.generic over some dimensions of one iteration space. Used by
// attn-expand.

#ifndef ATTN_LIB_DIALECT_ATTN_TRANSFORMS_STATEMENTS_H
#define ATTN_LIB_DIALECT_ATTN_TRANSFORMS_STATEMENTS_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Utils/Statement.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {

/// Dimensions of the iteration space, by number.
using Dims = llvm::ArrayRef<unsigned>;

/// Builds statements over one iteration space.
class Statements {
public:
  Statements(mlir::Operation *op, mlir::FloatType accumulator)
      : b(op->getLoc(), op), accumulator(accumulator) {}

  /// A dimension of the iteration space; its name is for whoever reads the
  /// nest (attribute attn.dims of a statement).
  unsigned addDim(llvm::StringRef name, mlir::OpFoldResult size) {
    names.push_back(name);
    sizes.push_back(size);
    return sizes.size() - 1;
  }
  mlir::OpFoldResult getSize(unsigned dim) const { return sizes[dim]; }

  /// A statement over the dimensions `domain`, in that order: each input is
  /// read, and the result of type `element` written, at the dimensions named;
  /// those that `out` lacks are reduced. `init` fills the result first (the
  /// reduction's neutral element); without it each element is written once.
  mlir::Value emit(Dims domain, llvm::ArrayRef<Access> inputs, Dims out, mlir::Type element,
                   std::optional<double> init, StatementBody body);
  /// The sum of `value`, a tensor over `from`, over the dimensions that `to`
  /// lacks: one after the other, or in one statement.
  mlir::Value sum(mlir::Value value, Dims from, Dims to, bool atOnce = false);
  /// `value` over `dims`, rounded to `element`, times `factor` where it is not
  /// null.
  mlir::Value round(mlir::Value value, Dims dims, mlir::Type element, mlir::Value factor = {});
  mlir::Value constant(double value, mlir::Type type);

  mlir::ImplicitLocOpBuilder b;
  mlir::FloatType accumulator;

private:
  llvm::SmallVector<llvm::StringRef> names;
  llvm::SmallVector<mlir::OpFoldResult> sizes;
};

/// sum += x y in the accumulator's type: the body of a contraction.
mlir::Value multiplyAdd(mlir::OpBuilder &builder, mlir::Location loc, mlir::ValueRange args);
mlir::Value extend(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value,
                   mlir::Type type);
mlir::Value truncate(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value,
                     mlir::Type type);
/// The softmax of scores over `points` along what `rows` lacks: m = max t; m, or 0 in a row whose
/// scores are all -inf; p = exp(t - that); and l = sum p. A sink over `sinkDims` is one more score
/// of every row, without a p of its own; null: there is none.
struct Softmax {
  mlir::Value max, guarded, p, sum;
};
Softmax buildSoftmax(Statements &s, mlir::Value score, Dims rows, Dims points, mlir::Value sink,
                     Dims sinkDims);
/// Clones the scalar `region` with its arguments bound to `arguments`; returns
/// the yielded value, and in `mapping` every other. An attn.accumulate stays
/// behind.
mlir::Value inlineRegion(mlir::OpBuilder &builder, mlir::Region &region, mlir::ValueRange arguments,
                         mlir::IRMapping &mapping);

/// The scalar regions of an op, `gradient` empty for a forward one, with what
/// they need beside the score.
struct ScalarRegions {
  mlir::Region &score, &gradient, &mask;
  mlir::ValueRange captures;
  /// Null where weights have no factor, or no product that it would be of.
  mlir::Region *factor = nullptr;
  /// For each index that the regions take, the dimensions that make it up (two
  /// for a query head: key head and group), and the size of the last of them.
  struct Index {
    llvm::SmallVector<unsigned, 2> dims;
    mlir::OpFoldResult innerSize;
  };
  llvm::SmallVector<Index> indices;

  /// The score region applied to `score`.
  mlir::Value applyScore(mlir::OpBuilder &builder, mlir::Location loc, Dims domain,
                         mlir::Value score) const;
  /// The gradient region applied to a score and to the gradient `dt` of its
  /// result; `mapping` has the values inside of the region.
  mlir::Value applyGradient(mlir::OpBuilder &builder, mlir::Location loc, Dims domain,
                            mlir::Value score, mlir::Value dt, mlir::IRMapping &mapping) const;
  /// `value` where the mask region keeps the pair, else `otherwise`.
  mlir::Value select(mlir::OpBuilder &builder, mlir::Location loc, Dims domain, mlir::Value value,
                     mlir::Value otherwise) const;
  /// `value` times the factor region's.
  mlir::Value applyFactor(mlir::OpBuilder &builder, mlir::Location loc, Dims domain,
                          mlir::Value value) const;
  /// The indices that the regions take, in a statement over `domain`.
  llvm::SmallVector<mlir::Value> indexValues(mlir::OpBuilder &builder, mlir::Location loc,
                                             Dims domain) const;
};

/// The iteration space of attn.forward, its gradient and tangents, and the statements
/// that all begin with. Query heads are split into (key head, group) unless
/// both counts are the same static number.
class AttentionStatements : public Statements {
public:
  /// `op` is an attn.forward, attn.backward, attn.jvp or attn.backward_jvp.
  template <typename OpTy>
  AttentionStatements(OpTy op, mlir::Region &gradient)
      : Statements(op, op.getAccumulatorType()), key(op.getKey()), value(op.getValue()),
        regions{op.getScore(), gradient, op.getMask(), op.getCaptures(), &op.getFactor(), {}} {
    splitHeads(op.getQuery(), op.getUngrouped());
    scale = op.getScaleOperand();
    if (!scale)
      scale = constant(*op.getStaticScale(), accumulator);
  }

  /// `tensor`, whose dimension `headDim` counts query heads, with that split.
  mlir::Value split(mlir::Value tensor, unsigned headDim = 1);
  /// The inverse of split, as `type`.
  mlir::Value join(mlir::Value tensor, mlir::Type type, unsigned headDim = 1);
  /// sum_d Q K.
  mlir::Value scores();
  /// score(scale * s) and then the mask, for the result `s` of scores().
  mlir::Value maskedScores(mlir::Value s);
  /// What multiplies the values: the weights `p` times the factor.
  mlir::Value factoredWeights(mlir::Value p);

  bool grouped;
  unsigned i, j, d, e;
  /// The dimensions of a query head, of a row (with the batch) and of a pair.
  llvm::SmallVector<unsigned> heads, rows, points;
  /// Of K and V.
  llvm::SmallVector<unsigned> keys, values;
  mlir::Value query, key, value, scale; // query with its heads split
  ScalarRegions regions;

private:
  void splitHeads(mlir::Value query, bool ungrouped);
  mlir::OpFoldResult keyHeads, group;
};

/// Adds the dimensions of a softmax over `tensor`: rows, then the summed one.
llvm::SmallVector<unsigned> addSoftmaxDims(Statements &s, mlir::Value tensor,
                                           ScalarRegions &regions);

/// `dims` and then `more`.
llvm::SmallVector<unsigned> with(Dims dims, Dims more);

/// What the gradients of captures are sums of: what the gradient region accumulates at each of
/// `points`, where `apply` clones it with elements of `pairs` (the score, what comes in behind the
/// score region) as arguments.
struct ScoreGradients {
  llvm::SmallVector<mlir::Value> pairs;
  Dims points;
  llvm::function_ref<void(mlir::OpBuilder &, mlir::Location, Dims, mlir::ValueRange,
                          mlir::IRMapping &)>
      apply;
  /// Rows that have a table of their own; 0: all have one.
  int64_t tableRows = 0;
  /// `pairs` computed once more, for what has an element for each query and
  /// key; null: the same ones serve.
  llvm::function_ref<llvm::SmallVector<mlir::Value>()> computeAgain = {};
};

/// Whether the gradients of the captures that `isWanted` says can be summed: fails, with an error,
/// at a read that has a dimension of queries or keys and an index that is computed of the score.
mlir::LogicalResult checkCaptureReads(mlir::Region &gradient, unsigned numIndices,
                                      llvm::function_ref<bool(unsigned)> isWanted);

/// The gradient of capture `index` as a tensor of `type`.
mlir::Value buildCaptureGradient(Statements &s, const ScalarRegions &regions,
                                 const ScoreGradients &gradients, unsigned index,
                                 mlir::RankedTensorType type);

/// `large-scores` of attn-expand.
enum class LargeScores { Inexact, Branch, Rows };
/// The options of attn-expand of these names.
struct BackwardOptions {
  int64_t tableRows;
  bool pairsApart, largeRows;
  LargeScores largeScores;
};
void expandBackward(BackwardOp op, const BackwardOptions &options);
void expandSoftmaxBackward(SoftmaxBackwardOp op, int64_t tableRows);
void expandJvp(JvpOp op, LargeScores largeScores);
void expandBackwardJvp(BackwardJvpOp op, const BackwardOptions &options);

} // namespace attn

#endif
