// RUN: attn-opt %s --attn-merge-branches | FileCheck %s
// RUN: attn-opt %s --attn-merge-branches --remarks-filter=attn-merge-branches -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] merged | Category:attn-merge-branches{{$}}

// Two branches around masks, the second one of what the first one gives.
// CHECK-LABEL: func.func @pair
// CHECK: %[[BOTH:.*]] = arith.andi %arg0, %arg1
// CHECK-NEXT: %[[Z:.*]] = scf.if %[[BOTH]]
// CHECK-NEXT:   scf.yield %arg2
// CHECK-NEXT: } else {
// CHECK-NEXT:   %[[Y:.*]] = scf.if %arg0
// CHECK:          arith.negf %arg2
// CHECK:        %[[Z1:.*]] = scf.if %arg1
// CHECK-NEXT:     scf.yield %[[Y]]
// CHECK:          arith.addf %[[Y]], %[[Y]]
// CHECK:        scf.yield %[[Z1]]
// CHECK: return %[[Z]]
func.func @pair(%a: i1, %b: i1, %x: vector<4xf32>) -> vector<4xf32> {
  %y = scf.if %a -> (vector<4xf32>) {
    scf.yield %x : vector<4xf32>
  } else {
    %n = arith.negf %x : vector<4xf32>
    scf.yield %n : vector<4xf32>
  }
  %z = scf.if %b -> (vector<4xf32>) {
    scf.yield %y : vector<4xf32>
  } else {
    %s = arith.addf %y, %y : vector<4xf32>
    scf.yield %s : vector<4xf32>
  }
  return %z : vector<4xf32>
}

// The first one's result is used elsewhere; a side that works; a write in between.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: arith.andi
func.func @kept(%a: i1, %b: i1, %x: vector<4xf32>, %m: memref<4xf32>) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>) {
  %c0 = arith.constant 0 : index
  %y = scf.if %a -> (vector<4xf32>) {
    scf.yield %x : vector<4xf32>
  } else {
    %n = arith.negf %x : vector<4xf32>
    scf.yield %n : vector<4xf32>
  }
  %z = scf.if %b -> (vector<4xf32>) {
    scf.yield %y : vector<4xf32>
  } else {
    %s = arith.addf %y, %y : vector<4xf32>
    scf.yield %s : vector<4xf32>
  }
  %u = scf.if %a -> (vector<4xf32>) {
    %n = arith.negf %z : vector<4xf32>
    scf.yield %n : vector<4xf32>
  } else {
    scf.yield %z : vector<4xf32>
  }
  %v = scf.if %b -> (vector<4xf32>) {
    scf.yield %u : vector<4xf32>
  } else {
    %s = arith.addf %u, %u : vector<4xf32>
    scf.yield %s : vector<4xf32>
  }
  %r = scf.if %a -> (vector<4xf32>) {
    scf.yield %x : vector<4xf32>
  } else {
    %l = vector.load %m[%c0] : memref<4xf32>, vector<4xf32>
    scf.yield %l : vector<4xf32>
  }
  vector.store %x, %m[%c0] : memref<4xf32>, vector<4xf32>
  %t = scf.if %b -> (vector<4xf32>) {
    scf.yield %r : vector<4xf32>
  } else {
    %s = arith.addf %r, %r : vector<4xf32>
    scf.yield %s : vector<4xf32>
  }
  return %y, %v, %t : vector<4xf32>, vector<4xf32>, vector<4xf32>
}
