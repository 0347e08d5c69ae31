// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lifetimes of scratch buffers, and writing the groups of a block in order.

#include "Plan.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::tiles;

/// Bytes of a buffer; larger ones (tiles of very wide heads) would use up a thread's stack.
static constexpr int64_t kMostOnStack = 256 * 1024;

Value Scratch::acquire(Location loc, ArrayRef<int64_t> shape, Type element) {
  auto type = MemRefType::get(shape, element);
  SmallVector<Value> &available = free[type];
  if (!available.empty())
    return available.pop_back_val();
  OpBuilder b = OpBuilder::atBlockBegin(entry);
  IntegerAttr alignment = b.getI64IntegerAttr(64);
  int64_t bytes = type.getNumElements();
  bytes *= element.isIndex() ? 8 : llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
  if (bytes <= kMostOnStack)
    return memref::AllocaOp::create(b, loc, type, alignment);
  Value memory = memref::AllocOp::create(b, loc, type, alignment);
  b.setInsertionPoint(entry->getTerminator());
  memref::DeallocOp::create(b, loc, memory);
  return memory;
}

void Scratch::release(Value memref) { free[memref.getType()].push_back(memref); }

void BlockLowering::touch(Value value, unsigned item) {
  if (!tileType(value))
    return;
  auto [last, isNew] = lastUse.try_emplace(value, item);
  if (!isNew && last->second == item)
    return;
  last->second = item;
  Operation *op = value.getDefiningOp();
  if (!op || !isLazy(op) || isAvailable(value, item))
    return;
  for (Value operand : op->getOperands())
    touch(operand, item);
}

void BlockLowering::findLastUses() {
  for (unsigned item = 0; item <= items.size(); ++item) {
    forEachOperand(item, [&](Value operand) { touch(operand, item); });
    for (Value read : item < items.size() ? ArrayRef(items[item]->views) : ArrayRef<Value>())
      touch(read, item);
    // A prelude's value is there for its item, and computed for it.
    if (item < items.size())
      for (const auto &prelude : items[item]->preludes)
        for (Value operand : prelude->sinks.front().value.getDefiningOp()->getOperands())
          touch(operand, item);
  }
}

/// A result can take the place of the carried tile where nothing reads that
/// tile afterwards, and the group itself reads it only at the point it writes.
bool BlockLowering::mayWriteInPlace(Value value, Value carried) {
  auto kept = keptBy.find(value);
  if (kept == keptBy.end() || inPlace.count(value) || value == carried)
    return false;
  auto last = lastUse.find(carried);
  if (last == lastUse.end() || last->second < kept->second)
    return true;
  Group &group = *items[kept->second];
  if (last->second > kept->second || group.kind == Group::Region)
    return false;
  if (group.kind == Group::Contraction)
    return group.kernel.lanes != carried && group.kernel.rows != carried;
  for (const auto &prelude : group.preludes)
    if (prelude->sinks.front().value == value)
      return false;
  return !group.closed;
}

void BlockLowering::assignInPlace() {
  for (const Handover &handover : handovers) {
    Value value = block.getTerminator()->getOperand(handover.index);
    if (handover.carried && mayWriteInPlace(value, handover.carried))
      inPlace[value] = handover.buffer;
  }
}

SmallVector<int> BlockLowering::layoutOf(Value value) {
  return layoutWith(value, context.classes.lane(context.classes.domain(value)));
}

/// Lanes innermost.
SmallVector<int> BlockLowering::layoutWith(Value value, int lane) {
  SmallVector<int> layout = context.classes.domain(value);
  llvm::erase(layout, lane);
  if (lane >= 0)
    layout.push_back(lane);
  return layout;
}

Buffer BlockLowering::newBuffer(Value value, ArrayRef<int> layout) {
  Buffer buffer;
  buffer.layout.assign(layout.begin(), layout.end());
  SmallVector<int64_t> shape;
  for (int cls : buffer.layout)
    shape.push_back(context.classes.extent(cls));
  Type element = tileType(value).getElementType();
  if (element.isInteger(1))
    element = IntegerType::get(element.getContext(), 8);
  buffer.memref = scratch.acquire(value.getLoc(), shape, element);
  return buffer;
}

Buffer BlockLowering::allocate(Value value) {
  auto placed = inPlace.find(value);
  if (placed != inPlace.end())
    return placed->second;
  return allocateAs(value, layoutOf(value));
}

Buffer BlockLowering::allocateAs(Value value, ArrayRef<int> layout) {
  Buffer buffer = newBuffer(value, layout);
  auto last = lastUse.find(value);
  ownedUntil[buffer.memref] = last == lastUse.end() ? current : std::max(current, last->second);
  return buffer;
}

Buffer BlockLowering::allocateCopy(Value value, int lane) {
  Buffer buffer = newBuffer(value, layoutWith(value, lane));
  ownedUntil[buffer.memref] = lastCopyUse.lookup({value, lane});
  return buffer;
}

/// A buffer read for the last time by the group that writes `value`, at the
/// point where it writes: the value replaces what it was computed from.
Buffer BlockLowering::takeDying(Value value, const Group &group) {
  // What a prelude reads may be read by the group it comes before.
  if (inPlace.count(value) || group.closed || &group != items[current].get())
    return {};
  Type element = tileType(value).getElementType();
  for (Value candidate : stored) {
    auto last = lastUse.find(candidate);
    auto buffer = context.buffers.find(candidate);
    if (last == lastUse.end() || last->second != current || buffer == context.buffers.end())
      continue;
    auto owned = ownedUntil.find(buffer->second.memref);
    if (owned == ownedUntil.end() || owned->second != current ||
        cast<MemRefType>(buffer->second.memref.getType()).getElementType() != element ||
        context.classes.lane(context.classes.domain(value)) !=
            (buffer->second.layout.empty() ? -1 : buffer->second.layout.back()))
      continue;
    SmallVector<int> wanted = context.classes.domain(value), have = buffer->second.layout;
    llvm::sort(wanted);
    llvm::sort(have);
    if (wanted != have)
      continue;
    owned->second = std::max(current, lastUse.lookup(value));
    return buffer->second;
  }
  return {};
}

void BlockLowering::releaseDead(unsigned item) {
  SmallVector<Value> dead;
  for (auto &[memref, last] : ownedUntil)
    if (last <= item)
      dead.push_back(memref);
  // Allocation order, so that reuse does not depend on addresses.
  llvm::sort(
      dead, [](Value a, Value b) { return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp()); });
  for (Value memref : dead) {
    ownedUntil.erase(memref);
    scratch.release(memref);
  }
}

void BlockLowering::emitGroup(Group &group) {
  for (auto &prelude : group.preludes)
    emitGroup(*prelude);
  auto allocator = [&](Value value, ArrayRef<int> layout) { return allocateAs(value, layout); };
  if (group.kind == Group::View) {
    Value read = group.views.front();
    context.views[read] =
        emitView(context, read.getDefiningOp<vector::TransferReadOp>(), group.position, allocator);
    return;
  }
  if (group.kind == Group::Pack) {
    MemRefType type = getPairsType(context.classes, group.pairs);
    Value pairs = scratch.acquire(group.position->getLoc(), type.getShape(), type.getElementType());
    ownedUntil[pairs] = std::max(current, lastPairsUse[group.pairs]);
    emitPairs(context, group, pairs);
    context.pairs[group.pairs] = pairs;
    return;
  }
  if (group.kind == Group::Contraction) {
    Value result = group.kernel.op.getResult();
    group.result = allocate(result);
    if (context.matrixOperands.lookup(group.kernel.op).unit == MatrixUnit::Amx)
      group.tile = scratch.acquire(result.getLoc(), {16, 16}, tileType(result).getElementType());
    emitContraction(context, group);
    if (group.tile)
      scratch.release(group.tile);
    setBuffer(result, group.result);
    return;
  }
  if (group.kind == Group::Scatter) {
    auto op = cast<attn::ScatterAddOp>(group.position);
    Value sums;
    if (MemRefType type = scatterScratchType(context.classes, op))
      sums = scratch.acquire(op.getLoc(), type.getShape(), type.getElementType());
    emitScatter(context, group, sums);
    if (sums)
      scratch.release(sums);
    return;
  }
  for (Sink &sink : group.sinks) {
    if (!tileType(sink.value) || sink.kind == Sink::Write || sink.kind == Sink::Extract)
      continue;
    if (sink.kind == Sink::Store)
      sink.target = takeDying(sink.value, group);
    if (sink.kind == Sink::Copy)
      sink.target = allocateCopy(sink.value, group.lane);
    if (!sink.target)
      sink.target = allocate(sink.value);
  }
  int walk = memoryWalk(context.classes, group.sinks.front(), group.laneOf(context.classes),
                        context.buffers);
  if (walk != alongLanes && group.sinks.size() == 1)
    emitTransposition(context, group, walk);
  else
    emitLoops(context, group);
  for (Sink &sink : group.sinks) {
    if (sink.kind == Sink::Copy)
      context.copies[{sink.value, group.lane}] = sink.target;
    else if (sink.target)
      setBuffer(sink.value, sink.target);
  }
}

void BlockLowering::setBuffer(Value value, Buffer buffer) {
  context.buffers[value] = std::move(buffer);
  stored.push_back(value);
}

void BlockLowering::storeTo(Value value, const Buffer &buffer, Operation *position) {
  Group group;
  group.position = position;
  group.domain = context.classes.domain(value);
  group.sinks.push_back({Sink::Store, value, nullptr, buffer});
  int walk = memoryWalk(context.classes, group.sinks.front(), group.laneOf(context.classes),
                        context.buffers);
  if (walk != alongLanes)
    emitTransposition(context, group, walk);
  else
    emitLoops(context, group);
}

/// Whether `value` is the yielded one, or nothing but the start of a chain of
/// loops that ends in it.
bool BlockLowering::isHandedOn(Value value, Value yielded) {
  while (value != yielded) {
    if (!value.hasOneUse())
      return false;
    OpOperand &use = *value.use_begin();
    auto next = dyn_cast<scf::ForOp>(use.getOwner());
    if (!next || next->getBlock() != &block)
      return false;
    value = next.getTiedLoopResult(&use);
  }
  return true;
}

/// Whether `result` of the region op may live in the buffer of `init`: nobody
/// else reads `init` from here on, and it is computed anew in each iteration of
/// an enclosing loop, or is the tile carried by that loop, which `result` or
/// the loops after it hand on.
bool BlockLowering::canTakeOver(Value init, Value result, Operation *op) {
  if (!context.buffers.count(init) || init.getParentBlock() != &block ||
      lastUse.lookup(init) != current)
    return false;
  bool captured = false;
  visitCaptures(op, [&](Value value) {
    SmallVector<Value> stack{value};
    while (!stack.empty() && !captured) {
      Value next = stack.pop_back_val();
      captured |= next == init && !isa<scf::IfOp>(op);
      Operation *def = next.getDefiningOp();
      if (def && isLazy(def) && !context.buffers.count(next))
        llvm::append_range(stack, def->getOperands());
    }
  });
  if (captured || llvm::count(op->getOperands(), init) > 1)
    return false;
  // Of the tiles carried through this block, only the one that is handed on
  // in the same place.
  Value memref = context.buffers[init].memref;
  for (const Handover &handover : handovers)
    if (handover.buffer.memref == memref)
      return isHandedOn(result, block.getTerminator()->getOperand(handover.index));
  return ownedUntil.count(memref);
}

void BlockLowering::takeOver(Value init, Value result) {
  Value memref = context.buffers[init].memref;
  if (ownedUntil.count(memref))
    ownedUntil[memref] = std::max(current, lastUse.lookup(result));
}

void BlockLowering::emitFor(scf::ForOp loop) {
  SmallVector<Handover> carried;
  SmallVector<std::pair<Value, Buffer>> fills;
  for (auto [index, arg] : llvm::enumerate(loop.getRegionIterArgs())) {
    if (!tileType(arg))
      continue;
    Value init = loop.getInitArgs()[index], result = loop.getResult(index);
    Buffer buffer;
    if (canTakeOver(init, result, loop)) {
      buffer = context.buffers[init];
      takeOver(init, result);
    } else {
      buffer = allocate(result);
      fills.push_back({init, buffer});
    }
    carried.push_back({unsigned(index), buffer, arg});
  }
  // All initial values are read before any buffer is bound to the loop.
  for (auto &[init, buffer] : fills)
    storeTo(init, buffer, loop);
  for (const Handover &handover : carried) {
    context.buffers[handover.carried] = handover.buffer;
    setBuffer(loop.getResult(handover.index), handover.buffer);
  }
  BlockLowering(context, scratch, *loop.getBody(), carried).run();
}

void BlockLowering::emitIf(scf::IfOp branch) {
  SmallVector<Handover> handovers;
  for (Value result : branch.getResults()) {
    if (!tileType(result))
      continue;
    unsigned index = cast<OpResult>(result).getResultNumber();
    Handover handover{index, {}, {}};
    // A tile that one of the branches passes through stays where it is.
    for (Block *body : {branch.thenBlock(), branch.elseBlock()}) {
      Value passed = body->getTerminator()->getOperand(index);
      if (!handover.buffer && canTakeOver(passed, result, branch) &&
          llvm::none_of(handovers, [&](const Handover &other) {
            return other.buffer.memref == context.buffers[passed].memref;
          })) {
        handover.buffer = context.buffers[passed];
        handover.carried = passed;
        takeOver(passed, result);
      }
    }
    if (!handover.buffer)
      handover.buffer = allocate(result);
    handovers.push_back(handover);
  }
  for (Block *body : {branch.thenBlock(), branch.elseBlock()})
    if (body)
      BlockLowering(context, scratch, *body, handovers).run();
  for (const Handover &handover : handovers)
    setBuffer(branch.getResult(handover.index), handover.buffer);
}

void BlockLowering::emitRegionOp(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return emitFor(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return emitIf(branch);
  bool isParallel = op->hasTrait<OpTrait::AutomaticAllocationScope>();
  for (Region &region : op->getRegions())
    for (Block &body : region) {
      Scratch own(body);
      BlockLowering(context, isParallel ? own : scratch, body, {}).run();
    }
}

/// The memrefs that computing `value` reads.
void BlockLowering::collectBuffers(Value value, SmallVectorImpl<Value> &memrefs) {
  auto buffer = context.buffers.find(value);
  if (buffer != context.buffers.end()) {
    memrefs.push_back(buffer->second.memref);
    return;
  }
  Operation *op = value.getDefiningOp();
  if (op && isLazy(op))
    for (Value operand : op->getOperands())
      if (tileType(operand))
        collectBuffers(operand, memrefs);
}

void BlockLowering::emitHandovers() {
  Operation *end = block.getTerminator();
  current = items.size();
  SmallVector<std::pair<Value, const Handover *>> moves;
  for (const Handover &handover : handovers) {
    Value value = end->getOperand(handover.index);
    auto buffer = context.buffers.find(value);
    if (buffer == context.buffers.end() || buffer->second.memref != handover.buffer.memref)
      moves.push_back({value, &handover});
  }
  // What reads a buffer that another move overwrites is computed first.
  SmallVector<std::pair<Buffer, const Handover *>> late;
  for (auto &move : moves) {
    Value value = move.first;
    const Handover *handover = move.second;
    SmallVector<Value> memrefs;
    collectBuffers(value, memrefs);
    bool clashes = llvm::any_of(moves, [&](auto &other) {
      return other.second != handover && llvm::is_contained(memrefs, other.second->buffer.memref);
    });
    if (!clashes)
      continue;
    Buffer copy = newBuffer(value, layoutOf(value));
    ownedUntil[copy.memref] = current;
    storeTo(value, copy, end);
    late.push_back({copy, handover});
  }
  for (auto &move : moves) {
    Value value = move.first;
    const Handover *handover = move.second;
    auto *early = llvm::find_if(late, [&](auto &entry) { return entry.second == handover; });
    auto saved = context.buffers.find(value);
    std::optional<Buffer> before;
    if (saved != context.buffers.end())
      before = saved->second;
    if (early != late.end())
      context.buffers[value] = early->first;
    storeTo(value, handover->buffer, end);
    if (early == late.end())
      continue;
    if (before)
      context.buffers[value] = *before;
    else
      context.buffers.erase(value);
  }
}

void BlockLowering::run() {
  gather();
  shareValues();
  findLastUses();
  assignInPlace();
  for (current = 0; current < items.size(); ++current) {
    Group &group = *items[current];
    if (group.kind == Group::Region) {
      for (auto &prelude : group.preludes)
        emitGroup(*prelude);
      emitRegionOp(group.position);
    } else {
      emitGroup(group);
    }
    releaseDead(current);
  }
  if (!handovers.empty())
    emitHandovers();
  releaseDead(items.size() + 1);
  // What was made here of tiles of an outer block is not there elsewhere.
  for (Value read : viewed)
    context.views.erase(read);
  for (const auto &[pairs, last] : lastPairsUse)
    context.pairs.erase(pairs);
  for (Value value : stored)
    if (value.getParentBlock() != &block)
      context.buffers.erase(value);
}
