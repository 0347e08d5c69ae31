// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Running on an NVIDIA GPU.

#include "Compile.h"
#include "Executor.h"
#include "attn/Compiler/Compiler.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Runtime/CudaDevice.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

namespace {
/// A copy of a host tensor on the device, laid out as that one.
class DeviceTensor {
public:
  static Expected<DeviceTensor> create(const cuda::DeviceInfo &device, const HostTensor &host);
  Error copyBack(const cuda::DeviceInfo &device) const;
  /// Of a memref that starts at the tensor's first element.
  SmallVector<int64_t, 16> getDescriptor() const;

private:
  const HostTensor *host = nullptr;
  cuda::Buffer buffer;
};

class CudaCall : public Call {
public:
  CudaCall(const target::Function &function, const cuda::DeviceInfo &device, Report &report,
           size_t count)
      : function(function), device(device), report(report), slots(count) {}
  ~CudaCall() override;

  /// Results of their own, after the arguments.
  Error addResults(ArrayRef<ValueType> resultTypes, ArrayRef<ShapeRules::Shape> shapes,
                   const Options &options) {
    return createResults(resultTypes, shapes, options.guard);
  }
  /// The results are the arguments after the run.
  Error shareArguments(ArrayRef<Operand> arguments, const Options &options);
  /// Brings everything to the device; last.
  Error bind(ArrayRef<Operand> arguments);

  Error run() override;
  Expected<std::vector<double>> time(unsigned repetitions) override;

private:
  Error launch() {
    return function.run(slots.data(),
                        {reinterpret_cast<void *>(workspace.address()), workspace.size(), stream});
  }
  Error check(cuda::Result result, const char *what) { return driver().check(result, what); }
  const cuda::Driver &driver() { return *device.driver; }

  Error addTensor(const HostTensor &host, std::vector<DeviceTensor> &tensors);

  const target::Function &function;
  const cuda::DeviceInfo &device;
  Report &report;
  bool shared = false;
  Slots slots;
  std::vector<DeviceTensor> inputs, outputs;
  cuda::Buffer workspace;
  cuda::Stream stream = nullptr;
};

class CudaExecutor : public Executor {
public:
  /// Without a device, compile() prints the PTX.
  CudaExecutor(const target::Target &target, const cuda::DeviceInfo *device)
      : target(target), device(device) {}

  Error compile(mlir::ModuleOp module, ArrayRef<FuncOp> entries, const Options &options,
                const Diagnostics &diagnostics, Report &report) override;
  Expected<std::unique_ptr<Call>> prepare(FuncOp function, ArrayRef<Operand> arguments,
                                          const Options &options) override;
  Expected<std::unique_ptr<Call>> prepareInto(FuncOp function, ArrayRef<Operand> arguments,
                                              ArrayRef<ValueType> types,
                                              ArrayRef<ShapeRules::Shape> shapes,
                                              const Options &options) override;

private:
  Expected<const target::Function *> lookup(FuncOp function);

  const target::Target &target;
  const cuda::DeviceInfo *device;
  std::unique_ptr<target::LoadedProgram> program;
  StringMap<std::unique_ptr<target::Function>> functions; // of the program
  Report *report = nullptr;
};
} // namespace

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

Expected<DeviceTensor> DeviceTensor::create(const cuda::DeviceInfo &device,
                                            const HostTensor &host) {
  DeviceTensor result;
  result.host = &host;
  size_t bytes = host.getAllocatedBytes();
  auto buffer = cuda::Buffer::allocate(device, bytes);
  if (!buffer)
    return buffer.takeError();
  result.buffer = std::move(*buffer);
  if (Error error = device.driver->check(
          device.driver->copyToDevice(result.buffer.address(), host.getBase(), bytes),
          "cuMemcpyHtoD"))
    return std::move(error);
  return result;
}

Error DeviceTensor::copyBack(const cuda::DeviceInfo &device) const {
  return device.driver->check(
      device.driver->copyToHost(host->getBase(), buffer.address(), host->getAllocatedBytes()),
      "cuMemcpyDtoH");
}

SmallVector<int64_t, 16> DeviceTensor::getDescriptor() const {
  SmallVector<int64_t, 16> words = host->getDescriptor();
  words[0] = words[1] =
      int64_t(buffer.address()) + host->getOffset() * elementSize(host->getKind());
  words[2] = 0;
  return words;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

CudaCall::~CudaCall() {
  if (stream)
    driver().streamDestroy(stream);
}

Error CudaCall::shareArguments(ArrayRef<Operand> arguments, const Options &options) {
  shared = true;
  return copyArguments(arguments, options.stridePad, options.guard);
}

Error CudaCall::addTensor(const HostTensor &host, std::vector<DeviceTensor> &tensors) {
  auto tensor = DeviceTensor::create(device, host);
  if (!tensor)
    return tensor.takeError();
  slots.addTensor(tensor->getDescriptor());
  tensors.push_back(std::move(*tensor));
  return Error::success();
}

Error CudaCall::bind(ArrayRef<Operand> arguments) {
  slots.addPointer(nullptr); // see target::Function::takesContext
  for (auto [index, argument] : enumerate(arguments)) {
    if (!argument.type.isTensor)
      slots.addOperand(argument);
    else if (Error error =
                 shared ? addTensor(results[index], outputs) : addTensor(*argument.value, inputs))
      return error;
  }
  if (!shared)
    for (auto [type, result] : zip_equal(types, results)) {
      if (!type.isTensor)
        return createStringError("the CUDA target has no scalar results");
      if (Error error = addTensor(result, outputs))
        return error;
    }
  auto bytes = function.measure(slots.data());
  if (!bytes)
    return bytes.takeError();
  report.cuda->workspaceBytes = std::max(report.cuda->workspaceBytes, *bytes);
  auto allocated = cuda::Buffer::allocate(device, *bytes);
  if (!allocated)
    return allocated.takeError();
  workspace = std::move(*allocated);
  // Not the legacy default stream, which waits for all others.
  if (Error error = check(driver().streamCreate(&stream, /*flags=*/1), "cuStreamCreate"))
    return error;
  // Copies to the device may be on their way when their call has returned.
  return check(driver().streamSynchronize(nullptr), "copies to the device failed");
}

Error CudaCall::run() {
  if (Error error = launch())
    return error;
  if (Error error = check(driver().streamSynchronize(stream), "the kernels failed"))
    return error;
  for (const DeviceTensor &output : outputs)
    if (Error error = output.copyBack(device))
      return error;
  return Error::success();
}

Expected<std::vector<double>> CudaCall::time(unsigned repetitions) {
  cuda::Event start = nullptr, end = nullptr;
  if (Error error = check(driver().eventCreate(&start, 0), "cuEventCreate"))
    return std::move(error);
  if (Error error = check(driver().eventCreate(&end, 0), "cuEventCreate"))
    return std::move(error);
  std::vector<double> times;
  // The clock of an idle GPU is low; runs before the first that counts raise it.
  double begin = now();
  while (now() - begin < 0.2) {
    if (Error error = launch())
      return std::move(error);
    if (Error error = check(driver().streamSynchronize(stream), "the kernels failed"))
      return std::move(error);
  }
  for (unsigned repetition = 0; repetition < repetitions; ++repetition) {
    if (Error error = check(driver().eventRecord(start, stream), "cuEventRecord"))
      return std::move(error);
    double host = now();
    if (Error error = launch())
      return std::move(error);
    report.cuda->hostSeconds.push_back(now() - host);
    if (Error error = check(driver().eventRecord(end, stream), "cuEventRecord"))
      return std::move(error);
    if (Error error = check(driver().eventSynchronize(end), "the kernels failed"))
      return std::move(error);
    float milliseconds = 0;
    if (Error error =
            check(driver().eventElapsedTime(&milliseconds, start, end), "cuEventElapsedTime"))
      return std::move(error);
    times.push_back(milliseconds * 1e-3);
  }
  driver().eventDestroy(start);
  driver().eventDestroy(end);
  return times;
}

//===----------------------------------------------------------------------===//
// The executor
//===----------------------------------------------------------------------===//

Error CudaExecutor::compile(mlir::ModuleOp module, ArrayRef<FuncOp> entries, const Options &options,
                            const Diagnostics &diagnostics, Report &result) {
  report = &result;
  report->cuda.emplace();
  mlir::OwningOpRef<mlir::ModuleOp> copy = cloneWithEntries(module, entries);
  PipelineOptions pipeline;
  setPipelineOptions(pipeline, options);
  pipeline.countTiles = false; // kernels have nowhere to count
  if (device)
    if (Error error = target.fitDevice(pipeline))
      return error;
  // What is only loaded says nothing about how it was made.
  DiskCache cache =
      options.explain || !options.remarks.empty() ? DiskCache() : DiskCache::standard();
  target::CompileTimes &times = report->cuda->times;
  auto compiled = compileProgram(target, *copy, pipeline, {}, cache, times, configurePassManager);
  if (!compiled) {
    std::string reason = toString(compiled.takeError());
    return diagnostics.failure(reason);
  }
  if (!device) {
    outs() << (*compiled)->getAssembly();
    return Error::success();
  }
  auto loaded = target.load(std::move(*compiled), cache, times);
  if (!loaded)
    return loaded.takeError();
  program = std::move(*loaded);
  report->cuda->device = device->name;
  report->cuda->driverVersion = device->driverVersion;
  report->cuda->kernels = program->getKernels();
  return Error::success();
}

Expected<const target::Function *> CudaExecutor::lookup(FuncOp function) {
  std::unique_ptr<target::Function> &known = functions[function.getName()];
  if (!known) {
    auto found = program->lookup(function.getName(), hasShapeFunction(function));
    if (!found)
      return found.takeError();
    known = std::move(*found);
  }
  return known.get();
}

Expected<std::unique_ptr<Call>> CudaExecutor::prepare(FuncOp function, ArrayRef<Operand> arguments,
                                                      const Options &options) {
  auto code = lookup(function);
  if (!code)
    return code.takeError();
  if (function.getNumResults() == 0) {
    auto call = std::make_unique<CudaCall>(**code, *device, *report, arguments.size() + 1);
    if (Error error = call->shareArguments(arguments, options))
      return std::move(error);
    if (Error error = call->bind(arguments))
      return std::move(error);
    return call;
  }
  auto types = getValueTypes(function.getResultTypes(), "result");
  if (!types)
    return types.takeError();
  auto shapes = computeResultShapes(**code, function, arguments);
  if (!shapes)
    return shapes.takeError();
  return prepareInto(function, arguments, *types, *shapes, options);
}

Expected<std::unique_ptr<Call>>
CudaExecutor::prepareInto(FuncOp function, ArrayRef<Operand> arguments, ArrayRef<ValueType> types,
                          ArrayRef<ShapeRules::Shape> shapes, const Options &options) {
  auto code = lookup(function);
  if (!code)
    return code.takeError();
  auto call =
      std::make_unique<CudaCall>(**code, *device, *report, arguments.size() + types.size() + 1);
  if (Error error = call->addResults(types, shapes, options))
    return std::move(error);
  if (Error error = call->bind(arguments))
    return std::move(error);
  return call;
}

Expected<std::unique_ptr<Executor>> attn::createCudaExecutor(const target::Target &target,
                                                             const Options &options) {
  if (!options.emit.empty())
    return std::make_unique<CudaExecutor>(target, nullptr);
  auto device = cuda::DeviceInfo::current(target.getDescription().capability,
                                          target.getDescription().runsLater);
  if (!device)
    return device.takeError();
  return std::make_unique<CudaExecutor>(target, *device);
}
