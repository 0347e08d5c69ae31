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

// -----

// Functions that are versions of one beside them; the first one is asked first.
// CHECK-LABEL: func.func @g(
// CHECK:         %[[ONE:.*]] = arith.cmpi eq, %{{.*}}, %c1
// CHECK:         scf.if %[[ONE]] {
// CHECK:           memref.store %{{.*}}, %{{.*}}[%c1{{.*}}]
// CHECK:         } else {
// CHECK:           arith.cmpi ugt
// CHECK:             memref.store %{{.*}}, %{{.*}}[%c2{{.*}}]
// CHECK:             memref.store %{{.*}}, %{{.*}}[%c3{{.*}}]
// CHECK-NOT:   func.func @g_
func.func @g(%x: memref<?xf32>) {
  %c3 = arith.constant 3 : index
  %v = arith.constant 3.0 : f32
  memref.store %v, %x[%c3] : memref<?xf32>
  return
}
func.func @g_0(%x: memref<?xf32>) attributes {attn.version_of = "g", attn.when = [#attn.size<argument = 0, dim = 0, exactly 1>]} {
  %c1 = arith.constant 1 : index
  %v = arith.constant 1.0 : f32
  memref.store %v, %x[%c1] : memref<?xf32>
  return
}
func.func @g_1(%x: memref<?xf32>) attributes {attn.version_of = "g", attn.when = [#attn.size<argument = 0, dim = 0, above 7>]} {
  %c2 = arith.constant 2 : index
  %v = arith.constant 2.0 : f32
  memref.store %v, %x[%c2] : memref<?xf32>
  return
}

// -----

// expected-error@below {{expected the function @nobody, of which this is a version}}
func.func @alone(%x: memref<?xf32>) attributes {attn.version_of = "nobody"} {
  return
}

// -----

func.func @h(%x: memref<?xf32>) {
  return
}
// expected-error@below {{expected a version of type '(memref<?xf32>) -> ()', as the last one has, got '(memref<2xf32>) -> ()'}}
func.func @h_0(%x: memref<2xf32>) attributes {attn.version_of = "h"} {
  return
}
