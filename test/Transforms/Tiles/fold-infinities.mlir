// RUN: attn-opt %s --attn-fold-infinities --canonicalize | FileCheck %s
// RUN: attn-opt %s --attn-fold-infinities --canonicalize --remarks-filter=attn-fold-infinities -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] folded | Category:attn-fold-infinities{{$}}

// What a peeled first iteration of a softmax has: its factor for the old sum is 0.

// CHECK-LABEL: func @first
// CHECK:         %[[ZERO:.*]] = arith.constant dense<0.000000e+00>
// CHECK:         return %[[ZERO]]
func.func @first(%x: vector<64xf32>) -> vector<64xf32> {
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<64xf32>
  %m = arith.maxnumf %ninf, %x : vector<64xf32>
  %isEmpty = arith.cmpf oeq, %m, %ninf : vector<64xf32>
  %used = arith.select %isEmpty, %zero, %m : vector<64xi1>, vector<64xf32>
  %d = arith.subf %ninf, %used : vector<64xf32>
  %e = math.exp2 %d : vector<64xf32>
  %s = arith.mulf %zero, %e : vector<64xf32>
  return %s : vector<64xf32>
}

// CHECK-LABEL: func @scalar
// CHECK:         arith.constant 0xFF800000 : f32
// CHECK-NOT:     arith.subf
func.func @scalar(%x: f32) -> f32 {
  %ninf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %m = arith.maxnumf %x, %ninf : f32
  %isEmpty = arith.cmpf oeq, %m, %ninf : f32
  %used = arith.select %isEmpty, %zero, %m : f32
  %d = arith.subf %ninf, %used : f32
  return %d : f32
}

// A maximumNumber with a finite number is one, whatever the other is.
// CHECK-LABEL: func @least
// CHECK:         arith.constant 0xFF800000 : f32
// CHECK-NOT:     arith.subf
func.func @least(%x: f32) -> f32 {
  %ninf = arith.constant 0xFF800000 : f32
  %least = arith.constant -1.0e30 : f32
  %used = arith.maxnumf %x, %least : f32
  %d = arith.subf %ninf, %used : f32
  return %d : f32
}

// x may be NaN, and so may the difference.
// CHECK-LABEL: func @nan
// CHECK:         arith.subf
func.func @nan(%m: f32) -> f32 {
  %ninf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %isEmpty = arith.cmpf oeq, %m, %ninf : f32
  %used = arith.select %isEmpty, %zero, %m : f32
  %d = arith.subf %ninf, %used : f32
  return %d : f32
}

// -inf - -inf is NaN.
// CHECK-LABEL: func @unguarded
// CHECK:         arith.subf
func.func @unguarded(%x: f32) -> f32 {
  %ninf = arith.constant 0xFF800000 : f32
  %m = arith.maxnumf %x, %ninf : f32
  %d = arith.subf %ninf, %m : f32
  return %d : f32
}

// What takes the place of -inf is infinite itself.
// CHECK-LABEL: func @infinite
// CHECK:         arith.subf
func.func @infinite(%x: f32) -> f32 {
  %ninf = arith.constant 0xFF800000 : f32
  %m = arith.maxnumf %x, %ninf : f32
  %isEmpty = arith.cmpf oeq, %m, %ninf : f32
  %used = arith.select %isEmpty, %ninf, %m : f32
  %d = arith.subf %ninf, %used : f32
  return %d : f32
}

// Another maximum is taken where it is larger than -inf: always, or it is -inf itself.
// CHECK-LABEL: func @select
// CHECK:         %[[M:.*]] = arith.maxnumf
// CHECK-NEXT:    return %[[M]]
func.func @select(%x: vector<64xf32>) -> vector<64xf32> {
  %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
  %m = arith.maxnumf %x, %ninf : vector<64xf32>
  %grows = arith.cmpf ogt, %m, %ninf : vector<64xf32>
  %taken = arith.select %grows, %m, %ninf : vector<64xi1>, vector<64xf32>
  return %taken : vector<64xf32>
}

// NaN is not larger: -inf then.
// CHECK-LABEL: func @select_nan
// CHECK:         arith.select
func.func @select_nan(%x: f32) -> f32 {
  %ninf = arith.constant 0xFF800000 : f32
  %grows = arith.cmpf ogt, %x, %ninf : f32
  %taken = arith.select %grows, %x, %ninf : f32
  return %taken : f32
}
