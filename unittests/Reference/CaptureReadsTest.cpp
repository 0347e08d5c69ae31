// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ParseFunction.h"

using namespace attn;

/// Checks a softmax of 100 x 100 that reads `table` at an index computed by
/// `text` from %i and %j; `ids` is a second capture.
static std::string check(const std::string &text, int64_t length,
                         std::vector<int64_t> ids = {0, 1, 2}) {
  ParsedFunction function(R"(
    func.func @f(%x: tensor<?x?xf32>, %t: tensor<?xf32>, %ids: tensor<?xi64>) -> tensor<?x?xf32> {
      %y = attn.softmax %x captures(%t, %ids : tensor<?xf32>, tensor<?xi64>) score {
      ^bb0(%s: f32, %i: index, %j: index, %table: tensor<?xf32>, %id: tensor<?xi64>):
        %c0 = arith.constant 0 : index
        %c3 = arith.constant 3 : index
        %c7 = arith.constant 7 : index
        )" + text + R"(
        %bias = tensor.extract %table[%n] : tensor<?xf32>
        attn.yield %bias : f32
      } : tensor<?x?xf32>
      return %y : tensor<?x?xf32>
    })");
  auto table = std::make_shared<RefTensor>(ElementKind::F32, llvm::ArrayRef<int64_t>{length});
  auto x = std::make_shared<RefTensor>(ElementKind::F32, llvm::ArrayRef<int64_t>{100, 100});
  int64_t count = ids.size();
  llvm::Error error = checkCaptureReads(*function, {x, table, integers({count}, std::move(ids))});
  if (!error)
    return "ok";
  std::string message = llvm::toString(std::move(error));
  return message.substr(message.find("reads outside"));
}

TEST(CaptureReads, Affine) {
  std::string sum = "%n = arith.addi %i, %j : index";
  EXPECT_EQ(check(sum, 199), "ok");
  EXPECT_EQ(check(sum, 198), "reads outside of its capture of 198: index 198 in dimension 0 "
                             "(at indices 99, 99)");
}

TEST(CaptureReads, Clamped) {
  std::string clamp = R"(%d = arith.subi %i, %j : index
        %a = arith.maxsi %d, %c0 : index
        %n = arith.minsi %a, %c7 : index)";
  EXPECT_EQ(check(clamp, 8), "ok");
  EXPECT_NE(check(clamp, 7), "ok");
  std::string modulo = "%n = arith.remui %j, %c7 : index";
  EXPECT_EQ(check(modulo, 7), "ok");
  EXPECT_NE(check(modulo, 6), "ok");
}

// Intervals alone prove nothing here; halving the box does.
TEST(CaptureReads, Selected) {
  std::string select = R"(%d = arith.subi %i, %j : index
        %keep = arith.cmpi sge, %i, %j : index
        %n = arith.select %keep, %d, %c0 : index)";
  EXPECT_EQ(check(select, 100), "ok");
  EXPECT_EQ(check(select, 99), "reads outside of its capture of 99: index 99 in dimension 0 "
                               "(at indices 99, 0)");
}

// The index comes from a table whose contents are known.
TEST(CaptureReads, Indirect) {
  std::string indirect = R"(%m = arith.remsi %i, %c3 : index
        %k = tensor.extract %id[%m] : tensor<?xi64>
        %n = arith.index_cast %k : i64 to index)";
  EXPECT_EQ(check(indirect, 4, {0, 3, 1}), "ok");
  EXPECT_EQ(check(indirect, 4, {0, 4, 1}),
            "reads outside of its capture of 4: index 4 in dimension 0 (at "
            "indices 1, 0)");
  EXPECT_EQ(check(indirect, 4, {0, 1}),
            "reads outside of its capture of 2: index 2 in dimension 0 (at "
            "indices 2, 0)");
}

TEST(CaptureReads, Negative) {
  EXPECT_EQ(check("%n = arith.subi %i, %j : index", 1000),
            "reads outside of its capture of 1000: index -1 in dimension 0 (at "
            "indices 0, 1)");
}

// What a gradient region adds to must be in bounds as well.
TEST(CaptureReads, Accumulations) {
  ParsedFunction function(R"(
    func.func @f(%dy: tensor<4x5xf32>, %x: tensor<4x5xf32>, %y: tensor<4x5xf32>, %t: tensor<?xf32>)
        -> tensor<?xf32> {
      %dx, %dt = attn.softmax_backward %dy, %x, %y captures(%t : tensor<?xf32>) score {
      ^bb0(%s: f32, %i: index, %j: index, %table: tensor<?xf32>):
        %e = tensor.extract %table[%i] : tensor<?xf32>
        %r = arith.mulf %s, %e : f32
        attn.yield %r : f32
      } gradient {
      ^bb0(%s: f32, %i: index, %j: index, %table: tensor<?xf32>, %d: f32):
        attn.accumulate %d into %table[%j] : f32 into tensor<?xf32>
        attn.yield %d : f32
      } : tensor<4x5xf32> -> captures(tensor<?xf32>)
      return %dt : tensor<?xf32>
    })");
  auto x = std::make_shared<RefTensor>(ElementKind::F32, llvm::ArrayRef<int64_t>{4, 5});
  auto table = [](int64_t length) {
    return std::make_shared<RefTensor>(ElementKind::F32, llvm::ArrayRef<int64_t>{length});
  };
  EXPECT_FALSE(bool(checkCaptureReads(*function, {x, x, x, table(5)})));
  std::string message = llvm::toString(checkCaptureReads(*function, {x, x, x, table(4)}));
  EXPECT_NE(message.find("'attn.accumulate' adds outside of its capture of 4: "
                         "index 4 in dimension 0 (at indices 0, 4)"),
            std::string::npos)
      << message;
  auto results = evaluate(*function, {x, x, x, table(4)}, Precision::SameType);
  ASSERT_FALSE(bool(results));
  EXPECT_NE(
      llvm::toString(results.takeError()).find("'attn.accumulate' adds outside of a tensor of 4"),
      std::string::npos);
}
