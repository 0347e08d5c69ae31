// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Running on the host's CPU.

#include "Compile.h"
#include "Target.h"
#include "attn/Runtime/ThreadPool.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

namespace {
class CpuCall : public Call {
public:
  static Expected<std::unique_ptr<Call>>
  prepare(CpuExecutable &executable, FuncOp function, ArrayRef<Operand> arguments,
          ArrayRef<ValueType> types, ArrayRef<ShapeRules::Shape> shapes, const Options &options);

  Error run() override {
    function(slots.data());
    storeScalars();
    return Error::success();
  }

  Expected<std::vector<double>> time(unsigned repetitions) override {
    std::vector<double> times;
    for (unsigned repetition = 0; repetition < repetitions; ++repetition) {
      double start = now();
      function(slots.data());
      times.push_back(now() - start);
    }
    return times;
  }

private:
  explicit CpuCall(size_t count) : slots(count) {}
  void bind(ArrayRef<Operand> arguments);
  /// Moves scalar results to their tensors.
  void storeScalars();

  CpuExecutable::Packed function = nullptr;
  Slots slots;
  /// Scalar results, laid out as a C struct.
  std::vector<int64_t> scalars;
};

class CpuTarget : public Target {
public:
  Error compile(mlir::ModuleOp module, ArrayRef<FuncOp> entries, const Options &options,
                const Diagnostics &diagnostics, Report &report) override {
    auto compiled = compileFunctions(module, entries, options, diagnostics, report);
    if (!compiled)
      return compiled.takeError();
    executable = std::move(*compiled);
    return Error::success();
  }

  Expected<std::unique_ptr<Call>> prepare(FuncOp function, ArrayRef<Operand> arguments,
                                          const Options &options) override {
    auto types = getValueTypes(function.getResultTypes(), "result");
    if (!types)
      return types.takeError();
    auto shapeFunction = executable->lookupPacked((function.getName() + "_shape").str());
    if (!shapeFunction) // a function without tensor results has none
      consumeError(shapeFunction.takeError());
    auto shapes = computeResultShapes(shapeFunction ? *shapeFunction : nullptr,
                                      /*withContext=*/false, function, arguments);
    if (!shapes)
      return shapes.takeError();
    return CpuCall::prepare(*executable, function, arguments, *types, *shapes, options);
  }

  Expected<std::unique_ptr<Call>> prepareInto(FuncOp function, ArrayRef<Operand> arguments,
                                              ArrayRef<ValueType> types,
                                              ArrayRef<ShapeRules::Shape> shapes,
                                              const Options &options) override {
    return CpuCall::prepare(*executable, function, arguments, types, shapes, options);
  }

private:
  std::unique_ptr<CpuExecutable> executable;
};
} // namespace

/// Where the scalar results lie in a C struct.
static SmallVector<size_t> layOut(ArrayRef<ValueType> types) {
  SmallVector<size_t> offsets;
  size_t end = 0;
  for (ValueType type : types) {
    if (type.isTensor) {
      offsets.push_back(0);
      continue;
    }
    size_t size = elementSize(type.kind);
    end = alignTo(end, size);
    offsets.push_back(end);
    end += size;
  }
  offsets.push_back(end);
  return offsets;
}

void CpuCall::bind(ArrayRef<Operand> arguments) {
  SmallVector<size_t> offsets = layOut(types);
  scalars.assign(divideCeil(offsets.back(), 8) + 1, 0);
  size_t numScalars = count_if(types, [](ValueType type) { return !type.isTensor; });
  // Several scalar results are a struct in front of the arguments.
  if (numScalars > 1)
    slots.addPointer(scalars.data());
  for (const Operand &argument : arguments)
    slots.addOperand(argument);
  for (auto [type, result] : zip(types, results))
    if (type.isTensor)
      slots.addTensor(result.getDescriptor());
  if (numScalars == 1)
    slots.addScalar(scalars.data());
}

void CpuCall::storeScalars() {
  SmallVector<size_t> offsets = layOut(types);
  for (auto [index, type] : enumerate(types))
    if (!type.isTensor)
      std::memcpy(results[index].getBase(),
                  reinterpret_cast<char *>(scalars.data()) + offsets[index],
                  elementSize(type.kind));
}

Expected<std::unique_ptr<Call>> CpuCall::prepare(CpuExecutable &executable, FuncOp function,
                                                 ArrayRef<Operand> arguments,
                                                 ArrayRef<ValueType> types,
                                                 ArrayRef<ShapeRules::Shape> shapes,
                                                 const Options &options) {
  std::unique_ptr<CpuCall> call(new CpuCall(arguments.size() + types.size() + 1));
  auto packed = executable.lookupPacked(function.getName());
  if (!packed)
    return packed.takeError();
  call->function = *packed;
  if (Error error = call->createResults(types, shapes, options.guard))
    return std::move(error);
  call->bind(arguments);
  return call;
}

std::unique_ptr<Target> attn::createCpuTarget() { return std::make_unique<CpuTarget>(); }
