// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s -cse -canonicalize | FileCheck %s --check-prefix=CLEAN

// Two that ask for as many barriers get different ones; what nobody uses goes.
// CHECK-LABEL: func.func @barriers
// CHECK: %[[A:.*]] = hopper.named_barriers count(1)
// CHECK-NEXT: %[[B:.*]] = hopper.named_barriers count(1)
// CHECK-NEXT: hopper.named_barriers count(15)
// CHECK-NEXT: hopper.barrier.sync %[[A]] warpgroups(1)
// CHECK-NEXT: hopper.barrier.sync %[[B]] warpgroups(1)
// CLEAN-LABEL: func.func @barriers
// CLEAN-NEXT: %[[A:.*]] = hopper.named_barriers count(1)
// CLEAN-NEXT: %[[B:.*]] = hopper.named_barriers count(1)
// CLEAN-NEXT: hopper.barrier.sync %[[A]] warpgroups(1)
// CLEAN-NEXT: hopper.barrier.sync %[[B]] warpgroups(1)
func.func @barriers() {
  %a = hopper.named_barriers count(1)
  %b = hopper.named_barriers count(1)
  %unused = hopper.named_barriers count(15)
  hopper.barrier.sync %a warpgroups(1)
  hopper.barrier.sync %b warpgroups(1)
  return
}
