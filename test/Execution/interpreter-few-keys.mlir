// Few queries and no more keys than one tile, all known at compile time: a program of one CTA, with one
// iteration of its loop, or none.
// RUN: attn-run %s --target=interpreter --entry=one --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=one --check --schedule=order=split_kv | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=few --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=few --check --schedule=parts=3 | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=tile --check | FileCheck %s
// CHECK: check: result 0: ok
func.func @one(%q: tensor<1x1x1x64xbf16>, %k: tensor<1x1x1x64xbf16>, %v: tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16> {
  %o = attn.forward %q, %k, %v : tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16> -> tensor<1x1x1x64xbf16>
  return %o : tensor<1x1x1x64xbf16>
}
func.func @few(%q: tensor<1x1x5x56xbf16>, %k: tensor<1x1x29x56xbf16>, %v: tensor<1x1x29x56xbf16>) -> tensor<1x1x5x56xbf16> {
  %o = attn.forward %q, %k, %v : tensor<1x1x5x56xbf16>, tensor<1x1x29x56xbf16>, tensor<1x1x29x56xbf16> -> tensor<1x1x5x56xbf16>
  return %o : tensor<1x1x5x56xbf16>
}
func.func @tile(%q: tensor<1x1x64x128xf16>, %k: tensor<1x1x128x128xf16>, %v: tensor<1x1x128x128xf16>) -> tensor<1x1x64x128xf16> {
  %o = attn.forward %q, %k, %v : tensor<1x1x64x128xf16>, tensor<1x1x128x128xf16>, tensor<1x1x128x128xf16> -> tensor<1x1x64x128xf16>
  return %o : tensor<1x1x64x128xf16>
}
