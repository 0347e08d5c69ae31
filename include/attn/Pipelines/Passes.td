// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_PIPELINES_PASSES
#define ATTN_PIPELINES_PASSES

include "mlir/Pass/PassBase.td"

// What a user may ask of a schedule; an option that is not given is the compiler's choice.
defvar ScheduleOptions = [
    Option<"blockM", "block-m", "int64_t", /*default=*/"0",
           "Rows of a tile: 64 for each of 1 to 3 warpgroups">,
    Option<"blockN", "block-n", "int64_t", /*default=*/"0", "Keys of a tile">,
    Option<"chip", "chip", "std::string", /*default=*/"\"sm_90a\"",
           "What kernels are made for, which a target says: sm_80, sm_86, sm_89, sm_90a, sm_100, sm_120">,
    Option<"products", "products", "std::string", /*default=*/"\"auto\"",
           "Instructions for products: wgmma (of warpgroups, with TMA), mma (of warps, with cp.async), "
           "auto (wgmma where the chip has it and elements have 16 bits)">,
    Option<"precision", "precision", "std::string", /*default=*/"\"ieee\"",
           "Products of f32: ieee (FMAs), tf32x3 (three products of TF32, whose error is that of f32 within a "
           "small factor), tf32 (one: 10 bits of each factor)">,
    Option<"groupWarps", "group-warps", "int64_t", /*default=*/"0",
           "With products=mma, warps that hold 64 rows of a tile: 2, 4; 0 chooses">,
    Option<"productColumns", "product-columns", "int64_t", /*default=*/"0",
           "With products=mma, columns of a product's operands that are in shared memory at a time, a "
           "multiple of 16; 0: all, or pieces where all do not fit">,
    Option<"order", "order", "std::string", /*default=*/"\"auto\"",
           "Order of gradients: m_outer (a kernel for each sum), n_outer (one kernel, which adds dQ to "
           "memory), auto (n_outer, or m_outer where that is not possible). Of forwards: m_outer, "
           "split_kv (parts of the keys in parallel, then a merge), auto (m_outer)">,
    Option<"parts", "parts", "int64_t", /*default=*/"-1",
           "Parts of the keys of a forward: 0: as many as keep `ctas` busy, 1: none, -1: as `order` says">,
    Option<"deterministic", "deterministic", "bool", /*default=*/"false",
           "Additions to memory have one order, by semaphores; with order=auto kernels for each sum "
           "where that is faster or the only way">,
    Option<"blockNDq", "block-n-dq", "int64_t", /*default=*/"0",
           "Streamed elements of a tile where three or more products lead to one sum (dQ)">,
    Option<"blockMDkv", "block-m-dkv", "int64_t", /*default=*/"0",
           "The same where they lead to two sums (dK and dV)">,
    Option<"stages", "stages", "int64_t", /*default=*/"0", "Tiles in flight for each stream">,
    Option<"ctas", "ctas", "int64_t", /*default=*/"132",
           "CTAs of a persistent launch, times `occupancy`; 0 launches one per tile">,
    Option<"producerRegisters", "producer-registers", "int64_t", /*default=*/"0",
           "Registers of a thread that copies: 56 where a tool adds instructions to kernels, such as "
           "compute-sanitizer's memcheck; 0: by the number of warpgroups">,
    Option<"cluster", "cluster", "int64_t", /*default=*/"1",
           "CTAs of a cluster, which copy what they have in common once: 1, 2, 4 or 8">,
    Option<"pipeline", "pipeline", "std::string", /*default=*/"\"auto\"",
           "Overlap the last product of an iteration with the next iteration: true, false, auto">,
    Option<"overlap", "overlap", "std::string", /*default=*/"\"auto\"",
           "Start the next tile before the outputs of a tile: true, false, auto">,
    Option<"trim", "trim", "std::string", /*default=*/"\"auto\"",
           "Warpgroups leave out tiles that their rows do not need: true, false, auto">,
    Option<"loadTiles", "load-tiles", "bool", /*default=*/"true",
           "Tiles that a score reads by row and column come through shared memory">,
    Option<"rescaleThreshold", "rescale-threshold", "double", /*default=*/"-1",
           "How much larger, in powers of two, a running maximum is before sums are rescaled; "
           "0 rescales them always, -1 chooses">,
    Option<"fixMaxima", "fix-maxima", "std::string", /*default=*/"\"auto\"",
           "The maximum of a row's first tile stands in for the running one, and a kernel behind "
           "computes again what that was wrong for: true (for short streams, too), false, auto">,
    Option<"largeScores", "large-scores", "bool", /*default=*/"true",
           "Gradients are right in rows of large scores, too: where there are some, other kernels "
           "compute their maxima and sums again">,
    Option<"divideSums", "divide-sums", "std::string", /*default=*/"\"auto\"",
           "Two sums of a gradient that one warpgroup cannot hold (more than 256 columns together) "
           "are those of two roles of one kernel, not of two kernels: true, false, auto">,
    Option<"occupancy", "occupancy", "int64_t", /*default=*/"0",
           "CTAs that share a multiprocessor and its registers; 0 chooses">,
    Option<"exp2Emulation", "exp2-emulation", "int64_t", /*default=*/"-1",
           "Pairs of a tile's columns of which one has its exponentials by polynomials; "
           "0: none, -1: by the table">,
    Option<"pingPong", "ping-pong", "std::string", /*default=*/"\"auto\"",
           "Warpgroups take turns at the tensor core: true, false, auto">,
    Option<"output", "output", "std::string", /*default=*/"\"auto\"",
           "Shared memory of outputs: own, reuse (that of an input), slabs, auto">,
    Option<"rowPrograms", "row-programs", "std::string", /*default=*/"\"auto\"",
           "Functions that reduce rows only become launches whose threads hold a row: true, false (tiles "
           "of rows), auto (false where an option of tiles is given)">,
    Option<"rowThreads", "row-threads", "int64_t", /*default=*/"512",
           "Threads of a CTA that share a row, at most: a power of two">,
    Option<"rowCtas", "row-ctas", "int64_t", /*default=*/"8",
           "CTAs of a cluster that share a row, at most: 1, 2, 4 or 8">,
    Option<"rowParts", "row-parts", "int64_t", /*default=*/"0",
           "Parts of a row in parallel; 0: as many as keep `ctas` busy, of rows that are too long for a "
           "cluster">,
    Option<"treatment", "treatment", "std::string", /*default=*/"\"auto\"",
           "Affine loops on memory: how those that carry dependences run, as attn-plan-loops has it">,
    Option<"loopThreads", "loop-threads", "int64_t", /*default=*/"128",
           "Threads of a CTA of affine loops: a multiple of 32">,
    Option<"loopParts", "loop-parts", "int64_t", /*default=*/"0",
           "CTAs that share an affine loop; 0: 8 in clusters, else as many as keep `ctas` busy">,
    Option<"loopMerge", "loop-merge", "std::string", /*default=*/"\"team\"",
           "Who merges parts of affine loops by partial-and-merge: team (another launch), last (the CTA "
           "that comes last)">,
    Option<"loopTeam", "loop-team", "std::string", /*default=*/"\"auto\"",
           "What runs a row of affine loops that are not divided: thread, cta, or auto">];

def AttnLowerToHopper : Pass<"attn-lower-to-hopper", "::mlir::ModuleOp"> {
  let summary = "Attention to the program of one CTA of sm_90 (L0, L1 to L3)";
  let description = [{
    Runs the passes from attention, or from statements, to the protocol form of the hopper dialect:
    `hopper-create-versions`; on each version `hopper-form-nests`, `hopper-select-schedule` and the
    stages that this schedule asks for (`hopper-arithmetic`, `hopper-programs`, `hopper-tiles`,
    `hopper-channels`, `hopper-protocol`); and `attn-merge-versions`. A version that a stage refuses
    is left out, with a remark, where another one can stand in for it.

    A module of `affine.for` nests on memory becomes launches of threads: `attn-distribute-reductions`
    where the treatment asks for it, `attn-plan-loops`, `hopper-launch-loops`.

    Options are those of `hopper-select-schedule`; docs/hopper.md says what each stage does.

    Needed by: all GPU kernels.
  }];
  let options = ScheduleOptions;
}

def HopperCreateVersions : Pass<"hopper-create-versions", "::mlir::ModuleOp"> {
  let summary = "Each function becomes the versions of it that may be needed (L0)";
  let description = [{
    Wraps each function in `attn.versions`, in order of preference: with a gradient's sums along two
    dimensions in one pass, or in a pass each; with sums of more columns than a warpgroup holds in
    two roles, or in two kernels; and first those for calls with no more queries than keys, where
    that proves that each row has a key. `hopper.nests` on a version's module says which it is,
    `attn.when` what it asks of a call. A function without attention may only reduce rows: its first
    version, marked `hopper.row_programs`, becomes row programs.

    ```mlir
    func.func @f(...) { attn.backward ... }
    ```

    becomes

    ```mlir
    attn.versions @f {
      module attributes {hopper.nests = #hopper.nests<sums = together, gradient = true>} {
        func.func @f(...) { attn.backward ... }
      }
    }, {
      module attributes {hopper.nests = #hopper.nests<sums = apart, gradient = true>} {
        func.func @f(...) { attn.backward ... }
      }
    }
    ```

    Needed by: all GPU kernels.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::attn::hopper::HopperDialect"];
  let options = [
    Option<"order", "order", "std::string", /*default=*/"\"auto\"",
           "Order of gradients, as of attn-lower-to-hopper">,
    Option<"divideSums", "divide-sums", "std::string", /*default=*/"\"auto\"",
           "Sums in two roles of one kernel: true, false, auto">,
    Option<"rowPrograms", "row-programs", "bool", /*default=*/"true",
           "First a version of row programs (hopper-form-row-programs) of functions without attention">];
}

def HopperFormNests : Pass<"hopper-form-nests", "::mlir::ModuleOp"> {
  let summary = "Nests of statements for tensor cores (L0 to L1)";
  let description = [{
    Runs the passes of `attn-nest-pipeline`, `attn-merge-sums` and `attn-split-sums` as
    `hopper.nests` of the module says; without it, sums are in one pass.

    Needed by: all GPU kernels.
  }];
  let options = [
    Option<"largeScores", "large-scores", "bool", /*default=*/"true",
           "Gradients are right in rows of large scores, too">];
}

def HopperSelectSchedule : Pass<"hopper-select-schedule", "::mlir::ModuleOp"> {
  let summary = "The schedule of a module's kernels, from a table and from options (L1)";
  let description = [{
    Chooses by what the module computes: the widest tile that is multiplied, masks, arithmetic for
    each score, the length of the stream (docs/generated/schedules.md has the table). A forward of
    at most 16 rows, whose number is known, has its keys in parts (`split_kv`) where a call has more
    than one (`#attn.divided`). Writes the
    schedule, with options in the place of what they override, as `hopper.schedule` on the module,
    and sizes of tiles on its folds. Where sizes or strides of a call decide, the module gets
    `attn.versions` of its function, each with its schedule. A module whose sums cannot be in one
    pass gets `hopper.refused`: another version stands in.

    ```mlir
    module { func.func @f(...) { ... attn.fold ... } }
    ```

    becomes

    ```mlir
    module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 128, ...>} {
      func.func @f(...) { ... attn.fold ... }
    }
    ```

    Refused: options that do not fit together, head dimensions of more than 256, an order that the
    function's sums cannot have.

    Needed by: all GPU kernels.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::attn::hopper::HopperDialect"];
  let options = ScheduleOptions;
}

def HopperRunStage : Pass<"hopper-run-stage", "::mlir::ModuleOp"> {
  let summary = "One stage of the lowering, as the module's schedule says";
  let description = [{
    Runs the passes of a stage: `arithmetic` (tiles of nests, in memory; exponentials to the base
    2), `programs` (each tile's reads, arithmetic and writes), `tiles` (products of tiles in shared
    memory), `channels` (roles of warpgroups, what they send each other, tiles of a CTA) or
    `protocol` (shared memory, barriers, asynchronous instructions). The module has a
    `hopper.schedule`. Pipelines of these names, with `hopper-` in front, run one stage each; builds
    with assertions check the form behind it (`hopper-check-form`).

    Needed by: all GPU kernels.
  }];
  let options = [Option<"stage", "stage", "std::string", /*default=*/"\"\"",
                        "arithmetic, programs, tiles, channels or protocol">];
}

#endif
