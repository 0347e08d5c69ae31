// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Running in this process, on tensors of its memory.

#include "Compile.h"
#include "Executor.h"
#include "attn/Compiler/Compiler.h"
#include "attn/Pipelines/Pipelines.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

namespace {
class HostCall : public Call {
public:
  static Expected<std::unique_ptr<Call>>
  prepare(const target::Function &function, ArrayRef<Operand> arguments, ArrayRef<ValueType> types,
          ArrayRef<ShapeRules::Shape> shapes, const Options &options);

  Error run() override {
    if (Error error = function.run(slots.data(), {}))
      return error;
    storeScalars();
    return Error::success();
  }

  Expected<std::vector<double>> time(unsigned repetitions) override {
    std::vector<double> times;
    for (unsigned repetition = 0; repetition < repetitions; ++repetition) {
      double start = now();
      if (Error error = function.run(slots.data(), {}))
        return std::move(error);
      times.push_back(now() - start);
    }
    return times;
  }

private:
  HostCall(const target::Function &function, size_t count) : function(function), slots(count) {}
  void bind(ArrayRef<Operand> arguments);
  /// Moves scalar results to their tensors.
  void storeScalars();

  const target::Function &function;
  Slots slots;
  /// Scalar results, laid out as a C struct.
  std::vector<int64_t> scalars;
};

class HostExecutor : public Executor {
public:
  explicit HostExecutor(const target::Target &target) : target(target) {}

  Error compile(mlir::ModuleOp module, ArrayRef<FuncOp> entries, const Options &options,
                const Diagnostics &diagnostics, Report &report) override;

  Expected<std::unique_ptr<Call>> prepare(FuncOp function, ArrayRef<Operand> arguments,
                                          const Options &options) override {
    auto types = getValueTypes(function.getResultTypes(), "result");
    if (!types)
      return types.takeError();
    auto shapes = computeResultShapes(*functions[function.getName()], function, arguments);
    if (!shapes)
      return shapes.takeError();
    return prepareInto(function, arguments, *types, *shapes, options);
  }

  Expected<std::unique_ptr<Call>> prepareInto(FuncOp function, ArrayRef<Operand> arguments,
                                              ArrayRef<ValueType> types,
                                              ArrayRef<ShapeRules::Shape> shapes,
                                              const Options &options) override {
    return HostCall::prepare(*functions[function.getName()], arguments, types, shapes, options);
  }

private:
  const target::Target &target;
  std::unique_ptr<target::LoadedProgram> program;
  StringMap<std::unique_ptr<target::Function>> functions; // of the program
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

void HostCall::bind(ArrayRef<Operand> arguments) {
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

void HostCall::storeScalars() {
  SmallVector<size_t> offsets = layOut(types);
  for (auto [index, type] : enumerate(types))
    if (!type.isTensor)
      std::memcpy(results[index].getBase(),
                  reinterpret_cast<char *>(scalars.data()) + offsets[index],
                  elementSize(type.kind));
}

Expected<std::unique_ptr<Call>> HostCall::prepare(const target::Function &function,
                                                  ArrayRef<Operand> arguments,
                                                  ArrayRef<ValueType> types,
                                                  ArrayRef<ShapeRules::Shape> shapes,
                                                  const Options &options) {
  std::unique_ptr<HostCall> call(new HostCall(function, arguments.size() + types.size() + 1));
  if (Error error = call->createResults(types, shapes, options.guard))
    return std::move(error);
  call->bind(arguments);
  return call;
}

Error HostExecutor::compile(mlir::ModuleOp module, ArrayRef<FuncOp> entries, const Options &options,
                            const Diagnostics &diagnostics, Report &report) {
  // Only what is called is compiled.
  mlir::OwningOpRef<mlir::ModuleOp> copy = cloneWithEntries(module, entries);
  PipelineOptions pipeline;
  setPipelineOptions(pipeline, options);
  if (Error error = target.fitDevice(pipeline))
    return error;
  target::CodeOptions code;
  code.optLevel = options.optLevel;
  code.printLLVM = options.printLLVM;
  target::CompileTimes times;
  // Without the cache: what is only loaded says nothing about how it was made.
  auto compiled =
      compileProgram(target, *copy, pipeline, code, DiskCache(), times, configurePassManager);
  if (!compiled) {
    std::string reason = toString(compiled.takeError());
    return diagnostics.failure(reason);
  }
  double start = now();
  auto loaded = target.load(std::move(*compiled), DiskCache(), times);
  if (!loaded)
    return loaded.takeError();
  program = std::move(*loaded);
  // Looking one up links all.
  for (FuncOp entry : entries) {
    auto function = program->lookup(entry.getName(), hasShapeFunction(entry));
    if (!function)
      return function.takeError();
    functions[entry.getName()] = std::move(*function);
  }
  report.passes += times.passes;
  report.codegen = times.host;
  report.codegen.codegen += now() - start;
  auto device = target.describeDevice();
  if (!device)
    return device.takeError();
  report.cpu = std::move(*device);
  return Error::success();
}

std::unique_ptr<Executor> attn::createHostExecutor(const target::Target &target) {
  return std::make_unique<HostExecutor>(target);
}

Expected<std::unique_ptr<Executor>> attn::createExecutor(const target::Target &target,
                                                         const Options &options) {
  switch (target.getDescription().memory) {
  case target::Memory::Host:
    return createHostExecutor(target);
  case target::Memory::Cuda:
    return createCudaExecutor(target, options);
  }
  llvm_unreachable("all kinds of memory have an executor");
}
