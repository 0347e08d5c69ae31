// RUN: split-file %s %t
// DEFINE: %{parts} = 4
// DEFINE: %{more} =
// DEFINE: %{launch} = attn-opt -pass-pipeline='builtin.module(func.func(hopper-launch-loops{threads=64 parts=%{parts} %{more}},canonicalize,cse))'

// Parts in shared memory; the cluster meets before they are merged, and before its CTAs end.
// RUN: sed s/TREATMENT/cluster_reduction/ %t/sum.mlir | %{launch} | FileCheck %s --check-prefix=CLUSTER
// CLUSTER-LABEL: @sum
// CLUSTER:       gpu.launch clusters({{.*}}) in ({{%.*}} = %c4,
// CLUSTER-SAME:    workgroup(%[[CELLS:.*]] : memref<2xf32, #gpu.address_space<workgroup>>, %[[PART:.*]] : memref<1xf32, #gpu.address_space<workgroup>>)
// CLUSTER:         %[[OWN:.*]] = memref.alloca() : memref<f32>
// CLUSTER:         hopper.threads
// CLUSTER:         scf.for {{.*}} step %c256
// CLUSTER:           memref.store {{.*}}, %[[OWN]][]
// CLUSTER:         gpu.shuffle xor
// CLUSTER:         memref.store {{.*}}, %[[CELLS]]
// CLUSTER:         gpu.barrier
// CLUSTER:         scf.if
// CLUSTER-NEXT:      memref.store {{.*}}, %[[PART]][%c0]
// CLUSTER:         hopper.cluster.sync
// CLUSTER:           memref.load %arg1
// CLUSTER:           hopper.remote.load %[[PART]]
// CLUSTER:           memref.store {{.*}}, %arg1
// CLUSTER:         hopper.cluster.sync
// CLUSTER-NEXT:    gpu.terminator

// One meeting of the grid, also for teams without a row.
// RUN: sed s/TREATMENT/grid_phases/ %t/sum.mlir | %{launch} | FileCheck %s --check-prefix=PHASES
// PHASES-LABEL: @sum
// PHASES:       %[[PARTS:.*]] = memref.alloc() : memref<32xf32>
// PHASES:       %[[COUNTER:.*]] = memref.alloc() : memref<1xi32>
// PHASES:       gpu.launch
// PHASES:         memref.store %c0_i32, %[[COUNTER]]
// PHASES:       gpu.launch blocks({{.*}}) in ({{%.*}} = %c32,
// PHASES:         hopper.threads occupancy = 1
// PHASES:         scf.if
// PHASES:           memref.store {{.*}}, %[[PARTS]]
// PHASES:           hopper.grid.sync %[[COUNTER]]
// PHASES:           memref.load %[[PARTS]]
// PHASES:           memref.store {{.*}}, %arg1
// PHASES:         } else {
// PHASES-NEXT:      hopper.grid.sync %[[COUNTER]]
// PHASES-NEXT:    }
// PHASES-NEXT:    gpu.terminator
// PHASES-NEXT:  } {hopper.cooperative}

// More rows than teams that run at a time: parts are read before they are written again.
// REDEFINE: %{more} = ctas=8
// RUN: sed s/TREATMENT/grid_phases/ %t/sum.mlir | %{launch} | FileCheck %s --check-prefix=TURNS
// TURNS:        scf.for %[[BASE:.*]] = %c0 to %c8 step %c2
// TURNS:          hopper.grid.sync
// TURNS:          } else {
// TURNS-NEXT:       hopper.grid.sync
// TURNS-NEXT:     }
// TURNS-NEXT:     %[[NEXT:.*]] = arith.addi %[[BASE]], %c2
// TURNS-NEXT:     arith.cmpi slt, %[[NEXT]], %c8
// TURNS-NEXT:     scf.if
// TURNS-NEXT:       hopper.grid.sync
// REDEFINE: %{more} =

// Turns: what carries nothing is in front of the wait.
// RUN: sed s/TREATMENT/ordered_turnstile/ %t/sum.mlir | %{launch} | FileCheck %s --check-prefix=ORDERED
// ORDERED:      scf.for %[[J:.*]] = %[[MEMBER:.*]] to %c128 step %c4
// ORDERED-NEXT:   memref.load %arg0
// ORDERED:        scf.if
// ORDERED:          hopper.semaphore.wait %[[FLAGS:.*]][%[[ROW:.*]]],
// ORDERED:        gpu.barrier
// ORDERED-NEXT:   memref.load %arg1
// ORDERED-NEXT:   arith.addf
// ORDERED:          memref.store {{.*}}, %arg1
// ORDERED:          hopper.semaphore.release %[[FLAGS]][%[[ROW]]],
// ORDERED-NOT:    gpu.barrier
// ORDERED:      } {hopper.cooperative}

// Two launches, or one in which the last CTA merges.
// RUN: sed s/TREATMENT/partial_and_merge/ %t/sum.mlir | %{launch} | FileCheck %s --check-prefix=LAUNCHES
// LAUNCHES:       gpu.launch
// LAUNCHES:         memref.store {{.*}}, %[[PARTS:.*]][{{.*}}] : memref<32xf32>
// LAUNCHES:         gpu.terminator
// LAUNCHES:       gpu.launch
// LAUNCHES:         memref.load %[[PARTS]]
// LAUNCHES:         memref.store {{.*}}, %arg1
// REDEFINE: %{more} = merge=last
// RUN: sed s/TREATMENT/partial_and_merge/ %t/sum.mlir | %{launch} | FileCheck %s --check-prefix=LAST
// LAST:           gpu.launch
// LAST:           gpu.launch
// LAST:             memref.store {{.*}}, %[[PARTS:.*]][{{.*}}] : memref<32xf32>
// LAST:             %[[LAST:.*]] = hopper.last_arrival %[[COUNTERS:.*]][%[[ROW:.*]]] of %c4
// LAST-NEXT:        scf.if %[[LAST]]
// LAST:               memref.load %[[PARTS]]
// LAST-NOT:       gpu.launch
// REDEFINE: %{more} =

// RUN: sed s/TREATMENT/atomics/ %t/sum.mlir | %{launch} | FileCheck %s --check-prefix=ATOMICS
// ATOMICS-NOT:    memref.alloc()
// ATOMICS:        gpu.launch
// ATOMICS:          memref.atomic_rmw addf {{.*}}, %arg1

// A row of a thread; one of a CTA, whose threads divide the columns, and meet where one of them sees
// what others have stored.
// REDEFINE: %{parts} = 0
// RUN: sed s/TREATMENT/owner_computes/ %t/sum.mlir | %{launch} --remarks-filter=hopper-launch-loops > %t/thread.mlir 2> %t/remarks
// RUN: cat %t/remarks %t/thread.mlir | FileCheck %s --check-prefix=THREAD
// THREAD:       remark: [Passed] launched | Category:hopper-launch-loops | Launches=1, Team=thread
// THREAD:       gpu.launch blocks({{.*}}) in ({{%.*}} = %c1,
// THREAD:         scf.if
// THREAD-NEXT:      scf.for %{{.*}} = %c0 to %c128
// THREAD-NOT:     gpu.barrier
// RUN: %{launch} %t/columns.mlir | FileCheck %s --check-prefix=CTA
// CTA:          gpu.launch blocks({{.*}}) in ({{%.*}} = %c8,
// CTA:            scf.for %{{.*}} = %c0 to %c4
// CTA-NEXT:         memref.load %arg1
// CTA:              scf.for %{{.*}} = %arg{{[0-9]+}} to %c128 step %c64
// CTA:                memref.store {{.*}}, %arg2
// CTA:              gpu.barrier
// CTA-NEXT:         memref.load %arg2
// CTA:              scf.if
// CTA-NEXT:           memref.store {{.*}}, %arg1
// CTA:              gpu.barrier
// CTA-NEXT:       }

// What a row has read before the launch ends is kept, or read again where nothing has changed it; what
// follows from it is computed again.
// REDEFINE: %{parts} = 4
// RUN: %{launch} %t/kept.mlir | FileCheck %s --check-prefix=KEPT
// KEPT:         %[[KEPT:.*]] = memref.alloc() : memref<8xf32>
// KEPT:         gpu.launch
// KEPT:           memref.store {{.*}}, %[[KEPT]]
// KEPT:         gpu.launch
// KEPT:           %[[FIRST:.*]] = memref.load %[[KEPT]]
// KEPT-NEXT:      math.exp %[[FIRST]]
// KEPT-NEXT:      memref.load %arg2
// KEPT:         memref.dealloc %[[KEPT]]

// A parallel loop around a divided one is run in order: the team divides the inner one.
// RUN: %{launch} %t/inside.mlir | FileCheck %s --check-prefix=INSIDE
// INSIDE:       scf.for %{{.*}} = %c0 to %c4 step %c1
// INSIDE:         scf.for %{{.*}} to %c128 step %c256
// INSIDE:         hopper.cluster.sync
// INSIDE:         hopper.remote.load
// INSIDE:         hopper.cluster.sync
// INSIDE-NEXT:  }

//--- sum.mlir
func.func @sum(%A: memref<8x128xf32>, %S: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 128 {
      %a = affine.load %A[%i, %j] : memref<8x128xf32>
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
    } {attn.treatment = "TREATMENT"}
  } {attn.treatment = "parallel"}
  return
}

//--- columns.mlir
func.func @columns(%A: memref<8x4x128xf32>, %m: memref<8xf32>, %S: memref<8x128xf32>) {
  affine.for %i = 0 to 8 {
    affine.for %k = 0 to 4 {
      %x = affine.load %m[%i] : memref<8xf32>
      affine.for %j = 0 to 128 {
        %a = affine.load %A[%i, %k, %j] : memref<8x4x128xf32>
        %s = affine.load %S[%i, %j] : memref<8x128xf32>
        %p = arith.mulf %s, %x : f32
        %t = arith.addf %p, %a : f32
        affine.store %t, %S[%i, %j] : memref<8x128xf32>
      }
      %y = affine.load %S[%i, 0] : memref<8x128xf32>
      affine.store %y, %m[%i] : memref<8xf32>
    }
  }
  return
}

//--- kept.mlir
func.func @kept(%A: memref<8x128xf32>, %S: memref<8xf32>, %B: memref<8xf32>, %C: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %first = affine.load %S[%i] : memref<8xf32>
    %e = math.exp %first : f32
    %b = affine.load %B[%i] : memref<8xf32>
    affine.for %j = 0 to 128 {
      %a = affine.load %A[%i, %j] : memref<8x128xf32>
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
    } {attn.treatment = "partial_and_merge"}
    %c = arith.mulf %e, %b : f32
    affine.store %c, %C[%i] : memref<8xf32>
  } {attn.treatment = "parallel"}
  return
}

//--- inside.mlir
func.func @inside(%A: memref<8x4x128xf32>, %S: memref<8x4xf32>, %T: memref<8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    affine.store %x, %T[%i] : memref<8xf32>
    affine.for %k = 0 to 4 {
      affine.for %j = 0 to 128 {
        %a = affine.load %A[%i, %k, %j] : memref<8x4x128xf32>
        %s = affine.load %S[%i, %k] : memref<8x4xf32>
        %t = arith.addf %s, %a : f32
        affine.store %t, %S[%i, %k] : memref<8x4xf32>
      } {attn.treatment = "cluster_reduction"}
    } {attn.treatment = "parallel"}
  } {attn.treatment = "parallel"}
  return
}
