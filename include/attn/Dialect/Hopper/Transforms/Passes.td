// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From tile programs on memrefs (L2) to the program of one CTA (L3). Each pass
// takes one decision about the schedule; none knows attention.

#ifndef ATTN_DIALECT_HOPPER_TRANSFORMS_PASSES
#define ATTN_DIALECT_HOPPER_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def HopperFixMaxima : Pass<"hopper-fix-maxima", "::mlir::func::FuncOp"> {
  let summary = "The maximum of the first tile stands in for the running one";
  let description = [{
    Exponentials are taken of differences from a running maximum so that they are in range;
    any other number does as well that keeps them there. In outermost `scf.forall` with such a
    loop (`attn.fold_loop`) over products, each row keeps the maximum of its first tile, or -8 (in
    f16 -4) if that is more: no maxima and no rescaling in the other tiles, a fifth of their
    instructions. Sums become too large where scores grow by much, and too small where all are
    small. Rows whose sum is not between 2^-32 and 2^64 (in f16 2^-8 and 2^15), or with an
    infinite product or NaN, or with a maximum of 4096 or more in size (of which too much is
    rounded off, `attn-scale-large-maxima`), are reported (`hopper.report`), and the same
    program as before, behind it, computes the tiles of the CTAs that have reported again
    (`hopper.redo`). Where the logarithm of a sum is asked for, its exponent goes to the maximum:
    both may be large, and what they add up to small.

    ```mlir
    // Before.
    scf.forall ... {
      %r:3 = scf.for ... iter_args(%m0 = -inf, %l0 = 0, %o0 = 0) {
        %m = arith.maxnumf %m0, %tile_maximum
        ...
        yield %m, (%l0 * 2^(%m0 - %m) + ...), (%o0 * 2^(%m0 - %m) + ...)
      } {attn.fold_loop}
    }
    // After.
    %reports = memref.alloc(%tiles) : memref<?xi32>
    scf.forall ... { // in no tile if streams are short
      %r:4 = scf.for ... iter_args(%m0 = -inf, %l0 = 0, %o0 = 0, %first = true) {
        %m = scf.if %first { yield (the largest of %m0, %tile_maximum, -8) } else { yield %m0 }
        ...
        yield %m, (%l0 + ...), (%o0 + ...), false
      } {attn.fold_loop}
      hopper.report (%r#1 < 2^-32 or > 2^64, or |%r#0| >= 4096) to %reports
      hopper.report (|%r#2| = inf) to %reports
    }
    scf.forall ... {
      hopper.redo %reports always %isShort
      ... as before
    }
    ```

    It is done where all results are proved to be the same for any maximum (as
    `attn-delay-rescaling` does), sums start with 0, and what is written is not read. A remark
    says what is in the way.

    Needed by: GPU forwards with fixed maxima (up to 128 columns, each row with a key, no sink).
  }];
  let options = [
    Option<"fewTiles", "few-tiles", "int64_t", /*default=*/"2",
           "Tiles of a stream up to which only the program as before runs; twice as many where "
           "streams differ">,
    Option<"fewInAll", "few-in-all", "int64_t", /*default=*/"768",
           "The same for the tiles of all streams">];
  let dependentDialects = ["hopper::HopperDialect", "mlir::arith::ArithDialect",
                           "mlir::math::MathDialect", "mlir::memref::MemRefDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperDistributeRows : Pass<"hopper-distribute-rows", "::mlir::func::FuncOp"> {
  let summary = "Divide the rows of a tile program among warpgroups";
  let description = [{
    For each outermost `scf.forall` on memrefs: the rows are the dimensions tied
    to dimension 0 of the tiles that it writes. Each warpgroup takes 64 of them;
    the body moves into an inner `scf.forall` over the warpgroups of a CTA.
    Whether any or all elements of a tile of i1 are true is asked of all
    warpgroups (`hopper.barrier.reduce`); such a tile gives the rows where none is
    written. A reduction of a vector over rows to a scalar, such as a loop's bound,
    gets a vector that every warpgroup has whole. A product of a computed tile and one
    that is read, which sums over the rows and is only added to memory
    (`attn.tile_add`), is divided by columns: each warpgroup multiplies the rows of all
    of them (`tile.gather`) by its own columns.
    Where vectors lead to scalars only, there are no rows, and one warpgroup. A vector of fewer than
    64 elements has no rows, and each warpgroup writes it.

    ```mlir
    // Before.
    scf.forall (%i) in (%n) {
      %q = vector.transfer_read %Q[%i0, %c0] : vector<128x64xbf16>
      ...
      vector.transfer_write %o, %O[%i0, %c0] : vector<128x64xbf16>
    }
    // After.
    scf.forall (%i) in (%n) {
      scf.forall (%w) in (2) {
        %i1 = affine.apply (i0 + w * 64)
        %q = vector.transfer_read %Q[%i1, %c0] : vector<64x64xbf16>
        ...
      } {mapping = [#gpu.warpgroup<linear_dim_0>]}
    }
    ```

    Refuses, with an error at the op, tiles whose rows are not 64 for each of at
    most 3 warpgroups, tiles from outside of the loop, and other reductions over
    rows, which would need the other warpgroups' part.

    Needed by: all GPU kernels.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::gpu::GPUDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def HopperFormProducts : Pass<"hopper-form-products", "::mlir::func::FuncOp"> {
  let summary = "Contractions of tiles become products of tiles in shared memory";
  let description = [{
    A `vector.contract` with one reduced dimension, in f32, becomes `tile.mma`.
    An operand that is read from a memref with 16-bit elements is a tile in
    shared memory (`tile.load`), whichever way it is transposed; where it
    depends on the warpgroup, the warpgroups' parts are loaded together. An
    operand computed in registers is rounded to the other one's type; it can be
    the left one only. What several contractions read is loaded once. An inner
    product of the rows of two tiles is no product of matrices: it becomes a
    multiplication and a reduction.

    ```mlir
    // Before.
    %k = vector.transfer_read %K[%j, %c0] : vector<128x64xbf16>
    %k1 = arith.extf %k : vector<128x64xbf16> to vector<128x64xf32>
    %s = vector.contract {... (m, k), (n, k) -> (m, n)} %q1, %k1, %zero
    // After.
    %k = tile.load %K[%j, %c0] : memref<...> -> !tile.smem<128x64xbf16, swizzle = 128>
    %s = tile.mma %q, %k, %zero transposeB : ...
    ```

    The swizzle span is the smallest of 128, 64 and 32 bytes that holds a row,
    or 128. Contractions that the tensor core has no form for (f32 or f64
    operands, a right operand in registers, sizes that are no multiples of 16)
    are refused with an error that says what would do. With `by-warps` operands may have
    elements of f32, too.

    Needed by: GPU kernels with products of matrices.
  }];
  let options = [Option<"byWarps", "by-warps", "bool", /*default=*/"false",
                        "Products are those of single warps, of 16-bit floats or f32">,
                 Option<"tf32", "tf32", "int64_t", /*default=*/"0",
                        "Products of TF32 that make up one of f32: 1, 3; 0: FMAs">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::arith::ArithDialect"];
}

def HopperReuseTiles : Pass<"hopper-reuse-tiles", "::mlir::func::FuncOp"> {
  let summary = "A tile that products have in shared memory is read there";
  let description = [{
    A `vector.transfer_read` of 64 rows of 16-bit elements, at the top of a tile program, of what a
    `tile.load` beside it copies for a product, becomes a `tile.read` of these rows. Threads
    would read 4 bytes of each of 8 rows at a time. It goes in front of the first op that needs it with
    another value: reads of global memory are under way before it waits for the copy.

    ```mlir
    // Before.
    %o = vector.transfer_read %dO[%i1, %c0], %zero : memref<?x?xbf16>, vector<64x256xbf16>
    %t = tile.load %dO[%i0, %c0] : memref<?x?xbf16> -> !tile.smem<128x256xbf16, swizzle = 128>
    // After, where %i1 is %i0 + 64 %warpgroup.
    %t = tile.load %dO[%i0, %c0] : memref<?x?xbf16> -> !tile.smem<128x256xbf16, swizzle = 128>
    %r = tile.rows %t[64 * %warpgroup]
    %o = tile.read %r : !tile.smem<64x256xbf16, ...> -> vector<64x256xbf16>
    ```

    The gradient of queries at head dimensions above 128 needs it, which sums *dO O* itself. Stays as it
    is: a read in a loop (hopper-load-tiles), of memory that the program writes, with a mask, another
    padding than zeros, or dimensions in another order.

    Needed by: GPU gradients whose kernel of dQ computes *D*, too (more than 128 columns, short streams).
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::affine::AffineDialect"];
}

def HopperLoadTiles : Pass<"hopper-load-tiles", "::mlir::func::FuncOp"> {
  let summary = "Tiles and vectors that are read to registers come through shared memory";
  let description = [{
    In a loop with products, a `vector.transfer_read` of a tile of 16-bit elements of
    an argument (where `arguments` says so) becomes a `tile.load` of the rows of all warpgroups and a
    `tile.read` of each one's own. The copy is made early, by TMA, in whole
    lines.

    ```mlir
    // Before.
    %x = vector.transfer_read %X[%i1, %j], %zero : memref<?x?xbf16, strided<[?, 1]>>, vector<64x128xbf16>
    // After.
    %t = tile.load %X[%i0, %j] : memref<?x?xbf16, strided<[?, 1]>> -> !tile.smem<128x128xbf16, swizzle = 128>
    %w = tile.rows %t[64 * %warpgroup]
    %x = tile.read %w : !tile.smem<64x128xbf16, ...> -> vector<64x128xbf16>
    ```

    So does a whole row of f32 of memory that the function makes, such as those of
    attn-prepare-vectors, if it has a multiple of 128 bytes.

    ```mlir
    // Before.
    %v = vector.transfer_read %V[%i, %c0], %zero {in_bounds = [true]} : memref<?x64xf32>, vector<64xf32>
    // After.
    %t = tile.load %V[%i, %c0] : memref<?x64xf32> -> !tile.smem<1x64xf32>
    %v = tile.read %t : !tile.smem<1x64xf32> -> vector<64xf32>
    ```

    Coordinates of the tile program that the tile does not depend on come behind the
    others, but for the last one: a tile that a batch shares is then read by all its
    members at about the same time, from the L2 cache.

    Reads that TMA has no form for stay as they are: other padding than zeros, masks,
    transposed or broadcast dimensions, places that the consumers compute. What
    depends on strides that are known at run time only, `hopper.tma.reaches` asks.

    Needed by: GPU gradients with order `n_outer`; GPU kernels with a bias that TMA reaches.
  }];
  let options = [
    Option<"arguments", "arguments", "bool", /*default=*/"true", "Also tiles of arguments">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::affine::AffineDialect"];
}

def HopperGuardReads : Pass<"hopper-guard-reads", "::mlir::func::FuncOp"> {
  let summary = "Rows and columns are read only where the branch that uses them is taken";
  let description = [{
    In a loop with products: a `vector.transfer_read` of a row or column that only one
    side of an `scf.if` of the loop uses is made under that condition, where it was:
    early, so that it is there when the branch is taken. Without the pass, tiles that
    need no mask read what the mask compares.

    ```mlir
    // Before.
    %k = vector.transfer_read %ids[%j]
    %s = tile.mma ...
    %m = scf.if %full { yield %s } else { use(%k, %s) }
    // After.
    %k = scf.if %partial { yield vector.transfer_read %ids[%j] } else { yield %zeros }
    %s = tile.mma ...
    %m = scf.if %full { yield %s } else { use(%k, %s) }
    ```

    Conditions that are no comparison, or that are not known in front of the read,
    leave it as it is. Where several branches use it, and nothing in the loop writes the
    memory, each gets a read of its own.

    Needed by: GPU kernels with documents, and other masks that read memory.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::scf::SCFDialect"];
}

def HopperOrderProducts : Pass<"hopper-order-products", "::mlir::func::FuncOp"> {
  let summary = "Products come as early as what they read allows";
  let description = [{
    In the body of each loop with products: a `tile.mma` moves up to behind the
    last value that it reads, together with its loads (and what is read of a table to
    address them); products that are ready at the same time keep their order, but for those
    that read a `tile.share`, which
    come last, and for those with a wide operand in registers, which come just before
    these. Reads of rows and columns of global memory come first, and of tiles of shared
    memory; those of vectors in shared memory behind the product whose result they meet, in
    front of the next one. Started
    asynchronously, products run beside the arithmetic that they do not need.

    ```mlir
    // Before.                         // After.
    %s = tile.mma %k, %q, %zero      %s = tile.mma %k, %q, %zero
    %p = f(%s)                         %t = tile.mma %v, %g, %zero
    %t = tile.mma %v, %g, %zero      %p = f(%s)
    %u = h(%p, %t)                     %b1 = tile.mma %p, %g, %b
    %a1 = tile.mma %u, %q, %a        %u = h(%p, %t)
    %b1 = tile.mma %p, %g, %b        %a1 = tile.mma %u, %q, %a
    ```

    A body that writes memory stays as it is.

    Needed by: GPU kernels with products of matrices.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect"];
}

def HopperCreateLaunches : Pass<"hopper-create-launches", "::mlir::func::FuncOp"> {
  let summary = "Tile programs become launches";
  let description = [{
    An outermost `scf.forall` around one over warpgroups becomes a `gpu.launch` with one CTA per
    iteration, whose warpgroups are one role, "compute". It still loads its tiles. Views of memory
    that it loads from move in front of the launch: the host describes them to TMA. What the CTA
    does as a whole, or has once (`hopper.redo`, `hopper.run_if`, `hopper.named_barriers`), comes in
    front of the roles.

    ```mlir
    // Before.
    scf.forall (%i) in (%n) {
      scf.forall (%w) in (2) {
        %k = tile.load %K[%i, %c0]
        tile.mma %q, %k, ...
    // After.
    gpu.launch blocks(%cta, ...) in (%n, ...) threads(...) in (%c256, ...) {
      hopper.roles
        role "compute" warpgroups(2) registers(240) (%w) {
          %i = affine.delinearize_index %cta into (%n)
          %k = tile.load %K[%i, %c0]
          tile.mma %q, %k, ...
    ```

    Refuses programs whose rows are not divided among 1 to 3 warpgroups, loops from elsewhere than
    0, and loads from memory that the tile chooses.

    Needed by: all GPU kernels.
  }];
  let options = [Option<"groupWarps", "group-warps", "int64_t", /*default=*/"4",
                        "Warps of a warpgroup, which hold its 64 rows: 4, or 2 for products of single "
                        "warps">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::affine::AffineDialect",
                           "mlir::arith::ArithDialect", "mlir::gpu::GPUDialect"];
}

def HopperDivideProducts : Pass<"hopper-divide-products", "::mlir::func::FuncOp"> {
  let summary = "Products of wide tiles are summed piece by piece, for shared memory's sake";
  let description = [{
    A product sums over the columns of its operands in any pieces: of a product of two tiles that
    are loaded, both by rows, with more than `columns` columns, a loop loads a piece of each at a
    time and adds their product. The tiles are then in shared memory by pieces, and are read again
    wherever the product is computed: shared memory no longer grows with the head dimension. Columns
    behind the last are zeros.

    ```mlir
    // Before.
    %q = tile.load %Q[%i, %c0] : ... -> <64x512xbf16>
    scf.for %j ... {
      %k = tile.load %K[%j, %c0] : ... -> <64x512xbf16>
      %s = tile.mma %q, %k, %zero transposeB
    // After, with columns=64.
    scf.for %j ... {
      %s = scf.for %c = %c0 to %c512 step %c64 iter_args(%sum = %zero) {
        %q = tile.load %Q[%i, %c] : ... -> <64x64xbf16>
        %k = tile.load %K[%j, %c] : ... -> <64x64xbf16>
        %next = tile.mma %q, %k, %sum transposeB
        scf.yield %next
      }
    ```

    Other products (of a computed operand, or along the rows of one) stay; a remark says so where
    their tiles are wide.

    Needed by: GPU kernels of single warps whose tiles do not fit into shared memory.
  }];
  let options = [Option<"columns", "columns", "int64_t", /*default=*/"64",
                        "Columns of a piece: a multiple of 16">];
  let dependentDialects = ["::attn::tile::TileDialect", "mlir::arith::ArithDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperStageLoads : Pass<"hopper-stage-loads", "::mlir::func::FuncOp"> {
  let summary = "Loads become copies by the threads that compute, ahead of their iteration";
  let description = [{
    For GPUs without TMA (and for memory that it does not reach): the one role of a launch keeps its
    loads. Those in an innermost loop get rings of `stages` tiles: an iteration starts with a wait
    for its own tiles, at which all threads of the CTA meet, starts the copies for the iteration
    `stages - 1` further into the place of the tiles of the iteration before, and then computes. What
    indices follow from is computed again for that iteration; it may read memory (tables of tiles).

    ```mlir
    // Before.
    scf.for %j = %c0 to %n step %c64 {
      %k = tile.load %K[%j, %c0]
      ... tile.mma %q, %k
    // After, with 2 stages.
    %ring = hopper.alloc : !tile.smem<2x64x64xbf16, swizzle = 128>
    scf.if %c0 < %n { tile.copy %K[%c0, %c0] to %ring[0] }
    tile.commit
    scf.for %j = %c0 to %n step %c64 iter_args(%slot = 0) {
      tile.await 0
      scf.if %j + 64 < %n { tile.copy %K[%j + 64, %c0] to %ring[1 - %slot] }
      tile.commit
      ... tile.mma %q, %ring[%slot]
    ```

    A load elsewhere is waited for in front of its first reader, unless that is a loop with a wait of
    its own. A left operand of f32 or f64 in registers is written to memory, each warp its rows.

    Refuses, with a note at what depends on the warpgroup, loads in branches and loops that not all
    warpgroups take: all threads copy.

    Needed by: GPU kernels with products of single warps.
  }];
  let options = [Option<"stages", "stages", "int64_t", /*default=*/"2",
                        "Tiles in flight for each load in a loop; 1: it is waited for where it stands">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperSpecializeWarps : Pass<"hopper-specialize-warps", "::mlir::func::FuncOp"> {
  let summary = "Loads become a role of their own";
  let description = [{
    The one role of a launch (hopper-create-launches) becomes two: a producer, one warpgroup
    of which one thread copies, and consumers. Each `tile.load` becomes a
    channel: `hopper.send` in a copy of the loops around it, `hopper.receive` in
    its place, and `hopper.release` after its last use. Without any load there
    is one role, and each warpgroup is a CTA if they neither share nor agree on anything.

    ```mlir
    // Before.
    gpu.launch ... {
      hopper.roles
        role "compute" warpgroups(2) registers(240) (%w) {
          scf.for %j = ... {
            %k = tile.load %K[%j, %c0]
            tile.mma %q, %k, ...
    // After.
    gpu.launch ... {
      %channel = hopper.channel depth(1)
      hopper.roles
        role "load" warpgroups(1) registers(24) (%w) {
          scf.for %j = ... { hopper.send %K[%j, %c0] to %channel }
        }
        role "compute" warpgroups(2) registers(240) (%w) {
          scf.for %j = ... {
            %k = hopper.receive %channel
            tile.mma %q, %k, ...
            hopper.release %channel
    ```

    An `attn.tile_add` in a loop, of tiles in f32 of which each warpgroup has some rows or
    columns, becomes a channel, too, from the consumers to a third role: a thread in another
    warp of the producer (in a warpgroup of its own, where all warps of the producer compute),
    which adds whole tiles (`hopper.add`), and may wait before and afterwards for what
    consumers have no time to wait for:

    ```mlir
    // Before.                              // After, "compute".
    attn.tile_add %x into %sum[%i, %c]      %tile = hopper.acquire %sums
                                            %part = tile.columns %tile[%c]
                                            tile.write %x to %part
                                            hopper.commit %sums
                                            // "add", in a copy of the loops around it
                                            %tile = hopper.receive %sums
                                            hopper.fence.async
                                            hopper.add %tile to %sum[%i, %c0]
                                            hopper.tma.wait pending(0) read
                                            hopper.release %sums
    ```

    Without `adder-fences` the fence is the consumers', in front of `hopper.commit`.

    Refuses loads and additions whose address, or loops whose bounds, depend on what the
    consumers compute, or on memory that they write. Registers: 24 and 240 for two
    consumers, 32 and 160 for three, 24 and 240 for one. Warpgroups by themselves, or two,
    that have neither loads, additions, products nor loops, keep no tile of more than 128 columns
    and write none get 128, so that CTAs share a multiprocessor. With `occupancy` several CTAs
    share a multiprocessor, and these registers: one computes while another waits. Tools
    that add instructions to a kernel (compute-sanitizer's memcheck) need more for the
    producer, else the kernel may hang.

    Needed by: all GPU kernels.
  }];
  let options = [
    Option<"producerRegisters", "producer-registers", "int64_t", /*default=*/"0",
           "Registers of a thread that copies, a multiple of 8; 0: by the number of consumers">,
    Option<"occupancy", "occupancy", "int64_t", /*default=*/"1",
           "CTAs that share a multiprocessor, and its registers">,
    Option<"adderFences", "adder-fences", "bool", /*default=*/"true",
           "The adder makes the consumers' tiles visible to TMA, not they themselves">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::gpu::GPUDialect", "mlir::scf::SCFDialect"];
}

def HopperDivideSums : Pass<"hopper-divide-sums", "::mlir::func::FuncOp"> {
  let summary = "Two sums that one warpgroup cannot hold become two roles";
  let description = [{
    A role of one warpgroup whose loop carries two sums of products with more than `columns`
    columns together becomes two roles, which run beside each other (loop distribution by
    decoupled software pipelining; Ottoni, Rangan, Stoler and August, 2005). The first one has the
    sum with fewer products in front of it, the second one the other. What both need is computed
    once, by the first one, if it follows from products of the first sum alone: tiles that the
    second one needs of that go through channels, from registers to registers. Vectors, bounds
    and masks are computed by both; tiles that a role does not read are not received by it.

    ```mlir
    // Before.
    role "compute" warpgroups(1) registers(240) (%w) {
      %sums:2 = scf.for ... iter_args(%v = %zero, %k = %zero) {
        %s = tile.mma %keys, %q, %zero transposeB
        %dp = tile.mma %values, %do, %zero transposeB
        %p = math.exp2 %s
        %v_next = tile.mma %p16, %do, %v
        %ds = arith.mulf %p, %dp
        %k_next = tile.mma %ds16, %q, %k
    // After.
    role "compute first" warpgroups(1) registers(240) (%w) {
      %sum = scf.for ... iter_args(%v = %zero) {
        %s = tile.mma %keys, %q, %zero transposeB
        %p = math.exp2 %s
        %slot = hopper.acquire %handed
        tile.write %p to %slot
        hopper.commit %handed
        %v_next = tile.mma %p16, %do, %v
    role "compute second" warpgroups(1) registers(240) (%w) {
      %sum = scf.for ... iter_args(%k = %zero) {
        %slot = hopper.receive %handed
        %p = tile.read %slot
        hopper.release %handed
        %dp = tile.mma %values, %do, %zero transposeB
        %ds = arith.mulf %p, %dp
        %k_next = tile.mma %ds16, %q, %k
    ```

    Refuses sums of which one needs the other, other carried tiles, several warpgroups, writes
    that need both sums, values to hand over that are no tiles of f32, and roles that would have too few
    registers beside the others.

    Needed by: GPU gradients whose dK and dV have more than 256 columns together.
  }];
  let options = [
    Option<"columns", "columns", "int64_t", /*default=*/"256",
           "Columns of the sums that a warpgroup holds">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::arith::ArithDialect", "mlir::gpu::GPUDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperFormClusters : Pass<"hopper-form-clusters", "::mlir::func::FuncOp"> {
  let summary = "Neighbouring CTAs copy what both need once, as a cluster";
  let description = [{
    The tiles of a cluster differ in one coordinate. What is sent in loops and does not
    depend on it is the same in all of its CTAs; such channels become `multicast`. The
    coordinate is the one for which that is most bytes, the last one of such. The cluster has `ctas` CTAs, or the
    largest power of two below that divides the number of tiles along the coordinate:
    the host computes it for each launch.

    ```mlir
    // Before.
    gpu.launch blocks(%block, ...) in (%b = %tiles, ...) ... {
      %c = hopper.channel depth(1) : ...
      role "load" ... {
        %p:2 = affine.delinearize_index %block into (%heads, %rows)
        scf.for ... { hopper.send %K[%p#0, %j, %c0] to %c }
      }
    // After.
    %size = arith.minui (%rows and -%rows), %c2
    gpu.launch clusters(%cluster, ...) in (%s = %size, ...) blocks(...) in (%b = %tiles, ...) ... {
      %c = hopper.channel depth(1) multicast(2) : ...
      role "load" ... {
        %rank = gpu.cluster_block_id x
        %p:2 = affine.delinearize_index %cluster into (%heads, %rows / %size)
        %row = %p#1 * %size + %rank
        scf.for ... { hopper.send %K[%p#0, %j, %c0] to %c }
      }
    ```

    Launches in which no channel of tiles of whole parts (8 rows at least) is of this kind
    stay as they are: where the bounds of a loop depend on a coordinate, as those of a causal
    mask do, nothing in it is the same along that one.

    Needed by: GPU kernels with the option `cluster`; none without.
  }];
  let options = [
    Option<"ctas", "ctas", "int64_t", /*default=*/"2",
           "CTAs of a cluster: 1 (none), 2, 4 or 8">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::affine::AffineDialect",
                           "mlir::arith::ArithDialect", "mlir::gpu::GPUDialect"];
}

def HopperDropRows : Pass<"hopper-drop-rows", "::mlir::func::FuncOp"> {
  let summary = "Tiles with rows that are to be zeros are copied without a second tensor";
  let description = [{
    A tile program writes a tensor again, but for rows that a condition makes zeros, and
    channels of launches behind it send tiles of what it has written. Instead it marks such rows,
    and those of 64 rows that have one, and the tensor itself is sent (`hopper.send` without
    them): for few such rows, which are copied one by one where there are any.

    ```mlir
    // Before.
    gpu.launch {
      %x = vector.transfer_read %X[%i, %c0] : memref<?x128xbf16>, vector<64x128xbf16>
      %y = arith.select %isDropped, %zeros, %x : vector<64x128xi1>, vector<64x128xbf16>
      vector.transfer_write %y, %Y[%i, %c0]
    }
    gpu.launch {
      hopper.send %Y[%j, %c0] to %channel
    }
    // After.
    gpu.launch {
      %any = hopper.barrier.reduce any %isDropped, %id warpgroups(1)
      scf.if %any {
        vector.transfer_write (1 where a row is dropped, else 0), %marks[%i]
      }
      memref.store (1 if %any, else 0), %some[%i / 64]
    }
    gpu.launch {
      %any = memref.load %some[%j / 64]
      hopper.send %X[%j, %c0] without(%marks, %some) if (%any is not 0) to %channel
    }
    ```

    (Both have one size: a statement reads the one and writes the other at the same indices.) It
    stays where the condition differs within a row, where something else than channels reads
    it, where rows of tiles have no slabs of 128 bytes, which is what TMA aligns copies to, or
    where the CTAs of a cluster share the channel.

    Needed by: GPU gradients whose masks may leave rows without keys.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::arith::ArithDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def HopperStoreFirst : Pass<"hopper-store-first", "::mlir::func::FuncOp"> {
  let summary = "The first addition to a tile of a sum stores it";
  let description = [{
    A sum in memory that one launch fills with zeros, another one adds tiles to
    (hopper-specialize-warps), and a third one reads, need not be filled: the CTA that comes
    first to a tile stores it, the others add behind it. A flag for each 64 rows, which
    is filled with zeros instead, says whether somebody has come (`hopper.semaphore.first_touch`). The first
    element of 64 rows holds a NaN until then that no operation gives, and rows where it still is
    are read as zeros.

    ```mlir
    // Before.                                // After.
    vector.transfer_write %zeros, %sum[%i]    memref.store %zero, %flags[%i / 64]
                                              memref.store %mark, %sum[%i, %c0]

                                              hopper.semaphore.wait %flags[%q / 64], %c-1 // a fence
    %x = hopper.receive %sums                 %x = hopper.receive %sums
    hopper.add %x to %sum[%q, %c0]            %first = hopper.semaphore.first_touch %flags[%q / 64], %seen
    hopper.tma.wait pending(0) read           hopper.add %x to %sum[%q, %c0] first(%first)
    hopper.release %sums                      %next = hopper.semaphore.peek %flags[(%q + 64) / 64]
                                              hopper.tma.wait pending(0) read
                                              hopper.release %sums
                                              scf.if %first {
                                                hopper.tma.wait pending(0)
                                                hopper.semaphore.release %flags[%q / 64], %c1
                                              }
                                              scf.yield %next

    %y = vector.transfer_read %sum[%i]        %w = memref.load %sum[%i, %c0]
                                              %r = vector.transfer_read %sum[%i]
                                              %y = arith.select (%w is not %mark), %r, %zeros
    ```

    Two launches that are versions of each other (`hopper.run_if any` and `none` on the same flags)
    have the same flags here, for the device runs one of them.

    Stays as it is: memory with other uses, or that is not allocated beside the launches; zeros
    under a condition; tiles of fewer than `least-bytes`; additions that are not directly in a
    loop, that several threads of a role make (its loop's bounds are found by all of them), of
    tiles that may overlap in part (rows that do not start at a multiple of the tile's rows, some
    of the columns), or whose rows are no multiple of 64; and zeros or reads of other than 64 rows
    from a multiple of 64 on. Where the next flag does not follow from the loop's variable by
    arithmetic and tables that nobody writes, an iteration looks at its own flag, in front of its
    tile.

    Needed by: GPU gradients with order `n_outer`.
  }];
  let options = [
    Option<"looksAhead", "look-ahead", "bool", /*default=*/"true",
           "An iteration looks at the flag of the next one while its addition is under way">,
    Option<"leastBytes", "least-bytes", "int64_t", /*default=*/"32768",
           "Smaller tiles follow each other faster than flags can be looked at">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::arith::ArithDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def HopperOrderAdditions : Pass<"hopper-order-additions", "::mlir::func::FuncOp"> {
  let summary = "The CTAs of a launch add to memory in one order";
  let description = [{
    Sums of floats depend on the order of their terms. Where a role adds tiles to memory
    (hopper-specialize-warps), CTAs wait for each other, by a semaphore for each tile of the
    sum: that of its first row,
    one for each 64 rows in memory that a launch before fills with zeros, has the number
    of the last addition. (After hopper-store-first, the flags are there, and the first one of the
    order stores.)

    ```mlir
    // Before.                                // After.
    scf.for %q = %lo to %hi step %c64 {       scf.for %n = %lo to %hi step %c64 {
      %x = hopper.receive %sums                 %q = ... // of %n and of the tile
      hopper.add %x to %sum[%h, %q, %c0]        hopper.semaphore.wait %semaphores[%flag], %before
      hopper.tma.wait pending(0) read           %x = hopper.receive %sums
      hopper.release %sums                      hopper.add %x to %sum[%h, %q, %c0]
    }                                           %seen = hopper.semaphore.peek %semaphores[%next]
                                                hopper.tma.wait pending(0) read
                                                hopper.release %sums
                                                hopper.tma.wait pending(0)
                                                hopper.semaphore.release %semaphores[%flag], %mine
                                              }
    ```

    The order is chosen so that nobody waits when all CTAs run at one speed. The tiles of a
    line (all values of the last coordinate of the grid) are computed at the same time, by a
    *gang* of as many CTAs, which goes from line to line; `ctas` bounds all gangs together.
    Tile k of n starts at k / n of the loop and goes around: at each of its tiles the sum gets
    its terms from tiles further and further behind. Where the first value of the loop grows
    with the tile's number and the last one stays (a causal mask with keys outside), a CTA
    takes the tiles k and 2 p - 1 - k of 2 p: of the former, first what all tiles below p
    have, around as above, then the rest, upwards; of the latter all, downwards.

    CTAs that wait for each other must all run: the launch is `hopper.cooperative`. No two
    wait in a circle: each waits only for what is earlier in this order, whatever the
    multiprocessors do.

    Without `semaphore`, CTAs only start where the order has them start, if the bounds of the loop
    stay from tile to tile, and wait for nobody: so that no two of them come to the same tile of
    the sum at a time. What is refused then stays as it is.

    Refuses, with the dependence that stays unordered: loops whose bounds change otherwise
    from tile to tile, or are not known to be multiples of their step (itself one of 64), tiles of
    different lines that add to the same elements, additions that several threads make, and flags
    at which hopper-store-first looks ahead.

    Needed by: GPU gradients with order `n_outer`: where CTAs start, and their order.
  }];
  let options = [
    Option<"ctas", "ctas", "int64_t", /*default=*/"132",
           "CTAs that run at the same time">,
    Option<"semaphore", "semaphore", "bool", /*default=*/"true",
           "CTAs wait for each other by semaphores; else they only start at different places">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::affine::AffineDialect",
                           "mlir::arith::ArithDialect", "mlir::gpu::GPUDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def HopperAliasWorkspace : Pass<"hopper-alias-workspace", "::mlir::func::FuncOp"> {
  let summary = "What is needed until an output is written may lie in its memory";
  let description = [{
    For memory that a function allocates: where all accesses come before the first one to an
    argument, which is only ever written, the allocation says so. The runtime then places it in
    the argument's memory, as far as there is room and that is dense, in whatever order of its
    dimensions: lists of tiles, vectors for each row, and flags of additions lie where dQ is
    written at last.

    ```mlir
    // Before, where argument 3 is written by the last launch only.
    %a = memref.alloc(%n) : memref<?xi32>
    // After.
    %a = memref.alloc(%n) {hopper.aliases = 3 : index} : memref<?xi32>
    ```

    Arguments that are written are written whole, and do not overlap others.

    Needed by: GPU kernels that allocate memory: with documents, and most gradients.
  }];
}

def HopperScheduleTiles : Pass<"hopper-schedule-tiles", "::mlir::func::FuncOp"> {
  let summary = "The order of tiles, and how many of them one CTA takes";
  let description = [{
    A launch with one CTA per tile becomes one with `ctas` CTAs, each of which
    takes the tiles `cta`, `cta + ctas`, ... (persistent): the copies for one
    tile start while the one before is still computed.

    ```mlir
    // Before.
    role "load" ... { work of tile %block }
    // After.
    role "load" ... { scf.for %tile = %block to %tiles step %ctas { work of %tile } }
    ```

    Where the bounds of a loop depend on the last coordinate of a tile, as those
    of a causal mask do, a CTA takes every `ctas`-th *pair* of tiles, from both ends
    of the last coordinate: the pairs have the same work, and those that are
    computed at a time lie side by side and read the same memory, which the L2
    cache then holds. (Longest tiles first would be as even, and read all memory
    anew for each value of the last coordinate.) The last tiles are taken one by one, the
    longest first, all the same, for pairs would leave CTAs without work at the end: the pairs
    that are too few for all CTAs, unless most would have one, and, where that coordinate has 16
    values or more, one pair more for each CTA.

    Where the loop is a band (both bounds grow, or both fall, as those of a window do), most tiles
    have the same work, and those at one end of the last coordinate, which the host finds, have
    less. First come the others, as they lie; a CTA's place among the `ctas` that are taken at
    a time changes by one each time, so that none has the same part of each line. Then the
    short ones of all lines, as many as three for each CTA, the longest first.

    Where the tiles come in the order of their work (`attn.descending`, from
    attn-sort-tiles), a CTA takes one of each `ctas` in a row, from the other end
    every other time. Tiles that differ in the other coordinates only have the same work and
    read other memory, more than the L2 cache has. So these coordinates (heads) are divided
    into groups, a power of two of them, each with three rows of `ctas` tiles or more, which
    are taken one after the other. In every other group the CTAs have each other's
    places, and in every pair of groups places further on; the short tiles that fill no row
    of a group come last, those of all groups by their work. (Not where CTAs share a
    multiprocessor: they have no registers for it.)

    A launch of one role keeps a CTA per tile: it has no copies to start early, and its
    CTAs share the multiprocessors. Behind another launch it takes the last tiles first: what that
    one wrote last is what the L2 cache has. So does one that copies for itself and whose loops are
    the longer the larger the last coordinate is: the longest first.

    Of a launch in clusters, each cluster takes the tiles that a CTA would.

    The coordinates are computed in 32 bits, with products and shifts in place of
    divisions; a launch has less than 2^31 tiles.

    Needed by: all GPU kernels.
  }];
  let options = [
    Option<"ctas", "ctas", "int64_t", /*default=*/"132",
           "CTAs of a persistent launch; 0 launches one CTA per tile">];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::math::MathDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperPipelineProducts : Pass<"hopper-pipeline-products", "::mlir::func::FuncOp"> {
  let summary = "The last product of an iteration runs beside the next iteration";
  let description = [{
    In each innermost loop of a role whose last `tile.mma` depends, through
    other arithmetic, on an earlier one of the same iteration: the last product
    of iteration t is computed in iteration t + 1, after the first products of
    that one have been issued, so that the tensor core works while the arithmetic
    between the two is done (FlashAttention-3, section 3.2). The first iteration
    is peeled, and the last product follows the loop; loops that may not run at
    all are guarded.

    ```mlir
    // Before.                          // After, where the loop runs at least once.
    scf.for %j ... iter_args(%o) {      %s0 = first product of the first iteration
      %s = tile.mma %q, %k, ...       %p0 = f(%s0)
      %p = f(%s)                        scf.for %j ... iter_args(%o, %p = %p0) {
      %o1 = tile.mma %p, %v, %o         %s = tile.mma %q, %k, ...
    }                                     %o1 = tile.mma %p, %v, %o
                                          %p1 = f(%s)
                                        }
                                        tile.mma of the last %p
    ```

    A loop in which a first product needs the last one of the iteration before, or
    in which both read a tile of the same iteration, stays as it is. So do those of several roles
    that compute products: while one of them waits, the tensor core has the other one's, and
    tiles are given back an iteration earlier.

    Needed by: GPU kernels whose schedule has `pipeline`.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::arith::ArithDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperTrimLoops : Pass<"hopper-trim-loops", "::mlir::func::FuncOp"> {
  let summary = "Each warpgroup computes the tiles that its own rows need";
  let description = [{
    The bounds of a loop marked `attn.partial` are those of all rows of a tile. Where
    the mask in it (`attn.tile_kind`) bounds the columns by a number per row that
    depends on the warpgroup, each warpgroup ends the loop with the last of its own
    rows. It then receives the tiles that are left for the others and gives them
    back. A tile that is full for the warpgroup's rows branches around the mask.

    ```mlir
    // Before: the mask keeps column <= row.
    scf.for %j = %lo to %hi step %c128 {
      %k = hopper.receive %keys
      ...
    } {attn.fold_loop, attn.partial}
    ... // The last product.
    // After: %end = the warpgroup's last row + 1.
    scf.for %j = %lo to min(%hi, %end) step %c128 {
      %k = hopper.receive %keys
      ...
    } {attn.fold_loop, attn.partial, hopper.trimmed}
    ... // The last product.
    scf.for %j = %left to %hi step %c128 {
      %k = hopper.receive %keys
      hopper.release %keys
    } {hopper.trimmed}
    ```

    Runs after hopper-pipeline-products, whose first iteration stays one that every
    warpgroup computes. Loops that do more than compute and pass on tiles stay as
    they are.

    Needed by: GPU forwards with masks, where the schedule has `trim` (64 and 256 columns).
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::arith::ArithDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperOverlapTiles : Pass<"hopper-overlap-tiles", "::mlir::func::FuncOp"> {
  let summary = "The first products of a tile run beside the end of the tile before";
  let description = [{
    In each outermost loop of a role with one inner loop of products: what comes
    before the inner loop (the first products and what follows from them, after
    hopper-pipeline-products) is computed one tile earlier, between the inner loop
    and the last products of the tile before, whose outputs come last. The tensor
    core thus has work while the arithmetic and the stores between two tiles are
    done. What follows from the number of a tile is computed again; the rest is
    carried. Launches that most often end at once (`hopper.redo`) stay as they are.

    ```mlir
    // Before.                           // After.
    scf.for %t ... {                     %q = hopper.receive %queries
      %q = hopper.receive %queries       %s = first product; %p = f(%s)
      %s = first product                 scf.for %t ... iter_args(%p) {
      %p = f(%s)                           %q = hopper.held %queries
      %o = scf.for %j ... { %q }           %o = scf.for %j ... { %q }
      %o1 = last product                   hopper.release %queries
      hopper.release %queries              scf.if (there is a next tile) {
      write %o1                              %o1 = last product
    }                                        %q1 = hopper.receive %queries
                                             %s1 = its first product
                                             write %o1
                                             %p1 = f(%s1)
                                           } else { last product; write }
    ```

    Where the inner loop may not run at all, both tiles must have it run for the
    overlapped form; others finish and start in order. A loop stays as it is where
    what starts early reads memory that the loop writes, where a tile that was
    received at the start is used after the inner loop, or where whether the next
    tile's inner loop runs is not known from its number.

    Needed by: GPU forwards whose schedule has `overlap` (up to 128 columns).
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::arith::ArithDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperStartProducts : Pass<"hopper-start-products", "::mlir::func::FuncOp"> {
  let summary = "Products become asynchronous, with the latest possible waits";
  let description = [{
    `tile.mma` becomes `hopper.wgmma` in its place and a `hopper.wait` in front
    of the first use of the result; the wait leaves running what was started
    later. A `hopper.release` of a tile that a running product reads moves behind
    the wait. Nothing is in flight at the end of a loop body or a branch, and no tile
    is kept when a loop or a branch begins that receives more of the same channel.

    ```mlir
    // Before.
    %s = tile.mma %q, %k, %zero
    hopper.release %keys
    %o1 = tile.mma %p, %v, %o
    use(%s)
    // After.
    %s0 = hopper.wgmma %q, %k
    %o0 = hopper.wgmma %p, %v, %o
    %s = hopper.wait %s0 pending(1)
    hopper.release %keys
    use(%s)
    %o1 = hopper.wait %o0 pending(0)
    ```

    Needed by: GPU kernels with products of matrices.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect"];
}

def HopperPingPong : Pass<"hopper-ping-pong", "::mlir::func::FuncOp"> {
  let summary = "Warpgroups take turns at the tensor core";
  let description = [{
    In a role of two or three warpgroups, around each straight run of
    `hopper.wgmma`: a warpgroup waits at its named barrier before the first and
    lets the next warpgroup go after the last, so that one computes products
    while the others do the arithmetic between them (FlashAttention-3, section
    3.1). The last warpgroup lets the first one go at the start of the role.

    ```mlir
    %first = hopper.named_barriers count(2) // in front of the roles
    ...
    hopper.barrier.sync %mine warpgroups(2) // %first + the warpgroup's number
    %s = hopper.wgmma ...
    %o = hopper.wgmma ...
    hopper.barrier.arrive %next warpgroups(2)
    ```

    Where hopper-trim-loops has split a loop, what a warpgroup only passes on takes as many
    turns as what it computes. Roles whose warpgroups meet at a barrier in each iteration
    stay as they are. Refuses roles in which the number of turns may differ between
    warpgroups, naming the loop or branch that depends on the warpgroup.

    Needed by: GPU kernels whose schedule has `ping-pong`.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::arith::ArithDialect",
                           "mlir::scf::SCFDialect"];
}

def HopperStageOutputs : Pass<"hopper-stage-outputs", "::mlir::func::FuncOp"> {
  let summary = "Tiles leave through shared memory";
  let description = [{
    A `vector.transfer_write` of a rank-2 tile of 16-bit elements by a role
    becomes a `tile.write` to shared memory and a `hopper.tma.store` from
    there, which writes whole lines and leaves out what lies beyond the memref. (Not if
    the length of the memref's rows is dynamic: these need not start at multiples of 16
    bytes, and threads write them. Nor if the role has no products and the memref is an
    allocation, and the tile has a multiple of 32 columns: its threads have 16 bytes side by side.)
    The next one of the same warpgroup waits until the tile has been read. With
    `reuse` the tile takes the place of one that the role has received and not yet
    released, of the same size, which is then released after the copy: that saves
    the memory, and costs the time in which the next tile could have been loaded.
    Where the warpgroups exchange tiles in a loop in front of the outputs (hopper-exchange-rows),
    they meet behind it, at the barrier of the loop, and all that they have exchanged and received
    is free: the first output takes the place of what is given back last, which has the most stages, the second
    one that of the exchanged tiles, in slabs. All are copied at a time.
    With `columns` a wider tile leaves in slabs, through two smaller tiles by turns.

    ```mlir
    // Before.
    vector.transfer_write %o, %O[%i, %c0] : vector<64x64xbf16>, memref<?x64xbf16>
    // After. %mine is the warpgroup's one of as many hopper.named_barriers as there are.
    hopper.tma.wait pending(0) read
    hopper.barrier.sync %mine warpgroups(1)
    tile.write %o to %tile
    hopper.barrier.sync %mine warpgroups(1)
    hopper.fence.async
    hopper.tma.store %tile to %map[%i, %c0]
    ```

    Writes that TMA has no form for stay as they are.

    Needed by: GPU kernels with outputs of 16 bits.
  }];
  let options = [Option<"reuse", "reuse", "bool", /*default=*/"false",
                        "Stage outputs where an input tile has been">,
    Option<"columns", "columns", "int64_t", /*default=*/"0",
           "Columns of a slab (64 of 16-bit elements); 0 for whole tiles">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::arith::ArithDialect"];
}

def HopperEmulateExponentials : Pass<"hopper-emulate-exponentials", "::mlir::func::FuncOp"> {
  let summary = "A part of a tile's exponentials is computed by the FMA units";
  let description = [{
    A `math.exp2` of a tile of f32 in a loop with products gets the attribute
    `hopper.emulated`: of `every` pairs of neighbouring columns one is computed by a
    polynomial (relative error 1.0e-4, a twentieth of bf16's rounding) instead of the
    special function unit, which takes 8 cycles for each 32 elements. It pays where
    exponentials have no product to run beside.

    ```mlir
    // Before.
    %p = math.exp2 %s : vector<64x128xf32>
    // After, with every=4.
    %p = math.exp2 %s {hopper.emulated = 4 : i64} : vector<64x128xf32>
    ```

    Needed by: GPU gradients with order `n_outer` and at most 64 columns.
  }];
  let options = [
    Option<"every", "every", "int64_t", /*default=*/"4",
           "Pairs of columns of which one is computed by a polynomial; 0: none">,
  ];
}

def HopperVersionPrograms : Pass<"hopper-version-programs", "::mlir::func::FuncOp"> {
  let summary = "A program with a branch for rare rows becomes two, of which the device runs one";
  let description = [{
    A branch of `attn-branch-by-rows` asks the rows of each tile, though nearly no tensor has one that
    takes it; the branch alone keeps the loop around it from being pipelined. Where that follows by
    arithmetic from one read of rows of memory that nobody writes any more, a program that reads these
    rows finds it out, 64 rows a flag (`hopper.report warpgroups`): one that is there for something
    else, or one of its own. The program with the branch becomes two: one that takes no branch, for
    when no flag is set, and one that takes each one (`hopper.run_if`), behind all programs for the
    first case that there are: each of these begins while the one before it ends.

    What only the second version reads is computed only for it: the CTAs of a program end at once
    where no flag is set, and the first version does not write it.

    ```mlir
    // Before.
    scf.forall ... { vector.transfer_write %maximum, %M }
    scf.forall (%b, %t) in ... {
      scf.for %i ... step %c64 {
        %l = vector.transfer_read %L[%b, %i] : memref<?x?xf32>, vector<64xf32>
        %is_large = arith.cmpf oge, %l, %least
        %some = vector.reduction <or>, %is_large {attn.may_hold}
        %p = scf.if %some { vector.transfer_read %M[%b, %i] ... } else { yield %usual }
    // After.
    %flags = memref.alloc : memref<?xi32>
    scf.forall (%b, %k) in ... {
      %l = vector.transfer_read %L[%b, 128 %k] : memref<?x?xf32>, vector<128xf32>
      %is_large = arith.cmpf oge, %l, %least
      hopper.report warpgroups %is_large to %flags
    }
    scf.forall (%b, %t) in ... {
      hopper.run_if none %flags
      scf.for %i ... step %c64 { ... %usual ... }
    }
    scf.forall ... {
      hopper.run_if any %flags
      vector.transfer_write %maximum, %M
    }
    scf.forall (%b, %t) in ... {
      hopper.run_if any %flags
      scf.for %i ... step %c64 { vector.transfer_read %M[%b, %i] ... }
    }
    ```

    Gradients need it, for rows of large scores. Where tiles are not aligned to 128 rows, or several
    reads or branches of several kinds decide, each tile asks its rows, and a remark says so.

    Needed by: GPU gradients, unless the option `large-scores` is off.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::mlir::affine::AffineDialect",
                           "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def HopperAdvanceProducts : Pass<"hopper-advance-products", "::mlir::func::FuncOp"> {
  let summary = "The first product of an iteration is computed in the one before";
  let description = [{
    In each innermost loop of a role whose first `tile.mma` needs nothing of the loop
    but a tile that it receives: that product of iteration t + 1 is started behind the
    last one of iteration t, and runs beside what is done with that one's result. The
    tensor core then has work where all warpgroups meet. The tile comes one iteration
    early, too: one more is sent, behind the others of the iteration; the one beyond
    the last iteration is copied (zeros, beyond the end of memory), multiplied and
    given back for nothing.

    ```mlir
    // Before.                              // After.
    scf.for %i = %lo to %hi step %c64 {     %q0 = hopper.receive %Q
      %q = hopper.receive %Q                %s0 = tile.mma %k, %q0, %zero
      %s = tile.mma %k, %q, %zero         scf.for %i ... iter_args(%s = %s0) {
      ...                                     %q = hopper.held %Q
      tile.mma %x, %q, %a                   ...
      hopper.release %Q                       tile.mma %x, %q, %a
      tile.mma ...                          hopper.release %Q
    }                                         tile.mma ...
                                              %q1 = hopper.receive %Q
                                              %s1 = tile.mma %k, %q1, %zero
                                              scf.yield %s1
                                            }
                                            hopper.release %Q
    ```

    Loops without a second product, and channels that are used elsewhere too or whose
    copies are not addressed by arithmetic on the loop's variable, stay as they are.

    Needed by: GPU gradients with order `n_outer`.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "mlir::arith::ArithDialect"];
}

def HopperExchangeRows : Pass<"hopper-exchange-rows", "::mlir::func::FuncOp"> {
  let summary = "Warpgroups exchange rows through shared memory";
  let description = [{
    Each `tile.share` becomes two tiles of the CTA by turns and, in its place, the
    store of the warpgroup's own rows; in front of the first product that reads the tile, a
    barrier of all warpgroups of the role, and a fence, which makes what all have stored
    visible to products. (In front of the barrier each one waited for its own stores: 2 to 5 %
    of a backward.) Who comes by the barrier of an iteration is
    done with the products of the one before, so that one more barrier in front of
    the loop is enough.

    ```mlir
    // Before.
    scf.for ... {
      %all = tile.share %x : vector<64x64xbf16> -> !tile.smem<128x64xbf16, swizzle = 128>
    // After. %id is a hopper.named_barriers count(1), one for each role.
    hopper.barrier.sync %id warpgroups(2)
    scf.for ... iter_args(%turn = %c0) {
      %all = hopper.slot %ring[%turn]
      %mine = tile.rows %all[64 * %w]
      tile.write %x to %mine
      hopper.barrier.sync %id warpgroups(2)
      hopper.fence.async
      ...
      scf.yield (1 - %turn)
    ```

    Outside of a loop there is a barrier in front of each.

    Refuses, with an error at the op, tiles that have not one part for each warpgroup
    of the role.

    Needed by: GPU gradients with order `n_outer`.
  }];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::affine::AffineDialect", "mlir::arith::ArithDialect"];
}

def HopperExpandChannels : Pass<"hopper-expand-channels", "::mlir::func::FuncOp"> {
  let summary = "Channels become rings of tiles with full and empty barriers";
  let description = [{
    The depth of each channel that is used in a loop becomes `stages`, or less
    where shared memory does not hold as many; then those that are given back last have one
    more, where that fits. Other channels have two tiles where these fit beside them. Stage and phase are carried through the loops of
    either role.

    ```mlir
    // Before.
    hopper.send %K[%j, %c0] to %channel
    // After.
    hopper.mbarrier.wait %empty[%stage], %phase
    hopper.mbarrier.expect %full[%stage] bytes(16384)
    %tile = hopper.slot %ring[%stage]
    hopper.tma.load %map[%j, %c0] to %tile, %full[%stage]
    // The next stage, and the other phase where the ring wraps.
    ```

    A tile of one row that is always sent, received and given back between the same of
    another channel shares that one's barriers.

    Of a channel with `multicast(2)`, each CTA of the cluster copies its parts to all, waits
    until all have given the tile back, and waits for all at the end:

    ```mlir
    hopper.mbarrier.wait %empty[%stage], %phase // arrivals(2) cluster
    hopper.mbarrier.expect %full[%stage] bytes(16384)
    scf.for %part = %rank to %c2 step %size {
      %rows = tile.rows %tile[%part * 64]
      hopper.tma.load %map[%j + %part * 64, %c0] to %rows, %full[%stage] multicast
    }
    ```

    Refuses programs that need more than 227 KB with one stage for each channel,
    naming the bytes of each; channels that not exactly one role sends to and one
    receives from; and copies from memory that the host does not know.

    Needed by: all GPU kernels.
  }];
  let options = [Option<"stages", "stages", "int64_t", /*default=*/"2",
                        "Tiles in flight in each channel that is used in a loop">];
  let dependentDialects = ["::attn::hopper::HopperDialect", "::attn::tile::TileDialect",
                           "mlir::arith::ArithDialect", "mlir::scf::SCFDialect"];
}

def HopperAllocateBarriers : Pass<"hopper-allocate-barriers", "::mlir::func::FuncOp"> {
  let summary = "Named barriers get numbers";
  let description = [{
    Each `hopper.named_barriers` of a launch becomes the number of its first barrier: from 1 up
    (0 is that of `__syncthreads`), in the order in which they stand in the launch. Passes put theirs
    in front of those that are there: the turns of hopper-ping-pong come first, then what outputs
    wait for, then exchanges, marks and tables.

    Several together that no inner loop uses get numbers from 15 down. A warpgroup adds its own
    number to the first of several. From 1 up that sum is the warpgroup's number in the CTA, which
    the assembler then keeps in a register for as long as the barriers are needed: turns in the loop
    over keys gain by it, gradients at head dimension 64, which need the sum once per tile, lose up
    to 5% (docs/notes/2026-11-barrier-numbers.md).

    ```mlir
    // Before.
    %turns = hopper.named_barriers count(2)
    %outputs = hopper.named_barriers count(2)
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %mine = arith.addi %w, %outputs : index
        hopper.barrier.sync %mine warpgroups(1)
    // After: %turns, which a loop over keys uses, is 1.
    %outputs = arith.constant 14 : index
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %mine = arith.addi %w, %outputs : index
        hopper.barrier.sync %mine warpgroups(1)
    ```

    Refuses launches that ask for more than 15, with a note at each op that does; and those in which
    an op waits at a barrier with a number of its own, beside allocated ones.

    Needed by: GPU kernels whose warpgroups wait for each other, or store 16 bits by TMA.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect"];
}

def HopperCheckProtocol : Pass<"hopper-check-protocol", "::mlir::func::FuncOp"> {
  let summary = "Check the protocol form of a hopper program without running it";
  let description = [{
    What is provably wrong is an error at the op, with a note at the other op that
    takes part; what follows the forms below but cannot be decided is a remark.
    The IR does not change. The interpreter (docs/interpreter.md) finds more, in
    the cases that it runs; this finds what every run has.

    * *Bytes*: what `hopper.mbarrier.expect` announces is what the copies with the
      same mbarrier and index in the same block bring.
    * *Arrivals*: over the roles, arrivals for each use of an mbarrier times the
      warpgroups of the role are the number that it is initialised for.
    * *Clusters*: an mbarrier counts arrivals of all CTAs, or of its own, as its arrivals
      are; before a copy to all CTAs its role waits for room in all; a
      `hopper.cluster.sync` follows the roles.
    * *Counters*: index and phase of a wait are constants, or are carried by the
      same loops: the phase flips when the index wraps, at the ring's depth. They
      start at 0 and 0 (1 where a role waits for a slot that it then fills), or as
      many tiles later as have been waited for before.
    * *Lifetimes*: a product reads a tile that a copy fills only after a wait for
      the copy's mbarrier, and the arrival that gives the tile back comes after the
      `hopper.wait` that covers the product. Every tile that a loop waits for is
      given back.
    * *Products*: `pending` of a `hopper.wait` is at most the number of products
      started after its own.
    * *Named barriers*: all uses of an id are for the same number of warpgroups,
      by as many warpgroups, where ids follow from the warpgroup's number.
    * *Stores*: a `hopper.fence.async` and a barrier stand between a
      `tile.write` and a copy or product that reads the tile, and a
      `hopper.tma.wait` follows the last copy.

    ```mlir
    hopper.mbarrier.expect %full[%s] bytes(8192)         // error: expects 8192 bytes,
    hopper.tma.load %m[%i, %j] to %tile, %full[%s] : ... // the copies bring 16384
    ```

    Needed by: no kernel; builds with assertions run it on each, without remarks.
  }];
  let options = [Option<"remarks", "remarks", "bool", /*default=*/"true",
                        "Remark what is not decided">];
}

def HopperCheckForm : Pass<"hopper-check-form", "::mlir::func::FuncOp"> {
  let summary = "Check what a stage of the lowering promises of its programs";
  let description = [{
    What a stage should have replaced is an error at the op. Each form keeps what those before it
    promise:

    * `arithmetic`: nests are tiles in memory; exponentials of streamed tiles are to the base 2, but of f64.
    * `programs`: statements are programs of tiles, which are divided among warpgroups at most.
    * `tiles`: products of matrices of 16-bit floats read tiles in shared memory.
    * `channels`: programs are launches; roles load nothing but what they send; each channel has one
      role that sends, and others that receive.
    * `protocol`: no channel, load or synchronous product is left; named barriers have numbers.

    ```mlir
    %c = hopper.channel {...}  // error: is not in the form 'protocol': channels have become rings ...
    ```

    Builds with assertions run it behind each stage, with `hopper-check-protocol` behind the last.

    Needed by: no kernel; who changes a pass of the GPU.
  }];
  let options = [Option<"form", "form", "std::string", /*default=*/"\"protocol\"",
                        "arithmetic, programs, tiles, channels or protocol">];
}

def HopperCheckFacts : Pass<"hopper-check-facts", "::mlir::func::FuncOp"> {
  let summary = "Check that facts of hopper programs are true";
  let description = [{
    What passes say of programs in attributes (docs/facts.md) is compared with what is
    there; what differs is an error at the op, with a note at what shows it. Where an
    attribute may stand, and beside which others, the verifier knows. The IR does not
    change. It may run at any form from tile programs to the protocol form; what a form does
    not show is not checked.

    * `hopper.adding`: a loop with a `hopper.add` has it, and so have the innermost loops of
      other roles that send or receive the same tiles; of the adding role none but those, and
      none inside of another one.
    * `hopper.cooperative`: a launch in which a `hopper.semaphore.wait` may wait has it.
    * `hopper.dealt`: no role takes the tile with the number of its CTA.
    * `attn.descending` of a launch: the number of a CTA's tile is that of an entry of a list.
    * `hopper.nonempty`: the loop is the outermost one of a role.
    * `hopper.trimmed`: a role has as many such loops with products as without.
    * `hopper.aliases`: nothing accesses the argument until all other accesses of the
      allocation are done.

    ```mlir
    scf.for %q = ... {  // error: 'hopper.adding' is missing on a loop whose tiles a role adds ...
      %x = hopper.receive %sums : ...
      hopper.add %x to %y[%q, %c0] : ...   // note: added here
    }
    ```

    Needed by: no kernel; `attn-opt --check-facts` runs it after each pass.
  }];
}

def HopperFormRowPrograms : Pass<"hopper-form-row-programs", "::mlir::func::FuncOp"> {
  let summary = "Statements that share rows become launches whose threads hold a row";
  let description = [{
    A function of statements on memrefs, in which each loop over what is reduced is the loop over the
    elements of a row (the same in all statements) and all other loops are parallel, becomes launches
    in which the threads of a group (lanes of a warp, warps of a CTA, or the CTAs of a cluster) hold
    a row in registers: each element is read once, all statements are done with it, and only what
    is used outside is stored. No dependence is carried by the loops over rows; a reduction is
    a meeting of the group: shuffles, shared memory, and the shared memory of the cluster's CTAs.

    The host chooses one of several launches by the length of a row: threads of a group are as many
    as hold it with 32 elements each (16 where a program reads several operands). Rows that are too
    long for a cluster of `ctas` CTAs are divided into parts, as many as fill `multiprocessors`: a
    launch for each reduction stores one partial result for each part, which the next launches
    combine, and each launch reads the rows again.

    Threads read and write 16 bytes at a time. Where rows do not begin at multiples of that, the
    pieces do: the first and the last one of a row are read and written by elements.

    ```mlir
    // Before.
    linalg.generic ... ["parallel", "reduction"] ins(%x) outs(%m)   // maximum
    linalg.generic ... ["parallel", "parallel"] ins(%x, %m) outs(%p) // exponential
    linalg.generic ... ["parallel", "reduction"] ins(%p) outs(%l)   // sum
    linalg.generic ... ["parallel", "parallel"] ins(%p, %l) outs(%y) // quotient
    // After (one of the launches).
    gpu.launch blocks(%n) threads(128) workgroup(%cells : memref<4xf32>) {
      hopper.threads
      %piece = scf.if %is_whole { vector.load %x[%row, %column] : vector<8xbf16> } else { ... }
      %own = arith.maxnumf ...                       // of the elements of this thread
      %other, %valid = gpu.shuffle xor %own, %c1, %c32
      ...                                            // %m of the row
      %p = math.exp (%element - %m)
      ...                                            // %l of the row
      vector.store (%p / %l), %y[%row, %column] : vector<8xbf16>
    }
    ```

    Refuses, with an error at the op: a statement that reduces over rows or over two loops, memory
    that two statements index differently, a result that rows share, results of f64, and
    functions in which nothing is reduced or in which something else accesses memory.

    Needed by: row softmax on a GPU, forward and backward, and other reductions of rows.
  }];
  let options = [
    Option<"ctas", "ctas", "int64_t", /*default=*/"8", "Most CTAs of a cluster">,
    Option<"multiprocessors", "multiprocessors", "int64_t", /*default=*/"132",
           "Multiprocessors that parts of long rows are to fill">,
    Option<"threads", "threads", "int64_t", /*default=*/"512",
           "Threads of a CTA that share a row, at most; twice as many in the largest clusters">,
    Option<"parts", "parts", "int64_t", /*default=*/"0",
           "Divides all rows into so many parts; 0: those that are too long, by the device">];
  let dependentDialects = ["mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::gpu::GPUDialect", "attn::hopper::HopperDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def HopperLaunchLoops : Pass<"hopper-launch-loops", "::mlir::func::FuncOp"> {
  let summary = "Affine loops on memory become launches of threads, as planned";
  let description = [{
    Each outermost `affine.for` of a function becomes one launch or several. An iteration of the outer
    parallel loops, a row, has a team, which the treatment of the loops inside decides
    (`attn.treatment`, which `attn-plan-loops` writes; the dependence graph is asked again):

    | treatment of loops in a row | team of a row |
    |---|---|
    | none carries anything, or all are `owner_computes` | a thread, or a CTA where loops inside are parallel |
    | `cluster_reduction` | the CTAs of a cluster, which share parts in their shared memory |
    | `grid_phases` | CTAs of a cooperative launch, which meet by `hopper.grid.sync` |
    | `ordered_turnstile` | the same; each iteration waits for the one before at the row's flag |
    | `partial_and_merge` | CTAs; a launch ends where they would meet, or, with `merge=last`, the last CTA of a row goes on alone (`hopper.last_arrival`) |
    | `atomics` | CTAs; each adds its part to memory |

    All threads of a team execute the statements of a row; the first one stores. A parallel loop in
    a row is divided among the threads of the team. A divided loop has its iterations dealt to
    threads, or to CTAs where a parallel loop is inside; each computes a part of the running value
    from the operation's neutral element, and parts are combined in one order, so that only atomics
    depend on timing. Where a statement sees what other threads have done, or changes what they see,
    as a dependence of the graph says, the team meets in between.

    ```mlir
    affine.for %i = 0 to 8 {
      affine.for %j = 0 to 4096 {
        %x = affine.load %X[%i, %j] : memref<8x4096xf32>
        %s = affine.load %S[%i] : memref<8xf32>
        %t = arith.addf %s, %x : f32
        affine.store %t, %S[%i] : memref<8xf32>
      } {attn.treatment = "cluster_reduction"}
    } {attn.treatment = "parallel"}
    ```

    becomes

    ```mlir
    gpu.launch clusters in (8, 1, 1) blocks in (64, 1, 1) threads in (128, 1, 1)
               workgroup(%warps : memref<4xf32>, %parts : memref<1xf32>) {
      hopper.threads
      ... // the sum of this thread's elements; of the CTA's, into %parts
      hopper.cluster.sync
      scf.if %is_first {
        %part = hopper.remote.load %parts[%c0] of %rank ... // of all CTAs, to S[i]
      }
      hopper.cluster.sync
    }
    ```

    Refused, with an error at the op: a plan that the graph does not allow; divided running values
    that are not f32 or i32, or whose element or number of elements is not known; a grid that would
    meet in a loop that differs from row to row; more CTAs that wait for each other than run at a
    time; accesses of memory outside of loops; f64.

    Needed by: users' loops on a GPU.
  }];
  let options = [
    Option<"threads", "threads", "int64_t", /*default=*/"128", "Threads of a CTA: a multiple of 32">,
    Option<"parts", "parts", "int64_t", /*default=*/"0",
           "CTAs of a row whose loops are divided; 0: 8 in clusters, else as many as run at a time">,
    Option<"ctas", "ctas", "int64_t", /*default=*/"132", "CTAs that run at a time">,
    Option<"merge", "merge", "std::string", /*default=*/"\"team\"",
           "Who merges parts of partial_and_merge: team (in another launch), last (the last CTA of a row)">,
    Option<"team", "team", "std::string", /*default=*/"\"auto\"",
           "What runs a row in which no loop is divided among CTAs: thread, cta, or auto">];
  let dependentDialects = ["mlir::affine::AffineDialect", "mlir::arith::ArithDialect",
                           "mlir::gpu::GPUDialect", "attn::hopper::HopperDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

#endif
