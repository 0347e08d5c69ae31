// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-expand-channels{stages=3},canonicalize))" | FileCheck %s
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-expand-channels{stages=0}))" 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-expand-channels{stages=3},canonicalize))" --remarks-filter=hopper-expand-channels -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}13 [Passed] expanded | Category:hopper-expand-channels{{$}}
// STAGES: error: expected at least 1 stage, got 0

// Depths: `stages` in a loop, and two outside where they fit. Stage and phase go on
// through loops and branches, and start where a fresh barrier lets the producer pass.
// CHECK-LABEL: func.func @rings
// CHECK: %[[MQ:.*]] = hopper.tensor_map
// CHECK: %[[MK:.*]] = hopper.tensor_map
// CHECK: gpu.launch
// CHECK-DAG: %[[Q:.*]] = hopper.alloc : <2x128x64xbf16, swizzle = 128>
// CHECK-DAG: %[[K:.*]] = hopper.alloc : <3x64x64xbf16, swizzle = 128>
// CHECK: role "load"
// CHECK: scf.for {{.*}} iter_args(%[[S:.*]] = %{{.*}}, %[[P:.*]] = %c1_i32
// CHECK: scf.if {{.*}} -> (index, i32)
// CHECK: hopper.mbarrier.wait %[[EMPTY:.*]][%[[S]]], %[[P]] : <3>
// CHECK-NEXT: hopper.mbarrier.expect %[[FULL:.*]][%[[S]]] bytes(8192) : <3>
// CHECK-NEXT: %[[SLOT:.*]] = hopper.slot %{{.*}}[%[[S]]]
// CHECK-NEXT: hopper.tma.load %{{.*}} to %[[SLOT]], %[[FULL]][%[[S]]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[S]], %[[P]]
// CHECK: role "compute"
// CHECK: hopper.mbarrier.wait %[[FULLQ:.*]][%{{.*}}], %c0_i32
// CHECK: scf.for {{.*}} iter_args(%[[T:.*]] = %{{.*}}, %[[F:.*]] = %c0_i32
// CHECK: hopper.mbarrier.wait %[[FULL]][%[[T]]], %[[F]] : <3>
// CHECK: hopper.mbarrier.arrive %[[EMPTY]][%[[T]]] : <3>
!q = !tile.smem<128x64xbf16, swizzle = 128>
!k = !tile.smem<64x64xbf16, swizzle = 128>
func.func @rings(%Q: memref<?x64xbf16>, %K: memref<?x64xbf16>, %n: index, %p: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c384 = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c384, %sy = %c1, %sz = %c1) {
    %cq = hopper.channel depth(1) : !hopper.channel<!q>
    %ck = hopper.channel depth(1) : !hopper.channel<!k>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %Q[%bx, %c0] to %cq : memref<?x64xbf16>, !hopper.channel<!q>
        scf.for %j = %c0 to %n step %c1 {
          scf.if %p {
            hopper.send %K[%j, %c0] to %ck : memref<?x64xbf16>, !hopper.channel<!k>
          }
        }
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %tq = hopper.receive %cq : !hopper.channel<!q> -> !q
        scf.for %j = %c0 to %n step %c1 {
          scf.if %p {
            %tk = hopper.receive %ck : !hopper.channel<!k> -> !k
            hopper.release %ck : !hopper.channel<!k>
          }
        }
        hopper.release %cq : !hopper.channel<!q>
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<128x64xbf16, swizzle = 128>
!acc = vector<64x128xf32>
!ch = !hopper.channel<!tile>
func.func @never_received(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    // expected-error @+1 {{expected one role that sends to this channel and some that receive, got 1 and 0}}
    %c = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %A[%c0, %c0] to %c : memref<?x64xbf16>, !ch
      }
      role "compute" warpgroups(1) registers(240) (%w) {
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<128x64xbf16, swizzle = 128>
!ch = !hopper.channel<!tile>
func.func @two_receivers(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %A[%c0, %c0] to %c : memref<?x64xbf16>, !ch
      }
      role "one" warpgroups(1) registers(240) (%w) {
        %t = hopper.receive %c : !ch -> !tile
        hopper.release %c : !ch
      }
      role "two" warpgroups(1) registers(240) (%w) {
        %t = hopper.receive %c : !ch -> !tile
        hopper.release %c : !ch
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<128x64xbf16, swizzle = 128>
!ch = !hopper.channel<!tile>
func.func @never_sent(%A: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    // expected-error @+1 {{expected one role that sends to this channel and some that receive, got 0 and 1}}
    %c = hopper.channel depth(1) : !ch
    hopper.roles
      role "one" warpgroups(1) registers(240) (%w) {
        %t = hopper.receive %c : !ch -> !tile
        hopper.release %c : !ch
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<128x64xbf16, swizzle = 128>
!ch = !hopper.channel<!tile>
func.func @inside(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) : !ch
    %A = memref.alloca() : memref<128x64xbf16>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        // expected-error @+1 {{copies from a memref that is made inside of the launch}}
        hopper.send %A[%c0, %c0] to %c : memref<128x64xbf16>, !ch
      }
      role "one" warpgroups(1) registers(240) (%w) {
        %t = hopper.receive %c : !ch -> !tile
        hopper.release %c : !ch
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<128x64xbf16, swizzle = 128>
!ch = !hopper.channel<!tile>
func.func @while(%A: memref<?x64xbf16>, %n: index, %p: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        // expected-error @+1 {{channels cannot be used inside of this op}}
        scf.while : () -> () { scf.condition(%p) } do {
          hopper.send %A[%c0, %c0] to %c : memref<?x64xbf16>, !ch
          scf.yield
        }
      }
      role "one" warpgroups(1) registers(240) (%w) {
        %t = hopper.receive %c : !ch -> !tile
        hopper.release %c : !ch
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<128x64xbf16, swizzle = 128>
!ch = !hopper.channel<!tile>
func.func @releases(%A: memref<?x64xbf16>, %n: index, %p: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
          hopper.send %A[%c0, %c0] to %c : memref<?x64xbf16>, !ch
      }
      role "one" warpgroups(1) registers(240) (%w) {
        %t = hopper.receive %c : !ch -> !tile
        scf.if %p {
          // expected-error @+1 {{no tile of this channel has been received in this block and not been released}}
          hopper.release %c : !ch
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<256x256xbf16, swizzle = 128>
!ch = !hopper.channel<!tile>
func.func @large(%A: memref<?x256xbf16>, %n: index, %p: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  // expected-error @+1 {{needs 263168 bytes of shared memory, a CTA has 232448; use smaller tiles}}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    // expected-note @+1 {{131072 bytes here}}
    %c = hopper.channel depth(1) : !ch
    // expected-note @+1 {{131072 bytes here}}
    %d = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
          hopper.send %A[%c0, %c0] to %c : memref<?x256xbf16>, !ch
          hopper.send %A[%c0, %c0] to %d : memref<?x256xbf16>, !ch
      }
      role "one" warpgroups(1) registers(240) (%w) {
        %t = hopper.receive %c : !ch -> !tile
        hopper.release %c : !ch
        %u = hopper.receive %d : !ch -> !tile
        hopper.release %d : !ch
      }
    gpu.terminator
  }
  return
}

// -----

// A row comes along with the tile in front of it: one pair of barriers for both. What is
// read to registers is given back behind a fence.
// CHECK-LABEL: func.func @follower
// CHECK: hopper.alloc : <3x64x64xbf16, swizzle = 128>
// CHECK-NEXT: hopper.mbarrier arrivals(1)
// CHECK-NEXT: hopper.mbarrier arrivals(1)
// CHECK-NEXT: %[[L:.*]] = hopper.alloc : <3x1x64xf32>
// CHECK-NOT: hopper.mbarrier arrivals
// CHECK: role "load"
// CHECK: hopper.mbarrier.wait %[[EMPTY:.*]][%[[S:.*]]],
// CHECK-NEXT: hopper.mbarrier.expect %[[FULL:.*]][%[[S]]] bytes(8448) : <3>
// CHECK: hopper.tma.load %{{.*}}, %[[FULL]][%[[S]]] : {{.*}}<64x64xbf16
// CHECK: %[[SLOT:.*]] = hopper.slot %[[L]][%[[S]]]
// CHECK-NEXT: hopper.tma.load %{{.*}} to %[[SLOT]], %[[FULL]][%[[S]]] : {{.*}}<1x64xf32>
// CHECK: role "compute"
// CHECK: hopper.mbarrier.wait %[[FULL]][%[[T:.*]]],
// CHECK-NOT: hopper.mbarrier.wait
// CHECK: %[[ROW:.*]] = hopper.slot %[[L]][%[[T]]]
// CHECK-NEXT: tile.read %[[ROW]]
// CHECK-NEXT: vector.transfer_write
// CHECK-NEXT: hopper.fence.async
// CHECK-NEXT: hopper.mbarrier.arrive %[[EMPTY]][%[[T]]]
// CHECK-NOT: hopper.mbarrier.arrive
!k = !tile.smem<64x64xbf16, swizzle = 128>
!l = !tile.smem<1x64xf32>
func.func @follower(%K: memref<?x64xbf16>, %L: memref<?x64xf32>, %out: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %ck = hopper.channel depth(1) : !hopper.channel<!k>
    %cl = hopper.channel depth(1) : !hopper.channel<!l>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %j = %c0 to %n step %c1 {
          hopper.send %K[%j, %c0] to %ck : memref<?x64xbf16>, !hopper.channel<!k>
          hopper.send %L[%j, %c0] to %cl : memref<?x64xf32>, !hopper.channel<!l>
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        scf.for %j = %c0 to %n step %c1 {
          %tk = hopper.receive %ck : !hopper.channel<!k> -> !k
          %tl = hopper.receive %cl : !hopper.channel<!l> -> !l
          %v = tile.read %tl : !l -> vector<64xf32>
          vector.transfer_write %v, %out[%j] : vector<64xf32>, memref<?xf32>
          hopper.release %cl : !hopper.channel<!l>
          hopper.release %ck : !hopper.channel<!k>
        }
      }
    gpu.terminator
  }
  return
}

// -----

// What the CTAs of a cluster share: each copies its parts to all, tells all that a tile may be
// filled again, and ends after all. A row that comes along is copied by each for itself.
// CHECK-LABEL: func.func @multicast
// CHECK-DAG: %[[MV:.*]] = hopper.tensor_map %{{.*}} : memref<?x?xf32> -> <<1x64xf32>, rank = 2>
// CHECK-DAG: %[[MK:.*]] = hopper.tensor_map %{{.*}} : memref<?x64xbf16> -> <<32x64xbf16, swizzle = 128>, rank = 2>
// CHECK: gpu.launch clusters({{[^)]*}}) in (%{{[a-z0-9]+}} = %[[SIZE:[a-z0-9]+]],
// CHECK: %[[FULL:.*]] = hopper.mbarrier arrivals(1) : <3>
// CHECK: %[[EMPTY:.*]] = hopper.mbarrier arrivals(2) cluster : <3>
// CHECK: hopper.mbarrier.wait %[[EMPTY]]
// CHECK-NEXT: hopper.mbarrier.expect %[[FULL]][%[[S:.*]]] bytes(8448)
// CHECK-NEXT: %[[TILE:.*]] = hopper.slot
// CHECK-NEXT: %[[RANK:.*]] = gpu.cluster_block_id x
// CHECK-NEXT: scf.for %[[PART:.*]] = %[[RANK]] to %c2 step %[[SIZE]] {
// CHECK-NEXT: %[[FIRST:.*]] = arith.muli %[[PART]], %c32
// CHECK-NEXT: %[[ROW:.*]] = arith.addi %{{.*}}, %[[FIRST]]
// CHECK-NEXT: %[[ROWS:.*]] = tile.rows %[[TILE]][%[[FIRST]]]
// CHECK-NEXT: hopper.tma.load %[[MK]][%[[ROW]], %c0] to %[[ROWS]], %[[FULL]][%[[S]]] multicast
// CHECK-NEXT: }
// CHECK: hopper.tma.load %[[MV]][%c0, %{{.*}}] to %{{.*}}, %[[FULL]][%[[S]]] : <<1x64xf32>
// CHECK: role "compute"
// CHECK: hopper.mbarrier.arrive %[[EMPTY]][%{{.*}}] cluster
// CHECK: hopper.cluster.sync
// CHECK-NEXT: gpu.terminator
!k = !tile.smem<64x64xbf16, swizzle = 128>
!v = !tile.smem<1x64xf32>
func.func @multicast(%K: memref<?x64xbf16>, %V: memref<?x?xf32>, %n: index, %size: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c384 = arith.constant 384 : index
  gpu.launch clusters(%cx, %cy, %cz) in (%nx = %size, %ny = %c1, %nz = %c1)
             blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c384, %sy = %c1, %sz = %c1) {
    %ck = hopper.channel depth(1) multicast(2) : !hopper.channel<!k>
    %cv = hopper.channel depth(1) : !hopper.channel<!v>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %j = %c0 to %n step %c1 {
          hopper.send %K[%j, %c0] to %ck : memref<?x64xbf16>, !hopper.channel<!k>
          hopper.send %V[%c0, %j] to %cv : memref<?x?xf32>, !hopper.channel<!v>
        }
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        scf.for %j = %c0 to %n step %c1 {
          %tk = hopper.receive %ck : !hopper.channel<!k> -> !k
          %tv = hopper.receive %cv : !hopper.channel<!v> -> !v
          hopper.release %cv : !hopper.channel<!v>
          hopper.release %ck : !hopper.channel<!k>
        }
      }
    gpu.terminator
  }
  return
}

// -----

!k = !tile.smem<64x64xbf16, swizzle = 128>
func.func @no_clusters(%K: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    // expected-error @+1 {{expected a launch in clusters}}
    %ck = hopper.channel depth(1) multicast(2) : !hopper.channel<!k>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %K[%c0, %c0] to %ck : memref<?x64xbf16>, !hopper.channel<!k>
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %tk = hopper.receive %ck : !hopper.channel<!k> -> !k
        hopper.release %ck : !hopper.channel<!k>
      }
    gpu.terminator
  }
  return
}

// -----

// Columns of a tile that are read to registers are a read of the tile.
// CHECK-LABEL: func.func @columns
// CHECK: tile.read
// CHECK: hopper.fence.async
// CHECK-NEXT: hopper.mbarrier.arrive
!k = !tile.smem<64x128xbf16, swizzle = 128>
!c = !tile.smem<64x64xbf16, swizzle = 128>
func.func @columns(%K: memref<?x128xbf16>, %out: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %ck = hopper.channel depth(1) : !hopper.channel<!k>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %j = %c0 to %n step %c1 {
          hopper.send %K[%j, %c0] to %ck : memref<?x128xbf16>, !hopper.channel<!k>
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        scf.for %j = %c0 to %n step %c1 {
          %tk = hopper.receive %ck : !hopper.channel<!k> -> !k
          %tc = tile.columns %tk[%c64] : !k -> !c
          %v = tile.read %tc : !c -> vector<64x64xbf16>
          vector.transfer_write %v, %out[%j, %c0] : vector<64x64xbf16>, memref<?x64xbf16>
          hopper.release %ck : !hopper.channel<!k>
        }
      }
    gpu.terminator
  }
  return
}

// -----

// What registers fill is full when both warpgroups have committed it; its addition gets a map.
// CHECK-LABEL: func.func @sums
// CHECK: %[[MAP:.*]] = hopper.tensor_map %arg0 : memref<?x128xf32> -> <<64x128xf32, swizzle = 128>, rank = 2>
// CHECK: %[[RING:.*]] = hopper.alloc : <2x64x128xf32, swizzle = 128>
// CHECK: %[[FULL:.*]] = hopper.mbarrier arrivals(2) : <2>
// CHECK: %[[EMPTY:.*]] = hopper.mbarrier arrivals(1) : <2>
// CHECK: role "add"
// CHECK: hopper.mbarrier.wait %[[FULL]]
// CHECK: %[[T:.*]] = hopper.slot %[[RING]]
// CHECK: hopper.tma.reduce %[[T]] to %[[MAP]][
// CHECK: hopper.mbarrier.arrive %[[EMPTY]]
// CHECK: role "compute"
// CHECK: scf.for {{.*}} iter_args(%[[STAGE:.*]] = %c0{{.*}}, %[[PHASE:.*]] = %c1_i32{{.*}})
// CHECK-NEXT: hopper.mbarrier.wait %[[EMPTY]][%[[STAGE]]], %[[PHASE]]
// CHECK-NEXT: hopper.slot %[[RING]][%[[STAGE]]]
// CHECK: tile.write
// CHECK: hopper.mbarrier.arrive %[[FULL]][%[[STAGE]]]
!sum = !tile.smem<64x128xf32, swizzle = 128>
!part = !tile.smem<64x64xf32, swizzle = 128>
func.func @sums(%Y: memref<?x128xf32>, %n: index, %v: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c384 = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c384, %sy = %c1, %sz = %c1) {
    %cs = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        scf.for %j = %c0 to %n step %c1 {
          %t = hopper.receive %cs : !hopper.channel<!sum> -> !sum
          hopper.add %t to %Y[%j, %c0] : !sum, memref<?x128xf32>
          hopper.tma.wait pending(0) read
          hopper.release %cs : !hopper.channel<!sum>
        }
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %first = arith.muli %w, %c64 : index
        scf.for %j = %c0 to %n step %c1 {
          %t = hopper.acquire %cs : !hopper.channel<!sum> -> !sum
          %p = tile.columns %t[%first] : !sum -> !part
          tile.write %v to %p : vector<64x64xf32>, !part
          hopper.fence.async
          hopper.commit %cs : !hopper.channel<!sum>
        }
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>
func.func @not_acquired(%n: index) {
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %cs = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %t = hopper.receive %cs : !hopper.channel<!sum> -> !sum
        hopper.release %cs : !hopper.channel<!sum>
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %t = hopper.acquire %cs : !hopper.channel<!sum> -> !sum
        hopper.commit %cs : !hopper.channel<!sum>
        // expected-error @+1 {{no tile of this channel has been acquired in this block and not been committed}}
        hopper.commit %cs : !hopper.channel<!sum>
      }
    gpu.terminator
  }
  return
}

// -----

// Where rows may be dropped, a second map has boxes of one row.
// CHECK-LABEL: func.func @dropped_rows(
// CHECK-DAG: %[[MAP:.*]] = hopper.tensor_map %[[X:.*]] : memref<?x64xbf16> -> <<64x64xbf16, swizzle = 128>, rank = 2>
// CHECK-DAG: %[[ROW:.*]] = hopper.tensor_map %[[X]] : memref<?x64xbf16> -> <<1x64xbf16, swizzle = 128>, rank = 2>
// CHECK: hopper.mbarrier.expect %[[FULL:.*]][%{{.*}}] bytes(8192)
// CHECK: hopper.tma.load %[[MAP]][%{{.*}}, %c0] without(%[[MARKS:.*]], %[[GROUPS:.*]], %[[ROW]] : {{.*}}) if %[[SOME:.*]] to %{{.*}}, %[[FULL]]
!tile = !tile.smem<64x64xbf16, swizzle = 128>
!ch = !hopper.channel<!tile>
func.func @dropped_rows(%X: memref<?x64xbf16>, %marks: memref<?xbf16>, %groups: memref<?xbf16>, %n: index, %some: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %i = %c0 to %n step %c64 {
          hopper.send %X[%i, %c0] without(%marks, %groups : memref<?xbf16>, memref<?xbf16>) if %some to %c : memref<?x64xbf16>, !ch
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        scf.for %i = %c0 to %n step %c64 {
          %t = hopper.receive %c : !ch -> !tile
          hopper.release %c : !ch
        }
      }
    gpu.terminator
  }
  return
}
