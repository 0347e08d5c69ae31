// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the compiler says while attn-run compiles.

#ifndef ATTN_TOOLS_ATTN_RUN_DIAGNOSTICS_H
#define ATTN_TOOLS_ATTN_RUN_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace attn {

/// Prints the first error of the compiler and keeps its remarks.
class Diagnostics : public mlir::SourceMgrDiagnosticHandler {
public:
  Diagnostics(llvm::SourceMgr &sources, mlir::MLIRContext *context)
      : SourceMgrDiagnosticHandler(sources, context) {
    setHandler([this](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Remark) {
        std::string text;
        llvm::raw_string_ostream stream(text);
        stream << "remark: " << diagnostic.str();
        for (mlir::Diagnostic &note : diagnostic.getNotes())
          stream << "\n  " << note.str();
        if (seen.insert(text).second)
          remarks.push_back(text);
        if (printsRemarks)
          emitDiagnostic(diagnostic);
        return;
      }
      if (silent)
        return;
      bool isError = diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error;
      if (!isError || !failed)
        emitDiagnostic(diagnostic);
      failed |= isError;
    });
  }

  /// The error of a step that failed: its text has been printed already, or
  /// else it is `otherwise`.
  llvm::Error failure(const llvm::Twine &otherwise) const {
    return llvm::createStringError(failed ? "compilation failed" : otherwise);
  }

  std::vector<std::string> remarks;
  bool failed = false;
  /// Remarks are shown as they come, too.
  bool printsRemarks = false;
  /// Errors are not shown: something else will be tried.
  bool silent = false;

private:
  llvm::StringSet<> seen;
};

} // namespace attn

#endif
