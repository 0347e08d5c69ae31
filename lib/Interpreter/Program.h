// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A function as a list of instructions on numbered slots. Control flow is
// jumps, so that the state of a warpgroup is its frame and one number, and any
// of them can be stopped between two instructions.

#ifndef ATTN_LIB_INTERPRETER_PROGRAM_H
#define ATTN_LIB_INTERPRETER_PROGRAM_H

#include "Value.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringMap.h"
#include <functional>

namespace attn {
namespace interpreter {

class Fiber;

/// What became of an instruction.
enum class Step {
  Next,
  Jumped,   // the fiber's next instruction has been set
  Blocked,  // to be tried again when something else has happened
  Finished, // the end of the fiber
  Failed    // an error has been reported
};

struct Instruction {
  using Handler = Step (*)(Fiber &, const Instruction &);
  Handler run = nullptr;
  mlir::Operation *op = nullptr;
  llvm::SmallVector<unsigned, 4> operands, results;
  /// Elements of the first result (or of what is written); a scalar is one.
  int64_t count = 1;
  bool scalar = true;
  /// A hopper op: others may run before the next instruction.
  bool yields = false;
  ElementKind kind = ElementKind::I64;
  size_t target = 0;
  llvm::SmallVector<int64_t, 6> numbers;
  /// What a handler keeps for itself.
  std::shared_ptr<const void> data;

  template <typename T> const T &get() const { return *static_cast<const T *>(data.get()); }
};

/// What a gpu.launch has: its body, and all that its CTAs keep in shared
/// memory.
struct LaunchInfo {
  mlir::Operation *op;
  size_t body = 0;
  llvm::SmallVector<unsigned, 12> arguments;
  llvm::SmallVector<mlir::Operation *> allocations, barriers, channels;
  mlir::Operation *roles = nullptr;
  /// Where its CTAs report (hopper.report), by slots, but for flags of warpgroups.
  llvm::SmallVector<unsigned> reports;
  /// Its CTAs wait for each other.
  bool hasSemaphores = false;
  /// Of threads: global memory that they write, as the host knows it, and how many CTAs at most
  /// share a multiprocessor.
  llvm::SmallVector<unsigned> written;
  llvm::SmallPtrSet<void *, 4> writtenMemory; ///< the same as opaque values of the IR
  int64_t occupancy = 1;
  /// It is the code of one thread (hopper.threads), with shared memory that all of a CTA have.
  bool ofThreads = false;
  llvm::SmallVector<mlir::MemRefType> shared;
  llvm::SmallVector<ElementKind> sharedKinds;
  llvm::SmallVector<unsigned> sharedSlots;
};

} // namespace interpreter

class Program {
public:
  std::vector<interpreter::Instruction> instructions;
  /// Constants are in it already.
  std::vector<interpreter::Value> frame;
  llvm::SmallVector<unsigned> arguments;
  llvm::SmallVector<ElementKind> argumentKinds;
  std::vector<std::unique_ptr<interpreter::LaunchInfo>> launches;
  mlir::func::FuncOp function;
  bool addsInAnyOrder = false;
};

namespace interpreter {

/// Makes instructions of ops. The families of ops register what they know.
class Translator {
public:
  using Rule = std::function<mlir::LogicalResult(Translator &, mlir::Operation *)>;

  explicit Translator(Program &program);
  mlir::LogicalResult translate(mlir::func::FuncOp function);

  void add(llvm::StringRef op, Rule rule) { rules[op] = std::move(rule); }
  /// An op whose handler needs nothing but operands and results.
  void add(llvm::StringRef op, Instruction::Handler handler);

  /// All ops of the block but the terminator.
  mlir::LogicalResult translateBody(mlir::Block &block);
  Instruction &emit(mlir::Operation *op, Instruction::Handler handler);
  /// Instructions that stem from an op's structure.
  Instruction &emitBare(mlir::Operation *op, Instruction::Handler handler);
  /// Copies values at the same time: `to` may be read by `from`.
  void emitMoves(mlir::Operation *op, mlir::ValueRange from, mlir::ValueRange to);
  size_t here() const { return program.instructions.size(); }
  Instruction &at(size_t index) { return program.instructions[index]; }
  unsigned slot(mlir::Value value);
  unsigned newSlot();
  Value &constant(mlir::Value value) { return program.frame[slot(value)]; }

  /// Whether a called function is not among those that call it.
  bool enter(mlir::Operation *callee) { return calls.insert(callee).second; }
  void leave(mlir::Operation *callee) { calls.erase(callee); }

  Program &program;
  LaunchInfo *launch = nullptr;

private:
  mlir::LogicalResult translateOp(mlir::Operation *op);

  llvm::StringMap<Rule> rules;
  llvm::DenseMap<mlir::Value, unsigned> slots;
  llvm::SmallPtrSet<mlir::Operation *, 4> calls;
};

/// Sets count, kind and scalar for values of `type`; fails for types that are
/// not executed (floats of 8 bits, for one).
mlir::LogicalResult setShape(Instruction &instruction, mlir::Type type);

void registerArith(Translator &translator);
void registerMath(Translator &translator);
void registerControl(Translator &translator);
void registerVector(Translator &translator);
void registerTransfers(Translator &translator);
void registerMemRef(Translator &translator);
void registerAffine(Translator &translator);
void registerHopperMemory(Translator &translator);
void registerHopperBarriers(Translator &translator);
void registerHopperProducts(Translator &translator);
void registerHopperChannels(Translator &translator);
void registerThreads(Translator &translator);
void registerPages(Translator &translator);
void registerTileCopies(Translator &translator);
void registerGlobalAccesses(Translator &translator);
/// An error outside of a launch of threads.
mlir::LogicalResult expectThreads(Translator &translator, mlir::Operation *op);

/// Memory that a CTA has, in a launch of threads; loads and stores of it.
bool isShared(mlir::MemRefType type);
mlir::LogicalResult translateShared(Translator &translator, mlir::Operation *op);

} // namespace interpreter
} // namespace attn

#endif
