// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Interfaces of the attn dialect, which attributes and ops of targets have.

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

def Attn_RunConditionOpInterface : OpInterface<"RunConditionOpInterface"> {
  let cppNamespace = "::attn";
  let description = [{
    Ends a program, in which it stands before all else, unless what it asks of memory holds.
  }];
  let methods = [InterfaceMethod<[{
      Whether the program goes on in rare calls only.
    }],
    "bool", "isRare", (ins)>];
}

#endif
