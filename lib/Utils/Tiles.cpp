// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

Value attn::getRepeated(Value tile) {
  if (auto transpose = tile.getDefiningOp<vector::TransposeOp>())
    tile = transpose.getVector();
  auto broadcast = tile.getDefiningOp<vector::BroadcastOp>();
  auto source = broadcast ? dyn_cast<VectorType>(broadcast.getSourceType()) : VectorType();
  return source && source.getRank() == 1 ? broadcast.getSource() : Value();
}

Value attn::repeatRows(OpBuilder &b, Location loc, Value rows, ArrayRef<int64_t> shape) {
  Type element = cast<VectorType>(rows.getType()).getElementType();
  auto turned = VectorType::get({shape[1], shape[0]}, element);
  Value broadcast = vector::BroadcastOp::create(b, loc, turned, rows);
  return vector::TransposeOp::create(b, loc, broadcast, ArrayRef<int64_t>{1, 0});
}

void attn::separateTileUses(Operation *root) {
  SmallVector<Operation *> cheap;
  DenseSet<Value> isCheap, isSpread;
  root->walk([&](Operation *op) {
    if (op->getNumResults() != 1)
      return;
    auto type = dyn_cast<VectorType>(op->getResult(0).getType());
    if (!type)
      return;
    bool isLeaf = isa<vector::StepOp, arith::ConstantOp>(op);
    bool spreads = isa<vector::BroadcastOp>(op);
    if (auto transpose = dyn_cast<vector::TransposeOp>(op))
      spreads = isSpread.contains(transpose.getVector());
    bool isLine = type.getRank() == 1 && OpTrait::hasElementwiseMappableTraits(op) &&
                  llvm::all_of(op->getOperands(), [&](Value v) { return isCheap.contains(v); });
    if (!isLeaf && !spreads && !isLine)
      return;
    cheap.push_back(op);
    isCheap.insert(op->getResult(0));
    if (spreads)
      isSpread.insert(op->getResult(0));
  });
  // Users first: their copies are new uses of what comes before. A chain that
  // doubles at each step ends at the limit; a long program has as many uses.
  size_t copies = 0, most = 2000;
  for (Operation *op : cheap)
    most += 2 * std::distance(op->use_begin(), op->use_end());
  for (Operation *op : llvm::reverse(cheap)) {
    // A parallel body gets its own, too: it can capture no vector.
    auto home = op->getParentOfType<scf::ForallOp>();
    SmallVector<std::pair<OpOperand *, scf::ForallOp>> uses;
    bool isUsedAtHome = false;
    for (OpOperand &use : op->getUses()) {
      auto body = use.getOwner()->getParentOfType<scf::ForallOp>();
      if (body == home && !isUsedAtHome)
        isUsedAtHome = true;
      else
        uses.push_back({&use, body});
    }
    for (auto [use, body] : uses) {
      if (++copies > most)
        return;
      OpBuilder b(op);
      if (body == home)
        b.setInsertionPointAfter(op);
      else
        b.setInsertionPointToStart(body.getBody());
      use->set(b.clone(*op)->getResult(0));
    }
    if (op->use_empty())
      op->erase();
  }
}

void attn::separateReads(Operation *root) {
  SmallVector<Operation *> reads;
  DenseSet<Value> isRead;
  root->walk([&](Operation *op) {
    bool converts = OpTrait::hasElementwiseMappableTraits(op) && op->getNumOperands() == 1 &&
                    isRead.contains(op->getOperand(0));
    if (!isa<vector::TransferReadOp>(op) && !converts)
      return;
    reads.push_back(op);
    isRead.insert(op->getResult(0));
  });
  // Users first: their copies are new uses of what comes before.
  for (Operation *op : llvm::reverse(reads)) {
    OpBuilder b(op);
    b.setInsertionPointAfter(op);
    auto uses = llvm::map_to_vector(op->getUses(), [](OpOperand &use) { return &use; });
    for (OpOperand *use : llvm::drop_begin(uses))
      use->set(b.clone(*op)->getResult(0));
  }
}
