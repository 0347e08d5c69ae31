// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A compiled CUDA program. See CudaProgram.h.

#include "attn/Runtime/CudaProgram.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Endian.h"

using namespace llvm;
using namespace attn;

/// Adds a module's text to one of several. What stands in front of functions (the version, the
/// target, the shared memory) is the same in all, and stands there once.
static void append(std::string &ptx, StringRef text, StringSet<> &declared) {
  bool isHead = true;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    isHead &= !line.contains(".entry") && !line.contains(".func");
    if (isHead && line.starts_with(".") && !declared.insert(line).second)
      continue;
    (ptx += line) += '\n';
  }
}

Expected<CudaProgram> CudaProgram::create(mlir::ModuleOp module, CpuCompileTimes &times) {
  CudaProgram program;
  StringSet<> binaries, declared;
  for (auto binary : make_early_inc_range(module.getOps<mlir::gpu::BinaryOp>())) {
    auto object = cast<mlir::gpu::ObjectAttr>(binary.getObjects()[0]);
    binaries.insert(binary.getName());
    // The object may hold the final zero of a C string.
    append(program.ptx, object.getObject().getValue().rtrim('\0'), declared);
    binary.erase();
  }
  auto kernels = module->getAttrOfType<mlir::ArrayAttr>(kKernelsAttr);
  if (!kernels)
    return createStringError("the host code was not lowered: the module has no " + kKernelsAttr);
  for (auto kernel : kernels.getAsRange<mlir::SymbolRefAttr>()) {
    if (!binaries.contains(kernel.getRootReference().getValue()))
      return createStringError("no PTX for kernel '" + kernel.getLeafReference().getValue() + "'");
    program.kernels.push_back(kernel.getLeafReference().getValue().str());
  }
  for (auto function : module.getOps<mlir::LLVM::LLVMFuncOp>())
    if (function.getName().starts_with("_mlir_ciface_"))
      program.functions.push_back(function.getName().drop_front(strlen("_mlir_ciface_")).str());
  module->removeAttr(kKernelsAttr);
  module->removeAttr("gpu.container_module");
  CpuCompileOptions options;
  options.genericCpu = true;
  auto object = CpuExecutable::compileObject(module, options);
  if (!object)
    return object.takeError();
  times = object->times;
  program.hostObject = object->code->getBuffer().str();
  return program;
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

static constexpr StringLiteral magic("attnc program 2\n");

namespace {
/// Numbers of 64 bits and strings with their length in front.
class Writer {
public:
  void number(uint64_t value) {
    char bytes[8];
    support::endian::write64le(bytes, value);
    text.append(bytes, 8);
  }
  void string(StringRef value) {
    number(value.size());
    text += value;
  }
  void strings(ArrayRef<std::string> values) {
    number(values.size());
    for (const std::string &value : values)
      string(value);
  }
  std::string text = magic.str();
};

class Reader {
public:
  explicit Reader(StringRef text) : rest(text) { good = rest.consume_front(magic); }
  uint64_t number() {
    if (rest.size() < 8)
      return good = false;
    uint64_t value = support::endian::read64le(rest.data());
    rest = rest.drop_front(8);
    return value;
  }
  std::string string() {
    uint64_t size = number();
    if (size > rest.size()) {
      good = false;
      return "";
    }
    std::string value = rest.take_front(size).str();
    rest = rest.drop_front(size);
    return value;
  }
  std::vector<std::string> strings() {
    uint64_t count = number();
    // Each has a length of 8 bytes in front.
    good &= count <= rest.size() / 8;
    std::vector<std::string> values(good ? count : 0);
    for (std::string &value : values)
      value = string();
    return values;
  }
  StringRef rest;
  bool good;
};
} // namespace

std::string CudaProgram::serialize() const {
  Writer writer;
  writer.string(ptx);
  writer.strings(kernels);
  writer.strings(functions);
  writer.string(hostObject);
  return writer.text;
}

std::optional<CudaProgram> CudaProgram::deserialize(StringRef bytes) {
  Reader reader(bytes);
  CudaProgram program;
  program.ptx = reader.string();
  program.kernels = reader.strings();
  program.functions = reader.strings();
  program.hostObject = reader.string();
  if (!reader.good || !reader.rest.empty())
    return std::nullopt;
  return program;
}
