// RUN: attn-opt %s --hopper-create-versions | FileCheck %s
// RUN: attn-opt %s --hopper-create-versions=order=m_outer | FileCheck %s --check-prefix=ROWS
// RUN: attn-opt %s --hopper-create-versions=divide-sums=false | FileCheck %s --check-prefix=WHOLE

// Where there are no more rows than keys each row has its own key: a version that need not look
// for others stands in front of the one that must. Each comes with its sums in one pass, then with
// a pass for each.
// CHECK-LABEL: attn.versions @narrow
// CHECK: attn.when = [#attn.ordered_sizes<dim = 2, argument 0 at_most argument 1>], hopper.nests = #hopper.nests<gradient = true>
// CHECK: rows_have_keys
// CHECK: attn.when = [#attn.ordered_sizes<dim = 2, argument 0 at_most argument 1>], hopper.nests = #hopper.nests<sums = apart, gradient = true>
// CHECK: module attributes {hopper.nests = #hopper.nests<gradient = true>
// CHECK-NOT: rows_have_keys
// CHECK: module attributes {hopper.nests = #hopper.nests<sums = apart, gradient = true>
// ROWS-LABEL: attn.versions @narrow
// ROWS-NOT: #hopper.nests<gradient = true>
// ROWS: attn.versions @wide
func.func @narrow(%q: tensor<1x2x?x64xbf16>, %k: tensor<1x2x?x64xbf16>, %lse: tensor<1x2x?xf32>) -> (tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %past = arith.cmpi sle, %j, %i : index
      %c3 = arith.constant 3 : index
      %far = arith.subi %i, %j : index
      %near = arith.cmpi sle, %far, %c3 : index
      %keep = arith.andi %past, %near : i1
      attn.yield %keep : i1
    }
    : tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?xf32>
    -> tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>
  return %dq, %dk, %dv : tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>
}

// Sums of 384 columns are more than a warpgroup holds: in two roles first, then in two kernels.
// CHECK-LABEL: attn.versions @wide
// CHECK: #hopper.nests<sums = apart, columns = 512, gradient = true>
// CHECK: #hopper.nests<sums = apart, gradient = true>
// WHOLE-LABEL: attn.versions @wide
// WHOLE-NOT: columns = 512
func.func @wide(%q: tensor<1x2x?x192xbf16>, %k: tensor<1x2x?x192xbf16>, %lse: tensor<1x2x?xf32>) -> (tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %past = arith.cmpi sle, %j, %i : index
      %c3 = arith.constant 3 : index
      %far = arith.subi %i, %j : index
      %near = arith.cmpi sle, %far, %c3 : index
      %keep = arith.andi %past, %near : i1
      attn.yield %keep : i1
    }
    : tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>, tensor<1x2x?xf32>
    -> tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>
  return %dq, %dk, %dv : tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>
}

// A sink is the first term of the sums: maxima run on.
// CHECK-LABEL: attn.versions @sink
// CHECK: hopper.running_maxima
func.func @sink(%q: tensor<1x2x?x64xbf16>, %sink: tensor<2xf32>) -> tensor<1x2x?x64xbf16> {
  %o = attn.forward %q, %q, %q sink(%sink : tensor<2xf32>)
    : tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16> -> tensor<1x2x?x64xbf16>
  return %o : tensor<1x2x?x64xbf16>
}

// What is declared only is left alone.
// CHECK: func.func private @declared()
func.func private @declared()
