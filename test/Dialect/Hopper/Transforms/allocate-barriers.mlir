// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-allocate-barriers,canonicalize))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-allocate-barriers))" --remarks-filter=hopper-allocate-barriers -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] allocated | Category:hopper-allocate-barriers{{$}}

// Single ones from 1 up, several that no inner loop uses from 15 down, in the order in which they
// stand in the launch.
// CHECK-LABEL: func.func @order
// CHECK-DAG: %[[C13:.*]] = arith.constant 13 : index
// CHECK-DAG: %[[C11:.*]] = arith.constant 11 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-NOT: hopper.named_barriers
// CHECK: role "compute" warpgroups(2) registers(240) (%[[W:.*]]) {
// CHECK-NEXT: %[[TURN:.*]] = arith.addi %[[W]], %[[C13]]
// CHECK-NEXT: %[[OWN:.*]] = arith.addi %[[W]], %[[C11]]
// CHECK-NEXT: hopper.barrier.arrive %[[TURN]] warpgroups(2)
// CHECK-NEXT: hopper.barrier.sync %[[OWN]] warpgroups(1)
// CHECK-NEXT: hopper.barrier.sync %[[C1]] warpgroups(2)
func.func @order(%n: index) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %turns = hopper.named_barriers count(3)
    %outputs = hopper.named_barriers count(2)
    %shared = hopper.named_barriers count(1)
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %turn = arith.addi %w, %turns : index
        %own = arith.addi %w, %outputs : index
        hopper.barrier.arrive %turn warpgroups(2)
        hopper.barrier.sync %own warpgroups(1)
        hopper.barrier.sync %shared warpgroups(2)
      }
    gpu.terminator
  }
  return
}

// Several that an inner loop uses have a place among the single ones; %outputs is used by the outer
// loop alone.
// CHECK-LABEL: func.func @inner
// CHECK-DAG: %[[C14:.*]] = arith.constant 14 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C3:.*]] = arith.constant 3 : index
// CHECK: role "compute" warpgroups(2) registers(240) (%[[W:.*]]) {
// CHECK-NEXT: %[[TURN:.*]] = arith.addi %[[W]], %[[C1]]
// CHECK-NEXT: %[[OWN:.*]] = arith.addi %[[W]], %[[C14]]
// CHECK: hopper.barrier.sync %[[TURN]] warpgroups(2)
// CHECK: hopper.barrier.sync %[[OWN]] warpgroups(1)
// CHECK-NEXT: hopper.barrier.sync %[[C3]] warpgroups(2)
func.func @inner(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %outputs = hopper.named_barriers count(2)
    %turns = hopper.named_barriers count(2)
    %shared = hopper.named_barriers count(1)
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %turn = arith.addi %w, %turns : index
        %own = arith.addi %w, %outputs : index
        scf.for %tile = %c0 to %n step %c1 {
          scf.for %keys = %c0 to %n step %c1 {
            hopper.barrier.sync %turn warpgroups(2)
          }
          hopper.barrier.sync %own warpgroups(1)
          hopper.barrier.sync %shared warpgroups(2)
        }
      }
    gpu.terminator
  }
  return
}

// Each launch has all 15; one that names its barriers itself stays as it is.
// CHECK-LABEL: func.func @each
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C7:.*]] = arith.constant 7 : index
// CHECK: gpu.launch
// CHECK: hopper.barrier.sync %[[C2]] warpgroups(1)
// CHECK-NEXT: hopper.barrier.sync %[[C1]] warpgroups(1)
// CHECK: gpu.launch
// CHECK: hopper.barrier.sync %[[C1]] warpgroups(1)
// CHECK: gpu.launch
// CHECK: hopper.barrier.sync %[[C7]] warpgroups(1)
func.func @each(%n: index) {
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %many = hopper.named_barriers count(14)
    %last = hopper.named_barriers count(1)
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        hopper.barrier.sync %many warpgroups(1)
        hopper.barrier.sync %last warpgroups(1)
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %one = hopper.named_barriers count(1)
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        hopper.barrier.sync %one warpgroups(1)
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        hopper.barrier.sync %c7 warpgroups(1)
      }
    gpu.terminator
  }
  return
}
