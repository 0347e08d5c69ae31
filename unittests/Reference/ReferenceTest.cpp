// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Small cases worked out by hand.

#include "ParseFunction.h"
#include <cmath>

using namespace attn;
using llvm::toString;

static std::vector<RefTensorPtr> run(ParsedFunction &function, std::vector<RefTensorPtr> arguments,
                                     Precision precision = Precision::Exact) {
  auto results = evaluate(*function, arguments, precision);
  if (!results) {
    ADD_FAILURE() << toString(results.takeError());
    return {};
  }
  return *results;
}

// Two keys whose scores differ by log 3: weights 1/4 and 3/4.
TEST(Reference, Forward) {
  ParsedFunction function(R"(
    func.func @f(%q: tensor<1x1x1x1xf32>, %k: tensor<1x1x2x1xf32>, %v: tensor<1x1x2x2xf32>)
        -> (tensor<1x1x1x2xf32>, tensor<1x1x1xf32>) {
      %o, %l = attn.forward %q, %k, %v scale 1.0 : tensor<1x1x1x1xf32>, tensor<1x1x2x1xf32>,
          tensor<1x1x2x2xf32> -> tensor<1x1x1x2xf32>, tensor<1x1x1xf32>
      return %o, %l : tensor<1x1x1x2xf32>, tensor<1x1x1xf32>
    })");
  auto results = run(function, {floats({1, 1, 1, 1}, {1}), floats({1, 1, 2, 1}, {0, std::log(3)}),
                                floats({1, 1, 2, 2}, {4, 8, 0, 16})});
  EXPECT_NEAR(results[0]->floats[0], 1, 1e-15);
  EXPECT_NEAR(results[0]->floats[1], 14, 1e-14);
  EXPECT_NEAR(results[1]->floats[0], std::log(4), 1e-15);
}

// A row without keys gives zeros and -inf; the default scale is 1/sqrt(D).
TEST(Reference, CausalAndMaskedRows) {
  ParsedFunction function(R"(
    func.func @f(%q: tensor<1x1x2x4xf32>, %k: tensor<1x1x2x4xf32>, %v: tensor<1x1x2x1xf32>)
        -> (tensor<1x1x2x1xf32>, tensor<1x1x2xf32>) {
      %o, %l = attn.forward %q, %k, %v mask {
        ^bb0(%b: index, %h: index, %i: index, %j: index):
          %keep = arith.cmpi sgt, %i, %j : index
          attn.yield %keep : i1
        } : tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x1xf32>
          -> tensor<1x1x2x1xf32>, tensor<1x1x2xf32>
      return %o, %l : tensor<1x1x2x1xf32>, tensor<1x1x2xf32>
    })");
  // Values of masked pairs do not matter, whatever they are.
  auto results = run(function, {floats({1, 1, 2, 4}, {1, 1, 1, 1, 1, 1, 1, 1}),
                                floats({1, 1, 2, 4}, {1, 1, 1, 1, NAN, 0, 0, 0}),
                                floats({1, 1, 2, 1}, {7, NAN})});
  EXPECT_EQ(results[0]->floats[0], 0);
  EXPECT_EQ(results[1]->floats[0], -INFINITY);
  EXPECT_EQ(results[0]->floats[1], 7);
  EXPECT_EQ(results[1]->floats[1], 2);
}

// A sink takes its share of the weight, and is the sum of an empty row.
TEST(Reference, SinkAndGroups) {
  ParsedFunction function(R"(
    func.func @f(%q: tensor<1x2x1x1xf32>, %k: tensor<1x1x?x1xf32>, %v: tensor<1x1x?x1xf32>,
                 %sink: tensor<2xf32>) -> (tensor<1x2x1x1xf32>, tensor<1x2x1xf32>) {
      %o, %l = attn.forward %q, %k, %v scale 1.0 sink(%sink : tensor<2xf32>)
          : tensor<1x2x1x1xf32>, tensor<1x1x?x1xf32>, tensor<1x1x?x1xf32>
          -> tensor<1x2x1x1xf32>, tensor<1x2x1xf32>
      return %o, %l : tensor<1x2x1x1xf32>, tensor<1x2x1xf32>
    })");
  auto results = run(function, {floats({1, 2, 1, 1}, {0, 0}), floats({1, 1, 1, 1}, {0}),
                                floats({1, 1, 1, 1}, {4}), floats({2}, {0, std::log(3)})});
  EXPECT_NEAR(results[0]->floats[0], 2, 1e-15);
  EXPECT_NEAR(results[0]->floats[1], 1, 1e-15);
  EXPECT_NEAR(results[1]->floats[1], std::log(4), 1e-15);
  results = run(function, {floats({1, 2, 1, 1}, {0, 0}), floats({1, 1, 0, 1}, {}),
                           floats({1, 1, 0, 1}, {}), floats({2}, {0.5, -1})});
  EXPECT_EQ(results[0]->floats[1], 0);
  EXPECT_EQ(results[1]->floats[0], 0.5);
  EXPECT_EQ(results[1]->floats[1], -1);
}

// A score region with a captured table and a captured scalar.
TEST(Reference, ScoreRegion) {
  ParsedFunction function(R"(
    func.func @f(%x: tensor<2x2xf32>, %t: tensor<2xf32>, %w: index) -> tensor<2x2xf32> {
      %y = attn.softmax %x captures(%t, %w : tensor<2xf32>, index) score {
      ^bb0(%s: f32, %i: index, %j: index, %table: tensor<2xf32>, %window: index):
        %bias = tensor.extract %table[%j] : tensor<2xf32>
        %r = arith.addf %s, %bias : f32
        attn.yield %r : f32
      } mask {
      ^bb0(%i: index, %j: index, %table: tensor<2xf32>, %window: index):
        %d = arith.subi %i, %j : index
        %keep = arith.cmpi slt, %d, %window : index
        attn.yield %keep : i1
      } : tensor<2x2xf32>
      return %y : tensor<2x2xf32>
    })");
  auto results = run(
      function, {floats({2, 2}, {0, 0, 5, 6}), floats({2}, {0, std::log(3)}), integers({}, {1})});
  EXPECT_NEAR(results[0]->floats[0], 0.25, 1e-15);
  EXPECT_NEAR(results[0]->floats[1], 0.75, 1e-15);
  EXPECT_EQ(results[0]->floats[2], 0);
  EXPECT_EQ(results[0]->floats[3], 1);
}

TEST(Reference, ReadOutOfBounds) {
  ParsedFunction function(R"(
    func.func @f(%x: tensor<2x3xf32>, %t: tensor<2xf32>) -> tensor<2x3xf32> {
      %y = attn.softmax %x captures(%t : tensor<2xf32>) score {
      ^bb0(%s: f32, %i: index, %j: index, %table: tensor<2xf32>):
        %bias = tensor.extract %table[%j] : tensor<2xf32>
        attn.yield %bias : f32
      } : tensor<2x3xf32>
      return %y : tensor<2x3xf32>
    })");
  auto results = evaluate(*function, {floats({2, 3}, {0, 0, 0, 0, 0, 0}), floats({2}, {0, 0})},
                          Precision::Exact);
  ASSERT_FALSE(bool(results));
  EXPECT_NE(toString(results.takeError())
                .find("'tensor.extract' reads outside of a tensor of 2: index "
                      "2 in dimension 0"),
            std::string::npos);
}

// The baseline rounds where the types say so.
TEST(Reference, SameType) {
  ParsedFunction function(R"(
    func.func @f(%a: f32, %b: f32) -> f32 {
      %c = arith.addf %a, %b : f32
      return %c : f32
    })");
  std::vector<RefTensorPtr> arguments = {floats({}, {1}), floats({}, {0x1p-30})};
  EXPECT_EQ(run(function, arguments)[0]->floats[0], 1 + 0x1p-30);
  EXPECT_EQ(run(function, arguments, Precision::SameType)[0]->floats[0], 1);
}

// Naive attention's first half: a contraction, then an elementwise op.
TEST(Reference, Linalg) {
  ParsedFunction function(R"(
    func.func @f(%a: tensor<?x2xf32>, %b: tensor<2x?xf32>) -> tensor<?x?xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %zero = arith.constant 0.0 : f32
      %m = tensor.dim %a, %c0 : tensor<?x2xf32>
      %n = tensor.dim %b, %c1 : tensor<2x?xf32>
      %e = tensor.empty(%m, %n) : tensor<?x?xf32>
      %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
      %p = linalg.matmul ins(%a, %b : tensor<?x2xf32>, tensor<2x?xf32>)
          outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
          affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
          ins(%p : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
      ^bb0(%x: f32, %_: f32):
        %i = linalg.index 0 : index
        %ii = arith.index_cast %i : index to i32
        %fi = arith.sitofp %ii : i32 to f32
        %y = arith.addf %x, %fi : f32
        linalg.yield %y : f32
      } -> tensor<?x?xf32>
      %s = arith.negf %r : tensor<?x?xf32>
      return %s : tensor<?x?xf32>
    })");
  auto results = run(function, {floats({2, 2}, {1, 2, 3, 4}), floats({2, 1}, {10, 1})});
  EXPECT_EQ(results[0]->floats, std::vector<double>({-12, -35}));
}

// What gradient functions use besides: single elements.
TEST(Reference, Elements) {
  ParsedFunction function(R"(
    func.func @f(%a: tensor<3xf32>, %i: index) -> (tensor<3xf32>, tensor<f32>) {
      %x = tensor.extract %a[%i] : tensor<3xf32>
      %y = arith.addf %x, %x : f32
      %r = tensor.insert %y into %a[%i] : tensor<3xf32>
      %s = tensor.from_elements %y : tensor<f32>
      return %r, %s : tensor<3xf32>, tensor<f32>
    })");
  auto results = run(function, {floats({3}, {1, 2, 3}), integers({}, {1})});
  EXPECT_EQ(results[0]->floats, std::vector<double>({1, 4, 3}));
  EXPECT_EQ(results[1]->floats, std::vector<double>({4}));
  EXPECT_FALSE(bool(llvm::expectedToOptional(
      evaluate(*function, {floats({3}, {1, 2, 3}), integers({}, {3})}, Precision::Exact))));
}

TEST(Reference, Refuses) {
  ParsedFunction function(R"(
    func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
      %r = tensor.extract_slice %a[0] [4] [1] : tensor<4xf32> to tensor<4xf32>
      return %r : tensor<4xf32>
    })");
  auto results = evaluate(*function, {floats({4}, {0, 0, 0, 0})}, Precision::Exact);
  ASSERT_FALSE(bool(results));
  EXPECT_NE(toString(results.takeError()).find("'tensor.extract_slice' is not interpreted"),
            std::string::npos);
}
