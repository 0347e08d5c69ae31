// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lowers the tiles of one block. Ops are read in program order; lazy ops
// (elementwise, broadcasts, reads) generate nothing by themselves. Sinks
// (reductions, contractions, writes, values that another region needs) are
// gathered into groups over one domain, one loop nest each. A lazy value that
// several groups would compute is kept in scratch by the first of them, unless
// computing it again is as cheap as loading it.

#ifndef ATTN_LIB_CONVERSION_LOWERTILES_PLAN_H
#define ATTN_LIB_CONVERSION_LOWERTILES_PLAN_H

#include "Groups.h"

namespace attn::tiles {

/// Scratch memory of one parallel body: static allocas at its top, reused.
class Scratch {
public:
  explicit Scratch(mlir::Block &entry) : entry(&entry) {}
  mlir::Value acquire(mlir::Location loc, llvm::ArrayRef<int64_t> shape, mlir::Type element);
  void release(mlir::Value memref);

private:
  mlir::Block *entry;
  llvm::DenseMap<mlir::Type, llvm::SmallVector<mlir::Value>> free;
};

/// A value that a region hands to its parent through a buffer: operand `index`
/// of the terminator has to be in `buffer` at the end. `carried` is the tile in
/// that buffer on entry, where there is one.
struct Handover {
  unsigned index;
  Buffer buffer;
  mlir::Value carried;
};

class BlockLowering {
public:
  BlockLowering(Context &context, Scratch &scratch, mlir::Block &block,
                llvm::ArrayRef<Handover> handovers)
      : context(context), scratch(scratch), block(block), handovers(handovers) {}
  void run();

private:
  // Gathering.
  void gather();
  void gatherContraction(mlir::vector::ContractionOp op);
  void gatherScatter(attn::ScatterAddOp op);
  void gatherRegionOp(mlir::Operation *op);
  void gatherTerminator(mlir::Operation *op);
  void addSink(Sink sink, mlir::Operation *op);
  void keep(mlir::Value value, mlir::Operation *op);
  void keepCopy(const LaneSource &wanted, mlir::Operation *op);
  llvm::SmallVector<LaneSource> capturedSources(mlir::Operation *op);
  void makeView(mlir::Value read, mlir::Operation *op);
  void makePairs(const Pairs &pairs, mlir::Operation *op);
  /// The last item uses them.
  void usePairs(llvm::ArrayRef<Pairs> pairs);
  void gatherMatrixProduct(mlir::vector::ContractionOp op, const Kernel &kernel);
  mlir::vector::TransferReadOp getRowsInMemory(const Kernel &kernel, mlir::Value rows);
  Pairs getLanePairs(const Kernel &kernel, const MatrixOperands &operands);
  Pairs getRowPairs(const Kernel &kernel, const MatrixOperands &operands);
  void gatherCapturedPairs(mlir::Operation *op, llvm::SmallVectorImpl<Pairs> &pairs,
                           llvm::SmallVectorImpl<mlir::Value> &views);
  void keepReadsBefore(mlir::Operation *write);
  void closeGroup() { openGroup = nullptr; }
  Group *newGroup(Group::Kind kind, mlir::Operation *op);
  bool isKept(mlir::Value value) const {
    return context.buffers.count(value) || keptBy.count(value);
  }
  /// Whether a value needs what a group computes. (Ops of one block in their order, below the
  /// statements of the dependence graph.)
  bool dependsOn(mlir::Value value, const Group &group);
  bool onlyFeeds(mlir::Value value, mlir::Operation *op);
  bool usedAfter(mlir::Value value, mlir::Operation *op);
  // Deciding what to compute once.
  void shareValues();
  void shareAt(mlir::Value value, unsigned item);
  void addPrelude(mlir::Value value, unsigned item);
  bool isComputedIn(mlir::Value value, const Group &group);
  bool isAvailable(mlir::Value value, unsigned item);
  void forEachOperand(unsigned item, llvm::function_ref<void(mlir::Value)> fn);
  void visit(mlir::Value value, unsigned item);
  void visitCaptures(mlir::Operation *op, llvm::function_ref<void(mlir::Value)> fn);
  int64_t cost(mlir::Value value, llvm::SmallPtrSetImpl<mlir::Operation *> &seen);
  bool staysLazyInRegion(mlir::Value value);
  // Lifetimes.
  void findLastUses();
  void touch(mlir::Value value, unsigned item);
  void assignInPlace();
  bool mayWriteInPlace(mlir::Value value, mlir::Value carried);
  // Writing.
  void emit();
  void emitGroup(Group &group);
  void emitRegionOp(mlir::Operation *op);
  void emitFor(mlir::scf::ForOp loop);
  void emitIf(mlir::scf::IfOp branch);
  void emitHandovers();
  void storeTo(mlir::Value value, const Buffer &buffer, mlir::Operation *position);
  Buffer allocate(mlir::Value value);
  Buffer allocateAs(mlir::Value value, llvm::ArrayRef<int> layout);
  llvm::SmallVector<int> layoutOf(mlir::Value value);
  llvm::SmallVector<int> layoutWith(mlir::Value value, int lane);
  Buffer newBuffer(mlir::Value value, llvm::ArrayRef<int> layout);
  Buffer allocateCopy(mlir::Value value, int lane);
  Buffer takeDying(mlir::Value value, const Group &group);
  void setBuffer(mlir::Value value, Buffer buffer);
  bool canTakeOver(mlir::Value init, mlir::Value result, mlir::Operation *op);
  bool isHandedOn(mlir::Value value, mlir::Value yielded);
  void takeOver(mlir::Value init, mlir::Value result);
  void collectBuffers(mlir::Value value, llvm::SmallVectorImpl<mlir::Value> &memrefs);
  void releaseDead(unsigned item);

  Context &context;
  Scratch &scratch;
  mlir::Block &block;
  llvm::ArrayRef<Handover> handovers;
  llvm::SmallVector<std::unique_ptr<Group>> items;
  Group *openGroup = nullptr;
  /// Which item stores a value; `pending` ones have no buffer yet.
  llvm::DenseMap<mlir::Value, unsigned> keptBy, firstUse, lastUse;
  llvm::DenseMap<std::pair<mlir::Value, int>, unsigned> lastCopyUse;
  llvm::DenseSet<mlir::Value> viewed;
  /// Tiles as pairs that this block makes: who uses them last.
  std::map<Pairs, unsigned> lastPairsUse;
  llvm::DenseMap<mlir::Value, Buffer> inPlace;
  llvm::DenseMap<mlir::Value, unsigned> ownedUntil; // memref to last item
  llvm::SmallVector<mlir::Value> stored;
  unsigned current = 0;
};

} // namespace attn::tiles

#endif
