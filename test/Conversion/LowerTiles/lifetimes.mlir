// RUN: attn-opt %s --attn-lower-tiles=vector-bits=512 --canonicalize --split-input-file | FileCheck %s

// Two tiles that change places: one of them goes through a third buffer.
// CHECK-LABEL: func @swap
// CHECK-DAG:     %[[A:.*]] = memref.alloca() {{.*}} : memref<16xf32>
// CHECK-DAG:     %[[B:.*]] = memref.alloca() {{.*}} : memref<16xf32>
// CHECK-DAG:     %[[T:.*]] = memref.alloca() {{.*}} : memref<16xf32>
// CHECK:         scf.for
// CHECK-NEXT:      %[[X:.*]] = vector.load
// CHECK-NEXT:      vector.store %[[X]]
// CHECK-NEXT:      %[[Y:.*]] = vector.load
// CHECK-NEXT:      vector.store %[[Y]]
// CHECK-COUNT-2:   vector.load
// CHECK:         }
func.func @swap(%x: memref<2x16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %pad = arith.constant 0.0 : f32
  %a = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true]} : memref<2x16xf32>, vector<16xf32>
  %b = vector.transfer_read %x[%c1, %c0], %pad {in_bounds = [true]} : memref<2x16xf32>, vector<16xf32>
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%u = %a, %v = %b) -> (vector<16xf32>, vector<16xf32>) {
    scf.yield %v, %u : vector<16xf32>, vector<16xf32>
  }
  vector.transfer_write %r#0, %x[%c0, %c0] {in_bounds = [true]} : vector<16xf32>, memref<2x16xf32>
  vector.transfer_write %r#1, %x[%c1, %c0] {in_bounds = [true]} : vector<16xf32>, memref<2x16xf32>
  return
}

// -----

// %p is computed before the loop for the loop and for what follows. The loop
// reads %t as well, so %p must not take its buffer.
// CHECK-LABEL: func @prelude_keeps_operand
// CHECK:         %[[T:.*]] = vector.maskedload
// CHECK:         vector.store %[[T]], %[[BUF:.*]][
// CHECK:         math.tanh
// CHECK-NEXT:    vector.store %{{.*}}, %[[OTHER:.*]][
// CHECK:         vector.load %[[BUF]]
func.func @prelude_keeps_operand(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %pad = arith.constant 2.0 : f32
  %t = vector.transfer_read %x[%c1, %c0], %pad {in_bounds = [true, false]} : memref<?x?xf32>, vector<3x5xf32>
  %p = math.tanh %t : vector<3x5xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %p) -> (vector<3x5xf32>) {
    %q = arith.mulf %t, %a : vector<3x5xf32>
    scf.yield %q : vector<3x5xf32>
  }
  %s = arith.addf %r, %p : vector<3x5xf32>
  vector.transfer_write %s, %y[%c1, %c0] {in_bounds = [false, false]} : vector<3x5xf32>, memref<?x?xf32>
  return
}

// -----

// A read does not move behind a write to the same memory.
// CHECK-LABEL: func @read_before_write
// CHECK:         %[[OLD:.*]] = vector.load %arg0[%c0]
// CHECK:         vector.store %[[OLD]], %[[KEPT:.*]][
// CHECK:         vector.store %{{.*}}, %arg0[%c0]
// CHECK:         %[[AGAIN:.*]] = vector.load %[[KEPT]]
// CHECK:         vector.store %[[AGAIN]], %arg1
func.func @read_before_write(%x: memref<16xf32>, %y: memref<16xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %one = arith.constant dense<1.0> : vector<16xf32>
  %old = vector.transfer_read %x[%c0], %pad {in_bounds = [true]} : memref<16xf32>, vector<16xf32>
  vector.transfer_write %one, %x[%c0] {in_bounds = [true]} : vector<16xf32>, memref<16xf32>
  vector.transfer_write %old, %y[%c0] {in_bounds = [true]} : vector<16xf32>, memref<16xf32>
  return
}

// -----

// A branch that passes a carried tile through costs no copy.
// CHECK-LABEL: func @skip
// CHECK:         scf.for
// CHECK:           scf.if
// CHECK:             %[[V:.*]] = vector.load %[[ACC:.*]][
// CHECK:             arith.addf
// CHECK:             vector.store %{{.*}}, %[[ACC]][
// CHECK-NEXT:      }
// CHECK-NEXT:    }
func.func @skip(%x: memref<16xf32>, %n: index, %c: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %one = arith.constant dense<1.0> : vector<16xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero) -> (vector<16xf32>) {
    %q = scf.if %c -> vector<16xf32> {
      %s = arith.addf %a, %one : vector<16xf32>
      scf.yield %s : vector<16xf32>
    } else {
      scf.yield %a : vector<16xf32>
    }
    scf.yield %q : vector<16xf32>
  }
  vector.transfer_write %r, %x[%c0] {in_bounds = [true]} : vector<16xf32>, memref<16xf32>
  return
}
