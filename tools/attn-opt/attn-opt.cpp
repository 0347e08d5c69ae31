// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-opt: runs passes and pipelines over attention IR.

#include "attn/Pipelines/Pipelines.h"
#include "attn/Registration/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/ADT/Statistic.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#ifdef ATTN_TEST_PASSES
namespace attn::test {
void registerTestBuildMask();
void registerTestHopperMutate();
} // namespace attn::test
#endif

static llvm::cl::opt<bool>
    printStatistics("attn-statistics",
                    llvm::cl::desc("Print how often attnc's passes did what they do"));

static llvm::cl::opt<bool> printSchedules(
    "attn-print-schedules",
    llvm::cl::desc("Print the table of schedules of Hopper kernels (Markdown) and exit"),
    llvm::cl::callback([](const bool &) {
      attn::printHopperSchedules(llvm::outs());
      llvm::outs().flush();
      std::exit(0);
    }));

int main(int argc, char **argv) {
  llvm::EnableStatistics(/*DoPrintOnExit=*/false);
  mlir::DialectRegistry registry;
  attn::registerDialects(registry);
  attn::registerPasses();
#ifdef ATTN_TEST_PASSES
  attn::test::registerTestBuildMask();
  attn::test::registerTestHopperMutate();
#endif
  llvm::LogicalResult result =
      mlir::MlirOptMain(argc, argv, "attnc: passes and pipelines over attention IR\n", registry);
  if (printStatistics)
    llvm::PrintStatistics(llvm::errs());
  return mlir::asMainReturnCode(result);
}
