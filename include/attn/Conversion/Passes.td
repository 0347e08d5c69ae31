// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions between the levels below the tile program.

#ifndef ATTN_CONVERSION_PASSES
#define ATTN_CONVERSION_PASSES

include "mlir/Pass/PassBase.td"

def AttnLowerTiles : Pass<"attn-lower-tiles", "mlir::func::FuncOp"> {
  let summary = "Lower vectors of tile size to loops over machine vectors";
  let description = [{
    Turns every vector of a function, of any static shape, into loops over
    vectors that fit a register, with scratch memory for what has to be kept.
    Expects memrefs at the edges (after bufferization) and structured control
    flow. Afterwards no vector is longer than `vector-bits` of f32 elements, and
    loops and branches carry none.

    * Dimensions that an op ties together form a class and share a loop. One
      class is vectorised: where there are contractions, the one that all of
      them keep and nothing reduces (the query rows of attention), so that
      reductions are elementwise across vectors; else the one that is contiguous
      in memory. Scratch is stored with that class innermost.
    * Contractions become register-blocked kernels of `vector.fma`, with the
      other operand read as scalars, directly from memory where it lies inside.
    * Elementwise ops, broadcasts and reads are evaluated in the loop that uses
      them; a value is stored only where several loops need it.
    * Loop-carried tiles live in one buffer and are updated in place.
    * Transfers that may leave their memref are masked or guarded: nothing
      outside is read or written.

    Scratch is `memref.alloca`, 64 bytes aligned, at the top of the innermost
    `scf.forall` or function. Different function arguments are taken as
    different memory. A `maxnumf` reduction over nothing but NaN gives -inf, and
    `minnumf` +inf.

    ```mlir
    %t = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]}
        : memref<4x64xf32>, vector<4x64xf32>
    %s = vector.multi_reduction <add>, %t, %zero [0] : vector<4x64xf32> to vector<64xf32>
    vector.transfer_write %s, %y[%c0] {in_bounds = [true]} : vector<64xf32>, memref<64xf32>
    ```
    becomes (four accumulators of 16 elements, then the stores)
    ```mlir
    %r:4 = scf.for %i = %c0 to %c4 step %c1 iter_args(%a = %cst, ...) {
      %v = vector.load %x[%i, %c0] : memref<4x64xf32>, vector<16xf32>
      %s = arith.addf %v, %a : vector<16xf32>
      ...
    }
    ```
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", "0",
           "Bits of a vector register: 128, 256 or 512; 0 takes the host's">,
    Option<"fuseMultiplyAdd", "fuse-multiply-add", "bool", "true",
           "Allow elementwise products to be fused with sums (rounded once)">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::math::MathDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

#endif
