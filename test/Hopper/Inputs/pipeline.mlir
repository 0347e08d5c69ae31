// C = A (B_0 + B_1 + ...) over blocks of 64 rows of B: a producer, a consumer,
// a ring of two. The tests break it line by line; @words name the lines.
!tile = !tile.smem<64x64xbf16, swizzle = 128>
!ring = !tile.smem<2x64x64xbf16, swizzle = 128>
!bar1 = !hopper.mbarrier<1>
!bar2 = !hopper.mbarrier<2>
!map = !hopper.tensor_map<!tile, rank = 2>
!acc = vector<64x64xf32>
func.func @sum(%A: memref<64x64xbf16>, %B: memref<?x64xbf16>, %C: memref<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 256 : index
  %smem = arith.constant 65536 : i32
  %end = memref.dim %B, %c0 : memref<?x64xbf16>
  %ma = hopper.tensor_map %A : memref<64x64xbf16> -> !map
  %mb = hopper.tensor_map %B : memref<?x64xbf16> -> !map
  %mc = hopper.tensor_map %C : memref<64x64xbf16> -> !map
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1)
             dynamic_shared_memory_size %smem {
    %sa = hopper.alloc : !tile
    %sb = hopper.alloc : !ring // @ring
    %sc = hopper.alloc : !tile
    %fulla = hopper.mbarrier arrivals(1) : !bar1
    %full = hopper.mbarrier arrivals(1) : !bar2 // @full
    %empty = hopper.mbarrier arrivals(1) : !bar2 // @empty
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        %one = arith.constant 1 : i32
        hopper.mbarrier.expect %fulla[%c0] bytes(8192) : !bar1 // @expect-a
        hopper.tma.load %ma[%c0, %c0] to %sa, %fulla[%c0] : !map, !tile, !bar1 // @load-a
        %r:2 = scf.for %j = %c0 to %end step %c64 iter_args(%s = %c0, %p = %one) -> (index, i32) {
          hopper.mbarrier.wait %empty[%s], %p : !bar2 // @wait-empty
          hopper.mbarrier.expect %full[%s] bytes(8192) : !bar2 // @expect
          %t = hopper.slot %sb[%s] : !ring -> !tile // @slot
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
        %none = arith.constant dense<0.0> : !acc
        hopper.mbarrier.wait %fulla[%c0], %zero : !bar1 // @wait-a
        %r:3 = scf.for %j = %c0 to %end step %c64 iter_args(%acc = %none, %s = %c0, %p = %zero) -> (!acc, index, i32) {
          hopper.mbarrier.wait %full[%s], %p : !bar2 // @wait-full
          %t = hopper.slot %sb[%s] : !ring -> !tile
          %x = hopper.wgmma %sa, %t, %acc : (!tile, !tile, !acc) -> !hopper.pending<!acc> // @product
          // @before
          %y = hopper.wait %x pending(0) : !hopper.pending<!acc> -> !acc // @wait-product
          hopper.mbarrier.arrive %empty[%s] : !bar2 // @release
          %n = arith.addi %s, %c1 : index
          %wrap = arith.cmpi eq, %n, %c2 : index
          %s1 = arith.select %wrap, %c0, %n : index
          %flip = arith.xori %p, %one : i32
          %p1 = arith.select %wrap, %flip, %p : i32
          scf.yield %y, %s1, %p1 : !acc, index, i32
        }
        %v = arith.truncf %r#0 : !acc to vector<64x64xbf16>
        tile.write %v to %sc : vector<64x64xbf16>, !tile // @store
        hopper.fence.async // @fence
        hopper.barrier.sync %c1 warpgroups(1) // @sync
        hopper.tma.store %sc to %mc[%c0, %c0] : !tile, !map // @out
        hopper.tma.wait pending(0) // @wait-out
      }
    gpu.terminator
  }
  return
}
