// Sizes that no program can have are refused.
// RUN: not attn-opt %s --attn-tile-statements="lanes=0" 2>&1 | FileCheck %s --check-prefix=STATEMENTS
// RUN: not attn-opt %s --attn-prepare-vectors="size-multiple=0" 2>&1 | FileCheck %s --check-prefix=VECTORS
// RUN: not attn-opt %s --attn-fuse-programs="row-bytes=0" 2>&1 | FileCheck %s --check-prefix=FUSE
// RUN: not attn-opt %s --attn-fuse-programs="column-multiple=0" 2>&1 | FileCheck %s --check-prefix=FUSE

// STATEMENTS: sizes.mlir:[[#@LINE+3]]:{{.*}}error: expected lanes and rows to be at least 1
// VECTORS: sizes.mlir:[[#@LINE+2]]:{{.*}}error: expected rows and size-multiple to be at least 1
// FUSE: sizes.mlir:[[#@LINE+1]]:{{.*}}error: expected row-bytes and column-multiple to be at least 1
func.func @nothing() {
  return
}
