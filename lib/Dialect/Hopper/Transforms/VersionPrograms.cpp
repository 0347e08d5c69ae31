// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program with a branch that few rows need becomes two: one for when no row does, which has no
// branch, and one for when some do. Which of them runs is found out once, on the device.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Transforms/Programs/Vectors.h"
#include "attn/Utils/Memory.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERVERSIONPROGRAMS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numVersions("hopper-version-programs", "versioned",
                              "Programs in two versions, one for rows that are rare");

namespace {

/// A question whether some row of a tile is of a kind, and the memory that tells.
struct Question {
  vector::ReductionOp some;
  scf::IfOp branch;
  llvm::SetVector<Operation *> ops; // that the rows' kinds follow from, in order
  vector::TransferReadOp read;
};

/// Flags that say whether some row is of the kind.
struct Flags {
  Value all;                    // of rank 1
  scf::ForallOp program;        // that writes them
  SmallVector<Operation *> ops; // what it asks
};

/// When a program runs: where a flag is set, or where none is. Without flags: always.
struct Guard {
  Flags *flags = nullptr;
  bool none = false;
};

class Versioner {
public:
  explicit Versioner(func::FuncOp function) : function(function), b(function) {}

  void run() {
    llvm::MapVector<scf::ForallOp, SmallVector<Question>> questions;
    llvm::SmallPtrSet<Operation *, 4> asks;
    function.walk([&](vector::ReductionOp some) {
      if (!some->hasAttr(kMayHoldAttr))
        return;
      auto program = some->getParentOfType<scf::ForallOp>();
      std::optional<Question> question = program ? ask(some) : std::nullopt;
      if (question) {
        questions[program].push_back(std::move(*question));
        return;
      }
      asks.insert(program);
      some.emitRemark("each tile asks its rows: they follow from more than one read of rows");
    });
    for (auto &[program, ofProgram] : questions)
      if (!asks.contains(program))
        version(program, ofProgram);
    // What only the other side of a branch has read.
    IRRewriter rewriter(b);
    for (auto &[program, guard] : guards)
      (void)runRegionDCE(rewriter, program->getRegions());
    auto programs = llvm::to_vector(function.getOps<scf::ForallOp>());
    for (scf::ForallOp program : llvm::reverse(programs))
      skip(program);
    programs = llvm::to_vector(function.getOps<scf::ForallOp>());
    for (scf::ForallOp program : llvm::reverse(programs))
      sink(program);
  }

private:
  std::optional<Question> ask(vector::ReductionOp some) {
    Question question{some, {}, {}, {}};
    question.branch = some->hasOneUse() ? dyn_cast<scf::IfOp>(*some->user_begin()) : scf::IfOp();
    if (!question.branch || !collect(question, some.getVector()) || !question.read)
      return std::nullopt;
    vector::TransferReadOp read = question.read;
    int64_t size = read.getVectorType().getDimSize(0);
    auto memory = dyn_cast<MemrefValue>(read.getBase());
    if (hopper::kProgramRows % size || !memory || read.getMask() || read.getIndices().empty() ||
        memory.getParentBlock() != &function.front() ||
        !read.getPermutationMap().isMinorIdentity() ||
        !programs::isMultiple(read.getIndices().back(), size) || !isFinished(memory, some))
      return std::nullopt;
    return question;
  }

  /// Whether nobody writes the memory from `op` on.
  bool isFinished(MemrefValue memory, Operation *op) {
    Operation *last = findLastWriter(memory);
    return !last || last->isBeforeInBlock(function.front().findAncestorOpInBlock(*op));
  }

  /// The last op of the function that writes the memory, or null.
  Operation *findLastWriter(MemrefValue memory) {
    for (Operation &op : llvm::reverse(function.front()))
      if (programs::isWrittenIn(&op, memory))
        return &op;
    return nullptr;
  }

  /// Arithmetic on one read and constants.
  bool collect(Question &question, Value value) {
    Operation *op = value.getDefiningOp();
    auto type = dyn_cast<VectorType>(value.getType());
    if (!op || !type || question.ops.contains(op))
      return op && type;
    if (auto read = dyn_cast<vector::TransferReadOp>(op)) {
      if (question.read && (question.read.getBase() != read.getBase() ||
                            !llvm::equal(question.read.getIndices(), read.getIndices())))
        return false;
      question.read = read;
      return question.ops.insert(op);
    }
    SplatElementsAttr splat;
    if (matchPattern(op, m_Constant()))
      return matchPattern(op, m_Constant(&splat)) && question.ops.insert(op);
    if (!OpTrait::hasElementwiseMappableTraits(op) || type.getRank() != 1 ||
        !llvm::all_of(op->getOperands(), [&](Value x) { return collect(question, x); }))
      return false;
    return question.ops.insert(op);
  }

  /// One that takes no branch, and a copy behind it that takes each one.
  void version(scf::ForallOp program, MutableArrayRef<Question> questions) {
    Flags *flags = nullptr;
    for (Question &question : questions) {
      Flags *own = &getFlags(question, program);
      if (flags && flags != own) {
        program.emitRemark("each tile asks its rows: its branches are of rows of several kinds");
        return;
      }
      flags = own;
    }
    numVersions.at(program);
    IRMapping copies;
    Value isRare = questions.front().some.getVector();
    b.setInsertionPointAfter(program);
    auto rare = cast<scf::ForallOp>(b.clone(*program, copies));
    for (Question &question : questions) {
      Value some = copies.lookup(question.some.getResult());
      take(cast<scf::IfOp>(*some.user_begin()), /*rare=*/true);
      take(question.branch, /*rare=*/false);
    }
    if (flags->program == program)
      report(program, isRare, *flags);
    else
      guard(program, *flags, /*none=*/true);
    guard(rare, *flags, /*none=*/false);
  }

  /// One side of a branch, in place of it.
  static void take(scf::IfOp branch, bool rare) {
    Operation *some = branch.getCondition().getDefiningOp();
    if (Block *side = rare ? branch.thenBlock() : branch.elseBlock()) {
      Operation *yield = side->getTerminator();
      branch->getBlock()->getOperations().splice(branch->getIterator(), side->getOperations(),
                                                 side->begin(), yield->getIterator());
      branch->replaceAllUsesWith(yield->getOperands());
    }
    branch.erase();
    some->erase();
  }

  /// The program is for when some flag is set, or for when none is.
  void guard(scf::ForallOp program, Flags &flags, bool none) {
    b.setInsertionPointToStart(program.getBody());
    hopper::RunIfOp::create(b, program.getLoc(), flags.all, none);
    guards[program] = {&flags, none};
  }

  /// The flags for a question. Those of another kernel serve where it asks the same of the same
  /// memory.
  Flags &getFlags(Question &question, scf::ForallOp asks) {
    for (std::unique_ptr<Flags> &known : all)
      if (asksSame(known->ops, question.ops.getArrayRef()))
        return *known;
    Flags &flags = *all.emplace_back(std::make_unique<Flags>());
    flags.ops.assign(question.ops.begin(), question.ops.end());
    vector::TransferReadOp rows = findRead(question);
    if (!rows && canReport(question, asks)) {
      createFlags(flags, asks, question.read);
      return flags;
    }
    if (!rows)
      rows = createRead(question);
    Location loc = question.read.getLoc();
    createFlags(flags, rows->getParentOfType<scf::ForallOp>(), rows);
    b.setInsertionPoint(flags.program.getTerminator());
    IRMapping mapping;
    for (Operation *op : question.ops) {
      if (isa<vector::TransferReadOp>(op))
        mapping.map(op->getResult(0), rows.getResult());
      else
        programs::cloneWidened(b, op, mapping, hopper::kProgramRows);
    }
    hopper::ReportOp::create(b, loc, mapping.lookup(question.some.getVector()), flags.all,
                             /*tile=*/Value(), /*warpgroups=*/b.getUnitAttr());
    return flags;
  }

  /// The program writes the flags itself, and so always runs.
  void report(scf::ForallOp program, Value isRare, Flags &flags) {
    b.setInsertionPointAfterValue(isRare);
    hopper::ReportOp::create(b, program.getLoc(), isRare, flags.all, numberTile(program),
                             /*warpgroups=*/b.getUnitAttr());
    guards[program] = {};
  }

  /// One for each warpgroup of the tiles of `program`, which has this read of a tile's rows.
  void createFlags(Flags &flags, scf::ForallOp program, vector::TransferReadOp rows) {
    flags.program = program;
    b.setInsertionPoint(program);
    OpFoldResult count =
        b.getIndexAttr(rows.getVectorType().getDimSize(0) / hopper::kWarpgroupRows);
    AffineExpr product = b.getAffineSymbolExpr(0) * b.getAffineSymbolExpr(1);
    for (OpFoldResult size : program.getMixedUpperBound())
      count = affine::makeComposedFoldedAffineApply(b, program.getLoc(), product, {count, size});
    flags.all = memref::AllocOp::create(b, program.getLoc(), {count}, b.getI32Type());
  }

  /// The number of this tile of all.
  Value numberTile(scf::ForallOp program) {
    OpFoldResult number = b.getIndexAttr(0);
    AffineExpr next = b.getAffineDimExpr(0) * b.getAffineSymbolExpr(0) + b.getAffineDimExpr(1);
    for (auto [iv, size] :
         llvm::zip_equal(program.getInductionVars(), program.getMixedUpperBound()))
      number = affine::makeComposedFoldedAffineApply(
          b, program.getLoc(), AffineMap::get(2, 1, next), {number, iv, size});
    return getValueOrCreateConstantIndexOp(b, program.getLoc(), number);
  }

  /// Whether the program that asks has all rows itself, each once, and may run whatever they are:
  /// its version for rare rows writes all that it writes once more.
  bool canReport(Question &question, scf::ForallOp asks) {
    vector::TransferReadOp read = question.read;
    int64_t size = read.getVectorType().getDimSize(0);
    int64_t length = cast<MemRefType>(read.getBase().getType()).getShape().back();
    OpFoldResult tiles = asks.getMixedUpperBound().back();
    return read->getBlock() == asks.getBody() &&
           question.some.getVector().getDefiningOp()->getBlock() == asks.getBody() &&
           size % hopper::kWarpgroupRows == 0 && readsAllRows(asks, read, read) &&
           (ShapedType::isDynamic(length)
                ? isCountOfTiles(tiles, size)
                : isConstantIntValue(tiles, int64_t(llvm::divideCeil(length, size)))) &&
           hasOnlyResults(asks);
  }

  /// Whether what a program writes does not depend on what was there.
  static bool hasOnlyResults(scf::ForallOp program) {
    if (!getEffectsRecursively(program))
      return false;
    WalkResult walk = program.walk([&](MemoryEffectOpInterface op) {
      SmallVector<MemoryEffects::EffectInstance> effects;
      op.getEffects(effects);
      bool isResult = llvm::all_of(effects, [&](MemoryEffects::EffectInstance &effect) {
        auto memory = dyn_cast_if_present<MemrefValue>(effect.getValue());
        if (isa<MemoryEffects::Write>(effect.getEffect()))
          return memory && isWrite(op);
        return memory && isa<MemoryEffects::Read>(effect.getEffect()) &&
               !programs::isWrittenIn(program, memory);
      });
      return isResult ? WalkResult::advance() : WalkResult::interrupt();
    });
    return !walk.wasInterrupted();
  }

  /// A read of all these rows, kProgramRows at a time, by a program in front.
  vector::TransferReadOp findRead(Question &question) {
    Operation *last = findLastWriter(cast<MemrefValue>(question.read.getBase()));
    Operation *asks = function.front().findAncestorOpInBlock(*question.some);
    b.setInsertionPoint(asks);
    for (auto program : function.getOps<scf::ForallOp>()) {
      if (program == asks)
        break;
      if (last && !last->isBeforeInBlock(program))
        continue;
      for (auto read : program.getBody()->getOps<vector::TransferReadOp>())
        if (read.getVectorType() == VectorType::get(hopper::kProgramRows, b.getF32Type()) &&
            readsAllRows(program, read, question.read))
          return read;
    }
    return {};
  }

  /// Whether `read`, of a tile of a program, reads all rows that `asked` does, each once.
  bool readsAllRows(scf::ForallOp program, vector::TransferReadOp read,
                    vector::TransferReadOp asked) {
    auto memory = cast<MemrefValue>(asked.getBase());
    ValueRange indices = asked.getIndices();
    SmallVector<Value> ivs(program.getInductionVars());
    return program.isNormalized() && ivs.size() == indices.size() && read.getBase() == memory &&
           !read.getMask() && read.getPermutationMap().isMinorIdentity() &&
           llvm::equal(read.getIndices().drop_back(), ArrayRef(ivs).drop_back()) &&
           isTileOf(read.getIndices().back(), ivs.back(), read.getVectorType().getDimSize(0)) &&
           llvm::all_of(llvm::enumerate(indices.drop_back()), [&](auto pair) {
             return areSame(program.getMixedUpperBound()[pair.index()],
                            findExtent(memory, pair.index(), pair.value()));
           });
  }

  static bool isTileOf(Value start, Value tile, int64_t size) {
    auto apply = start.getDefiningOp<affine::AffineApplyOp>();
    AffineExpr rows = getAffineDimExpr(0, start.getContext()) * size;
    return apply && apply.getAffineMap() == AffineMap::get(1, 0, rows) &&
           apply.getMapOperands().front() == tile;
  }

  /// A program over all tiles of kProgramRows rows of as many lines, behind the insertion point and
  /// in front of the one that asks: one over the same tiles may become one with it.
  scf::ForallOp findAlike(Question &question, ArrayRef<OpFoldResult> lines) {
    Operation *asks = function.front().findAncestorOpInBlock(*question.some);
    for (auto program : function.getOps<scf::ForallOp>()) {
      if (program == asks)
        break;
      SmallVector<OpFoldResult> sizes = program.getMixedUpperBound();
      if (program->isBeforeInBlock(&*b.getInsertionPoint()) || !program.isNormalized() ||
          sizes.size() != lines.size() + 1 ||
          !llvm::equal(ArrayRef(sizes).drop_back(), lines, areSame))
        continue;
      if (isCountOfTiles(sizes.back(), hopper::kProgramRows))
        return program;
    }
    return {};
  }

  /// Whether these are tiles of so many rows of all rows of a memory.
  bool isCountOfTiles(OpFoldResult count, int64_t rows) {
    auto tiles = dyn_cast<Value>(count);
    auto apply = tiles ? tiles.getDefiningOp<affine::AffineApplyOp>() : affine::AffineApplyOp();
    AffineExpr all = apply ? apply.getAffineMap().getResult(0) : AffineExpr();
    auto divided = dyn_cast_or_null<AffineBinaryOpExpr>(all);
    return divided && divided.getKind() == AffineExprKind::CeilDiv &&
           divided.getRHS() == b.getAffineConstantExpr(rows) &&
           isa<AffineDimExpr, AffineSymbolExpr>(divided.getLHS()) &&
           apply.getMapOperands().front().getDefiningOp<memref::DimOp>();
  }

  /// One by a program of its own, in front of all others that it does not need.
  vector::TransferReadOp createRead(Question &question) {
    auto memory = cast<MemrefValue>(question.read.getBase());
    b.setInsertionPoint(*function.getOps<scf::ForallOp>().begin());
    for (Operation *op : {memory.getDefiningOp(), findLastWriter(memory)})
      if (op && !op->isBeforeInBlock(&*b.getInsertionPoint()))
        b.setInsertionPointAfter(op);
    Location loc = question.read.getLoc();
    ValueRange indices = question.read.getIndices();
    SmallVector<OpFoldResult> sizes;
    for (auto [dim, index] : llvm::enumerate(indices.drop_back()))
      sizes.push_back(findExtent(memory, dim, index));
    if (scf::ForallOp like = findAlike(question, sizes)) {
      sizes = like.getMixedUpperBound();
      b.setInsertionPoint(like);
    } else {
      sizes.push_back(affine::makeComposedFoldedAffineApply(
          b, loc, b.getAffineDimExpr(0).ceilDiv(hopper::kProgramRows),
          {memref::getMixedSize(b, loc, memory, indices.size() - 1)}));
    }
    auto program = scf::ForallOp::create(b, loc, sizes, ValueRange(), /*mapping=*/std::nullopt);
    b.setInsertionPointToStart(program.getBody());
    SmallVector<Value> tile(program.getInductionVars());
    IRMapping mapping;
    for (auto [index, iv] : llvm::zip_equal(indices, tile))
      mapping.map(index, iv);
    mapping.map(indices.back(), affine::makeComposedAffineApply(
                                    b, loc, b.getAffineDimExpr(0) * hopper::kProgramRows,
                                    {OpFoldResult(tile.back())}));
    programs::cloneWidened(b, question.read, mapping, hopper::kProgramRows);
    auto read = mapping.lookup(question.read.getResult()).getDefiningOp<vector::TransferReadOp>();
    // A tile of 128 rows may end behind the memory where the smaller ones do not.
    read.setInBoundsAttr(b.getBoolArrayAttr({false}));
    return read;
  }

  /// How many values an index has that counts from 0: the loops around it say so as the programs do
  /// that this one may become one with.
  OpFoldResult findExtent(Value memory, unsigned dim, Value index) {
    auto argument = dyn_cast<BlockArgument>(index);
    Operation *owner = argument ? argument.getOwner()->getParentOp() : nullptr;
    if (auto program = dyn_cast_or_null<scf::ForallOp>(owner); program && program.isNormalized())
      return program.getMixedUpperBound()[argument.getArgNumber()];
    if (auto loop = dyn_cast_or_null<scf::ForOp>(owner);
        loop && index == loop.getInductionVar() && isConstantIntValue(loop.getLowerBound(), 0) &&
        isConstantIntValue(loop.getStep(), 1) && isDefinedHere(loop.getUpperBound()))
      return getAsOpFoldResult(loop.getUpperBound());
    return memref::getMixedSize(b, memory.getLoc(), memory, dim);
  }

  static bool areSame(OpFoldResult x, OpFoldResult y) {
    if (isEqualConstantIntOrValue(x, y))
      return true;
    auto dimOf = [](OpFoldResult value) {
      auto known = dyn_cast<Value>(value);
      return known ? known.getDefiningOp<memref::DimOp>() : memref::DimOp();
    };
    memref::DimOp first = dimOf(x), second = dimOf(y);
    return first && second && first.getSource() == second.getSource() && first.getConstantIndex() &&
           first.getConstantIndex() == second.getConstantIndex();
  }

  /// Whether two questions about rows, of tiles of any size, are the same.
  static bool asksSame(ArrayRef<Operation *> one, ArrayRef<Operation *> other) {
    if (one.size() != other.size())
      return false;
    DenseMap<Value, Value> same;
    for (auto [x, y] : llvm::zip_equal(one, other)) {
      if (x->getName() != y->getName())
        return false;
      SplatElementsAttr first, second;
      auto read = dyn_cast<vector::TransferReadOp>(x);
      if (matchPattern(x, m_Constant(&first))) {
        if (!matchPattern(y, m_Constant(&second)) ||
            first.getSplatValue<Attribute>() != second.getSplatValue<Attribute>())
          return false;
      } else if (read) {
        auto otherRead = cast<vector::TransferReadOp>(y);
        if (read.getBase() != otherRead.getBase() || read.getPadding() != otherRead.getPadding())
          return false;
      } else if (x->getAttrDictionary() != y->getAttrDictionary() ||
                 x->getNumOperands() != y->getNumOperands() ||
                 !llvm::all_of(llvm::zip_equal(x->getOperands(), y->getOperands()), [&](auto both) {
                   auto [a, b] = both;
                   return same.lookup(a) == b;
                 })) {
        return false;
      }
      same[x->getResult(0)] = y->getResult(0);
    }
    return true;
  }

  /// Whether a value is there where the flags' program is made.
  bool isDefinedHere(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return argument.getOwner() == &function.front();
    Operation *op = value.getDefiningOp();
    return op->getBlock() == &function.front() &&
           (b.getInsertionPoint() == function.front().end() ||
            op->isBeforeInBlock(&*b.getInsertionPoint()));
  }

  /// Whether the program reads memory that `write` writes.
  static bool readsBack(scf::ForallOp program, Operation *write) {
    Value memory = isa<memref::StoreOp>(write) ? cast<memref::StoreOp>(write).getMemRef()
                                               : cast<vector::TransferWriteOp>(write).getBase();
    return llvm::any_of(
        collectAccesses(memref::skipViewLikeOps(cast<MemrefValue>(memory))),
        [&](Operation *access) { return program->isAncestor(access) && !isWrite(access); });
  }

  static bool isWrite(Operation *op) { return isa<vector::TransferWriteOp, memref::StoreOp>(op); }

  /// What only programs for the rare case read is written in the rare case only: by a launch that
  /// runs then, or not by the version for the usual case of a program with more to do.
  void skip(scf::ForallOp program) {
    Guard own = guards.lookup(program);
    if (own.flags && !own.none)
      return;
    Flags *flags = nullptr;
    scf::ForallOp reader;
    SmallVector<Operation *> writes;
    bool isRareAlone = true;
    program.walk([&](MemoryEffectOpInterface op) {
      SmallVector<MemoryEffects::EffectInstance> effects;
      op.getEffects<MemoryEffects::Write>(effects);
      for (MemoryEffects::EffectInstance &effect : effects) {
        auto memory = dyn_cast_if_present<MemrefValue>(effect.getValue());
        if (memory && isWrite(op) &&
            isForRare(program, memref::skipViewLikeOps(memory), flags, reader))
          writes.push_back(op);
        else if (!isa<hopper::RunIfOp>(op))
          isRareAlone = false;
      }
    });
    if (writes.empty())
      return;
    if (own.flags) {
      if (own.flags == flags)
        for (Operation *write : writes)
          if (!readsBack(program, write))
            write->erase();
      return;
    }
    if (!isRareAlone)
      return;
    // Behind all that has nothing to do with it: the program that writes the flags, too.
    Operation *last = program;
    for (Operation *next = program->getNextNode(); next != reader; next = next->getNextNode()) {
      if (isa<memref::DeallocOp>(next) || !areApart(program, next))
        break;
      last = next;
    }
    if (last != flags->program && last->isBeforeInBlock(flags->program))
      return;
    if (last != program)
      program->moveAfter(last);
    guard(program, *flags, /*none=*/false);
  }

  /// A program for the rare case moves behind those for the usual one: each of these begins while
  /// the one before it ends.
  void sink(scf::ForallOp program) {
    Guard own = guards.lookup(program);
    if (!own.flags || own.none)
      return;
    Operation *last = program;
    for (Operation *next = program->getNextNode();
         !isa<memref::DeallocOp>(next) && !next->hasTrait<OpTrait::IsTerminator>();
         next = next->getNextNode()) {
      Guard other = guards.lookup(next);
      bool isOtherCase = other.flags == own.flags && other.none;
      if (!isOtherCase && !areApart(program, next))
        break;
      if (isa<scf::ForallOp>(next))
        last = next;
    }
    if (last != program)
      program->moveAfter(last);
  }

  /// Whether programs for the rare case alone read what `program` writes here: those of `flags`, if
  /// there are some already. `reader` is the first one of them.
  bool isForRare(scf::ForallOp program, MemrefValue memory, Flags *&flags, scf::ForallOp &reader) {
    if (!memory.getDefiningOp<memref::AllocOp>() || memory.getParentBlock() != program->getBlock())
      return false;
    Flags *found = flags;
    scf::ForallOp first = reader;
    bool isRead = false;
    for (Operation *access : collectAccesses(memory)) {
      bool writes = isWrite(access);
      if (isa<memref::DeallocOp>(access) || program->isAncestor(access))
        continue;
      auto by = access->getParentOfType<scf::ForallOp>();
      Guard guard = guards.lookup(by);
      if (!guard.flags || (found && found != guard.flags) || (guard.none && !writes))
        return false;
      found = guard.flags;
      if (guard.none || writes)
        continue;
      isRead = true;
      first = first && first->isBeforeInBlock(by) ? first : by;
    }
    if (isRead) {
      flags = found;
      reader = first;
    }
    return isRead;
  }

  /// Whether neither of two programs writes what the other one accesses.
  static bool areApart(Operation *program, Operation *other) {
    auto accesses = [](Operation *root, Operation *writer) {
      return root
          ->walk([&](MemoryEffectOpInterface op) {
            SmallVector<MemoryEffects::EffectInstance> effects;
            op.getEffects(effects);
            for (MemoryEffects::EffectInstance &effect : effects)
              if (auto memory = dyn_cast_if_present<MemrefValue>(effect.getValue());
                  memory && programs::isWrittenIn(writer, memory))
                return WalkResult::interrupt();
            return WalkResult::advance();
          })
          .wasInterrupted();
    };
    return !accesses(program, other) && !accesses(other, program);
  }

  func::FuncOp function;
  OpBuilder b;
  SmallVector<std::unique_ptr<Flags>> all;
  llvm::MapVector<Operation *, Guard> guards;
};

struct VersionProgramsPass : attn::impl::HopperVersionProgramsBase<VersionProgramsPass> {
  void runOnOperation() override { Versioner(getOperation()).run(); }
};

} // namespace
