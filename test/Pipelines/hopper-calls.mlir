// RUN: split-file %s %t
// RUN: attn-opt %t/calls.mlir --attn-lower-to-hopper | FileCheck %s
// RUN: not attn-opt %t/calls.mlir --hopper-create-versions -o /dev/null 2>&1 | FileCheck %s --check-prefix=APART

// A function that another one calls is part of it: each function is lowered by itself.
// CHECK-NOT: attn.versions
// CHECK: func.func @f(
// CHECK: gpu.launch
// CHECK-NOT: call @inner
// APART: error: 'func.call' op calls a function of the module, which is lowered by itself: inline it before

//--- calls.mlir
func.func private @inner(%q: tensor<1x2x512x64xbf16>) -> tensor<1x2x512x64xbf16> {
  %o = attn.forward %q, %q, %q
    : tensor<1x2x512x64xbf16>, tensor<1x2x512x64xbf16>, tensor<1x2x512x64xbf16> -> tensor<1x2x512x64xbf16>
  return %o : tensor<1x2x512x64xbf16>
}
func.func @f(%q: tensor<1x2x512x64xbf16>) -> tensor<1x2x512x64xbf16> {
  %o = func.call @inner(%q) : (tensor<1x2x512x64xbf16>) -> tensor<1x2x512x64xbf16>
  return %o : tensor<1x2x512x64xbf16>
}
