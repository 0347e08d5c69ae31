// RUN: attn-opt %s --attn-name-kernels | FileCheck %s
// RUN: attn-opt %s --attn-name-kernels --remarks-filter=attn-name-kernels -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] renamed | Category:attn-name-kernels{{$}}

module attributes {gpu.container_module} {
  // CHECK-LABEL: func @launches
  // CHECK:         gpu.launch_func @first::@k
  // CHECK:         gpu.launch_func @second::@k_1
  // CHECK:         gpu.launch_func @third::@k_0
  // CHECK:         gpu.launch_func @third::@other
  // CHECK:         gpu.launch_func @fourth::@k_2
  func.func @launches(%n: index) {
    gpu.launch_func @first::@k blocks in (%n, %n, %n) threads in (%n, %n, %n)
    gpu.launch_func @second::@k blocks in (%n, %n, %n) threads in (%n, %n, %n)
    gpu.launch_func @third::@k_0 blocks in (%n, %n, %n) threads in (%n, %n, %n)
    gpu.launch_func @third::@other blocks in (%n, %n, %n) threads in (%n, %n, %n)
    gpu.launch_func @fourth::@k blocks in (%n, %n, %n) threads in (%n, %n, %n)
    return
  }
  // CHECK: gpu.module @first
  // CHECK-NEXT: gpu.func @k()
  gpu.module @first {
    gpu.func @k() kernel {
      gpu.return
    }
  }
  // A name that is there already is nobody else's.
  // CHECK: gpu.module @second
  // CHECK-NEXT: gpu.func @k_1()
  gpu.module @second {
    gpu.func @k() kernel {
      gpu.return
    }
  }
  // CHECK: gpu.module @third
  // CHECK-NEXT: gpu.func @k_0()
  // CHECK: gpu.func @other()
  gpu.module @third {
    gpu.func @k_0() kernel {
      gpu.return
    }
    gpu.func @other() kernel {
      gpu.return
    }
  }
  // CHECK: gpu.module @fourth
  // CHECK-NEXT: gpu.func @k_2()
  gpu.module @fourth {
    gpu.func @k() kernel {
      gpu.return
    }
  }
}
