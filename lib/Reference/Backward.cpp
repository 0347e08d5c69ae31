// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.backward, row by row from the formulas in its description: the weights
// of a row from its log-sum-exp, the products of dO and V, and what the row
// adds to every gradient.

#include "Kernels.h"
#include "ScoreGradient.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace attn;

namespace {
template <typename T> class Backward {
public:
  Backward(BackwardOp op, Lookup lookup, Precision precision, unsigned order)
      : op(op), lookup(lookup), precision(precision), order(order), query(lookup(op.getQuery())),
        key(lookup(op.getKey())), value(lookup(op.getValue())), output(lookup(op.getOutput())),
        lse(lookup(op.getLse())), outputGradient(lookup(op.getOutputGradient())),
        captureSums(op.getCaptures(), lookup) {}

  llvm::Expected<std::vector<RefTensorPtr>> run();

private:
  /// The sums and the scratch memory of one key head of one batch.
  struct Group {
    int64_t b, keyHead;
    std::vector<T> keyGradient, valueGradient;
    RowState rows;
    typename ScoreGradient<T>::State gradient;
    std::vector<T> product, score, weightGradient, queryGradient;
  };
  llvm::Error checkShapes();
  llvm::Error createRegions();
  void computeGroup(int64_t index, FirstFault &faults);
  bool computeRow(Group &group, int64_t h, int64_t i, Fault &fault);
  void computeProducts(Group &group, int64_t position);
  T outputProduct(int64_t position) const;
  /// Both terms of a row's LSE.
  struct LogSumExp {
    T shift, logSum;
    T weight(T score) const { return std::exp((score - shift) - logSum); }
  };
  LogSumExp splitLse(const Group &group, int64_t h, T rowLse) const;
  bool addPairs(Group &group, int64_t position, const LogSumExp &lse, T difference, T &scaleSum,
                Fault &fault);
  void addSink(int64_t b, int64_t h, const LogSumExp &lse, T difference);
  std::vector<RefTensorPtr> takeResults();

  T narrow(const RefTensorPtr &like, T x) const {
    return roundsWeights(precision, order) ? T(roundTo(like->kind, double(x))) : x;
  }
  void store(std::shared_ptr<RefTensor> &target, int64_t position, T x) {
    target->floats[position] =
        precision == Precision::SameType ? roundTo(target->kind, double(x)) : double(x);
  }

  BackwardOp op;
  Lookup lookup;
  Precision precision;
  unsigned order;
  RefTensorPtr query, key, value, output, lse, outputGradient, lseGradient, sink;
  std::shared_ptr<RefTensor> queryGradient, keyGradient, valueGradient;
  ScalarRegion score, mask, factor;
  ScoreGradient<T> gradient;
  CaptureSums<T> captureSums;
  int64_t batch, heads, rows, keys, keyHeads, depth, valueDepth;
  T scale;
  std::vector<T> keysTransposed, valuesTransposed; // [b, kh, d, j]
  std::vector<T> queries, keyRows, outputGradients;
  std::vector<T> sinkSums, scaleSums; // [b, h], and by key head [b, kh]
  std::vector<int64_t> depthOrder, valueOrder, rowOrder, keyOrder;
};
} // namespace

template <typename T> llvm::Error Backward<T>::checkShapes() {
  batch = query->shape[0];
  heads = query->shape[1];
  rows = query->shape[2];
  depth = query->shape[3];
  keyHeads = key->shape[1];
  keys = key->shape[2];
  valueDepth = value->shape[3];
  using Shape = SmallVector<int64_t, 4>;
  Shape outputShape = {batch, heads, rows, valueDepth}, rowShape = {batch, heads, rows};
  for (auto [what, tensor, shape] :
       {std::tuple<StringRef, RefTensorPtr, Shape>{"key", key, {batch, keyHeads, keys, depth}},
        {"value", value, {batch, keyHeads, keys, valueDepth}},
        {"output", output, outputShape},
        {"output gradient", outputGradient, outputShape},
        {"LSE", lse, rowShape},
        {"LSE gradient", lseGradient, rowShape},
        {"sink", sink, {heads}}})
    if (tensor && tensor->shape != shape)
      return makeError(op, "expected " + what + " of " + formatShape(shape) + ", got " +
                               formatShape(tensor->shape));
  if (keyHeads == 0 ? heads != 0 : heads % keyHeads != 0)
    return makeError(op, "expected query heads to be a multiple of key heads, got " +
                             llvm::Twine(heads) + " and " + llvm::Twine(keyHeads));
  return llvm::Error::success();
}

template <typename T> llvm::Error Backward<T>::createRegions() {
  auto scoreOr = ScalarRegion::create(op.getScore(), {true, false, false, false, true},
                                      op.getCaptures(), lookup, precision);
  if (!scoreOr)
    return scoreOr.takeError();
  auto maskOr = ScalarRegion::create(op.getMask(), {false, false, false, true}, op.getCaptures(),
                                     lookup, precision);
  if (!maskOr)
    return maskOr.takeError();
  auto gradientOr = ScoreGradient<T>::create(op.getScore(), op.getGradient(), 4, op.getCaptures(),
                                             lookup, precision);
  if (!gradientOr)
    return gradientOr.takeError();
  auto factorOr = ScalarRegion::create(op.getFactor(), {false, false, false, true},
                                       op.getCaptures(), lookup, precision);
  if (!factorOr)
    return factorOr.takeError();
  score = std::move(*scoreOr);
  mask = std::move(*maskOr);
  factor = std::move(*factorOr);
  gradient = std::move(*gradientOr);
  return llvm::Error::success();
}

/// [b, kh, j, d] to [b, kh, d, j].
template <typename T> static std::vector<T> transposed(const RefTensor &tensor) {
  std::vector<T> result(tensor.floats.size());
  int64_t keys = tensor.shape[2], depth = tensor.shape[3];
  forEachParallel(tensor.shape[0] * tensor.shape[1], [&](int64_t head) {
    const double *from = tensor.floats.data() + head * keys * depth;
    T *to = result.data() + head * keys * depth;
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t d = 0; d < depth; ++d)
        to[d * keys + j] = T(from[j * depth + d]);
  });
  return result;
}

/// q k^T and dO V^T of a row.
template <typename T> void Backward<T>::computeProducts(Group &group, int64_t position) {
  int64_t head = group.b * keyHeads + group.keyHead;
  group.product.assign(keys, T(0));
  group.weightGradient.assign(keys, T(0));
  constexpr int64_t block = 512;
  for (int64_t j0 = 0; j0 < keys; j0 += block) {
    int64_t length = std::min(block, keys - j0);
    if (!llvm::is_contained(ArrayRef(group.rows.keep).slice(j0, length), 1))
      continue;
    for (int64_t d : depthOrder)
      addScaled(group.product.data() + j0, &keysTransposed[(head * depth + d) * keys + j0],
                queries[position * depth + d], length);
    for (int64_t e : valueOrder)
      addScaled(group.weightGradient.data() + j0,
                &valuesTransposed[(head * valueDepth + e) * keys + j0],
                outputGradients[position * valueDepth + e], length);
  }
}

/// sum_e dO O of a row.
template <typename T> T Backward<T>::outputProduct(int64_t position) const {
  T sum = T(0);
  for (int64_t e : valueOrder)
    sum +=
        outputGradients[position * valueDepth + e] * T(output->floats[position * valueDepth + e]);
  return sum;
}

template <typename T>
void Backward<T>::addSink(int64_t b, int64_t h, const LogSumExp &lse, T difference) {
  if (sink)
    sinkSums[b * heads + h] -= lse.weight(T(sink->floats[h])) * difference;
}

/// LSE rounds to the scores' size: where that may matter, the maximum and the sum of the row's own
/// scores.
template <typename T>
typename Backward<T>::LogSumExp Backward<T>::splitLse(const Group &group, int64_t h,
                                                      T rowLse) const {
  constexpr double kLarge = 256;
  if (std::abs(double(rowLse)) < kLarge)
    return {rowLse, T(0)};
  T max = sink ? T(sink->floats[h]) : -std::numeric_limits<T>::infinity();
  for (int64_t j : keyOrder)
    if (group.rows.keep[j])
      max = std::fmax(max, group.score[j]);
  if (!std::isfinite(max))
    return {rowLse, T(0)};
  T sum = sink ? std::exp(T(sink->floats[h]) - max) : T(0);
  for (int64_t j : keyOrder)
    if (group.rows.keep[j])
      sum += std::exp(group.score[j] - max);
  return {max, std::log(sum)};
}

/// What the kept pairs of a row add; `difference` is D.
template <typename T>
bool Backward<T>::addPairs(Group &group, int64_t position, const LogSumExp &lse, T difference,
                           T &scaleSum, Fault &fault) {
  int64_t head = group.b * keyHeads + group.keyHead;
  for (int64_t j : keyOrder) {
    if (!group.rows.keep[j])
      continue;
    T weight = lse.weight(group.score[j]), times;
    if (!findFactor(factor, group.rows, 3, j, times, fault))
      return false;
    T after = weight * (group.weightGradient[j] * times - difference), before;
    T s = group.product[j] * scale;
    if (!gradient.runPoint(group.gradient, s, j, after, before, captureSums, fault))
      return false;
    scaleSum += before * group.product[j];
    weight = narrow(value, weight * times);
    before = narrow(key, before);
    addScaled(&group.valueGradient[j * valueDepth], &outputGradients[position * valueDepth], weight,
              valueDepth);
    addScaled(&group.keyGradient[j * depth], &queries[position * depth], before, depth);
    addScaled(group.queryGradient.data(), &keyRows[(head * keys + j) * depth], before, depth);
  }
  return true;
}

template <typename T>
bool Backward<T>::computeRow(Group &group, int64_t h, int64_t i, Fault &fault) {
  int64_t position = (group.b * heads + h) * rows + i;
  T rowLse = T(lse->floats[position]);
  T lseTerm = lseGradient ? T(lseGradient->floats[position]) : T(0);
  int64_t leading[] = {group.b, h, i};
  group.rows.keep.clear();
  if (keys && (!startRow(mask, group.rows.mask, 0, leading, fault) ||
               !fillMask(mask, group.rows, 3, keys, fault)))
    return false;
  if (!std::isfinite(rowLse))
    return true;
  // Without a key the output is 0 whatever the inputs, so dO does not matter;
  // LSE is the sink.
  if (!llvm::is_contained(group.rows.keep, 1)) {
    addSink(group.b, h, LogSumExp{rowLse, T(0)}, -lseTerm);
    return true;
  }
  if (!startRow(score, group.rows.score, 1, leading, fault) ||
      !startRow(factor, group.rows.factor, 0, leading, fault) ||
      !gradient.startRow(group.gradient, leading, fault))
    return false;
  computeProducts(group, position);
  group.score = group.product;
  for (T &element : group.score)
    element *= scale;
  if (!applyScore(score, group.rows, 3, group.score, fault))
    return false;
  T difference = outputProduct(position) - lseTerm, scaleSum = T(0);
  LogSumExp parts = splitLse(group, h, rowLse);
  addSink(group.b, h, parts, difference);
  group.queryGradient.assign(depth, T(0));
  if (!addPairs(group, position, parts, difference, scaleSum, fault))
    return false;
  gradient.finishRow(group.gradient, captureSums);
  scaleSums[group.b * keyHeads + group.keyHead] += scaleSum;
  for (int64_t d = 0; d < depth; ++d)
    store(queryGradient, position * depth + d, group.queryGradient[d] * scale);
  return true;
}

template <typename T> void Backward<T>::computeGroup(int64_t index, FirstFault &faults) {
  Group group{index / keyHeads, index % keyHeads, {}, {}, {}, {}, {}, {}, {}, {}};
  group.rows.score = score.makeSlots();
  group.rows.mask = mask.makeSlots();
  group.rows.factor = factor.makeSlots();
  group.gradient = gradient.makeState();
  group.keyGradient.assign(keys * depth, T(0));
  group.valueGradient.assign(keys * valueDepth, T(0));
  int64_t perKeyHead = heads / keyHeads;
  Fault fault;
  for (int64_t n = 0; n < perKeyHead; ++n)
    for (int64_t i : rowOrder) {
      if (faults.any())
        return;
      if (!computeRow(group, group.keyHead * perKeyHead + n, i, fault))
        return faults.report(fault);
    }
  for (int64_t n = 0; n < keys * depth; ++n)
    store(keyGradient, index * keys * depth + n, group.keyGradient[n] * scale);
  for (int64_t n = 0; n < keys * valueDepth; ++n)
    store(valueGradient, index * keys * valueDepth + n, group.valueGradient[n]);
}

template <typename T> std::vector<RefTensorPtr> Backward<T>::takeResults() {
  std::vector<RefTensorPtr> results = {queryGradient, keyGradient, valueGradient};
  ElementKind wide = query->kind == ElementKind::F64 ? ElementKind::F64 : ElementKind::F32;
  if (op.getScaleGradient()) {
    T sum = T(0);
    for (T part : scaleSums)
      sum += part;
    auto tensor = std::make_shared<RefTensor>(wide, ArrayRef<int64_t>());
    store(tensor, 0, sum);
    results.push_back(tensor);
  }
  if (op.getSinkGradient()) {
    auto tensor = std::make_shared<RefTensor>(wide, sink->shape);
    for (int64_t h = 0; h < heads; ++h) {
      T sum = T(0);
      for (int64_t b = 0; b < batch; ++b)
        sum += sinkSums[b * heads + h];
      store(tensor, h, sum);
    }
    results.push_back(tensor);
  }
  captureSums.appendTo(results, precision);
  return results;
}

template <typename T> llvm::Expected<std::vector<RefTensorPtr>> Backward<T>::run() {
  if (op.getSink())
    sink = lookup(op.getSink());
  if (op.getLseGradient())
    lseGradient = lookup(op.getLseGradient());
  if (llvm::Error error = checkShapes())
    return std::move(error);
  if (llvm::Error error = createRegions())
    return std::move(error);
  scale = T(op.getScaleOperand() ? lookup(op.getScaleOperand())->floats[0] : *op.getStaticScale());
  queryGradient = std::make_shared<RefTensor>(query->kind, query->shape);
  keyGradient = std::make_shared<RefTensor>(key->kind, key->shape);
  valueGradient = std::make_shared<RefTensor>(value->kind, value->shape);
  keysTransposed = transposed<T>(*key);
  valuesTransposed = transposed<T>(*value);
  queries.assign(query->floats.begin(), query->floats.end());
  keyRows.assign(key->floats.begin(), key->floats.end());
  outputGradients.assign(outputGradient->floats.begin(), outputGradient->floats.end());
  sinkSums.assign(batch * heads, T(0));
  scaleSums.assign(batch * keyHeads, T(0));
  depthOrder = sumOrder(depth, order);
  valueOrder = sumOrder(valueDepth, order);
  rowOrder = sumOrder(rows, order);
  keyOrder = sumOrder(keys, order);
  FirstFault faults;
  auto compute = [&](int64_t index) { computeGroup(index, faults); };
  // Every group adds to the same gradients of captures.
  if (captureSums.empty())
    forEachParallel(batch * keyHeads, compute);
  else
    for (int64_t index = 0; index < batch * keyHeads; ++index)
      compute(index);
  if (llvm::Error error = faults.take())
    return std::move(error);
  return takeResults();
}

llvm::Expected<std::vector<RefTensorPtr>>
attn::evaluateBackward(BackwardOp op, Lookup lookup, Precision precision, unsigned order) {
  bool wide = op.getQuery().getType().getElementType().isF64();
  if (precision == Precision::SameType)
    return wide ? Backward<double>(op, lookup, precision, order).run()
                : Backward<float>(op, lookup, precision, order).run();
  return wide ? Backward<long double>(op, lookup, precision, order).run()
              : Backward<double>(op, lookup, precision, order).run();
}
