// RUN: split-file %s %t
// RUN: attn-opt %t/softmax.mlir --attn-lower-to-hopper --remarks-filter='hopper-create-versions|hopper-form-row-programs|attn-lower-to-hopper' 2>%t/remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARKS --input-file %t/remarks
// RUN: attn-opt %t/softmax.mlir --attn-lower-to-hopper="row-programs=false" | FileCheck %s --check-prefix=TILES
// RUN: attn-opt %t/softmax.mlir --attn-lower-to-hopper="block-m=64" | FileCheck %s --check-prefix=TILES
// RUN: not attn-opt %t/softmax.mlir --attn-lower-to-hopper="row-programs=true block-m=64" 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: not attn-opt %t/softmax.mlir --attn-lower-to-hopper="row-programs=perhaps" 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: not attn-opt %t/softmax.mlir --attn-lower-to-hopper="row-ctas=16" 2>&1 | FileCheck %s --check-prefix=CTAS
// RUN: attn-opt %t/columns.mlir --attn-lower-to-hopper --remarks-filter=attn-lower-to-hopper 2>%t/left | FileCheck %s --check-prefix=TILES
// RUN: FileCheck %s --check-prefix=LEFT --input-file %t/left
// RUN: not attn-opt %t/columns.mlir --attn-lower-to-hopper="row-programs=true" 2>&1 | FileCheck %s --check-prefix=ONLY
// RUN: not attn-opt %t/attention.mlir --attn-lower-to-hopper="row-threads=64" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: attn-run %t/softmax.mlir --target=sm_90 --emit=ptx | FileCheck %s --check-prefix=PTX

// Programs of threads for all lengths, one function of the host.
// CHECK-LABEL: func.func @main
// CHECK-NOT: attn.versions
// CHECK-NOT: hopper.roles
// CHECK-COUNT-14: hopper.threads
// CHECK-NOT: hopper.roles
// REMARKS-DAG: [Passed] versions
// REMARKS-DAG: [Passed] formed {{.*}} CTAs=8, Rows=1, Threads=512
// TILES: hopper.roles
// TILES-NOT: hopper.threads
// BOTH: error: schedule option 'row-programs=true' excludes those of tiles (block-m, block-n, stages, order, parts)
// WORD: error: schedule option 'row-programs' is one of auto, true, false; got 'perhaps'
// CTAS: error: schedule options 'row-threads' and 'row-ctas' are powers of two, 8 to 1024 and 1 to 8, and 'row-parts' is 0 or more
// LEFT: [Missed] left-out {{.*}} reduces another loop than the elements of a row
// ONLY: error: 'linalg.generic' op reduces another loop than the elements of a row
// NONE: error: schedule option 'row-threads' is of functions that only reduce rows, as row programs

// 16 bytes at a time, and registers for 1,024 threads of a multiprocessor.
// PTX: .maxntid 128
// PTX: .minnctapersm 8
// PTX: ld.global.v4
// PTX: shfl.sync.bfly
// PTX: st.global.v4

//--- softmax.mlir
func.func @main(%x: tensor<?x?xbf16>) -> tensor<?x?xbf16> {
  %y = attn.softmax %x : tensor<?x?xbf16>
  return %y : tensor<?x?xbf16>
}

//--- columns.mlir
// Sums of rows, and of columns.
func.func @main(%x: tensor<?x?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?xf32>
  %er = tensor.empty(%n) : tensor<?xf32>
  %ec = tensor.empty(%m) : tensor<?xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
  %zc = linalg.fill ins(%zero : f32) outs(%ec : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%zr : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %b, %a : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<?x?xf32>) outs(%zc : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %b, %a : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %r, %c : tensor<?xf32>, tensor<?xf32>
}

//--- attention.mlir
func.func @main(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16> {
  %o = attn.forward %q, %k, %v : tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16> -> tensor<?x?x?x64xbf16>
  return %o : tensor<?x?x?x64xbf16>
}
