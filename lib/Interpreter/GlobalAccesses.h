// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Global memory of a launch of threads: of two accesses to an element of which one writes, one must
// be known to be done. What orders them is the CTA's and the cluster's barriers, and between
// clusters flags, counters and meetings of the grid.

#ifndef ATTN_LIB_INTERPRETER_GLOBALACCESSES_H
#define ATTN_LIB_INTERPRETER_GLOBALACCESSES_H

#include "Clock.h"
#include "Value.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseSet.h"
#include <map>
#include <unordered_map>

namespace attn::interpreter {

class Fiber;
class Translator;
struct LaunchInfo;

/// What is known of other clusters: for some, the clock of one of their threads at a release.
class Knowledge {
public:
  void join(const Knowledge &other);
  void add(unsigned cluster, const Clock &clock);
  const Clock *of(unsigned cluster) const;

private:
  using Clocks = std::map<unsigned, std::shared_ptr<const Clock>>;
  std::shared_ptr<const Clocks> clocks;
};

/// Meetings of all threads of a launch (hopper.grid.sync), one behind the other.
struct GridRound {
  int64_t arrived = 0;
  bool complete = false;
  Knowledge knowledge;
};

/// Of one launch, whose end orders everything.
struct GlobalAccesses {
  struct Access {
    mlir::Operation *op = nullptr;
    unsigned cluster = 0, thread = 0;
    uint32_t epoch = 0;
    bool atomic = false;
    std::string name; ///< of the thread
  };
  struct Cell {
    /// Since the last write that was not atomic, with it; since then, the last of each thread.
    llvm::SmallVector<Access, 1> writes, reads;
  };
  /// Allocations that the launch may write.
  llvm::SmallDenseSet<const char *> written;
  std::unordered_map<const char *, Cell> cells;
  /// By flag or counter: what its last release made known.
  std::unordered_map<const char *, Knowledge> flags;
  std::shared_ptr<GridRound> round = std::make_shared<GridRound>();
  int64_t threads = 0, ctas = 0; ///< of the launch
};

/// Notes what global memory the launch of threads `info` writes.
void findWritten(Translator &translator, mlir::Operation *launch, LaunchInfo &info);
/// Whether the launch that is translated is one of threads and writes the memory that `memref` is
/// in: others have to run before an access.
bool mayRace(const Translator &translator, mlir::Value memref);

/// The fiber accesses an element: an error where it may do so too early.
llvm::LogicalResult noteAccess(Fiber &fiber, const MemRef &memref, const char *element,
                               mlir::Operation *op, bool write, bool atomic = false);
/// What the fiber knows becomes known to whoever acquires the flag, or is joined by what is.
void releaseFlag(Fiber &fiber, const char *flag);
void acquireFlag(Fiber &fiber, const char *flag);

} // namespace attn::interpreter

#endif
