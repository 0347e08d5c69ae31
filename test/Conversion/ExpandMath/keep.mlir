// RUN: attn-opt %s --attn-expand-math=keep=math.tanh,math.exp | FileCheck %s
// What is kept stays, also where it has a pattern of our own.
// CHECK-LABEL: func.func @f
// CHECK: math.tanh
// CHECK: math.exp
// CHECK-NOT: math.sin
// CHECK: return
func.func @f(%x: f32) -> f32 {
  %t = math.tanh %x : f32
  %e = math.exp %t : f32
  %s = math.sin %e : f32
  return %s : f32
}

// RUN: attn-opt %s "--attn-expand-math=keep=math.tanh,math.exp,math.log,math.sqrt doubles" | FileCheck %s --check-prefix=DOUBLES
// Of f64 no function is left that has no instruction, whatever is kept of f32.
// DOUBLES-LABEL: func.func @doubles
// DOUBLES-NOT: math.{{(exp|log|tanh|rsqrt)}}
// DOUBLES: math.sqrt
// DOUBLES: return
func.func @doubles(%x: vector<4xf64>) -> vector<4xf64> {
  %a = math.exp %x : vector<4xf64>
  %b = math.log %a : vector<4xf64>
  %c = math.tanh %b : vector<4xf64>
  %d = math.exp2 %c : vector<4xf64>
  %e = math.rsqrt %d : vector<4xf64>
  return %e : vector<4xf64>
}
