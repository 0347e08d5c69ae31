// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ThreadLaunch.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

MemRefType hopper::getSharedType(Type element, int64_t count) {
  auto memory = gpu::AddressSpaceAttr::get(element.getContext(), gpu::AddressSpace::Workgroup);
  return MemRefType::get({count}, element, MemRefLayoutAttrInterface(), memory);
}

gpu::LaunchOp hopper::createThreadLaunch(ImplicitLocOpBuilder &b, Value grid, int64_t threads,
                                         int64_t ctas, ArrayRef<Type> cells, int64_t occupancy) {
  auto index = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, value); };
  Value one = index(1), count = index(threads);
  Value cluster = ctas > 1 ? index(ctas) : Value();
  auto launch =
      gpu::LaunchOp::create(b, grid, one, one, count, one, one, Value(), Type(), {}, cells, {},
                            cluster, cluster ? one : Value(), cluster ? one : Value());
  // The builder makes those of a launch without clusters.
  Block &body = launch.getBody().front();
  unsigned first = body.getNumArguments() - unsigned(cells.size());
  for (unsigned at = first; at < launch.getNumConfigRegionAttributes(); ++at)
    body.insertArgument(at, b.getIndexType(), b.getLoc());
  b.setInsertionPointToEnd(&body);
  auto terminator = gpu::TerminatorOp::create(b);
  b.setInsertionPoint(terminator);
  ThreadsOp::create(b, occupancy ? b.getI64IntegerAttr(occupancy) : IntegerAttr());
  return launch;
}
