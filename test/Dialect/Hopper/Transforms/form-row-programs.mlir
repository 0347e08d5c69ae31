// RUN: attn-opt %s --split-input-file -pass-pipeline="builtin.module(func.func(hopper-form-row-programs{threads=64 ctas=2}),canonicalize,cse)" --verify-diagnostics | FileCheck %s
// RUN: attn-opt %s --split-input-file -pass-pipeline="builtin.module(func.func(hopper-form-row-programs{threads=64 parts=3}),canonicalize,cse)" --verify-diagnostics | FileCheck %s --check-prefix=PARTS
// RUN: not attn-opt %s --split-input-file -pass-pipeline="builtin.module(func.func(hopper-form-row-programs{threads=48}))" -o /dev/null 2>&1 | FileCheck %s --check-prefix=OPTIONS
// OPTIONS: error: expected ctas and threads to be powers of two, ctas at most 8, threads 8 to 1024, multiprocessors at least 1, parts at least 0

#rows = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>

// The sum of squares of each row, by which its elements are divided. The row is read once; its
// length chooses the launch.
// CHECK-LABEL: func.func @normalize
// Eight threads for rows of up to 64 elements (16 rows in a CTA) of 8 bytes at a time.
// CHECK: scf.if
// CHECK: gpu.launch blocks({{.*}}) in ({{.*}}) threads({{.*}}) in ({{.*}} = %c128, {{.*}}) {
// CHECK-NOT: gpu.launch
// CHECK: hopper.threads occupancy = 8
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<?xf32{{.*}}>, vector<4xf32>
// CHECK: gpu.shuffle xor
// CHECK: gpu.shuffle xor
// CHECK: gpu.shuffle xor
// CHECK-NOT: gpu.shuffle
// CHECK: hopper.opaque
// CHECK: vector.store {{.*}} {alignment = 16 : i64} : memref<?x?xf32>, vector<4xf32>
// Two warps, which meet in shared memory.
// CHECK: gpu.launch {{.*}} workgroup(%{{.*}} : memref<4xf32, #gpu.address_space<workgroup>>)
// CHECK: gpu.barrier
// CHECK-NOT: hopper.cluster
// Two CTAs, which meet in the first one's and the second one's shared memory.
// CHECK: gpu.launch clusters({{.*}}) in
// CHECK: hopper.cluster.sync
// CHECK: hopper.remote.load
// CHECK: hopper.cluster.arrive
// CHECK: vector.store
// CHECK: hopper.cluster.wait
// Longer rows: parts, of which each stores its sum; then what follows from the sums.
// CHECK: %[[PARTIALS:.*]] = memref.alloc(%{{.*}}, %{{.*}}) : memref<?x?xf32>
// CHECK: gpu.launch
// CHECK: scf.for
// CHECK: memref.store %{{.*}}, %[[PARTIALS]]
// CHECK: gpu.launch
// CHECK: memref.load %[[PARTIALS]]
// CHECK: scf.for
// CHECK: vector.store
// CHECK: memref.dealloc %[[PARTIALS]]
// CHECK-NOT: linalg.generic
// PARTS-LABEL: func.func @normalize
// PARTS-COUNT-2: gpu.launch
// PARTS-NOT: gpu.launch
func.func @normalize(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?x?xf32>
  %s = memref.alloc(%n) : memref<?xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<?xf32>)
  linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<?x?xf32>) outs(%s : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.mulf %a, %a : f32
    %d = arith.addf %b, %c : f32
    linalg.yield %d : f32
  }
  linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : memref<?x?xf32>, memref<?xf32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %d = arith.divf %a, %b : f32
    linalg.yield %d : f32
  }
  memref.dealloc %s : memref<?xf32>
  return
}

// -----

#rows = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>

// A row of known length has one launch, and one for memory that is not aligned.
// CHECK-LABEL: func.func @known
// CHECK: scf.if
// CHECK: gpu.launch
// CHECK: } else {
// CHECK: gpu.launch
// CHECK-NOT: gpu.launch
// PARTS-LABEL: func.func @known
func.func @known(%x: memref<?x64xbf16>, %s: memref<?xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%s : memref<?xf32>)
  linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<?x64xbf16>) outs(%s : memref<?xf32>) {
  ^bb0(%a: bf16, %b: f32):
    %c = arith.extf %a : bf16 to f32
    %d = arith.addf %b, %c : f32
    linalg.yield %d : f32
  }
  return
}

// -----

#rows = affine_map<(i, j) -> (i)>
#columns = affine_map<(i, j) -> (j)>
#all = affine_map<(i, j) -> (i, j)>
func.func @both_ways(%x: memref<?x?xf32>, %s: memref<?xf32>, %t: memref<?xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%s : memref<?xf32>)
  linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<?x?xf32>) outs(%s : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %d = arith.addf %b, %a : f32
    linalg.yield %d : f32
  }
  // expected-error @below {{reduces another loop than the elements of a row}}
  linalg.generic {indexing_maps = [#all, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%x : memref<?x?xf32>) outs(%t : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %d = arith.addf %b, %a : f32
    linalg.yield %d : f32
  }
  return
}

// -----

#all = affine_map<(i, j) -> (i, j)>
func.func @nothing_reduced(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  // expected-error @below {{is of a function that reduces nothing}}
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  }
  return
}

// -----

// expected-error @below {{has no statements}}
func.func @no_statements(%x: memref<?x?xf32>) {
  return
}

// -----

#rows = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
#turned = affine_map<(i, j) -> (j, i)>
func.func @transposed(%x: memref<?x?xf32>, %s: memref<?xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%s : memref<?xf32>)
  // expected-error @below {{has two loops that are one elsewhere: a row would meet itself}}
  linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<?x?xf32>) outs(%s : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %d = arith.addf %b, %a : f32
    linalg.yield %d : f32
  }
  linalg.generic {indexing_maps = [#all, #turned], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<?x?xf32>) outs(%x : memref<?x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  }
  return
}

// -----

#rows = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @wide(%x: memref<?x?xf64>, %s: memref<?xf64>) {
  // expected-error @below {{expected a sum, a product, a maximum or a minimum in f32}}
  linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<?x?xf64>) outs(%s : memref<?xf64>) {
  ^bb0(%a: f64, %b: f64):
    %d = arith.addf %b, %a : f64
    linalg.yield %d : f64
  }
  return
}

// -----

#rows = affine_map<(i, j) -> (i)>
#columns = affine_map<(i, j) -> (j)>
#all = affine_map<(i, j) -> (i, j)>
func.func @shared(%x: memref<?x?xf32>, %t: memref<?xf32>, %s: memref<?xf32>, %u: memref<?xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%s : memref<?xf32>)
  linalg.generic {indexing_maps = [#all, #columns, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x, %t : memref<?x?xf32>, memref<?xf32>) outs(%s : memref<?xf32>) {
  ^bb0(%a: f32, %c: f32, %b: f32):
    %d = arith.mulf %a, %c : f32
    %e = arith.addf %b, %d : f32
    linalg.yield %e : f32
  }
  // expected-error @below {{has a result that rows share}}
  linalg.generic {indexing_maps = [affine_map<(j) -> (j)>, affine_map<(j) -> (j)>], iterator_types = ["parallel"]}
      ins(%t : memref<?xf32>) outs(%u : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  }
  return
}

// -----

#rows = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @seen_between(%x: memref<?x?xf32>, %s: memref<?xf32>, %u: memref<1xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%s : memref<?xf32>)
  %c0 = arith.constant 0 : index
  linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<?x?xf32>) outs(%s : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %d = arith.addf %b, %a : f32
    linalg.yield %d : f32
  }
  // expected-error @below {{accesses memory that statements of rows write}}
  %v = memref.load %s[%c0] : memref<?xf32>
  memref.store %v, %u[%c0] : memref<1xf32>
  return
}

// -----

#rows = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @read_and_written(%x: memref<?x?xf32>, %s: memref<?xf32>, %m: memref<?xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%s : memref<?xf32>)
  linalg.generic {indexing_maps = [#all, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x, %m : memref<?x?xf32>, memref<?xf32>) outs(%s : memref<?xf32>) {
  ^bb0(%a: f32, %c: f32, %b: f32):
    %d = arith.mulf %a, %c : f32
    %e = arith.addf %b, %d : f32
    linalg.yield %e : f32
  }
  // expected-error @below {{writes memory of rows that threads of the same row read}}
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%s : memref<?xf32>) outs(%m : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  }
  return
}
