// C_i = A_i (B_0 + B_1 + ...) for the 64 rows i of A of each CTA, over blocks of 64 rows of
// B: a producer, a consumer, a ring of two. The two CTAs of a cluster copy a half of each
// block for both. The tests break it line by line; @words name the lines.
!tile = !tile.smem<64x64xbf16, swizzle = 128>
!ring = !tile.smem<2x64x64xbf16, swizzle = 128>
!bar1 = !hopper.mbarrier<1>
!bar2 = !hopper.mbarrier<2>
!map = !hopper.tensor_map<!tile, rank = 2>
!half = !tile.smem<32x64xbf16, swizzle = 128>
!part = !tile.smem<32x64xbf16, swizzle = 128, slab_rows = 64>
!halfmap = !hopper.tensor_map<!half, rank = 2>
!acc = vector<64x64xf32>
func.func @sum(%A: memref<?x64xbf16>, %B: memref<?x64xbf16>, %C: memref<?x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 256 : index
  %smem = arith.constant 65536 : i32
  %end = memref.dim %B, %c0 : memref<?x64xbf16>
  %ma = hopper.tensor_map %A : memref<?x64xbf16> -> !map
  %mb = hopper.tensor_map %B : memref<?x64xbf16> -> !halfmap
  %mc = hopper.tensor_map %C : memref<?x64xbf16> -> !map
  %rows = memref.dim %A, %c0 : memref<?x64xbf16>
  %blocks = arith.divui %rows, %c64 : index
  gpu.launch clusters(%cx, %cy, %cz) in (%nx = %c2, %ny = %c1, %nz = %c1)
             blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1)
             dynamic_shared_memory_size %smem {
    %sa = hopper.alloc : !tile
    %sb = hopper.alloc : !ring // @ring
    %sc = hopper.alloc : !tile
    %fulla = hopper.mbarrier arrivals(1) : !bar1
    %full = hopper.mbarrier arrivals(1) : !bar2 // @full
    %empty = hopper.mbarrier arrivals(1) cluster : !bar2 // @empty
    %i = arith.muli %bx, %c64 : index
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        %one = arith.constant 1 : i32
        hopper.mbarrier.expect %fulla[%c0] bytes(8192) : !bar1 // @expect-a
        hopper.tma.load %ma[%i, %c0] to %sa, %fulla[%c0] : !map, !tile, !bar1 // @load-a
        %r:2 = scf.for %j = %c0 to %end step %c64 iter_args(%s = %c0, %p = %one) -> (index, i32) {
          hopper.mbarrier.wait %empty[%s], %p : !bar2 // @wait-empty
          hopper.mbarrier.expect %full[%s] bytes(8192) : !bar2 // @expect
          %t = hopper.slot %sb[%s] : !ring -> !tile // @slot
          %rank = gpu.cluster_block_id x
          scf.for %h = %rank to %c2 step %c2 {
            %offset = arith.muli %h, %c32 : index
            %row = arith.addi %j, %offset : index
            %rows32 = tile.rows %t[%offset] : !tile -> !part
            hopper.tma.load %mb[%row, %c0] to %rows32, %full[%s] multicast : !halfmap, !part, !bar2 // @load
          }
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
          hopper.mbarrier.arrive %empty[%s] cluster : !bar2 // @release
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
        hopper.tma.store %sc to %mc[%i, %c0] : !tile, !map // @out
        hopper.tma.wait pending(0) // @wait-out
      }
    hopper.cluster.sync // @end
    gpu.terminator
  }
  return
}
