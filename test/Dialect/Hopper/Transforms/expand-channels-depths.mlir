// RUN: attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-expand-channels{stages=2},canonicalize))" | FileCheck %s

// 32 and 56 KB twice do not fit beside 64 KB: what is given back last has two stages.
// CHECK-LABEL: func.func @last
// CHECK-DAG: hopper.alloc : <1x128x256xbf16, swizzle = 128>
// CHECK-DAG: hopper.alloc : <2x112x256xbf16, swizzle = 128>
// CHECK-DAG: hopper.alloc : <1x64x256xbf16, swizzle = 128>
!q = !tile.smem<128x256xbf16, swizzle = 128>
!k = !tile.smem<112x256xbf16, swizzle = 128>
!v = !tile.smem<64x256xbf16, swizzle = 128>
func.func @last(%Q: memref<?x256xbf16>, %K: memref<?x256xbf16>, %V: memref<?x256xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c384 = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c384, %sy = %c1, %sz = %c1) {
    %cq = hopper.channel depth(1) : !hopper.channel<!q>
    %cv = hopper.channel depth(1) : !hopper.channel<!v>
    %ck = hopper.channel depth(1) : !hopper.channel<!k>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %Q[%bx, %c0] to %cq : memref<?x256xbf16>, !hopper.channel<!q>
        scf.for %j = %c0 to %n step %c1 {
          hopper.send %V[%j, %c0] to %cv : memref<?x256xbf16>, !hopper.channel<!v>
          hopper.send %K[%j, %c0] to %ck : memref<?x256xbf16>, !hopper.channel<!k>
        }
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %tq = hopper.receive %cq : !hopper.channel<!q> -> !q
        scf.for %j = %c0 to %n step %c1 {
          %tv = hopper.receive %cv : !hopper.channel<!v> -> !v
          %tk = hopper.receive %ck : !hopper.channel<!k> -> !k
          hopper.release %cv : !hopper.channel<!v>
          hopper.release %ck : !hopper.channel<!k>
        }
        hopper.release %cq : !hopper.channel<!q>
      }
    gpu.terminator
  }
  return
}

// -----

// Rows that share the barriers of a tile have as many stages as it has.
// CHECK-LABEL: func.func @shared
// CHECK-DAG: hopper.alloc : <1x128x256xbf16, swizzle = 128>
// CHECK-DAG: hopper.alloc : <2x112x256xbf16, swizzle = 128>
// CHECK-DAG: hopper.alloc : <1x64x256xbf16, swizzle = 128>
// CHECK-DAG: hopper.alloc : <2x1x128xf32>
!q = !tile.smem<128x256xbf16, swizzle = 128>
!k = !tile.smem<112x256xbf16, swizzle = 128>
!v = !tile.smem<64x256xbf16, swizzle = 128>
!r = !tile.smem<1x128xf32>
func.func @shared(%Q: memref<?x256xbf16>, %K: memref<?x256xbf16>, %V: memref<?x256xbf16>, %R: memref<?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c384 = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c384, %sy = %c1, %sz = %c1) {
    %cq = hopper.channel depth(1) : !hopper.channel<!q>
    %cv = hopper.channel depth(1) : !hopper.channel<!v>
    %ck = hopper.channel depth(1) : !hopper.channel<!k>
    %cr = hopper.channel depth(1) : !hopper.channel<!r>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %Q[%bx, %c0] to %cq : memref<?x256xbf16>, !hopper.channel<!q>
        scf.for %j = %c0 to %n step %c1 {
          hopper.send %V[%j, %c0] to %cv : memref<?x256xbf16>, !hopper.channel<!v>
          hopper.send %K[%j, %c0] to %ck : memref<?x256xbf16>, !hopper.channel<!k>
          hopper.send %R[%j, %c0] to %cr : memref<?x128xf32>, !hopper.channel<!r>
        }
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %tq = hopper.receive %cq : !hopper.channel<!q> -> !q
        scf.for %j = %c0 to %n step %c1 {
          %tv = hopper.receive %cv : !hopper.channel<!v> -> !v
          %tk = hopper.receive %ck : !hopper.channel<!k> -> !k
          %tr = hopper.receive %cr : !hopper.channel<!r> -> !r
          %x = tile.read %tr : !r -> vector<128xf32>
          hopper.release %cr : !hopper.channel<!r>
          hopper.release %cv : !hopper.channel<!v>
          hopper.release %ck : !hopper.channel<!k>
        }
        hopper.release %cq : !hopper.channel<!q>
      }
    gpu.terminator
  }
  return
}
