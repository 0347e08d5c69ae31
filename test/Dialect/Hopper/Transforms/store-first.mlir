// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first{look-ahead=false},canonicalize,cse))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first,canonicalize,cse))" | FileCheck %s --check-prefix=AHEAD
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first{look-ahead=false},hopper-order-additions{ctas=7},canonicalize,cse))" | FileCheck %s --check-prefix=ORDERED
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-order-additions{ctas=7 semaphore=false},hopper-store-first,canonicalize,cse))" | FileCheck %s --check-prefix=VISITS
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first,canonicalize,cse))" --remarks-filter=hopper-store-first -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] stored | Category:hopper-store-first{{$}}

!sum = !tile.smem<128x64xf32, swizzle = 128>

// A flag for each 64 rows in place of the zeros; who comes first sets a tile's flag once it is there,
// stores it, and says so; rows that still have their mark are zeros.
// CHECK-LABEL: func.func @sum(
// CHECK-SAME: %[[LINES:[a-z0-9]*]]: index, %[[N:[a-z0-9]*]]: index, %[[ROWS:[a-z0-9]*]]: index
// CHECK: %[[Y:.*]] = memref.alloc(%[[LINES]], %[[ROWS]]) : memref<?x?x64xf32>
// CHECK: %[[UP:.*]] = arith.addi %[[ROWS]], %c63
// CHECK: %[[PIECES:.*]] = arith.divui %[[UP]], %c64
// CHECK: %[[LINE:.*]] = arith.muli %[[PIECES]], %c32
// CHECK: %[[COUNT:.*]] = arith.muli %[[LINE]], %[[LINES]]
// CHECK: %[[MEMORY:.*]] = memref.alloc(%[[COUNT]]) : memref<?xi32>
// CHECK: %[[VIEW:.*]] = memref.reinterpret_cast %[[MEMORY]] to offset: [0], sizes: [%[[LINES]], %[[PIECES]]], strides: [%[[LINE]], 32]
// CHECK: gpu.launch
// CHECK-NOT: vector.transfer_write
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %[[ROW:.*]], %[[ROWS]]
// CHECK: scf.if %[[INSIDE]] {
// CHECK: %[[PIECE:.*]] = arith.divui %[[ROW]], %c64
// CHECK: memref.store %c0_i32, %[[VIEW]][%[[P:.*]], %[[PIECE]]]
// CHECK-NEXT: memref.store %[[MARK:.*]], %[[Y]][%[[P]], %[[ROW]], %c0]
// CHECK: role "add"
// CHECK: %[[LINE:.*]]:2 = affine.delinearize_index
// CHECK: %[[SEEN:.*]] = hopper.semaphore.peek %[[VIEW]][%[[LINE]]#0, %[[FLAG:.*]]] :
// CHECK-NEXT: hopper.semaphore.wait %[[VIEW]][%[[LINE]]#0, %[[FLAG]]], %c-1_i32
// CHECK-NEXT: hopper.receive
// CHECK-NEXT: %[[FIRST:.*]] = hopper.semaphore.first_touch %[[VIEW]][%[[LINE]]#0, %[[FLAG]]], %[[SEEN]]
// CHECK-NEXT: hopper.add %{{.*}} to %[[Y]][%{{.*}}, %{{.*}}, %c0] first(%[[FIRST]])
// CHECK-NEXT: hopper.tma.wait pending(0) read
// CHECK-NEXT: hopper.release
// CHECK-NOT: scf.if
// CHECK: scf.if %[[FIRST]] {
// CHECK-NEXT: hopper.tma.wait pending(0){{$}}
// CHECK-NEXT: hopper.semaphore.release %[[VIEW]][%[[LINE]]#0, %[[FLAG]]], %c1_i32
// CHECK: gpu.launch
// CHECK: %[[LAST:.*]] = arith.subi %[[ROWS]], %c1
// CHECK: %[[INNER:.*]] = arith.minsi %{{.*}}, %[[LAST]]
// CHECK: %[[STATE:.*]] = memref.load %[[Y]][%{{.*}}, %[[INNER]], %c0]
// CHECK: %[[READ:.*]] = vector.transfer_read %[[Y]]
// CHECK: %[[BITS:.*]] = arith.bitcast %[[STATE]] : f32 to i32
// CHECK: %[[IS:.*]] = arith.cmpi ne, %[[BITS]], %c2145756581_i32
// CHECK: %[[ALL:.*]] = vector.broadcast %[[IS]]
// CHECK: %[[SUM:.*]] = arith.select %[[ALL]], %[[READ]], %{{.*}}
// CHECK: vector.transfer_write %[[SUM]]

// An iteration looks at the flag of the next one, if there is a next one, while its addition is
// under way; the first one has seen nothing.
// AHEAD-LABEL: func.func @sum(
// AHEAD: role "add"
// AHEAD: scf.for %[[Q:.*]] = %c0 to %[[ROWS:.*]] step %c128 iter_args(%[[SEEN:.*]] = %c0_i32) -> (i32)
// AHEAD: hopper.semaphore.wait
// AHEAD-NEXT: hopper.receive
// AHEAD-NEXT: %[[FIRST:.*]] = hopper.semaphore.first_touch %{{.*}}, %[[SEEN]]
// AHEAD-NEXT: hopper.add
// AHEAD: %[[NEXT:.*]] = arith.addi %[[Q]], %c128
// AHEAD: %[[INSIDE:.*]] = arith.cmpi slt, %[[NEXT]], %[[ROWS]]
// AHEAD: arith.select %[[INSIDE]], %[[NEXT]], %[[Q]]
// AHEAD: %[[LATER:.*]] = hopper.semaphore.peek
// AHEAD-NEXT: hopper.tma.wait pending(0) read
// AHEAD: scf.if %[[FIRST]]
// AHEAD: scf.yield %[[LATER]]

// In one order the first one is known: the one that waits for nobody.
// ORDERED-LABEL: func.func @sum(
// ORDERED: %[[MEMORY:.*]] = memref.alloc({{.*}}) : memref<?xi32>
// ORDERED: %[[FLAGS:.*]] = memref.reinterpret_cast %[[MEMORY]]
// ORDERED-NOT: memref.alloc
// ORDERED: scf.for {{.*}} iter_args(%{{.*}}, %[[BEFORE:.*]] = %{{.*}}, %{{.*}} = %c0_i32)
// ORDERED: %[[FIRST:.*]] = arith.cmpi eq, %[[BEFORE]], %c0_i32
// ORDERED-NOT: hopper.semaphore.first_touch
// ORDERED: hopper.semaphore.wait %[[FLAGS]]
// ORDERED: hopper.add {{.*}} first(%[[FIRST]])
// ORDERED-NOT: scf.if
// ORDERED: hopper.tma.wait pending(0){{$}}
// ORDERED-NEXT: hopper.semaphore.release

// Nobody waits but for the first one; tile k starts at its part of the loop.
// VISITS-LABEL: func.func @sum(
// VISITS: role "add"
// VISITS: %[[TILE:.*]]:2 = affine.delinearize_index
// VISITS: %[[K:.*]] = arith.index_cast %[[TILE]]#1 : index to i32
// VISITS: arith.muli %[[K]]
// VISITS: scf.for
// VISITS: %[[Q:.*]] = arith.addi
// VISITS: hopper.semaphore.wait %{{.*}}, %c-1_i32
// VISITS-NEXT: hopper.receive
// VISITS-NEXT: hopper.semaphore.first_touch
// VISITS: role "compute"
func.func @sum(%lines: index, %n: index, %rows: index, %out: memref<?x?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %threads = arith.constant 256 : index
  %zero = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %Y = memref.alloc(%lines, %rows) : memref<?x?x64xf32>
  %tiles = arith.muli %lines, %n : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(128) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        %r = affine.apply affine_map<(d0, d1) -> (d0 * 128 + d1 * 64)>(%p#1, %w)
        vector.transfer_write %zeros, %Y[%p#0, %r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x?x64xf32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        scf.for %q = %c0 to %rows step %c128 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x64xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        scf.for %q = %c0 to %rows step %c128 {
          %x = hopper.acquire %sums : !hopper.channel<!sum> -> !sum
          hopper.commit %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(128) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        %r = affine.apply affine_map<(d0, d1) -> (d0 * 128 + d1 * 64)>(%p#1, %w)
        %v = vector.transfer_read %Y[%p#0, %r, %c0], %zero {in_bounds = [false, true]} : memref<?x?x64xf32>, vector<64x64xf32>
        vector.transfer_write %v, %out[%p#0, %r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x?x64xf32>
      }
    gpu.terminator
  }
  memref.dealloc %Y : memref<?x?x64xf32>
  return
}
