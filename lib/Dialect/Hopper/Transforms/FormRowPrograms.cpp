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

static attn::Done numFormed("hopper-form-row-programs", "formed",
                            "Launches whose threads hold rows");

namespace {

constexpr int64_t kLanes = 32;
/// What a thread reads at a time, in bytes.
constexpr int64_t kPieceBytes = 16;
/// Pieces that a thread holds, of all operands together, where all else is computed again; or
/// elements of a row, of one operand or of several, where what follows from them is held, too.
constexpr int64_t kPieces = 8, kElements = 32, kElementsOfSeveral = 16;
/// Threads that are to share a multiprocessor: 64 registers each.
constexpr int64_t kResident = 1024;
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

/// What a thread has of some memory: vectors that it has read, a value for each of its elements or
/// one for all, or a statement that is done for an element where that is used.
struct Content {
  SmallVector<Value> pieces, elements;
  const RowStatement *statement = nullptr;
  SmallVector<Content *> operands; ///< of the statement; null for those that it does not use
};

/// Whether neighbouring elements of a row are read and written as pieces of `size`.
bool hasPieces(Value memref, const RowMemory &memory, int64_t size) {
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  Type element = type.getElementType();
  if (!memory.hasColumns || !(memory.isRead || memory.isKept) ||
      failed(type.getStridesAndOffset(strides, offset)) || strides.back() != 1 ||
      memory.dims.back() == std::nullopt || !element.isIntOrFloat())
    return false;
  int64_t bits = element.getIntOrFloatBitWidth();
  return (bits == 16 || bits == 32) && size * bits <= 8 * kPieceBytes;
}

/// How a launch takes part in a division of rows.
struct Share {
  unsigned level = 0;          ///< which reductions it does
  bool isLast = true;          ///< and all that is stored
  Value parts, chunks;         ///< of a row; chunks of a part; null where a group holds a row
  SmallVector<Value> partials; ///< by statement: results of parts, or null
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
    int64_t occupancy = std::max<int64_t>(1, kResident / (form.threads * form.rows));
    hopper::ThreadsOp::create(b, b.getI64IntegerAttr(occupancy));
    lastRow = sub(rowCount, one);
    firstOp = lastRow.getDefiningOp();
    numFormed.at(launch) << remark::metric("Threads", form.threads * form.rows)
                         << remark::metric("Rows", form.rows) << remark::metric("CTAs", form.ctas);
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

  bool isOfPieces(Value memref, const RowMemory &memory) const {
    return hasPieces(memref, memory, form.size) && memory.dims.back() == space.columns;
  }

  Value coordinateOf(Dim dim) const {
    return coordinates[size_t(llvm::find(space.rows, dim) - space.rows.begin())];
  }

  //===--- columns ---===//

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
      if (!isOfPieces(memref, each))
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

  /// Elements from a piece of a thread to its next one, a power of two.
  int64_t step() const { return form.threads * form.ctas * form.size; }

  /// The elements from `start` on, which is a multiple of a piece from the first one.
  void enterChunk(Value start) {
    origin = sub(start, shift);
    firstColumn = add(origin, toIndex(firstPiece));
    Value zero = index(0);
    low = toI32(arith::MaxSIOp::create(b, sub(zero, origin), zero));
    Value end = arith::MinSIOp::create(b, sub(rowLength, origin), index(form.capacity()));
    high = arith::MaxSIOp::create(b, toI32(arith::MaxSIOp::create(b, end, zero)), low);
    // Few values for all pieces: each is compared with numbers.
    numWhole = countPieces(sub(high, i32(form.size)));
    numSome = countPieces(sub(high, i32(1)));
    beginsInside = compare(arith::CmpIPredicate::sge, firstPiece, low);
  }

  /// How many of the thread's pieces begin at `last` or before.
  Value countPieces(Value last) {
    Value room = add(sub(last, firstPiece), i32(step()));
    return arith::ShRSIOp::create(b, room, i32(llvm::Log2_64(uint64_t(step()))));
  }

  int64_t placeOf(size_t e) const {
    return int64_t(e) / form.size * step() + int64_t(e) % form.size;
  }

  /// Whether element e is one of the row.
  Value isInside(size_t e) {
    Value place = add(firstPiece, i32(placeOf(e)));
    return compare(arith::CmpIPredicate::ult, sub(place, low), sub(high, low));
  }
  Value columnOf(size_t e) { return add(firstColumn, index(placeOf(e))); }

  /// Whether a piece is one of the first `count`; only the first one may begin in front of the row.
  Value isAmong(int64_t piece, Value count, Value begins) {
    Value is = compare(arith::CmpIPredicate::slt, i32(piece), count);
    return piece == 0 ? both(is, begins) : is;
  }
  /// Whether all of a piece is in the row, or some of it.
  Value isWhole(int64_t piece) { return isAmong(piece, numWhole, beginsInside); }
  Value isSome(int64_t piece) { return isAmong(piece, numSome, {}); }

  SmallVector<Value> indicesOf(Value memref, Value column) {
    SmallVector<Value> indices;
    for (std::optional<Dim> dim : space.memory.find(memref)->second.dims)
      indices.push_back(!dim ? index(0) : *dim == space.columns ? column : coordinateOf(*dim));
    return indices;
  }

  Value zeroOf(Type type) { return arith::ConstantOp::create(b, b.getZeroAttr(type)); }

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

  /// The memory of a view as one row, and where a row of it starts there.
  std::pair<Value, Value> flatten(Value memref) {
    auto type = cast<MemRefType>(memref.getType());
    auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
    Value start = index(0), span = index(1);
    for (auto [dim, size, stride] : llvm::zip_equal(space.memory.find(memref)->second.dims,
                                                    metadata.getSizes(), metadata.getStrides())) {
      span = add(span, mul(sub(size, index(1)), stride));
      if (dim && *dim != space.columns)
        start = add(start, mul(coordinateOf(*dim), stride));
    }
    auto layout = StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, {1});
    auto flat = MemRefType::get({ShapedType::kDynamic}, type.getElementType(), layout,
                                type.getMemorySpace());
    Value view = memref::ReinterpretCastOp::create(
        b, flat, metadata.getBaseBuffer(), OpFoldResult(metadata.getOffset()),
        ArrayRef<OpFoldResult>{OpFoldResult(span)},
        ArrayRef<OpFoldResult>{OpFoldResult(b.getIndexAttr(1))});
    return {view, start};
  }

  /// Reads pieces; of one that is not all in the row, what is beside it too, where that is memory
  /// of the same view.
  Content loadColumns(Value memref) {
    Content content;
    auto type = cast<MemRefType>(memref.getType());
    Type element = type.getElementType();
    if (!aligned.contains(memref)) {
      for (int64_t e = 0; e < form.pieces * form.size; ++e)
        content.elements.push_back(loadElement(memref, size_t(e)));
      return content;
    }
    auto [flat, start] = flatten(memref);
    Value count = numWhole, begins = beginsInside;
    if (!space.memory.find(memref)->second.isWritten) {
      // What is beside the row is memory of the view, too, but in front of its first row and behind
      // its last one.
      Value firstPlace = add(start, firstColumn);
      Value room = sub(sub(memref::DimOp::create(b, flat, 0), index(form.size)), firstPlace);
      room = arith::MinSIOp::create(b, room, index(form.capacity()));
      room = arith::MaxSIOp::create(b, room, index(-2 * step()));
      Value fits = arith::ShRSIOp::create(b, add(toI32(room), i32(step())),
                                          i32(llvm::Log2_64(uint64_t(step()))));
      count = arith::MinSIOp::create(b, numSome, fits);
      begins = compare(arith::CmpIPredicate::sge, firstPlace, index(0));
    }
    if (Value is = isAligned.lookup(memref))
      count = arith::SelectOp::create(b, is, count, i32(0));
    auto vector = VectorType::get(form.size, element);
    for (int64_t piece = 0; piece < form.pieces; ++piece) {
      size_t first = size_t(piece * form.size);
      Value place = add(start, columnOf(first));
      Value reads = isAmong(piece, count, begins);
      OpBuilder::InsertionGuard guard(b);
      auto whole = scf::IfOp::create(b, vector, reads, /*withElseRegion=*/true);
      b.setInsertionPointToStart(whole.thenBlock());
      Value loaded = vector::LoadOp::create(b, vector, flat, ValueRange{place},
                                            /*nontemporal=*/false, alignmentOf(element));
      scf::YieldOp::create(b, loaded);
      b.setInsertionPointToStart(whole.elseBlock());
      auto some = scf::IfOp::create(b, vector, isSome(piece), /*withElseRegion=*/true);
      scf::YieldOp::create(b, some.getResult(0));
      b.setInsertionPointToStart(some.elseBlock());
      scf::YieldOp::create(b, zeroOf(vector));
      b.setInsertionPointToStart(some.thenBlock());
      SmallVector<Value> parts;
      for (int64_t e = 0; e < form.size; ++e)
        parts.push_back(loadElement(memref, first + size_t(e)));
      scf::YieldOp::create(b, Value(vector::FromElementsOp::create(b, vector, parts)));
      content.pieces.push_back(whole.getResult(0));
    }
    return content;
  }

  void storeElement(Value memref, size_t e, Value value) {
    auto branch = scf::IfOp::create(b, both(isInside(e), isRow));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    memref::StoreOp::create(b, value, memref, indicesOf(memref, columnOf(e)));
  }

  void storeColumns(Value memref, const Content &content) {
    auto vector = VectorType::get(form.size, cast<MemRefType>(memref.getType()).getElementType());
    Type element = vector.getElementType();
    Value count = numWhole;
    for (Value is : {isAligned.lookup(memref), isRow})
      if (is)
        count = arith::SelectOp::create(b, is, count, i32(0));
    for (int64_t piece = 0; piece < form.pieces; ++piece) {
      auto at = [&](int64_t e) { return size_t(piece * form.size + e); };
      SmallVector<Value> parts;
      auto storeAll = [&] {
        for (int64_t e = 0; e < form.size; ++e)
          storeElement(memref, at(e), parts[size_t(e)]);
      };
      for (int64_t e = 0; e < form.size; ++e)
        parts.push_back(get(content, at(e)));
      if (!aligned.contains(memref)) {
        storeAll();
        continue;
      }
      Value all = vector::FromElementsOp::create(b, vector, parts);
      OpBuilder::InsertionGuard guard(b);
      auto whole = scf::IfOp::create(b, TypeRange(), isAmong(piece, count, beginsInside),
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
  Content *contentOf(Value operand) {
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
  Content *keep(Content content) {
    return kept.emplace_back(std::make_unique<Content>(std::move(content))).get();
  }

  Value get(const Content &content, size_t e) {
    if (content.statement)
      return emitBody(*content.statement, content.operands, e);
    if (!content.pieces.empty())
      return vector::ExtractOp::create(b, content.pieces[e / size_t(form.size)],
                                       int64_t(e) % form.size);
    return content.elements[content.elements.size() == 1 ? 0 : e];
  }

  SmallVector<Content *> operandsOf(const RowStatement &statement) {
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
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(firstOp);
    Operation *clone = b.clone(*op);
    clone->setOperands(operands);
    auto result = cast<OpResult>(value);
    return sunkValues[value] = clone->getResult(result.getResultNumber());
  }

  /// An element divided by a value of the row: times its inverse, which is computed once. Both are
  /// scaled by a power of two where the inverse would leave the numbers.
  Value emitQuotient(Operation &inner, const RowStatement &statement, ArrayRef<Content *> operands,
                     IRMapping &mapping) {
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
      b.setInsertionPointAfterValue(divisor);
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
  Value emitBody(const RowStatement &statement, ArrayRef<Content *> operands, size_t e) {
    linalg::GenericOp op = statement.op;
    Block *body = op.getBlock();
    IRMapping mapping;
    for (auto [argument, content] : llvm::zip_equal(body->getArguments(), operands))
      if (content)
        mapping.map(argument, get(*content, e));
    Value wanted =
        statement.reduction ? statement.reduction->term : body->getTerminator()->getOperand(0);
    // Outside of a row nothing is read: its memory may have no such element.
    bool reads =
        statement.hasColumns &&
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
    Value before = get(*contentOf(out), 0);
    Content content;
    content.elements = {combine(statement, before, total)};
    contents[out] = keep(std::move(content));
  }

  void emitPlain(const RowStatement &statement) {
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
  void storeAllColumns() {
    for (auto &[memref, each] : space.memory)
      if (each.isKept && each.hasColumns)
        storeColumns(memref, *contentOf(memref));
  }

  void storeRows() {
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
  void emitWhole() {
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
        Value read =
            memref::LoadOp::create(b, partials, ValueRange{rowNumber, loop.getInductionVar()});
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

  const RowSpace &space;
  const Form form;
  const Share share;
  ImplicitLocOpBuilder &b;
  gpu::LaunchOp launch;
  Operation *firstOp = nullptr; ///< of the launch
  SmallVector<Value> sizes, coordinates;
  Value lastRow, rowNumber, rowOfCta, part, isRow, isFirst, isFirstPart, warp, lane;
  Value rowLength, shift, origin, firstColumn;
  Value firstPiece, low, high, numWhole, numSome; ///< in i32
  Value beginsInside;
  llvm::DenseSet<Value> aligned;          ///< memory with pieces
  llvm::DenseMap<Value, Value> isAligned; ///< where rows may begin differently
  llvm::DenseMap<Value, Content *> contents;
  std::vector<std::unique_ptr<Content>> kept;
  llvm::DenseMap<Value, Value> sunkValues;
  llvm::DenseMap<size_t, Value> totals;
  llvm::DenseMap<Value, std::pair<Value, Value>> inverses; ///< of divisors: scale, inverse
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

  /// Elements of a piece, and how many of these a thread has at most.
  void chooseSize() {
    int64_t bytes = 2, reads = 0;
    for (auto &[memref, each] : space.memory) {
      if (!each.hasColumns || !(each.isRead || each.isKept))
        continue;
      Type element = cast<MemRefType>(memref.getType()).getElementType();
      if (element.isIntOrFloat() && element.getIntOrFloatBitWidth() == 32)
        bytes = 4;
      reads += each.isRead;
    }
    reads = std::max<int64_t>(reads, 1);
    size = kPieceBytes / bytes;
    int64_t held = (reads > 1 ? kElementsOfSeveral : kElements) / size;
    most = space.isCheap ? std::max<int64_t>(1, kPieces / reads) : held;
    most = int64_t(llvm::bit_floor(uint64_t(most)));
  }

  /// A group that holds rows of up to `capacity` elements, a power of two.
  std::optional<Form> findForm(int64_t capacity) {
    Form form;
    form.size = size;
    // Fewer pieces, and more threads, as long as these are few: more CTAs share a multiprocessor,
    // and one computes while others wait for memory.
    int64_t pieces = std::max<int64_t>(1, most / 2);
    if (capacity > threads / 2 * pieces * size)
      pieces = most;
    int64_t all = std::max(capacity / (pieces * size), kLeastThreads);
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
    auto first = llvm::find_if(space.memory, [&](auto &each) {
      return hasPieces(each.first, each.second, size) && each.second.dims.back() == space.columns;
    });
    if (first == space.memory.end())
      return index(0);
    auto metadata = memref::ExtractStridedMetadataOp::create(b, first->first);
    Value bits = memref::ExtractAlignedPointerAsIndexOp::create(b, first->first);
    int64_t bytes = cast<MemRefType>(first->first.getType()).getElementTypeBitWidth() / 8;
    bits = arith::DivUIOp::create(b, bits, index(bytes));
    bits = arith::OrIOp::create(b, bits, metadata.getOffset());
    for (auto [dim, stride] : llvm::zip_equal(first->second.dims, metadata.getStrides()))
      if (dim && *dim != space.columns)
        bits = arith::OrIOp::create(b, bits, stride);
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
    form.pieces = std::max<int64_t>(1, most / 2);
    form.threads = std::max(threads, kLanes);
    Value rows = index(1), one = index(1);
    for (Value each : sizes)
      rows = arith::MulIOp::create(b, rows, each);
    Value all = arith::AddIOp::create(b, length, index(size));
    Value chunks = arith::CeilDivUIOp::create(b, all, index(form.capacity()));
    Share share;
    constexpr int64_t kOccupancy = 2;
    Value wanted = parts > 0
                       ? index(parts)
                       : Value(arith::CeilDivUIOp::create(b, index(kOccupancy * multiprocessors),
                                                          arith::MaxUIOp::create(b, rows, one)));
    share.parts = arith::MinUIOp::create(b, wanted, chunks);
    share.chunks = arith::CeilDivUIOp::create(b, chunks, share.parts);
    auto type = MemRefType::get({ShapedType::kDynamic, ShapedType::kDynamic}, b.getF32Type());
    for (const RowStatement &statement : space.statements)
      share.partials.push_back(
          statement.reduction
              ? memref::AllocOp::create(b, type, ValueRange{rows, share.parts}).getResult()
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
  int64_t size = 0, most = 0; ///< elements of a piece, pieces of a thread
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
    for (linalg::LinalgOp op : llvm::make_early_inc_range(function.getOps<linalg::LinalgOp>()))
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
