// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Roles.h"

using namespace mlir;
using namespace attn;

std::optional<unsigned> hopper::findComputeRole(RolesOp roles) {
  std::optional<unsigned> found;
  for (auto [number, name] : llvm::enumerate(roles.getNames().getAsValueRange<StringAttr>()))
    if (name.starts_with(kComputeRole))
      found = number;
  return found;
}
