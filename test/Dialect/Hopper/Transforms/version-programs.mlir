// RUN: attn-opt %s --hopper-version-programs --split-input-file --verify-diagnostics | FileCheck %s
// RUN: attn-opt %s --hopper-version-programs --split-input-file --remarks-filter=hopper-version-programs -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}6 [Passed] versioned | Category:hopper-version-programs{{$}}

// A program in front of all others finds out for each 64 rows whether one takes the branch. One version of the program has no
// branch; the other one, behind it, takes it, and what only that one reads is computed for it alone.
// CHECK-LABEL: func @marks
// CHECK-SAME: (%[[LSE:[a-z0-9]+]]: memref<?x?xf32>, %[[Q:[a-z0-9]+]]: memref<?x?xf32>
// CHECK: %[[ALLOC:.*]] = memref.alloc(%{{.*}}, %{{.*}}) : memref<?x?xf32>
// CHECK: %[[FLAGS:.*]] = memref.alloc(%{{.*}}) : memref<?xi32>
// CHECK: scf.forall (%[[B:.*]], %[[T:.*]]) in
// CHECK: %[[I:.*]] = affine.apply {{.*}}(%[[T]])
// CHECK: %[[L:.*]] = vector.transfer_read %[[LSE]][%[[B]], %[[I]]], %{{.*}} : memref<?x?xf32>, vector<128xf32>
// CHECK: %[[IS:.*]] = arith.cmpf oge, %[[L]], %{{.*}} : vector<128xf32>
// CHECK: hopper.report warpgroups %[[IS]] to %[[FLAGS]] : vector<128xi1>, memref<?xi32>
// A program that has nothing to do with it, then the usual version.
// CHECK: scf.forall
// CHECK-NOT: hopper.run_if
// CHECK: vector.transfer_write %{{.*}}, %arg2
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if none %[[FLAGS]] : memref<?xi32>
// CHECK: %[[L:.*]] = vector.transfer_read %[[LSE]]
// CHECK-NOT: scf.if
// CHECK: vector.transfer_write %[[L]], %arg2
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if any %[[FLAGS]] : memref<?xi32>
// CHECK: vector.transfer_write %{{.*}}, %[[ALLOC]]
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if any %[[FLAGS]] : memref<?xi32>
// CHECK-NOT: scf.if
// CHECK: %[[Y:.*]] = vector.transfer_read %[[ALLOC]]
// CHECK: %[[Z:.*]] = arith.select %{{.*}}, %[[Y]]
// CHECK: vector.transfer_write %[[Z]], %arg2
func.func @marks(%lse: memref<?x?xf32>, %q: memref<?x?xf32>, %out: memref<?x?xf32>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<64xf32>
  %least = arith.constant dense<256.0> : vector<64xf32>
  %max = memref.alloc(%n, %m) : memref<?x?xf32>
  scf.forall (%b, %t) in (%n, %m) {
    %x = vector.transfer_read %q[%b, %t], %zero : memref<?x?xf32>, vector<64xf32>
    vector.transfer_write %x, %max[%b, %t] : vector<64xf32>, memref<?x?xf32>
  }
  scf.forall (%b, %t) in (%n, %m) {
    vector.transfer_write %zeros, %out[%b, %t] : vector<64xf32>, memref<?x?xf32>
  }
  scf.forall (%b) in (%n) {
    scf.for %i = %c0 to %m step %c64 {
      %l = vector.transfer_read %lse[%b, %i], %zero : memref<?x?xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {attn.may_hold} : vector<64xi1> into i1
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

// Rows that follow from two reads are asked by each tile, and then there are no versions.
// CHECK-LABEL: func @stays
// CHECK-NOT: hopper.run_if
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
      %some = vector.reduction <or>, %is {attn.may_hold} : vector<64xi1> into i1
      %p = scf.if %some -> (vector<64xf32>) {
        %y = vector.transfer_read %max[%i], %zero : memref<?xf32>, vector<64xf32>
        scf.yield %y : vector<64xf32>
      } else {
        scf.yield %l : vector<64xf32>
      }
      %z = vector.transfer_read %max[%i], %zero : memref<?xf32>, vector<64xf32>
      %o = vector.transfer_read %other[%i], %zero : memref<?xf32>, vector<64xf32>
      %both = arith.cmpf oge, %l, %o : vector<64xf32>
      // expected-remark @+1 {{each tile asks its rows: they follow from more than one read of rows}}
      %two = vector.reduction <or>, %both {attn.may_hold} : vector<64xi1> into i1
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

// Two programs that ask the same have the same flags, and those for the rare case come last; one
// that asks two questions stays as it is.
// CHECK-LABEL: func @questions
// CHECK: %[[FLAGS:.*]] = memref.alloc({{.*}}) : memref<?xi32>
// CHECK: hopper.report warpgroups %{{.*}} to %[[FLAGS]]
// CHECK: hopper.run_if none %[[FLAGS]]
// CHECK: hopper.run_if none %[[FLAGS]]
// CHECK: hopper.run_if any %[[FLAGS]]
// CHECK: hopper.run_if any %[[FLAGS]]
// CHECK-NOT: hopper.run_if
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
      %some = vector.reduction <or>, %is {attn.may_hold} : vector<64xi1> into i1
      scf.if %some {
        vector.transfer_write %l, %out[%i] : vector<64xf32>, memref<?xf32>
      }
    }
  }
  scf.forall (%t) in (%n) {
    scf.for %i = %c0 to %n step %c64 {
      %l = vector.transfer_read %lse[%i], %zero : memref<?xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {attn.may_hold} : vector<64xi1> into i1
      scf.if %some {
        vector.transfer_write %l, %out[%i] : vector<64xf32>, memref<?xf32>
      }
    }
  }
  // expected-remark @+1 {{each tile asks its rows: its branches are of rows of several kinds}}
  scf.forall (%t) in (%n) {
    scf.for %i = %c0 to %n step %c64 {
      %l = vector.transfer_read %lse[%i], %zero : memref<?xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {attn.may_hold} : vector<64xi1> into i1
      scf.if %some {
        vector.transfer_write %l, %out[%i] : vector<64xf32>, memref<?xf32>
      }
      %large = arith.cmpf oge, %l, %other : vector<64xf32>
      %more = vector.reduction <or>, %large {attn.may_hold} : vector<64xi1> into i1
      scf.if %more {
        vector.transfer_write %l, %out[%i] : vector<64xf32>, memref<?xf32>
      }
    }
  }
  return
}

// -----

// A program with all rows, whose results do not depend on what was in memory, tells itself: its usual version always
// runs, and that for rare rows writes the same once more.
// CHECK-LABEL: func @tells_itself
// CHECK-SAME: (%[[LSE:[a-z0-9]+]]: memref<?x?xf32>, %[[Q:[a-z0-9]+]]: memref<?x?xf32>
// CHECK: %[[FLAGS:.*]] = memref.alloc(%{{.*}}) : memref<?xi32>
// CHECK: scf.forall (%[[B:.*]], %[[T:.*]]) in (%{{.*}}, %[[TILES:.*]]) {
// CHECK-NOT: hopper.run_if
// CHECK: %[[L:.*]] = vector.transfer_read %[[LSE]]
// CHECK: %[[IS:.*]] = arith.cmpf oge, %[[L]]
// CHECK: %[[TILE:.*]] = affine.apply {{.*}}(%[[B]], %[[T]])[%{{.*}}]
// CHECK: hopper.report warpgroups %[[IS]] to %[[FLAGS]] tile %[[TILE]] : vector<128xi1>, memref<?xi32>
// CHECK: %[[X:.*]] = vector.transfer_read %[[Q]]
// CHECK: vector.transfer_write %[[X]], %arg2
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if any %[[FLAGS]]
// CHECK: arith.select
// CHECK: vector.transfer_write %{{.*}}, %arg2
// CHECK-NOT: scf.forall
func.func @tells_itself(%lse: memref<?x?xf32>, %q: memref<?x?xf32>, %out: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<128xf32>
  %n = memref.dim %lse, %c0 : memref<?x?xf32>
  %m = memref.dim %lse, %c1 : memref<?x?xf32>
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%m]
  scf.forall (%b, %t) in (%n, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %l = vector.transfer_read %lse[%b, %i], %zero : memref<?x?xf32>, vector<128xf32>
    %is = arith.cmpf oge, %l, %least : vector<128xf32>
    %x = vector.transfer_read %q[%b, %i], %zero : memref<?x?xf32>, vector<128xf32>
    %some = vector.reduction <or>, %is {attn.may_hold} : vector<128xi1> into i1
    %p = scf.if %some -> (vector<128xf32>) {
      %y = arith.select %is, %l, %x : vector<128xi1>, vector<128xf32>
      scf.yield %y : vector<128xf32>
    } else {
      scf.yield %x : vector<128xf32>
    }
    vector.transfer_write %p, %out[%b, %i] : vector<128xf32>, memref<?x?xf32>
  }
  return
}

// -----

// One that reads what it writes must not run twice: a program in front tells.
// CHECK-LABEL: func @reads_what_it_writes
// CHECK: scf.forall
// CHECK: hopper.report warpgroups
// CHECK-NOT: tile
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if none
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if any
func.func @reads_what_it_writes(%lse: memref<?x?xf32>, %q: memref<?x?xf32>, %out: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<128xf32>
  %n = memref.dim %lse, %c0 : memref<?x?xf32>
  %m = memref.dim %lse, %c1 : memref<?x?xf32>
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%m]
  scf.forall (%b, %t) in (%n, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %l = vector.transfer_read %lse[%b, %i], %zero : memref<?x?xf32>, vector<128xf32>
    %is = arith.cmpf oge, %l, %least : vector<128xf32>
    %x = vector.transfer_read %out[%b, %i], %zero : memref<?x?xf32>, vector<128xf32>
    %some = vector.reduction <or>, %is {attn.may_hold} : vector<128xi1> into i1
    %p = scf.if %some -> (vector<128xf32>) {
      %y = arith.select %is, %l, %x : vector<128xi1>, vector<128xf32>
      scf.yield %y : vector<128xf32>
    } else {
      scf.yield %x : vector<128xf32>
    }
    vector.transfer_write %p, %out[%b, %i] : vector<128xf32>, memref<?x?xf32>
  }
  return
}

// -----

// A table that only the version for rare rows reads, which its program stores and reads back, is made for that one only.
// CHECK-LABEL: func @table
// CHECK: hopper.report
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if none
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if any
// CHECK: memref.store
// CHECK: memref.load
// CHECK: scf.forall
// CHECK-NEXT: hopper.run_if any
// CHECK: memref.load
func.func @table(%lse: memref<?xf32>, %out: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<64xf32>
  %table = memref.alloc(%n) : memref<?xf32>
  scf.forall (%t) in (%n) {
    memref.store %zero, %table[%t] : memref<?xf32>
    %back = memref.load %table[%t] : memref<?xf32>
    %more = arith.addf %back, %back : f32
    memref.store %more, %table[%t] : memref<?xf32>
  }
  scf.forall (%t) in (%n) {
    scf.for %i = %c0 to %n step %c64 {
      %l = vector.transfer_read %lse[%i], %zero : memref<?xf32>, vector<64xf32>
      %is = arith.cmpf oge, %l, %least : vector<64xf32>
      %some = vector.reduction <or>, %is {attn.may_hold} : vector<64xi1> into i1
      %p = scf.if %some -> (vector<64xf32>) {
        %x = memref.load %table[%t] : memref<?xf32>
        %y = vector.broadcast %x : f32 to vector<64xf32>
        scf.yield %y : vector<64xf32>
      } else {
        scf.yield %l : vector<64xf32>
      }
      vector.transfer_write %p, %out[%i] : vector<64xf32>, memref<?xf32>
    }
  }
  return
}
