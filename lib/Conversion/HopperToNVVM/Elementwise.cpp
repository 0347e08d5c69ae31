// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elementwise ops: the scalar op for each element of a thread, each distinct
// combination of operands once. Functions of `math` become the instructions of
// the special function unit, whose error is a few units in the last place.

#include "Lowering.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn::hopper;

/// Small indices are compared in 32 bits, as loops carry them.
bool KernelLowering::lowerSmallComparison(Operation *op) {
  auto compare = dyn_cast<arith::CmpIOp>(op);
  if (!compare || !compare.getLhs().getType().isIndex() || !carried.isSmall(compare.getLhs()) ||
      !carried.isSmall(compare.getRhs()))
    return false;
  setScalar(compare,
            arith::CmpIOp::create(b, compare.getPredicate(), toI32(scalar(compare.getLhs())),
                                  toI32(scalar(compare.getRhs()))));
  return true;
}

LogicalResult KernelLowering::lowerElementwise(Operation *op) {
  if (loweredEarly.contains(op) || lowerSmallComparison(op))
    return success();
  for (Layout layout : layouts.of(op->getResult(0))) {
    if (lowerIndexSum(op, layout) || lowerColumnBound(op, layout) ||
        lowerBoundsOfBoth(op, layout) || lowerSelectByBits(op, layout) ||
        lowerIndexComparison(op, layout) || lowerPackedTruncation(op, layout) ||
        lowerTanh(op, layout) || lowerExp2(op, layout) || lowerCorrection(op, layout))
      continue;
    if (failed(lowerElementwise(op, layout)))
      return failure();
  }
  return success();
}

LogicalResult KernelLowering::lowerElementwise(Operation *op, Layout layout) {
  SmallVector<SmallVector<Value>> operands;
  size_t count = 1;
  for (Value operand : op->getOperands()) {
    bool isVector = isa<VectorType>(operand.getType());
    operands.push_back(elements(operand, isVector ? layout : Layout::Scalar));
    count = std::max(count, operands.back().size());
  }
  // Broadcast operands repeat: rows along the columns and columns along the rows.
  DenseMap<std::pair<Value, Value>, SmallVector<std::pair<Value, Value>, 1>> known;
  SmallVector<Value> results, arguments(operands.size());
  for (size_t e = 0; e < count; ++e) {
    for (auto [argument, values] : llvm::zip_equal(arguments, operands))
      argument = values[values.size() == 1 ? 0 : e];
    auto &same = known[{arguments[0], arguments.size() > 1 ? arguments[1] : Value()}];
    Value third = arguments.size() > 2 ? arguments[2] : Value();
    auto it = llvm::find_if(same, [&](auto &entry) { return entry.first == third; });
    if (it != same.end()) {
      results.push_back(it->second);
      continue;
    }
    Value result = emitElement(op, arguments);
    if (!result)
      return failure();
    same.push_back({third, result});
    results.push_back(result);
  }
  auto type = dyn_cast<VectorType>(op->getResult(0).getType());
  bool packed = type && isPacked(type, layout);
  setParts(op->getResult(0), layout, packed ? pack(results) : Parts(results));
  return success();
}

//===----------------------------------------------------------------------===//
// Index vectors
//===----------------------------------------------------------------------===//

/// Sums and differences keep the constants of the elements apart.
bool KernelLowering::lowerIndexSum(Operation *op, Layout layout) {
  auto type = dyn_cast<VectorType>(op->getResult(0).getType());
  if (!type || !type.getElementType().isIndex() || !isa<arith::AddIOp, arith::SubIOp>(op))
    return false;
  const Parts &a = parts(op->getOperand(0), layout), &c = parts(op->getOperand(1), layout);
  bool isSum = isa<arith::AddIOp>(op);
  DenseMap<std::pair<Value, Value>, Value> known;
  Parts result;
  for (size_t e = 0; e < a.values.size(); ++e) {
    Value &base = known[{a.values[e], c.values[e]}];
    if (!base)
      base = isSum ? Value(arith::AddIOp::create(b, a.values[e], c.values[e]))
                   : Value(arith::SubIOp::create(b, a.values[e], c.values[e]));
    result.values.push_back(base);
    result.offsets.push_back(a.offset(e) + (isSum ? c.offset(e) : -c.offset(e)));
  }
  setParts(op->getResult(0), layout, std::move(result));
  return true;
}

/// A difference of indices in 32 bits, on the same side of any small constant: by an instruction
/// that LLVM does not know, which would compare 64 bits.
Value KernelLowering::saturatedDifference(Value x, Value y) {
  Value wide = arith::SubIOp::create(b, x, y);
  return inlineAsm(b.getI32Type(), arith::IndexCastOp::create(b, b.getI64Type(), wide).getResult(),
                   "cvt.sat.s32.s64 $0, $1;", "=r,l", /*sideEffects=*/false);
}

static bool isIndexBound(Value condition) {
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  using Predicate = arith::CmpIPredicate;
  return compare && getElementTypeOrSelf(compare.getLhs().getType()).isIndex() &&
         llvm::is_contained({Predicate::slt, Predicate::sle, Predicate::sgt, Predicate::sge},
                            compare.getPredicate());
}

/// Whether a condition serves, by itself or with other bounds, to select floats of 32 bits. What
/// is tested together with other conditions is a comparison that continues theirs.
static bool onlySelects(Value condition) {
  return llvm::all_of(condition.getUsers(), [&](Operation *user) {
    if (isa<arith::AndIOp>(user))
      return llvm::all_of(user->getOperands(), isIndexBound) && onlySelects(user->getResult(0));
    return isa<arith::SelectOp>(user) && user->getOperand(0) == condition &&
           getElementTypeOrSelf(user->getResult(0).getType()).isF32();
  });
}

/// Whether a thread's two rows have limits of their own. Where the second one is 8 more, a
/// comparison for the first row's column serves the second row's 8 further.
static bool hasRowsApart(Value index) {
  Operation *op = index.getDefiningOp();
  if (!op || !isa<VectorType>(index.getType()) || isa<vector::StepOp, arith::ConstantOp>(op))
    return false;
  if (isa<vector::BroadcastOp, vector::TransposeOp, arith::AddIOp, arith::SubIOp>(op))
    return llvm::any_of(op->getOperands(), hasRowsApart);
  return true;
}

/// Whether words of bits pay for a bound: it, or one that is tested with it, would take a
/// comparison for each element.
static bool paysAsBits(Value condition) {
  if (auto both = condition.getDefiningOp<arith::AndIOp>())
    return llvm::any_of(both->getOperands(), paysAsBits);
  return llvm::any_of(condition.getDefiningOp()->getOperands(), hasRowsApart);
}

static bool partPaysAsBits(Value condition) {
  if (condition.hasOneUse())
    if (auto both = dyn_cast<arith::AndIOp>(*condition.user_begin()))
      return partPaysAsBits(both.getResult());
  return paysAsBits(condition);
}

/// Bounds on the column, each a word of bits for the columns of a row: those of an accumulator are
/// 0, 1, 8, 9, 16, ... after the thread's first one, so that the first n of them are within a
/// bound. Seven tests of bits are one instruction (R2P), and bounds from both sides are an `and` of
/// words.
bool KernelLowering::lowerColumnBound(Operation *op, Layout layout) {
  using Predicate = arith::CmpIPredicate;
  constexpr int64_t kFewest = 16; // columns: for less a comparison each is as good
  constexpr int64_t kBound = int64_t(1) << 30;
  auto compare = dyn_cast<arith::CmpIOp>(op);
  Value condition = op->getResult(0);
  if (layout != Layout::Tile || !isIndexBound(condition) || !onlySelects(condition) ||
      !partPaysAsBits(condition))
    return false;
  const Parts &x = parts(compare.getLhs(), layout), &y = parts(compare.getRhs(), layout);
  int64_t columns = x.values.size() / 2;
  if (columns < kFewest || columns % 2 != 0)
    return false;
  auto offset = [&](unsigned e) { return x.offset(e) - y.offset(e); };
  // Which side has the columns?
  int64_t sign = offset(registerAt(0, 1)) - offset(registerAt(0, 0));
  for (unsigned row : {0, 1})
    for (int64_t column = 0; column < columns; ++column) {
      unsigned e = registerAt(row, column), first = registerAt(row, 0);
      if (std::abs(sign) != 1 || x.values[e] != x.values[first] || y.values[e] != y.values[first] ||
          std::abs(offset(e)) >= kBound || offset(e) != offset(first) + sign * columnOffset(column))
        return false;
    }
  // As column <= limit, or as its negation.
  Predicate predicate = compare.getPredicate();
  bool isAtMost = predicate == Predicate::slt || predicate == Predicate::sle;
  bool isStrict = predicate == Predicate::slt || predicate == Predicate::sgt;
  bool isNegated = isAtMost != (sign > 0);
  SmallVector<Value> words;
  DenseMap<std::pair<Value, Value>, Value> differences;
  for (unsigned row : {0, 1}) {
    unsigned first = registerAt(row, 0);
    Value &difference = differences[{x.values[first], y.values[first]}];
    if (!difference)
      difference = saturatedDifference(x.values[first], y.values[first]);
    int64_t constant = -sign * offset(first) - (isStrict != isNegated ? 1 : 0);
    Value limit = sign > 0 ? inlineAsm(b.getI32Type(), {constantI32(constant), difference},
                                       "sub.sat.s32 $0, $1, $2;", "=r,r,r", /*sideEffects=*/false)
                           : inlineAsm(b.getI32Type(), {difference, constantI32(constant)},
                                       "add.sat.s32 $0, $1, $2;", "=r,r,r", /*sideEffects=*/false);
    // Columns 8 j up to the limit, and columns 8 j + 1.
    limit = arith::MaxSIOp::create(b, limit, constantI32(-1));
    auto count = [&](Value most) -> Value {
      return arith::ShRSIOp::create(b, most, constantI32(3));
    };
    Value number = addI32(arith::AddIOp::create(b, count(limit), count(addI32(limit, -1))), 2);
    for (int64_t word = 0; word < columns; word += 32) {
      Value rest = number;
      if (word > 0)
        rest = arith::MaxSIOp::create(b, addI32(number, -word), constantI32(0));
      Value bits = inlineAsm(b.getI32Type(), {constantI32(0), rest}, "bmsk.clamp.b32 $0, $1, $2;",
                             "=r,r,r", /*sideEffects=*/false);
      words.push_back(isNegated ? Value(arith::XOrIOp::create(b, bits, constantI32(-1))) : bits);
    }
  }
  setBits(compare, words, columns);
  return true;
}

/// Of two conditions that are words of bits.
bool KernelLowering::lowerBoundsOfBoth(Operation *op, Layout layout) {
  if (!isa<arith::AndIOp>(op) || layout != Layout::Tile)
    return false;
  auto x = columnBits.find(op->getOperand(0)), y = columnBits.find(op->getOperand(1));
  if (x == columnBits.end() || y == columnBits.end())
    return false;
  SmallVector<Value> words;
  for (auto [a, c] : llvm::zip_equal(x->second, y->second))
    words.push_back(arith::AndIOp::create(b, a, c));
  auto type = cast<VectorType>(op->getResult(0).getType());
  setBits(op->getResult(0), words, elementsPerThread(type, layout) / 2);
  return true;
}

Value KernelLowering::testBit(ArrayRef<Value> words, unsigned row, int64_t column) {
  Value word = words[row * (words.size() / 2) + column / 32];
  Value bit = arith::AndIOp::create(b, word, constantI32(int64_t(1) << (column % 32)));
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, bit, constantI32(0));
}

/// Each test in front of its select, along a row: ptxas sees R2P in them then.
bool KernelLowering::lowerSelectByBits(Operation *op, Layout layout) {
  auto select = dyn_cast<arith::SelectOp>(op);
  auto type = dyn_cast<VectorType>(op->getResult(0).getType());
  if (!select || layout != Layout::Tile || isPacked(type, layout))
    return false;
  auto words = columnBits.find(select.getCondition());
  if (words == columnBits.end())
    return false;
  SmallVector<Value> yes = elements(select.getTrueValue(), layout);
  SmallVector<Value> no = elements(select.getFalseValue(), layout);
  int64_t columns = elementsPerThread(type, layout) / 2;
  auto at = [](ArrayRef<Value> values, unsigned e) { return values[values.size() == 1 ? 0 : e]; };
  Parts result;
  result.values.resize(2 * columns);
  for (unsigned row : {0, 1})
    for (int64_t column = 0; column < columns; ++column) {
      unsigned e = registerAt(row, column);
      Value bit = testBit(words->second, row, column);
      result.values[e] = arith::SelectOp::create(b, bit, at(yes, e), at(no, e));
    }
  setParts(select, layout, std::move(result));
  return true;
}

/// A value of conditions for the two rows of a thread, a word for each 32 columns of one.
void KernelLowering::setBits(Value value, ArrayRef<Value> words, int64_t columns) {
  Parts result;
  result.values.resize(2 * columns);
  for (unsigned row : {0, 1})
    for (int64_t column = 0; column < columns; ++column) {
      result.values[registerAt(row, column)] = testBit(words, row, column);
    }
  setParts(value, Layout::Tile, std::move(result));
  columnBits[value] = SmallVector<Value>(words);
}

/// a + i < c + k as (a - c) < k - i: one 64-bit difference for the thread, brought
/// to 32 bits without changing on which side of a small constant it is, and one
/// comparison with a constant for each element.
bool KernelLowering::lowerIndexComparison(Operation *op, Layout layout) {
  using Predicate = arith::CmpIPredicate;
  auto compare = dyn_cast<arith::CmpIOp>(op);
  if (!compare || layout == Layout::Scalar ||
      !getElementTypeOrSelf(compare.getLhs().getType()).isIndex())
    return false;
  Predicate predicate = compare.getPredicate();
  if (!llvm::is_contained({Predicate::eq, Predicate::ne, Predicate::slt, Predicate::sle,
                           Predicate::sgt, Predicate::sge},
                          predicate))
    return false;
  constexpr int64_t kBound = int64_t(1) << 31;
  const Parts &a = parts(compare.getLhs(), layout), &c = parts(compare.getRhs(), layout);
  for (size_t e = 0; e < a.values.size(); ++e)
    if (std::abs(c.offset(e) - a.offset(e)) >= kBound - 1)
      return false;
  DenseMap<std::pair<Value, Value>, Value> differences;
  DenseMap<std::pair<Value, int64_t>, Value> known;
  Parts result;
  for (size_t e = 0; e < a.values.size(); ++e) {
    Value &difference = differences[{a.values[e], c.values[e]}];
    if (!difference)
      difference = saturatedDifference(a.values[e], c.values[e]);
    int64_t limit = c.offset(e) - a.offset(e);
    Value &bit = known[{difference, limit}];
    if (!bit)
      bit = arith::CmpIOp::create(b, predicate, difference, constantI32(limit));
    result.values.push_back(bit);
  }
  setParts(op->getResult(0), layout, std::move(result));
  return true;
}

//===----------------------------------------------------------------------===//
// Floats
//===----------------------------------------------------------------------===//

/// f32 tiles to bf16 or f16: one instruction for a pair.
bool KernelLowering::lowerPackedTruncation(Operation *op, Layout layout) {
  auto truncate = dyn_cast<arith::TruncFOp>(op);
  if (!truncate || layout != Layout::Tile ||
      !getElementTypeOrSelf(truncate.getIn().getType()).isF32())
    return false;
  Type element = getElementTypeOrSelf(truncate.getType());
  if (!element.isBF16() && !element.isF16())
    return false;
  const SmallVector<Value> &from = parts(truncate.getIn(), layout).values;
  auto type = VectorType::get(2, element);
  Parts result;
  for (size_t e = 0; e < from.size(); e += 2) {
    Value low = from[e], high = from[e + 1];
    auto rounding = NVVM::FPRoundingMode::RN;
    result.values.push_back(
        element.isBF16()
            ? Value(NVVM::ConvertF32x2ToBF16x2Op::create(b, type, high, low, Value(), rounding))
            : Value(NVVM::ConvertF32x2ToF16x2Op::create(b, type, high, low, Value(), rounding)));
  }
  setParts(truncate.getResult(), layout, std::move(result));
  return true;
}

/// One over a constant, if both are normal numbers.
static std::optional<double> invert(Value value) {
  FloatAttr constant;
  DenseElementsAttr splat;
  APFloat number(0.0f);
  if (matchPattern(value, m_Constant(&constant)))
    number = constant.getValue();
  else if (matchPattern(value, m_Constant(&splat)) && splat.isSplat())
    number = splat.getSplatValue<APFloat>();
  if (&number.getSemantics() != &APFloat::IEEEsingle() || !number.isNormal())
    return std::nullopt;
  double inverse = 1 / number.convertToDouble();
  return APFloat(float(inverse)).isNormal() ? std::optional(inverse) : std::nullopt;
}

/// A value without the constant factors of its products, and these.
static std::pair<Value, double> splitFactors(Value value) {
  double factor = 1;
  auto getConstant = [](Value other) -> std::optional<double> {
    DenseElementsAttr splat;
    if (!matchPattern(other, m_Constant(&splat)) || !splat.isSplat())
      return std::nullopt;
    return splat.getSplatValue<APFloat>().convertToDouble();
  };
  while (Operation *op = value.getDefiningOp()) {
    std::optional<double> next;
    if (isa<arith::MulFOp>(op))
      next = getConstant(op->getOperand(1));
    else if (isa<arith::DivFOp>(op))
      next = invert(op->getOperand(1));
    if (!next)
      break;
    factor *= *next;
    value = op->getOperand(0);
  }
  return {value, factor};
}

/// The derivatives 1 - t^2 of a hyperbolic tangent t. As 4 e^2x / (1 + e^2x)^2 they are as exact as
/// others where t is near 1 or -1, and 0 where e^2x is.
static SmallVector<arith::SubFOp> findDerivatives(math::TanhOp tanh) {
  SmallVector<arith::SubFOp> found;
  for (Operation *user : tanh->getUsers()) {
    auto square = dyn_cast<arith::MulFOp>(user);
    if (!square || square.getLhs() != square.getRhs())
      continue;
    for (Operation *next : square->getUsers()) {
      auto difference = dyn_cast<arith::SubFOp>(next);
      if (difference && matchPattern(difference.getLhs(), m_OneFloat()) &&
          !llvm::is_contained(found, difference))
        found.push_back(difference);
    }
  }
  return found;
}

/// tanh x = (e^2x - 1) / (e^2x + 1), with one reciprocal for four elements,
/// that of their product: kernels with a tanh per element wait for the special
/// function unit. Where e^2x is limited, the result is 1; no product is too
/// large. An element that is no number stays out of the product.
bool KernelLowering::lowerTanh(Operation *op, Layout layout) {
  auto tanh = dyn_cast<math::TanhOp>(op);
  if (!tanh || layout != Layout::Tile || !getElementTypeOrSelf(tanh.getType()).isF32())
    return false;
  constexpr double kTwoLog2E = 2.8853900817779268, kHighest = 30;
  constexpr size_t kGroup = 4;
  auto [source, factor] = splitFactors(tanh.getOperand());
  SmallVector<Value> all = elements(source, layout);
  llvm::SetVector<Value> distinct(all.begin(), all.end());
  DenseMap<Value, Value> results, slopes;
  SmallVector<arith::SubFOp> derivatives = findDerivatives(tanh);
  Value one = constantF32(1.0), two = constantF32(-2.0);
  Value scale = constantF32(kTwoLog2E * factor), highest = constantF32(kHighest);
  auto contract = arith::FastMathFlags::contract;
  auto times = [&](Value x, Value y) -> Value { return arith::MulFOp::create(b, x, y, contract); };
  for (ArrayRef<Value> rest = distinct.getArrayRef(); !rest.empty();
       rest = rest.drop_front(std::min(rest.size(), kGroup))) {
    ArrayRef<Value> group = rest.take_front(kGroup);
    // 1 + e^2x; those that are numbers; products of these up to each.
    SmallVector<Value, kGroup> exponentials, sums, numbers, products;
    for (Value x : group) {
      Value exponent = LLVM::MinimumOp::create(b, times(x, scale), highest);
      exponentials.push_back(exp2(exponent));
      sums.push_back(arith::AddFOp::create(b, exponentials.back(), one));
      numbers.push_back(LLVM::MaxNumOp::create(b, sums.back(), one));
      products.push_back(products.empty() ? numbers.back()
                                          : times(products.back(), numbers.back()));
    }
    Value inverse = NVVM::RcpApproxFtzF32Op::create(b, b.getF32Type(), products.back());
    for (size_t n = group.size(); n-- > 0;) {
      Value own = n ? times(inverse, products[n - 1]) : inverse;
      results[group[n]] = arith::MulFOp::create(b, arith::AddFOp::create(b, sums[n], two), own);
      if (!derivatives.empty()) {
        Value twice = arith::AddFOp::create(b, own, own);
        slopes[group[n]] = times(times(exponentials[n], twice), twice);
      }
      if (n)
        inverse = times(inverse, numbers[n]);
    }
  }
  auto valuesOf = [&](const DenseMap<Value, Value> &known) {
    return Parts(llvm::map_to_vector(all, [&](Value x) { return known.lookup(x); }));
  };
  setParts(tanh.getResult(), layout, valuesOf(results));
  for (arith::SubFOp derivative : derivatives) {
    setParts(derivative.getResult(), layout, valuesOf(slopes));
    loweredEarly.insert(derivative);
  }
  return true;
}

/// 2^x without the special function unit: a polynomial of x - round(x), in [-1/2, 1/2], within
/// 1.02e-4 of 2^ of that (minimax, degree 3, 1 at 0), to whose exponent round(x) is added, in 9
/// instructions. Limits make 0, or less than the least normal number, of what is below 2^-126,
/// and inf of what is above 2^127; NaN becomes the largest finite number, which is infinite
/// in 16 bits.
Value KernelLowering::exp2ByPolynomial(Value x) {
  constexpr double kCoefficients[] = {0.055008865892887115, 0.2422109693288803, 0.693282961845398,
                                      1.0};
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  constexpr double kRound = 12582912.0;
  Type i32 = b.getI32Type();
  auto add = [&](Value a, double c) -> Value {
    return arith::AddFOp::create(b, a, constantF32(c));
  };
  x = LLVM::MinimumOp::create(b, LLVM::MaximumOp::create(b, x, constantF32(-127)),
                              constantF32(128));
  Value shifted = add(x, kRound);
  Value rest = arith::SubFOp::create(b, x, add(shifted, -kRound));
  Value sum = constantF32(kCoefficients[0]);
  for (double coefficient : ArrayRef(kCoefficients).drop_front())
    sum = fma(sum, rest, constantF32(coefficient));
  Value exponent =
      LLVM::ShlOp::create(b, LLVM::BitcastOp::create(b, i32, shifted), constantI32(23));
  Value bits = LLVM::AddOp::create(b, exponent, LLVM::BitcastOp::create(b, i32, sum));
  return LLVM::BitcastOp::create(b, b.getF32Type(), bits);
}

/// Tiles of which a part is computed by polynomials: register pairs are pairs of columns.
bool KernelLowering::lowerExp2(Operation *op, Layout layout) {
  auto every = op->getAttrOfType<IntegerAttr>(kPolynomialAttr);
  if (!isa<math::Exp2Op>(op) || !every || layout != Layout::Tile ||
      !getElementTypeOrSelf(op->getResult(0).getType()).isF32())
    return false;
  Parts result;
  for (auto [e, x] : llvm::enumerate(elements(op->getOperand(0), layout))) {
    bool isOwn = int64_t(e / 2) % every.getInt() == every.getInt() - 1;
    result.values.push_back(isOwn ? exp2ByPolynomial(x) : exp2(x));
  }
  setParts(op->getResult(0), layout, std::move(result));
  return true;
}

/// Products of a tile with factors per row, nearly all of which are 1: left out where all that
/// the threads of a warp have are.
bool KernelLowering::lowerCorrection(Operation *op, Layout layout) {
  if (!isa<arith::MulFOp>(op) || !op->hasAttr(attn::kCorrectionAttr) || layout != Layout::Tile ||
      !getElementTypeOrSelf(op->getResult(0).getType()).isF32())
    return false;
  SmallVector<Value> tile = elements(op->getOperand(0), layout);
  setParts(op->getResult(0), layout,
           correct(elements(op->getOperand(1), layout), [&] { return tile; }));
  return true;
}

/// A tile times factors, by the warps that have one that is not 1. `take` gives the tile on each
/// side of the branch.
Parts KernelLowering::correct(ArrayRef<Value> factors,
                              llvm::function_ref<SmallVector<Value>()> take) {
  llvm::SetVector<Value> distinct(factors.begin(), factors.end());
  Value one = constantF32(1.0), corrects;
  for (Value factor : distinct) {
    Value differs = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, factor, one);
    corrects = corrects ? Value(arith::OrIOp::create(b, corrects, differs)) : differs;
  }
  Value any = NVVM::VoteSyncOp::create(b, b.getI1Type(), constantI32(-1), corrects,
                                       NVVM::VoteSyncKind::any);
  SmallVector<Type> types(factors.size(), b.getF32Type());
  auto branch = scf::IfOp::create(b, types, any, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> products;
  for (auto [element, factor] : llvm::zip_equal(take(), factors))
    products.push_back(arith::MulFOp::create(b, element, factor));
  scf::YieldOp::create(b, products);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, take());
  return Parts(branch.getResults());
}

LogicalResult KernelLowering::lowerConstant(arith::ConstantOp op) {
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!dense || !dense.isSplat())
    return op.emitOpError("is not supported in a kernel: only splats are");
  Value value = constant(cast<TypedAttr>(dense.getSplatValue<Attribute>()));
  auto type = cast<VectorType>(op.getType());
  for (Layout layout : layouts.of(op.getResult()))
    setParts(op.getResult(), layout, splat(value, type, layout));
  return success();
}

Value KernelLowering::intrinsic(StringRef name, Type type, ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(b, type, b.getStringAttr(name), operands).getResult(0);
}

/// x = rest 2^exponent, with rest in [sqrt(1/2), sqrt(2)), so that a logarithm is
/// not rounded before it is added to what it belongs to. What is not a normal
/// number, and a negative one, stays whole.
std::pair<Value, Value> KernelLowering::splitExponent(Value x) {
  constexpr int64_t kLeastNormal = 0x00800000, kNormals = 0x7f000000, kRootOfHalf = 0x3f3504f3;
  Type i32 = b.getI32Type();
  auto number = [&](int64_t value) { return constant(b.getI32IntegerAttr(value)); };
  auto minus = [&](Value a, Value c) -> Value { return arith::SubIOp::create(b, a, c); };
  Value bits = arith::BitcastOp::create(b, i32, x), digits = number(23);
  Value isNormal = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                         minus(bits, number(kLeastNormal)), number(kNormals));
  Value exponent = arith::ShRSIOp::create(b, minus(bits, number(kRootOfHalf)), digits);
  exponent = arith::SelectOp::create(b, isNormal, exponent, number(0));
  Value rest = minus(bits, arith::ShLIOp::create(b, exponent, digits));
  return {arith::SIToFPOp::create(b, b.getF32Type(), exponent),
          arith::BitcastOp::create(b, b.getF32Type(), rest)};
}

/// Functions of f32 by instructions; null if the function is none of them.
/// The natural logarithm between 1/2 and 3/2, within 1 unit in the last place (Cephes, logf).
Value KernelLowering::logarithmNearOne(Value x) {
  constexpr double kCoefficients[] = {7.0376836292e-2,  -1.1514610310e-1, 1.1676998740e-1,
                                      -1.2420140846e-1, 1.4249322787e-1,  -1.6668057665e-1,
                                      2.0000714765e-1,  -2.4999993993e-1, 3.3333331174e-1};
  Value f = arith::SubFOp::create(b, x, constantF32(1.0));
  Value square = arith::MulFOp::create(b, f, f), p = constantF32(kCoefficients[0]);
  for (double coefficient : ArrayRef(kCoefficients).drop_front())
    p = fma(p, f, constantF32(coefficient));
  Value cube = arith::MulFOp::create(b, f, square);
  Value rest = fma(square, constantF32(-0.5), arith::MulFOp::create(b, cube, p));
  return arith::AddFOp::create(b, f, rest);
}

Value KernelLowering::emitMath(Operation *op, ValueRange operands) {
  Type f32 = b.getF32Type();
  Value x = operands.empty() ? Value() : operands[0];
  auto times = [&](Value a, double c) -> Value {
    return arith::MulFOp::create(b, a, constantF32(c));
  };
  auto log2 = [&](Value a) { return intrinsic("llvm.nvvm.lg2.approx.f", f32, a); };
  auto logarithm = [&](Value a, double ofTwo) -> Value {
    auto [exponent, rest] = splitExponent(a);
    return fma(exponent, constantF32(ofTwo), times(log2(rest), ofTwo));
  };
  // Of a row, for a log-sum-exp: the instruction's error is 2^-22 near 1.
  auto logarithmOfRow = [&](Value a) -> Value {
    auto [exponent, rest] = splitExponent(a);
    Value near = logarithmNearOne(rest), other = times(log2(rest), 0.6931471805599453);
    Value distance = arith::SubFOp::create(b, rest, constantF32(1.0));
    Value size = intrinsic("llvm.fabs", f32, distance);
    Value isNear = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, size, constantF32(0.5));
    return fma(exponent, constantF32(0.6931471805599453),
               arith::SelectOp::create(b, isNear, near, other));
  };
  auto isOfRows = [&] {
    auto type = dyn_cast<VectorType>(op->getResult(0).getType());
    return type && type.getRank() == 1;
  };
  auto reciprocal = [&](Value a) -> Value { return NVVM::RcpApproxFtzF32Op::create(b, f32, a); };
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](math::Exp2Op) { return exp2(x); })
      .Case([&](math::ExpOp) { return exp2(times(x, 1.4426950408889634)); })
      .Case([&](math::Log2Op) { return log2(x); })
      .Case([&](math::LogOp) {
        return isOfRows() ? logarithmOfRow(x) : logarithm(x, 0.6931471805599453);
      })
      .Case([&](math::Log10Op) { return logarithm(x, 0.30102999566398120); })
      .Case([&](math::TanhOp) -> Value {
        // 1 - 2 / (1 + e^2x): 1 and -1 at the ends, where e^2x is inf and 0.
        Value e = exp2(times(x, 2.8853900817779268));
        Value q = reciprocal(arith::AddFOp::create(b, e, constantF32(1.0)));
        return fma(q, constantF32(-2.0), constantF32(1.0));
      })
      .Case([&](math::RsqrtOp) { return intrinsic("llvm.nvvm.rsqrt.approx.ftz.f", f32, x); })
      .Case([&](math::SqrtOp) { return intrinsic("llvm.sqrt", f32, x); })
      .Case([&](arith::DivFOp) -> Value {
        FloatAttr one;
        if (matchPattern(operands[0], m_Constant(&one)) && one.getValue().isExactlyValue(1.0))
          return reciprocal(operands[1]);
        // Within the error of the division's instruction.
        if (std::optional<double> inverse = invert(operands[1]))
          return times(operands[0], *inverse);
        return intrinsic("llvm.nvvm.div.full", f32, operands);
      })
      .Default([](Operation *) { return Value(); });
}

/// Ops that LLVM has, for which upstream would call a library (or takes LLVM's
/// own op for a call of one); null for others.
Value KernelLowering::emitIntrinsic(Operation *op, ValueRange operands) {
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](arith::MaxNumFOp) { return LLVM::MaxNumOp::create(b, operands[0], operands[1]); })
      .Case([&](arith::MinNumFOp) { return LLVM::MinNumOp::create(b, operands[0], operands[1]); })
      .Case([&](arith::MaximumFOp) { return LLVM::MaximumOp::create(b, operands[0], operands[1]); })
      .Case([&](arith::MinimumFOp) { return LLVM::MinimumOp::create(b, operands[0], operands[1]); })
      .Case([&](math::FmaOp) { return fma(operands[0], operands[1], operands[2]); })
      .Case([&](math::AbsFOp) { return intrinsic("llvm.fabs", type, operands); })
      .Case([&](math::CopySignOp) { return intrinsic("llvm.copysign", type, operands); })
      .Case([&](math::AbsIOp) -> Value {
        Value zero = constant(b.getIntegerAttr(type, 0));
        return arith::MaxSIOp::create(b, operands[0], arith::SubIOp::create(b, zero, operands[0]));
      })
      .Case([&](math::FloorOp) { return intrinsic("llvm.floor", type, operands); })
      .Case([&](math::CeilOp) { return intrinsic("llvm.ceil", type, operands); })
      .Case([&](math::TruncOp) { return intrinsic("llvm.trunc", type, operands); })
      .Case([&](math::RoundEvenOp) { return intrinsic("llvm.roundeven", type, operands); })
      .Default([](Operation *) { return Value(); });
}

/// The same op on one element. What is a fact of a tile is none of its elements.
Value KernelLowering::emitGeneric(Operation *op, ValueRange operands) {
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  Operation *scalar = Operation::create(b.getLoc(), op->getName(), type, operands, NamedAttrList(),
                                        op->getPropertiesStorage(), {}, 0);
  b.insert(scalar);
  // For rare rows scores are computed in two kernels, and have to be the same numbers.
  if (!isRare && isa<arith::AddFOp, arith::SubFOp, arith::MulFOp>(op)) {
    auto math = cast<arith::ArithFastMathInterface>(scalar);
    auto flags = math.getFastMathFlagsAttr().getValue() | arith::FastMathFlags::contract;
    scalar->setAttr(math.getFastMathAttrName(),
                    arith::FastMathFlagsAttr::get(b.getContext(), flags));
  }
  return scalar->getResult(0);
}

Value KernelLowering::emitElement(Operation *op, ValueRange operands) {
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  bool isMath = op->getDialect() && op->getDialect()->getNamespace() == "math";
  bool isFunction = isMath || isa<arith::DivFOp>(op);
  if (isFunction && (type.isBF16() || type.isF16())) {
    SmallVector<Value> wide;
    for (Value operand : operands)
      wide.push_back(operand.getType() == type
                         ? Value(arith::ExtFOp::create(b, b.getF32Type(), operand))
                         : operand);
    if (Value value = emitMath(op, wide))
      return arith::TruncFOp::create(b, type, value);
  } else if (isFunction && type.isF32()) {
    if (Value value = emitMath(op, operands))
      return value;
  }
  if (Value value = emitIntrinsic(op, operands))
    return value;
  if (isMath) {
    op->emitOpError() << "on " << type << " has no implementation on the device";
    return Value();
  }
  return emitGeneric(op, operands);
}
