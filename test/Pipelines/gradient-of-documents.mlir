// RUN: attn-opt %s -pass-pipeline="builtin.module(attn-differentiate{saved-results},attn-lower-to-hopper,attn-cuda-codegen)" | FileCheck %s
// With all sizes known, the table of the mask's tiles and D are one kernel, in which both have
// their rows divided among warpgroups. The mask's other half is no inequality that makes a tile
// sure: each tile is tested.
// CHECK-LABEL: func.func {{.*}}@main_gradient
// CHECK: gpu.launch_func
// CHECK: gpu.binary
// CHECK-SAME: .target sm_90a
!q = tensor<3x1x490x192xf16>
!v = tensor<3x1x490x48xf16>
func.func @main(%q: !q, %k: !q, %v: !v, %rows: tensor<?x?xi32>, %columns: tensor<?x?xi32>) -> (!v, tensor<3x1x490xf32>) {
  %o, %lse = attn.forward %q, %k, %v captures(%rows, %columns : tensor<?x?xi32>, tensor<?x?xi32>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %r: tensor<?x?xi32>, %c: tensor<?x?xi32>):
      %w = arith.constant 48 : index
      %first = arith.subi %i, %w : index
      %last = arith.addi %i, %w : index
      %from = arith.cmpi sge, %j, %first : index
      %to = arith.cmpi sle, %j, %last : index
      %near = arith.andi %from, %to : i1
      %x = tensor.extract %r[%b, %i] : tensor<?x?xi32>
      %y = tensor.extract %c[%b, %j] : tensor<?x?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      %keep = arith.andi %near, %same : i1
      attn.yield %keep : i1
    } : !q, !q, !v -> !v, tensor<3x1x490xf32>
  return %o, %lse : !v, tensor<3x1x490xf32>
}
