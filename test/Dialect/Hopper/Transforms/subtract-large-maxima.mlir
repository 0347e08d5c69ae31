// RUN: attn-opt %s --hopper-subtract-large-maxima -split-input-file -verify-diagnostics | FileCheck %s
// RUN: attn-opt %s --attn-delay-corrections=growth=4 --hopper-subtract-large-maxima -split-input-file | FileCheck %s --check-prefix=DELAY

// The loop carries the maximum of scores, not 0.18 times as much. Warps with a row where that is
// 4096 or more subtract it from the scores; then nothing is left to subtract from the exponent. A
// log-sum-exp is computed from either.

// CHECK-LABEL: func @softmax
// CHECK-DAG:     %[[NINF:.*]] = arith.constant dense<0xFF800000> : vector<64xf32>
// CHECK:         scf.for {{.*}} iter_args(%[[M0:.*]] = %[[NINF]], %[[L0:.*]] = %{{.*}}, %[[O0:.*]] = %{{.*}})
// CHECK:           %[[S:.*]] = vector.contract
// CHECK:           %[[X:.*]] = vector.multi_reduction <maxnumf>, %[[S]],
// CHECK:           %[[M:.*]] = arith.maxnumf %[[M0]], %[[X]]
// CHECK:           %[[EMPTY:.*]] = arith.cmpf oeq, %[[M]], %[[NINF]]
// CHECK:           %[[USED:.*]] = arith.select %[[EMPTY]], %{{.*}}, %[[M]]
// CHECK:           %[[INBASE2:.*]] = arith.mulf %[[USED]], %{{.*}}
// CHECK:           %[[MINUS:.*]] = arith.negf %[[INBASE2]]
// CHECK:           %[[SOME:.*]] = hopper.warp.large %[[M0]], %[[S]] limit(22755.{{.*}})
// CHECK:           %[[T:.*]]:2 = scf.if %[[SOME]]
// CHECK:             %[[LARGE:.*]] = arith.cmpf oge, %{{.*}}, %{{.*}}
// CHECK:             %[[H:.*]] = arith.select %[[LARGE]], %[[USED]], %[[ZERO:.*]] :
// CHECK:             %[[HB:.*]] = vector.broadcast %[[H]]
// CHECK:             %[[HT:.*]] = vector.transpose %[[HB]]
// CHECK:             %[[D:.*]] = arith.subf %[[S]], %[[HT]]
// CHECK:             %[[R:.*]] = arith.select %[[LARGE]], %[[ZERO]], %[[MINUS]]
// CHECK:             scf.yield %[[D]], %[[R]]
// CHECK:           } else {
// CHECK-NEXT:        scf.yield %[[S]], %[[MINUS]]
// CHECK:           %[[RB:.*]] = vector.broadcast %[[T]]#1
// CHECK:           %[[RT:.*]] = vector.transpose %[[RB]]
// CHECK:           %[[E:.*]] = math.fma %[[T]]#0, %{{.*}}, %[[RT]]
// CHECK:           math.exp2 %[[E]]
// CHECK:           %[[C:.*]] = arith.subf %[[M0]], %[[USED]]
// CHECK:           %[[CK:.*]] = arith.mulf %[[C]],
// CHECK:           math.exp2 %[[CK]]
// CHECK:           scf.yield %[[M]],
// CHECK:         math.log
// CHECK:         %[[NORMAL:.*]] = math.fma
// CHECK:         %[[EXACT:.*]] = math.fma
// CHECK:         %[[ISLARGE:.*]] = arith.cmpf oge
// CHECK:         arith.select %[[ISLARGE]], %[[EXACT]], %[[NORMAL]]

// The growth of a maximum that is not taken is in the scores' unit, too: 4 / 0.18.
// DELAY-LABEL: func @softmax
// DELAY:         iter_args(%[[M0:[^ ]*]] =
// DELAY:           %[[NEXT:.*]] = arith.maxnumf %[[M0]], %{{.*}}
// DELAY:           %[[GROWTH:.*]] = arith.constant dense<22.22{{.*}}>
// DELAY:           %[[LIMIT:.*]] = arith.addf %[[M0]], %[[GROWTH]]
// DELAY:           %[[GROWS:.*]] = arith.cmpf ogt, %[[NEXT]], %[[LIMIT]]
// DELAY:           %[[TAKEN:.*]] = arith.select %[[GROWS]], %[[NEXT]], %[[M0]]
// DELAY:           hopper.warp.large %[[M0]],
// DELAY:           scf.yield %[[TAKEN]],
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
  } {attn.fold}
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

// What the maximum is used for is not known: the loop stays as it is.

// CHECK-LABEL: func @stored
// CHECK-NOT:     hopper.warp.large
func.func @stored(%s: vector<64x128xf32>, %n: index, %out: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %k = arith.constant dense<1.44269502> : vector<64xf32>
  %r = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %ninf) -> (vector<64xf32>) {
    %x = vector.multi_reduction <maxnumf>, %s, %ninf [1] : vector<64x128xf32> to vector<64xf32>
    %y = arith.mulf %x, %k : vector<64xf32>
    // expected-note @+1 {{this maximum}}
    %m = arith.maxnumf %m0, %y : vector<64xf32>
    scf.yield %m : vector<64xf32>
  } {attn.fold}
  // expected-remark @+1 {{rows of large maxima are not exact: a use of the maximum is no exponent of a known form}}
  vector.transfer_write %r, %out[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// The maximum leaves the loop by another way, too, where it would still be one in base 2.

// CHECK-LABEL: func @twice
// CHECK-NOT:     hopper.warp.large
func.func @twice(%q: vector<64x64xf32>, %k: memref<?x64xf32>, %v: memref<?x64xf32>, %n: index,
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
  %r:4 = scf.for %j = %c0 to %n step %c128 iter_args(%m0 = %ninf, %l0 = %zero, %acc = %o0, %also = %zero) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>, vector<64xf32>) {
    %kt = vector.transfer_read %k[%j, %c0], %f0 : memref<?x64xf32>, vector<128x64xf32>
    %s = vector.contract {indexing_maps = [affine_map<(a, b, c) -> (a, c)>, affine_map<(a, b, c) -> (b, c)>, affine_map<(a, b, c) -> (a, b)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %kt, %s0 : vector<64x64xf32>, vector<128x64xf32> into vector<64x128xf32>
    %x = vector.multi_reduction <maxnumf>, %s, %ninf [1] : vector<64x128xf32> to vector<64xf32>
    %y = arith.mulf %x, %scale : vector<64xf32>
    // expected-note @+1 {{this maximum}}
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
    // expected-remark @+1 {{rows of large maxima are not exact}}
    scf.yield %m, %l, %o, %m : vector<64xf32>, vector<64xf32>, vector<64x64xf32>, vector<64xf32>
  } {attn.fold}
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

// What is subtracted from the old maximum is not the new one.

// CHECK-LABEL: func @another
// CHECK-NOT:     hopper.warp.large
func.func @another(%q: vector<64x64xf32>, %k: memref<?x64xf32>, %v: memref<?x64xf32>, %n: index,
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
    // expected-note @+1 {{this maximum}}
    %m = arith.maxnumf %m0, %y : vector<64xf32>
    %isEmpty = arith.cmpf oeq, %m, %ninf : vector<64xf32>
    %used = arith.select %isEmpty, %zero, %m : vector<64xi1>, vector<64xf32>
    %minus = arith.negf %used : vector<64xf32>
    %repeated = vector.broadcast %minus : vector<64xf32> to vector<128x64xf32>
    %rows = vector.transpose %repeated, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
    %t = math.fma %s, %scales, %rows : vector<64x128xf32>
    %p = math.exp2 %t : vector<64x128xf32>
    // expected-remark @+1 {{rows of large maxima are not exact}}
    %d = arith.subf %m0, %zero : vector<64xf32>
    %c = math.exp2 %d : vector<64xf32>
    %lc = arith.mulf %l0, %c : vector<64xf32>
    %l = vector.multi_reduction <add>, %p, %lc [1] : vector<64x128xf32> to vector<64xf32>
    %cs = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
    %cr = vector.transpose %cs, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %oc = arith.mulf %cr, %acc : vector<64x64xf32>
    %vt = vector.transfer_read %v[%j, %c0], %f0 : memref<?x64xf32>, vector<128x64xf32>
    %o = vector.contract {indexing_maps = [affine_map<(a, b, c) -> (a, b)>, affine_map<(a, b, c) -> (b, c)>, affine_map<(a, b, c) -> (a, c)>], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %p, %vt, %oc : vector<64x128xf32>, vector<128x64xf32> into vector<64x64xf32>
    scf.yield %m, %l, %o : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
  } {attn.fold}
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
