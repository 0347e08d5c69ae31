// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm))' | FileCheck %s
// RUN: attn-opt %s --attn-cuda-codegen | FileCheck %s --check-prefix=PTX
// RUN: attn-opt %s --attn-cuda-codegen '--remarks-filter=attn-finish-kernels|attn-kernels-to-ptx' -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm))' --remarks-filter=convert-hopper-to-nvvm -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS2
// REMARKS-DAG: {{^ *}}7 [Passed] finished | Category:attn-finish-kernels{{$}}
// REMARKS-DAG: {{^ *}}4 [Passed] compiled | Category:attn-kernels-to-ptx{{$}}
// REMARKS2-DAG: {{^ *}}7 [Passed] converted | Category:convert-hopper-to-nvvm{{$}}
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
    // x = f 2^e, where x is normal: log(x) = e log(2) + log2(f) log(2)
    // CHECK: %[[NORMAL:.*]] = arith.cmpi ult
    // CHECK: %[[E:.*]] = arith.select %[[NORMAL]]
    // CHECK: %[[WHOLE:.*]] = arith.sitofp %[[E]]
    // CHECK: %[[L:.*]] = llvm.call_intrinsic "llvm.nvvm.lg2.approx.f"
    // CHECK: %[[REST:.*]] = arith.mulf %[[L]]
    // CHECK: llvm.intr.fma(%[[WHOLE]], %{{.*}}, %[[REST]])
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

  // Of a tile, four elements have one reciprocal; constant factors in front are one.
  // CHECK-LABEL: gpu.func @tile
  // CHECK-COUNT-4: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
  // CHECK: nvvm.rcp.approx.ftz.f
  // CHECK-NOT: nvvm.rcp.approx.ftz.f
  // CHECK-COUNT-4: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
  // CHECK: nvvm.rcp.approx.ftz.f
  // CHECK-NOT: nvvm.rcp.approx.ftz.f
  // CHECK: gpu.return
  gpu.func @tile(%x: memref<64x16xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %three = arith.constant dense<3.0> : vector<64x16xf32>
    %v = vector.transfer_read %x[%c0, %c0], %zero {in_bounds = [true, true]} : memref<64x16xf32>, vector<64x16xf32>
    %u = arith.divf %v, %three : vector<64x16xf32>
    %t = math.tanh %u : vector<64x16xf32>
    vector.transfer_write %t, %x[%c0, %c0] {in_bounds = [true, true]} : vector<64x16xf32>, memref<64x16xf32>
    gpu.return
  }

  // Its derivative 1 - t^2 is 4 e / (1 + e)^2: 0 where e is, whatever the others of the reciprocal.
  // CHECK-LABEL: gpu.func @slope
  // CHECK: %[[E:.*]] = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
  // CHECK: nvvm.rcp.approx.ftz.f
  // CHECK-NOT: arith.subf
  // CHECK: arith.mulf %[[E]], %[[TWICE:.*]] fastmath<contract>
  // CHECK-NEXT: arith.mulf %{{.*}}, %[[TWICE]] fastmath<contract>
  // CHECK-NOT: arith.subf
  // CHECK: gpu.return
  gpu.func @slope(%x: memref<64x8xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %one = arith.constant dense<1.0> : vector<64x8xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    %t = math.tanh %v : vector<64x8xf32>
    %q = arith.mulf %t, %t : vector<64x8xf32>
    %d = arith.subf %one, %q : vector<64x8xf32>
    vector.store %d, %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    gpu.return
  }

  // A difference from another number, or of another square, is what it says.
  // CHECK-LABEL: gpu.func @others
  // CHECK-COUNT-8: arith.subf
  // CHECK: gpu.return
  gpu.func @others(%x: memref<64x8xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %one = arith.constant dense<1.0> : vector<64x8xf32>
    %two = arith.constant dense<2.0> : vector<64x8xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    %t = math.tanh %v : vector<64x8xf32>
    %q = arith.mulf %t, %t : vector<64x8xf32>
    %d = arith.subf %two, %q : vector<64x8xf32>
    %p = arith.mulf %t, %v : vector<64x8xf32>
    %e = arith.subf %one, %p : vector<64x8xf32>
    %r = arith.addf %d, %e : vector<64x8xf32>
    vector.store %r, %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    gpu.return
  }
}

// Of two pairs of columns one by a polynomial, whose exponent comes of a sum: limits first,
// then three fused multiply-adds, to whose exponent that of the integer is added.
// CHECK-LABEL: gpu.func @emulated
// CHECK-COUNT-2: ex2.approx.ftz
// CHECK-NOT: ex2.approx.ftz
// CHECK: llvm.intr.maximum
// CHECK: llvm.intr.minimum
// CHECK: arith.addf
// CHECK: arith.addf
// CHECK: arith.subf
// CHECK-COUNT-3: llvm.intr.fma
// CHECK: llvm.shl
// CHECK: llvm.add
gpu.module @p {
  gpu.func @emulated(%x: memref<64x8xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    %y = math.exp2 %v {hopper.emulated = 2 : i64} : vector<64x8xf32>
    vector.store %y, %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    gpu.return
  }
}

// Factors of rows that are nearly always 1: no product where a warp has no other.
// CHECK-LABEL: gpu.func @rescaling
// CHECK-COUNT-2: arith.cmpf une, %{{.*}}, %{{.*}} : f32
// CHECK: %[[ANY:.*]] = nvvm.vote.sync any
// CHECK: scf.if %[[ANY]] -> (f32, f32, f32, f32)
// CHECK-COUNT-4: arith.mulf
// CHECK: } else {
// CHECK-NOT: arith.mulf
gpu.module @c {
  gpu.func @rescaling(%x: memref<64x8xf32>, %c: memref<64xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    %f = vector.load %c[%c0] : memref<64xf32>, vector<64xf32>
    %b = vector.broadcast %f : vector<64xf32> to vector<8x64xf32>
    %t = vector.transpose %b, [1, 0] : vector<8x64xf32> to vector<64x8xf32>
    %y = arith.mulf %v, %t {attn.rescaling} : vector<64x8xf32>
    vector.store %y, %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    gpu.return
  }
}

// A row's logarithm is a polynomial near 1: the instruction's error is 2^-22 there.
// CHECK-LABEL: gpu.func @row
// CHECK: %[[F:.*]] = arith.subf
// CHECK-COUNT-9: llvm.intr.fma
// CHECK: %[[NEAR:.*]] = arith.addf %[[F]],
// CHECK: llvm.nvvm.lg2.approx.f
// CHECK: %[[OTHER:.*]] = arith.mulf
// CHECK: llvm.fabs
// CHECK: %[[ISNEAR:.*]] = arith.cmpf olt
// CHECK: %[[REST:.*]] = arith.select %[[ISNEAR]], %[[NEAR]], %[[OTHER]]
// CHECK: llvm.intr.fma(%{{.*}}, %{{.*}}, %[[REST]])
gpu.module @r {
  gpu.func @row(%x: memref<64xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0] : memref<64xf32>, vector<64xf32>
    %l = math.log %v : vector<64xf32>
    vector.store %l, %x[%c0] : memref<64xf32>, vector<64xf32>
    gpu.return
  }
}
