// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Runtime/ThreadPool.h"
#include "gtest/gtest.h"
#include <array>

using namespace attn;

TEST(ThreadPool, EveryIndexOnce) {
  for (unsigned threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.getNumThreads(), threads);
    for (int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> visits(count);
      pool.parallelFor(
          count,
          [](int64_t index, void *context) {
            ++(*static_cast<std::vector<std::atomic<int>> *>(context))[index];
          },
          &visits);
      for (auto &visit : visits)
        EXPECT_EQ(visit.load(), 1);
    }
  }
}

// Many short loops in a row: no index is lost between two of them.
TEST(ThreadPool, ManyLoops) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  for (int loop = 0; loop < 2000; ++loop)
    pool.parallelFor(
        8,
        [](int64_t index, void *context) {
          *static_cast<std::atomic<int64_t> *>(context) += index;
        },
        &sum);
  EXPECT_EQ(sum.load(), 2000 * 28);
}

// A loop within a body runs on its thread.
TEST(ThreadPool, Nested) {
  ThreadPool pool(3);
  struct State {
    ThreadPool &pool;
    std::atomic<int> inner{0};
  } state{pool};
  pool.parallelFor(
      10,
      [](int64_t, void *context) {
        auto *state = static_cast<State *>(context);
        state->pool.parallelFor(
            10, [](int64_t, void *context) { ++static_cast<State *>(context)->inner; }, state);
      },
      &state);
  EXPECT_EQ(state.inner.load(), 100);
}

TEST(ThreadPool, Resizing) {
  ThreadPool pool(2);
  pool.setNumThreads(4);
  EXPECT_EQ(pool.getNumThreads(), 4u);
  std::atomic<int> visits{0};
  auto body = [](int64_t, void *context) { ++*static_cast<std::atomic<int> *>(context); };
  pool.parallelFor(50, body, &visits);
  pool.setNumThreads(1);
  pool.parallelFor(50, body, &visits);
  EXPECT_EQ(visits.load(), 100);
}

TEST(ThreadPool, TileCounts) {
  resetTileCounts();
  attnRuntimeCountTile(0);
  attnRuntimeCountTile(1);
  attnRuntimeCountTile(1);
  EXPECT_EQ(getTileCounts().masked, 1);
  EXPECT_EQ(getTileCounts().full, 2);
}
