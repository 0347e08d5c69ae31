// RUN: attn-opt %s --hopper-branch-by-rows --split-input-file | FileCheck %s

// What only the rare exponential needs goes into the branch, reads of memory that stays as it is included; the other one
// is computed on both sides, but not the vector that it has in common.
// CHECK-LABEL: func @branch
func.func @branch(%lse: memref<?xf32>, %max: memref<?xf32>, %out: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<64xf32>
  %k = arith.constant dense<1.25> : vector<128x64xf32>
  scf.forall (%t) in (%n) {
    %s = vector.transfer_read %out[%t, %c0], %zero {in_bounds = [true, true]} : memref<?x?xf32>, vector<128x64xf32>
    // CHECK: %[[L:.*]] = vector.transfer_read %arg0
    // CHECK: %[[IS:.*]] = arith.cmpf oge
    // CHECK: %[[MINUS:.*]] = arith.negf %[[L]]
    // CHECK: %[[SOME:.*]] = vector.reduction <or>, %[[IS]] {hopper.may_hold} : vector<64xi1> into i1
    // CHECK: %[[P:.*]] = scf.if %[[SOME]]
    // CHECK: vector.broadcast %[[MINUS]]
    // CHECK: math.fma
    // CHECK: %[[PLAIN:.*]] = math.exp2
    // CHECK: vector.transfer_read %arg1
    // CHECK: arith.subf
    // CHECK: %[[EXACT:.*]] = math.exp2
    // CHECK: %[[ROWS:.*]] = vector.broadcast %[[IS]]
    // CHECK: %[[Q:.*]] = arith.select %[[ROWS]], %[[EXACT]], %[[PLAIN]]
    // CHECK: scf.yield %[[Q]]
    // CHECK: } else {
    // CHECK-NEXT: vector.broadcast %[[MINUS]]
    // CHECK-NEXT: math.fma
    // CHECK-NEXT: %[[PLAIN:.*]] = math.exp2
    // CHECK-NEXT: scf.yield %[[PLAIN]]
    // CHECK: vector.transfer_write %[[P]]
    %l = vector.transfer_read %lse[%t], %zero {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
    %is = arith.cmpf oge, %l, %least : vector<64xf32>
    %m = vector.transfer_read %max[%t], %zero {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
    %mm = vector.broadcast %m : vector<64xf32> to vector<128x64xf32>
    %d = arith.subf %s, %mm : vector<128x64xf32>
    %exact = math.exp2 %d : vector<128x64xf32>
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

// Not by rows, or an exponential that is used elsewhere.
// CHECK-LABEL: func @stays
// CHECK-NOT: scf.if
func.func @stays(%out: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant dense<256.0> : vector<128x64xf32>
  %least_row = arith.constant dense<256.0> : vector<64xf32>
  scf.forall (%t) in (%n) {
    %s = vector.transfer_read %out[%t, %c0], %zero {in_bounds = [true, true]} : memref<?x?xf32>, vector<128x64xf32>
    %each = arith.cmpf oge, %s, %least : vector<128x64xf32>
    %a = math.exp2 %s : vector<128x64xf32>
    %m = arith.negf %s : vector<128x64xf32>
    %b = math.exp2 %m : vector<128x64xf32>
    %p = arith.select %each, %a, %b : vector<128x64xi1>, vector<128x64xf32>
    %l = vector.extract %s[0] : vector<64xf32> from vector<128x64xf32>
    %one = arith.cmpf oge, %l, %least_row : vector<64xf32>
    %rows = vector.broadcast %one : vector<64xi1> to vector<128x64xi1>
    %c = math.exp2 %p : vector<128x64xf32>
    %q = arith.select %rows, %c, %b : vector<128x64xi1>, vector<128x64xf32>
    %r = arith.addf %q, %c : vector<128x64xf32>
    vector.transfer_write %r, %out[%t, %c0] {in_bounds = [true, true]} : vector<128x64xf32>, memref<?x?xf32>
  }
  return
}
