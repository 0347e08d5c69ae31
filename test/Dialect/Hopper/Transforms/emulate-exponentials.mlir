// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-emulate-exponentials{every=2}))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-emulate-exponentials{every=2}))" --remarks-filter=hopper-emulate-exponentials -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] emulated | Category:hopper-emulate-exponentials{{$}}

!tile = !tile.smem<64x64xbf16, swizzle = 128>

// Tiles beside products; not rows, and not what has no product to wait for.
// CHECK-LABEL: func.func @exponentials
// CHECK: math.exp2 %{{.*}} {hopper.emulated = 2 : i64} : vector<64x64xf32>
// CHECK: math.exp2 %{{.*}} : vector<64xf32>
// CHECK: math.exp2 %{{.*}} : vector<64x64xf32>
func.func @exponentials(%k: memref<?x64xbf16>, %n: index, %row: vector<64xf32>) -> vector<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %sum = scf.for %j = %c0 to %n step %c64 iter_args(%a = %none) -> (vector<64x64xf32>) {
    %t = tile.load %k[%j, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %t, %t, %none : !tile, !tile, vector<64x64xf32>
    %p = math.exp2 %s : vector<64x64xf32>
    %r = math.exp2 %row : vector<64xf32>
    %rb = vector.broadcast %r : vector<64xf32> to vector<64x64xf32>
    %b = arith.addf %p, %rb : vector<64x64xf32>
    scf.yield %b : vector<64x64xf32>
  }
  %last = math.exp2 %sum : vector<64x64xf32>
  return %last : vector<64x64xf32>
}
