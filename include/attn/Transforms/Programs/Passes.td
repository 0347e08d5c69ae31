// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on tile programs in memory (L2), in the order in which a pipeline for a GPU runs them.
// None knows a target: what one has room for comes as options.

#ifndef ATTN_TRANSFORMS_PROGRAMS_PASSES
#define ATTN_TRANSFORMS_PROGRAMS_PASSES

include "mlir/Pass/PassBase.td"

def AttnMapPrograms : Pass<"attn-map-programs", "::mlir::func::FuncOp"> {
  let summary = "Tile programs of one tile stay loops";
  let description = [{
    An outermost parallel loop of one iteration is mapped to a block, one whose bounds are computed from
    numbers, too. What is mapped to processing units is not folded away by canonicalisation, which would make its body the
    host's.

    ```mlir
    // Before.
    scf.forall (%i, %j) in (1, 1) { ... }
    // After.
    scf.forall (%i, %j) in (1, 1) { ... } {mapping = [#gpu.block<linear_dim_0>, #gpu.block<linear_dim_1>]}
    ```

    Needed by: GPU kernels of one CTA, of fixed size.
  }];
  let dependentDialects = ["mlir::gpu::GPUDialect"];
}

def AttnBranchByRows : Pass<"attn-branch-by-rows", "::mlir::func::FuncOp"> {
  let summary = "One of two exponents that rows choose between is left out where no row takes it";
  let description = [{
    A tile of weights is an exponential for the rows of large scores, and another one for all other
    rows (`attn-expand{large-scores=rows}`), both of a product with a number and a sum with a value of
    the row. Nearly no tile has a row of large scores. So there is one exponential, and a branch
    takes the first one's exponent, with all that only it needs, where some row does.

    ```mlir
    // Before.
    %is_large = ... : vector<64xi1>
    %exact = math.exp2 (math.fma %x, %c, (%u repeated))
    %plain = math.exp2 (math.fma %y, %k, (%v repeated))
    %p = arith.select (%is_large repeated), %exact, %plain
    // After.
    %some = vector.reduction <or>, %is_large {attn.may_hold}
    %z:2 = scf.if %some {
      scf.yield (arith.select (%is_large repeated), %x * (%c / %k), %y), (arith.select %is_large, %u, %v)
    } else {
      scf.yield %y, %v
    }
    %p = math.exp2 (math.fma %z#0, %k, (%z#1 repeated))
    ```

    `hopper-version-programs` makes two kernels of one with such a branch. A choice stays as it
    is where its condition differs within a row, or where one of the exponentials is used elsewhere.

    Needed by: GPU gradients, unless the option `large-scores` is off.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def AttnCarrySums : Pass<"attn-carry-sums", "::mlir::func::FuncOp"> {
  let summary = "Sums over parallel tiles that are stored are carried in registers instead";
  let description = [{
    A tile program (`scf.forall`) stores a tile in each iteration of its loop, and a
    statement sums what it stores over some of the program's variables (the gradient of a
    bias that batches share). The loops are interchanged: the stored dimension becomes
    parallel, and what is summed over becomes loops inside, with the sum carried. The terms
    are added in the same order. The memory of the terms goes; elementwise statements of the
    sum alone, and copies, are done with its tiles. What is filled in front of a copy to a part
    of it is filled only if that part is not all of it.

    ```mlir
    // Before.
    %P = memref.alloc(%B, %n, %m) : memref<?x?x?xf32>
    scf.forall (%b, %t) in (%B, %n ceildiv 128) {
      %x = vector.transfer_read %X[%b, %i, %c0]
      scf.for %j = %c0 to %m step %c64 {
        %y = vector.transfer_read %Y[%b, %j, %c0]
        ...
        vector.transfer_write %s, %P[%b, %i, %j] : vector<128x64xf32>
      }
    }
    linalg.generic ... ins(%P) outs(%S) // sum over b
    // After.
    scf.forall (%t, %u) in (%n ceildiv 128, %m ceildiv 64) {
      %sum = scf.for %b = %c0 to %B step %c1 iter_args(%a = %zero) {
        %x = vector.transfer_read %X[%b, %i, %c0]
        %y = vector.transfer_read %Y[%b, %j, %c0]
        ...
        %next = arith.addf %a, %s : vector<128x64xf32>
        scf.yield %next
      }
      vector.transfer_write %sum, %S[%i, %j]
    }
    ```

    The loop carries nothing and each iteration stores a tile of its own, so that no
    dependence forbids the interchange. Where its bounds leave out tiles, they must be the
    same for all that is summed, and such a tile's sum has no terms. A program stays where
    there is another loop in it, where its bounds, or the indices of the store, are of
    another form, where it stores elsewhere, too, or where what it reads is written in front
    of the statement.

    Needed by: GPU gradients of a bias that batches or heads share.
  }];
  let dependentDialects = ["mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::scf::SCFDialect", "mlir::vector::VectorDialect"];
}

def AttnTileStatements : Pass<"attn-tile-statements", "::mlir::func::FuncOp"> {
  let summary = "Statements that belong to no nest become tile programs";
  let description = [{
    Each `linalg` op on memrefs, and each `memref.copy` of scalars of rank 1 or more, in the
    body of a function becomes a parallel loop over its parallel dimensions, the last one in
    vectors of `lanes` elements, around loops over what it reduces, in order. Where nothing is
    reduced and no index is used, vectors are tiles of `rows` of the rows before it: whole rows,
    if the last dimension is static and 8 to 128 (a head's size), else, of three dimensions
    and more, 64 columns. A scalar that the host would load and
    store again becomes a loop with one iteration.

    ```mlir
    // Before.
    linalg.generic {... ["reduction", "parallel", "parallel"]}
        ins(%a : memref<?x?x?xf32>) outs(%b : memref<?x?xf32>) { add }
    // After.
    scf.forall (%i, %j) in (%n, %m ceildiv 64) {
      %start = vector.transfer_read %b[%i, 64 * %j] : memref<?x?xf32>, vector<64xf32>
      %sum = scf.for %k = %c0 to %l step %c1 iter_args(%s = %start) -> vector<64xf32> {
        %t = vector.transfer_read %a[%k, %i, 64 * %j] : memref<?x?x?xf32>, vector<64xf32>
        %u = arith.addf %s, %t : vector<64xf32>
        scf.yield %u
      }
      vector.transfer_write %sum, %b[%i, 64 * %j] : vector<64xf32>, memref<?x?xf32>
    }
    ```

    An `attn.scatter_sum` is such a statement: each element of the destination runs over all
    coordinates that are no index of the destination, and adds what has its indices. That is as
    many comparisons as there are elements of these dimensions, for each of the values.

    Refuses, with an error at the op, operands that are not indexed by loops, and
    bodies with ops that are neither elementwise nor loads at loops, or at one computed index.

    Needed by: GPU kernels with statements or copies outside of nests, such as most gradients.
  }];
  let options = [
    Option<"lanes", "lanes", "int64_t", /*default=*/"64", "Elements of a vector">,
    Option<"rows", "rows", "int64_t", /*default=*/"128", "Rows of a tile">];
  let dependentDialects = ["mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::gpu::GPUDialect", "mlir::linalg::LinalgDialect", "mlir::memref::MemRefDialect",
                           "mlir::scf::SCFDialect", "mlir::vector::VectorDialect"];
}

def AttnDivideColumns : Pass<"attn-divide-columns", "::mlir::func::FuncOp"> {
  let summary = "Programs without products have a few columns of a tile each";
  let description = [{
    A program that merges states of rows loops over them, and each thread of its warpgroup would
    have many columns of a few rows: few loads at a time, one after the other. Where what a program
    computes for a column follows from rows and from that column alone, its columns are divided
    (strip-mined), and the strips are a dimension of the program's grid. Vectors of rows are
    computed by each strip; the first one writes them.

    ```mlir
    // Before.
    scf.forall (%i) in (%n) {
      %o = scf.for ... iter_args(%x = %zeros) -> (vector<64x128xf32>) {
        %y = vector.transfer_read %parts[%j, %i, %c0] : ..., vector<64x128xf32>
        ...
      }
      vector.transfer_write %o, %memory[%i, %c0] : vector<64x128xf32>, ...
      vector.transfer_write %sum, %sums[%i] : vector<64xf32>, ...
    }
    // After, with columns=16.
    scf.forall (%i, %strip) in (%n, 8) {
      %first = arith.muli %strip, %c16
      %o = scf.for ... iter_args(%x = %zeros) -> (vector<64x16xf32>) {
        %y = vector.transfer_read %parts[%j, %i, %first] : ..., vector<64x16xf32>
        ...
      }
      vector.transfer_write %o, %memory[%i, %first] : vector<64x16xf32>, ...
      scf.if %is_first_strip { vector.transfer_write %sum, %sums[%i] : vector<64xf32>, ... }
    }
    ```

    Programs with products, sums or maxima along a row, positions of columns, tiles of several
    shapes, without a loop, or that read memory that they write stay as they are.

    Needed by: the merge of parts of the keys (`split_kv`) on a GPU.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
  let options = [Option<"columns", "columns", "int64_t", /*default=*/"16", "columns of a strip">];
}

def AttnGroupIterations : Pass<"attn-group-iterations", "::mlir::func::FuncOp"> {
  let summary = "Loops that wait for memory do several iterations at a time";
  let description = [{
    A loop of a program that reads memory in each iteration, and combines what it reads with what it
    carries, waits for each read. Unrolled, `count` iterations read before any of them waits. What
    is beyond the end reads the last iteration's memory again, and its results are dropped: there
    is no remainder, which would wait as often.

    ```mlir
    // Before.
    %r = scf.for %i = %c1 to %n step %c1 iter_args(%x = %a) -> (vector<64xf32>) {
      %y = vector.transfer_read %m[%i, %c0] : memref<?x?xf32>, vector<64xf32>
      %z = arith.maxnumf %x, %y
      scf.yield %z
    }
    // After, with count=2.
    %r = scf.for %i = %c1 to %n step %c2 iter_args(%x = %a) -> (vector<64xf32>) {
      %y0 = vector.transfer_read %m[%i, %c0] : memref<?x?xf32>, vector<64xf32>
      %z0 = arith.maxnumf %x, %y0
      %next = arith.addi %i, %c1
      %is_inside = arith.cmpi sle, %next, %last
      %place = arith.minsi %next, %last
      %y1 = vector.transfer_read %m[%place, %c0] : memref<?x?xf32>, vector<64xf32>
      %z1 = arith.maxnumf %z0, %y1
      %z = arith.select %is_inside, %z1, %z0
      scf.yield %z
    }
    ```

    Loops of a fold (`attn.fold_loop`), whose tiles are copied ahead, and loops that write, call,
    branch, or have another step than 1 stay as they are.

    Needed by: the merge of parts of the keys (`split_kv`) on a GPU.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
  let options = [Option<"count", "count", "int64_t", /*default=*/"4", "iterations at a time">];
}

def AttnSinkReads : Pass<"attn-sink-reads", "::mlir::func::FuncOp"> {
  let summary = "Scalars in memory are read by the parallel loops that use them";
  let description = [{
    The host cannot read the memory of the device. A value that follows from a
    `memref.load` in front of a parallel loop, of memory that the function does
    not write, is computed again inside of each loop that uses it.

    ```mlir
    // Before.
    %scale = memref.load %scales[%c0] : memref<?xf32>
    scf.forall (%i) in (%n) { use(%scale) }
    // After.
    scf.forall (%i) in (%n) {
      %scale = memref.load %scales[%c0] : memref<?xf32>
      use(%scale)
    }
    ```

    Needed by: GPU functions that read scalars from memory in front of a kernel.
  }];
}

def AttnPrepareVectors : Pass<"attn-prepare-vectors", "::mlir::func::FuncOp"> {
  let summary = "Vectors that all tiles of rows compute alike are computed once";
  let description = [{
    In each loop over streamed tiles (`attn.fold_loop`) of an outermost `scf.forall`: a
    vector of f32 that follows by arithmetic from rank-1 reads at the loop's variable, or
    at a start that a table names (`attn.tabulated`),
    whatever the rows of the tile, is computed by a parallel loop of its own in front
    of the forall, `rows` elements at a time, into memory of whole rows of as many. The loop
    reads it there, aligned, with nothing missing.

    ```mlir
    // Before.
    scf.forall (%h, %t) in (%H, %T) {
      scf.for %i = %c0 to %n step %c64 {
        %l = vector.transfer_read %L[%h, %i] : memref<?x?xf32>, vector<64xf32>
        %m = arith.mulf %l, %log2e : vector<64xf32>
    // After, where `rows` is 128.
    %M = memref.alloc(%H, %n ceildiv 128) : memref<?x?x128xf32>
    scf.forall (%h, %k) in (%H, %n ceildiv 128) {
      ... // elements 128 %k to 128 %k + 127 of %m
      vector.transfer_write %m, %M[%h, %k, %c0] {in_bounds = [true]}
    }
    scf.forall (%h, %t) in (%H, %T) {
      scf.for %i = %c0 to %n step %c64 {
        %m = vector.transfer_read %M[%h, %i floordiv 128, %i mod 128] {in_bounds = [true]}
    ```

    Where `exp2` of a sum with the vector is then set to zero behind the last element,
    the vector is -inf there, and the select goes, with the branch around it.

    Where the vector is only a copy, programs in front of the forall that read whole tiles of
    `rows` elements of the same memory, one for each iteration, read the copy, too: with
    attn-fuse-programs the memory itself may then not be needed.

    A branch by rows (`attn-branch-by-rows`) may pass the vector on, whose other side is then -inf
    there, too.

    A vector stays where it is if `rows` is no multiple of its size or that no multiple of
    `size-multiple`, if its places are not provably multiples of it, if no
    bound of a loop around it is known in front of the forall (an end may depend on memory where it
    is a minimum with a bound, or a bound or 0), or where memory that it follows from is written in
    the forall.

    Needed by: GPU gradients with order `n_outer`.
  }];
  let options = [
    Option<"rows", "rows", "int64_t", /*default=*/"128", "Elements that are computed at a time">,
    Option<"sizeMultiple", "size-multiple", "int64_t", /*default=*/"64",
           "What the size of a vector is a multiple of: rows of a group of threads">];
  let dependentDialects = ["mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def AttnFusePrograms : Pass<"attn-fuse-programs", "::mlir::func::FuncOp"> {
  let summary = "Tile programs over the same tiles become one";
  let description = [{
    An outermost `scf.forall` moves to the start of a later one, the next that it can, where
    both have the same bounds, nothing between them depends on it, the first one has no loop,
    and of all that the second one reads or writes the
    first one writes at most the iteration's own tile, which is then read with the same
    type at the same place: that vector is taken instead. (The one dependence between
    them is a flow dependence with direction `=` along all of their dimensions.) It costs
    a launch less. Memory that nobody reads any more goes.

    ```mlir
    // Before.
    scf.forall (%h, %t) in (%H, %T) {
      ...
      vector.transfer_write %d, %D[%h, 128 * %t] : vector<128xf32>, memref<?x?xf32>
    }
    scf.forall (%h, %t) in (%H, %T) {
      %d = vector.transfer_read %D[%h, 128 * %t] : memref<?x?xf32>, vector<128xf32>
    // After.
    scf.forall (%h, %t) in (%H, %T) {
      ...
      vector.transfer_write %d, %D[%h, 128 * %t]
      %e = arith.select %isInside, %d, %padding : vector<128xi1>, vector<128xf32>
    ```

    Programs stay apart where the second one reads other tiles or another shape of what
    the first one writes, or a tile whose rows registers cannot hold (more than
    `row-bytes`, or no multiple of `column-multiple` columns), where it writes what the first one reads
    or writes, or where an op between them depends on the first one.

    Needed by: GPU gradients whose *D* is computed with vectors or with dQ.
  }];
  let options = [Option<"rowBytes", "row-bytes", "int64_t", "256",
                        "Longest row, in bytes, of a tile with two dimensions that is taken "
                        "from the first program">,
                 Option<"columnMultiple", "column-multiple", "int64_t", "16",
                        "What its columns are a multiple of: those that a product takes at a time">];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect",
                           "mlir::vector::VectorDialect"];
}

def AttnAdvanceReads : Pass<"attn-advance-reads", "::mlir::func::FuncOp"> {
  let summary = "Reads of a program that only moves and adds come first";
  let description = [{
    In an outermost `scf.forall` without loops and branches, reads of memory that it does not
    write move up behind the first one, with what their places are computed from. It waits for
    memory once: a read behind a write stays there otherwise, for their addresses could be the
    same, and one behind a sum over lanes often does. The kernel in front of a gradient reads *O*,
    *dO* and the log-sum-exp.

    ```mlir
    // Before.                                    // After.
    %o = vector.transfer_read %O[%i, %c0]         %o = vector.transfer_read %O[%i, %c0]
    %d = vector.multi_reduction <add>, %o, %z     %l = vector.transfer_read %L[%i]
    vector.transfer_write %d, %D[%i]              %d = vector.multi_reduction <add>, %o, %z
    %l = vector.transfer_read %L[%i]              vector.transfer_write %d, %D[%i]
    ```

    Stays where it is: a read whose place follows from what another op reads, and programs with
    loops, whose registers are short.

    Needed by: GPU gradients that have a kernel for *D* in front of their products.
  }];
  let dependentDialects = ["mlir::vector::VectorDialect"];
}

def AttnSortTiles : Pass<"attn-sort-tiles", "::mlir::func::FuncOp"> {
  let summary = "Tiles whose work a table tells are taken from the longest to the shortest";
  let description = [{
    In an outermost `scf.forall` with a loop over the entries of a table
    (`attn.tabulated`), whose number is loaded at some of the coordinates of the
    tile: two small tile programs in front of it sort these numbers, and a place in
    that order takes the place of the coordinates. Tiles of equal work keep their
    order; coordinates that the work does not depend on come last.

    ```mlir
    // Before.
    scf.forall (%b, %h, %i) in (%nb, %nh, %n) {
      %length = memref.load %lengths[%b, %i]
      scf.for %t = %c0 to %length ...
    }
    // After.
    scf.forall ... { ranks[e] = how many entries are longer, or as long and before e }
    scf.forall ... { order[p] = the entry with rank p }
    scf.forall (%p, %h) in (%nb * %n, %nh) {
      %e = memref.load %order[%p]
      %b = %e / %n;  %i = %e % %n
      %length = memref.load %lengths[%b, %i]
      scf.for %t = %c0 to %length ...
    } {attn.descending}
    ```

    The sums take time that grows with the square of the number of entries: one
    comparison for each two, 128 for each of `rows` at a time. Other loops stay as they are, and so do programs for
    rare calls (`RunConditionOpInterface`): all calls would sort for them.

    Needed by: GPU kernels with documents, and other masks in tables.
  }];
  let options = [Option<"rows", "rows", "int64_t", /*default=*/"64",
                        "Entries of the order that one program finds">];
  let dependentDialects = ["mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::gpu::GPUDialect", "mlir::memref::MemRefDialect",
                           "mlir::scf::SCFDialect", "mlir::vector::VectorDialect"];
}

def AttnScaleLargeMaxima : Pass<"attn-scale-large-maxima", "::mlir::func::FuncOp"> {
  let summary = "Rows of very large scores have a power of two as their scale";
  let description = [{
    `attn-use-exp2` rounds a row's maximum m to M = m k, and takes weights 2^(x k - M). They
    are off by a factor 2^e alike, where e is what was rounded off, and so is their sum. That is
    harmless as long as 2^e is a float. For scores of 10^9 and more it is not, nor is M itself
    where m is near the least f32, as in rows that have a bias of `finfo.min` at all keys.

    So the loop carries m, too, and rows with |M| of 2^30 or more (2^28 if weights are f16, which
    end at 2^16) have another scale c, a power of two near k: then m c is exact. Weights do not
    depend on it: scores below m are an exponent of 64 or more away with k, and of 22 or more with
    c. (With f16 it is 16, and 16 if k is log2 e or at most 1: below its resolution.)

    ```mlir
    // Before, in a loop marked attn.fold_loop that carries %M0.
    %y = arith.mulf %tile_maximum, %k
    %M = arith.maxnumf %M0, %y
    %x = math.fma %s, %k_tile, %minus_M_repeated      // of 2^x
    // After: it carries %m0, too.
    %m = arith.maxnumf %m0, %tile_maximum
    %is_large = arith.cmpf oge, |%m|, 2^30 / k
    %c = arith.select %is_large, 2^ceil(log2 k), k    // for k > 1: 2^floor(log2(k ln 2))
    %M = arith.mulf %m, %c
    %x = math.fma %s, %c_repeated, %minus_M_repeated
    ```

    Behind the loop, a log-sum-exp M ln 2 + log l becomes m k ln 2 + log l in the rows of c, and an
    exponent x f - M of a single term of a row (x - m k / f) f. Where M ln 2 and log l are kept
    apart, they become m k ln 2 and log l + e ln 2: e = M - m c is exact by one fused operation. Where
    M ln 2 and the sums leave the program without a logarithm, parts of a row that are merged with
    others, the maximum becomes m, and the sums are multiplied by 2^e.

    Kernels with running maxima need it: attention and row softmax. Programs with fixed maxima
    (`hopper-fix-maxima`) have none that runs, and report rows whose maximum is large. Where k is
    1 nothing is rounded. A remark names a use of the maximum that is of no known form; its loop
    stays as it is.

    Needed by: GPU kernels with running maxima.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif
