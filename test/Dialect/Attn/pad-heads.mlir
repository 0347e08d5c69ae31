// RUN: attn-opt %s -attn-pad-heads -mlir-print-local-scope -split-input-file | FileCheck %s
// RUN: not attn-opt %s -attn-pad-heads=multiple=0 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: attn-opt %s -attn-pad-heads -mlir-print-local-scope -split-input-file --remarks-filter=attn-pad-heads -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}3 [Passed] padded | Category:attn-pad-heads{{$}}
// OPTION: option 'multiple' expected a positive number, got 0

// Keys of 59 columns become 64; the scale is that of 59. Values have 8 already.
// CHECK-LABEL: func.func @keys
// CHECK:       %[[ZERO:.*]] = arith.constant 0.000000e+00 : bf16
// CHECK:       %[[Z:.*]] = linalg.fill ins(%[[ZERO]] : bf16) outs(%{{.*}} : tensor<1x2x?x64xbf16>)
// CHECK:       %[[Q:.*]] = tensor.insert_slice %arg0 into %[[Z]][0, 0, 0, 0] [1, 2, %{{.*}}, 59] [1, 1, 1, 1]
// CHECK:       %[[K:.*]] = tensor.insert_slice %arg1 into
// CHECK-NOT:   tensor.insert_slice
// CHECK:       %[[O:.*]] = attn.forward %[[Q]], %[[K]], %arg2 scale 0.130{{.*}} : tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x8xbf16>
// CHECK:       return %[[O]]
func.func @keys(%q: tensor<1x2x?x59xbf16>, %k: tensor<1x2x?x59xbf16>, %v: tensor<1x2x?x8xbf16>)
    -> tensor<1x2x?x8xbf16> {
  %o = attn.forward %q, %k, %v : tensor<1x2x?x59xbf16>, tensor<1x2x?x59xbf16>, tensor<1x2x?x8xbf16>
      -> tensor<1x2x?x8xbf16>
  return %o : tensor<1x2x?x8xbf16>
}

// -----

// A scale that is given stays; a result is sliced for all of its uses.
// CHECK-LABEL: func.func @values
// CHECK:       %[[V:.*]] = tensor.insert_slice %arg2 into
// CHECK:       %[[O:.*]], %[[LSE:.*]] = attn.forward %arg0, %arg1, %[[V]] scale 5.000000e-01 {{.*}} -> tensor<1x1x4x24xf16>, tensor<1x1x4xf32>
// CHECK:       %[[OWN:.*]] = tensor.extract_slice %[[O]][0, 0, 0, 0] [1, 1, 4, 20] [1, 1, 1, 1]
// CHECK:       return %[[OWN]], %[[OWN]], %[[LSE]]
func.func @values(%q: tensor<1x1x4x16xf16>, %k: tensor<1x1x4x16xf16>, %v: tensor<1x1x4x20xf16>)
    -> (tensor<1x1x4x20xf16>, tensor<1x1x4x20xf16>, tensor<1x1x4xf32>) {
  %o, %lse = attn.forward %q, %k, %v scale 0.5 : tensor<1x1x4x16xf16>, tensor<1x1x4x16xf16>,
      tensor<1x1x4x20xf16> -> tensor<1x1x4x20xf16>, tensor<1x1x4xf32>
  return %o, %o, %lse : tensor<1x1x4x20xf16>, tensor<1x1x4x20xf16>, tensor<1x1x4xf32>
}

// -----

// The gradient: all that has columns, and gradients of what was padded.
// CHECK-LABEL: func.func @gradient
// CHECK-COUNT-5: tensor.insert_slice
// CHECK:       %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = attn.backward %{{.*}} scale 5.000000e-01
// CHECK-DAG:   tensor.extract_slice %[[DQ]]{{.*}} : tensor<1x1x4x8xf16> to tensor<1x1x4x4xf16>
// CHECK-DAG:   tensor.extract_slice %[[DK]]{{.*}} : tensor<1x1x4x8xf16> to tensor<1x1x4x4xf16>
// CHECK-DAG:   tensor.extract_slice %[[DV]]{{.*}} : tensor<1x1x4x16xf16> to tensor<1x1x4x12xf16>
func.func @gradient(%do: tensor<1x1x4x12xf16>, %q: tensor<1x1x4x4xf16>, %k: tensor<1x1x4x4xf16>,
                    %v: tensor<1x1x4x12xf16>, %o: tensor<1x1x4x12xf16>, %lse: tensor<1x1x4xf32>)
    -> (tensor<1x1x4x4xf16>, tensor<1x1x4x4xf16>, tensor<1x1x4x12xf16>) {
  %dq, %dk, %dv = attn.backward %do, %q, %k, %v, %o, %lse
      : tensor<1x1x4x12xf16>, tensor<1x1x4x4xf16>, tensor<1x1x4x4xf16>, tensor<1x1x4x12xf16>,
        tensor<1x1x4x12xf16>, tensor<1x1x4xf32>
      -> tensor<1x1x4x4xf16>, tensor<1x1x4x4xf16>, tensor<1x1x4x12xf16>
  return %dq, %dk, %dv : tensor<1x1x4x4xf16>, tensor<1x1x4x4xf16>, tensor<1x1x4x12xf16>
}
