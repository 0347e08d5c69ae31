// RUN: attn-opt %s --split-input-file | attn-opt --split-input-file | FileCheck %s

// CHECK-LABEL: attn.versions @f {
// CHECK-NEXT: module attributes {attn.when = [#attn.size<argument = 0, dim = 0, at_most 64>, #attn.ordered_sizes<dim = 0, argument 0 at_most argument 1>]} {
// CHECK: }, {
// CHECK-NEXT: module attributes {attn.when = [#hopper.reach, #hopper.resident<132>]} {
// CHECK: }, {
// CHECK-NEXT: module {
attn.versions @f {
  module attributes {attn.when = [#attn.size<argument = 0, dim = 0, at_most 64>,
                                  #attn.ordered_sizes<dim = 0, argument 0 at_most argument 1>]} {
    func.func @f(%x: memref<?xf32>, %y: memref<?xf32>) { return }
  }
}, {
  module attributes {attn.when = [#hopper.reach, #hopper.resident<132>]} {
    func.func @f(%x: memref<?xf32>, %y: memref<?xf32>) { return }
  }
}, {
  module {
    func.func @f(%x: memref<?xf32>, %y: memref<?xf32>) { return }
  }
}

// -----

// A version may itself have versions.
// CHECK-LABEL: attn.versions @g
// CHECK: attn.versions @g
attn.versions @g {
  module {
    attn.versions @g {
      module { func.func @g() { return } }
    }
  }
}
