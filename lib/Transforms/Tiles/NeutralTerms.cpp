// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two small analyses of one loop body. Dimensions of vector values that must
// run together are united (union-find), which tells which reductions run along
// the mask. Abstract values {-inf, 0, positive, unknown} flow from the masking
// selects through elementwise ops. Products with zero are taken to be zero and
// -inf minus anything to be -inf: a NaN or infinity that contradicts this comes
// from data that the mask hides.

#include "NeutralTerms.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn::tiles {
namespace {

/// Classes of (vector value, dimension) pairs.
class Dimensions {
public:
  unsigned find(Value value, unsigned dim) {
    auto [it, isNew] = ids.try_emplace({value, dim}, parents.size());
    if (isNew)
      parents.push_back(parents.size());
    unsigned id = it->second;
    while (parents[id] != id)
      id = parents[id] = parents[parents[id]];
    return id;
  }
  void unite(Value a, unsigned dimA, Value c, unsigned dimC) {
    if (isShared(a) || isShared(c))
      return;
    unsigned x = find(a, dimA), y = find(c, dimC);
    parents[x] = y;
  }

  /// Splats fit any dimension, one value serves unrelated ones.
  static bool isShared(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (op->hasTrait<OpTrait::ConstantLike>())
      return true;
    auto broadcast = dyn_cast<vector::BroadcastOp>(op);
    return broadcast && !isa<VectorType>(broadcast.getSource().getType());
  }

private:
  llvm::DenseMap<std::pair<Value, unsigned>, unsigned> ids;
  SmallVector<unsigned> parents;
};

int64_t rankOf(Value value) {
  auto type = dyn_cast<VectorType>(value.getType());
  return type ? type.getRank() : 0;
}

void uniteAll(Dimensions &dims, Value a, Value c) {
  for (int64_t d = 0; d < rankOf(a); ++d)
    dims.unite(a, d, c, d);
}

/// Ops without a rule of their own: same rank means elementwise, anything else
/// puts all dimensions into one class, which can only refuse more.
void uniteUnknown(Dimensions &dims, Operation *op) {
  // None of those that nothing is united with may come first.
  SmallVector<Value> vectors;
  auto collect = [&](Value v) {
    if (rankOf(v) > 0 && !Dimensions::isShared(v))
      vectors.push_back(v);
  };
  llvm::for_each(op->getOperands(), collect);
  llvm::for_each(op->getResults(), collect);
  for (Value v : vectors) {
    Value first = vectors.front();
    if (cast<VectorType>(v.getType()).getShape() == cast<VectorType>(first.getType()).getShape()) {
      uniteAll(dims, v, first);
      continue;
    }
    for (int64_t d = 0; d < rankOf(v); ++d)
      for (int64_t e = 0; e < rankOf(first); ++e)
        dims.unite(v, d, first, e);
  }
}

void uniteShapeCast(Dimensions &dims, vector::ShapeCastOp op) {
  SmallVector<int64_t> from, to;
  auto source = op.getSourceVectorType(), result = op.getResultVectorType();
  for (int64_t d = 0; d < source.getRank(); ++d)
    if (source.getDimSize(d) != 1)
      from.push_back(d);
  for (int64_t d = 0; d < result.getRank(); ++d)
    if (result.getDimSize(d) != 1)
      to.push_back(d);
  bool unitDimsOnly = from.size() == to.size();
  for (unsigned i = 0; unitDimsOnly && i < from.size(); ++i)
    unitDimsOnly = source.getDimSize(from[i]) == result.getDimSize(to[i]);
  if (!unitDimsOnly)
    return uniteUnknown(dims, op);
  for (auto [f, t] : llvm::zip_equal(from, to))
    dims.unite(op.getSource(), f, op.getResult(), t);
}

void uniteContract(Dimensions &dims, vector::ContractionOp op) {
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  Value values[] = {op.getLhs(), op.getRhs(), op.getAcc()};
  SmallVector<std::optional<std::pair<Value, unsigned>>> seen(maps[0].getNumDims());
  for (auto [map, value] : llvm::zip_equal(maps, values))
    for (auto [d, e] : llvm::enumerate(map.getResults())) {
      auto &first = seen[cast<AffineDimExpr>(e).getPosition()];
      if (first)
        dims.unite(value, d, first->first, first->second);
      else
        first = {value, unsigned(d)};
      // The accumulator may be a shared splat, the result never is.
      if (value == op.getAcc())
        dims.unite(op.getResult(), d, first->first, first->second);
    }
}

void uniteReduction(Dimensions &dims, vector::MultiDimReductionOp op) {
  unsigned next = 0;
  for (auto [d, reduced] : llvm::enumerate(op.getReductionMask()))
    if (!reduced) {
      dims.unite(op.getSource(), d, op.getDest(), next);
      dims.unite(op.getSource(), d, op.getAcc(), next++);
    }
}

void uniteDims(Dimensions &dims, Operation *op) {
  if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
    int64_t rank = rankOf(broadcast.getSource());
    int64_t added = rankOf(broadcast.getVector()) - rank;
    auto sizeOf = [](Value value, int64_t dim) {
      return cast<VectorType>(value.getType()).getDimSize(dim);
    };
    // One position that is stretched has the same value at all others: it is not theirs.
    for (int64_t d = 0; d < rank; ++d)
      if (sizeOf(broadcast.getSource(), d) == sizeOf(broadcast.getVector(), added + d))
        dims.unite(broadcast.getSource(), d, broadcast.getVector(), added + d);
  } else if (auto transpose = dyn_cast<vector::TransposeOp>(op)) {
    for (auto [d, from] : llvm::enumerate(transpose.getPermutation()))
      dims.unite(transpose.getVector(), from, transpose.getResult(), d);
  } else if (auto cast = dyn_cast<vector::ShapeCastOp>(op)) {
    uniteShapeCast(dims, cast);
  } else if (auto contract = dyn_cast<vector::ContractionOp>(op)) {
    uniteContract(dims, contract);
  } else if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
    uniteReduction(dims, reduction);
  } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
    for (auto [arg, init, yielded, result] :
         llvm::zip_equal(loop.getRegionIterArgs(), loop.getInitArgs(), loop.getYieldedValues(),
                         loop.getResults())) {
      uniteAll(dims, arg, init);
      uniteAll(dims, arg, yielded);
      uniteAll(dims, arg, result);
    }
  } else if (auto branch = dyn_cast<scf::IfOp>(op); branch && branch->hasAttr(kTileKindAttr)) {
    for (Block *side : {branch.thenBlock(), branch.elseBlock()})
      for (auto [result, yielded] :
           llvm::zip(op->getResults(), side ? side->getTerminator()->getOperands() : ValueRange()))
        uniteAll(dims, result, yielded);
  } else if (!isa<vector::TransferReadOp, vector::TransferWriteOp, TileAddOp, scf::YieldOp>(op)) {
    uniteUnknown(dims, op);
  }
}

enum class Neutral { Unknown, NegInf, Zero, Positive };

Neutral classify(Value value) {
  if (auto broadcast = value.getDefiningOp<vector::BroadcastOp>())
    return classify(broadcast.getSource());
  DenseFPElementsAttr splat;
  APFloat scalar(0.0);
  if (matchPattern(value, m_Constant(&splat)) && splat.isSplat())
    scalar = splat.getSplatValue<APFloat>();
  else if (!matchPattern(value, m_ConstantFloat(&scalar)))
    return Neutral::Unknown;
  if (scalar.isZero())
    return Neutral::Zero;
  if (scalar.isInfinity() && scalar.isNegative())
    return Neutral::NegInf;
  return scalar.isFiniteNonZero() && !scalar.isNegative() ? Neutral::Positive : Neutral::Unknown;
}

/// The abstract values of one body if the condition keeps nothing.
class Flow {
public:
  explicit Flow(const Condition &condition) : condition(condition) {}

  Neutral get(Value value) {
    auto it = values.find(value);
    if (it != values.end())
      return it->second;
    // What both branches give; they may not have been visited yet.
    auto branch = value.getDefiningOp<scf::IfOp>();
    if (!branch || branch.getElseRegion().empty())
      return classify(value);
    unsigned number = cast<OpResult>(value).getResultNumber();
    auto yielded = [&](Block *block) {
      for (Operation &op : *block)
        visit(&op);
      return get(block->getTerminator()->getOperand(number));
    };
    Neutral masked = yielded(branch.elseBlock());
    // The other side is for tiles that the condition keeps all of.
    if (branch->hasAttr(kTileKindAttr))
      return masked;
    return masked == yielded(branch.thenBlock()) ? masked : Neutral::Unknown;
  }

  void visit(Operation *op) {
    if (op->getNumResults() == 1 && op->getNumRegions() == 0)
      values[op->getResult(0)] = evaluate(op);
  }

  /// As `get`, with what the value follows from visited first. Of a branch around the condition's
  /// own select, the other side runs where the condition keeps all.
  Neutral follow(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || values.contains(value))
      return get(value);
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      if (!branch->hasAttr(kTileKindAttr))
        return Neutral::Unknown;
      Value masked = branch.elseYield().getOperand(cast<OpResult>(value).getResultNumber());
      auto select = masked.getDefiningOp<arith::SelectOp>();
      bool isOwn = select && select.getCondition() == condition.value;
      return values[value] = isOwn ? follow(masked) : Neutral::Unknown;
    }
    for (Value operand : op->getOperands())
      follow(operand);
    visit(op);
    return get(value);
  }

private:
  static Neutral add(Neutral a, Neutral c) {
    if (a == Neutral::NegInf || c == Neutral::NegInf)
      return Neutral::NegInf;
    return a == c ? a : Neutral::Unknown;
  }

  static Neutral multiply(Neutral a, Neutral c) {
    auto either = [&](Neutral n) { return a == n || c == n; };
    if (either(Neutral::Zero))
      return either(Neutral::NegInf) ? Neutral::Unknown : Neutral::Zero;
    return either(Neutral::Positive) && either(Neutral::NegInf) ? Neutral::NegInf
                                                                : Neutral::Unknown;
  }

  Neutral evaluate(Operation *op) {
    Neutral constant = classify(op->getResult(0));
    if (constant != Neutral::Unknown)
      return constant;
    auto in = [&](unsigned i) { return get(op->getOperand(i)); };
    auto either = [&](Neutral n) { return in(0) == n || in(1) == n; };
    if (auto select = dyn_cast<arith::SelectOp>(op)) {
      Neutral other = get(select.getFalseValue());
      if (select.getCondition() == condition.value)
        return condition.keeps ? other : get(select.getTrueValue());
      return get(select.getTrueValue()) == other ? other : Neutral::Unknown;
    }
    if (isa<vector::BroadcastOp, vector::TransposeOp, vector::ShapeCastOp, arith::ExtFOp,
            arith::TruncFOp>(op))
      return in(0);
    if (isa<arith::AddFOp>(op))
      return add(in(0), in(1));
    if (isa<math::FmaOp>(op))
      return add(multiply(in(0), in(1)), in(2));
    if (isa<arith::SubFOp>(op)) {
      if (in(0) == Neutral::NegInf && in(1) != Neutral::NegInf)
        return Neutral::NegInf;
      return in(0) == Neutral::Zero && in(1) == Neutral::Zero ? Neutral::Zero : Neutral::Unknown;
    }
    if (isa<arith::MulFOp>(op))
      return multiply(in(0), in(1));
    if (isa<arith::DivFOp>(op)) {
      if (in(0) == Neutral::Zero)
        return Neutral::Zero;
      return in(0) == Neutral::NegInf && in(1) == Neutral::Positive ? Neutral::NegInf
                                                                    : Neutral::Unknown;
    }
    if (isa<arith::NegFOp>(op))
      return in(0) == Neutral::Zero ? Neutral::Zero : Neutral::Unknown;
    if (isa<arith::MaxNumFOp, arith::MaximumFOp>(op))
      return in(0) == in(1) ? in(0) : Neutral::Unknown;
    if (isa<math::ExpOp, math::Exp2Op>(op))
      return in(0) == Neutral::NegInf ? Neutral::Zero : Neutral::Unknown;
    if (auto contract = dyn_cast<vector::ContractionOp>(op))
      return either(Neutral::Zero) && in(2) == Neutral::Zero &&
                     contract.getKind() == vector::CombiningKind::ADD
                 ? Neutral::Zero
                 : Neutral::Unknown;
    return Neutral::Unknown;
  }

  const Condition &condition;
  llvm::DenseMap<Value, Neutral> values;
};

std::string describe(StringRef wanted, Neutral got) {
  StringRef name = got == Neutral::NegInf ? "-inf"
                   : got == Neutral::Zero ? "0"
                                          : "a value that is not known";
  return ("expected " + wanted + " where the mask is false, got " + name).str();
}

/// Checks one reduction that runs along the mask.
std::optional<std::string> checkTerms(Operation *op, Flow &flow) {
  if (auto contract = dyn_cast<vector::ContractionOp>(op)) {
    if (contract.getKind() != vector::CombiningKind::ADD)
      return "expected a contraction that adds";
    Neutral lhs = flow.get(contract.getLhs()), rhs = flow.get(contract.getRhs());
    if (lhs == Neutral::Zero || rhs == Neutral::Zero)
      return std::nullopt;
    return describe("a factor 0", lhs);
  }
  vector::CombiningKind kind;
  Value terms;
  if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
    kind = reduction.getKind();
    terms = reduction.getSource();
  } else {
    kind = cast<vector::ReductionOp>(op).getKind();
    terms = cast<vector::ReductionOp>(op).getVector();
  }
  Neutral got = flow.get(terms);
  switch (kind) {
  case vector::CombiningKind::MAXNUMF:
  case vector::CombiningKind::MAXIMUMF:
    return got == Neutral::NegInf ? std::nullopt : std::optional(describe("-inf", got));
  case vector::CombiningKind::ADD:
    return got == Neutral::Zero ? std::nullopt : std::optional(describe("0", got));
  default:
    return "expected a maximum or a sum, got a reduction whose neutral element "
           "is not tracked";
  }
}

SmallVector<std::pair<Value, unsigned>> getReducedDims(Operation *op) {
  SmallVector<std::pair<Value, unsigned>> reduced;
  if (auto contract = dyn_cast<vector::ContractionOp>(op)) {
    AffineMap result = contract.getIndexingMapsArray()[2];
    for (auto [map, value] : llvm::zip(contract.getIndexingMapsArray(),
                                       SmallVector<Value>{contract.getLhs(), contract.getRhs()}))
      for (auto [d, e] : llvm::enumerate(map.getResults()))
        if (!llvm::is_contained(result.getResults(), e))
          reduced.push_back({value, unsigned(d)});
  } else if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
    for (auto [d, isReduced] : llvm::enumerate(reduction.getReductionMask()))
      if (isReduced)
        reduced.push_back({reduction.getSource(), unsigned(d)});
  } else if (auto all = dyn_cast<vector::ReductionOp>(op)) {
    reduced.push_back({all.getVector(), 0});
  }
  return reduced;
}

/// A state in memory: the loop reads the carried tensor that a write changes a part of. What is
/// only written starts as zeros.
class State {
public:
  State(vector::TransferWriteOp write, scf::ForOp loop, Flow &flow)
      : loop(loop), flow(flow), root(rootOf(write.getBase())) {}

  bool isRead() {
    WalkResult walk = loop.getBody()->walk([&](vector::TransferReadOp read) {
      return rootOf(read.getBase()) == root ? WalkResult::interrupt() : WalkResult::advance();
    });
    return walk.wasInterrupted();
  }

  /// The next state stays as it is where the mask is false: it follows from states by terms that
  /// are neutral, whatever dimension these run along.
  std::optional<NeutralityFailure> check(Value next) {
    Operation *op = next.getDefiningOp();
    if (!op || !loop->isAncestor(op) || !visited.insert(next).second)
      return std::nullopt;
    if (flow.get(next) != Neutral::Unknown || op->hasTrait<OpTrait::ConstantLike>())
      return std::nullopt;
    if (auto contract = dyn_cast<vector::ContractionOp>(op))
      return checkSum(op, contract.getAcc());
    if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op))
      return checkSum(op, reduction.getAcc());
    if (auto reduction = dyn_cast<vector::ReductionOp>(op))
      return checkSum(op, reduction.getAcc());
    if (isa<vector::TransferReadOp>(op)) {
      if (carries(op->getOperand(0)))
        return std::nullopt;
      return NeutralityFailure{
          op, "expected a state that follows from its last value and from terms, got a read"};
    }
    for (Value operand : op->getOperands())
      if (auto failure = check(operand))
        return failure;
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (Value yielded : block.getTerminator()->getOperands())
          if (auto failure = check(yielded))
            return failure;
    return std::nullopt;
  }

private:
  static Value rootOf(Value tensor) {
    while (auto slice = tensor.getDefiningOp<tensor::ExtractSliceOp>())
      tensor = slice.getSource();
    return tensor;
  }

  /// Whether a loop carries the tensor.
  bool carries(Value tensor) {
    auto argument = dyn_cast<BlockArgument>(rootOf(tensor));
    return argument && isa<scf::ForOp>(argument.getOwner()->getParentOp());
  }

  std::optional<NeutralityFailure> checkSum(Operation *op, Value start) {
    if (std::optional<std::string> reason = checkTerms(op, flow))
      return NeutralityFailure{op, *reason};
    return start ? check(start) : std::nullopt;
  }

  scf::ForOp loop;
  Flow &flow;
  Value root;
  llvm::DenseSet<Value> visited;
};

/// Whether the op is on the side of a branch that tiles take of which the masks keep all.
bool isOfFullTiles(Operation *op) {
  for (Region *region = op->getParentRegion(); region; region = region->getParentRegion())
    if (auto branch = dyn_cast<scf::IfOp>(region->getParentOp());
        branch && branch->hasAttr(kTileKindAttr) && region == &branch.getThenRegion())
      return true;
  return false;
}

} // namespace

bool isZeroWhereDropped(const Condition &condition, Value value) {
  return Flow(condition).follow(value) == Neutral::Zero;
}

std::optional<Condition> getMaskCondition(Operation *op) {
  auto select = dyn_cast<arith::SelectOp>(op);
  if (!select || !isa<VectorType>(select.getCondition().getType()))
    return std::nullopt;
  auto isNeutral = [](Value value) {
    Neutral n = classify(value);
    return n == Neutral::NegInf || n == Neutral::Zero;
  };
  if (isNeutral(select.getFalseValue()))
    return Condition{select.getCondition(), true};
  if (isNeutral(select.getTrueValue()))
    return Condition{select.getCondition(), false};
  return std::nullopt;
}

std::optional<NeutralityFailure> findNonNeutralTerms(LoopUniforms &uniforms,
                                                     const Condition &condition) {
  Value keep = condition.value;
  scf::ForOp loop = uniforms.getLoop();
  Dimensions dims;
  SmallVector<std::pair<Value, unsigned>> along;
  uniteDims(dims, loop);
  loop.getBody()->walk([&](Operation *op) {
    uniteDims(dims, op);
    auto read = dyn_cast<vector::TransferReadOp>(op);
    if (!read)
      return;
    for (auto [d, e] : llvm::enumerate(read.getPermutationMap().getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(e))
        if (!uniforms.isUniform(read.getIndices()[dim.getPosition()]))
          along.push_back({read.getResult(), unsigned(d)});
  });
  llvm::DenseSet<unsigned> classes;
  for (auto [value, d] : along)
    classes.insert(dims.find(value, d));
  // The mask's own, which are those of what it selects: it may be one value for all.
  auto addAll = [&](Value value) {
    for (int64_t d = 0; d < rankOf(value); ++d)
      classes.insert(dims.find(value, d));
  };
  addAll(keep);
  for (Operation *user : keep.getUsers())
    if (loop->isAncestor(user))
      llvm::for_each(user->getResults(), addAll);

  // A state that keeps the tile's lanes is a reduction without an op for it.
  for (Value yielded : loop.getYieldedValues())
    for (int64_t d = 0; d < rankOf(yielded); ++d)
      for (auto [value, e] : along)
        if (dims.find(value, e) == dims.find(yielded, d))
          return NeutralityFailure{loop,
                                   "expected a state without lanes along the loop's tile, got "
                                   "a carried vector that keeps them"};

  Flow flow(condition);
  std::optional<NeutralityFailure> failure;
  loop.getBody()->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isOfFullTiles(op))
      return WalkResult::advance();
    flow.visit(op);
    if (auto write = dyn_cast<vector::TransferWriteOp>(op)) {
      Neutral written = flow.get(write.getValueToStore());
      if (written == Neutral::Zero)
        return WalkResult::advance();
      State state(write, loop, flow);
      failure = state.isRead() ? state.check(write.getValueToStore())
                               : NeutralityFailure{op, describe("0 to be stored", written)};
      if (!failure)
        return WalkResult::advance();
      return WalkResult::interrupt();
    }
    if (isa<ScatterAddOp, TileAddOp>(op)) {
      Neutral added = flow.get(op->getOperand(0)); // the values
      if (added == Neutral::Zero)
        return WalkResult::advance();
      failure = NeutralityFailure{op, describe("0 to be added", added)};
      return WalkResult::interrupt();
    }
    bool runsAlong = llvm::any_of(getReducedDims(op), [&](auto reduced) {
      return classes.contains(dims.find(reduced.first, reduced.second));
    });
    if (!runsAlong)
      return WalkResult::advance();
    if (std::optional<std::string> reason = checkTerms(op, flow)) {
      failure = NeutralityFailure{op, *reason};
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure;
}

} // namespace attn::tiles
