// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-alias-workspace))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-alias-workspace))" --remarks-filter=hopper-alias-workspace -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] aliased | Category:hopper-alias-workspace{{$}}

// What the first two launches use may lie where the last one writes; not what that one reads, too, nor
// what stands in memory that somebody reads.
// CHECK-LABEL: func.func @alias(
// CHECK: memref.alloc(%{{.*}}) {hopper.aliases = 1 : index} : memref<?xi32>
// CHECK: memref.alloc(%{{.*}}) : memref<?xf32>
// CHECK: memref.alloc() : memref<8xf32>
func.func @alias(%in: memref<?xf32>, %out: memref<?xf32>, %n: index, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %numbers = memref.alloc(%tiles) : memref<?xi32>
  %sums = memref.alloc(%n) : memref<?xf32>
  %unused = memref.alloc() : memref<8xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %i = arith.index_cast %bx : index to i32
        memref.store %i, %numbers[%bx] : memref<?xi32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %view = memref.subview %numbers[%bx] [1] [1] : memref<?xi32> to memref<i32, strided<[], offset: ?>>
        %i = memref.load %view[] : memref<i32, strided<[], offset: ?>>
        %row = arith.index_cast %i : i32 to index
        %r = arith.muli %row, %c64 : index
        %x = vector.transfer_read %in[%r], %zero : memref<?xf32>, vector<64xf32>
        vector.transfer_write %x, %sums[%r] : vector<64xf32>, memref<?xf32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = arith.muli %bx, %c64 : index
        %x = vector.transfer_read %sums[%r], %zero : memref<?xf32>, vector<64xf32>
        vector.transfer_write %x, %out[%r] : vector<64xf32>, memref<?xf32>
      }
    gpu.terminator
  }
  memref.dealloc %unused : memref<8xf32>
  memref.dealloc %sums : memref<?xf32>
  memref.dealloc %numbers : memref<?xi32>
  return
}

// Not in memory that is read, even if that is later.
// CHECK-LABEL: func.func @read(
// CHECK: memref.alloc(%{{.*}}) : memref<?xi32>
func.func @read(%out: memref<?xf32>, %tiles: index) {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %numbers = memref.alloc(%tiles) : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %i = arith.index_cast %bx : index to i32
        memref.store %i, %numbers[%bx] : memref<?xi32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = arith.muli %bx, %c64 : index
        %x = vector.transfer_read %out[%r], %zero : memref<?xf32>, vector<64xf32>
        vector.transfer_write %x, %out[%r] : vector<64xf32>, memref<?xf32>
      }
    gpu.terminator
  }
  memref.dealloc %numbers : memref<?xi32>
  return
}
