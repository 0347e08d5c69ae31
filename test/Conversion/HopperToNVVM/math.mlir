// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm))' | FileCheck %s
// RUN: attn-opt %s --attn-cuda-codegen | FileCheck %s --check-prefix=PTX
// Functions are instructions of the special function unit; nothing calls a library.

// CHECK-LABEL: gpu.func @functions
// PTX-NOT: __nv_
// PTX: ex2.approx.ftz.f32
gpu.module @m {
  gpu.func @functions(%x: memref<f32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %v = memref.load %x[] : memref<f32>
    // CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
    %exp2 = math.exp2 %v : f32
    // CHECK: %[[T:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
    // CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"(%[[T]])
    %exp = math.exp %exp2 : f32
    // CHECK: llvm.call_intrinsic "llvm.nvvm.lg2.approx.f"
    %log2 = math.log2 %exp : f32
    // CHECK: llvm.call_intrinsic "llvm.nvvm.lg2.approx.f"
    // CHECK: arith.mulf
    %log = math.log %log2 : f32
    // 1 - 2 / (1 + e^2x)
    // CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
    // CHECK: arith.addf
    // CHECK: nvvm.rcp.approx.ftz.f
    // CHECK: llvm.intr.fma
    %tanh = math.tanh %log : f32
    // CHECK: llvm.call_intrinsic "llvm.nvvm.div.full"
    %div = arith.divf %tanh, %v : f32
    %one = arith.constant 1.0 : f32
    // CHECK: nvvm.rcp.approx.ftz.f
    %inverse = arith.divf %one, %div : f32
    // CHECK: llvm.intr.fma
    %fma = math.fma %inverse, %v, %v : f32
    // CHECK: llvm.call_intrinsic "llvm.sqrt"
    %sqrt = math.sqrt %fma : f32
    // CHECK: llvm.call_intrinsic "llvm.nvvm.rsqrt.approx.ftz.f"
    %rsqrt = math.rsqrt %sqrt : f32
    // CHECK: llvm.call_intrinsic "llvm.fabs"
    %abs = math.absf %rsqrt : f32
    // In f32 and back.
    // CHECK: arith.truncf
    // CHECK: arith.extf
    // CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"{{.*}} : (f32) -> f32
    // CHECK: arith.truncf
    %half = arith.truncf %abs : f32 to bf16
    %exph = math.exp2 %half : bf16
    %wide = arith.extf %exph : bf16 to f32
    memref.store %wide, %x[] : memref<f32>
    gpu.return
  }
}
