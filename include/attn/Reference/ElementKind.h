// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_REFERENCE_ELEMENTKIND_H
#define ATTN_REFERENCE_ELEMENTKIND_H

#include "attn/Runtime/HostTensor.h"
#include "mlir/IR/Types.h"
#include <optional>

namespace attn {
/// The element kind of a scalar type, if the reference and the runner know it.
std::optional<ElementKind> getElementKind(mlir::Type type);
} // namespace attn

#endif
