// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The threads that compiled code runs its parallel tiles on, and the counters
// that it reports executed tiles to.

#ifndef ATTN_RUNTIME_THREADPOOL_H
#define ATTN_RUNTIME_THREADPOOL_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace attn {

/// Persistent threads that share out the indices of one loop at a time. Indices
/// are taken one by one in increasing order, so the caller numbers the longest
/// tasks first. The calling thread takes part.
class ThreadPool {
public:
  /// `threads` counts the caller; 0 means one per hardware thread.
  explicit ThreadPool(unsigned threads = 0) { start(threads); }
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool &) = delete;

  /// The pool that compiled code uses. A child process has one of its own: the
  /// threads of its parent are not there.
  static ThreadPool &shared();

  /// Waits for a running loop; not from within a body.
  void setNumThreads(unsigned threads);
  unsigned getNumThreads() const { return numThreads; }

  using Body = void (*)(int64_t index, void *context);
  /// Runs `body` for 0..count-1 and returns when all have finished. From within
  /// a body it runs the indices in order on the calling thread.
  void parallelFor(int64_t count, Body body, void *context);

private:
  void work();
  void takeIndices();
  void stop();
  void start(unsigned threads);

  std::vector<std::thread> workers;
  std::atomic<unsigned> numThreads{1};
  std::mutex callers; // one loop at a time; guards `workers`
  std::mutex mutex;   // guards everything below
  std::condition_variable started, finished;
  uint64_t generation = 0;
  size_t running = 0;
  bool stopping = false;
  // Written before `generation` changes, read by the workers after.
  int64_t count = 0;
  Body body = nullptr;
  void *context = nullptr;
  std::atomic<int64_t> next{0};
};

/// Tiles that compiled code has reported since the last reset.
struct TileCounts {
  int64_t masked = 0, full = 0;
};
TileCounts getTileCounts();
void resetTileCounts();

} // namespace attn

extern "C" {
/// The symbols that compiled code calls; see ThreadPool and TileCounts. `kind`
/// is 0 for a tile with mask arithmetic, 1 for one without.
void attnRuntimeParallelFor(int64_t count, void (*body)(int64_t index, void *context),
                            void *context);
void attnRuntimeCountTile(int32_t kind);
}

#endif
