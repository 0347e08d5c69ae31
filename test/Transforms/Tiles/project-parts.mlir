// A mask bounds the whole loop, and parts divide what is left of it: all have work.
// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest="order=split_kv parts=3 block-n=128" --attn-tile-nest="block-n=128" --attn-project-masks=branch --cse | FileCheck %s

// CHECK: scf.forall (%{{.*}}, %{{.*}}, %[[PART:.*]]) in ({{.*}}, 3)
// CHECK: %[[LO:.*]] = affine.max
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = attn.part %[[PART]] of %c3 from %[[LO]] to %{{.*}} step 128
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]] step %c128
// CHECK: } {attn.fold_loop, attn.partial}
func.func @window(%q: tensor<?x?x1x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>) -> tensor<?x?x1x64xf32> {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %k, %c2 : tensor<?x?x?x64xf32>
  %o = attn.forward %q, %k, %v captures(%n : index)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %keys: index):
      %c1024 = arith.constant 1024 : index
      %end = arith.addi %j, %c1024 : index
      %keep = arith.cmpi sge, %end, %keys : index
      attn.yield %keep : i1
    } : tensor<?x?x1x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x1x64xf32>
  return %o : tensor<?x?x1x64xf32>
}
