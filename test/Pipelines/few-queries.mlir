// The keys of a forward of few rows in parts, where a call has more than one, or where that is asked for.
// RUN: attn-opt %s -split-input-file --hopper-form-nests --hopper-select-schedule=order=split_kv | FileCheck %s
// RUN: attn-opt %s -split-input-file --hopper-form-nests --hopper-select-schedule=parts=3 | FileCheck %s --check-prefix=THREE
// RUN: attn-opt %s -split-input-file --hopper-form-nests --hopper-select-schedule | FileCheck %s --check-prefix=EITHER
// RUN: attn-opt %s -split-input-file --attn-lower-to-hopper | FileCheck %s --check-prefix=LAUNCHES
// RUN: not attn-opt %s -split-input-file --hopper-form-nests --hopper-select-schedule="order=m_outer parts=2" 2>&1 | FileCheck %s --check-prefix=CLASH
// RUN: not attn-opt %s -split-input-file --hopper-form-nests --hopper-select-schedule="order=split_kv parts=1" 2>&1 | FileCheck %s --check-prefix=CLASH
// RUN: not attn-opt %s -split-input-file --hopper-form-nests --hopper-select-schedule="order=split_kv ctas=0" 2>&1 | FileCheck %s --check-prefix=CTAS
// RUN: not attn-opt %s -split-input-file --attn-differentiate --attn-lower-to-hopper=order=split_kv -o /dev/null 2>&1 | FileCheck %s --check-prefix=GRADIENT

// CLASH: error: schedule option 'parts={{[12]}}' does not fit to 'order={{m_outer|split_kv}}'
// CTAS: error: a number of parts that sizes give needs 'ctas', which it fills
// GRADIENT: error: schedule option 'order=split_kv' is of forwards; gradients have the orders m_outer and n_outer

// CHECK: #hopper.schedule<block_m = 64, block_n = 128, parts = 0,
// THREE: #hopper.schedule<block_m = 64, block_n = 128, parts = 3,
// EITHER-LABEL: attn.versions @decode
// EITHER: attn.when = [#attn.divided], hopper.schedule = #hopper.schedule<block_m = 64, block_n = 128, parts = 0,
// EITHER: arith.constant
// EITHER: module attributes {hopper.schedule = #hopper.schedule<block_m = 64, block_n = 128, output
// Parts and their merge, or all keys at once.
// LAUNCHES-LABEL: func.func @decode
// LAUNCHES: %[[IS_DIVIDED:.*]] = arith.cmpi ugt, %{{.*}}, %c1{{.*}} : index
// LAUNCHES: scf.if %[[IS_DIVIDED]] {
// LAUNCHES-COUNT-2: gpu.launch
// LAUNCHES: } else {
// LAUNCHES: gpu.launch
func.func @decode(%q: tensor<?x?x1x128xbf16>, %k: tensor<?x?x?x128xbf16>, %v: tensor<?x?x?x128xbf16>) -> tensor<?x?x1x128xbf16> {
  %o = attn.forward %q, %k, %v : tensor<?x?x1x128xbf16>, tensor<?x?x?x128xbf16>, tensor<?x?x?x128xbf16> -> tensor<?x?x1x128xbf16>
  return %o : tensor<?x?x1x128xbf16>
}

// -----

// A table lists the tiles of this mask: a launch makes it, and each part takes its share of the list.
// LAUNCHES-LABEL: func.func @documents
// LAUNCHES: scf.if
// LAUNCHES-COUNT-3: gpu.launch
// LAUNCHES: } else {
// LAUNCHES-COUNT-2: gpu.launch
func.func @documents(%q: tensor<?x?x1x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>, %t: tensor<?xi32>)
    -> tensor<?x?x1x64xbf16> {
  %o = attn.forward %q, %k, %v captures(%t : tensor<?xi32>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %d: tensor<?xi32>):
      %x = tensor.extract %d[%i] : tensor<?xi32>
      %y = tensor.extract %d[%j] : tensor<?xi32>
      %keep = arith.cmpi eq, %x, %y : i32
      attn.yield %keep : i1
    } : tensor<?x?x1x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16> -> tensor<?x?x1x64xbf16>
  return %o : tensor<?x?x1x64xbf16>
}

// -----

// 17 rows are many; as many as there are may be many.
// EITHER-LABEL: func.func @seventeen
// EITHER-LABEL: func.func @dynamic
// EITHER-NOT: attn.divided
func.func @seventeen(%q: tensor<?x?x17x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>) -> tensor<?x?x17x64xbf16> {
  %o = attn.forward %q, %k, %v : tensor<?x?x17x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16> -> tensor<?x?x17x64xbf16>
  return %o : tensor<?x?x17x64xbf16>
}

// -----

func.func @dynamic(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16> {
  %o = attn.forward %q, %k, %v : tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16> -> tensor<?x?x?x64xbf16>
  return %o : tensor<?x?x?x64xbf16>
}
