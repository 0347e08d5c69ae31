// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(hopper-overlap-tiles),canonicalize,cse)' | FileCheck %s
// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(hopper-overlap-tiles),canonicalize,cse)' --remarks-filter=hopper-overlap-tiles -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] overlapped | Category:hopper-overlap-tiles{{$}}

// The inner loop may not run: two tiles overlap where it runs for both.

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// CHECK-LABEL: func @guarded
// CHECK:         role "compute"
// The first tile's start, in front of the loop, which is known to run.
// CHECK:         hopper.receive %[[Q:.*]] :
// CHECK:         %[[FIRST:.*]] = scf.if {{.*}} -> (vector<64x64xbf16>) {
// CHECK:           tile.mma
// CHECK:         scf.for {{.*}} iter_args(%[[P:.*]] = %[[FIRST]]) -> (vector<64x64xbf16>) {
// CHECK:           %[[HELD:.*]] = hopper.held %[[Q]]
// CHECK-NOT:       hopper.receive %[[Q]]
// CHECK:           scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %[[P]])
// CHECK:             tile.mma %[[HELD]]
// The queries go back as soon as the inner loop is over.
// CHECK:           hopper.release %[[Q]]
// CHECK:           scf.if
// The last product of this tile, the next tile's first one, this tile's output, then
// what follows from the first product.
// CHECK:             %[[LAST:.*]] = tile.mma %{{.*}}#1
// CHECK:             %[[NEXT:.*]] = hopper.receive %[[Q]]
// CHECK:             %[[S:.*]] = tile.mma %[[NEXT]]
// CHECK:             vector.transfer_write %[[LAST]]
// CHECK:             %[[P1:.*]] = arith.truncf %[[S]]
// CHECK:             scf.yield %[[P1]]
// CHECK:           } else {
// CHECK:             tile.mma
// CHECK:             vector.transfer_write
// CHECK:             scf.if
// CHECK:               hopper.receive %[[Q]]
func.func @guarded(%qs: memref<?x64xbf16>, %ks: memref<?x64xbf16>, %o: memref<?x64xf32>, %n: index, %grid: index, %c1: index, %threads: index) {
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %grid, %g1 = %c1, %g2 = %c1) threads(%t, %t1, %t2) in (%s0 = %threads, %x1 = %c1, %x2 = %c1) {
    %q = hopper.channel depth(1) : !hopper.channel<!tile>
    %k = hopper.channel depth(1) : !hopper.channel<!tile>
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %c0 = arith.constant 0 : index
        %c64 = arith.constant 64 : index
        %zero = arith.constant dense<0.0> : !acc
        scf.for %tile = %b to %n step %grid {
          %row = arith.muli %tile, %c64 : index
          %tq = hopper.receive %q : !hopper.channel<!tile> -> !tile
          %runs = arith.cmpi slt, %c0, %row : index
          %sum = scf.if %runs -> (!acc) {
            %tk = hopper.receive %k : !hopper.channel<!tile> -> !tile
            %s = tile.mma %tq, %tk, %zero transposeB : !tile, !tile, !acc
            hopper.release %k : !hopper.channel<!tile>
            %p = arith.truncf %s : !acc to vector<64x64xbf16>
            %r:2 = scf.for %j = %c64 to %row step %c64 iter_args(%acc = %zero, %old = %p) -> (!acc, vector<64x64xbf16>) {
              %tk1 = hopper.receive %k : !hopper.channel<!tile> -> !tile
              %s1 = tile.mma %tq, %tk1, %zero transposeB : !tile, !tile, !acc
              %acc1 = tile.mma %old, %tk1, %acc : vector<64x64xbf16>, !tile, !acc
              hopper.release %k : !hopper.channel<!tile>
              %p1 = arith.truncf %s1 : !acc to vector<64x64xbf16>
              scf.yield %acc1, %p1 : !acc, vector<64x64xbf16>
            }
            %tl = hopper.receive %k : !hopper.channel<!tile> -> !tile
            %last = tile.mma %r#1, %tl, %r#0 : vector<64x64xbf16>, !tile, !acc
            hopper.release %k : !hopper.channel<!tile>
            scf.yield %last : !acc
          } else {
            scf.yield %zero : !acc
          }
          hopper.release %q : !hopper.channel<!tile>
          vector.transfer_write %sum, %o[%row, %c0] : !acc, memref<?x64xf32>
        } {hopper.nonempty}
      }
    gpu.terminator
  }
  return
}

// -----

// Of a loop that may not run, the first tile's start is in a branch.

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// CHECK-LABEL: func @unguarded
// CHECK:         %[[FIRST:.*]] = scf.if {{.*}} -> (vector<64x64xf32>) {
// CHECK:           tile.mma
// CHECK:         } else {
// CHECK:         scf.for {{.*}} iter_args(%[[S:.*]] = %[[FIRST]])
// CHECK:           scf.for {{.*}} iter_args(%{{.*}} = %[[S]])
func.func @unguarded(%o: memref<?x64xf32>, %n: index, %grid: index, %c1: index, %threads: index) {
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %grid, %g1 = %c1, %g2 = %c1) threads(%t, %t1, %t2) in (%s0 = %threads, %x1 = %c1, %x2 = %c1) {
    %q = hopper.channel depth(1) : !hopper.channel<!tile>
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %c0 = arith.constant 0 : index
        %c64 = arith.constant 64 : index
        %zero = arith.constant dense<0.0> : !acc
        scf.for %tile = %b to %n step %grid {
          %row = arith.muli %tile, %c64 : index
          %tq = hopper.receive %q : !hopper.channel<!tile> -> !tile
          %s = tile.mma %tq, %tq, %zero : !tile, !tile, !acc
          %sum = scf.for %j = %c0 to %row step %c64 iter_args(%acc = %s) -> (!acc) {
            %acc1 = tile.mma %tq, %tq, %acc : !tile, !tile, !acc
            scf.yield %acc1 : !acc
          }
          hopper.release %q : !hopper.channel<!tile>
          vector.transfer_write %sum, %o[%row, %c0] : !acc, memref<?x64xf32>
        }
      }
    gpu.terminator
  }
  return
}

// -----

// The next tile's start reads what this tile writes.

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// CHECK-LABEL: func @depends
// CHECK-NOT:     hopper.held
func.func @depends(%o: memref<?x64xf32>, %n: index, %grid: index, %c1: index, %threads: index) {
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %grid, %g1 = %c1, %g2 = %c1) threads(%t, %t1, %t2) in (%s0 = %threads, %x1 = %c1, %x2 = %c1) {
    %q = hopper.channel depth(1) : !hopper.channel<!tile>
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %c0 = arith.constant 0 : index
        %c64 = arith.constant 64 : index
        %f0 = arith.constant 0.0 : f32
        scf.for %tile = %b to %n step %grid {
          %row = arith.muli %tile, %c64 : index
          %tq = hopper.receive %q : !hopper.channel<!tile> -> !tile
          %start = vector.transfer_read %o[%row, %c0], %f0 : memref<?x64xf32>, !acc
          %s = tile.mma %tq, %tq, %start : !tile, !tile, !acc
          %sum = scf.for %j = %c0 to %row step %c64 iter_args(%acc = %s) -> (!acc) {
            %acc1 = tile.mma %tq, %tq, %acc : !tile, !tile, !acc
            scf.yield %acc1 : !acc
          }
          hopper.release %q : !hopper.channel<!tile>
          vector.transfer_write %sum, %o[%row, %c0] : !acc, memref<?x64xf32>
        }
      }
    gpu.terminator
  }
  return
}

// -----

// The tile that was received at the start is needed after the inner loop.

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// CHECK-LABEL: func @late
// CHECK-NOT:     hopper.held
func.func @late(%o: memref<?x64xf32>, %n: index, %grid: index, %c1: index, %threads: index) {
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %grid, %g1 = %c1, %g2 = %c1) threads(%t, %t1, %t2) in (%s0 = %threads, %x1 = %c1, %x2 = %c1) {
    %q = hopper.channel depth(1) : !hopper.channel<!tile>
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %c0 = arith.constant 0 : index
        %c64 = arith.constant 64 : index
        %zero = arith.constant dense<0.0> : !acc
        scf.for %tile = %b to %n step %grid {
          %row = arith.muli %tile, %c64 : index
          %tq = hopper.receive %q : !hopper.channel<!tile> -> !tile
          %s = tile.mma %tq, %tq, %zero : !tile, !tile, !acc
          %sum = scf.for %j = %c0 to %row step %c64 iter_args(%acc = %s) -> (!acc) {
            %acc1 = tile.mma %tq, %tq, %acc : !tile, !tile, !acc
            scf.yield %acc1 : !acc
          }
          %last = tile.mma %tq, %tq, %sum : !tile, !tile, !acc
          hopper.release %q : !hopper.channel<!tile>
          vector.transfer_write %last, %o[%row, %c0] : !acc, memref<?x64xf32>
        }
      }
    gpu.terminator
  }
  return
}

// -----

// A launch that most often ends at once.

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// CHECK-LABEL: func @again
// CHECK-NOT:     hopper.held
func.func @again(%qs: memref<?x64xbf16>, %ks: memref<?x64xbf16>, %o: memref<?x64xf32>, %n: index, %grid: index, %c1: index, %threads: index, %reports: memref<?xi32>, %always: i1) {
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %grid, %g1 = %c1, %g2 = %c1) threads(%t, %t1, %t2) in (%s0 = %threads, %x1 = %c1, %x2 = %c1) {
    hopper.redo %reports always %always : memref<?xi32>
    %q = hopper.channel depth(1) : !hopper.channel<!tile>
    %k = hopper.channel depth(1) : !hopper.channel<!tile>
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %c0 = arith.constant 0 : index
        %c64 = arith.constant 64 : index
        %zero = arith.constant dense<0.0> : !acc
        scf.for %tile = %b to %n step %grid {
          %row = arith.muli %tile, %c64 : index
          %tq = hopper.receive %q : !hopper.channel<!tile> -> !tile
          %runs = arith.cmpi slt, %c0, %row : index
          %sum = scf.if %runs -> (!acc) {
            %tk = hopper.receive %k : !hopper.channel<!tile> -> !tile
            %s = tile.mma %tq, %tk, %zero transposeB : !tile, !tile, !acc
            hopper.release %k : !hopper.channel<!tile>
            %p = arith.truncf %s : !acc to vector<64x64xbf16>
            %r:2 = scf.for %j = %c64 to %row step %c64 iter_args(%acc = %zero, %old = %p) -> (!acc, vector<64x64xbf16>) {
              %tk1 = hopper.receive %k : !hopper.channel<!tile> -> !tile
              %s1 = tile.mma %tq, %tk1, %zero transposeB : !tile, !tile, !acc
              %acc1 = tile.mma %old, %tk1, %acc : vector<64x64xbf16>, !tile, !acc
              hopper.release %k : !hopper.channel<!tile>
              %p1 = arith.truncf %s1 : !acc to vector<64x64xbf16>
              scf.yield %acc1, %p1 : !acc, vector<64x64xbf16>
            }
            %tl = hopper.receive %k : !hopper.channel<!tile> -> !tile
            %last = tile.mma %r#1, %tl, %r#0 : vector<64x64xbf16>, !tile, !acc
            hopper.release %k : !hopper.channel<!tile>
            scf.yield %last : !acc
          } else {
            scf.yield %zero : !acc
          }
          hopper.release %q : !hopper.channel<!tile>
          vector.transfer_write %sum, %o[%row, %c0] : !acc, memref<?x64xf32>
        } {hopper.nonempty}
      }
    gpu.terminator
  }
  return
}
