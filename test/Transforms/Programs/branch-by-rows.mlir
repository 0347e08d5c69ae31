// RUN: attn-opt %s --attn-branch-by-rows --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-branch-by-rows --split-input-file --remarks-filter=attn-branch-by-rows -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] branched | Category:attn-branch-by-rows{{$}}

// What only the rare exponent needs goes into the branch, reads of memory that stays as it is included; the exponential is
// one.
// CHECK-LABEL: func @branch
func.func @branch(%lse: memref<?xf32>, %max: memref<?xf32>, %out: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<64xf32>
  %k = arith.constant dense<1.25> : vector<128x64xf32>
  %one = arith.constant dense<1.0> : vector<128x64xf32>
  scf.forall (%t) in (%n) {
    %s = vector.transfer_read %out[%t, %c0], %zero {in_bounds = [true, true]} : memref<?x?xf32>, vector<128x64xf32>
    // CHECK: %[[L:.*]] = vector.transfer_read %arg0
    // CHECK: %[[IS:.*]] = arith.cmpf oge
    // CHECK: %[[MINUS:.*]] = arith.negf %[[L]]
    // CHECK: %[[SOME:.*]] = vector.reduction <or>, %[[IS]] {attn.may_hold} : vector<64xi1> into i1
    // CHECK: %[[P:.*]]:2 = scf.if %[[SOME]]
    // CHECK: %[[M:.*]] = vector.transfer_read %arg1
    // CHECK: %[[D:.*]] = arith.subf
    // CHECK: %[[X:.*]] = arith.mulf %[[D]], %{{.*}} : vector<128x64xf32>
    // CHECK: %[[ROWS:.*]] = vector.broadcast %[[IS]]
    // CHECK: %[[TILE:.*]] = arith.select %[[ROWS]], %[[X]], %[[S:.*]] :
    // CHECK: %[[VECTOR:.*]] = arith.select %[[IS]], %{{.*}}, %[[MINUS]]
    // CHECK: scf.yield %[[TILE]], %[[VECTOR]]
    // CHECK: } else {
    // CHECK-NEXT: scf.yield %[[S]], %[[MINUS]]
    // CHECK: %[[R:.*]] = vector.broadcast %[[P]]#1
    // CHECK: %[[SUM:.*]] = math.fma %[[P]]#0, %{{.*}}, %[[R]]
    // CHECK: %[[EXP:.*]] = math.exp2 %[[SUM]]
    // CHECK: vector.transfer_write %[[EXP]]
    %l = vector.transfer_read %lse[%t], %zero {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
    %is = arith.cmpf oge, %l, %least : vector<64xf32>
    %m = vector.transfer_read %max[%t], %zero {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
    %mm = vector.broadcast %m : vector<64xf32> to vector<128x64xf32>
    %d = arith.subf %s, %mm : vector<128x64xf32>
    %lm = vector.transfer_read %max[%t], %zero {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
    %lr = vector.broadcast %lm : vector<64xf32> to vector<128x64xf32>
    %e = math.fma %d, %one, %lr : vector<128x64xf32>
    %exact = math.exp2 %e : vector<128x64xf32>
    %minus = arith.negf %l : vector<64xf32>
    %ll = vector.broadcast %minus : vector<64xf32> to vector<128x64xf32>
    %x = math.fma %s, %k, %ll : vector<128x64xf32>
    %plain = math.exp2 %x : vector<128x64xf32>
    %rows = vector.broadcast %is : vector<64xi1> to vector<128x64xi1>
    %p = arith.select %rows, %exact, %plain : vector<128x64xi1>, vector<128x64xf32>
    vector.transfer_write %p, %out[%t, %c0] {in_bounds = [true, true]} : vector<128x64xf32>, memref<?x?xf32>
  }
  return
}

// -----

// Not by rows; an exponential that is used elsewhere; one of no product with a number.
// CHECK-LABEL: func @stays
// CHECK-NOT: scf.if
func.func @stays(%lse: memref<?xf32>, %out: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<128x64xf32>
  %least_row = arith.constant dense<256.0> : vector<64xf32>
  %k = arith.constant dense<1.25> : vector<128x64xf32>
  scf.forall (%t) in (%n) {
    %s = vector.transfer_read %out[%t, %c0], %zero {in_bounds = [true, true]} : memref<?x?xf32>, vector<128x64xf32>
    %l = vector.transfer_read %lse[%t], %zero {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
    %is = arith.cmpf oge, %l, %least_row : vector<64xf32>
    %ll = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
    %rows = vector.broadcast %is : vector<64xi1> to vector<128x64xi1>
    %x = math.fma %s, %k, %ll : vector<128x64xf32>
    %a = math.exp2 %x : vector<128x64xf32>
    %l2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
    %y = math.fma %s, %k, %l2 : vector<128x64xf32>
    %b = math.exp2 %y : vector<128x64xf32>
    %each = arith.cmpf oge, %s, %least : vector<128x64xf32>
    %p = arith.select %each, %a, %b : vector<128x64xi1>, vector<128x64xf32>

    %l3 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
    %z = math.fma %p, %k, %l3 : vector<128x64xf32>
    %c = math.exp2 %z : vector<128x64xf32>
    %l4 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
    %w = math.fma %s, %k, %l4 : vector<128x64xf32>
    %d = math.exp2 %w : vector<128x64xf32>
    %q = arith.select %rows, %c, %d : vector<128x64xi1>, vector<128x64xf32>
    %r = arith.addf %q, %c : vector<128x64xf32>

    %l5 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
    %u = math.fma %r, %s, %l5 : vector<128x64xf32>
    %e = math.exp2 %u : vector<128x64xf32>
    %l6 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
    %v = math.fma %r, %k, %l6 : vector<128x64xf32>
    %f = math.exp2 %v : vector<128x64xf32>
    %g = arith.select %rows, %e, %f : vector<128x64xi1>, vector<128x64xf32>
    vector.transfer_write %g, %out[%t, %c0] {in_bounds = [true, true]} : vector<128x64xf32>, memref<?x?xf32>
  }
  return
}
