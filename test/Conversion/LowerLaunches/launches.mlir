// RUN: attn-opt %s --attn-lower-launches --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-lower-launches --split-input-file --remarks-filter=attn-lower-launches -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}10 [Passed] lowered | Category:attn-lower-launches{{$}}

// A memref is five values for rank 1; the kernel says that an index has 32 bits.
// Slots are in the function's frame, in front of everything else.
// CHECK: module attributes {attn.kernels = [@kernels::@fill]
// CHECK: func.func private @attnCudaLaunch(!llvm.ptr, i32, !llvm.ptr, i32, !llvm.ptr)
// CHECK-LABEL: func.func @scalars
// CHECK-SAME:    (%[[CALL:.*]]: !llvm.ptr, %[[X:.*]]: memref<?xf32, strided<[?], offset: ?>>, %[[N:.*]]: index, %[[F:.*]]: f32)
// CHECK-SAME:    llvm.emit_c_interface
// CHECK:         %[[DIMS:.*]] = llvm.alloca %{{.*}} x i64
// CHECK:         %[[SLOTS:.*]] = llvm.alloca %{{.*}} x !llvm.ptr
// CHECK:         %{{.*}}, %[[OFFSET:.*]], %[[SIZE:.*]], %[[STRIDE:.*]] = memref.extract_strided_metadata %[[X]]
// CHECK:         %[[ADDRESS:.*]] = memref.extract_aligned_pointer_as_index %[[X]]
// CHECK:         %[[A64:.*]] = arith.index_cast %[[ADDRESS]] : index to i64
// CHECK:         llvm.store %[[A64]], %[[SLOT:.*]] : i64
// CHECK:         %[[AT:.*]] = llvm.getelementptr %[[SLOTS]][0]
// CHECK:         llvm.store %[[SLOT]], %[[AT]] : !llvm.ptr
// CHECK:         arith.index_cast %[[OFFSET]] : index to i64
// CHECK:         arith.index_cast %[[SIZE]] : index to i64
// CHECK:         arith.index_cast %[[STRIDE]] : index to i64
// CHECK:         %[[N32:.*]] = arith.index_cast %[[N]] : index to i32
// CHECK:         llvm.store %[[N32]], %{{.*}} : i32
// CHECK:         llvm.store %[[F]], %{{.*}} : f32
// CHECK:         call @attnCudaLaunch(%[[CALL]], %{{.*}}, %[[DIMS]], %{{.*}}, %[[SLOTS]])
// CHECK-NOT:     gpu.launch_func
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry fill(\0A\09.param .u64 .ptr .align 1 fill_param_0,\0A\09.param .u64 .ptr .align 1 fill_param_1,\0A\09.param .u64 fill_param_2,\0A\09.param .u64 fill_param_3,\0A\09.param .u64 fill_param_4,\0A\09.param .u32 fill_param_5,\0A\09.param .f32 fill_param_6\0A)\0A.maxntid 128, 1, 1\0A{ ret; }\0A">]
  func.func @scalars(%x: memref<?xf32, strided<[?], offset: ?>>, %n: index, %f: f32) {
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    gpu.launch_func @kernels::@fill blocks in (%n, %c1, %c1) threads in (%c128, %c1, %c1)
        args(%x : memref<?xf32, strided<[?], offset: ?>>, %n : index, %f : f32)
    return
  }
}

// -----

// A map is 128 bytes of the frame, aligned to 128, that the runtime writes: of
// argument 1 (the view's source), bf16, rank 3, boxes of 64 rows and the 64 columns
// of a slab, 128 bytes of swizzle. The launch passes its address. Clusters come
// after blocks.
// CHECK-LABEL: func.func @maps
// CHECK-SAME:    (%[[CALL:.*]]: !llvm.ptr, %{{.*}}: index, %[[X:.*]]: memref<?x?x128xbf16>)
// CHECK-DAG:     %[[MAP:.*]] = llvm.alloca %{{.*}} x i8 {alignment = 128 : i64}
// CHECK:         %[[VIEW:.*]] = memref.subview
// CHECK:         memref.extract_strided_metadata %[[VIEW]]
// CHECK:         memref.extract_aligned_pointer_as_index %[[VIEW]]
// CHECK:         %[[BYTES:.*]] = arith.constant 2 : index
// CHECK:         %[[OFFSET:.*]] = arith.muli %{{.*}}, %[[BYTES]]
// CHECK:         %[[FIRST:.*]] = arith.addi %{{.*}}, %[[OFFSET]]
// CHECK:         %[[ARGUMENT:.*]] = arith.constant 1 : i32
// CHECK:         %[[TYPE:.*]] = arith.constant 1 : i32
// CHECK:         %[[RANK:.*]] = arith.constant 3 : i32
// CHECK:         %[[ADDRESS:.*]] = arith.index_cast %[[FIRST]] : index to i64
// CHECK:         %[[ROWS:.*]] = arith.constant 32 : i32
// CHECK:         %[[COLUMNS:.*]] = arith.constant 64 : i32
// CHECK:         %[[SWIZZLE:.*]] = arith.constant 128 : i32
// CHECK:         call @attnCudaTensorMap(%[[CALL]], %[[MAP]], %[[ARGUMENT]], %[[TYPE]], %[[RANK]], %[[ADDRESS]], %{{.*}}, %{{.*}}, %[[ROWS]], %[[COLUMNS]], %[[SWIZZLE]])
// CHECK:         llvm.store %[[MAP]], %{{.*}} : !llvm.ptr
// CHECK-NOT:     hopper.tensor_map
!tm = !hopper.tensor_map<!tile.smem<32x128xbf16, swizzle = 128>, rank = 3>
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k(\0A\09.param .align 64 .b8 k_param_0[128]\0A)\0A{ ret; }\0A">]
  func.func @maps(%n: index, %x: memref<?x?x128xbf16>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c8 = arith.constant 8 : index
    %smem = arith.constant 65536 : i32
    %v = memref.subview %x[%n, 0, 0] [%n, %n, 128] [1, 1, 1] : memref<?x?x128xbf16> to memref<?x?x128xbf16, strided<[?, 128, 1], offset: ?>>
    %m = hopper.tensor_map %v : memref<?x?x128xbf16, strided<[?, 128, 1], offset: ?>> -> !tm
    gpu.launch_func @kernels::@k clusters in (%c2, %c1, %c1) blocks in (%n, %c1, %c1) threads in (%c8, %c1, %c1)
        dynamic_shared_memory_size %smem args(%m : !tm)
    return
  }
}

// -----

// Memory of the host function is workspace of the call: bytes, and a view of them.
// A callee gets the call too; slots stay out of loops.
// CHECK-LABEL: func.func private @workspace
// CHECK-SAME:    (%[[CALL:.*]]: !llvm.ptr, %[[N:.*]]: index)
// CHECK:         llvm.alloca
// CHECK:         scf.for
// CHECK-NOT:     llvm.alloca
// CHECK:         arith.constant 2 : index
// CHECK:         arith.muli
// CHECK:         %[[BYTES:.*]] = arith.muli %{{.*}}, %[[N]]
// CHECK:         %[[BYTES64:.*]] = arith.index_cast %[[BYTES]] : index to i64
// CHECK:         %[[DATA:.*]] = func.call @attnCudaAllocate(%[[CALL]], %[[BYTES64]]) : (!llvm.ptr, i64) -> !llvm.ptr
// CHECK:         %[[RAW:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<?xi8>
// CHECK:         %[[VIEW:.*]] = memref.view %[[RAW]][%{{.*}}][%[[N]]] : memref<?xi8> to memref<64x?xbf16>
// CHECK:         func.call @attnCudaLaunch
// CHECK:         %[[INDEX:.*]] = memref.extract_aligned_pointer_as_index %[[VIEW]]
// CHECK:         %[[ADDRESS:.*]] = arith.index_cast %[[INDEX]] : index to i64
// CHECK:         func.call @attnCudaFree(%[[CALL]], %[[ADDRESS]])
// CHECK-LABEL: func.func @caller
// CHECK-SAME:    (%[[CALL:.*]]: !llvm.ptr, %[[N:.*]]: index)
// CHECK:         call @workspace(%[[CALL]], %[[N]])
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k(\0A\09.param .u64 a,\0A\09.param .u64 b,\0A\09.param .u64 c,\0A\09.param .u64 d,\0A\09.param .u64 e,\0A\09.param .u64 f,\0A\09.param .u64 g\0A)\0A{ ret; }\0A">]
  func.func private @workspace(%n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.for %i = %c0 to %n step %c1 {
      %t = memref.alloc(%n) : memref<64x?xbf16>
      gpu.launch_func @kernels::@k blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1) args(%t : memref<64x?xbf16>)
      memref.dealloc %t : memref<64x?xbf16>
    }
    return
  }
  func.func @caller(%n: index) {
    call @workspace(%n) : (index) -> ()
    return
  }
}

// -----

// Memory that may lie in an argument: its number, where it starts, and its bytes if it is dense.
// CHECK-LABEL: func.func @within
// CHECK-SAME:    (%[[CALL:.*]]: !llvm.ptr, %[[N:.*]]: index, %{{.*}}: memref<?x64xbf16, strided<[?, 1], offset: ?>>)
// CHECK:         %[[NUMBER:.*]] = arith.constant 1 : i32
// CHECK:         memref.extract_strided_metadata
// CHECK:         %[[IS_DENSE:.*]] = arith.cmpi eq
// CHECK:         %[[GOES_UP:.*]] = arith.cmpi eq
// CHECK:         %[[BOTH:.*]] = arith.andi %[[IS_DENSE]], %[[GOES_UP]]
// CHECK:         %[[ROOM:.*]] = arith.select %[[BOTH]]
// CHECK:         %[[ROOM64:.*]] = arith.index_cast %[[ROOM]] : index to i64
// CHECK:         call @attnCudaAllocateAliasing(%[[CALL]], %{{.*}}, %[[NUMBER]], %{{.*}}, %[[ROOM64]]) : (!llvm.ptr, i64, i32, i64, i64) -> !llvm.ptr
// CHECK:         call @attnCudaFree
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k(\0A\09.param .u64 a,\0A\09.param .u64 b,\0A\09.param .u64 c,\0A\09.param .u64 d,\0A\09.param .u64 e\0A)\0A{ ret; }\0A">]
  func.func @within(%n: index, %out: memref<?x64xbf16, strided<[?, 1], offset: ?>>) {
    %c1 = arith.constant 1 : index
    %t = memref.alloc(%n) {hopper.aliases = 1 : index} : memref<?xi32>
    gpu.launch_func @kernels::@k blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1) args(%t : memref<?xi32>)
    memref.dealloc %t : memref<?xi32>
    return
  }
}

// -----

// Kernels are numbered in the order in which they are first launched.
// CHECK: module attributes {attn.kernels = [@one::@b, @two::@a, @one::@a]
// CHECK-LABEL: func.func @numbers
// CHECK:         arith.constant 0 : i32
// CHECK:         call @attnCudaLaunch
// CHECK:         arith.constant 1 : i32
// CHECK:         call @attnCudaLaunch
// CHECK:         arith.constant 0 : i32
// CHECK:         call @attnCudaLaunch
// CHECK:         arith.constant 2 : i32
// CHECK:         call @attnCudaLaunch
module attributes {gpu.container_module} {
  gpu.binary @one [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry a()\0A{ ret; }\0A.visible .entry b()\0A{ ret; }\0A">]
  gpu.binary @two [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry a()\0A{ ret; }\0A">]
  func.func @numbers() {
    %c9 = arith.constant 9 : index
    %s = arith.constant 77 : i32
    gpu.launch_func @one::@b blocks in (%c9, %c9, %c9) threads in (%c9, %c9, %c9) dynamic_shared_memory_size %s
    gpu.launch_func @two::@a blocks in (%c9, %c9, %c9) threads in (%c9, %c9, %c9) dynamic_shared_memory_size %s
    gpu.launch_func @one::@b blocks in (%c9, %c9, %c9) threads in (%c9, %c9, %c9) dynamic_shared_memory_size %s
    gpu.launch_func @one::@a blocks in (%c9, %c9, %c9) threads in (%c9, %c9, %c9) dynamic_shared_memory_size %s
    return
  }
}

// -----

// Bits of the address and of the strides in bytes, where a stride is used at all.
// CHECK-LABEL: func.func @reaches
// CHECK:         memref.extract_aligned_pointer_as_index
// CHECK:         arith.cmpi eq, %{{.*}}, %{{.*}} : index
// CHECK:         arith.select
// CHECK:         arith.ori
// CHECK:         %[[INSIDE:.*]] = arith.andi %{{.*}}, %{{.*}} : i1
// CHECK:         %[[ALIGNED:.*]] = arith.cmpi eq, %{{.*}}, %{{.*}} : index
// CHECK:         %[[REACHES:.*]] = arith.andi %[[ALIGNED]], %[[INSIDE]] : i1
// CHECK:         scf.if %[[REACHES]]
// CHECK-NOT:     hopper.tma.reaches
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k(\0A\09.param .u64 k_param_0\0A)\0A{ ret; }\0A">]
  func.func @reaches(%n: index, %x: memref<?x?xbf16, strided<[?, 1], offset: ?>>) {
    %reaches = hopper.tma.reaches %x : memref<?x?xbf16, strided<[?, 1], offset: ?>>
    scf.if %reaches {
      gpu.launch_func @kernels::@k blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%n : index)
    }
    return
  }
}

// -----

// The last two of eleven numbers: whether all blocks run at the same time, and with how many at most
// the kernel, which waits for those before it, may be launched while they run.
// CHECK-LABEL: func.func @early
// CHECK:         %[[ALL:.*]] = arith.index_cast %c0 : index to i64
// CHECK-NEXT:    %[[AT9:.*]] = llvm.getelementptr %{{.*}}[9]
// CHECK-NEXT:    llvm.store %[[ALL]], %[[AT9]]
// CHECK-NEXT:    %[[WAITS:.*]] = arith.index_cast %c512 : index to i64
// CHECK-NEXT:    %[[AT10:.*]] = llvm.getelementptr %{{.*}}[10]
// CHECK-NEXT:    llvm.store %[[WAITS]], %[[AT10]]
module attributes {gpu.container_module} {
  gpu.binary @one [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry a()\0A{ griddepcontrol.wait; ret; }\0A">]
  func.func @early() {
    %c9 = arith.constant 9 : index
    gpu.launch_func @one::@a blocks in (%c9, %c9, %c9) threads in (%c9, %c9, %c9) {hopper.early = 512}
    return
  }
}
