// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Interfaces of attributes of the attn dialect, which attributes of targets have, too.

#ifndef ATTN_INTERFACES
#define ATTN_INTERFACES

include "mlir/IR/Interfaces.td"

def Attn_VersionConditionInterface : AttrInterface<"VersionConditionInterface"> {
  let cppNamespace = "::attn";
  let description = [{
    When a version of a function (`attn.versions`) may run: a question about the arguments of a
    call, in `attn.when` of the version's module.
  }];
  let methods = [InterfaceMethod<[{
      Builds the answer, an i1, where the arguments are those of `version`, which is lowered to
      memory. `last` is the version that has no conditions. Null if the answer is always yes,
      a constant if it is always no.
    }],
    "::mlir::Value", "build",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::FunctionOpInterface":$version,
         "::mlir::FunctionOpInterface":$last)>];
}

#endif
