// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Runtime/CudaHostInterface.h"
#include "llvm/Support/Error.h"
#include "gtest/gtest.h"

using attn::cuda::Address;
using attn::cuda::Call;

namespace {

TEST(CudaHostInterface, MeasuresThePeak) {
  Call call;
  Address first = call.allocate(100), second = call.allocate(300);
  EXPECT_EQ(second, first + 256);
  EXPECT_EQ(call.getPeak(), 768u);
  call.free(second);
  call.free(first);
  EXPECT_EQ(call.allocate(512), first);
  EXPECT_EQ(call.getPeak(), 768u);
}

// One thing behind the other; what does not fit is workspace, what fits behind it is not.
TEST(CudaHostInterface, PlacesInArguments) {
  Call call;
  Address first = call.allocateAliasing(100, 2, 4096, 1000);
  EXPECT_EQ(call.allocateAliasing(300, 2, 4096, 1000), first + 256);
  EXPECT_EQ(call.getPeak(), 0u);
  Address outside = call.allocateAliasing(300, 2, 4096, 1000); // from 768 on there are 232
  EXPECT_EQ(call.getPeak(), 512u);
  EXPECT_EQ(call.allocateAliasing(232, 2, 4096, 1000), first + 768);
  EXPECT_EQ(call.allocateAliasing(100, 5, 4096, 1000), first); // another argument
  EXPECT_EQ(call.getPeak(), 512u);
  call.free(first); // which is not workspace
  call.free(outside);
  EXPECT_EQ(call.allocate(8), outside);
}

TEST(CudaHostInterface, NeedsRoom) {
  Call call;
  call.allocateAliasing(1, 0, 4096, 0);
  EXPECT_EQ(call.getPeak(), 256u);
  call.allocateAliasing(-1, 0, 4096, 1000);
  EXPECT_EQ(llvm::toString(call.takeError()), "a workspace of -1 bytes");
}

} // namespace
