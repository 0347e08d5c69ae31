// RUN: attn-opt %s -split-input-file -verify-diagnostics
// Tiles, parts of them and products that no kernel could have.

// expected-error @+1 {{expects a swizzle of 128, 64 or 32 bytes, got 16}}
func.func private @f(!tile.smem<64x64xbf16, swizzle = 16>)

// -----

// The order of registers is that of one warpgroup's tile of f32.
// expected-error @+1 {{expects a swizzle of 128, 64 or 32 bytes, got 0}}
func.func private @f(!tile.smem<128x64xf32>)

// -----

// expected-error @+1 {{expects a swizzle of 128, 64 or 32 bytes, got 0}}
func.func private @f(!tile.smem<64x64xbf16>)

// -----

func.func @registers(%t: !tile.smem<64x64xf32>) {
  // expected-error @+1 {{a tile in the order of registers has no transpose}}
  %0 = tile.read %t transpose : !tile.smem<64x64xf32> -> vector<64x64xf32>
  return
}

// -----

func.func @stored_registers(%t: !tile.smem<64x64xf32>, %v: vector<64x64xf32>) {
  // expected-error @+1 {{'vector<64x64xf32>' does not fit '!tile.smem<64x64xf32>'}}
  tile.write %v to %t transpose : vector<64x64xf32>, !tile.smem<64x64xf32>
  return
}

// -----

// expected-error @+1 {{expects a multiple of 8 rows, got 60}}
func.func private @f(!tile.smem<60x64xbf16, swizzle = 128>)

// -----

// expected-error @+1 {{expects elements of bf16 or f16 or f32 or f64, got 'i32'}}
func.func private @f(!tile.smem<64x64xi32, swizzle = 128>)

// -----

func.func @n(%a: !tile.smem<64x64xbf16, swizzle = 128>, %b: !tile.smem<64x520xbf16, swizzle = 128>, %c: vector<64x520xf32>) {
  // expected-error @+1 {{n is a multiple of 8 and at most 512, got 520}}
  %0 = tile.mma %a, %b, %c : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<64x520xbf16, swizzle = 128>, vector<64x520xf32>
  return
}

// -----

func.func @k(%a: vector<64x24xbf16>, %b: !tile.smem<24x64xbf16, swizzle = 128>, %c: vector<64x64xf32>) {
  // expected-error @+1 {{k is a multiple of 16, got 24}}
  %0 = tile.mma %a, %b, %c : vector<64x24xbf16>, !tile.smem<24x64xbf16, swizzle = 128>, vector<64x64xf32>
  return
}

// -----

func.func @rows(%q: !tile.smem<128x64xbf16, swizzle = 128>) {
  %c4 = arith.constant 4 : index
  // expected-error @+1 {{rows from 4 are no part of}}
  %0 = tile.rows %q[%c4] : !tile.smem<128x64xbf16, swizzle = 128> -> !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>
  return
}

// -----

func.func @slab(%k: !tile.smem<128x128xbf16, swizzle = 128>, %i: index) {
  // expected-error @+1 {{is no part of the slabs of}}
  %0 = tile.columns %k[%i] : !tile.smem<128x128xbf16, swizzle = 128> -> !tile.smem<128x48xbf16, swizzle = 128>
  return
}

// -----

func.func @slab_offset(%k: !tile.smem<128x128xbf16, swizzle = 128>) {
  %c32 = arith.constant 32 : index
  // expected-error @+1 {{columns from 32 are no part of the slabs of}}
  %0 = tile.columns %k[%c32] : !tile.smem<128x128xbf16, swizzle = 128> -> !tile.smem<128x64xbf16, swizzle = 128>
  return
}

// -----

func.func @gather(%v: vector<64x64xf32>) {
  // expected-error @+1 {{expects a whole number of parts of the type of 'vector<64x64xf32>'}}
  %0 = tile.gather %v : vector<64x64xf32> -> vector<96x64xf32>
  return
}

// -----

func.func @share(%v: vector<64x64xbf16>) {
  // expected-error @+1 {{expects a whole number of parts of the type of 'vector<64x64xbf16>'}}
  %0 = tile.share %v : vector<64x64xbf16> -> !tile.smem<128x64xf16, swizzle = 128>
  return
}

// -----

// expected-error @+1 {{one row has no swizzle and a multiple of 128 bytes, or, of a tile, a swizzle of 128 bytes; got a swizzle of 64 and 128 bytes}}
func.func private @f(!tile.smem<1x64xbf16, swizzle = 64>)

// -----

func.func @copies_registers(%x: memref<?x64xf32>, %t: !tile.smem<64x64xf32>, %i: index) {
  // expected-error @+1 {{copies a tile of rows of slabs, or one row, got '!tile.smem<64x64xf32>'}}
  tile.copy %x[%i, %i] to %t : memref<?x64xf32>, !tile.smem<64x64xf32>
  return
}

// -----

func.func @copies_other_elements(%x: memref<?x64xf32>, %t: !tile.smem<8x64xbf16, swizzle = 128>, %i: index) {
  // expected-error @+1 {{element types differ: 'f32' and 'bf16'}}
  tile.copy %x[%i, %i] to %t : memref<?x64xf32>, !tile.smem<8x64xbf16, swizzle = 128>
  return
}

// -----

func.func @copies_with_few_indices(%x: memref<?x?x64xf32>, %t: !tile.smem<8x64xf32, swizzle = 128>, %i: index) {
  // expected-error @+1 {{expects 3 indices, got 2}}
  tile.copy %x[%i, %i] to %t : memref<?x?x64xf32>, !tile.smem<8x64xf32, swizzle = 128>
  return
}

// -----

func.func @pages(%pool: memref<?x2x?x64xbf16>, %table: memref<?x?xi32>, %used: memref<?xi64>, %t: !tile.smem<64x64xbf16, swizzle = 128>, %i: index) {
  // expected-error@below {{expects a pool of (page, head, row, column) with pages of a static size, got 'memref<?x2x?x64xbf16>'}}
  tile.copy %pool[%i, %i, %i, %i] pages(%table, %used : memref<?x?xi32>, memref<?xi64>) to %t : memref<?x2x?x64xbf16>, !tile.smem<64x64xbf16, swizzle = 128>
  return
}
