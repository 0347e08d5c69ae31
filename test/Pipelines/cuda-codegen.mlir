// RUN: attn-opt %S/../Dialect/Hopper/forward-protocol.mlir --attn-cuda-codegen | FileCheck %s
// Launches keep their operands; the kernel is PTX.
// CHECK: gpu.launch_func @attention_kernel::@attention_kernel
// CHECK-SAME: !hopper.tensor_map
// CHECK: gpu.binary @attention_kernel
// CHECK-SAME: .version 8.6
// CHECK-SAME: .target sm_90a
// CHECK-SAME: .extern .shared .align 1024 .b8 hopper_shared_memory[];
// Tensor maps by value, sizes, then the memref's descriptor.
// CHECK-SAME: .param .align 64 .b8 attention_kernel_param_0[128]
// CHECK-SAME: .param .u64 attention_kernel_param_3,
// CHECK-SAME: .param .align 64 .b8 attention_kernel_param_4[128]
// CHECK-SAME: attention_kernel_param_13
// CHECK-SAME: .maxntid 384, 1, 1
// CHECK-SAME: .minnctapersm 1
// CHECK-SAME: setmaxnreg.inc.sync.aligned.u32
// CHECK-SAME: cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes
// CHECK-NOT: .local
// CHECK-NOT: __nv_
