// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.forward and attn.softmax, row by row from the formulas in their
// descriptions: all scores of a row, its maximum, the weights, their sum, the
// weighted sum of V, the division.

#include "Attention.h"
#include "Kernels.h"
#include "ScalarProgram.h"
#include "attn/Runtime/ThreadPool.h"
#include "mlir/IR/OpDefinition.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <limits>
#include <mutex>

using namespace mlir;
using namespace attn;

llvm::Error attn::makeError(Operation *op, const llvm::Twine &message) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto loc = op->getLoc()->findInstanceOf<FileLineColLoc>())
    os << loc.getFilename().getValue() << ":" << loc.getLine() << ":"
       << loc.getColumn() << ": ";
  os << "'" << op->getName() << "' " << message;
  return llvm::createStringError(text);
}

namespace {
/// A score or mask region with its captures.
class ScalarRegion {
public:
  static llvm::Expected<ScalarRegion> create(Region &region,
                                             ArrayRef<bool> varying,
                                             ValueRange captures, Lookup lookup,
                                             Precision precision) {
    ScalarRegion result;
    if (region.empty())
      return result;
    Block &block = region.front();
    // Kept as members: the program reads them as long as it runs.
    for (auto [argument, capture] :
         llvm::zip(block.getArguments().drop_front(varying.size()), captures)) {
      RefTensorPtr value = lookup(capture);
      result.captures.push_back(value);
      if (isa<RankedTensorType>(capture.getType())) {
        result.tensors[argument] = value.get();
        continue;
      }
      Slot slot;
      if (isFloat(value->kind))
        slot.f = value->floats[0];
      else
        slot.i = value->integers[0];
      result.scalars[argument] = slot;
    }
    ScalarProgram::Environment environment;
    environment.tensor = [&](Value value) {
      return result.tensors.lookup(value);
    };
    environment.scalar = [&](Value value) -> const Slot * {
      auto it = result.scalars.find(value);
      return it == result.scalars.end() ? nullptr : &it->second;
    };
    auto program =
        ScalarProgram::compile(block, varying, precision, environment);
    if (!program)
      return program.takeError();
    result.program = std::move(*program);
    return result;
  }

  /// The region may be absent.
  explicit operator bool() const { return program.has_value(); }
  const ScalarProgram &operator*() const { return *program; }
  const ScalarProgram *operator->() const { return &*program; }
  std::vector<Slot> makeSlots() const {
    return program ? program->makeSlots() : std::vector<Slot>();
  }

private:
  std::optional<ScalarProgram> program;
  std::vector<RefTensorPtr> captures;
  llvm::DenseMap<Value, const RefTensor *> tensors;
  llvm::DenseMap<Value, Slot> scalars;
};

/// The first fault of any thread.
class FirstFault {
public:
  void report(const Fault &newFault) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!fault.op)
      fault = newFault;
    failed.store(true);
  }
  bool any() const { return failed.load(std::memory_order_relaxed); }
  llvm::Error take() const {
    return fault.op ? makeError(fault.op, fault.message)
                    : llvm::Error::success();
  }

private:
  std::mutex mutex;
  std::atomic<bool> failed{false};
  Fault fault;
};
} // namespace

/// Runs body(index) for 0..count-1 on the shared threads.
static void forEachParallel(int64_t count,
                            llvm::function_ref<void(int64_t)> body) {
  ThreadPool::shared().parallelFor(
      count,
      [](int64_t index, void *context) {
        (*static_cast<llvm::function_ref<void(int64_t)> *>(context))(index);
      },
      &body);
}

/// Values of one row that do not depend on the key: leading indices.
struct RowState {
  std::vector<Slot> score, mask;
  std::vector<uint8_t> keep;
};

/// Sets the indices of a row and runs what is fixed along it. `first` is the
/// position of the first index among the program's arguments.
static bool startRow(const ScalarRegion &region, std::vector<Slot> &slots,
                     unsigned first, ArrayRef<int64_t> indices, Fault &fault) {
  if (!region)
    return true;
  for (auto [position, index] : llvm::enumerate(indices))
    slots[region->argument(first + position)].i = index;
  return region->runRow(slots.data(), fault);
}

/// Which keys of the row are kept.
static bool fillMask(const ScalarRegion &mask, RowState &state,
                     unsigned numLeading, int64_t length, Fault &fault) {
  state.keep.assign(length, 1);
  if (!mask)
    return true;
  Slot *slots = state.mask.data();
  unsigned key = mask->argument(numLeading), result = mask->result(0);
  for (int64_t j = 0; j < length; ++j) {
    slots[key].i = j;
    if (!mask->runPoint(slots, fault))
      return false;
    state.keep[j] = slots[result].i != 0;
  }
  return true;
}

/// Applies the score region to the kept elements of a row.
template <typename T>
static bool applyScore(const ScalarRegion &score, RowState &state,
                       unsigned numLeading, std::vector<T> &row, Fault &fault) {
  if (!score)
    return true;
  Slot *slots = state.score.data();
  unsigned value = score->argument(0), key = score->argument(1 + numLeading),
           result = score->result(0);
  for (int64_t j = 0, e = row.size(); j < e; ++j) {
    if (!state.keep[j])
      continue;
    slots[value].f = double(row[j]);
    slots[key].i = j;
    if (!score->runPoint(slots, fault))
      return false;
    row[j] = T(slots[result].f);
  }
  return true;
}

/// The maximum over the kept elements; NaN where one of them is.
template <typename T>
static T rowMaximum(const std::vector<T> &row,
                    const std::vector<uint8_t> &keep) {
  T maximum = -std::numeric_limits<T>::infinity();
  for (size_t j = 0; j < row.size(); ++j)
    if (keep[j] && !(row[j] <= maximum))
      maximum = row[j];
  return maximum;
}

//===----------------------------------------------------------------------===//
// attn.forward
//===----------------------------------------------------------------------===//

namespace {
template <typename T> class Forward {
public:
  Forward(ForwardOp op, Lookup lookup, Precision precision)
      : op(op), lookup(lookup), precision(precision),
        query(lookup(op.getQuery())), key(lookup(op.getKey())),
        value(lookup(op.getValue())) {}

  llvm::Expected<std::vector<RefTensorPtr>> run();

private:
  llvm::Error checkShapes();
  void copyKeysAndValues();
  void computeRows(int64_t chunk, FirstFault &faults);
  bool computeRow(int64_t b, int64_t h, int64_t i, RowState &state,
                  std::vector<T> &row, std::vector<T> &sum, Fault &fault);

  ForwardOp op;
  Lookup lookup;
  Precision precision;
  RefTensorPtr query, key, value, sink;
  std::shared_ptr<RefTensor> output, lse;
  ScalarRegion score, mask;
  int64_t batch, heads, rows, keys, keyHeads, depth, valueDepth;
  T scale;
  std::vector<T> keysTransposed, values; // [b, kh, d, j] and [b, kh, j, e]
  static constexpr int64_t rowsPerChunk = 16;
};
} // namespace

template <typename T> llvm::Error Forward<T>::checkShapes() {
  batch = query->shape[0];
  heads = query->shape[1];
  rows = query->shape[2];
  depth = query->shape[3];
  keyHeads = key->shape[1];
  keys = key->shape[2];
  valueDepth = value->shape[3];
  if (key->shape[0] != batch || value->shape[0] != batch ||
      value->shape[1] != keyHeads || value->shape[2] != keys ||
      key->shape[3] != depth)
    return makeError(op, "expected shapes that agree, got " +
                             formatShape(query->shape) + ", " +
                             formatShape(key->shape) + " and " +
                             formatShape(value->shape));
  if (keyHeads == 0 ? heads != 0 : heads % keyHeads != 0)
    return makeError(
        op, "expected query heads to be a multiple of key heads, got " +
                llvm::Twine(heads) + " and " + llvm::Twine(keyHeads));
  if (sink && sink->shape[0] != heads)
    return makeError(op,
                     "expected sink to have one element per query head, got " +
                         llvm::Twine(sink->shape[0]) + " for " +
                         llvm::Twine(heads) + " heads");
  return llvm::Error::success();
}

template <typename T> void Forward<T>::copyKeysAndValues() {
  keysTransposed.resize(key->floats.size());
  values.assign(value->floats.begin(), value->floats.end());
  forEachParallel(batch * keyHeads, [&](int64_t head) {
    const double *from = key->floats.data() + head * keys * depth;
    T *to = keysTransposed.data() + head * keys * depth;
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t d = 0; d < depth; ++d)
        to[d * keys + j] = T(from[j * depth + d]);
  });
}

template <typename T>
bool Forward<T>::computeRow(int64_t b, int64_t h, int64_t i, RowState &state,
                            std::vector<T> &row, std::vector<T> &sum,
                            Fault &fault) {
  int64_t position = (b * heads + h) * rows + i;
  int64_t keyHead = b * keyHeads + (keys ? h / (heads / keyHeads) : 0);
  int64_t leading[] = {b, h, i};
  if (keys && (!startRow(mask, state.mask, 0, leading, fault) ||
               !startRow(score, state.score, 1, leading, fault) ||
               !fillMask(mask, state, 3, keys, fault)))
    return false;
  if (keys == 0)
    state.keep.clear();

  row.assign(keys, T(0));
  // Blocks without a kept key contribute nothing.
  constexpr int64_t block = 512;
  for (int64_t j0 = 0; j0 < keys; j0 += block) {
    int64_t length = std::min(block, keys - j0);
    if (!llvm::is_contained(ArrayRef(state.keep).slice(j0, length), 1))
      continue;
    for (int64_t d = 0; d < depth; ++d)
      addScaled(row.data() + j0,
                &keysTransposed[(keyHead * depth + d) * keys + j0],
                T(query->floats[position * depth + d]), length);
  }
  for (T &element : row)
    element *= scale;
  if (!applyScore(score, state, 3, row, fault))
    return false;

  const T infinity = std::numeric_limits<T>::infinity();
  T maximum = rowMaximum(row, state.keep);
  if (sink)
    maximum = std::max(maximum, T(sink->floats[h]));
  T safe = maximum == -infinity ? T(0) : maximum;
  T total = sink ? std::exp(T(sink->floats[h]) - safe) : T(0);
  sum.assign(valueDepth, T(0));
  for (int64_t j = 0; j < keys; ++j) {
    if (!state.keep[j])
      continue;
    T weight = std::exp(row[j] - safe);
    total += weight;
    if (precision == Precision::SameType)
      weight = T(roundTo(value->kind, double(weight)));
    addScaled(sum.data(), &values[(keyHead * keys + j) * valueDepth], weight,
              valueDepth);
  }
  for (int64_t e = 0; e < valueDepth; ++e) {
    double element = double(total == T(0) ? T(0) : sum[e] / total);
    output->floats[position * valueDepth + e] =
        precision == Precision::SameType ? roundTo(output->kind, element)
                                         : element;
  }
  if (lse)
    lse->floats[position] =
        double(total == T(0) ? -infinity : safe + std::log(total));
  return true;
}

template <typename T>
void Forward<T>::computeRows(int64_t chunk, FirstFault &faults) {
  if (faults.any())
    return;
  RowState state{score.makeSlots(), mask.makeSlots(), {}};
  std::vector<T> row, sum;
  Fault fault;
  int64_t end = std::min((chunk + 1) * rowsPerChunk, batch * heads * rows);
  for (int64_t index = chunk * rowsPerChunk; index < end; ++index) {
    int64_t i = index % rows, h = index / rows % heads,
            b = index / rows / heads;
    if (!computeRow(b, h, i, state, row, sum, fault))
      return faults.report(fault);
  }
}

template <typename T>
llvm::Expected<std::vector<RefTensorPtr>> Forward<T>::run() {
  if (op.getSink())
    sink = lookup(op.getSink());
  if (llvm::Error error = checkShapes())
    return std::move(error);
  double exactScale = op.getScaleOperand()
                          ? lookup(op.getScaleOperand())->floats[0]
                          : *op.getStaticScale();
  scale = T(exactScale);
  auto scoreOr =
      ScalarRegion::create(op.getScore(), {true, false, false, false, true},
                           op.getCaptures(), lookup, precision);
  if (!scoreOr)
    return scoreOr.takeError();
  score = std::move(*scoreOr);
  auto maskOr = ScalarRegion::create(op.getMask(), {false, false, false, true},
                                     op.getCaptures(), lookup, precision);
  if (!maskOr)
    return maskOr.takeError();
  mask = std::move(*maskOr);

  output = std::make_shared<RefTensor>(
      query->kind, ArrayRef<int64_t>{batch, heads, rows, valueDepth});
  std::vector<RefTensorPtr> results = {output};
  if (op.getLse()) {
    lse = std::make_shared<RefTensor>(
        query->kind == ElementKind::F64 ? ElementKind::F64 : ElementKind::F32,
        ArrayRef<int64_t>{batch, heads, rows});
    results.push_back(lse);
  }
  copyKeysAndValues();
  FirstFault faults;
  int64_t chunks = (batch * heads * rows + rowsPerChunk - 1) / rowsPerChunk;
  forEachParallel(chunks, [&](int64_t chunk) { computeRows(chunk, faults); });
  if (llvm::Error error = faults.take())
    return std::move(error);
  return results;
}

llvm::Expected<std::vector<RefTensorPtr>>
attn::evaluateForward(ForwardOp op, Lookup lookup, Precision precision) {
  bool wide = op.getQuery().getType().getElementType().isF64();
  if (precision == Precision::SameType)
    return wide ? Forward<double>(op, lookup, precision).run()
                : Forward<float>(op, lookup, precision).run();
  return wide ? Forward<long double>(op, lookup, precision).run()
              : Forward<double>(op, lookup, precision).run();
}

//===----------------------------------------------------------------------===//
// attn.softmax
//===----------------------------------------------------------------------===//

template <typename T>
static llvm::Expected<RefTensorPtr> runSoftmax(SoftmaxOp op, Lookup lookup,
                                               Precision precision) {
  RefTensorPtr input = lookup(op.getInput());
  unsigned numLeading = input->shape.size() - 1;
  SmallVector<bool> maskVarying(numLeading, false);
  maskVarying.push_back(true);
  SmallVector<bool> scoreVarying = {true};
  llvm::append_range(scoreVarying, maskVarying);
  auto score = ScalarRegion::create(op.getScore(), scoreVarying,
                                    op.getCaptures(), lookup, precision);
  if (!score)
    return score.takeError();
  auto mask = ScalarRegion::create(op.getMask(), maskVarying, op.getCaptures(),
                                   lookup, precision);
  if (!mask)
    return mask.takeError();
  auto output = std::make_shared<RefTensor>(input->kind, input->shape);
  int64_t length = input->shape.back();
  FirstFault faults;
  auto computeRow = [&](int64_t index) {
    Fault fault;
    RowState state{score->makeSlots(), mask->makeSlots(), {}};
    SmallVector<int64_t> leading(numLeading);
    int64_t rest = index;
    for (unsigned dim = numLeading; dim-- > 0; rest /= input->shape[dim])
      leading[dim] = rest % input->shape[dim];
    std::vector<T> row(input->floats.begin() + index * length,
                       input->floats.begin() + (index + 1) * length);
    if (!startRow(*mask, state.mask, 0, leading, fault) ||
        !startRow(*score, state.score, 1, leading, fault) ||
        !fillMask(*mask, state, numLeading, length, fault) ||
        !applyScore(*score, state, numLeading, row, fault))
      return faults.report(fault);
    T maximum = rowMaximum(row, state.keep);
    if (maximum == -std::numeric_limits<T>::infinity())
      maximum = T(0);
    T total = T(0);
    for (int64_t j = 0; j < length; ++j) {
      row[j] = state.keep[j] ? std::exp(row[j] - maximum) : T(0);
      total += row[j];
    }
    for (int64_t j = 0; j < length; ++j) {
      double element = double(total == T(0) ? T(0) : row[j] / total);
      output->floats[index * length + j] = precision == Precision::SameType
                                               ? roundTo(output->kind, element)
                                               : element;
    }
  };
  forEachParallel(length ? input->size() / length : 0, computeRow);
  if (llvm::Error error = faults.take())
    return std::move(error);
  return RefTensorPtr(output);
}

llvm::Expected<RefTensorPtr> attn::evaluateSoftmax(SoftmaxOp op, Lookup lookup,
                                                   Precision precision) {
  bool wide = op.getInput().getType().getElementType().isF64();
  if (precision == Precision::SameType)
    return wide ? runSoftmax<double>(op, lookup, precision)
                : runSoftmax<float>(op, lookup, precision);
  return wide ? runSoftmax<long double>(op, lookup, precision)
              : runSoftmax<double>(op, lookup, precision);
}
