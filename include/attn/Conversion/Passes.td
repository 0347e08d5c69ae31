// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions between the levels below the tile program.

#ifndef ATTN_CONVERSION_PASSES
#define ATTN_CONVERSION_PASSES

include "mlir/Pass/PassBase.td"

def AttnAppendOutputs : Pass<"attn-append-outputs", "mlir::ModuleOp"> {
  let summary = "Return tensors through buffers that the caller gives";
  let description = [{
    Each tensor result of a public function becomes a memref argument at the
    end, of any strides but a unit innermost one, that the result is
    materialized in. `eliminate-empty-tensors` then computes it in place. Where
    the result only joins dimensions of a tensor (`tensor.collapse_shape`), the
    buffer is split (`memref.expand_shape`), and that tensor computed in it.

    ```mlir
    func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
      ...
      return %y : tensor<?xf32>
    }
    ```
    becomes
    ```mlir
    func.func @f(%x: tensor<?xf32>, %out: memref<?xf32, strided<[1], offset: ?>>) {
      ...
      bufferization.materialize_in_destination %y in restrict writable %out
      return
    }
    ```

    Needed by: all kernels.
  }];
  let dependentDialects = ["mlir::bufferization::BufferizationDialect",
                           "mlir::memref::MemRefDialect"];
}

def AttnBufferize : Pass<"attn-bufferize", "mlir::ModuleOp"> {
  let summary = "Bufferize a module with the function boundary of compiled code";
  let description = [{
    One-shot bufferization including function boundaries. A tensor argument
    becomes a memref of dynamic offset and strides whose innermost stride is
    one; the caller sees to that.

    ```mlir
    func.func @f(%x: tensor<4x?xf32>)
    ```
    becomes
    ```mlir
    func.func @f(%x: memref<4x?xf32, strided<[?, 1], offset: ?>>)
    ```

    Needed by: all kernels.
  }];
  let dependentDialects = ["mlir::bufferization::BufferizationDialect",
                           "mlir::memref::MemRefDialect"];
}

def AttnResolveExpansions : Pass<"attn-resolve-expansions"> {
  let summary = "Turn expansions into several dynamic sizes into casts";
  let description = [{
    Rewrites each `memref.expand_shape` that splits one dimension into two or
    more dynamic ones (query heads into key heads and groups) to a
    `memref.reinterpret_cast` with computed strides. Upstream's
    expand-strided-metadata expects one dynamic size per split dimension.

    ```mlir
    // Before.
    %e = memref.expand_shape %m [[0, 1]] output_shape [%h, %g]
        : memref<?xf32, strided<[?], offset: ?>> into memref<?x?xf32, strided<[?, ?], offset: ?>>
    // After.
    %base, %offset, %size, %stride = memref.extract_strided_metadata %m : ...
    %outer = arith.muli %stride, %g : index
    %e = memref.reinterpret_cast %base to offset: [%offset], sizes: [%h, %g], strides: [%outer, %stride] : ...
    ```

    So does a `memref.subview` that leaves out dimensions of one element where its type does not tell which: all of
    `1x1x3x1x16` with unknown strides, without the fourth, has the type of it without the first, and others take
    them by their strides.

    Needed by: kernels with a dynamic number of heads, or of one query whose heads are rows.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect"];
}

def AttnResolvePages : Pass<"attn-resolve-pages", "mlir::func::FuncOp"> {
  let summary = "Read tiles of sequences in pages row by row";
  let description = [{
    Replaces each read of an `attn.pages` on memrefs. A tile (`vector.transfer_read`) is copied to scratch, each
    row from where the table says, zeros where the sequence has no such row; an element (`memref.load`) is looked
    up where it is read. A use of another kind is an error that names it.

    ```mlir
    %k = attn.pages %pool[%table] lengths(%used) : memref<?x8x16x64xf32>, ...
    %t = vector.transfer_read %k[%b, %h, %j, %c0], %zero : memref<?x8x?x64xf32>, vector<128x64xf32>
    ```
    becomes
    ```mlir
    %scratch = memref.alloca() : memref<128x64xf32>
    scf.for %r = %c0 to %c128 step %c1 {
      %row = arith.addi %j, %r : index
      %exists = arith.cmpi slt, %row, %rows : index
      scf.if %exists {
        ... // table[b, row floordiv 16]
        %x = vector.transfer_read %pool[%page, %h, %in, %c0], %zero : memref<?x8x16x64xf32>, vector<64xf32>
        vector.transfer_write %x, %scratch[%r, %c0] : vector<64xf32>, memref<128x64xf32>
      } else {
        vector.transfer_write %zeros, %scratch[%r, %c0] : vector<64xf32>, memref<128x64xf32>
      }
    }
    %t = vector.transfer_read %scratch[%c0, %c0], %zero : memref<128x64xf32>, vector<128x64xf32>
    ```

    Needed by: kernels for CPUs whose keys and values lie in pages.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect",
                           "mlir::scf::SCFDialect", "mlir::vector::VectorDialect"];
}

def AttnExpandCopies : Pass<"attn-expand-copies"> {
  let summary = "Expand memref copies to loops";
  let description = [{
    Replaces `memref.copy` of ranked memrefs by a nest of loops, and removes
    copies of a memref to itself, so that compiled code calls no library.

    ```mlir
    memref.copy %a, %b : memref<4xf32> to memref<4xf32, strided<[2]>>
    ```
    becomes
    ```mlir
    scf.for %i = %c0 to %c4 step %c1 {
      %x = memref.load %a[%i] : memref<4xf32>
      memref.store %x, %b[%i] : memref<4xf32, strided<[2]>>
    }
    ```

    Needed by: CPU kernels.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect",
                           "mlir::scf::SCFDialect"];
}

def AttnOutlineForalls : Pass<"attn-outline-foralls", "mlir::ModuleOp"> {
  let summary = "Run parallel loops on the threads of the runtime";
  let description = [{
    The body of each outermost `scf.forall` becomes a private function
    `<parent>_task(index, context)`. The loop becomes a call of
    `attnRuntimeParallelFor(count, task, context)`, where `count` is the number
    of iterations and `context` points to what the body uses from outside. The
    last dimension of the loop runs fastest in the index. Foralls inside a body
    stay.

    ```mlir
    scf.forall (%i, %j) in (%n, %m) {
      memref.store %v, %x[%i, %j] : memref<?x?xf32>
    }
    ```
    becomes
    ```mlir
    %count = arith.muli %n, %m : index
    ...
    func.call @attnRuntimeParallelFor(%count_i64, %task, %context)
        : (i64, !llvm.ptr, !llvm.ptr) -> ()
    ```

    Needed by: CPU kernels.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::func::FuncDialect",
                           "mlir::LLVM::LLVMDialect"];
}

def AttnMoveFloat16AsIntegers : Pass<"attn-move-float16-as-integers"> {
  let summary = "16-bit floats move as integers";
  let description = [{
    In the LLVM dialect, values of bf16 and f16 become 16-bit integers: arguments of functions
    and blocks, and what is loaded, stored, selected and shuffled. Ops that compute with them,
    and conversions, are between casts. Where the processor cannot move such vectors (x86
    without AVX-512), LLVM takes them apart by way of f32, and calls a library function that C
    libraries need not have.

    ```mlir
    %x = llvm.intr.masked.load %p, %mask, %rest {alignment = 2 : i32}
        : (!llvm.ptr, vector<8xi1>, vector<8xbf16>) -> vector<8xbf16>
    %y = llvm.select %nan, %c, %x : vector<8xi1>, vector<8xbf16>
    %z = llvm.fpext %y : vector<8xbf16> to vector<8xf32>
    ```
    becomes
    ```mlir
    %x = llvm.intr.masked.load %p, %mask, %rest {alignment = 2 : i32}
        : (!llvm.ptr, vector<8xi1>, vector<8xi16>) -> vector<8xi16>
    %y = llvm.select %nan, %c, %x : vector<8xi1>, vector<8xi16>
    %h = llvm.bitcast %y : vector<8xi16> to vector<8xbf16>
    %z = llvm.fpext %h : vector<8xbf16> to vector<8xf32>
    ```

    Data (`llvm.mlir.global`) stay as they are. Refused: an op that computes with a struct or an
    array of such floats; an op that computes a number (not a vector) of bf16: LLVM 22 rounds it,
    and loses its sign where nothing else of it is read.

    Needed by: CPU kernels with bf16 or f16.
  }];
  let dependentDialects = ["mlir::LLVM::LLVMDialect"];
}

def AttnExpandMath : Pass<"attn-expand-math"> {
  let summary = "Expand exp and other math functions to arithmetic on vectors";
  let description = [{
    `math.exp` on f32 and f64 scalars and vectors becomes range reduction, a
    polynomial and an exponent shift, within 2 units in the last place. Results
    under 2^-125 (f32) or 2^-1021 (f64) may be flushed to zero; -inf gives 0, what
    is too large +inf, and NaN stays. `math.tanh` on f32, a polynomial below 1 and
    1 - 2 / (exp(2x) + 1) from there on, is within 1 unit in the last place.
    `math.sin` and `math.cos` on f32 are reduced modulo pi/2 in f64, within 2 units in
    the last place for |x| up to 10^5; `math.atan` and `math.atan2` on f32, a polynomial, and
    `math.log1p` and `math.expm1` on f64, by `math.log` and `math.exp`, are within 3.
    Functions of f32 are computed in f32 on smaller types. log, log1p, erf and
    others on f32 vectors take upstream's polynomials. Ops in `keep` stay. With `doubles`
    those of f64 that a library has for a CPU (exp2, log, log2, log10, rsqrt, tanh) become arithmetic,
    too, and `math.exp`, whatever `keep` says, within 4 units in the last place. `arith.truncf` of
    f64 to bf16 rounds to f32 first, as PyTorch does.

    ```mlir
    %y = math.exp %x : vector<16xf32>
    ```
    becomes
    ```mlir
    %t = math.fma %xc, %log2e, %shifter : vector<16xf32>
    %n = arith.subf %t, %shifter : vector<16xf32>
    %r0 = math.fma %n, %minus_ln2_high, %xc : vector<16xf32>
    %r = math.fma %n, %minus_ln2_low, %r0 : vector<16xf32>
    ... // 2 exp(r) by Horner's rule
    %bits = arith.shli %t_bits, %c23 : vector<16xi32> // 2^(n-1)
    %y = arith.mulf %p, %scale : vector<16xf32>
    ```

    Needed by: all kernels (on the GPU, for functions that the device lacks).
  }];
  let options = [
    ListOption<"keep", "keep", "std::string", "Ops that stay, such as math.exp">,
    Option<"doubles", "doubles", "bool", /*default=*/"false",
           "Functions of f64 that no instruction has become arithmetic, too">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::math::MathDialect",
                           "mlir::vector::VectorDialect"];
}

def AttnExpandRandomBits : Pass<"attn-expand-random-bits"> {
  let summary = "Expand attn.random_bits to arithmetic";
  let description = [{
    Two calls of Philox4x32-10: one with what belongs to a head, on numbers where its operands are the
    same in a whole vector, and one for the pair. Each element has its own calls; kernels of
    warps, in which eight pairs share one, are lowered by `convert-hopper-to-nvvm`:
    `only-numbers` leaves vectors.

    ```mlir
    %bits = attn.random_bits %seed, %offset at %b, %h, %i, %j : vector<16xi32>
    ```
    becomes
    ```mlir
    ...                                            // k, on numbers
    %i1 = arith.andi %i0, %c-9 : vector<16xi32>
    %j1 = arith.andi %j0, %c-10 : vector<16xi32>
    %low, %high = arith.mului_extended %i1, %c-766435501 : vector<16xi32>
    ...                                            // ten rounds
    %bits = arith.select %isOdd, %swapped, %w : vector<16xi1>, vector<16xi32>
    ```

    Needed by: kernels with dropout.
  }];
  let options = [
    Option<"onlyNumbers", "only-numbers", "bool", /*default=*/"false", "Leave vectors as they are">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::vector::VectorDialect"];
}

def AttnLowerTiles : Pass<"attn-lower-tiles", "mlir::func::FuncOp"> {
  let summary = "Lower vectors of tile size to loops over machine vectors";
  let description = [{
    Turns every vector of a function, of any static shape, into loops over
    vectors that fit a register, with scratch memory for what has to be kept.
    Expects memrefs at the edges (after bufferization) and structured control
    flow. Afterwards no vector is longer than `vector-bits` of f32 elements, and
    loops and branches carry none.

    * Dimensions that an op ties together form a class and share a loop. The
      classes have one order: first those that contractions keep more often than
      anything reduces them (the query rows of attention), so that reductions
      are elementwise across vectors; then those that are contiguous in memory.
      Every value, contraction and loop nest is vectorised along its first
      class, the lanes. Scratch is stored with the lanes innermost.
    * `attn.scatter_add` becomes a load, an addition and a store per element; a
      table of at most 4096 elements gets the sums of a tile, which are taken in
      scratch, so that errors stay small.
    * Contractions become register-blocked kernels of `vector.fma`. The operand
      that has the lanes is read as vectors: from scratch; directly from memory,
      where it is contiguous along the lanes and not written in between; from a
      second scratch, transposed once in registers, where it is kept with other
      lanes. (The backward sums over the keys for dQ only: all else has the lanes
      of the keys, dQ those of the head dimension.) The other operand is read as
      scalars, from scratch or directly from memory. What is used in memory is
      copied once where it may lie outside, or where its rows are far apart.
      Where both operands have the lanes (inner products), it is a loop of
      `vector.fma`, which takes its terms in the same order and blocks.
    * Elementwise ops, broadcasts and reads are evaluated in the loop that uses
      them; a value is stored only where several loops need it.
    * Loop-carried tiles live in one buffer and are updated in place, also
      through nested loops and chains of them.
    * Transfers that may leave their memref are masked or guarded: nothing
      outside is read or written.

    Scratch is `memref.alloca`, 64 bytes aligned, at the top of the innermost
    `scf.forall` or function. Different function arguments are taken as
    different memory. Each elementwise op rounds for itself: a score that two loops compute is the same
    number in both. A `maxnumf` reduction over nothing but NaN gives -inf, and
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

    Needed by: CPU kernels.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", "0",
           "Bits of a vector register: 128, 256 or 512; 0 takes the host's">,
    Option<"matrixUnit", "matrix-unit", "std::string", "\"none\"",
           "What multiplies tiles of bf16: none (f32), avx512_bf16 or amx">,
  ];
  let dependentDialects = ["mlir::amx::AMXDialect", "mlir::arith::ArithDialect",
                           "mlir::math::MathDialect", "mlir::memref::MemRefDialect",
                           "mlir::scf::SCFDialect", "mlir::vector::VectorDialect",
                           "mlir::x86vector::X86VectorDialect"];
}

def AttnRoundProducts : Pass<"attn-round-products", "mlir::func::FuncOp"> {
  let summary = "Round the f32 operand of a product with a bf16 tile to bf16";
  let description = [{
    A matrix unit multiplies two tiles of bf16 and adds in f32. Of a product with a tile that was
    extended from bf16, the other operand (weights, their gradients) is rounded to bf16. Products
    of tiles with few rows stay as they are: no unit computes them.

    ```mlir
    %v = arith.extf %value : vector<128x64xbf16> to vector<128x64xf32>
    %o = vector.contract {...} %p, %v, %acc : vector<64x128xf32>, vector<128x64xf32> into vector<64x64xf32>
    ```
    becomes
    ```mlir
    %v = arith.extf %value : vector<128x64xbf16> to vector<128x64xf32>
    %r = arith.truncf %p : vector<64x128xf32> to vector<64x128xbf16>
    %q = arith.extf %r : vector<64x128xbf16> to vector<64x128xf32>
    %o = vector.contract {...} %q, %v, %acc : vector<64x128xf32>, vector<128x64xf32> into vector<64x64xf32>
    ```

    Needed by: CPU kernels of bf16 on hosts with AVX512-BF16 or AMX.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect"];
}

def AttnEmulateMatrixUnits : Pass<"attn-emulate-matrix-units", "mlir::func::FuncOp"> {
  let summary = "What matrix units compute, by loops and vectors";
  let description = [{
    Replaces the ops of the `amx` dialect by vectors, loops and memory for each tile, and those of
    `x86vector` that multiply and round bf16 by arithmetic, with the sums of the instructions: code
    for them runs on any host, for tests. (Numbers below 2^-126 are not taken as 0.)

    ```mlir
    %a = amx.tile_load %m[%i, %j] : memref<64x64xbf16> into !amx.tile<16x32xbf16>
    ```
    becomes
    ```mlir
    %a = memref.alloca() : memref<16x32xbf16>
    scf.for %k = %c0 to %c16 step %c1 {
      %row = arith.addi %i, %k : index
      %v = vector.load %m[%row, %j] : memref<64x64xbf16>, vector<32xbf16>
      vector.store %v, %a[%k, %c0] : memref<16x32xbf16>, vector<32xbf16>
    }
    ```

    Needed by: tests of kernels for AMX and AVX512-BF16 (`matrix-unit=emulated_amx`).
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect",
                           "mlir::scf::SCFDialect", "mlir::vector::VectorDialect"];
}

def AttnLowerScatterSums : Pass<"attn-lower-scatter-sums", "mlir::func::FuncOp"> {
  let summary = "Lower sums at computed indices to loops";
  let description = [{
    Each `attn.scatter_sum` on memrefs becomes loops. A coordinate that is itself an index of the
    destination is a dimension of a parallel loop: positions that differ in it add to different
    elements. Where no coordinate is, and an index depends on one coordinate alone, the iterations
    of the parallel loop own parts of that dimension of the destination: each runs along the
    coordinate, and goes on where the index is in its part. The other coordinates are loops inside,
    in order, so that each element is summed in an order that depends on sizes only.

    ```mlir
    attn.scatter_sum %x into %t at {
    ^bb0(%i: index, %j: index):
      %block = arith.floordivsi %i, %c8 : index
      attn.yield %block, %j : index, index
    } : memref<?x?xf32>, memref<16x?xf32>
    ```
    becomes
    ```mlir
    scf.forall (%j0) = (0) to (%cols) step (64) {
      scf.for %i = %c0 to %rows step %c1 {
        %block = arith.floordivsi %i, %c8 : index
        %inside = arith.cmpi ult, %block, %c16 : index
        scf.if %inside {
          %end = ... // min(%j0 + 64, %cols)
          scf.for %j = %j0 to %end step %c1 {
            %value = memref.load %x[%i, %j] : memref<?x?xf32>
            %old = memref.load %t[%block, %j] : memref<16x?xf32>
            %new = arith.addf %old, %value : f32
            memref.store %new, %t[%block, %j] : memref<16x?xf32>
          }
        }
      }
    }
    ```

    Refused: an `attn.scatter_sum` on tensors.

    Needed by: CPU gradients of captures that are read at computed indices.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect",
                           "mlir::scf::SCFDialect"];
}

def AttnLowerLaunches : Pass<"attn-lower-launches", "mlir::ModuleOp"> {
  let summary = "Turn launches of kernels into calls of the CUDA runtime";
  let description = [{
    The host side of a CUDA program. Runs when the kernels have become
    `gpu.binary` ops with PTX. Each function gets the running call as its first
    argument (`!llvm.ptr`), and hands it to the functions of
    `attn/Runtime/CudaHostInterface.h`:

    - `gpu.launch_func` becomes `attnCudaLaunch`, with the kernel's number, an
      array of grid, block and cluster sizes, of whether all blocks run at the same
      time (`hopper.cooperative`) and of with how many blocks at most the kernel, which waits by
      itself for the launches before it, is launched while they run (`hopper.early`, else 0), the
      dynamic shared bytes, and an array of pointers to the
      parameters. A memref
      is passed as its pointer (twice), offset, sizes and strides; a tensor map by value.
      The values are checked against the parameters of the entry in the PTX, which also
      say how wide an index is.
    - `hopper.tensor_map` becomes `attnCudaTensorMap`, which writes 128 bytes in
      the function's frame.
    - `memref.alloc` and `memref.dealloc` become `attnCudaAllocate` and
      `attnCudaFree`: workspace of the call. One that may lie in an argument (`hopper.aliases`)
      becomes `attnCudaAllocateAliasing`, with the argument's bytes if it is dense, else 0.

    The module's `attn.kernels` lists the kernels by number. Host code only
    computes sizes: an op that would read or write memory did not become part of
    a kernel, and is an error.

    ```mlir
    gpu.launch_func @kernels::@fill blocks in (%n, %c1, %c1) threads in (%c128, %c1, %c1)
        args(%x : memref<?xf32>)
    ```
    becomes
    ```mlir
    %slots = llvm.alloca %c5 x !llvm.ptr : (i64) -> !llvm.ptr
    ... // five stores of parameters, and of pointers to them
    %dims = llvm.alloca %c11 x i64 : (i64) -> !llvm.ptr
    ...
    call @attnCudaLaunch(%call, %kernel, %dims, %shared, %slots)
        : (!llvm.ptr, i32, !llvm.ptr, i32, !llvm.ptr) -> ()
    ```

    Needed by: all GPU kernels (their host side).
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::func::FuncDialect",
                           "mlir::LLVM::LLVMDialect", "mlir::memref::MemRefDialect"];
}

def ConvertHopperToNVVM : Pass<"convert-hopper-to-nvvm", "mlir::gpu::GPUModuleOp"> {
  let summary = "Lower kernels of the hopper protocol form to the code of one thread";
  let description = [{
    Each kernel (`gpu.func`, after `gpu-kernel-outlining`) becomes the code of one
    thread: scalars, `scf`, `nvvm`, and inline PTX for products and predicated
    memory accesses. Runs on PTX ISA 8.6 and sm_90a. Thread `t` of a warpgroup is
    lane `l = t % 32` of warp `w = t / 32`.

    * A tile `vector<64xNxT>` is N/2 scalars per thread, as the accumulator of
      WGMMA: scalar `4 j + 2 i + k` is row `16 w + l / 4 + 8 i`, column
      `8 j + 2 (l % 4) + k`. A kernel that needs no such layout has 8 columns side by
      side in a thread instead of 2 (where tiles have multiples of 32), and reads and
      writes 16 bytes at a time. Pairs of 16-bit floats are kept as `vector<2xT>`. A
      vector of rank 1 holds a value per row (2 scalars) or per column (N/4),
      which its definition and uses tell; `vector.step`, splats and what is
      computed from them can be both.
    * Reductions over dimension 1 are taken in the thread, then over the four
      lanes of a row. A comparison of index vectors becomes one of a 32-bit
      difference with a constant.
    * Tiles in shared memory lie at multiples of 1024 bytes in the order of their
      `hopper.alloc`; mbarriers follow. `hopper.shared_bytes` on the kernel is the
      total. One thread initialises the mbarriers before anything else; an
      mbarrier with `hopper.mbarrier.arrive` counts four arrivals per warpgroup,
      one by each warp.
    * `hopper.roles` branches on the warpgroup's number, with `setmaxnreg` where there
      are several roles. A role
      that has neither tiles nor named barriers is run by one thread. In other
      roles thread 0 of the warpgroup starts copies, expects and waits for stores.
    * A kernel waits until the launches before it have ended (`griddepcontrol.wait`), behind its
      mbarriers and in front of everything else. `hopper.early` says up to how many blocks it may
      be launched while they run: any number where it has several roles, a few hundred else.
    * A product is one asm statement, from `wgmma.fence` to `commit_group`; a wait
      passes the product's registers through. A left operand in registers that a loop
      does not change is copied in each iteration, for ptxas' sake.
    * A tensor map argument becomes a pointer; `hopper.tensor_maps` on the kernel
      has the numbers of these parameters, where a memref counts as its descriptor.
      The types of the launch's operands stay, so that passes up to
      `attn-finish-kernels` have to run in one nest on the `gpu.module`.
    * exp, exp2, log, tanh, rsqrt and f32 division use the approximate
      instructions, four tanh of a tile one reciprocal; multiplications and
      additions may be contracted.

    Errors: shapes that are no multiple of the layout; a vector used per row and
    per column that cannot be made both ways; constants that are no splat; ops that
    move elements between threads; functions without an instruction; more than
    232448 bytes of shared memory.

    ```mlir
    %t = hopper.wait %p pending(0) : !hopper.pending<vector<64x8xf32>> -> vector<64x8xf32>
    %m = vector.multi_reduction <maxnumf>, %t, %ninf [1] : vector<64x8xf32> to vector<64xf32>
    ```
    becomes
    ```mlir
    %r = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,=f,=f,0,1,2,3,~{memory}" %p0, %p1, %p2, %p3
    %t0 = llvm.extractvalue %r[0]
    ...
    %a = arith.maxnumf %t0, %t1 : f32
    %b = nvvm.shfl.sync bfly %all, %a, %c1, %c31 : f32 -> f32
    ...
    ```

    Needed by: all GPU kernels.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::cf::ControlFlowDialect",
                           "mlir::LLVM::LLVMDialect",
                           "mlir::math::MathDialect", "mlir::memref::MemRefDialect",
                           "mlir::NVVM::NVVMDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def AttnFinishKernels : Pass<"attn-finish-kernels", "mlir::gpu::GPUModuleOp"> {
  let summary = "Annotate kernels of the LLVM dialect";
  let description = [{
    After `convert-gpu-to-nvvm`: the parameters in `hopper.tensor_maps` are passed by
    value in constant memory, 128 bytes aligned to 64, and each kernel with `setmaxnreg`
    asks for one CTA per multiprocessor (`nvvm.minctasm`), without which ptxas ignores
    it.

    ```mlir
    llvm.func @f(%m: !llvm.ptr) attributes {hopper.tensor_maps = array<i64: 0>, nvvm.kernel}
    ```
    becomes
    ```mlir
    llvm.func @f(%m: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64, nvvm.grid_constant})
        attributes {nvvm.kernel, nvvm.minctasm = 1 : i32}
    ```

    Needed by: all GPU kernels.
  }];
  let dependentDialects = ["mlir::LLVM::LLVMDialect", "mlir::NVVM::NVVMDialect"];
}

def AttnDeduplicateKernels : Pass<"attn-deduplicate-kernels", "mlir::ModuleOp"> {
  let summary = "Kernels that are the same become one";
  let description = [{
    Of several `gpu.module`s that differ in their names only (versions of a function have kernels in
    common) the first one stays, and all launches take it.

    ```mlir
    gpu.launch_func @f_kernel::@f ...       gpu.launch_func @f_kernel::@f ...
    gpu.launch_func @f_kernel_0::@f ...     gpu.launch_func @f_kernel::@f ...
    gpu.module @f_kernel { ... }            gpu.module @f_kernel { ... }
    gpu.module @f_kernel_0 { ... }
    ```

    Needed by: GPU functions with several versions.
  }];
}

def AttnNameKernels : Pass<"attn-name-kernels", "mlir::ModuleOp"> {
  let summary = "Kernels of different modules get different names";
  let description = [{
    A kernel whose name another `gpu.module` has already gets a number behind it, so that one text
    can hold the code of all modules, and a profile tells kernels apart.

    ```mlir
    gpu.launch_func @f_kernel_0::@f ...     gpu.launch_func @f_kernel_0::@f_0 ...
    gpu.module @f_kernel {                  gpu.module @f_kernel {
      gpu.func @f() kernel                    gpu.func @f() kernel
    }                                       }
    gpu.module @f_kernel_0 {                gpu.module @f_kernel_0 {
      gpu.func @f() kernel                    gpu.func @f_0() kernel
    }                                       }
    ```

    Needed by: GPU functions with several kernels.
  }];
}

def AttnKernelsToPtx : Pass<"attn-kernels-to-ptx", "mlir::ModuleOp"> {
  let summary = "Turn modules of kernels into binaries that hold PTX";
  let description = [{
    As upstream's `gpu-module-to-binary{format=isa}`, for `gpu.module`s with a target
    (`nvvm-attach-target`), side by side where the context has threads. Besides, all inline assembly with side effects is
    convergent for LLVM: warps execute it together. Launches are marked with what
    kernels say of themselves (`hopper.cooperative`, `hopper.early`).

    ```mlir
    gpu.module @kernels [#nvvm.target<chip = "sm_90a">] {
      llvm.func @f() attributes {nvvm.kernel} { ... }
    }
    ```
    becomes
    ```mlir
    gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".version 8.6 ...">]
    ```

    Needed by: all GPU kernels.
  }];
}

#endif
