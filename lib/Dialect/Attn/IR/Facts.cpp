// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Verification of facts: what one op shows.

#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// What facts of all dialects have
//===----------------------------------------------------------------------===//

/// Whether the fact's list of ops has that of `op`, or its dialect.
static bool standsOn(const Fact &fact, Operation *op) {
  SmallVector<StringRef> names;
  fact.ops.split(names, ", ");
  return llvm::any_of(names, [&](StringRef name) {
    return name == "any" || name == op->getName().getStringRef() ||
           name == op->getName().getDialectNamespace();
  });
}

static bool isAtLeast(Attribute value, int64_t least) {
  auto integer = dyn_cast<IntegerAttr>(value);
  return integer && integer.getValue().getSignificantBits() <= 64 && integer.getInt() >= least;
}

static bool hasType(FactType type, Attribute value) {
  auto all = [&](auto isElement) {
    auto array = dyn_cast<ArrayAttr>(value);
    return array && llvm::all_of(array, isElement);
  };
  switch (type) {
  case FactType::Unit:
    return isa<UnitAttr>(value);
  case FactType::Positive:
    return isAtLeast(value, 1);
  case FactType::Count:
    return isAtLeast(value, 0);
  case FactType::Argument:
    return isAtLeast(value, 0) && cast<IntegerAttr>(value).getType().isIndex();
  case FactType::Name:
    return isa<StringAttr>(value);
  case FactType::Names:
    return all([](Attribute each) { return isa<StringAttr>(each); });
  case FactType::Symbols:
    return all([](Attribute each) { return isa<SymbolRefAttr>(each); });
  case FactType::Numbers:
    return isa<DenseI64ArrayAttr>(value) &&
           llvm::all_of(cast<DenseI64ArrayAttr>(value).asArrayRef(),
                        [](int64_t each) { return each >= 0; });
  case FactType::Typed:
    return true;
  }
  llvm_unreachable("a type of facts");
}

static StringRef describe(FactType type) {
  switch (type) {
  case FactType::Unit:
    return "a unit";
  case FactType::Positive:
    return "an integer of 1 or more";
  case FactType::Count:
    return "an integer of 0 or more";
  case FactType::Argument:
    return "an index of 0 or more";
  case FactType::Name:
    return "a string";
  case FactType::Names:
    return "an array of strings";
  case FactType::Symbols:
    return "an array of symbols";
  case FactType::Numbers:
    return "an array of integers of 0 or more";
  case FactType::Typed:
    return "of a type of its own";
  }
  llvm_unreachable("a type of facts");
}

/// The fact with this name and a value of its type; null after an error.
static const Fact *findFact(ArrayRef<Fact> facts, Operation *op, NamedAttribute attribute) {
  const Fact *fact =
      llvm::find_if(facts, [&](const Fact &each) { return each.name == attribute.getName(); });
  if (fact == facts.end()) {
    op->emitError() << "unknown attribute '" << attribute.getName().getValue() << "'";
    return nullptr;
  }
  if (!hasType(fact->type, attribute.getValue())) {
    op->emitError() << "attribute '" << fact->name << "' is " << describe(fact->type) << ", got "
                    << attribute.getValue();
    return nullptr;
  }
  return fact;
}

LogicalResult attn::verifyFact(ArrayRef<Fact> facts, Operation *op, NamedAttribute attribute) {
  const Fact *fact = findFact(facts, op, attribute);
  if (!fact)
    return failure();
  if (!standsOn(*fact, op))
    return op->emitError() << "attribute '" << fact->name << "' stands on " << fact->ops
                           << ", not on " << op->getName();
  return fact->verify ? fact->verify(op) : success();
}

LogicalResult attn::verifyFactOfArgument(ArrayRef<Fact> facts, Operation *op, bool isResult,
                                         NamedAttribute attribute) {
  const Fact *fact = findFact(facts, op, attribute);
  if (!fact || (fact->ofArgument && !isResult))
    return success(fact);
  return op->emitError() << "attribute '" << fact->name << "' stands on " << fact->ops
                         << ", not on " << (isResult ? "a result" : "an argument")
                         << " of a function";
}

//===----------------------------------------------------------------------===//
// Facts of the attn dialect
//===----------------------------------------------------------------------===//

/// The loop that an op is an iteration's part of, if it is marked to be a fold loop.
static scf::ForOp getFoldLoop(Operation *op) {
  auto loop = op->getParentOfType<scf::ForOp>();
  return loop && loop->hasAttr(kFoldLoopAttr) ? loop : scf::ForOp();
}

/// Of what says how the masks of a fold loop have been dealt with: each excludes the others.
static LogicalResult verifyMaskForm(Operation *loop) {
  SmallVector<StringRef> forms;
  for (StringRef form : {kFullAttr, kPartialAttr, kTabulatedAttr})
    if (loop->hasAttr(form))
      forms.push_back(form);
  if (!loop->hasAttr(kFoldLoopAttr))
    return loop->emitError() << "'" << forms[0] << "' needs '" << kFoldLoopAttr << "'";
  if (forms.size() > 1)
    return loop->emitError() << "'" << forms[0] << "' excludes '" << forms[1] << "'";
  return success();
}

static LogicalResult verifyTabulated(Operation *loop) {
  // A list of tiles is read one by one.
  if (!isConstantIntValue(cast<scf::ForOp>(loop).getStep(), 1))
    return loop->emitError() << "'" << kTabulatedAttr << "' needs a step of 1: a loop over the "
                             << "entries of a table";
  return verifyMaskForm(loop);
}

static LogicalResult verifyGuard(Operation *op) {
  scf::ForOp loop = getFoldLoop(op);
  if (!loop || loop->hasAttr(kPartialAttr))
    return success();
  InFlightDiagnostic error = op->emitError() << "'" << kGuardAttr << "' needs a fold loop that is '"
                                             << kPartialAttr << "' around it";
  error.attachNote(loop.getLoc()) << "this one is not";
  return error;
}

static LogicalResult verifyTileKind(Operation *op) {
  scf::ForOp loop = getFoldLoop(op);
  if (!loop || loop->hasAttr(kPartialAttr) || loop->hasAttr(kTabulatedAttr))
    return success();
  InFlightDiagnostic error = op->emitError()
                             << "'" << kTileKindAttr << "' needs a fold loop that is '"
                             << kPartialAttr << "' or '" << kTabulatedAttr << "' around it";
  error.attachNote(loop.getLoc()) << "this one is neither";
  return error;
}

static LogicalResult verifyRescaling(Operation *op) {
  if (isa<VectorType>(op->getResult(0).getType()))
    return success();
  return op->emitError() << "'" << kRescalingAttr << "' needs a product of vectors, got "
                         << op->getResult(0).getType();
}

static LogicalResult verifyMayHold(Operation *op) {
  auto question = cast<vector::ReductionOp>(op);
  if (question.getKind() == vector::CombiningKind::OR && question.getType().isInteger(1))
    return success();
  return op->emitError() << "'" << kMayHoldAttr << "' needs a disjunction of rows";
}

static LogicalResult verifyDescending(Operation *op) {
  auto program = dyn_cast<scf::ForallOp>(op);
  if (!program || (program.isNormalized() && program->getNumResults() == 0))
    return success();
  return op->emitError() << "'" << kDescendingAttr
                         << "' needs a tile program on memory whose loops "
                         << "go from 0 in steps of 1";
}

static LogicalResult verifyWhen(Operation *op) {
  auto conditions = dyn_cast<ArrayAttr>(op->getAttr(kWhenAttr));
  auto isCondition = [](Attribute each) { return isa<VersionConditionInterface>(each); };
  if (conditions && llvm::all_of(conditions, isCondition))
    return success();
  return op->emitError() << "'" << kWhenAttr << "' is an array of conditions, such as "
                         << "#attn.size<argument = 1, dim = 2, at_most 2048>, got "
                         << op->getAttr(kWhenAttr);
}

static LogicalResult verifyTreatment(Operation *op) {
  StringRef name = op->getAttrOfType<StringAttr>(kTreatmentAttr).getValue();
  if (symbolizeLoopTreatment(name))
    return success();
  InFlightDiagnostic error = op->emitError() << "'" << kTreatmentAttr << "' is one of ";
  for (uint32_t number = 0; number <= getMaxEnumValForLoopTreatment(); ++number)
    error << (number ? ", " : "") << stringifyLoopTreatment(LoopTreatment(number));
  return error << "; got '" << name << "'";
}

static constexpr Fact kFacts[] = {
    {kFoldLoopAttr, "scf.for", FactType::Unit},
    {kFullAttr, "scf.for", FactType::Unit, verifyMaskForm},
    {kPartialAttr, "scf.for", FactType::Unit, verifyMaskForm},
    {kTabulatedAttr, "scf.for", FactType::Unit, verifyTabulated},
    {kGuardAttr, "scf.if", FactType::Unit, verifyGuard},
    {kTileKindAttr, "scf.if", FactType::Unit, verifyTileKind},
    {kRescalingAttr, "arith.mulf", FactType::Unit, verifyRescaling},
    {kMayHoldAttr, "vector.reduction", FactType::Unit, verifyMayHold},
    {kDescendingAttr, "scf.forall, gpu.launch", FactType::Unit, verifyDescending},
    {kPartCountAttr, "arith.maxui", FactType::Unit},
    {kBlockMAttr, "attn.fold", FactType::Positive},
    {kBlockNAttr, "attn.fold", FactType::Positive},
    {kDimsAttr, "linalg", FactType::Names},
    {kLoopAttr, "affine.for, affine.parallel, attn.fold", FactType::Name},
    {kStatementAttr, "any", FactType::Name},
    {kNameAttr, "any", FactType::Name, /*verify=*/nullptr, /*ofArgument=*/true},
    {kMergeAttr, "affine.for", FactType::Unit},
    {kTreatmentAttr, "affine.for", FactType::Name, verifyTreatment},
    {kKernelsAttr, "builtin.module", FactType::Symbols},
    {kWhenAttr, "builtin.module, func.func", FactType::Typed, verifyWhen},
    {kVersionOfAttr, "func.func", FactType::Name},
    {kExpectedSizeAttr, "arith.divui", FactType::Positive},
};

LogicalResult AttnDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  return verifyFact(kFacts, op, attribute);
}

LogicalResult AttnDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned,
                                                    NamedAttribute attribute) {
  return verifyFactOfArgument(kFacts, op, /*isResult=*/false, attribute);
}

LogicalResult AttnDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned,
                                                       NamedAttribute attribute) {
  return verifyFactOfArgument(kFacts, op, /*isResult=*/true, attribute);
}
