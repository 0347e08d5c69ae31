// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The frame of a launch, and statements in it. See RowLaunch.h.

#include "RowLaunch.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

/// Threads that are to share a multiprocessor: 64 registers each.
constexpr int64_t kResident = 1024;

gpu::LaunchOp RowLaunch::emit(ArrayRef<Value> rowSizes, Value length) {
  sizes.assign(rowSizes.begin(), rowSizes.end());
  OpBuilder::InsertionGuard guard(b);
  createLaunch();
  findPlace();
  findColumns(length);
  if (share.parts)
    emitChunks();
  else
    emitWhole();
  return launch;
}

/// Reductions that meet in this launch, in order.
SmallVector<const RowStatement *> RowLaunch::ownReductions() const {
  SmallVector<const RowStatement *> own;
  for (const RowStatement &statement : space.statements)
    if (statement.reduction && statement.level == share.level)
      own.push_back(&statement);
  return own;
}

/// Reductions whose threads meet in shared memory.
unsigned RowLaunch::countMeetings() const {
  if (form.warps() * form.ctas == 1)
    return 0;
  return llvm::count_if(space.statements, [&](const RowStatement &statement) {
    return statement.reduction && (!share.parts || statement.level <= share.level);
  });
}

void RowLaunch::createLaunch() {
  Value rowCount = index(1);
  for (Value size : sizes)
    rowCount = mul(rowCount, size);
  Value one = index(1), grid = rowCount;
  if (form.rows > 1)
    grid = arith::CeilDivUIOp::create(b, grid, index(form.rows));
  if (share.parts)
    grid = mul(grid, share.parts);
  if (form.ctas > 1)
    grid = mul(grid, index(form.ctas));
  int64_t threads = form.threads * form.rows;
  SmallVector<Type> cells(countMeetings(), getSharedType(b.getF32Type(), form.warps() * form.rows));
  launch = createThreadLaunch(b, grid, threads, form.ctas, cells,
                              std::max<int64_t>(1, kResident / threads));
  lastRow = sub(rowCount, one);
  firstOp = lastRow.getDefiningOp();
}

/// The row, the part of it and the thread of the row.
void RowLaunch::findPlace() {
  Value thread = launch.getThreadIds().x, group = launch.getBlockIds().x;
  Value rank;
  if (form.ctas > 1) {
    rank = arith::RemUIOp::create(b, group, index(form.ctas));
    group = arith::DivUIOp::create(b, group, index(form.ctas));
  }
  if (share.parts) {
    part = arith::RemUIOp::create(b, group, share.parts);
    group = arith::DivUIOp::create(b, group, share.parts);
  }
  Value row = group, ofRow = thread;
  if (form.rows > 1) {
    rowOfCta = arith::DivUIOp::create(b, thread, index(form.threads));
    ofRow = arith::RemUIOp::create(b, thread, index(form.threads));
    row = add(mul(group, index(form.rows)), rowOfCta);
    isRow = compare(arith::CmpIPredicate::ule, row, lastRow);
    row = arith::MinUIOp::create(b, row, lastRow);
  }
  isFirst = compare(arith::CmpIPredicate::eq, ofRow, index(0));
  if (rank)
    isFirst = both(isFirst, compare(arith::CmpIPredicate::eq, rank, index(0)));
  if (part)
    isFirstPart = compare(arith::CmpIPredicate::eq, part, index(0));
  isFirst = both(isFirst, isRow);
  warp = arith::DivUIOp::create(b, ofRow, index(kLanes));
  lane = arith::RemUIOp::create(b, thread, index(kLanes));
  rowNumber = row;
  // Innermost last.
  coordinates.resize(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    coordinates[d] = d ? arith::RemUIOp::create(b, row, sizes[d]) : row;
    if (d)
      row = arith::DivUIOp::create(b, row, sizes[d]);
  }
  firstPiece = toI32(ofRow);
  if (rank)
    firstPiece = add(firstPiece, mul(toI32(rank), i32(form.threads)));
  firstPiece = mul(firstPiece, i32(form.size));
}

Value RowLaunch::coordinateOf(Dim dim) const {
  return coordinates[size_t(llvm::find(space.rows, dim) - space.rows.begin())];
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

/// What a thread has of an operand.
Content *RowLaunch::contentOf(Value operand) {
  Content *&known = contents[operand];
  if (known)
    return known;
  Content content;
  if (!isa<MemRefType>(operand.getType()))
    content.elements = {sunk(operand)};
  else if (space.memory.find(operand)->second.hasColumns)
    content = loadColumns(operand);
  else
    content.elements = {memref::LoadOp::create(b, operand, indicesOf(operand, Value()))};
  return contents[operand] = keep(std::move(content));
}

Content *RowLaunch::keep(Content content) {
  return kept.emplace_back(std::make_unique<Content>(std::move(content))).get();
}

Value RowLaunch::get(const Content &content, size_t e) {
  if (content.statement)
    return emitBody(*content.statement, content.operands, e);
  if (!content.pieces.empty())
    return vector::ExtractOp::create(b, content.pieces[e / size_t(form.size)],
                                     int64_t(e) % form.size);
  return content.elements[content.elements.size() == 1 ? 0 : e];
}

SmallVector<Content *> RowLaunch::operandsOf(const RowStatement &statement) {
  linalg::GenericOp op = statement.op;
  SmallVector<Content *> operands;
  for (OpOperand &operand : op->getOpOperands()) {
    bool isUsed = op.payloadUsesValueFromOperand(&operand) &&
                  !(statement.reduction && op.isDpsInit(&operand));
    operands.push_back(isUsed ? contentOf(operand.get()) : nullptr);
  }
  return operands;
}

/// A value of the host that follows from memory of the device is computed by the thread.
Value RowLaunch::sunk(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || launch->isAncestor(op) || op->getNumRegions() > 0)
    return value;
  if (Value known = sunkValues.lookup(value))
    return known;
  SmallVector<Value> operands;
  bool changes = isa<memref::LoadOp>(op);
  for (Value operand : op->getOperands()) {
    operands.push_back(sunk(operand));
    changes |= operands.back() != operand;
  }
  if (!changes)
    return value;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(firstOp);
  Operation *clone = b.clone(*op);
  clone->setOperands(operands);
  auto result = cast<OpResult>(value);
  return sunkValues[value] = clone->getResult(result.getResultNumber());
}

/// An element divided by a value of the row: times its inverse, which is computed once. Both are
/// scaled by a power of two where the inverse would leave the numbers.
Value RowLaunch::emitQuotient(Operation &inner, const RowStatement &statement,
                              ArrayRef<Content *> operands, IRMapping &mapping) {
  auto quotient = dyn_cast<arith::DivFOp>(inner);
  auto argument = quotient ? dyn_cast<BlockArgument>(quotient.getRhs()) : nullptr;
  if (!argument || argument.getOwner() != inner.getBlock() || !statement.hasColumns ||
      !argument.getType().isF32() || operands[argument.getArgNumber()]->elements.size() != 1)
    return {};
  Value divisor = mapping.lookup(argument);
  auto &[scale, inverse] = inverses[divisor];
  if (!inverse) {
    constexpr double kSmall = 0x1p-64, kLarge = 0x1p64;
    OpBuilder::InsertionGuard guard(b);
    if (divisor.getDefiningOp() && launch->isAncestor(divisor.getDefiningOp()))
      b.setInsertionPointAfterValue(divisor);
    else
      b.setInsertionPoint(firstOp);
    auto number = [&](double value) -> Value {
      return arith::ConstantOp::create(b, b.getF32FloatAttr(float(value)));
    };
    auto choose = [&](arith::CmpFPredicate predicate, double bound, double then, Value other) {
      Value size = arith::MulFOp::create(b, divisor, divisor);
      Value is = arith::CmpFOp::create(b, predicate, size, number(bound));
      return Value(arith::SelectOp::create(b, is, number(then), other));
    };
    // Squares, for the sign does not matter.
    scale = choose(arith::CmpFPredicate::OLT, 0x1p-100, kLarge, number(1));
    scale = choose(arith::CmpFPredicate::OGT, 0x1p100, kSmall, scale);
    inverse = arith::DivFOp::create(b, number(1), arith::MulFOp::create(b, divisor, scale));
  }
  Value dividend = mapping.lookupOrDefault(quotient.getLhs());
  return arith::MulFOp::create(b, Value(arith::MulFOp::create(b, dividend, scale)), inverse);
}

/// The statement's body for one element (or the row): the value that it yields, or its term.
Value RowLaunch::emitBody(const RowStatement &statement, ArrayRef<Content *> operands, size_t e) {
  linalg::GenericOp op = statement.op;
  Block *body = op.getBlock();
  IRMapping mapping;
  for (auto [argument, content] : llvm::zip_equal(body->getArguments(), operands))
    if (content)
      mapping.map(argument, get(*content, e));
  Value wanted =
      statement.reduction ? statement.reduction->term : body->getTerminator()->getOperand(0);
  // Outside of a row nothing is read: its memory may have no such element.
  bool reads = statement.hasColumns &&
               body->walk([](memref::LoadOp) { return WalkResult::interrupt(); }).wasInterrupted();
  auto emitOps = [&] {
    for (Operation &inner : body->without_terminator()) {
      if (statement.reduction && &inner == statement.reduction->combiner)
        continue;
      if (auto at = dyn_cast<linalg::IndexOp>(inner)) {
        Dim dim = statement.loops[at.getDim()];
        mapping.map(at.getResult(), dim == space.columns ? columnOf(e) : coordinateOf(dim));
        continue;
      }
      for (Value operand : inner.getOperands())
        if (operand.getParentRegion() != inner.getParentRegion() && !mapping.contains(operand))
          mapping.map(operand, sunk(operand));
      Value quotient = emitQuotient(inner, statement, operands, mapping);
      if (quotient)
        mapping.map(inner.getResult(0), quotient);
      else
        b.clone(inner, mapping);
    }
  };
  auto result = [&]() -> Value {
    if (Value known = mapping.lookupOrNull(wanted))
      return known;
    return sunk(wanted);
  };
  if (!reads) {
    emitOps();
    return result();
  }
  auto branch = scf::IfOp::create(b, wanted.getType(), isInside(e), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, zeroOf(wanted.getType()));
  b.setInsertionPointToStart(branch.thenBlock());
  emitOps();
  scf::YieldOp::create(b, result());
  return branch.getResult(0);
}

Value RowLaunch::combine(const RowStatement &statement, Value a, Value c) {
  if (!a)
    return c;
  Operation *combiner = statement.reduction->combiner;
  IRMapping mapping;
  Operation *clone = b.cloneWithoutRegions(*combiner, mapping);
  clone->setOperands({a, c});
  return clone->getResult(0);
}

Value RowLaunch::neutralOf(const RowStatement &statement) {
  return arith::ConstantOp::create(
      b, getNeutralElement(b, statement.reduction->monoid, b.getF32Type()));
}

/// What the thread's elements come to, after `before`.
Value RowLaunch::reduceThread(const RowStatement &statement, Value before) {
  if (!statement.hasColumns)
    return Value();
  Value neutral = neutralOf(statement);
  SmallVector<Content *> operands = operandsOf(statement);
  // Chains that may run side by side. A piece at a time: few values are alive at once.
  constexpr size_t kChains = 2;
  SmallVector<Value> chains(kChains, neutral);
  for (int64_t piece = 0; piece < form.pieces; ++piece) {
    auto branch = scf::IfOp::create(b, ValueRange(chains).getTypes(), isWhole(piece),
                                    /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    for (bool isChecked : {false, true}) {
      b.setInsertionPointToStart(isChecked ? branch.elseBlock() : branch.thenBlock());
      SmallVector<Value> sums = chains;
      for (int64_t n = 0; n < form.size; ++n) {
        size_t e = size_t(piece * form.size + n);
        Value own = emitBody(statement, operands, e);
        if (isChecked)
          own = arith::SelectOp::create(b, isInside(e), own, neutral);
        sums[e % kChains] = combine(statement, sums[e % kChains], own);
      }
      scf::YieldOp::create(b, sums);
    }
    chains.assign(branch.getResults().begin(), branch.getResults().end());
  }
  for (size_t n = 1; n < kChains; ++n)
    chains[0] = combine(statement, chains[0], chains[n]);
  return combine(statement, before, chains[0]);
}

Value RowLaunch::shuffle(Value value, int64_t distance) {
  return gpu::ShuffleOp::create(b, value, int32_t(distance), int32_t(kLanes), gpu::ShuffleMode::XOR)
      .getShuffleResult();
}

/// Over `count` neighbouring lanes: all of them get the same bits.
Value RowLaunch::reduceLanes(const RowStatement &statement, Value value, int64_t count) {
  for (int64_t distance = 1; distance < count; distance *= 2)
    value = combine(statement, value, shuffle(value, distance));
  return value;
}

/// Over all threads of a row: lanes, then warps (of all CTAs of a cluster) through shared
/// memory, of which each reduction has its own.
Value RowLaunch::reduceGroup(const RowStatement &statement, Value value) {
  value = reduceLanes(statement, value, std::min(form.threads, kLanes));
  int64_t warps = form.warps(), all = warps * form.ctas;
  if (all == 1)
    return value;
  Value cells = launch.getWorkgroupAttributions()[numMeetings++];
  Value first = index(0);
  if (form.rows > 1)
    first = mul(rowOfCta, index(warps));
  auto writes = scf::IfOp::create(b, compare(arith::CmpIPredicate::eq, lane, index(0)));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(writes.thenBlock());
    memref::StoreOp::create(b, value, cells, ValueRange{add(first, warp)});
  }
  if (form.ctas == 1) {
    gpu::BarrierOp::create(b);
    Value own = add(first, arith::RemUIOp::create(b, lane, index(warps)));
    return reduceLanes(statement, memref::LoadOp::create(b, cells, ValueRange{own}), warps);
  }
  usesCluster = true;
  hopper::ClusterSyncOp::create(b);
  // Lane n of a warp reads cells n, n + 32, ... of all CTAs' cells.
  Value sum;
  for (int64_t n = 0; n < all; n += kLanes) {
    Value cell = arith::RemUIOp::create(b, add(lane, index(n)), index(all));
    Value read = hopper::RemoteLoadOp::create(
        b, b.getF32Type(), cells, add(first, arith::RemUIOp::create(b, cell, index(warps))),
        arith::DivUIOp::create(b, cell, index(warps)));
    sum = combine(statement, sum, read);
  }
  return reduceLanes(statement, sum, std::min(all, kLanes));
}

/// The result of a reduction: what was there before, with what the row comes to.
void RowLaunch::setReduced(const RowStatement &statement, Value total) {
  linalg::GenericOp op = statement.op;
  Value out = op.getOutputs()[0];
  Value before = get(*contentOf(out), 0);
  Content content;
  content.elements = {combine(statement, before, total)};
  contents[out] = keep(std::move(content));
}

void RowLaunch::emitPlain(const RowStatement &statement) {
  linalg::GenericOp op = statement.op;
  Content content;
  SmallVector<Content *> operands = operandsOf(statement);
  if (statement.hasColumns && statement.isCheap) {
    content.statement = &statement;
    content.operands = std::move(operands);
  } else {
    size_t count = statement.hasColumns ? size_t(form.pieces * form.size) : 1;
    for (size_t e = 0; e < count; ++e)
      content.elements.push_back(emitBody(statement, operands, e));
    if (llvm::all_equal(content.elements))
      content.elements.resize(1);
  }
  contents[op.getOutputs()[0]] = keep(std::move(content));
}

/// Stores what is seen outside, the last content of each.
void RowLaunch::storeAllColumns() {
  for (auto &[memref, each] : space.memory)
    if (each.isKept && each.hasColumns)
      storeColumns(memref, *contentOf(memref));
}

void RowLaunch::storeRows() {
  for (auto &[memref, each] : space.memory) {
    if (!each.isKept || each.hasColumns)
      continue;
    Value value = get(*contentOf(memref), 0);
    auto branch = scf::IfOp::create(b, both(isFirst, isFirstPart));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    memref::StoreOp::create(b, value, memref, indicesOf(memref, Value()));
  }
}

/// A group holds a row: statements in order. What was read is what is kept from one meeting to
/// the next, not what follows from it.
void RowLaunch::emitWhole() {
  enterChunk(index(0));
  for (const RowStatement &statement : space.statements) {
    if (!statement.reduction) {
      emitPlain(statement);
      continue;
    }
    Value own = reduceThread(statement, {});
    setReduced(statement, reduceGroup(statement, own ? own : neutralOf(statement)));
    if (!space.isCheap)
      continue;
    for (std::unique_ptr<Content> &content : kept)
      for (Value &piece : content->pieces)
        piece = hopper::OpaqueOp::create(b, piece.getType(), piece);
  }
  if (usesCluster) // the others may still read
    hopper::ClusterArriveOp::create(b);
  storeAllColumns();
  storeRows();
  if (usesCluster)
    hopper::ClusterWaitOp::create(b);
}

/// Results of the reductions of earlier launches, and what follows from them for the row.
void RowLaunch::readPartials() {
  for (auto [number, statement] : llvm::enumerate(space.statements)) {
    if (share.partials.empty() || !share.partials[number] || statement.level >= share.level)
      continue;
    Value partials = share.partials[number];
    Value ofRow = toIndex(arith::DivUIOp::create(b, firstPiece, i32(form.size)));
    auto loop = scf::ForOp::create(b, ofRow, share.parts, index(form.threads),
                                   ValueRange{neutralOf(statement)});
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value read =
          memref::LoadOp::create(b, partials, ValueRange{rowNumber, loop.getInductionVar()});
      scf::YieldOp::create(b, combine(statement, loop.getRegionIterArg(0), read));
    }
    totals[number] = reduceGroup(statement, loop.getResult(0));
  }
}

/// All statements in order: those of elements for one chunk, into `sums` where they are reduced
/// here, if `ofColumns`. Reductions of earlier launches have their totals.
void RowLaunch::emitDivided(bool ofColumns, MutableArrayRef<Value> sums) {
  SmallVector<const RowStatement *> own = ownReductions();
  contents.clear();
  for (auto [number, statement] : llvm::enumerate(space.statements)) {
    if (statement.level > share.level)
      continue;
    if (statement.reduction && statement.level < share.level) {
      setReduced(statement, totals.lookup(number));
    } else if (statement.reduction) {
      Value &sum = sums[size_t(llvm::find(own, &statement) - own.begin())];
      sum = reduceThread(statement, sum);
    } else if (ofColumns || !statement.hasColumns) {
      emitPlain(statement);
    }
  }
}

void RowLaunch::emitChunks() {
  readPartials();
  SmallVector<const RowStatement *> own = ownReductions();
  SmallVector<Value> inits;
  for (const RowStatement *statement : own)
    inits.push_back(neutralOf(*statement));
  Value step = index(form.capacity());
  Value start = mul(part, mul(share.chunks, step));
  // The first elements of a row may be in front of a piece: there is room for a piece more.
  Value all = add(rowLength, index(form.size));
  Value end = arith::MinUIOp::create(b, add(start, mul(share.chunks, step)), all);
  auto loop = scf::ForOp::create(b, start, end, step, inits);
  {
    OpBuilder::InsertionGuard guard(b);
    if (inits.empty())
      loop.getBody()->getTerminator()->erase();
    b.setInsertionPointToEnd(loop.getBody());
    enterChunk(loop.getInductionVar());
    SmallVector<Value> sums(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
    emitDivided(/*ofColumns=*/true, sums);
    if (share.isLast)
      storeAllColumns();
    scf::YieldOp::create(b, sums);
  }
  if (share.isLast) {
    emitDivided(/*ofColumns=*/false, {});
    return storeRows();
  }
  for (auto [statement, sum] : llvm::zip_equal(own, loop.getResults())) {
    Value total = reduceGroup(*statement, sum);
    size_t number = size_t(statement - space.statements.data());
    auto branch = scf::IfOp::create(b, isFirst);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    memref::StoreOp::create(b, total, share.partials[number], ValueRange{rowNumber, part});
  }
}
