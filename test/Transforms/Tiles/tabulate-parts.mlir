// Parts of the keys have one table, of which each takes a part. Where bounds differ between programs each
// would make its own, which is refused where that is asked for.
// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest="order=split_kv parts=2" --attn-tile-nest --attn-tabulate-masks=in-programs=false | FileCheck %s --check-prefixes=CHECK,PARTS
// RUN: not attn-opt %s --attn-nest-pipeline --attn-plan-nest="order=split_kv parts=2" --attn-tile-nest --attn-expand-parts --attn-tabulate-masks=in-programs=false 2>&1 | FileCheck %s --check-prefix=REFUSED
// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest="order=split_kv parts=2" --attn-tile-nest --attn-expand-parts --attn-tabulate-masks | FileCheck %s
// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest=order=m_outer --attn-tile-nest --attn-tabulate-masks=in-programs=false | FileCheck %s

// PARTS: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}, %[[PART:.*]]) in ({{.*}}, 2)
// PARTS: %[[COUNT:.*]] = tensor.extract %{{.*}} : tensor<?xi32>
// PARTS: %[[LENGTH:.*]] = arith.index_cast %[[COUNT]]
// PARTS: %[[BEGIN:.*]], %[[END:.*]] = attn.part %[[PART]] of %{{.*}} from %c0{{.*}} to %[[LENGTH]] step 1
// PARTS: scf.for %{{.*}} = %[[BEGIN]] to %[[END]] step %c1
// CHECK: attn.tabulated
// REFUSED: tabulate-parts.mlir:[[#@LINE+3]]:{{.*}}error: the table of this mask's tiles would be made by each program
func.func @documents(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>, %t: tensor<?xi32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.forward %q, %k, %v captures(%t : tensor<?xi32>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %d: tensor<?xi32>):
      %x = tensor.extract %d[%i] : tensor<?xi32>
      %y = tensor.extract %d[%j] : tensor<?xi32>
      %keep = arith.cmpi eq, %x, %y : i32
      attn.yield %keep : i1
    } : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
