// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Roles.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

using namespace mlir;
using namespace attn;

std::optional<unsigned> hopper::findComputeRole(RolesOp roles) {
  std::optional<unsigned> found;
  for (auto [number, name] : llvm::enumerate(roles.getNames().getAsValueRange<StringAttr>()))
    if (name.starts_with(kComputeRole))
      found = number;
  return found;
}

void hopper::giveSharedMemory(gpu::LaunchOp launch) {
  constexpr int64_t kTileAlignment = 1024;
  int64_t bytes = 0;
  for (auto alloc : launch.getBody().front().getOps<AllocOp>())
    bytes += llvm::alignTo(alloc.getMemory().getType().getBytes(), kTileAlignment);
  if (bytes == 0)
    return;
  OpBuilder b(launch);
  Value size = arith::ConstantIntOp::create(b, launch.getLoc(), bytes, 32);
  launch.getDynamicSharedMemorySizeMutable().assign(size);
}

Operation *hopper::findFirstReader(Block *block, Value tile) {
  Operation *first = nullptr;
  for (Operation *user : tile.getUsers()) {
    Operation *reader = isa<tile::RowsOp, tile::ColumnsOp>(user)
                            ? findFirstReader(block, user->getResult(0))
                            : block->findAncestorOpInBlock(*user);
    if (reader && (!first || reader->isBeforeInBlock(first)))
      first = reader;
  }
  return first;
}
