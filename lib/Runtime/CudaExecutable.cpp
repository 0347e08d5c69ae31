// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A CUDA program on a device. See CudaExecutable.h.

#include "attn/Runtime/CudaExecutable.h"
#include "attn/Runtime/CudaHostInterface.h"

using namespace llvm;
using namespace attn;

CudaExecutable::~CudaExecutable() {
  for (cuda::Module module : modules)
    device->driver->moduleUnload(module);
}

Error CudaExecutable::loadKernels(const CudaProgram &program,
                                  ArrayRef<std::string> cubins) {
  const cuda::Driver &driver = *device->driver;
  for (const std::string &cubin : cubins) {
    cuda::Module module = nullptr;
    if (Error error = driver.check(driver.moduleLoadData(&module, cubin.data()),
                                   "cannot load a kernel"))
      return error;
    modules.push_back(module);
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
  if (Error error = device.makeCurrent())
    return std::move(error);
  auto host = CpuExecutable::load(
      MemoryBuffer::getMemBufferCopy(program.hostObject, "host code"));
  if (!host)
    return host.takeError();
  result->host = std::move(*host);
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
  if (Error error = device->makeCurrent())
    return error;
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
