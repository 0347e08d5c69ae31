// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-sink-into-branches))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-sink-into-branches))" --remarks-filter=attn-sink-into-branches -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] sunk | Category:attn-sink-into-branches{{$}}

// What both branches use on the side of masked tiles, and what only that uses, goes
// there, twice. What is in front of a branch that is not around a mask, what both sides
// use and what is used outside stays.
// CHECK-LABEL: func.func @mask
// CHECK-NOT: arith.cmpi sge
// CHECK: %[[BOTH:.*]] = arith.addf %arg2, %arg2
// CHECK-NEXT: %[[OUT:.*]] = arith.mulf %arg2, %arg3
// CHECK-NEXT: %[[PLAIN:.*]] = arith.subf %arg2, %arg3
// CHECK-NEXT: scf.if %arg4
// CHECK-NEXT: scf.yield %[[BOTH]]
// CHECK-NEXT: } else {
// CHECK-NEXT: %[[J:.*]] = vector.broadcast %arg1
// CHECK-NEXT: %[[KEEP:.*]] = arith.cmpi sge, %arg0, %[[J]]
// CHECK-NEXT: arith.select %[[KEEP]], %[[BOTH]]
// CHECK: arith.mulf
// CHECK: scf.if %arg4
// CHECK: } else {
// CHECK-NEXT: %[[J1:.*]] = vector.broadcast %arg1
// CHECK-NEXT: %[[KEEP1:.*]] = arith.cmpi sge, %arg0, %[[J1]]
// CHECK-NEXT: arith.select %[[KEEP1]]
// CHECK: scf.if %arg4
// CHECK-NEXT: scf.yield %[[PLAIN]]
func.func @mask(%i: vector<64x64xindex>, %j0: index, %s: vector<64x64xf32>, %d: vector<64x64xf32>, %full: i1) -> (vector<64x64xf32>, vector<64x64xf32>) {
  %j = vector.broadcast %j0 : index to vector<64x64xindex>
  %keep = arith.cmpi sge, %i, %j : vector<64x64xindex>
  %both = arith.addf %s, %s : vector<64x64xf32>
  %out = arith.mulf %s, %d : vector<64x64xf32>
  %plain = arith.subf %s, %d : vector<64x64xf32>
  %a = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %both : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %both, %s : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  %m = arith.mulf %a, %out : vector<64x64xf32>
  %b = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %m : vector<64x64xf32>
  } else {
    %x = arith.select %keep, %m, %out : vector<64x64xi1>, vector<64x64xf32>
    scf.yield %x : vector<64x64xf32>
  } {attn.tile_kind}
  %c = scf.if %full -> (vector<64x64xf32>) {
    scf.yield %plain : vector<64x64xf32>
  } else {
    scf.yield %b : vector<64x64xf32>
  }
  return %b, %c : vector<64x64xf32>, vector<64x64xf32>
}
