// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm,canonicalize,cse))' | FileCheck %s

// A ring's index is 32 bits wide in a loop. A row sum that nothing looks at stays
// in the thread until the loop is over.
// CHECK-LABEL: gpu.func @sums
// CHECK: scf.for {{.*}} -> (f32, f32, i32)
// CHECK-NOT: nvvm.shfl
// CHECK: scf.yield
// CHECK: nvvm.shfl.sync bfly
!ring = !tile.smem<2x64x16xf32, swizzle = 64>
gpu.module @m {
  gpu.func @sums(%x: memref<64x8xf32>, %y: memref<64xf32>, %n: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %one = arith.constant 1 : i32
    %zero = arith.constant dense<0.0> : vector<64xf32>
    %half = arith.constant dense<0.5> : vector<64xf32>
    %bar = hopper.mbarrier arrivals(1) : !hopper.mbarrier<2>
    %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %zero, %stage = %c0) -> (vector<64xf32>, index) {
      hopper.mbarrier.wait %bar[%stage], %one : !hopper.mbarrier<2>
      %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
      %scaled = arith.mulf %sum, %half : vector<64xf32>
      %new = vector.multi_reduction <add>, %v, %scaled [1] : vector<64x8xf32> to vector<64xf32>
      %next = arith.addi %stage, %c1 : index
      %wrap = arith.cmpi eq, %next, %c2 : index
      %stage1 = arith.select %wrap, %c0, %next : index
      scf.yield %new, %stage1 : vector<64xf32>, index
    }
    hopper.mbarrier.wait %bar[%r#1], %one : !hopper.mbarrier<2>
    vector.store %r#0, %y[%c0] : memref<64xf32>, vector<64xf32>
    gpu.return
  }
}

// -----

// Where the loop looks at the sum, every iteration takes it; an index that grows
// without bound stays wide.
// CHECK-LABEL: gpu.func @looked_at
// CHECK: scf.for {{.*}} -> (f32, f32, index)
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK: scf.yield
gpu.module @m {
  gpu.func @looked_at(%x: memref<64x8xf32>, %y: memref<64xf32>, %z: memref<index>, %n: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %zero = arith.constant dense<0.0> : vector<64xf32>
    %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %zero, %count = %c0) -> (vector<64xf32>, index) {
      %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
      %new = vector.multi_reduction <add>, %v, %sum [1] : vector<64x8xf32> to vector<64xf32>
      vector.store %new, %y[%c0] : memref<64xf32>, vector<64xf32>
      %more = arith.addi %count, %c1 : index
      scf.yield %new, %more : vector<64xf32>, index
    }
    vector.store %r#0, %y[%c0] : memref<64xf32>, vector<64xf32>
    memref.store %r#1, %z[] : memref<index>
    gpu.return
  }
}

// -----

// Tiles through branches and while loops: 4 scalars, or 2 pairs of bf16.
// CHECK-LABEL: gpu.func @branches
// CHECK: scf.if %{{.*}} -> (f32, f32, f32, f32) {
// CHECK: scf.while {{.*}} : (vector<2xbf16>, vector<2xbf16>, i32) -> (vector<2xbf16>, vector<2xbf16>, i32)
// CHECK: scf.condition
gpu.module @m {
  gpu.func @branches(%x: memref<64x8xf32>, %y: memref<64x8xbf16>, %n: i32) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %some = arith.cmpi sgt, %n, %zero : i32
    %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    %w = scf.if %some -> vector<64x8xf32> {
      %d = arith.addf %v, %v : vector<64x8xf32>
      scf.yield %d : vector<64x8xf32>
    } else {
      scf.yield %v : vector<64x8xf32>
    }
    %h = arith.truncf %w : vector<64x8xf32> to vector<64x8xbf16>
    %r:2 = scf.while (%t = %h, %i = %n) : (vector<64x8xbf16>, i32) -> (vector<64x8xbf16>, i32) {
      %more = arith.cmpi sgt, %i, %zero : i32
      scf.condition(%more) %t, %i : vector<64x8xbf16>, i32
    } do {
    ^bb0(%t: vector<64x8xbf16>, %i: i32):
      %less = arith.subi %i, %one : i32
      %s = arith.mulf %t, %t : vector<64x8xbf16>
      scf.yield %s, %less : vector<64x8xbf16>, i32
    }
    vector.store %r#0, %y[%c0, %c0] : memref<64x8xbf16>, vector<64x8xbf16>
    gpu.return
  }
}
