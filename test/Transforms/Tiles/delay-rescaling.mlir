// RUN: attn-opt %s --attn-delay-rescaling -split-input-file -verify-diagnostics | FileCheck %s
// RUN: attn-opt %s --attn-delay-rescaling=rescale-threshold=3 -split-input-file | FileCheck %s --check-prefix=THREE
// RUN: attn-opt %s --attn-delay-rescaling=rescale-threshold=3 -split-input-file --remarks-filter=attn-delay-rescaling -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] delayed | Category:attn-delay-rescaling{{$}}

// An online softmax with its log-sum-exp: results are quotients of sums, and the maximum with the
// logarithm of a sum. A row takes another maximum where it is larger by more than 8.

// CHECK-LABEL: func @softmax
// CHECK:         scf.for {{.*}} iter_args(%[[M0:.*]] = %{{.*}}, %[[L0:.*]] = %{{.*}}, %[[O0:.*]] = %{{.*}})
// CHECK:           %[[M1:.*]] = arith.maxnumf %[[M0]], %{{.*}}
// CHECK:           %[[EIGHT:.*]] = arith.constant dense<8.000000e+00> : vector<64xf32>
// CHECK:           %[[LIMIT:.*]] = arith.addf %[[M0]], %[[EIGHT]]
// CHECK:           %[[GROWS:.*]] = arith.cmpf ogt, %[[M1]], %[[LIMIT]]
// CHECK:           %[[M:.*]] = arith.select %[[GROWS]], %[[M1]], %[[M0]]
// CHECK:           arith.cmpf oeq, %[[M]],
// CHECK:           %[[USED:.*]] = arith.select %{{.*}}, %{{.*}}, %[[M]]
// CHECK:           %[[D:.*]] = arith.subf %[[M0]], %[[USED]]
// CHECK:           %[[C:.*]] = math.exp2 %[[D]]
// CHECK:           arith.mulf %[[L0]], %[[C]] : vector<64xf32>
// CHECK:           %[[ROWS:.*]] = vector.transpose
// CHECK:           arith.mulf %[[O0]], %[[ROWS]] {attn.rescaling} : vector<64x64xf32>
// CHECK:           scf.yield %[[M]],
// THREE-LABEL: func @softmax
// THREE:         arith.constant dense<3.000000e+00>
func.func @softmax(%q: vector<64x64xf32>, %k: memref<?x64xf32>, %v: memref<?x64xf32>, %n: index,
                   %out: memref<64x64xf32>, %lse: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %scale = arith.constant dense<0.18> : vector<64xf32>
  %scales = arith.constant dense<0.18> : vector<64x128xf32>
  %s0 = arith.constant dense<0.0> : vector<64x128xf32>
  %o0 = arith.constant dense<0.0> : vector<64x64xf32>
  %r:3 = scf.for %j = %c0 to %n step %c128 iter_args(%m0 = %ninf, %l0 = %zero, %acc = %o0) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
    %kt = vector.transfer_read %k[%j, %c0], %f0 : memref<?x64xf32>, vector<128x64xf32>
    %s = vector.contract {indexing_maps = [affine_map<(a, b, c) -> (a, c)>, affine_map<(a, b, c) -> (b, c)>, affine_map<(a, b, c) -> (a, b)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %kt, %s0 : vector<64x64xf32>, vector<128x64xf32> into vector<64x128xf32>
    %x = vector.multi_reduction <maxnumf>, %s, %ninf [1] : vector<64x128xf32> to vector<64xf32>
    %y = arith.mulf %x, %scale : vector<64xf32>
    %m = arith.maxnumf %m0, %y : vector<64xf32>
    %isEmpty = arith.cmpf oeq, %m, %ninf : vector<64xf32>
    %used = arith.select %isEmpty, %zero, %m : vector<64xi1>, vector<64xf32>
    %minus = arith.negf %used : vector<64xf32>
    %repeated = vector.broadcast %minus : vector<64xf32> to vector<128x64xf32>
    %rows = vector.transpose %repeated, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
    %t = math.fma %s, %scales, %rows : vector<64x128xf32>
    %p = math.exp2 %t : vector<64x128xf32>
    %d = arith.subf %m0, %used : vector<64xf32>
    %c = math.exp2 %d : vector<64xf32>
    %lc = arith.mulf %l0, %c : vector<64xf32>
    %l = vector.multi_reduction <add>, %p, %lc [1] : vector<64x128xf32> to vector<64xf32>
    %cs = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
    %cr = vector.transpose %cs, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %oc = arith.mulf %cr, %acc : vector<64x64xf32>
    %vt = vector.transfer_read %v[%j, %c0], %f0 : memref<?x64xf32>, vector<128x64xf32>
    %o = vector.contract {indexing_maps = [affine_map<(a, b, c) -> (a, b)>, affine_map<(a, b, c) -> (b, c)>, affine_map<(a, b, c) -> (a, c)>], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %p, %vt, %oc : vector<64x128xf32>, vector<128x64xf32> into vector<64x64xf32>
    scf.yield %m, %l, %o : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
  } {attn.fold_loop}
  %none = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
  %inverse = arith.divf %one, %r#1 : vector<64xf32>
  %is = vector.broadcast %inverse : vector<64xf32> to vector<64x64xf32>
  %ir = vector.transpose %is, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
  %quotient = arith.mulf %r#2, %ir : vector<64x64xf32>
  %ns = vector.broadcast %none : vector<64xi1> to vector<64x64xi1>
  %nr = vector.transpose %ns, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
  %result = arith.select %nr, %o0, %quotient : vector<64x64xi1>, vector<64x64xf32>
  vector.transfer_write %result, %out[%c0, %c0] : vector<64x64xf32>, memref<64x64xf32>
  %isNone = arith.cmpf oeq, %r#0, %ninf : vector<64xf32>
  %safe = arith.select %isNone, %zero, %r#0 : vector<64xi1>, vector<64xf32>
  %log = math.log %r#1 : vector<64xf32>
  %sum = math.fma %safe, %ln2, %log : vector<64xf32>
  vector.transfer_write %sum, %lse[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// The maximum itself is a result: another one would be wrong.

// CHECK-LABEL: func @stored
// CHECK-NOT:     arith.select
func.func @stored(%s: memref<?xf32>, %n: index, %out: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %x = vector.transfer_read %s[%j], %f0 : memref<?xf32>, vector<64xf32>
    // expected-note @+1 {{this running maximum}}
    %m = arith.maxnumf %m0, %x : vector<64xf32>
    %t = arith.subf %x, %m : vector<64xf32>
    %p = math.exp2 %t : vector<64xf32>
    %d = arith.subf %m0, %m : vector<64xf32>
    %c = math.exp2 %d : vector<64xf32>
    %lc = arith.mulf %l0, %c : vector<64xf32>
    %l = arith.addf %lc, %p : vector<64xf32>
    scf.yield %m, %l : vector<64xf32>, vector<64xf32>
  } {attn.fold_loop}
  // expected-remark @+1 {{results depend on a running maximum: a value that depends on it leaves the loop}}
  vector.transfer_write %r#0, %out[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// A sum of squares would need the square of the rescaling.

// CHECK-LABEL: func @squares
// CHECK-NOT:     arith.select
func.func @squares(%s: memref<?xf32>, %n: index, %out: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %x = vector.transfer_read %s[%j], %f0 : memref<?xf32>, vector<64xf32>
    // expected-note @+1 {{this running maximum}}
    %m = arith.maxnumf %m0, %x : vector<64xf32>
    %t = arith.subf %x, %m : vector<64xf32>
    %p = math.exp2 %t : vector<64xf32>
    %square = arith.mulf %p, %p : vector<64xf32>
    %d = arith.subf %m0, %m : vector<64xf32>
    %c = math.exp2 %d : vector<64xf32>
    %lc = arith.mulf %l0, %c : vector<64xf32>
    // expected-remark @+1 {{results depend on a running maximum: a use of it is no difference, exponential or product}}
    %l = arith.addf %lc, %square : vector<64xf32>
    scf.yield %m, %l : vector<64xf32>, vector<64xf32>
  } {attn.fold_loop}
  vector.transfer_write %r#1, %out[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// The sum of the iteration before is not rescaled.

// CHECK-LABEL: func @unrescaled
// CHECK-NOT:     arith.select
func.func @unrescaled(%s: memref<?xf32>, %n: index, %out: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %x = vector.transfer_read %s[%j], %f0 : memref<?xf32>, vector<64xf32>
    // expected-note @+1 {{this running maximum}}
    %m = arith.maxnumf %m0, %x : vector<64xf32>
    %t = arith.subf %x, %m : vector<64xf32>
    %p = math.exp2 %t : vector<64xf32>
    // expected-remark @+1 {{results depend on a running maximum: a use of it is no difference, exponential or product}}
    %l = arith.addf %l0, %p : vector<64xf32>
    scf.yield %m, %l : vector<64xf32>, vector<64xf32>
  } {attn.fold_loop}
  vector.transfer_write %r#1, %out[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// The natural logarithm belongs to e, the exponentials to 2: ln 2 is missing.

// CHECK-LABEL: func @bases
// CHECK-NOT:     arith.select
func.func @bases(%s: memref<?xf32>, %n: index, %out: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %x = vector.transfer_read %s[%j], %f0 : memref<?xf32>, vector<64xf32>
    // expected-note @+1 {{this running maximum}}
    %m = arith.maxnumf %m0, %x : vector<64xf32>
    %t = arith.subf %x, %m : vector<64xf32>
    %p = math.exp2 %t : vector<64xf32>
    %d = arith.subf %m0, %m : vector<64xf32>
    %c = math.exp2 %d : vector<64xf32>
    %lc = arith.mulf %l0, %c : vector<64xf32>
    %l = arith.addf %lc, %p : vector<64xf32>
    scf.yield %m, %l : vector<64xf32>, vector<64xf32>
  } {attn.fold_loop}
  %log = math.log %r#1 : vector<64xf32>
  %sum = arith.addf %r#0, %log : vector<64xf32>
  // expected-remark @+1 {{results depend on a running maximum: a value that depends on it leaves the loop}}
  vector.transfer_write %sum, %out[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// A maximum without sums, and a loop that is no fold: nothing to rescale.

// CHECK-LABEL: func @alone
// CHECK-NOT:     arith.select
func.func @alone(%s: memref<?xf32>, %n: index, %out: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %r = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %ninf) -> (vector<64xf32>) {
    %x = vector.transfer_read %s[%j], %f0 : memref<?xf32>, vector<64xf32>
    %m = arith.maxnumf %m0, %x : vector<64xf32>
    scf.yield %m : vector<64xf32>
  } {attn.fold_loop}
  vector.transfer_write %r, %out[%c0] : vector<64xf32>, memref<64xf32>
  return
}
