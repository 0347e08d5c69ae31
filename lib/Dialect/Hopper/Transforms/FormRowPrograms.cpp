// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements of rows become launches of threads: a group of threads holds a row.

#include "RowLaunch.h"
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

/// Pieces that a thread holds, of all operands together, where all else is computed again; or
/// elements of a row, of one operand or of several, where what follows from them is held, too.
constexpr int64_t kPieces = 8, kElements = 32, kElementsOfSeveral = 16;
/// Threads of a row in a CTA.
constexpr int64_t kLeastThreads = 8, kMostThreads = 1024;
/// Threads of a CTA that has several rows.
constexpr int64_t kSharedThreads = 128;

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
  void emitLaunch(const Form &form, Share share) {
    gpu::LaunchOp launch = RowLaunch(space, form, std::move(share), b).emit(sizes, length);
    numFormed.at(launch) << remark::metric("Threads", form.threads * form.rows)
                         << remark::metric("Rows", form.rows) << remark::metric("CTAs", form.ctas);
  }

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
    auto first =
        llvm::find_if(space.memory, [&](auto &each) { return hasPieces(space, each.first, size); });
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
        emitLaunch(form, Share());
        return;
      }
      Value fits =
          arith::CmpIOp::create(b, arith::CmpIPredicate::ule, needed, index(form.capacity()));
      auto branch = scf::IfOp::create(b, TypeRange(), fits, /*withElseRegion=*/true);
      b.setInsertionPointToStart(branch.thenBlock());
      emitLaunch(form, Share());
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
      emitLaunch(form, share);
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
    if (!isPower(ctas) || ctas > hopper::kCtasPerCluster || multiprocessors < 1 ||
        !isPower(threads) || threads < kLeastThreads || threads > kMostThreads || parts < 0) {
      function.emitError(
          "expected ctas and threads to be powers of two, ctas at most 8, threads 8 to "
          "1024, multiprocessors at least 1, parts at least 0");
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
