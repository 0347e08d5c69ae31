// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether a branch that few rows need is taken is found out once, for all kernels; what is computed
// for such rows only is not, where there are none.

#include "Memory.h"
#include "Programs.h"
#include "Vectors.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Memory.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERMARKROWS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// A question whether some row of a tile is of a kind, and the memory that tells.
struct Question {
  vector::ReductionOp some;
  scf::IfOp branch;
  llvm::SetVector<Operation *> ops; // that the rows' kinds follow from, in order
  vector::TransferReadOp read;
};

/// A word for each kProgramRows rows of a tensor: whether one is of the kind.
struct Words {
  Value all; // of rank 1
  Value view;
  scf::ForallOp program;
  /// What it asks, of how many rows.
  SmallVector<Operation *> ops;
  SmallVector<OpFoldResult> sizes;
};

class Marker {
public:
  explicit Marker(func::FuncOp function) : function(function), b(function) {}

  void run() {
    SmallVector<Question> questions;
    function.walk([&](vector::ReductionOp some) {
      if (!some->hasAttr(hopper::kMayHoldAttr))
        return;
      if (std::optional<Question> question = ask(some))
        questions.push_back(std::move(*question));
      else
        some.emitRemark("each tile asks its rows: they follow from more than one read of rows");
    });
    for (Question &question : questions)
      answer(question);
    for (auto program : llvm::to_vector(function.getOps<scf::ForallOp>()))
      skip(program);
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
        !hopper::isMultiple(read.getIndices().back(), size) ||
        hopper::isWrittenIn(function, memory))
      return std::nullopt;
    return question;
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

  void answer(Question &question) {
    Words &words = getWords(question);
    Location loc = question.some.getLoc();
    // As early as its place is known: the tile's products are waited for behind it.
    setInsertionPointWhereKnown(question.some->getBlock(), question.read.getIndices());
    SmallVector<Value> place(question.read.getIndices());
    place.back() = affine::makeComposedAffineApply(
        b, loc, b.getAffineDimExpr(0).floorDiv(hopper::kProgramRows), {OpFoldResult(place.back())});
    Value word = memref::LoadOp::create(b, loc, words.view, place);
    Value zero = arith::ConstantIntOp::create(b, loc, b.getI32Type(), 0);
    Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, word, zero);
    question.some.replaceAllUsesWith(some);
    question.some.erase();
    rare[question.branch] = &words;
    // The branch alone asks the rows themselves.
    Region &side = question.branch.getThenRegion();
    b.setInsertionPointToStart(&side.front());
    IRMapping copies;
    for (Operation *op : question.ops) {
      if (matchPattern(op, m_Constant()))
        continue;
      Operation *copy = b.clone(*op, copies);
      op->replaceUsesWithIf(copy, [&](OpOperand &use) {
        return use.getOwner() != copy && side.isAncestor(use.getOwner()->getParentRegion());
      });
    }
  }

  void setInsertionPointWhereKnown(Block *block, ValueRange values) {
    Operation *last = nullptr;
    for (Value value : values)
      if (Operation *op = value.getDefiningOp())
        if (Operation *here = block->findAncestorOpInBlock(*op))
          last = last && here->isBeforeInBlock(last) ? last : here;
    if (last)
      b.setInsertionPointAfter(last);
    else
      b.setInsertionPointToStart(block);
  }

  /// The words for a question, and the program that writes them, in front of all others. Those of
  /// another kernel serve where it asks the same of the same memory.
  Words &getWords(Question &question) {
    Value memory = question.read.getBase();
    Operation *first = *function.getOps<scf::ForallOp>().begin();
    if (Operation *op = memory.getDefiningOp(); op && first->isBeforeInBlock(op))
      b.setInsertionPointAfter(op);
    else
      b.setInsertionPoint(first);
    Location loc = question.read.getLoc();
    SmallVector<OpFoldResult> sizes;
    for (auto [dim, index] : llvm::enumerate(question.read.getIndices().drop_back()))
      sizes.push_back(findExtent(memory, dim, index));
    sizes.push_back(findRows(memory, question.read.getIndices().back()));
    for (std::unique_ptr<Words> &known : all)
      if (llvm::equal(known->sizes, sizes, areSame) &&
          asksSame(known->ops, question.ops.getArrayRef()))
        return *known;
    Words &words = *all.emplace_back(std::make_unique<Words>());
    words.sizes = sizes;
    sizes.back() = affine::makeComposedFoldedAffineApply(
        b, loc, b.getAffineDimExpr(0).ceilDiv(hopper::kProgramRows), {sizes.back()});
    SmallVector<OpFoldResult> strides(sizes.size());
    OpFoldResult count = b.getIndexAttr(1);
    AffineExpr product = b.getAffineSymbolExpr(0) * b.getAffineSymbolExpr(1);
    for (auto [size, stride] : llvm::reverse(llvm::zip_equal(sizes, strides))) {
      stride = count;
      count = affine::makeComposedFoldedAffineApply(b, loc, product, {count, size});
    }
    Type word = b.getI32Type();
    words.all = memref::AllocOp::create(b, loc, {count}, word);
    words.view = memref::ReinterpretCastOp::create(
        b, loc, getViewType(sizes, strides, word), words.all, OpFoldResult(b.getIndexAttr(0)),
        sizes, strides);
    words.program = scf::ForallOp::create(b, loc, sizes, ValueRange(), /*mapping=*/std::nullopt);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(words.program.getBody());
    SmallVector<Value> tile(words.program.getInductionVars());
    IRMapping mapping;
    for (auto [index, iv] : llvm::zip_equal(question.read.getIndices(), tile))
      mapping.map(index, iv);
    mapping.map(question.read.getIndices().back(),
                affine::makeComposedAffineApply(b, loc,
                                                b.getAffineDimExpr(0) * hopper::kProgramRows,
                                                {OpFoldResult(tile.back())}));
    for (Operation *op : question.ops) {
      words.ops.push_back(op);
      hopper::cloneWidened(b, op, mapping);
      // A tile of 128 rows may end behind the memory where the smaller ones do not.
      if (isa<vector::TransferReadOp>(op))
        mapping.lookup(op->getResult(0))
            .getDefiningOp<vector::TransferReadOp>()
            .setInBoundsAttr(b.getBoolArrayAttr({false}));
    }
    Value some = vector::ReductionOp::create(b, loc, vector::CombiningKind::OR,
                                             mapping.lookup(question.some.getVector()));
    Value number = arith::ExtUIOp::create(b, loc, word, some);
    memref::StoreOp::create(b, loc, number, words.view, tile);
    return words;
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

  /// How many rows there are.
  OpFoldResult findRows(Value memory, Value start) {
    auto argument = dyn_cast<BlockArgument>(start);
    auto loop = dyn_cast_or_null<scf::ForOp>(argument ? argument.getOwner()->getParentOp() : nullptr);
    // A loop may end earlier in some tiles, and then has no bound here.
    if (loop && isDefinedHere(loop.getUpperBound()))
      return getAsOpFoldResult(loop.getUpperBound());
    return memref::getMixedSize(b, memory.getLoc(), memory,
                                cast<MemRefType>(memory.getType()).getRank() - 1);
  }

  static bool areSame(OpFoldResult x, OpFoldResult y) {
    if (isEqualConstantIntOrValue(x, y))
      return true;
    auto dimOf = [](OpFoldResult value) {
      auto known = dyn_cast<Value>(value);
      return known ? known.getDefiningOp<memref::DimOp>() : memref::DimOp();
    };
    memref::DimOp first = dimOf(x), second = dimOf(y);
    return first && second && first.getSource() == second.getSource() &&
           first.getConstantIndex() && first.getConstantIndex() == second.getConstantIndex();
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
                 !llvm::all_of(llvm::zip_equal(x->getOperands(), y->getOperands()),
                               [&](auto both) {
                                 auto [a, b] = both;
                                 return same.lookup(a) == b;
                               })) {
        return false;
      }
      same[x->getResult(0)] = y->getResult(0);
    }
    return true;
  }

  /// Whether a value is there where the words' program is made.
  bool isDefinedHere(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return argument.getOwner() == &function.front();
    Operation *op = value.getDefiningOp();
    return op->getBlock() == &function.front() &&
           (b.getInsertionPoint() == function.front().end() ||
            op->isBeforeInBlock(&*b.getInsertionPoint()));
  }

  MemRefType getViewType(ArrayRef<OpFoldResult> sizes, ArrayRef<OpFoldResult> strides, Type type) {
    auto numbers = [](ArrayRef<OpFoldResult> all) {
      return llvm::map_to_vector(all, [](OpFoldResult value) {
        return getConstantIntValue(value).value_or(ShapedType::kDynamic);
      });
    };
    return MemRefType::get(numbers(sizes), type,
                           StridedLayoutAttr::get(b.getContext(), 0, numbers(strides)));
  }

  /// Ends the CTAs of a program at once where nobody reads what it writes: the branches that do are
  /// taken by no tile.
  void skip(scf::ForallOp program) {
    Words *words = nullptr;
    Operation *reader = nullptr;
    bool isRead = false;
    auto check = [&](MemrefValue memory) {
      if (!memory.getDefiningOp<memref::AllocOp>() || memory.getParentBlock() != program->getBlock())
        return false;
      for (Operation *access : collectAccesses(memory)) {
        if (program->isAncestor(access) || isa<memref::DeallocOp>(access))
          continue;
        Words *answer = findBranch(access);
        if (!answer || (words && words != answer) || !isa<vector::TransferReadOp>(access))
          return false;
        words = answer;
        Operation *ancestor = program->getBlock()->findAncestorOpInBlock(*access);
        reader = reader && reader->isBeforeInBlock(ancestor) ? reader : ancestor;
        isRead = true;
      }
      return true;
    };
    WalkResult walk = program.walk([&](MemoryEffectOpInterface op) {
      SmallVector<MemoryEffects::EffectInstance> effects;
      op.getEffects<MemoryEffects::Write>(effects);
      for (MemoryEffects::EffectInstance &effect : effects) {
        auto memory = dyn_cast_if_present<MemrefValue>(effect.getValue());
        if (!memory || !check(memref::skipViewLikeOps(memory)))
          return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    if (walk.wasInterrupted() || !isRead || !words->program->isBeforeInBlock(program))
      return;
    b.setInsertionPointToStart(program.getBody());
    Value no = arith::ConstantIntOp::create(b, program.getLoc(), 0, 1);
    hopper::RedoOp::create(b, program.getLoc(), words->all, no, /*any=*/b.getUnitAttr());
    // Behind programs that the one that writes the words may become one with.
    Operation *last = program;
    for (Operation *next = program->getNextNode(); next != reader; next = next->getNextNode()) {
      if (isa<memref::DeallocOp>(next) || !areApart(program, next))
        break;
      last = next;
    }
    if (last != program)
      program->moveAfter(last);
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
                  memory && hopper::isWrittenIn(writer, memory))
                return WalkResult::interrupt();
            return WalkResult::advance();
          })
          .wasInterrupted();
    };
    return !accesses(program, other) && !accesses(other, program);
  }

  /// The words that say whether the side of a branch is taken that an op is in; null where it is in
  /// no such branch.
  Words *findBranch(Operation *op) {
    for (auto branch = op->getParentOfType<scf::IfOp>(); branch;
         branch = branch->getParentOfType<scf::IfOp>())
      if (auto known = rare.find(branch);
          known != rare.end() && branch.getThenRegion().isAncestor(op->getParentRegion()))
        return known->second;
    return nullptr;
  }

  func::FuncOp function;
  OpBuilder b;
  SmallVector<std::unique_ptr<Words>> all;
  DenseMap<Operation *, Words *> rare;
};

struct MarkRowsPass : attn::impl::HopperMarkRowsBase<MarkRowsPass> {
  void runOnOperation() override { Marker(getOperation()).run(); }
};

} // namespace
