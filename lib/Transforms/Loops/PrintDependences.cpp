// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints the dependence graph of every function, by either front end.

#include "attn/Analysis/AffineDependences.h"
#include "attn/Analysis/StructuredDependences.h"
#include "attn/Transforms/Loops/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/raw_ostream.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPRINTDEPENDENCES
#include "attn/Transforms/Loops/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
struct PrintDependencesPass : attn::impl::AttnPrintDependencesBase<PrintDependencesPass> {
  using AttnPrintDependencesBase::AttnPrintDependencesBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (format != "text" && format != "dot" && format != "pairs") {
      getOperation()->emitError("expected format text, dot or pairs, got ") << format;
      return signalPassFailure();
    }
    std::error_code problem;
    llvm::raw_fd_ostream os(file, problem);
    if (problem) {
      getOperation()->emitError("cannot write '") << file << "': " << problem.message();
      return signalPassFailure();
    }
    getOperation()->walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
      if (function.isExternal())
        return;
      bool hasLoops = function->walk([](affine::AffineForOp) { return WalkResult::interrupt(); })
                          .wasInterrupted();
      if (format == "pairs") {
        os << "access pairs of @" << function.getName() << "\n";
        printAccessPairs(buildAffineDependences(function), function, os);
        return;
      }
      if (hasLoops)
        print(buildAffineDependences(function), function.getName(), os);
      for (Region &region : function->getRegions())
        for (Block &block : region)
          if (hasStructuredStatements(block))
            print(buildStructuredDependences(block).graph, function.getName(), os);
    });
  }

private:
  void print(const DependenceGraph &graph, StringRef name, llvm::raw_ostream &os) {
    if (format == "dot")
      graph.printDot(os, name);
    else
      graph.print(os, ("@" + name).str());
  }
};
} // namespace
