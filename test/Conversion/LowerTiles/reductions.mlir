// RUN: attn-opt %s --attn-lower-tiles=vector-bits=512 --canonicalize --cse --split-input-file | FileCheck %s

// Without contractions the lanes are what is contiguous in memory, here the
// columns, although they are reduced: vector accumulators, one fold per row.
// The exponentials feed the sum and are stored in the same loop.
// CHECK-LABEL: func @softmax
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// CHECK:           arith.cmpf ogt
// CHECK:           vector.reduction <maxnumf>, %{{.*}} : vector<16xf32> into f32
// CHECK:           memref.store
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// CHECK:           math.exp
// CHECK:           vector.store
// CHECK:           vector.reduction <add>, %{{.*}} fastmath<reassoc> : vector<16xf32> into f32
// CHECK-NOT:     math.exp
// CHECK:         arith.divf
// CHECK:         return
func.func @softmax(%x: memref<4x64xf32>, %y: memref<4x64xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<4xf32>
  %zero = arith.constant dense<0.0> : vector<4xf32>
  %t = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<4x64xf32>, vector<4x64xf32>
  %m = vector.multi_reduction <maxnumf>, %t, %ninf [1] : vector<4x64xf32> to vector<4xf32>
  %mt = vector.broadcast %m : vector<4xf32> to vector<64x4xf32>
  %mb = vector.transpose %mt, [1, 0] : vector<64x4xf32> to vector<4x64xf32>
  %s = arith.subf %t, %mb : vector<4x64xf32>
  %p = math.exp %s : vector<4x64xf32>
  %l = vector.multi_reduction <add>, %p, %zero [1] : vector<4x64xf32> to vector<4xf32>
  %lt = vector.broadcast %l : vector<4xf32> to vector<64x4xf32>
  %lb = vector.transpose %lt, [1, 0] : vector<64x4xf32> to vector<4x64xf32>
  %o = arith.divf %p, %lb : vector<4x64xf32>
  vector.transfer_write %o, %y[%c0, %c0] {in_bounds = [true, true]} : vector<4x64xf32>, memref<4x64xf32>
  return
}

// -----

// Four accumulators of a register each, nothing across lanes.
// CHECK-LABEL: func @column_sums
// CHECK:         %[[SUMS:.*]]:4 = scf.for
// CHECK-COUNT-4:   arith.addf {{.*}} : vector<16xf32>
// CHECK-NOT:     vector.reduction
func.func @column_sums(%x: memref<4x64xf32>, %y: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %t = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<4x64xf32>, vector<4x64xf32>
  %s = vector.multi_reduction <add>, %t, %zero [0] : vector<4x64xf32> to vector<64xf32>
  vector.transfer_write %s, %y[%c0] {in_bounds = [true]} : vector<64xf32>, memref<64xf32>
  return
}

// -----

// A scalar result; 40 is two registers and a half one.
// CHECK-LABEL: func @to_scalar
// CHECK:         %[[A:.*]] = vector.reduction <add>, %{{.*}} : vector<16xf32> into f32
// CHECK:         %[[S:.*]] = arith.addf %[[A]]
// CHECK:         %[[B:.*]] = vector.reduction <add>, %{{.*}} : vector<8xf32> into f32
// CHECK:         %[[T:.*]] = arith.addf %[[B]], %[[S]]
// CHECK:         return %[[T]]
func.func @to_scalar(%x: memref<40xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %t = vector.transfer_read %x[%c0], %one {in_bounds = [true]} : memref<40xf32>, vector<40xf32>
  %s = vector.multi_reduction <add>, %t, %one [0] : vector<40xf32> to f32
  return %s : f32
}

// -----

// Inner products of rows: both factors vary with the lanes, so there is no
// scalar to broadcast. The terms are rounded once, and are summed in the blocks
// of the kernel of a contraction: 32 of 64, all of 37.
// CHECK-LABEL: func @inner_products
// CHECK:         scf.for %{{.*}} = %c0 to %c64 step %c32
// CHECK:           scf.for %{{.*}} = %c0 to %c32 step %c1
// CHECK:             vector.fma {{.*}} : vector<16xf32>
// CHECK:           arith.addf {{.*}} : vector<16xf32>
// CHECK-NOT:     vector.reduction
// CHECK:         scf.for %{{.*}} = %c0 to %c37 step %c1 iter_args
// CHECK-NEXT:      vector.load
// CHECK-NEXT:      vector.fma {{.*}} : vector<16xf32>
// CHECK-NEXT:      scf.yield
// CHECK-NOT:     vector.reduction
// CHECK:         return
#both = affine_map<(i, e) -> (i, e)>
#turned = affine_map<(i, e) -> (e, i)>
#rows = affine_map<(i, e) -> (i)>
func.func @inner_products(%x: memref<64x16xf32>, %y: memref<64x16xf32>, %d: memref<16xf32>, %s: memref<37x16xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %a = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x16xf32>, vector<64x16xf32>
  %b = vector.transfer_read %y[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x16xf32>, vector<64x16xf32>
  %p = vector.contract {indexing_maps = [#turned, #turned, #rows], iterator_types = ["parallel", "reduction"], kind = #vector.kind<add>}
      %a, %b, %zero : vector<64x16xf32>, vector<64x16xf32> into vector<16xf32>
  %c = vector.transfer_read %s[%c0, %c0], %pad {in_bounds = [true, true]} : memref<37x16xf32>, vector<37x16xf32>
  %e = vector.transfer_read %s[%c0, %c0], %pad {in_bounds = [true, true]} : memref<37x16xf32>, vector<37x16xf32>
  %q = vector.contract {indexing_maps = [#turned, #turned, #rows], iterator_types = ["parallel", "reduction"], kind = #vector.kind<add>}
      %c, %e, %p : vector<37x16xf32>, vector<37x16xf32> into vector<16xf32>
  vector.transfer_write %q, %d[%c0] {in_bounds = [true]} : vector<16xf32>, memref<16xf32>
  return
}
