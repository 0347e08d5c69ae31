// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the statements of an affine nest: loads, stores, scalar trees, and
// everything else as opaque statements with their declared memory effects.

#include "AffineStatements.h"
#include "Combiners.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Dialect/Affine/Analysis/AffineAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineValueMap.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;
using namespace attn::detail;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

std::string AffineStatements::nameLoop(affine::AffineForOp loop) {
  std::string name;
  if (auto attr = loop->getAttrOfType<StringAttr>(kLoopAttr))
    return attr.getValue().str();
  static constexpr char letters[] = "ijklnopqrstuvwxyz";
  name = std::string(1, letters[enclosing.size() % (sizeof(letters) - 1)]);
  unsigned &count = loopNames[name];
  ++count;
  return count == 1 ? name : name + std::to_string(count);
}

std::string AffineStatements::getName(Value memref) {
  if (!memref)
    return "memory";
  if (auto named = dyn_cast<NameLoc>(memref.getLoc()))
    return named.getName().str();
  if (auto argument = dyn_cast<BlockArgument>(memref)) {
    auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
    if (function)
      if (auto attr = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kNameAttr))
        return attr.getValue().str();
    return "arg" + std::to_string(argument.getArgNumber());
  }
  Operation *def = memref.getDefiningOp();
  if (auto attr = def->getAttrOfType<StringAttr>(kNameAttr))
    return attr.getValue().str();
  if (auto global = dyn_cast<memref::GetGlobalOp>(def))
    return global.getName().str();
  unsigned number = allocations.insert({memref, allocations.size()}).first->second;
  return "mem" + std::to_string(number);
}

Value AffineStatements::getBase(Value memref) {
  while (memref) {
    if (auto argument = dyn_cast<BlockArgument>(memref)) {
      Operation *parent = argument.getOwner()->getParentOp();
      // Arguments of a function are memories of their own; a memref that a
      // loop carries may be any.
      return isa<FunctionOpInterface>(parent) && argument.getOwner()->isEntryBlock() ? memref
                                                                                     : Value();
    }
    Operation *def = memref.getDefiningOp();
    if (auto global = dyn_cast<memref::GetGlobalOp>(def))
      return globals.insert({global.getName(), memref}).first->second;
    if (auto view = dyn_cast<ViewLikeOpInterface>(def); view && view.getViewDest() == memref) {
      memref = view.getViewSource();
      continue;
    }
    if (isa<memref::AllocOp, memref::AllocaOp>(def))
      return memref;
    return Value();
  }
  return Value();
}

/// Prints an affine expression with the names of loops for dimensions.
static void printExpr(llvm::raw_ostream &os, AffineExpr expr, ArrayRef<std::string> names,
                      bool nested = false) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    os << constant.getValue();
    return;
  }
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    os << names[dim.getPosition()];
    return;
  }
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary) {
    os << expr; // a symbol
    return;
  }
  bool sum = expr.getKind() == AffineExprKind::Add;
  if (nested && sum)
    os << "(";
  printExpr(os, binary.getLHS(), names, !sum);
  auto constant = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (sum && constant && constant.getValue() < 0) {
    os << " - " << -constant.getValue();
  } else {
    switch (expr.getKind()) {
    case AffineExprKind::Add:
      os << " + ";
      break;
    case AffineExprKind::Mul:
      os << " * ";
      break;
    case AffineExprKind::Mod:
      os << " mod ";
      break;
    case AffineExprKind::FloorDiv:
      os << " floordiv ";
      break;
    default:
      os << " ceildiv ";
      break;
    }
    printExpr(os, binary.getRHS(), names, true);
  }
  if (nested && sum)
    os << ")";
}

/// "m[i, j + 1]".
static std::string formatAccess(const DependenceGraph &graph, Operation *op, StringRef name) {
  AffineMap map;
  SmallVector<Value> operands;
  if (auto read = dyn_cast<affine::AffineReadOpInterface>(op)) {
    map = read.getAffineMap();
    operands = read.getMapOperands();
  } else {
    auto write = cast<affine::AffineWriteOpInterface>(op);
    map = write.getAffineMap();
    operands = write.getMapOperands();
  }
  affine::fullyComposeAffineMapAndOperands(&map, &operands);
  affine::canonicalizeMapAndOperands(&map, &operands);
  SmallVector<std::string> names;
  for (Value operand : ArrayRef(operands).take_front(map.getNumDims())) {
    auto loop = affine::getForInductionVarOwner(operand);
    auto index = loop ? graph.findLoop(loop) : std::nullopt;
    names.push_back(index ? graph.getLoops()[*index].name : "?");
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  os << name << "[";
  llvm::interleaveComma(map.getResults(), os, [&](AffineExpr e) { printExpr(os, e, names); });
  os << "]";
  return text;
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

/// Ops that are no statements: they name values, memories or loops only.
static bool isSilent(Operation *op) {
  if (op->hasTrait<OpTrait::IsTerminator>() || op->hasTrait<OpTrait::ConstantLike>())
    return true;
  if (isa<affine::AffineApplyOp, affine::AffineMinOp, affine::AffineMaxOp, memref::AllocOp,
          memref::AllocaOp, memref::GetGlobalOp, memref::DimOp>(op))
    return true;
  return isa<ViewLikeOpInterface>(op) && isMemoryEffectFree(op);
}

/// A computation on values, without memory and regions.
static bool isComputation(Operation *op) {
  return op->getNumRegions() == 0 && !isSilent(op) && isMemoryEffectFree(op) &&
         !isa<affine::AffineReadOpInterface, affine::AffineWriteOpInterface>(op);
}

/// The op that `op` is computed for: its only user, if that is a computation
/// beside it.
static Operation *getOnlyUser(Operation *op) {
  Operation *user = nullptr;
  for (Operation *other : op->getUsers()) {
    if (user && user != other)
      return nullptr;
    user = other;
  }
  if (!user || user->getBlock() != op->getBlock() || !isComputation(user))
    return nullptr;
  return user;
}

/// Whether `value` is loaded from the element that the result of `root` is
/// stored to, all three beside each other: an update, not a scan.
static bool isUpdated(Value value, Operation *root) {
  auto load = dyn_cast_if_present<affine::AffineLoadOp>(value.getDefiningOp());
  if (!load || load->getBlock() != root->getBlock())
    return false;
  return llvm::any_of(root->getUsers(), [&](Operation *user) {
    auto store = dyn_cast<affine::AffineStoreOp>(user);
    return store && store->getBlock() == root->getBlock() &&
           store.getValueToStore().getDefiningOp() == root &&
           affine::MemRefAccess(load) == affine::MemRefAccess(store);
  });
}

/// How the tree that ends in `root` combines a loaded value: `root` is one
/// associative operation, and one of its operands is the old value.
static std::optional<std::pair<std::string, Value>>
matchCombiner(Operation *root, ArrayRef<Operation *> members,
              llvm::function_ref<bool(Value)> isOld) {
  StringRef name = getCombinerName(root);
  if (name.empty())
    return std::nullopt;
  for (OpOperand &operand : root->getOpOperands()) {
    Value old = operand.get();
    if (!isOld(old))
      continue;
    // The term must not depend on the old value.
    unsigned uses = 0;
    for (Operation *member : members)
      uses += llvm::count(member->getOperands(), old);
    if (uses == 1)
      return std::make_pair(name.str(), old);
  }
  return std::nullopt;
}

AffineStatements::AffineStatements(DependenceGraph &graph, Operation *scope) : graph(graph) {
  if (auto loop = dyn_cast<affine::AffineForOp>(scope)) {
    collectLoop(loop);
    return;
  }
  for (Region &region : scope->getRegions())
    for (Block &block : region)
      collect(block);
}

void AffineStatements::collectLoop(affine::AffineForOp loop) {
  // The verifier lets a step be 0; distances along such a loop are plain.
  int64_t step = std::max<int64_t>(1, loop.getStepAsInt());
  unsigned id = graph.addLoop({nameLoop(loop), loop, step, loop->hasAttr(kMergeAttr)});
  enclosing.push_back(id);
  collect(*loop.getBody());
  enclosing.pop_back();
}

void AffineStatements::collect(Block &block) {
  // The last op of the tree that each computation belongs to, or of the ops
  // with its label.
  llvm::MapVector<Operation *, SmallVector<Operation *>> trees;
  DenseMap<Operation *, Operation *> root;
  llvm::StringMap<Operation *> labels;
  for (Operation &op : llvm::reverse(block)) {
    if (!isComputation(&op))
      continue;
    Operation *leader = &op;
    if (auto label = op.getAttrOfType<StringAttr>(kStatementAttr))
      leader = labels.insert({label.getValue(), &op}).first->second;
    else if (Operation *user = getOnlyUser(&op))
      leader = root.lookup(user);
    root[&op] = leader;
    trees[leader].push_back(&op);
  }
  for (Operation &op : block) {
    if (auto loop = dyn_cast<affine::AffineForOp>(op)) {
      collectLoop(loop);
      continue;
    }
    if (auto branch = dyn_cast<affine::AffineIfOp>(op); branch && op.getNumResults() == 0) {
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          collect(inner);
      continue;
    }
    if (isSilent(&op))
      continue;
    if (isComputation(&op)) {
      auto found = trees.find(&op);
      if (found != trees.end()) {
        std::reverse(found->second.begin(), found->second.end());
        addComputation(found->second);
      }
      continue;
    }
    if (isa<affine::AffineReadOpInterface, affine::AffineWriteOpInterface>(op))
      addAccessStatement(&op);
    else
      addOpaque(&op);
  }
}

unsigned AffineStatements::add(Statement statement) {
  statement.domain = enclosing;
  addIndices(statement);
  SmallVector<Operation *> members(statement.members.begin(), statement.members.end());
  unsigned id = graph.addStatement(std::move(statement));
  for (Operation *member : members)
    statementOf[member] = id;
  return id;
}

/// Finds the loops whose variable the members use, through index arithmetic.
void AffineStatements::addIndices(Statement &statement) {
  SmallVector<Value> worklist;
  for (Operation *member : statement.members)
    member->walk([&](Operation *inner) { llvm::append_range(worklist, inner->getOperands()); });
  llvm::DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (auto loop = affine::getForInductionVarOwner(value)) {
      auto id = graph.findLoop(loop);
      if (id && !llvm::is_contained(statement.indices, *id))
        statement.indices.push_back(*id);
    } else if (Operation *def = value.getDefiningOp(); def && isSilent(def)) {
      llvm::append_range(worklist, def->getOperands());
    }
  }
  llvm::sort(statement.indices);
}

void AffineStatements::addAccessStatement(Operation *op) {
  auto read = dyn_cast<affine::AffineReadOpInterface>(op);
  auto write = dyn_cast<affine::AffineWriteOpInterface>(op);
  Access access;
  access.op = op;
  access.memref = read ? read.getMemRef() : write.getMemRef();
  access.base = getBase(access.memref);
  access.reads = bool(read);
  access.writes = bool(write);
  access.name = getName(access.memref);
  // A vector touches elements beside the one that its index names.
  access.affine = isa<affine::AffineLoadOp, affine::AffineStoreOp>(op);
  Statement statement;
  statement.op = op;
  statement.members = {op};
  statement.label = (read ? "load " : "store ") + formatAccess(graph, op, access.name);
  statement.writes = access.writes;
  access.statement = add(std::move(statement));
  accesses.push_back(std::move(access));
}

void AffineStatements::addComputation(ArrayRef<Operation *> members) {
  Statement statement;
  statement.op = members.back();
  statement.members.assign(members.begin(), members.end());
  statement.computes = true;
  statement.label = "compute";
  for (Operation *member : members)
    statement.label += " " + member->getName().stripDialect().str();
  // The old value is loaded, or carried by the loop from this very statement.
  auto isCarried = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    auto loop = argument ? dyn_cast<affine::AffineForOp>(argument.getOwner()->getParentOp())
                         : affine::AffineForOp();
    return loop && argument != loop.getInductionVar() &&
           loop.getYieldedValues()[argument.getArgNumber() - 1].getDefiningOp() == members.back();
  };
  auto isOld = [&](Value value) { return isUpdated(value, members.back()) || isCarried(value); };
  if (auto match = matchCombiner(members.back(), members, isOld)) {
    auto found = statementOf.find(match->second.getDefiningOp());
    if (isCarried(match->second))
      statement.combiner =
          Combiner{match->first, unsigned(graph.getStatements().size()), true, true};
    else if (found != statementOf.end())
      statement.combiner = Combiner{match->first, found->second, true, true};
  }
  add(std::move(statement));
}

void AffineStatements::addOpaque(Operation *op) {
  Statement statement;
  statement.op = op;
  statement.members = {op};
  statement.label = op->getName().getStringRef().str();
  auto effects = getEffectsRecursively(op);
  bool known = effects.has_value();
  statement.computes = known && effects->empty();
  statement.writes = !known;
  SmallVector<Access> found;
  if (known)
    for (const MemoryEffects::EffectInstance &effect : *effects) {
      if (isa<MemoryEffects::Allocate>(effect.getEffect()))
        continue;
      Access access;
      access.op = op;
      access.memref = effect.getValue();
      access.base = getBase(access.memref);
      access.name = getName(access.memref);
      access.reads = isa<MemoryEffects::Read>(effect.getEffect());
      access.writes = !access.reads;
      statement.writes |= access.writes;
      found.push_back(std::move(access));
    }
  else
    found.push_back({0, op, Value(), Value(), true, true, false, "memory"});
  unsigned id = add(std::move(statement));
  for (Access &access : found) {
    access.statement = id;
    accesses.push_back(std::move(access));
  }
}
