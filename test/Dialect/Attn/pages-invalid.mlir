// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%pool: tensor<?x8x?x128xbf16>, %table: tensor<?x?xi32>, %used: tensor<?xi32>) {
  // expected-error@below {{expected pages of a static size, got a pool of 'tensor<?x8x?x128xbf16>'}}
  %k = attn.pages %pool[%table] lengths(%used) : tensor<?x8x?x128xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x8x?x128xbf16>
  return
}

// -----

func.func @f(%pool: tensor<?x8x16x?xbf16>, %table: tensor<?x?xi32>, %used: tensor<?xi32>) {
  // expected-error@below {{expected a static head dimension, got a pool of 'tensor<?x8x16x?xbf16>'}}
  %k = attn.pages %pool[%table] lengths(%used) : tensor<?x8x16x?xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x8x?x?xbf16>
  return
}

// -----

func.func @f(%pool: tensor<?x8x16x128xbf16>, %table: tensor<?x?xi32>, %used: tensor<?xi32>) {
  // expected-error@below {{expected elements of 'bf16', got 'f32'}}
  %k = attn.pages %pool[%table] lengths(%used) : tensor<?x8x16x128xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x8x?x128xf32>
  return
}

// -----

func.func @f(%pool: tensor<?x8x16x128xbf16>, %table: tensor<2x3xi32>, %used: tensor<4xi32>) {
  // expected-error@below {{expected the number of lengths to be 2, got 4}}
  %k = attn.pages %pool[%table] lengths(%used) : tensor<?x8x16x128xbf16>, tensor<2x3xi32>, tensor<4xi32> -> tensor<2x8x48x128xbf16>
  return
}

// -----

func.func @f(%pool: tensor<?x8x16x128xbf16>, %table: tensor<2x3xi32>, %used: tensor<2xi32>) {
  // expected-error@below {{expected the result's rows to be 48, got 64}}
  %k = attn.pages %pool[%table] lengths(%used) : tensor<?x8x16x128xbf16>, tensor<2x3xi32>, tensor<2xi32> -> tensor<2x8x64x128xbf16>
  return
}

// -----

func.func @f(%pool: memref<?x8x16x128xbf16>, %table: tensor<2x3xi32>, %used: tensor<2xi32>) {
  // expected-error@below {{expected tensors or memrefs alone, got 'memref<?x8x16x128xbf16>' and 'tensor<2x3xi32>'}}
  %k = attn.pages %pool[%table] lengths(%used) : memref<?x8x16x128xbf16>, tensor<2x3xi32>, tensor<2xi32> -> memref<2x8x48x128xbf16>
  return
}
