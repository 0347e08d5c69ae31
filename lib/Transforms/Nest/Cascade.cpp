// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finding a cascade, and the proof that one pass suffices.

#include "Cascade.h"
#include "Homogeneity.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

std::optional<unsigned> Cascade::loopOf(GenericOp op) const {
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
    if (classes.ofLoop(op, loop) == dim)
      return loop;
  return std::nullopt;
}

bool Cascade::reduces(GenericOp op) const {
  std::optional<unsigned> loop = loopOf(op);
  return loop && op.getIteratorTypesArray()[*loop] == utils::IteratorType::reduction;
}

/// The dimensions of a statement's loops or of an operand.
static DenseSet<unsigned> dimsOf(const DimClasses &classes, GenericOp op, OpOperand *operand) {
  DenseSet<unsigned> dims;
  AffineMap map = op.getMatchingIndexingMap(operand);
  for (unsigned index = 0; index < map.getNumResults(); ++index)
    if (std::optional<unsigned> loop = getLoop(map, index))
      dims.insert(classes.ofLoop(op, *loop));
  return dims;
}

/// Whether the result has no dimension that a tensor which the cascade reads,
/// and which the statement is computed from, lacks.
bool Cascade::isNoLarger(GenericOp op) const {
  // Sources first; each once, however often it is read.
  llvm::SetVector<Operation *> slice;
  slice.insert(op);
  for (unsigned at = 0; at < slice.size(); ++at)
    for (Value input : cast<GenericOp>(slice[at]).getDpsInputs())
      if (auto source = input.getDefiningOp<GenericOp>(); isMember(source))
        slice.insert(source);
  SmallVector<Operation *> sorted(slice.takeVector());
  llvm::sort(sorted, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  DenseSet<Operation *> larger;
  for (Operation *at : sorted) {
    auto statement = cast<GenericOp>(at);
    DenseSet<unsigned> out = dimsOf(classes, statement, statement.getDpsInitOperand(0));
    bool fits = false;
    for (OpOperand *input : statement.getDpsInputOperands()) {
      DenseSet<unsigned> dims = dimsOf(classes, statement, input);
      fits |= llvm::all_of(out, [&](unsigned d) { return dims.contains(d); });
      if (larger.contains(input->get().getDefiningOp()))
        larger.insert(at);
    }
    if (!fits)
      larger.insert(at);
  }
  return !larger.contains(op);
}

/// Whether a statement over the dimension is better done once, before the
/// cascade: its result takes no more memory than a tensor that it reads, and in
/// the cascade it would be done again for each index of a dimension that the
/// state, or what is stored, has and nothing that is streamed, or it sums over
/// a dimension that the state has, which then could not be tiled.
bool Cascade::isPreparation(GenericOp op) {
  if (op->getNumResults() != 1 || reduces(op) ||
      llvm::any_of(op.getDpsInputs(),
                   [&](Value input) { return isMember(input.getDefiningOp<GenericOp>()); }) ||
      !isNoLarger(op))
    return false;
  DenseSet<unsigned> out = dimsOf(classes, op, op.getDpsInitOperand(0));
  // Reductions that read it, and what else is streamed to them.
  SetVector<Operation *> readers;
  readers.insert(op);
  for (unsigned at = 0; at < readers.size(); ++at)
    for (Operation *user : readers[at]->getUsers())
      if (auto reader = dyn_cast<GenericOp>(user); isMember(reader))
        if (at == 0 || !reduces(cast<GenericOp>(readers[at])))
          readers.insert(reader);
  DenseSet<unsigned> state, streamed = getStreamedDims();
  for (Operation *member : readers) {
    auto reader = cast<GenericOp>(member);
    if (reduces(reader) || (member != op && llvm::any_of(reader->getUsers(), [&](Operation *user) {
                              return isOutside(user);
                            })))
      for (unsigned d : dimsOf(classes, reader, reader.getDpsInitOperand(0)))
        state.insert(d);
  }
  DenseSet<unsigned> summed;
  for (auto [loop, kind] : llvm::enumerate(op.getIteratorTypesArray()))
    if (kind == utils::IteratorType::reduction)
      summed.insert(classes.ofLoop(op, loop));
  bool readsAllOnce = !summed.empty() &&
                      llvm::all_of(op.getIndexingMapsArray(),
                                   [&](AffineMap map) { return map.isProjectedPermutation(); }) &&
                      llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *input) {
                        return op.getMatchingIndexingMap(input).getNumResults() == op.getNumLoops();
                      });
  return readsAllOnce || llvm::any_of(state, [&](unsigned d) {
           return summed.contains(d) || (!out.contains(d) && !streamed.contains(d));
         });
}

/// The dimensions along which a statement, which does not reduce the cascade's
/// own, sums values of the cascade.
DenseSet<unsigned> Cascade::getOtherReduced(GenericOp op) const {
  DenseSet<unsigned> reduced;
  if (reduces(op))
    return reduced;
  for (OpOperand *input : op.getDpsInputOperands()) {
    auto source = input->get().getDefiningOp<GenericOp>();
    if (!isMember(source))
      continue;
    AffineMap map = op.getMatchingIndexingMap(input);
    for (unsigned index = 0; index < map.getNumResults(); ++index)
      if (std::optional<unsigned> loop = getLoop(map, index);
          loop && op.getIteratorTypesArray()[*loop] == utils::IteratorType::reduction)
        reduced.insert(classes.ofLoop(op, *loop));
  }
  return reduced;
}

/// The dimensions of what is read along the cascade's dimension.
DenseSet<unsigned> Cascade::getStreamedDims() const {
  DenseSet<unsigned> streamed;
  for (GenericOp member : members)
    for (OpOperand *input : member.getDpsInputOperands())
      if (!isMember(input->get().getDefiningOp<GenericOp>())) {
        DenseSet<unsigned> dims = dimsOf(classes, member, input);
        if (dims.contains(dim))
          streamed.insert(dims.begin(), dims.end());
      }
  return streamed;
}

/// The rows of the values that a statement reads: their last dimension that
/// nothing streamed has.
std::optional<unsigned> Cascade::getRowDim(GenericOp op) const {
  DenseSet<unsigned> streamed = getStreamedDims();
  std::optional<unsigned> row;
  for (Value input : op.getDpsInputs()) {
    auto source = input.getDefiningOp<GenericOp>();
    if (!isMember(source))
      continue;
    for (auto [loop, kind] : llvm::enumerate(source.getIteratorTypesArray()))
      if (unsigned d = classes.ofLoop(source, loop);
          kind == utils::IteratorType::parallel && d != dim && !streamed.contains(d))
        row = d;
    if (row)
      break;
  }
  return row;
}

void Cascade::collect(GenericOp root, Reach reach) {
  SmallVector<GenericOp> all;
  for (auto op : block.getOps<GenericOp>())
    if (spans(op) && !classes.isCrossing(op)) {
      all.push_back(op);
      memberSet.insert(op);
    }
  members = all;
  auto drop = [&](function_ref<bool(GenericOp)> predicate) {
    for (GenericOp op : all)
      if (op != root && isMember(op) && predicate(op))
        memberSet.erase(op);
    members = llvm::filter_to_vector(all, [&](GenericOp op) { return isMember(op); });
  };
  drop([&](GenericOp op) { return isPreparation(op); });
  // A sum of such sums (over a group of heads) comes after either. So does one
  // along a dimension that is not the rows (the gradient of a bias that all
  // batches or heads share): no loop of one worker could carry it.
  DenseSet<Operation *> sums;
  for (GenericOp op : members) {
    DenseSet<unsigned> reduced = getOtherReduced(op);
    bool readsSum = false,
         after = llvm::any_of(reduced, [&](unsigned d) { return d != getRowDim(op); });
    for (Value input : op.getDpsInputs()) {
      Operation *source = input.getDefiningOp();
      readsSum |= sums.contains(source);
      after |= isAfter(source) ||
               (sums.contains(source) && (!reduced.empty() || kept == OtherSums::Partial));
    }
    if (after)
      afterwards.insert(op);
    else if (readsSum || !reduced.empty()) {
      sums.insert(op);
      if (op != root && !reduced.empty())
        otherSums.push_back(op);
    }
  }
  drop([&](GenericOp op) { return isAfter(op) || (!keepsSums() && sums.contains(op)); });
  // What is connected with the root.
  SetVector<Operation *> reached;
  reached.insert(root);
  for (unsigned at = 0; at < reached.size(); ++at) {
    SmallVector<Operation *> neighbours(reached[at]->getUsers());
    for (Value operand : reached[at]->getOperands())
      if (Operation *source = operand.getDefiningOp())
        neighbours.push_back(source);
    for (Operation *other : neighbours) {
      auto op = dyn_cast<GenericOp>(other);
      if (op && op->getBlock() == &block &&
          (isMember(op) || (reach == Reach::Returns && !spans(op))))
        reached.insert(op);
    }
  }
  drop([&](GenericOp op) { return !reached.contains(op); });
}

/// Whether the cascade is one sum of as many terms as a tensor has elements,
/// along that tensor's innermost dimension, or one of its matrices of a head's
/// size (over a group of heads). Others are as good in plain loops.
bool Cascade::isLoneSum() const {
  if (members.size() != 1)
    return false;
  GenericOp op = members.front();
  return op.getNumReductionLoops() == 1 && op->getNumResults() == 1 &&
         cast<RankedTensorType>(op.getResult(0).getType()).getRank() > 0 &&
         llvm::any_of(op.getDpsInputOperands(), [&](OpOperand *input) {
           AffineMap map = op.getMatchingIndexingMap(input);
           if (!map.isPermutation())
             return false;
           unsigned inner = map.getNumResults() - 1, at = 0;
           while (getLoop(map, at) != loopOf(op))
             ++at;
           int64_t size = cast<RankedTensorType>(input->get().getType()).getDimSize(inner);
           return at == inner ||
                  (at + 1 < inner && size <= longestWholeTile && !ShapedType::isDynamic(size));
         });
}

/// Whether something that a statement is computed from is the same for the
/// whole dimension. Where all of it has the dimension (a batch), nothing is
/// read again: each index has products of its own.
bool Cascade::readsWhole(GenericOp op) {
  return llvm::any_of(getSlice(op), [&](Operation *at) {
    auto statement = cast<GenericOp>(at);
    return llvm::any_of(statement.getDpsInputOperands(), [&](OpOperand *input) {
      return !isMember(input->get().getDefiningOp<GenericOp>()) &&
             !dimsOf(classes, statement, input).contains(dim);
    });
  });
}

/// Whether the members map a product, larger than what it is computed from, to
/// something else, a tile at a time: what it contracts is whole in each tile.
bool Cascade::isMappedProduct(GenericOp root) {
  if (members.size() < 2 || isNoLarger(root))
    return false;
  SmallVector<int64_t> ranges = root.getStaticLoopRanges();
  for (auto [size, kind] : llvm::zip_equal(ranges, root.getIteratorTypesArray()))
    if (kind == utils::IteratorType::reduction &&
        (ShapedType::isDynamic(size) || size > longestWholeTile))
      return false;
  return readsWhole(root);
}

bool Cascade::isCandidate(Gain gain) {
  if (gain == Gain::Tiles)
    return isLoneSum();
  return llvm::any_of(members, [&](GenericOp op) {
    if (!reduces(op))
      return false;
    DenseSet<Operation *> visited;
    if (gain == Gain::Returned)
      return feedsMember(op.getResult(0), visited);
    return llvm::any_of(op.getDpsInputOperands(), [&](OpOperand *input) {
      auto source = input->get().getDefiningOp<GenericOp>();
      if (!isMember(source) || reduces(source))
        return false;
      if (isNoLarger(source) ? gain == Gain::Product || source.getNumReductionLoops() > 0
                             : !readsWhole(source))
        return false;
      // Summed over two dimensions at once, it cannot be tiled along one.
      unsigned reduced = 0;
      AffineMap map = op.getMatchingIndexingMap(input);
      for (unsigned index = 0; index < map.getNumResults(); ++index)
        if (std::optional<unsigned> loop = getLoop(map, index))
          reduced += op.getIteratorTypesArray()[*loop] == utils::IteratorType::reduction;
      return reduced == 1;
    });
  });
}

/// Whether a value reaches a statement of the cascade, directly or through
/// statements that do not span the dimension.
bool Cascade::feedsMember(Value value, DenseSet<Operation *> &visited) const {
  for (Operation *user : value.getUsers()) {
    auto op = dyn_cast<GenericOp>(user);
    if (!op || op->getBlock() != &block || !visited.insert(op).second)
      continue;
    if (isMember(op))
      return true;
    if (spans(op))
      continue;
    for (Value result : op.getResults())
      if (feedsMember(result, visited))
        return true;
  }
  return false;
}

LogicalResult Cascade::refuse(GenericOp op, const Twine &why, Operation *reason, GenericOp source) {
  InFlightDiagnostic remark = emitRemark(op.getLoc()) << "not fused into one pass: " << why;
  if (source)
    remark.attachNote(source.getLoc())
        << "the reduction at the source of the dependence (RAW, carried by "
           "the fused dimension)";
  if (reason && reason != op)
    remark.attachNote(reason->getLoc()) << "the form is broken here";
  return failure();
}

/// Whether all that leads from one statement of the cascade to another one are statements: nothing
/// else can be moved into one pass.
LogicalResult Cascade::proveStatementsBetween() {
  // Ops that depend on a member, and the first one on the way that is no statement.
  DenseMap<Operation *, Operation *> through;
  for (Operation &op : block) {
    Operation *other = nullptr;
    bool depends = false;
    op.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (auto known = through.find(operand.getDefiningOp()); known != through.end()) {
          depends = true;
          other = other ? other : known->second;
        }
    });
    auto generic = dyn_cast<GenericOp>(op);
    if (depends && isMember(generic) && other)
      return refuse(generic,
                    "it depends on another statement through '" + other->getName().getStringRef() +
                        "', which is no statement",
                    other, {});
    if (depends || isMember(generic))
      through[&op] = other || generic ? other : &op;
  }
  return success();
}

LogicalResult Cascade::prove() {
  if (failed(proveStatementsBetween()))
    return failure();
  for (GenericOp op : members) {
    unsigned loops = 0;
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
      loops += classes.ofLoop(op, loop) == dim;
    if (loops != 1)
      return refuse(op, "it runs over the dimension twice", nullptr, {});
    if (op->getNumResults() != 1)
      return refuse(op, "it has more than one result", nullptr, {});
    if (!reduces(op))
      continue;
    std::optional<Reduction> reduction = matchReduction(op, 0);
    if (!reduction)
      return refuse(op, "its reduction is not a sum, product, maximum or minimum", nullptr, {});
    carried.push_back({op, *reduction, {}, {}, op.getDpsInits()[0]});
  }
  // Values that are only factors leave the sums first; what remains must be
  // homogeneous in the maxima with those held fixed.
  SmallVector<Value> maxima;
  for (Carried &source : carried) {
    Value result = source.op.getResult(0);
    DenseSet<Operation *> visited;
    if (!feedsMember(result, visited))
      continue;
    if (source.reduction.monoid == Reduction::Monoid::Max &&
        failed(provePivot(result, /*asShift=*/false, /*report=*/false))) {
      maxima.push_back(result);
      running.insert(result);
    } else if (!factored.contains(result) &&
               failed(provePivot(result, /*asShift=*/false, /*report=*/true))) {
      return failure();
    }
  }
  for (Value pivot : maxima)
    if (failed(provePivot(pivot, /*asShift=*/true, /*report=*/true)))
      return failure();
  return findMaps();
}

/// Whether each dimension of the pivot's result is one of the state's, once.
bool Cascade::hasDimensionsOf(GenericOp state, GenericOp pivot) {
  auto rank = [](GenericOp op) {
    return cast<RankedTensorType>(op.getResult(0).getType()).getRank();
  };
  for (int64_t index = 0; index < rank(pivot); ++index) {
    unsigned matches = 0;
    for (int64_t mine = 0; mine < rank(state); ++mine)
      matches +=
          classes.ofValue(state.getResult(0), mine) == classes.ofValue(pivot.getResult(0), index);
    if (matches != 1)
      return false;
  }
  return true;
}

/// Checks every reduction of the cascade against one pivot: as a running
/// maximum that terms shift with, or as a factor of terms.
LogicalResult Cascade::provePivot(Value pivot, bool asShift, bool report) {
  Homogeneity homogeneity(pivot, asShift ? Degree::shift(1) : Degree::power(1), factored);
  auto source = pivot.getDefiningOp<GenericOp>();
  StringRef name = asShift ? "running maximum" : "running value";
  SmallVector<std::pair<Carried *, double>> dependents;
  for (Carried &state : carried) {
    Value result = state.op.getResult(0);
    if (result == pivot)
      continue;
    Degree degree = homogeneity.ofStatement(result);
    if (degree.kind == Degree::Kind::Invariant)
      continue;
    auto fail = [&](const Twine &why, Operation *reason) {
      return report ? refuse(state.op, why, reason, source) : failure();
    };
    if (degree.kind == Degree::Kind::Unknown)
      return fail("its terms are not homogeneous in the " + name + " that they depend on",
                  degree.reason);
    bool sum = state.reduction.monoid == Reduction::Monoid::Add;
    if (asShift && (!(degree == Degree::scale(-1)) || !sum)) {
      std::string k;
      llvm::raw_string_ostream(k) << llvm::format("%g", degree.k);
      return fail("its terms change with degree " + k + " in exp(" + name +
                      "), expected a sum of degree -1",
                  nullptr);
    }
    if (asShift && running.contains(result))
      return fail("it is itself a running value that others depend on", nullptr);
    if (!asShift && (degree.kind != Degree::Kind::Power || !sum))
      return fail("its terms are no power of the running value that they "
                  "depend on",
                  nullptr);
    if (!hasDimensionsOf(state.op, source))
      return fail("its state lacks a dimension of the " + name + " that its terms depend on",
                  nullptr);
    dependents.push_back({&state, degree.k});
  }
  for (auto [state, k] : dependents) {
    if (asShift)
      state->pivots.push_back(pivot);
    else
      state->factors.push_back({pivot, k});
  }
  if (!asShift)
    factored.insert(pivot);
  return success();
}

/// Whether a reader of a member needs its whole result. A sum along another
/// dimension that is left out computes its terms again.
bool Cascade::isOutside(Operation *user) const {
  auto reader = dyn_cast<GenericOp>(user);
  return !reader || reader->getBlock() != &block || !spans(reader) || classes.isCrossing(reader) ||
         isAfter(reader) || (keepsSums() && !isMember(reader));
}

/// Statements whose result is used outside of the cascade.
LogicalResult Cascade::findMaps() {
  for (GenericOp op : members) {
    if (reduces(op))
      continue;
    if (llvm::any_of(op->getUsers(), [&](Operation *user) { return isOutside(user); }))
      mapped.push_back(op);
  }
  return success(!carried.empty() || !mapped.empty());
}

/// Members that `op` needs, reductions of the dimension excluded.
void Cascade::sliceOf(GenericOp op, llvm::SetVector<Operation *> &slice) {
  if (!slice.insert(op))
    return;
  for (Value operand : op->getOperands()) {
    auto source = operand.getDefiningOp<GenericOp>();
    if (isMember(source) && !reduces(source))
      sliceOf(source, slice);
  }
}

llvm::SetVector<Operation *> Cascade::getSlice(GenericOp op) {
  llvm::SetVector<Operation *> slice;
  sliceOf(op, slice);
  return slice;
}

SmallVector<GenericOp> Cascade::ordered(const llvm::SetVector<Operation *> &slice) {
  SmallVector<GenericOp> result;
  for (auto op : block.getOps<GenericOp>())
    if (slice.contains(op))
      result.push_back(op);
  return result;
}

/// Tensors from outside that the statements read along the dimension.
LogicalResult Cascade::findStreams(ArrayRef<GenericOp> statements,
                                   llvm::MapVector<Value, int64_t> &streams) {
  for (GenericOp op : statements) {
    // A statement between reductions does not run over the dimension.
    std::optional<unsigned> loop = loopOf(op);
    if (!loop)
      continue;
    for (OpOperand &operand : op->getOpOperands()) {
      auto source = operand.get().getDefiningOp<GenericOp>();
      if (isMember(source) || op.isDpsInit(&operand))
        continue;
      AffineMap map = op.getMatchingIndexingMap(&operand);
      for (unsigned index = 0; index < map.getNumResults(); ++index) {
        if (!map.getResult(index).isFunctionOfDim(*loop))
          continue;
        auto [entry, fresh] = streams.insert({operand.get(), index});
        if (!getLoop(map, index) || (!fresh && entry->second != index))
          return refuse(op,
                        "it reads a tensor along the dimension in more "
                        "than one way",
                        nullptr, {});
      }
    }
  }
  if (streams.empty())
    return refuse(statements.front(),
                  "no tensor is read along the dimension, so its extent is "
                  "unknown",
                  nullptr, {});
  return success();
}
