// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Executes hopper IR on the host, warpgroup by warpgroup, and reports what the
// hardware would leave undefined. docs/interpreter.md has the model.

#ifndef ATTN_INTERPRETER_INTERPRETER_H
#define ATTN_INTERPRETER_INTERPRETER_H

#include "attn/Runtime/HostTensor.h"
#include "mlir/Support/LLVM.h"
#include <memory>

namespace mlir::func {
class FuncOp;
}

namespace attn {

/// Which warpgroup runs next.
enum class InterpreterOrder {
  Random,     // any, after each hopper op
  RoundRobin, // each in turn, one hopper op at a time
  Ahead,      // the first warpgroup that can: producers as far ahead as they can
  Behind      // the last warpgroup that can: producers as late as they can
};

/// When asynchronous copies and products happen, between their start and the
/// wait that covers them.
enum class InterpreterTiming { Early, Late, Random };

struct InterpreterOptions {
  InterpreterOrder order = InterpreterOrder::Random;
  InterpreterTiming timing = InterpreterTiming::Random;
  uint64_t seed = 0;
  /// How many CTAs of a launch run at the same time.
  unsigned ctas = 2;
  /// How many CTAs of a launch run at the same time where they wait for each other; 0: as many as
  /// 132 multiprocessors have room for.
  unsigned residentCtas = 0;
};

/// The `number`-th of a series of interleavings: first each order with each
/// timing, then random ones from different seeds.
InterpreterOptions getInterleaving(unsigned number, uint64_t seed);
/// "ahead, late" or "random, random, seed 7".
std::string describe(const InterpreterOptions &options);

struct InterpreterStatistics {
  uint64_t launches = 0, ctas = 0, instructions = 0, copies = 0, products = 0;
};

class Program;

/// A function, made ready to be run any number of times.
class Interpreter {
public:
  /// Translates `function`: func, arith, math, scf, vector, memref, affine and
  /// gpu ops, and the hopper dialect. What it does not know is an error at the
  /// op.
  static mlir::FailureOr<Interpreter> create(mlir::func::FuncOp function);
  Interpreter(Interpreter &&);
  ~Interpreter();

  /// Runs with one tensor per argument: a memref is the tensor's memory, a
  /// scalar a tensor of rank 0. The first thing that goes wrong is an error at
  /// the op, with notes at the others that take part.
  mlir::LogicalResult run(llvm::ArrayRef<const HostTensor *> arguments,
                          const InterpreterOptions &options);
  const InterpreterStatistics &getStatistics() const { return statistics; }
  /// Whether some result depends on the order of the CTAs (tma.reduce).
  bool addsInAnyOrder() const;

private:
  explicit Interpreter(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program;
  InterpreterStatistics statistics;
};

} // namespace attn

#endif
