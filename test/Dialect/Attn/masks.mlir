// RUN: attn-opt %s --test-attn-build-mask=name=causal | FileCheck %s --check-prefix=CAUSAL
// RUN: attn-opt %s --test-attn-build-mask=name=bottom-right | FileCheck %s --check-prefix=BOTTOM
// RUN: attn-opt %s --test-attn-build-mask=name=window | FileCheck %s --check-prefix=WINDOW
// RUN: attn-opt %s --test-attn-build-mask=name=prefix | FileCheck %s --check-prefix=PREFIX
// RUN: attn-opt %S/Inputs/documents.mlir --test-attn-build-mask=name=document | FileCheck %s --check-prefix=DOCUMENT

// CAUSAL: mask {
// CAUSAL: ^bb0(%{{.*}}: index, %{{.*}}: index, %[[I:.*]]: index, %[[J:.*]]: index):
// CAUSAL: arith.cmpi sle, %[[J]], %[[I]] : index

// BOTTOM: %[[K:.*]] = tensor.dim %{{.*}}, %c2
// BOTTOM: %[[OFFSET:.*]] = arith.subi
// BOTTOM: captures(%[[OFFSET]] : index)
// BOTTOM: ^bb0(%{{.*}}: index, %{{.*}}: index, %[[I:.*]]: index, %[[J:.*]]: index, %[[O:.*]]: index):
// BOTTOM: %[[LAST:.*]] = arith.addi %[[I]], %[[O]]
// BOTTOM: arith.cmpi sle, %[[J]], %[[LAST]] : index

// WINDOW: %[[LEFT:.*]] = arith.constant -8 : index
// WINDOW: arith.cmpi sge
// WINDOW: arith.constant 4 : index
// WINDOW: arith.cmpi sle
// WINDOW: arith.andi

// PREFIX: captures(%[[P:.*]] : index)
// PREFIX: arith.cmpi slt
// PREFIX: arith.cmpi sle
// PREFIX: arith.ori

// DOCUMENT: tensor.extract %{{.*}}[%[[B:.*]], %[[I:.*]]]
// DOCUMENT: tensor.extract %{{.*}}[%[[B]], %[[J:.*]]]
// DOCUMENT: arith.cmpi eq
// DOCUMENT: arith.cmpi sle, %[[J]], %[[I]]
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x?x16xf32>, %length: index) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %k, %k : tensor<1x2x8x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}
