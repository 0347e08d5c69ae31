// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Comparing with the reference. See Check.h.

#include "Check.h"

using namespace llvm;
using namespace attn;

using RefTensors = std::vector<RefTensorPtr>;

/// Captures are small next to queries and keys, except for biases of every
/// pair; those are read at plain indices and need not be looked at.
Error attn::checkReads(mlir::func::FuncOp entry, ArrayRef<Operand> arguments) {
  RefTensors inputs;
  for (const Operand &argument : arguments) {
    const HostTensor &value = *argument.value;
    auto shape = std::make_shared<RefTensor>();
    shape->kind = value.getKind();
    shape->shape.assign(value.getShape().begin(), value.getShape().end());
    if (attn::isFloat(value.getKind()))
      inputs.push_back(shape);
    else
      inputs.push_back(std::make_shared<RefTensor>(RefTensor::from(value)));
  }
  return checkCaptureReads(entry, inputs);
}

namespace {
/// What the reference makes of the entry and its gradient.
struct Evaluation {
  RefTensors results, gradients;
};
} // namespace

static Expected<Evaluation> evaluateBoth(mlir::func::FuncOp entry, const RefTensors &inputs,
                                         const GradientCall *gradient, const RefTensors &incoming,
                                         Precision precision, unsigned order) {
  Evaluation evaluation;
  auto results = evaluate(entry, inputs, precision, order);
  if (!results)
    return results.takeError();
  evaluation.results = std::move(*results);
  if (!gradient)
    return evaluation;
  RefTensors arguments = inputs;
  if (gradient->saved)
    for (unsigned position : gradient->positions)
      arguments.push_back(evaluation.results[position]);
  append_range(arguments, incoming);
  auto gradients = evaluate(gradient->function, arguments, precision, order);
  if (!gradients)
    return gradients.takeError();
  evaluation.gradients = std::move(*gradients);
  return evaluation;
}

/// Compares each result of a call with its exact value and all baselines'.
static void compareAll(const Call &call, const RefTensors &exact, ArrayRef<Evaluation> baselines,
                       RefTensors Evaluation::*which, std::vector<Agreement> &agreements) {
  for (unsigned index = 0; index < exact.size(); ++index) {
    RefTensors ofResult;
    for (const Evaluation &baseline : baselines)
      ofResult.push_back((baseline.*which)[index]);
    agreements.push_back(compare(RefTensor::from(call.getResult(index)), *exact[index], ofResult));
  }
}

Error attn::checkResults(mlir::func::FuncOp entry, ArrayRef<Operand> arguments, const Call &call,
                         const GradientCall *gradient, std::vector<Agreement> &results,
                         std::vector<Agreement> &gradients) {
  auto toRef = [](const HostTensor &tensor) {
    return std::make_shared<RefTensor>(RefTensor::from(tensor));
  };
  RefTensors inputs, incoming;
  for (const Operand &argument : arguments)
    inputs.push_back(toRef(*argument.value));
  if (gradient)
    for (const HostTensor &tensor : gradient->incoming)
      incoming.push_back(toRef(tensor));
  auto exact = evaluateBoth(entry, inputs, gradient, incoming, Precision::Exact, 0);
  if (!exact)
    return exact.takeError();
  unsigned count = std::max(countBaselines(exact->results), countBaselines(exact->gradients));
  std::vector<Evaluation> baselines;
  for (unsigned order = 0; order < count; ++order) {
    auto baseline = evaluateBoth(entry, inputs, gradient, incoming, Precision::SameType, order);
    if (!baseline)
      return baseline.takeError();
    baselines.push_back(std::move(*baseline));
  }
  compareAll(call, exact->results, baselines, &Evaluation::results, results);
  if (gradient)
    compareAll(gradient->call, exact->gradients, baselines, &Evaluation::gradients, gradients);
  return Error::success();
}
