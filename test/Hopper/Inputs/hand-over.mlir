// A tile that a warpgroup writes and a thread beside it stores by TMA. The tests break it line by
// line; @words name the lines.
!tile = !tile.smem<64x64xbf16, swizzle = 128>
!bar = !hopper.mbarrier<1>
!map = !hopper.tensor_map<!tile, rank = 2>
func.func @hand_over(%A: memref<64x64xbf16>, %B: memref<64x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  %smem = arith.constant 32768 : i32
  %ma = hopper.tensor_map %A : memref<64x64xbf16> -> !map
  %mb = hopper.tensor_map %B : memref<64x64xbf16> -> !map
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1)
             dynamic_shared_memory_size %smem {
    %in = hopper.alloc : !tile
    %out = hopper.alloc : !tile
    %loaded = hopper.mbarrier arrivals(1) : !bar
    %written = hopper.mbarrier arrivals(1) : !bar
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.mbarrier.expect %loaded[%c0] bytes(8192) : !bar
        hopper.tma.load %ma[%c0, %c0] to %in, %loaded[%c0] : !map, !tile, !bar
      }
      role "store" warpgroups(0) registers(24) (%w) {
        %zero = arith.constant 0 : i32
        // @early
        hopper.mbarrier.wait %written[%c0], %zero : !bar // @wait
        hopper.fence.async // @fence
        hopper.tma.store %out to %mb[%c0, %c0] : !tile, !map // @out
        hopper.tma.wait pending(0)
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %zero = arith.constant 0 : i32
        hopper.mbarrier.wait %loaded[%c0], %zero : !bar
        %x = tile.read %in : !tile -> vector<64x64xbf16>
        tile.write %x to %out : vector<64x64xbf16>, !tile // @store
        // @own
        hopper.mbarrier.arrive %written[%c0] : !bar // @arrive
        // @late
      }
    gpu.terminator
  }
  return
}
