// RUN: attn-opt %s --split-input-file --hopper-form-nests --hopper-select-schedule | FileCheck %s
// RUN: attn-opt %s --split-input-file --hopper-form-nests --hopper-select-schedule="block-m=64 stages=3 output=slabs" | FileCheck %s --check-prefix=ASKED

// The number of keys is known when the function is called: two schedules.
// CHECK-LABEL: attn.versions @causal
// CHECK: module attributes {attn.when = [#attn.size<argument = 1, dim = 2, at_most 2048>], hopper.schedule = #hopper.schedule<block_m = 128, block_n = 64, occupancy = 2
// CHECK: module attributes {hopper.schedule = #hopper.schedule<block_m = 192, block_n = 128
// With sizes of tiles that are asked for there is one.
// ASKED: module attributes {hopper.schedule = #hopper.schedule<block_m = 64, block_n = 128, stages = 3, output = slabs
// ASKED: func.func @causal
func.func @causal(%q: tensor<1x2x?x64xbf16>, %k: tensor<1x2x?x64xbf16>) -> tensor<1x2x?x64xbf16> {
  %o = attn.forward %q, %k, %k
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16> -> tensor<1x2x?x64xbf16>
  return %o : tensor<1x2x?x64xbf16>
}

// -----

// CHECK: module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 64, occupancy = 2
// CHECK: func.func @few
func.func @few(%q: tensor<1x2x?x64xbf16>, %k: tensor<1x2x300x64xbf16>) -> tensor<1x2x?x64xbf16> {
  %o = attn.forward %q, %k, %k
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<1x2x?x64xbf16>, tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16> -> tensor<1x2x?x64xbf16>
  return %o : tensor<1x2x?x64xbf16>
}

// -----

// Dropout is no mask, and leaves no register to spare.
// CHECK: module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 128
// CHECK: func.func @dropout
func.func @dropout(%q: tensor<1x2x?x64xbf16>, %seed: tensor<i64>) -> tensor<1x2x?x64xbf16> {
  %o = attn.forward %q, %q, %q captures(%seed : tensor<i64>)
    factor {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<i64>):
      %s = tensor.extract %t[] : tensor<i64>
      %bits = attn.random_bits %s, %s at %b, %h, %i, %j : i32
      %half = arith.constant 0 : i32
      %keep = arith.cmpi slt, %bits, %half : i32
      %two = arith.constant 2.0 : f32
      %zero = arith.constant 0.0 : f32
      %f = arith.select %keep, %two, %zero : f32
      attn.yield %f : f32
    } : tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16> -> tensor<1x2x?x64xbf16>
  return %o : tensor<1x2x?x64xbf16>
}

// -----

// A bias is read by TMA where that reaches it.
// CHECK-LABEL: attn.versions @bias
// CHECK: module attributes {attn.when = [#hopper.reach], hopper.schedule = #hopper.schedule<{{.*}}loads_tiles = true
// CHECK-NOT: loads_tiles
func.func @bias(%q: tensor<1x2x512x64xbf16>, %bias: tensor<512x512xbf16>) -> tensor<1x2x512x64xbf16> {
  %o = attn.forward %q, %q, %q captures(%bias : tensor<512x512xbf16>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<512x512xbf16>):
      %x = tensor.extract %t[%i, %j] : tensor<512x512xbf16>
      %y = arith.extf %x : bf16 to f32
      %r = arith.addf %s, %y : f32
      attn.yield %r : f32
    } : tensor<1x2x512x64xbf16>, tensor<1x2x512x64xbf16>, tensor<1x2x512x64xbf16> -> tensor<1x2x512x64xbf16>
  return %o : tensor<1x2x512x64xbf16>
}

// -----

// Sums of a gradient in one pass need products of matrices: this module cannot be that version.
// CHECK: hopper.refused = "{{.*}}sums that are added to memory
module attributes {hopper.nests = #hopper.nests<gradient = true>} {
  func.func @f(%q: tensor<1x2x?x64xbf16>) -> tensor<1x2x?x64xbf16> {
    return %q : tensor<1x2x?x64xbf16>
  }
}
