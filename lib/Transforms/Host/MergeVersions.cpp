// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Versions of a function become branches: a copy of each body under its conditions.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Host/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/SymbolTable.h"

namespace attn {
#define GEN_PASS_DEF_ATTNMERGEVERSIONS
#include "attn/Transforms/Host/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static Done numMerged("attn-merge-versions", "merged", "Versions that became branches");

namespace {
struct MergeVersionsPass : attn::impl::AttnMergeVersionsBase<MergeVersionsPass> {
  void runOnOperation() override {
    if (failed(merge(getOperation())))
      signalPassFailure();
  }

  /// All versions in a module, those of inner modules first.
  LogicalResult merge(ModuleOp module) {
    if (failed(mergeFunctions(module)))
      return failure();
    for (auto versions : llvm::make_early_inc_range(module.getOps<VersionsOp>())) {
      for (ModuleOp version : versions.getModules())
        if (failed(merge(version)))
          return failure();
      if (failed(mergeVersions(versions)))
        return failure();
    }
    return success();
  }

  /// Functions that are versions of one beside them.
  static LogicalResult mergeFunctions(ModuleOp module) {
    SymbolTable table(module);
    auto functions = llvm::to_vector(module.getOps<func::FuncOp>());
    // The first one's branch is outermost, so it comes last.
    for (func::FuncOp version : llvm::reverse(functions)) {
      auto name = version->getAttrOfType<StringAttr>(kVersionOfAttr);
      if (!name)
        continue;
      auto last = table.lookup<func::FuncOp>(name);
      if (!last || last->hasAttr(kVersionOfAttr))
        return version.emitError("expected the function @")
               << name.getValue() << ", of which this is a version";
      if (failed(check(version, last)))
        return failure();
      branch(version, version->getAttrOfType<ArrayAttr>(kWhenAttr), last);
      version.erase();
    }
    return success();
  }

  static LogicalResult check(func::FuncOp version, func::FuncOp last) {
    if (version.getFunctionType() != last.getFunctionType())
      return version.emitError("expected a version of type ")
             << last.getFunctionType() << ", as the last one has, got "
             << version.getFunctionType();
    if (version.getNumResults() > 0 || !version.getBody().hasOneBlock())
      return version.emitError("expected a version of one block without results");
    return success();
  }

  static LogicalResult mergeVersions(VersionsOp versions) {
    SmallVector<ModuleOp> modules = versions.getModules();
    SmallVector<func::FuncOp> functions;
    for (ModuleOp module : modules) {
      functions.push_back(module.lookupSymbol<func::FuncOp>(versions.getSymName()));
      if (!functions.back())
        return module.emitError("expected a function @") << versions.getSymName();
    }
    func::FuncOp last = functions.back();
    // One version is its function, whatever that is.
    if (functions.size() > 1)
      for (func::FuncOp function : functions)
        if (failed(check(function, last)))
          return failure();
    // While uses are in the versions' modules, where names change with them.
    auto outer = versions->getParentOfType<ModuleOp>();
    for (ModuleOp module : modules)
      if (failed(moveSymbols(module, outer, versions)))
        return failure();
    for (size_t i = functions.size() - 1; i-- > 0;)
      branch(functions[i], modules[i]->getAttrOfType<ArrayAttr>(kWhenAttr), last);
    functions.pop_back();
    for (func::FuncOp function : functions)
      function.erase();
    last->moveBefore(versions);
    versions.erase();
    return success();
  }

  /// Puts the body of `version` in front of what `last` does, under its conditions.
  static void branch(func::FuncOp version, ArrayAttr when, func::FuncOp last) {
    Block &body = last.front();
    OpBuilder b = OpBuilder::atBlockBegin(&body);
    Location loc = last.getLoc();
    Value all;
    if (when)
      for (auto condition : when.getAsRange<VersionConditionInterface>())
        if (Value holds = condition.build(b, version, last)) {
          if (matchPattern(holds, m_Zero())) { // it never runs
            holds.getDefiningOp()->erase();
            return;
          }
          all = all ? arith::AndIOp::create(b, loc, all, holds) : holds;
        }
    auto moveTo = [](Block *target, Block &from, Block::iterator first) {
      target->getOperations().splice(target->getTerminator()->getIterator(), from.getOperations(),
                                     first, from.getTerminator()->getIterator());
    };
    Block *target = &body;
    if (all) {
      auto choice = scf::IfOp::create(b, loc, all, /*withElseRegion=*/true);
      moveTo(choice.elseBlock(), body, std::next(choice->getIterator()));
      target = choice.thenBlock();
    } else { // it always runs
      while (Operation *op = body.getTerminator()->getPrevNode())
        op->erase();
    }
    for (auto [argument, old] : llvm::zip_equal(last.getArguments(), version.getArguments()))
      old.replaceAllUsesWith(argument);
    moveTo(target, version.front(), version.front().begin());
    numMerged.at(version);
  }

  /// Moves what else a version's module holds to the module around, under names that are free.
  static LogicalResult moveSymbols(ModuleOp module, ModuleOp outer, VersionsOp versions) {
    SymbolTable inner(module), table(outer);
    for (Operation &op : llvm::make_early_inc_range(*module.getBody())) {
      auto symbol = dyn_cast<SymbolOpInterface>(op);
      if (symbol && symbol.getName() == versions.getSymName())
        continue;
      bool isTaken = symbol && table.lookup(symbol.getName());
      if (isTaken && symbol.isDeclaration()) {
        op.erase(); // that of the module around serves
        continue;
      }
      if (isTaken && failed(inner.renameToUnique(&op, {&table})))
        return failure();
      op.moveBefore(versions);
    }
    return success();
  }
};
} // namespace
