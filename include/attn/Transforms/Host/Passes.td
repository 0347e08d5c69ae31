// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_TRANSFORMS_HOST_PASSES
#define ATTN_TRANSFORMS_HOST_PASSES

include "mlir/Pass/PassBase.td"

def AttnEmitShapeFunction : Pass<"attn-emit-shape-function", "::mlir::ModuleOp"> {
  let summary = "Give each public function one that computes its results' sizes";
  let description = [{
    For each public function with ranked tensor results, adds a function
    `@<name>_shape` that takes the same arguments and returns the sizes of the
    results, all dimensions of all tensor results in order, as index values. A
    caller uses it to allocate the results. It contains no computation on
    elements: a size that cannot be expressed in sizes of the arguments (and
    scalar arguments) is an error.

    The pass must run before attention ops are expanded to loops, while result
    sizes can be reified.

    ```mlir
    func.func @main(%q: tensor<2x8x?x64xf32>, %k: tensor<2x8x?x64xf32>,
                    %v: tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32> {
      %o = attn.forward %q, %k, %v : ...
      return %o : tensor<2x8x?x64xf32>
    }
    ```

    gives beside it

    ```mlir
    func.func @main_shape(%q: tensor<2x8x?x64xf32>, %k: tensor<2x8x?x64xf32>,
                          %v: tensor<2x8x?x64xf32>) -> (index, index, index, index) {
      %c2 = arith.constant 2 : index
      %c8 = arith.constant 8 : index
      %c64 = arith.constant 64 : index
      %n = tensor.dim %q, %c2 : tensor<2x8x?x64xf32>
      return %c2, %c8, %n, %c64 : index, index, index, index
    }
    ```

    Needed by: all kernels that `attn-run` and `libattnc` compile from tensors.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def AttnSpecializeSingleQueries : Pass<"attn-specialize-single-queries", "::mlir::ModuleOp"> {
  let summary = "Calls with one query get versions of their own";
  let description = [{
    Where it is known only when the function is called that an `attn.forward` or `attn.backward`
    has one query, or as many heads as key heads, adds versions for one query (decoding): a copy of the function, with
    `attn.version_of` and `attn.when`, in which attention sees one query by its types. Rows of
    its nests are then the heads that share a key head. Where the number of heads is open, too, one
    version is for as many key heads as query heads (`ungrouped`), and another one for groups.

    ```mlir
    func.func @f(%q: tensor<1x8x?x64xf32>, %k: tensor<1x8x?x64xf32>) -> tensor<1x8x?x64xf32> {
      %o, %lse = attn.forward %q, %k, %k : ...
      return %o : tensor<1x8x?x64xf32>
    }
    ```

    gets beside it

    ```mlir
    func.func @f_0(%q: tensor<1x8x?x64xf32>, %k: tensor<1x8x?x64xf32>) -> tensor<1x8x?x64xf32>
        attributes {attn.version_of = "f",
                    attn.when = [#attn.size<argument = 0, dim = 2, exactly 1>]} {
      %q1 = tensor.cast %q : tensor<1x8x?x64xf32> to tensor<1x8x1x64xf32>
      %o1, %lse1 = attn.forward %q1, %k, %k : ...
      %o = tensor.cast %o1 : tensor<1x8x1x64xf32> to tensor<1x8x?x64xf32>
      return %o : tensor<1x8x?x64xf32>
    }
    ```

    `attn-merge-versions` makes one function of them again. A function of one query by its types
    gets the version without groups alone. Left as they are: functions in which a query is no argument or has
    another known length, and those of one query and known heads.

    Needed by: decoding on CPUs.
  }];
  let options = [
    Option<"openLengths", "open-lengths", "bool", "true",
           "Also functions whose number of queries is open, not only those of one query by types">,
  ];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def AttnMergeVersions : Pass<"attn-merge-versions", "::mlir::ModuleOp"> {
  let summary = "Versions of a function become branches of one function";
  let description = [{
    The versions of each `attn.versions`, lowered to memory, become one function: a chain of `scf.if`
    over their conditions, in order, with the last version in the last branch. What their modules
    hold beside the function moves to the module around, under a new name where its own is taken.

    ```mlir
    attn.versions @f {
      module attributes {attn.when = [#attn.size<argument = 0, dim = 0, at_most 64>]} {
        func.func @f(%x: memref<?xf32>) { short; return }
      }
    }, {
      module { func.func @f(%x: memref<?xf32>) { long; return } }
    }
    ```

    becomes

    ```mlir
    func.func @f(%x: memref<?xf32>) {
      %n = memref.dim %x, %c0 : memref<?xf32>
      %is_short = arith.cmpi ule, %n, %c64 : index
      scf.if %is_short { short } else { long }
      return
    }
    ```

    A function with `attn.version_of = "f"` is a version of the function `@f` beside it, and becomes
    a branch of that in the same way.

    Refused: versions with results or other types than the last one's, functions of several
    blocks, and versions of no function.

    Needed by: kernels that depend on sizes or strides of a call (on a CPU, on one query).
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect"];
}

#endif
