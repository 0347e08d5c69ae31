// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several bounds on the column of an element become one per row: a minimum of
// upper bounds, a maximum of lower ones, computed once per row.

#include "MaskPredicate.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

namespace attn {
#define GEN_PASS_DEF_ATTNMERGEBOUNDS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using arith::CmpIPredicate;

static attn::Done numMerged("attn-merge-bounds", "merged",
                            "Conditions on a tile with bounds that became one");

namespace {

/// What a tile of indices is made of: one value per row, one per column, or one.
struct Source {
  enum Kind { Row, Column, Scalar } kind;
  Value value;        // rank 1 for rows and columns; none for a constant
  int64_t offset = 0; // the constant
};

std::optional<Source> getSource(Value tile) {
  // (Limits are sums of these: 32 bits keep them from overflowing.)
  if (DenseIntElementsAttr all; matchPattern(tile, m_Constant(&all)) && all.isSplat())
    if (int64_t constant = all.getSplatValue<APInt>().getSExtValue(); llvm::isInt<32>(constant))
      return Source{Source::Scalar, {}, constant};
  if (auto transpose = tile.getDefiningOp<vector::TransposeOp>()) {
    auto broadcast = transpose.getVector().getDefiningOp<vector::BroadcastOp>();
    auto type = broadcast ? dyn_cast<VectorType>(broadcast.getSourceType()) : VectorType();
    if (type && type.getRank() == 1 && transpose.getPermutation() == ArrayRef<int64_t>{1, 0})
      return Source{Source::Row, broadcast.getSource()};
    return std::nullopt;
  }
  auto broadcast = tile.getDefiningOp<vector::BroadcastOp>();
  if (!broadcast)
    return std::nullopt;
  auto type = dyn_cast<VectorType>(broadcast.getSourceType());
  if (!type)
    return Source{Source::Scalar, broadcast.getSource()};
  if (type.getRank() == 1 && cast<VectorType>(tile.getType()).getRank() == 2)
    return Source{Source::Column, broadcast.getSource()};
  return std::nullopt;
}

/// Limits are sums of a few numbers of this size, and of small ones.
constexpr int64_t kLarge = int64_t(1) << 60;

/// Whether a sum of `value` and kLarge is far from what wraps: indices, and what is loaded from
/// memory of fewer bits.
bool isSmall(Value value, int depth = 4) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<vector::BroadcastOp, vector::TransposeOp>(op))
    return isSmall(op->getOperand(0), depth);
  if (isa_and_nonnull<arith::AddIOp, arith::SubIOp>(op) && depth > 0)
    return isSmall(op->getOperand(0), depth - 1) && isSmall(op->getOperand(1), depth - 1);
  return !attn::tiles::LoopUniforms::mayBeHuge(value);
}

/// column <= limit, or column >= limit, with limit = row + scalar * sign + offset.
struct Bound {
  Value column; // rank 1
  bool isUpper;
  Value row, scalar; // either may be absent
  int sign = 1;
  int64_t offset = 0;
};

/// Bounds of the form `x predicate y`.
std::optional<Bound> read(CmpIPredicate predicate, Source x, Source y) {
  if (x.kind != Source::Column) {
    std::swap(x, y);
    switch (predicate) {
    case CmpIPredicate::slt:
      predicate = CmpIPredicate::sgt;
      break;
    case CmpIPredicate::sle:
      predicate = CmpIPredicate::sge;
      break;
    case CmpIPredicate::sgt:
      predicate = CmpIPredicate::slt;
      break;
    case CmpIPredicate::sge:
      predicate = CmpIPredicate::sle;
      break;
    default:
      return std::nullopt;
    }
  }
  if (x.kind != Source::Column || y.kind == Source::Column)
    return std::nullopt;
  Bound bound{x.value, false, {}, {}};
  (y.kind == Source::Row ? bound.row : bound.scalar) = y.value;
  bound.offset = y.offset;
  switch (predicate) {
  case CmpIPredicate::slt:
    bound.isUpper = true;
    bound.offset -= 1;
    return bound;
  case CmpIPredicate::sle:
    bound.isUpper = true;
    return bound;
  case CmpIPredicate::sgt:
    bound.offset += 1;
    return bound;
  case CmpIPredicate::sge:
    return bound;
  default:
    return std::nullopt;
  }
}

/// Whether the limit is a sum.
bool isComputed(const Bound &bound) { return bound.offset != 0 || (bound.row && bound.scalar); }

/// A sum is the limit of small columns only: it is clamped, which they do not notice.
std::optional<Bound> readSafely(CmpIPredicate predicate, Source x, Source y) {
  std::optional<Bound> bound = read(predicate, x, y);
  return bound && isComputed(*bound) && !isSmall(bound->column) ? std::nullopt : bound;
}

/// row - column predicate scalar, as column predicate' row - scalar.
std::optional<Bound> readDifference(arith::CmpIOp cmp) {
  auto difference = cmp.getLhs().getDefiningOp<arith::SubIOp>();
  auto limit = getSource(cmp.getRhs());
  if (!difference || !limit || limit->kind != Source::Scalar)
    return std::nullopt;
  auto row = getSource(difference.getLhs()), column = getSource(difference.getRhs());
  if (!row || !column || row->kind != Source::Row || column->kind != Source::Column ||
      !isSmall(row->value) || !isSmall(column->value))
    return std::nullopt;
  Bound bound{column->value, false, row->value, limit->value, -1, -limit->offset};
  switch (cmp.getPredicate()) {
  case CmpIPredicate::slt:
    bound.offset += 1;
    return bound;
  case CmpIPredicate::sle:
    return bound;
  case CmpIPredicate::sgt:
    bound.isUpper = true;
    bound.offset -= 1;
    return bound;
  case CmpIPredicate::sge:
    bound.isUpper = true;
    return bound;
  default:
    return std::nullopt;
  }
}

std::optional<Bound> readBound(Value condition) {
  // A comparison of columns with a scalar, repeated for each row.
  if (auto broadcast = condition.getDefiningOp<vector::BroadcastOp>()) {
    auto cmp = broadcast.getSource().getDefiningOp<arith::CmpIOp>();
    if (!cmp || !isa<VectorType>(cmp.getLhs().getType()) ||
        !getElementTypeOrSelf(cmp.getLhs().getType()).isIndex())
      return std::nullopt;
    auto asSource = [](Value value) {
      auto scalar = value.getDefiningOp<vector::BroadcastOp>();
      return scalar && !isa<VectorType>(scalar.getSourceType())
                 ? Source{Source::Scalar, scalar.getSource()}
                 : Source{Source::Column, value};
    };
    return readSafely(cmp.getPredicate(), asSource(cmp.getLhs()), asSource(cmp.getRhs()));
  }
  auto cmp = condition.getDefiningOp<arith::CmpIOp>();
  if (!cmp || !getElementTypeOrSelf(cmp.getLhs().getType()).isIndex())
    return std::nullopt;
  auto x = getSource(cmp.getLhs()), y = getSource(cmp.getRhs());
  return x && y ? readSafely(cmp.getPredicate(), *x, *y) : readDifference(cmp);
}

class Merger {
public:
  explicit Merger(arith::AndIOp root)
      : root(root), b(root), loc(root.getLoc()), type(cast<VectorType>(root.getType())) {}

  void run() {
    collect(root);
    SmallVector<Value> conditions = others;
    bool merges = false;
    while (!bounds.empty()) {
      Bound first = bounds.front().first;
      SmallVector<Bound> same;
      SmallVector<Value> conditionsOfSame;
      llvm::erase_if(bounds, [&](auto &entry) {
        bool is =
            isSameColumn(entry.first.column, first.column) && entry.first.isUpper == first.isUpper;
        if (is) {
          same.push_back(entry.first);
          conditionsOfSame.push_back(entry.second);
        }
        return is;
      });
      if (same.size() > 1) {
        numMerged.at(root) << remark::metric("Bounds", same.size());
        conditions.push_back(emit(same));
        merges = true;
      } else {
        conditions.push_back(conditionsOfSame.front());
      }
    }
    if (!merges)
      return;
    Value all = conditions.front();
    for (Value condition : ArrayRef(conditions).drop_front())
      all = arith::AndIOp::create(b, loc, all, condition);
    root.replaceAllUsesWith(all);
  }

private:
  /// Tile programs repeat cheap ops for each use.
  static bool isSameColumn(Value a, Value c) {
    if (a == c)
      return true;
    Operation *x = a.getDefiningOp(), *y = c.getDefiningOp();
    if (!x || !y || x->getName() != y->getName() ||
        x->getAttrDictionary() != y->getAttrDictionary() || x->getNumRegions() ||
        x->getNumOperands() != y->getNumOperands() || a.getType() != c.getType())
      return false;
    return llvm::all_of(llvm::zip(x->getOperands(), y->getOperands()), [](auto pair) {
      return isSameColumn(std::get<0>(pair), std::get<1>(pair));
    });
  }

  void collect(Value condition) {
    auto conjunction = condition.getDefiningOp<arith::AndIOp>();
    if (conjunction && (conjunction == root || conjunction->hasOneUse())) {
      collect(conjunction.getLhs());
      collect(conjunction.getRhs());
    } else if (auto bound = readBound(condition)) {
      bounds.push_back({*bound, condition});
    } else {
      others.push_back(condition);
    }
  }

  /// `value`, for a sum that does not wrap.
  Value clamp(Value value) {
    if (isSmall(value))
      return value;
    auto limit = [&](int64_t number) -> Value {
      Type type = value.getType();
      auto vector = dyn_cast<VectorType>(type);
      TypedAttr attribute = b.getIndexAttr(number);
      return arith::ConstantOp::create(
          b, loc, vector ? TypedAttr(DenseElementsAttr::get(vector, attribute)) : attribute);
    };
    value = arith::MaxSIOp::create(b, loc, value, limit(-kLarge));
    return arith::MinSIOp::create(b, loc, value, limit(kLarge));
  }

  Value emitLimit(Bound bound, VectorType rows) {
    if (isComputed(bound))
      for (Value *part : {&bound.row, &bound.scalar})
        if (*part)
          *part = clamp(*part);
    Value limit;
    auto spread = [&](Value scalar) -> Value {
      return vector::BroadcastOp::create(b, loc, rows, scalar);
    };
    if (bound.row && bound.scalar)
      limit = bound.sign > 0
                  ? Value(arith::AddIOp::create(b, loc, bound.row, spread(bound.scalar)))
                  : Value(arith::SubIOp::create(b, loc, bound.row, spread(bound.scalar)));
    else if (bound.row || bound.scalar)
      limit = bound.row ? bound.row : spread(bound.scalar);
    if (limit && bound.offset == 0)
      return limit;
    Value offset = spread(arith::ConstantIndexOp::create(b, loc, bound.offset));
    return limit ? Value(arith::AddIOp::create(b, loc, limit, offset)) : offset;
  }

  Value emit(ArrayRef<Bound> same) {
    auto rows = VectorType::get({type.getDimSize(0)}, b.getIndexType());
    auto tile = VectorType::get(type.getShape(), b.getIndexType());
    auto turned = VectorType::get({type.getDimSize(1), type.getDimSize(0)}, b.getIndexType());
    Value limit;
    for (const Bound &bound : same) {
      Value next = emitLimit(bound, rows);
      if (!limit)
        limit = next;
      else if (bound.isUpper)
        limit = arith::MinSIOp::create(b, loc, limit, next);
      else
        limit = arith::MaxSIOp::create(b, loc, limit, next);
    }
    Value repeated = vector::BroadcastOp::create(b, loc, turned, limit);
    Value limits = vector::TransposeOp::create(b, loc, repeated, ArrayRef<int64_t>{1, 0});
    Value columns = vector::BroadcastOp::create(b, loc, tile, same.front().column);
    auto predicate = same.front().isUpper ? CmpIPredicate::sle : CmpIPredicate::sge;
    return arith::CmpIOp::create(b, loc, predicate, columns, limits);
  }

  arith::AndIOp root;
  OpBuilder b;
  Location loc;
  VectorType type;
  SmallVector<std::pair<Bound, Value>> bounds;
  SmallVector<Value> others;
};

struct MergeBoundsPass : attn::impl::AttnMergeBoundsBase<MergeBoundsPass> {
  void runOnOperation() override {
    SmallVector<arith::AndIOp> roots;
    getOperation()->walk([&](arith::AndIOp op) {
      auto type = dyn_cast<VectorType>(op.getType());
      bool isRoot = llvm::none_of(op->getUsers(), llvm::IsaPred<arith::AndIOp>);
      if (type && type.getRank() == 2 && isRoot)
        roots.push_back(op);
    });
    for (arith::AndIOp root : roots)
      Merger(root).run();
  }
};

} // namespace
