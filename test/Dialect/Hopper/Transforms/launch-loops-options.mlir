// RUN: not attn-opt %s -pass-pipeline='builtin.module(func.func(hopper-launch-loops{threads=48}))' 2>&1 | FileCheck %s --check-prefix=THREADS
// THREADS: error: expected threads to be a multiple of 32, at most 1024, parts at least 0, ctas at least 1, merge to be team or last, and team auto, thread or cta
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=ordered-turnstile},func.func(hopper-launch-loops{parts=9 ctas=8}))' 2>&1 | FileCheck %s --check-prefix=DEADLOCK
// DEADLOCK: error: deadlock: 9 CTAs of a row would wait for each other, and 8 run at a time
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=cluster-reduction},func.func(hopper-launch-loops{parts=9}))' 2>&1 | FileCheck %s --check-prefix=CLUSTER
// CLUSTER: error: a cluster has at most 8 CTAs, got parts=9
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=owner-computes},func.func(hopper-launch-loops{parts=9}))' 2>&1 | FileCheck %s --check-prefix=PARTS
// PARTS: error: option 'parts' is of loops that are divided among CTAs; this function has none
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=grid-phases},func.func(hopper-launch-loops{merge=last}))' 2>&1 | FileCheck %s --check-prefix=LAST
// LAST: error: option 'merge=last' is of partial-and-merge, not of grid-phases
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=grid-phases},func.func(hopper-launch-loops{team=cta}))' 2>&1 | FileCheck %s --check-prefix=TEAM
// TEAM: error: option 'team' is of rows whose loops are not divided among CTAs; this function has none

// Through attn-lower-to-hopper.
// RUN: not attn-opt %s --attn-lower-to-hopper="order=n_outer" 2>&1 | FileCheck %s --check-prefix=TILES
// TILES: error: schedule options of tiles (block-m, block-n, stages, order, parts) are not of affine loops on memory
// RUN: not attn-opt %S/../../../Hopper/Inputs/threads-reference.mlir --attn-lower-to-hopper="treatment=atomics" 2>&1 | FileCheck %s --check-prefix=TENSORS
// TENSORS: error: schedule option 'treatment' is of affine loops on memory
// RUN: not attn-opt %s --attn-lower-to-hopper="treatment=turns" 2>&1 | FileCheck %s --check-prefix=TREATMENT
// TREATMENT: error: expected a treatment of attn-print-dependences or auto
func.func @sum(%A: memref<8x128xf32>, %S: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 128 {
      %a = affine.load %A[%i, %j] : memref<8x128xf32>
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
    }
  }
  return
}
