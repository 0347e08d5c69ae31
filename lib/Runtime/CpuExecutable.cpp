// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The JIT for the host's CPU. See CpuExecutable.h.

#include "attn/Runtime/CpuExecutable.h"
#include "RuntimeSymbols.h"
#include "attn/Utils/MatrixUnits.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/CompileUtils.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include <chrono>
#include <mutex>

using namespace llvm;
using namespace attn;

static constexpr StringLiteral interfacePrefix("_mlir_ciface_");
static constexpr StringLiteral packedPrefix("_attn_packed_");

namespace {
/// Adds the time from its construction to its destruction.
class Timer {
public:
  explicit Timer(double &seconds) : seconds(seconds) {}
  ~Timer() { seconds += std::chrono::duration<double>(Clock::now() - start).count(); }

private:
  using Clock = std::chrono::steady_clock;
  double &seconds;
  Clock::time_point start = Clock::now();
};
} // namespace

/// Defines `_attn_packed_<name>(ptr arguments)` for each function with a C
/// interface: callers then need no function type of their own per signature.
static void addPackedWrappers(Module &module) {
  SmallVector<Function *> interfaces;
  for (Function &function : module)
    if (!function.isDeclaration() && function.getName().starts_with(interfacePrefix))
      interfaces.push_back(&function);
  IRBuilder<> builder(module.getContext());
  Type *pointer = builder.getPtrTy();
  auto *type = FunctionType::get(builder.getVoidTy(), {pointer}, false);
  for (Function *function : interfaces) {
    StringRef name = function->getName().drop_front(interfacePrefix.size());
    auto *wrapper =
        Function::Create(type, GlobalValue::ExternalLinkage, packedPrefix + name, module);
    builder.SetInsertPoint(BasicBlock::Create(module.getContext(), "", wrapper));
    auto slot = [&](unsigned index) {
      Value *at = builder.CreateConstGEP1_64(pointer, wrapper->getArg(0), index);
      return builder.CreateLoad(pointer, at);
    };
    SmallVector<Value *> arguments;
    for (auto [index, argument] : enumerate(function->args()))
      arguments.push_back(builder.CreateLoad(argument.getType(), slot(index)));
    Value *result = builder.CreateCall(function, arguments);
    if (!result->getType()->isVoidTy())
      builder.CreateStore(result, slot(arguments.size()));
    builder.CreateRetVoid();
  }
}

static void setTarget(Module &module, TargetMachine &machine) {
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(machine.getTargetTriple());
  bool wide = machine.getTargetFeatureString().contains("+avx512f");
  for (Function &function : module) {
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    // Some CPUs' tuning splits 512-bit vectors; our tiles are made for them.
    if (wide)
      function.addFnAttr("prefer-vector-width", "512");
  }
}

static void optimize(Module &module, TargetMachine &machine, const CpuCompileOptions &options) {
  PipelineTuningOptions tuning;
  tuning.LoopVectorization = options.vectorizeLoops;
  tuning.SLPVectorization = options.vectorizeLoops;
  PassBuilder passes(&machine, tuning);
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  ModuleAnalysisManager modules;
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(components);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, components, modules);
  static const OptimizationLevel levels[] = {OptimizationLevel::O0, OptimizationLevel::O1,
                                             OptimizationLevel::O2, OptimizationLevel::O3};
  OptimizationLevel level = levels[std::min(options.optLevel, 3u)];
  ModulePassManager manager = options.optLevel == 0 ? passes.buildO0DefaultPipeline(level)
                                                    : passes.buildPerModuleDefaultPipeline(level);
  manager.run(module, modules);
}

CpuExecutable::CpuExecutable() = default;
CpuExecutable::~CpuExecutable() = default;

static void initializeNativeTarget() {
  static std::once_flag initialized;
  std::call_once(initialized, [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
  });
}

/// The host's own CPU, or any of its architecture.
static Expected<orc::JITTargetMachineBuilder>
makeTargetMachineBuilder(const CpuCompileOptions &options) {
  initializeNativeTarget();
  orc::JITTargetMachineBuilder generic{Triple(sys::getProcessTriple())};
  auto builder = options.genericCpu ? Expected<orc::JITTargetMachineBuilder>(std::move(generic))
                                    : orc::JITTargetMachineBuilder::detectHost();
  if (!builder)
    return builder.takeError();
  builder->setCodeGenOptLevel(static_cast<CodeGenOptLevel>(std::min(options.optLevel, 3u)));
  // What LLJIT's linker expects.
  builder->setRelocationModel(Reloc::PIC_);
  builder->setCodeModel(CodeModel::Small);
  return builder;
}

Expected<std::string> CpuExecutable::describeHost() {
  auto builder = makeTargetMachineBuilder({});
  if (!builder)
    return builder.takeError();
  // What the system gives is asked for before code runs that needs it, also code from a cache.
  return builder->getTargetTriple().str() + " " + builder->getCPU() + " " +
         builder->getFeatures().getString() + " " + findHostMatrixUnit().str();
}

Expected<CpuObject> CpuExecutable::compileObject(mlir::ModuleOp module,
                                                 const CpuCompileOptions &options) {
  CpuObject result;
  mlir::registerBuiltinDialectTranslation(*module.getContext());
  mlir::registerLLVMDialectTranslation(*module.getContext());
  LLVMContext context;
  std::unique_ptr<Module> llvmModule;
  {
    Timer timer(result.times.translate);
    llvmModule = mlir::translateModuleToLLVMIR(module, context);
  }
  if (!llvmModule)
    return createStringError("translation to LLVM IR failed");
  addPackedWrappers(*llvmModule);
  auto builder = makeTargetMachineBuilder(options);
  if (!builder)
    return builder.takeError();
  auto machine = builder->createTargetMachine();
  if (!machine)
    return machine.takeError();
  {
    Timer timer(result.times.optimize);
    setTarget(*llvmModule, **machine);
    optimize(*llvmModule, **machine, options);
  }
  if (options.printLLVM)
    llvmModule->print(errs(), nullptr);
  {
    Timer timer(result.times.codegen); // which ends before the result is moved
    auto object = orc::SimpleCompiler(**machine)(*llvmModule);
    if (!object)
      return object.takeError();
    result.code = std::move(*object);
  }
  return result;
}

Expected<std::unique_ptr<CpuExecutable>> CpuExecutable::load(std::unique_ptr<MemoryBuffer> code) {
  initializeNativeTarget();
  std::unique_ptr<CpuExecutable> result(new CpuExecutable);
  // The default platform compiles a module of its own for initialisers and
  // thread-local storage, which our code has none of.
  auto jit =
      orc::LLJITBuilder()
          .setJITTargetMachineBuilder(orc::JITTargetMachineBuilder(Triple(sys::getProcessTriple())))
          .setPlatformSetUp(orc::setUpInactivePlatform)
          .create();
  if (!jit)
    return jit.takeError();
  result->jit = std::move(*jit);
  orc::JITDylib &library = result->jit->getMainJITDylib();
  if (Error error = library.define(orc::absoluteSymbols(getRuntimeSymbols(*result->jit))))
    return std::move(error);
  auto process = orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      result->jit->getDataLayout().getGlobalPrefix());
  if (!process)
    return process.takeError();
  library.addGenerator(std::move(*process));
  if (Error error = result->jit->addObjectFile(std::move(code)))
    return std::move(error);
  return result;
}

Expected<void *> CpuExecutable::lookup(StringRef name) {
  auto address = jit->lookup(name);
  if (!address)
    return address.takeError();
  return address->toPtr<void *>();
}

Expected<CpuExecutable::Packed> CpuExecutable::lookupPacked(StringRef name) {
  auto address = jit->lookup((packedPrefix + name).str());
  if (!address)
    return address.takeError();
  return address->toPtr<Packed>();
}
