// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Structured ops, point by point. See Linalg.h.

#include "Linalg.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"

using namespace mlir;
using namespace attn;

namespace {
/// One operand: where its element lies at each point of the loops.
struct Access {
  RefTensorPtr tensor;
  RefTensor *output = nullptr; // the same, where it is written
  std::optional<unsigned> slot;
  SmallVector<int64_t> steps; // per loop
  int64_t start = 0;
};

class StructuredOp {
public:
  StructuredOp(linalg::LinalgOp op, Lookup lookup, Precision precision)
      : op(op), lookup(lookup), precision(precision) {}

  llvm::Expected<std::vector<RefTensorPtr>> run(const ScalarProgram::Environment &environment);

private:
  llvm::Error findBounds();
  llvm::Error addAccess(OpOperand &operand, std::shared_ptr<RefTensor> output);
  llvm::Error runLoops(const ScalarProgram &program);

  linalg::LinalgOp op;
  Lookup lookup;
  Precision precision;
  SmallVector<int64_t> bounds;
  SmallVector<Access> accesses;
};
} // namespace

/// `expr` as a sum of loop indices times factors, plus a constant.
static bool linearize(AffineExpr expr, int64_t factor, MutableArrayRef<int64_t> steps,
                      int64_t &start) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    start += factor * constant.getValue();
    return true;
  }
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    steps[dim.getPosition()] += factor;
    return true;
  }
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return false;
  if (expr.getKind() == AffineExprKind::Add)
    return linearize(binary.getLHS(), factor, steps, start) &&
           linearize(binary.getRHS(), factor, steps, start);
  if (expr.getKind() != AffineExprKind::Mul)
    return false;
  auto constant = dyn_cast<AffineConstantExpr>(binary.getRHS());
  return constant && linearize(binary.getLHS(), factor * constant.getValue(), steps, start);
}

llvm::Error StructuredOp::findBounds() {
  bounds.assign(op.getNumLoops(), -1);
  for (OpOperand &operand : op->getOpOperands()) {
    RefTensorPtr tensor = lookup(operand.get());
    for (auto [dim, expr] : llvm::enumerate(op.getMatchingIndexingMap(&operand).getResults())) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      if (!loop)
        continue;
      int64_t &bound = bounds[loop.getPosition()];
      if (bound >= 0 && bound != tensor->shape[dim])
        return makeError(op, "expected operands that agree in size, got " + llvm::Twine(bound) +
                                 " and " + llvm::Twine(tensor->shape[dim]));
      bound = tensor->shape[dim];
    }
  }
  if (llvm::is_contained(bounds, -1))
    return makeError(op, "has a loop whose size no operand gives");
  return llvm::Error::success();
}

llvm::Error StructuredOp::addAccess(OpOperand &operand, std::shared_ptr<RefTensor> output) {
  Access access;
  access.tensor = output ? output : lookup(operand.get());
  access.output = output.get();
  access.steps.assign(bounds.size(), 0);
  int64_t stride = 1;
  AffineMap map = op.getMatchingIndexingMap(&operand);
  for (unsigned dim = map.getNumResults(); dim-- > 0;) {
    SmallVector<int64_t> steps(bounds.size(), 0);
    int64_t first = 0;
    if (!linearize(map.getResult(dim), 1, steps, first))
      return makeError(op, "is not interpreted by the reference: its indexing maps are "
                           "not linear");
    int64_t low = first, high = first;
    for (auto [loop, step] : llvm::enumerate(steps)) {
      (step < 0 ? low : high) += step * (bounds[loop] - 1);
      access.steps[loop] += step * stride;
    }
    bool runs = !llvm::is_contained(bounds, 0);
    if (runs && (low < 0 || high >= access.tensor->shape[dim]))
      return makeError(op, "reads outside of a tensor of " + formatShape(access.tensor->shape));
    access.start += first * stride;
    stride *= access.tensor->shape[dim];
  }
  accesses.push_back(access);
  return llvm::Error::success();
}

llvm::Error StructuredOp::runLoops(const ScalarProgram &program) {
  if (llvm::is_contained(bounds, 0))
    return llvm::Error::success();
  unsigned numInputs = op.getNumDpsInputs();
  std::vector<Slot> slots = program.makeSlots();
  SmallVector<int64_t> index(bounds.size(), 0), positions;
  for (Access &access : accesses)
    positions.push_back(access.start);
  Fault fault;
  while (true) {
    for (auto [number, access] : llvm::enumerate(accesses)) {
      Slot &slot = slots[program.argument(number)];
      if (isFloat(access.tensor->kind))
        slot.f = access.tensor->floats[positions[number]];
      else
        slot.i = access.tensor->integers[positions[number]];
    }
    for (auto [loop, value] : llvm::enumerate(index))
      slots[program.extra(loop)].i = value;
    if (!program.runRow(slots.data(), fault) || !program.runPoint(slots.data(), fault))
      return makeError(fault.op, fault.message);
    for (unsigned number = numInputs; number < accesses.size(); ++number) {
      Access &access = accesses[number];
      const Slot &slot = slots[program.result(number - numInputs)];
      if (isFloat(access.output->kind))
        access.output->floats[positions[number]] = slot.f;
      else
        access.output->integers[positions[number]] = slot.i;
    }
    int64_t loop = int64_t(bounds.size()) - 1;
    for (; loop >= 0; --loop) {
      for (auto [number, access] : llvm::enumerate(accesses))
        positions[number] += access.steps[loop];
      if (++index[loop] < bounds[loop])
        break;
      for (auto [number, access] : llvm::enumerate(accesses))
        positions[number] -= access.steps[loop] * bounds[loop];
      index[loop] = 0;
    }
    if (loop < 0)
      return llvm::Error::success();
  }
}

llvm::Expected<std::vector<RefTensorPtr>>
StructuredOp::run(const ScalarProgram::Environment &environment) {
  if (!op.hasPureTensorSemantics())
    return makeError(op, "is not interpreted by the reference on memrefs");
  if (llvm::Error error = findBounds())
    return std::move(error);
  std::vector<RefTensorPtr> results;
  for (OpOperand &operand : op->getOpOperands()) {
    std::shared_ptr<RefTensor> output;
    if (op.isDpsInit(&operand)) {
      output = std::make_shared<RefTensor>(*lookup(operand.get()));
      results.push_back(output);
    }
    if (llvm::Error error = addAccess(operand, output))
      return std::move(error);
  }
  Block *body = op.getBlock();
  SmallVector<bool> varying(body->getNumArguments(), true);
  auto program = ScalarProgram::compile(*body, varying, precision, environment, bounds.size());
  if (!program)
    return makeError(op, llvm::toString(program.takeError()));
  if (llvm::Error error = runLoops(*program))
    return std::move(error);
  return results;
}

llvm::Expected<std::vector<RefTensorPtr>>
attn::evaluateLinalg(linalg::LinalgOp op, Lookup lookup,
                     const ScalarProgram::Environment &environment, Precision precision) {
  return StructuredOp(op, lookup, precision).run(environment);
}

llvm::Expected<std::vector<RefTensorPtr>>
attn::evaluateNamedSoftmax(linalg::SoftmaxOp op, Lookup lookup, Precision precision) {
  if (op->getNumResults() != 1)
    return makeError(op, "is not interpreted by the reference on memrefs");
  RefTensorPtr input = lookup(op.getInput());
  auto output = std::make_shared<RefTensor>(input->kind, input->shape);
  auto round = [&](double value) {
    return precision == Precision::SameType ? roundTo(input->kind, value) : value;
  };
  int64_t length = input->shape[op.getDimension()], stride = 1;
  for (int64_t size : ArrayRef(input->shape).drop_front(op.getDimension() + 1))
    stride *= size;
  for (int64_t start = 0, end = length ? input->size() : 0; start < end;
       start += (start + 1) % stride ? 1 : 1 + stride * (length - 1)) {
    double maximum = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t j = 0; j < length; ++j)
      maximum = std::max(maximum, input->floats[start + j * stride]);
    for (int64_t j = 0; j < length; ++j) {
      double &element = output->floats[start + j * stride];
      element = round(std::exp(round(input->floats[start + j * stride] - maximum)));
      total = round(total + element);
    }
    for (int64_t j = 0; j < length; ++j)
      output->floats[start + j * stride] = round(output->floats[start + j * stride] / total);
  }
  return std::vector<RefTensorPtr>{output};
}
