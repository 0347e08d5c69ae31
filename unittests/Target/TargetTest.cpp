// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Targets plug in: what the registry says of them, what keys contain of them, and a
// target of this folder through the entry points that all others use.

#include "TrialTarget.h"
#include "attn/Compiler/Executable.h"
#include "attn/Compiler/ProgramKey.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Target/SM90/SM90.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <set>

using namespace attn;
using namespace attn::target;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr llvm::StringLiteral kForward = R"(
func.func @main(%q: tensor<?x?x?x8xf32>, %k: tensor<?x?x?x8xf32>, %v: tensor<?x?x?x8xf32>) -> tensor<?x?x?x8xf32> {
  %o = attn.forward %q, %k, %v : tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32> -> tensor<?x?x?x8xf32>
  return %o : tensor<?x?x?x8xf32>
})";

constexpr llvm::StringLiteral kMatmul = R"(
func.func @main(%a: tensor<96x32xf32>, %b: tensor<32x64xf32>) -> tensor<96x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<96x64xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<96x64xf32>) -> tensor<96x64xf32>
  %c = linalg.matmul ins(%a, %b : tensor<96x32xf32>, tensor<32x64xf32>) outs(%start : tensor<96x64xf32>) -> tensor<96x64xf32>
  return %c : tensor<96x64xf32>
})";

const Target &find(llvm::StringRef name) {
  registerAllTargets();
  auto target = getTarget(name);
  EXPECT_TRUE(bool(target)) << llvm::toString(target.takeError());
  return **target;
}

std::shared_ptr<const Executable> compile(const Target &target, llvm::StringRef text,
                                          DiskCache cache = DiskCache()) {
  getTrialLog() = {};
  ExecutableOptions options(target);
  options.cache = cache;
  auto executable = Executable::compile(text, options);
  if (!executable) {
    ADD_FAILURE() << llvm::toString(executable.takeError());
    return nullptr;
  }
  return *executable;
}

TEST(Registry, FindsEachTargetByItsName) {
  for (llvm::StringRef name :
       {"cpu", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "trial", "trial-2"})
    EXPECT_EQ(find(name).getName(), name);
}

TEST(Registry, RegisteringAgainChangesNothing) {
  registerAllTargets();
  size_t count = getTargets().size();
  registerAllTargets();
  EXPECT_EQ(getTargets().size(), count);
  EXPECT_EQ(&find("cpu"), &find("cpu"));
}

TEST(Registry, CudaIsTheTargetForGpus) { EXPECT_EQ(&find("cuda"), &find("sm_90")); }

TEST(Registry, AnUnknownNameListsTheKnownOnes) {
  registerAllTargets();
  auto target = getTarget("tpu", {"auto"});
  EXPECT_EQ(llvm::toString(target.takeError()),
            "expected target auto, trial, trial-2, cpu, sm_90, sm_80, sm_86, sm_89, sm_100, "
            "sm_120 or cuda, got 'tpu'");
}

TEST(Keys, NoTwoTargetsShareAProgram) {
  registerAllTargets();
  mlir::MLIRContext context;
  auto module = mlir::parseSourceString<mlir::ModuleOp>("module {}", &context);
  PipelineOptions options;
  CodeOptions code;
  std::set<std::string> keys;
  std::vector<const Target *> targets = getTargets();
  for (const Target *target : targets)
    keys.insert(llvm::cantFail(makeProgramKey(*target, *module, options, code)));
  EXPECT_EQ(keys.size(), targets.size());
  EXPECT_FALSE(keys.count(""));
}

TEST(Keys, ContainNameAndChip) {
  for (llvm::StringRef name : {"cpu", "sm_90", "trial"}) {
    const Target &target = find(name);
    std::string key = llvm::cantFail(target.getKey());
    EXPECT_THAT(key, HasSubstr(name.str()));
    EXPECT_THAT(key, HasSubstr(target.getDescription().chip.str()));
  }
}

TEST(Keys, ACpuIsOneWithItsFeatures) {
  EXPECT_THAT(llvm::cantFail(find("cpu").getKey()),
              HasSubstr(llvm::cantFail(CpuExecutable::describeHost())));
}

TEST(Keys, CodeForAnotherLevelOfOptimisationIsAnother) {
  mlir::MLIRContext context;
  auto module = mlir::parseSourceString<mlir::ModuleOp>("module {}", &context);
  PipelineOptions options;
  CodeOptions usual, none;
  none.optLevel = 0;
  const Target &cpu = find("cpu");
  EXPECT_NE(llvm::cantFail(makeProgramKey(cpu, *module, options, usual)),
            llvm::cantFail(makeProgramKey(cpu, *module, options, none)));
}

TEST(Keys, TwoChipsShareNothingOnDisk) {
  llvm::SmallString<64> directory;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("attnc-target-test", directory));
  llvm::scope_exit remove([&] { llvm::sys::fs::remove_directories(directory); });
  DiskCache cache(directory);
  uint64_t compiled = Executable::getCounts().compiled;
  compile(find("trial"), kMatmul.str() + "// of one chip", cache);
  EXPECT_THAT(getTrialLog().asked, testing::Not(testing::Contains("read")));
  compile(find("trial-2"), kMatmul.str() + "// of one chip", cache);
  EXPECT_THAT(getTrialLog().asked, testing::Not(testing::Contains("read")));
  EXPECT_EQ(Executable::getCounts().compiled, compiled + 2);
  // The same chip does: the text differs in what the key does not have.
  compile(find("trial"), kMatmul.str() + "// once more", cache);
  EXPECT_THAT(getTrialLog().asked, ElementsAre("fit", "read", "load", "lookup main"));
}

TEST(Trial, CompilesAttentionToItsTiles) {
  auto executable = compile(find("trial"), kForward);
  ASSERT_TRUE(executable);
  EXPECT_EQ(&executable->getTarget(), &find("trial"));
  EXPECT_THAT(getTrialLog().asked,
              ElementsAre("fit", "pipeline of tensors", "generate", "load", "lookup main"));
  EXPECT_THAT(getTrialLog().tiles, HasSubstr("scf.forall"));
  EXPECT_THAT(getTrialLog().tiles, HasSubstr("vector<48x128xf32>"));
  EXPECT_THAT(getTrialLog().tiles, testing::Not(HasSubstr("attn.forward")));
}

TEST(Trial, IsCalledAsAllTargetsAre) {
  auto executable = compile(find("trial"), kMatmul);
  ASSERT_TRUE(executable);
  getTrialLog() = {};
  int64_t a[] = {96, 32}, b[] = {32, 64}, c[] = {96, 64}, sizes[2];
  TensorReference arguments[] = {{nullptr, a, nullptr}, {nullptr, b, nullptr}};
  TensorReference result = {nullptr, c, nullptr};
  EXPECT_FALSE(bool(executable->computeResultShapes(arguments, sizes)));
  EXPECT_EQ(llvm::cantFail(executable->getWorkspaceBytes(arguments, &result)), 7u);
  EXPECT_EQ(llvm::toString(executable->run(arguments, &result, nullptr, 7, nullptr)),
            "no machine for trials");
  EXPECT_THAT(getTrialLog().asked, ElementsAre("shapes", "measure", "run"));
}

TEST(Trial, HasLimitsAndAtomsOfItsOwn) {
  const Description &trial = find("trial").getDescription();
  EXPECT_EQ(trial.limits.sharedBytesPerCta, 4096);
  EXPECT_EQ(trial.atoms.front().m, 16);
  EXPECT_EQ(find("cpu").getDescription().atoms.size(), 0u);
}

TEST(Atoms, AreFoundByTheirTypes) {
  mlir::MLIRContext context;
  mlir::Type bf16 = mlir::BFloat16Type::get(&context), f16 = mlir::Float16Type::get(&context),
             f32 = mlir::Float32Type::get(&context), f64 = mlir::Float64Type::get(&context);
  llvm::ArrayRef<MmaAtom> atoms = find("sm_90").getDescription().atoms;
  const MmaAtom *atom = findMmaAtom(atoms, f16);
  ASSERT_TRUE(atom);
  EXPECT_EQ(atom->operands, MmaType::F16);
  EXPECT_TRUE(isType(atom->accumulator, f32));
  EXPECT_EQ(findMmaAtom(atoms, bf16)->operands, MmaType::BF16);
  EXPECT_EQ(findMmaAtom(atoms, f32), nullptr);
  const MmaAtom *wide = findMmaAtom(find("sm_80").getDescription().atoms, f64);
  ASSERT_TRUE(wide);
  EXPECT_TRUE(isType(wide->accumulator, f64));
  EXPECT_EQ(listOperands(atoms), "bf16 or f16");
}

TEST(Atoms, HaveRangesOfSizes) {
  for (const MmaAtom &atom : sm90::kAtoms) {
    for (int64_t n : {8, 16, 128, 256})
      EXPECT_TRUE(atom.n.contains(n));
    for (int64_t n : {0, 4, 12, 264})
      EXPECT_FALSE(atom.n.contains(n));
  }
}

} // namespace
