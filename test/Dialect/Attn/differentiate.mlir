// RUN: attn-opt %s --attn-differentiate --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-differentiate --split-input-file --remarks-filter=attn-differentiate -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}17 [Passed] differentiated | Category:attn-differentiate{{$}}

// Grouped heads, dynamic sizes, bf16; the recomputed forward gets an LSE, and
// the gradients need no conversion.
// CHECK-LABEL: func.func @plain(
// CHECK-LABEL: func.func @plain_gradient(
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x?x64xbf16>, %[[K:.*]]: tensor<?x2x?x64xbf16>, %[[V:.*]]: tensor<?x2x?x32xbf16>, %[[DO:.*]]: tensor<?x4x?x32xbf16>)
// CHECK-SAME: -> (tensor<?x4x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x32xbf16>)
// CHECK-NEXT: %[[O:.*]], %[[LSE:.*]] = attn.forward %[[Q]], %[[K]], %[[V]] scale 1.250000e-01
// CHECK-SAME: -> tensor<?x4x?x32xbf16>, tensor<?x4x?xf32>
// CHECK-NEXT: %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = attn.backward %[[DO]], %[[Q]], %[[K]], %[[V]], %[[O]], %[[LSE]] scale 1.250000e-01 :
// CHECK-NEXT: return %[[DQ]], %[[DK]], %[[DV]]
func.func @plain(%q: tensor<?x4x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x32xbf16>)
    -> tensor<?x4x?x32xbf16> {
  %o = attn.forward %q, %k, %v scale 0.125
    : tensor<?x4x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x32xbf16> -> tensor<?x4x?x32xbf16>
  return %o : tensor<?x4x?x32xbf16>
}

// -----

// Score and mask with captures: a table in 16 bits, a scalar used twice, one
// that only the mask reads, and an index.
// CHECK-LABEL: func.func private @captures_gradient(
// CHECK-SAME: %[[Q:.*]]: tensor<1x2x8x16xf32>, %[[T:.*]]: tensor<2xbf16>, %[[C:.*]]: f32, %[[W:.*]]: f32, %[[N:.*]]: index, %[[DO:.*]]: tensor<1x2x8x16xf32>)
// CHECK-SAME: -> (tensor<1x2x8x16xf32>, tensor<2xbf16>, tensor<f32>, tensor<f32>)
// CHECK: %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]], %[[DC:.*]]:3 = attn.backward
// CHECK-SAME: captures(%[[T]], %[[C]], %[[W]], %[[N]] : tensor<2xbf16>, f32, f32, index)
// CHECK: gradient {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %[[H:.*]]: index, %{{.*}}: index, %{{.*}}: index, %[[TT:.*]]: tensor<2xbf16>, %[[CC:.*]]: f32, %{{.*}}: f32, %{{.*}}: index, %[[DT:.*]]: f32):
// CHECK-NEXT: %[[X:.*]] = arith.divf %[[S]], %[[CC]] : f32
// CHECK-NEXT: %[[Y:.*]] = math.tanh %[[X]] : f32
// CHECK-NEXT: attn.accumulate %[[DT]] into %[[TT]][%[[H]]] : f32 into tensor<2xbf16>
// CHECK-NEXT: %[[DY:.*]] = arith.mulf %[[DT]], %[[CC]] : f32
// CHECK-NEXT: %[[DC1:.*]] = arith.mulf %[[DT]], %[[Y]] : f32
// CHECK-NEXT: %[[YY:.*]] = arith.mulf %[[Y]], %[[Y]] : f32
// CHECK-NEXT: %[[ONE:.*]] = arith.constant 1.0
// CHECK-NEXT: %[[SLOPE:.*]] = arith.subf %[[ONE]], %[[YY]] : f32
// CHECK-NEXT: %[[DX:.*]] = arith.mulf %[[DY]], %[[SLOPE]] : f32
// CHECK:      %[[DS:.*]] = arith.mulf %[[DX]], %{{.*}} : f32
// CHECK:      %[[DC2:.*]] = arith.mulf %[[DX]], %{{.*}} : f32
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[DC1]], %[[DC2]] : f32
// CHECK-NEXT: attn.accumulate %[[SUM]] into %[[CC]] : f32 into f32
// CHECK-NEXT: attn.yield %[[DS]] : f32
// CHECK-NEXT: } mask {
// CHECK: captures(tensor<2xbf16>, tensor<f32>, tensor<f32>)
// CHECK: %[[A:.*]] = arith.addf %[[DQ]], %[[DK]]
// CHECK: %[[B:.*]] = arith.addf %[[A]], %[[DV]]
// CHECK: return %[[B]], %[[DC]]#0, %[[DC]]#1, %[[DC]]#2
func.func private @captures(%q: tensor<1x2x8x16xf32>, %t: tensor<2xbf16>, %c: f32, %w: f32, %n: index)
    -> tensor<1x2x8x16xf32> {
  %o, %lse = attn.forward %q, %q, %q captures(%t, %c, %w, %n : tensor<2xbf16>, f32, f32, index)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %tt: tensor<2xbf16>, %cc: f32, %ww: f32, %nn: index):
      %x = arith.divf %s, %cc : f32
      %y = math.tanh %x : f32
      %z = arith.mulf %y, %cc : f32
      %e = tensor.extract %tt[%h] : tensor<2xbf16>
      %a = arith.extf %e : bf16 to f32
      %r = arith.addf %z, %a : f32
      attn.yield %r : f32
    } mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %tt: tensor<2xbf16>, %cc: f32, %ww: f32, %nn: index):
      %n0 = arith.fptosi %ww : f32 to i32
      %n1 = arith.index_cast %n0 : i32 to index
      %n2 = arith.addi %n1, %nn : index
      %keep = arith.cmpi slt, %j, %n2 : index
      attn.yield %keep : i1
    } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
        -> tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

// A tensor captured twice, and read twice by one score, gets the sum.
// CHECK-LABEL: func.func @twice_gradient(
// CHECK: gradient {
// CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: index, %{{.*}}: index, %[[I:.*]]: index, %[[J:.*]]: index, %[[A:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<8xf32>, %[[DT:.*]]: f32):
// CHECK-DAG: attn.accumulate %[[DT]] into %[[B]][%[[J]]]
// CHECK-DAG: attn.accumulate %[[DT]] into %[[A]][%[[J]]]
// CHECK-DAG: attn.accumulate %[[DT]] into %[[A]][%[[I]]]
// CHECK: attn.yield %[[DT]] : f32
// CHECK: %[[SUM:.*]] = arith.addf %captureGradients#0, %captureGradients#1 : tensor<8xf32>
// CHECK: return %{{.*}}, %[[SUM]] :
func.func @twice(%q: tensor<1x2x8x16xf32>, %t: tensor<8xf32>) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %q, %q captures(%t, %t : tensor<8xf32>, tensor<8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %a: tensor<8xf32>, %c: tensor<8xf32>):
      %x = tensor.extract %a[%i] : tensor<8xf32>
      %y = tensor.extract %a[%j] : tensor<8xf32>
      %z = tensor.extract %c[%j] : tensor<8xf32>
      %0 = arith.addf %s, %x : f32
      %1 = arith.addf %0, %y : f32
      %2 = arith.addf %1, %z : f32
      attn.yield %2 : f32
    } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

// A capture in other precision than the score's: f64 gets f64, f32 gets f32.
// CHECK-LABEL: func.func @wide_capture_gradient(
// CHECK: gradient {
// CHECK: %[[W:.*]] = arith.extf %{{.*}} : f32 to f64
// CHECK: attn.accumulate %[[W]] into %{{.*}}[%{{.*}}] : f64 into tensor<8xf64>
func.func @wide_capture(%x: tensor<8xf32>, %t: tensor<8xf64>) -> tensor<8xf32> {
  %y = attn.softmax %x captures(%t : tensor<8xf64>) score {
    ^bb0(%s: f32, %i: index, %tt: tensor<8xf64>):
      %e = tensor.extract %tt[%i] : tensor<8xf64>
      %f = arith.truncf %e : f64 to f32
      %r = arith.mulf %s, %f : f32
      attn.yield %r : f32
    } : tensor<8xf32>
  return %y : tensor<8xf32>
}

// CHECK-LABEL: func.func @narrow_capture_gradient(
// CHECK: gradient {
// CHECK: %[[N:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK: attn.accumulate %[[N]] into %{{.*}} : f32 into f32
func.func @narrow_capture(%x: tensor<8xf64>, %c: f32) -> tensor<8xf64> {
  %y = attn.softmax %x captures(%c : f32) score {
    ^bb0(%s: f64, %i: index, %cc: f32):
      %f = arith.extf %cc : f32 to f64
      %r = arith.mulf %s, %f : f64
      attn.yield %r : f64
    } : tensor<8xf64>
  return %y : tensor<8xf64>
}

// -----

// A score that does not read s: its gradient is 0.
// CHECK-LABEL: func.func @constant_gradient(
// CHECK: gradient {
// CHECK: %[[ZERO:.*]] = arith.constant 0.0
// CHECK: attn.yield %[[ZERO]] : f32
func.func @constant(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %q, %q
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %0 = arith.constant 1.0 : f32
      attn.yield %0 : f32
    } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

// A scale and a capture that the function computes, and a sink; results O and LSE.
// CHECK-LABEL: func.func @scalars_gradient(
// CHECK-SAME: %[[S:[^:]*]]: f32, %[[U:[^:]*]]: f32, %[[SINK:[^:]*]]: tensor<2xf32>, %[[DO:[^:]*]]: tensor<1x2x8x16xf32>, %[[DLSE:[^:]*]]: tensor<1x2x8xf32>)
// CHECK-SAME: -> (tensor<1x2x8x16xf32>, tensor<f32>, tensor<f32>, tensor<2xf32>)
// CHECK: %[[SU:.*]] = arith.mulf %[[S]], %[[U]] : f32
// CHECK: attn.backward %[[DO]], {{.*}} lse_gradient(%[[DLSE]] : tensor<1x2x8xf32>) scale(%[[SU]] : f32) sink(%[[SINK]] : tensor<2xf32>)
// CHECK: scale(tensor<f32>) sink(tensor<2xf32>)
// CHECK: %[[DSU:.*]] = tensor.extract %scaleGradient[] : tensor<f32>
// CHECK-DAG: %[[DS:.*]] = arith.mulf %[[DSU]], %[[U]] : f32
// CHECK-DAG: %[[DU:.*]] = arith.mulf %[[DSU]], %[[S]] : f32
// CHECK-DAG: %[[TS:.*]] = tensor.from_elements %[[DS]] : tensor<f32>
// CHECK-DAG: %[[TU:.*]] = tensor.from_elements %[[DU]] : tensor<f32>
// CHECK: return %{{.*}}, %[[TS]], %[[TU]], %sinkGradient
func.func @scalars(%q: tensor<1x2x8x16xf32>, %s: f32, %u: f32, %sink: tensor<2xf32>)
    -> (tensor<1x2x8x16xf32>, tensor<1x2x8xf32>) {
  %su = arith.mulf %s, %u : f32
  %o, %lse = attn.forward %q, %q, %q scale(%su : f32) sink(%sink : tensor<2xf32>)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
      -> tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
  return %o, %lse : tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
}

// -----

// Constants for scale and sink get no gradient.
// CHECK-LABEL: func.func @constants_gradient(
// CHECK: attn.backward {{.*}} scale(%{{.*}} : f32) sink(%{{.*}} : tensor<2xf32>)
// CHECK-NOT: scale(tensor
// CHECK-NOT: sink(tensor
// CHECK: return
func.func @constants(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %s = arith.constant 0.5 : f32
  %sink = arith.constant dense<1.0> : tensor<2xf32>
  %o = attn.forward %q, %q, %q scale(%s : f32) sink(%sink : tensor<2xf32>)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

// Only the LSE: O, and its gradient, is zeros, and needs no computation.
// CHECK-LABEL: func.func @only_lse_gradient(
// CHECK-SAME: %[[Q:.*]]: tensor<1x2x?x16xf32>, %[[K:.*]]: tensor<1x2x?x16xf32>, %[[DLSE:.*]]: tensor<1x2x?xf32>)
// CHECK: %{{.*}}, %[[LSE:.*]] = attn.forward
// CHECK: %[[N:.*]] = tensor.dim %[[Q]], %c2
// CHECK: %[[E:.*]] = tensor.empty(%[[N]]) : tensor<1x2x?x16xf32>
// CHECK: %[[Z:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%[[E]]
// CHECK: attn.backward %[[Z]], %[[Q]], %[[K]], %[[K]], %[[Z]], %[[LSE]] lse_gradient(%[[DLSE]]
// CHECK: arith.addf %keyGradient, %valueGradient
func.func @only_lse(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>) -> tensor<1x2x?xf32> {
  %o, %lse = attn.forward %q, %k, %k
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
      -> tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
  return %lse : tensor<1x2x?xf32>
}

// -----

// One attention after another, and O used twice. Arguments that no result
// depends on get zeros; those that are no floats get nothing.
// CHECK-LABEL: func.func @chain_gradient(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x2x8x16xf64>, %[[U:[^:]*]]: tensor<?xf16>, %[[I:[^:]*]]: tensor<4xi32>, %[[X:[^:]*]]: f32, %[[D1:[^:]*]]: tensor<1x2x8x16xf64>, %[[D2:[^:]*]]: tensor<1x2x8x16xf64>)
// CHECK-SAME: -> (tensor<1x2x8x16xf64>, tensor<?xf16>, tensor<f32>)
// CHECK: %[[O1:.*]], %[[L1:.*]] = attn.forward %[[Q]], %[[Q]], %[[Q]]
// CHECK-SAME: tensor<1x2x8xf64>
// CHECK: %[[O2:.*]], %[[L2:.*]] = attn.forward %[[Q]], %[[O1]], %[[Q]]
// CHECK: %[[DQ1:.*]], %[[DK1:.*]], %[[DV1:.*]] = attn.backward %[[D2]], %[[Q]], %[[O1]], %[[Q]], %[[O2]], %[[L2]]
// CHECK-DAG: %[[P1:.*]] = arith.addf %[[DQ1]], %[[DV1]]
// CHECK-DAG: %[[DO1:.*]] = arith.addf %[[D1]], %[[DK1]]
// CHECK: %[[DQ2:.*]], %[[DK2:.*]], %[[DV2:.*]] = attn.backward %[[DO1]], %[[Q]], %[[Q]], %[[Q]], %[[O1]], %[[L1]]
// CHECK: %[[P2:.*]] = arith.addf %[[P1]], %[[DQ2]]
// CHECK: %[[P3:.*]] = arith.addf %[[P2]], %[[DK2]]
// CHECK: %[[P4:.*]] = arith.addf %[[P3]], %[[DV2]]
// CHECK: tensor.empty(%{{.*}}) : tensor<?xf16>
// CHECK: linalg.fill
// CHECK: linalg.fill {{.*}} -> tensor<f32>
// CHECK: return %[[P4]]
func.func @chain(%q: tensor<1x2x8x16xf64>, %u: tensor<?xf16>, %i: tensor<4xi32>, %x: f32)
    -> (tensor<1x2x8x16xf64>, tensor<4xi32>, tensor<1x2x8x16xf64>) {
  %o = attn.forward %q, %q, %q : tensor<1x2x8x16xf64>, tensor<1x2x8x16xf64>, tensor<1x2x8x16xf64>
         -> tensor<1x2x8x16xf64>
  %p = attn.forward %q, %o, %q : tensor<1x2x8x16xf64>, tensor<1x2x8x16xf64>, tensor<1x2x8x16xf64>
         -> tensor<1x2x8x16xf64>
  return %o, %i, %p : tensor<1x2x8x16xf64>, tensor<4xi32>, tensor<1x2x8x16xf64>
}

// -----

// Two uses of a 16-bit value are added in f32.
// CHECK-LABEL: func.func @narrow_gradient(
// CHECK-SAME: %[[Q:.*]]: tensor<1x2x8x16xbf16>, %[[D1:.*]]: tensor<1x2x8x16xbf16>, %[[D2:.*]]: tensor<1x2x8x16xbf16>)
// CHECK-NEXT: %[[E1:.*]] = arith.extf %[[D1]]
// CHECK-NEXT: %[[E2:.*]] = arith.extf %[[D2]]
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[E1]], %[[E2]] : tensor<1x2x8x16xf32>
// CHECK-NEXT: %[[R:.*]] = arith.truncf %[[SUM]] : tensor<1x2x8x16xf32> to tensor<1x2x8x16xbf16>
// CHECK-NEXT: return %[[R]]
func.func @narrow(%q: tensor<1x2x8x16xbf16>) -> (tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>) {
  return %q, %q : tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>
}

// -----

// Softmax, with a score; its input is an elementwise function of dynamic size.
// CHECK-LABEL: func.func @softmax_gradient(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x?xf32>, %[[C:[^:]*]]: f32, %[[DY:[^:]*]]: tensor<?x?xf32>)
// CHECK: %[[E:.*]] = math.sqrt %[[X]]
// CHECK: %[[Y:.*]] = attn.softmax %[[E]]
// CHECK: attn.softmax_backward %[[DY]], %[[E]], %[[Y]] captures(%[[C]] : f32) score {
// CHECK: gradient {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %{{.*}}: index, %[[CC:.*]]: f32, %[[DT:.*]]: f32):
// CHECK-NEXT: %[[DS:.*]] = arith.mulf %[[DT]], %[[CC]] : f32
// CHECK-NEXT: %[[DC:.*]] = arith.mulf %[[DT]], %[[S]] : f32
// CHECK-NEXT: attn.accumulate %[[DC]] into %[[CC]] : f32 into f32
// CHECK-NEXT: attn.yield %[[DS]] : f32
// CHECK: -> captures(tensor<f32>)
// CHECK-DAG: tensor.dim %[[E]], %c0
// CHECK-DAG: tensor.dim %[[E]], %c1
// CHECK: %[[HALF:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<?x?xf32>)
// CHECK: %[[SLOPE:.*]] = arith.divf %[[HALF]], %[[E]] : tensor<?x?xf32>
// CHECK: %[[DX:.*]] = arith.mulf %inputGradient, %[[SLOPE]]
// CHECK: return %[[DX]], %captureGradients
func.func @softmax(%x: tensor<?x?xf32>, %c: f32) -> tensor<?x?xf32> {
  %e = math.sqrt %x : tensor<?x?xf32>
  %y = attn.softmax %e captures(%c : f32) score {
    ^bb0(%s: f32, %i: index, %j: index, %cc: f32):
      %r = arith.mulf %s, %cc : f32
      attn.yield %r : f32
    } : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

// Changes of shape.
// CHECK-LABEL: func.func @shapes_gradient(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x6xbf16>, %[[D:[^:]*]]: tensor<3x2x?xbf16>)
// CHECK: %[[DF:.*]] = arith.extf %[[D]]
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[DF]] : tensor<3x2x?xf32>) outs(%{{.*}} : tensor<?x3x2xf32>) permutation = [2, 0, 1]
// CHECK: %[[C:.*]] = tensor.cast %[[T]] : tensor<?x3x2xf32> to tensor<4x3x2xf32>
// CHECK: %[[E:.*]] = tensor.collapse_shape %[[C]] {{\[\[}}0], [1, 2]] : tensor<4x3x2xf32> into tensor<4x6xf32>
// CHECK: %[[B:.*]] = tensor.cast %[[E]] : tensor<4x6xf32> to tensor<?x6xf32>
// CHECK: arith.truncf %[[B]] : tensor<?x6xf32> to tensor<?x6xbf16>
func.func @shapes(%x: tensor<?x6xbf16>) -> tensor<3x2x?xbf16> {
  %0 = tensor.cast %x : tensor<?x6xbf16> to tensor<4x6xbf16>
  %1 = tensor.expand_shape %0 [[0], [1, 2]] output_shape [4, 3, 2] : tensor<4x6xbf16> into tensor<4x3x2xbf16>
  %2 = tensor.cast %1 : tensor<4x3x2xbf16> to tensor<?x3x2xbf16>
  %c0 = arith.constant 0 : index
  %d = tensor.dim %2, %c0 : tensor<?x3x2xbf16>
  %e = tensor.empty(%d) : tensor<3x2x?xbf16>
  %3 = linalg.transpose ins(%2 : tensor<?x3x2xbf16>) outs(%e : tensor<3x2x?xbf16>) permutation = [1, 2, 0]
  return %3 : tensor<3x2x?xbf16>
}

// CHECK-LABEL: func.func @collapse_gradient(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x?x3xf32>, %[[D:[^:]*]]: tensor<?x3xf32>)
// CHECK-DAG: %[[N0:.*]] = tensor.dim %[[X]], %c0
// CHECK-DAG: %[[N1:.*]] = tensor.dim %[[X]], %c1
// CHECK: tensor.expand_shape %[[D]] {{\[\[}}0, 1], [2]] output_shape [%[[N0]], %[[N1]], 3] : tensor<?x3xf32> into tensor<?x?x3xf32>
func.func @collapse(%x: tensor<?x?x3xf32>) -> tensor<?x3xf32> {
  %0 = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x3xf32> into tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}

// -----

// One of three parts of a packed tensor.
// CHECK-LABEL: func.func @slice_gradient(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x3x8xbf16>, %[[I:[^:]*]]: index, %[[D:[^:]*]]: tensor<?x8xbf16>)
// CHECK: %[[DF:.*]] = arith.extf %[[D]]
// CHECK: %[[N:.*]] = tensor.dim %[[X]], %c0
// CHECK: %[[E:.*]] = tensor.empty(%[[N]]) : tensor<?x3x8xf32>
// CHECK: %[[Z:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%[[E]]
// CHECK: tensor.insert_slice %[[DF]] into %[[Z]][0, %[[I]], 0] [%{{.*}}, 1, 8] [1, 1, 1] : tensor<?x8xf32> into tensor<?x3x8xf32>
func.func @slice(%x: tensor<?x3x8xbf16>, %i: index) -> tensor<?x8xbf16> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x3x8xbf16>
  %0 = tensor.extract_slice %x[0, %i, 0] [%n, 1, 8] [1, 1, 1] : tensor<?x3x8xbf16> to tensor<?x8xbf16>
  return %0 : tensor<?x8xbf16>
}

// -----

// What was not read of a square root of 0 gets 0, not 0 * inf; the same after a
// change of shape.
// CHECK-LABEL: func.func @unread_gradient(
// CHECK: %[[INS:.*]] = tensor.insert_slice
// CHECK: %[[C:.*]] = tensor.collapse_shape %[[INS]]
// CHECK: %[[P:.*]] = arith.mulf %[[C]], %{{.*}} : tensor<24xf32>
// CHECK: %[[UNREAD:.*]] = arith.cmpf oeq, %[[C]], %[[Z:.*]] : tensor<24xf32>
// CHECK: %[[R:.*]] = arith.select %[[UNREAD]], %[[Z]], %[[P]] : tensor<24xi1>, tensor<24xf32>
// CHECK: return %[[R]]
func.func @unread(%x: tensor<24xf32>) -> tensor<8xf32> {
  %0 = math.sqrt %x : tensor<24xf32>
  %1 = tensor.expand_shape %0 [[0, 1]] output_shape [3, 8] : tensor<24xf32> into tensor<3x8xf32>
  %2 = tensor.extract_slice %1[1, 0] [1, 8] [1, 1] : tensor<3x8xf32> to tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// Elements in and out of tensors.
// CHECK-LABEL: func.func @elements_gradient(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?xf32>, %[[R:[^:]*]]: tensor<f32>, %[[I:[^:]*]]: index, %[[D:[^:]*]]: tensor<2x2xf32>)
// CHECK-DAG: %[[D01:.*]] = tensor.extract %[[D]][%c0{{.*}}, %c1{{.*}}] : tensor<2x2xf32>
// CHECK-DAG: %[[D10:.*]] = tensor.extract %[[D]][%c1{{.*}}, %c0{{.*}}] : tensor<2x2xf32>
// CHECK-DAG: %[[G:.*]] = tensor.from_elements %[[D10]] : tensor<f32>
// CHECK-DAG: %[[Z:.*]] = linalg.fill {{.*}} -> tensor<?xf32>
// CHECK-DAG: %[[INS:.*]] = tensor.insert %[[D01]] into %[[Z]][%[[I]]] : tensor<?xf32>
// CHECK: return %[[INS]], %[[G]]
func.func @elements(%x: tensor<?xf32>, %r: tensor<f32>, %i: index) -> tensor<2x2xf32> {
  %one = arith.constant 1.0 : f32
  %0 = tensor.extract %x[%i] : tensor<?xf32>
  %1 = tensor.extract %r[] : tensor<f32>
  %2 = tensor.from_elements %one, %0, %1, %one : tensor<2x2xf32>
  return %2 : tensor<2x2xf32>
}

// -----

// What has no float argument or no float tensor as result has no gradient.
// CHECK-NOT: _gradient
func.func private @declared(tensor<4xf32>) -> tensor<4xf32>
func.func @no_argument() -> tensor<4xf32> {
  %0 = arith.constant dense<1.0> : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @no_result(%x: tensor<4xf32>) -> index {
  %0 = arith.constant 0 : index
  return %0 : index
}
