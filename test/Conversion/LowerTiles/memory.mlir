// RUN: attn-opt %s --attn-lower-tiles=vector-bits=512 --canonicalize --cse --split-input-file | FileCheck %s

// Both ends of a transfer may be ragged: masks along the lanes, a branch for
// the rows.
// CHECK-LABEL: func @ragged_copy
// CHECK:         vector.create_mask
// CHECK:         vector.maskedload
// CHECK:         scf.if
// CHECK:           vector.create_mask
// CHECK:           vector.maskedstore
func.func @ragged_copy(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %i: index, %j: index) {
  %pad = arith.constant 0.0 : f32
  %t = vector.transfer_read %x[%i, %j], %pad : memref<?x?xf32>, vector<4x16xf32>
  vector.transfer_write %t, %y[%i, %j] : vector<4x16xf32>, memref<?x?xf32>
  return
}

// -----

// Contiguous along different dimensions on both sides: 16 x 16 blocks go
// through four rounds of 16 shuffles.
// CHECK-LABEL: func @transposition
// CHECK-COUNT-16: vector.load
// CHECK-COUNT-64: vector.shuffle
// CHECK-NOT:      vector.shuffle
// CHECK-COUNT-16: vector.store
func.func @transposition(%x: memref<32x32xf32>, %y: memref<32x32xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %t = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<32x32xf32>, vector<32x32xf32>
  %u = vector.transpose %t, [1, 0] : vector<32x32xf32> to vector<32x32xf32>
  vector.transfer_write %u, %y[%c0, %c0] {in_bounds = [true, true]} : vector<32x32xf32>, memref<32x32xf32>
  return
}

// -----

// Positions of rows are scalars, positions of columns are vectors; the mask is
// evaluated where it is used.
// CHECK-LABEL: func @causal
// CHECK-NOT:     memref.alloca
// CHECK:         scf.for %[[I:.*]] = %c0 to %c4 step %c1 {
// CHECK:           %[[B:.*]] = vector.broadcast %[[I]] : index to vector<16xindex>
// CHECK:           %[[M:.*]] = arith.cmpi sge, %[[B]], %{{.*}} : vector<16xindex>
// CHECK:           arith.select %[[M]]
func.func @causal(%x: memref<4x16xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<4x16xf32>
  %t = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<4x16xf32>, vector<4x16xf32>
  %i = vector.step : vector<4xindex>
  %ib = vector.broadcast %i : vector<4xindex> to vector<16x4xindex>
  %it = vector.transpose %ib, [1, 0] : vector<16x4xindex> to vector<4x16xindex>
  %j = vector.step : vector<16xindex>
  %jb = vector.broadcast %j : vector<16xindex> to vector<4x16xindex>
  %keep = arith.cmpi sge, %it, %jb : vector<4x16xindex>
  %s = arith.select %keep, %t, %ninf : vector<4x16xi1>, vector<4x16xf32>
  vector.transfer_write %s, %x[%c0, %c0] {in_bounds = [true, true]} : vector<4x16xf32>, memref<4x16xf32>
  return
}

// -----

// CHECK-LABEL: func @gather
// CHECK:         vector.gather %arg0[%c0] [%{{.*}}], %{{.*}}, %{{.*}} : memref<?xf32>, vector<16xindex>
func.func @gather(%x: memref<?xf32>, %y: memref<16xf32>) {
  %c0 = arith.constant 0 : index
  %all = arith.constant dense<true> : vector<16xi1>
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %s = vector.step : vector<16xindex>
  %i = arith.muli %s, %s : vector<16xindex>
  %g = vector.gather %x[%c0] [%i], %all, %zero : memref<?xf32>, vector<16xindex>, vector<16xi1>, vector<16xf32> into vector<16xf32>
  vector.transfer_write %g, %y[%c0] {in_bounds = [true]} : vector<16xf32>, memref<16xf32>
  return
}

// -----

// One vector of positions serves rows and columns without tying the two.
// CHECK-LABEL: func @shared_positions
// CHECK:         arith.cmpi sge
func.func @shared_positions(%x: memref<16x16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  %t = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<16x16xf32>, vector<16x16xf32>
  %s = vector.step : vector<16xindex>
  %b = vector.broadcast %n : index to vector<16xindex>
  %i = arith.addi %s, %b : vector<16xindex>
  %j = vector.broadcast %i : vector<16xindex> to vector<16x16xindex>
  %it = vector.transpose %j, [1, 0] : vector<16x16xindex> to vector<16x16xindex>
  %jb = vector.broadcast %i : vector<16xindex> to vector<16x16xindex>
  %keep = arith.cmpi sge, %it, %jb : vector<16x16xindex>
  %o = arith.select %keep, %t, %zero : vector<16x16xi1>, vector<16x16xf32>
  vector.transfer_write %o, %x[%c0, %c0] {in_bounds = [true, true]} : vector<16x16xf32>, memref<16x16xf32>
  return
}
