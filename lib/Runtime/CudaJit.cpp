// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PTX to machine code. See CudaJit.h.

#include "attn/Runtime/CudaJit.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

using namespace llvm;
using namespace attn::cuda;

static StringRef chosenPtxas() {
  const char *path = std::getenv("ATTNC_PTXAS");
  return path ? path : "";
}

static Error fail(StringRef name, StringRef reason, StringRef log) {
  return createStringError("cannot compile the PTX of '" + name +
                           "': " + reason + (log.empty() ? "" : "\n") +
                           log.rtrim());
}

static Expected<Cubin> compileByDriver(const DeviceInfo &device, StringRef ptx,
                                       StringRef name) {
  const Driver &driver = *device.driver;
  std::string info(1 << 14, '\0'), errors(1 << 14, '\0');
  auto number = [](uintptr_t value) { return reinterpret_cast<void *>(value); };
  int options[] = {infoLog, infoLogBytes, errorLog, errorLogBytes, logVerbose};
  void *values[] = {info.data(), number(info.size()), errors.data(),
                    number(errors.size()), number(1)};
  LinkState state = nullptr;
  if (Error error = driver.check(driver.linkCreate(5, options, values, &state),
                                 "cuLinkCreate"))
    return std::move(error);
  scope_exit destroy([&] { driver.linkDestroy(state); });
  std::string text = ptx.str(); // the driver wants the final zero
  std::string title = name.str();
  void *image = nullptr;
  size_t bytes = 0;
  Result result =
      driver.linkAddData(state, jitInputPtx, text.data(), text.size() + 1,
                         title.c_str(), 0, nullptr, nullptr);
  if (result == 0)
    result = driver.linkComplete(state, &image, &bytes);
  if (result != 0)
    return fail(name, driver.describe(result), errors.c_str());
  return Cubin{std::string(static_cast<char *>(image), bytes),
               std::string(info.c_str()) + errors.c_str()};
}

static Expected<Cubin> compileByPtxas(StringRef ptxas, StringRef ptx,
                                      StringRef name) {
  SmallString<64> source, target, output;
  int descriptor;
  if (std::error_code code =
          sys::fs::createTemporaryFile("attnc", "ptx", descriptor, source))
    return fail(name, "cannot write a temporary file", code.message());
  FileRemover removeSource(source);
  raw_fd_ostream(descriptor, /*shouldClose=*/true) << ptx;
  if (std::error_code code =
          sys::fs::createTemporaryFile("attnc", "cubin", target))
    return fail(name, "cannot write a temporary file", code.message());
  FileRemover removeTarget(target);
  if (std::error_code code =
          sys::fs::createTemporaryFile("attnc", "log", output))
    return fail(name, "cannot write a temporary file", code.message());
  FileRemover removeOutput(output);
  std::string message;
  std::optional<StringRef> redirects[] = {std::nullopt, output.str(),
                                          output.str()};
  int status = sys::ExecuteAndWait(
      ptxas, {ptxas, "-arch=sm_90a", "-O3", "-v", source, "-o", target},
      std::nullopt, redirects, 0, 0, &message);
  auto log = MemoryBuffer::getFile(output);
  StringRef said = log ? (*log)->getBuffer() : StringRef();
  if (status != 0)
    return fail(name,
                message.empty()
                    ? (ptxas + " failed").str()
                    : ("cannot run " + ptxas + ": " + message).str(),
                said);
  auto image = MemoryBuffer::getFile(target, /*IsText=*/false,
                                     /*RequiresNullTerminator=*/false);
  if (!image)
    return fail(name, "cannot read what ptxas wrote",
                image.getError().message());
  return Cubin{(*image)->getBuffer().str(), said.str()};
}

Expected<Cubin> attn::cuda::compilePtx(const DeviceInfo &device, StringRef ptx,
                                       StringRef name) {
  StringRef ptxas = chosenPtxas();
  return ptxas.empty() ? compileByDriver(device, ptx, name)
                       : compileByPtxas(ptxas, ptx, name);
}

std::string attn::cuda::describePtxCompiler(const DeviceInfo &device) {
  StringRef ptxas = chosenPtxas();
  if (ptxas.empty())
    return ("driver " + Twine(device.driverVersion)).str();
  sys::fs::file_status status;
  if (sys::fs::status(ptxas, status))
    return ptxas.str();
  return (ptxas + " " + Twine(status.getSize()) + " " +
          Twine(status.getLastModificationTime().time_since_epoch().count()))
      .str();
}
