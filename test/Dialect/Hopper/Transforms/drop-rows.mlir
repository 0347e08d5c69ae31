// RUN: attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-drop-rows,canonicalize,cse))" | FileCheck %s
// RUN: attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-drop-rows,canonicalize,cse))" --remarks-filter=hopper-drop-rows -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] dropped | Category:hopper-drop-rows{{$}}

// Rows and groups of 64 rows are marked in place of the copy; whether a tile of 128 rows has marks is
// looked at before the other tiles are sent.
// CHECK-LABEL: func.func @drop(
// CHECK-SAME: %[[X:[a-z0-9]*]]: memref<?x?x128xbf16, strided<[?, ?, 1], offset: ?>>, %[[Q:[a-z0-9]*]]: memref
// CHECK-NOT: memref.alloc({{.*}}x128xbf16
// CHECK: memref.alloc(%{{.*}}) : memref<?xbf16>
// CHECK: memref.alloc(%{{.*}}) : memref<?xbf16>
// CHECK: gpu.launch
// CHECK: %[[FIRST:.*]] = hopper.named_barriers count(1)
// CHECK: %[[DROPPED:.*]] = arith.cmpf uge
// CHECK: %[[TILE:.*]] = vector.transpose
// CHECK: %[[ID:.*]] = arith.addi %{{.*}}, %[[FIRST]]
// CHECK: %[[ANY:.*]] = hopper.barrier.reduce any %[[TILE]], %[[ID]] warpgroups(1) : vector<64x128xi1>
// CHECK: scf.if %[[ANY]] {
// CHECK-NEXT: %[[MARKS:.*]] = arith.select %[[DROPPED]], %{{.*}}, %{{.*}} : vector<64xi1>, vector<64xbf16>
// CHECK-NEXT: vector.transfer_write %[[MARKS]], %[[ROWS:.*]][%[[H:.*]], %[[R:.*]]] : vector<64xbf16>, memref<?x?xbf16
// CHECK-NEXT: }
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %[[R]]
// CHECK: scf.if %[[INSIDE]] {
// CHECK-NEXT: %[[MARK:.*]] = arith.select %[[ANY]], %{{.*}}, %{{.*}} : bf16
// CHECK-NEXT: %[[GROUP:.*]] = arith.divui %[[R]], %c64
// CHECK-NEXT: memref.store %[[MARK]], %[[GROUPS:.*]][%[[H]], %[[GROUP]]]
// CHECK-NOT: vector.transfer_write
// CHECK: gpu.launch
// CHECK: scf.for
// CHECK-COUNT-2: memref.load %[[GROUPS]]
// CHECK: %[[SOME:.*]] = arith.ori
// CHECK: hopper.send %[[Q]]
// CHECK: hopper.send %[[X]][%{{.*}}, %{{.*}}, %c0] without(%{{.*}}, %{{.*}} : memref<?x?xbf16, {{.*}}>, memref<?x?xbf16, {{.*}}>) if %[[SOME]] to
!m = memref<?x?x128xbf16, strided<[?, ?, 1], offset: ?>>
!t = !tile.smem<128x128xbf16, swizzle = 128>
func.func @drop(%X: !m, %Q: !m, %sizes: memref<?x?xf32>, %heads: index, %rows: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %threads = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %zero = arith.constant 0.0 : bf16
  %zeros = arith.constant dense<0.0> : vector<64x128xbf16>
  %large = arith.constant dense<1.0e+30> : vector<64xf32>
  %Y = memref.alloc(%heads, %rows) : memref<?x?x128xbf16>
  %ctas = arith.muli %heads, %n : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %ctas, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:3 = affine.delinearize_index %bx into (%heads, %n, 2) : index, index, index
        %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%p#1)
        %o = affine.apply affine_map<(d0) -> (d0 * 64)>(%p#2)
        %r = affine.apply affine_map<(d0, d1) -> (d0 * 64 + d1 * 128)>(%p#2, %p#1)
        %size = affine.min affine_map<(d0)[s0] -> (128, s0 - d0 * 128)>(%p#1)[%rows]
        %view = memref.subview %Y[%p#0, %i, 0] [1, %size, 128] [1, 1, 1] : memref<?x?x128xbf16> to memref<1x?x128xbf16, strided<[?, 128, 1], offset: ?>>
        %x = vector.transfer_read %X[%p#0, %r, %c0], %zero {in_bounds = [false, true]} : !m, vector<64x128xbf16>
        %s = vector.transfer_read %sizes[%p#0, %r], %f0 : memref<?x?xf32>, vector<64xf32>
        %isLarge = arith.cmpf uge, %s, %large : vector<64xf32>
        %all = vector.broadcast %isLarge : vector<64xi1> to vector<128x64xi1>
        %tile = vector.transpose %all, [1, 0] : vector<128x64xi1> to vector<64x128xi1>
        %y = arith.select %tile, %zeros, %x : vector<64x128xi1>, vector<64x128xbf16>
        vector.transfer_write %y, %view[%c0, %o, %c0] {in_bounds = [false, true]} : vector<64x128xbf16>, memref<1x?x128xbf16, strided<[?, 128, 1], offset: ?>>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %heads, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %cq = hopper.channel depth(1) : !hopper.channel<!t>
    %cy = hopper.channel depth(1) : !hopper.channel<!t>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %j = %c0 to %rows step %c128 {
          hopper.send %Q[%bx, %j, %c0] to %cq : !m, !hopper.channel<!t>
          hopper.send %Y[%bx, %j, %c0] to %cy : memref<?x?x128xbf16>, !hopper.channel<!t>
        }
      }
    gpu.terminator
  }
  memref.dealloc %Y : memref<?x?x128xbf16>
  return
}

// -----

// The other way round: rows that are kept where the condition holds, which is one of memory that is
// read for each column alike. 48 rows from anywhere may be of two groups.
// CHECK-LABEL: func.func @keep(
// CHECK: %[[DROPPED:.*]] = arith.xori %{{.*}} : vector<64x64xi1>
// CHECK: hopper.barrier.reduce any %[[DROPPED]]
// CHECK: scf.if
// CHECK: vector.transfer_read %{{.*}} : memref<?xf32>, vector<64xf32>
// CHECK: arith.xori %{{.*}} : vector<64xi1>
// CHECK: gpu.launch
// CHECK-COUNT-2: memref.load
// CHECK: hopper.send {{.*}} without
!m = memref<?x64xbf16>
!t = !tile.smem<48x64xbf16, swizzle = 128>
func.func @keep(%X: !m, %lse: memref<?xf32>, %rows: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c48 = arith.constant 48 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %zero = arith.constant 0.0 : bf16
  %zeros = arith.constant dense<0.0> : vector<64x64xbf16>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %Y = memref.alloc(%rows) : !m
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r = arith.muli %bx, %c64 : index
        %x = vector.transfer_read %X[%r, %c0], %zero {in_bounds = [false, true]} : !m, vector<64x64xbf16>
        %s = vector.transfer_read %lse[%r], %f0 {in_bounds = [false, true], permutation_map = affine_map<(d0) -> (d0, 0)>} : memref<?xf32>, vector<64x64xf32>
        %keeps = arith.cmpf ogt, %s, %none : vector<64x64xf32>
        %y = arith.select %keeps, %x, %zeros : vector<64x64xi1>, vector<64x64xbf16>
        vector.transfer_write %y, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, !m
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %cy = hopper.channel depth(1) : !hopper.channel<!t>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %j = %c0 to %rows step %c48 {
          hopper.send %Y[%j, %c0] to %cy : !m, !hopper.channel<!t>
        }
      }
    gpu.terminator
  }
  memref.dealloc %Y : !m
  return
}

// -----

// Stays: elements of a row that differ; rows of 64 bytes; what somebody reads otherwise.
// CHECK-LABEL: func.func @stays(
// CHECK-COUNT-4: vector.transfer_write
// CHECK-NOT: without
// CHECK: return
!m = memref<?x64xbf16>
!h = memref<?x32xbf16>
!t = !tile.smem<64x64xbf16, swizzle = 128>
!s = !tile.smem<64x32xbf16, swizzle = 64>
func.func @stays(%X: !m, %H: !h, %lse: memref<?xf32>, %out: !m, %rows: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %zero = arith.constant 0.0 : bf16
  %zeros = arith.constant dense<0.0> : vector<64x64xbf16>
  %few = arith.constant dense<0.0> : vector<64x32xbf16>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no = arith.constant dense<0.0> : vector<64x32xf32>
  %A = memref.alloc(%rows) : !m
  %B = memref.alloc(%rows) : !h
  %C = memref.alloc(%rows) : !m
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r = arith.muli %bx, %c64 : index
        %x = vector.transfer_read %X[%r, %c0], %zero {in_bounds = [false, true]} : !m, vector<64x64xbf16>
        %wide = arith.extf %x : vector<64x64xbf16> to vector<64x64xf32>
        %differs = arith.cmpf ogt, %wide, %none : vector<64x64xf32>
        %a = arith.select %differs, %x, %zeros : vector<64x64xi1>, vector<64x64xbf16>
        vector.transfer_write %a, %A[%r, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, !m
        %y = vector.transfer_read %H[%r, %c0], %zero {in_bounds = [false, true]} : !h, vector<64x32xbf16>
        %s = vector.transfer_read %lse[%r], %f0 {in_bounds = [false, true], permutation_map = affine_map<(d0) -> (d0, 0)>} : memref<?xf32>, vector<64x32xf32>
        %keeps = arith.cmpf ogt, %s, %no : vector<64x32xf32>
        %b = arith.select %keeps, %y, %few : vector<64x32xi1>, vector<64x32xbf16>
        vector.transfer_write %b, %B[%r, %c0] {in_bounds = [false, true]} : vector<64x32xbf16>, !h
        %t = vector.transfer_read %lse[%r], %f0 {in_bounds = [false, true], permutation_map = affine_map<(d0) -> (d0, 0)>} : memref<?xf32>, vector<64x64xf32>
        %keep = arith.cmpf ogt, %t, %none : vector<64x64xf32>
        %c = arith.select %keep, %x, %zeros : vector<64x64xi1>, vector<64x64xbf16>
        vector.transfer_write %c, %C[%r, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, !m
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %ca = hopper.channel depth(1) : !hopper.channel<!t>
    %cb = hopper.channel depth(1) : !hopper.channel<!s>
    %cc = hopper.channel depth(1) : !hopper.channel<!t>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %j = %c0 to %rows step %c64 {
          hopper.send %A[%j, %c0] to %ca : !m, !hopper.channel<!t>
          hopper.send %B[%j, %c0] to %cb : !h, !hopper.channel<!s>
          hopper.send %C[%j, %c0] to %cc : !m, !hopper.channel<!t>
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %r = arith.muli %bx, %c64 : index
        %c = vector.transfer_read %C[%r, %c0], %zero {in_bounds = [false, true]} : !m, vector<64x64xbf16>
        %d = arith.addf %c, %c : vector<64x64xbf16>
        vector.transfer_write %d, %out[%r, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, !m
      }
    gpu.terminator
  }
  memref.dealloc %A : !m
  memref.dealloc %B : !h
  memref.dealloc %C : !m
  return
}

// -----

// Stays: rows that are not those of a group; half of the columns; tiles that all CTAs of a cluster get.
// CHECK-LABEL: func.func @parts(
// CHECK-COUNT-3: vector.transfer_write
// CHECK-NOT: without
// CHECK: return
!m = memref<?x64xbf16>
!w = memref<?x128xbf16>
!t = !tile.smem<64x64xbf16, swizzle = 128>
func.func @parts(%X: !m, %W: !w, %lse: memref<?xf32>, %rows: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %zero = arith.constant 0.0 : bf16
  %zeros = arith.constant dense<0.0> : vector<64x64xbf16>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %A = memref.alloc(%rows) : !m
  %B = memref.alloc(%rows) : !w
  %C = memref.alloc(%rows) : !m
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r = arith.muli %bx, %c64 : index
        %o = arith.addi %r, %c32 : index
        %s = vector.transfer_read %lse[%o], %f0 {in_bounds = [false, true], permutation_map = affine_map<(d0) -> (d0, 0)>} : memref<?xf32>, vector<64x64xf32>
        %late = arith.cmpf ogt, %s, %none : vector<64x64xf32>
        %x = vector.transfer_read %X[%o, %c0], %zero {in_bounds = [false, true]} : !m, vector<64x64xbf16>
        %a = arith.select %late, %x, %zeros : vector<64x64xi1>, vector<64x64xbf16>
        vector.transfer_write %a, %A[%o, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, !m
        %t = vector.transfer_read %lse[%r], %f0 {in_bounds = [false, true], permutation_map = affine_map<(d0) -> (d0, 0)>} : memref<?xf32>, vector<64x64xf32>
        %keeps = arith.cmpf ogt, %t, %none : vector<64x64xf32>
        %y = vector.transfer_read %W[%r, %c0], %zero {in_bounds = [false, true]} : !w, vector<64x64xbf16>
        %b = arith.select %keeps, %y, %zeros : vector<64x64xi1>, vector<64x64xbf16>
        vector.transfer_write %b, %B[%r, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, !w
        %z = vector.transfer_read %X[%r, %c0], %zero {in_bounds = [false, true]} : !m, vector<64x64xbf16>
        %c = arith.select %keeps, %z, %zeros : vector<64x64xi1>, vector<64x64xbf16>
        vector.transfer_write %c, %C[%r, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, !m
      }
    gpu.terminator
  }
  gpu.launch clusters(%cx, %cy, %cz) in (%kx = %c2, %ky = %c1, %kz = %c1)
             blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %ca = hopper.channel depth(1) : !hopper.channel<!t>
    %cb = hopper.channel depth(1) : !hopper.channel<!t>
    %cc = hopper.channel depth(1) multicast(2) : !hopper.channel<!t>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %j = %c0 to %rows step %c64 {
          hopper.send %A[%j, %c0] to %ca : !m, !hopper.channel<!t>
          hopper.send %B[%j, %c0] to %cb : !w, !hopper.channel<!t>
          hopper.send %C[%j, %c0] to %cc : !m, !hopper.channel<!t>
        }
      }
    gpu.terminator
  }
  memref.dealloc %A : !m
  memref.dealloc %B : !w
  memref.dealloc %C : !m
  return
}
