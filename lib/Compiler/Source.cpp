// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From text to the function to compile. See Source.h.

#include "Source.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Registration/Registration.h"
#include "attn/Utils/RenamedOptions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

/// The function to call, the only public one from now on.
static Expected<FuncOp> selectEntry(mlir::ModuleOp module, StringRef name) {
  SmallVector<FuncOp> candidates;
  for (auto function : module.getOps<FuncOp>())
    if (!function.isDeclaration())
      candidates.push_back(function);
  FuncOp entry;
  for (FuncOp function : candidates)
    if (function.getName() == (name.empty() ? "main" : name) ||
        (name.empty() && candidates.size() == 1))
      entry = function;
  if (!entry)
    return createStringError(name.empty() ? Twine("expected a function 'main', or only one")
                                          : "no function '" + name + "'");
  for (auto function : module.getOps<FuncOp>())
    function.setVisibility(function == entry ? mlir::SymbolTable::Visibility::Public
                                             : mlir::SymbolTable::Visibility::Private);
  return entry;
}

/// The gradient of the entry, by attn-differentiate with these options.
static Expected<FuncOp> differentiate(mlir::ModuleOp module, FuncOp entry, StringRef options) {
  std::unique_ptr<mlir::Pass> pass = createAttnDifferentiate();
  std::string problem;
  std::string text = ("function=" + entry.getName() + " " + options).str();
  if (failed(pass->initializeOptions(text, [&](const Twine &message) {
        problem = message.str();
        return mlir::failure();
      })))
    return createStringError("in the options of the gradient: " + problem);
  std::string name = (entry.getName() + "_gradient").str();
  mlir::PassManager manager(module.getContext());
  manager.addPass(std::move(pass));
  if (failed(manager.run(module)))
    return createStringError("differentiating '" + entry.getName() + "' failed");
  return selectEntry(module, name);
}

static mlir::DialectRegistry makeRegistry() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  return registry;
}

Source::Source()
    : context(makeRegistry()), handler(&context, [this](mlir::Diagnostic &diagnostic) {
        note(diagnostic);
        return mlir::success();
      }) {}

Error Source::explain(Error error) {
  if (!error || said.empty())
    return error;
  consumeError(std::move(error));
  return createStringError(StringRef(said).rtrim());
}

void Source::note(mlir::Diagnostic &diagnostic) {
  if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error || !said.empty())
    return;
  raw_string_ostream os(said);
  if (auto at = diagnostic.getLocation()->findInstanceOf<mlir::FileLineColLoc>())
    os << at.getFilename().getValue() << ":" << at.getLine() << ":" << at.getColumn() << ": ";
  os << diagnostic;
}

Error Source::parse(StringRef text, const ExecutableOptions &options) {
  context.printOpOnDiagnostic(false);
  module = mlir::parseSourceString<mlir::ModuleOp>(text, &context, "ir");
  if (!module)
    return createStringError("cannot parse the IR");
  auto selected = selectEntry(*module, options.entry);
  if (selected && options.gradient)
    selected = differentiate(*module, *selected, *options.gradient);
  if (!selected)
    return selected.takeError();
  entry = *selected;
  std::string problem = findRenamedOption(options.pipeline);
  if (!problem.empty())
    return createStringError("in the options of the pipeline: " + problem);
  raw_string_ostream problemStream(problem);
  if (failed(pipeline.parseFromString(options.pipeline, problemStream)))
    return createStringError("in the options of the pipeline: " + problem);
  return Error::success();
}
