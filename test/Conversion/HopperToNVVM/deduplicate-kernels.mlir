// RUN: attn-opt %s --attn-deduplicate-kernels | FileCheck %s
// RUN: attn-opt %s --attn-deduplicate-kernels --remarks-filter=attn-deduplicate-kernels -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] removed | Category:attn-deduplicate-kernels{{$}}

module attributes {gpu.container_module} {
  // CHECK-LABEL: func @launches
  // CHECK:         gpu.launch_func @first::@k
  // CHECK:         gpu.launch_func @first::@k
  // CHECK:         gpu.launch_func @other::@k
  // CHECK:         gpu.launch_func @sized::@k
  func.func @launches(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
    gpu.launch_func @first::@k blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%x : memref<?xf32>)
    gpu.launch_func @same::@k blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%y : memref<?xf32>)
    gpu.launch_func @other::@k blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%x : memref<?xf32>)
    gpu.launch_func @sized::@k blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%x : memref<?xf32>)
    return
  }
  // CHECK: gpu.module @first
  gpu.module @first {
    gpu.func @k(%x: memref<?xf32>) kernel {
      %i = gpu.block_id x
      %one = arith.constant 1.0 : f32
      memref.store %one, %x[%i] : memref<?xf32>
      gpu.return
    }
  }
  // CHECK-NOT: @same
  gpu.module @same {
    gpu.func @k(%x: memref<?xf32>) kernel {
      %i = gpu.block_id x
      %one = arith.constant 1.0 : f32
      memref.store %one, %x[%i] : memref<?xf32>
      gpu.return
    }
  }
  // CHECK: gpu.module @other
  gpu.module @other {
    gpu.func @k(%x: memref<?xf32>) kernel {
      %i = gpu.block_id x
      %two = arith.constant 2.0 : f32
      memref.store %two, %x[%i] : memref<?xf32>
      gpu.return
    }
  }
  // CHECK: gpu.module @sized
  gpu.module @sized {
    gpu.func @k(%x: memref<?xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
      %i = gpu.block_id x
      %one = arith.constant 1.0 : f32
      memref.store %one, %x[%i] : memref<?xf32>
      gpu.return
    }
  }
}
