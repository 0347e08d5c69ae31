// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The interpreter's runs. See Interpret.h.

#include "Interpret.h"
#include "Report.h"
#include "attn/Interpreter/Interpreter.h"
#include "llvm/Support/Format.h"
#include <cstring>

using namespace llvm;
using namespace attn;

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

/// The interleavings that the options ask for.
static Expected<std::vector<InterpreterOptions>> chooseInterleavings(const Options &options) {
  std::vector<InterpreterOptions> chosen;
  unsigned count = options.interleavings;
  for (unsigned number = 0; number < count; ++number)
    chosen.push_back(getInterleaving(number, options.seed));
  using O = InterpreterOrder;
  using T = InterpreterTiming;
  for (InterpreterOptions &one : chosen) {
    if (!options.interpreterOrder.empty()) {
      auto order = StringSwitch<std::optional<O>>(options.interpreterOrder)
                       .Case("random", O::Random)
                       .Case("round-robin", O::RoundRobin)
                       .Case("ahead", O::Ahead)
                       .Case("behind", O::Behind)
                       .Default(std::nullopt);
      if (!order)
        return createStringError("expected --interpreter-order random, round-robin, ahead or "
                                 "behind, got '" + options.interpreterOrder + "'");
      one.order = *order;
    }
    if (!options.interpreterTiming.empty()) {
      auto timing = StringSwitch<std::optional<T>>(options.interpreterTiming)
                        .Case("early", T::Early)
                        .Case("late", T::Late)
                        .Case("random", T::Random)
                        .Default(std::nullopt);
      if (!timing)
        return createStringError("expected --interpreter-timing early, late or random, got '" +
                                 options.interpreterTiming + "'");
      one.timing = *timing;
    }
  }
  return chosen;
}

static Error runAll(Interpreter &interpreter, ArrayRef<InterpreterOptions> interleavings,
                    ArrayRef<const HostTensor *> tensors, const Diagnostics &diagnostics) {
  std::vector<Bytes> inputs, first;
  for (const HostTensor *tensor : tensors)
    inputs.push_back(save(*tensor));
  for (const InterpreterOptions &one : interleavings) {
    for (auto [tensor, bytes] : zip(tensors, inputs))
      restore(*tensor, bytes);
    if (failed(interpreter.run(tensors, one))) {
      errs() << "in the interleaving: " << describe(one) << "\n";
      return diagnostics.failure("the interpreter failed");
    }
    if (interpreter.addsInAnyOrder())
      continue;
    for (auto [index, tensor] : enumerate(tensors)) {
      Bytes bytes = save(*tensor);
      if (first.size() <= index)
        first.push_back(std::move(bytes));
      else if (first[index] != bytes)
        return createStringError("argument " + Twine(index) + " depends on the interleaving: " +
                                 describe(interleavings.front()) + " and " + describe(one) +
                                 " differ");
    }
  }
  return Error::success();
}

Error attn::interpret(mlir::func::FuncOp entry, Arguments &arguments, const Options &options,
                      const Diagnostics &diagnostics) {
  if (options.check || options.grad || options.repetitions || options.json)
    return createStringError("--target=interpreter runs functions of memrefs, without --check, "
                             "--grad, --bench and --json");
  auto interleavings = chooseInterleavings(options);
  if (!interleavings)
    return interleavings.takeError();
  auto interpreter = Interpreter::create(entry);
  if (failed(interpreter))
    return diagnostics.failure("the interpreter does not execute '" + entry.getName() + "'");
  if (Error error = arguments.create(options))
    return error;
  SmallVector<const HostTensor *> tensors;
  for (const HostTensor &tensor : arguments.getValues())
    tensors.push_back(&tensor);
  double start = now();
  if (Error error = runAll(*interpreter, *interleavings, tensors, diagnostics))
    return error;
  const InterpreterStatistics &statistics = interpreter->getStatistics();
  outs() << "ran '" << entry.getName() << "' on the interpreter, " << interleavings->size()
         << (interleavings->size() == 1 ? " interleaving" : " interleavings") << ": "
         << statistics.launches << (statistics.launches == 1 ? " launch, " : " launches, ")
         << statistics.ctas << (statistics.ctas == 1 ? " block, " : " blocks, ")
         << statistics.products << " products, " << statistics.copies << " copies"
         << format(" (%.2f s)\n", now() - start);
  for (const auto &[position, path] : options.outputs)
    if (Error error = writeNpy(path, *tensors[position]))
      return error;
  return Error::success();
}
