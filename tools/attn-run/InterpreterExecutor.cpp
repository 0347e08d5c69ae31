// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Running hopper programs in the interpreter, in several interleavings.

#include "Compile.h"
#include "Executor.h"
#include "attn/Interpreter/Interpreter.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Target/SM90/SM90.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include <cstring>

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

using Bytes = std::vector<char>;

static Bytes save(const HostTensor &tensor) {
  Bytes bytes;
  tensor.forEachRow([&](char *row, int64_t length) {
    bytes.insert(bytes.end(), row, row + length * elementSize(tensor.getKind()));
  });
  return bytes;
}

static void restore(const HostTensor &tensor, const Bytes &bytes) {
  const char *from = bytes.data();
  tensor.forEachRow([&](char *row, int64_t length) {
    size_t size = size_t(length) * elementSize(tensor.getKind());
    std::memcpy(row, from, size);
    from += size;
  });
}

namespace {
class InterpreterCall : public Call {
public:
  InterpreterCall(Interpreter &interpreter, ArrayRef<InterpreterOptions> interleavings,
                  const Diagnostics &diagnostics, Report &report)
      : interpreter(interpreter), interleavings(interleavings), diagnostics(diagnostics),
        report(report) {}

  /// Results after the arguments, or, where there are no types, the arguments
  /// themselves.
  Error bind(ArrayRef<Operand> arguments, ArrayRef<ValueType> resultTypes,
             ArrayRef<ShapeRules::Shape> shapes, const Options &options);

  /// All interleavings must leave the same bits.
  Error run() override;
  Expected<std::vector<double>> time(unsigned) override {
    return createStringError("--bench is not for --target=interpreter");
  }

private:
  Error compareResults(const InterpreterOptions &interleaving, std::vector<Bytes> &first);

  Interpreter &interpreter;
  ArrayRef<InterpreterOptions> interleavings;
  const Diagnostics &diagnostics;
  Report &report;
  SmallVector<const HostTensor *> tensors;
};

class InterpreterExecutor : public Executor {
public:
  explicit InterpreterExecutor(std::vector<InterpreterOptions> interleavings)
      : interleavings(std::move(interleavings)) {}

  Error compile(mlir::ModuleOp module, ArrayRef<FuncOp> entries, const Options &options,
                const Diagnostics &diagnostics, Report &report) override;
  Expected<std::unique_ptr<Call>> prepare(FuncOp function, ArrayRef<Operand> arguments,
                                          const Options &options) override;
  Expected<std::unique_ptr<Call>> prepareInto(FuncOp function, ArrayRef<Operand> arguments,
                                              ArrayRef<ValueType> types,
                                              ArrayRef<ShapeRules::Shape> shapes,
                                              const Options &options) override;

private:
  std::vector<InterpreterOptions> interleavings;
  mlir::OwningOpRef<mlir::ModuleOp> program;
  StringMap<Interpreter> interpreters;
  const Diagnostics *diagnostics = nullptr;
  Report *report = nullptr;
};
} // namespace

Error InterpreterCall::bind(ArrayRef<Operand> arguments, ArrayRef<ValueType> resultTypes,
                            ArrayRef<ShapeRules::Shape> shapes, const Options &options) {
  if (!resultTypes.empty()) {
    for (const Operand &argument : arguments)
      tensors.push_back(argument.value);
    if (Error error = createResults(resultTypes, shapes, options.guard))
      return error;
  } else if (Error error = copyArguments(arguments, options.stridePad, options.guard)) {
    return error;
  }
  for (const HostTensor &result : results)
    tensors.push_back(&result);
  return Error::success();
}

Error InterpreterCall::compareResults(const InterpreterOptions &interleaving,
                                      std::vector<Bytes> &first) {
  for (auto [index, tensor] : enumerate(results)) {
    Bytes bytes = save(tensor);
    if (first.size() <= index)
      first.push_back(std::move(bytes));
    else if (first[index] != bytes)
      return createStringError("result " + Twine(index) +
                               " depends on the interleaving: " + describe(interleavings.front()) +
                               " and " + describe(interleaving) + " differ");
  }
  return Error::success();
}

Error InterpreterCall::run() {
  std::vector<Bytes> initial, first;
  for (const HostTensor &tensor : results)
    initial.push_back(save(tensor));
  for (const InterpreterOptions &interleaving : interleavings) {
    for (auto [tensor, bytes] : zip(results, initial))
      restore(tensor, bytes);
    if (failed(interpreter.run(tensors, interleaving))) {
      errs() << "in the interleaving: " << describe(interleaving) << "\n";
      return diagnostics.failure("the interpreter failed");
    }
    if (interpreter.addsInAnyOrder())
      continue;
    if (Error error = compareResults(interleaving, first))
      return error;
  }
  report.interpreter = {unsigned(interleavings.size()), interpreter.getStatistics()};
  return Error::success();
}

//===----------------------------------------------------------------------===//
// The executor
//===----------------------------------------------------------------------===//

Error InterpreterExecutor::compile(mlir::ModuleOp module, ArrayRef<FuncOp> entries,
                                   const Options &options, const Diagnostics &reported,
                                   Report &result) {
  report = &result;
  diagnostics = &reported;
  double start = now();
  program = cloneWithEntries(module, entries);
  bool lowered = program->walk([](mlir::gpu::LaunchOp) { return mlir::WalkResult::interrupt(); })
                     .wasInterrupted();
  bool memrefs = all_of(entries, [](FuncOp entry) { return entry.getNumResults() == 0; });
  bool loops =
      program->walk([](mlir::affine::AffineForOp) { return mlir::WalkResult::interrupt(); })
          .wasInterrupted();
  if (!lowered && (!memrefs || loops)) {
    mlir::PassManager manager(program->getContext());
    if (Error error = configurePassManager(manager))
      return error;
    manager.addPass(mlir::createSymbolDCEPass());
    PipelineOptions pipeline;
    setPipelineOptions(pipeline, options);
    if (Error error = addLowerToHopper(manager, pipeline, target::sm90::kChip))
      return error;
    if (failed(manager.run(*program)))
      return diagnostics->failure("lowering to the hopper dialect failed");
  }
  report->passes += now() - start;
  for (FuncOp entry : entries) {
    auto function = program->lookupSymbol<FuncOp>(entry.getName());
    auto interpreter = Interpreter::create(function);
    if (failed(interpreter))
      return diagnostics->failure("the interpreter does not execute '" + entry.getName() + "'");
    interpreters.try_emplace(entry.getName(), std::move(*interpreter));
  }
  return Error::success();
}

Expected<std::unique_ptr<Call>>
InterpreterExecutor::prepare(FuncOp function, ArrayRef<Operand> arguments, const Options &options) {
  auto types = getValueTypes(function.getResultTypes(), "result");
  if (!types)
    return types.takeError();
  ShapeRules rules(function);
  std::vector<ShapeRules::Shape> given;
  for (const Operand &argument : arguments)
    given.emplace_back(argument.value->getShape().begin(), argument.value->getShape().end());
  if (Error error = rules.solve(given))
    return std::move(error);
  auto shapes = getResultShapes(function, rules);
  if (!shapes)
    return shapes.takeError();
  return prepareInto(function, arguments, *types, *shapes, options);
}

Expected<std::unique_ptr<Call>> InterpreterExecutor::prepareInto(FuncOp function,
                                                                 ArrayRef<Operand> arguments,
                                                                 ArrayRef<ValueType> types,
                                                                 ArrayRef<ShapeRules::Shape> shapes,
                                                                 const Options &options) {
  auto call = std::make_unique<InterpreterCall>(interpreters.find(function.getName())->second,
                                                interleavings, *diagnostics, *report);
  if (Error error = call->bind(arguments, types, shapes, options))
    return std::move(error);
  return call;
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

static Expected<std::optional<InterpreterOrder>> parseOrder(StringRef text) {
  using O = InterpreterOrder;
  auto order = StringSwitch<std::optional<O>>(text)
                   .Case("random", O::Random)
                   .Case("round-robin", O::RoundRobin)
                   .Case("ahead", O::Ahead)
                   .Case("behind", O::Behind)
                   .Default(std::nullopt);
  if (!order && !text.empty())
    return createStringError("expected --interpreter-order random, round-robin, ahead or behind, "
                             "got '" +
                             text + "'");
  return order;
}

static Expected<std::optional<InterpreterTiming>> parseTiming(StringRef text) {
  using T = InterpreterTiming;
  auto timing = StringSwitch<std::optional<T>>(text)
                    .Case("early", T::Early)
                    .Case("late", T::Late)
                    .Case("random", T::Random)
                    .Default(std::nullopt);
  if (!timing && !text.empty())
    return createStringError("expected --interpreter-timing early, late or random, got '" + text +
                             "'");
  return timing;
}

Expected<std::unique_ptr<Executor>> attn::createInterpreterExecutor(const Options &options) {
  auto order = parseOrder(options.interpreterOrder);
  if (!order)
    return order.takeError();
  auto timing = parseTiming(options.interpreterTiming);
  if (!timing)
    return timing.takeError();
  std::vector<InterpreterOptions> interleavings;
  for (unsigned number = 0; number < options.interleavings; ++number) {
    InterpreterOptions &one = interleavings.emplace_back(getInterleaving(number, options.seed));
    one.order = order->value_or(one.order);
    one.timing = timing->value_or(one.timing);
    one.residentCtas = options.residentCtas;
  }
  return std::make_unique<InterpreterExecutor>(std::move(interleavings));
}
