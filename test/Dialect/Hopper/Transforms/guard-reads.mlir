// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-guard-reads))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-guard-reads))" --remarks-filter=hopper-guard-reads -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] copied | Category:hopper-guard-reads{{$}}
// REMARKS-DAG: {{^ *}}1 [Passed] guarded | Category:hopper-guard-reads{{$}}

!tile = !tile.smem<64x64xbf16, swizzle = 128>

// Read where it was, if the side that uses it is taken.
// CHECK-LABEL: func.func @sides
// CHECK: scf.for
// CHECK: %[[FULL:.*]] = arith.cmpi eq, %[[FLAG:.*]], %[[ONE:.*]] : i32
// CHECK: %[[PARTIAL:.*]] = arith.cmpi ne, %[[FLAG]], %[[ONE]] : i32
// CHECK: %[[IDS:.*]] = scf.if %[[PARTIAL]] -> (vector<64xi32>) {
// CHECK-NEXT: vector.transfer_read %arg0
// CHECK: } else {
// CHECK-NEXT: scf.yield %{{.*}} : vector<64xi32>
// Both sides use this one.
// CHECK: %[[BOTH:.*]] = vector.transfer_read %arg0
// CHECK: tile.mma
// CHECK: scf.if %[[FULL]]
// CHECK: vector.broadcast %[[BOTH]]
// CHECK: } else {
// CHECK: vector.broadcast %[[IDS]]
func.func @sides(%ids: memref<?xi32>, %flags: memref<?xi32>, %k: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %one = arith.constant 1 : i32
  %pad = arith.constant 0 : i32
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  scf.for %j = %c0 to %n step %c64 {
    %flag = memref.load %flags[%j] : memref<?xi32>
    %full = arith.cmpi eq, %flag, %one : i32
    %x = vector.transfer_read %ids[%j], %pad : memref<?xi32>, vector<64xi32>
    %y = vector.transfer_read %ids[%c0], %pad : memref<?xi32>, vector<64xi32>
    %t = tile.load %k[%j, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %t, %t, %none : !tile, !tile, vector<64x64xf32>
    %r = scf.if %full -> (vector<64x64xi32>) {
      %b = vector.broadcast %y : vector<64xi32> to vector<64x64xi32>
      scf.yield %b : vector<64x64xi32>
    } else {
      %a = vector.broadcast %x : vector<64xi32> to vector<64x64xi32>
      %b = vector.broadcast %y : vector<64xi32> to vector<64x64xi32>
      %c = arith.addi %a, %b : vector<64x64xi32>
      scf.yield %c : vector<64x64xi32>
    }
  }
  return
}

// The condition comes later, or is no comparison.
// CHECK-LABEL: func.func @unknown
// CHECK: vector.transfer_read
// CHECK: vector.transfer_read
// CHECK: tile.mma
// CHECK-NOT: vector.transfer_read
func.func @unknown(%ids: memref<?xi32>, %flags: memref<?xi32>, %k: memref<?x64xbf16>, %n: index, %some: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %one = arith.constant 1 : i32
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zeros = arith.constant dense<0> : vector<64xi32>
  scf.for %j = %c0 to %n step %c64 {
    %x = vector.transfer_read %ids[%j], %one : memref<?xi32>, vector<64xi32>
    %y = vector.transfer_read %ids[%j], %one : memref<?xi32>, vector<64xi32>
    %t = tile.load %k[%j, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %t, %t, %none : !tile, !tile, vector<64x64xf32>
    %flag = memref.load %flags[%j] : memref<?xi32>
    %full = arith.cmpi eq, %flag, %one : i32
    %r = scf.if %full -> (vector<64xi32>) {
      scf.yield %zeros : vector<64xi32>
    } else {
      %c = arith.addi %x, %x : vector<64xi32>
      scf.yield %c : vector<64xi32>
    }
    %q = scf.if %some -> (vector<64xi32>) {
      scf.yield %zeros : vector<64xi32>
    } else {
      %c = arith.addi %y, %y : vector<64xi32>
      scf.yield %c : vector<64xi32>
    }
  }
  return
}

// Used in two branches, in one of them within another one: each reads.
// CHECK-LABEL: func.func @several
// CHECK-NOT: vector.transfer_read
// CHECK: tile.mma
// CHECK: scf.if
// CHECK: } else {
// CHECK-NEXT: %[[IDS:.*]] = vector.transfer_read %arg0
// CHECK-NEXT: vector.broadcast %[[IDS]]
// CHECK: scf.if
// CHECK: } else {
// CHECK: } else {
// CHECK-NEXT: %[[IDS1:.*]] = vector.transfer_read %arg0
// CHECK-NEXT: vector.broadcast %[[IDS1]]
func.func @several(%ids: memref<?xi32>, %flags: memref<?xi32>, %k: memref<?x64xbf16>, %n: index, %some: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %one = arith.constant 1 : i32
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zeros = arith.constant dense<0> : vector<64x64xi32>
  scf.for %j = %c0 to %n step %c64 {
    %flag = memref.load %flags[%j] : memref<?xi32>
    %full = arith.cmpi eq, %flag, %one : i32
    %x = vector.transfer_read %ids[%j], %one : memref<?xi32>, vector<64xi32>
    %t = tile.load %k[%j, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %t, %t, %none : !tile, !tile, vector<64x64xf32>
    %r = scf.if %full -> (vector<64x64xi32>) {
      scf.yield %zeros : vector<64x64xi32>
    } else {
      %a = vector.broadcast %x : vector<64xi32> to vector<64x64xi32>
      scf.yield %a : vector<64x64xi32>
    }
    %both = arith.andi %full, %some : i1
    %q = scf.if %both -> (vector<64x64xi32>) {
      scf.yield %r : vector<64x64xi32>
    } else {
      %p = scf.if %full -> (vector<64x64xi32>) {
        scf.yield %r : vector<64x64xi32>
      } else {
        %a = vector.broadcast %x : vector<64xi32> to vector<64x64xi32>
        scf.yield %a : vector<64x64xi32>
      }
      scf.yield %p : vector<64x64xi32>
    }
  }
  return
}
