// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of compiled functions with tensors and scalars, whatever they run on.

#ifndef ATTN_TOOLS_ATTN_RUN_CALL_H
#define ATTN_TOOLS_ATTN_RUN_CALL_H

#include "Arguments.h"
#include "attn/Target/Target.h"

namespace attn {

/// One function with all of its arguments, ready to be called repeatedly.
class Call {
public:
  virtual ~Call() = default;

  /// Runs once; the results can be read afterwards.
  virtual llvm::Error run() = 0;
  /// Seconds of each of so many runs.
  virtual llvm::Expected<std::vector<double>> time(unsigned repetitions) = 0;

  const HostTensor &getResult(unsigned index) const { return results[index]; }
  llvm::ArrayRef<ValueType> getResultTypes() const { return types; }
  uint64_t getResultBytes() const;

protected:
  /// Allocates the results and fills them with NaN (integers: the largest
  /// value): an element that is not written must not look like a right one.
  llvm::Error createResults(llvm::ArrayRef<ValueType> resultTypes,
                            llvm::ArrayRef<ShapeRules::Shape> shapes, bool guard);
  /// The results are the arguments after the run: copies of them.
  llvm::Error copyArguments(llvm::ArrayRef<Operand> arguments, int64_t pad, bool guard);

  std::vector<HostTensor> results;
  llvm::SmallVector<ValueType> types;
};

/// The pointers that a function behind a C interface takes, see
/// CpuExecutable::Packed.
class Slots {
public:
  /// `count` says how many are added at most.
  explicit Slots(size_t count);
  /// Scalars live at `value` until the call.
  void addScalar(void *value) { slots.push_back(value); }
  void addPointer(void *pointer);
  void addTensor(llvm::SmallVector<int64_t, 16> descriptor);
  void addOperand(const Operand &operand);
  void **data() { return slots.data(); }

private:
  std::vector<llvm::SmallVector<int64_t, 16>> descriptors;
  std::vector<void *> pointers;
  std::vector<void *> slots;
};

/// Whether attn-emit-shape-function makes a function of the results' sizes.
bool hasShapeFunction(mlir::func::FuncOp function);

/// The shapes of a function's results, by its shape function, where it has one.
llvm::Expected<std::vector<ShapeRules::Shape>>
computeResultShapes(const target::Function &code, mlir::func::FuncOp function,
                    llvm::ArrayRef<Operand> arguments);

} // namespace attn

#endif
