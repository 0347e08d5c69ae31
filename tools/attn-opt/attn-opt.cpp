// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-opt: runs passes and pipelines over attention IR.

#include "attn/Dialect/Hopper/Transforms/CheckFacts.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Registration/Registration.h"
#include "attn/Transforms/Tiles/CheckFacts.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/Operation.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/ADT/Statistic.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ManagedStatic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"
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

namespace {
/// MlirOptMain ends with llvm_shutdown, which forgets the statistics: what was made behind them
/// goes first.
struct StatisticsPrinter {
  ~StatisticsPrinter() {
    if (printStatistics)
      llvm::PrintStatistics(llvm::errs());
  }
};
} // namespace
static llvm::ManagedStatic<StatisticsPrinter> statisticsPrinter;

static llvm::cl::opt<bool> printSchedules(
    "attn-print-schedules",
    llvm::cl::desc("Print the table of schedules of Hopper kernels (Markdown) and exit"),
    llvm::cl::callback([](const bool &) {
      attn::printHopperSchedules(llvm::outs());
      llvm::outs().flush();
      std::exit(0);
    }));

namespace {
/// Checks facts after each pass, those of pipelines that passes run included.
struct FactChecks : mlir::PassInstrumentation {
  void runAfterPass(mlir::Pass *pass, mlir::Operation *op) override {
    // One that has no name only runs others.
    if (pass->getArgument().empty())
      return;
    bool areTrue = succeeded(attn::checkTileFacts(op));
    areTrue &= succeeded(attn::hopper::checkHopperFacts(op));
    if (areTrue)
      return;
    op->emitError() << "facts are wrong after '" << pass->getArgument() << "'";
    signalPassFailure(pass);
  }
};

/// What MlirOptMain does, with these checks.
mlir::LogicalResult runWithFactChecks(llvm::StringRef input, llvm::StringRef output,
                                      mlir::DialectRegistry &registry) {
  mlir::MlirOptMainConfig parsed = mlir::MlirOptMainConfig::createFromCLOptions();
  mlir::MlirOptMainConfig config = parsed;
  config.setPassPipelineSetupFn([&](mlir::PassManager &pm) {
    if (failed(parsed.setupPassPipeline(pm)))
      return mlir::failure();
    pm.addInstrumentation(std::make_unique<FactChecks>());
    return mlir::success();
  });
  std::string message;
  auto from = mlir::openInputFile(input, &message);
  auto to = from ? mlir::openOutputFile(output, &message) : nullptr;
  if (!to) {
    llvm::errs() << message << "\n";
    return mlir::failure();
  }
  if (failed(mlir::MlirOptMain(to->os(), std::move(from), registry, config)))
    return mlir::failure();
  to->keep();
  return mlir::success();
}
} // namespace

/// Remarks of functions that threads compile at once can get lost: those who ask for them get one
/// thread.
static void disableThreadsIfRemarks() {
  auto &options = llvm::cl::getRegisteredOptions();
  for (auto [name, option] : options)
    if (name.starts_with("remarks-filter") && option->getNumOccurrences()) {
      options["mlir-disable-threading"]->addOccurrence(0, "mlir-disable-threading", "true");
      return;
    }
}

int main(int argc, char **argv) {
  llvm::EnableStatistics(/*DoPrintOnExit=*/false);
  (void)llvm::GetStatistics(); // makes LLVM's list of them
  (void)*statisticsPrinter;
  llvm::cl::opt<bool> checkFacts(
      "check-facts", llvm::cl::desc("Check after each pass that facts in attributes are true "
                                    "(attn-check-facts, hopper-check-facts)"));
  mlir::DialectRegistry registry;
  attn::registerDialects(registry);
  attn::registerPasses();
#ifdef ATTN_TEST_PASSES
  attn::test::registerTestBuildMask();
  attn::test::registerTestHopperMutate();
#endif
  auto [input, output] = mlir::registerAndParseCLIOptions(
      argc, argv, "attnc: passes and pipelines over attention IR\n", registry);
  disableThreadsIfRemarks();
  llvm::LogicalResult result = checkFacts ? runWithFactChecks(input, output, registry)
                                          : mlir::MlirOptMain(argc, argv, input, output, registry);
  return mlir::asMainReturnCode(result);
}
