// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-prepare-vectors,canonicalize,cse))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-prepare-vectors,canonicalize,cse))" --remarks-filter=attn-prepare-vectors -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}7 [Passed] prepared | Category:attn-prepare-vectors{{$}}

// A vector that every tile of rows would compute from the same places is computed
// once, 128 elements at a time, for as many heads as the loop that reads it has.
// CHECK-LABEL: func.func @prepared
// CHECK: %[[TILES:.*]] = affine.apply #{{.*}}()[%{{.*}}]
// CHECK: %[[M:.*]] = memref.alloc(%arg2, %[[TILES]]) : memref<?x?x128xf32>
// CHECK: scf.forall (%[[H:.*]], %[[K:.*]]) in (%{{.*}}, %[[TILES]])
// CHECK: %[[I:.*]] = affine.apply #{{.*}}(%[[K]])
// CHECK: %[[L:.*]] = vector.transfer_read %arg0[%[[H]], %[[I]]]
// CHECK: %[[P:.*]] = arith.mulf %[[L]]
// CHECK: vector.transfer_write %[[P]], %[[M]][%[[H]], %[[K]], %c0] {in_bounds = [true]} : vector<128xf32>
// CHECK: scf.forall (%[[H2:.*]], %{{.*}}) in
// CHECK: scf.for %[[I2:[a-z0-9]+]] =
// CHECK: %[[T:.*]] = affine.apply #{{.*}}(%[[I2]])
// CHECK: %[[PLACE:.*]] = affine.apply #{{.*}}(%[[I2]])
// CHECK: %[[R:.*]] = vector.transfer_read %[[M]][%[[H2]], %[[T]], %[[PLACE]]], %{{.*}} {in_bounds = [true]} : memref<?x?x128xf32>, vector<64xf32>
// CHECK: vector.broadcast %[[R]]
func.func @prepared(%L: memref<?x?xf32>, %Y: memref<?x?x64xf32>, %H: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %log2e = arith.constant dense<1.5> : vector<64xf32>
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  scf.forall (%h, %t) in (%H, 4) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %lo = affine.max affine_map<(d0) -> (((d0 - 63) ceildiv 64) * 64, 0)>(%t0)
    %r = scf.for %i = %lo to %n step %c64 iter_args(%a = %zero) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %L[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m = arith.mulf %l, %log2e : vector<64xf32>
      %m2 = vector.broadcast %m : vector<64xf32> to vector<128x64xf32>
      %b = arith.addf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    vector.transfer_write %r, %Y[%h, %t0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x?x64xf32>
  }
  return
}

// Places that are no multiples of the vector, and memory that the forall writes.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: memref.alloc
func.func @kept(%L: memref<?x?xf32>, %Y: memref<?x?x64xf32>, %Z: memref<?x?xf32>, %H: index, %n: index, %lo: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  scf.forall (%h, %t) in (%H, 4) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %r = scf.for %i = %lo to %n step %c64 iter_args(%a = %zero) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %L[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.addf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    %s = scf.for %i = %c0 to %n step %c64 iter_args(%a = %r) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %Z[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.addf %a, %m2 : vector<128x64xf32>
      vector.transfer_write %l, %Z[%h, %i] : vector<64xf32>, memref<?x?xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    vector.transfer_write %s, %Y[%h, %t0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x?x64xf32>
  }
  return
}

// What is set to zero behind the last element is 2^-inf there: the branch goes.
// CHECK-LABEL: func.func @tail
// CHECK: memref.alloc
// CHECK: scf.forall
// CHECK: %[[L:.*]] = vector.transfer_read %arg0
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt
// CHECK: %[[V:.*]] = arith.select %[[INSIDE]], %[[L]], %{{.*}} : vector<128xi1>, vector<128xf32>
// CHECK: vector.transfer_write %[[V]]
// CHECK: scf.forall
// CHECK: scf.for
// CHECK: %[[P:.*]] = math.exp2
// CHECK-NOT: scf.if
// CHECK-NOT: arith.select
// CHECK: arith.addf %{{.*}}, %[[P]]
func.func @tail(%L: memref<?x?xf32>, %Y: memref<?x?x64xf32>, %H: index, %n: index, %s: vector<128x64xf32>, %full: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %step = vector.step : vector<64xindex>
  scf.forall (%h, %t) in (%H, 4) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %L[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %lb = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %x = math.fma %s, %s, %lb : vector<128x64xf32>
      %p = math.exp2 %x : vector<128x64xf32>
      %q = scf.if %full -> (vector<128x64xf32>) {
        scf.yield %p : vector<128x64xf32>
      } else {
        %i0 = vector.broadcast %i : index to vector<64xindex>
        %at = arith.addi %step, %i0 : vector<64xindex>
        %end = vector.broadcast %n : index to vector<64xindex>
        %in = arith.cmpi slt, %at, %end : vector<64xindex>
        %keep = vector.broadcast %in : vector<64xi1> to vector<128x64xi1>
        %z = arith.select %keep, %p, %zero : vector<128x64xi1>, vector<128x64xf32>
        scf.yield %z : vector<128x64xf32>
      }
      %b = arith.addf %a, %q : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    vector.transfer_write %r, %Y[%h, %t0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x?x64xf32>
  }
  return
}

// At a start that a table names: as much as the memory has.
// CHECK-LABEL: func.func @table
// CHECK: %[[SIZE:.*]] = memref.dim %arg0, %c1
// CHECK: %[[TILES:.*]] = affine.apply #{{.*}}()[%[[SIZE]]]
// CHECK: %[[M:.*]] = memref.alloc(%arg3, %[[TILES]]) : memref<?x?x128xf32>
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (%arg3, %[[TILES]])
// CHECK: scf.forall (%[[H:.*]], %{{.*}}) in (%arg3, 4)
// CHECK: scf.for
// CHECK: %[[E:.*]] = memref.load %arg2
// CHECK: vector.transfer_read %[[M]][%[[H]], %{{.*}}, %{{.*}}], %{{.*}} {in_bounds = [true]} : memref<?x?x128xf32>, vector<64xf32>
func.func @table(%L: memref<?x?xf32>, %Y: memref<?x?x64xf32>, %T: memref<?xindex>, %H: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  scf.forall (%h, %t) in (%H, 4) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %r = scf.for %e = %c0 to %n step %c1 iter_args(%a = %zero) -> (vector<128x64xf32>) {
      %tile = memref.load %T[%e] : memref<?xindex>
      %i = affine.apply affine_map<(d0) -> (d0 * 64)>(%tile)
      %l = vector.transfer_read %L[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.addf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop, attn.tabulated}
    vector.transfer_write %r, %Y[%h, %t0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x?x64xf32>
  }
  return
}

// Bounds that depend on memory: the end is the last element or 0, the start a multiple or the end.
// CHECK-LABEL: func.func @bounds
// CHECK: %[[TILES:.*]] = affine.apply #{{.*}}()[%arg4]
// CHECK: memref.alloc(%arg3, %[[TILES]]) : memref<?x?x128xf32>
// CHECK: memref.alloc(%arg3, %[[TILES]]) : memref<?x?x128xf32>
// CHECK-NOT: memref.alloc
func.func @bounds(%L: memref<?x?xf32>, %Y: memref<?x?x64xf32>, %N: memref<?xindex>, %H: index, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  scf.forall (%h, %t) in (%H, 4) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %length = memref.load %N[%h] : memref<?xindex>
    %inside = arith.cmpi slt, %t0, %length : index
    %some = arith.select %inside, %n, %c0 : index
    %end = arith.maxsi %some, %c0 : index
    %r = scf.for %i = %c0 to %end step %c64 iter_args(%a = %zero) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %L[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.addf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    %none = arith.select %inside, %c0, %n : index
    %start = arith.minsi %none, %t0 : index
    %s = scf.for %i = %start to %n step %c64 iter_args(%a = %r) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %L[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.subf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    // Not where it may be anything, or where two ends are possible.
    %any = arith.select %inside, %c0, %m : index
    %u = scf.for %i = %any to %n step %c64 iter_args(%a = %s) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %L[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.mulf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    %either = arith.select %inside, %n, %m : index
    %v = scf.for %i = %c0 to %either step %c64 iter_args(%a = %u) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %L[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.divf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    vector.transfer_write %v, %Y[%h, %t0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x?x64xf32>
  }
  return
}

// A program in front that reads whole tiles of what is only copied reads the copy, which then is
// made in front of it; one whose tiles are no rows of the copy does not.
// CHECK-LABEL: func.func @shared
// CHECK: %[[D:.*]] = memref.alloc(%arg1, %arg2) : memref<?x?xf32>
// CHECK: %[[ALL:.*]] = memref.alloc(%arg1, %{{.*}}) : memref<?x?x128xf32>
// CHECK: scf.forall
// CHECK:   %[[COPIED:.*]] = vector.transfer_read %[[D]]
// CHECK:   vector.transfer_write %[[COPIED]], %[[ALL]]
// CHECK: scf.forall (%[[H:.*]], %[[T:.*]]) in
// CHECK:   vector.transfer_read %[[ALL]][%[[H]], %[[T]], %c0], %{{.*}} {in_bounds = [true]} : memref<?x?x128xf32>, vector<128xf32>
// CHECK:   vector.transfer_read %[[D]][%{{.*}}], %{{.*}} : memref<?x?xf32>, vector<64xf32>
// CHECK: scf.forall
// CHECK:   vector.transfer_read %[[ALL]]
func.func @shared(%W: memref<?x?xf32>, %H: index, %n: index, %Y: memref<?x?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %D = memref.alloc(%H, %n) : memref<?x?xf32>
  scf.forall (%h) in (%H) {
    %v = vector.transfer_read %W[%h, %c0], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %v, %D[%h, %c0] : vector<128xf32>, memref<?x?xf32>
  }
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  scf.forall (%h, %t) in (%H, %tiles) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %d = vector.transfer_read %D[%h, %t0], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %d, %W[%h, %t0] : vector<128xf32>, memref<?x?xf32>
    %t1 = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
    %e = vector.transfer_read %D[%h, %t1], %pad : memref<?x?xf32>, vector<64xf32>
    vector.transfer_write %e, %W[%h, %t1] : vector<64xf32>, memref<?x?xf32>
  }
  scf.forall (%h, %t) in (%H, 4) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %D[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.addf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    vector.transfer_write %r, %Y[%h, %t0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x?x64xf32>
  }
  return
}

// The memory is written between the two: each reads its own.
// CHECK-LABEL: func.func @rewritten
// CHECK: %[[D:.*]] = memref.alloc(%arg1, %arg2) : memref<?x?xf32>
// CHECK: scf.forall (%[[H:.*]], %[[T:.*]]) in
// CHECK:   vector.transfer_read %[[D]]
// CHECK: memref.alloc(%arg1, %{{.*}}) : memref<?x?x128xf32>
func.func @rewritten(%W: memref<?x?xf32>, %H: index, %n: index, %Y: memref<?x?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %D = memref.alloc(%H, %n) : memref<?x?xf32>
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  scf.forall (%h, %t) in (%H, %tiles) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %d = vector.transfer_read %D[%h, %t0], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %d, %W[%h, %t0] : vector<128xf32>, memref<?x?xf32>
  }
  scf.forall (%h) in (%H) {
    %v = vector.transfer_read %W[%h, %c0], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %v, %D[%h, %c0] : vector<128xf32>, memref<?x?xf32>
  }
  scf.forall (%h, %t) in (%H, 4) {
    %t0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<128x64xf32>) {
      %l = vector.transfer_read %D[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
      %m2 = vector.broadcast %l : vector<64xf32> to vector<128x64xf32>
      %b = arith.addf %a, %m2 : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    } {attn.fold_loop}
    vector.transfer_write %r, %Y[%h, %t0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x?x64xf32>
  }
  return
}
