// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s -mlir-print-op-generic | attn-opt | FileCheck %s
// RUN: attn-opt %s --canonicalize | FileCheck %s --check-prefix=CANON

// CHECK-LABEL: func @pages
func.func @pages(%pool: tensor<?x8x16x128xbf16>, %table: tensor<?x?xi32>, %used: tensor<?xi64>) -> tensor<?x8x?x128xbf16> {
  // CHECK: attn.pages %{{.*}}[%{{.*}}] lengths(%{{.*}}) : tensor<?x8x16x128xbf16>, tensor<?x?xi32>, tensor<?xi64> -> tensor<?x8x?x128xbf16>
  %k = attn.pages %pool[%table] lengths(%used) : tensor<?x8x16x128xbf16>, tensor<?x?xi32>, tensor<?xi64> -> tensor<?x8x?x128xbf16>
  return %k : tensor<?x8x?x128xbf16>
}

// On memory, with sizes that are known.
// CHECK-LABEL: func @view
func.func @view(%pool: memref<9x2x1x16xf32, strided<[?, ?, ?, 1], offset: ?>>, %table: memref<3x5xi32>, %used: memref<3xi32>) -> memref<3x2x5x16xf32> {
  // CHECK: attn.pages {{.*}} -> memref<3x2x5x16xf32>
  %k = attn.pages %pool[%table] lengths(%used)
    : memref<9x2x1x16xf32, strided<[?, ?, ?, 1], offset: ?>>, memref<3x5xi32>, memref<3xi32> -> memref<3x2x5x16xf32>
  return %k : memref<3x2x5x16xf32>
}

// Sizes follow from the table and the pool.
// CANON-LABEL: func @sizes(
// CANON-SAME: %[[POOL:.*]]: tensor<?x?x16x128xbf16>, %[[TABLE:.*]]: tensor<?x?xi32>
func.func @sizes(%pool: tensor<?x?x16x128xbf16>, %table: tensor<?x?xi32>, %used: tensor<?xi32>) -> (index, index, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  // CANON-NOT: attn.pages
  // CANON-DAG: %[[C16:.*]] = arith.constant 16 : index
  // CANON-DAG: %[[BATCH:.*]] = tensor.dim %[[TABLE]], %c0
  // CANON-DAG: %[[HEADS:.*]] = tensor.dim %[[POOL]], %c1
  // CANON-DAG: %[[ENTRIES:.*]] = tensor.dim %[[TABLE]], %c1
  // CANON-DAG: %[[ROWS:.*]] = arith.muli %[[ENTRIES]], %[[C16]]
  // CANON: return %[[BATCH]], %[[HEADS]], %[[ROWS]]
  %k = attn.pages %pool[%table] lengths(%used) : tensor<?x?x16x128xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x?x?x128xbf16>
  %b = tensor.dim %k, %c0 : tensor<?x?x?x128xbf16>
  %h = tensor.dim %k, %c1 : tensor<?x?x?x128xbf16>
  %s = tensor.dim %k, %c2 : tensor<?x?x?x128xbf16>
  return %b, %h, %s : index, index, index
}

// Some columns, as of a wide sum's slices, are those of the pool; some rows are not.
// CANON-LABEL: func @columns(
func.func @columns(%pool: tensor<?x2x16x512xbf16>, %table: tensor<3x4xi32>, %used: tensor<3xi32>) -> (tensor<3x2x64x256xbf16>, tensor<3x2x32x512xbf16>) {
  // CANON: %[[PART:.*]] = tensor.extract_slice %{{.*}}[0, 0, 0, 256] [%{{.*}}, 2, 16, 256] [1, 1, 1, 1] : tensor<?x2x16x512xbf16> to tensor<?x2x16x256xbf16>
  // CANON: attn.pages %[[PART]]
  // CANON: tensor.extract_slice {{.*}} : tensor<3x2x64x512xbf16> to tensor<3x2x32x512xbf16>
  %k = attn.pages %pool[%table] lengths(%used) : tensor<?x2x16x512xbf16>, tensor<3x4xi32>, tensor<3xi32> -> tensor<3x2x64x512xbf16>
  %x = tensor.extract_slice %k[0, 0, 0, 256] [3, 2, 64, 256] [1, 1, 1, 1] : tensor<3x2x64x512xbf16> to tensor<3x2x64x256xbf16>
  %y = tensor.extract_slice %k[0, 0, 32, 0] [3, 2, 32, 512] [1, 1, 1, 1] : tensor<3x2x64x512xbf16> to tensor<3x2x32x512xbf16>
  return %x, %y : tensor<3x2x64x256xbf16>, tensor<3x2x32x512xbf16>
}
