// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The index arithmetic of hopper-schedule-tiles and hopper-order-additions, taken out of kernels
// as the compiler makes them: which role of which CTA visits which tiles, in which order.

#ifndef ATTN_UNITTESTS_HOPPER_TILEORDER_H
#define ATTN_UNITTESTS_HOPPER_TILEORDER_H

#include "attn/Interpreter/Interpreter.h"
#include "attn/Runtime/HostTensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <functional>
#include <string>
#include <vector>

namespace attn {

/// Sizes of an attention.
struct Sizes {
  int64_t batch, keyHeads, group, queries, keys;
};

/// A function as it is in front of the two passes; its tiles are marked.
class Kernel {
public:
  /// Whether hopper-order-additions deals the tiles, or lets loops start at different places.
  enum Additions { None, Started, Dealt };

  Kernel(mlir::OwningOpRef<mlir::func::FuncOp> function, Additions additions)
      : function(std::move(function)), additions(additions) {}

  /// The kernels that `text`, a module, becomes by attn-lower-to-hopper with these options, of its
  /// gradient if asked for. Empty where that fails.
  static std::vector<Kernel> make(mlir::MLIRContext &context, llvm::StringRef text,
                                  llvm::StringRef options, bool ofGradient);

private:
  friend class TileOrder;
  mlir::OwningOpRef<mlir::func::FuncOp> function;
  Additions additions;
};

/// What the CTAs of one launch visit.
class TileOrder {
public:
  /// Runs the passes for `ctas` CTAs: one for each launch with several roles.
  static std::vector<TileOrder> make(const Kernel &kernel, int64_t ctas);

  /// Orders with one mistake each: a constant that some op of a role or of the host takes is one
  /// more or, for every second one, one less. Each order of `make` has its own, `every`-th of them.
  static std::vector<std::vector<TileOrder>> makeMutants(const Kernel &kernel, int64_t ctas,
                                                         size_t every);

  /// The arithmetic as text: whether two orders are one.
  const std::string &getText() const { return text; }
  /// Of a mutant: what was changed.
  const std::string &getMistake() const { return mistake; }

  /// What is wrong: roles of a CTA that differ, a CTA that has no tile, tiles that are visited
  /// never, twice, or are none. Empty if all is well.
  std::string check(const Sizes &sizes);

private:
  static std::vector<TileOrder> extract(const Kernel &kernel, int64_t ctas);
  bool finish();
  std::string judge(llvm::ArrayRef<int64_t> log) const;

  mlir::OwningOpRef<mlir::func::FuncOp> function;
  /// Of each argument behind the log: the argument and dimension of which it is the size.
  std::vector<std::pair<unsigned, int64_t>> dimensions;
  std::vector<unsigned> ranks; // of the function's arguments
  std::unique_ptr<Interpreter> interpreter;
  size_t roles = 0;
  bool mayPad = false; // a line may end with a tile that is empty
  std::string text, mistake;
};

} // namespace attn

#endif
