// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A CUDA program on a device. See CudaExecutable.h.

#include "attn/Runtime/CudaExecutable.h"
#include "attn/Runtime/CudaHostInterface.h"

using namespace llvm;
using namespace attn;

CudaExecutable::~CudaExecutable() {
  if (module)
    device->driver->moduleUnload(module);
}

Error CudaExecutable::loadKernels(const CudaProgram &program, const std::string &image) {
  if (image.empty())
    return Error::success();
  const cuda::Driver &driver = *device->driver;
  std::string said(1 << 14, '\0'), errors(1 << 14, '\0');
  auto number = [](uintptr_t n) { return reinterpret_cast<void *>(n); };
  int options[] = {cuda::infoLog,       cuda::infoLogBytes, cuda::errorLog,
                   cuda::errorLogBytes, cuda::logVerbose,   cuda::splitCompile};
  void *values[] = {said.data(),           number(said.size()), errors.data(),
                    number(errors.size()), number(1),           number(0)};
  cuda::Result result = driver.moduleLoadData(&module, image.c_str(), 6, options, values);
  // An older driver does not know the last one.
  if (result == cuda::invalidValue)
    result = driver.moduleLoadData(&module, image.c_str(), 5, options, values);
  if (result != 0)
    return createStringError("cannot compile or load the kernels: " + driver.describe(result) +
                             "\n" + StringRef(errors.c_str()).rtrim().str());
  log = said.c_str();
  for (const std::string &kernel : program.kernels) {
    cuda::Function function = nullptr;
    if (Error error = driver.check(driver.moduleGetFunction(&function, module, kernel.c_str()),
                                   "cannot find kernel '" + kernel + "'"))
      return error;
    CudaKernelInfo info;
    info.name = kernel;
    for (auto [attribute, value] : {std::pair(cuda::numRegisters, &info.registers),
                                    {cuda::localBytes, &info.spilledBytes},
                                    {cuda::staticSharedBytes, &info.staticSharedBytes}})
      if (Error error = driver.check(driver.functionGetAttribute(value, attribute, function),
                                     "cuFuncGetAttribute"))
        return error;
    // How much a launch takes is known when it happens; allow all there is.
    int dynamic = device->maxSharedBytes - info.staticSharedBytes;
    if (Error error = driver.check(
            driver.functionSetAttribute(function, cuda::maxDynamicSharedBytes, dynamic),
            "cannot give kernel '" + kernel + "' " + Twine(dynamic) + " bytes of shared memory"))
      return error;
    kernels.push_back(function);
    infos.push_back(info);
  }
  return Error::success();
}

Expected<std::unique_ptr<CudaExecutable>> CudaExecutable::load(const CudaProgram &program,
                                                               const cuda::DeviceInfo &device,
                                                               const std::string &image) {
  std::unique_ptr<CudaExecutable> result(new CudaExecutable);
  result->device = &device;
  auto context = device.getContext();
  if (!context)
    return context.takeError();
  result->context = *context;
  auto host = CpuExecutable::load(MemoryBuffer::getMemBufferCopy(program.hostObject, "host code"));
  if (!host)
    return host.takeError();
  result->host = std::move(*host);
  // Looking one function up links all of them.
  if (!program.functions.empty())
    if (auto linked = result->lookup(program.functions.front()); !linked)
      return linked.takeError();
  if (Error error = result->loadKernels(program, image))
    return std::move(error);
  auto zeros = cuda::Buffer::allocate(device, 256);
  if (!zeros)
    return zeros.takeError();
  result->zeros = std::move(*zeros);
  if (Error error = device.driver->check(
          device.driver->memsetBytes(result->zeros.address(), 0, 256), "cuMemsetD8"))
    return std::move(error);
  // Calls come on other streams, which may not wait for the one of copies.
  if (Error error =
          device.driver->check(device.driver->streamSynchronize(nullptr), "cuStreamSynchronize"))
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
  cuda::Call call(*device->driver, kernels, stream, workspace, workspaceBytes, zeros.address());
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
