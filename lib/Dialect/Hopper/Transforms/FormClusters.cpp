// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Clusters of CTAs whose tiles differ in one coordinate; what does not depend on it is
// copied once for all of them.

#include "Loops.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERFORMCLUSTERS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numClusters("hopper-form-clusters", "clustered", "Launches in clusters");
static attn::Left numLeft("hopper-form-clusters", "not clustered", "Launches without clusters");

namespace {

class ClusterFormer {
public:
  ClusterFormer(gpu::LaunchOp launch, int64_t ctas)
      : launch(launch), ctas(ctas), host(launch), loc(launch.getLoc()) {}

  void run() {
    // One position for each role.
    for (Operation *user : launch.getBlockIds().x.getUsers()) {
      auto position = dyn_cast<affine::AffineDelinearizeIndexOp>(user);
      if (!position)
        return;
      positions.push_back(position);
    }
    if (positions.empty() || !chooseCoordinate()) {
      numLeft.at(launch) << remark::reason(
          "no tiles that CTAs along a coordinate of an even size have in common");
      return;
    }
    numClusters.at(launch) << remark::metric("Shared", shared.size());
    for (hopper::ChannelOp channel : shared)
      channel.setMulticast(ctas);
    replacePositions();
  }

private:
  /// Whether the tiles of a channel can be copied in parts of whole swizzles.
  bool hasParts(hopper::ChannelOp channel) const {
    return channel.getChannel().getType().getTile().getRows() % (8 * ctas) == 0;
  }

  /// Channels that all CTAs send the same to, where tiles differ in a coordinate.
  SmallVector<hopper::ChannelOp> findShared(unsigned coordinate) {
    // What differs between them, and all that is in a loop or branch whose operands do.
    SetVector<Operation *> differs;
    for (affine::AffineDelinearizeIndexOp position : positions)
      getForwardSlice(position.getResult(coordinate), &differs);
    SmallVector<hopper::ChannelOp> found;
    for (auto channel : launch.getBody().front().getOps<hopper::ChannelOp>()) {
      bool isInLoop = false, same = true;
      for (Operation *user : channel.getChannel().getUsers())
        if (auto send = dyn_cast<hopper::SendOp>(user)) {
          isInLoop |= bool(send->getParentOfType<scf::ForOp>());
          same &= !differs.contains(send);
        }
      if (isInLoop && same && hasParts(channel))
        found.push_back(channel);
    }
    return found;
  }

  bool chooseCoordinate() {
    int64_t most = 0;
    for (unsigned candidate = 0; candidate < positions.front().getNumResults(); ++candidate) {
      OpFoldResult size = positions.front().getPaddedBasis()[candidate];
      if (std::optional<int64_t> known = getConstantIntValue(size); known && *known % 2)
        continue;
      SmallVector<hopper::ChannelOp> found = findShared(candidate);
      int64_t bytes = 0;
      for (hopper::ChannelOp channel : found)
        bytes += channel.getChannel().getType().getTile().getTileBytes();
      // Of equals the last one: groups of heads may be of one head.
      if (bytes == 0 || bytes < most)
        continue;
      most = bytes;
      coordinate = candidate;
      shared = std::move(found);
    }
    return most > 0;
  }

  /// The largest power of two, at most `ctas`, that divides `size`; 1 if that is 0.
  Value createClusterSize(Value size) {
    Value zero = arith::ConstantIndexOp::create(host, loc, 0);
    Value one = arith::ConstantIndexOp::create(host, loc, 1);
    Value most = arith::ConstantIndexOp::create(host, loc, ctas);
    Value negative = arith::SubIOp::create(host, loc, zero, size);
    Value divisor = arith::AndIOp::create(host, loc, size, negative);
    Value positive = arith::MaxUIOp::create(host, loc, divisor, one);
    return arith::MinUIOp::create(host, loc, positive, most);
  }

  /// The launch with clusters; region arguments are those of the old one.
  gpu::LaunchOp createLaunch(Value clusterSize) {
    Value one = arith::ConstantIndexOp::create(host, loc, 1);
    gpu::KernelDim3 grid = launch.getGridSizeOperandValues();
    gpu::KernelDim3 block = launch.getBlockSizeOperandValues();
    auto clustered = gpu::LaunchOp::create(
        host, loc, grid.x, grid.y, grid.z, block.x, block.y, block.z,
        launch.getDynamicSharedMemorySize(), /*asyncTokenType=*/Type(),
        /*asyncDependencies=*/ValueRange(), /*workgroupAttributions=*/TypeRange(),
        /*privateAttributions=*/TypeRange(), clusterSize, one, one);
    clustered->setDiscardableAttrs(launch->getDiscardableAttrDictionary());
    // The builder makes those of a launch without clusters.
    Block &body = clustered.getBody().front();
    while (body.getNumArguments() < clustered.getNumConfigRegionAttributes())
      body.addArgument(host.getIndexType(), loc);
    auto replace = [](gpu::KernelDim3 from, gpu::KernelDim3 to) {
      from.x.replaceAllUsesWith(to.x);
      from.y.replaceAllUsesWith(to.y);
      from.z.replaceAllUsesWith(to.z);
    };
    replace(launch.getBlockIds(), clustered.getBlockIds());
    replace(launch.getThreadIds(), clustered.getThreadIds());
    replace(launch.getGridSize(), clustered.getGridSize());
    replace(launch.getBlockSize(), clustered.getBlockSize());
    body.getOperations().splice(body.end(), launch.getBody().front().getOperations());
    launch.erase();
    return clustered;
  }

  void replacePositions() {
    SmallVector<OpFoldResult> basis = positions.front().getPaddedBasis();
    SmallVector<Value> sizes;
    for (OpFoldResult size : basis)
      sizes.push_back(getValueOrCreateConstantIndexOp(host, loc, size));
    Value clusterSize = createClusterSize(sizes[coordinate]);
    sizes[coordinate] = arith::DivUIOp::create(host, loc, sizes[coordinate], clusterSize);
    Value cluster = createLaunch(clusterSize).getClusterIds()->x;
    for (affine::AffineDelinearizeIndexOp position : positions) {
      OpBuilder b(position);
      Location at = position.getLoc();
      auto whole = affine::AffineDelinearizeIndexOp::create(b, at, cluster, sizes);
      SmallVector<Value> results(whole.getResults());
      Value rank = gpu::ClusterBlockIdOp::create(b, at, gpu::Dimension::x);
      Value first = arith::MulIOp::create(b, at, results[coordinate], clusterSize);
      results[coordinate] = arith::AddIOp::create(b, at, first, rank);
      position.replaceAllUsesWith(results);
      position.erase();
    }
  }

  gpu::LaunchOp launch;
  int64_t ctas;
  OpBuilder host;
  Location loc;
  SmallVector<affine::AffineDelinearizeIndexOp> positions;
  unsigned coordinate = 0;
  SmallVector<hopper::ChannelOp> shared;
};

struct FormClustersPass : attn::impl::HopperFormClustersBase<FormClustersPass> {
  using Base::Base;

  void runOnOperation() override {
    if (ctas < 1 || ctas > hopper::kCtasPerCluster ||
        !llvm::isPowerOf2_64(uint64_t(int64_t(ctas)))) {
      getOperation().emitError() << "a cluster has 1, 2, 4 or 8 CTAs, got " << int64_t(ctas);
      return signalPassFailure();
    }
    if (ctas == 1)
      return;
    SmallVector<gpu::LaunchOp> launches;
    getOperation().walk([&](gpu::LaunchOp launch) {
      if (!launch.hasClusterSize())
        launches.push_back(launch);
    });
    for (gpu::LaunchOp launch : launches)
      ClusterFormer(launch, ctas).run();
  }
};

} // namespace
