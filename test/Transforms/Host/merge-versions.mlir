// RUN: attn-opt %s --split-input-file --attn-merge-versions --verify-diagnostics | FileCheck %s

func.func private @short(memref<?xf32>)
func.func private @long(memref<?xf32>)

// What else a version's module holds comes along, under a name that is free.
// CHECK: memref.global "private" @c : memref<2xf32>
// CHECK: memref.global "private" @c_0 : memref<3xf32>
// CHECK-LABEL: func.func @f(
// CHECK-SAME: %[[X:.*]]: memref<?xf32>, %[[Y:.*]]: memref<?xf32>)
// CHECK: %[[NX:.*]] = memref.dim %[[X]], %{{.*}} : memref<?xf32>
// CHECK: %[[FEW:.*]] = arith.cmpi ule, %[[NX]], %c64
// CHECK: scf.if %[[FEW]] {
// CHECK:   memref.load %[[X]]
// CHECK: } else {
// CHECK:   %[[LESS:.*]] = memref.dim %[[X]]
// CHECK:   %[[MORE:.*]] = memref.dim %[[Y]]
// CHECK:   arith.cmpi ule, %[[LESS]], %[[MORE]]
// CHECK:   memref.load %[[Y]]
// CHECK: return
attn.versions @f {
  module attributes {attn.when = [#attn.size<argument = 0, dim = 0, at_most 64>]} {
    memref.global "private" @c : memref<2xf32>
    func.func @f(%x: memref<?xf32>, %y: memref<?xf32>) {
      %c0 = arith.constant 0 : index
      %v = memref.load %x[%c0] : memref<?xf32>
      memref.store %v, %x[%c0] : memref<?xf32>
      return
    }
  }
}, {
  module attributes {attn.when = [#attn.ordered_sizes<dim = 0, argument 0 at_most argument 1>]} {
    memref.global "private" @c : memref<3xf32>
    func.func @f(%x: memref<?xf32>, %y: memref<?xf32>) {
      %c0 = arith.constant 0 : index
      %v = memref.load %y[%c0] : memref<?xf32>
      memref.store %v, %x[%c0] : memref<?xf32>
      return
    }
  }
}, {
  module {
    func.func @f(%x: memref<?xf32>, %y: memref<?xf32>) { return }
  }
}

// -----

// TMA copies nothing here. A version that wants to reach what it copies never runs; one that wants so
// if there is any always does.
// CHECK-LABEL: func.func @never(
// CHECK-NEXT: return
attn.versions @never {
  module attributes {attn.when = [#hopper.reach]} {
    func.func @never(%x: memref<?xf32>) {
      %c0 = arith.constant 0 : index
      %v = memref.load %x[%c0] : memref<?xf32>
      memref.store %v, %x[%c0] : memref<?xf32>
      return
    }
  }
}, {
  module { func.func @never(%x: memref<?xf32>) { return } }
}

// CHECK-LABEL: func.func @g(
// CHECK-NOT: scf.if
// CHECK: memref.load
// CHECK-NOT: memref.dealloc
attn.versions @g {
  module attributes {attn.when = [#hopper.reach_if_any]} {
    func.func @g(%x: memref<?xf32>) {
      %c0 = arith.constant 0 : index
      %v = memref.load %x[%c0] : memref<?xf32>
      memref.store %v, %x[%c0] : memref<?xf32>
      return
    }
  }
}, {
  module {
    func.func @g(%x: memref<?xf32>) {
      %m = memref.alloc() : memref<4xf32>
      memref.dealloc %m : memref<4xf32>
      return
    }
  }
}

// -----

attn.versions @h {
  module attributes {attn.when = [#attn.size<argument = 0, dim = 0, at_most 64>]} {
    // expected-error@below {{expected a version of type '(memref<?xf64>) -> ()', as the last one has, got '(memref<?xf32>) -> ()'}}
    func.func @h(%x: memref<?xf32>) { return }
  }
}, {
  module { func.func @h(%x: memref<?xf64>) { return } }
}
