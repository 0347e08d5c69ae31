// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Analysis/DependenceGraph.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

using namespace attn;

namespace {
/// A nest of loops i, j with statements in the innermost one.
struct Nest {
  DependenceGraph graph;
  Nest(unsigned numStatements) {
    graph.addLoop({"i", nullptr, 1, false});
    graph.addLoop({"j", nullptr, 1, false});
    for (unsigned s = 0; s < numStatements; ++s) {
      Statement statement;
      statement.label = "s";
      statement.domain = {0, 1};
      graph.addStatement(statement);
    }
  }
  void add(unsigned source, unsigned sink, DependenceKind kind, std::pair<int64_t, int64_t> vector,
           bool memory = true) {
    Dependence d;
    d.source = source;
    d.sink = sink;
    d.kind = kind;
    d.loops = {0, 1};
    d.vector = {Distance::exact(vector.first), Distance::exact(vector.second)};
    if (vector.first)
      d.carrier = 0;
    else if (vector.second)
      d.carrier = 1;
    d.throughMemory = memory;
    graph.addDependence(d);
  }
};
} // namespace

TEST(DependenceGraph, InterchangeNamesTheDependence) {
  Nest nest(2);
  nest.add(0, 1, DependenceKind::RAW, {0, 0}, false);
  nest.add(1, 0, DependenceKind::RAW, {1, -1});
  nest.graph.finalize();
  EXPECT_FALSE(nest.graph.findOrderViolation({0, 1}));
  auto violation = nest.graph.findOrderViolation({1, 0});
  ASSERT_TRUE(violation);
  EXPECT_EQ(nest.graph.describe(*violation),
            "RAW dependence from S2 to S1 with direction (1, -1) would become "
            "(-1, 1)");
  EXPECT_FALSE(nest.graph.isParallel(0));
  EXPECT_TRUE(nest.graph.isParallel(1));
  ASSERT_EQ(nest.graph.getComponents().size(), 1u);
  EXPECT_EQ(nest.graph.formatLoops(nest.graph.getComponents()[0].carriers), "i");
}

TEST(DependenceGraph, LoopsOutsideOfTheOrderStayBehind) {
  Nest nest(1);
  nest.add(0, 0, DependenceKind::WAW, {1, -1});
  nest.graph.finalize();
  EXPECT_FALSE(nest.graph.findOrderViolation({0}));
  EXPECT_TRUE(nest.graph.findOrderViolation({1}));
}

TEST(DependenceGraph, MergesEqualDependences) {
  Nest nest(1);
  nest.add(0, 0, DependenceKind::RAW, {0, 1});
  nest.add(0, 0, DependenceKind::RAW, {0, 1});
  nest.graph.finalize();
  EXPECT_EQ(nest.graph.getDependences().size(), 1u);
}

TEST(DependenceGraph, HoistPrefersTheValueThatWouldBeMissed) {
  Nest nest(2);
  nest.add(0, 1, DependenceKind::WAR, {0, 0});
  nest.add(0, 1, DependenceKind::WAR, {0, 1});
  nest.add(1, 0, DependenceKind::RAW, {0, 1});
  nest.graph.finalize();
  auto violation = nest.graph.findHoistViolation(0, 1);
  ASSERT_TRUE(violation);
  EXPECT_EQ(nest.graph.describe(*violation->dependence),
            "RAW dependence from S2 to S1 with direction (0, 1)");
}

TEST(DependenceGraph, WhatAnOuterLoopCarriesDoesNotStopHoisting) {
  Nest nest(2);
  nest.add(1, 0, DependenceKind::RAW, {1, 0});
  nest.graph.finalize();
  EXPECT_FALSE(nest.graph.findHoistViolation(0, 1));
  EXPECT_TRUE(nest.graph.findHoistViolation(0, 0));
}

TEST(DependenceGraph, HoistTogether) {
  Nest nest(2);
  nest.add(0, 1, DependenceKind::RAW, {0, 0}, false);
  nest.graph.finalize();
  EXPECT_TRUE(nest.graph.findHoistViolation(1, 1));
  EXPECT_FALSE(nest.graph.findHoistViolation(1, 1, {0}));
}

TEST(DependenceGraph, Distribution) {
  Nest nest(2);
  nest.add(1, 0, DependenceKind::RAW, {0, 1});
  nest.graph.finalize();
  llvm::SmallVector<unsigned> first = {0}, second = {1};
  EXPECT_TRUE(nest.graph.findDistributionViolation(1, {first, second}));
  EXPECT_FALSE(nest.graph.findDistributionViolation(1, {second, first}));
}

TEST(DependenceGraph, Fusion) {
  std::vector<Dependence> cross(2);
  cross[0].vector = {Distance::exact(1)};
  cross[1].vector = {Distance::exact(0)};
  EXPECT_EQ(findFusionViolation(cross), nullptr);
  cross[1].vector = {Distance{-1, 0}};
  EXPECT_EQ(findFusionViolation(cross), &cross[1]);
}

TEST(DependenceGraph, Separation) {
  Nest nest(2);
  Dependence d;
  d.source = 0;
  d.sink = 1;
  d.loops = {0};
  d.vector = {Distance::exact(0)};
  d.separated = {1};
  nest.graph.addDependence(d);
  nest.graph.finalize();
  EXPECT_FALSE(nest.graph.findSeparation({0}, {1}, 0));
  EXPECT_TRUE(nest.graph.findSeparation({0}, {1}, 1));
}

TEST(DependenceGraph, FindsByName) {
  Nest nest(2);
  nest.graph.finalize();
  EXPECT_EQ(nest.graph.findStatement("S2"), 1u);
  for (const char *wrong : {"S0", "S3", "2", "S", "Sx", ""})
    EXPECT_FALSE(nest.graph.findStatement(wrong)) << wrong;
  EXPECT_EQ(nest.graph.findLoop("j"), 1u);
  EXPECT_FALSE(nest.graph.findLoop("k"));
}

TEST(DependenceGraph, PrintsEmptyGraph) {
  DependenceGraph graph;
  graph.finalize();
  std::string text;
  llvm::raw_string_ostream os(text);
  graph.print(os, "nothing");
  EXPECT_EQ(os.str(), "dependences of nothing\nstatements:\ndependences:\n"
                      "components:\nloops:\n");
}
