// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-load-tiles))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-load-tiles{arguments=false}))" | FileCheck %s --check-prefix=NOARG
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-load-tiles))" --remarks-filter=hopper-load-tiles -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}3 [Passed] loaded | Category:hopper-load-tiles{{$}}
// REMARKS-DAG: {{^ *}}2 [Passed] row loaded | Category:hopper-load-tiles{{$}}
// NOARG-LABEL: func.func @bias
// NOARG-NOT: tile.read
// NOARG-LABEL: func.func @rows
// NOARG: tile.read

!tile = !tile.smem<64x64xbf16, swizzle = 128>
#rows = affine_map<(w, i) -> (w * 64 + i * 128)>
#swapped = affine_map<(a, b) -> (b, a)>

// The rows of both warpgroups are one tile, of which each reads its own.
// CHECK-LABEL: func.func @bias
// CHECK: scf.forall (%[[I:.*]]) in
// CHECK: scf.forall (%[[W:.*]]) in (2)
// CHECK: %[[PLACE:.*]] = memref.load %arg5
// CHECK: scf.for %[[J:.*]] =
// CHECK: %[[ROW:.*]] = affine.apply #{{.*}}(%[[I]])
// CHECK: %[[ALL:.*]] = tile.load %arg0[%[[ROW]], %[[J]]] : memref<?x?xbf16, strided<[?, 1]>> -> <128x128xbf16, swizzle = 128>
// CHECK: %[[OFFSET:.*]] = affine.apply #{{.*}}(%[[W]])
// CHECK: %[[OWN:.*]] = tile.rows %[[ALL]][%[[OFFSET]]] : <128x128xbf16, swizzle = 128> -> <64x128xbf16, swizzle = 128, slab_rows = 128>
// CHECK: tile.read %[[OWN]] : <64x128xbf16, swizzle = 128, slab_rows = 128> -> vector<64x128xbf16>
// Transposed, each reads its own columns.
// CHECK: %[[BOTH:.*]] = tile.load %arg0[%[[J]], %{{.*}}] : memref<?x?xbf16, strided<[?, 1]>> -> <128x128xbf16, swizzle = 128>
// CHECK: %[[MINE:.*]] = tile.columns %[[BOTH]][%{{.*}}] : <128x128xbf16, swizzle = 128> -> <128x64xbf16, swizzle = 128
// CHECK: tile.read %[[MINE]] transpose : <128x64xbf16, swizzle = 128> -> vector<64x128xbf16>
// What TMA has no form for: of 32 bits, with other padding, at a place that is read
// where it is written, rows that do not follow the warpgroups.
// CHECK-COUNT-4: vector.transfer_read
// A place that is read from memory that the program does not write is known early.
// CHECK: tile.load %arg0[%{{.*}}, %[[PLACE]]]
// CHECK-NOT: vector.transfer_read
// CHECK: vector.transfer_write
func.func @bias(%x: memref<?x?xbf16, strided<[?, 1]>>, %y: memref<?x?xf32>, %k: memref<?x64xbf16>,
                %ids: memref<?xindex>, %out: memref<?x?xf32>, %places: memref<?xindex>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : bf16
  %one = arith.constant 1.0 : bf16
  %zero32 = arith.constant 0.0 : f32
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      %row = affine.apply #rows(%w, %i)
      %id = memref.load %ids[%i] : memref<?xindex>
      memref.store %c0, %ids[%i] : memref<?xindex>
      %place = memref.load %places[%i] : memref<?xindex>
      scf.for %j = %c0 to %m step %c128 {
        %t = tile.load %k[%j, %c0] : memref<?x64xbf16> -> !tile
        %s = tile.mma %t, %t, %none : !tile, !tile, vector<64x64xf32>
        %a = vector.transfer_read %x[%row, %j], %zero : memref<?x?xbf16, strided<[?, 1]>>, vector<64x128xbf16>
        %b = vector.transfer_read %x[%j, %row], %zero {permutation_map = #swapped} : memref<?x?xbf16, strided<[?, 1]>>, vector<64x128xbf16>
        %c = vector.transfer_read %y[%row, %j], %zero32 : memref<?x?xf32>, vector<64x128xf32>
        %d = vector.transfer_read %x[%row, %j], %one : memref<?x?xbf16, strided<[?, 1]>>, vector<64x128xbf16>
        %e = vector.transfer_read %x[%row, %id], %zero : memref<?x?xbf16, strided<[?, 1]>>, vector<64x128xbf16>
        %f = vector.transfer_read %x[%i, %j], %zero : memref<?x?xbf16, strided<[?, 1]>>, vector<64x128xbf16>
        %g = vector.transfer_read %x[%row, %place], %zero : memref<?x?xbf16, strided<[?, 1]>>, vector<64x128xbf16>
        %ab = arith.addf %a, %b : vector<64x128xbf16>
        %de = arith.addf %d, %e : vector<64x128xbf16>
        %all = arith.addf %ab, %de : vector<64x128xbf16>
        %fg = arith.addf %f, %g : vector<64x128xbf16>
        %more = arith.addf %all, %fg : vector<64x128xbf16>
        %wide = arith.extf %more : vector<64x128xbf16> to vector<64x128xf32>
        %sum = arith.addf %wide, %c : vector<64x128xf32>
        vector.transfer_write %sum, %out[%row, %j] : vector<64x128xf32>, memref<?x?xf32>
        vector.transfer_write %s, %out[%row, %c0] : vector<64x64xf32>, memref<?x?xf32>
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// What is written stays where it is.
// CHECK-LABEL: func.func @written
// CHECK-NOT: tile.read
func.func @written(%x: memref<?x?xbf16>, %k: memref<?x64xbf16>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : bf16
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      %row = affine.apply #rows(%w, %i)
      scf.for %j = %c0 to %m step %c128 {
        %t = tile.load %k[%j, %c0] : memref<?x64xbf16> -> !tile
        %s = tile.mma %t, %t, %none : !tile, !tile, vector<64x64xf32>
        %a = vector.transfer_read %x[%row, %j], %zero : memref<?x?xbf16>, vector<64x128xbf16>
        vector.transfer_write %a, %x[%row, %j] : vector<64x128xbf16>, memref<?x?xbf16>
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// Whole rows, and halves of rows, of memory that the function makes; not one that is no
// multiple of 128 bytes, one that the tile program writes, or rows of an argument.
// CHECK-LABEL: func.func @rows
// CHECK: %[[M:.*]] = memref.alloc
// CHECK: scf.for %[[J:.*]] =
// CHECK: %[[ROW:.*]] = tile.load %[[M]][%[[J]], %c0] : memref<?x64xf32> -> <1x64xf32>
// CHECK-NEXT: tile.read %[[ROW]] : <1x64xf32> -> vector<64xf32>
// CHECK: %[[PART:.*]] = tile.load %{{.*}}[%[[J]], %c64] : memref<?x128xf32> -> <1x64xf32>
// CHECK-NEXT: tile.read %[[PART]] : <1x64xf32> -> vector<64xf32>
// CHECK-NOT: tile.read
// CHECK: return
func.func @rows(%x: memref<?x64xf32>, %k: memref<?x64xbf16>, %out: memref<?x64xf32>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %a = memref.alloc(%m) : memref<?x64xf32>
  %b = memref.alloc(%m) : memref<?x80xf32>
  %c = memref.alloc(%m) : memref<?x128xf32>
  %e = memref.alloc(%m) : memref<?x64xf32>
  scf.forall (%i) in (%n) {
    scf.forall (%w) in (2) {
      scf.for %j = %c0 to %m step %c1 {
        %t = tile.load %k[%j, %c0] : memref<?x64xbf16> -> !tile
        %s = tile.mma %t, %t, %none : !tile, !tile, vector<64x64xf32>
        %v = vector.transfer_read %a[%j, %c0], %zero {in_bounds = [true]} : memref<?x64xf32>, vector<64xf32>
        %odd = vector.transfer_read %b[%j, %c0], %zero {in_bounds = [true]} : memref<?x80xf32>, vector<80xf32>
        %part = vector.transfer_read %c[%j, %c64], %zero {in_bounds = [true]} : memref<?x128xf32>, vector<64xf32>
        %given = vector.transfer_read %x[%j, %c0], %zero {in_bounds = [true]} : memref<?x64xf32>, vector<64xf32>
        %v1 = arith.addf %v, %part : vector<64xf32>
        %own = vector.transfer_read %e[%j, %c0], %zero {in_bounds = [true]} : memref<?x64xf32>, vector<64xf32>
        vector.transfer_write %own, %e[%c0, %c0] {in_bounds = [true]} : vector<64xf32>, memref<?x64xf32>
        %v2 = arith.addf %v1, %given : vector<64xf32>
        vector.transfer_write %v2, %out[%j, %c0] : vector<64xf32>, memref<?x64xf32>
        vector.transfer_write %odd, %out[%j, %c0] : vector<80xf32>, memref<?x64xf32>
        vector.transfer_write %s, %out[%j, %c0] : vector<64x64xf32>, memref<?x64xf32>
      }
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}
