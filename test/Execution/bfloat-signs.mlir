// RUN: attn-run %s --target=cpu --shape 0=2x2x40x16 --shape 1=2x2x40x16 --shape 2=2x2x40x16 --shape 3=2 --shape 4=2 --shape 5=2 --fill 3=uniform:-9:9 --fill 4=uniform:-2:2 --fill 5=uniform:-2:2 --check | FileCheck %s
// CHECK-COUNT-2: ok

// Signs of numbers per head that are rounded to bf16 and read for nothing else: of integers, of a
// sum, of f64.
func.func @main(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>, %v: tensor<?x?x?x16xf32>, %n: tensor<?xi32>,
                %x: tensor<?xbf16>, %d: tensor<?xf64>) -> (tensor<?x?x?x16xf32>, tensor<?x?x?xf32>) {
  %o, %l = attn.forward %q, %k, %v captures(%n, %x, %d : tensor<?xi32>, tensor<?xbf16>, tensor<?xf64>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %cn: tensor<?xi32>, %cx: tensor<?xbf16>, %cd: tensor<?xf64>):
      %n0 = tensor.extract %cn[%h] : tensor<?xi32>
      %x0 = tensor.extract %cx[%h] : tensor<?xbf16>
      %d0 = tensor.extract %cd[%h] : tensor<?xf64>
      %one = arith.constant 1.0 : f32
      %two = arith.constant 2.0 : f32
      %four = arith.constant 4.0 : f32
      %integer = arith.sitofp %n0 : i32 to bf16
      %integer32 = arith.extf %integer : bf16 to f32
      %half = arith.constant 0.5 : bf16
      %sum = arith.addf %x0, %half : bf16
      %sum32 = arith.extf %sum : bf16 to f32
      %double = arith.truncf %d0 : f64 to bf16
      %double32 = arith.extf %double : bf16 to f32
      %s0 = math.copysign %one, %integer32 : f32
      %s1 = math.copysign %two, %sum32 : f32
      %s2 = math.copysign %four, %double32 : f32
      %t0 = arith.addf %s, %s0 : f32
      %t1 = arith.addf %t0, %s1 : f32
      %t2 = arith.addf %t1, %s2 : f32
      attn.yield %t2 : f32
    } : tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32> -> tensor<?x?x?x16xf32>, tensor<?x?x?xf32>
  return %o, %l : tensor<?x?x?x16xf32>, tensor<?x?x?xf32>
}
