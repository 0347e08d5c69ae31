// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-create-launches))" | FileCheck %s
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-create-launches))" --remarks-filter=hopper-create-launches -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] created | Category:hopper-create-launches{{$}}

!tile = !tile.smem<64x64xbf16, swizzle = 128>
// A CTA for each tile, whose warpgroups are one role; it has what both loops have.
// CHECK-LABEL: func.func @tiles
// CHECK-SAME: %[[A:.*]]: memref<?x64xbf16>, %[[N:.*]]: index
// CHECK: %[[TILES:.*]] = arith.muli %[[N]], %c4
// CHECK: gpu.launch blocks(%[[B:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[TILES]],
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c384,
// CHECK-NEXT: hopper.roles
// CHECK-NEXT: role "compute" warpgroups(3) registers(168) (%[[W:.*]]) {
// CHECK-NEXT: %[[P:.*]]:2 = affine.delinearize_index %[[B]] into (%[[N]], 4)
// CHECK-NEXT: %[[R:.*]] = arith.addi %[[P]]#0, %[[P]]#1
// CHECK-NEXT: tile.load %[[A]][%[[R]], %{{.*}}]
// CHECK-NEXT: arith.addi %[[R]], %[[W]]
// CHECK-NOT: scf.forall
func.func @tiles(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  scf.forall (%i, %j) in (%n, 4) {
    %r = arith.addi %i, %j : index
    scf.forall (%w) in (3) {
      %t = tile.load %A[%r, %c0] : memref<?x64xbf16> -> !tile
      %s = arith.addi %r, %w : index
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

// What is the CTA's comes in front of the role, views of memory in front of the launch; the order of
// tiles is said of the launch.
// CHECK-LABEL: func.func @once
// CHECK: %[[VIEW:.*]] = memref.reinterpret_cast
// CHECK: gpu.launch
// CHECK: %[[ID:.*]] = hopper.named_barriers count(1)
// CHECK-NEXT: hopper.run_if any
// CHECK-NEXT: hopper.roles
// CHECK: tile.load %[[VIEW]]
// CHECK: hopper.barrier.sync %[[ID]] warpgroups(2)
// CHECK: {attn.descending}
!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @once(%A: memref<?x64xbf16>, %n: index, %flags: memref<?xi32>, %order: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (%n) {
    %id = hopper.named_barriers count(1)
    scf.forall (%w) in (2) {
      hopper.run_if any %flags : memref<?xi32>
      %at = memref.load %order[%i] : memref<?xindex>
      %B = memref.reinterpret_cast %A to offset: [0], sizes: [%n, 64], strides: [64, 1] : memref<?x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
      %t = tile.load %B[%at, %c0] : memref<?x64xbf16, strided<[64, 1]>> -> !tile
      hopper.barrier.sync %id warpgroups(2)
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  } {attn.descending}
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @undivided(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{expected rows divided among warpgroups (hopper-distribute-rows) before their roles}}
  scf.forall (%i) in (%n) {
    %t = tile.load %A[%i, %c0] : memref<?x64xbf16> -> !tile
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @steps(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{expected loops from 0 in steps of 1}}
  scf.forall (%i) = (0) to (%n) step (2) {
    scf.forall (%w) in (1) {
      %t = tile.load %A[%i, %c0] : memref<?x64xbf16> -> !tile
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @dynamic(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (%n) {
    // expected-error @+1 {{expected 1 to 3 warpgroups}}
    scf.forall (%w) in (%n) {
      %t = tile.load %A[%i, %c0] : memref<?x64xbf16> -> !tile
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @five(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (%n) {
    // expected-error @+1 {{expected 1 to 3 warpgroups}}
    scf.forall (%w) in (5) {
      %t = tile.load %A[%i, %c0] : memref<?x64xbf16> -> !tile
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @chosen(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  // expected-note @+1 {{chosen here}}
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (1) {
      %B = memref.reinterpret_cast %A to offset: [0], sizes: [%i, 64], strides: [64, 1] : memref<?x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
      // expected-error @+1 {{expects memory that no tile chooses}}
      %t = tile.load %B[%i, %c0] : memref<?x64xbf16, strided<[64, 1]>> -> !tile
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}
