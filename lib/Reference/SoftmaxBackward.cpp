// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn.softmax_backward, row by row from the formulas in its description.

#include "ScoreGradient.h"

using namespace mlir;
using namespace attn;

namespace {
template <typename T> class SoftmaxBackward {
public:
  SoftmaxBackward(SoftmaxBackwardOp op, Lookup lookup, Precision precision)
      : op(op), lookup(lookup), precision(precision), input(lookup(op.getInput())),
        output(lookup(op.getOutput())), outputGradient(lookup(op.getOutputGradient())),
        captureSums(op.getCaptures(), lookup) {}

  llvm::Expected<std::vector<RefTensorPtr>> run();

private:
  llvm::Error createRegions();
  bool computeRow(int64_t row, Fault &fault);

  SoftmaxBackwardOp op;
  Lookup lookup;
  Precision precision;
  RefTensorPtr input, output, outputGradient;
  std::shared_ptr<RefTensor> inputGradient;
  ScalarRegion mask;
  ScoreGradient<T> gradient;
  CaptureSums<T> captureSums;
};
} // namespace

template <typename T> llvm::Error SoftmaxBackward<T>::createRegions() {
  unsigned rank = input->shape.size();
  SmallVector<bool> varying(rank, false);
  varying.back() = true;
  auto maskOr = ScalarRegion::create(op.getMask(), varying, op.getCaptures(), lookup, precision);
  if (!maskOr)
    return maskOr.takeError();
  auto gradientOr = ScoreGradient<T>::create(op.getScore(), op.getGradient(), rank,
                                             op.getCaptures(), lookup, precision);
  if (!gradientOr)
    return gradientOr.takeError();
  mask = std::move(*maskOr);
  gradient = std::move(*gradientOr);
  return llvm::Error::success();
}

template <typename T> bool SoftmaxBackward<T>::computeRow(int64_t row, Fault &fault) {
  int64_t length = input->shape.back(), first = row * length;
  SmallVector<int64_t, 4> leading = leadingIndices(row, input->shape);
  RowState state{{}, mask.makeSlots(), {}, {}};
  auto gradientState = gradient.makeState();
  if (!startRow(mask, state.mask, 0, leading, fault) ||
      !gradient.startRow(gradientState, leading, fault) ||
      !fillMask(mask, state, leading.size(), length, fault))
    return false;
  T sum = T(0);
  for (int64_t j = 0; j < length; ++j)
    if (state.keep[j])
      sum += T(outputGradient->floats[first + j]) * T(output->floats[first + j]);
  for (int64_t j = 0; j < length; ++j) {
    if (!state.keep[j])
      continue;
    T after = T(output->floats[first + j]) * (T(outputGradient->floats[first + j]) - sum);
    T before;
    if (!gradient.runPoint(gradientState, T(input->floats[first + j]), j, after, before,
                           captureSums, fault))
      return false;
    inputGradient->floats[first + j] = precision == Precision::SameType
                                           ? roundTo(inputGradient->kind, double(before))
                                           : double(before);
  }
  gradient.finishRow(gradientState, captureSums);
  return true;
}

template <typename T> llvm::Expected<std::vector<RefTensorPtr>> SoftmaxBackward<T>::run() {
  if (input->shape != output->shape || input->shape != outputGradient->shape)
    return makeError(op, "expected tensors of one shape, got " +
                             formatShape(outputGradient->shape) + ", " + formatShape(input->shape) +
                             " and " + formatShape(output->shape));
  if (llvm::Error error = createRegions())
    return std::move(error);
  inputGradient = std::make_shared<RefTensor>(input->kind, input->shape);
  int64_t length = input->shape.back();
  for (int64_t row = 0, e = length ? input->size() / length : 0; row < e; ++row) {
    Fault fault;
    if (!computeRow(row, fault))
      return makeError(fault.op, fault.message);
  }
  std::vector<RefTensorPtr> results = {inputGradient};
  captureSums.appendTo(results, precision);
  return results;
}

llvm::Expected<std::vector<RefTensorPtr>>
attn::evaluateSoftmaxBackward(SoftmaxBackwardOp op, Lookup lookup, Precision precision) {
  bool wide = op.getInput().getType().getElementType().isF64();
  if (precision == Precision::SameType)
    return wide ? SoftmaxBackward<double>(op, lookup, precision).run()
                : SoftmaxBackward<float>(op, lookup, precision).run();
  return wide ? SoftmaxBackward<long double>(op, lookup, precision).run()
              : SoftmaxBackward<double>(op, lookup, precision).run();
}
