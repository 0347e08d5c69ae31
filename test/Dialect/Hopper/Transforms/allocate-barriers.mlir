// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-allocate-barriers,canonicalize))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-allocate-barriers))" --remarks-filter=hopper-allocate-barriers -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}3 [Passed] allocated | Category:hopper-allocate-barriers{{$}}

// One after the other, from 1 on, in the order in which they stand in the launch.
// CHECK-LABEL: func.func @order
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
// CHECK-DAG: %[[C6:.*]] = arith.constant 6 : index
// CHECK-NOT: hopper.named_barriers
// CHECK: role "compute" warpgroups(2) registers(240) (%[[W:.*]]) {
// CHECK-NEXT: %[[TURN:.*]] = arith.addi %[[W]], %[[C1]]
// CHECK-NEXT: %[[OWN:.*]] = arith.addi %[[W]], %[[C4]]
// CHECK-NEXT: hopper.barrier.arrive %[[TURN]] warpgroups(2)
// CHECK-NEXT: hopper.barrier.sync %[[OWN]] warpgroups(1)
// CHECK-NEXT: hopper.barrier.sync %[[C6]] warpgroups(2)
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

// Each launch has all 15; one that names its barriers itself stays as it is.
// CHECK-LABEL: func.func @each
// CHECK-DAG: %[[C15:.*]] = arith.constant 15 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C7:.*]] = arith.constant 7 : index
// CHECK: gpu.launch
// CHECK: hopper.barrier.sync %[[C15]] warpgroups(1)
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
