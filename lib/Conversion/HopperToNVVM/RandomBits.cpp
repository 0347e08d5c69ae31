// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.random_bits of tiles: a call of the generator for the four pairs of a thread that share one,
// where tiles begin at multiples of 16. Elsewhere each pair has its own call.

#include "attn/Conversion/RandomBits.h"
#include "Lowering.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

/// Queries, or keys, of which those whose bit kRandomWordBit differs share calls.
static constexpr int64_t kPeriod = 2 * kRandomWordBit;

namespace {
/// Whether numbers are multiples of kPeriod, in the kernel as it was before its lowering. Values
/// that loops carry are, as long as nothing says that they are not.
class Multiples {
public:
  bool isMultiple(Value value) {
    bool result;
    do {
      known.clear();
      assumed.clear();
      isRefuted = false;
      result = find(value);
    } while (isRefuted);
    return result;
  }

private:
  bool find(Value value);
  bool compute(Value value);
  bool ofArgument(BlockArgument argument);

  DenseMap<Value, bool> known;      // or assumed
  DenseSet<Value> assumed, refuted; // while they were found, and wrongly
  bool isRefuted = false;
};
} // namespace

bool Multiples::find(Value value) {
  if (refuted.contains(value))
    return false;
  auto [entry, isNew] = known.try_emplace(value, true);
  if (!isNew) {
    assumed.insert(value);
    return entry->second;
  }
  bool result = compute(value);
  known[value] = result;
  if (!result && assumed.contains(value)) {
    refuted.insert(value);
    isRefuted = true;
  }
  return result;
}

bool Multiples::compute(Value value) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return constant.getSExtValue() % kPeriod == 0;
  if (auto argument = dyn_cast<BlockArgument>(value))
    return ofArgument(argument);
  Operation *op = value.getDefiningOp();
  auto both = [&](Value x, Value y) { return find(x) && find(y); };
  unsigned number = cast<OpResult>(value).getResultNumber();
  return TypeSwitch<Operation *, bool>(op)
      .Case<arith::AddIOp, arith::SubIOp, arith::MinSIOp, arith::MaxSIOp, arith::MinUIOp,
            arith::MaxUIOp>([&](auto op) { return both(op.getLhs(), op.getRhs()); })
      .Case([&](arith::SelectOp op) { return both(op.getTrueValue(), op.getFalseValue()); })
      .Case([&](arith::MulIOp op) { return find(op.getLhs()) || find(op.getRhs()); })
      .Case<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtSIOp, arith::ExtUIOp,
            arith::TruncIOp>([&](auto op) { return find(op->getOperand(0)); })
      .Case([&](scf::ForOp op) { return find(op.getRegionIterArg(number)); })
      .Case([&](scf::IfOp op) {
        return both(op.thenYield().getOperand(number), op.elseYield().getOperand(number));
      })
      .Case([&](scf::WhileOp op) { return find(op.getConditionOp().getArgs()[number]); })
      .Default(false);
}

bool Multiples::ofArgument(BlockArgument argument) {
  // Null for the kernel's own arguments: its old body has been taken out of it.
  Operation *parent = argument.getOwner()->getParentOp();
  unsigned number = argument.getArgNumber();
  if (auto loop = dyn_cast_or_null<scf::ForOp>(parent)) {
    if (number == 0)
      return find(loop.getLowerBound()) && find(loop.getStep());
    return find(loop.getInitArgs()[number - 1]) && find(loop.getYieldedValues()[number - 1]);
  }
  if (auto loop = dyn_cast_or_null<scf::WhileOp>(parent)) {
    if (argument.getOwner() == loop.getAfterBody())
      return find(loop.getConditionOp().getArgs()[number]);
    return find(loop.getInits()[number]) && find(loop.getYieldOp().getOperands()[number]);
  }
  return false;
}

namespace {
/// What the positions of a vector are: a number, the same for all, and the lane's.
struct Positions {
  bool isMultiple; ///< the number, of kPeriod
  int lanes;       ///< how often the lane's is added
};
} // namespace

static Positions findPositions(Value value, Multiples &multiples) {
  if (!isa<VectorType>(value.getType()))
    return {multiples.isMultiple(value), 0};
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)) && constant.isSplat())
    return {constant.getSplatValue<APInt>().getSExtValue() % kPeriod == 0, 0};
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<vector::StepOp>(op))
    return {true, 1};
  if (isa_and_nonnull<vector::BroadcastOp, vector::TransposeOp, vector::ShapeCastOp,
                      vector::ExtractStridedSliceOp>(op))
    return findPositions(op->getOperand(0), multiples);
  if (!isa_and_nonnull<arith::AddIOp>(op))
    return {false, 0};
  Positions x = findPositions(op->getOperand(0), multiples);
  Positions y = findPositions(op->getOperand(1), multiples);
  return {x.isMultiple && y.isMultiple, x.lanes + y.lanes};
}

namespace {
/// Where a pair's query, or key, is: the number that a call takes, and whether its bit is set, as a
/// constant where that is known.
struct Place {
  Value number, isSet;
  bool known = false;
};
} // namespace

bool KernelLowering::lowerRandomBits(Operation *op, Layout layout) {
  auto random = dyn_cast<RandomBitsOp>(op);
  if (!random || layout == Layout::Scalar)
    return false;
  Multiples multiples;
  auto shares = [&](Value positions) {
    Positions found = findPositions(positions, multiples);
    return piece == kPieceOfAccumulator && found.isMultiple && found.lanes <= 1;
  };
  // Where the bit is known, what constants add to the rest of a number carries nothing into it: a
  // thread's first row has none of 8, its first column is even and has none of 8.
  auto placesOf = [&](Value positions) {
    const Parts &all = parts(positions, layout);
    bool isKnown = shares(positions);
    DenseMap<std::pair<Value, int64_t>, Value> numbers;
    SmallVector<Place> places;
    for (size_t e = 0; e < all.values.size(); ++e) {
      int64_t offset = all.offset(e);
      Place place;
      if (isKnown) {
        place.known = offset & kRandomWordBit;
        offset &= ~kRandomWordBit;
      }
      Value &number = numbers[{all.values[e], offset}];
      if (!number)
        number = addI32(toI32(all.values[e]), offset);
      place.number = number;
      if (!isKnown) {
        Value bit = arith::AndIOp::create(b, number, constantI32(kRandomWordBit));
        place.isSet = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, bit, constantI32(0));
        place.number = arith::AndIOp::create(b, number, constantI32(~kRandomWordBit));
      }
      places.push_back(place);
    }
    return places;
  };
  SmallVector<Place> queries = placesOf(random.getQuery()), keys = placesOf(random.getKey());
  SmallVector<Value> seeds = elements(random.getSeed(), layout);
  SmallVector<Value> offsets = elements(random.getOffset(), layout);
  SmallVector<Value> batches = elements(random.getBatch(), layout);
  SmallVector<Value> heads = elements(random.getHead(), layout);
  size_t count = std::max(queries.size(), keys.size());
  auto at = [](auto &values, size_t e) { return values[values.size() == 1 ? 0 : e]; };
  using Key = std::pair<std::pair<Value, Value>, std::pair<Value, Value>>;
  DenseMap<Key, unsigned> headNumbers;
  SmallVector<std::array<Value, 4>> ofHeads;
  DenseMap<std::pair<unsigned, std::pair<Value, Value>>, std::array<Value, 4>> calls;
  auto choose = [&](const Place &place, Value no, Value yes) -> Value {
    if (place.isSet)
      return arith::SelectOp::create(b, place.isSet, yes, no);
    return place.known ? yes : no;
  };
  Parts result;
  for (size_t e = 0; e < count; ++e) {
    Key key = {{at(seeds, e), at(offsets, e)}, {at(batches, e), at(heads, e)}};
    auto [head, isNew] = headNumbers.try_emplace(key, unsigned(ofHeads.size()));
    if (isNew)
      ofHeads.push_back(buildRandomKey(b, key.first.first, key.first.second,
                                       toI32(key.second.first), toI32(key.second.second)));
    Place query = at(queries, e), ofKey = at(keys, e);
    std::array<Value, 4> &words = calls[{head->second, {query.number, ofKey.number}}];
    if (!words[0])
      words = buildRandomWords(b, ofHeads[head->second], query.number, ofKey.number);
    result.values.push_back(
        choose(ofKey, choose(query, words[0], words[1]), choose(query, words[2], words[3])));
  }
  setParts(random.getResult(), layout, std::move(result));
  return true;
}
