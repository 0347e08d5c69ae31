// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Channels, barriers, products under way and tensor maps.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn::hopper;

#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Hopper/IR/HopperTypes.cpp.inc"

void HopperDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "attn/Dialect/Hopper/IR/HopperTypes.cpp.inc"
      >();
}
