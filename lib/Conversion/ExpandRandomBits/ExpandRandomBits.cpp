// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.random_bits to arithmetic.

#include "attn/Conversion/Passes.h"
#include "attn/Conversion/RandomBits.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEXPANDRANDOMBITS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static Done numExpanded("attn-expand-random-bits", "expanded",
                        "Random bits that became arithmetic");

static Value constantLike(ImplicitLocOpBuilder &b, Value like, int64_t value) {
  Type type = like.getType();
  TypedAttr number = b.getIntegerAttr(getElementTypeOrSelf(type), value);
  if (auto vector = dyn_cast<VectorType>(type))
    number = DenseElementsAttr::get(vector, Attribute(number));
  return arith::ConstantOp::create(b, number);
}

/// Philox4x32-10 of numbers of i32, or vectors of them.
static std::array<Value, 4> buildPhilox(ImplicitLocOpBuilder &b, std::array<Value, 2> key,
                                        std::array<Value, 4> counter) {
  constexpr int kRounds = 10;
  constexpr std::array<int64_t, 2> kMultipliers = {0xD2511F53, 0xCD9E8D57};
  constexpr std::array<int64_t, 2> kSteps = {0x9E3779B9, 0xBB67AE85};
  auto number = [&](Value like, int64_t value) {
    return constantLike(b, like, int64_t(int32_t(value)));
  };
  auto exclusiveOr = [&](Value x, Value y, Value z) -> Value {
    return arith::XOrIOp::create(b, arith::XOrIOp::create(b, x, y), z);
  };
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0)
      for (auto [word, step] : llvm::zip_equal(key, kSteps))
        word = arith::AddIOp::create(b, word, number(word, step));
    auto first = arith::MulUIExtendedOp::create(b, counter[0], number(counter[0], kMultipliers[0]));
    auto second =
        arith::MulUIExtendedOp::create(b, counter[2], number(counter[2], kMultipliers[1]));
    counter = {exclusiveOr(second.getHigh(), counter[1], key[0]), second.getLow(),
               exclusiveOr(first.getHigh(), counter[3], key[1]), first.getLow()};
  }
  return counter;
}

std::array<Value, 4> attn::buildRandomKey(ImplicitLocOpBuilder &b, Value seed, Value offset,
                                          Value batch, Value head) {
  Type word = withElement(seed.getType(), b.getI32Type());
  auto low = [&](Value x) -> Value { return arith::TruncIOp::create(b, word, x); };
  auto high = [&](Value x) { return low(arith::ShRUIOp::create(b, x, constantLike(b, x, 32))); };
  return buildPhilox(b, {low(seed), high(seed)}, {low(offset), high(offset), batch, head});
}

std::array<Value, 4> attn::buildRandomWords(ImplicitLocOpBuilder &b,
                                            const std::array<Value, 4> &ofHead, Value query,
                                            Value key) {
  return buildPhilox(b, {ofHead[0], ofHead[1]}, {query, key, ofHead[2], ofHead[3]});
}

/// The number that all elements of a vector are; null where they are not known to be one.
static Value getSplat(ImplicitLocOpBuilder &b, Value value) {
  if (!isa<VectorType>(value.getType()))
    return value;
  if (auto broadcast = value.getDefiningOp<vector::BroadcastOp>())
    return getSplat(b, broadcast.getSource());
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)) && constant.isSplat())
    return arith::ConstantOp::create(b, cast<TypedAttr>(constant.getSplatValue<Attribute>()));
  return Value();
}

static void expand(RandomBitsOp op) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  Type type = op.getType();
  auto toWord = [&](Value index) -> Value {
    return arith::IndexCastOp::create(b, withElement(index.getType(), b.getI32Type()), index);
  };
  SmallVector<Value, 4> ofHead = {op.getSeed(), op.getOffset(), op.getBatch(), op.getHead()};
  auto splats = llvm::map_to_vector(ofHead, [&](Value value) { return getSplat(b, value); });
  if (llvm::all_of(splats, [](Value value) { return bool(value); }))
    llvm::copy(splats, ofHead.begin());
  std::array<Value, 4> key =
      buildRandomKey(b, ofHead[0], ofHead[1], toWord(ofHead[2]), toWord(ofHead[3]));
  if (key[0].getType() != type)
    for (Value &word : key)
      word = vector::BroadcastOp::create(b, cast<VectorType>(type), word);
  Value query = toWord(op.getQuery()), keyIndex = toWord(op.getKey());
  Value zero = constantLike(b, query, 0);
  auto andWith = [&](Value x, int64_t bits) -> Value {
    return arith::AndIOp::create(b, x, constantLike(b, x, bits));
  };
  auto isSet = [&](Value x, int64_t bit) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, andWith(x, bit), zero);
  };
  std::array<Value, 4> words =
      buildRandomWords(b, key, andWith(query, ~kRandomWordBit),
                       andWith(keyIndex, ~(kRandomWordBit | kRandomHalfBit)));
  auto choose = [&](Value condition, Value yes, Value no) -> Value {
    return arith::SelectOp::create(b, condition, yes, no);
  };
  Value ofQuery = isSet(query, kRandomWordBit);
  Value word = choose(isSet(keyIndex, kRandomWordBit), choose(ofQuery, words[3], words[2]),
                      choose(ofQuery, words[1], words[0]));
  Value half = constantLike(b, word, 16);
  Value swapped = arith::OrIOp::create(b, arith::ShLIOp::create(b, word, half),
                                       arith::ShRUIOp::create(b, word, half));
  Value result = choose(isSet(keyIndex, kRandomHalfBit), swapped, word);
  op.getResult().replaceAllUsesWith(result);
  op.erase();
}

namespace {
struct ExpandRandomBits : attn::impl::AttnExpandRandomBitsBase<ExpandRandomBits> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<RandomBitsOp> ops;
    getOperation()->walk([&](RandomBitsOp op) {
      if (!onlyNumbers || !isa<ShapedType>(op.getType()))
        ops.push_back(op);
    });
    for (RandomBitsOp op : ops) {
      numExpanded.at(op);
      expand(op);
    }
  }
};
} // namespace
