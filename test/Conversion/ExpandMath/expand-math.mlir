// RUN: attn-opt %s --attn-expand-math | FileCheck %s
// RUN: attn-opt %s --attn-expand-math --remarks-filter=attn-expand-math -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}15 [Passed] expanded | Category:attn-expand-math{{$}}

// Two bounds, round and reduce, six steps of Horner, an exponent, a product.
// CHECK-LABEL: func @exp_f32
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>
// CHECK-DAG:     %[[SHIFTER:.*]] = arith.constant dense<0x4B40007E> : vector<16xf32>
// CHECK-DAG:     %[[PLACES:.*]] = arith.constant dense<23> : vector<16xi32>
// CHECK-COUNT-2: arith.select
// CHECK:         %[[T:.*]] = math.fma
// CHECK:         %[[N:.*]] = arith.subf %[[T]], %[[SHIFTER]]
// CHECK-COUNT-8: math.fma
// CHECK:         %[[BITS:.*]] = arith.bitcast %[[T]] : vector<16xf32> to vector<16xi32>
// CHECK:         %[[EXPONENT:.*]] = arith.shli %[[BITS]], %[[PLACES]]
// CHECK:         %[[SCALE:.*]] = arith.bitcast %[[EXPONENT]]
// CHECK:         arith.mulf %{{.*}}, %[[SCALE]] : vector<16xf32>
// CHECK-NOT:     math.exp
func.func @exp_f32(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL:    func @exp_f64
// CHECK-COUNT-14: math.fma {{.*}} : f64
// CHECK:          arith.shli %{{.*}}, %{{.*}} : i64
func.func @exp_f64(%x: f64) -> f64 {
  %y = math.exp %x : f64
  return %y : f64
}

// CHECK-LABEL: func @exp_bf16
// CHECK:         arith.extf
// CHECK:         arith.mulf {{.*}} : vector<8xf32>
// CHECK:         arith.truncf
func.func @exp_bf16(%x: vector<8xbf16>) -> vector<8xbf16> {
  %y = math.exp %x : vector<8xbf16>
  return %y : vector<8xbf16>
}

// A polynomial of odd powers below 1; the exponential, and one division, above.
// CHECK-LABEL: func @tanh_f32
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>
// CHECK:         %[[SQUARE:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK-COUNT-6: math.fma
// CHECK:         %[[CUBE:.*]] = arith.mulf %[[X]], %[[SQUARE]]
// CHECK:         %[[SMALL:.*]] = math.fma %[[CUBE]], %{{.*}}, %[[X]]
// CHECK:         %[[SIZE:.*]] = math.absf %[[X]]
// CHECK:         arith.addf %[[SIZE]], %[[SIZE]]
// CHECK:         arith.divf
// CHECK:         %[[LARGE:.*]] = arith.subf
// CHECK:         %[[IS_SMALL:.*]] = arith.cmpf olt, %[[SIZE]]
// CHECK:         %[[Y:.*]] = arith.select %[[IS_SMALL]], %[[SMALL]], %[[LARGE]]
// CHECK:         math.copysign %[[Y]], %[[X]]
// CHECK-NOT:     math.exp
func.func @tanh_f32(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.tanh %x : vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func @tanh_f16
// CHECK:         arith.extf %{{.*}} : f16 to f32
// CHECK:         arith.truncf %{{.*}} : f32 to f16
func.func @tanh_f16(%x: f16) -> f16 {
  %y = math.tanh %x : f16
  return %y : f16
}

// A quarter is rounded off in f64; its number says which polynomial, and the sign.
// CHECK-LABEL: func @sin_f32
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>
// CHECK:         %[[WIDE:.*]] = arith.extf %[[X]] : vector<16xf32> to vector<16xf64>
// CHECK:         %[[SHIFTED:.*]] = math.fma %[[WIDE]]
// CHECK-COUNT-2: math.fma {{.*}} : vector<16xf64>
// CHECK:         arith.truncf %{{.*}} : vector<16xf64> to vector<16xf32>
// CHECK:         %[[BITS:.*]] = arith.bitcast %[[SHIFTED]] : vector<16xf64> to vector<16xi64>
// CHECK:         arith.trunci %[[BITS]] : vector<16xi64> to vector<16xi32>
// CHECK-NOT:     math.sin
func.func @sin_f32(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.sin %x : vector<16xf32>
  return %y : vector<16xf32>
}

// The cosine begins one quarter later.
// CHECK-LABEL: func @cos_f16
// CHECK:         %[[ONE:.*]] = arith.constant 1 : i32
// CHECK:         arith.extf %{{.*}} : f16 to f32
// CHECK:         %[[QUARTER:.*]] = arith.trunci %{{.*}} : i64 to i32
// CHECK:         arith.addi %[[QUARTER]], %[[ONE]] : i32
// CHECK:         arith.truncf %{{.*}} : f32 to f16
func.func @cos_f16(%x: f16) -> f16 {
  %y = math.cos %x : f16
  return %y : f16
}

// CHECK-LABEL: func @atan_f32
// CHECK-SAME:    %[[X:.*]]: f32
// CHECK:         %[[TURNED:.*]] = arith.divf %{{.*}}, %{{.*}} : f32
// CHECK:         arith.select %{{.*}}, %[[TURNED]]
// CHECK-COUNT-9: math.fma
// CHECK:         math.copysign %{{.*}}, %[[X]]
func.func @atan_f32(%x: f32) -> f32 {
  %y = math.atan %x : f32
  return %y : f32
}

// Signs of zeros count, so that the left is where x has a sign.
// CHECK-LABEL: func @atan2_f32
// CHECK-SAME:    %[[Y:.*]]: f32, %[[X:.*]]: f32
// CHECK:         arith.maximumf
// CHECK:         arith.minimumf
// CHECK:         arith.divf
// CHECK-COUNT-9: math.fma
// CHECK:         %[[SIGN:.*]] = math.copysign %{{.*}}, %[[X]]
// CHECK:         arith.cmpf olt, %[[SIGN]],
// CHECK:         math.copysign %{{.*}}, %[[Y]]
func.func @atan2_f32(%y: f32, %x: f32) -> f32 {
  %z = math.atan2 %y, %x : f32
  return %z : f32
}

// CHECK-LABEL: func @atan2_f16
// CHECK-COUNT-2: arith.extf
// CHECK-NOT:     math.atan2
// CHECK:         arith.truncf %{{.*}} : vector<4xf32> to vector<4xf16>
func.func @atan2_f16(%y: vector<4xf16>, %x: vector<4xf16>) -> vector<4xf16> {
  %z = math.atan2 %y, %x : vector<4xf16>
  return %z : vector<4xf16>
}

// CHECK-LABEL: func @log1p_f64
// CHECK-SAME:    %[[X:.*]]: f64
// CHECK:         %[[U:.*]] = arith.addf %[[X]], %{{.*}} : f64
// CHECK:         %[[LESS:.*]] = arith.subf %[[U]], %{{.*}} : f64
// CHECK:         %[[RATIO:.*]] = arith.divf %[[X]], %[[LESS]] : f64
// CHECK:         %[[LOG:.*]] = math.log %[[U]] : f64
// CHECK:         arith.mulf %[[LOG]], %[[RATIO]] : f64
func.func @log1p_f64(%x: f64) -> f64 {
  %y = math.log1p %x : f64
  return %y : f64
}

// CHECK-LABEL: func @expm1_f64
// CHECK:         arith.shli
// CHECK:         math.log %{{.*}} : f64
// CHECK-NOT:     math.expm1
func.func @expm1_f64(%x: f64) -> f64 {
  %y = math.expm1 %x : f64
  return %y : f64
}

// f64 has no polynomials upstream; the library serves.
// CHECK-LABEL: func @others
// CHECK-NOT:     math.log %{{.*}} : vector<16xf32>
// CHECK:         math.tanh %{{.*}} : f64
func.func @others(%x: vector<16xf32>, %d: f64) -> (vector<16xf32>, f64) {
  %y = math.log %x : vector<16xf32>
  %z = math.tanh %d : f64
  return %y, %z : vector<16xf32>, f64
}

// CHECK-LABEL: func @kept
// CHECK:         math.exp %{{.*}} : f128
func.func @kept(%x: f128) -> f128 {
  %y = math.exp %x : f128
  return %y : f128
}

// CHECK-LABEL: func @round_twice
// CHECK:         %[[SINGLE:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK:         arith.truncf %[[SINGLE]] : f32 to bf16
func.func @round_twice(%x: f64) -> bf16 {
  %y = arith.truncf %x : f64 to bf16
  return %y : bf16
}
