// RUN: attn-opt %s --cse | FileCheck %s

// A product reads its tiles: of what they hold, written between, there are two products.
// CHECK-LABEL: func @rewritten
// CHECK: tile.write
// CHECK: tile.mma
// CHECK: tile.write
// CHECK: tile.mma
func.func @rewritten(%a: !tile.smem<64x64xbf16, swizzle = 128>, %b: !tile.smem<64x64xbf16, swizzle = 128>,
                     %x: vector<64x64xbf16>, %y: vector<64x64xbf16>, %zero: vector<64x64xf32>)
    -> (vector<64x64xf32>, vector<64x64xf32>) {
  tile.write %x to %a : vector<64x64xbf16>, !tile.smem<64x64xbf16, swizzle = 128>
  %0 = tile.mma %a, %b, %zero : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<64x64xbf16, swizzle = 128>, vector<64x64xf32>
  tile.write %y to %a : vector<64x64xbf16>, !tile.smem<64x64xbf16, swizzle = 128>
  %1 = tile.mma %a, %b, %zero : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<64x64xbf16, swizzle = 128>, vector<64x64xf32>
  return %0, %1 : vector<64x64xf32>, vector<64x64xf32>
}

// CHECK-LABEL: func @unchanged
// CHECK: %[[P:.*]] = tile.mma
// CHECK-NOT: tile.mma
// CHECK: return %[[P]], %[[P]]
func.func @unchanged(%a: !tile.smem<64x64xbf16, swizzle = 128>, %b: !tile.smem<64x64xbf16, swizzle = 128>,
                     %zero: vector<64x64xf32>) -> (vector<64x64xf32>, vector<64x64xf32>) {
  %0 = tile.mma %a, %b, %zero : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<64x64xbf16, swizzle = 128>, vector<64x64xf32>
  %1 = tile.mma %a, %b, %zero : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<64x64xbf16, swizzle = 128>, vector<64x64xf32>
  return %0, %1 : vector<64x64xf32>, vector<64x64xf32>
}
