// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The acceptance rule: errors against double precision, measured in those of a
// naive computation in the result's own precision. See Reference.h. The rule is
// FlashAttention-3's for the maximum and FlashAttention's for the mean.

#include "attn/Reference/Reference.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

using namespace llvm;
using namespace attn;

namespace {
struct Errors {
  double largest = 0, sum = 0;
  int64_t count = 0;
  int64_t bad = -1; // first element whose infinity or NaN differs
  void add(double got, double exact, int64_t position) {
    ++count;
    if (std::isnan(exact) || std::isinf(exact) || !std::isfinite(got)) {
      bool same = (std::isnan(got) && std::isnan(exact)) || got == exact;
      if (!same && bad < 0)
        bad = position;
      return;
    }
    double error = std::fabs(got - exact);
    largest = std::max(largest, error);
    sum += error;
  }
  double mean() const { return count ? sum / double(count) : 0; }
};
} // namespace

static std::string position(ArrayRef<int64_t> shape, int64_t linear) {
  SmallVector<int64_t> index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0; linear /= shape[dim])
    index[dim] = linear % shape[dim];
  std::string text = "[";
  for (auto [dim, value] : enumerate(index))
    text += (dim ? ", " : "") + std::to_string(value);
  return text + "]";
}

static std::string number(double value) {
  std::string text;
  raw_string_ostream(text) << format("%.4g", value);
  return text;
}

unsigned attn::countBaselines(ArrayRef<RefTensorPtr> exact) {
  bool few = any_of(exact, [](const RefTensorPtr &result) {
    return isFloat(result->kind) && result->size() > 0 && result->size() < 256;
  });
  return few ? 8 : 1;
}

Agreement attn::compare(const RefTensor &result, const RefTensor &exact,
                        ArrayRef<RefTensorPtr> baselines) {
  Agreement agreement;
  if (ArrayRef<int64_t>(result.shape) != ArrayRef<int64_t>(exact.shape)) {
    agreement.reason =
        "expected shape " + formatShape(exact.shape) + ", got " + formatShape(result.shape);
    return agreement;
  }
  if (!isFloat(result.kind)) {
    for (int64_t i = 0; i < result.size(); ++i)
      if (result.integers[i] != exact.integers[i]) {
        agreement.reason = "expected " + std::to_string(exact.integers[i]) + " at " +
                           position(exact.shape, i) + ", got " + std::to_string(result.integers[i]);
        return agreement;
      }
    agreement.passed = true;
    return agreement;
  }
  Errors errors, baselineErrors;
  double rounding = 0, roundingSum = 0;
  for (int64_t i = 0; i < result.size(); ++i) {
    double value = exact.floats[i];
    errors.add(result.floats[i], value, i);
    for (const RefTensorPtr &baseline : baselines)
      baselineErrors.add(baseline->floats[i], value, i);
    if (!std::isfinite(value))
      continue;
    // What adding and taking away 0.3 does to the value in the result's type.
    double x = roundTo(result.kind, value);
    double moved = roundTo(result.kind, roundTo(result.kind, x + 0.3) - 0.3);
    double step = std::fabs(moved - x);
    if (std::isfinite(step)) {
      rounding = std::max(rounding, step);
      roundingSum += step;
    }
  }
  agreement.maxError = errors.largest;
  agreement.meanError = errors.mean();
  agreement.baselineMaxError = baselineErrors.largest;
  agreement.baselineMeanError = baselineErrors.mean();
  agreement.maxAllowed = 2 * baselineErrors.largest + 2 * rounding;
  agreement.meanAllowed =
      1.5 * baselineErrors.mean() + (errors.count ? roundingSum / double(errors.count) : 0);
  if (errors.bad >= 0)
    agreement.reason = "expected " + number(exact.floats[errors.bad]) + " at " +
                       position(exact.shape, errors.bad) + ", got " +
                       number(result.floats[errors.bad]);
  else if (!(agreement.maxError <= agreement.maxAllowed))
    agreement.reason = "expected errors of at most " + number(agreement.maxAllowed) + ", got " +
                       number(agreement.maxError);
  else if (errors.count >= 16 && !(agreement.meanError <= agreement.meanAllowed))
    agreement.reason = "expected a mean error of at most " + number(agreement.meanAllowed) +
                       ", got " + number(agreement.meanError);
  agreement.passed = agreement.reason.empty();
  return agreement;
}
