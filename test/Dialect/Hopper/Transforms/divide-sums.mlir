// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-divide-sums))" | FileCheck %s
// RUN: attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-divide-sums{columns=512}))" | FileCheck %s --check-prefix=WIDE
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-divide-sums))" --remarks-filter=hopper-divide-sums -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// RUN: sed 's/role "compute"/role "work"/' %s | not attn-opt -split-input-file -pass-pipeline="builtin.module(func.func(hopper-divide-sums))" -o /dev/null 2>&1 | FileCheck %s --check-prefix=NAMES
// NAMES: error: 'hopper.roles' op expected the role that computes to be the last one
// REMARKS-DAG: {{^ *}}1 [Passed] divided | Category:hopper-divide-sums{{$}}
!tile = !tile.smem<64x256xbf16, swizzle = 128>
!ch = !hopper.channel<!tile>
!acc = vector<64x256xf32>

// What both sums need is computed by the first role and handed over; each role receives what it
// reads, gives it back behind its own last use, and writes its own sum.
// CHECK-LABEL: func.func @divided
// CHECK: gpu.launch {{.*}} threads(%{{.*}}) in (%{{.*}} = %c384,
// CHECK: %[[KEYS:.*]] = hopper.channel
// CHECK: %[[QUERIES:.*]] = hopper.channel
// CHECK: %[[OTHERS:.*]] = hopper.channel
// CHECK: %[[HANDED:.*]] = hopper.channel depth(1) : <<64x64xf32>>
// CHECK: role "load" warpgroups(1) registers(24)
// CHECK: role "compute first" warpgroups(1) registers(240)
// CHECK: %[[K:.*]] = hopper.receive %[[KEYS]]
// CHECK: %[[R:.*]]:2 = scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}})
// CHECK-NEXT: %[[Q:.*]] = hopper.receive %[[QUERIES]]
// CHECK-NEXT: %[[S:.*]] = tile.mma %[[K]], %[[Q]], %{{.*}} transposeB
// CHECK-NEXT: hopper.release %[[QUERIES]]
// CHECK-NEXT: %[[P:.*]] = math.exp2 %[[S]]
// CHECK-NEXT: %[[SLOT:.*]] = hopper.acquire %[[HANDED]]
// CHECK-NEXT: tile.write %[[P]] to %[[SLOT]]
// CHECK-NEXT: hopper.commit %[[HANDED]]
// CHECK-NEXT: %[[L:.*]] = arith.truncf %[[P]]
// CHECK-NEXT: %[[O:.*]] = hopper.receive %[[OTHERS]]
// CHECK-NEXT: %[[SUM:.*]] = tile.mma %[[L]], %[[O]], %[[A]]
// CHECK-NEXT: hopper.release %[[OTHERS]]
// CHECK-NEXT: scf.yield %[[SUM]], %[[B]]
// CHECK: hopper.release %[[KEYS]]
// CHECK: vector.transfer_write %[[R]]#0, %arg4
// CHECK-NOT: vector.transfer_write
// CHECK: role "compute second" warpgroups(1) registers(240)
// CHECK: %[[K:.*]] = hopper.receive %[[KEYS]]
// CHECK: %[[R:.*]]:2 = scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}})
// CHECK-NEXT: %[[Q:.*]] = hopper.receive %[[QUERIES]]
// CHECK-NEXT: %[[SLOT:.*]] = hopper.receive %[[HANDED]]
// CHECK-NEXT: %[[P:.*]] = tile.read %[[SLOT]]
// CHECK-NEXT: hopper.release %[[HANDED]]
// CHECK-NEXT: %[[O:.*]] = hopper.receive %[[OTHERS]]
// CHECK-NEXT: %[[DP:.*]] = tile.mma %[[K]], %[[O]], %{{.*}} transposeB
// CHECK-NEXT: hopper.release %[[OTHERS]]
// CHECK-NEXT: %[[D:.*]] = arith.mulf %[[P]], %[[DP]]
// CHECK-NEXT: %[[L:.*]] = arith.truncf %[[D]]
// CHECK-NEXT: %[[SUM:.*]] = tile.mma %[[L]], %[[Q]], %[[B]]
// CHECK-NEXT: hopper.release %[[QUERIES]]
// CHECK-NEXT: scf.yield %[[A]], %[[SUM]]
// CHECK: vector.transfer_write %[[R]]#1, %arg5
// CHECK-NOT: vector.transfer_write
// One warpgroup holds them.
// WIDE-LABEL: func.func @divided
// WIDE: role "compute" warpgroups(1)
// WIDE-NOT: first
func.func @divided(%n: index, %K: memref<?x256xbf16>, %Q: memref<?x256xbf16>, %O: memref<?x256xbf16>, %V: memref<?x256xf32>, %W: memref<?x256xf32>,
                   %zero: !acc, %none: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %keys = hopper.channel depth(1) : !ch
    %queries = hopper.channel depth(1) : !ch
    %others = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %K[%bx, %c0] to %keys : memref<?x256xbf16>, !ch
        scf.for %i = %c0 to %n step %c1 {
          hopper.send %Q[%i, %c0] to %queries : memref<?x256xbf16>, !ch
          hopper.send %O[%i, %c0] to %others : memref<?x256xbf16>, !ch
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %k = hopper.receive %keys : !ch -> !tile
        %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %zero) -> (!acc, !acc) {
          %q = hopper.receive %queries : !ch -> !tile
          %s = tile.mma %k, %q, %none transposeB : !tile, !tile, vector<64x64xf32>
          %p = math.exp2 %s : vector<64x64xf32>
          %l = arith.truncf %p : vector<64x64xf32> to vector<64x64xbf16>
          %o = hopper.receive %others : !ch -> !tile
          %x = tile.mma %l, %o, %a : vector<64x64xbf16>, !tile, !acc
          %dp = tile.mma %k, %o, %none transposeB : !tile, !tile, vector<64x64xf32>
          hopper.release %others : !ch
          %d = arith.mulf %p, %dp : vector<64x64xf32>
          %m = arith.truncf %d : vector<64x64xf32> to vector<64x64xbf16>
          %y = tile.mma %m, %q, %b : vector<64x64xbf16>, !tile, !acc
          hopper.release %queries : !ch
          scf.yield %x, %y : !acc, !acc
        }
        hopper.release %keys : !ch
        vector.transfer_write %r#0, %V[%bx, %c0] {in_bounds = [false, true]} : !acc, memref<?x256xf32>
        vector.transfer_write %r#1, %W[%bx, %c0] {in_bounds = [false, true]} : !acc, memref<?x256xf32>
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x256xbf16, swizzle = 128>
!acc = vector<64x256xf32>
func.func @both_needed(%n: index, %k: !tile, %V: memref<?x256xf32>, %zero: !acc, %l: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %zero) -> (!acc, !acc) {
          %x = tile.mma %l, %k, %a : vector<64x64xbf16>, !tile, !acc
          %y = tile.mma %l, %k, %b : vector<64x64xbf16>, !tile, !acc
          scf.yield %x, %y : !acc, !acc
        }
        %t = arith.addf %r#0, %r#1 : !acc
        // expected-error @+1 {{needs both sums of the loop, so it belongs to none of two roles}}
        vector.transfer_write %t, %V[%bx, %c0] {in_bounds = [false, true]} : !acc, memref<?x256xf32>
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x256xbf16, swizzle = 128>
!acc = vector<64x256xf32>
func.func @another_write(%n: index, %k: !tile, %V: memref<?x256xf32>, %zero: !acc, %l: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %zero) -> (!acc, !acc) {
          %x = tile.mma %l, %k, %a : vector<64x64xbf16>, !tile, !acc
          %y = tile.mma %l, %k, %b : vector<64x64xbf16>, !tile, !acc
          // expected-error @+1 {{needs neither sum of the loop, so it belongs to none of two roles}}
          vector.transfer_write %zero, %V[%i, %c0] {in_bounds = [false, true]} : !acc, memref<?x256xf32>
          scf.yield %x, %y : !acc, !acc
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x256xbf16, swizzle = 128>
!acc = vector<64x256xf32>
func.func @third_sum(%n: index, %k: !tile, %zero: !acc, %l: vector<64x64xbf16>, %one: vector<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        // expected-error @+1 {{carries more than two sums of products: their statements cannot be told from each other}}
        %r:3 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %zero, %c = %one) -> (!acc, !acc, vector<64xf32>) {
          %x = tile.mma %l, %k, %a : vector<64x64xbf16>, !tile, !acc
          %y = tile.mma %l, %k, %b : vector<64x64xbf16>, !tile, !acc
          %z = arith.addf %c, %one : vector<64xf32>
          scf.yield %x, %y, %z : !acc, !acc, vector<64xf32>
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x256xbf16, swizzle = 128>
!acc = vector<64x256xf32>
func.func @two_warpgroups(%n: index, %k: !tile, %zero: !acc, %l: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        // expected-error @+1 {{carries sums that a warpgroup cannot hold beside each other, and so do several warpgroups: expected one}}
        %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %zero) -> (!acc, !acc) {
          %x = tile.mma %l, %k, %a : vector<64x64xbf16>, !tile, !acc
          %y = tile.mma %l, %k, %b : vector<64x64xbf16>, !tile, !acc
          scf.yield %x, %y : !acc, !acc
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x256xbf16, swizzle = 128>
!acc = vector<64x256xf32>
func.func @halves(%n: index, %k: !tile, %q: !tile, %zero: !acc, %none: vector<64x64xf32>, %V: memref<?x256xf32>, %W: memref<?x256xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %zero) -> (!acc, !acc) {
          %s = tile.mma %k, %q, %none transposeB : !tile, !tile, vector<64x64xf32>
          // expected-note @+1 {{the value}}
          %l = arith.truncf %s : vector<64x64xf32> to vector<64x64xbf16>
          %x = tile.mma %l, %q, %a : vector<64x64xbf16>, !tile, !acc
          %dp = tile.mma %q, %k, %none transposeB : !tile, !tile, vector<64x64xf32>
          %t = arith.truncf %dp : vector<64x64xf32> to vector<64x64xbf16>
          %d = arith.addf %l, %t : vector<64x64xbf16>
          // expected-error @+1 {{needs a value of type 'vector<64x64xbf16>' from the other sum's role: tiles of f32 can be handed over}}
          %y = tile.mma %d, %q, %b : vector<64x64xbf16>, !tile, !acc
          scf.yield %x, %y : !acc, !acc
        }
        vector.transfer_write %r#0, %V[%bx, %c0] {in_bounds = [false, true]} : !acc, memref<?x256xf32>
        vector.transfer_write %r#1, %W[%bx, %c0] {in_bounds = [false, true]} : !acc, memref<?x256xf32>
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x256xbf16, swizzle = 128>
!acc = vector<64x256xf32>
func.func @chained(%n: index, %k: !tile, %zero: !acc, %l: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %zero) -> (!acc, !acc) {
          // expected-note @+1 {{the other sum}}
          %x = tile.mma %l, %k, %a : vector<64x64xbf16>, !tile, !acc
          %p = vector.extract_strided_slice %x {offsets = [0, 0], sizes = [64, 64], strides = [1, 1]} : !acc to vector<64x64xf32>
          %m = arith.truncf %p : vector<64x64xf32> to vector<64x64xbf16>
          // expected-error @+1 {{needs what the other sum adds, so the two cannot be divided}}
          %y = tile.mma %m, %k, %b : vector<64x64xbf16>, !tile, !acc
          scf.yield %x, %y : !acc, !acc
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x256xbf16, swizzle = 128>
!acc = vector<64x256xf32>
func.func @few_registers(%n: index, %k: !tile, %zero: !acc, %l: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    // expected-error @+1 {{leaves 120 registers for each of two roles, their sums and scores need 128}}
    hopper.roles
      role "load" warpgroups(1) registers(256) (%w) {
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %zero) -> (!acc, !acc) {
          %x = tile.mma %l, %k, %a : vector<64x64xbf16>, !tile, !acc
          %y = tile.mma %l, %k, %b : vector<64x64xbf16>, !tile, !acc
          scf.yield %x, %y : !acc, !acc
        }
      }
    gpu.terminator
  }
  return
}
