// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the attention ops of the reference share: score and mask regions run
// along one row at a time, the threads, and the orders of sums.

#ifndef ATTN_LIB_REFERENCE_ROWS_H
#define ATTN_LIB_REFERENCE_ROWS_H

#include "Attention.h"
#include "ScalarProgram.h"
#include <atomic>
#include <mutex>

namespace attn {

/// A region of an attention op with its captures. It may be absent.
class ScalarRegion {
public:
  /// `varying` has one entry per argument before the captures: does it change
  /// along a row? `trailing` more varying arguments follow the captures.
  static llvm::Expected<ScalarRegion> create(mlir::Region &region, llvm::ArrayRef<bool> varying,
                                             mlir::ValueRange captures, Lookup lookup,
                                             Precision precision, unsigned trailing = 0);

  explicit operator bool() const { return program.has_value(); }
  const ScalarProgram &operator*() const { return *program; }
  const ScalarProgram *operator->() const { return &*program; }
  std::vector<Slot> makeSlots() const {
    return program ? program->makeSlots() : std::vector<Slot>();
  }

private:
  std::optional<ScalarProgram> program;
  std::vector<RefTensorPtr> captures;
  llvm::DenseMap<mlir::Value, const RefTensor *> tensors;
  llvm::DenseMap<mlir::Value, Slot> scalars;
};

/// The first fault of any thread.
class FirstFault {
public:
  void report(const Fault &newFault);
  bool any() const { return failed.load(std::memory_order_relaxed); }
  llvm::Error take() const;

private:
  std::mutex mutex;
  std::atomic<bool> failed{false};
  Fault fault;
};

/// Runs body(index) for 0..count-1 on the shared threads.
void forEachParallel(int64_t count, llvm::function_ref<void(int64_t)> body);

/// What a thread needs to run the regions of a row.
struct RowState {
  std::vector<Slot> score, mask, factor;
  std::vector<uint8_t> keep;
};

/// Sets the indices of a row and runs what is fixed along it. `first` is the
/// position of the first index among the program's arguments.
bool startRow(const ScalarRegion &region, std::vector<Slot> &slots, unsigned first,
              llvm::ArrayRef<int64_t> indices, Fault &fault);

/// Which keys of the row are kept.
bool fillMask(const ScalarRegion &mask, RowState &state, unsigned numLeading, int64_t length,
              Fault &fault);

/// Applies the score region to the kept elements of a row.
template <typename T>
bool applyScore(const ScalarRegion &score, RowState &state, unsigned numLeading,
                std::vector<T> &row, Fault &fault) {
  if (!score)
    return true;
  Slot *slots = state.score.data();
  unsigned value = score->argument(0), key = score->argument(1 + numLeading),
           result = score->result(0);
  for (int64_t j = 0, e = row.size(); j < e; ++j) {
    if (!state.keep[j])
      continue;
    slots[value].f = double(row[j]);
    slots[key].i = j;
    if (!score->runPoint(slots, fault))
      return false;
    row[j] = T(slots[result].f);
  }
  return true;
}

/// What the factor region gives for key `j`; 1 without one.
template <typename T>
bool findFactor(const ScalarRegion &factor, RowState &state, unsigned numLeading, int64_t j,
                T &result, Fault &fault) {
  result = T(1);
  if (!factor)
    return true;
  Slot *slots = state.factor.data();
  slots[factor->argument(numLeading)].i = j;
  if (!factor->runPoint(slots, fault))
    return false;
  result = T(slots[factor->result(0)].f);
  return true;
}

/// The indices of a row of a tensor: all but the innermost.
llvm::SmallVector<int64_t, 4> leadingIndices(int64_t row, llvm::ArrayRef<int64_t> shape);

/// The numbers 0..count-1 in the order-th order: 0 is increasing, others are
/// shuffled.
std::vector<int64_t> sumOrder(int64_t count, unsigned order);

/// Whether the weights of a row are rounded to the tensors' type before their
/// products. Odd orders do not, so that a baseline exists whose output is
/// rounded as that of a program more exact than it would be.
inline bool roundsWeights(Precision precision, unsigned order) {
  return precision == Precision::SameType && order % 2 == 0;
}

} // namespace attn

#endif
