// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The state of the CTAs of a cluster (one, where a launch has no clusters): warpgroups,
// shared memory, barriers, asynchronous work.

#ifndef ATTN_LIB_INTERPRETER_CLUSTER_H
#define ATTN_LIB_INTERPRETER_CLUSTER_H

#include "Clock.h"
#include "GlobalAccesses.h"
#include "GlobalMemory.h"
#include "Program.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Interpreter/Interpreter.h"
#include <list>
#include <random>

namespace attn::interpreter {

class Cluster;

/// Room for `count` elements in `value`; its memory where nobody else has it.
template <typename T> T *renew(Value &value, int64_t count) {
  if (!value.object || value.object.use_count() != 1 || value.as<Elements<T>>().count != count)
    value.object = std::make_shared<Elements<T>>(count);
  return value.as<Elements<T>>().data.get();
}

/// Who of a warpgroup does something: two things by the same threads are in
/// order, others only after a barrier.
struct Threads {
  enum Kind { One, All, Store, Rows } kind = All; // rows of a left operand
  /// Of a tile.write: which thread has which element.
  mlir::Type type;
  bool transposed = false;

  bool inOrderWith(const Threads &other) const {
    return kind == other.kind && kind != All && type == other.type &&
           transposed == other.transposed;
  }
  /// Whether each warp keeps to rows of its own.
  bool isByRows() const { return kind == Rows || (kind == Store && !transposed); }
};

/// What has to be known before something else may happen: that `warpgroup` (of the cluster) has
/// got as far as `epoch`, or that an mbarrier's phases up to `epoch` are
/// complete (`component` of the clock).
struct Event {
  mlir::Operation *op = nullptr;
  unsigned warpgroup = 0;
  Threads threads;
  /// By TMA or WGMMA, which do not see other writes before a fence.
  bool asynchronous = false;
  /// False while nobody has waited for it.
  bool ended = false;
  unsigned component = 0;
  uint32_t epoch = 0;
};

/// A tile: part of a CTA's shared memory, or a value of its own.
struct SmemView : Object {
  unsigned memory = 0, slot = 0;
  int64_t row = 0, column = 0;
  /// Elements from one row to the next, where the view has not all columns.
  int64_t pitch = 0;
  /// Rows x padded columns.
  std::shared_ptr<Floats> own;
  /// Of a tile received through a channel: where it has been released.
  std::shared_ptr<mlir::Operation *> released;
};

/// All tiles of one hopper.alloc.
struct SmemMemory {
  struct Access {
    std::shared_ptr<Event> event;
    bool write;
    int64_t begin, end, left, right; // rows, columns
  };
  struct Slot {
    std::vector<Access> accesses;
    /// Per row: 0 nothing, 1 the columns, 2 the padding too.
    std::vector<uint8_t> written;
  };
  mlir::Operation *op = nullptr;
  tile::SmemType type;
  int64_t columns = 0; // padded
  std::vector<double> data;
  std::vector<Slot> slots;

  double *row(unsigned slot, int64_t row) {
    return data.data() + (int64_t(slot) * type.getRows() + row) * columns;
  }
};

/// A copy from global memory.
struct TmaLoad {
  mlir::Operation *op;
  std::shared_ptr<MemRef> source;
  llvm::SmallVector<int64_t, 5> coordinates;
  SmemView tile;
  unsigned barrier;
  int64_t bytes;
  /// Of the tile's rows, those that are zeros; empty if none is.
  std::vector<bool> dropped;
  bool done = false;
};

/// A warpgroup's part of a copy by threads: some rows.
struct TileCopy {
  std::shared_ptr<Event> event;
  std::shared_ptr<MemRef> source;
  llvm::SmallVector<int64_t, 5> coordinates;
  /// The coordinates of each row, where rows lie in pages.
  llvm::SmallVector<llvm::SmallVector<int64_t, 5>> rows;
  SmemView tile;
  tile::SmemType type;
  bool done = false;
};

/// A copy or reduction to global memory.
struct TmaStore {
  std::shared_ptr<Event> event;
  std::shared_ptr<MemRef> target;
  llvm::SmallVector<int64_t, 5> coordinates;
  SmemView tile;
  tile::SmemType type;
  bool reduce = false, read = false, written = false;
  /// What was read of the tile.
  std::vector<double> data;
};

/// One group of products of a warpgroup.
struct Product {
  std::shared_ptr<Event> event;
  hopper::WgmmaOp op;
  Value a, b, accumulator;
  /// Instead of `accumulator`.
  std::shared_ptr<Product> previous;
  std::shared_ptr<Floats> result; // null until it is done
  /// Of tiles from channels: see SmemView::released.
  llvm::SmallVector<std::shared_ptr<mlir::Operation *>, 2> received;
};

struct PendingTile : Object {
  std::shared_ptr<Product> product;
};

struct MBarrier {
  struct Observation {
    int64_t phase = -2;
    uint32_t epoch = 0;
    mlir::Operation *op = nullptr;
  };
  mlir::Operation *op = nullptr;
  int64_t index = 0; // in its ring
  int64_t count = 1;
  unsigned component = 0;
  /// The phase that is not complete.
  int64_t phase = 0;
  int64_t arrived = 0, expected = 0, copied = 0;
  Clock arriving, completed;
  llvm::SmallVector<mlir::Operation *, 4> arrivals;
  mlir::Operation *lastExpect = nullptr;
  llvm::SmallVector<std::shared_ptr<TmaLoad>, 2> loads;
  /// The last copy of all, and its phase.
  mlir::Operation *lastLoad = nullptr;
  int64_t lastLoadPhase = -1;
  /// By warpgroup: the last phase that it has seen complete.
  llvm::SmallVector<Observation, 4> observations;
  /// By warpgroup: its last arrival, if it is one of another CTA.
  llvm::SmallVector<Observation, 4> remote;
};

/// One attribution of a launch of threads, in one CTA.
struct SharedCells : MemRef {
  struct Access {
    mlir::Operation *op = nullptr;
    unsigned thread = 0; ///< of the cluster
    uint32_t epoch = 0;
  };
  struct Cell {
    Access write;
    llvm::SmallVector<Access, 2> reads; ///< since then, the last of each thread
  };
  unsigned number = 0;
  std::vector<Cell> states;
};

/// A shuffle of 32 lanes.
struct Exchange {
  mlir::Operation *op = nullptr;
  unsigned arrived = 0;
  bool complete = false;
  Value values[32];
};

/// One use of a named barrier, or of the cluster's.
struct Round {
  struct Arrival {
    unsigned warpgroup;
    mlir::Operation *op;
  };
  int64_t number = 0, expected = 0;
  bool complete = false;
  bool any = false, all = true; ///< of what warpgroups bring (hopper.barrier.reduce)
  llvm::SmallVector<Arrival, 4> arrivals;
  Clock clock;
  Knowledge knowledge;
  /// Of a hopper.last_arrival, once a thread of the CTA has asked.
  bool decided = false, answer = false;
  Knowledge told;
};

/// A hopper.channel: tiles with value semantics.
struct ChannelState {
  struct Tile {
    std::shared_ptr<Floats> data;
    /// Where it is from.
    std::shared_ptr<MemRef> source;
    llvm::SmallVector<int64_t> coordinates;
  };
  mlir::Operation *op = nullptr;
  std::vector<Tile> sent;
  llvm::SmallVector<unsigned, 4> receivers;
  /// By warpgroup: how many, and where each of them has been released.
  llvm::SmallVector<int64_t, 4> received, released;
  std::vector<std::vector<std::shared_ptr<mlir::Operation *>>> views;
};

/// A warpgroup (a thread in a launch of threads), or the host.
class Fiber {
public:
  std::vector<Value> frame;
  size_t next = 0;
  /// Null on the host.
  Cluster *cluster = nullptr;
  struct Machine *machine = nullptr;
  /// Of the cluster; the CTA within the cluster, and within the grid.
  unsigned warpgroup = 0, rank = 0;
  int64_t block[3] = {0, 0, 0};
  bool finished = false;
  /// The cluster's version when it was found blocked.
  std::optional<uint64_t> blockedAt;

  /// The number of the op that it executes, and what all of its threads know.
  uint32_t now = 0;
  Clock clock;
  Knowledge knowledge; ///< of other clusters
  std::shared_ptr<GridRound> gridRound;
  llvm::SmallVector<uint32_t> fences;
  /// When the threads of each warp have met last (tile.warp_sync).
  uint32_t warpsMet = 0;
  std::shared_ptr<Round> round;
  /// Of threads: the shuffle that it takes part in, and the cluster's barrier that it is at.
  std::shared_ptr<Exchange> exchange;
  std::shared_ptr<Round> clusterRound;
  bool any = false, all = true; ///< of the last round that it waited for
  /// Started and not known to be finished, oldest first.
  std::list<std::shared_ptr<Product>> products;
  std::list<std::shared_ptr<TmaStore>> stores;
  /// Copies by threads: groups, oldest first, and last the one that is open.
  std::list<std::vector<std::shared_ptr<TileCopy>>> copies{1};

  Value &operator[](unsigned slot) { return frame[slot]; }
  Value &operand(const Instruction &i, unsigned n) { return frame[i.operands[n]]; }
  Value &result(const Instruction &i, unsigned n = 0) { return frame[i.results[n]]; }
  int64_t integer(const Instruction &i, unsigned n) { return operand(i, n).integer; }
  const double *floats(const Instruction &i, unsigned n) { return operand(i, n).floats(); }
  const int64_t *ints(const Instruction &i, unsigned n) { return operand(i, n).ints(); }
  /// Room for a result.
  double *newFloats(const Instruction &i, unsigned n = 0) {
    return i.scalar ? &result(i, n).number : renew<double>(result(i, n), i.count);
  }
  int64_t *newInts(const Instruction &i, unsigned n = 0) {
    return i.scalar ? &result(i, n).integer : renew<int64_t>(result(i, n), i.count);
  }
};

class Cluster {
public:
  /// CTAs of `warpgroups` warpgroups each.
  Cluster(const LaunchInfo &launch, unsigned ctas, unsigned warpgroups, struct Machine &machine);

  /// Whether `fiber` may access rows of a tile now, and notes that it does.
  mlir::LogicalResult access(Fiber &fiber, const SmemView &view, tile::SmemType type,
                             std::shared_ptr<Event> event, bool write);
  /// Whether the rows hold something; `padding` where it is read too.
  mlir::LogicalResult checkWritten(mlir::Operation *op, const SmemView &view, tile::SmemType type,
                                   bool padding);
  /// Starts an op of `fiber`: an event that has not ended.
  std::shared_ptr<Event> begin(Fiber &fiber, mlir::Operation *op, Threads threads,
                               bool asynchronous);
  /// The end of what `event` did is now, for its own warpgroup.
  void end(Fiber &fiber, Event &event);

  /// Starts a copy: its bytes count for the barrier's current phase.
  mlir::LogicalResult startLoad(Fiber &fiber, std::shared_ptr<TmaLoad> load);
  mlir::LogicalResult arrive(Fiber &fiber, MBarrier &barrier, mlir::Operation *op,
                             std::optional<int64_t> bytes);
  /// At the mbarriers at the place of `barrier` in all CTAs.
  mlir::LogicalResult arriveAll(Fiber &fiber, const MBarrier &barrier, mlir::Operation *op);
  Step wait(Fiber &fiber, MBarrier &barrier, mlir::Operation *op, int64_t parity);
  Step arriveNamed(Fiber &fiber, int64_t id, int64_t warpgroups, mlir::Operation *op, bool sync,
                   bool any = false, bool all = true);
  /// Of shared memory of a launch of threads.
  mlir::LogicalResult access(Fiber &fiber, SharedCells &cells, int64_t element, mlir::Operation *op,
                             bool write);
  mlir::LogicalResult checkRead(Fiber &fiber);
  void addShared(unsigned rank);
  /// All threads of the fiber's CTA meet.
  Step syncCta(Fiber &fiber, mlir::Operation *op);
  /// The two halves of a meeting of all threads of the cluster.
  Step arriveCluster(Fiber &fiber, mlir::Operation *op);
  Step waitCluster(Fiber &fiber, mlir::Operation *op);
  /// All warpgroups of the cluster meet.
  Step sync(Fiber &fiber, mlir::Operation *op);
  mlir::LogicalResult finishLoad(TmaLoad &load);
  void readStore(TmaStore &store);
  void writeStore(TmaStore &store);
  /// Products of a warpgroup are done in order.
  void finishProduct(Fiber &fiber, Product &product);
  /// Does one piece of asynchronous work, if there is any.
  bool progress(mlir::LogicalResult &status, bool loadsOnly);
  /// Once `fiber` has ended; once all have.
  mlir::LogicalResult checkFinished(Fiber &fiber);
  mlir::LogicalResult checkFinished();
  mlir::LogicalResult reportDeadlock();
  void changed() { ++version; }
  /// Of a round: the named barriers of each CTA, then the cluster's barrier.
  unsigned barrierComponent(size_t round) const {
    return unsigned(fibers.size() + barriers.size() + round);
  }
  unsigned countWarpgroups() const { return unsigned(fibers.size()) / ctas; }
  /// What is at the same place in the first CTA, and in that of number `rank`.
  template <typename T> size_t getPlace(const std::vector<T> &all, size_t number, unsigned rank) {
    size_t ofCta = all.size() / ctas;
    return number % ofCta + rank * ofCta;
  }
  /// "warpgroup 1", or "warpgroup 1 of CTA 0".
  std::string nameOf(unsigned warpgroup) const;
  mlir::InFlightDiagnostic error(mlir::Operation *op);

  const LaunchInfo &launch;
  struct Machine &machine;
  unsigned ctas, number = 0; ///< how many it has, and its own number in the grid
  int64_t grid[3] = {1, 1, 1};
  /// Those of the first CTA, then those of the next.
  std::vector<Fiber> fibers;
  std::vector<SmemMemory> memories;
  std::vector<MBarrier> barriers;
  std::vector<ChannelState> channels;
  std::vector<std::shared_ptr<Round>> rounds;
  /// Of a launch of threads: shared memory, and the shuffles that warps are at.
  std::vector<std::shared_ptr<SharedCells>> shared;
  std::vector<std::shared_ptr<Exchange>> exchanges;
  /// Copies that have not happened yet, and stores that may not have.
  std::vector<std::shared_ptr<TmaLoad>> loads;
  std::vector<std::shared_ptr<TmaStore>> writes;
  /// The warpgroup that ran last, for taking turns.
  unsigned last = 0;
  /// Counts what may let a blocked warpgroup go on.
  uint64_t version = 0;
  /// No warpgroup could go on before another release than the machine's first `seenReleases`.
  bool isStuck = false;
  uint64_t seenReleases = 0;

private:
  void addMemory();
  Step meet(Fiber &fiber, size_t at, int64_t warpgroups, mlir::Operation *op, bool sync, bool any,
            bool all);
  mlir::LogicalResult completePhase(MBarrier &barrier, mlir::Operation *op);
  bool isOrdered(const Event &event, const Fiber &fiber, const Event &later) const;
  bool isFenced(const Event &event, const Fiber &fiber) const;
  void report(Fiber &fiber, const SmemView &view, const SmemMemory::Access &earlier,
              const Event &later, bool write);
};

/// One run of a program.
struct Machine {
  const Program &program;
  const InterpreterOptions &options;
  InterpreterStatistics &statistics;
  std::mt19937_64 random;
  /// How many semaphores have been released, which CTAs may wait for.
  uint64_t releases = 0;
  /// Of the launch that runs, if it is one of threads.
  std::unique_ptr<GlobalAccesses> accesses = nullptr;

  uint64_t pick(uint64_t count) { return random() % count; }
  bool isEarly() { return options.timing == InterpreterTiming::Early; }
  /// Executes instructions of a fiber until it has executed a hopper op, is
  /// blocked, finished or failed.
  Step resume(Fiber &fiber);
  /// `ctas`: those of a cluster, in x.
  mlir::LogicalResult runLaunch(Fiber &host, const LaunchInfo &launch, const int64_t grid[3],
                                int64_t ctas, int64_t threads, std::optional<int64_t> sharedMemory);
};

/// Elements of a box of global memory that starts at `coordinates`: calls
/// `visit` with row, column and the element, null where there is none.
void forEachElement(const MemRef &memref, llvm::ArrayRef<int64_t> coordinates, int64_t rows,
                    int64_t columns, llvm::function_ref<void(int64_t, int64_t, char *)> visit);
/// result[m, n] += A B, with the tensor core's sums.
void multiply(Cluster &cluster, const Value &a, mlir::Type aType, bool transposeA, const Value &b,
              tile::SmemType bType, bool transposeB, mlir::VectorType type, double *result,
              int64_t tf32 = 0);
/// The mbarrier of a ring and an index, or null after an error.
MBarrier *findBarrier(Fiber &fiber, const Instruction &instruction, unsigned operand);
/// A tile as a value.
std::shared_ptr<Floats> copyTile(const MemRef &source, llvm::ArrayRef<int64_t> coordinates,
                                 tile::SmemType type);
mlir::LogicalResult checkReleased(Fiber &fiber, const SmemView &view, mlir::Operation *op);
/// Columns of a tile, padding of the last slab included.
inline int64_t paddedColumns(tile::SmemType type) {
  return type.getSlabs() * type.getSlabColumns();
}
inline ElementKind elementKind(mlir::Type type) {
  return type.isBF16() ? ElementKind::BF16 : type.isF16() ? ElementKind::F16 : ElementKind::F32;
}

} // namespace attn::interpreter

#endif
