// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ParseFunction.h"
#include <cmath>

using namespace attn;

TEST(Compare, WithinTwiceTheBaseline) {
  RefTensorPtr exact = floats({2}, {1.0, 2.0});
  RefTensorPtr baseline = floats({2}, {1.01, 2.0});
  EXPECT_TRUE(compare(*floats({2}, {1.007, 2.0}), *exact, baseline).passed);
  Agreement far = compare(*floats({2}, {1.0, 2.03}), *exact, baseline);
  EXPECT_FALSE(far.passed);
  EXPECT_NEAR(far.maxError, 0.03, 1e-12);
  EXPECT_NEAR(far.baselineMaxError, 0.01, 1e-12);
  EXPECT_NE(far.reason.find("expected errors of at most"), std::string::npos);
}

// Each element may be near enough while all of them together are not.
TEST(Compare, MeanError) {
  std::vector<double> zeros(100, 1.0), one = zeros, shifted(100, 1.015);
  one[0] = 1.01;
  Agreement agreement = compare(*floats({100}, shifted), *floats({100}, zeros), floats({100}, one));
  EXPECT_FALSE(agreement.passed);
  EXPECT_NE(agreement.reason.find("expected a mean error"), std::string::npos);
}

// An infinity or a NaN must be where the reference has it.
TEST(Compare, InfinitiesAndNaN) {
  double inf = INFINITY, nan = NAN;
  RefTensorPtr exact = floats({2, 2}, {1, -inf, nan, 2});
  EXPECT_TRUE(compare(*floats({2, 2}, {1, -inf, nan, 2}), *exact, exact).passed);
  EXPECT_EQ(compare(*floats({2, 2}, {1, -100, nan, 2}), *exact, exact).reason,
            "expected -inf at [0, 1], got -100");
  EXPECT_EQ(compare(*floats({2, 2}, {1, -inf, nan, nan}), *exact, exact).reason,
            "expected 2 at [1, 1], got nan");
}

TEST(Compare, Integers) {
  RefTensorPtr exact = integers({2}, {3, 4});
  EXPECT_TRUE(compare(*exact, *exact, exact).passed);
  EXPECT_EQ(compare(*integers({2}, {3, 5}), *exact, exact).reason, "expected 4 at [1], got 5");
}

TEST(Compare, Shapes) {
  EXPECT_EQ(compare(*floats({1}, {1}), *floats({2}, {1, 1}), floats({2}, {1, 1})).reason,
            "expected shape 2, got 1");
}
