// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Are all reads of captured tensors, and additions to their gradients, in
// bounds? Branch and bound: intervals of
// the index arithmetic over a box of (b, h, i, j), with the captures' contents
// known; a box that proves nothing is halved, and one point decides.

#include "Attention.h"
#include "ScalarProgram.h"
#include "attn/Reference/Reference.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace attn;

namespace {
/// Both ends included. Integers as in a ScalarProgram: a true i1 is -1.
struct Interval {
  int64_t low, high;
  static Interval all(unsigned width = 64) {
    return {std::numeric_limits<int64_t>::min() >> (64 - width),
            std::numeric_limits<int64_t>::max() >> (64 - width)};
  }
  bool isPoint() const { return low == high; }
  bool within(Interval other) const { return low >= other.low && high <= other.high; }
  Interval join(Interval other) const {
    return {std::min(low, other.low), std::max(high, other.high)};
  }
};

/// One region of one op, with its captures.
class RegionReads {
public:
  RegionReads(Block &block, unsigned firstIndex, ArrayRef<int64_t> extents,
              llvm::DenseMap<Value, RefTensorPtr> captures)
      : block(block), firstIndex(firstIndex), extents(extents), captures(std::move(captures)) {}

  llvm::Error check();

private:
  enum class Verdict { Inside, Outside, Unknown };
  /// An op that reads or adds to an element of a captured tensor.
  struct Access {
    Operation *op;
    Value tensor;
    ValueRange indices;
    StringRef verb;
  };
  Verdict checkBox(const Access &access, ArrayRef<Interval> box);
  llvm::Error checkAccess(const Access &access);
  void evaluate(ArrayRef<Interval> box, Operation *last);
  Interval evaluateOp(Operation *op);
  Interval evaluateArithmetic(Operation *op, unsigned width);
  Interval readRange(tensor::ExtractOp extract);
  Interval at(Value value) const {
    auto it = ranges.find(value);
    return it == ranges.end() ? Interval::all() : it->second;
  }

  Block &block;
  unsigned firstIndex;
  ArrayRef<int64_t> extents;
  llvm::DenseMap<Value, RefTensorPtr> captures;
  llvm::DenseMap<Value, Interval> ranges;
  std::string outside;
};
} // namespace

/// Boxes after which a read counts as not disproved.
static constexpr int64_t maxBoxes = 200000;

static Interval compareRange(arith::CmpIPredicate predicate, Interval a, Interval b) {
  using Predicate = arith::CmpIPredicate;
  auto truth = [](bool always, bool never) { return Interval{never ? 0 : -1, always ? -1 : 0}; };
  switch (predicate) {
  case Predicate::eq:
    return truth(a.isPoint() && b.isPoint() && a.low == b.low, a.high < b.low || b.high < a.low);
  case Predicate::ne:
    return truth(a.high < b.low || b.high < a.low, a.isPoint() && b.isPoint() && a.low == b.low);
  case Predicate::ult:
  case Predicate::ule:
  case Predicate::ugt:
  case Predicate::uge:
    if (a.low < 0 || b.low < 0)
      return {-1, 0};
    break;
  default:
    break;
  }
  switch (predicate) {
  case Predicate::slt:
  case Predicate::ult:
    return truth(a.high < b.low, a.low >= b.high);
  case Predicate::sle:
  case Predicate::ule:
    return truth(a.high <= b.low, a.low > b.high);
  case Predicate::sgt:
  case Predicate::ugt:
    return truth(a.low > b.high, a.high <= b.low);
  default:
    return truth(a.low >= b.high, a.high < b.low);
  }
}

/// The smallest and largest of f over the corners of two ranges, or everything
/// where one of them overflows.
template <typename Function> static Interval corners(Interval a, Interval b, Function compute) {
  Interval result = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (int64_t x : {a.low, a.high})
    for (int64_t y : {b.low, b.high}) {
      int64_t value;
      if (compute(x, y, value))
        return Interval::all();
      result = result.join({value, value});
    }
  return result;
}

Interval RegionReads::evaluateArithmetic(Operation *op, unsigned width) {
  Interval a = op->getNumOperands() > 0 ? at(op->getOperand(0)) : Interval::all();
  Interval b = op->getNumOperands() > 1 ? at(op->getOperand(1)) : Interval::all();
  auto quotient = [](auto round) {
    return [round](int64_t x, int64_t y, int64_t &value) {
      if (y <= 0)
        return true;
      value = round(x, y);
      return false;
    };
  };
  return llvm::TypeSwitch<Operation *, Interval>(op)
      .Case([&](arith::AddIOp) { return corners(a, b, llvm::AddOverflow<int64_t>); })
      .Case([&](arith::SubIOp) { return corners(a, b, llvm::SubOverflow<int64_t>); })
      .Case([&](arith::MulIOp) { return corners(a, b, llvm::MulOverflow<int64_t>); })
      .Case([&](arith::MinSIOp) {
        return Interval{std::min(a.low, b.low), std::min(a.high, b.high)};
      })
      .Case([&](arith::MaxSIOp) {
        return Interval{std::max(a.low, b.low), std::max(a.high, b.high)};
      })
      .Case([&](arith::DivSIOp) {
        return corners(a, b, quotient([](int64_t x, int64_t y) { return x / y; }));
      })
      .Case([&](arith::FloorDivSIOp) {
        return corners(
            a, b, quotient([](int64_t x, int64_t y) { return llvm::divideFloorSigned(x, y); }));
      })
      .Case([&](arith::CeilDivSIOp) {
        return corners(a, b,
                       quotient([](int64_t x, int64_t y) { return llvm::divideCeilSigned(x, y); }));
      })
      .Case<arith::RemSIOp, arith::RemUIOp>([&](Operation *) {
        if (b.low <= 0 || (a.low < 0 && isa<arith::RemUIOp>(op)))
          return Interval::all(width);
        if (a.isPoint() && b.isPoint())
          return Interval{a.low % b.low, a.low % b.low};
        return Interval{a.low < 0 ? 1 - b.high : 0, b.high - 1};
      })
      .Case([&](arith::AndIOp) {
        if (a.isPoint() && b.isPoint())
          return Interval{a.low & b.low, a.low & b.low};
        if (a.low >= 0 || b.low >= 0)
          return Interval{0, a.low < 0 ? b.high : b.low < 0 ? a.high : std::min(a.high, b.high)};
        return Interval::all(width);
      })
      .Case([&](arith::OrIOp) {
        if (a.isPoint() && b.isPoint())
          return Interval{a.low | b.low, a.low | b.low};
        if (width == 1 && (a.high < 0 || b.high < 0))
          return Interval{-1, -1};
        return Interval::all(width);
      })
      .Case([&](arith::XOrIOp) {
        if (a.isPoint() && b.isPoint())
          return Interval{a.low ^ b.low, a.low ^ b.low};
        return Interval::all(width);
      })
      .Case([&](arith::CmpIOp compare) { return compareRange(compare.getPredicate(), a, b); })
      .Case([&](arith::SelectOp) {
        Interval c = at(op->getOperand(2));
        return a.low == -1 && a.high == -1 ? b : a.isPoint() ? c : b.join(c);
      })
      .Case<arith::IndexCastOp, arith::ExtSIOp, arith::TruncIOp>([&](Operation *) { return a; })
      .Case<arith::IndexCastUIOp, arith::ExtUIOp>([&](Operation *) {
        Type type = op->getOperand(0).getType();
        unsigned from = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
        if (a.low >= 0)
          return a;
        return from >= 63 ? Interval::all() : Interval{0, (int64_t(1) << from) - 1};
      })
      .Default([&](Operation *) { return Interval::all(width); });
}

/// What a read of an integer capture can give.
Interval RegionReads::readRange(tensor::ExtractOp extract) {
  RefTensorPtr tensor = captures.lookup(extract.getTensor());
  if (!tensor || isFloat(tensor->kind) || tensor->size() == 0)
    return Interval::all();
  // The first index bounds a contiguous part; further ones are not used.
  int64_t inner = 1, first = 0, last = tensor->size();
  if (!tensor->shape.empty()) {
    Interval index = at(extract.getIndices().front());
    inner = tensor->size() / tensor->shape[0];
    int64_t low = std::clamp<int64_t>(index.low, 0, tensor->shape[0] - 1);
    int64_t high = std::clamp<int64_t>(index.high, 0, tensor->shape[0] - 1);
    first = low * inner;
    last = (high + 1) * inner;
    // A single element where all indices are known.
    int64_t position = 0;
    bool exact = true;
    for (auto [value, size] : llvm::zip(extract.getIndices(), tensor->shape)) {
      Interval range = at(value);
      exact &= range.isPoint() && range.low >= 0 && range.low < size;
      position = position * size + (exact ? range.low : 0);
    }
    if (exact) {
      first = position;
      last = position + 1;
    }
  }
  Interval result = {tensor->integers[first], tensor->integers[first]};
  for (int64_t i = first; i < last; ++i)
    result = result.join({tensor->integers[i], tensor->integers[i]});
  return result;
}

Interval RegionReads::evaluateOp(Operation *op) {
  Type type = op->getResult(0).getType();
  IntegerAttr constant;
  if (matchPattern(op, m_Constant(&constant))) {
    int64_t value = constant.getValue().getSExtValue();
    return {value, value};
  }
  if (!type.isIntOrIndex())
    return Interval::all();
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return readRange(extract);
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    RefTensorPtr tensor = captures.lookup(dim.getSource());
    Interval index = at(dim.getIndex());
    if (!tensor || !index.isPoint() || index.low < 0 || index.low >= int64_t(tensor->shape.size()))
      return Interval::all();
    return {tensor->shape[index.low], tensor->shape[index.low]};
  }
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  Interval result = evaluateArithmetic(op, width);
  // What wraps can become anything.
  return result.within(Interval::all(width)) ? result : Interval::all(width);
}

void RegionReads::evaluate(ArrayRef<Interval> box, Operation *last) {
  ranges.clear();
  for (auto [dim, range] : llvm::enumerate(box))
    ranges[block.getArgument(firstIndex + dim)] = range;
  for (auto &[capture, tensor] : captures)
    if (tensor && !isFloat(tensor->kind) && !isa<ShapedType>(capture.getType()))
      ranges[capture] = {tensor->integers[0], tensor->integers[0]};
  for (Operation &op : block.without_terminator()) {
    if (&op == last)
      return;
    if (op.getNumResults() == 1)
      ranges[op.getResult(0)] = evaluateOp(&op);
  }
}

RegionReads::Verdict RegionReads::checkBox(const Access &access, ArrayRef<Interval> box) {
  evaluate(box, access.op);
  RefTensorPtr tensor = captures.lookup(access.tensor);
  Verdict verdict = Verdict::Inside;
  for (auto [dim, value] : llvm::enumerate(access.indices)) {
    Interval index = at(value);
    int64_t size = tensor->shape[dim];
    if (index.low >= 0 && index.high < size)
      continue;
    if (index.high < 0 || index.low >= size) {
      // Outside for every point of the box.
      outside = access.verb.str() + " outside of its capture of " + formatShape(tensor->shape) +
                ": index " + std::to_string(index.low) + " in dimension " + std::to_string(dim);
      return Verdict::Outside;
    }
    verdict = Verdict::Unknown;
  }
  return verdict;
}

llvm::Error RegionReads::checkAccess(const Access &access) {
  if (!captures.lookup(access.tensor))
    return llvm::Error::success();
  // The indices that the access depends on; only they are halved.
  llvm::SetVector<Value> slice;
  slice.insert(access.indices.begin(), access.indices.end());
  for (unsigned i = 0; i < slice.size(); ++i)
    if (Operation *op = slice[i].getDefiningOp())
      slice.insert(op->operand_begin(), op->operand_end());
  SmallVector<bool> used;
  SmallVector<Interval, 4> whole;
  for (auto [dim, extent] : llvm::enumerate(extents)) {
    used.push_back(slice.contains(block.getArgument(firstIndex + dim)));
    whole.push_back({0, extent - 1});
  }
  SmallVector<SmallVector<Interval, 4>> boxes = {whole};
  for (int64_t count = 0; !boxes.empty() && count < maxBoxes; ++count) {
    SmallVector<Interval, 4> box = boxes.pop_back_val();
    Verdict verdict = checkBox(access, box);
    if (verdict == Verdict::Outside) {
      std::string point;
      for (auto [dim, range] : llvm::enumerate(box))
        point += (dim ? ", " : "") + std::to_string(range.low);
      return makeError(access.op, outside + " (at indices " + point + ")");
    }
    if (verdict == Verdict::Inside)
      continue;
    unsigned longest = box.size();
    for (unsigned dim = 0; dim < box.size(); ++dim)
      if (used[dim] && !box[dim].isPoint() &&
          (longest == box.size() ||
           box[dim].high - box[dim].low > box[longest].high - box[longest].low))
        longest = dim;
    if (longest == box.size())
      continue; // depends on the score or on what is not known here
    int64_t middle = box[longest].low + (box[longest].high - box[longest].low) / 2;
    SmallVector<Interval, 4> upper = box;
    upper[longest].low = middle + 1;
    box[longest].high = middle;
    boxes.push_back(upper);
    boxes.push_back(box);
  }
  return llvm::Error::success();
}

llvm::Error RegionReads::check() {
  if (llvm::is_contained(extents, 0))
    return llvm::Error::success();
  for (Operation &op : block) {
    std::optional<Access> access;
    if (auto extract = dyn_cast<tensor::ExtractOp>(op))
      access = {&op, extract.getTensor(), extract.getIndices(), "reads"};
    else if (auto accumulate = dyn_cast<AccumulateOp>(op))
      access = {&op, accumulate.getCapture(), accumulate.getIndices(), "adds"};
    if (!access)
      continue;
    if (llvm::Error error = checkAccess(*access))
      return error;
  }
  return llvm::Error::success();
}

/// The sizes that the index arguments of an op's regions run over, and the
/// regions with the number of arguments before the indices. False where the op
/// has none, or its operands are not known.
static bool describeRegions(Operation *op, llvm::function_ref<RefTensorPtr(Value)> known,
                            SmallVectorImpl<int64_t> &extents,
                            SmallVectorImpl<std::pair<Region *, unsigned>> &regions,
                            ValueRange &captures) {
  auto addPairs = [&](auto attention) {
    RefTensorPtr query = known(attention.getQuery()), key = known(attention.getKey());
    if (query && key)
      extents.assign({query->shape[0], query->shape[1], query->shape[2], key->shape[2]});
  };
  auto addElements = [&](auto softmax) {
    if (RefTensorPtr input = known(softmax.getInput()))
      extents.assign(input->shape.begin(), input->shape.end());
  };
  auto addRegions = [&](auto withRegions) {
    regions.assign({{&withRegions.getScore(), 1}, {&withRegions.getMask(), 0}});
    captures = withRegions.getCaptures();
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<ForwardOp, BackwardOp, JvpOp, BackwardJvpOp>([&](auto attention) {
        addPairs(attention);
        addRegions(attention);
      })
      .Case<SoftmaxOp, SoftmaxBackwardOp>([&](auto softmax) {
        addElements(softmax);
        addRegions(softmax);
      });
  llvm::TypeSwitch<Operation *>(op).Case<BackwardOp, BackwardJvpOp, SoftmaxBackwardOp>(
      [&](auto backward) { regions.push_back({&backward.getGradient(), 1}); });
  return !extents.empty();
}

llvm::Error attn::checkCaptureReads(func::FuncOp function, ArrayRef<RefTensorPtr> arguments) {
  auto known = [&](Value value) -> RefTensorPtr {
    auto argument = dyn_cast<BlockArgument>(value);
    bool ours = argument && argument.getOwner() == &function.getBody().front();
    return ours ? arguments[argument.getArgNumber()] : nullptr;
  };
  llvm::Error error = llvm::Error::success();
  function.walk([&](Operation *op) {
    SmallVector<int64_t> extents;
    SmallVector<std::pair<Region *, unsigned>> regions;
    ValueRange captures;
    if (!describeRegions(op, known, extents, regions, captures))
      return WalkResult::advance();
    for (auto [region, firstIndex] : regions) {
      if (region->empty() || error)
        continue;
      Block &block = region->front();
      llvm::DenseMap<Value, RefTensorPtr> values;
      for (auto [argument, capture] :
           llvm::zip(block.getArguments().drop_front(firstIndex + extents.size()), captures))
        values[argument] = known(capture);
      error = RegionReads(block, firstIndex, extents, values).check();
    }
    return error ? WalkResult::interrupt() : WalkResult::advance();
  });
  return error;
}
