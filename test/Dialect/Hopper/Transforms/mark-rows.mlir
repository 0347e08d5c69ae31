// RUN: attn-opt %s --hopper-mark-rows --split-input-file --verify-diagnostics | FileCheck %s

// A program in front of all others finds out for each 128 rows whether one takes the branch; tiles load the word, and what
// only such branches read is not computed where no word is set.
// CHECK-LABEL: func @marks
// CHECK-SAME: (%[[LSE:[a-z0-9]+]]: memref<?x?xf32>, %[[Q:[a-z0-9]+]]: memref<?x?xf32>
func.func @marks(%lse: memref<?x?xf32>, %q: memref<?x?xf32>, %out: memref<?x?xf32>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<64xf32>
  %least = arith.constant dense<256.0> : vector<64xf32>
  // CHECK: %[[ALLOC:.*]] = memref.alloc(%{{.*}}, %{{.*}}) : memref<?x?xf32>
  // CHECK: %[[WORDS:.*]] = memref.alloc(%{{.*}}) : memref<?xi32>
  // CHECK: %[[VIEW:.*]] = memref.reinterpret_cast %[[WORDS]] to offset: [0]
  // CHECK: scf.forall (%[[B:.*]], %[[T:.*]]) in
  // CHECK: %[[I:.*]] = affine.apply {{.*}}(%[[T]])
  // CHECK: %[[L:.*]] = vector.transfer_read %[[LSE]][%[[B]], %[[I]]], %{{.*}} : memref<?x?xf32>, vector<128xf32>
  // CHECK: %[[IS:.*]] = arith.cmpf oge, %[[L]], %{{.*}} : vector<128xf32>
  // CHECK: %[[SOME:.*]] = vector.reduction <or>, %[[IS]]
  // CHECK: %[[NUMBER:.*]] = arith.extui %[[SOME]] : i1 to i32
  // CHECK: memref.store %[[NUMBER]], %[[VIEW]][%[[B]], %[[T]]]
  %max = memref.alloc(%n, %m) : memref<?x?xf32>
  // The program that nothing else needs, moved behind one that has nothing to do with it.
  // CHECK: scf.forall
  // CHECK-NOT: hopper.redo
  // CHECK: vector.transfer_write %{{.*}}, %arg2
  // CHECK: scf.forall
  // CHECK-NEXT: %[[NO:.*]] = arith.constant false
  // CHECK-NEXT: hopper.redo any %[[WORDS]] always %[[NO]] : memref<?xi32>
  // CHECK: vector.transfer_write %{{.*}}, %[[ALLOC]]
  scf.forall (%b, %t) in (%n, %m) {
    %x = vector.transfer_read %q[%b, %t], %zero : memref<?x?xf32>, vector<64xf32>
    vector.transfer_write %x, %max[%b, %t] : vector<64xf32>, memref<?x?xf32>
  }
  scf.forall (%b, %t) in (%n, %m) {
    vector.transfer_write %zeros, %out[%b, %t] : vector<64xf32>, memref<?x?xf32>
  }
  // CHECK: scf.forall
  // CHECK: scf.for %[[J:.*]] =
  // CHECK: %[[AT:.*]] = affine.apply #{{.*}}(%[[J]])
  // CHECK: %[[WORD:.*]] = memref.load %[[VIEW]][%{{.*}}, %[[AT]]]
  // CHECK: %[[TAKES:.*]] = arith.cmpi ne, %[[WORD]], %{{.*}}
  // The branch alone asks the rows themselves.
  // CHECK: scf.if %[[TAKES]]
  // CHECK: %[[L:.*]] = vector.transfer_read %[[LSE]][%{{.*}}, %[[J]]]
  // CHECK: %[[IS:.*]] = arith.cmpf oge, %[[L]]
  // CHECK: arith.select %[[IS]], %{{.*}}, %[[L]]
  scf.forall (%b) in (%n) {
    scf.for %i = %c0 to %m step %c64 {
      %l = vector.transfer_read %lse[%b, %i], %zero : memref<?x?xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {hopper.may_hold} : vector<64xi1> into i1
      %p = scf.if %some -> (vector<64xf32>) {
        %y = vector.transfer_read %max[%b, %i], %zero : memref<?x?xf32>, vector<64xf32>
        %z = arith.select %is, %y, %l : vector<64xi1>, vector<64xf32>
        scf.yield %z : vector<64xf32>
      } else {
        scf.yield %l : vector<64xf32>
      }
      vector.transfer_write %p, %out[%b, %i] : vector<64xf32>, memref<?x?xf32>
    }
  }
  return
}

// -----

// What is read elsewhere, too, is computed; and rows that follow from two reads are asked by each tile.
// CHECK-LABEL: func @stays
// CHECK-NOT: hopper.redo
func.func @stays(%lse: memref<?xf32>, %other: memref<?xf32>, %out: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<64xf32>
  %max = memref.alloc(%n) : memref<?xf32>
  scf.forall (%t) in (%n) {
    vector.transfer_write %least, %max[%t] : vector<64xf32>, memref<?xf32>
  }
  scf.forall (%t) in (%n) {
    scf.for %i = %c0 to %n step %c64 {
      %l = vector.transfer_read %lse[%i], %zero : memref<?xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {hopper.may_hold} : vector<64xi1> into i1
      // CHECK: memref.load
      %p = scf.if %some -> (vector<64xf32>) {
        %y = vector.transfer_read %max[%i], %zero : memref<?xf32>, vector<64xf32>
        scf.yield %y : vector<64xf32>
      } else {
        scf.yield %l : vector<64xf32>
      }
      %z = vector.transfer_read %max[%i], %zero : memref<?xf32>, vector<64xf32>
      %o = vector.transfer_read %other[%i], %zero : memref<?xf32>, vector<64xf32>
      %both = arith.cmpf oge, %l, %o : vector<64xf32>
      // CHECK: vector.reduction <or>
      // expected-remark @+1 {{each tile asks its rows: they follow from more than one read of rows}}
      %two = vector.reduction <or>, %both {hopper.may_hold} : vector<64xi1> into i1
      %r = scf.if %two -> (vector<64xf32>) {
        scf.yield %p : vector<64xf32>
      } else {
        scf.yield %z : vector<64xf32>
      }
      vector.transfer_write %r, %out[%i] : vector<64xf32>, memref<?xf32>
    }
  }
  return
}

// -----

// Two kernels that ask the same have the same words; another question about the same rows has its own.
// CHECK-LABEL: func @questions
// CHECK-COUNT-2: memref.alloc({{.*}}) : memref<?xi32>
// CHECK-NOT: memref.alloc
func.func @questions(%lse: memref<?xf32>, %out: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<64xf32>
  %other = arith.constant dense<512.0> : vector<64xf32>
  scf.forall (%t) in (%n) {
    scf.for %i = %c0 to %n step %c64 {
      %l = vector.transfer_read %lse[%i], %zero : memref<?xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {hopper.may_hold} : vector<64xi1> into i1
      scf.if %some {
        vector.transfer_write %l, %out[%i] : vector<64xf32>, memref<?xf32>
      }
    }
  }
  scf.forall (%t) in (%n) {
    scf.for %i = %c0 to %n step %c64 {
      %l = vector.transfer_read %lse[%i], %zero : memref<?xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {hopper.may_hold} : vector<64xi1> into i1
      scf.if %some {
        vector.transfer_write %l, %out[%i] : vector<64xf32>, memref<?xf32>
      }
      %large = arith.cmpf oge, %l, %other : vector<64xf32>
      %more = vector.reduction <or>, %large {hopper.may_hold} : vector<64xi1> into i1
      scf.if %more {
        vector.transfer_write %l, %out[%i] : vector<64xf32>, memref<?xf32>
      }
    }
  }
  return
}

// -----

// Tiles of 64 rows end with 192 rows; one of 128 does not.
// CHECK-LABEL: func @partial
// CHECK: vector.transfer_read %{{.*}} : memref<192xf32>, vector<128xf32>
func.func @partial(%lse: memref<192xf32>, %out: memref<192xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c192 = arith.constant 192 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<64xf32>
  scf.forall (%t) in (%c1) {
    scf.for %i = %c0 to %c192 step %c64 {
      %l = vector.transfer_read %lse[%i], %zero {in_bounds = [true]} : memref<192xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {hopper.may_hold} : vector<64xi1> into i1
      scf.if %some {
        vector.transfer_write %l, %out[%i] {in_bounds = [true]} : vector<64xf32>, memref<192xf32>
      }
    }
  }
  return
}
