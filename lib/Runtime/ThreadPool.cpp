// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads for compiled code. See ThreadPool.h.

#include "attn/Runtime/ThreadPool.h"
#include <algorithm>
#include <pthread.h>

using namespace attn;

/// True on a thread that is inside of a body.
static thread_local bool insideBody = false;

/// Never destroyed: at the end of the process threads may still wait in it.
static std::atomic<ThreadPool *> sharedPool;
/// Of the pool that a forked process will make.
static std::atomic<unsigned> sharedThreads;

static void forgetThreadsOfParent() {
  if (ThreadPool *pool = sharedPool.exchange(nullptr))
    sharedThreads = pool->getNumThreads();
}

ThreadPool &ThreadPool::shared() {
  static const int registered = pthread_atfork(nullptr, nullptr, forgetThreadsOfParent);
  (void)registered;
  if (ThreadPool *pool = sharedPool.load(std::memory_order_acquire))
    return *pool;
  auto *made = new ThreadPool(sharedThreads);
  ThreadPool *expected = nullptr;
  if (sharedPool.compare_exchange_strong(expected, made))
    return *made;
  delete made;
  return *expected;
}

void ThreadPool::setNumThreads(unsigned threads) {
  std::lock_guard<std::mutex> noLoop(callers);
  stop();
  start(threads);
}

void ThreadPool::start(unsigned threads) {
  if (threads == 0)
    threads = std::max(1u, std::thread::hardware_concurrency());
  stopping = false;
  numThreads = threads;
  for (unsigned i = 1; i < threads; ++i)
    workers.emplace_back([this] { work(); });
}

void ThreadPool::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  started.notify_all();
  for (std::thread &worker : workers)
    worker.join();
  workers.clear();
}

void ThreadPool::takeIndices() {
  insideBody = true;
  for (int64_t index; (index = next.fetch_add(1, std::memory_order_relaxed)) < count;)
    body(index, context);
  insideBody = false;
}

void ThreadPool::work() {
  std::unique_lock<std::mutex> lock(mutex);
  uint64_t seen = generation;
  // A worker that starts after a loop was posted must still take part in it:
  // parallelFor waits for every worker.
  if (running)
    --seen;
  while (true) {
    started.wait(lock, [&] { return stopping || generation != seen; });
    if (stopping)
      return;
    seen = generation;
    lock.unlock();
    takeIndices();
    lock.lock();
    if (--running == 0)
      finished.notify_one();
  }
}

void ThreadPool::parallelFor(int64_t total, Body newBody, void *newContext) {
  if (insideBody || numThreads == 1 || total <= 1) {
    for (int64_t index = 0; index < total; ++index)
      newBody(index, newContext);
    return;
  }
  std::lock_guard<std::mutex> oneLoop(callers);
  {
    std::lock_guard<std::mutex> lock(mutex);
    count = total;
    body = newBody;
    context = newContext;
    next.store(0, std::memory_order_relaxed);
    running = workers.size();
    ++generation;
  }
  started.notify_all();
  takeIndices();
  std::unique_lock<std::mutex> lock(mutex);
  finished.wait(lock, [&] { return running == 0; });
}

static std::atomic<int64_t> tileCounts[2];

TileCounts attn::getTileCounts() { return {tileCounts[0].load(), tileCounts[1].load()}; }

void attn::resetTileCounts() {
  tileCounts[0] = 0;
  tileCounts[1] = 0;
}

extern "C" void attnRuntimeParallelFor(int64_t count, void (*body)(int64_t, void *),
                                       void *context) {
  ThreadPool::shared().parallelFor(count, body, context);
}

extern "C" void attnRuntimeCountTile(int32_t kind) {
  tileCounts[kind & 1].fetch_add(1, std::memory_order_relaxed);
}
