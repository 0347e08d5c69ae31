// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-lsp-server: editor support for the dialects that attn-opt reads.

#include "attn/Registration/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  attn::registerDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
