// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-fix-maxima))" -split-input-file -verify-diagnostics | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-fix-maxima{few-tiles=0 few-in-all=5}))" -split-input-file | FileCheck %s --check-prefix=FIVE
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-fix-maxima))" -split-input-file --remarks-filter=hopper-fix-maxima -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}3 [Passed] fixed | Category:hopper-fix-maxima{{$}}

// No maximum and no rescaling behind the first tile; sums that leave the range, or products
// that do, and maxima that are large are reported, but for rows beyond the end. The program as
// before comes behind.
// CHECK-LABEL: func.func @fixed
// CHECK-SAME: %[[V:[a-z0-9]*]]: memref<?x64xbf16>, %[[O:[a-z0-9]*]]: memref<?x64xf32>, %{{.*}}: memref<?xf32>, %[[TILES:.*]]: index
// CHECK: %[[FLAGS:.*]] = arith.muli %{{.*}}, %[[TILES]]
// CHECK: %[[KEYS:.*]] = memref.dim %[[V]]
// CHECK: %[[ALL:.*]] = arith.muli %[[KEYS]], %[[FLAGS]]
// CHECK: %[[TWO:.*]] = arith.constant 128 : index
// CHECK: %[[FEW:.*]] = arith.cmpi ule, %[[KEYS]], %[[TWO]]
// CHECK: %[[MANY:.*]] = arith.constant 49152 : index
// CHECK: %[[FEWINALL:.*]] = arith.cmpi ule, %[[ALL]], %[[MANY]]
// CHECK: %[[SHORT:.*]] = arith.ori %[[FEW]], %[[FEWINALL]]
// CHECK: %[[COUNT:.*]] = arith.select %[[SHORT]], %{{.*}}, %[[FLAGS]]
// CHECK: %[[REPORTS:.*]] = memref.alloc(%[[COUNT]]) : memref<?xi32>
// CHECK: %[[GRID:.*]] = arith.select %[[SHORT]], %{{.*}}, %[[TILES]]
// CHECK: scf.forall (%{{.*}}) in (%[[GRID]])
// CHECK: %[[R:.*]]:4 = scf.for {{.*}} iter_args(%[[M0:.*]] = %{{.*}}, %[[L0:.*]] = %{{.*}}, %[[O0:.*]] = %{{.*}}, %[[FIRST:.*]] = %true)
// CHECK-NOT: maxnumf
// CHECK: %[[M:.*]] = scf.if %[[FIRST]]
// CHECK: vector.multi_reduction <maxnumf>
// CHECK: %[[NEXT:.*]] = arith.maxnumf %[[M0]]
// CHECK: %[[LEAST:.*]] = arith.constant dense<-8.000000e+00>
// CHECK: %[[START:.*]] = arith.maxnumf %[[NEXT]], %[[LEAST]]
// CHECK: scf.yield %[[START]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[M0]]
// CHECK: %[[E:.*]] = math.exp2
// CHECK: vector.multi_reduction <add>, %[[E]], %[[L0]]
// CHECK: vector.contract {{.*}} %[[E]], %{{.*}}, %[[O0]]
// CHECK: scf.yield %[[M]], %{{.*}}, %{{.*}}, %false
// The exponent of the sum goes to the maximum.
// CHECK: %[[BITS:.*]] = arith.bitcast %[[R]]#1 : vector<64xf32> to vector<64xi32>
// CHECK: %[[BIASED:.*]] = arith.shrui %[[BITS]]
// CHECK: %[[EXPONENT:.*]] = arith.subi %[[BIASED]]
// CHECK: %[[SHIFT:.*]] = arith.sitofp %[[EXPONENT]]
// CHECK: arith.andi %[[BITS]]
// CHECK: %[[MANTISSA:.*]] = arith.ori
// CHECK: %[[REST:.*]] = arith.bitcast %[[MANTISSA]]
// CHECK: %[[WHOLE:.*]] = arith.addf %[[R]]#0, %[[SHIFT]]
// CHECK: %[[LOG:.*]] = math.log %[[REST]]
// CHECK: math.fma %[[WHOLE]], %{{.*}}, %[[LOG]]
// CHECK: %[[SMALL:.*]] = arith.cmpf ult, %[[R]]#1, %{{.*}}
// CHECK: %[[LARGE:.*]] = arith.cmpf ugt, %[[R]]#1, %{{.*}}
// CHECK: %[[OUTSIDE:.*]] = arith.ori %[[SMALL]], %[[LARGE]]
// CHECK: %[[FAR:.*]] = math.absf %[[WHOLE]]
// CHECK: %[[MOST:.*]] = arith.constant dense<4.096000e+03>
// CHECK: %[[ROUNDED:.*]] = arith.cmpf oge, %[[FAR]], %[[MOST]]
// CHECK: %[[BEYOND:.*]] = arith.ori %[[OUTSIDE]], %[[ROUNDED]]
// CHECK: memref.dim %[[O]]
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt
// CHECK: %[[BAD:.*]] = arith.andi %[[BEYOND]], %[[INSIDE]]
// CHECK: hopper.report %[[BAD]] to %[[REPORTS]] : vector<64xi1>
// CHECK: %[[SIZE:.*]] = math.absf %[[R]]#2
// CHECK: %[[INFINITE:.*]] = arith.cmpf ueq, %[[SIZE]], %{{.*}}
// CHECK: hopper.report %[[INFINITE]] to %[[REPORTS]] : vector<64x64xi1>
// CHECK: vector.transfer_write
// CHECK: scf.forall (%{{.*}}) in (%[[TILES]])
// CHECK-NEXT: hopper.redo %[[REPORTS]] always %[[SHORT]]
// CHECK: scf.for {{.*}} -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>)
// CHECK: arith.maxnumf
// CHECK-NOT: hopper.report
// CHECK: memref.dealloc %[[REPORTS]]

// FIVE-LABEL: func.func @fixed
// FIVE: arith.constant 0 : index
// FIVE: arith.constant 320 : index
#rows = affine_map<(r, c, k) -> (r, k)>
#columns = affine_map<(r, c, k) -> (c, k)>
#streamed = affine_map<(r, c, k) -> (k, c)>
#result = affine_map<(r, c, k) -> (r, c)>
func.func @fixed(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %o: memref<?x64xf32>, %lse: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : bf16
  %none = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %empty = arith.constant dense<0.0> : vector<64x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xbf16>
  scf.forall (%p) in (%tiles) {
    %row = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %tq = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
    %xq = arith.extf %tq : vector<64x64xbf16> to vector<64x64xf32>
    %r:3 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %none, %l0 = %zero, %o0 = %empty) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %tk = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xk = arith.extf %tk : vector<64x64xbf16> to vector<64x64xf32>
      %s = vector.contract {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %xq, %xk, %empty : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      %top = vector.multi_reduction <maxnumf>, %s, %none [1] : vector<64x64xf32> to vector<64xf32>
      %m = arith.maxnumf %m0, %top : vector<64xf32>
      %mc = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
      %mr = vector.transpose %mc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %x = arith.subf %s, %mr : vector<64x64xf32>
      %e = math.exp2 %x : vector<64x64xf32>
      %d = arith.subf %m0, %m : vector<64xf32>
      %c = math.exp2 %d : vector<64xf32>
      %lc = arith.mulf %l0, %c : vector<64xf32>
      %l = vector.multi_reduction <add>, %e, %lc [1] : vector<64x64xf32> to vector<64xf32>
      %cc = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
      %cr = vector.transpose %cc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oc = arith.mulf %o0, %cr : vector<64x64xf32>
      %tv = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xv = arith.extf %tv : vector<64x64xbf16> to vector<64x64xf32>
      %on = vector.contract {indexing_maps = [#rows, #streamed, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %e, %xv, %oc : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      scf.yield %m, %l, %on : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %isEmpty = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
    %w = arith.divf %one, %r#1 : vector<64xf32>
    %wc = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %wr = vector.transpose %wc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %product = arith.mulf %r#2, %wr : vector<64x64xf32>
    %isEmptyC = vector.broadcast %isEmpty : vector<64xi1> to vector<64x64xi1>
    %isEmptyR = vector.transpose %isEmptyC, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
    %out = arith.select %isEmptyR, %empty, %product : vector<64x64xi1>, vector<64x64xf32>
    %log = math.log %r#1 : vector<64xf32>
    %sum = math.fma %r#0, %ln2, %log : vector<64xf32>
    vector.transfer_write %out, %o[%row, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %sum, %lse[%row] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

// Streams that end elsewhere in each tile: twice as many tiles are few.
// CHECK-LABEL: func.func @uneven
// CHECK: arith.constant 256 : index
// CHECK: arith.constant 98304 : index
// CHECK: hopper.redo
#rows = affine_map<(r, c, k) -> (r, k)>
#columns = affine_map<(r, c, k) -> (c, k)>
#streamed = affine_map<(r, c, k) -> (k, c)>
#result = affine_map<(r, c, k) -> (r, c)>
func.func @uneven(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %o: memref<?x64xf32>, %lse: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : bf16
  %none = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %empty = arith.constant dense<0.0> : vector<64x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xbf16>
  scf.forall (%p) in (%tiles) {
    %row = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %tq = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
    %xq = arith.extf %tq : vector<64x64xbf16> to vector<64x64xf32>
    %end = arith.minsi %n, %row : index
    %r:3 = scf.for %j = %c0 to %end step %c64 iter_args(%m0 = %none, %l0 = %zero, %o0 = %empty) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %tk = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xk = arith.extf %tk : vector<64x64xbf16> to vector<64x64xf32>
      %s = vector.contract {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %xq, %xk, %empty : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      %top = vector.multi_reduction <maxnumf>, %s, %none [1] : vector<64x64xf32> to vector<64xf32>
      %m = arith.maxnumf %m0, %top : vector<64xf32>
      %mc = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
      %mr = vector.transpose %mc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %x = arith.subf %s, %mr : vector<64x64xf32>
      %e = math.exp2 %x : vector<64x64xf32>
      %d = arith.subf %m0, %m : vector<64xf32>
      %c = math.exp2 %d : vector<64xf32>
      %lc = arith.mulf %l0, %c : vector<64xf32>
      %l = vector.multi_reduction <add>, %e, %lc [1] : vector<64x64xf32> to vector<64xf32>
      %cc = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
      %cr = vector.transpose %cc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oc = arith.mulf %o0, %cr : vector<64x64xf32>
      %tv = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xv = arith.extf %tv : vector<64x64xbf16> to vector<64x64xf32>
      %on = vector.contract {indexing_maps = [#rows, #streamed, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %e, %xv, %oc : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      scf.yield %m, %l, %on : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %isEmpty = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
    %w = arith.divf %one, %r#1 : vector<64xf32>
    %wc = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %wr = vector.transpose %wc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %product = arith.mulf %r#2, %wr : vector<64x64xf32>
    %isEmptyC = vector.broadcast %isEmpty : vector<64xi1> to vector<64x64xi1>
    %isEmptyR = vector.transpose %isEmptyC, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
    %out = arith.select %isEmptyR, %empty, %product : vector<64x64xi1>, vector<64x64xf32>
    %log = math.log %r#1 : vector<64xf32>
    %sum = math.fma %r#0, %ln2, %log : vector<64xf32>
    vector.transfer_write %out, %o[%row, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %sum, %lse[%row] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

// Known to be short.
// CHECK-LABEL: func.func @known
// CHECK-NOT: hopper.re
#rows = affine_map<(r, c, k) -> (r, k)>
#columns = affine_map<(r, c, k) -> (c, k)>
#streamed = affine_map<(r, c, k) -> (k, c)>
#result = affine_map<(r, c, k) -> (r, c)>
func.func @known(%q: memref<?x64xbf16>, %k: memref<128x64xbf16>, %v: memref<128x64xbf16>, %o: memref<?x64xf32>, %lse: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : bf16
  %none = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %empty = arith.constant dense<0.0> : vector<64x64xf32>
  %n = arith.constant 128 : index
  scf.forall (%p) in (%tiles) {
    %row = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %tq = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
    %xq = arith.extf %tq : vector<64x64xbf16> to vector<64x64xf32>
    %r:3 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %none, %l0 = %zero, %o0 = %empty) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %tk = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<128x64xbf16>, vector<64x64xbf16>
      %xk = arith.extf %tk : vector<64x64xbf16> to vector<64x64xf32>
      %s = vector.contract {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %xq, %xk, %empty : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      %top = vector.multi_reduction <maxnumf>, %s, %none [1] : vector<64x64xf32> to vector<64xf32>
      %m = arith.maxnumf %m0, %top : vector<64xf32>
      %mc = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
      %mr = vector.transpose %mc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %x = arith.subf %s, %mr : vector<64x64xf32>
      %e = math.exp2 %x : vector<64x64xf32>
      %d = arith.subf %m0, %m : vector<64xf32>
      %c = math.exp2 %d : vector<64xf32>
      %lc = arith.mulf %l0, %c : vector<64xf32>
      %l = vector.multi_reduction <add>, %e, %lc [1] : vector<64x64xf32> to vector<64xf32>
      %cc = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
      %cr = vector.transpose %cc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oc = arith.mulf %o0, %cr : vector<64x64xf32>
      %tv = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<128x64xbf16>, vector<64x64xbf16>
      %xv = arith.extf %tv : vector<64x64xbf16> to vector<64x64xf32>
      %on = vector.contract {indexing_maps = [#rows, #streamed, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %e, %xv, %oc : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      scf.yield %m, %l, %on : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %isEmpty = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
    %w = arith.divf %one, %r#1 : vector<64xf32>
    %wc = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %wr = vector.transpose %wc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %product = arith.mulf %r#2, %wr : vector<64x64xf32>
    %isEmptyC = vector.broadcast %isEmpty : vector<64xi1> to vector<64x64xi1>
    %isEmptyR = vector.transpose %isEmptyC, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
    %out = arith.select %isEmptyR, %empty, %product : vector<64x64xi1>, vector<64x64xf32>
    %log = math.log %r#1 : vector<64xf32>
    %sum = math.fma %r#0, %ln2, %log : vector<64xf32>
    vector.transfer_write %out, %o[%row, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %sum, %lse[%row] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

// A type with fewer exponents.
// CHECK-LABEL: func.func @half
// CHECK: arith.constant dense<-4.000000e+00>
// CHECK: arith.constant dense<3.906250e-03>
// CHECK: arith.constant dense<3.276800e+04>
// CHECK: hopper.redo
#rows = affine_map<(r, c, k) -> (r, k)>
#columns = affine_map<(r, c, k) -> (c, k)>
#streamed = affine_map<(r, c, k) -> (k, c)>
#result = affine_map<(r, c, k) -> (r, c)>
func.func @half(%q: memref<?x64xf16>, %k: memref<?x64xf16>, %v: memref<?x64xf16>, %o: memref<?x64xf32>, %lse: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f16
  %none = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %empty = arith.constant dense<0.0> : vector<64x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xf16>
  scf.forall (%p) in (%tiles) {
    %row = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %tq = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf16>, vector<64x64xf16>
    %xq = arith.extf %tq : vector<64x64xf16> to vector<64x64xf32>
    %r:3 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %none, %l0 = %zero, %o0 = %empty) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %tk = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf16>, vector<64x64xf16>
      %xk = arith.extf %tk : vector<64x64xf16> to vector<64x64xf32>
      %s = vector.contract {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %xq, %xk, %empty : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      %top = vector.multi_reduction <maxnumf>, %s, %none [1] : vector<64x64xf32> to vector<64xf32>
      %m = arith.maxnumf %m0, %top : vector<64xf32>
      %mc = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
      %mr = vector.transpose %mc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %x = arith.subf %s, %mr : vector<64x64xf32>
      %e = math.exp2 %x : vector<64x64xf32>
      %d = arith.subf %m0, %m : vector<64xf32>
      %c = math.exp2 %d : vector<64xf32>
      %lc = arith.mulf %l0, %c : vector<64xf32>
      %l = vector.multi_reduction <add>, %e, %lc [1] : vector<64x64xf32> to vector<64xf32>
      %cc = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
      %cr = vector.transpose %cc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oc = arith.mulf %o0, %cr : vector<64x64xf32>
      %tv = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf16>, vector<64x64xf16>
      %xv = arith.extf %tv : vector<64x64xf16> to vector<64x64xf32>
      %on = vector.contract {indexing_maps = [#rows, #streamed, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %e, %xv, %oc : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      scf.yield %m, %l, %on : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %isEmpty = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
    %w = arith.divf %one, %r#1 : vector<64xf32>
    %wc = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %wr = vector.transpose %wc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %product = arith.mulf %r#2, %wr : vector<64x64xf32>
    %isEmptyC = vector.broadcast %isEmpty : vector<64xi1> to vector<64x64xi1>
    %isEmptyR = vector.transpose %isEmptyC, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
    %out = arith.select %isEmptyR, %empty, %product : vector<64x64xi1>, vector<64x64xf32>
    %log = math.log %r#1 : vector<64xf32>
    %sum = math.fma %r#0, %ln2, %log : vector<64xf32>
    vector.transfer_write %out, %o[%row, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %sum, %lse[%row] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

// CHECK-LABEL: func.func @wide
// CHECK-NOT: hopper.re
#rows = affine_map<(r, c, k) -> (r, k)>
#columns = affine_map<(r, c, k) -> (c, k)>
#streamed = affine_map<(r, c, k) -> (k, c)>
#result = affine_map<(r, c, k) -> (r, c)>
func.func @wide(%q: memref<?x64xf16>, %k: memref<?x64xf16>, %v: memref<?x64xf32>, %o: memref<?x64xf32>, %lse: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f = arith.constant 0.0 : f32
  %pad = arith.constant 0.0 : f16
  %none = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %empty = arith.constant dense<0.0> : vector<64x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xf16>
  scf.forall (%p) in (%tiles) {
    %row = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %tq = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf16>, vector<64x64xf16>
    %xq = arith.extf %tq : vector<64x64xf16> to vector<64x64xf32>
    %r:3 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %none, %l0 = %zero, %o0 = %empty) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %tk = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf16>, vector<64x64xf16>
      %xk = arith.extf %tk : vector<64x64xf16> to vector<64x64xf32>
      %s = vector.contract {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %xq, %xk, %empty : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      %top = vector.multi_reduction <maxnumf>, %s, %none [1] : vector<64x64xf32> to vector<64xf32>
      %m = arith.maxnumf %m0, %top : vector<64xf32>
      %mc = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
      %mr = vector.transpose %mc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %x = arith.subf %s, %mr : vector<64x64xf32>
      %e = math.exp2 %x : vector<64x64xf32>
      %d = arith.subf %m0, %m : vector<64xf32>
      %c = math.exp2 %d : vector<64xf32>
      %lc = arith.mulf %l0, %c : vector<64xf32>
      %l = vector.multi_reduction <add>, %e, %lc [1] : vector<64x64xf32> to vector<64xf32>
      %cc = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
      %cr = vector.transpose %cc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oc = arith.mulf %o0, %cr : vector<64x64xf32>
      // expected-remark @below {{the maximum is not fixed: exponentials are multiplied with what is not read in 16 bits}}
      %xv = vector.transfer_read %v[%j, %c0], %f {in_bounds = [false, true]} : memref<?x64xf32>, vector<64x64xf32>
      %on = vector.contract {indexing_maps = [#rows, #streamed, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %e, %xv, %oc : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      scf.yield %m, %l, %on : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %isEmpty = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
    %w = arith.divf %one, %r#1 : vector<64xf32>
    %wc = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %wr = vector.transpose %wc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %product = arith.mulf %r#2, %wr : vector<64x64xf32>
    %isEmptyC = vector.broadcast %isEmpty : vector<64xi1> to vector<64x64xi1>
    %isEmptyR = vector.transpose %isEmptyC, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
    %out = arith.select %isEmptyR, %empty, %product : vector<64x64xi1>, vector<64x64xf32>
    %log = math.log %r#1 : vector<64xf32>
    %sum = math.fma %r#0, %ln2, %log : vector<64xf32>
    vector.transfer_write %out, %o[%row, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %sum, %lse[%row] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

// CHECK-LABEL: func.func @starts_with_one
// CHECK-NOT: hopper.re
#rows = affine_map<(r, c, k) -> (r, k)>
#columns = affine_map<(r, c, k) -> (c, k)>
#streamed = affine_map<(r, c, k) -> (k, c)>
#result = affine_map<(r, c, k) -> (r, c)>
func.func @starts_with_one(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %o: memref<?x64xf32>, %lse: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : bf16
  %none = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %empty = arith.constant dense<0.0> : vector<64x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xbf16>
  scf.forall (%p) in (%tiles) {
    %row = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %tq = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
    %xq = arith.extf %tq : vector<64x64xbf16> to vector<64x64xf32>
    // expected-remark @below {{the maximum is not fixed: a sum under it does not start with 0}}
    %r:3 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %none, %l0 = %one, %o0 = %empty) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %tk = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xk = arith.extf %tk : vector<64x64xbf16> to vector<64x64xf32>
      %s = vector.contract {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %xq, %xk, %empty : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      %top = vector.multi_reduction <maxnumf>, %s, %none [1] : vector<64x64xf32> to vector<64xf32>
      %m = arith.maxnumf %m0, %top : vector<64xf32>
      %mc = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
      %mr = vector.transpose %mc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %x = arith.subf %s, %mr : vector<64x64xf32>
      %e = math.exp2 %x : vector<64x64xf32>
      %d = arith.subf %m0, %m : vector<64xf32>
      %c = math.exp2 %d : vector<64xf32>
      %lc = arith.mulf %l0, %c : vector<64xf32>
      %l = vector.multi_reduction <add>, %e, %lc [1] : vector<64x64xf32> to vector<64xf32>
      %cc = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
      %cr = vector.transpose %cc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oc = arith.mulf %o0, %cr : vector<64x64xf32>
      %tv = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xv = arith.extf %tv : vector<64x64xbf16> to vector<64x64xf32>
      %on = vector.contract {indexing_maps = [#rows, #streamed, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %e, %xv, %oc : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      scf.yield %m, %l, %on : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %isEmpty = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
    %w = arith.divf %one, %r#1 : vector<64xf32>
    %wc = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %wr = vector.transpose %wc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %product = arith.mulf %r#2, %wr : vector<64x64xf32>
    %isEmptyC = vector.broadcast %isEmpty : vector<64xi1> to vector<64x64xi1>
    %isEmptyR = vector.transpose %isEmptyC, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
    %out = arith.select %isEmptyR, %empty, %product : vector<64x64xi1>, vector<64x64xf32>
    %log = math.log %r#1 : vector<64xf32>
    %sum = math.fma %r#0, %ln2, %log : vector<64xf32>
    vector.transfer_write %out, %o[%row, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %sum, %lse[%row] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

// What a tile adds to memory would be added twice.
// CHECK-LABEL: func.func @adds
// CHECK-NOT: hopper.re
#rows = affine_map<(r, c, k) -> (r, k)>
#columns = affine_map<(r, c, k) -> (c, k)>
#streamed = affine_map<(r, c, k) -> (k, c)>
#result = affine_map<(r, c, k) -> (r, c)>
func.func @adds(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %o: memref<?x64xf32>, %lse: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : bf16
  %none = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %empty = arith.constant dense<0.0> : vector<64x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xbf16>
  scf.forall (%p) in (%tiles) {
    %row = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %tq = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
    %xq = arith.extf %tq : vector<64x64xbf16> to vector<64x64xf32>
    %r:3 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %none, %l0 = %zero, %o0 = %empty) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %tk = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xk = arith.extf %tk : vector<64x64xbf16> to vector<64x64xf32>
      %s = vector.contract {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %xq, %xk, %empty : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      %top = vector.multi_reduction <maxnumf>, %s, %none [1] : vector<64x64xf32> to vector<64xf32>
      %m = arith.maxnumf %m0, %top : vector<64xf32>
      %mc = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
      %mr = vector.transpose %mc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %x = arith.subf %s, %mr : vector<64x64xf32>
      %e = math.exp2 %x : vector<64x64xf32>
      %d = arith.subf %m0, %m : vector<64xf32>
      %c = math.exp2 %d : vector<64xf32>
      %lc = arith.mulf %l0, %c : vector<64xf32>
      %l = vector.multi_reduction <add>, %e, %lc [1] : vector<64x64xf32> to vector<64xf32>
      %cc = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
      %cr = vector.transpose %cc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oc = arith.mulf %o0, %cr : vector<64x64xf32>
      %tv = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xv = arith.extf %tv : vector<64x64xbf16> to vector<64x64xf32>
      %on = vector.contract {indexing_maps = [#rows, #streamed, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %e, %xv, %oc : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      scf.yield %m, %l, %on : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %isEmpty = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
    %w = arith.divf %one, %r#1 : vector<64xf32>
    %wc = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %wr = vector.transpose %wc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %product = arith.mulf %r#2, %wr : vector<64x64xf32>
    %isEmptyC = vector.broadcast %isEmpty : vector<64xi1> to vector<64x64xi1>
    %isEmptyR = vector.transpose %isEmptyC, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
    %out = arith.select %isEmptyR, %empty, %product : vector<64x64xi1>, vector<64x64xf32>
    %log = math.log %r#1 : vector<64xf32>
    %sum = math.fma %r#0, %ln2, %log : vector<64xf32>
    vector.transfer_write %out, %o[%row, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    // expected-remark @below {{the maximum is not fixed: the tile cannot be computed again}}
    attn.tile_add %out into %o[%row, %c0] : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %sum, %lse[%row] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

// What a tile reads it has written already when it is computed again.
// CHECK-LABEL: func.func @reads
// CHECK-NOT: hopper.re
#rows = affine_map<(r, c, k) -> (r, k)>
#columns = affine_map<(r, c, k) -> (c, k)>
#streamed = affine_map<(r, c, k) -> (k, c)>
#result = affine_map<(r, c, k) -> (r, c)>
func.func @reads(%q: memref<?x64xbf16>, %k: memref<?x64xbf16>, %v: memref<?x64xbf16>, %o: memref<?x64xf32>, %lse: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : bf16
  %none = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %ln2 = arith.constant dense<0.693147182> : vector<64xf32>
  %empty = arith.constant dense<0.0> : vector<64x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xbf16>
  scf.forall (%p) in (%tiles) {
    %row = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %tq = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
    %xq = arith.extf %tq : vector<64x64xbf16> to vector<64x64xf32>
    %r:3 = scf.for %j = %c0 to %n step %c64 iter_args(%m0 = %none, %l0 = %zero, %o0 = %empty) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %tk = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xk = arith.extf %tk : vector<64x64xbf16> to vector<64x64xf32>
      %s = vector.contract {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %xq, %xk, %empty : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      %top = vector.multi_reduction <maxnumf>, %s, %none [1] : vector<64x64xf32> to vector<64xf32>
      %m = arith.maxnumf %m0, %top : vector<64xf32>
      %mc = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
      %mr = vector.transpose %mc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %x = arith.subf %s, %mr : vector<64x64xf32>
      %e = math.exp2 %x : vector<64x64xf32>
      %d = arith.subf %m0, %m : vector<64xf32>
      %c = math.exp2 %d : vector<64xf32>
      %lc = arith.mulf %l0, %c : vector<64xf32>
      %l = vector.multi_reduction <add>, %e, %lc [1] : vector<64x64xf32> to vector<64xf32>
      %cc = vector.broadcast %c : vector<64xf32> to vector<64x64xf32>
      %cr = vector.transpose %cc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oc = arith.mulf %o0, %cr : vector<64x64xf32>
      %tv = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %xv = arith.extf %tv : vector<64x64xbf16> to vector<64x64xf32>
      %on = vector.contract {indexing_maps = [#rows, #streamed, #result], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %e, %xv, %oc : vector<64x64xf32>, vector<64x64xf32> into vector<64x64xf32>
      scf.yield %m, %l, %on : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %isEmpty = arith.cmpf oeq, %r#1, %zero : vector<64xf32>
    %f = arith.constant 0.0 : f32
    // expected-remark @below {{the maximum is not fixed: the tile cannot be computed again}}
    %before = vector.transfer_read %lse[%row], %f : memref<?xf32>, vector<64xf32>
    %w = arith.divf %one, %r#1 : vector<64xf32>
    %wc = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %wr = vector.transpose %wc, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %product = arith.mulf %r#2, %wr : vector<64x64xf32>
    %isEmptyC = vector.broadcast %isEmpty : vector<64xi1> to vector<64x64xi1>
    %isEmptyR = vector.transpose %isEmptyC, [1, 0] : vector<64x64xi1> to vector<64x64xi1>
    %out = arith.select %isEmptyR, %empty, %product : vector<64x64xi1>, vector<64x64xf32>
    %log = math.log %r#1 : vector<64xf32>
    %now = math.fma %r#0, %ln2, %log : vector<64xf32>
    %sum = arith.addf %now, %before : vector<64xf32>
    vector.transfer_write %out, %o[%row, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %sum, %lse[%row] : vector<64xf32>, memref<?xf32>
  }
  return
}
