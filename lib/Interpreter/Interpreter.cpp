// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The interface. See Interpreter.h.

#include "attn/Interpreter/Interpreter.h"
#include "Cluster.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

static StringRef nameOf(InterpreterOrder order) {
  switch (order) {
  case InterpreterOrder::Random:
    return "random";
  case InterpreterOrder::RoundRobin:
    return "round-robin";
  case InterpreterOrder::Ahead:
    return "ahead";
  case InterpreterOrder::Behind:
    return "behind";
  }
  llvm_unreachable("an order");
}

static StringRef nameOf(InterpreterTiming timing) {
  switch (timing) {
  case InterpreterTiming::Early:
    return "early";
  case InterpreterTiming::Late:
    return "late";
  case InterpreterTiming::Random:
    return "random";
  }
  llvm_unreachable("a timing");
}

std::string attn::describe(const InterpreterOptions &options) {
  return ("order " + nameOf(options.order) + ", copies and products " + nameOf(options.timing) +
          ", seed " + std::to_string(options.seed))
      .str();
}

InterpreterOptions attn::getInterleaving(unsigned number, uint64_t seed) {
  using O = InterpreterOrder;
  using T = InterpreterTiming;
  static const std::pair<O, T> fixed[] = {{O::Random, T::Random},   {O::Ahead, T::Late},
                                          {O::Behind, T::Early},    {O::RoundRobin, T::Late},
                                          {O::Behind, T::Late},     {O::Ahead, T::Early},
                                          {O::RoundRobin, T::Early}};
  InterpreterOptions options;
  options.seed = seed + number;
  if (number < std::size(fixed))
    std::tie(options.order, options.timing) = fixed[number];
  return options;
}

Interpreter::Interpreter(std::unique_ptr<Program> program) : program(std::move(program)) {}
Interpreter::Interpreter(Interpreter &&) = default;
Interpreter::~Interpreter() = default;

FailureOr<Interpreter> Interpreter::create(func::FuncOp function) {
  auto program = std::make_unique<Program>();
  Translator translator(*program);
  if (failed(translator.translate(function)))
    return failure();
  return Interpreter(std::move(program));
}

bool Interpreter::addsInAnyOrder() const { return program->addsInAnyOrder; }

static void bind(interpreter::Value &value, ElementKind kind, Type type, const HostTensor &tensor) {
  if (!isa<MemRefType>(type)) {
    const char *element = tensor.getBase() + tensor.getOffset() * elementSize(kind);
    if (isFloat(kind))
      value.number = loadNumber(kind, element);
    else
      value.integer = loadInteger(kind, element) & (kind == ElementKind::I1 ? 1 : -1);
    return;
  }
  auto memref = std::make_shared<MemRef>();
  memref->kind = kind;
  memref->base = tensor.getBase();
  memref->offset = tensor.getOffset();
  memref->sizes.assign(tensor.getShape().begin(), tensor.getShape().end());
  memref->strides.assign(tensor.getStrides().begin(), tensor.getStrides().end());
  int64_t last = memref->offset;
  bool empty = false;
  for (auto [size, stride] : llvm::zip(memref->sizes, memref->strides)) {
    last += (size - 1) * stride;
    empty |= size == 0;
  }
  memref->extent = empty ? 0 : last + 1;
  value.object = memref;
}

LogicalResult Interpreter::run(ArrayRef<const HostTensor *> arguments,
                               const InterpreterOptions &options) {
  statistics = {};
  Machine machine{*program, options, statistics, std::mt19937_64(options.seed)};
  Fiber host;
  host.frame = program->frame;
  host.machine = &machine;
  TypeRange types = program->function.getArgumentTypes();
  assert(arguments.size() == types.size() && "one tensor for each argument");
  for (auto [slot, kind, type, tensor] :
       llvm::zip(program->arguments, program->argumentKinds, types, arguments))
    bind(host[slot], kind, type, *tensor);
  return machine.resume(host) == Step::Finished ? success() : failure();
}
