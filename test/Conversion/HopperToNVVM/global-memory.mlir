// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm,canonicalize,cse))' | FileCheck %s

// Beyond the end of a dimension nothing is read: the padding is there.
// CHECK-LABEL: gpu.func @read
// CHECK: %[[ROOM:.*]] = arith.index_cast %{{.*}} : index to i32
// CHECK: arith.cmpi sgt, %[[ROOM]], %c0_i32
// CHECK: arith.cmpi sgt, %[[ROOM]], %c8_i32
// CHECK-COUNT-4: llvm.inline_asm has_side_effects asm_dialect = att "mov.b32 $0, $3; @$2 ld.global.b32 $0, [$1];", "=&f,l,b,f,~{memory}"
// CHECK-NOT: ld.global
gpu.module @m {
  gpu.func @read(%x: memref<?x8xf32, strided<[?, 1], offset: ?>>, %i: index, %o: memref<64x8xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %pad = arith.constant 5.0 : f32
    %v = vector.transfer_read %x[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x8xf32, strided<[?, 1], offset: ?>>, vector<64x8xf32>
    vector.store %v, %o[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    gpu.return
  }
}

// -----

// A value per column, masked; written by the first lane of each column and warp 0.
// CHECK-LABEL: gpu.func @columns
// CHECK-COUNT-4: "mov.b16 $0, $3; @$2 ld.global.b16 $0, [$1];", "=&h,l,b,h,~{memory}"
// CHECK-DAG: arith.andi %{{.*}}, %c28_i32
// CHECK-COUNT-4: "@$0 st.global.b16 [$1], $2;", "b,l,h,~{memory}"
gpu.module @m {
  gpu.func @columns(%x: memref<16xbf16>, %n: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %pad = arith.constant 0.0 : bf16
    %step = vector.step : vector<16xindex>
    %end = vector.broadcast %n : index to vector<16xindex>
    %mask = arith.cmpi slt, %step, %end : vector<16xindex>
    %v = vector.transfer_read %x[%c0], %pad, %mask {in_bounds = [true]} : memref<16xbf16>, vector<16xbf16>
    vector.transfer_write %v, %x[%c0], %mask {in_bounds = [true]} : vector<16xbf16>, memref<16xbf16>
    gpu.return
  }
}

// -----

// A dimension may be broadcast, or transposed in memory.
// CHECK-LABEL: gpu.func @maps
// Two rows apart are 8 elements, two columns a row of memory.
// CHECK: %[[FIRST:.*]] = arith.index_cast %{{.*}} : index to i64
// CHECK: arith.addi %[[FIRST]], %c256_i64
// CHECK: arith.addi %[[FIRST]], %c32_i64
// CHECK: arith.addi %[[FIRST]], %c288_i64
// Two loads serve both rows.
// CHECK-COUNT-3: llvm.load
// CHECK-NOT: llvm.load
// CHECK-COUNT-2: "st.global.v2.b32 [$0], {$1, $2};"
// CHECK-NOT: st.global
gpu.module @m {
  gpu.func @maps(%x: memref<8x64xf32>, %o: memref<64x8xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %pad = arith.constant 0.0 : f32
    %v = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true], permutation_map = affine_map<(d0, d1) -> (d1, d0)>} : memref<8x64xf32>, vector<64x8xf32>
    %w = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true], permutation_map = affine_map<(d0, d1) -> (0, d0)>} : memref<8x64xf32>, vector<64x8xf32>
    %s = arith.addf %v, %w : vector<64x8xf32>
    vector.transfer_write %s, %o[%c0, %c0] {in_bounds = [true, true]} : vector<64x8xf32>, memref<64x8xf32>
    gpu.return
  }
}

// -----

// CHECK-LABEL: gpu.func @gather
// CHECK: arith.muli %{{.*}}, %c4_i64
// CHECK-COUNT-4: ld.global.b32
// CHECK-NOT: ld.global
gpu.module @m {
  gpu.func @gather(%table: memref<?xf32>, %o: memref<64x8xf32>, %n: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant dense<0.0> : vector<64x8xf32>
    %step = vector.step : vector<8xindex>
    %i = vector.broadcast %step : vector<8xindex> to vector<64x8xindex>
    %end = vector.broadcast %n : index to vector<64x8xindex>
    %mask = arith.cmpi slt, %i, %end : vector<64x8xindex>
    %v = vector.gather %table[%c0] [%i], %mask, %zero : memref<?xf32>, vector<64x8xindex>, vector<64x8xi1>, vector<64x8xf32> into vector<64x8xf32>
    vector.store %v, %o[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    gpu.return
  }
}

// -----

// Aligned vectors along the columns are read by twos; additions to a sum are two at a
// time, with a predicate where rows may end.
// CHECK-LABEL: gpu.func @add
// CHECK-COUNT-2: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
// CHECK-NOT: llvm.load
// CHECK-COUNT-4: "@$3 red.global.add.v2.f32 [$0], {$1, $2};", "l,f,f,b,~{memory}"
// CHECK-NOT: red.global
gpu.module @m {
  gpu.func @add(%x: memref<?x16xf32>, %o: memref<?x16xf32>, %i: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %pad = arith.constant 0.0 : f32
    %v = vector.transfer_read %x[%i, %c0], %pad {in_bounds = [true]} : memref<?x16xf32>, vector<16xf32>
    %w = vector.broadcast %v : vector<16xf32> to vector<64x16xf32>
    attn.tile_add %w into %o[%i, %c0] : vector<64x16xf32>, memref<?x16xf32>
    gpu.return
  }
}

// -----

// What a warp adds to one cell of a table is summed up first: an element whose cell is
// another one than the warp's goes through a vote, a loop over cells and shuffles. Zeros
// and indices outside of the table are left out.
// CHECK-LABEL: gpu.func @scatter
// CHECK-COUNT-4: arith.cmpf une
// CHECK-COUNT-4: arith.cmpi ult
// CHECK: nvvm.vote.sync all
// CHECK: scf.if
// CHECK: arith.addf
// CHECK: } else {
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK: "@$2 red.global.add.f32 [$0], $1;", "l,f,b,~{memory}"
// CHECK: nvvm.vote.sync ballot
// CHECK: scf.while
// CHECK: llvm.intr.cttz
// CHECK: nvvm.shfl.sync idx
// CHECK: nvvm.vote.sync ballot
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK: red.global.add.f32
// CHECK: scf.yield
// CHECK-COUNT-3: nvvm.vote.sync all
// CHECK-NOT: nvvm.vote.sync all
// CHECK: red.global.add.f32
// CHECK: gpu.return
gpu.module @m {
  gpu.func @scatter(%x: memref<64x8xf32>, %j: memref<64x8xindex>, %table: memref<?xf32, strided<[1], offset: ?>>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    %i = vector.load %j[%c0, %c0] : memref<64x8xindex>, vector<64x8xindex>
    attn.scatter_add %v at(%i) into %table : vector<64x8xf32>, memref<?xf32, strided<[1], offset: ?>>
    gpu.return
  }
}

// -----

// A kernel that only moves and computes: a thread has 8 columns side by side. Rows of strided
// memory may start anywhere, which their addresses tell; of other memory, also behind a view,
// it is known.
// CHECK-LABEL: gpu.func @pieces
// CHECK: %[[BITS:.*]] = arith.andi %{{.*}}, %c15_i64
// CHECK: %[[ALIGNED:.*]] = arith.cmpi eq, %[[BITS]], %c0_i64
// CHECK: %{{.*}}:16 = scf.if %[[ALIGNED]]
// CHECK-COUNT-4: "mov.b32 $0, $6; mov.b32 $1, $6; mov.b32 $2, $6; mov.b32 $3, $6; @$5 ld.global.v4.b32 {$0, $1, $2, $3}, [$4];"
// CHECK: } else {
// CHECK-COUNT-32: ld.global.b16
// CHECK: }
// CHECK-COUNT-4: "@$5 st.global.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,b,~{memory}"
// CHECK-COUNT-8: "st.global.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}"
// CHECK-NOT: st.global
gpu.module @m {
  gpu.func @pieces(%x: memref<?x64xbf16, strided<[?, 1], offset: ?>>, %y: memref<?x64xbf16>, %z: memref<64x64xf32>,
                   %i: index, %rest: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %pad = arith.constant 0.0 : bf16
    %view = memref.subview %y[%i, 0] [%rest, 64] [1, 1] : memref<?x64xbf16> to memref<?x64xbf16, strided<[64, 1], offset: ?>>
    %v = vector.transfer_read %x[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16, strided<[?, 1], offset: ?>>, vector<64x64xbf16>
    %w = arith.extf %v : vector<64x64xbf16> to vector<64x64xf32>
    vector.transfer_write %v, %view[%c0, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16, strided<[64, 1], offset: ?>>
    vector.transfer_write %w, %z[%c0, %c0] {in_bounds = [true, true]} : vector<64x64xf32>, memref<64x64xf32>
    gpu.return
  }
}

// -----

// 16-bit floats in the layout of the accumulator: where all columns are inside and rows start at
// multiples of 16 bytes, the 4 threads of a row exchange words, so that each writes 16 bytes; the
// words of columns that are left alone. Else element by element.
// CHECK-LABEL: gpu.func @rows
// CHECK: scf.if %{{.*}} {
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK: "@$5 st.global.v4.b32 [$0], {$1, $2, $3, $4};"
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK: "@$5 st.global.v4.b32 [$0], {$1, $2, $3, $4};"
// CHECK-COUNT-2: "@$2 st.global.b32 [$0], $1;"
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK: "@$5 st.global.v4.b32 [$0], {$1, $2, $3, $4};"
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK: "@$5 st.global.v4.b32 [$0], {$1, $2, $3, $4};"
// CHECK-COUNT-2: "@$2 st.global.b32 [$0], $1;"
// CHECK: } else {
// CHECK-COUNT-40: "@$0 st.global.b16 [$1], $2;"
// CHECK-NOT: st.global
gpu.module @m {
  gpu.func @rows(%x: memref<64x80xbf16>, %o: memref<?x?xbf16, strided<[?, 1], offset: ?>>, %i: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x80xbf16>, vector<64x80xbf16>
    vector.transfer_write %v, %o[%c0, %i] : vector<64x80xbf16>, memref<?x?xbf16, strided<[?, 1], offset: ?>>
    gpu.return
  }
}

// -----

// Fewer than 32 columns, or not side by side in memory: by elements.
// CHECK-LABEL: gpu.func @narrow
// CHECK-NOT: nvvm.shfl.sync bfly
// CHECK-COUNT-32: "@$0 st.global.b16 [$1], $2;"
// CHECK-NOT: st.global
gpu.module @m {
  gpu.func @narrow(%x: memref<64x24xbf16>, %o: memref<?x?xbf16, strided<[?, 1], offset: ?>>, %y: memref<64x40xbf16>, %t: memref<?x?xbf16, strided<[?, 2], offset: ?>>, %i: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x24xbf16>, vector<64x24xbf16>
    vector.transfer_write %v, %o[%c0, %i] : vector<64x24xbf16>, memref<?x?xbf16, strided<[?, 1], offset: ?>>
    %w = vector.load %y[%c0, %c0] : memref<64x40xbf16>, vector<64x40xbf16>
    vector.transfer_write %w, %t[%c0, %i] : vector<64x40xbf16>, memref<?x?xbf16, strided<[?, 2], offset: ?>>
    gpu.return
  }
}

// -----

// Before sm_90 there are additions of one element: neighbours of two rows change lanes, so that each
// instruction adds to 8 columns of four rows. Whether a row is inside goes along.
// CHECK-LABEL: gpu.func @add_by_elements
// CHECK: %[[ODD:.*]] = arith.cmpi ne
// CHECK: %[[GIVEN:.*]] = arith.select %[[ODD]], %{{.*}}, %{{.*}} : f32
// CHECK: nvvm.shfl.sync bfly {{.*}}, %[[GIVEN]], %{{.*}}
// CHECK: arith.extui %{{.*}} : i1 to i32
// CHECK: nvvm.shfl.sync bfly
// CHECK-COUNT-8: "@$2 red.global.add.f32 [$0], $1;", "l,f,b,~{memory}"
// CHECK-NOT: red.global
gpu.module @m [#nvvm.target<chip = "sm_80">] {
  gpu.func @add_by_elements(%x: memref<?x16xf32>, %o: memref<?x16xf32>, %i: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %pad = arith.constant 0.0 : f32
    %w = vector.transfer_read %x[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x16xf32>, vector<64x16xf32>
    attn.tile_add %w into %o[%i, %c0] : vector<64x16xf32>, memref<?x16xf32>
    gpu.return
  }
}
