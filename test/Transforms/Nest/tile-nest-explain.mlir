// RUN: attn-opt %s --attn-tile-pipeline=explain -split-input-file -verify-diagnostics -o /dev/null
// What each loop order costs, and the choice. Bytes follow from the tiles: with
// 64 rows per tile, K and V pass 32 times for 2048 rows.

func.func @dense(%q: tensor<1x8x2048x64xf32>, %k: tensor<1x8x2048x64xf32>, %v: tensor<1x8x2048x64xf32>) -> tensor<1x8x2048x64xf32> {
  // expected-remark@below {{loop order m_outer (cheapest)}}
  // expected-note@below {{plan: }}
  // expected-note@below {{m_outer: 276.8 MB moved, 256 tiles in parallel}}
  // expected-note@below {{n_outer: 226.8 MB moved, 8 tiles in parallel}}
  // expected-note@below {{split_kv: 311.4 MB moved, 1024 tiles in parallel}}
  %o = attn.forward %q, %k, %v : tensor<1x8x2048x64xf32>, tensor<1x8x2048x64xf32>, tensor<1x8x2048x64xf32> -> tensor<1x8x2048x64xf32>
  return %o : tensor<1x8x2048x64xf32>
}

// -----

// One row and one head: only parts of the keys can run at once.
func.func @decode(%q: tensor<1x1x1x64xf32>, %k: tensor<1x1x65536x64xf32>, %v: tensor<1x1x65536x64xf32>) -> tensor<1x1x1x64xf32> {
  // expected-remark@below {{loop order split_kv (cheapest)}}
  // expected-note@below {{plan: }}
  // expected-note@below {{m_outer: 33.6 MB moved, 1 tiles in parallel}}
  // expected-note@below {{n_outer}}
  // expected-note@below {{split_kv: 33.6 MB moved, 4 tiles in parallel}}
  %o = attn.forward %q, %k, %v : tensor<1x1x1x64xf32>, tensor<1x1x65536x64xf32>, tensor<1x1x65536x64xf32> -> tensor<1x1x1x64xf32>
  return %o : tensor<1x1x1x64xf32>
}

// -----

// A row softmax passes twice over its row; no other order is legal.
func.func @softmax(%x: tensor<64x4096xf32>) -> tensor<64x4096xf32> {
  // expected-remark@below {{loop order m_outer (cheapest)}}
  // expected-note@below {{plan: }}
  // expected-note@below {{m_outer}}
  // expected-note@below {{n_outer: illegal, loop j (streamed) cannot be owner-computes: RAW dependence from}}
  // expected-note@below {{split_kv: illegal}}
  %y = attn.softmax %x : tensor<64x4096xf32>
  return %y : tensor<64x4096xf32>
}
