// RUN: attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(attn-test-factors))" | FileCheck %s
// RUN: attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(attn-test-factors))" --remarks-filter=attn-test-factors -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] tested | Category:attn-test-factors{{$}}

// The derivative of a score is 0 where the probability is, so the mask is not asked again: with
// the scale and the log-sum-exp in one fused multiply-add, and a factor of the score's own.
// CHECK-LABEL: func.func @derivative
// CHECK: %[[P:.*]] = math.exp2
// CHECK: scf.if
// CHECK: } else {
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00>
// CHECK-NEXT: %[[SOME:.*]] = arith.cmpf une, %[[P]], %[[ZERO]]
// CHECK-NEXT: arith.select %[[SOME]]
func.func @derivative(%i: vector<64x64xi1>, %near: vector<64x64xi1>, %s: vector<64x64xf32>, %l: vector<64x64xf32>, %w: vector<64x64xf32>, %u: vector<64x64xf32>, %full: i1) -> vector<64x64xf32> {
  %ninf = arith.constant dense<0xFF800000> : vector<64x64xf32>
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %scale = arith.constant dense<0.18> : vector<64x64xf32>
  %keep = arith.andi %i, %near : vector<64x64xi1>
  %t = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %s : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %s, %ninf : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  %e = math.fma %t, %scale, %l : vector<64x64xf32>
  %p = math.exp2 %e : vector<64x64xf32>
  %pu = arith.mulf %u, %p : vector<64x64xf32>
  %d = arith.mulf %pu, %w : vector<64x64xf32>
  %r = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %d : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %d, %zero : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  return %r : vector<64x64xf32>
}

// -----

// Another mask than that of the score: where it is false, the probability may be anything.
// CHECK-LABEL: func.func @other_mask
// CHECK-NOT: arith.cmpf
func.func @other_mask(%keep: vector<64x64xi1>, %other: vector<64x64xi1>, %s: vector<64x64xf32>, %w: vector<64x64xf32>, %full: i1) -> vector<64x64xf32> {
  %ninf = arith.constant dense<0xFF800000> : vector<64x64xf32>
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %t = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %s : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %s, %ninf : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  %p = math.exp2 %t : vector<64x64xf32>
  %d = arith.mulf %p, %w : vector<64x64xf32>
  %r = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %d : vector<64x64xf32>
  } else {
    %x = arith.select %other, %d, %zero : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  return %r : vector<64x64xf32>
}

// -----

// A negative scale makes +inf of -inf, whose exponential is not 0.
// CHECK-LABEL: func.func @negative_scale
// CHECK-NOT: arith.cmpf
func.func @negative_scale(%i: vector<64x64xi1>, %near: vector<64x64xi1>, %s: vector<64x64xf32>, %l: vector<64x64xf32>, %w: vector<64x64xf32>, %full: i1) -> vector<64x64xf32> {
  %ninf = arith.constant dense<0xFF800000> : vector<64x64xf32>
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %scale = arith.constant dense<-0.18> : vector<64x64xf32>
  %keep = arith.andi %i, %near : vector<64x64xi1>
  %t = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %s : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %s, %ninf : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  %e = math.fma %t, %scale, %l : vector<64x64xf32>
  %p = math.exp2 %e : vector<64x64xf32>
  %d = arith.mulf %p, %w : vector<64x64xf32>
  %r = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %d : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %d, %zero : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  return %r : vector<64x64xf32>
}

// -----

// One comparison of indices costs as much as one of the factor; sums have no factor.
// CHECK-LABEL: func.func @comparison
// CHECK-NOT: arith.cmpf
func.func @comparison(%i: vector<64x64xindex>, %j: vector<64x64xindex>, %also: vector<64x64xi1>, %s: vector<64x64xf32>, %w: vector<64x64xf32>, %full: i1) -> (vector<64x64xf32>, vector<64x64xf32>) {
  %ninf = arith.constant dense<0xFF800000> : vector<64x64xf32>
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %keep = arith.cmpi sge, %i, %j : vector<64x64xindex>
  %both = arith.andi %keep, %also : vector<64x64xi1>
  %t = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %s : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %s, %ninf : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  %p = math.exp2 %t : vector<64x64xf32>
  %d = arith.mulf %p, %w : vector<64x64xf32>
  %sum = arith.addf %p, %w : vector<64x64xf32>
  %r = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %d : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %d, %zero : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  %q = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %sum : vector<64x64xf32>
  } else {
    %x = arith.select %both, %sum, %zero : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  return %r, %q : vector<64x64xf32>, vector<64x64xf32>
}
