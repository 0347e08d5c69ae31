// C = B_0 + B_1 + ... over blocks of 64 rows of B, in registers: a producer, a
// consumer, a ring of two. The tests break it line by line; @words name the lines.
!tile = !tile.smem<64x72xbf16, swizzle = 128>
!ring = !tile.smem<2x64x72xbf16, swizzle = 128>
!bar2 = !hopper.mbarrier<2>
!map = !hopper.tensor_map<!tile, rank = 2>
func.func @sum(%B: memref<?x72xbf16>, %C: memref<64x72xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 256 : index
  %smem = arith.constant 65536 : i32
  %end = memref.dim %B, %c0 : memref<?x72xbf16>
  %mb = hopper.tensor_map %B : memref<?x72xbf16> -> !map
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1)
             dynamic_shared_memory_size %smem {
    %sb = hopper.alloc : !ring
    %full = hopper.mbarrier arrivals(1) : !bar2
    %empty = hopper.mbarrier arrivals(1) : !bar2
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        %one = arith.constant 1 : i32
        %r:2 = scf.for %j = %c0 to %end step %c64 iter_args(%s = %c0, %p = %one) -> (index, i32) {
          hopper.mbarrier.wait %empty[%s], %p : !bar2
          hopper.mbarrier.expect %full[%s] bytes(16384) : !bar2
          %t = hopper.slot %sb[%s] : !ring -> !tile
          hopper.tma.load %mb[%j, %c0] to %t, %full[%s] : !map, !tile, !bar2 // @load
          %n = arith.addi %s, %c1 : index
          %wrap = arith.cmpi eq, %n, %c2 : index
          %s1 = arith.select %wrap, %c0, %n : index
          %flip = arith.xori %p, %one : i32
          %p1 = arith.select %wrap, %flip, %p : i32
          scf.yield %s1, %p1 : index, i32
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %zero = arith.constant 0 : i32
        %one = arith.constant 1 : i32
        %none = arith.constant dense<0.0> : vector<64x72xf32>
        %r:3 = scf.for %j = %c0 to %end step %c64 iter_args(%acc = %none, %s = %c0, %p = %zero) -> (vector<64x72xf32>, index, i32) {
          hopper.mbarrier.wait %full[%s], %p : !bar2 // @wait
          %t = hopper.slot %sb[%s] : !ring -> !tile
          // @before
          %x = tile.read %t : !tile -> vector<64x72xbf16> // @read
          hopper.fence.async // @fence
          hopper.mbarrier.arrive %empty[%s] : !bar2 // @release
          %y = arith.extf %x : vector<64x72xbf16> to vector<64x72xf32>
          %z = arith.addf %acc, %y : vector<64x72xf32>
          %n = arith.addi %s, %c1 : index
          %wrap = arith.cmpi eq, %n, %c2 : index
          %s1 = arith.select %wrap, %c0, %n : index
          %flip = arith.xori %p, %one : i32
          %p1 = arith.select %wrap, %flip, %p : i32
          scf.yield %z, %s1, %p1 : vector<64x72xf32>, index, i32
        }
        vector.transfer_write %r#0, %C[%c0, %c0] {in_bounds = [true, true]} : vector<64x72xf32>, memref<64x72xf32>
      }
    gpu.terminator
  }
  return
}
