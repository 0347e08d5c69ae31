// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Comparisons of indices, and selects by them: as words of bits or in 32 bits where the columns of
// a thread have one difference in common.

#include "Lowering.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn::hopper;

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
  int64_t columns = int64_t(x.values.size()) / registers.rows;
  if (columns < kFewest || columns % 2 != 0)
    return false;
  auto offset = [&](unsigned e) { return x.offset(e) - y.offset(e); };
  // Which side has the columns?
  int64_t sign = offset(registers.at(0, 1)) - offset(registers.at(0, 0));
  for (unsigned row = 0; row < registers.rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      unsigned e = registers.at(row, column), first = registers.at(row, 0);
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
  for (unsigned row = 0; row < registers.rows; ++row) {
    unsigned first = registers.at(row, 0);
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
  setBits(op->getResult(0), words, elementsPerThread(type, layout) / registers.rows);
  return true;
}

Value KernelLowering::testBit(ArrayRef<Value> words, unsigned row, int64_t column) {
  Value word = words[row * (words.size() / size_t(registers.rows)) + size_t(column / 32)];
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
  int64_t columns = elementsPerThread(type, layout) / registers.rows;
  auto at = [](ArrayRef<Value> values, unsigned e) { return values[values.size() == 1 ? 0 : e]; };
  Parts result;
  result.values.resize(registers.rows * columns);
  for (unsigned row = 0; row < registers.rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      unsigned e = registers.at(row, column);
      Value bit = testBit(words->second, row, column);
      result.values[e] = arith::SelectOp::create(b, bit, at(yes, e), at(no, e));
    }
  setParts(select, layout, std::move(result));
  return true;
}

/// A value of conditions for the rows of a thread, a word for each 32 columns of one.
void KernelLowering::setBits(Value value, ArrayRef<Value> words, int64_t columns) {
  Parts result;
  result.values.resize(registers.rows * columns);
  for (unsigned row = 0; row < registers.rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      result.values[registers.at(row, column)] = testBit(words, row, column);
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
