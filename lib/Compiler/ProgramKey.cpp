// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a compiled program is known by in the cache. See ProgramKey.h.

#include "attn/Compiler/ProgramKey.h"
#include "attn/Compiler/DiskCache.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Target/Target.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include <dlfcn.h>

using namespace llvm;
using namespace attn;

/// Changes with every build of the compiler: the size and the time of the file
/// that this code is in.
static const std::string &describeCompiler() {
  static const std::string text = [] {
    Dl_info info;
    sys::fs::file_status status;
    if (!dladdr(reinterpret_cast<void *>(&describeCompiler), &info))
      return std::string();
    // A static program is named as it was called; ask the system instead.
    std::string path = sys::fs::getMainExecutable(nullptr, nullptr);
    if (StringRef(info.dli_fname).ends_with(".so") || StringRef(info.dli_fname).contains(".so."))
      path = info.dli_fname;
    if (sys::fs::status(path, status))
      return std::string();
    return (Twine(status.getSize()) + " " +
            Twine(status.getLastModificationTime().time_since_epoch().count()))
        .str();
  }();
  return text;
}

Expected<std::string> attn::makeProgramKey(const target::Target &target, mlir::ModuleOp module,
                                           const PipelineOptions &options,
                                           const target::CodeOptions &code) {
  if (describeCompiler().empty())
    return "";
  auto targetKey = target.getKey();
  if (!targetKey)
    return targetKey.takeError();
  std::string text, chosen;
  raw_string_ostream os(text), optionStream(chosen);
  mlir::OpPrintingFlags flags;
  flags.printGenericOpForm().enableDebugInfo(false);
  module->print(os, flags);
  const_cast<PipelineOptions &>(options).print(optionStream);
  optionStream << " -O" << code.optLevel;
  return DiskCache::makeKey({"program", *targetKey, describeCompiler(), chosen, text});
}
