// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-use-exp2,canonicalize,cse))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-use-exp2,canonicalize,cse))" --remarks-filter=attn-use-exp2 -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}6 [Passed] base 2 | Category:attn-use-exp2{{$}}
// REMARKS-DAG: {{^ *}}1 [Passed] inverted | Category:attn-use-exp2{{$}}
// REMARKS-DAG: {{^ *}}4 [Passed] maximum in base 2 | Category:attn-use-exp2{{$}}

// One fma and one exp2 per score. The maximum is carried in units of ln 2: what is
// subtracted is what the log-sum-exp adds, to the bit.
// CHECK-LABEL: func.func @online
// CHECK-SAME: %[[X:.*]]: vector<64x32xf32>
// CHECK-DAG: %[[LN2:.*]] = arith.constant dense<0.693147182> : vector<64xf32>
// CHECK-DAG: %[[C:.*]] = arith.constant dense<0.180336878> : vector<64x32xf32>
// CHECK-DAG: %[[CROW:.*]] = arith.constant dense<0.180336878> : vector<64xf32>
// CHECK-DAG: %[[NINF:.*]] = arith.constant dense<0xFF800000> : vector<64xf32>
// CHECK-DAG: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<64xf32>
// CHECK: %[[R:.*]]:2 = scf.for {{.*}} iter_args(%[[M0:.*]] = %[[NINF]], %[[L0:.*]] = %[[ZERO]])
// CHECK-NEXT: %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[X]], %[[NINF]] [1]
// CHECK-NEXT: %[[T:.*]] = arith.mulf %[[MAX]], %[[CROW]]
// CHECK-NEXT: %[[M:.*]] = arith.maxnumf %[[M0]], %[[T]]
// CHECK-NEXT: %[[DEAD:.*]] = arith.cmpf oeq, %[[M]], %[[NINF]]
// CHECK-NEXT: %[[G:.*]] = arith.select %[[DEAD]], %[[ZERO]], %[[M]]
// CHECK-NEXT: %[[N:.*]] = arith.negf %[[G]]
// CHECK-NEXT: vector.broadcast %[[N]]
// CHECK-NEXT: %[[NT:.*]] = vector.transpose
// CHECK-NEXT: %[[E:.*]] = math.fma %[[X]], %[[C]], %[[NT]]
// CHECK-NEXT: %[[P:.*]] = math.exp2 %[[E]]
// CHECK-NEXT: %[[D:.*]] = arith.subf %[[M0]], %[[G]]
// CHECK-NEXT: math.exp2 %[[D]]
// CHECK: scf.yield %[[M]],
// CHECK: %[[LOG:.*]] = math.log %[[R]]#1
// CHECK-NEXT: %[[LSE:.*]] = math.fma %[[R]]#0, %[[LN2]], %[[LOG]]
// CHECK-NEXT: return %[[LSE]]
func.func @online(%x: vector<64x32xf32>, %n: index) -> vector<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %scale = arith.constant dense<0.125> : vector<64x32xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %s = arith.mulf %x, %scale : vector<64x32xf32>
    %m = vector.multi_reduction <maxnumf>, %s, %m0 [1] : vector<64x32xf32> to vector<64xf32>
    %dead = arith.cmpf oeq, %m, %ninf : vector<64xf32>
    %g = arith.select %dead, %zero, %m : vector<64xi1>, vector<64xf32>
    %b = vector.broadcast %g : vector<64xf32> to vector<32x64xf32>
    %t = vector.transpose %b, [1, 0] : vector<32x64xf32> to vector<64x32xf32>
    %d = arith.subf %s, %t : vector<64x32xf32>
    %p = math.exp %d : vector<64x32xf32>
    %a = arith.subf %m0, %g : vector<64xf32>
    %alpha = math.exp %a : vector<64xf32>
    %l1 = arith.mulf %l0, %alpha : vector<64xf32>
    %l = vector.multi_reduction <add>, %p, %l1 [1] : vector<64x32xf32> to vector<64xf32>
    scf.yield %m, %l : vector<64xf32>, vector<64xf32>
  }
  %log = math.log %r#1 : vector<64xf32>
  %lse = arith.addf %r#0, %log : vector<64xf32>
  return %lse : vector<64xf32>
}

// A factor moves behind the branch around a mask. Without a loop the maximum is in
// units of ln 2 all the same.
// CHECK-LABEL: func.func @masked
// CHECK-SAME: %[[X:.*]]: vector<64x32xf32>, %[[K:.*]]: vector<64x32xi1>, %[[FULL:.*]]: i1
// CHECK: %[[S:.*]] = scf.if %[[FULL]]
// CHECK-NEXT: scf.yield %[[X]]
// CHECK: %[[SEL:.*]] = arith.select %[[K]], %[[X]], %{{.*}}
// CHECK-NEXT: scf.yield %[[SEL]]
// CHECK: %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[S]]
// CHECK-NEXT: %[[M:.*]] = arith.mulf %[[MAX]]
// CHECK-NEXT: %[[N:.*]] = arith.negf %[[M]]
// CHECK: math.fma %[[S]], {{.*}}
// CHECK-NEXT: math.exp2
// CHECK: math.fma %[[M]]
func.func @masked(%x: vector<64x32xf32>, %keep: vector<64x32xi1>, %full: i1) -> (vector<64x32xf32>, vector<64xf32>) {
  %scale = arith.constant dense<0.1> : vector<64x32xf32>
  %hidden = arith.constant dense<0xFF800000> : vector<64x32xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %s = arith.mulf %x, %scale : vector<64x32xf32>
  %f = scf.if %full -> (vector<64x32xf32>) {
    scf.yield %s : vector<64x32xf32>
  } else {
    %masked = arith.select %keep, %s, %hidden : vector<64x32xi1>, vector<64x32xf32>
    scf.yield %masked : vector<64x32xf32>
  }
  %m = vector.multi_reduction <maxnumf>, %f, %ninf [1] : vector<64x32xf32> to vector<64xf32>
  %b = vector.broadcast %m : vector<64xf32> to vector<32x64xf32>
  %t = vector.transpose %b, [1, 0] : vector<32x64xf32> to vector<64x32xf32>
  %d = arith.subf %f, %t : vector<64x32xf32>
  %p = math.exp %d : vector<64x32xf32>
  %l = vector.multi_reduction <add>, %p, %zero [1] : vector<64x32xf32> to vector<64xf32>
  %log = math.log %l : vector<64xf32>
  %lse = arith.addf %m, %log : vector<64xf32>
  return %p, %lse : vector<64x32xf32>, vector<64xf32>
}

// The maximum passes through a branch around empty tiles, and meets a sink after
// the loop.
// CHECK-LABEL: func.func @guarded
// CHECK-SAME: %[[X:[^:]*]]: vector<64x32xf32>, %[[SINK:[^:]*]]: vector<64xf32>
// CHECK-DAG: %[[LOG2E:.*]] = arith.constant dense<1.44269502> : vector<64xf32>
// CHECK: %[[R:.*]] = scf.for {{.*}} iter_args(%[[M0:.*]] = %{{.*}})
// CHECK: %[[IF:.*]] = scf.if
// CHECK: %[[M:.*]] = arith.maxnumf %[[M0]],
// CHECK: scf.yield %[[M]]
// CHECK: scf.yield %[[M0]]
// CHECK: scf.yield %[[IF]]
// CHECK: %[[S:.*]] = arith.mulf %[[SINK]], %[[LOG2E]]
// CHECK-NEXT: %[[ALL:.*]] = arith.maxnumf %[[R]], %[[S]]
// CHECK-NEXT: %[[N:.*]] = arith.negf %[[ALL]]
// CHECK-NEXT: %[[E:.*]] = math.fma %[[SINK]], %[[LOG2E]], %[[N]]
// CHECK-NEXT: math.exp2 %[[E]]
func.func @guarded(%x: vector<64x32xf32>, %sink: vector<64xf32>, %n: index, %y: memref<64x32xf32>) -> vector<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%m0 = %ninf) -> (vector<64xf32>) {
    %odd = arith.index_cast %i : index to i1
    %m1 = scf.if %odd -> (vector<64xf32>) {
      %m = vector.multi_reduction <maxnumf>, %x, %m0 [1] : vector<64x32xf32> to vector<64xf32>
      %b = vector.broadcast %m : vector<64xf32> to vector<32x64xf32>
      %t = vector.transpose %b, [1, 0] : vector<32x64xf32> to vector<64x32xf32>
      %d = arith.subf %x, %t : vector<64x32xf32>
      %p = math.exp %d : vector<64x32xf32>
      vector.transfer_write %p, %y[%c0, %c0] : vector<64x32xf32>, memref<64x32xf32>
      scf.yield %m : vector<64xf32>
    } else {
      scf.yield %m0 : vector<64xf32>
    }
    scf.yield %m1 : vector<64xf32>
  }
  %all = arith.maxnumf %r, %sink : vector<64xf32>
  %d = arith.subf %sink, %all : vector<64xf32>
  %e = math.exp %d : vector<64xf32>
  return %e : vector<64xf32>
}

// CHECK-LABEL: func.func @quotient
// CHECK-SAME: %[[X:.*]]: vector<64x32xf32>, %[[L:.*]]: vector<64xf32>
// CHECK: %[[I:.*]] = arith.divf %{{.*}}, %[[L]] : vector<64xf32>
// CHECK-NEXT: vector.broadcast %[[I]]
// CHECK-NEXT: %[[T:.*]] = vector.transpose
// CHECK-NEXT: arith.mulf %[[X]], %[[T]]
func.func @quotient(%x: vector<64x32xf32>, %l: vector<64xf32>) -> vector<64x32xf32> {
  %b = vector.broadcast %l : vector<64xf32> to vector<32x64xf32>
  %t = vector.transpose %b, [1, 0] : vector<32x64xf32> to vector<64x32xf32>
  %y = arith.divf %x, %t : vector<64x32xf32>
  return %y : vector<64x32xf32>
}

// Neither f64 nor scalars; and no factor that is negative moves.
// CHECK-LABEL: func.func @kept
// CHECK: arith.mulf {{.*}} vector<64xf64>
// CHECK-NEXT: math.exp {{.*}} vector<64xf64>
// CHECK-NEXT: math.exp {{.*}} f32
// CHECK-NEXT: %[[S:.*]] = arith.mulf {{.*}} vector<64x32xf32>
// CHECK-NEXT: vector.multi_reduction <maxnumf>, %[[S]],
func.func @kept(%x: vector<64xf64>, %y: f32, %z: vector<64x32xf32>) -> (vector<64xf64>, f32, vector<64xf32>) {
  %two = arith.constant dense<2.0> : vector<64xf64>
  %minus = arith.constant dense<-2.0> : vector<64x32xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %d = arith.mulf %x, %two : vector<64xf64>
  %e = math.exp %d : vector<64xf64>
  %f = math.exp %y : f32
  %s = arith.mulf %z, %minus : vector<64x32xf32>
  %m = vector.multi_reduction <maxnumf>, %s, %ninf [1] : vector<64x32xf32> to vector<64xf32>
  return %e, %f, %m : vector<64xf64>, f32, vector<64xf32>
}

// The maximum of states in memory, which are few, stays exact.
// CHECK-LABEL: func.func @states
// CHECK: scf.for
// CHECK: %[[M:.*]] = arith.maxnumf %{{.*}}, %[[READ:.*]] : vector<64xf32>
// CHECK: %[[D:.*]] = arith.subf %[[READ]], %[[M]] : vector<64xf32>
// CHECK: %[[X:.*]] = arith.mulf %[[D]], %{{.*}} : vector<64xf32>
// CHECK: math.exp2 %[[X]]
func.func @states(%m: memref<?x64xf32>, %n: index) -> (vector<64xf32>, vector<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %r:2 = scf.for %j = %c0 to %n step %c1 iter_args(%m0 = %ninf, %l0 = %zero) -> (vector<64xf32>, vector<64xf32>) {
    %mj = vector.transfer_read %m[%j, %c0], %f0 {in_bounds = [true]} : memref<?x64xf32>, vector<64xf32>
    %m1 = arith.maxnumf %m0, %mj : vector<64xf32>
    %d = arith.subf %mj, %m1 : vector<64xf32>
    %w = math.exp %d : vector<64xf32>
    %l = arith.addf %l0, %w : vector<64xf32>
    scf.yield %m1, %l : vector<64xf32>, vector<64xf32>
  }
  return %r#0, %r#1 : vector<64xf32>, vector<64xf32>
}
