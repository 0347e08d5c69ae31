// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements of rows become launches of threads: a group of threads holds a row.

#include "RowSpace.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Transforms/RegionUtils.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERFORMROWPROGRAMS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

static attn::Done numFormed("hopper-form-row-programs", "formed", "Launches whose threads hold rows");

namespace {

constexpr int64_t kLanes = 32;
/// What a thread reads at a time, in bytes.
constexpr int64_t kPieceBytes = 16;
/// Elements of a row that a thread holds, of one operand or of several: of a row and of what is
/// computed from it in registers of 32 bits.
constexpr int64_t kElements = 32, kElementsOfSeveral = 16;
/// Threads of a row in a CTA.
constexpr int64_t kLeastThreads = 8, kMostThreads = 1024;
/// Threads of a CTA that has several rows.
constexpr int64_t kSharedThreads = 128;

/// How rows lie in threads.
struct Form {
  int64_t threads = 0, rows = 1; ///< of a row in a CTA; of a CTA
  int64_t ctas = 1;              ///< that share a row
  int64_t pieces = 1, size = 8;  ///< of a thread, and elements of a piece
  int64_t capacity() const { return threads * ctas * pieces * size; }
  int64_t warps() const { return std::max<int64_t>(1, threads / kLanes); }
};

/// What a thread has of some memory: a value for each of its elements, or one.
struct Content {
  SmallVector<Value> elements;
  Value get(size_t e) const { return elements[elements.size() == 1 ? 0 : e]; }
};

/// How a launch takes part in a division of rows.
struct Share {
  unsigned level = 0;            ///< which reductions it does
  bool isLast = true;            ///< and all that is stored
  Value parts, chunks;           ///< of a row; chunks of a part; null where a group holds a row
  SmallVector<Value> partials;   ///< by statement: results of parts, or null
};

/// Emits one launch.
class Launch {
public:
  Launch(const RowSpace &space, const Form &form, Share share, ImplicitLocOpBuilder &b)
      : space(space), form(form), share(std::move(share)), b(b) {}

  void emit(ArrayRef<Value> rowSizes, Value length) {
    sizes.assign(rowSizes.begin(), rowSizes.end());
    OpBuilder::InsertionGuard guard(b);
    createLaunch();
    findPlace();
    findColumns(length);
    if (share.parts)
      emitChunks();
    else
      emitWhole();
    if (share.isLast)
      storeRows();
    if (usesCluster) // the others may still read
      hopper::ClusterSyncOp::create(b);
  }

private:
  //===--- constants ---===//
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, value); }
  Value i32(int64_t value) { return arith::ConstantIntOp::create(b, value, 32); }
  Value toIndex(Value value) { return arith::IndexCastOp::create(b, b.getIndexType(), value); }
  Value toI32(Value value) { return arith::IndexCastOp::create(b, b.getI32Type(), value); }
  Value add(Value a, Value c) { return arith::AddIOp::create(b, a, c); }
  Value sub(Value a, Value c) { return arith::SubIOp::create(b, a, c); }
  Value mul(Value a, Value c) { return arith::MulIOp::create(b, a, c); }
  Value both(Value a, Value c) { return !a ? c : !c ? a : arith::AndIOp::create(b, a, c); }
  Value compare(arith::CmpIPredicate predicate, Value a, Value c) {
    return arith::CmpIOp::create(b, predicate, a, c);
  }

  /// Reductions that meet in this launch, in order.
  SmallVector<const RowStatement *> ownReductions() const {
    SmallVector<const RowStatement *> own;
    for (const RowStatement &statement : space.statements)
      if (statement.reduction && statement.level == share.level)
        own.push_back(&statement);
    return own;
  }

  /// Reductions whose threads meet in shared memory.
  unsigned countMeetings() const {
    if (form.warps() * form.ctas == 1)
      return 0;
    return llvm::count_if(space.statements, [&](const RowStatement &statement) {
      return statement.reduction && (!share.parts || statement.level <= share.level);
    });
  }

  void createLaunch() {
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
    Value threads = index(form.threads * form.rows);
    Value cluster = form.ctas > 1 ? index(form.ctas) : Value();
    auto memory = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
    SmallVector<Type> cells(countMeetings(),
                            MemRefType::get({form.warps() * form.rows}, b.getF32Type(),
                                            MemRefLayoutAttrInterface(), memory));
    launch = gpu::LaunchOp::create(b, grid, one, one, threads, one, one, Value(), Type(), {}, cells,
                                   {}, cluster, cluster ? one : Value(), cluster ? one : Value());
    // The builder makes those of a launch without clusters.
    Block &body = launch.getBody().front();
    unsigned first = body.getNumArguments() - unsigned(cells.size());
    for (unsigned at = first; at < launch.getNumConfigRegionAttributes(); ++at)
      body.insertArgument(at, b.getIndexType(), b.getLoc());
    b.setInsertionPointToEnd(&body);
    auto terminator = gpu::TerminatorOp::create(b);
    b.setInsertionPoint(terminator);
    hopper::ThreadsOp::create(b);
    lastRow = sub(rowCount, one);
    numFormed.at(launch) << remark::metric("Threads", form.threads * form.rows)
                         << remark::metric("Rows", form.rows)
                         << remark::metric("CTAs", form.ctas);
  }

  /// The row, the part of it and the thread of the row.
  void findPlace() {
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

  Value coordinateOf(Dim dim) const {
    return coordinates[size_t(llvm::find(space.rows, dim) - space.rows.begin())];
  }

  //===--- columns ---===//

  static bool hasPieces(Value memref, int64_t size) {
    auto type = cast<MemRefType>(memref.getType());
    SmallVector<int64_t> strides;
    int64_t offset;
    Type element = type.getElementType();
    if (failed(type.getStridesAndOffset(strides, offset)) || strides.back() != 1 ||
        !element.isIntOrFloat())
      return false;
    int64_t bits = element.getIntOrFloatBitWidth();
    return (bits == 16 || bits == 32) && size * bits <= 8 * kPieceBytes;
  }

  /// Elements in front of the row's first one, from a multiple of a piece's size on.
  Value findMisalignment(Value memref) {
    auto type = cast<MemRefType>(memref.getType());
    auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
    Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
    int64_t bytes = type.getElementTypeBitWidth() / 8;
    Value place = arith::DivUIOp::create(b, start, index(bytes));
    place = add(place, metadata.getOffset());
    for (auto [dim, stride] :
         llvm::zip_equal(space.memory.find(memref)->second.dims, metadata.getStrides()))
      if (dim && *dim != space.columns)
        place = add(place, mul(coordinateOf(*dim), stride));
    return arith::AndIOp::create(b, place, index(form.size - 1));
  }

  /// Pieces begin at multiples of their size in the first memory that has pieces; there, and where
  /// rows begin alike, they are read and written whole.
  void findColumns(Value length) {
    for (auto &[memref, each] : space.memory) {
      if (!each.hasColumns || !(each.isRead || each.isKept) || !hasPieces(memref, form.size))
        continue;
      Value own = findMisalignment(memref);
      if (!shift)
        shift = own;
      else
        isAligned[memref] = compare(arith::CmpIPredicate::eq, own, shift);
      aligned.insert(memref);
    }
    if (!shift)
      shift = index(0);
    rowLength = length;
  }

  /// The elements from `start` on, which is a multiple of a piece from the first one.
  void enterChunk(Value start) {
    origin = sub(start, shift);
    Value zero = index(0);
    int64_t all = form.capacity();
    low = toI32(arith::MaxSIOp::create(b, sub(zero, origin), zero));
    Value end = arith::MinSIOp::create(b, sub(rowLength, origin), index(all));
    high = toI32(arith::MaxSIOp::create(b, end, zero));
    inside.clear();
    columnIndices.clear();
  }

  Value placeOf(int64_t piece) {
    return add(firstPiece, i32(piece * form.threads * form.ctas * form.size));
  }

  /// Whether element e is one of the row.
  Value isInside(size_t e) {
    if (inside.empty())
      inside.resize(size_t(form.pieces * form.size));
    Value &is = inside[e];
    if (!is) {
      Value place = add(placeOf(int64_t(e) / form.size), i32(int64_t(e) % form.size));
      is = compare(arith::CmpIPredicate::ult, sub(place, low),
                   arith::MaxSIOp::create(b, sub(high, low), i32(0)));
    }
    return is;
  }

  Value columnOf(size_t e) {
    Value place = add(placeOf(int64_t(e) / form.size), i32(int64_t(e) % form.size));
    return add(origin, toIndex(place));
  }

  SmallVector<Value> indicesOf(Value memref, Value column) {
    SmallVector<Value> indices;
    for (std::optional<Dim> dim : space.memory.find(memref)->second.dims)
      indices.push_back(!dim                    ? index(0)
                        : *dim == space.columns ? column
                                                : coordinateOf(*dim));
    return indices;
  }

  Value zeroOf(Type type) { return arith::ConstantOp::create(b, b.getZeroAttr(type)); }

  /// Whether all of a piece is in the row, and where 16 bytes begin.
  Value isWhole(Value memref, int64_t piece) {
    Value place = placeOf(piece);
    Value whole = both(compare(arith::CmpIPredicate::sge, place, low),
                       compare(arith::CmpIPredicate::sle, add(place, i32(form.size)), high));
    return both(whole, isAligned.lookup(memref));
  }
  /// Whether some element of a piece is in the row.
  Value isSome(int64_t piece) {
    Value place = placeOf(piece);
    return both(compare(arith::CmpIPredicate::slt, place, high),
                compare(arith::CmpIPredicate::sgt, add(place, i32(form.size)), low));
  }
  llvm::MaybeAlign alignmentOf(Type element) const {
    return llvm::Align(uint64_t(form.size) * element.getIntOrFloatBitWidth() / 8);
  }

  Value loadElement(Value memref, size_t e) {
    Type element = cast<MemRefType>(memref.getType()).getElementType();
    auto branch = scf::IfOp::create(b, element, isInside(e), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, zeroOf(element));
    b.setInsertionPointToStart(branch.thenBlock());
    Value loaded = memref::LoadOp::create(b, memref, indicesOf(memref, columnOf(e)));
    scf::YieldOp::create(b, loaded);
    return branch.getResult(0);
  }

  SmallVector<Value> loadColumns(Value memref) {
    SmallVector<Value> elements;
    Type element = cast<MemRefType>(memref.getType()).getElementType();
    // Conditions of elements are used on several paths.
    for (int64_t e = 0; e < form.pieces * form.size; ++e)
      isInside(size_t(e));
    for (int64_t piece = 0; piece < form.pieces; ++piece) {
      auto at = [&](int64_t e) { return size_t(piece * form.size + e); };
      if (!aligned.contains(memref)) {
        for (int64_t e = 0; e < form.size; ++e)
          elements.push_back(loadElement(memref, at(e)));
        continue;
      }
      auto type = VectorType::get(form.size, element);
      OpBuilder::InsertionGuard guard(b);
      auto whole = scf::IfOp::create(b, type, isWhole(memref, piece), /*withElseRegion=*/true);
      b.setInsertionPointToStart(whole.thenBlock());
      Value loaded =
          vector::LoadOp::create(b, type, memref, indicesOf(memref, columnOf(at(0))),
                                 /*nontemporal=*/false, alignmentOf(element));
      scf::YieldOp::create(b, loaded);
      b.setInsertionPointToStart(whole.elseBlock());
      auto some = scf::IfOp::create(b, type, isSome(piece), /*withElseRegion=*/true);
      scf::YieldOp::create(b, some.getResult(0));
      b.setInsertionPointToStart(some.elseBlock());
      scf::YieldOp::create(b, zeroOf(type));
      b.setInsertionPointToStart(some.thenBlock());
      SmallVector<Value> parts;
      for (int64_t e = 0; e < form.size; ++e)
        parts.push_back(loadElement(memref, at(e)));
      scf::YieldOp::create(b, Value(vector::FromElementsOp::create(b, type, parts)));
      b.setInsertionPointAfter(whole);
      for (int64_t e = 0; e < form.size; ++e)
        elements.push_back(vector::ExtractOp::create(b, whole.getResult(0), e));
    }
    return elements;
  }

  void storeElement(Value memref, size_t e, Value value) {
    auto branch = scf::IfOp::create(b, both(isInside(e), isRow));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    memref::StoreOp::create(b, value, memref, indicesOf(memref, columnOf(e)));
  }

  void storeColumns(Value memref, const Content &content) {
    Type element = cast<MemRefType>(memref.getType()).getElementType();
    for (int64_t e = 0; e < form.pieces * form.size; ++e)
      isInside(size_t(e));
    for (int64_t piece = 0; piece < form.pieces; ++piece) {
      auto at = [&](int64_t e) { return size_t(piece * form.size + e); };
      auto storeAll = [&] {
        for (int64_t e = 0; e < form.size; ++e)
          storeElement(memref, at(e), content.get(at(e)));
      };
      if (!aligned.contains(memref)) {
        storeAll();
        continue;
      }
      auto type = VectorType::get(form.size, element);
      SmallVector<Value> parts;
      for (int64_t e = 0; e < form.size; ++e)
        parts.push_back(content.get(at(e)));
      Value all = vector::FromElementsOp::create(b, type, parts);
      OpBuilder::InsertionGuard guard(b);
      auto whole = scf::IfOp::create(b, TypeRange(), both(isWhole(memref, piece), isRow),
                                     /*withElseRegion=*/true);
      b.setInsertionPointToStart(whole.thenBlock());
      vector::StoreOp::create(b, all, memref, indicesOf(memref, columnOf(at(0))),
                              /*nontemporal=*/false, alignmentOf(element));
      b.setInsertionPointToStart(whole.elseBlock());
      auto some = scf::IfOp::create(b, both(isSome(piece), isRow));
      b.setInsertionPointToStart(some.thenBlock());
      storeAll();
    }
  }

  //===--- statements ---===//

  /// What a thread has of an operand.
  const Content &contentOf(Value operand) {
    auto it = contents.find(operand);
    if (it != contents.end())
      return it->second;
    Content content;
    if (!isa<MemRefType>(operand.getType()))
      content.elements = {sunk(operand)};
    else if (space.memory.find(operand)->second.hasColumns)
      content.elements = loadColumns(operand);
    else
      content.elements = {memref::LoadOp::create(b, operand, indicesOf(operand, Value()))};
    return contents[operand] = std::move(content);
  }

  /// A value of the host that follows from memory of the device is computed by the thread.
  Value sunk(Value value) {
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
    Operation *clone = b.clone(*op);
    clone->setOperands(operands);
    auto result = cast<OpResult>(value);
    return sunkValues[value] = clone->getResult(result.getResultNumber());
  }

  /// The statement's body for one element (or the row): the value that it yields, or its term.
  Value emitBody(const RowStatement &statement, size_t e) {
    linalg::GenericOp op = statement.op;
    Block *body = op.getBlock();
    IRMapping mapping;
    for (OpOperand &operand : op->getOpOperands())
      if (op.payloadUsesValueFromOperand(&operand) &&
          !(statement.reduction && op.isDpsInit(&operand)))
        mapping.map(op.getMatchingBlockArgument(&operand), contentOf(operand.get()).get(e));
    Value wanted = statement.reduction ? statement.reduction->term
                                       : body->getTerminator()->getOperand(0);
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
        llvm::SetVector<Value> outside;
        for (Value operand : inner.getOperands())
          if (operand.getParentRegion() != inner.getParentRegion() && !mapping.contains(operand))
            mapping.map(operand, sunk(operand));
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

  Value combine(const RowStatement &statement, Value a, Value c) {
    if (!a)
      return c;
    Operation *combiner = statement.reduction->combiner;
    IRMapping mapping;
    Operation *clone = b.cloneWithoutRegions(*combiner, mapping);
    clone->setOperands({a, c});
    return clone->getResult(0);
  }

  Value neutralOf(const RowStatement &statement) {
    return arith::ConstantOp::create(
        b, getNeutralElement(b, statement.reduction->monoid, b.getF32Type()));
  }

  /// What the thread's elements come to, after `before`.
  Value reduceThread(const RowStatement &statement, Value before) {
    if (!statement.hasColumns)
      return Value();
    // Chains that may run side by side.
    constexpr size_t kChains = 4;
    SmallVector<Value, kChains> chains(kChains);
    Value neutral = neutralOf(statement);
    for (size_t e = 0; e < size_t(form.pieces * form.size); ++e) {
      Value term = emitBody(statement, e);
      term = arith::SelectOp::create(b, isInside(e), term, neutral);
      chains[e % kChains] = combine(statement, chains[e % kChains], term);
    }
    for (size_t n = 1; n < kChains; ++n)
      if (chains[n])
        chains[0] = combine(statement, chains[0], chains[n]);
    return combine(statement, before, chains[0]);
  }

  Value shuffle(Value value, int64_t distance) {
    return gpu::ShuffleOp::create(b, value, int32_t(distance), int32_t(kLanes),
                                  gpu::ShuffleMode::XOR)
        .getShuffleResult();
  }

  /// Over `count` neighbouring lanes: all of them get the same bits.
  Value reduceLanes(const RowStatement &statement, Value value, int64_t count) {
    for (int64_t distance = 1; distance < count; distance *= 2)
      value = combine(statement, value, shuffle(value, distance));
    return value;
  }

  /// Over all threads of a row: lanes, then warps (of all CTAs of a cluster) through shared
  /// memory, of which each reduction has its own.
  Value reduceGroup(const RowStatement &statement, Value value) {
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
  void setReduced(const RowStatement &statement, Value total) {
    linalg::GenericOp op = statement.op;
    Value out = op.getOutputs()[0];
    Value before = contentOf(out).get(0);
    contents[out] = Content{{combine(statement, before, total)}};
  }

  void emitPlain(const RowStatement &statement) {
    Content content;
    size_t count = statement.hasColumns ? size_t(form.pieces * form.size) : 1;
    for (size_t e = 0; e < count; ++e)
      content.elements.push_back(emitBody(statement, e));
    if (llvm::all_equal(content.elements))
      content.elements.resize(1);
    linalg::GenericOp op = statement.op;
    contents[op.getOutputs()[0]] = std::move(content);
  }

  /// Stores what is seen outside, the last content of each.
  void storeAllColumns() {
    for (auto &[memref, each] : space.memory)
      if (each.isKept && each.hasColumns)
        storeColumns(memref, contentOf(memref));
  }

  void storeRows() {
    for (auto &[memref, each] : space.memory) {
      if (!each.isKept || each.hasColumns)
        continue;
      Value value = contentOf(memref).get(0);
      auto branch = scf::IfOp::create(b, both(isFirst, isFirstPart));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      memref::StoreOp::create(b, value, memref, indicesOf(memref, Value()));
    }
  }

  /// A group holds a row: statements in order.
  void emitWhole() {
    enterChunk(index(0));
    for (const RowStatement &statement : space.statements) {
      if (!statement.reduction)
        emitPlain(statement);
      else
        setReduced(statement, reduceGroup(statement, orNeutral(statement, reduceThread(statement, {}))));
    }
    storeAllColumns();
  }

  Value orNeutral(const RowStatement &statement, Value value) {
    return value ? value : neutralOf(statement);
  }

  //===--- divided rows ---===//

  /// Results of the reductions of earlier launches, and what follows from them for the row.
  void readPartials() {
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
        Value read = memref::LoadOp::create(b, partials,
                                            ValueRange{rowNumber, loop.getInductionVar()});
        scf::YieldOp::create(b, combine(statement, loop.getRegionIterArg(0), read));
      }
      totals[number] = reduceGroup(statement, loop.getResult(0));
    }
  }

  /// All statements in order: those of elements for one chunk, into `sums` where they are reduced
  /// here, if `ofColumns`. Reductions of earlier launches have their totals.
  void emitDivided(bool ofColumns, MutableArrayRef<Value> sums) {
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

  void emitChunks() {
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
    if (share.isLast)
      return emitDivided(/*ofColumns=*/false, {}); // for what is stored of the row
    for (auto [statement, sum] : llvm::zip_equal(own, loop.getResults())) {
      Value total = reduceGroup(*statement, sum);
      size_t number = size_t(statement - space.statements.data());
      auto branch = scf::IfOp::create(b, isFirst);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      memref::StoreOp::create(b, total, share.partials[number], ValueRange{rowNumber, part});
    }
  }

  const RowSpace &space;
  const Form form;
  const Share share;
  ImplicitLocOpBuilder &b;
  gpu::LaunchOp launch;
  SmallVector<Value> sizes, coordinates;
  Value lastRow, rowNumber, rowOfCta, part, isRow, isFirst, isFirstPart, warp, lane;
  Value rowLength, shift, origin, firstPiece, low, high; // the last three in i32
  llvm::DenseSet<Value> aligned;           ///< memory with pieces
  llvm::DenseMap<Value, Value> isAligned;  ///< where rows may begin differently
  SmallVector<Value> inside, columnIndices;
  llvm::DenseMap<Value, Content> contents;
  llvm::DenseMap<Value, Value> sunkValues;
  llvm::DenseMap<size_t, Value> totals;
  bool usesCluster = false;
  unsigned numMeetings = 0;
};

/// Chooses the launches of a function and emits them.
class Former {
public:
  Former(func::FuncOp function, int64_t ctas, int64_t multiprocessors, int64_t threads,
         int64_t parts)
      : function(function), ctas(ctas), multiprocessors(multiprocessors), threads(threads),
        parts(parts), b(function.getLoc(), function) {}

  LogicalResult run() {
    if (failed(space.build(function)))
      return failure();
    linalg::GenericOp last = space.statements.back().op;
    b.setLoc(last.getLoc());
    b.setInsertionPointAfter(last);
    auto sizeOf = [&](Dim dim) -> Value {
      auto [memref, at] = space.findExtent(dim);
      return memref::DimOp::create(b, memref, at);
    };
    length = sizeOf(space.columns);
    for (Dim dim : space.rows)
      sizes.push_back(sizeOf(dim));
    chooseSize();
    emitForms();
    for (RowStatement &statement : llvm::reverse(space.statements))
      statement.op->erase();
    return success();
  }

private:
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, value); }

  /// Elements of a piece and of a thread.
  void chooseSize() {
    int64_t bytes = 2, several = 0;
    for (auto &[memref, each] : space.memory) {
      if (!each.hasColumns || !(each.isRead || each.isKept))
        continue;
      Type element = cast<MemRefType>(memref.getType()).getElementType();
      if (element.isIntOrFloat() && element.getIntOrFloatBitWidth() == 32)
        bytes = 4;
      several += each.isRead;
    }
    size = kPieceBytes / bytes;
    elements = several > 1 ? kElementsOfSeveral : kElements;
  }

  /// A group that holds rows of up to `capacity` elements, a power of two.
  std::optional<Form> findForm(int64_t capacity) {
    Form form;
    form.size = size;
    int64_t all = std::max(capacity / elements, kLeastThreads);
    form.pieces = std::max<int64_t>(1, capacity / (all * size));
    form.threads = std::min(all, threads);
    form.ctas = all / form.threads;
    if (form.ctas > ctas) {
      form.threads *= 2;
      form.ctas /= 2;
    }
    if (form.ctas > ctas || form.threads > kMostThreads)
      return std::nullopt;
    form.rows = std::max<int64_t>(1, kSharedThreads / form.threads);
    return form;
  }

  /// Elements in front of a row's first one at most.
  Value findSlack() {
    Value bits;
    auto add = [&](Value value) { bits = bits ? arith::OrIOp::create(b, bits, value) : value; };
    for (auto &[memref, each] : space.memory) {
      auto type = cast<MemRefType>(memref.getType());
      if (!each.hasColumns || !(each.isRead || each.isKept) ||
          !type.getElementType().isIntOrFloat())
        continue;
      auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
      Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
      Value bytes = index(std::max<int64_t>(1, type.getElementTypeBitWidth() / 8));
      add(arith::DivUIOp::create(b, start, bytes));
      add(metadata.getOffset());
      for (auto [dim, stride] : llvm::zip_equal(each.dims, metadata.getStrides()))
        if (dim && *dim != space.columns)
          add(stride);
      break; // the others follow
    }
    if (!bits)
      return index(0);
    bits = arith::AndIOp::create(b, bits, index(size - 1));
    Value isAligned = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, bits, index(0));
    return arith::SelectOp::create(b, isAligned, index(0), index(size - 1));
  }

  void emitForms() {
    SmallVector<Form> forms;
    int64_t least = size * kLeastThreads;
    std::optional<int64_t> known = getConstantIntValue(memrefSize(length));
    if (parts == 0)
      for (int64_t capacity = least;; capacity *= 2) {
        std::optional<Form> form = findForm(capacity);
        if (!form)
          break;
        if (known && form->capacity() < *known)
          continue;
        forms.push_back(*form);
        if (known && form->capacity() >= *known + size - 1)
          break;
      }
    Value needed = arith::AddIOp::create(b, length, findSlack());
    OpBuilder::InsertionGuard guard(b);
    for (const Form &form : forms) {
      if (known && form.capacity() >= *known + size - 1) {
        Launch(space, form, Share(), b).emit(sizes, length);
        return;
      }
      Value fits =
          arith::CmpIOp::create(b, arith::CmpIPredicate::ule, needed, index(form.capacity()));
      auto branch = scf::IfOp::create(b, TypeRange(), fits, /*withElseRegion=*/true);
      b.setInsertionPointToStart(branch.thenBlock());
      Launch(space, form, Share(), b).emit(sizes, length);
      b.setInsertionPointToStart(branch.elseBlock());
    }
    emitDivided();
  }

  static OpFoldResult memrefSize(Value dim) {
    auto op = dim.getDefiningOp<memref::DimOp>();
    auto type = cast<MemRefType>(op.getSource().getType());
    int64_t at = *op.getConstantIndex();
    if (type.isDynamicDim(unsigned(at)))
      return dim;
    return OpBuilder(op).getIndexAttr(type.getDimSize(unsigned(at)));
  }

  /// Parts of rows, so many that they fill the device.
  void emitDivided() {
    Form form;
    form.size = size;
    form.pieces = elements / size;
    form.threads = threads;
    Value rows = index(1), one = index(1);
    for (Value each : sizes)
      rows = arith::MulIOp::create(b, rows, each);
    Value all = arith::AddIOp::create(b, length, index(size));
    Value chunks = arith::CeilDivUIOp::create(b, all, index(form.capacity()));
    Share share;
    constexpr int64_t kOccupancy = 2;
    Value wanted = parts > 0 ? index(parts)
                             : Value(arith::CeilDivUIOp::create(
                                   b, index(kOccupancy * multiprocessors),
                                   arith::MaxUIOp::create(b, rows, one)));
    share.parts = arith::MinUIOp::create(b, wanted, chunks);
    share.chunks = arith::CeilDivUIOp::create(b, chunks, share.parts);
    auto type = MemRefType::get({ShapedType::kDynamic, ShapedType::kDynamic}, b.getF32Type());
    for (const RowStatement &statement : space.statements)
      share.partials.push_back(statement.reduction
                                   ? memref::AllocOp::create(b, type, ValueRange{rows, share.parts})
                                         .getResult()
                                   : Value());
    for (unsigned level = 0; level <= space.levels; ++level) {
      share.level = level;
      share.isLast = level == space.levels;
      Launch(space, form, share, b).emit(sizes, length);
    }
    for (Value partials : share.partials)
      if (partials)
        memref::DeallocOp::create(b, partials);
  }

  func::FuncOp function;
  const int64_t ctas, multiprocessors, threads, parts;
  ImplicitLocOpBuilder b;
  RowSpace space;
  Value length;
  SmallVector<Value> sizes;
  int64_t size = 0, elements = 0;
};

struct FormRowProgramsPass : attn::impl::HopperFormRowProgramsBase<FormRowProgramsPass> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isDeclaration())
      return;
    auto isPower = [](int64_t value) { return value > 0 && (value & (value - 1)) == 0; };
    if (!isPower(ctas) || multiprocessors < 1 || !isPower(threads) || threads < kLeastThreads ||
        threads > kMostThreads || parts < 0) {
      function.emitError("expected ctas and threads to be powers of two, threads 8 to 1024, "
                         "multiprocessors at least 1, parts at least 0");
      return signalPassFailure();
    }
    IRRewriter rewriter(&getContext());
    for (auto copy : llvm::make_early_inc_range(function.getOps<memref::CopyOp>()))
      stateCopy(copy);
    for (linalg::LinalgOp op :
         llvm::make_early_inc_range(function.getOps<linalg::LinalgOp>()))
      if (!isa<linalg::GenericOp>(op.getOperation()) && op.hasPureBufferSemantics()) {
        rewriter.setInsertionPoint(op);
        (void)linalg::generalizeNamedOp(rewriter, op); // what is left is refused
      }
    if (failed(Former(function, ctas, multiprocessors, threads, parts).run()))
      signalPassFailure();
  }

  static void stateCopy(memref::CopyOp copy) {
    auto type = dyn_cast<MemRefType>(copy.getSource().getType());
    if (!type || type.getRank() == 0 || !isa<MemRefType>(copy.getTarget().getType()))
      return;
    OpBuilder b(copy);
    linalg::makeMemRefCopyOp(b, copy.getLoc(), copy.getSource(), copy.getTarget());
    copy.erase();
  }
};

} // namespace
