// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm))' | FileCheck %s
// Descriptors: the low word is the address / 16 with the leading offset / 16 above,
// the high word the stride / 16 (8 rows) and the swizzle in the top bits.

!a = !tile.smem<64x128xbf16, swizzle = 128>
!at = !tile.smem<32x64xf16, swizzle = 64>
!k = !tile.smem<16x128xbf16, swizzle = 128>
!v = !tile.smem<32x128xbf16, swizzle = 128>
!v16 = !tile.smem<32x16xf16, swizzle = 32>
!s = vector<64x16xf32>
!o = vector<64x128xf32>

// CHECK-LABEL: gpu.func @products
gpu.module @m {
  gpu.func @products(%out: memref<64x16xf32>, %out2: memref<64x128xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %a = hopper.alloc : !a
    %k = hopper.alloc : !k
    %v = hopper.alloc : !v
    %at = hopper.alloc : !at
    %v16 = hopper.alloc : !v16

    // Q K^T: both along k, without an accumulator. 8 steps of 16: 32 bytes, 2
    // units, within a slab of 64 columns; A's slab is 64 * 128 bytes, 512 units,
    // B's 16 * 128, 128 units. The first step clears.
    // CHECK: %[[LB:.*]] = arith.constant 65536 : i32
    // CHECK: llvm.inline_asm has_side_effects asm_dialect = att "{\0A
    // CHECK-SAME: mov.pred p, 0;\0Amov.pred q, 1;\0Awgmma.fence.sync.aligned;\0A
    // CHECK-SAME: mov.b32 hb, 0x40000040;\0Amov.b32 ha, 0x40000040;\0A
    // CHECK-SAME: add.u32 x, $8, 0;\0Amov.b64 a, {x, ha};\0Aadd.u32 x, $9, 0;\0Amov.b64 b, {x, hb};\0A
    // CHECK-SAME: wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {$0,$1,$2,$3,$4,$5,$6,$7}, a, b, p, 1, 1, 0, 0;\0A
    // CHECK-SAME: add.u32 x, $8, 2;{{.*}}add.u32 x, $9, 2;
    // CHECK-SAME: a, b, q, 1, 1, 0, 0;
    // CHECK-SAME: add.u32 x, $8, 6;{{.*}}add.u32 x, $9, 6;
    // CHECK-SAME: add.u32 x, $8, 512;{{.*}}add.u32 x, $9, 128;
    // CHECK-SAME: add.u32 x, $8, 518;{{.*}}add.u32 x, $9, 134;
    // CHECK-SAME: wgmma.commit_group.sync.aligned;\0A}", "=&f,=&f,=&f,=&f,=&f,=&f,=&f,=&f,r,r,~{memory}"
    // CHECK-SAME: : (i32, i32) ->
    %sp = hopper.wgmma %a, %k transposeB : (!a, !k) -> !hopper.pending<!s>
    // CHECK: llvm.inline_asm has_side_effects asm_dialect = att "wgmma.wait_group.sync.aligned 0;", "=f,=f,=f,=f,=f,=f,=f,=f,0,1,2,3,4,5,6,7,~{memory}"
    %s = hopper.wait %sp pending(0) : !hopper.pending<!s> -> !s
    vector.store %s, %out[%c0, %c0] : memref<64x16xf32>, !s

    // P V: A in registers, B along n. 16 rows are 2048 bytes; the next 64 columns
    // are a slab of 32 rows further, 256 units in the leading offset.
    // CHECK: llvm.inline_asm {{.*}} "{\0A
    // CHECK-SAME: mov.b32 hb, 0x40000040;\0Aadd.u32 x, $128, 0;
    // CHECK-SAME: m64n128k16.f32.bf16.bf16
    // CHECK-SAME: {$129,$130,$131,$132}, b, q, 1, 1, 1;
    // CHECK-SAME: add.u32 x, $128, 128;
    // CHECK-SAME: {$133,$134,$135,$136}, b, q, 1, 1, 1;
    // CHECK-SAME: "=f,=f,
    // CHECK-SAME: ,0,1,2,
    // CHECK-SAME: ,62,63,r,r,r,r,r,r,r,r,r,~{memory}"
    %p = arith.constant dense<1.0> : vector<64x32xbf16>
    %zero = arith.constant dense<0.0> : !o
    %op = hopper.wgmma %p, %v, %zero : (vector<64x32xbf16>, !v, !o) -> !hopper.pending<!o>
    %o = hopper.wait %op pending(0) : !hopper.pending<!o> -> !o
    vector.store %o, %out2[%c0, %c0] : memref<64x128xf32>, !o

    // A^T: A along m. A swizzle of 64 bytes has 32 columns and mode 2, one of 32
    // bytes mode 3; 8 rows are 512 and 256 bytes.
    // CHECK: llvm.inline_asm {{.*}} "{\0A
    // CHECK-SAME: mov.b32 hb, 0xC0000010;\0Amov.b32 ha, 0x80000020;
    // CHECK-SAME: m64n16k16.f32.f16.f16
    // CHECK-SAME: a, b, p, 1, 1, 1, 1;
    // CHECK-SAME: add.u32 x, $8, 64;{{.*}}add.u32 x, $9, 32;
    // CHECK-SAME: a, b, q, 1, 1, 1, 1;
    %tp = hopper.wgmma %at, %v16 transposeA : (!at, !v16) -> !hopper.pending<!s>
    // Another product adds to a pending one; the registers pass on.
    // CHECK: llvm.inline_asm {{.*}} "{\0A
    // CHECK-SAME: a, b, q, 1, 1, 1, 1;
    %tp2 = hopper.wgmma %at, %v16, %tp transposeA : (!at, !v16, !hopper.pending<!s>) -> !hopper.pending<!s>
    %t = hopper.wait %tp2 pending(0) : !hopper.pending<!s> -> !s
    vector.store %t, %out[%c0, %c0] : memref<64x16xf32>, !s

    // What a loop does not change is copied in each iteration: see ProductText::keep.
    // CHECK: scf.for
    // CHECK: llvm.inline_asm {{.*}} "{\0A
    // CHECK-SAME: .reg .b32 zero, kept<8>;\0Amov.u32 zero, %nctaid.y;\0Asub.u32 zero, zero, 1;\0Axor.b32 kept0, $129, zero;
    // CHECK-SAME: xor.b32 kept7, $136, zero;\0Awgmma.fence.sync.aligned;
    // CHECK-SAME: {kept0,kept1,kept2,kept3}, b, q, 1, 1, 1;
    // CHECK-SAME: {kept4,kept5,kept6,kept7}, b, q, 1, 1, 1;
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %sum = scf.for %i = %c0 to %c4 step %c1 iter_args(%acc = %zero) -> (!o) {
      %ip = hopper.wgmma %p, %v, %acc : (vector<64x32xbf16>, !v, !o) -> !hopper.pending<!o>
      %is = hopper.wait %ip pending(0) : !hopper.pending<!o> -> !o
      scf.yield %is : !o
    }
    vector.store %sum, %out2[%c0, %c0] : memref<64x128xf32>, !o
    gpu.return
  }
}

// Where only a rescaling uses a product, the branch around it comes before the wait, which is on
// each side.
// CHECK-LABEL: gpu.func @rescaled
// CHECK: %[[ANY:.*]] = nvvm.vote.sync any
// CHECK-NOT: wait_group
// CHECK: scf.if %[[ANY]]
// CHECK-NEXT: llvm.inline_asm {{.*}}"wgmma.wait_group.sync.aligned 0;"
// CHECK-COUNT-8: arith.mulf
// CHECK: } else {
// CHECK-NEXT: llvm.inline_asm {{.*}}"wgmma.wait_group.sync.aligned 0;"
// CHECK-NOT: arith.mulf
// CHECK: gpu.return
gpu.module @c {
  gpu.func @rescaled(%out: memref<64x16xf32>, %factors: memref<64xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %a = hopper.alloc : !a
    %k = hopper.alloc : !k
    %f = vector.load %factors[%c0] : memref<64xf32>, vector<64xf32>
    %b = vector.broadcast %f : vector<64xf32> to vector<16x64xf32>
    %rows = vector.transpose %b, [1, 0] : vector<16x64xf32> to vector<64x16xf32>
    %sp = hopper.wgmma %a, %k transposeB : (!a, !k) -> !hopper.pending<!s>
    %s = hopper.wait %sp pending(0) : !hopper.pending<!s> -> !s
    %y = arith.mulf %s, %rows {attn.rescaling} : !s
    vector.store %y, %out[%c0, %c0] : memref<64x16xf32>, !s
    gpu.return
  }
}
