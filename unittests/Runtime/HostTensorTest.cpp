// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Runtime/HostTensor.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace llvm;
using namespace attn;

// Padding lies before the tensor and behind every run, and holds NaN.
TEST(HostTensor, Padding) {
  TensorPlacement placement;
  placement.pad = 3;
  auto tensor = HostTensor::create(ElementKind::F32, {2, 2, 4}, placement);
  ASSERT_TRUE(bool(tensor));
  EXPECT_EQ(tensor->getStrides(), ArrayRef<int64_t>({17, 7, 1}));
  EXPECT_EQ(tensor->getOffset(), 3);
  auto *elements = reinterpret_cast<float *>(tensor->getBase());
  EXPECT_TRUE(std::isnan(elements[2]));
  EXPECT_EQ(elements[3], 0);
  EXPECT_EQ(elements[6], 0);
  EXPECT_TRUE(std::isnan(elements[7]));
  EXPECT_EQ(elements[3 + 17 + 7 + 3], 0);
}

TEST(HostTensor, Rows) {
  TensorPlacement placement;
  placement.pad = 1;
  auto tensor = HostTensor::create(ElementKind::I32, {3, 2}, placement);
  ASSERT_TRUE(bool(tensor));
  SmallVector<int64_t> starts;
  tensor->forEachRow([&](char *row, int64_t length) {
    EXPECT_EQ(length, 2);
    starts.push_back((row - tensor->getBase()) / 4);
  });
  EXPECT_EQ(ArrayRef<int64_t>(starts), ArrayRef<int64_t>({1, 4, 7}));
}

TEST(HostTensor, ScalarsAndEmpty) {
  auto scalar = HostTensor::create(ElementKind::BF16, {});
  ASSERT_TRUE(bool(scalar));
  EXPECT_EQ(scalar->getNumElements(), 1);
  auto empty = HostTensor::create(ElementKind::F32, {2, 0, 4});
  ASSERT_TRUE(bool(empty));
  EXPECT_EQ(empty->getBytes(), 0u);
  empty->forEachRow([](char *, int64_t) { FAIL(); });
}

TEST(HostTensor, TooLarge) {
  int64_t huge = int64_t(1) << 40;
  auto tensor = HostTensor::create(ElementKind::F32, {huge, huge});
  ASSERT_FALSE(bool(tensor));
  EXPECT_EQ(toString(tensor.takeError()),
            "a tensor of 1099511627776x1099511627776 elements does not fit in "
            "memory");
  auto negative = countElements({2, -1});
  ASSERT_FALSE(bool(negative));
  EXPECT_EQ(toString(negative.takeError()), "expected sizes of at least 0, got -1");
}

// The byte behind the tensor cannot be read.
TEST(HostTensorDeathTest, GuardPage) {
  TensorPlacement placement;
  placement.tight = true;
  auto tensor = HostTensor::create(ElementKind::F32, {5}, placement);
  ASSERT_TRUE(bool(tensor));
  auto *elements = reinterpret_cast<volatile float *>(tensor->getBase());
  EXPECT_EQ(elements[4], 0);
  EXPECT_DEATH((void)elements[5], "");
}
