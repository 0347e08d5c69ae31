// RUN: attn-opt %s --hopper-form-nests --hopper-select-schedule=chip=sm_80 | FileCheck %s
// RUN: attn-opt %s --hopper-form-nests --hopper-select-schedule=chip=sm_86 | FileCheck %s --check-prefix=SMALL
// RUN: attn-opt %s --hopper-form-nests --hopper-select-schedule | FileCheck %s --check-prefix=HOPPER
// RUN: attn-opt %s --hopper-form-nests --hopper-select-schedule="precision=tf32x3" | FileCheck %s --check-prefix=TF32
// RUN: not attn-opt %s --hopper-form-nests --hopper-select-schedule="products=mma pipeline=true" 2>&1 | FileCheck %s --check-prefix=ROLES
// RUN: not attn-opt %s --hopper-form-nests --hopper-select-schedule="chip=sm_80 products=wgmma" 2>&1 | FileCheck %s --check-prefix=WGMMA
// RUN: not attn-opt %s --hopper-form-nests --hopper-select-schedule="chip=sm_70" 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not attn-opt %s --hopper-form-nests --hopper-select-schedule="precision=f32" 2>&1 | FileCheck %s --check-prefix=PRECISION

// f32 has products of warps on any chip; tiles are as large as shared memory allows.
// CHECK: #hopper.schedule<block_m = 128, block_n = 32, {{.*}}products = mma, group_warps = 2>
// SMALL: #hopper.schedule<block_m = 128, block_n = 32, {{.*}}products = mma, group_warps = 2, product_columns = 32>
// HOPPER: #hopper.schedule<block_m = 128, block_n = 16, {{.*}}products = mma, group_warps = 2>
// TF32: #hopper.schedule<{{.*}}products = mma, group_warps = 2, tf32 = 3>
// ROLES: schedule option 'pipeline' is of products=wgmma, whose kernels have roles that copy
// WGMMA: schedule option 'products=wgmma' needs 'chip=sm_90a', got 'sm_80'
// CHIP: schedule option 'chip' is one of sm_80, sm_86, sm_89, sm_90a, sm_100, sm_120; got 'sm_70'
// PRECISION: schedule option 'precision' is one of ieee, tf32x3, tf32; got 'f32'
func.func @f(%q: tensor<1x2x?x128xf32>, %k: tensor<1x2x?x128xf32>) -> tensor<1x2x?x128xf32> {
  %o = attn.forward %q, %k, %k : tensor<1x2x?x128xf32>, tensor<1x2x?x128xf32>, tensor<1x2x?x128xf32> -> tensor<1x2x?x128xf32>
  return %o : tensor<1x2x?x128xf32>
}
