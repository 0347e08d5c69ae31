// RUN: attn-run %s --entry=plain --shape 0=67x1000 --check | FileCheck %s
// RUN: attn-run %s --entry=plain --shape 0=1x1 --check | FileCheck %s
// RUN: attn-run %s --entry=plain --shape 0=3x0 --check | FileCheck %s
// RUN: attn-run %s --entry=plain --shape 0=130x127 --stride-pad=3 --guard --check | FileCheck %s
// RUN: attn-run %s --entry=masked_half --shape 0=3x5x77x131 --check | FileCheck %s
// RUN: attn-run %s --entry=double --check | FileCheck %s
// RUN: attn-run %s --entry=projected --check | FileCheck %s
// Row softmax against float64, also where it is the first half of attention.
// CHECK: check: result 0: ok

func.func @plain(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = attn.softmax %x : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

func.func @masked_half(%x: tensor<?x?x?x?xbf16>) -> tensor<?x?x?x?xbf16> {
  %y = attn.softmax %x score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %t = math.tanh %s : f32
    attn.yield %t : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %keep = arith.cmpi sgt, %i, %j : index
    attn.yield %keep : i1
  } : tensor<?x?x?x?xbf16>
  return %y : tensor<?x?x?x?xbf16>
}

func.func @double(%x: tensor<5x96xf64>) -> tensor<5x96xf64> {
  %y = attn.softmax %x : tensor<5x96xf64>
  return %y : tensor<5x96xf64>
}

// The division stands before the product, with its guard: the first row has no
// key and gives zeros.
func.func @projected(%x: tensor<8x32xf32>, %v: tensor<32x16xf32>) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %x mask {
  ^bb0(%i: index, %j: index):
    %k = arith.cmpi sgt, %i, %j : index
    attn.yield %k : i1
  } : tensor<8x32xf32>
  %eo = tensor.empty() : tensor<8x16xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%eo : tensor<8x16xf32>) -> tensor<8x16xf32>
  %o = linalg.matmul ins(%p, %v : tensor<8x32xf32>, tensor<32x16xf32>) outs(%o0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %o : tensor<8x16xf32>
}
