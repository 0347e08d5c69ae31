// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The attention ops of the reference.

#ifndef ATTN_LIB_REFERENCE_ATTENTION_H
#define ATTN_LIB_REFERENCE_ATTENTION_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Reference/RefTensor.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

// `order` names an order of the sums; see evaluate() in Reference.h.

/// Finds the tensor or scalar that a value holds.
using Lookup = llvm::function_ref<RefTensorPtr(mlir::Value)>;

llvm::Expected<std::vector<RefTensorPtr>> evaluateForward(ForwardOp op, Lookup lookup,
                                                          Precision precision, unsigned order);
llvm::Expected<std::vector<RefTensorPtr>> evaluateBackward(BackwardOp op, Lookup lookup,
                                                           Precision precision, unsigned order);
llvm::Expected<std::vector<RefTensorPtr>> evaluateJvp(JvpOp op, Lookup lookup, Precision precision,
                                                      unsigned order);
llvm::Expected<std::vector<RefTensorPtr>> evaluateBackwardJvp(BackwardJvpOp op, Lookup lookup,
                                                              Precision precision, unsigned order);
llvm::Expected<RefTensorPtr> evaluateSoftmax(SoftmaxOp op, Lookup lookup, Precision precision);
llvm::Expected<std::vector<RefTensorPtr>>
evaluateSoftmaxBackward(SoftmaxBackwardOp op, Lookup lookup, Precision precision);

/// The rows of sequences; a page outside of the pool that a sequence uses is an error.
llvm::Expected<RefTensorPtr> evaluatePages(PagesOp op, Lookup lookup);

/// An error at an op: its location, its name, and what it did.
llvm::Error makeError(mlir::Operation *op, const llvm::Twine &message);

} // namespace attn

#endif
