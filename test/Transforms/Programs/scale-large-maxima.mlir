// RUN: attn-opt %s --attn-scale-large-maxima -split-input-file -verify-diagnostics | FileCheck %s
// RUN: attn-opt %s --attn-delay-rescaling=rescale-threshold=4 --attn-scale-large-maxima -split-input-file | FileCheck %s --check-prefix=DELAY
// RUN: attn-opt %s --attn-scale-large-maxima -split-input-file --remarks-filter=attn-scale-large-maxima -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] scaled | Category:attn-scale-large-maxima{{$}}

// The loop carries the maximum of scores, too. Rows where 0.18 times it is 2^30 or more have 2^-2
// as their scale, and a log-sum-exp from the maximum itself.

// CHECK-LABEL: func @softmax
// CHECK-DAG:     %[[NINF:.*]] = arith.constant dense<0xFF800000> : vector<64xf32>
// CHECK:         %[[R:.*]]:4 = scf.for {{.*}} iter_args(%[[B0:.*]] = %[[NINF]], %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[M0:.*]] = %[[NINF]])
// CHECK:           %[[S:.*]] = vector.contract
// CHECK:           %[[X:.*]] = vector.multi_reduction <maxnumf>, %[[S]],
// CHECK:           %[[M:.*]] = arith.maxnumf %[[M0]], %[[X]]
// CHECK:           %[[SIZE:.*]] = math.absf %[[M]]
// CHECK:           %[[BOUND:.*]] = arith.constant dense<5.965{{.*}}E+9>
// CHECK:           %[[LARGE:.*]] = arith.cmpf oge, %[[SIZE]], %[[BOUND]]
// CHECK:           %[[POWER:.*]] = arith.constant dense<2.500000e-01>
// CHECK:           %[[C:.*]] = arith.select %[[LARGE]], %[[POWER]], %{{.*}}
// CHECK:           %[[INBASE2:.*]] = arith.mulf %[[M]], %[[C]]
// CHECK:           %[[LEAST:.*]] = arith.constant dense<-3.40282347E+38>
// CHECK:           %[[USED:.*]] = arith.maxnumf %[[INBASE2]], %[[LEAST]]
// CHECK:           %[[MINUS:.*]] = arith.negf %[[USED]]
// CHECK:           %[[MB:.*]] = vector.broadcast %[[MINUS]]
// CHECK:           %[[MT:.*]] = vector.transpose %[[MB]]
// CHECK:           %[[CB:.*]] = vector.broadcast %[[C]]
// CHECK:           %[[CT:.*]] = vector.transpose %[[CB]]
// CHECK:           %[[E:.*]] = math.fma %[[S]], %[[CT]], %[[MT]]
// CHECK:           math.exp2 %[[E]]
// CHECK:           %[[D:.*]] = arith.subf %[[B0]], %[[USED]]
// CHECK:           math.exp2 %[[D]]
// CHECK:           scf.yield %[[INBASE2]], %{{.*}}, %{{.*}}, %[[M]]
// CHECK:         %[[M:.*]] = arith.select %{{.*}}, %{{.*}}, %[[R]]#3
// CHECK:         %[[LOG:.*]] = math.log %[[R]]#1
// CHECK:         %[[USUAL:.*]] = math.fma %{{.*}}, %{{.*}}, %[[LOG]]
// CHECK:         %[[EXACT:.*]] = math.fma %[[M]], %{{.*}}, %[[LOG]]
// CHECK:         %[[LARGE:.*]] = arith.cmpf oge
// CHECK:         arith.select %[[LARGE]], %[[EXACT]], %[[USUAL]]

// The maximum is kept while it does not grow much, in its own unit: 4 / 0.18.
// DELAY-LABEL: func @softmax
// DELAY:         iter_args(%[[B0:[^ ]*]] = %{{.*}}, %[[M0:[^ ]*]] = %{{[^ ]*}}) ->
// DELAY:           %[[M:.*]] = arith.maxnumf %[[M0]], %{{.*}}
// DELAY:           %[[THRESHOLD:.*]] = arith.constant dense<22.22{{.*}}>
// DELAY:           %[[LIMIT:.*]] = arith.addf %[[M0]], %[[THRESHOLD]]
// DELAY:           %[[GROWS:.*]] = arith.cmpf ogt, %[[M]], %[[LIMIT]]
// DELAY:           %[[KEPT:.*]] = arith.select %[[GROWS]], %[[M]], %[[M0]]
// DELAY:           math.absf %[[KEPT]]
// DELAY:           %[[C:.*]] = arith.select
// DELAY:           %[[INBASE2:.*]] = arith.mulf %[[KEPT]], %[[C]]
// DELAY:           scf.yield %[[INBASE2]], %{{.*}}, %{{.*}}, %[[KEPT]]
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

// Weights of f16 end at 2^16: the bound is 2^28 / 4.328. What the user has scaled by 3 is scaled by
// 2, so that it stays finite. An exponent of one term of a row is exact in these rows, too.

// CHECK-LABEL: func @float16
// CHECK:         scf.for
// CHECK:           arith.constant dense<0x4C6C9951>
// CHECK:           arith.constant dense<2.000000e+00>
// CHECK:         %[[SINK:.*]] = math.fma %arg3,
// CHECK:         %[[DIFFERENCE:.*]] = math.fma %{{.*}}, %{{.*}}, %arg3
// CHECK:         %[[EXACT:.*]] = arith.mulf %[[DIFFERENCE]],
// CHECK:         %[[EITHER:.*]] = arith.select %{{.*}}, %[[EXACT]], %[[SINK]]
// CHECK:         math.exp2 %[[EITHER]]
func.func @float16(%s: vector<64x128xf32>, %n: index, %v: vector<128x64xf16>, %sink: vector<64xf32>, %out: memref<64x64xf32>, %sums: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %k = arith.constant dense<4.328> : vector<64xf32>
  %ks = arith.constant dense<4.328> : vector<64x128xf32>
  %log2e = arith.constant dense<1.44269502> : vector<64xf32>
  %o0 = arith.constant dense<0.0> : vector<64x64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c128 iter_args(%m0 = %ninf, %acc = %o0) -> (vector<64xf32>, vector<64x64xf32>) {
    %x = vector.multi_reduction <maxnumf>, %s, %ninf [1] : vector<64x128xf32> to vector<64xf32>
    %y = arith.mulf %x, %k : vector<64xf32>
    %m = arith.maxnumf %m0, %y : vector<64xf32>
    %minus = arith.negf %m : vector<64xf32>
    %repeated = vector.broadcast %minus : vector<64xf32> to vector<128x64xf32>
    %rows = vector.transpose %repeated, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
    %t = math.fma %s, %ks, %rows : vector<64x128xf32>
    %p = math.exp2 %t : vector<64x128xf32>
    %h = arith.truncf %p : vector<64x128xf32> to vector<64x128xf16>
    %o = vector.contract {indexing_maps = [affine_map<(a, b, c) -> (a, b)>, affine_map<(a, b, c) -> (b, c)>, affine_map<(a, b, c) -> (a, c)>], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %h, %v, %acc : vector<64x128xf16>, vector<128x64xf16> into vector<64x64xf32>
    scf.yield %m, %o : vector<64xf32>, vector<64x64xf32>
  } {attn.fold_loop}
  %minus = arith.negf %r#0 : vector<64xf32>
  %of = math.fma %sink, %log2e, %minus : vector<64xf32>
  %term = math.exp2 %of : vector<64xf32>
  vector.transfer_write %term, %sums[%c0] : vector<64xf32>, memref<64xf32>
  vector.transfer_write %r#1, %out[%c0, %c0] : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// The maximum and the logarithm are kept apart: one is exact, the other takes what was rounded off.

// CHECK-LABEL: func @apart
// CHECK:         %[[R:.*]]:3 = scf.for
// CHECK:         %[[M:.*]] = arith.select %{{.*}}, %{{.*}}, %[[R]]#2
// CHECK:         %[[INBASE2:.*]] = arith.select %{{.*}}, %{{.*}}, %[[R]]#0
// CHECK:         %[[MINUS:.*]] = arith.negf %[[M]]
// CHECK:         %[[REST:.*]] = math.fma %[[MINUS]], %{{.*}}, %[[INBASE2]]
// CHECK:         %[[LOG:.*]] = math.log %[[R]]#1
// CHECK:         %[[EXACT:.*]] = math.fma %[[REST]], %{{.*}}, %[[LOG]]
// CHECK:         %[[ONE:.*]] = arith.constant dense<1.000000e+00>
// CHECK:         %[[MAXIMUM:.*]] = arith.mulf %[[M]], %[[ONE]]
// CHECK:         vector.transfer_write %[[EXACT]]
// CHECK:         vector.transfer_write %[[MAXIMUM]]
func.func @apart(%s: vector<64x128xf32>, %n: index, %logs: memref<64xf32>, %maxima: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %k = arith.constant dense<1.44269502> : vector<64xf32>
  %ks = arith.constant dense<1.44269502> : vector<64x128xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c128 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %x = vector.multi_reduction <maxnumf>, %s, %ninf [1] : vector<64x128xf32> to vector<64xf32>
    %y = arith.mulf %x, %k : vector<64xf32>
    %m = arith.maxnumf %m0, %y : vector<64xf32>
    %minus = arith.negf %m : vector<64xf32>
    %repeated = vector.broadcast %minus : vector<64xf32> to vector<128x64xf32>
    %rows = vector.transpose %repeated, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
    %t = math.fma %s, %ks, %rows : vector<64x128xf32>
    %p = math.exp2 %t : vector<64x128xf32>
    %d = arith.subf %m0, %m : vector<64xf32>
    %c = math.exp2 %d : vector<64xf32>
    %lc = arith.mulf %l0, %c : vector<64xf32>
    %l = vector.multi_reduction <add>, %p, %lc [1] : vector<64x128xf32> to vector<64xf32>
    scf.yield %m, %l : vector<64xf32>, vector<64xf32>
  } {attn.fold_loop}
  %log = math.log %r#1 : vector<64xf32>
  %maximum = arith.mulf %r#0, %ln2 : vector<64xf32>
  vector.transfer_write %log, %logs[%c0] : vector<64xf32>, memref<64xf32>
  vector.transfer_write %maximum, %maxima[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// A part of a row, which is merged with others: its maximum is exact, -inf where there are no scores, its sum takes what
// was rounded off.

// CHECK-LABEL: func @parts
// CHECK:         %[[R:.*]]:3 = scf.for
// CHECK:         %[[M:.*]] = arith.select %{{.*}}, %{{.*}}, %[[R]]#2
// CHECK:         %[[INBASE2:.*]] = arith.select %{{.*}}, %{{.*}}, %[[R]]#0
// CHECK:         %[[MINUS:.*]] = arith.negf %[[M]]
// CHECK:         %[[REST:.*]] = math.fma %[[MINUS]], %{{.*}}, %[[INBASE2]]
// CHECK:         %[[FACTOR:.*]] = math.exp2 %[[REST]]
// CHECK:         %[[SUM:.*]] = arith.mulf %[[R]]#1, %[[FACTOR]]
// CHECK:         %[[MAXIMUM:.*]] = arith.mulf %[[R]]#2, %{{.*}}
// CHECK:         vector.transfer_write %[[SUM]]
// CHECK:         vector.transfer_write %[[MAXIMUM]]
func.func @parts(%s: vector<64x128xf32>, %n: index, %logs: memref<64xf32>, %maxima: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %k = arith.constant dense<1.44269502> : vector<64xf32>
  %ks = arith.constant dense<1.44269502> : vector<64x128xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c128 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %x = vector.multi_reduction <maxnumf>, %s, %ninf [1] : vector<64x128xf32> to vector<64xf32>
    %y = arith.mulf %x, %k : vector<64xf32>
    %m = arith.maxnumf %m0, %y : vector<64xf32>
    %minus = arith.negf %m : vector<64xf32>
    %repeated = vector.broadcast %minus : vector<64xf32> to vector<128x64xf32>
    %rows = vector.transpose %repeated, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
    %t = math.fma %s, %ks, %rows : vector<64x128xf32>
    %p = math.exp2 %t : vector<64x128xf32>
    %d = arith.subf %m0, %m : vector<64xf32>
    %c = math.exp2 %d : vector<64xf32>
    %lc = arith.mulf %l0, %c : vector<64xf32>
    %l = vector.multi_reduction <add>, %p, %lc [1] : vector<64x128xf32> to vector<64xf32>
    scf.yield %m, %l : vector<64xf32>, vector<64xf32>
  } {attn.fold_loop}
  %maximum = arith.mulf %r#0, %ln2 : vector<64xf32>
  vector.transfer_write %r#1, %logs[%c0] : vector<64xf32>, memref<64xf32>
  vector.transfer_write %maximum, %maxima[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// What else is carried is no sum under the maximum.

// CHECK-LABEL: func @unscaled
// CHECK-NOT:     math.absf
func.func @unscaled(%s: vector<64x128xf32>, %n: index, %logs: memref<64xf32>, %maxima: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %k = arith.constant dense<1.44269502> : vector<64xf32>
  %ks = arith.constant dense<1.44269502> : vector<64x128xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c128 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %x = vector.multi_reduction <maxnumf>, %s, %ninf [1] : vector<64x128xf32> to vector<64xf32>
    %y = arith.mulf %x, %k : vector<64xf32>
    // expected-note @+1 {{this maximum}}
    %m = arith.maxnumf %m0, %y : vector<64xf32>
    %minus = arith.negf %m : vector<64xf32>
    %repeated = vector.broadcast %minus : vector<64xf32> to vector<128x64xf32>
    %rows = vector.transpose %repeated, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
    %t = math.fma %s, %ks, %rows : vector<64x128xf32>
    %p = math.exp2 %t : vector<64x128xf32>
    %d = arith.subf %m0, %m : vector<64xf32>
    %c = math.exp2 %d : vector<64xf32>
    %lc = arith.addf %l0, %c : vector<64xf32>
    %l = vector.multi_reduction <add>, %p, %lc [1] : vector<64x128xf32> to vector<64xf32>
    scf.yield %m, %l : vector<64xf32>, vector<64xf32>
  } {attn.fold_loop}
  // expected-remark @+1 {{rows of large maxima are not exact}}
  %maximum = arith.mulf %r#0, %ln2 : vector<64xf32>
  vector.transfer_write %r#1, %logs[%c0] : vector<64xf32>, memref<64xf32>
  vector.transfer_write %maximum, %maxima[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// What the maximum is used for is not known: the loop stays as it is.

// CHECK-LABEL: func @stored
// CHECK-NOT:     math.absf
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
  } {attn.fold_loop}
  // expected-remark @+1 {{rows of large maxima are not exact: a use of the maximum is no exponent of a known form}}
  vector.transfer_write %r, %out[%c0] : vector<64xf32>, memref<64xf32>
  return
}

// -----

// The maximum leaves the loop by another way, too, where it would still be one in base 2.

// CHECK-LABEL: func @twice
// CHECK-NOT:     math.absf
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

// What is subtracted from the old maximum is not the new one.

// CHECK-LABEL: func @another
// CHECK-NOT:     math.absf
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
