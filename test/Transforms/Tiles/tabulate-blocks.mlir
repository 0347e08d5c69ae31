// RUN: attn-opt %s -attn-tile-pipeline | FileCheck %s

// A mask that a captured table of blocks decides, as that of FlexAttention: the table of tiles, one row for each tile of
// queries, reads it, and the loop over the keys runs over what is listed.
// CHECK-LABEL: func.func @blocks
// CHECK:       %[[LISTS:.*]]:2 = scf.forall (%{{.*}}) in (%{{.*}}) shared_outs({{.*}}) -> (tensor<?x?xi32>, tensor<?xi32>)
// CHECK:         vector.gather %{{.*}} : tensor<?xi8>
// CHECK:       scf.forall
// CHECK:         %[[TILE:.*]] = tensor.extract %[[LISTS]]#0[
// CHECK:       } {attn.fold_loop, attn.tabulated}
func.func @blocks(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                  %t: tensor<?x?x?x?xi8>) -> tensor<?x?x?x64xf32> {
  %o = attn.forward %q, %k, %v captures(%t : tensor<?x?x?x?xi8>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %s: tensor<?x?x?x?xi8>):
      %size = arith.constant 128 : index
      %first = arith.constant 0 : index
      %zero = arith.constant 0 : i8
      %one = arith.constant 1 : i8
      %x = arith.floordivsi %i, %size : index
      %y = arith.floordivsi %j, %size : index
      %e = tensor.extract %s[%first, %first, %x, %y] : tensor<?x?x?x?xi8>
      %listed = arith.cmpi sgt, %e, %zero : i8
      %full = arith.cmpi sgt, %e, %one : i8
      %causal = arith.cmpi sge, %i, %j : index
      %or = arith.ori %full, %causal : i1
      %keep = arith.andi %listed, %or : i1
      attn.yield %keep : i1
    } : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
