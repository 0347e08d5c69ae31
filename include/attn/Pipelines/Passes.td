// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_PIPELINES_PASSES
#define ATTN_PIPELINES_PASSES

include "mlir/Pass/PassBase.td"

def AttnLowerToHopper : Pass<"attn-lower-to-hopper", "::mlir::ModuleOp"> {
  let summary = "Attention to the program of one CTA of sm_90 (L0, L1 to L3)";
  let description = [{
    Runs the passes from attention, or from statements, to the protocol form of
    the hopper dialect, with a schedule from a table: sizes of tiles and number
    of stages by the widest tile that is multiplied. docs/hopper.md has the table
    and what each pass does. An option that is given overrides the table.

    Needed by: all GPU kernels.
  }];
  let options = [
    Option<"rows", "rows", "int64_t", /*default=*/"0",
           "Rows of a tile: 64 for each of 1 to 3 warpgroups">,
    Option<"keys", "keys", "int64_t", /*default=*/"0", "Keys of a tile">,
    Option<"order", "order", "std::string", /*default=*/"\"auto\"",
           "Order of gradients: rows (a kernel for each sum), stream (one kernel, which adds "
           "dQ to memory, in an order that is not fixed), ordered (as stream, in an order that "
           "is), fixed (ordered, or rows where that is not possible), auto (stream or rows)">,
    Option<"sumKeys", "sum-keys", "int64_t", /*default=*/"0",
           "Streamed elements of a tile where three or more products lead to one sum (dQ)">,
    Option<"sumQueries", "sum-queries", "int64_t", /*default=*/"0",
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
    Option<"growth", "growth", "double", /*default=*/"-1",
           "How much larger, in powers of two, a running maximum is before sums are corrected; "
           "0 corrects them always, -1 chooses">,
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
    Option<"polynomials", "polynomials", "int64_t", /*default=*/"-1",
           "Pairs of a tile's columns of which one has its exponentials by polynomials; "
           "0: none, -1: by the table">,
    Option<"pingPong", "ping-pong", "std::string", /*default=*/"\"auto\"",
           "Warpgroups take turns at the tensor core: true, false, auto">,
    Option<"output", "output", "std::string", /*default=*/"\"auto\"",
           "Shared memory of outputs: own, reuse (that of an input), pieces, auto">];
}

#endif
