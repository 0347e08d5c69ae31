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
