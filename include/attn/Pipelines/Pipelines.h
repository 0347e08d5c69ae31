// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pipelines between the levels; docs/levels.md shows what each stage makes.

#ifndef ATTN_PIPELINES_PIPELINES_H
#define ATTN_PIPELINES_PIPELINES_H

#include "mlir/Pass/PassOptions.h"

namespace llvm {
class raw_ostream;
}
namespace mlir {
class OpPassManager;
}

namespace attn {

/// Rows of a tile where nobody chooses.
inline constexpr int64_t kDefaultBlockM = 64;

/// What a user may choose; the defaults are the compiler's own choice.
struct PipelineOptions : mlir::PassPipelineOptions<PipelineOptions> {
  Option<int64_t> blockM{*this, "block-m", llvm::cl::desc("Rows (queries) per tile"),
                         llvm::cl::init(kDefaultBlockM)};
  Option<int64_t> blockMMultiple{*this, "block-m-multiple",
                                 llvm::cl::desc("Tiles that fewer rows get are a multiple of this"),
                                 llvm::cl::init(16)};
  Option<int64_t> blockN{*this, "block-n",
                         llvm::cl::desc("Elements (keys) of the streamed dimension per tile"),
                         llvm::cl::init(128)};
  Option<std::string> order{*this, "order",
                            llvm::cl::desc("Loop order: auto, m_outer, n_outer or split_kv"),
                            llvm::cl::init("auto")};
  Option<int64_t> parts{*this, "parts",
                        llvm::cl::desc("Parts of the streamed dimension, for order=split_kv; 0: "
                                       "as many as keep threads, or multiprocessors, busy; -1: "
                                       "the target's choice"),
                        llvm::cl::init(-1)};
  Option<int64_t> threads{*this, "threads",
                          llvm::cl::desc("Threads that the cost model counts on; the "
                                         "program runs on any number"),
                          llvm::cl::init(8)};
  Option<int64_t> vectorBits{*this, "vector-bits",
                             llvm::cl::desc("Bits of a CPU's vector register: 128, 256 or 512; 0 "
                                            "takes the host's"),
                             llvm::cl::init(0)};
  Option<bool> singleQueries{
      *this, "single-queries",
      llvm::cl::desc("CPUs: functions whose number of queries is open get a version for one query"),
      llvm::cl::init(true)};
  Option<std::string> matrixUnit{
      *this, "matrix-unit",
      llvm::cl::desc("CPUs: what multiplies tiles of bf16: none (f32), avx512_bf16, amx; "
                     "emulated_avx512_bf16, emulated_amx (slow, on any host); or auto, the best "
                     "that the host has"),
      llvm::cl::init("auto")};
  Option<bool> explain{*this, "explain", llvm::cl::desc("Remark what each loop order would cost"),
                       llvm::cl::init(false)};
  Option<bool> deterministic{
      *this, "deterministic",
      llvm::cl::desc("GPUs: additions to memory have one order, or kernels for each sum"),
      llvm::cl::init(false)};
  Option<std::string> schedule{*this, "schedule",
                               llvm::cl::desc("Options of attn-lower-to-hopper for GPUs, such as "
                                              "'block-m=128 block-n=176'"),
                               llvm::cl::init("")};
  Option<bool> rowsFirst{*this, "rows-first",
                         llvm::cl::desc("Rows are the first dimension of every tile"),
                         llvm::cl::init(false)};
  Option<bool> parallelSums{
      *this, "parallel-sums",
      llvm::cl::desc("Sums along two dimensions in one pass, in which parallel tiles "
                     "of rows add to one of them in memory"),
      llvm::cl::init(false)};
  Option<int64_t> tableRows{
      *this, "table-rows",
      llvm::cl::desc("Rows whose sums at computed indices have a table of their own; "
                     "0: all rows"),
      llvm::cl::init(0)};
  Option<bool> pairsApart{
      *this, "pairs-apart",
      llvm::cl::desc("Gradients with an element for each pair follow from statements "
                     "of their own"),
      llvm::cl::init(false)};
  Option<bool> largeRows{
      *this, "large-rows",
      llvm::cl::desc("The output's gradient is replaced by 0 in rows without keys only where "
                     "it is large"),
      llvm::cl::init(false)};
  Option<std::string> largeScores{
      *this, "large-scores",
      llvm::cl::desc("How weights of a gradient sum to 1 in rows of large scores, too: branch, "
                     "rows; or inexact"),
      llvm::cl::init("branch")};
  Option<bool> keepPrograms{*this, "keep-programs",
                            llvm::cl::desc("Loops over one tile stay loops"),
                            llvm::cl::init(false)};
  Option<bool> branchMasks{
      *this, "branch-masks",
      llvm::cl::desc("One loop with a branch around the mask instead of a loop "
                     "for full tiles between two for partial ones"),
      llvm::cl::init(false)};
  Option<bool> countTiles{*this, "count-tiles",
                          llvm::cl::desc("Count the visited tiles at run time"),
                          llvm::cl::init(false)};
};

/// L0 or L1 to L1: attention ops expanded, cascades of reductions fused.
void buildNestPipeline(mlir::OpPassManager &pm, const PipelineOptions &options);

/// L1 to L2: the second half of buildTilePipeline.
void buildTileStage(mlir::OpPassManager &pm, const PipelineOptions &options);

/// Tensors to memrefs. Results of public functions become memrefs of the caller.
void buildBufferization(mlir::OpPassManager &pm);

/// L0 or L1 to L2: tile programs whose loops are bounded by their masks.
void buildTilePipeline(mlir::OpPassManager &pm, const PipelineOptions &options);

/// L0, L1 or L2 to the LLVM dialect for the host's CPU. Afterwards every public
/// function takes its arguments, then its results, as memrefs behind a C
/// interface; parallel loops call `attnRuntimeParallelFor`.
void buildCpuPipeline(mlir::OpPassManager &pm, const PipelineOptions &options);

/// Loops, arithmetic and memrefs on the host to the LLVM dialect.
void buildHostLowering(mlir::OpPassManager &pm);

/// Protocol form of the hopper dialect (L3), in `gpu.launch`, to `gpu.binary` with
/// PTX for a chip ("sm_90a"), with features of LLVM ("+ptx86"), and `gpu.launch_func`, whose tensor
/// map operands keep their type.
void buildCudaCodegenPipeline(mlir::OpPassManager &pm, llvm::StringRef chip,
                              llvm::StringRef features);

/// What is left on the host after buildCudaCodegenPipeline to the LLVM dialect,
/// with calls of the runtime (attn/Runtime/CudaHostInterface.h). The gpu.binary ops
/// stay.
void buildCudaHostPipeline(mlir::OpPassManager &pm);

/// The stages from nests with a schedule to the protocol form of the hopper dialect (L1 to L3), in
/// order; each of them; and what builds with assertions check of its form behind it.
llvm::SmallVector<llvm::StringRef> listHopperStages();
void addHopperStage(mlir::OpPassManager &pm, llvm::StringRef stage);
void addHopperStageChecks(mlir::OpPassManager &pm, llvm::StringRef stage);
/// Makes each stage known as a pipeline: hopper-arithmetic, hopper-programs, hopper-tiles,
/// hopper-channels, hopper-protocol.
void registerHopperStages();

/// The table of schedules of Hopper kernels as a page of Markdown.
void printHopperSchedules(llvm::raw_ostream &os);

/// Makes the pipelines known as attn-nest-pipeline, attn-tile-pipeline,
/// attn-cpu-pipeline, attn-cuda-codegen and attn-cuda-host.
void registerPipelines();

} // namespace attn

#endif
