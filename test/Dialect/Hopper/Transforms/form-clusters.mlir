// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-form-clusters,canonicalize))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-form-clusters{ctas=1}))" | FileCheck %s --check-prefix=ONE
// RUN: not attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-form-clusters{ctas=6}))" 2>&1 | FileCheck %s --check-prefix=SIX
// RUN: not attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-form-clusters{ctas=16}))" 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-form-clusters,canonicalize))" --remarks-filter=hopper-form-clusters -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Missed] not clustered | Category:hopper-form-clusters{{$}}
// REMARKS-DAG: {{^ *}}1 [Passed] clustered | Category:hopper-form-clusters{{$}}
// SIX: error: a cluster has 1, 2, 4 or 8 CTAs, got 6
// MANY: error: a cluster has 1, 2, 4 or 8 CTAs, got 16
// ONE-NOT: clusters
// ONE-NOT: multicast

!q = !tile.smem<128x64xbf16, swizzle = 128>
!k = !tile.smem<64x64xbf16, swizzle = 128>
!m = memref<?x?x64xbf16>

// K does not depend on the tile's row; Q is sent once.
// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[HEADS:[a-z0-9]+]]: index, %[[ROWS:[a-z0-9]+]]: index, %{{.*}}: index, %[[TILES:[a-z0-9]+]]: index,
// CHECK: %[[NEG:.*]] = arith.subi %c0, %[[ROWS]]
// CHECK: %[[BIT:.*]] = arith.andi %[[ROWS]], %[[NEG]]
// CHECK: %[[ANY:.*]] = arith.maxui %[[BIT]], %c1
// CHECK: %[[SIZE:.*]] = arith.minui %[[ANY]], %c2
// CHECK: %[[GROUPS:.*]] = arith.divui %[[ROWS]], %[[SIZE]]
// CHECK: gpu.launch clusters(%[[CLUSTER:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[SIZE]], %{{.*}} = %c1, %{{.*}} = %c1) blocks({{.*}}) in (%{{.*}} = %[[TILES]],
// CHECK: hopper.channel depth(1) : <<128x64xbf16
// CHECK: hopper.channel depth(1) multicast(2) : <<64x64xbf16
// CHECK: role "load"
// CHECK: %[[P:.*]]:2 = affine.delinearize_index %[[CLUSTER]] into (%[[HEADS]], %[[GROUPS]])
// CHECK: %[[RANK:.*]] = gpu.cluster_block_id x
// CHECK: %[[FIRST:.*]] = arith.muli %[[P]]#1, %[[SIZE]]
// CHECK: %[[ROW:.*]] = arith.addi %[[FIRST]], %[[RANK]]
// CHECK: hopper.send %{{.*}}[%[[P]]#0, %[[ROW]], %c0]
// CHECK: hopper.send %{{.*}}[%[[P]]#0, %{{.*}}, %c0]
// CHECK: role "compute"
// CHECK: affine.delinearize_index %[[CLUSTER]] into (%[[HEADS]], %[[GROUPS]])
func.func @rows(%Q: !m, %K: !m, %heads: index, %rows: index, %n: index, %tiles: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %cq = hopper.channel depth(1) : !hopper.channel<!q>
    %ck = hopper.channel depth(1) : !hopper.channel<!k>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (%heads, %rows) : index, index
        hopper.send %Q[%p#0, %p#1, %c0] to %cq : !m, !hopper.channel<!q>
        scf.for %j = %c0 to %n step %c1 {
          hopper.send %K[%p#0, %j, %c0] to %ck : !m, !hopper.channel<!k>
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%heads, %rows) : index, index
        memref.store %c1, %X[%p#1] : memref<?xindex>
        %q = hopper.receive %cq : !hopper.channel<!q> -> !q
        scf.for %j = %c0 to %n step %c1 {
          %k = hopper.receive %ck : !hopper.channel<!k> -> !k
          hopper.release %ck : !hopper.channel<!k>
        }
        hopper.release %cq : !hopper.channel<!q>
      }
    gpu.terminator
  }
  return
}

// The bound of the loop depends on the row, as with a causal mask; along heads nothing is the
// same. Nor is a tile of 8 rows anything that two could divide.
// CHECK-LABEL: func.func @causal
// CHECK-NOT: clusters
// CHECK-NOT: multicast
func.func @causal(%K: !m, %heads: index, %rows: index, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %ck = hopper.channel depth(1) : !hopper.channel<!k>
    %c8 = hopper.channel depth(1) : !hopper.channel<!tile.smem<8x64xbf16, swizzle = 128>>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (%heads, %rows) : index, index
        scf.for %j = %c0 to %p#1 step %c1 {
          hopper.send %K[%p#0, %j, %c0] to %ck : !m, !hopper.channel<!k>
        }
        scf.for %j = %c0 to %rows step %c1 {
          hopper.send %K[%p#0, %j, %c0] to %c8 : !m, !hopper.channel<!tile.smem<8x64xbf16, swizzle = 128>>
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
      }
    gpu.terminator
  }
  return
}

// An odd number of tiles, known now, has no pairs.
// CHECK-LABEL: func.func @odd
// CHECK-NOT: clusters
func.func @odd(%K: !m, %tiles: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %ck = hopper.channel depth(1) : !hopper.channel<!k>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (%n, 3) : index, index
        scf.for %j = %c0 to %n step %c1 {
          hopper.send %K[%p#0, %j, %c0] to %ck : !m, !hopper.channel<!k>
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
      }
    gpu.terminator
  }
  return
}
