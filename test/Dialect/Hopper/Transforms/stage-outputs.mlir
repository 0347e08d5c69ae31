// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-stage-outputs))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-stage-outputs{reuse=true}))" | FileCheck %s --check-prefix=REUSE
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-stage-outputs))" --remarks-filter=hopper-stage-outputs -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}10 [Missed] not staged | Category:hopper-stage-outputs{{$}}
// REMARKS-DAG: {{^ *}}10 [Passed] staged | Category:hopper-stage-outputs{{$}}
!two = !tile.smem<128x64xbf16, swizzle = 128>
!part = !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>

// CHECK-LABEL: func.func @staged
// CHECK: %[[MAP:.*]] = hopper.tensor_map %{{.*}} : memref<?x64xbf16>
// CHECK: gpu.launch
// CHECK-NEXT: %[[FIRST:.*]] = hopper.named_barriers count(2)
// CHECK: %[[RING:.*]] = hopper.alloc : <2x64x64xbf16, swizzle = 128>
// CHECK: %[[SLOT:.*]] = hopper.slot %[[RING]][%[[W:.*]]] :
// CHECK-NEXT: hopper.tma.wait pending(0) read
// CHECK-NEXT: %[[ID:.*]] = arith.addi %[[W]], %[[FIRST]]
// CHECK-NEXT: hopper.barrier.sync %[[ID]] warpgroups(1)
// CHECK-NEXT: tile.write %{{.*}} to %[[SLOT]]
// CHECK-NEXT: hopper.barrier.sync %[[ID]] warpgroups(1)
// CHECK-NEXT: hopper.fence.async
// CHECK-NEXT: hopper.tma.store %[[SLOT]] to %[[MAP]]
// CHECK-NEXT: hopper.tma.wait pending(0){{$}}
// CHECK-NEXT: }
func.func @staged(%n: index, %Y: memref<?x64xbf16>, %v: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        vector.transfer_write %v, %Y[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16>
      }
    gpu.terminator
  }
  return
}

// Other elements, memory of the launch, other strides than TMA takes, rows that are too
// short, vectors: all of these stay.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: tile.write
// CHECK-COUNT-6: vector.transfer_write
func.func @kept(%n: index, %Y: memref<?x64xbf16>, %v: vector<64x64xbf16>, %f: vector<64x64xf32>, %F: memref<?x64xf32>, %S: memref<?x64xbf16, strided<[?, 2]>>, %O: memref<?x64xbf16, strided<[68, 1]>>,
                %x: vector<64x4xbf16>, %Z: memref<?x4xbf16, strided<[?, 1]>>, %r: vector<64xbf16>, %R: memref<?xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %L = memref.alloca() : memref<64x64xbf16>
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        vector.transfer_write %f, %F[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
        vector.transfer_write %v, %L[%c0, %c0] {in_bounds = [true, true]} : vector<64x64xbf16>, memref<64x64xbf16>
        vector.transfer_write %v, %S[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16, strided<[?, 2]>>
        vector.transfer_write %v, %O[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16, strided<[68, 1]>>
        vector.transfer_write %x, %Z[%bx, %c0] {in_bounds = [false, true]} : vector<64x4xbf16>, memref<?x4xbf16, strided<[?, 1]>>
        vector.transfer_write %r, %R[%bx] {in_bounds = [false]} : vector<64xbf16>, memref<?xbf16>
      }
    gpu.terminator
  }
  return
}

// The tile of an input that the role has received takes the output, and is given back
// after the copy has read it.
// REUSE-LABEL: func.func @reused
// REUSE-NOT: hopper.alloc
// REUSE: %[[T:.*]] = hopper.receive
// REUSE: %[[MINE:.*]] = tile.rows %[[T]]
// REUSE: tile.write %{{.*}} to %[[MINE]]
// REUSE: hopper.tma.store %[[MINE]]
// REUSE-NEXT: hopper.tma.wait pending(0) read
// REUSE-NEXT: hopper.release
func.func @reused(%n: index, %Y: memref<?x64xbf16>, %v: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) : !hopper.channel<!two>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %Y[%bx, %c0] to %c : memref<?x64xbf16>, !hopper.channel<!two>
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %t = hopper.receive %c : !hopper.channel<!two> -> !two
        %at = affine.apply affine_map<(d0) -> (d0 * 64)>(%w)
        %mine = tile.rows %t[%at] : !two -> !part
        hopper.release %c : !hopper.channel<!two>
        vector.transfer_write %v, %Y[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16>
      }
    gpu.terminator
  }
  return
}

// Some columns of wider rows: TMA would write the padding of the last slab, too.
// CHECK-LABEL: func.func @some_columns
// CHECK-NOT: hopper.tma.store
// CHECK: vector.transfer_write
// CHECK-LABEL: func.func @whole_slabs
// CHECK: hopper.tma.store
func.func @some_columns(%n: index, %Y: memref<?x168xbf16>, %v: vector<64x72xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  %view = memref.subview %Y[0, 0] [%n, 72] [1, 1] : memref<?x168xbf16> to memref<?x72xbf16, strided<[168, 1]>>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        vector.transfer_write %v, %view[%c0, %c0] : vector<64x72xbf16>, memref<?x72xbf16, strided<[168, 1]>>
      }
    gpu.terminator
  }
  return
}
func.func @whole_slabs(%n: index, %Y: memref<?x168xbf16>, %v: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  %view = memref.subview %Y[0, 0] [%n, 64] [1, 1] : memref<?x168xbf16> to memref<?x64xbf16, strided<[168, 1]>>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        vector.transfer_write %v, %view[%c0, %c0] : vector<64x64xbf16>, memref<?x64xbf16, strided<[168, 1]>>
      }
    gpu.terminator
  }
  return
}

// A tile that other warpgroups read, too, is no place for outputs.
// REUSE-LABEL: func.func @read_by_all
// REUSE: hopper.alloc : <2x64x64xbf16, swizzle = 128>
// REUSE: tile.columns
func.func @read_by_all(%n: index, %Y: memref<?x64xbf16>, %v: vector<64x64xbf16>, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %channel = hopper.channel depth(1) : !hopper.channel<!two>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %k = hopper.receive %channel : !hopper.channel<!two> -> !two
        %mine = tile.rows %k[%c0] : !two -> !part
        %all = tile.columns %k[%c0] : !two -> !two
        %p = tile.mma %all, %all, %zero transposeA : !two, !two, vector<64x64xf32>
        hopper.release %channel : !hopper.channel<!two>
        vector.transfer_write %v, %Y[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16>
      }
    gpu.terminator
  }
  return
}

// Behind a loop in which the warpgroups exchange tiles all of them are done with what they have
// received, too: the tile that is given back last takes the first output, although all read it,
// the memory of the exchange the second one, in slabs. The other tile is given back at once. They
// meet behind the loop at its own barrier.
// REUSE-LABEL: func.func @exchange
// REUSE: %[[RING:.*]] = hopper.alloc : <2x128x64xbf16, swizzle = 128>
// REUSE-NOT: hopper.alloc
// REUSE: %[[K:.*]] = hopper.receive
// REUSE: %[[OWN:.*]] = tile.rows %[[K]]
// REUSE: hopper.receive
// REUSE: hopper.tma.wait pending(0) read
// REUSE-NEXT: hopper.barrier.sync %c9 warpgroups(2)
// REUSE-NEXT: arith.constant
// REUSE-NEXT: scf.for
// REUSE: }
// REUSE-NEXT: hopper.release %[[V:.*]] :
// REUSE-NOT: hopper.release
// REUSE: hopper.barrier.sync %c9 warpgroups(2)
// REUSE: tile.write %{{.*}} to %[[OWN]]
// REUSE-NEXT: hopper.barrier.sync %{{.*}} warpgroups(1)
// REUSE-NEXT: hopper.fence.async
// REUSE-NEXT: hopper.tma.store %[[OWN]]
// REUSE: %[[SLOT0:.*]] = hopper.slot %[[RING]][%{{.*}}]
// REUSE: %[[SLAB0:.*]] = tile.rows %[[SLOT0]]
// REUSE: tile.write %{{.*}} to %[[SLAB0]]
// REUSE: hopper.tma.store %[[SLAB0]]
// REUSE: %[[SLOT1:.*]] = hopper.slot %[[RING]][%{{.*}}]
// REUSE: %[[SLAB1:.*]] = tile.rows %[[SLOT1]]
// REUSE: tile.write %{{.*}} to %[[SLAB1]]
// REUSE: hopper.tma.store %[[SLAB1]]
// REUSE-NEXT: hopper.tma.wait pending(2) read
// REUSE-NEXT: hopper.release
// REUSE: hopper.tma.wait pending(0)
!wide = !tile.smem<128x128xbf16, swizzle = 128>
!own = !tile.smem<64x128xbf16, swizzle = 128, slab_rows = 128>
!half = !tile.smem<128x64xbf16, swizzle = 128>
!quarter = !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>
func.func @exchange(%n: index, %X: memref<?x128xbf16>, %Y: memref<?x128xbf16>, %x: vector<64x128xbf16>, %p: vector<64x64xbf16>, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %keys = hopper.channel depth(1) : !hopper.channel<!wide>
    %values = hopper.channel depth(1) : !hopper.channel<!wide>
    %ring = hopper.alloc : <2x128x64xbf16, swizzle = 128>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %X[%bx, %c0] to %keys : memref<?x128xbf16>, !hopper.channel<!wide>
        hopper.send %Y[%bx, %c0] to %values : memref<?x128xbf16>, !hopper.channel<!wide>
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %at = affine.apply affine_map<(d0) -> (d0 * 64)>(%w)
        %k = hopper.receive %keys : !hopper.channel<!wide> -> !wide
        %mine = tile.rows %k[%at] : !wide -> !own
        %all = tile.columns %k[%c0] : !wide -> !half
        %v = hopper.receive %values : !hopper.channel<!wide> -> !wide
        hopper.barrier.sync %c9 warpgroups(2)
        %first = arith.constant 0 : index
        scf.for %i = %first to %n step %c1 {
          %slot = hopper.slot %ring[%c0] : <2x128x64xbf16, swizzle = 128> -> !half
          %part = tile.rows %slot[%at] : !half -> !quarter
          tile.write %p to %part : vector<64x64xbf16>, !quarter
          hopper.fence.async
          hopper.barrier.sync %c9 warpgroups(2)
          %q = tile.mma %slot, %all, %zero transposeA : !half, !half, vector<64x64xf32>
        }
        hopper.release %values : !hopper.channel<!wide>
        hopper.release %keys : !hopper.channel<!wide>
        vector.transfer_write %x, %X[%bx, %c0] {in_bounds = [false, true]} : vector<64x128xbf16>, memref<?x128xbf16>
        vector.transfer_write %x, %Y[%bx, %c0] {in_bounds = [false, true]} : vector<64x128xbf16>, memref<?x128xbf16>
      }
    gpu.terminator
  }
  return
}

// Rows of a length that is not known need not start at multiples of 16 bytes, nor need rows of
// 12 bytes, whatever their strides.
// CHECK-LABEL: func.func @unknown_rows
// CHECK-NOT: hopper.tma.store
// CHECK: vector.transfer_write
// CHECK-LABEL: func.func @short_rows
// CHECK-NOT: hopper.tma.store
// CHECK: vector.transfer_write
func.func @unknown_rows(%n: index, %Y: memref<?x?xbf16>, %v: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        vector.transfer_write %v, %Y[%bx, %c0] : vector<64x64xbf16>, memref<?x?xbf16>
      }
    gpu.terminator
  }
  return
}

func.func @short_rows(%n: index, %Y: memref<?x6xbf16, strided<[?, 1]>>, %v: vector<64x16xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        vector.transfer_write %v, %Y[%bx, %c0] : vector<64x16xbf16>, memref<?x6xbf16, strided<[?, 1]>>
      }
    gpu.terminator
  }
  return
}

// Threads write an allocation 16 bytes at a time where no product gives them other elements.
// CHECK-LABEL: func.func @no_products
// CHECK-NOT: hopper.tma.store
// CHECK: vector.transfer_write
// CHECK-LABEL: func.func @products
// CHECK: hopper.tma.store
// Of 48 columns a thread has two side by side.
// CHECK-LABEL: func.func @few_columns
// CHECK: hopper.tma.store
func.func @no_products(%n: index, %v: vector<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  %Y = memref.alloc(%n) : memref<?x64xbf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        vector.transfer_write %v, %Y[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16>
      }
    gpu.terminator
  }
  return
}
func.func @products(%n: index, %v: vector<64x64xbf16>, %k: !part, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  %Y = memref.alloc(%n) : memref<?x64xbf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %p = tile.mma %k, %k, %zero transposeA : !part, !part, vector<64x64xf32>
        vector.transfer_write %v, %Y[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16>
      }
    gpu.terminator
  }
  return
}
func.func @few_columns(%n: index, %v: vector<64x48xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  %Y = memref.alloc(%n) : memref<?x48xbf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        vector.transfer_write %v, %Y[%bx, %c0] {in_bounds = [false, true]} : vector<64x48xbf16>, memref<?x48xbf16>
      }
    gpu.terminator
  }
  return
}

// Roles of one warpgroup have a named barrier each, and may store through a whole tile that they
// alone receive.
// REUSE-LABEL: func.func @two_roles
// REUSE: %[[TWO:.*]] = hopper.named_barriers count(1)
// REUSE-NEXT: %[[ONE:.*]] = hopper.named_barriers count(1)
// REUSE: %[[OWN:.*]] = hopper.channel
// REUSE: %[[COMMON:.*]] = hopper.channel
// REUSE: %[[RING:.*]] = hopper.alloc : <1x64x64xbf16, swizzle = 128>
// REUSE: role "one"
// REUSE: %[[T:.*]] = hopper.receive %[[OWN]]
// REUSE: %[[ID:.*]] = arith.addi %{{.*}}, %[[ONE]]
// REUSE: hopper.barrier.sync %[[ID]] warpgroups(1)
// REUSE: tile.write %{{.*}} to %[[T]]
// REUSE: hopper.release %[[OWN]]
// REUSE: role "two"
// REUSE: %[[SLOT:.*]] = hopper.slot %[[RING]]
// REUSE: %[[ID:.*]] = arith.addi %{{.*}}, %[[TWO]]
// REUSE: hopper.barrier.sync %[[ID]] warpgroups(1)
// REUSE: tile.write %{{.*}} to %[[SLOT]]
!whole = !tile.smem<64x64xbf16, swizzle = 128>
!ch = !hopper.channel<!whole>
func.func @two_roles(%n: index, %Y: memref<?x64xbf16>, %Z: memref<?x64xbf16>, %v: vector<64x64xbf16>, %A: memref<?x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %own = hopper.channel depth(1) : !ch
    %common = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %A[%bx, %c0] to %own : memref<?x64xbf16>, !ch
        hopper.send %A[%bx, %c0] to %common : memref<?x64xbf16>, !ch
      }
      role "one" warpgroups(1) registers(240) (%w) {
        %t = hopper.receive %own : !ch -> !whole
        %u = hopper.receive %common : !ch -> !whole
        hopper.release %common : !ch
        hopper.release %own : !ch
        vector.transfer_write %v, %Y[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16>
      }
      role "two" warpgroups(1) registers(240) (%w) {
        %u = hopper.receive %common : !ch -> !whole
        hopper.release %common : !ch
        vector.transfer_write %v, %Z[%bx, %c0] {in_bounds = [false, true]} : vector<64x64xbf16>, memref<?x64xbf16>
      }
    gpu.terminator
  }
  return
}
