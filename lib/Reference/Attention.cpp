// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.forward and attn.softmax, row by row from the formulas in their
// descriptions: all scores of a row, its maximum, the weights, their sum, the
// weighted sum of V, the division.

#include "Attention.h"
#include "Kernels.h"
#include "Rows.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace attn;

/// The maximum over the kept elements; NaN where one of them is.
template <typename T>
static T rowMaximum(const std::vector<T> &row, const std::vector<uint8_t> &keep) {
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
  Forward(ForwardOp op, Lookup lookup, Precision precision, unsigned order)
      : op(op), lookup(lookup), precision(precision), order(order), query(lookup(op.getQuery())),
        key(lookup(op.getKey())), value(lookup(op.getValue())) {}

  llvm::Expected<std::vector<RefTensorPtr>> run();

private:
  llvm::Error checkShapes();
  void copyKeysAndValues();
  void computeRows(int64_t chunk, FirstFault &faults);
  bool computeRow(int64_t b, int64_t h, int64_t i, RowState &state, std::vector<T> &row,
                  std::vector<T> &sum, Fault &fault);

  ForwardOp op;
  Lookup lookup;
  Precision precision;
  unsigned order;
  RefTensorPtr query, key, value, sink;
  std::shared_ptr<RefTensor> output, lse;
  ScalarRegion score, mask, factor;
  int64_t batch, heads, rows, keys, keyHeads, depth, valueDepth;
  T scale;
  std::vector<T> keysTransposed, values; // [b, kh, d, j] and [b, kh, j, e]
  std::vector<int64_t> depthOrder, keyOrder;
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
  if (key->shape[0] != batch || value->shape[0] != batch || value->shape[1] != keyHeads ||
      value->shape[2] != keys || key->shape[3] != depth)
    return makeError(op, "expected shapes that agree, got " + formatShape(query->shape) + ", " +
                             formatShape(key->shape) + " and " + formatShape(value->shape));
  if (keyHeads == 0 ? heads != 0 : heads % keyHeads != 0)
    return makeError(op, "expected query heads to be a multiple of key heads, got " +
                             llvm::Twine(heads) + " and " + llvm::Twine(keyHeads));
  if (sink && sink->shape[0] != heads)
    return makeError(op, "expected sink to have one element per query head, got " +
                             llvm::Twine(sink->shape[0]) + " for " + llvm::Twine(heads) + " heads");
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
bool Forward<T>::computeRow(int64_t b, int64_t h, int64_t i, RowState &state, std::vector<T> &row,
                            std::vector<T> &sum, Fault &fault) {
  int64_t position = (b * heads + h) * rows + i;
  int64_t keyHead = b * keyHeads + (keys ? h / (heads / keyHeads) : 0);
  int64_t leading[] = {b, h, i};
  if (keys && (!startRow(mask, state.mask, 0, leading, fault) ||
               !startRow(score, state.score, 1, leading, fault) ||
               !startRow(factor, state.factor, 0, leading, fault) ||
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
    for (int64_t d : depthOrder)
      addScaled(row.data() + j0, &keysTransposed[(keyHead * depth + d) * keys + j0],
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
  for (int64_t j : keyOrder) {
    if (!state.keep[j])
      continue;
    T weight = std::exp(row[j] - safe), times;
    total += weight;
    if (!findFactor(factor, state, 3, j, times, fault))
      return false;
    weight *= times;
    if (roundsWeights(precision, order))
      weight = T(roundTo(value->kind, double(weight)));
    addScaled(sum.data(), &values[(keyHead * keys + j) * valueDepth], weight, valueDepth);
  }
  for (int64_t e = 0; e < valueDepth; ++e) {
    double element = double(total == T(0) ? T(0) : sum[e] / total);
    output->floats[position * valueDepth + e] =
        precision == Precision::SameType ? roundTo(output->kind, element) : element;
  }
  if (lse)
    lse->floats[position] = double(total == T(0) ? -infinity : safe + std::log(total));
  return true;
}

template <typename T> void Forward<T>::computeRows(int64_t chunk, FirstFault &faults) {
  if (faults.any())
    return;
  RowState state{score.makeSlots(), mask.makeSlots(), factor.makeSlots(), {}};
  std::vector<T> row, sum;
  Fault fault;
  int64_t end = std::min((chunk + 1) * rowsPerChunk, batch * heads * rows);
  for (int64_t index = chunk * rowsPerChunk; index < end; ++index) {
    int64_t i = index % rows, h = index / rows % heads, b = index / rows / heads;
    if (!computeRow(b, h, i, state, row, sum, fault))
      return faults.report(fault);
  }
}

template <typename T> llvm::Expected<std::vector<RefTensorPtr>> Forward<T>::run() {
  if (op.getSink())
    sink = lookup(op.getSink());
  if (llvm::Error error = checkShapes())
    return std::move(error);
  double exactScale =
      op.getScaleOperand() ? lookup(op.getScaleOperand())->floats[0] : *op.getStaticScale();
  scale = T(exactScale);
  auto scoreOr = ScalarRegion::create(op.getScore(), {true, false, false, false, true},
                                      op.getCaptures(), lookup, precision);
  if (!scoreOr)
    return scoreOr.takeError();
  score = std::move(*scoreOr);
  auto maskOr = ScalarRegion::create(op.getMask(), {false, false, false, true}, op.getCaptures(),
                                     lookup, precision);
  if (!maskOr)
    return maskOr.takeError();
  mask = std::move(*maskOr);
  auto factorOr = ScalarRegion::create(op.getFactor(), {false, false, false, true},
                                       op.getCaptures(), lookup, precision);
  if (!factorOr)
    return factorOr.takeError();
  factor = std::move(*factorOr);

  output =
      std::make_shared<RefTensor>(query->kind, ArrayRef<int64_t>{batch, heads, rows, valueDepth});
  std::vector<RefTensorPtr> results = {output};
  if (op.getLse()) {
    lse = std::make_shared<RefTensor>(query->kind == ElementKind::F64 ? ElementKind::F64
                                                                      : ElementKind::F32,
                                      ArrayRef<int64_t>{batch, heads, rows});
    results.push_back(lse);
  }
  copyKeysAndValues();
  depthOrder = sumOrder(depth, order);
  keyOrder = sumOrder(keys, order);
  FirstFault faults;
  int64_t chunks = (batch * heads * rows + rowsPerChunk - 1) / rowsPerChunk;
  forEachParallel(chunks, [&](int64_t chunk) { computeRows(chunk, faults); });
  if (llvm::Error error = faults.take())
    return std::move(error);
  return results;
}

llvm::Expected<std::vector<RefTensorPtr>>
attn::evaluateForward(ForwardOp op, Lookup lookup, Precision precision, unsigned order) {
  bool wide = op.getQuery().getType().getElementType().isF64();
  if (precision == Precision::SameType)
    return wide ? Forward<double>(op, lookup, precision, order).run()
                : Forward<float>(op, lookup, precision, order).run();
  return wide ? Forward<long double>(op, lookup, precision, order).run()
              : Forward<double>(op, lookup, precision, order).run();
}

//===----------------------------------------------------------------------===//
// attn.softmax
//===----------------------------------------------------------------------===//

template <typename T>
static llvm::Expected<RefTensorPtr> runSoftmax(SoftmaxOp op, Lookup lookup, Precision precision) {
  RefTensorPtr input = lookup(op.getInput());
  unsigned numLeading = input->shape.size() - 1;
  SmallVector<bool> maskVarying(numLeading, false);
  maskVarying.push_back(true);
  SmallVector<bool> scoreVarying = {true};
  llvm::append_range(scoreVarying, maskVarying);
  auto score =
      ScalarRegion::create(op.getScore(), scoreVarying, op.getCaptures(), lookup, precision);
  if (!score)
    return score.takeError();
  auto mask = ScalarRegion::create(op.getMask(), maskVarying, op.getCaptures(), lookup, precision);
  if (!mask)
    return mask.takeError();
  auto output = std::make_shared<RefTensor>(input->kind, input->shape);
  int64_t length = input->shape.back();
  FirstFault faults;
  auto computeRow = [&](int64_t index) {
    Fault fault;
    RowState state{score->makeSlots(), mask->makeSlots(), {}, {}};
    SmallVector<int64_t, 4> leading = leadingIndices(index, input->shape);
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
      bool isEmpty = total == T(0) && !op.getMask().empty();
      double element = double(isEmpty ? T(0) : row[j] / total);
      output->floats[index * length + j] =
          precision == Precision::SameType ? roundTo(output->kind, element) : element;
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
