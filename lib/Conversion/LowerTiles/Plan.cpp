// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gathering the ops of a block into groups, and deciding what is kept.

#include "Plan.h"
#include "Aliases.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn::tiles;

namespace {
bool sameSet(ArrayRef<int> a, ArrayRef<int> b) {
  return a.size() == b.size() && llvm::all_of(a, [&](int x) { return llvm::is_contained(b, x); });
}

bool isExpensive(Operation *op) {
  return isa<math::MathDialect>(op->getDialect()) ||
         isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::DivUIOp, arith::RemSIOp,
             arith::RemUIOp>(op);
}

/// Same element of the same memref at the same point.
bool readsWhatItWrites(Operation *readOp, Operation *writeOp) {
  auto read = dyn_cast<vector::TransferReadOp>(readOp);
  auto write = dyn_cast<vector::TransferWriteOp>(writeOp);
  return read && write && read.getBase() == write.getBase() &&
         read.getIndices() == write.getIndices() &&
         read.getPermutationMap() == write.getPermutationMap();
}
} // namespace

Group *BlockLowering::newGroup(Group::Kind kind, Operation *op) {
  items.push_back(std::make_unique<Group>());
  items.back()->kind = kind;
  items.back()->position = op;
  return items.back().get();
}

bool BlockLowering::dependsOn(Value value, const Group &group) {
  SmallVector<Value> stack{value};
  SmallPtrSet<Operation *, 16> seen;
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    for (const Sink &sink : group.sinks)
      if (sink.kind == Sink::Reduce && sink.value == next)
        return true;
    Operation *op = next.getDefiningOp();
    if (!op || !isLazy(op) || !seen.insert(op).second)
      continue;
    llvm::append_range(stack, op->getOperands());
  }
  return false;
}

void BlockLowering::addSink(Sink sink, Operation *op) {
  SmallVector<int> domain;
  SmallVector<Value> operands = innerOperands(sink);
  for (Value operand : operands)
    for (int cls : context.classes.domain(operand))
      if (!llvm::is_contained(domain, cls))
        domain.push_back(cls);
  llvm::append_range(operands, outerOperands(sink));
  SmallVector<int> reduced = reducedClasses(context.classes, sink);
  bool alone = sink.kind == Sink::Extract || sink.kind == Sink::Write ||
               memoryWalk(context.classes, sink, context.classes.lane(domain), context.buffers) !=
                   alongLanes;
  bool joins = openGroup && !alone && sameSet(openGroup->domain, domain);
  for (Value operand : operands)
    joins = joins && !dependsOn(operand, *openGroup);
  if (joins && !reduced.empty())
    for (const Sink &other : openGroup->sinks) {
      SmallVector<int> others = reducedClasses(context.classes, other);
      joins = joins && (others.empty() || sameSet(others, reduced));
    }
  if (!joins) {
    openGroup = newGroup(Group::Loops, op);
    openGroup->domain = domain;
  }
  openGroup->position = op;
  if (tileType(sink.value) && sink.kind != Sink::Write)
    keptBy[sink.value] = items.size() - 1;
  bool givesScalar = !tileType(sink.value);
  openGroup->sinks.push_back(std::move(sink));
  openGroup->closed = alone;
  if (alone || givesScalar)
    closeGroup();
}

void BlockLowering::keep(Value value, Operation *op) {
  if (tileType(value) && !isKept(value))
    addSink({Sink::Store, value, nullptr, {}}, op);
}

bool BlockLowering::usedAfter(Value value, Operation *op) {
  for (Operation *user : value.getUsers()) {
    Operation *here = block.findAncestorOpInBlock(*user);
    if (!here)
      continue;
    if (here == op) {
      if (!readsWhatItWrites(value.getDefiningOp(), op))
        return true;
    } else if (op->isBeforeInBlock(here)) {
      return true;
    }
    if (here == user && isLazy(user) && !isKept(user->getResult(0)) &&
        usedAfter(user->getResult(0), op))
      return true;
  }
  return false;
}

/// A read must not move behind a write to its memory.
void BlockLowering::keepReadsBefore(Operation *write) {
  SmallVector<Value> written;
  forEachWrite(write, [&](Value memref) { written.push_back(memref); });
  if (written.empty())
    return;
  for (Operation &op : llvm::make_range(block.begin(), write->getIterator())) {
    Value base;
    if (auto read = dyn_cast<vector::TransferReadOp>(op))
      base = read.getBase();
    else if (auto gather = dyn_cast<vector::GatherOp>(op))
      base = gather.getBase();
    if (!base || isKept(op.getResult(0)))
      continue;
    bool aliases =
        llvm::any_of(written, [&](Value memref) { return !memref || mayAlias(base, memref); });
    if (!aliases)
      continue;
    // An update in place reads each element just before it is written.
    bool inPlace = llvm::all_of(op.getUsers(),
                                [&](Operation *user) { return user == write || isLazy(user); }) &&
                   readsWhatItWrites(&op, write);
    if (usedAfter(op.getResult(0), write) && !(inPlace && onlyFeeds(op.getResult(0), write)))
      keep(op.getResult(0), write);
  }
  closeGroup();
}

bool BlockLowering::onlyFeeds(Value value, Operation *op) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return user == op ||
           (isLazy(user) && user->getBlock() == &block && onlyFeeds(user->getResult(0), op));
  });
}

/// Keeps a tile with other lanes than its own, once for all who ask.
void BlockLowering::keepCopy(const LaneSource &wanted, Operation *op) {
  std::pair<Value, int> key(wanted.value, wanted.lane);
  if (context.copies.count(key) || lastCopyUse.count(key))
    return;
  closeGroup();
  Group *group = newGroup(Group::Loops, op);
  group->domain = context.classes.domain(wanted.value);
  group->lane = wanted.lane;
  group->closed = true;
  group->sinks.push_back({Sink::Copy, wanted.value, nullptr, {}});
  lastCopyUse[key] = items.size() - 1;
}

/// Makes a tile in memory usable for kernels, once for all who ask.
void BlockLowering::makeView(Value read, Operation *op) {
  if (context.views.count(read) || !viewed.insert(read).second)
    return;
  closeGroup();
  newGroup(Group::View, op)->views.push_back(read);
}

/// Makes a tile usable for matrix units, once for all who ask.
void BlockLowering::makePairs(const Pairs &pairs, Operation *op) {
  if (context.pairs.count(pairs) || lastPairsUse.count(pairs))
    return;
  closeGroup();
  Group *group = newGroup(Group::Pack, op);
  group->pairs = pairs;
  group->domain = context.classes.domain(pairs.value);
  group->closed = true;
  lastPairsUse[pairs] = items.size() - 1;
}

void BlockLowering::usePairs(ArrayRef<Pairs> pairs) {
  for (const Pairs &used : pairs)
    if (auto last = lastPairsUse.find(used); last != lastPairsUse.end())
      last->second = items.size() - 1;
}

vector::TransferReadOp BlockLowering::getRowsInMemory(const Kernel &kernel, Value rows) {
  vector::TransferReadOp read = matchRowsInMemory(context.classes, kernel, rows);
  // What is kept is so because its memory changes.
  return read && !isKept(read.getResult()) ? read : vector::TransferReadOp();
}

Pairs BlockLowering::getLanePairs(const Kernel &kernel, const MatrixOperands &operands) {
  return {operands.lanes, kernel.sumClass, kernel.laneClass, /*isAlong=*/false};
}

Pairs BlockLowering::getRowPairs(const Kernel &kernel, const MatrixOperands &operands) {
  // A tile of AMX has whole rows; elsewhere pairs lie as their elements do.
  int walk = context.classes.lane(context.classes.domain(getPairsSource({operands.rows})));
  if (auto read = operands.rows.getDefiningOp<vector::TransferReadOp>())
    walk = contiguousClass(context.classes, read);
  return {operands.rows, kernel.sumClass, kernel.rowClass,
          operands.unit == MatrixUnit::Amx || walk == kernel.sumClass};
}

void BlockLowering::gatherMatrixProduct(vector::ContractionOp op, const Kernel &kernel) {
  MatrixOperands operands = context.matrixOperands.lookup(op);
  Pairs lanes = getLanePairs(kernel, operands), rows = getRowPairs(kernel, operands);
  vector::TransferReadOp read = getRowsInMemory(kernel, operands.rows);
  makePairs(lanes, op);
  if (read)
    makeView(read.getResult(), op);
  else
    makePairs(rows, op);
  closeGroup();
  Group *group = newGroup(Group::Contraction, op);
  group->kernel = kernel;
  group->pairs = lanes;
  if (read)
    group->views.push_back(group->rowsView = read.getResult());
  else
    group->rowPairs = rows;
  usePairs({lanes, rows});
  group->domain = context.classes.domain(op.getResult());
  keptBy[op.getResult()] = items.size() - 1;
}

/// The tiles from outside that matrix units in the regions of `op` use.
void BlockLowering::gatherCapturedPairs(Operation *op, SmallVectorImpl<Pairs> &pairs,
                                        SmallVectorImpl<Value> &views) {
  auto isOutside = [&](Value value) {
    return !op->isAncestor(value.getParentRegion()->getParentOp());
  };
  for (Region &region : op->getRegions())
    region.walk([&](vector::ContractionOp nested) {
      auto found = context.matrixOperands.find(nested);
      if (found == context.matrixOperands.end())
        return;
      Kernel kernel = matchKernel(context.classes, nested);
      if (isOutside(found->second.lanes))
        pairs.push_back(getLanePairs(kernel, found->second));
      if (!isOutside(found->second.rows))
        return;
      if (vector::TransferReadOp read = getRowsInMemory(kernel, found->second.rows))
        views.push_back(read.getResult());
      else
        pairs.push_back(getRowPairs(kernel, found->second));
    });
}

void BlockLowering::gatherContraction(vector::ContractionOp op) {
  Kernel kernel = matchKernel(context.classes, op);
  if (context.matrixOperands.count(op))
    return gatherMatrixProduct(op, kernel);
  if (!kernel.op) {
    addSink({Sink::Reduce, op.getResult(), op, {}}, op);
    return;
  }
  const LaneSource &lanes = context.laneSources[op];
  if (lanes.kind == LaneSource::Own)
    keep(kernel.lanes, op);
  vector::TransferReadOp rows, direct;
  // Scalars are read from memory as they lie there.
  if (!isKept(kernel.rows) && lanes.kind != LaneSource::Sums)
    rows = matchDirectRead(context.classes, kernel.rows);
  // What is kept is so because its memory changes.
  if (rows && isKept(rows.getResult()))
    rows = {};
  if (!rows)
    keep(kernel.rows, op);
  if (lanes.kind == LaneSource::Memory)
    direct = matchDirectRead(context.classes, kernel.lanes);
  for (vector::TransferReadOp read : {rows, direct})
    if (read)
      makeView(read.getResult(), op);
  if (lanes.kind == LaneSource::Copy)
    keepCopy(lanes, op);
  closeGroup();
  Group *group = newGroup(Group::Contraction, op);
  if (lanes.kind == LaneSource::Copy)
    lastCopyUse[{lanes.value, lanes.lane}] = items.size() - 1;
  if (rows)
    group->views.push_back(group->rowsView = rows.getResult());
  if (direct)
    group->views.push_back(group->lanesView = direct.getResult());
  group->kernel = kernel;
  group->domain = context.classes.domain(op.getResult());
  keptBy[op.getResult()] = items.size() - 1;
}

/// The tiles from outside that the regions of `op` use with their own lanes.
void BlockLowering::visitCaptures(Operation *op, llvm::function_ref<void(Value)> fn) {
  for (Region &region : op->getRegions())
    region.walk([&](Operation *nested) {
      auto source = context.laneSources.find(nested);
      bool isMatrix = context.matrixOperands.count(nested);
      for (Value operand : nested->getOperands())
        if (tileType(operand) &&
            !(isMatrix && operand != cast<vector::ContractionOp>(nested).getAcc()) &&
            !op->isAncestor(operand.getParentRegion()->getParentOp()) &&
            (source == context.laneSources.end() || source->second.value != operand ||
             source->second.kind == LaneSource::Own))
          fn(operand);
    });
}

/// The tiles from outside that the regions of `op` use with other lanes.
SmallVector<LaneSource> BlockLowering::capturedSources(Operation *op) {
  SmallVector<LaneSource> result;
  for (Region &region : op->getRegions())
    region.walk([&](vector::ContractionOp nested) {
      LaneSource source = context.laneSources.lookup(nested);
      if (source.value && !context.matrixOperands.count(nested) && source.kind != LaneSource::Own &&
          !source.isRead() && !op->isAncestor(source.value.getParentRegion()->getParentOp()))
        result.push_back(source);
    });
  return result;
}

/// Computing the value again in each iteration costs as little as loading it.
bool BlockLowering::staysLazyInRegion(Value value) {
  SmallVector<Value> stack{value};
  unsigned ops = 0;
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!tileType(next) || isKept(next))
      continue;
    if (!op || isa<vector::TransferReadOp, vector::GatherOp>(op) || isExpensive(op))
      return false;
    ops += !isa<arith::ConstantOp, vector::BroadcastOp, vector::TransposeOp, vector::StepOp>(op);
    if (ops > 4)
      return false;
    llvm::append_range(stack, op->getOperands());
  }
  return true;
}

void BlockLowering::gatherRegionOp(Operation *op) {
  keepReadsBefore(op);
  visitCaptures(op, [&](Value value) {
    if (!isKept(value) && !staysLazyInRegion(value))
      keep(value, op);
  });
  SmallVector<LaneSource> sources = capturedSources(op);
  for (const LaneSource &source : sources)
    if (source.kind == LaneSource::Copy)
      keepCopy(source, op);
    else
      makeView(matchDirectRead(context.classes, source.value), op);
  SmallVector<Pairs> pairs;
  SmallVector<Value> views;
  gatherCapturedPairs(op, pairs, views);
  for (const Pairs &each : pairs)
    makePairs(each, op);
  for (Value read : views)
    makeView(read, op);
  closeGroup();
  Group *group = newGroup(Group::Region, op);
  llvm::append_range(group->views, views);
  usePairs(pairs);
  for (const LaneSource &source : sources)
    if (source.kind == LaneSource::Copy)
      lastCopyUse[{source.value, source.lane}] = items.size() - 1;
    else
      group->views.push_back(matchDirectRead(context.classes, source.value));
  for (Value result : op->getResults())
    if (tileType(result))
      keptBy[result] = items.size() - 1;
}

/// Each element goes its own way, so what it is made of is computed before.
void BlockLowering::gatherScatter(attn::ScatterAddOp op) {
  keepReadsBefore(op);
  keep(op.getValues(), op);
  for (Value index : op.getIndices())
    if (!staysLazyInRegion(index))
      keep(index, op);
  closeGroup();
  newGroup(Group::Scatter, op)->domain = context.classes.domain(op.getValues());
}

void BlockLowering::gather() {
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>() || isLazy(&op))
      continue;
    if (isa<vector::MultiDimReductionOp, vector::ReductionOp>(op)) {
      addSink({Sink::Reduce, op.getResult(0), &op, {}}, &op);
    } else if (auto contract = dyn_cast<vector::ContractionOp>(op)) {
      gatherContraction(contract);
    } else if (isa<vector::ExtractOp>(op)) {
      if (tileType(op.getOperand(0)))
        addSink({Sink::Extract, op.getResult(0), &op, {}}, &op);
    } else if (auto write = dyn_cast<vector::TransferWriteOp>(op)) {
      keepReadsBefore(&op);
      addSink({Sink::Write, write.getVector(), &op, {}}, &op);
    } else if (auto scatter = dyn_cast<attn::ScatterAddOp>(op)) {
      gatherScatter(scatter);
    } else if (op.getNumRegions() > 0) {
      gatherRegionOp(&op);
    } else {
      keepReadsBefore(&op);
    }
  }
  closeGroup();
}

int64_t BlockLowering::cost(Value value, SmallPtrSetImpl<Operation *> &seen) {
  Operation *op = value.getDefiningOp();
  if (!tileType(value) || isKept(value) || !op || !seen.insert(op).second)
    return 0;
  int64_t total = 1;
  if (isa<arith::ConstantOp, vector::BroadcastOp, vector::TransposeOp, vector::ShapeCastOp,
          vector::StepOp>(op))
    total = 0;
  else if (isa<vector::GatherOp>(op) || isExpensive(op))
    total = 8;
  for (Value operand : op->getOperands())
    total += cost(operand, seen);
  return total;
}

void BlockLowering::shareAt(Value value, unsigned item) {
  Group &group = *items[item];
  keptBy[value] = item;
  SmallVector<int> domain = context.classes.domain(value);
  if (group.kind == Group::Loops && !group.closed && sameSet(domain, group.domain)) {
    group.sinks.push_back({Sink::Store, value, nullptr, {}});
    return;
  }
  addPrelude(value, item);
}

void BlockLowering::addPrelude(Value value, unsigned item) {
  Group &group = *items[item];
  keptBy[value] = item;
  auto prelude = std::make_unique<Group>();
  prelude->position = group.position;
  prelude->domain = context.classes.domain(value);
  prelude->sinks.push_back({Sink::Store, value, nullptr, {}});
  group.preludes.push_back(std::move(prelude));
}

bool BlockLowering::isComputedIn(Value value, const Group &group) {
  return llvm::any_of(group.sinks, [&](const Sink &sink) {
    return sink.kind == Sink::Store && sink.value == value;
  });
}

bool BlockLowering::isAvailable(Value value, unsigned item) {
  if (context.buffers.count(value))
    return true;
  auto kept = keptBy.find(value);
  if (kept == keptBy.end() || kept->second > item)
    return false;
  return kept->second < item || item == items.size() || !isComputedIn(value, *items[item]);
}

void BlockLowering::visit(Value value, unsigned item) {
  Operation *op = value.getDefiningOp();
  if (!tileType(value) || isAvailable(value, item) || !op)
    return;
  SmallVector<int> domain = context.classes.domain(value);
  auto [first, isNew] = firstUse.try_emplace(value, item);
  if (!isNew && first->second == item)
    return;
  bool isShared = !isNew && !keptBy.count(value);
  SmallPtrSet<Operation *, 16> seen;
  // A loop over one dimension is short: only much work is worth a buffer.
  if (isShared && cost(value, seen) > (domain.size() < 2 ? 16 : 2)) {
    shareAt(value, first->second);
    return;
  }
  first->second = item;
  // Memory that is not contiguous along the lanes is brought to scratch.
  bool transposes = item < items.size() && items[item]->closed;
  if (isa<vector::TransferReadOp>(op) && !transposes && item < items.size() &&
      items[item]->kind != Group::Region) {
    int lane = context.classes.lane(items[item]->domain);
    if (memoryWalk(context.classes, cast<VectorTransferOpInterface>(op), lane) != alongLanes) {
      addPrelude(value, item);
      return;
    }
  }
  for (Value operand : op->getOperands())
    visit(operand, item);
}

void BlockLowering::forEachOperand(unsigned item, llvm::function_ref<void(Value)> fn) {
  if (item == items.size()) {
    for (const Handover &handover : handovers)
      fn(block.getTerminator()->getOperand(handover.index));
    return;
  }
  Group &group = *items[item];
  if (group.kind == Group::Pack) {
    fn(getPairsSource(group.pairs));
  } else if (group.kind == Group::Contraction && group.pairs.value) {
    fn(group.kernel.op.getAcc());
  } else if (group.kind == Group::Contraction) {
    const LaneSource &source = context.laneSources[group.kernel.op];
    if (source.kind == LaneSource::Own || source.isRead())
      fn(group.kernel.lanes);
    if (!group.rowsView)
      fn(group.kernel.rows);
    fn(group.kernel.op.getAcc());
  } else if (group.kind == Group::Scatter) {
    for (Value operand : group.position->getOperands())
      fn(operand);
  } else if (group.kind == Group::Region) {
    for (Value operand : group.position->getOperands())
      fn(operand);
    visitCaptures(group.position, fn);
  }
  for (size_t k = 0; k < group.sinks.size(); ++k) {
    for (Value operand : innerOperands(group.sinks[k]))
      fn(operand);
    for (Value operand : outerOperands(group.sinks[k]))
      fn(operand);
  }
  for (auto &prelude : group.preludes)
    fn(prelude->sinks.front().value);
}

void BlockLowering::shareValues() {
  for (unsigned item = 0; item <= items.size(); ++item)
    forEachOperand(item, [&](Value operand) {
      // What a kernel reads for itself has its own lanes.
      if (item < items.size() && items[item]->kind == Group::Contraction &&
          !items[item]->pairs.value && items[item]->kernel.lanes == operand &&
          context.laneSources[items[item]->kernel.op].isRead())
        return;
      if (item < items.size() && isComputedIn(operand, *items[item])) {
        // The sink itself; what it is made of may be shared.
        for (Value part : operand.getDefiningOp()->getOperands())
          visit(part, item);
        return;
      }
      visit(operand, item);
    });
}
