// RUN: attn-opt %s --attn-lower-launches --split-input-file --verify-diagnostics

func.func @load(%x: memref<?xf32>, %i: index) -> f32 {
  // expected-error@+1 {{'memref.load' op did not become part of a kernel, and the host cannot reach the memory of the device}}
  %v = memref.load %x[%i] : memref<?xf32>
  return %v : f32
}

// -----

func.func @fill(%x: memref<?xf32>, %v: f32) {
  // expected-error@+1 {{'linalg.fill' op did not become part of a kernel, and the host cannot reach the memory of the device}}
  linalg.fill ins(%v : f32) outs(%x : memref<?xf32>)
  return
}

// -----

func.func @inLoop(%x: memref<?x8xf32>, %n: index, %v: vector<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    // expected-error@+1 {{'vector.transfer_write' op did not become part of a kernel}}
    vector.transfer_write %v, %x[%i, %c0] : vector<8xf32>, memref<?x8xf32>
  }
  return
}

// -----

func.func private @other(memref<?xf32>)
func.func @external(%x: memref<?xf32>) {
  // expected-error@+1 {{'func.call' op did not become part of a kernel}}
  call @other(%x) : (memref<?xf32>) -> ()
  return
}

// -----

memref.global "private" constant @table : memref<2xf32> = dense<[1.0, 2.0]>
func.func @constants() {
  // expected-error@+1 {{'memref.get_global' op names memory of the host, which no kernel can read}}
  %t = memref.get_global @table : memref<2xf32>
  return
}

// -----

func.func @aliased(%n: index, %x: memref<?xf32>) {
  // expected-error@+1 {{may lie in argument 0, which is no memory}}
  %t = memref.alloc(%n) {hopper.aliases = 0 : index} : memref<?xf32>
  return
}

// -----

func.func @no_aliased(%n: index, %x: memref<?xf32>) {
  // expected-error@+1 {{may lie in argument 2, which is no memory}}
  %t = memref.alloc(%n) {hopper.aliases = 2 : index} : memref<?xf32>
  return
}

// -----

func.func @layout(%n: index) {
  // expected-error@+1 {{expected a workspace of identity layout in the default memory space, got 'memref<8x8xf32, strided<[16, 1]>>'}}
  %t = memref.alloc() : memref<8x8xf32, strided<[16, 1]>>
  return
}

// -----

module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @k() kernel {
      gpu.return
    }
  }
  func.func @notCompiled() {
    %c1 = arith.constant 1 : index
    // expected-error@+1 {{expected 'kernels' to be a gpu.binary with PTX (gpu-module-to-binary{format=isa})}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry other()\0A{ ret; }\0A">]
  func.func @missing() {
    %c1 = arith.constant 1 : index
    // expected-error@+1 {{expected the PTX of 'kernels' to have an entry 'k'}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k(\0A\09.param .u64 a\0A)\0A{ ret; }\0A">]
  func.func @count(%n: index) {
    %c1 = arith.constant 1 : index
    // expected-error@+1 {{passes 2 values, but the kernel takes 1}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%n : index, %n : index)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k(\0A\09.param .u32 a,\0A\09.param .f64 b\0A)\0A{ ret; }\0A">]
  func.func @width(%n: index, %f: f32) {
    %c1 = arith.constant 1 : index
    // expected-error@+1 {{passes 'f32' as parameter 1, but the kernel takes 8 bytes}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%n : index, %f : f32)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k(\0A\09.param .align 8 .b8 a[128]\0A)\0A{ ret; }\0A">]
  func.func @struct(%n: index) {
    %c1 = arith.constant 1 : index
    // expected-error@+1 {{passes 'index' as parameter 0, but the kernel takes 128 bytes}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%n : index)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k()\0A{ ret; }\0A">]
  func.func @token() {
    %c1 = arith.constant 1 : index
    // expected-error@+1 {{expected a launch without tokens or streams of its own}}
    %t = gpu.launch_func async @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}

// -----

!tm = !hopper.tensor_map<!tile.smem<32x128xbf16, swizzle = 128>, rank = 2>
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k(\0A\09.param .align 64 .b8 k_param_0[128]\0A)\0A{ ret; }\0A">]
  func.func @selected(%x: memref<?x128xbf16>, %y: memref<?x128xbf16>, %c: i1) {
    %c1 = arith.constant 1 : index
    %mx = hopper.tensor_map %x : memref<?x128xbf16> -> !tm
    %my = hopper.tensor_map %y : memref<?x128xbf16> -> !tm
    %m = arith.select %c, %mx, %my : !tm
    // expected-error@+1 {{expected a tensor map to come from hopper.tensor_map directly}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%m : !tm)
    return
  }
}
