// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(hopper-trim-loops),canonicalize,cse)' | FileCheck %s
// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(hopper-trim-loops),canonicalize,cse)' --remarks-filter=hopper-trim-loops -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] trimmed | Category:hopper-trim-loops{{$}}

// Rows 64 w to 64 w + 63 of 128 need columns up to their own number.

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// CHECK-LABEL: func @causal
// CHECK:         role "compute" warpgroups(2) registers(240) (%[[W:.*]]) {
// CHECK:           %[[ROW:.*]] = arith.muli %[[W]], %{{.*}}
// The last row gives the end, the first one tells full tiles.
// CHECK:           %[[END:.*]] = arith.addi %[[ROW]], %c64
// CHECK:           %[[HI:.*]] = arith.minsi %{{.*}}, %[[END]]
// CHECK:           scf.for %[[J:.*]] = %c0{{.*}} to %[[HI]] step %c64
// CHECK:             %[[TO:.*]] = arith.addi %[[J]], %c63
// CHECK:             %[[ISFULL:.*]] = arith.cmpi sle, %[[TO]], %[[ROW]]
// CHECK:             %[[FULL:.*]] = arith.ori %{{.*}}, %[[ISFULL]]
// CHECK:             scf.if %[[FULL]]
// CHECK:           } {attn.fold_loop, attn.partial, hopper.trimmed}
// What is left is received and given back, after the last receive of this block.
// CHECK:           hopper.release %[[KEYS:.*]] :
// CHECK:           scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c64
// CHECK-NEXT:        hopper.receive %[[KEYS]]
// CHECK-NEXT:        hopper.release %[[KEYS]]
// CHECK-NEXT:      } {hopper.trimmed}
func.func @causal(%o: memref<?x64xf32>, %n: index, %full: i1, %c1: index, %threads: index) {
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %c1, %g1 = %c1, %g2 = %c1) threads(%t, %t1, %t2) in (%s0 = %threads, %x1 = %c1, %x2 = %c1) {
    %k = hopper.channel depth(1) : !hopper.channel<!tile>
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %c0 = arith.constant 0 : index
        %c64 = arith.constant 64 : index
        %zero = arith.constant dense<0.0> : !acc
        %ninf = arith.constant dense<0xFF800000> : !acc
        %row = arith.muli %w, %c64 : index
        %q = hopper.receive %k : !hopper.channel<!tile> -> !tile
        %sum = scf.for %j = %c0 to %n step %c64 iter_args(%acc = %zero) -> (!acc) {
          %tk = hopper.receive %k : !hopper.channel<!tile> -> !tile
          %s = tile.mma %tk, %tk, %acc transposeB : !tile, !tile, !acc
          hopper.release %k : !hopper.channel<!tile>
          %masked = scf.if %full -> (!acc) {
            scf.yield %s : !acc
          } else {
            %step = vector.step : vector<64xindex>
            %row1 = vector.broadcast %row : index to vector<64xindex>
            %rows = arith.addi %step, %row1 : vector<64xindex>
            %rows2 = vector.broadcast %rows : vector<64xindex> to vector<64x64xindex>
            %rows3 = vector.transpose %rows2, [1, 0] : vector<64x64xindex> to vector<64x64xindex>
            %j1 = vector.broadcast %j : index to vector<64xindex>
            %columns = arith.addi %step, %j1 : vector<64xindex>
            %columns2 = vector.broadcast %columns : vector<64xindex> to vector<64x64xindex>
            %keep = arith.cmpi sle, %columns2, %rows3 : vector<64x64xindex>
            %x = arith.select %keep, %s, %ninf : vector<64x64xi1>, !acc
            scf.yield %x : !acc
          } {attn.tile_kind}
          scf.yield %masked : !acc
        } {attn.fold_loop, attn.partial}
        hopper.release %k : !hopper.channel<!tile>
        vector.transfer_write %sum, %o[%row, %c0] : !acc, memref<?x64xf32>
      }
    gpu.terminator
  }
  return
}

// -----

// The bound is the same for all warpgroups: the loop has it already.

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

// CHECK-LABEL: func @same
// CHECK-NOT:     hopper.trimmed
func.func @same(%o: memref<?x64xf32>, %n: index, %m: index, %full: i1, %c1: index, %threads: index) {
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %c1, %g1 = %c1, %g2 = %c1) threads(%t, %t1, %t2) in (%s0 = %threads, %x1 = %c1, %x2 = %c1) {
    %k = hopper.channel depth(1) : !hopper.channel<!tile>
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %c0 = arith.constant 0 : index
        %c64 = arith.constant 64 : index
        %zero = arith.constant dense<0.0> : !acc
        %ninf = arith.constant dense<0xFF800000> : !acc
        %sum = scf.for %j = %c0 to %n step %c64 iter_args(%acc = %zero) -> (!acc) {
          %tk = hopper.receive %k : !hopper.channel<!tile> -> !tile
          %s = tile.mma %tk, %tk, %acc transposeB : !tile, !tile, !acc
          hopper.release %k : !hopper.channel<!tile>
          %masked = scf.if %full -> (!acc) {
            scf.yield %s : !acc
          } else {
            %step = vector.step : vector<64xindex>
            %rows = vector.broadcast %m : index to vector<64xindex>
            %rows2 = vector.broadcast %rows : vector<64xindex> to vector<64x64xindex>
            %rows3 = vector.transpose %rows2, [1, 0] : vector<64x64xindex> to vector<64x64xindex>
            %j1 = vector.broadcast %j : index to vector<64xindex>
            %columns = arith.addi %step, %j1 : vector<64xindex>
            %columns2 = vector.broadcast %columns : vector<64xindex> to vector<64x64xindex>
            %keep = arith.cmpi sle, %columns2, %rows3 : vector<64x64xindex>
            %x = arith.select %keep, %s, %ninf : vector<64x64xi1>, !acc
            scf.yield %x : !acc
          } {attn.tile_kind}
          scf.yield %masked : !acc
        } {attn.fold_loop, attn.partial}
        vector.transfer_write %sum, %o[%c0, %c0] : !acc, memref<?x64xf32>
      }
    gpu.terminator
  }
  return
}
