// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loop nests over one domain: elementwise stores, reductions and writes.

#include "Groups.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn::tiles;

SmallVector<Value> attn::tiles::innerOperands(const Sink &sink) {
  if (sink.kind == Sink::Store || sink.kind == Sink::Copy || sink.kind == Sink::Write)
    return {sink.value};
  if (auto contract = dyn_cast<vector::ContractionOp>(sink.op))
    return {contract.getLhs(), contract.getRhs()};
  return {sink.op->getOperand(0)};
}

SmallVector<Value> attn::tiles::outerOperands(const Sink &sink) {
  if (sink.kind != Sink::Reduce)
    return {};
  if (auto contract = dyn_cast<vector::ContractionOp>(sink.op))
    return {contract.getAcc()};
  if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(sink.op))
    return {reduction.getAcc()};
  if (Value acc = cast<vector::ReductionOp>(sink.op).getAcc())
    return {acc};
  return {};
}

SmallVector<int> attn::tiles::reducedClasses(DimClasses &classes, const Sink &sink) {
  SmallVector<int> result;
  if (sink.kind != Sink::Reduce)
    return result;
  SmallVector<int> kept = classes.domain(sink.value);
  for (Value operand : innerOperands(sink))
    for (int cls : classes.domain(operand))
      if (!llvm::is_contained(kept, cls) && !llvm::is_contained(result, cls))
        result.push_back(cls);
  return result;
}

int64_t attn::tiles::laneCountFor(Type type, int64_t bits) {
  unsigned size = attn::getBits(type);
  return bits / std::max(size, 32u);
}

int64_t attn::tiles::productSumBlock(int64_t extent) {
  if (extent >= 64)
    for (int64_t block = 32; block >= 16; --block)
      if (extent % block == 0)
        return block;
  return 0;
}

Value attn::tiles::addToFirst(OpBuilder &b, Location loc, Value total, Value part) {
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(total.getType()));
  Value filled = vector::InsertStridedSliceOp::create(b, loc, part, zero, ArrayRef<int64_t>{0},
                                                      ArrayRef<int64_t>{1});
  return arith::AddFOp::create(b, loc, total, filled);
}

SmallVector<LaneRun> attn::tiles::laneRuns(int64_t extent, int64_t width, int64_t vectors) {
  SmallVector<LaneRun> runs;
  int64_t step = width * vectors, begin = extent / step * step;
  if (begin > 0)
    runs.push_back({0, extent / step, vectors, width});
  if (int64_t whole = (extent - begin) / width) {
    runs.push_back({begin, 1, whole, width});
    begin += whole * width;
  }
  if (begin < extent)
    runs.push_back({begin, 1, 1, extent - begin});
  return runs;
}

namespace {
vector::CombiningKind kindOf(const Sink &sink) {
  if (auto contract = dyn_cast<vector::ContractionOp>(sink.op))
    return contract.getKind();
  if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(sink.op))
    return reduction.getKind();
  return cast<vector::ReductionOp>(sink.op).getKind();
}

/// The value that leaves others unchanged under `kind`.
TypedAttr neutral(vector::CombiningKind kind, Type type) {
  using vector::CombiningKind;
  Builder b(type.getContext());
  if (auto fp = dyn_cast<FloatType>(type)) {
    const llvm::fltSemantics &semantics = fp.getFloatSemantics();
    switch (kind) {
    case CombiningKind::MUL:
      return b.getFloatAttr(type, APFloat::getOne(semantics));
    case CombiningKind::MINNUMF:
    case CombiningKind::MINIMUMF:
      return b.getFloatAttr(type, APFloat::getInf(semantics));
    case CombiningKind::MAXNUMF:
    case CombiningKind::MAXIMUMF:
      return b.getFloatAttr(type, APFloat::getInf(semantics, /*Negative=*/true));
    default:
      // -0.0, so that a sum of -0.0 stays what it is.
      return b.getFloatAttr(type, APFloat::getZero(semantics, /*Negative=*/true));
    }
  }
  unsigned bits = attn::getBits(type);
  switch (kind) {
  case CombiningKind::MUL:
    return b.getIntegerAttr(type, APInt(bits, 1));
  case CombiningKind::AND:
  case CombiningKind::MINUI:
    return b.getIntegerAttr(type, APInt::getAllOnes(bits));
  case CombiningKind::MINSI:
    return b.getIntegerAttr(type, APInt::getSignedMaxValue(bits));
  case CombiningKind::MAXSI:
    return b.getIntegerAttr(type, APInt::getSignedMinValue(bits));
  default:
    return b.getIntegerAttr(type, APInt::getZero(bits));
  }
}

/// One step of a reduction. A running maxnumf or minnumf never holds NaN, so
/// one comparison keeps it; that is the x86 instruction.
Value combine(OpBuilder &b, Location loc, vector::CombiningKind kind, Value value, Value acc) {
  using vector::CombiningKind;
  if (kind == CombiningKind::MAXNUMF || kind == CombiningKind::MINNUMF) {
    auto predicate =
        kind == CombiningKind::MAXNUMF ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::OLT;
    Value better = arith::CmpFOp::create(b, loc, predicate, value, acc);
    return arith::SelectOp::create(b, loc, better, value, acc);
  }
  return vector::makeArithReduction(b, loc, kind, value, acc);
}

class LoopsEmitter {
public:
  LoopsEmitter(Context &context, Group &group)
      : context(context), group(group), nest(context, group.position) {
    lane = group.laneOf(context.classes);
    for (const Sink &sink : group.sinks)
      for (int cls : reducedClasses(context.classes, sink))
        if (!llvm::is_contained(reduced, cls))
          reduced.push_back(cls);
    for (int cls : group.domain)
      if (cls != lane)
        (llvm::is_contained(reduced, cls) ? innerRows : outerRows).push_back(cls);
    for (const Sink &sink : group.sinks)
      for (Value operand : innerOperands(sink)) {
        int64_t count = laneCountFor(getElementTypeOrSelf(operand.getType()), context.vectorBits);
        // i1 and index values follow the width of the data they select.
        bool isData = isa<FloatType>(getElementTypeOrSelf(operand.getType()));
        if (isData || !haveWidth)
          width = haveWidth && widthIsData ? std::min(width, count) : count;
        haveWidth = true;
        widthIsData |= isData;
      }
  }

  void run() {
    if (llvm::is_contained(reduced, lane))
      reduceAcrossLanes();
    else
      keepLanes();
  }

private:
  using Operands = SmallVector<Value, 2>;

  /// Evaluates the operands of all sinks at the current point.
  SmallVector<Operands> evaluate() {
    SmallVector<Operands> values;
    for (const Sink &sink : group.sinks) {
      Operands &operands = values.emplace_back();
      for (Value operand : innerOperands(sink))
        operands.push_back(sink.kind == Sink::Extract ? nest.eval(operand)
                                                      : nest.evalWide(operand));
    }
    return values;
  }

  /// `acc` and one more term. A sum of products rounds each term once, as in
  /// the kernel of a contraction.
  Value accumulate(const Sink &sink, ArrayRef<Value> operands, Value acc) {
    OpBuilder &b = nest.builder();
    vector::CombiningKind kind = kindOf(sink);
    if (operands.size() == 1)
      return combine(b, nest.loc, kind, operands[0], acc);
    if (!isFloatSum(sink))
      return combine(b, nest.loc, kind,
                     combine(b, nest.loc, vector::CombiningKind::MUL, operands[0], operands[1]),
                     acc);
    if (isa<VectorType>(acc.getType()))
      return vector::FMAOp::create(b, nest.loc, operands[0], operands[1], acc);
    return math::FmaOp::create(b, nest.loc, operands[0], operands[1], acc);
  }

  void storeAll(ArrayRef<Operands> values) {
    for (auto [sink, operands] : llvm::zip_equal(group.sinks, values)) {
      if (sink.kind == Sink::Store || sink.kind == Sink::Copy)
        nest.store(sink.target, operands[0]);
      else if (sink.kind == Sink::Write)
        nest.storeTransfer(cast<vector::TransferWriteOp>(sink.op), operands[0]);
    }
  }

  /// The body of the innermost loop: one point per slot.
  SmallVector<Value> step(ArrayRef<std::pair<Value, int64_t>> slots, ValueRange accs) {
    SmallVector<SmallVector<Operands>> values;
    SmallVector<Value> next;
    for (auto [base, slotWidth] : slots) {
      if (lane >= 0)
        select(base, slotWidth);
      values.push_back(evaluate());
    }
    unsigned acc = 0;
    for (auto [slot, slotValues] : llvm::zip_equal(slots, values)) {
      if (lane >= 0)
        select(slot.first, slot.second);
      storeAll(slotValues);
      for (auto [sink, operands] : llvm::zip_equal(group.sinks, slotValues))
        if (sink.kind == Sink::Reduce)
          next.push_back(accumulate(sink, operands, accs[acc++]));
    }
    return next;
  }

  /// Makes a slot the current point without rebinding the level of its base.
  void select(Value base, int64_t slotWidth) { nest.selectLanes(lane, base, slotWidth); }

  /// Slots of a run inside its loop: base index and width of each vector.
  SmallVector<std::pair<Value, int64_t>> slotsOf(const LaneRun &run, Value base) {
    SmallVector<std::pair<Value, int64_t>> slots;
    for (int64_t k = 0; k < run.vectors; ++k) {
      nest.builder();
      Value index = nest.addConstant(base, k * run.width);
      nest.setLanes(lane, index, run.width);
      slots.push_back({index, run.width});
    }
    return slots;
  }

  void finish(const Sink &sink, Value value) {
    if (tileType(sink.value)) {
      nest.store(sink.target, value);
      return;
    }
    Value(sink.value).replaceAllUsesWith(value);
  }

  Value initial(const Sink &sink) {
    Type element = getElementTypeOrSelf(sink.value.getType());
    SmallVector<Value> acc = outerOperands(sink);
    if (!acc.empty()) {
      Value value = nest.evalWide(acc.front());
      if (kindOf(sink) != vector::CombiningKind::MAXNUMF &&
          kindOf(sink) != vector::CombiningKind::MINNUMF)
        return value;
      // A NaN here would stay; maxnumf takes the other operand instead.
      OpBuilder &b = nest.builder();
      Value none =
          nest.splat(arith::ConstantOp::create(b, nest.loc, neutral(kindOf(sink), element)));
      return vector::makeArithReduction(b, nest.loc, kindOf(sink), value, none);
    }
    return nest.splat(
        arith::ConstantOp::create(nest.builder(), nest.loc, neutral(kindOf(sink), element)));
  }

  bool isFloatSum(const Sink &sink) {
    return sink.kind == Sink::Reduce && kindOf(sink) == vector::CombiningKind::ADD &&
           isa<FloatType>(getElementTypeOrSelf(sink.value.getType()));
  }

  /// The loops over the reduced rows. Sums of many terms are taken in short
  /// blocks: the error of a running sum grows with its length (Higham, Accuracy
  /// and Stability of Numerical Algorithms, section 4.2). Those of products are
  /// as long as in the kernel of a contraction, so that equal terms have equal
  /// sums, which cancel.
  SmallVector<Value> reduceRows(ArrayRef<std::pair<Value, int64_t>> slots, ValueRange inits) {
    int64_t extent = innerRows.size() == 1 ? context.classes.extent(innerRows.front()) : 0;
    int64_t block = extent >= 32 && extent % 16 == 0 ? 16 : 0;
    SmallVector<const Sink *> reductions;
    for (const Sink &sink : group.sinks)
      if (sink.kind == Sink::Reduce) {
        reductions.push_back(&sink);
        if (isa<vector::ContractionOp>(sink.op))
          block = productSumBlock(extent);
      }
    if (block == 0 ||
        llvm::none_of(reductions, [&](const Sink *sink) { return isFloatSum(*sink); }))
      return nest.loops(innerRows, inits, [&](ValueRange carried) { return step(slots, carried); });
    auto isSum = [&](unsigned acc) { return isFloatSum(*reductions[acc % reductions.size()]); };
    scf::ForOp outer = nest.open(-1, 0, extent, block, inits);
    SmallVector<Value> totals(outer.getRegionIterArgs());
    SmallVector<Value> starts(totals);
    for (unsigned acc = 0; acc < starts.size(); ++acc)
      if (isSum(acc))
        starts[acc] = arith::ConstantOp::create(nest.builder(), nest.loc,
                                                nest.builder().getZeroAttr(totals[acc].getType()));
    scf::ForOp inner = nest.open(-1, 0, block, 1, starts);
    nest.builder();
    nest.bind(innerRows.front(), nest.add(outer.getInductionVar(), inner.getInductionVar()));
    nest.close(step(slots, SmallVector<Value>(inner.getRegionIterArgs())));
    SmallVector<Value> next(inner.getResults());
    for (unsigned acc = 0; acc < next.size(); ++acc)
      if (isSum(acc))
        next[acc] =
            combine(nest.builder(), nest.loc, vector::CombiningKind::ADD, next[acc], totals[acc]);
    nest.close(next);
    return SmallVector<Value>(outer.getResults());
  }

  /// Reduced dimensions run inside: accumulators are elementwise in the lanes.
  void keepLanes() {
    // Memory is written row by row, as it lies.
    bool onlyWrites =
        lane >= 0 && innerRows.empty() &&
        llvm::all_of(group.sinks, [](const Sink &sink) { return sink.kind == Sink::Write; });
    if (onlyWrites) {
      nest.loops(outerRows, {}, [&](ValueRange) -> SmallVector<Value> {
        for (const LaneRun &run : laneRuns(context.classes.extent(lane), width, 8))
          runOnce(run, {});
        return {};
      });
      return;
    }
    SmallVector<LaneRun> runs{{0, 1, 1, 1}};
    if (lane >= 0)
      runs = laneRuns(context.classes.extent(lane), width, 4);
    for (const LaneRun &run : runs) {
      bool loop = lane >= 0 && run.count > 1;
      Value base = nest.constant(run.begin);
      if (loop)
        base = nest.open(-1, 0, run.count * run.vectors * run.width, run.vectors * run.width)
                   .getInductionVar();
      SmallVector<std::pair<Value, int64_t>> slots{{base, 1}};
      if (lane >= 0)
        slots = slotsOf(run, base);
      nest.loops(outerRows, {}, [&](ValueRange) -> SmallVector<Value> {
        SmallVector<Value> inits;
        for (auto [slotBase, slotWidth] : slots) {
          if (lane >= 0)
            select(slotBase, slotWidth);
          for (const Sink &sink : group.sinks)
            if (sink.kind == Sink::Reduce)
              inits.push_back(initial(sink));
        }
        SmallVector<Value> accs = reduceRows(slots, inits);
        unsigned acc = 0;
        for (auto [slotBase, slotWidth] : slots) {
          if (lane >= 0)
            select(slotBase, slotWidth);
          for (const Sink &sink : group.sinks)
            if (sink.kind == Sink::Reduce)
              finish(sink, accs[acc++]);
        }
        return {};
      });
      if (loop)
        nest.close();
    }
  }

  /// The lanes are reduced too: vector accumulators, folded once at the end.
  void reduceAcrossLanes() {
    // Inner products have the order of sums of few rows (KernelEmitter::sumAlongLanes).
    bool isProduct = llvm::any_of(group.sinks, [](const Sink &sink) {
      return isa_and_present<vector::ContractionOp>(sink.op);
    });
    SmallVector<LaneRun> runs = laneRuns(context.classes.extent(lane), width, isProduct ? 1 : 4);
    nest.loops(outerRows, {}, [&](ValueRange) -> SmallVector<Value> {
      SmallVector<Value> inits;
      for (const LaneRun &run : runs)
        for (int64_t k = 0; k < run.vectors; ++k)
          for (const Sink &sink : group.sinks)
            if (sink.kind == Sink::Reduce)
              inits.push_back(neutralVector(sink, run.width));
      SmallVector<Value> accs = nest.loops(innerRows, inits, [&](ValueRange carried) {
        SmallVector<Value> next;
        unsigned perSlot =
            llvm::count_if(group.sinks, [](const Sink &sink) { return sink.kind == Sink::Reduce; });
        for (const LaneRun &run : runs) {
          ValueRange mine = carried.slice(next.size(), run.vectors * perSlot);
          llvm::append_range(next, runOnce(run, mine));
        }
        return next;
      });
      fold(accs);
      return {};
    });
  }

  Value neutralVector(const Sink &sink, int64_t slotWidth) {
    auto scalar = neutral(kindOf(sink), getElementTypeOrSelf(sink.value.getType()));
    auto type = VectorType::get({slotWidth}, scalar.getType());
    return arith::ConstantOp::create(nest.builder(), nest.loc,
                                     DenseElementsAttr::get(type, scalar));
  }

  SmallVector<Value> runOnce(const LaneRun &run, ValueRange carried) {
    if (run.count == 1)
      return step(slotsOf(run, nest.constant(run.begin)), carried);
    scf::ForOp loop =
        nest.open(-1, 0, run.count * run.vectors * run.width, run.vectors * run.width, carried);
    SmallVector<Value> next =
        step(slotsOf(run, loop.getInductionVar()), SmallVector<Value>(loop.getRegionIterArgs()));
    nest.close(next);
    return SmallVector<Value>(loop.getResults());
  }

  /// Elements that fill no vector join the first of one.
  void joinRest(llvm::MapVector<Type, Value> &perWidth) {
    OpBuilder &b = nest.builder();
    auto element = cast<VectorType>(perWidth.front().first).getElementType();
    auto type = VectorType::get({width}, element);
    Value total = perWidth.lookup(type);
    if (!total)
      total = arith::ConstantOp::create(b, nest.loc, b.getZeroAttr(type));
    for (auto &[narrow, part] : perWidth)
      if (narrow != type)
        total = addToFirst(b, nest.loc, total, part);
    perWidth.clear();
    perWidth[type] = total;
  }

  void fold(ArrayRef<Value> accs) {
    nest.clearLanes();
    SmallVector<const Sink *> reductions;
    for (const Sink &sink : group.sinks)
      if (sink.kind == Sink::Reduce)
        reductions.push_back(&sink);
    for (auto [index, sink] : llvm::enumerate(reductions)) {
      vector::CombiningKind kind = kindOf(*sink);
      OpBuilder &b = nest.builder();
      // Vectors of one width first, then across their elements.
      llvm::MapVector<Type, Value> perWidth;
      for (size_t k = index; k < accs.size(); k += reductions.size()) {
        Value &total = perWidth[accs[k].getType()];
        total = total ? combine(b, nest.loc, kind, accs[k], total) : accs[k];
      }
      if (isa<vector::ContractionOp>(sink->op) && isFloatSum(*sink))
        joinRest(perWidth);
      SmallVector<Value> init = outerOperands(*sink);
      Value total = init.empty() ? Value() : nest.eval(init.front());
      nest.builder();
      for (auto &[type, vector] : perWidth) {
        auto flags = arith::FastMathFlags::none;
        if (isa<FloatType>(cast<VectorType>(type).getElementType()))
          flags = arith::FastMathFlags::reassoc;
        if (kind == vector::CombiningKind::MAXNUMF || kind == vector::CombiningKind::MINNUMF)
          flags = flags | arith::FastMathFlags::nnan; // see combine
        Value part = vector::ReductionOp::create(b, nest.loc, kind, vector, flags);
        total = total ? vector::makeArithReduction(b, nest.loc, kind, part, total) : part;
      }
      finish(*sink, total);
    }
  }

  Context &context;
  Group &group;
  Nest nest;
  int lane;
  int64_t width = 1;
  bool haveWidth = false, widthIsData = false;
  SmallVector<int> reduced, innerRows, outerRows;
};
} // namespace

void attn::tiles::emitLoops(Context &context, Group &group) {
  if (group.sinks.size() == 1 && group.sinks.front().kind == Sink::Extract) {
    // One element: every class is bound to a given position.
    Sink &sink = group.sinks.front();
    auto extract = cast<vector::ExtractOp>(sink.op);
    Nest nest(context, group.position);
    SmallVector<int> classes = context.classes.dims(extract.getSource());
    for (auto [cls, position] : llvm::zip_equal(classes, extract.getMixedPosition())) {
      auto fixed = getConstantIntValue(position);
      Value index = fixed ? nest.constant(*fixed) : cast<Value>(position);
      if (cls >= 0)
        nest.bind(cls, index);
    }
    sink.value.replaceAllUsesWith(nest.eval(extract.getSource()));
    return;
  }
  LoopsEmitter(context, group).run();
}
