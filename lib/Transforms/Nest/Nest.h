// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A nest on its way to a tile program: a fold with what prepares its start
// values and what finishes its results. Used by attn-tile-nest.

#ifndef ATTN_LIB_TRANSFORMS_NEST_NEST_H
#define ATTN_LIB_TRANSFORMS_NEST_NEST_H

#include "CostModel.h"
#include "TileEmitter.h"
#include "attn/Analysis/StructuredDependences.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SetVector.h"

namespace attn {

struct TileOptions {
  int64_t blockM, blockMMultiple, blockN;
  /// Rows are the first dimension of every tile.
  bool rowsFirst;
  /// Parallel tiles of rows add to sums over the rows.
  bool parallelSums;

  /// With the sizes that a fold asks for by attributes.
  TileOptions ofFold(FoldOp fold) const;
};

/// Why a plan is not legal, and the statements that the reason names.
struct PlanViolation {
  std::string reason;
  const Dependence *dependence = nullptr;
};

struct PlanOptions {
  /// Nothing: the cheapest legal one.
  std::optional<LoopOrder> order;
  int64_t parts, threads, assumedSize;
};

/// A fold, what prepares its start values and what finishes its results.
class Nest {
public:
  /// `taken` are ops of nests before this one, which are none of its own.
  Nest(FoldOp first, const TileOptions &options,
       const llvm::DenseSet<mlir::Operation *> &taken = {})
      : block(*first->getBlock()), options(options) {
    findTables(first);
    collect(first, taken);
  }

  llvm::ArrayRef<mlir::Operation *> getOps() const { return ops.getArrayRef(); }

  /// Finds the roles of all dimensions, from the form of the statements.
  mlir::LogicalResult findRoles();
  /// The plan of each order, with its cost and why it is not legal, if so.
  mlir::FailureOr<llvm::SmallVector<OrderCost>> estimate(const StructuredDependences &dependences,
                                                         const PlanOptions &options);
  /// How the loops run in the tile program of an order, whether they may or not.
  PlanAttr makePlan(LoopOrder order, int64_t parts, int64_t programs,
                    const StructuredDependences &dependences);
  /// Chooses among `costs`, or refuses what is asked for.
  mlir::FailureOr<PlanAttr> choose(llvm::ArrayRef<OrderCost> costs, const PlanOptions &options,
                                   const DependenceGraph &graph);
  /// Why the graph does not allow `plan`, or this nest has another form; nothing if it is legal.
  std::optional<PlanViolation> findViolation(PlanAttr plan,
                                             const StructuredDependences &dependences);
  /// Whether the plan is of this nest: it has the roles that the statements' form gives.
  mlir::LogicalResult checkPlan(PlanAttr plan);

  /// Emits the tile program that the plan of the first fold describes.
  mlir::LogicalResult tile();

private:
  void collect(FoldOp first, const llvm::DenseSet<mlir::Operation *> &taken);
  bool joins(mlir::Operation *op);
  bool waitsForNest(mlir::Operation *op);
  void findTables(FoldOp first);
  mlir::LogicalResult checkTables();
  void findRowSums(llvm::ArrayRef<mlir::Operation *> but = {});
  llvm::SmallVector<unsigned> findLoops();
  std::pair<bool, llvm::SmallVector<unsigned>> visit(mlir::linalg::GenericOp op);
  mlir::LogicalResult findWorkers();
  void findRowDim();
  mlir::LogicalResult assignTiles();
  void assignStreamTile(TileDim &info);
  int64_t findRowTile(std::optional<int64_t> known, std::optional<int64_t> expected);
  /// A size: as it stands, or that of a tensor.
  struct Extent {
    mlir::OpFoldResult given;
    mlir::Value tensor;
    unsigned dim;
    std::optional<int64_t> getKnown() const;
    /// About its size, where whoever computes it says so.
    std::optional<int64_t> getExpected() const;
  };
  std::optional<Extent> findExtent(unsigned dim);
  void emitSizes();
  std::optional<unsigned> findGraphLoop(unsigned dim, const StructuredDependences &dependences);
  std::optional<PlanViolation> findLoopViolation(LoopPlanAttr plan, unsigned loop, bool isShared,
                                                 const DependenceGraph &graph);
  std::string findFormViolation(PlanAttr plan);
  mlir::LogicalResult findOutputs();
  bool isPrologue(mlir::linalg::GenericOp op) const;

  /// The tensors that worker loops fill, as region arguments of the forall.
  struct Output {
    mlir::Value result;               // the tensor of the nest
    llvm::SmallVector<unsigned> dims; // its dimensions' classes
    mlir::Value slice;                // the worker's part, while emitting
    llvm::SmallVector<mlir::OpFoldResult> offsets, sizes;
  };

  NestSize measure(const PlanOptions &plan);
  mlir::LogicalResult tileRows();
  mlir::LogicalResult tileStream();
  mlir::LogicalResult tileSplit();
  mlir::scf::ForallOp createForall(
      llvm::ArrayRef<mlir::Value> outs, llvm::ArrayRef<Output> outputs, bool withRows,
      mlir::OpFoldResult parts,
      llvm::function_ref<mlir::LogicalResult(llvm::SmallVector<Output> &, mlir::Value part)> body);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  emitRowTile(llvm::SmallVectorImpl<Output> &outputs);
  mlir::LogicalResult emitPrologue();
  mlir::LogicalResult emitRowsInWorker(llvm::SmallVectorImpl<Output> &outputs);
  mlir::LogicalResult emitSharingRowTile(llvm::SmallVectorImpl<Output> &outputs);
  Output partOfSlice(const Output &output, mlir::Value tensor);
  mlir::Value emptyState(mlir::Value state);
  llvm::SmallVector<mlir::OpFoldResult> sizesOfState(mlir::Value state);
  mlir::Value zeroTable(mlir::Value memory);
  mlir::Value sliceTable(const Output &output, mlir::Value state);
  mlir::Value insertTable(const Output &output, mlir::Value table);
  // Streamed tiles outside.
  llvm::SmallVector<unsigned> dimsOf(mlir::Value tensor, bool ofWorker);
  mlir::Value writeTile(const Tile &tile, mlir::Value tensor, llvm::ArrayRef<unsigned> dims);
  mlir::FailureOr<mlir::scf::ForOp>
  createRowLoop(mlir::ValueRange inits,
                llvm::function_ref<mlir::LogicalResult(mlir::ValueRange,
                                                       llvm::SmallVectorImpl<mlir::Value> &)>
                    body);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> emitRowStates(mlir::ValueRange memory);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> emitRows(mlir::ValueRange memory,
                                                           mlir::ValueRange sums);
  mlir::LogicalResult emitStreamTile(mlir::ValueRange memory,
                                     llvm::SmallVectorImpl<mlir::Value> &next);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> emitStreamLoop(mlir::ValueRange memory,
                                                                 mlir::Value from, mlir::Value to);
  void insertParts(llvm::ArrayRef<Output> parts, mlir::ValueRange tensors,
                   llvm::SmallVectorImpl<mlir::Value> &next);
  mlir::LogicalResult finishRows(llvm::ArrayRef<mlir::Value> states,
                                 llvm::MutableArrayRef<Output *> local);
  mlir::LogicalResult emitAfterRows(FoldOp fold);
  mlir::Value vectorOf(mlir::Value result);
  llvm::SmallVector<mlir::OpFoldResult> unitStrides(const Output &output) {
    return llvm::SmallVector<mlir::OpFoldResult>(output.offsets.size(), b.getIndexAttr(1));
  }
  mlir::LogicalResult emitEpilogue(llvm::SmallVectorImpl<Output> &outputs);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  emitFold(FoldOp fold, llvm::SmallVectorImpl<Output> &outputs, mlir::Value from, mlir::Value to);
  mlir::LogicalResult emitBody(FoldOp fold);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  emitLoops(FoldOp fold, llvm::SmallVectorImpl<Output> &outputs, mlir::Value from, mlir::Value to,
            llvm::ArrayRef<mlir::Value> inits, llvm::ArrayRef<unsigned> loops);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  emitStreamedTiles(FoldOp fold, llvm::SmallVectorImpl<Output> &outputs, mlir::Value from,
                    mlir::Value to, llvm::ArrayRef<mlir::Value> starts);
  llvm::SmallVector<Output *> mapsOf(FoldOp fold, llvm::MutableArrayRef<Output> outputs);
  llvm::SmallVector<Tile> startTiles(FoldOp fold);
  void bindStates(FoldOp fold, mlir::ValueRange states);
  Tile stateTile(mlir::Value state, mlir::Value vector);
  mlir::LogicalResult emitMerge(FoldOp fold, llvm::ArrayRef<mlir::Value> a,
                                llvm::ArrayRef<mlir::Value> b,
                                llvm::SmallVectorImpl<mlir::Value> &merged);
  llvm::SmallVector<mlir::Value> outputTensors();
  void replaceResults(mlir::ValueRange results);
  void replaceResult(const Output &output, mlir::Value value);
  void locate(Output &output);
  void slicePart(Output &output, mlir::Value tensor);
  // Parts of the streamed dimension.
  void slicePiece(Output &state, mlir::Value workspace, mlir::Value part, bool ofWorker);
  void insertPiece(mlir::scf::ForallOp forall, mlir::Value piece, mlir::Value tensor,
                   const Output &output);
  mlir::LogicalResult emitRowsOfPart(mlir::scf::ForallOp forall,
                                     llvm::MutableArrayRef<Output> states, mlir::Value part,
                                     mlir::Value from, mlir::Value to);
  mlir::LogicalResult emitStreamOfPart(mlir::scf::ForallOp forall,
                                       llvm::MutableArrayRef<Output> states, mlir::Value part,
                                       mlir::Value from, mlir::Value to);
  mlir::Value countParts(mlir::Value tiles, bool rowsOutside);
  mlir::scf::ForallOp createParts(llvm::MutableArrayRef<Output> states, bool rowsOutside);
  mlir::LogicalResult mergeParts(llvm::ArrayRef<Output> states, mlir::ValueRange workspace);
  mlir::scf::ForOp
  createLoop(mlir::Value from, mlir::Value to, int64_t step, mlir::ValueRange inits,
             llvm::function_ref<mlir::LogicalResult(mlir::Value, mlir::ValueRange,
                                                    llvm::SmallVectorImpl<mlir::Value> &)>
                 body,
             mlir::LogicalResult &status);
  mlir::Value sizeValue(unsigned dim) {
    return mlir::getValueOrCreateConstantIndexOp(b, b.getLoc(), emitter->dims[dim].size);
  }
  mlir::Value index(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, value); }

  mlir::Block &block;
  const TileOptions &options;
  llvm::SetVector<mlir::Operation *> ops; // the nest, in block order after collect
  llvm::SmallVector<FoldOp> folds;
  llvm::SmallVector<Output> outputs;
  std::unique_ptr<DimClasses> classes;
  mlir::ImplicitLocOpBuilder b{mlir::UnknownLoc::get(block.getParentOp()->getContext()),
                               block.getParentOp()->getContext()};
  std::unique_ptr<TileEmitter> emitter;
  /// Dimensions in canonical order: as the folds' statements name their loops first.
  llvm::SmallVector<unsigned> order;
  llvm::SmallVector<unsigned> workers;
  llvm::DenseSet<unsigned> tableDims;
  std::optional<unsigned> rowDim;
  /// By the plan: parts of the streamed dimension (0: as many as keep so many programs busy), and
  /// how rows run.
  int64_t parts = 1, programs = 0;
  /// The number of parts, while emitting.
  mlir::OpFoldResult partCount;
  LoopTreatment rowTreatment = LoopTreatment::OwnerComputes;
  unsigned streamDim = 0;
  /// The fold adds up whole matrices (over a group of heads).
  bool sumsMatrices = false;
  /// Statements of the first fold that sum over the rows, and those that need
  /// such a sum.
  llvm::SetVector<mlir::Operation *> rowSums, afterRows;
  /// Sums at computed indices, over the rows and the streamed dimension: the
  /// first fold's results (by number) that they are, and the statements. Their
  /// state is a table in memory that one worker owns.
  llvm::SmallVector<unsigned> tables;
  llvm::SetVector<mlir::Operation *> tableSums;
  bool isTable(unsigned result) const { return llvm::is_contained(tables, result); }
  /// The table that an output is, by the number of the fold's result.
  std::optional<unsigned> tableOf(const Output &output) {
    auto result = mlir::dyn_cast<mlir::OpResult>(output.result);
    if (result && result.getOwner() == folds.front() && isTable(result.getResultNumber()))
      return result.getResultNumber();
    return std::nullopt;
  }
  /// Whether all sums over the rows are results as they are: parts of the rows
  /// can then be added to them by different workers.
  bool addsRowSums() const;
  bool followsRowSum(mlir::Operation *op) const {
    return rowSums.contains(op) || afterRows.contains(op);
  }
  /// Which outputs the first fold maps, and what its body yields for them.
  struct MappedOutput {
    unsigned output;
    mlir::Value yielded;
  };
  llvm::SmallVector<MappedOutput> mappedOutputs;
  bool isMapped(unsigned output) const {
    return llvm::any_of(mappedOutputs,
                        [&](const MappedOutput &mapped) { return mapped.output == output; });
  }
};

} // namespace attn

#endif
