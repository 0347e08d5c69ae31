// 16-bit floats need no function of a library, whatever the processor has for them.
// RUN: attn-opt %s --attn-differentiate=saved-results --attn-cpu-pipeline=vector-bits=256 \
// RUN:   | %mlir_tools/mlir-translate --mlir-to-llvmir | %mlir_tools/opt -O3 -mcpu=x86-64-v3 \
// RUN:   | %mlir_tools/llc -mcpu=x86-64-v3 \
// RUN:   | FileCheck %s --implicit-check-not=sfbf2 --implicit-check-not=sfhf2 --implicit-check-not=hfsf2
// RUN: attn-opt %s --attn-differentiate=saved-results --attn-cpu-pipeline="vector-bits=512 matrix-unit=none" \
// RUN:   | %mlir_tools/mlir-translate --mlir-to-llvmir | %mlir_tools/opt -O3 -mcpu=x86-64-v4 \
// RUN:   | %mlir_tools/llc -mcpu=x86-64-v4 \
// RUN:   | FileCheck %s --implicit-check-not=sfbf2 --implicit-check-not=sfhf2 --implicit-check-not=hfsf2

// CHECK: brains_gradient:
// CHECK: float16_gradient:
func.func @brains(%q: tensor<?x?x?x16xbf16>, %k: tensor<?x?x?x16xbf16>, %v: tensor<?x?x?x16xbf16>,
                  %sink: tensor<?xf32>, %document: tensor<?x?xi32>)
    -> (tensor<?x?x?x16xbf16>, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v sink(%sink : tensor<?xf32>)
    captures(%document : tensor<?x?xi32>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %d: tensor<?x?xi32>):
      %x = tensor.extract %d[%b, %i] : tensor<?x?xi32>
      %y = tensor.extract %d[%b, %j] : tensor<?x?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      attn.yield %same : i1
    }
    : tensor<?x?x?x16xbf16>, tensor<?x?x?x16xbf16>, tensor<?x?x?x16xbf16>
    -> tensor<?x?x?x16xbf16>, tensor<?x?x?xf32>
  return %o, %lse : tensor<?x?x?x16xbf16>, tensor<?x?x?xf32>
}
func.func @float16(%q: tensor<?x?x?x16xf16>, %k: tensor<?x?x?x16xf16>, %v: tensor<?x?x?x16xf16>,
                  %bias: tensor<?x?xf16>) -> (tensor<?x?x?x16xf16>, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v captures(%bias : tensor<?x?xf16>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?x?xf16>):
      %x = tensor.extract %c[%i, %j] : tensor<?x?xf16>
      %y = arith.extf %x : f16 to f32
      %t = arith.addf %s, %y : f32
      attn.yield %t : f32
    }
    : tensor<?x?x?x16xf16>, tensor<?x?x?x16xf16>, tensor<?x?x?x16xf16>
    -> tensor<?x?x?x16xf16>, tensor<?x?x?xf32>
  return %o, %lse : tensor<?x?x?x16xf16>, tensor<?x?x?xf32>
}
