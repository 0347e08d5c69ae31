// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Regions along rows. See Rows.h.

#include "Rows.h"
#include "attn/Runtime/ThreadPool.h"
#include "mlir/IR/OpDefinition.h"
#include "llvm/Support/raw_ostream.h"
#include <numeric>
#include <random>

using namespace mlir;
using namespace attn;

llvm::Error attn::makeError(Operation *op, const llvm::Twine &message) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto loc = op->getLoc()->findInstanceOf<FileLineColLoc>())
    os << loc.getFilename().getValue() << ":" << loc.getLine() << ":" << loc.getColumn() << ": ";
  os << "'" << op->getName() << "' " << message;
  return llvm::createStringError(text);
}

llvm::Expected<ScalarRegion> ScalarRegion::create(Region &region, ArrayRef<bool> varying,
                                                  ValueRange captures, Lookup lookup,
                                                  Precision precision, unsigned trailing) {
  ScalarRegion result;
  if (region.empty())
    return result;
  Block &block = region.front();
  // Kept as members: the program reads them as long as it runs.
  for (auto [argument, capture] :
       llvm::zip(block.getArguments().drop_front(varying.size()), captures)) {
    RefTensorPtr value = lookup(capture);
    result.captures.push_back(value);
    if (isa<RankedTensorType>(capture.getType())) {
      result.tensors[argument] = value.get();
      continue;
    }
    Slot slot;
    if (isFloat(value->kind))
      slot.f = value->floats[0];
    else
      slot.i = value->integers[0];
    result.scalars[argument] = slot;
  }
  ScalarProgram::Environment environment;
  environment.tensor = [&](Value value) { return result.tensors.lookup(value); };
  environment.scalar = [&](Value value) -> const Slot * {
    auto it = result.scalars.find(value);
    return it == result.scalars.end() ? nullptr : &it->second;
  };
  auto program = ScalarProgram::compile(block, varying, precision, environment,
                                        /*extra=*/0, trailing);
  if (!program)
    return program.takeError();
  result.program = std::move(*program);
  return result;
}

void FirstFault::report(const Fault &newFault) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!fault.op)
    fault = newFault;
  failed.store(true);
}

llvm::Error FirstFault::take() const {
  return fault.op ? makeError(fault.op, fault.message) : llvm::Error::success();
}

void attn::forEachParallel(int64_t count, llvm::function_ref<void(int64_t)> body) {
  ThreadPool::shared().parallelFor(
      count,
      [](int64_t index, void *context) {
        (*static_cast<llvm::function_ref<void(int64_t)> *>(context))(index);
      },
      &body);
}

bool attn::startRow(const ScalarRegion &region, std::vector<Slot> &slots, unsigned first,
                    ArrayRef<int64_t> indices, Fault &fault) {
  if (!region)
    return true;
  for (auto [position, index] : llvm::enumerate(indices))
    slots[region->argument(first + position)].i = index;
  return region->runRow(slots.data(), fault);
}

bool attn::fillMask(const ScalarRegion &mask, RowState &state, unsigned numLeading, int64_t length,
                    Fault &fault) {
  state.keep.assign(length, 1);
  if (!mask)
    return true;
  Slot *slots = state.mask.data();
  unsigned key = mask->argument(numLeading), result = mask->result(0);
  for (int64_t j = 0; j < length; ++j) {
    slots[key].i = j;
    if (!mask->runPoint(slots, fault))
      return false;
    state.keep[j] = slots[result].i != 0;
  }
  return true;
}

SmallVector<int64_t, 4> attn::leadingIndices(int64_t row, ArrayRef<int64_t> shape) {
  SmallVector<int64_t, 4> leading(shape.size() - 1);
  for (unsigned dim = leading.size(); dim-- > 0; row /= shape[dim])
    leading[dim] = row % shape[dim];
  return leading;
}

std::vector<int64_t> attn::sumOrder(int64_t count, unsigned order) {
  std::vector<int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  std::mt19937_64 random(order);
  if (order)
    for (int64_t n = count; n > 1; --n)
      std::swap(indices[n - 1], indices[random() % uint64_t(n)]);
  return indices;
}
