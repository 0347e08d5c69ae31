// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-pipeline-products))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-pipeline-products))" --remarks-filter=hopper-pipeline-products -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] pipelined | Category:hopper-pipeline-products{{$}}
!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// The last product of an iteration runs in the next one, beside its first product. A
// loop that may not run is guarded.
// CHECK-LABEL: func.func @chain
// CHECK: %[[RUNS:.*]] = arith.cmpi slt, %c0, %[[N:.*]] : index
// CHECK-NEXT: %[[R:.*]] = scf.if %[[RUNS]]
// CHECK-NEXT: %[[S0:.*]] = tile.mma {{.*}} transposeB
// CHECK-NEXT: %[[E0:.*]] = math.exp2 %[[S0]]
// CHECK-NEXT: %[[P0:.*]] = arith.truncf %[[E0]]
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %c0, %c1
// CHECK-NEXT: %[[L:.*]]:2 = scf.for {{.*}} = %[[NEXT]] to %[[N]] step %c1 iter_args(%[[P:.*]] = %[[P0]], %[[O:.*]] = %{{.*}})
// CHECK-NEXT: %[[S1:.*]] = tile.mma {{.*}} transposeB
// CHECK-NEXT: %[[O1:.*]] = tile.mma %[[P]], %{{.*}}, %[[O]] :
// CHECK-NEXT: %[[E1:.*]] = math.exp2 %[[S1]]
// CHECK-NEXT: %[[P1:.*]] = arith.truncf %[[E1]]
// CHECK-NEXT: scf.yield %[[P1]], %[[O1]]
// CHECK: %[[LAST:.*]] = tile.mma %[[L]]#0, %{{.*}}, %[[L]]#1
// CHECK-NEXT: scf.yield %[[LAST]]
// CHECK: } else {
// CHECK-NEXT: scf.yield
func.func @chain(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %k: !tile, %v: !tile, %y: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c1 iter_args(%o = %zero) -> (!acc) {
          %s = tile.mma %q, %k, %zero transposeB : vector<64x64xbf16>, !tile, !acc
          %e = math.exp2 %s : !acc
          %p = arith.truncf %e : !acc to vector<64x64xbf16>
          %t = tile.mma %p, %v, %o : vector<64x64xbf16>, !tile, !acc
          scf.yield %t : !acc
        }
        vector.transfer_write %r, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}

// Nothing is guarded where the loop runs for certain.
// CHECK-LABEL: func.func @certain
// CHECK-NOT: scf.if
// CHECK: scf.for
func.func @certain(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %k: !tile, %v: !tile, %y: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%o = %zero) -> (!acc) {
          %s = tile.mma %q, %k, %zero transposeB : vector<64x64xbf16>, !tile, !acc
          %e = math.exp2 %s : !acc
          %p = arith.truncf %e : !acc to vector<64x64xbf16>
          %t = tile.mma %p, %v, %o : vector<64x64xbf16>, !tile, !acc
          scf.yield %t : !acc
        }
        vector.transfer_write %r, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}

// The first product needs the last one of the iteration before.
// CHECK-LABEL: func.func @needed
// CHECK: role "compute"
// CHECK-NEXT: scf.for {{.*}} = %c0 to
// CHECK-NEXT: tile.mma
// CHECK-NEXT: math.exp2
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: tile.mma
// CHECK-NEXT: scf.yield
func.func @needed(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %k: !tile, %v: !tile, %y: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c1 iter_args(%o = %zero) -> (!acc) {
          %s = tile.mma %q, %k, %o transposeB : vector<64x64xbf16>, !tile, !acc
          %e = math.exp2 %s : !acc
          %p = arith.truncf %e : !acc to vector<64x64xbf16>
          %t = tile.mma %p, %v, %zero : vector<64x64xbf16>, !tile, !acc
          scf.yield %t : !acc
        }
        vector.transfer_write %r, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}

// The last product does not follow from the first one.
// CHECK-LABEL: func.func @apart
// CHECK: role "compute"
// CHECK-NEXT: scf.for {{.*}} = %c0 to
func.func @apart(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %k: !tile, %v: !tile, %y: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c1 iter_args(%o = %zero) -> (!acc) {
          %s = tile.mma %q, %k, %zero transposeB : vector<64x64xbf16>, !tile, !acc
          %e = math.exp2 %s : !acc
          %p = arith.truncf %e : !acc to vector<64x64xbf16>
          %t = tile.mma %q, %v, %o : vector<64x64xbf16>, !tile, !acc
          scf.yield %t : !acc
        }
        vector.transfer_write %r, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}

// While one role waits for a product, the tensor core has those of the other one.
// CHECK-LABEL: func.func @two_roles
// CHECK-COUNT-4: tile.mma
// CHECK-NOT: tile.mma
func.func @two_roles(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %k: !tile, %v: !tile, %y: memref<64x64xf32>, %z: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "one" warpgroups(1) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c1 iter_args(%o = %zero) -> (!acc) {
          %s = tile.mma %q, %k, %zero transposeB : vector<64x64xbf16>, !tile, !acc
          %p = arith.truncf %s : !acc to vector<64x64xbf16>
          %t = tile.mma %p, %v, %o : vector<64x64xbf16>, !tile, !acc
          scf.yield %t : !acc
        }
        vector.transfer_write %r, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
      role "two" warpgroups(1) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c1 iter_args(%o = %zero) -> (!acc) {
          %s = tile.mma %q, %v, %zero transposeB : vector<64x64xbf16>, !tile, !acc
          %p = arith.truncf %s : !acc to vector<64x64xbf16>
          %t = tile.mma %p, %k, %o : vector<64x64xbf16>, !tile, !acc
          scf.yield %t : !acc
        }
        vector.transfer_write %r, %z[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}
