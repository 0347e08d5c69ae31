// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One function, compiled from text for a target. See Executable.h.

#include "attn/Compiler/Executable.h"
#include "ProgramKey.h"
#include "Signature.h"
#include "attn/Compiler/CudaCompiler.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Registration/Registration.h"
#include "attn/Runtime/CpuExecutable.h"
#include "attn/Transforms/Host/Passes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/MemoryBuffer.h"
#include <atomic>
#include <map>
#include <mutex>

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

static std::atomic<uint64_t> compiledCount, fromDiskCount, fromMemoryCount;

CompileCounts Executable::getCounts() { return {compiledCount, fromDiskCount, fromMemoryCount}; }

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

namespace {
/// The pointers of a call: pointers to descriptors of tensors, and to scalars.
/// Nothing is allocated for calls of usual size.
class CallSlots {
public:
  explicit CallSlots(const Signature &signature) {
    size_t count = signature.arguments.size() + signature.results.size() + 2;
    // Addresses of elements are taken, so these must not grow.
    size_t size = 0;
    for (const auto *values : {&signature.arguments, &signature.results})
      for (const ValueSignature &value : *values)
        size += 3 + 2 * value.shape.size();
    words.reserve(size);
    pointers.reserve(count);
    slots.reserve(count);
  }

  void addPointer(void *pointer) {
    pointers.push_back(pointer);
    slots.push_back(&pointers.back());
  }
  void addSlot(void *slot) { slots.push_back(slot); }

  void add(const ValueSignature &value, const TensorReference &tensor) {
    if (!value.isTensor)
      return addSlot(tensor.data);
    size_t rank = value.shape.size(), start = words.size();
    words.append(2, int64_t(reinterpret_cast<intptr_t>(tensor.data)));
    words.push_back(0);
    words.append(tensor.shape, tensor.shape + rank);
    if (tensor.strides) {
      words.append(tensor.strides, tensor.strides + rank);
    } else {
      words.append(rank, 1);
      for (size_t dim = rank; dim-- > 1;)
        words[words.size() - rank + dim - 1] = words[words.size() - rank + dim] * tensor.shape[dim];
    }
    // The code takes this for granted, whatever the caller says of a dimension
    // with one element.
    if (rank)
      words.back() = 1;
    addPointer(&words[start]);
  }

  void **data() { return slots.data(); }

private:
  SmallVector<int64_t, 128> words;
  SmallVector<void *, 24> pointers, slots;
};
} // namespace

Error Executable::computeResultShapes(const TensorReference *arguments, int64_t *sizes) const {
  if (Error error = checkValues(signature, arguments, nullptr))
    return error;
  size_t count = 0;
  for (const ValueSignature &result : signature.results)
    count += result.shape.size();
  if (count == 0)
    return Error::success();
  CallSlots slots(signature);
  // Several results are a struct in front of the arguments.
  if (count > 1)
    slots.addPointer(sizes);
  if (takesCall)
    slots.addPointer(nullptr);
  for (auto [index, value] : enumerate(signature.arguments))
    slots.add(value, arguments[index]);
  if (count == 1)
    slots.addSlot(sizes);
  return callShape(slots.data());
}

/// Of the main function.
static void addAll(CallSlots &slots, const Signature &signature, bool takesCall,
                   const TensorReference *arguments, const TensorReference *results) {
  if (takesCall)
    slots.addSlot(nullptr);
  for (auto [index, value] : enumerate(signature.arguments))
    slots.add(value, arguments[index]);
  for (auto [index, value] : enumerate(signature.results))
    slots.add(value, results[index]);
}

Expected<size_t> Executable::getWorkspaceBytes(const TensorReference *arguments,
                                               const TensorReference *results) const {
  if (Error error = checkValues(signature, arguments, results))
    return std::move(error);
  CallSlots slots(signature);
  addAll(slots, signature, takesCall, arguments, results);
  return measure(slots.data());
}

Error Executable::run(const TensorReference *arguments, const TensorReference *results,
                      void *workspace, size_t workspaceBytes, void *stream) const {
  if (Error error = checkValues(signature, arguments, results))
    return error;
  CallSlots slots(signature);
  addAll(slots, signature, takesCall, arguments, results);
  return start(slots.data(), workspace, workspaceBytes, stream);
}

//===----------------------------------------------------------------------===//
// Targets
//===----------------------------------------------------------------------===//

namespace {
class CpuFunction : public Executable {
public:
  static Expected<std::shared_ptr<const Executable>> create(mlir::ModuleOp module, FuncOp entry,
                                                            Signature signature,
                                                            const PipelineOptions &options,
                                                            const DiskCache &cache);

private:
  Error start(void **slots, void *, size_t, void *) const override {
    function(slots);
    return Error::success();
  }
  Expected<size_t> measure(void **) const override { return 0; }
  Error callShape(void **slots) const override {
    shape(slots);
    return Error::success();
  }

  std::unique_ptr<CpuExecutable> executable;
  Packed function = nullptr, shape = nullptr;
};

class CudaFunction : public Executable {
public:
  static Expected<std::shared_ptr<const Executable>> create(mlir::ModuleOp module, FuncOp entry,
                                                            Signature signature,
                                                            const PipelineOptions &options,
                                                            const DiskCache &cache);

private:
  /// The program in one CUDA context.
  struct Loaded {
    std::unique_ptr<CudaExecutable> executable;
    Packed function = nullptr, shape = nullptr;
  };
  /// That of the calling thread's context.
  Expected<const Loaded *> getLoaded() const;
  Expected<std::unique_ptr<Loaded>> load(const cuda::DeviceInfo &device) const;

  Error start(void **slots, void *workspace, size_t workspaceBytes, void *stream) const override;
  Expected<size_t> measure(void **slots) const override;
  Error callShape(void **slots) const override;

  CudaProgram program;
  std::string name;
  DiskCache cache;
  mutable std::mutex mutex;
  mutable SmallVector<std::unique_ptr<Loaded>, 4> loaded;
};
} // namespace

static void addFrontPasses(mlir::PassManager &manager) {
  manager.addPass(mlir::createSymbolDCEPass());
  manager.addPass(attn::createAttnEmitShapeFunction());
}

/// Code for this machine's CPU, from the cache where it was compiled before.
static Expected<std::unique_ptr<CpuExecutable>>
compileForCpu(mlir::ModuleOp module, const PipelineOptions &options, const DiskCache &cache) {
  auto host = CpuExecutable::describeHost();
  if (!host)
    return host.takeError();
  std::string key = makeProgramKey("cpu " + *host, module, options);
  DiskCache::Lock lock; // until the code is stored
  if (!key.empty())
    if (auto bytes = cache.loadOrLock(key, lock)) {
      ++fromDiskCount;
      return CpuExecutable::load(MemoryBuffer::getMemBufferCopy(*bytes));
    }
  mlir::PassManager manager(module.getContext());
  addFrontPasses(manager);
  buildCpuPipeline(manager, options);
  if (failed(manager.run(module)))
    return createStringError("lowering for the CPU failed");
  auto object = CpuExecutable::compileObject(module);
  if (!object)
    return object.takeError();
  ++compiledCount;
  if (!key.empty())
    cache.store(key, object->code->getBuffer());
  return CpuExecutable::load(std::move(object->code));
}

Expected<std::shared_ptr<const Executable>> CpuFunction::create(mlir::ModuleOp module, FuncOp entry,
                                                                Signature signature,
                                                                const PipelineOptions &options,
                                                                const DiskCache &cache) {
  auto result = std::make_shared<CpuFunction>();
  std::string name = entry.getName().str();
  bool hasShape = !signature.results.empty();
  result->signature = std::move(signature);
  auto compiled = compileForCpu(module, options, cache);
  if (!compiled)
    return compiled.takeError();
  result->executable = std::move(*compiled);
  auto function = result->executable->lookupPacked(name);
  if (!function)
    return function.takeError();
  result->function = *function;
  if (hasShape) {
    auto shape = result->executable->lookupPacked(name + "_shape");
    if (!shape)
      return shape.takeError();
    result->shape = *shape;
  }
  return result;
}

Expected<std::shared_ptr<const Executable>> CudaFunction::create(mlir::ModuleOp module,
                                                                 FuncOp entry, Signature signature,
                                                                 const PipelineOptions &options,
                                                                 const DiskCache &cache) {
  auto result = std::make_shared<CudaFunction>();
  result->takesCall = true;
  result->name = entry.getName().str();
  result->signature = std::move(signature);
  result->cache = cache;
  auto device = cuda::DeviceInfo::current();
  if (!device)
    return device.takeError();
  PipelineOptions here;
  here.copyOptionValuesFrom(options);
  here.schedule = getScheduleFor(**device, options.schedule);
  CudaCompileTimes times;
  auto program = compileCudaProgram(module, here, cache, times,
                                    [](mlir::PassManager &) { return Error::success(); });
  if (!program)
    return program.takeError();
  ++(times.programCached ? fromDiskCount : compiledCount);
  result->program = std::move(*program);
  // Now rather than in the first call, for the sake of its errors.
  if (auto loaded = result->getLoaded(); !loaded)
    return loaded.takeError();
  return result;
}

Expected<std::unique_ptr<CudaFunction::Loaded>>
CudaFunction::load(const cuda::DeviceInfo &device) const {
  auto entry = std::make_unique<Loaded>();
  CudaCompileTimes times;
  auto executable = loadCudaProgram(program, device, cache, times);
  if (!executable)
    return executable.takeError();
  entry->executable = std::move(*executable);
  auto function = entry->executable->lookup(name);
  if (!function)
    return function.takeError();
  entry->function = *function;
  if (!signature.results.empty()) {
    auto shape = entry->executable->lookup(name + "_shape");
    if (!shape)
      return shape.takeError();
    entry->shape = *shape;
  }
  return entry;
}

Expected<const CudaFunction::Loaded *> CudaFunction::getLoaded() const {
  auto driver = cuda::Driver::get();
  if (!driver)
    return driver.takeError();
  cuda::Context now = nullptr;
  if (Error error = (*driver)->check((*driver)->contextGetCurrent(&now), "cuCtxGetCurrent"))
    return std::move(error);
  std::lock_guard<std::mutex> lock(mutex);
  auto find = [&]() -> const Loaded * {
    for (const auto &entry : loaded)
      if (entry->executable->getContext() == now)
        return entry.get();
    return nullptr;
  };
  if (const Loaded *known = find())
    return known;
  auto device = cuda::DeviceInfo::current();
  if (!device)
    return device.takeError();
  auto context = (*device)->getContext();
  if (!context)
    return context.takeError();
  now = *context; // there may have been none
  if (const Loaded *known = find())
    return known;
  auto entry = load(**device);
  if (!entry)
    return entry.takeError();
  loaded.push_back(std::move(*entry));
  return loaded.back().get();
}

Error CudaFunction::start(void **slots, void *workspace, size_t workspaceBytes,
                          void *stream) const {
  auto known = getLoaded();
  if (!known)
    return known.takeError();
  return (*known)->executable->run((*known)->function, slots, static_cast<cuda::Stream>(stream),
                                   cuda::Address(reinterpret_cast<uintptr_t>(workspace)),
                                   workspaceBytes);
}

Expected<size_t> CudaFunction::measure(void **slots) const {
  auto known = getLoaded();
  if (!known)
    return known.takeError();
  return CudaExecutable::measure((*known)->function, slots);
}

Error CudaFunction::callShape(void **slots) const {
  auto known = getLoaded();
  if (!known)
    return known.takeError();
  (*known)->shape(slots);
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

/// The function to call, the only public one from now on.
static Expected<FuncOp> selectEntry(mlir::ModuleOp module, StringRef name) {
  SmallVector<FuncOp> candidates;
  for (auto function : module.getOps<FuncOp>())
    if (!function.isDeclaration())
      candidates.push_back(function);
  FuncOp entry;
  for (FuncOp function : candidates)
    if (function.getName() == (name.empty() ? "main" : name) ||
        (name.empty() && candidates.size() == 1))
      entry = function;
  if (!entry)
    return createStringError(name.empty() ? Twine("expected a function 'main', or only one")
                                          : "no function '" + name + "'");
  for (auto function : module.getOps<FuncOp>())
    function.setVisibility(function == entry ? mlir::SymbolTable::Visibility::Public
                                             : mlir::SymbolTable::Visibility::Private);
  return entry;
}

/// The gradient of the entry, by attn-differentiate with these options.
static Expected<FuncOp> differentiate(mlir::ModuleOp module, FuncOp entry, StringRef options) {
  std::unique_ptr<mlir::Pass> pass = createAttnDifferentiate();
  std::string problem;
  std::string text = ("function=" + entry.getName() + " " + options).str();
  if (failed(pass->initializeOptions(text, [&](const Twine &message) {
        problem = message.str();
        return mlir::failure();
      })))
    return createStringError("in the options of the gradient: " + problem);
  std::string name = (entry.getName() + "_gradient").str();
  mlir::PassManager manager(module.getContext());
  manager.addPass(std::move(pass));
  if (failed(manager.run(module)))
    return createStringError("differentiating '" + entry.getName() + "' failed");
  return selectEntry(module, name);
}

namespace {
/// A module that was parsed, and the function of it to compile.
struct Parsed {
  /// Collects the first error that the compiler reports.
  Parsed()
      : handler(&context, [this](mlir::Diagnostic &diagnostic) {
          note(diagnostic);
          return mlir::success();
        }) {}

  Error parse(StringRef text, const ExecutableOptions &options);

  /// Adds what the compiler said to an error.
  Error explain(Error error) {
    if (!error || said.empty())
      return error;
    consumeError(std::move(error));
    return createStringError(StringRef(said).rtrim());
  }

  mlir::MLIRContext context{[] {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }()};
  mlir::OwningOpRef<mlir::ModuleOp> module;
  FuncOp entry;
  PipelineOptions pipeline;

private:
  void note(mlir::Diagnostic &diagnostic);

  std::string said;
  mlir::ScopedDiagnosticHandler handler;
};
} // namespace

void Parsed::note(mlir::Diagnostic &diagnostic) {
  if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error || !said.empty())
    return;
  raw_string_ostream os(said);
  if (auto at = diagnostic.getLocation()->findInstanceOf<mlir::FileLineColLoc>())
    os << at.getFilename().getValue() << ":" << at.getLine() << ":" << at.getColumn() << ": ";
  os << diagnostic;
}

Error Parsed::parse(StringRef text, const ExecutableOptions &options) {
  context.printOpOnDiagnostic(false);
  module = mlir::parseSourceString<mlir::ModuleOp>(text, &context, "ir");
  if (!module)
    return createStringError("cannot parse the IR");
  auto selected = selectEntry(*module, options.entry);
  if (selected && options.gradient)
    selected = differentiate(*module, *selected, *options.gradient);
  if (!selected)
    return selected.takeError();
  entry = *selected;
  std::string problem;
  raw_string_ostream problemStream(problem);
  if (failed(pipeline.parseFromString(options.pipeline, problemStream)))
    return createStringError("in the options of the pipeline: " + problem);
  return Error::success();
}

static Expected<std::shared_ptr<const Executable>> compileEntry(Parsed &parsed,
                                                                const ExecutableOptions &options) {
  auto signature = makeSignature(parsed.entry);
  if (!signature)
    return signature.takeError();
  auto create = options.cuda ? CudaFunction::create : CpuFunction::create;
  return create(*parsed.module, parsed.entry, std::move(*signature), parsed.pipeline,
                options.cache);
}

Expected<std::shared_ptr<const Executable>> Executable::compile(StringRef text,
                                                                const ExecutableOptions &options) {
  // For the whole process: CUDA may be gone before static objects are.
  static std::mutex mutex;
  static auto &known = *new std::map<std::string, std::shared_ptr<const Executable>>;
  std::string gradient = options.gradient ? "gradient " + *options.gradient : "";
  std::string key = DiskCache::makeKey(
      {options.cuda ? "cuda" : "cpu", options.entry, options.pipeline, gradient, text});
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = known.find(key); found != known.end()) {
      ++fromMemoryCount;
      return found->second;
    }
  }
  Parsed parsed;
  if (Error error = parsed.parse(text, options))
    return parsed.explain(std::move(error));
  auto executable = compileEntry(parsed, options);
  if (!executable)
    return parsed.explain(executable.takeError());
  std::lock_guard<std::mutex> lock(mutex);
  return known.try_emplace(key, std::move(*executable)).first->second;
}

Expected<std::string> Executable::emitPtx(StringRef text, const ExecutableOptions &options) {
  Parsed parsed;
  if (Error error = parsed.parse(text, options))
    return parsed.explain(std::move(error));
  CudaCompileTimes times;
  auto program = compileCudaProgram(*parsed.module, parsed.pipeline, options.cache, times,
                                    [](mlir::PassManager &) { return Error::success(); });
  if (!program)
    return parsed.explain(program.takeError());
  return program->ptx;
}
