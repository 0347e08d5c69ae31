// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-order-additions{semaphore=false},canonicalize,cse))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-order-additions{semaphore=false},canonicalize,cse))" --remarks-filter=hopper-order-additions -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Missed] not ordered | Category:hopper-order-additions{{$}}

!sum = !tile.smem<64x128xf32, swizzle = 128>

// Without semaphores, tiles whose bounds stay start at their part of the loop, in all roles; what goes
// around is carried where a loop has results. Nobody waits.
// CHECK-LABEL: func.func @even(
// CHECK-NOT: hopper.semaphore
// CHECK: role "add"
// CHECK: %[[TILE:.*]]:2 = affine.delinearize_index
// CHECK: scf.for %[[N:.*]] = %c0 to %{{.*}} step %c64 {
// CHECK: %[[VALUE:.*]] = arith.index_cast %{{.*}} : i32 to index
// CHECK: hopper.add %{{.*}} to %{{.*}}[%[[TILE]]#0, %[[VALUE]], %c0]
// CHECK: role "compute"
// CHECK: scf.for %{{.*}} = %c0 to %{{.*}} step %c64 iter_args(%[[SUM:.*]] = %c0, %[[AT:.*]] = %{{.*}}) -> (index, i32)
// CHECK: %[[ROW:.*]] = arith.index_cast %[[AT]] : i32 to index
// CHECK: %[[MORE:.*]] = arith.addi %[[SUM]], %[[ROW]]
// CHECK: %[[NEXT:.*]] = arith.addi %[[AT]], %c64_i32
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %[[NEXT]], %{{.*}}
// CHECK: %[[AROUND:.*]] = arith.select %[[INSIDE]], %[[NEXT]], %{{.*}}
// CHECK: scf.yield %[[MORE]], %[[AROUND]]
// CHECK-NOT: hopper.cooperative
// CHECK: return
func.func @even(%lines: index, %n: index, %rows: index, %Y: memref<?x?x128xf32>, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 256 : index
  %tiles = arith.muli %lines, %n : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        %all = scf.for %q = %c0 to %rows step %c64 iter_args(%sum = %c0) -> index {
          %x = hopper.acquire %sums : !hopper.channel<!sum> -> !sum
          %more = arith.addi %sum, %q : index
          hopper.commit %sums : !hopper.channel<!sum>
          scf.yield %more : index
        } {hopper.adding}
        memref.store %all, %X[%p#1] : memref<?xindex>
      }
    gpu.terminator
  }
  return
}

// As they are, and without a flag: tiles that start later and later, which are apart anyway;
// bounds that both change; CTAs of a cluster, which copy the same tiles for each other.
// CHECK-LABEL: func.func @growing(
// CHECK: scf.for %[[Q:.*]] = %{{.*}} to %{{.*}} step %c64 {
// CHECK: hopper.add %{{.*}} to %{{.*}}[%{{.*}}, %[[Q]], %c0]
func.func @growing(%n: index, %rows: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        %low = affine.apply affine_map<(d0) -> (d0 * 128)>(%p#1)
        scf.for %q = %low to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// CHECK-LABEL: func.func @window(
// CHECK: scf.for %[[Q:.*]] = %{{.*}} to %{{.*}} step %c64 {
// CHECK: hopper.add %{{.*}} to %{{.*}}[%{{.*}}, %[[Q]], %c0]
func.func @window(%n: index, %rows: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        %low = affine.apply affine_map<(d0) -> (d0 * 128)>(%p#1)
        %high = affine.min affine_map<(d0)[s0] -> (s0, d0 * 128 + 512)>(%p#1)[%rows]
        scf.for %q = %low to %high step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// CHECK-LABEL: func.func @clusters(
// CHECK: scf.for %[[Q:.*]] = %c0 to %{{.*}} step %c64 {
// CHECK: hopper.add %{{.*}} to %{{.*}}[%{{.*}}, %[[Q]], %c0]
func.func @clusters(%n: index, %rows: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch clusters(%cx, %cy, %cz) in (%kx = %c2, %ky = %c1, %kz = %c1)
             blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}
