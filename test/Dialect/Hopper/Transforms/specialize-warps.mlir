// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-create-launches,hopper-specialize-warps))" | FileCheck %s
// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-create-launches,hopper-specialize-warps{producer-registers=56}))" | FileCheck %s --check-prefix=ROOM
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-create-launches,hopper-specialize-warps{producer-registers=20}))" 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-create-launches,hopper-specialize-warps))" --remarks-filter=hopper-specialize-warps -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}5 [Passed] specialized | Category:hopper-specialize-warps{{$}}
// REMARKS-DAG: {{^ *}}7 [Passed] apart | Category:hopper-specialize-warps{{$}}
// FEW: error: a producer has a multiple of 8 between 24 and 128 registers, or 0 for those of the table; got 20
// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-create-launches,hopper-specialize-warps{occupancy=3}))" | FileCheck %s --check-prefix=THREE
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-create-launches,hopper-specialize-warps{occupancy=5}))" 2>&1 | FileCheck %s --check-prefix=MANY
// MANY: error: 1 to 4 CTAs share the registers of a multiprocessor, got 5
// Three CTAs of two warpgroups: their threads start with 80 each.
// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-create-launches,hopper-specialize-warps{adder-fences=false}))" | FileCheck %s --check-prefix=OWN
// THREE: role "load" warpgroups(1) registers(24)
// THREE: role "compute" warpgroups(1) registers(136)
// One consumer has 240 all the same; two would have 228, so 224.
// ROOM: role "load" warpgroups(1) registers(56)
// ROOM: role "compute" warpgroups(1) registers(240)

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>
// Without loads there is one role, and a CTA for each warpgroup, which has nothing to do with the
// other one.
// CHECK-LABEL: func.func @one_role
// CHECK: %[[TILES:.*]] = arith.muli %c4, %c2
// CHECK: gpu.launch blocks(%[[B:[^,]*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[TILES]],
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c128,
// CHECK-NOT: hopper.channel
// CHECK: hopper.roles
// CHECK-NEXT: role "compute" warpgroups(1) registers(240)
// CHECK-NEXT: %[[I:.*]]:2 = affine.delinearize_index %[[B]] into (4, 2)
// CHECK-NEXT: affine.apply #{{.*}}(%[[I]]#0)[%[[I]]#1]
func.func @one_role(%Y: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %v = arith.constant dense<1.0> : vector<64x64xf32>
  scf.forall (%i) in (4) {
    scf.forall (%w) in (2) {
      %r = affine.apply affine_map<(d0)[s0] -> (d0 * 128 + s0 * 64)>(%i)[%w]
      vector.transfer_write %v, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

// Warpgroups that agree on something stay in one CTA.
// CTAs of a launch that computes again have the tiles of the one in front of it: no CTA for each
// warpgroup, and all roles end.
// CHECK-LABEL: func.func @again
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c4,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c256,
// CHECK-NEXT: hopper.redo %arg1 always %arg2
// CHECK-NEXT: hopper.roles
// CHECK-NEXT: role "compute" warpgroups(2)
func.func @again(%Y: memref<?x64xf32>, %reports: memref<?xi32>, %always: i1) {
  %c0 = arith.constant 0 : index
  %v = arith.constant dense<1.0> : vector<64x64xf32>
  scf.forall (%i) in (4) {
    scf.forall (%w) in (2) {
      hopper.redo %reports always %always : memref<?xi32>
      %r = affine.apply affine_map<(d0)[s0] -> (d0 * 128 + s0 * 64)>(%i)[%w]
      vector.transfer_write %v, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}
// CHECK-LABEL: func.func @agreed
// CHECK: gpu.launch blocks(%[[B:[^,]*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c4,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c256,
// CHECK: %[[ID:.*]] = hopper.named_barriers count(1)
// CHECK: role "compute" warpgroups(2)
// CHECK-NOT: hopper.named_barriers
// CHECK: hopper.barrier.reduce any %{{.*}}, %[[ID]] warpgroups(2)
func.func @agreed(%X: memref<?x64xi1>, %Y: memref<?xi1>) {
  %c0 = arith.constant 0 : index
  %false = arith.constant false
  scf.forall (%i) in (4) {
    %id = hopper.named_barriers count(1)
    scf.forall (%w) in (2) {
      %r = affine.apply affine_map<(d0)[s0] -> (d0 * 128 + s0 * 64)>(%i)[%w]
      %x = vector.transfer_read %X[%r, %c0], %false {in_bounds = [false, true]} : memref<?x64xi1>, vector<64x64xi1>
      %any = hopper.barrier.reduce any %x, %id warpgroups(2) : vector<64x64xi1>
      memref.store %any, %Y[%i] : memref<?xi1>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
// The producer runs the loops and branches around a load, and reads what they need.
// CHECK-LABEL: func.func @branch
// CHECK: %[[C:.*]] = hopper.channel depth(1)
// CHECK: role "load" warpgroups(1) registers(24)
// CHECK: %[[P:.*]]:2 = affine.delinearize_index %{{.*}} into (%{{.*}}, 4)
// CHECK: memref.load %{{.*}}[%[[P]]#0]
// CHECK: scf.for
// CHECK-NEXT: scf.if
// CHECK-NEXT: hopper.send {{.*}} to %[[C]]
// CHECK-NOT: tile.mma
// CHECK: role "compute" warpgroups(1) registers(240)
// CHECK: scf.for
// CHECK-NEXT: scf.if
// CHECK-NEXT: %[[T:.*]] = hopper.receive %[[C]]
// CHECK-NEXT: tile.mma %[[T]], %[[T]]
// CHECK-NEXT: hopper.release %[[C]]
func.func @branch(%A: memref<?x64xbf16>, %n: index, %p: i1, %counts: memref<?xi32>, %acc: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%i, %j) in (%n, 4) {
    scf.forall (%w) in (1) {
      %count = memref.load %counts[%i] : memref<?xi32>
      %end = arith.index_cast %count : i32 to index
      scf.for %k = %c0 to %end step %c1 {
        scf.if %p {
          %t = tile.load %A[%k, %c0] : memref<?x64xbf16> -> !tile
          %y = tile.mma %t, %t, %acc : !tile, !tile, vector<64x64xf32>
        }
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @computed(%A: memref<?x64xbf16>, %n: index, %acc: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (1) {
      %t = tile.load %A[%i, %c0] : memref<?x64xbf16> -> !tile
      // expected-note @+1 {{computed here}}
      %y = tile.mma %t, %t, %acc : !tile, !tile, vector<64x64xf32>
      %e = vector.extract %y[0, 0] : f32 from vector<64x64xf32>
      %f = arith.fptosi %e : f32 to i32
      %at = arith.index_cast %f : i32 to index
      // expected-error @+1 {{cannot be done by the producer: it depends on a value that the consumers compute}}
      %u = tile.load %A[%at, %c0] : memref<?x64xbf16> -> !tile
      %z = tile.mma %t, %u, %y : !tile, !tile, vector<64x64xf32>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @while(%A: memref<?x64xbf16>, %n: index, %p: i1) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (1) {
      // expected-error @+1 {{what is inside of this op cannot be moved to the producer}}
      scf.while : () -> () { scf.condition(%p) } do {
        %t = tile.load %A[%i, %c0] : memref<?x64xbf16> -> !tile
        scf.yield
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @carried(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (1) {
      %r = scf.for %j = %c0 to %n step %c1 iter_args(%at = %c0) -> (index) {
        // expected-error @+1 {{cannot be done by the producer: it depends on a value that the consumers compute}}
        %t = tile.load %A[%at, %c0] : memref<?x64xbf16> -> !tile
        %next = arith.addi %at, %j : index
        scf.yield %next : index
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
func.func @written(%A: memref<?x64xbf16>, %n: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (1) {
      memref.store %i, %X[%c0] : memref<?xindex>
      // expected-note @+1 {{read here}}
      %at = memref.load %X[%c0] : memref<?xindex>
      // expected-error @+1 {{cannot be done by the producer: it depends on memory that the consumers write}}
      %t = tile.load %A[%at, %c0] : memref<?x64xbf16> -> !tile
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
// A view of memory in the branch that reads it: the host has it, too.
// CHECK-LABEL: func.func @view
// CHECK: %[[VIEW:.*]] = memref.reinterpret_cast %arg0
// CHECK: gpu.launch
// CHECK: scf.if
// CHECK: hopper.send %[[VIEW]]
func.func @view(%A: memref<?x64xbf16>, %n: index, %p: i1) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (1) {
      scf.if %p {
        %half = arith.minsi %n, %c0 : index
        %B = memref.reinterpret_cast %A to offset: [0], sizes: [%half, 64], strides: [64, 1] : memref<?x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
        %t = tile.load %B[%i, %c0] : memref<?x64xbf16, strided<[64, 1]>> -> !tile
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
// Sums that two warpgroups have columns of: they write their parts, and a thread beside the
// producer adds the whole.
// CHECK-LABEL: func.func @columns
// CHECK-SAME: %{{.*}}, %[[Y:[a-z0-9]*]]: memref<?x128xf32>
// CHECK: %[[SUMS:.*]] = hopper.channel depth(1) : <<64x128xf32, swizzle = 128>>
// CHECK: role "load" warpgroups(1) registers(24)
// CHECK: role "add" warpgroups(0) registers(24)
// CHECK: %[[LINE:.*]] = affine.delinearize_index
// CHECK: scf.for %[[I:.*]] =
// CHECK: %[[T:.*]] = hopper.receive %[[SUMS]]
// CHECK-NEXT: hopper.fence.async
// CHECK-NEXT: hopper.add %[[T]] to %[[Y]][%[[I]], %{{.*}}]
// CHECK-NEXT: hopper.tma.wait pending(0) read
// CHECK-NEXT: hopper.release %[[SUMS]]
// CHECK-NEXT: {hopper.adding}
// CHECK: hopper.tma.wait pending(0){{$}}
// CHECK: role "compute" warpgroups(2) registers(240) (%[[W:.*]])
// CHECK: %[[T:.*]] = hopper.acquire %[[SUMS]]
// CHECK: %[[FIRST:.*]] = arith.muli %[[W]], %c64{{.*}}
// CHECK: %[[PART:.*]] = tile.columns %[[T]][%[[FIRST]]] : <64x128xf32, swizzle = 128> -> <64x64xf32, swizzle = 128>
// CHECK: tile.write %{{.*}} to %[[PART]]
// CHECK-NEXT: hopper.commit %[[SUMS]]
// The fence may be that of the writers.
// OWN-LABEL: func.func @columns
// OWN: role "add"
// OWN: hopper.receive
// OWN-NEXT: hopper.add
// OWN: tile.write
// OWN-NEXT: hopper.fence.async
// OWN-NEXT: hopper.commit
func.func @columns(%A: memref<?x64xbf16>, %Y: memref<?x128xf32>, %n: index, %v: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      %column = arith.muli %w, %c64 : index
      scf.for %j = %c0 to %n step %c64 {
        %t = tile.load %A[%j, %c0] : memref<?x64xbf16> -> !tile
        attn.tile_add %v into %Y[%j, %column] : vector<64x64xf32>, memref<?x128xf32>
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

// Rows, of a view of memory; nothing is loaded.
// CHECK-LABEL: func.func @rows
// CHECK: role "add" warpgroups(1) registers(24)
// CHECK: hopper.add %{{.*}} to %arg0[%{{.*}}, %{{.*}}, %{{.*}}] : <128x32xf32, swizzle = 128>, memref<?x?x32xf32>
// CHECK: role "compute" warpgroups(2) registers(240)
// CHECK: tile.rows %{{.*}} : <128x32xf32, swizzle = 128> -> <64x32xf32, swizzle = 128, slab_rows = 128>
func.func @rows(%Y: memref<?x?x32xf32>, %n: index, %v: vector<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  scf.forall (%i) in (%n) {
    %view = memref.subview %Y[%i, 0, 0] [1, %n, 32] [1, 1, 1] : memref<?x?x32xf32> to memref<1x?x32xf32, strided<[?, 32, 1], offset: ?>>
    scf.forall (%w) in (2) {
      %own = arith.muli %w, %c64 : index
      scf.for %j = %c0 to %n step %c128 {
        %row = arith.addi %j, %own : index
        attn.tile_add %v into %view[%c0, %row, %c0] : vector<64x32xf32>, memref<1x?x32xf32, strided<[?, 32, 1], offset: ?>>
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

// Threads add what no loop does, or what has other columns.
// CHECK-LABEL: func.func @by_threads
// CHECK-NOT: role "add"
// CHECK: attn.tile_add
// CHECK: attn.tile_add
func.func @by_threads(%Y: memref<?x128xf32>, %n: index, %v: vector<64x64xf32>, %u: vector<64x24xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      %column = arith.muli %w, %c64 : index
      attn.tile_add %v into %Y[%i, %column] : vector<64x64xf32>, memref<?x128xf32>
      scf.for %j = %c0 to %n step %c64 {
        attn.tile_add %u into %Y[%j, %column] : vector<64x24xf32>, memref<?x128xf32>
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
// A producer that computes bounds with all its warps has none to spare.
// CHECK-LABEL: func.func @busy_producer
// CHECK: %[[THREADS:.*]] = arith.constant 512 : index
// CHECK: gpu.launch {{.*}} threads({{.*}}) in (%{{.*}} = %[[THREADS]],
// CHECK: role "load" warpgroups(1) registers(24)
// CHECK: vector.reduction
// CHECK: role "add" warpgroups(1) registers(24)
// CHECK: role "compute" warpgroups(2) registers(232)
func.func @busy_producer(%A: memref<?x64xbf16>, %Y: memref<?x128xf32>, %ends: memref<?xindex>, %n: index, %v: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      %column = arith.muli %w, %c64 : index
      %each = vector.transfer_read %ends[%i], %c0 : memref<?xindex>, vector<64xindex>
      %end = vector.reduction <maxsi>, %each : vector<64xindex> into index
      scf.for %j = %c0 to %end step %c64 {
        %t = tile.load %A[%j, %c0] : memref<?x64xbf16> -> !tile
        attn.tile_add %v into %Y[%j, %column] : vector<64x64xf32>, memref<?x128xf32>
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

// What only moves and computes: 128 registers per thread where its tiles leave it that, and as many
// as it needs where they are wide or written again.
// CHECK-LABEL: func.func @few
// CHECK: role "compute" warpgroups(1) registers(128)
// CHECK: role "compute" warpgroups(1) registers(240)
// CHECK: role "compute" warpgroups(1) registers(240)
// CHECK: role "compute" warpgroups(1) registers(128)
func.func @few(%n: index, %X: memref<?x128xbf16>, %Y: memref<?xf32>, %Z: memref<?x256xbf16>, %W: memref<?x128xbf16>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %zeros = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      %r = affine.apply affine_map<(d0, d1) -> (d0 * 128 + d1 * 64)>(%i, %w)
      %x = vector.transfer_read %X[%r, %c0], %zero {in_bounds = [false, true]} : memref<?x128xbf16>, vector<64x128xbf16>
      %f = arith.extf %x : vector<64x128xbf16> to vector<64x128xf32>
      %s = vector.multi_reduction <add>, %f, %zeros [1] : vector<64x128xf32> to vector<64xf32>
      vector.transfer_write %s, %Y[%r] : vector<64xf32>, memref<?xf32>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      %r = affine.apply affine_map<(d0, d1) -> (d0 * 128 + d1 * 64)>(%i, %w)
      %x = vector.transfer_read %Z[%r, %c0], %zero {in_bounds = [false, true]} : memref<?x256xbf16>, vector<64x256xbf16>
      %f = arith.extf %x : vector<64x256xbf16> to vector<64x256xf32>
      %s = vector.multi_reduction <add>, %f, %zeros [1] : vector<64x256xf32> to vector<64xf32>
      vector.transfer_write %s, %Y[%r] : vector<64xf32>, memref<?xf32>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      %r = affine.apply affine_map<(d0, d1) -> (d0 * 128 + d1 * 64)>(%i, %w)
      %x = vector.transfer_read %X[%r, %c0], %zero {in_bounds = [false, true]} : memref<?x128xbf16>, vector<64x128xbf16>
      vector.transfer_write %x, %W[%r, %c0] {in_bounds = [false, true]} : vector<64x128xbf16>, memref<?x128xbf16>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (3) {
      %r = affine.apply affine_map<(d0, d1) -> (d0 * 192 + d1 * 64)>(%i, %w)
      %x = vector.transfer_read %X[%r, %c0], %zero {in_bounds = [false, true]} : memref<?x128xbf16>, vector<64x128xbf16>
      %f = arith.extf %x : vector<64x128xbf16> to vector<64x128xf32>
      %s = vector.multi_reduction <add>, %f, %zeros [1] : vector<64x128xf32> to vector<64xf32>
      vector.transfer_write %s, %Y[%r] : vector<64xf32>, memref<?xf32>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
// A launch that is written by hand: the host has no memory of its own.
func.func @inside(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %A = memref.alloca() : memref<64x64xbf16>
        // expected-error @+1 {{expects memory from outside of the launch}}
        %t = tile.load %A[%c0, %c0] : memref<64x64xbf16> -> !tile
      }
    gpu.terminator
  }
  return
}

// -----

// The number of a CTA need not be divided into coordinates: each tile has as many CTAs as it had
// warpgroups.
// CHECK-LABEL: func.func @linear
// CHECK: gpu.launch blocks(%[[B:[^,]*]], %{{.*}}, %{{.*}}) in
// CHECK: role "compute" warpgroups(1)
// CHECK-NEXT: %[[I:.*]]:2 = affine.delinearize_index %[[B]] into (%arg0, 2)
// CHECK-NEXT: arith.addi %[[I]]#0, %[[I]]#1
func.func @linear(%n: index, %X: memref<?xindex>) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %at = arith.addi %bx, %w : index
        memref.store %at, %X[%at] : memref<?xindex>
      }
    gpu.terminator
  }
  return
}
