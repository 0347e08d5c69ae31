// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The GPU that programs run on. See CudaDevice.h.

#include "attn/Runtime/CudaDevice.h"
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

using namespace llvm;
using namespace attn::cuda;

static Expected<std::unique_ptr<DeviceInfo>> describe(const Driver &driver, Device device) {
  auto info = std::make_unique<DeviceInfo>();
  info->driver = &driver;
  info->device = device;
  char name[256] = "";
  if (Error error =
          driver.check(driver.deviceGetName(name, sizeof(name), device), "cuDeviceGetName"))
    return std::move(error);
  info->name = name;
  int major = 0, minor = 0;
  for (auto [attribute, value] : {std::pair(capabilityMajor, &major),
                                  {capabilityMinor, &minor},
                                  {multiprocessorCount, &info->multiprocessors},
                                  {maxSharedBytesOptIn, &info->maxSharedBytes}})
    if (Error error = driver.check(driver.deviceGetAttribute(value, attribute, device),
                                   "cuDeviceGetAttribute"))
      return std::move(error);
  info->capability = major * 10 + minor;
  if (Error error =
          driver.check(driver.driverGetVersion(&info->driverVersion), "cuDriverGetVersion"))
    return std::move(error);
  return info;
}

/// Makes the primary context of the first device the calling thread's.
static Error useFirstDevice(const Driver &driver, int capability) {
  int count = 0;
  if (Error error = driver.check(driver.deviceGetCount(&count), "cuDeviceGetCount"))
    return error;
  if (count == 0)
    return createStringError("no sm_" + Twine(capability) + " device: found no device");
  Device device = 0;
  if (Error error = driver.check(driver.deviceGet(&device, 0), "cuDeviceGet"))
    return error;
  Context context = nullptr; // retained for the whole process
  if (Error error =
          driver.check(driver.primaryContextRetain(&context, device), "cuDevicePrimaryCtxRetain"))
    return error;
  return driver.check(driver.contextSetCurrent(context), "cuCtxSetCurrent");
}

Expected<const DeviceInfo *> DeviceInfo::current(int capability, bool orLater) {
  auto opened = Driver::get();
  if (!opened)
    return opened.takeError();
  const Driver &driver = **opened;
  Context context = nullptr;
  if (Error error = driver.check(driver.contextGetCurrent(&context), "cuCtxGetCurrent"))
    return std::move(error);
  if (!context)
    if (Error error = useFirstDevice(driver, capability))
      return std::move(error);
  Device device = 0;
  if (Error error = driver.check(driver.contextGetDevice(&device), "cuCtxGetDevice"))
    return std::move(error);
  // Kept for the whole process, as the contexts are.
  static std::mutex mutex;
  static auto &known = *new std::map<Device, std::unique_ptr<DeviceInfo>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<DeviceInfo> &info = known[device];
  if (!info) {
    auto described = describe(driver, device);
    if (!described)
      return described.takeError();
    info = std::move(*described);
  }
  if (orLater ? info->capability < capability : info->capability != capability)
    return createStringError("no sm_" + Twine(capability) + (orLater ? " or later" : "") +
                             " device: found " + info->name + " (sm_" + Twine(info->capability) +
                             ")");
  return info.get();
}

Expected<Context> DeviceInfo::getContext() const {
  Context context = nullptr;
  if (Error error = driver->check(driver->contextGetCurrent(&context), "cuCtxGetCurrent"))
    return std::move(error);
  return context;
}

Buffer &Buffer::operator=(Buffer &&other) {
  std::swap(device, other.device);
  std::swap(start, other.start);
  std::swap(bytes, other.bytes);
  return *this;
}

Buffer::~Buffer() {
  if (start)
    device->driver->memFree(start);
}

Expected<Buffer> Buffer::allocate(const DeviceInfo &device, size_t bytes) {
  Buffer result;
  if (Error error =
          device.driver->check(device.driver->memAlloc(&result.start, std::max<size_t>(bytes, 1)),
                               "cannot allocate " + Twine(bytes) + " bytes on " + device.name))
    return std::move(error);
  result.device = &device;
  result.bytes = bytes;
  return result;
}
