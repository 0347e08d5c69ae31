// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block of scalar ops as a list of instructions on numbered slots: the
// regions of attention ops, the bodies of linalg ops, and single scalar ops.
// Instructions that depend on no varying argument run once per row.

#ifndef ATTN_LIB_REFERENCE_SCALARPROGRAM_H
#define ATTN_LIB_REFERENCE_SCALARPROGRAM_H

#include "attn/Reference/ElementKind.h"
#include "attn/Reference/RefTensor.h"
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <functional>

namespace attn {

/// A scalar: a float, or a sign-extended integer.
union Slot {
  double f;
  int64_t i;
};

/// Why a program stopped.
struct Fault {
  mlir::Operation *op = nullptr;
  std::string message;
};

class ScalarProgram {
public:
  /// What the values defined outside of the program are.
  struct Environment {
    std::function<const RefTensor *(mlir::Value)> tensor = [](mlir::Value) { return nullptr; };
    std::function<const Slot *(mlir::Value)> scalar = [](mlir::Value) { return nullptr; };
  };

  /// Translates all ops of `block` but its terminator, whose operands are the
  /// results. Scalar arguments of the block become the first slots, in order;
  /// those with `varying` set change within a row. `extra` more varying index
  /// slots follow them, read by linalg.index. The last `trailing` arguments of
  /// the block are varying ones too.
  static llvm::Expected<ScalarProgram> compile(mlir::Block &block, llvm::ArrayRef<bool> varying,
                                               Precision precision, const Environment &environment,
                                               unsigned extra = 0, unsigned trailing = 0);
  /// The same for one op, whose operands are found in the environment.
  static llvm::Expected<ScalarProgram> compile(mlir::Operation *op, Precision precision,
                                               const Environment &environment);

  /// Slots with all constants set. Each thread needs its own.
  std::vector<Slot> makeSlots() const { return initial; }
  /// The slot of a block argument (the trailing ones follow the leading ones),
  /// and of a result.
  unsigned argument(unsigned index) const { return arguments[index]; }
  unsigned extra(unsigned index) const { return firstExtra + index; }
  unsigned result(unsigned index) const { return results[index]; }

  /// Runs the instructions that are fixed along a row, or the others. False
  /// where one of them faults.
  bool runRow(Slot *slots, Fault &fault) const { return run(row, slots, fault); }
  bool runPoint(Slot *slots, Fault &fault) const { return run(point, slots, fault); }
  bool empty() const { return row.empty() && point.empty(); }

  /// An attn.accumulate: it adds a slot's value to an element of the gradient
  /// of a block argument, at every point.
  struct Accumulation {
    unsigned argument, value;
    llvm::SmallVector<unsigned, 4> indices;
    mlir::Operation *op;
  };
  llvm::ArrayRef<Accumulation> getAccumulations() const { return accumulations; }

  /// What a float read from element `position` of the block argument's tensor
  /// adds to its gradient.
  using ReadAdjoint = llvm::function_ref<void(unsigned argument, int64_t position, double adjoint)>;
  /// Reverse mode, after a run: moves the adjoints (one per slot) of what the
  /// instructions computed to what they read. Those of a row may be collected
  /// over its points first, since the result is linear in them. An operand
  /// gets half where a maximum or minimum is a tie, none through a rounding to
  /// integers.
  void reversePoint(const Slot *slots, double *adjoints, ReadAdjoint read) const {
    reverse(point, slots, adjoints, read);
  }
  void reverseRow(const Slot *slots, double *adjoints, ReadAdjoint read) const {
    reverse(row, slots, adjoints, read);
  }
  /// Slots of the scalars that the environment gave.
  llvm::ArrayRef<std::pair<mlir::Value, unsigned>> getOuterScalars() const { return outerScalars; }

  /// The position of an element in a tensor whose indices are in slots, or a
  /// fault at `op`, which `verb` outside.
  static bool locate(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<unsigned> indices,
                     const Slot *slots, mlir::Operation *op, llvm::StringRef verb,
                     int64_t &position, Fault &fault);

private:
  enum class Opcode : uint8_t;
  struct Instruction {
    Opcode code;
    /// Bits of an integer result (and of integer operands), 64 for index.
    uint8_t width;
    /// The type that a float result is rounded to, or F64.
    ElementKind rounding;
    uint8_t predicate;
    unsigned target;
    unsigned operands[3];
    const RefTensor *tensor;
    llvm::SmallVector<unsigned, 4> indices;
    /// Of a read from a block argument, its number.
    unsigned argument;
    mlir::Operation *op;
  };
  struct Compiler;

  static Opcode findOpcode(llvm::StringRef name);
  static bool run(const std::vector<Instruction> &code, Slot *slots, Fault &fault);
  static bool step(const Instruction &instruction, Slot *slots, Fault &fault);
  static bool extract(const Instruction &instruction, Slot *slots, Fault &fault);
  static int64_t divide(const Instruction &instruction, const Slot *slots);
  static double floatOp(const Instruction &instruction, const Slot *slots);
  static int64_t integerOp(const Instruction &instruction, const Slot *slots);
  static void reverse(const std::vector<Instruction> &code, const Slot *slots, double *adjoints,
                      ReadAdjoint read);
  static void partials(const Instruction &instruction, const Slot *slots, double *derivatives);

  std::vector<Instruction> row, point;
  std::vector<Slot> initial;
  llvm::SmallVector<unsigned> arguments, results;
  std::vector<Accumulation> accumulations;
  llvm::SmallVector<std::pair<mlir::Value, unsigned>> outerScalars;
  unsigned firstExtra = 0;
};

} // namespace attn

#endif
