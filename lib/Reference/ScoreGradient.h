// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The derivative of a score region along a row, and the gradients of what the
// region captures.

#ifndef ATTN_LIB_REFERENCE_SCOREGRADIENT_H
#define ATTN_LIB_REFERENCE_SCOREGRADIENT_H

#include "Rows.h"
#include <utility>

namespace attn {

/// The gradients of the float captures: what a row adds is summed by itself
/// first, as any program with rows would.
template <typename T> class CaptureSums {
public:
  CaptureSums(mlir::ValueRange captures, Lookup lookup) {
    for (mlir::Value capture : captures) {
      RefTensorPtr tensor = lookup(capture);
      sums.push_back({tensor->kind, tensor->shape, {}, {}, {}});
      if (!isFloat(tensor->kind))
        continue;
      sums.back().total.resize(tensor->floats.size());
      sums.back().row.resize(tensor->floats.size());
    }
  }

  bool empty() const {
    return llvm::none_of(sums, [](const Sum &sum) { return isFloat(sum.kind); });
  }
  void add(unsigned capture, int64_t position, T value) {
    Sum &sum = sums[capture];
    if (!isFloat(sum.kind))
      return;
    if (sum.row[position] == T(0))
      sum.touched.push_back(position);
    sum.row[position] += value;
  }
  void finishRow() {
    for (Sum &sum : sums) {
      for (int64_t position : sum.touched)
        sum.total[position] += std::exchange(sum.row[position], T(0));
      sum.touched.clear();
    }
  }
  llvm::ArrayRef<int64_t> shape(unsigned capture) const { return sums[capture].shape; }
  /// Appends the gradients, in the captures' types where `precision` asks.
  void appendTo(std::vector<RefTensorPtr> &results, Precision precision) const {
    for (const Sum &sum : sums) {
      if (!isFloat(sum.kind))
        continue;
      auto tensor = std::make_shared<RefTensor>(sum.kind, sum.shape);
      for (auto [to, from] : llvm::zip(tensor->floats, sum.total))
        to = precision == Precision::SameType ? roundTo(sum.kind, double(from)) : double(from);
      results.push_back(tensor);
    }
  }

private:
  struct Sum {
    ElementKind kind;
    llvm::SmallVector<int64_t, 4> shape;
    std::vector<T> total, row;
    std::vector<int64_t> touched;
  };
  std::vector<Sum> sums;
};

/// In exact precision the derivative is that of the score region, by reverse
/// mode over its program; the gradient region is not looked at, so that it is
/// checked. In the same type the gradient region is what is run.
template <typename T> class ScoreGradient {
public:
  ScoreGradient() = default;
  static llvm::Expected<ScoreGradient> create(mlir::Region &score, mlir::Region &gradient,
                                              unsigned numIndices, mlir::ValueRange captures,
                                              Lookup lookup, Precision precision) {
    ScoreGradient result;
    result.numIndices = numIndices;
    result.derive = precision == Precision::Exact;
    llvm::SmallVector<bool> varying(1 + numIndices, false);
    varying.front() = varying.back() = true;
    auto region =
        ScalarRegion::create(result.derive ? score : gradient, varying, captures, lookup, precision,
                             /*trailing=*/result.derive ? 0 : 1);
    if (!region)
      return region.takeError();
    result.region = std::move(*region);
    return result;
  }

  /// What a thread needs.
  struct State {
    std::vector<Slot> slots;
    std::vector<double> adjoints;
  };
  State makeState() const {
    State state{region.makeSlots(), {}};
    state.adjoints.assign(state.slots.size(), 0);
    return state;
  }

  bool startRow(State &state, llvm::ArrayRef<int64_t> leading, Fault &fault) const {
    return attn::startRow(region, state.slots, 1, leading, fault);
  }

  /// The gradient `ds` of a score before the region from the one after it.
  bool runPoint(State &state, T s, int64_t j, T dt, T &ds, CaptureSums<T> &sums,
                Fault &fault) const {
    ds = dt;
    if (!region)
      return true;
    Slot *slots = state.slots.data();
    slots[region->argument(0)].f = double(s);
    slots[region->argument(numIndices)].i = j;
    if (!derive)
      slots[region->argument(1 + numIndices)].f = double(dt);
    if (!region->runPoint(slots, fault))
      return false;
    if (!derive) {
      ds = T(slots[region->result(0)].f);
      return accumulate(slots, sums, fault);
    }
    double *adjoints = state.adjoints.data();
    adjoints[region->result(0)] += double(dt);
    region->reversePoint(slots, adjoints, reader(sums));
    ds = T(std::exchange(adjoints[region->argument(0)], 0.0));
    return true;
  }

  /// After the last pair of a row.
  void finishRow(State &state, CaptureSums<T> &sums) const {
    if (region && derive) {
      double *adjoints = state.adjoints.data();
      region->reverseRow(state.slots.data(), adjoints, reader(sums));
      for (auto [value, slot] : region->getOuterScalars())
        sums.add(llvm::cast<mlir::BlockArgument>(value).getArgNumber() - firstCapture(), 0,
                 T(adjoints[slot]));
      state.adjoints.assign(state.adjoints.size(), 0);
    }
    sums.finishRow();
  }

private:
  unsigned firstCapture() const { return 1 + numIndices; }
  auto reader(CaptureSums<T> &sums) const {
    return [this, &sums](unsigned argument, int64_t position, double adjoint) {
      sums.add(argument - firstCapture(), position, T(adjoint));
    };
  }
  bool accumulate(const Slot *slots, CaptureSums<T> &sums, Fault &fault) const {
    for (const auto &accumulation : region->getAccumulations()) {
      unsigned capture = accumulation.argument - firstCapture();
      int64_t position;
      if (!ScalarProgram::locate(sums.shape(capture), accumulation.indices, slots, accumulation.op,
                                 "adds", position, fault))
        return false;
      sums.add(capture, position, T(slots[accumulation.value].f));
    }
    return true;
  }

  ScalarRegion region;
  unsigned numIndices = 0;
  bool derive = false;
};

} // namespace attn

#endif
