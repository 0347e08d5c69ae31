// RUN: attn-opt %s -split-input-file -attn-distribute-reductions -verify-diagnostics | FileCheck %s
// RUN: attn-opt %s -split-input-file -attn-distribute-reductions --remarks-filter=attn-distribute-reductions -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}6 [Passed] distributed | Category:attn-distribute-reductions{{$}}
// REMARKS-DAG: {{^ *}}1 [Missed] not distributed | Category:attn-distribute-reductions{{$}}

// A sum under a running maximum: the start value is brought from the first maximum to the final one,
// the terms are under the final one. The score is read again.
// CHECK-LABEL: func @log_sum_exp(
// CHECK-SAME:      %[[S:.*]]: memref<16xf32>, %[[M:.*]]: memref<f32>, %[[L:.*]]: memref<f32>)
// CHECK-NEXT:  %[[FIRST:.*]] = affine.load %[[M]][]
// CHECK-NEXT:  affine.for %[[J:.*]] = 0 to 16 {
// CHECK-NEXT:    %[[SJ:.*]] = affine.load %[[S]][%[[J]]]
// CHECK-NEXT:    %[[M0:.*]] = affine.load %[[M]][]
// CHECK-NEXT:    %[[M1:.*]] = arith.maximumf %[[M0]], %[[SJ]]
// CHECK-NEXT:    affine.store %[[M1]], %[[M]][]
// CHECK-NEXT:  }
// CHECK-NEXT:  %[[FINAL:.*]] = affine.load %[[M]][]
// CHECK-NEXT:  %[[L0:.*]] = affine.load %[[L]][]
// CHECK-NEXT:  %[[D:.*]] = arith.subf %[[FIRST]], %[[FINAL]]
// CHECK-NEXT:  %[[E:.*]] = math.exp %[[D]]
// CHECK-NEXT:  %[[L1:.*]] = arith.mulf %[[L0]], %[[E]]
// CHECK-NEXT:  affine.store %[[L1]], %[[L]][]
// CHECK-NEXT:  affine.for %[[K:.*]] = 0 to 16 {
// CHECK-NEXT:    %[[SK:.*]] = affine.load %[[S]][%[[K]]]
// CHECK-NEXT:    %[[MK:.*]] = affine.load %[[M]][]
// CHECK-NEXT:    %[[DK:.*]] = arith.subf %[[SK]], %[[MK]]
// CHECK-NEXT:    %[[P:.*]] = math.exp %[[DK]]
// CHECK-NEXT:    %[[LK:.*]] = affine.load %[[L]][]
// CHECK-NEXT:    %[[SUM:.*]] = arith.addf %[[LK]], %[[P]]
// CHECK-NEXT:    affine.store %[[SUM]], %[[L]][]
// CHECK-NEXT:  }
// CHECK-NEXT:  return
func.func @log_sum_exp(%S: memref<16xf32>, %m: memref<f32>, %l: memref<f32>) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %1 = math.exp %0 : f32
    %2 = arith.mulf %l0, %1 : f32
    %3 = arith.subf %s, %m1 : f32
    %4 = math.exp %3 : f32
    %l1 = arith.addf %2, %4 : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// Sums that nobody reads before they are finished: nothing to do.
// CHECK-LABEL: func @sums
// CHECK:       affine.for
// CHECK-NOT:   affine.for
// CHECK:       return
func.func @sums(%S: memref<16xf32>, %a: memref<f32>, %b: memref<f32>) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %a0 = affine.load %a[] : memref<f32>
    %b0 = affine.load %b[] : memref<f32>
    %a1 = arith.addf %a0, %s : f32
    %t = arith.mulf %s, %s : f32
    %b1 = arith.addf %b0, %t : f32
    affine.store %a1, %a[] : memref<f32>
    affine.store %b1, %b[] : memref<f32>
  }
  return
}

// -----

// A weighted mean that is kept divided by the sum of the weights: degree -1 in that sum.
// CHECK-LABEL: func @mean
// CHECK:       %[[FIRST:.*]] = affine.load %[[W:.*]][]
// CHECK:       affine.for
// CHECK:         arith.addf
// CHECK:         affine.store %{{.*}}, %[[W]][]
// CHECK:       %[[FINAL:.*]] = affine.load %[[W]][]
// CHECK:       affine.for %{{.*}} = 0 to 4 {
// CHECK:         %[[X:.*]] = affine.load %[[MEAN:.*]][
// CHECK-NEXT:    %[[OLD:.*]] = arith.mulf %[[X]], %[[FIRST]]
// CHECK-NEXT:    %[[NEW:.*]] = arith.divf %[[OLD]], %[[FINAL]]
// CHECK-NEXT:    affine.store %[[NEW]], %[[MEAN]][
// CHECK:       affine.for %{{.*}} = 0 to 16 {
// CHECK:         %[[LAST:.*]] = affine.load %[[W]][]
// CHECK:         affine.for %{{.*}} = 0 to 4 {
// CHECK:           %[[T:.*]] = arith.mulf
// CHECK:           %[[Q:.*]] = arith.divf %[[T]], %[[LAST]]
// CHECK:           arith.addf %{{.*}}, %[[Q]]
func.func @mean(%S: memref<16xf32>, %V: memref<16x4xf32>, %w: memref<f32>, %mean: memref<4xf32>) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %w0 = affine.load %w[] : memref<f32>
    %w1 = arith.addf %w0, %s : f32
    affine.for %d = 0 to 4 {
      %v = affine.load %V[%j, %d] : memref<16x4xf32>
      %x0 = affine.load %mean[%d] : memref<4xf32>
      %0 = arith.mulf %x0, %w0 : f32
      %1 = arith.mulf %s, %v : f32
      %2 = arith.addf %0, %1 : f32
      %x1 = arith.divf %2, %w1 : f32
      affine.store %x1, %mean[%d] : memref<4xf32>
    }
    affine.store %w1, %w[] : memref<f32>
  }
  return
}

// -----

// The score is a reduction in a loop of its own, which each of the loops repeats; a guard against a
// maximum of -inf stays in the factor and in the terms; what is in a third array is not touched.
// CHECK-LABEL: func @guarded
// CHECK:         affine.for %{{.*}} = 0 to 16 {
// CHECK:           affine.for %{{.*}} = 0 to 8 iter_args
// CHECK:           arith.maximumf
// CHECK:         }
// CHECK:         arith.cmpf oeq
// CHECK:         arith.select
// CHECK:         math.exp2
// CHECK:         affine.for %{{.*}} = 0 to 16 {
// CHECK:           affine.for %{{.*}} = 0 to 8 iter_args
// CHECK-NOT:       arith.maximumf
// CHECK:           arith.cmpf oeq
// CHECK:           arith.select
// CHECK:           math.exp2
// CHECK:           arith.addf
// CHECK:         }
func.func @guarded(%Q: memref<4x8xf32>, %K: memref<16x8xf32>, %m: memref<4xf32>, %l: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 16 {
      %s = affine.for %d = 0 to 8 iter_args(%sum = %zero) -> f32 {
        %q = affine.load %Q[%i, %d] : memref<4x8xf32>
        %k = affine.load %K[%j, %d] : memref<16x8xf32>
        %0 = arith.mulf %q, %k : f32
        %1 = arith.addf %sum, %0 : f32
        affine.yield %1 : f32
      }
      %m0 = affine.load %m[%i] : memref<4xf32>
      %m1 = arith.maximumf %m0, %s : f32
      %none = arith.cmpf oeq, %m1, %ninf : f32
      %ms = arith.select %none, %zero, %m1 : f32
      %0 = arith.subf %m0, %ms : f32
      %1 = math.exp2 %0 : f32
      %2 = arith.subf %s, %ms : f32
      %3 = math.exp2 %2 : f32
      %l0 = affine.load %l[%i] : memref<4xf32>
      %l1 = math.fma %l0, %1, %3 : f32
      affine.store %m1, %m[%i] : memref<4xf32>
      affine.store %l1, %l[%i] : memref<4xf32>
    }
  }
  return
}

// -----

// A runtime scale in front of the exponent, a mask on the term, a sum of squares of degree -2 beside.
// CHECK-LABEL: func @scaled
// CHECK-COUNT-3: affine.for
// CHECK-NOT:     affine.for
func.func @scaled(%S: memref<16xf32>, %keep: memref<16xi1>, %m: memref<f32>, %l: memref<f32>,
    %r: memref<f32>, %scale: f32) {
  %zero = arith.constant 0.0 : f32
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %k = affine.load %keep[%j] : memref<16xi1>
    %m0 = affine.load %m[] : memref<f32>
    %m1 = arith.maximumf %s, %m0 : f32
    %0 = arith.subf %m0, %m1 : f32
    %1 = arith.mulf %0, %scale : f32
    %c = math.exp %1 : f32
    %2 = arith.subf %s, %m1 : f32
    %3 = arith.mulf %scale, %2 : f32
    %4 = math.exp %3 : f32
    %p = arith.select %k, %4, %zero : f32
    %l0 = affine.load %l[] : memref<f32>
    %5 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %p, %5 : f32
    %r0 = affine.load %r[] : memref<f32>
    %cc = arith.mulf %c, %c : f32
    %pp = arith.mulf %p, %p : f32
    %6 = arith.mulf %r0, %cc : f32
    %r1 = arith.addf %6, %pp : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
    affine.store %r1, %r[] : memref<f32>
  }
  return
}

// -----

// A loop that is carried through the same element twice: the inner one is taken apart, the outer one
// cannot be.
// CHECK-LABEL: func @two_loops
// CHECK:       affine.for %{{.*}} = 0 to 3 {
// CHECK:         affine.for %{{.*}} = 0 to 16 {
// CHECK:         affine.for %{{.*}} = 0 to 16 {
func.func @two_loops(%S: memref<3x16xf32>, %m: memref<f32>, %l: memref<f32>) {
  affine.for %i = 0 to 3 {
    affine.for %j = 0 to 16 {
      %s = affine.load %S[%i, %j] : memref<3x16xf32>
      %m0 = affine.load %m[] : memref<f32>
      %l0 = affine.load %l[] : memref<f32>
      %m1 = arith.maximumf %m0, %s : f32
      %0 = arith.subf %m0, %m1 : f32
      %1 = math.exp %0 : f32
      %2 = arith.mulf %l0, %1 : f32
      %3 = arith.subf %s, %m1 : f32
      %4 = math.exp %3 : f32
      %l1 = arith.addf %2, %4 : f32
      affine.store %m1, %m[] : memref<f32>
      affine.store %l1, %l[] : memref<f32>
    }
  }
  return
}

// -----

// The start value of a loop that does not run is neither read nor written.
// CHECK:       #[[$RUNS:.*]] = affine_set<()[s0, s1] : (s1 - s0 - 1 >= 0, -s0 + 15 >= 0)>
// CHECK-LABEL: func @dynamic
// CHECK-SAME:      %[[FROM:[a-z0-9]*]]: index, %[[TO:[a-z0-9]*]]: index)
// CHECK-NEXT:    affine.if #[[$RUNS]]()[%[[FROM]], %[[TO]]] {
// CHECK-NEXT:      affine.load
// CHECK-NEXT:      affine.for
// CHECK:           affine.for
// CHECK-NOT:   affine.for
func.func @dynamic(%S: memref<16xf32>, %m: memref<f32>, %l: memref<f32>, %from: index, %to: index) {
  affine.for %j = affine_map<()[s] -> (s)>()[%from] to min affine_map<()[s] -> (s, 16)>()[%to] {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %1 = math.exp %0 : f32
    %2 = arith.mulf %l0, %1 : f32
    %3 = arith.subf %s, %m1 : f32
    %4 = math.exp %3 : f32
    %l1 = arith.addf %2, %4 : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}
