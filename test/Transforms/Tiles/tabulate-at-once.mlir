// A table without rows for tiles of rows: each entry has a program, then each is put behind those in front of it.
// RUN: attn-opt %s -split-input-file --attn-nest-pipeline --attn-plan-nest=order=m_outer --attn-tile-nest --attn-tabulate-masks="branch at-once in-programs=false" --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @padding
// CHECK:         %[[ENTRIES:.*]] = scf.forall (%[[B:.*]], %[[TILE:.*]]) in (%{{.*}}, %[[TILES:.*]]) shared_outs(
// CHECK:           vector.reduction <or>
// CHECK:           vector.reduction <and>
// CHECK:           arith.select %{{.*}}, %{{.*}}, %c-1_i32
// CHECK:         %[[TABLE:.*]]:2 = scf.forall (%[[B2:.*]], %[[TILE2:.*]]) in (%{{.*}}, %[[TILES]]) shared_outs(
// CHECK:           %[[OWN:.*]] = tensor.extract %[[ENTRIES]][%[[B2]], %[[TILE2]]]
// CHECK:           %[[COUNT:.*]] = scf.for
// CHECK:             vector.transfer_read %[[ENTRIES]]
// CHECK:             vector.reduction <add>
// CHECK:           tensor.insert %[[OWN]]
// CHECK:           tensor.insert %[[COUNT]]
// CHECK:         scf.forall
// CHECK:           %[[LAST:.*]] = tensor.extract %[[TABLE]]#1
// CHECK:           %[[LENGTH:.*]] = arith.select %{{.*}}, %c0_i32, %[[LAST]]
// CHECK:           %[[END:.*]] = arith.index_cast %[[LENGTH]]
// CHECK:           scf.for %[[E:.*]] = %c0 to %[[END]] step %c1
// CHECK:             tensor.extract %[[TABLE]]#0[%{{.*}}, %[[E]]]
// CHECK:           } {attn.fold_loop, attn.tabulated}
func.func @padding(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>, %t: tensor<?x?xi32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.forward %q, %k, %v captures(%t : tensor<?x?xi32>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %d: tensor<?x?xi32>):
      %zero = arith.constant 0 : i32
      %x = tensor.extract %d[%b, %j] : tensor<?x?xi32>
      %keep = arith.cmpi ne, %x, %zero : i32
      attn.yield %keep : i1
    } : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// -----

// A row for each tile of rows: a program makes it, tile by tile.
// CHECK-LABEL: func.func @documents
// CHECK-NOT:     vector.reduction <add>
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
