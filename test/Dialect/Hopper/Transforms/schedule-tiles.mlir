// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-schedule-tiles{ctas=7},canonicalize))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-schedule-tiles{ctas=0},canonicalize))" | FileCheck %s --check-prefix=EACH
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-schedule-tiles{ctas=0},canonicalize))" --remarks-filter=hopper-schedule-tiles -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-schedule-tiles{ctas=7},canonicalize))" --remarks-filter=hopper-schedule-tiles -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS2
// REMARKS-DAG: {{^ *}}1 [Passed] reversed | Category:hopper-schedule-tiles{{$}}
// REMARKS2-DAG: {{^ *}}7 [Passed] persistent | Category:hopper-schedule-tiles{{$}}

// Seven CTAs take every seventh tile each. The coordinates come from products and
// shifts; another index is nobody else's business.
// CHECK-LABEL: func.func @even
// CHECK: %[[CTAS:.*]] = arith.minui %[[N:.*]], %c7
// CHECK: gpu.launch blocks(%[[B:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[CTAS]],
// CHECK: scf.for %[[TILE:.*]] = %[[B]] to %[[N]] step %[[CTAS]]
// CHECK: arith.index_cast %[[TILE]] : index to i32
// CHECK: arith.extui
// CHECK: arith.muli {{.*}} : i64
// CHECK: arith.shrui {{.*}} : i64
// CHECK: affine.delinearize_index %{{.*}} into (4, 5)
// EACH-LABEL: func.func @even
// EACH: gpu.launch blocks(%[[B:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %arg0,
// EACH-NOT: scf.for
// EACH: arith.index_cast %[[B]] : index to i32
// EACH: affine.delinearize_index %{{.*}} into (4, 5)
// EACH: scf.for
func.func @even(%n: index, %m: index, %k: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%l) {
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%m, 3) : index, index
        %own:2 = affine.delinearize_index %k into (4, 5) : index, index
        scf.for %i = %c0 to %m step %c1 {
          memref.store %p#0, %X[%i] : memref<?xindex>
          memref.store %own#1, %X[%p#1] : memref<?xindex>
        }
      }
    gpu.terminator
  }
  return
}

// Work that grows along the last coordinate: first tiles in pairs, from both ends of it, as many
// for each CTA (all, if most CTAs would have one more); then those of the last lines by turns, the
// longest (the last ones of a line) first. CTAs for which neither is left are not launched.
// CHECK-LABEL: func.func @uneven
// CHECK: %[[CTAS:.*]] = arith.minui %[[N:.*]], %c7
// CHECK: %[[ALL:.*]] = arith.muli %{{.*}}, %c3
// CHECK: %[[ROUNDS:.*]] = arith.divui %[[ALL]],
// CHECK: %[[EVEN:.*]] = arith.muli %[[ROUNDS]], %[[CTAS]]
// CHECK: %[[LEFT:.*]] = arith.subi %[[ALL]], %[[EVEN]]
// CHECK: %[[FOUR:.*]] = arith.muli %[[CTAS]], %c4
// CHECK: %[[FIVE:.*]] = arith.muli %[[LEFT]], %c5
// CHECK: %[[MOST:.*]] = arith.cmpi ult, %[[FOUR]], %[[FIVE]]
// CHECK: arith.select %[[MOST]], %[[ALL]], %[[EVEN]]
// CHECK: %[[PAIRED:.*]] = arith.muli %{{.*}}, %c6
// CHECK: %[[REST:.*]] = arith.subi %[[N]], %[[PAIRED]]
// CHECK: %[[PAIRS:.*]] = arith.divui %[[PAIRED]], %c2
// CHECK: %[[PLACES:.*]] = arith.addi %[[AHEAD:.*]], %[[REST]]
// CHECK: %[[WORK:.*]] = arith.addi %[[PAIRS]], %[[REST]]
// CHECK: %[[BUSY:.*]] = arith.minui %[[CTAS]], %[[WORK]]
// CHECK: gpu.launch blocks(%[[B:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[BUSY]],
// CHECK: %[[ISAHEAD:.*]] = arith.cmpi ult, %[[B]], %[[AHEAD]]
// CHECK: scf.for %[[STEP:.*]] = %c0 to
// CHECK: %[[ROUND:.*]] = arith.shrui %[[STEP]], %c1
// CHECK: %[[PLACE:.*]] = arith.muli %[[ROUND]], %[[BUSY]]
// CHECK: %[[PAIR:.*]] = arith.addi %[[B]], %[[PLACE]]
// CHECK: %[[ISPAIR:.*]] = arith.cmpi ult, %[[PAIR]],
// CHECK: %[[RANK:.*]] = arith.subi %c2, %{{.*}}
// CHECK: arith.select %[[ISPAIR]]
// CHECK: scf.for
// EACH-LABEL: func.func @uneven
func.func @uneven(%n: index, %m: index, %k: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%l) {
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%m, 3) : index, index
        %own:2 = affine.delinearize_index %k into (4, 5) : index, index
        %end = arith.addi %p#1, %c1 : index
        scf.for %i = %c0 to %end step %c1 {
          memref.store %p#0, %X[%i] : memref<?xindex>
          memref.store %own#1, %X[%p#1] : memref<?xindex>
        }
      }
    gpu.terminator
  }
  return
}

// Work that falls along it: the first ones of a line are the longest.
// CHECK-LABEL: func.func @falling
// CHECK: gpu.launch
// CHECK: scf.for
// CHECK-NOT: arith.subi %c2
// CHECK: arith.select
// CHECK: scf.for
func.func @falling(%n: index, %m: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%l) {
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%m, 3) : index, index
        %start = affine.max affine_map<(d0) -> (0, (d0 * 128) floordiv 64)>(%p#1)
        scf.for %i = %start to %m step %c1 {
          memref.store %p#0, %X[%i] : memref<?xindex>
        }
      }
    gpu.terminator
  }
  return
}

// A band, whose loop starts and ends later for later tiles: most have the same work. The host looks
// at which end of a line they have less; those are taken last, the longest first. (A loop that has
// no iteration may say so by ending where it starts.)
// CHECK-LABEL: func.func @band
// CHECK: %[[CTAS:.*]] = arith.minui %[[N:.*]], %c7
// CHECK: %[[LINES:.*]] = arith.divui %[[N]], %c40
// CHECK: %[[PLACES:.*]] = arith.muli %[[CTAS]], %c3
// CHECK: %[[FEW:.*]] = arith.minui %{{.*}}, %c40
// CHECK: %[[MANY:.*]] = arith.subi %c40, %[[FEW]]
// CHECK: %[[WHOLE:.*]] = arith.muli %[[MANY]], %[[LINES]]
// CHECK: affine.min
// CHECK: %[[FIRST:.*]] = arith.select %{{.*}}, %c0,
// CHECK: affine.min
// CHECK: %[[END:.*]] = arith.select %{{.*}}, %c3968,
// CHECK: %[[LAST:.*]] = arith.subi %[[END]], %c3968
// CHECK: %[[GROWS:.*]] = arith.cmpi sgt, %[[LAST]], %[[FIRST]]
// CHECK: %[[FROM:.*]] = arith.select %[[GROWS]], %[[FEW]], %c0
// CHECK: gpu.launch blocks(%[[B:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[CTAS]],
// CHECK: scf.for %[[ROW:.*]] = %c0 to
// CHECK: %[[BEGIN:.*]] = arith.muli %[[ROW]], %[[CTAS]]
// CHECK: %[[NUMBER:.*]] = arith.addi %[[BEGIN]], %{{.*}}
// CHECK: %[[ISMANY:.*]] = arith.cmpi ult, %[[NUMBER]], %[[WHOLE]]
// CHECK: %[[PLACE:.*]] = arith.addi %[[FROM]],
// CHECK: arith.select %[[ISMANY]], %[[PLACE]],
// CHECK: scf.for
func.func @band(%n: index, %m: index, %keys: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%l) {
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%m, 40) : index, index
        %start = affine.max affine_map<(d0) -> (0, d0 * 128 - 1024)>(%p#1)
        %some = affine.min affine_map<(d0)[s0] -> (s0, d0 * 128 + 128)>(%p#1)[%keys]
        %none = arith.cmpi sle, %keys, %start : index
        %end = arith.select %none, %start, %some : index
        scf.for %i = %start to %end step %c1 {
          memref.store %p#0, %X[%i] : memref<?xindex>
        }
      }
    gpu.terminator
  }
  return
}

// Tiles in the order of their work along the first coordinate: the three others of each are one
// group, for no power of two but 1 divides them. Rows of seven of that group, from the other end
// every other time, then what is left.
// CHECK-LABEL: func.func @descending
// CHECK: %[[CTAS:.*]] = arith.minui %[[N:.*]], %c7
// CHECK: %[[OTHERS:.*]] = arith.divui %[[N]], %{{.*}} : index
// CHECK: %[[LOWEST:.*]] = arith.andi %{{.*}}, %{{.*}} : index
// CHECK: %[[GROUPS:.*]] = arith.minui %{{.*}}, %[[LOWEST]] : index
// CHECK: %[[OFGROUP:.*]] = arith.divui %{{.*}}, %[[GROUPS]] : index
// CHECK: %[[SIZE:.*]] = arith.muli %arg1, %[[OFGROUP]] : index
// CHECK: %[[ROWS:.*]] = arith.divui %[[SIZE]], %{{.*}} : index
// CHECK: gpu.launch blocks(%[[B:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[CTAS]],
// CHECK: scf.for %[[STEP:.*]] = %c0 to %{{.*}} step %c1
// CHECK: %[[INROW:.*]] = arith.cmpi ult, %[[STEP]], %{{.*}} : index
// CHECK: %[[NUMBER:.*]] = arith.select %[[INROW]]
// CHECK: %[[GROUP:.*]] = arith.select %[[INROW]]
// CHECK: %[[RANK:.*]] = arith.index_cast %{{.*}} : i32 to index
// CHECK: arith.muli %[[RANK]], %[[OTHERS]] : index
// EACH-LABEL: func.func @descending
func.func @descending(%n: index, %m: index, %lengths: memref<?xindex>, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%l) {
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%m, 3) : index, index
        %end = memref.load %lengths[%p#0] : memref<?xindex>
        scf.for %i = %c0 to %end step %c1 {
          memref.store %p#1, %X[%i] : memref<?xindex>
        }
      }
    gpu.terminator
  } {attn.descending}
  return
}

// Where CTAs share a multiprocessor, one of each seven in a row, and no more arithmetic.
// CHECK-LABEL: func.func @descending_shared
// CHECK: %[[CTAS:.*]] = arith.minui %{{.*}}, %c7
// CHECK: gpu.launch blocks(%[[B:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[CTAS]],
// CHECK: scf.for %[[ROUND:.*]] = %c0 to %{{.*}} step %c1
// CHECK: %[[FIRST:.*]] = arith.muli %[[ROUND]], %[[CTAS]]
// CHECK: %[[TURN:.*]] = arith.select %{{.*}}, %[[B]]
// CHECK: arith.addi %[[FIRST]], %[[TURN]]
// EACH-LABEL: func.func @descending_shared
func.func @descending_shared(%n: index, %m: index, %lengths: memref<?xindex>, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%l) {
      }
      role "compute" warpgroups(2) registers(104) (%w) {
        %p:2 = affine.delinearize_index %bx into (%m, 3) : index, index
        %end = memref.load %lengths[%p#0] : memref<?xindex>
        scf.for %i = %c0 to %end step %c1 {
          memref.store %p#1, %X[%i] : memref<?xindex>
        }
      }
    gpu.terminator
  } {attn.descending}
  return
}

// One role has no copies that could be early: a CTA per tile.
// CHECK-LABEL: func.func @alone
// CHECK: gpu.launch blocks(%[[B:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %arg0,
// CHECK-NOT: scf.for
// CHECK: arith.index_cast %[[B]] : index to i32
// CHECK: scf.for
// CHECK-NOT: scf.for
// EACH-LABEL: func.func @alone
func.func @alone(%n: index, %m: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%m, 3) : index, index
        scf.for %i = %c0 to %m step %c1 {
          memref.store %p#0, %X[%i] : memref<?xindex>
        }
      }
    gpu.terminator
  }
  return
}

// Clusters of two: as many as there are pairs of seven CTAs take the tiles.
// CHECK-LABEL: func.func @clusters
// CHECK: %[[UNITS:.*]] = arith.divui %[[N:.*]], %[[SIZE:[a-z0-9]+]] : index
// CHECK: %[[PAIRS:.*]] = arith.divui %c7, %[[SIZE]]
// CHECK: %[[MOST:.*]] = arith.maxui %[[PAIRS]], %c1
// CHECK: %[[GRID:.*]] = arith.minui %[[UNITS]], %[[MOST]]
// CHECK: %[[CTAS:.*]] = arith.muli %[[GRID]], %[[SIZE]]
// CHECK: gpu.launch clusters(%[[C:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[SIZE]], {{.*}} blocks({{.*}}) in (%{{.*}} = %[[CTAS]],
// CHECK: scf.for %[[TILE:.*]] = %[[C]] to %[[UNITS]] step %[[GRID]]
// CHECK: arith.index_cast %[[TILE]] : index to i32
// EACH-LABEL: func.func @clusters
// EACH: gpu.launch clusters(%[[C:.*]], %{{.*}}, %{{.*}}) in ({{.*}}) blocks({{.*}}) in (%{{.*}} = %arg0,
// EACH: arith.index_cast %[[C]] : index to i32
func.func @clusters(%n: index, %m: index, %size: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch clusters(%cx, %cy, %cz) in (%nx = %size, %ny = %c1, %nz = %c1)
             blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%l) {
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %cx into (%m, 3) : index, index
        memref.store %p#1, %X[%p#0] : memref<?xindex>
      }
    gpu.terminator
  }
  return
}

// What one role does behind another launch: the last tile first.
// CHECK-LABEL: func.func @behind
// CHECK: gpu.launch blocks(%[[B0:[a-z0-9]*]],
// CHECK: memref.store %{{.*}}[%[[B0]]]
// CHECK: gpu.launch blocks(%[[B1:[a-z0-9]*]], %{{[a-z0-9]*}}, %{{[a-z0-9]*}}) in (%[[GRID:[a-z0-9]*]] =
// CHECK: %[[LAST:.*]] = arith.subi %[[GRID]], %c1
// CHECK: %[[TILE:.*]] = arith.subi %[[LAST]], %[[B1]]
// CHECK: arith.index_cast %[[TILE]] : index to i32
// CHECK: memref.store %{{.*}}[%[[TILE]]]
// CHECK-NOT: %[[B1]]
func.func @behind(%n: index, %m: index, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        memref.store %m, %X[%bx] : memref<?xindex>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%m, 3) : index, index
        memref.store %p#0, %X[%bx] : memref<?xindex>
        memref.store %p#1, %X[%c1] : memref<?xindex>
      }
    gpu.terminator
  }
  return
}
