// RUN: attn-opt %s --attn-round-products | FileCheck %s

#a = affine_map<(i,j,k)->(i,k)>
#b = affine_map<(i,j,k)->(k,j)>
#c = affine_map<(i,j,k)->(i,j)>

// CHECK-LABEL: func @weights
// CHECK:         %[[R:.*]] = arith.truncf %arg0 : vector<64x128xf32> to vector<64x128xbf16>
// CHECK:         %[[P:.*]] = arith.extf %[[R]]
// CHECK:         vector.contract {{.*}} %[[P]], %{{.*}}, %arg2
func.func @weights(%p: vector<64x128xf32>, %v: vector<128x32xbf16>, %o: vector<64x32xf32>) -> vector<64x32xf32> {
  %w = arith.extf %v : vector<128x32xbf16> to vector<128x32xf32>
  %r = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %w, %o : vector<64x128xf32>, vector<128x32xf32> into vector<64x32xf32>
  return %r : vector<64x32xf32>
}

// Two of bf16, two of f32, f16, few rows: as they are.
// CHECK-LABEL: func @others
// CHECK-NOT:     arith.truncf
func.func @others(%p: vector<64x128xf32>, %v: vector<128x32xbf16>, %o: vector<64x32xf32>, %q: vector<64x128xbf16>, %h: vector<128x32xf16>,
                  %f: vector<4x128xf32>, %g: vector<4x32xf32>) -> (vector<64x32xf32>, vector<4x32xf32>) {
  %w = arith.extf %v : vector<128x32xbf16> to vector<128x32xf32>
  %x = arith.extf %q : vector<64x128xbf16> to vector<64x128xf32>
  %y = arith.extf %h : vector<128x32xf16> to vector<128x32xf32>
  %r = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %x, %w, %o : vector<64x128xf32>, vector<128x32xf32> into vector<64x32xf32>
  %s = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %y, %r : vector<64x128xf32>, vector<128x32xf32> into vector<64x32xf32>
  %t = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %f, %w, %g : vector<4x128xf32>, vector<128x32xf32> into vector<4x32xf32>
  return %s, %t : vector<64x32xf32>, vector<4x32xf32>
}
