// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// hopper: channels, queues of tiles with value semantics.

#include "Elementwise.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;
using namespace attn::hopper;

/// The warpgroups of the role that receives from the channel, in the CTA whose first
/// warpgroup is `first`: it is the role of the channel's receive ops.
static void findReceivers(ChannelState &channel, const LaunchInfo &launch, unsigned first) {
  if (!launch.roles)
    return;
  auto roles = cast<RolesOp>(launch.roles);
  for (auto [role, region] : llvm::enumerate(roles.getBodies())) {
    int64_t count = roles.getAgents(role);
    bool receives = false;
    for (Operation *user : channel.op->getUsers())
      receives |= isa<ReceiveOp>(user) && region.isAncestor(user->getParentRegion());
    for (unsigned warpgroup = first; receives && warpgroup < first + unsigned(count); ++warpgroup)
      channel.receivers.push_back(warpgroup);
    first += unsigned(count);
  }
}

static LogicalResult translateChannel(Translator &translator, Operation *op) {
  if (!translator.launch)
    return op->emitError("expects to be in a launch");
  Instruction &instruction = translator.emit(op, [](Fiber &fiber, const Instruction &i) {
    fiber.result(i).integer = i.numbers[0] + fiber.rank * fiber.cluster->launch.channels.size();
    return Step::Next;
  });
  instruction.numbers = {int64_t(translator.launch->channels.size())};
  translator.launch->channels.push_back(op);
  return success();
}

static ChannelState &channelOf(Fiber &fiber, const Instruction &i, unsigned operand) {
  ChannelState &channel = fiber.cluster->channels[size_t(fiber.integer(i, operand))];
  if (channel.receivers.empty())
    findReceivers(channel, fiber.cluster->launch, fiber.rank * fiber.cluster->countWarpgroups());
  return channel;
}

/// The CTAs of a cluster send the same to a multicast channel.
static LogicalResult checkSame(Fiber &fiber, const Instruction &i, const ChannelState &channel) {
  Cluster &cluster = *fiber.cluster;
  size_t number = size_t(&channel - cluster.channels.data());
  const ChannelState::Tile &tile = channel.sent.back();
  for (unsigned rank = 0; rank < cluster.ctas; ++rank) {
    const auto &other = cluster.channels[cluster.getPlace(cluster.channels, number, rank)].sent;
    if (other.size() < channel.sent.size())
      continue;
    const ChannelState::Tile &same = other[channel.sent.size() - 1];
    if (same.coordinates != tile.coordinates || same.source->base != tile.source->base)
      return cluster.error(i.op) << "CTAs " << fiber.rank << " and " << rank
                                 << " of a cluster send different tiles to a multicast channel";
  }
  return success();
}

static Step send(Fiber &fiber, const Instruction &i) {
  unsigned last = unsigned(i.operands.size()) - 1;
  ChannelState &channel = channelOf(fiber, i, last);
  auto op = cast<ChannelOp>(channel.op);
  int64_t sent = int64_t(channel.sent.size());
  for (unsigned warpgroup : channel.receivers)
    if (sent - channel.released[warpgroup] >= int64_t(op.getDepth()))
      return Step::Blocked;
  SmallVector<int64_t> coordinates;
  for (unsigned k = 1; k < last; ++k)
    coordinates.push_back(fiber.integer(i, k));
  auto source = std::static_pointer_cast<MemRef>(fiber.operand(i, 0).object);
  channel.sent.push_back(
      {copyTile(*source, coordinates, op.getChannel().getType().getTile()), source, coordinates});
  if (op.getMulticast() && failed(checkSame(fiber, i, channel)))
    return Step::Failed;
  ++fiber.machine->statistics.copies;
  fiber.cluster->changed();
  return Step::Next;
}

static Step receive(Fiber &fiber, const Instruction &i) {
  ChannelState &channel = channelOf(fiber, i, 0);
  int64_t &received = channel.received[fiber.warpgroup];
  if (received == int64_t(channel.sent.size()))
    return Step::Blocked;
  auto view = std::make_shared<SmemView>();
  view->own = channel.sent[size_t(received)].data;
  view->released = std::make_shared<Operation *>(nullptr);
  channel.views[fiber.warpgroup].push_back(view->released);
  ++received;
  fiber.result(i).object = view;
  return Step::Next;
}

static Step held(Fiber &fiber, const Instruction &i) {
  ChannelState &channel = channelOf(fiber, i, 0);
  int64_t oldest = channel.released[fiber.warpgroup];
  if (oldest == channel.received[fiber.warpgroup]) {
    fiber.cluster->error(i.op) << "holds no tile of this channel";
    return Step::Failed;
  }
  auto view = std::make_shared<SmemView>();
  view->own = channel.sent[size_t(oldest)].data;
  view->released = channel.views[fiber.warpgroup][size_t(oldest)];
  fiber.result(i).object = view;
  return Step::Next;
}

static Step release(Fiber &fiber, const Instruction &i) {
  ChannelState &channel = channelOf(fiber, i, 0);
  int64_t &released = channel.released[fiber.warpgroup];
  if (released == channel.received[fiber.warpgroup]) {
    fiber.cluster->error(i.op) << "releases a tile that it has not received";
    return Step::Failed;
  }
  const auto &handle = channel.views[fiber.warpgroup][size_t(released)];
  for (const std::shared_ptr<Product> &product : fiber.products)
    if (llvm::is_contained(product->received, handle)) {
      InFlightDiagnostic diagnostic = fiber.cluster->error(i.op);
      diagnostic << "releases a tile that a product may still be reading: no wait covers it";
      diagnostic.attachNote(product->event->op->getLoc()) << "the product";
      return Step::Failed;
    }
  *handle = i.op;
  ++released;
  // The data goes once everybody has released it.
  int64_t all = released;
  for (unsigned warpgroup : channel.receivers)
    all = std::min(all, channel.released[warpgroup]);
  for (int64_t n = all; n-- > 0 && channel.sent[size_t(n)].data;)
    channel.sent[size_t(n)].data.reset();
  fiber.cluster->changed();
  return Step::Next;
}

void interpreter::registerHopperChannels(Translator &translator) {
  translator.add("hopper.channel", translateChannel);
  translator.add("hopper.send", send);
  translator.add("hopper.receive", receive);
  translator.add("hopper.held", held);
  translator.add("hopper.release", release);
}
