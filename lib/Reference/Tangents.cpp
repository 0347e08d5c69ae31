// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.jvp and attn.backward_jvp, row by row from the formulas in their descriptions.

#include "Attention.h"
#include "ScoreGradient.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace attn;

namespace {
/// What both ops begin with. Rows are computed one after the other: captures have sums that all add
/// to.
template <typename T, typename OpTy> class Tangents {
public:
  Tangents(OpTy op, Lookup lookup, Precision precision, unsigned order)
      : op(op), lookup(lookup), precision(precision), order(order), query(lookup(op.getQuery())),
        key(lookup(op.getKey())), value(lookup(op.getValue())), output(lookup(op.getOutput())),
        lse(lookup(op.getLse())), queryTangent(find(op.getQueryTangent())),
        keyTangent(find(op.getKeyTangent())), valueTangent(find(op.getValueTangent())),
        sink(find(op.getSink())), sinkTangent(find(op.getSinkTangent())) {}

protected:
  /// One row: where the pair is kept, the scaled score and its tangent, weights, and t'.
  struct Row {
    int64_t b, h, i, keyHead, position;
    bool lives, hasKeys; // with a sink a row may live without keys
    RowState state;
    std::vector<Slot> tangent;
    std::vector<T> score, scoreTangent, weight, afterTangent, factor;
    T sinkWeight;
  };

  RefTensorPtr find(Value operand) { return operand ? lookup(operand) : nullptr; }
  /// Element (b, h, row, column) of a tensor; 0 of none.
  static T at(const RefTensorPtr &tensor, int64_t b, int64_t h, int64_t row, int64_t column) {
    if (!tensor)
      return T(0);
    ArrayRef<int64_t> shape = tensor->shape;
    return T(tensor->floats[((b * shape[1] + h) * shape[2] + row) * shape[3] + column]);
  }
  T ofRow(const RefTensorPtr &tensor, const Row &row) const {
    return tensor ? T(tensor->floats[row.position]) : T(0);
  }
  llvm::Error checkShapes(ArrayRef<std::pair<RefTensorPtr, RefTensorPtr>> same);
  llvm::Error createRegions();
  llvm::Expected<ScalarRegion> create(Region &region, ArrayRef<bool> varying, bool hasTangents,
                                      unsigned trailing) {
    captures.assign(op.getCaptures().begin(), op.getCaptures().end());
    if (hasTangents)
      llvm::append_range(captures, op.getCaptureTangents());
    return ScalarRegion::create(region, varying, captures, lookup, precision, trailing);
  }
  bool computeRow(Row &row, Fault &fault);
  void computeWeights(Row &row);
  llvm::Error forEachRow(llvm::function_ref<bool(Row &, Fault &)> visit);
  std::shared_ptr<RefTensor> makeResult(const RefTensorPtr &like,
                                        const std::vector<T> &sums) const {
    auto result = std::make_shared<RefTensor>(like->kind, like->shape);
    for (auto [to, from] : llvm::zip(result->floats, sums))
      to = precision == Precision::SameType ? roundTo(like->kind, double(from)) : double(from);
    return result;
  }

  OpTy op;
  Lookup lookup;
  Precision precision;
  unsigned order;
  RefTensorPtr query, key, value, output, lse, queryTangent, keyTangent, valueTangent, sink,
      sinkTangent;
  ScalarRegion score, tangent, mask, factor;
  SmallVector<Value> captures;
  int64_t batch, heads, rows, keys, keyHeads, depth, valueDepth;
  std::vector<int64_t> keyOrder;
  T scale;
};
} // namespace

template <typename T, typename OpTy>
llvm::Error Tangents<T, OpTy>::checkShapes(ArrayRef<std::pair<RefTensorPtr, RefTensorPtr>> same) {
  ArrayRef<int64_t> q = query->shape, k = key->shape, v = value->shape;
  batch = q[0], heads = q[1], rows = q[2], depth = q[3];
  keyHeads = k[1], keys = k[2], valueDepth = v[3];
  using Shape = SmallVector<int64_t, 4>;
  for (auto [what, tensor, shape] :
       {std::tuple<StringRef, RefTensorPtr, Shape>{"key", key, {batch, keyHeads, keys, depth}},
        {"value", value, {batch, keyHeads, keys, valueDepth}},
        {"output", output, {batch, heads, rows, valueDepth}},
        {"LSE", lse, {batch, heads, rows}},
        {"sink", sink, {heads}}})
    if (tensor && tensor->shape != shape)
      return makeError(op, "expected " + what + " of " + formatShape(shape) + ", got " +
                               formatShape(tensor->shape));
  if (keyHeads == 0 ? heads != 0 : heads % keyHeads != 0)
    return makeError(op, "expected query heads to be a multiple of key heads, got " +
                             llvm::Twine(heads) + " and " + llvm::Twine(keyHeads));
  SmallVector<std::pair<RefTensorPtr, RefTensorPtr>> all(same);
  all.append(
      {{query, queryTangent}, {key, keyTangent}, {value, valueTangent}, {sink, sinkTangent}});
  for (auto [position, of] : llvm::zip(op.getTangentCaptures(), op.getCaptureTangents()))
    all.push_back({lookup(op.getCaptures()[position]), lookup(of)});
  for (auto [of, other] : all)
    if (other && other->shape != of->shape)
      return makeError(op, "expected a tangent or gradient of " + formatShape(of->shape) +
                               ", got " + formatShape(other->shape));
  keyOrder = sumOrder(keys, order);
  scale = T(op.getScaleOperand() ? lookup(op.getScaleOperand())->floats[0] : *op.getStaticScale());
  return llvm::Error::success();
}

template <typename T, typename OpTy> llvm::Error Tangents<T, OpTy>::createRegions() {
  bool ofPair[] = {true, false, false, false, true};
  ArrayRef<bool> ofMask = ArrayRef(ofPair).drop_front();
  for (auto [region, from, varying, hasTangents] :
       {std::tuple<ScalarRegion *, Region *, ArrayRef<bool>, bool>{&score, &op.getScore(), ofPair,
                                                                   false},
        {&tangent, &op.getTangent(), ofPair, true},
        {&mask, &op.getMask(), ofMask, false},
        {&factor, &op.getFactor(), ofMask, false}}) {
    llvm::Expected<ScalarRegion> created =
        create(*from, varying, hasTangents, /*trailing=*/hasTangents ? 1 : 0);
    if (!created)
      return created.takeError();
    *region = std::move(*created);
  }
  return llvm::Error::success();
}

/// From LSE, or, where that may have lost the sum, from the scores.
template <typename T, typename OpTy> void Tangents<T, OpTy>::computeWeights(Row &row) {
  constexpr double kLarge = 256;
  T shift = ofRow(lse, row), logSum = T(0);
  T ofSink = sink ? T(sink->floats[row.h]) : -std::numeric_limits<T>::infinity();
  if (std::abs(double(shift)) >= kLarge) {
    T max = ofSink;
    for (int64_t j : keyOrder)
      if (row.state.keep[j])
        max = std::fmax(max, row.weight[j]);
    T sum = std::exp(ofSink - max);
    for (int64_t j : keyOrder)
      if (row.state.keep[j])
        sum += std::exp(row.weight[j] - max);
    if (std::isfinite(max))
      shift = max, logSum = std::log(sum);
  }
  for (int64_t j : keyOrder)
    row.weight[j] = row.state.keep[j] ? std::exp((row.weight[j] - shift) - logSum) : T(0);
  row.sinkWeight = sink ? std::exp((ofSink - shift) - logSum) : T(0);
}

template <typename T, typename OpTy> bool Tangents<T, OpTy>::computeRow(Row &row, Fault &fault) {
  int64_t leading[] = {row.b, row.h, row.i};
  row.state.keep.clear();
  if (keys && (!startRow(mask, row.state.mask, 0, leading, fault) ||
               !fillMask(mask, row.state, 3, keys, fault)))
    return false;
  row.hasKeys = llvm::is_contained(row.state.keep, 1);
  row.lives = std::isfinite(ofRow(lse, row)) && (row.hasKeys || sink);
  if (!row.lives)
    return true;
  if (!startRow(score, row.state.score, 1, leading, fault) ||
      !startRow(tangent, row.tangent, 1, leading, fault) ||
      !startRow(factor, row.state.factor, 0, leading, fault))
    return false;
  for (std::vector<T> *of :
       {&row.score, &row.scoreTangent, &row.weight, &row.afterTangent, &row.factor})
    of->assign(keys, T(0));
  for (int64_t j : keyOrder) {
    if (!row.state.keep[j])
      continue;
    for (int64_t d = 0; d < depth; ++d) {
      T q = at(query, row.b, row.h, row.i, d), k = at(key, row.b, row.keyHead, j, d);
      row.score[j] += q * k * scale;
      row.scoreTangent[j] += (at(queryTangent, row.b, row.h, row.i, d) * k +
                              q * at(keyTangent, row.b, row.keyHead, j, d)) *
                             scale;
    }
    row.afterTangent[j] = row.scoreTangent[j];
    if (tangent) {
      Slot *slots = row.tangent.data();
      slots[tangent->argument(0)].f = double(row.score[j]);
      slots[tangent->argument(4)].i = j;
      slots[tangent->argument(5)].f = double(row.scoreTangent[j]);
      if (!tangent->runPoint(slots, fault))
        return false;
      row.afterTangent[j] = T(slots[tangent->result(0)].f);
    }
    if (!findFactor(factor, row.state, 3, j, row.factor[j], fault))
      return false;
  }
  row.weight = row.score;
  if (!applyScore(score, row.state, 3, row.weight, fault))
    return false;
  computeWeights(row);
  return true;
}

template <typename T, typename OpTy>
llvm::Error Tangents<T, OpTy>::forEachRow(llvm::function_ref<bool(Row &, Fault &)> visit) {
  Row row{};
  row.state.score = score.makeSlots();
  row.state.mask = mask.makeSlots();
  row.state.factor = factor.makeSlots();
  row.tangent = tangent.makeSlots();
  Fault fault;
  for (int64_t position : sumOrder(batch * heads * rows, order)) {
    row.position = position;
    row.b = row.position / (heads * rows);
    row.h = row.position / rows % heads;
    row.i = row.position % rows;
    row.keyHead = row.h / (heads / keyHeads);
    if (!computeRow(row, fault) || !visit(row, fault)) {
      FirstFault first;
      first.report(fault);
      return first.take();
    }
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// attn.jvp
//===----------------------------------------------------------------------===//

namespace {
template <typename T> class Jvp : Tangents<T, JvpOp> {
  using Base = Tangents<T, JvpOp>;
  using typename Base::Row;

public:
  using Base::Base;
  llvm::Expected<std::vector<RefTensorPtr>> run();
};
} // namespace

template <typename T> llvm::Expected<std::vector<RefTensorPtr>> Jvp<T>::run() {
  if (llvm::Error error = this->checkShapes({}))
    return std::move(error);
  if (llvm::Error error = this->createRegions())
    return std::move(error);
  std::vector<T> outputs(this->output->floats.size()), sums(this->lse->floats.size());
  auto visit = [&](Row &row, Fault &) {
    if (!row.lives)
      return true;
    T mean = this->sinkTangent ? row.sinkWeight * T(this->sinkTangent->floats[row.h]) : T(0);
    for (int64_t j : this->keyOrder)
      if (row.state.keep[j])
        mean += row.weight[j] * row.afterTangent[j];
    sums[row.position] = mean;
    for (int64_t e = 0; e < this->valueDepth; ++e) {
      T sum = T(0);
      for (int64_t j : this->keyOrder)
        if (row.state.keep[j])
          sum += row.weight[j] * row.factor[j] *
                 (row.afterTangent[j] * this->at(this->value, row.b, row.keyHead, j, e) +
                  this->at(this->valueTangent, row.b, row.keyHead, j, e));
      int64_t position = row.position * this->valueDepth + e;
      outputs[position] = sum - mean * T(this->output->floats[position]);
    }
    return true;
  };
  if (llvm::Error error = this->forEachRow(visit))
    return std::move(error);
  return std::vector<RefTensorPtr>{this->makeResult(this->output, outputs),
                                   this->makeResult(this->lse, sums)};
}

//===----------------------------------------------------------------------===//
// attn.backward_jvp
//===----------------------------------------------------------------------===//

namespace {
template <typename T> class BackwardJvp : Tangents<T, BackwardJvpOp> {
  using Base = Tangents<T, BackwardJvpOp>;
  using typename Base::Row;

public:
  BackwardJvp(BackwardJvpOp op, Lookup lookup, Precision precision, unsigned order)
      : Base(op, lookup, precision, order), outputGradient(lookup(op.getOutputGradient())),
        outputTangent(lookup(op.getOutputTangent())), lseTangent(lookup(op.getLseTangent())),
        lseGradient(this->find(op.getLseGradient())),
        outputGradientTangent(this->find(op.getOutputGradientTangent())),
        lseGradientTangent(this->find(op.getLseGradientTangent())), sums(op.getCaptures(), lookup) {
  }
  llvm::Expected<std::vector<RefTensorPtr>> run();

private:
  bool addRow(Row &row, Fault &fault);
  bool addPair(Row &row, int64_t j, T delta, T deltaTangent, Fault &fault);
  bool differentiate(Row &row, int64_t j, T dt, T dtTangent, T &ds, T &dsTangent, Fault &fault);

  RefTensorPtr outputGradient, outputTangent, lseTangent, lseGradient, outputGradientTangent,
      lseGradientTangent;
  ScalarRegion gradient;
  std::vector<Slot> slots;
  CaptureSums<T> sums;
  std::vector<T> queries, keyRows, values, sinks;
};
} // namespace

/// ds and ds' of a pair, and what captures get.
template <typename T>
bool BackwardJvp<T>::differentiate(Row &row, int64_t j, T dt, T dtTangent, T &ds, T &dsTangent,
                                   Fault &fault) {
  ds = dt, dsTangent = dtTangent;
  if (!gradient)
    return true;
  slots[gradient->argument(0)].f = double(row.score[j]);
  slots[gradient->argument(4)].i = j;
  slots[gradient->argument(5)].f = double(row.scoreTangent[j]);
  slots[gradient->argument(6)].f = double(dt);
  slots[gradient->argument(7)].f = double(dtTangent);
  if (!gradient->runPoint(slots.data(), fault))
    return false;
  ds = T(slots[gradient->result(0)].f);
  dsTangent = T(slots[gradient->result(1)].f);
  constexpr unsigned kFirstCapture = 5;
  for (const auto &accumulation : gradient->getAccumulations()) {
    unsigned capture = accumulation.argument - kFirstCapture;
    int64_t position;
    if (!ScalarProgram::locate(sums.shape(capture), accumulation.indices, slots.data(),
                               accumulation.op, "adds", position, fault))
      return false;
    sums.add(capture, position, T(slots[accumulation.value].f));
  }
  return true;
}

template <typename T>
bool BackwardJvp<T>::addPair(Row &row, int64_t j, T delta, T deltaTangent, Fault &fault) {
  int64_t b = row.b, h = row.h, i = row.i, kh = row.keyHead;
  T w = T(0), wTangent = T(0);
  for (int64_t e = 0; e < this->valueDepth; ++e) {
    T given = this->at(outputGradient, b, h, i, e), v = this->at(this->value, b, kh, j, e);
    w += given * v;
    wTangent += this->at(outputGradientTangent, b, h, i, e) * v +
                given * this->at(this->valueTangent, b, kh, j, e);
  }
  T p = row.weight[j], times = row.factor[j];
  T pTangent = p * (row.afterTangent[j] - this->ofRow(lseTangent, row));
  T dt = p * (times * w - delta), ds, dsTangent;
  T dtTangent = pTangent * (times * w - delta) + p * (times * wTangent - deltaTangent);
  if (!differentiate(row, j, dt, dtTangent, ds, dsTangent, fault))
    return false;
  int64_t ofKey = (b * this->keyHeads + kh) * this->keys + j;
  for (int64_t d = 0; d < this->depth; ++d) {
    queries[row.position * this->depth + d] += (dsTangent * this->at(this->key, b, kh, j, d) +
                                                ds * this->at(this->keyTangent, b, kh, j, d)) *
                                               this->scale;
    keyRows[ofKey * this->depth + d] += (dsTangent * this->at(this->query, b, h, i, d) +
                                         ds * this->at(this->queryTangent, b, h, i, d)) *
                                        this->scale;
  }
  for (int64_t e = 0; e < this->valueDepth; ++e)
    values[ofKey * this->valueDepth + e] +=
        times * (pTangent * this->at(outputGradient, b, h, i, e) +
                 p * this->at(outputGradientTangent, b, h, i, e));
  return true;
}

template <typename T> bool BackwardJvp<T>::addRow(Row &row, Fault &fault) {
  if (!row.lives)
    return true;
  int64_t leading[] = {row.b, row.h, row.i};
  if (!startRow(gradient, slots, 1, leading, fault))
    return false;
  T delta = -this->ofRow(lseGradient, row), deltaTangent = -this->ofRow(lseGradientTangent, row);
  for (int64_t e = 0; e < this->valueDepth; ++e) {
    if (!row.hasKeys)
      break; // O is 0, whatever dO is
    T given = this->at(outputGradient, row.b, row.h, row.i, e);
    T o = this->at(this->output, row.b, row.h, row.i, e);
    delta += given * o;
    deltaTangent += this->at(outputGradientTangent, row.b, row.h, row.i, e) * o +
                    given * this->at(outputTangent, row.b, row.h, row.i, e);
  }
  for (int64_t j : this->keyOrder)
    if (row.state.keep[j] && !addPair(row, j, delta, deltaTangent, fault))
      return false;
  if (this->sink) {
    T ofSink = this->sinkTangent ? T(this->sinkTangent->floats[row.h]) : T(0);
    sinks[row.h] -=
        row.sinkWeight * ((ofSink - this->ofRow(lseTangent, row)) * delta + deltaTangent);
  }
  sums.finishRow();
  return true;
}

template <typename T> llvm::Expected<std::vector<RefTensorPtr>> BackwardJvp<T>::run() {
  if (llvm::Error error = this->checkShapes({{this->output, outputGradient},
                                             {this->output, outputTangent},
                                             {this->output, outputGradientTangent},
                                             {this->lse, lseTangent},
                                             {this->lse, lseGradient},
                                             {this->lse, lseGradientTangent}}))
    return std::move(error);
  if (llvm::Error error = this->createRegions())
    return std::move(error);
  auto created = this->create(this->op.getGradient(), {true, false, false, false, true},
                              /*hasTangents=*/true, /*trailing=*/3);
  if (!created)
    return created.takeError();
  gradient = std::move(*created);
  slots = gradient.makeSlots();
  queries.resize(this->query->floats.size());
  keyRows.resize(this->key->floats.size());
  values.resize(this->value->floats.size());
  sinks.resize(this->heads);
  if (llvm::Error error =
          this->forEachRow([&](Row &row, Fault &fault) { return addRow(row, fault); }))
    return std::move(error);
  std::vector<RefTensorPtr> results = {this->makeResult(this->query, queries),
                                       this->makeResult(this->key, keyRows),
                                       this->makeResult(this->value, values)};
  if (this->op.getSinkGradient())
    results.push_back(this->makeResult(this->sink, sinks));
  sums.appendTo(results, this->precision);
  return results;
}

//===----------------------------------------------------------------------===//
// By type
//===----------------------------------------------------------------------===//

template <template <typename> typename Class, typename OpTy>
static llvm::Expected<std::vector<RefTensorPtr>> evaluate(OpTy op, Lookup lookup,
                                                          Precision precision, unsigned order) {
  bool wide = op.getQuery().getType().getElementType().isF64();
  if (precision == Precision::SameType)
    return wide ? Class<double>(op, lookup, precision, order).run()
                : Class<float>(op, lookup, precision, order).run();
  return wide ? Class<long double>(op, lookup, precision, order).run()
              : Class<double>(op, lookup, precision, order).run();
}

llvm::Expected<std::vector<RefTensorPtr>> attn::evaluateJvp(JvpOp op, Lookup lookup,
                                                            Precision precision, unsigned order) {
  return evaluate<Jvp>(op, lookup, precision, order);
}

llvm::Expected<std::vector<RefTensorPtr>>
attn::evaluateBackwardJvp(BackwardJvpOp op, Lookup lookup, Precision precision, unsigned order) {
  return evaluate<BackwardJvp>(op, lookup, precision, order);
}
