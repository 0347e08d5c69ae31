// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm,canonicalize,cse))' | FileCheck %s
// A tile of 64 x 16: 8 scalars per thread, rows 16 w + l / 4 + {0, 8}, columns
// 2 (l % 4) + {0, 1, 8, 9}.

// CHECK-LABEL: gpu.func @elementwise
// CHECK-DAG: %[[THREE:.*]] = arith.constant 3.0
// CHECK-DAG: %[[TWO:.*]] = arith.constant 2.0
// Neighbours are read together.
// CHECK: %[[XX:.*]] = llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
// CHECK: %[[X0:.*]] = vector.extract %[[XX]][0]
// CHECK: %[[X:.*]] = llvm.bitcast %[[X0]] : i32 to f32
// CHECK-COUNT-3: llvm.load
// CHECK-NOT: llvm.load
// A scalar op for each element, contracted; the splat stays one constant.
// CHECK: arith.mulf %[[X]], %[[TWO]] fastmath<contract> : f32
// CHECK-COUNT-7: arith.mulf {{.*}} fastmath<contract> : f32
// CHECK-NOT: arith.mulf
// CHECK: llvm.intr.maxnum({{.*}}, %[[THREE]])
// And written.
// CHECK-COUNT-4: llvm.inline_asm {{.*}} "st.global.v2.b32 [$0], {$1, $2};"
// CHECK-NOT: st.global
gpu.module @m {
  gpu.func @elementwise(%x: memref<64x16xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %two = arith.constant dense<2.0> : vector<64x16xf32>
    %three = arith.constant dense<3.0> : vector<64x16xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    %w = arith.mulf %v, %two : vector<64x16xf32>
    %y = arith.maxnumf %w, %three : vector<64x16xf32>
    vector.store %y, %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    gpu.return
  }
}

// -----

// Columns are less than an end: one difference per thread, 32 bits wide, and a
// constant for each column. A column is compared once for both rows.
// CHECK-LABEL: gpu.func @mask
// CHECK-DAG: %[[M0:.*]] = arith.constant 0 : i32
// CHECK-DAG: %[[M1:.*]] = arith.constant -1 : i32
// CHECK-DAG: %[[M8:.*]] = arith.constant -8 : i32
// CHECK-DAG: %[[M9:.*]] = arith.constant -9 : i32
// CHECK: %[[WIDE:.*]] = arith.subi
// CHECK-NOT: arith.subi
// CHECK: %[[D:.*]] = llvm.inline_asm asm_dialect = att "cvt.sat.s32.s64 $0, $1;"
// CHECK-DAG: %[[B0:.*]] = arith.cmpi slt, %[[D]], %[[M0]] : i32
// CHECK-DAG: %[[B1:.*]] = arith.cmpi slt, %[[D]], %[[M1]] : i32
// CHECK-DAG: arith.cmpi slt, %[[D]], %[[M8]] : i32
// CHECK-DAG: arith.cmpi slt, %[[D]], %[[M9]] : i32
// CHECK-NOT: arith.cmpi slt
// CHECK: arith.select %[[B0]]
// CHECK: arith.select %[[B1]]
// CHECK: arith.select %[[B0]]
// CHECK: arith.select %[[B1]]
// CHECK-COUNT-4: arith.select
// CHECK-NOT: arith.select
gpu.module @m {
  gpu.func @mask(%x: memref<64x16xf32>, %j: index, %n: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %ninf = arith.constant dense<0xFF800000> : vector<64x16xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    %step = vector.step : vector<16xindex>
    %start = vector.broadcast %j : index to vector<16xindex>
    %columns = arith.addi %step, %start : vector<16xindex>
    %end = vector.broadcast %n : index to vector<16xindex>
    %in = arith.cmpi slt, %columns, %end : vector<16xindex>
    %in2 = vector.broadcast %in : vector<16xi1> to vector<64x16xi1>
    %y = arith.select %in2, %v, %ninf : vector<64x16xi1>, vector<64x16xf32>
    vector.store %y, %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    gpu.return
  }
}

// -----

// One broadcast serves as columns and, transposed, as rows: row - column is one
// difference plus 8 i - 32 j - k: nothing here needs the layout of a product, and a thread
// has 8 columns side by side.
// CHECK-LABEL: gpu.func @causal
// CHECK-DAG: arith.constant -8 : i32
// CHECK-DAG: arith.constant 32 : i32
// CHECK-DAG: arith.constant 39 : i32
// CHECK-COUNT-8: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK-COUNT-1: cvt.sat.s32.s64
// CHECK-NOT: cvt.sat
// CHECK-COUNT-32: arith.cmpi sge, %{{.*}}, %{{.*}} : i32
// CHECK-NOT: arith.cmpi sge
gpu.module @m {
  gpu.func @causal(%x: memref<64x64xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %ninf = arith.constant dense<0xFF800000> : vector<64x64xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
    %step = vector.step : vector<64xindex>
    %columns = vector.broadcast %step : vector<64xindex> to vector<64x64xindex>
    %rows = vector.transpose %columns, [1, 0] : vector<64x64xindex> to vector<64x64xindex>
    %keep = arith.cmpi sge, %rows, %columns : vector<64x64xindex>
    %y = arith.select %keep, %v, %ninf : vector<64x64xi1>, vector<64x64xf32>
    vector.store %y, %x[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
    gpu.return
  }
}

// -----

// Bounds of many columns in the layout of a product, of rows with limits of their own (the end of
// the keys, or the diagonal): a word of bits for each row, of which the first n are set, as many as
// columns are within the bound (those of a thread are 0, 1, 8, 9, ...); a lower bound is the
// negation of one; both together are an `and`. A test stands in front of its select.
// CHECK-LABEL: gpu.func @bounds
// CHECK: %[[D:.*]] = llvm.inline_asm asm_dialect = att "cvt.sat.s32.s64 $0, $1;"
// CHECK: %[[LIMIT:.*]] = llvm.inline_asm asm_dialect = att "sub.sat.s32 $0, $1, $2;", "=r,r,r" %c0_i32, %[[D]]
// CHECK: %[[AT:.*]] = arith.maxsi %[[LIMIT]], %c-1_i32
// CHECK: %[[EVEN:.*]] = arith.shrsi %[[AT]], %c3_i32
// CHECK: %[[BELOW:.*]] = arith.addi %[[AT]], %c-1_i32
// CHECK: %[[ODD:.*]] = arith.shrsi %[[BELOW]], %c3_i32
// CHECK: %[[SUM:.*]] = arith.addi %[[EVEN]], %[[ODD]]
// CHECK: %[[COUNT:.*]] = arith.addi %[[SUM]], %c2_i32
// CHECK: %[[UPPER0:.*]] = llvm.inline_asm asm_dialect = att "bmsk.clamp.b32 $0, $1, $2;", "=r,r,r" %c0_i32, %[[COUNT]]
// CHECK: %[[UPPER1:.*]] = llvm.inline_asm asm_dialect = att "bmsk.clamp.b32
// The lower bound: the row 8 below has a limit that is 8 more.
// CHECK: %[[F:.*]] = llvm.inline_asm asm_dialect = att "cvt.sat.s32.s64 $0, $1;"
// CHECK: "sub.sat.s32 $0, $1, $2;", "=r,r,r" %[[FIRST:.*]], %[[F]]
// CHECK: %[[LATE0:.*]] = llvm.inline_asm asm_dialect = att "bmsk.clamp.b32
// CHECK: %[[LOWER0:.*]] = arith.xori %[[LATE0]], %c-1_i32
// CHECK: "sub.sat.s32 $0, $1, $2;", "=r,r,r" %{{.*}}, %[[F]]
// CHECK: %[[LATE1:.*]] = llvm.inline_asm asm_dialect = att "bmsk.clamp.b32
// CHECK: %[[LOWER1:.*]] = arith.xori %[[LATE1]], %c-1_i32
// CHECK-NOT: bmsk
// CHECK: %[[ROW0:.*]] = arith.andi %[[UPPER0]], %[[LOWER0]]
// CHECK: %[[ROW1:.*]] = arith.andi %[[UPPER1]], %[[LOWER1]]
// CHECK: %[[BIT:.*]] = arith.andi %[[ROW0]], %c1_i32
// CHECK-NEXT: %[[TEST:.*]] = arith.cmpi ne, %[[BIT]], %c0_i32
// CHECK-NEXT: arith.select %[[TEST]]
// CHECK-NEXT: %[[NEXT:.*]] = arith.andi %[[ROW0]], %c2_i32
// CHECK-NEXT: arith.cmpi ne, %[[NEXT]], %c0_i32
// CHECK-NEXT: arith.select
// CHECK-COUNT-16: arith.andi %[[ROW0]],
// CHECK-COUNT-18: arith.andi %[[ROW1]],
// CHECK-NOT: arith.cmpi s
gpu.module @m {
  gpu.func @bounds(%x: memref<64x72xf32>, %n: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %ninf = arith.constant dense<0xFF800000> : vector<64x72xf32>
    %width = arith.constant dense<30> : vector<64xindex>
    %v = vector.load %x[%c0, %c0] : memref<64x72xf32>, vector<64x72xf32>
    %step = vector.step : vector<72xindex>
    %columns = vector.broadcast %step : vector<72xindex> to vector<64x72xindex>
    %rows = vector.step : vector<64xindex>
    %end = vector.broadcast %n : index to vector<64xindex>
    %last = arith.minsi %rows, %end : vector<64xindex>
    %limit = vector.broadcast %last : vector<64xindex> to vector<72x64xindex>
    %limits = vector.transpose %limit, [1, 0] : vector<72x64xindex> to vector<64x72xindex>
    %near = arith.subi %rows, %width : vector<64xindex>
    %first = vector.broadcast %near : vector<64xindex> to vector<72x64xindex>
    %firsts = vector.transpose %first, [1, 0] : vector<72x64xindex> to vector<64x72xindex>
    %past = arith.cmpi sle, %columns, %limits : vector<64x72xindex>
    %late = arith.cmpi sgt, %columns, %firsts : vector<64x72xindex>
    %keep = arith.andi %past, %late : vector<64x72xi1>
    %y = arith.select %keep, %v, %ninf : vector<64x72xi1>, vector<64x72xf32>
    vector.store %y, %x[%c0, %c0] : memref<64x72xf32>, vector<64x72xf32>
    gpu.return
  }
}

// -----

// The diagonal alone: a comparison serves a column, and in the row 8 below the column 8 further.
// CHECK-LABEL: gpu.func @diagonal
// CHECK-NOT: bmsk
// CHECK-COUNT-20: arith.cmpi sle, %{{.*}}, %{{.*}} : i32
// CHECK-NOT: arith.cmpi
gpu.module @m {
  gpu.func @diagonal(%x: memref<64x72xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %ninf = arith.constant dense<0xFF800000> : vector<64x72xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x72xf32>, vector<64x72xf32>
    %step = vector.step : vector<72xindex>
    %columns = vector.broadcast %step : vector<72xindex> to vector<64x72xindex>
    %rows = vector.step : vector<64xindex>
    %limit = vector.broadcast %rows : vector<64xindex> to vector<72x64xindex>
    %limits = vector.transpose %limit, [1, 0] : vector<72x64xindex> to vector<64x72xindex>
    %past = arith.cmpi sle, %columns, %limits : vector<64x72xindex>
    %y = arith.select %past, %v, %ninf : vector<64x72xi1>, vector<64x72xf32>
    vector.store %y, %x[%c0, %c0] : memref<64x72xf32>, vector<64x72xf32>
    gpu.return
  }
}

// -----

// Four elements of each of two rows, two chains each, then the quad.
// CHECK-LABEL: gpu.func @reduce
// CHECK-DAG: %[[ALL:.*]] = arith.constant -1 : i32
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-DAG: %[[TWO:.*]] = arith.constant 2 : i32
// CHECK: %[[A:.*]] = llvm.intr.maxnum
// CHECK: %[[B:.*]] = llvm.intr.maxnum
// CHECK: %[[C:.*]] = llvm.intr.maxnum(%[[A]], %[[B]])
// CHECK: %[[S:.*]] = nvvm.shfl.sync bfly %[[ALL]], %[[C]], %[[ONE]]
// CHECK: %[[E:.*]] = llvm.intr.maxnum(%[[C]], %[[S]])
// CHECK: nvvm.shfl.sync bfly %[[ALL]], %[[E]], %[[TWO]]
// CHECK-COUNT-2: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.shfl
// Rows of the result are written by the first lane of a quad.
// CHECK: arith.cmpi eq
// CHECK-COUNT-2: llvm.inline_asm {{.*}} "@$0 st.global.b32 [$1], $2;"
// CHECK-NOT: st.global
gpu.module @m {
  gpu.func @reduce(%x: memref<64x16xf32>, %m: memref<64xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %ninf = arith.constant dense<0xFF800000> : vector<64xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    %r = vector.multi_reduction <maxnumf>, %v, %ninf [1] : vector<64x16xf32> to vector<64xf32>
    vector.store %r, %m[%c0] : memref<64xf32>, vector<64xf32>
    gpu.return
  }
}

// -----

// 16-bit tiles are pairs: the low half is the left column.
// CHECK-LABEL: gpu.func @pairs
// CHECK: %[[LR:.*]] = llvm.load {{.*}} -> vector<2xi32>
// CHECK-DAG: %[[L0:.*]] = vector.extract %[[LR]][0]
// CHECK-DAG: %[[R0:.*]] = vector.extract %[[LR]][1]
// CHECK-DAG: %[[L:.*]] = llvm.bitcast %[[L0]] : i32 to f32
// CHECK-DAG: %[[R:.*]] = llvm.bitcast %[[R0]] : i32 to f32
// CHECK: nvvm.convert.f32x2.to.bf16x2 %[[R]], %[[L]] {rnd = #nvvm.fp_rnd_mode<rn>} : vector<2xbf16>
// CHECK-COUNT-3: nvvm.convert.f32x2.to.bf16x2
// CHECK-NOT: nvvm.convert
// CHECK: arith.extf %{{.*}} : bf16 to f32
gpu.module @m {
  gpu.func @pairs(%x: memref<64x16xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    %h = arith.truncf %v : vector<64x16xf32> to vector<64x16xbf16>
    %f = arith.extf %h : vector<64x16xbf16> to vector<64x16xf32>
    vector.store %f, %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    gpu.return
  }
}
