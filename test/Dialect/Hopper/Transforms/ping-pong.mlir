// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-ping-pong))" | FileCheck %s
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-ping-pong))" --remarks-filter=hopper-ping-pong -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] turns | Category:hopper-ping-pong{{$}}
!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// The last warpgroup lets the first one go; a run of products is one turn.
// CHECK-LABEL: func.func @three
// CHECK: gpu.launch
// CHECK-NEXT: %[[FIRST:.*]] = hopper.named_barriers count(3)
// CHECK: role "compute" warpgroups(3) registers(160) (%[[W:.*]]) {
// CHECK: %[[LAST:.*]] = arith.cmpi eq, %[[W]], %c2
// CHECK: %[[MINE:.*]] = arith.addi %[[W]], %[[FIRST]] : index
// CHECK: %[[NEXT:.*]] = arith.select %[[LAST]], %[[FIRST]], %{{.*}} : index
// CHECK: scf.if %[[LAST]]
// CHECK-NEXT: hopper.barrier.arrive %[[FIRST]] warpgroups(2)
// CHECK: scf.for
// CHECK-NEXT: hopper.barrier.sync %[[MINE]] warpgroups(2)
// CHECK-NEXT: hopper.wgmma
// CHECK-NEXT: hopper.wgmma
// CHECK-NEXT: hopper.barrier.arrive %[[NEXT]] warpgroups(2)
// CHECK-NEXT: hopper.wait
func.func @three(%n: index, %k: !tile, %v: !tile) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(3) registers(160) (%w) {
        scf.for %i = %c0 to %n step %c1 {
          %s = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %t = hopper.wgmma %k, %v transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %a = hopper.wait %s pending(1) : !hopper.pending<!acc> -> !acc
          %b = hopper.wait %t pending(0) : !hopper.pending<!acc> -> !acc
        }
      }
    gpu.terminator
  }
  return
}

// A warpgroup takes the turns of the iterations that it leaves out, two in each.
// CHECK-LABEL: func.func @trimmed
// CHECK: scf.for
// CHECK-COUNT-2: hopper.barrier.sync
// CHECK: } {hopper.trimmed}
// CHECK: scf.for
// CHECK-NEXT: hopper.barrier.sync %[[MINE:.*]] warpgroups(2)
// CHECK-NEXT: hopper.barrier.arrive %[[NEXT:.*]] warpgroups(2)
// CHECK-NEXT: hopper.barrier.sync %[[MINE]] warpgroups(2)
// CHECK-NEXT: hopper.barrier.arrive %[[NEXT]] warpgroups(2)
// CHECK-NEXT: } {hopper.trimmed}
func.func @trimmed(%n: index, %k: !tile, %v: !tile) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %end = arith.minsi %n, %w : index
        scf.for %i = %c0 to %end step %c1 {
          %s = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %a = hopper.wait %s pending(0) : !hopper.pending<!acc> -> !acc
          %t = hopper.wgmma %k, %v transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %b = hopper.wait %t pending(0) : !hopper.pending<!acc> -> !acc
        } {hopper.trimmed}
        scf.for %i = %end to %n step %c1 {
        } {hopper.trimmed}
      }
    gpu.terminator
  }
  return
}

// One warpgroup has nobody to take turns with.
// CHECK-LABEL: func.func @one
// CHECK-NOT: hopper.barrier
func.func @one(%n: index, %k: !tile, %v: !tile) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        scf.for %i = %c0 to %n step %c1 {
          %s = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %t = hopper.wgmma %k, %v transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %a = hopper.wait %s pending(1) : !hopper.pending<!acc> -> !acc
          %b = hopper.wait %t pending(0) : !hopper.pending<!acc> -> !acc
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>
func.func @uneven(%n: index, %k: !tile, %v: !tile) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        // expected-error @+1 {{depends on the warpgroup: warpgroups that do not run the same iterations cannot take turns at the tensor core}}
        scf.for %i = %w to %n step %c1 {
          %s = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %t = hopper.wgmma %k, %v transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %a = hopper.wait %s pending(1) : !hopper.pending<!acc> -> !acc
          %b = hopper.wait %t pending(0) : !hopper.pending<!acc> -> !acc
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>
func.func @branch(%n: index, %k: !tile, %v: !tile) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %odd = arith.index_cast %w : index to i1
        // expected-error @+1 {{depends on the warpgroup}}
        scf.if %odd {
        scf.for %i = %c0 to %n step %c1 {
          %s = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %t = hopper.wgmma %k, %v transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %a = hopper.wait %s pending(1) : !hopper.pending<!acc> -> !acc
          %b = hopper.wait %t pending(0) : !hopper.pending<!acc> -> !acc
        }
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>
// CHECK-LABEL: func.func @meeting
// CHECK-COUNT-1: hopper.barrier
// CHECK-NOT: hopper.barrier
func.func @meeting(%n: index, %k: !tile) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        scf.for %i = %c0 to %n step %c1 {
          %s = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %a = hopper.wait %s pending(0) : !hopper.pending<!acc> -> !acc
          hopper.barrier.sync %c1 warpgroups(2)
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>
// Two trimmed loops with other numbers of turns.
func.func @other_turns(%n: index, %k: !tile) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %end = arith.minsi %n, %w : index
        scf.for %i = %c0 to %end step %c1 {
          %s = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %a = hopper.wait %s pending(0) : !hopper.pending<!acc> -> !acc
        } {hopper.trimmed}
        // expected-error @below {{takes 2 turns in an iteration, another trimmed loop 1}}
        scf.for %i = %c0 to %end step %c1 {
          %s = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %a = hopper.wait %s pending(0) : !hopper.pending<!acc> -> !acc
          %t = hopper.wgmma %k, %k transposeB : (!tile, !tile) -> !hopper.pending<!acc>
          %b = hopper.wait %t pending(0) : !hopper.pending<!acc> -> !acc
        } {hopper.trimmed}
        scf.for %i = %end to %n step %c1 {
        } {hopper.trimmed}
      }
    gpu.terminator
  }
  return
}
