// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A CUDA program on a device. See CudaExecutable.h.

#include "attn/Runtime/CudaExecutable.h"
#include "attn/Runtime/CudaHostInterface.h"
#include <thread>

using namespace llvm;
using namespace attn;

CudaExecutable::~CudaExecutable() {
  for (cuda::Module module : modules)
    device->driver->moduleUnload(module);
}

namespace {
/// One text or image, as the driver sees it.
struct LoadedModule {
  cuda::Module module = nullptr;
  std::string log;
  std::string failure;

  void load(const cuda::Driver &driver, const char *image) {
    std::string said(1 << 14, '\0'), errors(1 << 14, '\0');
    auto number = [](uintptr_t n) { return reinterpret_cast<void *>(n); };
    int options[] = {cuda::infoLog, cuda::infoLogBytes, cuda::errorLog,
                     cuda::errorLogBytes, cuda::logVerbose};
    void *values[] = {said.data(), number(said.size()), errors.data(),
                      number(errors.size()), number(1)};
    cuda::Result result =
        driver.moduleLoadData(&module, image, 5, options, values);
    if (result != 0)
      failure = "cannot compile or load the kernels: " +
                driver.describe(result) + "\n" +
                StringRef(errors.c_str()).rtrim().str();
    log = said.c_str();
  }
};
} // namespace

Error CudaExecutable::loadKernels(const CudaProgram &program,
                                  ArrayRef<std::string> cubins) {
  const cuda::Driver &driver = *device->driver;
  std::vector<LoadedModule> loaded(cubins.size());
  // Each in a thread: the driver may have to compile them.
  std::vector<std::thread> threads;
  for (size_t i = 1; i < cubins.size(); ++i)
    threads.emplace_back([&, i] {
      if (cuda::Result result = driver.contextSetCurrent(context))
        loaded[i].failure = "cuCtxSetCurrent: " + driver.describe(result);
      else
        loaded[i].load(driver, cubins[i].c_str());
    });
  if (!cubins.empty())
    loaded[0].load(driver, cubins[0].c_str());
  for (std::thread &thread : threads)
    thread.join();
  for (const LoadedModule &each : loaded)
    if (each.module)
      modules.push_back(each.module);
  for (const LoadedModule &each : loaded) {
    if (!each.failure.empty())
      return createStringError(each.failure);
    log += each.log;
  }
  for (const CudaProgram::Kernel &kernel : program.kernels) {
    cuda::Function function = nullptr;
    if (Error error = driver.check(
            driver.moduleGetFunction(&function, modules[kernel.module],
                                     kernel.name.c_str()),
            "cannot find kernel '" + kernel.name + "'"))
      return error;
    CudaKernelInfo info;
    info.name = kernel.name;
    for (auto [attribute, value] :
         {std::pair(cuda::numRegisters, &info.registers),
          {cuda::localBytes, &info.spilledBytes},
          {cuda::staticSharedBytes, &info.staticSharedBytes}})
      if (Error error = driver.check(
              driver.functionGetAttribute(value, attribute, function),
              "cuFuncGetAttribute"))
        return error;
    // How much a launch takes is known when it happens; allow all there is.
    int dynamic = device->maxSharedBytes - info.staticSharedBytes;
    if (Error error = driver.check(
            driver.functionSetAttribute(function, cuda::maxDynamicSharedBytes,
                                        dynamic),
            "cannot give kernel '" + kernel.name + "' " + Twine(dynamic) +
                " bytes of shared memory"))
      return error;
    kernels.push_back(function);
    infos.push_back(info);
  }
  return Error::success();
}

Expected<std::unique_ptr<CudaExecutable>>
CudaExecutable::load(const CudaProgram &program, const cuda::DeviceInfo &device,
                     ArrayRef<std::string> cubins) {
  std::unique_ptr<CudaExecutable> result(new CudaExecutable);
  result->device = &device;
  auto context = device.getContext();
  if (!context)
    return context.takeError();
  result->context = *context;
  auto host = CpuExecutable::load(
      MemoryBuffer::getMemBufferCopy(program.hostObject, "host code"));
  if (!host)
    return host.takeError();
  result->host = std::move(*host);
  // Looking one function up links all of them.
  if (!program.functions.empty())
    if (auto linked = result->lookup(program.functions.front()); !linked)
      return linked.takeError();
  if (Error error = result->loadKernels(program, cubins))
    return std::move(error);
  auto zeros = cuda::Buffer::allocate(device, 256);
  if (!zeros)
    return zeros.takeError();
  result->zeros = std::move(*zeros);
  if (Error error = device.driver->check(
          device.driver->memsetBytes(result->zeros.address(), 0, 256),
          "cuMemsetD8"))
    return std::move(error);
  return result;
}

Error CudaExecutable::run(Packed function, void **slots, cuda::Stream stream,
                          cuda::Address workspace, size_t workspaceBytes) {
  auto now = device->getContext();
  if (!now)
    return now.takeError();
  if (*now != context)
    return createStringError("a program was called in another CUDA context "
                             "than it was loaded in");
  cuda::Call call(*device->driver, kernels, stream, workspace, workspaceBytes,
                  zeros.address());
  void *context = &call;
  slots[0] = &context;
  function(slots);
  return call.takeError();
}

Expected<size_t> CudaExecutable::measure(Packed function, void **slots) {
  cuda::Call call;
  void *context = &call;
  slots[0] = &context;
  function(slots);
  if (Error error = call.takeError())
    return std::move(error);
  return call.getPeak();
}
