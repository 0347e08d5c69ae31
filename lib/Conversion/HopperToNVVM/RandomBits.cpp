// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.random_bits of tiles: a call of the generator for the eight pairs of a thread, or of two
// neighbouring rows, that share one, where tiles begin at multiples of 16. Elsewhere each pair has
// its own call.

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

/// `known` bits are in constants only; calls take numbers without `bits`.
SmallVector<KernelLowering::Place> KernelLowering::placesOf(Value positions, Layout layout,
                                                            int64_t bits, int64_t known) {
  const Parts &all = parts(positions, layout);
  DenseMap<std::pair<Value, int64_t>, std::pair<Value, Value>> numbers;
  SmallVector<Place> places;
  for (size_t e = 0; e < all.values.size(); ++e) {
    int64_t rest = all.offset(e) & ~known;
    auto &[position, number] = numbers[{all.values[e], rest}];
    if (!position) {
      position = number = addI32(toI32(all.values[e]), rest);
      if (bits & ~known)
        number = arith::AndIOp::create(b, position, constantI32(~(bits & ~known)));
    }
    places.push_back({number, position, known, all.offset(e) & known});
  }
  return places;
}

Value KernelLowering::chooseByBit(const Place &place, int64_t bit, Value no, Value yes) {
  if (place.known & bit)
    return place.set & bit ? yes : no;
  Value masked = arith::AndIOp::create(b, place.position, constantI32(bit));
  Value isSet = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, masked, constantI32(0));
  return arith::SelectOp::create(b, isSet, yes, no);
}

using Words = std::array<Value, 4>;

bool KernelLowering::lowerRandomBits(Operation *op, Layout layout) {
  auto random = dyn_cast<RandomBitsOp>(op);
  if (!random || layout == Layout::Scalar)
    return false;
  auto at = [](auto &values, size_t e) { return values[values.size() == 1 ? 0 : e]; };

  // What belongs to heads.
  std::array<SmallVector<Value>, 4> ofHeads;
  for (auto [values, operand] : llvm::zip_equal(ofHeads, random->getOperands().take_front(4)))
    values = elements(operand, layout);
  bool isOneHead = llvm::all_of(ofHeads, [](auto &values) { return llvm::all_equal(values); });
  SmallVector<std::pair<Words, Words>> heads;
  auto findHead = [&](size_t e) {
    Words operands;
    for (auto [value, values] : llvm::zip_equal(operands, ofHeads))
      value = at(values, e);
    auto *known = llvm::find_if(heads, [&](auto &head) { return head.first == operands; });
    if (known != heads.end())
      return size_t(known - heads.begin());
    Words k = buildRandomKey(b, operands[0], operands[1], toI32(operands[2]), toI32(operands[3]));
    heads.push_back({operands, k});
    return heads.size() - 1;
  };

  // A thread's first row in a fragment has none of kRandomWordBit, its first column is even and has
  // none of it: constants say these bits, and what they add to the rest carries nothing into them.
  Multiples multiples;
  auto isOfFragment = [&](Value positions) {
    Positions found = findPositions(positions, multiples);
    return piece == kPieceOfAccumulator && found.isMultiple && found.lanes <= 1;
  };
  auto areColumns = [&](Value positions) {
    return llvm::any_of(parts(positions, layout).offsets, [](int64_t x) { return x & 1; });
  };
  bool isFragment = isOfFragment(random.getQuery()) && isOfFragment(random.getKey());
  bool keysAreColumns = isFragment && areColumns(random.getKey());
  // Keys that are rows have the two halves of a word in lanes of neighbouring rows. Each makes the
  // calls of every other query for both, and they exchange the words.
  bool exchanges = isFragment && !keysAreColumns && areColumns(random.getQuery()) && isOneHead;
  constexpr int64_t kNextQuery = 1;

  int64_t inFragment = isFragment ? kRandomWordBit : 0;
  SmallVector<Place> queries = placesOf(random.getQuery(), layout, kRandomWordBit,
                                        inFragment | (exchanges ? kNextQuery : 0));
  SmallVector<Place> keys = placesOf(random.getKey(), layout, kRandomWordBit | kRandomHalfBit,
                                     inFragment | (keysAreColumns ? kRandomHalfBit : 0));

  DenseMap<std::pair<Value, Value>, Value> sums;
  auto findQuery = [&](const Place &query, const Place &key) {
    if (!exchanges)
      return query.number;
    Value &sum = sums[{query.number, key.position}];
    if (!sum)
      sum = arith::AddIOp::create(
          b, query.number, arith::AndIOp::create(b, key.position, constantI32(kRandomHalfBit)));
    return sum;
  };
  /// Bytes of two words: a nibble of `selector` is the number of one.
  auto permute = [&](Value first, Value second, Value selector) -> Value {
    return NVVM::PermuteOp::create(b, b.getI32Type(), first, second, selector,
                                   NVVM::PermuteMode::DEFAULT);
  };
  constexpr int64_t kFirst = 0x3210, kFirstSwapped = 0x1032;
  constexpr int64_t kSecond = 0x7654, kSecondSwapped = 0x5476;
  DenseMap<std::pair<size_t, std::pair<Value, Value>>, Words> calls;
  DenseMap<Value, Value> received;
  Parts result;
  for (size_t e = 0, count = std::max(queries.size(), keys.size()); e < count; ++e) {
    Place query = at(queries, e), key = at(keys, e);
    Value number = findQuery(query, key);
    size_t head = findHead(e);
    Words &w = calls[{head, {number, key.number}}];
    if (!w[0])
      w = buildRandomWords(b, heads[head].second, number, key.number);
    Value word = chooseByBit(key, kRandomWordBit, chooseByBit(query, kRandomWordBit, w[0], w[1]),
                             chooseByBit(query, kRandomWordBit, w[2], w[3]));
    if (exchanges) {
      Value &other = received[word];
      if (!other)
        other = shuffle(word, kLanesOfRow);
      bool isNext = query.set & kNextQuery;
      Value selector = chooseByBit(key, kRandomHalfBit, constantI32(isNext ? kSecond : kFirst),
                                   constantI32(isNext ? kFirstSwapped : kSecondSwapped));
      result.values.push_back(permute(word, other, selector));
    } else {
      Value swapped = permute(word, word, constantI32(kFirstSwapped));
      result.values.push_back(chooseByBit(key, kRandomHalfBit, word, swapped));
    }
  }
  setParts(random.getResult(), layout, std::move(result));
  return true;
}
