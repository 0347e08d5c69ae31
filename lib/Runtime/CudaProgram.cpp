// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A compiled CUDA program. See CudaProgram.h.

#include "attn/Runtime/CudaProgram.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Endian.h"

using namespace llvm;
using namespace attn;

Expected<CudaProgram> CudaProgram::create(mlir::ModuleOp module,
                                          CpuCompileTimes &times) {
  CudaProgram program;
  StringMap<unsigned> positions;
  for (auto binary :
       make_early_inc_range(module.getOps<mlir::gpu::BinaryOp>())) {
    auto object = cast<mlir::gpu::ObjectAttr>(binary.getObjects()[0]);
    positions[binary.getName()] = program.ptx.size();
    // The object may hold the final zero of a C string.
    program.ptx.push_back(object.getObject().getValue().rtrim('\0').str());
    binary.erase();
  }
  auto kernels = module->getAttrOfType<mlir::ArrayAttr>("attn.kernels");
  if (!kernels)
    return createStringError("the host code was not lowered: the module has no "
                             "attn.kernels");
  for (auto kernel : kernels.getAsRange<mlir::SymbolRefAttr>()) {
    auto known = positions.find(kernel.getRootReference().getValue());
    if (known == positions.end())
      return createStringError("no PTX for kernel '" +
                               kernel.getLeafReference().getValue() + "'");
    program.kernels.push_back(
        {known->second, kernel.getLeafReference().getValue().str()});
  }
  for (auto function : module.getOps<mlir::LLVM::LLVMFuncOp>())
    if (function.getName().starts_with("_mlir_ciface_"))
      program.functions.push_back(
          function.getName().drop_front(strlen("_mlir_ciface_")).str());
  module->removeAttr("attn.kernels");
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

static constexpr StringLiteral magic("attnc program 1\n");

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
  /// How many elements follow, each of at least `least` bytes.
  uint64_t count(uint64_t least) {
    uint64_t value = number();
    good &= value <= rest.size() / least;
    return good ? value : 0;
  }
  StringRef rest;
  bool good;
};
} // namespace

std::string CudaProgram::serialize() const {
  Writer writer;
  writer.number(ptx.size());
  for (const std::string &text : ptx)
    writer.string(text);
  writer.number(kernels.size());
  for (const Kernel &kernel : kernels) {
    writer.number(kernel.module);
    writer.string(kernel.name);
  }
  writer.number(functions.size());
  for (const std::string &function : functions)
    writer.string(function);
  writer.string(hostObject);
  return writer.text;
}

std::optional<CudaProgram> CudaProgram::deserialize(StringRef bytes) {
  Reader reader(bytes);
  CudaProgram program;
  program.ptx.resize(reader.count(8));
  for (std::string &text : program.ptx)
    text = reader.string();
  program.kernels.resize(reader.count(16));
  for (Kernel &kernel : program.kernels) {
    kernel.module = reader.number();
    kernel.name = reader.string();
    reader.good &= kernel.module < program.ptx.size();
  }
  program.functions.resize(reader.count(8));
  for (std::string &function : program.functions)
    function = reader.string();
  program.hostObject = reader.string();
  if (!reader.good || !reader.rest.empty())
    return std::nullopt;
  return program;
}
