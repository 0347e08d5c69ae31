// Each row of 128 elements divided by its sum: two CTAs of 64 threads, which meet in shared memory.
// The marks are for tests that leave something out.
func.func @main(%X: memref<?x128xf32>, %Y: memref<?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %rows = memref.dim %X, %c0 : memref<?x128xf32>
  %ctas = arith.muli %rows, %c2 : index
  gpu.launch clusters(%cx, %cy, %cz) in (%sx = %c2, %sy = %c1, %sz = %c1)
             blocks(%bx, %by, %bz) in (%gx = %ctas, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%nx = %c64, %ny = %c1, %nz = %c1)
             workgroup(%warps : memref<2xf32, #gpu.address_space<workgroup>>,
                       %sums : memref<1xf32, #gpu.address_space<workgroup>>) {
    hopper.threads
    %i1 = arith.constant 1 : i32
    %i2 = arith.constant 2 : i32
    %i4 = arith.constant 4 : i32
    %i8 = arith.constant 8 : i32
    %i16 = arith.constant 16 : i32
    %i32 = arith.constant 32 : i32
    %c32 = arith.constant 32 : index
    %row = arith.divui %bx, %c2 : index
    %rank = arith.remui %bx, %c2 : index
    %first = arith.muli %rank, %c64 : index
    %column = arith.addi %first, %tx : index
    %x = memref.load %X[%row, %column] : memref<?x128xf32>
    %x1, %v1 = gpu.shuffle xor %x, %i1, %i32 : f32
    %s1 = arith.addf %x, %x1 : f32
    %x2, %v2 = gpu.shuffle xor %s1, %i2, %i32 : f32
    %s2 = arith.addf %s1, %x2 : f32
    %x4, %v4 = gpu.shuffle xor %s2, %i4, %i32 : f32
    %s4 = arith.addf %s2, %x4 : f32
    %x8, %v8 = gpu.shuffle xor %s4, %i8, %i32 : f32
    %s8 = arith.addf %s4, %x8 : f32
    %x16, %v16 = gpu.shuffle xor %s8, %i16, %i32 : f32
    %s16 = arith.addf %s8, %x16 : f32
    %warp = arith.divui %tx, %c32 : index
    %lane = arith.remui %tx, %c32 : index
    %is_first = arith.cmpi eq, %lane, %c0 : index
    scf.if %is_first {
      memref.store %s16, %warps[%warp] : memref<2xf32, #gpu.address_space<workgroup>> // @store
    }
    gpu.barrier // @barrier
    %a = memref.load %warps[%c0] : memref<2xf32, #gpu.address_space<workgroup>> // @load
    %b = memref.load %warps[%c1] : memref<2xf32, #gpu.address_space<workgroup>>
    %own = arith.addf %a, %b : f32
    %is_leader = arith.cmpi eq, %tx, %c0 : index
    scf.if %is_leader {
      memref.store %own, %sums[%c0] : memref<1xf32, #gpu.address_space<workgroup>> // @sum
    }
    hopper.cluster.sync // @sync
    %p = hopper.remote.load %sums[%c0] of %c0 : memref<1xf32, #gpu.address_space<workgroup>> // @remote
    %q = hopper.remote.load %sums[%c0] of %c1 : memref<1xf32, #gpu.address_space<workgroup>> // @other
    hopper.cluster.arrive // @arrive
    %sum = arith.addf %p, %q : f32
    %y = arith.divf %x, %sum : f32
    memref.store %y, %Y[%row, %column] : memref<?x128xf32>
    hopper.cluster.wait // @wait
    gpu.terminator
  }
  return
}
