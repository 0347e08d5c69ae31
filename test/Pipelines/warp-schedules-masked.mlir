// RUN: attn-opt %s --split-input-file --hopper-form-nests --hopper-select-schedule=products=mma | FileCheck %s
// RUN: attn-opt %s --split-input-file --hopper-form-nests --hopper-select-schedule=chip=sm_80 | FileCheck %s --check-prefix=LESS
// RUN: attn-opt %s --split-input-file --hopper-form-nests --hopper-select-schedule="products=mma block-n=64" | FileCheck %s --check-prefix=ASKED

// Wide sums of masked rows: small tiles of two CTAs, where both fit and no other size was asked for.
// CHECK: #hopper.schedule<block_m = 64, block_n = 32, {{.*}}products = mma>
// LESS: #hopper.schedule<block_m = 128, block_n = 32, {{.*}}products = mma>
// ASKED: #hopper.schedule<block_m = 128, block_n = 64, {{.*}}products = mma>
func.func @causal(%q: tensor<1x2x?x256xbf16>, %k: tensor<1x2x?x256xbf16>) -> tensor<1x2x?x256xbf16> {
  %o = attn.forward %q, %k, %k
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<1x2x?x256xbf16>, tensor<1x2x?x256xbf16>, tensor<1x2x?x256xbf16> -> tensor<1x2x?x256xbf16>
  return %o : tensor<1x2x?x256xbf16>
}

// -----

// CHECK: #hopper.schedule<block_m = 128, block_n = 64, {{.*}}products = mma>
// LESS: #hopper.schedule<block_m = 128, block_n = 32, {{.*}}products = mma>
// ASKED: #hopper.schedule<block_m = 128, block_n = 64, {{.*}}products = mma>
func.func @full(%q: tensor<1x2x?x256xbf16>, %k: tensor<1x2x?x256xbf16>) -> tensor<1x2x?x256xbf16> {
  %o = attn.forward %q, %k, %k : tensor<1x2x?x256xbf16>, tensor<1x2x?x256xbf16>, tensor<1x2x?x256xbf16> -> tensor<1x2x?x256xbf16>
  return %o : tensor<1x2x?x256xbf16>
}
