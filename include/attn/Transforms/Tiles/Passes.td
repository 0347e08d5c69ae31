// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on L2 tile programs that turn masks into loop structure.

#ifndef ATTN_TRANSFORMS_TILES_PASSES
#define ATTN_TRANSFORMS_TILES_PASSES

include "mlir/Pass/PassBase.td"

def AttnProjectMasks : Pass<"attn-project-masks"> {
  let summary = "Bound tile loops by their masks and free full tiles of them";
  let description = [{
    For each `scf.for` marked `attn.fold_loop` whose body selects -inf or 0 where an
    integer mask is false: proves that a tile on which the mask is false
    everywhere contributes nothing, projects the mask onto the tile starts, and
    splits the loop in order into a partial, a full and a partial loop. Empty
    tiles are in none of them; the full loop has no mask arithmetic, and its
    reads are in bounds where the mask held the bound.

    ```mlir
    // Before: causal, tiles of 64 x 128.
    scf.for %j0 = %c0 to %Sk step %c128 iter_args(...) {
      ...
      %keep = arith.cmpi sge, %rows, %columns : vector<64x128xindex>
      %masked = arith.select %keep, %scores, %ninf
      ...
    } {attn.fold_loop}

    // After.
    %hi = affine.min (i0, Sk) -> (((i0 + 63) floordiv 128) * 128 + 128, Sk)
    %f1 = affine.min (i0, Sk) -> (((i0 - 127) floordiv 128) * 128 + 128, Sk)
    scf.for %j0 = %c0 to %f1 step %c128 iter_args(...) {
      ... // %scores themselves
    } {attn.fold_loop, attn.full}
    scf.for %j0 = %f1 to %hi step %c128 iter_args(...) {
      ... // with the select
    } {attn.fold_loop, attn.partial}
    ```

    Masks are and/or/not/xor/select of integer comparisons whose sides are
    affine in the row and the column, with scalars and per-row vectors that do
    not change with the loop, minima, maxima, absolute values, and quotients
    and remainders by positive constants. What is not of this form is taken to
    be possibly true (it excludes no tile) and possibly false (it makes no tile
    full). Where a disjunction may leave empty tiles between two ranges, the
    partial loops test the tile (`scf.if` marked `attn.guard`).

    Integer arithmetic of masks is taken not to wrap. The upper bound of a fold
    loop is taken to be the extent of the tensors that it reads at its variable.
    A loop whose mask cannot be projected stays as it is, with a remark that
    names the reduction and the reason. A fold loop without any mask is marked
    `attn.full`.

    With `branch` there is one loop from the first to the last tile that is not
    empty, in which full tiles branch around each select (`scf.if` marked
    `attn.tile_kind`); `control-flow-sink` then moves the mask's arithmetic into
    the branch. That keeps one stream of iterations for a software pipeline,
    where several loops would each fill and drain it.

    Needed by: all kernels (a last tile that is not whole is masked, too).
  }];
  let options = [Option<"branch", "branch", "bool", /*default=*/"false",
                        "One loop with a branch around the mask instead of three">];
  let dependentDialects = ["mlir::affine::AffineDialect",
                           "mlir::arith::ArithDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def AttnTabulateMasks : Pass<"attn-tabulate-masks"> {
  let summary = "List the tiles of masks that no inequality bounds";
  let description = [{
    For each `scf.for` marked `attn.fold_loop` with a mask that `attn-project-masks`
    cannot read, such as equality of document numbers loaded for the row and for
    the column: evaluates clones of the mask's own ops on each tile before the
    enclosing loops, and lists for each combination of the loop variables that
    the mask depends on the tiles that are not empty, as 2 * tile + full in
    int32. The loop then runs over its list; full tiles have no mask arithmetic.
    Runs before `attn-project-masks`, with which it shares the proof that empty
    tiles may be skipped and the bounds: the part of the mask that can be read
    restricts the tiles that are tested. Where the mask asks for equality of
    loaded vectors, disjoint ranges of their values exclude a tile without a
    test of its elements. With `extremes`, the ranges of the columns come from
    tables of their own, which all rows share: the tiles that are tested are those
    between the first and the last one with a range that meets the rows', and one
    where all these values are one is full without a test, if the rest of the mask
    bounds it so. One that shares an extreme with the rows is listed as not full
    without a test. Where none needs a test, all are listed at once, in vectors. A loop with
    one product (maxima and sums of rows) has no tables of extremes.
    A loop without products, whose mask is computed from tiles in
    memory, gets no table, which would cost as much as the loop.

    ```mlir
    // Before.
    scf.forall (%b, %h, %ti) in (%B, %H, %n) ... {
      scf.for %j0 = %c0 to %Sk step %c128 iter_args(...) {
        ...
        %keep = arith.cmpi eq, %row_docs, %column_docs : vector<64x128xi32>
        ...
      } {attn.fold_loop}

    // After.
    %table:2 = scf.forall (%b, %ti) in (%B, %n) shared_outs(...)
        -> (tensor<?x?x?xi32>, tensor<?x?xi32>) { ... }
    scf.forall (%b, %h, %ti) in (%B, %H, %n) ... {
      %length = tensor.extract %table#1[%b, %ti]
      scf.for %t = %c0 to %length step %c1 iter_args(...) {
        %entry = tensor.extract %table#0[%b, %ti, %t]
        %full = ... // entry & 1
        %j0 = ...   // (entry >> 1) * 128
        scf.if %full { ... } else { ... } {attn.tile_kind}
      } {attn.fold_loop, attn.tabulated}
    ```

    The table has one int32 per tile and one per row of tiles. A loop whose mask
    or bounds need more than loop variables and integer arithmetic stays as it
    is, with a remark. `branch` is as in `attn-project-masks`.

    Needed by: kernels with documents, and other masks that projection cannot read.
  }];
  let options = [Option<"branch", "branch", "bool", /*default=*/"false",
                        "One body with a branch around the mask instead of two">,
                 Option<"extremes", "extremes", "bool", /*default=*/"false",
                        "Tables of the least and the greatest of loaded columns">,
                 Option<"inPrograms", "in-programs", "bool", /*default=*/"true",
                        "A program may make a table for itself; else one that cannot be made in "
                        "front of all programs is an error">,
                 Option<"atOnce", "at-once", "bool", /*default=*/"false",
                        "A table that has no row for each tile of rows is made by a program for each "
                        "entry, and one that counts those in front of it">];
  let dependentDialects = ["mlir::affine::AffineDialect",
                           "mlir::arith::ArithDialect", "mlir::scf::SCFDialect",
                           "mlir::tensor::TensorDialect",
                           "mlir::vector::VectorDialect"];
}

def AttnMergeBounds : Pass<"attn-merge-bounds"> {
  let summary = "Several bounds on an element's column become one per row";
  let description = [{
    In conjunctions of comparisons of the column of a tile's elements with one
    value per row or for the whole tile, which may be a constant (a diagonal, a window, the
    end of the keys), all upper bounds become one, and all lower bounds: a minimum or a
    maximum per row, and one comparison per element.

    ```mlir
    // Before.
    %a = arith.cmpi sge, %row, %column : vector<64x128xindex>
    %b = arith.cmpi slt, %column, %end : vector<64x128xindex>
    %keep = arith.andi %a, %b
    // After.
    %last = arith.minsi %row, %end_minus_1 : vector<64xindex>
    %keep = arith.cmpi sle, %column, %last_repeated : vector<64x128xindex>
    ```

    Integer arithmetic of masks is taken not to wrap, as in attn-project-masks.

    Needed by: GPU kernels with masks.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::vector::VectorDialect"];
}

def AttnUseExp2 : Pass<"attn-use-exp2"> {
  let summary = "Exponentials in base 2, with constant factors folded into them";
  let description = [{
    GPUs have an instruction for 2^x and a fused multiply-add, so that
    `exp(s * scale - m)` costs one of each per element:

    ```mlir
    // Before.
    %t = arith.mulf %s, %scale : vector<64x128xf32>         // a positive constant
    %m = vector.multi_reduction <maxnumf>, %t, %m0 [1]
    %d = arith.subf %t, %m_repeated
    %p = math.exp %d
    // After.
    %x = vector.multi_reduction <maxnumf>, %s, %ninf [1]
    %y = arith.mulf %x, %scale_log2e_row                    // once per row
    %m = arith.maxnumf %m0, %y
    %d = math.fma %s, %scale_log2e, %minus_m_repeated
    %p = math.exp2 %d
    ```

    A maximum that is subtracted is in units of ln 2 from where it is taken, also
    where loops and branches carry it; other uses multiply it by ln 2. What is
    subtracted from the scores is then, to the bit, what a log-sum-exp adds again,
    and its rounding does not matter.

    The factor moves behind selects with -inf and behind the branch around them,
    which a positive factor commutes with. A quotient by one value per row
    becomes a product with its inverse. Each rounds differently, by a few units
    in the last place of f32; f64 is left alone.

    Needed by: GPU kernels with exponentials or quotients.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::math::MathDialect",
                           "mlir::scf::SCFDialect", "mlir::vector::VectorDialect"];
}

def AttnDelayRescaling : Pass<"attn-delay-rescaling"> {
  let summary = "Sums under a running maximum are rescaled where that has grown by much";
  let description = [{
    A sum of exponentials carries the maximum that was subtracted, and is multiplied by
    2^(old - new) where it grows. Any other number would do as well that keeps the
    exponentials in range. So a row takes another maximum only where it is larger by more
    than `rescale-threshold`: terms are then at most 2^`rescale-threshold`, and nearly all
    factors of rescaling are
    products with 1, which a kernel leaves out for rows that it has side by side (marked
    `attn.rescaling`), as FlashAttention-4 does.

    ```mlir
    // Before, in a loop marked attn.fold_loop.
    %m = arith.maxnumf %m0, %tile_maximum
    %d = arith.subf %m0, %m
    %c = math.exp2 %d
    %o = arith.mulf %o0, %c_repeated : vector<64x128xf32>
    // After, with rescale-threshold=8.
    %m1 = arith.maxnumf %m0, %tile_maximum
    %limit = arith.addf %m0, %eight
    %grows = arith.cmpf ogt, %m1, %limit
    %m = arith.select %grows, %m1, %m0
    ...
    %o = arith.mulf %o0, %c_repeated {attn.rescaling} : vector<64x128xf32>
    ```

    It is done where all results are proved to be the same for any maximum: each use of
    it, and of the sums under it, in the loop and behind it, is of a form that is
    known (differences, 2^x, products, quotients, sums, logarithms, contractions,
    selects), and all that is stored is invariant, such as a quotient of two sums, or
    ln 2 times the maximum plus the logarithm of a sum. A remark names the first use that
    is not.

    Needed by: GPU kernels with running maxima, where the schedule has `rescale-threshold`.
  }];
  let options = [
    Option<"rescaleThreshold", "rescale-threshold", "double", /*default=*/"8",
           "How much larger a maximum is before it is taken, in powers of two">];
  let dependentDialects = ["mlir::arith::ArithDialect"];
}

def AttnSinkIntoBranches : Pass<"attn-sink-into-branches"> {
  let summary = "What only masked tiles need is computed in their branches";
  let description = [{
    Pure ops that are used on one side of branches around masks (`attn.tile_kind`) and
    nowhere else go there, a copy to each branch: a score and its derivative are masked
    alike, and most tiles are not. (`control-flow-sink` moves what one branch uses.)

    ```mlir
    // Before.
    %keep = arith.cmpi sge, %i, %j : vector<128x64xindex>
    %s1 = scf.if %full { scf.yield %s } else { arith.select %keep, %s, %ninf ... } {attn.tile_kind}
    %d1 = scf.if %full { scf.yield %d } else { arith.select %keep, %d, %zero ... } {attn.tile_kind}
    // After.
    %s1 = scf.if %full { scf.yield %s } else {
      %keep = arith.cmpi sge, %i, %j : vector<128x64xindex>
      arith.select %keep, %s, %ninf ...
    } {attn.tile_kind}
    %d1 = scf.if %full { scf.yield %d } else {
      %keep1 = arith.cmpi sge, %i, %j : vector<128x64xindex>
      arith.select %keep1, %d, %zero ...
    } {attn.tile_kind}
    ```

    Ops that both sides of a branch use stay, as do those with effects: reads of memory
    are guarded where they are (`hopper-guard-reads`).

    Needed by: GPU gradients with masks.
  }];
  let dependentDialects = ["mlir::scf::SCFDialect"];
}

def AttnTestFactors : Pass<"attn-test-factors"> {
  let summary = "What a mask makes 0 is told by a factor that it has made 0 before";
  let description = [{
    In branches around masks (`attn.tile_kind`): a product is 0 where the mask is false, and one of
    its factors follows from a select of the same mask and is 0 there, too (the exponential of
    -inf). A comparison of that factor with 0 takes the place of the mask, which is then computed
    once: a mask that reads memory need not read it, or keep what it has read, for the derivative
    of a score. Masks that are one comparison of indices stay, for they cost as much.

    ```mlir
    // Before.
    %s1 = scf.if %full { scf.yield %s } else { arith.select %keep, %s, %ninf ... } {attn.tile_kind}
    %p = math.exp2 %s1 : vector<64x64xf32>
    %d = arith.mulf %p, %w : vector<64x64xf32>
    %d1 = scf.if %full { scf.yield %d } else { arith.select %keep, %d, %zero ... } {attn.tile_kind}
    // After.
    %d1 = scf.if %full { scf.yield %d } else {
      %some = arith.cmpf une, %p, %zero : vector<64x64xf32>
      arith.select %some, %d, %zero ...
    } {attn.tile_kind}
    ```

    Where the factor has become 0 for being too small, the product is 0 whatever the other one is,
    infinity and NaN included.

    Needed by: GPU gradients with documents, and other masks of more than one comparison.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect"];
}

def AttnMergeBranches : Pass<"attn-merge-branches"> {
  let summary = "Neighbouring branches around masks become one";
  let description = [{
    An `scf.if` that leaves a tile as it is on its first side, behind another one whose
    result only it uses: one branch, taken where both would be, around the two. Code is
    not scheduled across branches, and most tiles are not masked at all.

    ```mlir
    // Before.
    %y = scf.if %a { scf.yield %x } else { scf.yield f(%x) }
    %z = scf.if %b { scf.yield %y } else { scf.yield g(%y) }
    // After.
    %both = arith.andi %a, %b
    %z = scf.if %both {
      scf.yield %x
    } else {
      %y = scf.if %a { scf.yield %x } else { scf.yield f(%x) }
      %z1 = scf.if %b { scf.yield %y } else { scf.yield g(%y) }
      scf.yield %z1
    }
    ```

    Needed by: GPU gradients with masks.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::scf::SCFDialect"];
}

def AttnFoldInfinities : Pass<"attn-fold-infinities"> {
  let summary = "Differences from -inf that are -inf";
  let description = [{
    A running maximum starts at -inf, and `x - x` is NaN there, so its users take
    another value in place of -inf. In an iteration that has been peeled the start is
    a constant: what is subtracted from it is known to be neither -inf nor NaN, and
    the difference is -inf. Constant folding does the rest: a sum that is scaled by
    2^-inf is 0.

    ```mlir
    // Before.
    %m = arith.maxnumf %ninf, %x : vector<64xf32>       // no NaN, for %ninf is none
    %isEmpty = arith.cmpf oeq, %m, %ninf : vector<64xf32>
    %used = arith.select %isEmpty, %zero, %m
    %d = arith.subf %ninf, %used : vector<64xf32>
    // After.
    %d = arith.constant dense<0xFF800000> : vector<64xf32>
    ```

    `%m > -inf ? %m : -inf`, which delayed rescaling has there, is `%m`.

    Needed by: GPU kernels whose schedule has `pipeline`.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect"];
}

def AttnOrderFactors : Pass<"attn-order-factors"> {
  let summary = "Products of several factors multiply first what is there first";
  let description = [{
    A product of tiles with three factors or more, of which one needs a contraction that two
    others do not need: those two are multiplied in front of the contraction, as are the factors
    themselves. While the tensor core computes it, their product takes the place of both in
    registers: in a gradient p (dP - D) (1 - t^2), the derivative of a soft cap.

    ```mlir
    // Before.
    %dp = vector.contract %do, %v               // %p and %t need another one
    %d = arith.subf %dp, %delta
    %a = arith.mulf %p, %d
    %s = arith.mulf %t, %t
    %f = arith.subf %one, %s
    %ds = arith.mulf %a, %f
    // After.
    %s = arith.mulf %t, %t
    %f = arith.subf %one, %s
    %a = arith.mulf %p, %f
    %dp = vector.contract %do, %v
    %d = arith.subf %dp, %delta
    %ds = arith.mulf %a, %d
    ```

    Products that something else uses, too, stay, as do factors with effects or regions, but for
    reads of memory that nobody writes in between. Rounding differs by one unit in the last place per
    factor.

    Needed by: GPU gradients of scores with a soft cap, and other derivatives of several factors.
  }];
}

def AttnCountTiles : Pass<"attn-count-tiles", "mlir::ModuleOp"> {
  let summary = "Insert a call that counts each visited tile";
  let description = [{
    Inserts `func.call @attnRuntimeCountTile(%kind : i32)` at the start of the
    work on a tile in every innermost loop marked `attn.fold_loop`. The kind is 1 in
    full loops (`attn.full`) and 0 elsewhere. The function is declared unless
    the module has it.

    ```mlir
    scf.for ... {
      %kind = arith.constant 1 : i32
      func.call @attnRuntimeCountTile(%kind) : (i32) -> ()
      ...
    } {attn.fold_loop, attn.full}
    ```

    Needed by: no kernel; `attn-run --explain` and the Python package count tiles with it, on the CPU.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::func::FuncDialect"];
}

def AttnCheckFacts : Pass<"attn-check-facts"> {
  let summary = "Check that facts of tile programs are true";
  let description = [{
    What passes say of loops and branches in attributes (docs/facts.md) is compared with
    what is there; what differs is an error at the op, with a note at what shows it. Where
    an attribute may stand, and beside which others, the verifier knows. The IR does not
    change. Masks are looked for while tiles are whole, vectors of two dimensions or more.

    * `attn.full`: the loop has no mask (a select with a neutral constant by a condition on
      indices).
    * `attn.partial`: the loop has a mask. Of masks that branches go around, which a later pass
      may leave iterations out for: terms are neutral where they keep nothing, as
      `attn-project-masks` proves it (on tensors: later forms have ops that the proof does not
      know).
    * `attn.tabulated`: the loop reads an entry of a table at its variable.
    * `attn.tile_kind`: the side of full tiles has fewer masks than the other one.
    * `attn.guard`: the other side leaves the state as it is.
    * `attn.rescaling`: the second factor is one for each row.
    * `attn.may_hold`: each branch that asks selects by each row's own answer on its first
      side.
    * `attn.descending`: the number of a tile is that of an entry of a list.

    ```mlir
    scf.for %j = ... {                     // error: 'attn.full' on a loop with a mask: ...
      %keep = arith.cmpi sge, %i, %j       // note: the mask
      %x = arith.select %keep, %s, %ninf
      ...
    } {attn.fold_loop, attn.full}
    ```

    Needed by: no kernel; `attn-opt --check-facts` runs it after each pass.
  }];
}

def AttnExpandParts : Pass<"attn-expand-parts"> {
  let summary = "Compute the bounds of parts of loops";
  let description = [{
    Replaces each `attn.part` by arithmetic. What is the same for all programs is computed in front of
    them.

    ```mlir
    // Before.
    scf.forall (%p) in (%parts) {
      %begin, %end = attn.part %p of %parts from %c0 to %n step 128
    // After.
    %tiles = ceildiv(max(%n - 0, 0), 128)
    %most = ceildiv(%tiles, %parts)
    scf.forall (%p) in (%parts) {
      %first = min(%p * %most, %tiles)
      %begin = min(0 + %first * 128, %n)
      %end = min(%begin + %most * 128, %n)
    ```

    Needed by: forwards whose keys are divided (`split_kv`).
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif
