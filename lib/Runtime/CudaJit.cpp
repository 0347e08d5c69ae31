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
  return createStringError("cannot compile the PTX of '" + name + "': " + reason +
                           (log.empty() ? "" : "\n") + log.rtrim());
}

static Expected<Cubin> compileByPtxas(StringRef ptxas, StringRef ptx, StringRef chip,
                                      StringRef name) {
  SmallString<64> source, target, output;
  int descriptor;
  if (std::error_code code = sys::fs::createTemporaryFile("attnc", "ptx", descriptor, source))
    return fail(name, "cannot write a temporary file", code.message());
  FileRemover removeSource(source);
  raw_fd_ostream(descriptor, /*shouldClose=*/true) << ptx;
  if (std::error_code code = sys::fs::createTemporaryFile("attnc", "cubin", target))
    return fail(name, "cannot write a temporary file", code.message());
  FileRemover removeTarget(target);
  if (std::error_code code = sys::fs::createTemporaryFile("attnc", "log", output))
    return fail(name, "cannot write a temporary file", code.message());
  FileRemover removeOutput(output);
  std::string message;
  std::optional<StringRef> redirects[] = {std::nullopt, output.str(), output.str()};
  std::string architecture = ("-arch=" + chip).str();
  int status = sys::ExecuteAndWait(ptxas, {ptxas, architecture, "-O3", "-v", source, "-o", target},
                                   std::nullopt, redirects, 0, 0, &message);
  auto log = MemoryBuffer::getFile(output);
  StringRef said = log ? (*log)->getBuffer() : StringRef();
  if (status != 0)
    return fail(name,
                message.empty() ? (ptxas + " failed").str()
                                : ("cannot run " + ptxas + ": " + message).str(),
                said);
  auto image = MemoryBuffer::getFile(target, /*IsText=*/false,
                                     /*RequiresNullTerminator=*/false);
  if (!image)
    return fail(name, "cannot read what ptxas wrote", image.getError().message());
  return Cubin{(*image)->getBuffer().str(), said.str()};
}

Expected<Cubin> attn::cuda::compilePtx(StringRef ptx, StringRef chip, StringRef name) {
  StringRef ptxas = chosenPtxas();
  // The driver compiles what it loads, and has a cache of its own. Its linker
  // gives machine code that could be kept here, but compiles for calls between
  // modules: the kernels of an attention forward spill then, and take twice as long.
  return ptxas.empty() ? Cubin{ptx.str(), ""} : compileByPtxas(ptxas, ptx, chip, name);
}

bool attn::cuda::compilesBeforeLoading() { return !chosenPtxas().empty(); }

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
