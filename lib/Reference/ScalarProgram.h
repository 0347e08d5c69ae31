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
    std::function<const RefTensor *(mlir::Value)> tensor = [](mlir::Value) {
      return nullptr;
    };
    std::function<const Slot *(mlir::Value)> scalar = [](mlir::Value) {
      return nullptr;
    };
  };

  /// Translates all ops of `block` but its terminator, whose operands are the
  /// results. Scalar arguments of the block become the first slots, in order;
  /// those with `varying` set change within a row. `extra` more varying index
  /// slots follow them, read by linalg.index.
  static llvm::Expected<ScalarProgram>
  compile(mlir::Block &block, llvm::ArrayRef<bool> varying, Precision precision,
          const Environment &environment, unsigned extra = 0);
  /// The same for one op, whose operands are found in the environment.
  static llvm::Expected<ScalarProgram> compile(mlir::Operation *op,
                                               Precision precision,
                                               const Environment &environment);

  /// Slots with all constants set. Each thread needs its own.
  std::vector<Slot> makeSlots() const { return initial; }
  /// The slot of a block argument, and of a result.
  unsigned argument(unsigned index) const { return arguments[index]; }
  unsigned extra(unsigned index) const { return firstExtra + index; }
  unsigned result(unsigned index) const { return results[index]; }

  /// Runs the instructions that are fixed along a row, or the others. False
  /// where one of them faults.
  bool runRow(Slot *slots, Fault &fault) const {
    return run(row, slots, fault);
  }
  bool runPoint(Slot *slots, Fault &fault) const {
    return run(point, slots, fault);
  }
  bool empty() const { return row.empty() && point.empty(); }

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
    mlir::Operation *op;
  };
  struct Compiler;

  static Opcode findOpcode(llvm::StringRef name);
  static bool run(const std::vector<Instruction> &code, Slot *slots,
                  Fault &fault);
  static bool step(const Instruction &instruction, Slot *slots, Fault &fault);
  static bool extract(const Instruction &instruction, Slot *slots,
                      Fault &fault);
  static bool divide(const Instruction &instruction, Slot *slots, Fault &fault);
  static double floatOp(const Instruction &instruction, const Slot *slots);
  static int64_t integerOp(const Instruction &instruction, const Slot *slots);

  std::vector<Instruction> row, point;
  std::vector<Slot> initial;
  llvm::SmallVector<unsigned> arguments, results;
  unsigned firstExtra = 0;
};

} // namespace attn

#endif
