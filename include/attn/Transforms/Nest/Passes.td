// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_TRANSFORMS_NEST_PASSES
#define ATTN_TRANSFORMS_NEST_PASSES

include "mlir/Pass/PassBase.td"

def AttnNormalizeStatements : Pass<"attn-normalize-statements", "::mlir::func::FuncOp"> {
  let summary = "Write linalg ops as statements over loops, without kept dimensions";
  let description = [{
    Later passes read statements: each a `linalg.generic` whose results have the dimensions of its
    loops. What users and other compilers write is brought to that form:

    * Ops that stand for several statements (`linalg.softmax`) are decomposed.
    * Named ops (`linalg.matmul`) become `linalg.generic`; fills stay.
    * A maximum or minimum that ignores NaN (`arith.maxnumf`) and starts at NaN starts at the infinity that
      is neutral.
    * A dimension of size 1 that no loop indexes (a reduction that keeps its dimension, as in
      PyTorch's `keepdim=True`) is dropped, with upstream's patterns; reshapes that cancel go.

    Refused, at the op: an aggregate on buffers.

    ```mlir
    // Before.
    %m = linalg.generic {indexing_maps = [(h,i,j) -> (h,i,j), (h,i,j) -> (h,i,0)], ...}
             ins(%s : tensor<6x48x80xf32>) outs(%m0 : tensor<6x48x1xf32>) ...
    %d = linalg.generic {indexing_maps = [(h,i,j) -> (h,i,j), (h,i,j) -> (h,i,0), ...], ...}
             ins(%s, %m : tensor<6x48x80xf32>, tensor<6x48x1xf32>) ...
    // After.
    %m = linalg.generic {indexing_maps = [(h,i,j) -> (h,i,j), (h,i,j) -> (h,i)], ...}
             ins(%s : tensor<6x48x80xf32>) outs(%m1 : tensor<6x48xf32>) ...
    %d = linalg.generic {indexing_maps = [(h,i,j) -> (h,i,j), (h,i,j) -> (h,i), ...], ...}
             ins(%s, %m : tensor<6x48x80xf32>, tensor<6x48xf32>) ...
    ```

    Needed by: kernels of `linalg` ops that a user or another compiler wrote.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::tensor::TensorDialect"];
}

def AttnFuseReductions : Pass<"attn-fuse-reductions", "::mlir::func::FuncOp"> {
  let summary = "Fuse a cascade of reductions into one pass with carried state";
  let description = [{
    Looks for a dimension (the keys, in attention) that an intermediate tensor
    spans and a later statement reduces, and fuses all statements over it into
    one `attn.fold`, so that the intermediate is never stored.

    Where a statement of the cascade reads the result of a reduction over the
    same dimension, a fusion-preventing dependence stands in the way: the final
    value is needed before the first element is read. It is repaired where every
    reader is homogeneous in that value:

    * The value is a running maximum `m`, and the reader's terms change by the
      factor `exp(-d)` when `m` grows by `d` (as `exp(s - m)` does). The fold
      carries `m`, uses the running one, and multiplies a carried sum by
      `exp(m_old - m_new)` before it adds a block (Milakov and Gimelshein,
      2018; FlashAttention, algorithm 1).
    * The value is a running sum `l`, and the reader's terms are a power `l^k`
      times something that does not depend on it (as `x / l` is). The factor is
      taken out of the sum and applied once, at the end.

    Other readers are refused with a remark that names the reduction, the reader
    and the op that breaks the form.

    Statements over the dimension whose whole result is needed (the output of a
    row softmax) become a second fold that maps blocks to blocks. So do those that
    a product leads to where nothing reduces them along the dimension alone (the
    gradient of a bias that batches share): neither the product nor what lies
    between is stored.

    Values of a cascade may also be summed along another dimension (the rows:
    dK and dV, where the cascade along the keys gives dQ). Each of the two sums
    depends on itself, carried by a loop of its own, so that one pass cannot
    have both loops outside. `sums=apart` leaves the other sum to a pass of its
    own, which computes the shared statements again (loop distribution);
    `sums=together` makes it a mapped result of the same fold, with what follows
    from it; `auto` compares floating-point operations and parallelism. With
    `sums=parallel` the fold carries the sums along that one of the two dimensions
    whose results have more columns (dK and dV, along the queries) and maps the
    others (dQ), as sums over all rows and without what follows from them: parallel
    tiles of rows may then add up their parts in memory
    (`parallel-sums` of attn-tile-nest). A sum that is summed again along the first
    dimension (of the slope of a head, over keys, then queries) is not part of it.

    A statement over the dimension that would be computed again for each row, or sums
    along another one of all that it reads, and whose result is no larger than a tensor
    that it reads, is not part of the cascade: it is computed once and streamed (the row
    sums of dO * O).

    A sum that is left alone becomes a fold too where it is along the innermost
    dimension of a tensor, or of matrices whose rows have a static size up to 1024
    (over a group of heads): it then has tiles, which are parallel.

    The fold gets a `merge` region where states of parts of the dimension can be
    combined.

    Before: the cascade of `attn-expand`. After (shortened):

    ```mlir
    %r:3 = attn.fold %n streams(%k, %v : ...) dims [2, 2] carries(%m0, %l0, %o0 : ...) {
    ^bb0(%j0: index, %kb: tensor<..x?x64xf32>, %vb: tensor<..x?x64xf32>, %m: ..., %l: ..., %o: ...):
      %s  = linalg.generic ...   // sum_d q kb
      %m1 = linalg.generic ...   // max(m, max_j s)
      %ms = linalg.generic ...   // m1 == -inf ? 0 : m1
      %p  = linalg.generic ...   // exp(s - ms)
      %c  = linalg.generic ...   // exp(m - ms)
      %l1 = linalg.generic ...   // l c + sum_j p
      %o1 = linalg.generic ...   // o c + sum_j p vb
      attn.yield %m1, %l1, %o1 : ...
    }
    ```

    Needed by: all kernels.
  }];
  let options = [
    Option<"sums", "sums", "std::string", /*default=*/"\"auto\"",
           "Sums of the same values along two dimensions: apart (two passes), "
           "together (one), parallel (one, with the smaller sums in parts) or auto "
           "for the cheaper of the first two">,
    Option<"threads", "threads", "int64_t", /*default=*/"8",
           "Threads that the cost model counts on">,
    Option<"assumedSize", "assumed-size", "int64_t", /*default=*/"2048",
           "Size that the cost model takes for a dynamic dimension that is summed over">,
    Option<"explain", "explain", "bool", /*default=*/"false",
           "Remark what sums along two dimensions cost and what was chosen">,
  ];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def AttnMergeSums : Pass<"attn-merge-sums", "::mlir::func::FuncOp"> {
  let summary = "A sum of what a fold sums up becomes one sum over both dimensions";
  let description = [{
    Where each carried value of a fold is a sum that starts at 0 and is read only by a
    second fold, which adds it up along another dimension: the first fold adds
    over both dimensions, and its result has the other one no more. So the sums
    over a group of heads (dK and dV of grouped queries) need no memory of their
    own; the dimension is then no longer parallel.

    ```mlir
    // Before.
    %dk = attn.fold %sq streams(%q, ...) carries(%0 : tensor<4x2x3x?x64xf32>) { ... }
    %sum = attn.fold %c3 streams(%dk : ...) dims [2] carries(%1 : tensor<4x2x?x64xf32>) { add }
    // After.
    %sum = attn.fold %sq streams(%q, ...) carries(%1 : tensor<4x2x?x64xf32>) { ... }
    ```

    Needed by: GPU gradients (dK and dV are sums over a group of heads).
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::linalg::LinalgDialect"];
}

def AttnSplitSums : Pass<"attn-split-sums", "::mlir::func::FuncOp"> {
  let summary = "Sums that do not fit beside each other become passes of their own";
  let description = [{
    A fold whose carried sums do not need each other, and have more than `columns`
    columns together (in registers of 32 bits), becomes one fold for each (loop distribution): what they
    share is computed again for each. So does what a fold maps beside sums, if that is
    computed from products: it is to be stored for each pair of indices.

    ```mlir
    // Before.
    %r:2 = attn.fold ... carries(%0, %0 : tensor<?x256xf32>, tensor<?x256xf32>) { ... }
    // After, with columns=256.
    %r0 = attn.fold ... carries(%0 : tensor<?x256xf32>) { ... }
    %r1 = attn.fold ... carries(%0 : tensor<?x256xf32>) { ... }
    ```

    Needed by: GPU gradients of a bias for each pair, or whose dK and dV no kernel can hold together.
  }];
  let options = [Option<"columns", "columns", "int64_t", /*default=*/"256",
                        "Columns that the sums of one fold may have together">];
  let dependentDialects = ["::attn::AttnDialect"];
}

def AttnSliceSums : Pass<"attn-slice-sums", "::mlir::func::FuncOp"> {
  let summary = "Sums of more columns than threads hold are divided by columns";
  let description = [{
    A column of a carried sum is that sum without the others. A fold with a sum of more than
    `columns` columns becomes one for each slice of them: what has no columns (scores, maxima, the
    sum of weights) is computed again for each, what has them, in the fold and behind it, is of a
    slice, and its operands are slices of theirs. Where a result is needed as a whole it is put
    together in memory. Slices are as equal as multiples of `multiple` allow.

    Legal where each statement with a loop over the columns has them in parallel, reads its
    operands by projections, and does not ask for the column's number; a remark says what is
    otherwise.

    ```mlir
    // Before: 512 columns.
    %r:2 = attn.fold %n streams(%k, %v : tensor<?x512xf32>, tensor<?x512xf32>) dims [0, 0]
             carries(%m, %o : tensor<?xf32>, tensor<?x512xf32>) { ... }
    // After, with columns=256.
    %v0 = tensor.extract_slice %v[0, 0] [%n, 256] [1, 1] : tensor<?x512xf32> to tensor<?x256xf32>
    %r0:2 = attn.fold %n streams(%k, %v0 : tensor<?x512xf32>, tensor<?x256xf32>) dims [0, 0]
              carries(%m, %o0 : tensor<?xf32>, tensor<?x256xf32>) { ... }
    %v1 = tensor.extract_slice %v[0, 256] [%n, 256] [1, 1] : ...
    %r1:2 = attn.fold ...
    %r = tensor.insert_slice %r0#1 into ...
    ```

    Needed by: GPU kernels of more than 256 value columns (f64: 128), and of their gradients.
  }];
  let options = [Option<"columns", "columns", "int64_t", /*default=*/"256",
                        "Most columns of a sum, in registers of 32 bits">,
                 Option<"multiple", "multiple", "int64_t", /*default=*/"16",
                        "Columns of a slice are a multiple of this, but for the last one's">];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::linalg::LinalgDialect"];
}

def AttnPlanNest : Pass<"attn-plan-nest", "::mlir::func::FuncOp"> {
  let summary = "Choose the loop order of each nest from what its dependences allow";
  let description = [{
    A nest is an `attn.fold` with the statements that prepare its start values and those that finish
    its results. This pass builds the dependence graph of each (attn/Analysis), and writes an
    `#attn.plan` on its fold, which `attn-tile-nest` obeys: the role of each loop, and how it runs.

    Roles follow from the form of the statements:

    * a *worker* loop (batch, head) is one that all statements over the streamed loop have, and all
      states: one index per worker;
    * the *row* loop is the last worker loop that no streamed input has, and of more than one element
      where there is such a loop (with one query: the heads of a group);
    * the *streamed* loop is the fold's;
    * a loop that every carried sum is over, besides the streamed one, and that the statements before
      these sums have, goes *around* the one over streamed tiles;
    * loops of a *table* that sums at computed indices add to are in memory;
    * all others (head dimensions) are *whole* in each tile.

    Three orders are asked about, `order` or the cheapest legal one is taken:

    * `m_outer`: rows outside, streamed tiles inside (FlashAttention-2). Rows are parallel, or, with
      `parallel-sums`, add to sums over the rows in memory (`atomics`).
    * `n_outer`: streamed tiles outside, rows inside (FlashAttention-1); the state of all rows is in
      memory, workers are parallel.
    * `split_kv`: rows and `parts` parts of the streamed loop are parallel; states of the parts are
      merged afterwards (`partial_and_merge`). With `parts=0` the program computes their number from
      its sizes: of the numbers that fill whole rounds of `threads` programs, the one whose last round
      ends first (wave quantization).

    The graph refuses: a parallel loop that carries a dependence; a loop that statements would share
    where one needs the other's whole loop (a second pass over the keys in the orders `n_outer` and
    `split_kv`); a treatment that is not legal for what the loop carries, as `attn-print-dependences`
    lists them; an order that makes a vector negative. The error names source, sink, kind and vector.
    A fold that has a plan keeps it, if it is legal.

    The cost of an order is bytes moved and tiles in parallel, as in FlashAttention (Dao et al., 2022,
    theorem 2) with tile sizes in place of a cache size.

    ```mlir
    // Before.
    %r:3 = attn.fold %n streams(%k, %v : ...) dims [2, 2] carries(...) { ... } -> ...
    // After.
    %r:3 = attn.fold %n streams(%k, %v : ...) dims [2, 2] carries(...) { ... }
        plan <m_outer, loops = [<"b" : worker, parallel>, <"i" : row, parallel>,
                             <"j" : streamed, owner_computes>, <"d" : whole, owner_computes>]> -> ...
    ```

    Needed by: all kernels.
  }];
  let options = [
    Option<"order", "order", "std::string", /*default=*/"\"auto\"",
           "Loop order: m_outer, n_outer, split_kv, or auto for the cheapest legal one">,
    Option<"parts", "parts", "int64_t", /*default=*/"4",
           "Parts of the streamed dimension, for order=split_kv; 0: as many as keep `threads` busy">,
    Option<"parallelSums", "parallel-sums", "bool", /*default=*/"false",
           "Parallel tiles of rows add to sums over the rows in memory">,
    Option<"blockM", "block-m", "int64_t", /*default=*/"64",
           "Rows per tile that the cost model counts on">,
    Option<"blockMMultiple", "block-m-multiple", "int64_t", /*default=*/"16",
           "Tiles that fewer rows get are a multiple of this">,
    Option<"blockN", "block-n", "int64_t", /*default=*/"128",
           "Elements of the streamed dimension per tile that the cost model counts on">,
    Option<"rowsFirst", "rows-first", "bool", /*default=*/"false",
           "Rows will be the first dimension of every tile">,
    Option<"threads", "threads", "int64_t", /*default=*/"8",
           "Threads that the cost model counts on">,
    Option<"assumedSize", "assumed-size", "int64_t", /*default=*/"2048",
           "Size that the cost model takes for a dynamic row or streamed dimension">,
    Option<"explain", "explain", "bool", /*default=*/"false",
           "Remark the plan, and what each order would cost or why it is not legal">,
  ];
  let dependentDialects = ["::attn::AttnDialect"];
}

def AttnTileNest : Pass<"attn-tile-nest", "::mlir::func::FuncOp"> {
  let summary = "Tile a nest of folds and statements into vector programs";
  let description = [{
    Turns each `attn.fold`, with the statements that prepare its start values
    and those that finish its results, into a tile program: an `scf.forall`
    over workers and row tiles, an `scf.for` over tiles of the streamed
    dimension, and `vector` values inside. It obeys the `plan` of the fold
    (attn-plan-nest), which it expects:

    * of a worker dimension each worker has one index;
    * the row dimension is tiled by `block-m`;
    * the streamed dimension is tiled by `block-n`; where all that a fold
      has is inner products of rows (sums of products whose terms belong to one
      row each), of a static size up to 1024, it is one tile, so that they are
      summed in the same order as products of matrices over a head's size;
      where a fold only adds up matrices, all that it streams having the same two
      innermost dimensions, the outer one is the rows, the inner one whole, and
      the streamed dimension goes one by one;
    * a dimension around the streamed one has a loop, one index at a time;
    * what is whole in each tile (head dimensions) needs a static size.

    Elements beyond the end of the streamed dimension get the neutral element
    of the reduction that reads them first, by a select in the tile (`-inf`
    before a row maximum), merged with the mask's own select where there is
    one. Reads beyond the end give 0, writes are dropped.

    A fold may ask for sizes of its own by the attributes `attn.block_m` and
    `attn.block_n`. Dimensions of tiles are in the order in which the
    statements name their loops; with `rows-first` the rows come first: a nest
    whose rows are keys then has tiles of keys x queries.

    In the order `m_outer` the state is in vectors, in `n_outer` in memory, a row of state per
    row; in `split_kv` each part of the streamed dimension stores its state, and a second
    program merges them by the fold's merge region.

    Loops over streamed tiles, and row loops inside of them, carry the unit
    attribute `attn.fold_loop`: an iteration whose reduction terms are all neutral,
    and which stores nothing but 0 to tensors that it does not read, may be
    skipped (such tensors start as zeros).

    A sum at computed indices over the rows and the streamed dimension (a
    one-hot sum: it adds select(index == linalg.index n, x, 0)) becomes an
    `attn.scatter_add` into a table of any size that one worker owns, or, where rows
    add to memory, that they share.

    A sum over the rows (dK and dV beside dQ): with rows inside, its accumulators are carried
    through the row loop, as vectors, and stored once per streamed tile; `split_kv` gives each
    part of the streamed dimension a state of its own for all rows. Where rows add to memory,
    each tile of rows adds its part of the sum to memory, which starts as zeros
    (`attn.tile_add`), in an order that is not fixed.

    Before:

    ```mlir
    %r:3 = attn.fold %n streams(%k, %v : ...) ... { ... }
    %o = linalg.generic ... ins(%r#2, %r#1 : ...) ...   // divide
    ```

    After:

    ```mlir
    %o = scf.forall (%b, %h, %t) in (%B, %H, %T) shared_outs(%out = %empty) -> (...) {
      %q = vector.transfer_read ...
      %s:3 = scf.for %j0 = %c0 to %n step %c128 iter_args(...) -> (vector<64xf32>, ...) {
        ...
      } {attn.fold_loop}
      ...
    }
    ```

    Needed by: all kernels.
  }];
  let options = [
    Option<"blockM", "block-m", "int64_t", /*default=*/"64", "Rows per tile">,
    Option<"blockMMultiple", "block-m-multiple", "int64_t", /*default=*/"16",
           "Tiles that fewer rows get are a multiple of this">,
    Option<"blockN", "block-n", "int64_t", /*default=*/"128",
           "Elements of the streamed dimension per tile">,
    Option<"rowsFirst", "rows-first", "bool", /*default=*/"false",
           "Rows are the first dimension of every tile, whatever statements name first">,
    Option<"parallelSums", "parallel-sums", "bool", /*default=*/"false",
           "Parallel tiles of rows add to sums over the rows in memory">,
  ];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::vector::VectorDialect"];
}

#endif
