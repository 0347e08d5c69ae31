// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Analysis/DependenceVector.h"
#include "gtest/gtest.h"

using namespace attn;
using Groups = llvm::SmallVector<llvm::SmallVector<unsigned>>;
using Edges = llvm::SmallVector<std::pair<unsigned, unsigned>>;

TEST(Distance, PrintsAsTheLiteratureDoes) {
  EXPECT_EQ(Distance::exact(0).str(), "0");
  EXPECT_EQ(Distance::exact(-2).str(), "-2");
  EXPECT_EQ(Distance::positive().str(), "+");
  EXPECT_EQ((Distance{1, 7}).str(), "+");
  EXPECT_EQ((Distance{-7, -1}).str(), "-");
  EXPECT_EQ((Distance{0, 7}).str(), "0+");
  EXPECT_EQ((Distance{std::nullopt, 0}).str(), "0-");
  EXPECT_EQ((Distance{-1, 1}).str(), "*");
  EXPECT_EQ(Distance::unknown().str(), "*");
}

TEST(Distance, CountsIterations) {
  EXPECT_EQ(Distance::exact(6).str(3), "2");
  // Not a whole number of iterations: only the direction is left.
  EXPECT_EQ(Distance::exact(4).str(3), "+");
  EXPECT_EQ(formatVector({Distance::exact(4), Distance::exact(-4)}, {2, 4}), "(2, -1)");
  EXPECT_EQ(formatVector({}), "()");
}

TEST(DistanceVector, LexicographicSign) {
  auto exact = [](int64_t a, int64_t b) {
    return DistanceVector{Distance::exact(a), Distance::exact(b)};
  };
  EXPECT_TRUE(isLexicographicallyNonNegative({}));
  EXPECT_TRUE(isLexicographicallyNonNegative(exact(0, 0)));
  EXPECT_TRUE(isLexicographicallyNonNegative(exact(1, -1)));
  EXPECT_FALSE(isLexicographicallyNonNegative(exact(-1, 1)));
  EXPECT_FALSE(isLexicographicallyNonNegative(exact(0, -1)));
  EXPECT_TRUE(isLexicographicallyNonNegative({Distance::positive(), Distance::unknown()}));
  EXPECT_FALSE(isLexicographicallyNonNegative({Distance::unknown(), Distance::positive()}));
  // The first entry may be zero, and then the second decides.
  EXPECT_FALSE(isLexicographicallyNonNegative({Distance{0, 3}, Distance::exact(-1)}));
  EXPECT_TRUE(isLexicographicallyNonNegative({Distance{0, 3}, Distance{0, 1}}));
}

TEST(DistanceVector, Permute) {
  DistanceVector vector = {Distance::exact(1), Distance::exact(-1), Distance::exact(0)};
  EXPECT_EQ(formatVector(permute(vector, {1, 2, 0})), "(-1, 0, 1)");
}

TEST(Components, Tarjan) {
  EXPECT_EQ(stronglyConnectedComponents(0, {}), Groups{});
  EXPECT_EQ(stronglyConnectedComponents(3, {}), (Groups{{0}, {1}, {2}}));
  // Two cycles joined by an edge, found whatever the order of the edges.
  Edges edges = {{4, 3}, {3, 4}, {0, 2}, {2, 1}, {1, 0}, {1, 4}};
  EXPECT_EQ(stronglyConnectedComponents(5, edges), (Groups{{0, 1, 2}, {3, 4}}));
  std::reverse(edges.begin(), edges.end());
  EXPECT_EQ(stronglyConnectedComponents(5, edges), (Groups{{0, 1, 2}, {3, 4}}));
  // A cycle inside of a larger one is the same component; self edges are none.
  EXPECT_EQ(stronglyConnectedComponents(4, {{0, 1}, {1, 2}, {2, 0}, {1, 0}, {3, 3}}),
            (Groups{{0, 1, 2}, {3}}));
}

TEST(Components, LongChainNeedsNoDeepStack) {
  Edges edges;
  unsigned n = 200000;
  for (unsigned i = 0; i + 1 < n; ++i)
    edges.push_back({i, i + 1});
  EXPECT_EQ(stronglyConnectedComponents(n, edges).size(), n);
  edges.push_back({n - 1, 0});
  EXPECT_EQ(stronglyConnectedComponents(n, edges).size(), 1u);
}

TEST(Components, TopologicalOrder) {
  // 2 before 0, the rest as numbered.
  Edges edges = {{2, 0}, {3, 1}, {1, 3}};
  Groups groups = stronglyConnectedComponents(4, edges);
  EXPECT_EQ(topologicalOrder(groups, edges), (Groups{{1, 3}, {2}, {0}}));
}
