// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-opt: runs passes and pipelines over attention IR.

#include "attn/Registration/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

#ifdef ATTN_TEST_PASSES
namespace attn::test {
void registerTestBuildMask();
void registerTestHopperMutate();
} // namespace attn::test
#endif

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  attn::registerDialects(registry);
  attn::registerPasses();
#ifdef ATTN_TEST_PASSES
  attn::test::registerTestBuildMask();
  attn::test::registerTestHopperMutate();
#endif
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "attnc: passes and pipelines over attention IR\n", registry));
}
