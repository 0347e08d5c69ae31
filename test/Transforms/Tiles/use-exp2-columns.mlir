// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-use-exp2))" | FileCheck %s

// exp(x * c - l) with a value of l for each column: the shift is scaled once per
// column, as it is once per row.
// CHECK-LABEL: func.func @columns
// CHECK-SAME:  (%[[X:.*]]: vector<128x64xf32>, %[[L:.*]]: vector<64xf32>)
// CHECK-DAG:   %[[C:.*]] = arith.constant dense<0.180336878> : vector<128x64xf32>
// CHECK-DAG:   %[[E:.*]] = arith.constant dense<-1.44269502> : vector<64xf32>
// CHECK:       %[[S:.*]] = arith.mulf %[[L]], %[[E]] : vector<64xf32>
// CHECK:       %[[B:.*]] = vector.broadcast %[[S]] : vector<64xf32> to vector<128x64xf32>
// CHECK:       %[[F:.*]] = math.fma %[[X]], %[[C]], %[[B]]
// CHECK:       math.exp2 %[[F]]
func.func @columns(%x: vector<128x64xf32>, %l: vector<64xf32>) -> vector<128x64xf32> {
  %c = arith.constant dense<0.125> : vector<128x64xf32>
  %s = arith.mulf %x, %c : vector<128x64xf32>
  %b = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
  %d = arith.subf %s, %b : vector<128x64xf32>
  %p = math.exp %d : vector<128x64xf32>
  return %p : vector<128x64xf32>
}
