// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The mask of a tile loop as a formula: an i1 vector computed in the body is
// read back into and/or over atoms `expression <= 0`, negations pushed into
// the atoms. Expressions are linear in the loop variable (the tile's start),
// in the lanes of the mask's dimensions, and in uniform symbols; values loaded
// per lane and quotients stay as terms that are bounded when they are used.

#ifndef ATTN_LIB_TRANSFORMS_TILES_MASKPREDICATE_H
#define ATTN_LIB_TRANSFORMS_TILES_MASKPREDICATE_H

#include "Spans.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"
#include <memory>
#include <optional>

namespace attn::tiles {

/// Largest magnitude of a constant or clamped symbol in an atom; sums of such
/// values times coefficients up to kMaxCoefficient do not overflow 64 bits.
constexpr int64_t kMaxConstant = int64_t(1) << 40;
constexpr int64_t kMaxCoefficient = int64_t(1) << 18;

/// Which values of a loop body do not change from one iteration to the next,
/// and how to compute such values before the loop.
class LoopUniforms {
public:
  explicit LoopUniforms(mlir::scf::ForOp loop) : loop(loop) {}

  /// True if `value` is computed by side-effect free ops from values defined
  /// outside of the loop.
  bool isUniform(mlir::Value value);

  /// True if a 64-bit symbol may be as large as its type.
  static bool mayBeHuge(mlir::Value value);

  /// Returns `value`, or a clone of the ops that compute it placed at `b`,
  /// which must be before the loop. `value` must be uniform.
  mlir::Value hoist(mlir::OpBuilder &b, mlir::Value value);

  /// The AffineExpr symbol of a uniform scalar, or of the least (greatest)
  /// element of a uniform integer vector.
  enum class Reading { Scalar, Min, Max };
  mlir::AffineExpr getSymbol(mlir::Value value, Reading reading);

  /// The symbol of an index value that stands before the loop and is already
  /// known to be small.
  mlir::AffineExpr getSymbolOfBound(mlir::Value value);

  /// The index value of a symbol, emitted at `b` once. 64-bit values that are
  /// not extents are clamped to +-kMaxConstant so that bounds cannot wrap.
  mlir::Value emitSymbol(mlir::OpBuilder &b, unsigned symbol);
  unsigned getNumSymbols() const { return symbols.size(); }

  Span getSpan(unsigned symbol) const;
  mlir::Value getValue(unsigned symbol) const { return symbols[symbol].value; }

  mlir::scf::ForOp getLoop() { return loop; }

private:
  struct Symbol {
    mlir::Value value;
    Reading reading;
    mlir::Value emitted;
  };
  mlir::scf::ForOp loop;
  llvm::DenseMap<mlir::Value, bool> uniform;
  llvm::SmallVector<Symbol> symbols;
  mlir::IRMapping hoisted;
};

/// The reduction of all elements of an integer vector: row upon row, then the
/// row of results, so that no op sees the whole tile as one long vector.
mlir::Value reduceElements(mlir::OpBuilder &b, mlir::Location loc, mlir::vector::CombiningKind kind,
                           mlir::Value value);

struct Linear;

/// A non-linear part of an expression.
struct Term {
  enum Kind { Loaded, FloorDiv, Min, Max };
  Kind kind;
  int64_t coefficient = 1;
  mlir::Value vector;                 // Loaded: a uniform vector
  std::shared_ptr<const Linear> a, b; // FloorDiv: a / divisor; Min, Max: a, b
  int64_t divisor = 1;
};

/// iv * loop variable + sum of lanes[d] * (lane of dimension d) + uniform +
/// terms.
struct Linear {
  int64_t iv = 0;
  llvm::SmallVector<int64_t, 2> lanes;
  mlir::AffineExpr uniform;
  llvm::SmallVector<Term, 1> terms;
};

/// A formula over atoms `e <= 0`. A Bool leaf is a uniform i1 scalar, or a
/// uniform i1 vector of which any lane (all lanes) may decide.
struct Predicate {
  enum Kind { True, False, Atom, Bool, Unknown, And, Or };
  Kind kind = Unknown;
  Linear e;
  mlir::Value condition;
  bool negated = false;
  std::vector<Predicate> children;
  /// Of a whole formula: uniform values of 64 bits with whose sums it is what was
  /// read only where they are small.
  std::vector<mlir::Value> assumed;

  /// True if some leaf that changes with the loop could not be read.
  bool hasUnknown() const;
  /// True if any leaf is an atom or a Bool.
  bool hasKnown() const;
};

/// Reads masks of one loop.
class PredicateReader {
public:
  PredicateReader(LoopUniforms &uniforms, llvm::ArrayRef<int64_t> shape);

  /// Reads an i1 vector of the reader's shape, or its negation.
  Predicate read(mlir::Value keep, bool negated = false);

  /// Reads an index expression over the loop variable (no lanes), for example
  /// the index operand of a read. Nothing if it is not linear.
  std::optional<Linear> readScalar(mlir::Value value);

private:
  using DimMap = llvm::SmallVector<int, 4>; // -1: lane 0 only
  Predicate readBool(mlir::Value value, const DimMap &dims, bool negated);
  Predicate readCompare(mlir::Value value, const DimMap &dims, bool negated);
  Predicate readCreateMask(mlir::Value value, const DimMap &dims, bool negated);
  /// What an integer reads as is its value: not what it would be if it did not
  /// wrap.
  std::optional<Linear> readInt(mlir::Value value, const DimMap &dims);
  std::optional<Linear> readArith(mlir::Operation *op, const DimMap &dims);
  std::optional<Linear> readDivision(mlir::Operation *op, const DimMap &dims);
  std::optional<Linear> readAffine(mlir::AffineExpr expr, unsigned numDims,
                                   mlir::ValueRange operands);
  std::optional<DimMap> dimsOfSource(mlir::Operation *op, const DimMap &dims);

  Predicate atom(Linear e, int depth = 0);
  Predicate atMost(const std::optional<Linear> &a, const std::optional<Linear> &b, int64_t slack);
  std::optional<Linear> add(const std::optional<Linear> &a, const std::optional<Linear> &b,
                            int64_t scale = 1);
  std::optional<Linear> scale(std::optional<Linear> a, int64_t factor);
  std::optional<Linear> extreme(Term::Kind kind, const std::optional<Linear> &a,
                                const std::optional<Linear> &b);
  std::optional<Linear> floorDiv(const std::optional<Linear> &a, int64_t by);
  Linear constant(int64_t value);
  std::optional<int64_t> getConstant(const std::optional<Linear> &a);
  bool isNonNegative(const std::optional<Linear> &a);
  std::optional<Linear> sumOf(mlir::Operation *op, std::optional<Linear> e);
  void collectHuge(const Linear &e, llvm::SmallVectorImpl<mlir::Value> &values);
  Span getSpan(const Linear &e);
  mlir::AffineExpr simplify(mlir::AffineExpr e);

  LoopUniforms &uniforms;
  llvm::SmallVector<int64_t, 2> shape;
  mlir::MLIRContext *context;
  /// Values still to be read; shared subexpressions are read again for each
  /// use, and a formula that large bounds nothing anyway.
  int budget = 0;
  llvm::SetVector<mlir::Value> assumed;
};

} // namespace attn::tiles

#endif
