// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on text, within the process. See Executable.h.

#include "attn/Compiler/Executable.h"
#include "attn/Registration/Registration.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include <mutex>

using namespace llvm;
using namespace attn;

static void print(const mlir::Diagnostic &diagnostic, raw_ostream &os) {
  static constexpr const char *severities[] = {"note", "warning", "error", "remark"};
  if (auto at = diagnostic.getLocation()->findInstanceOf<mlir::FileLineColLoc>())
    os << at.getFilename().getValue() << ":" << at.getLine() << ":" << at.getColumn() << ": ";
  os << severities[unsigned(diagnostic.getSeverity())] << ": " << diagnostic << "\n";
  for (const mlir::Diagnostic &note : diagnostic.getNotes())
    print(note, os);
}

Expected<std::string> attn::transformText(StringRef text, StringRef pipeline, std::string &said,
                                          StringRef remarks) {
  static std::once_flag registered;
  std::call_once(registered, registerPasses);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false);
  raw_string_ostream os(said);
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    print(diagnostic, os);
    return mlir::success();
  });
  if (!remarks.empty())
    if (Error error = enableRemarks(context, remarks))
      return error;
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context, "ir");
  if (!module)
    return createStringError("cannot parse the IR");
  auto passes = mlir::parsePassPipeline(pipeline, os);
  if (failed(passes))
    return createStringError("cannot parse the pipeline");
  if (passes->getOpAnchorName() != mlir::ModuleOp::getOperationName())
    return createStringError("expected a pipeline 'builtin.module(...)'");
  mlir::PassManager manager(&context);
  static_cast<mlir::OpPassManager &>(manager) = std::move(*passes);
  if (failed(manager.run(*module)))
    return createStringError("the pipeline failed");
  std::string result;
  raw_string_ostream resultStream(result);
  (*module)->print(resultStream, mlir::OpPrintingFlags().useLocalScope());
  return result;
}
