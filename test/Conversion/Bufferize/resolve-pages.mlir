// RUN: attn-opt %s --pass-pipeline="builtin.module(func.func(attn-resolve-pages))" --split-input-file --verify-diagnostics | FileCheck %s

// A tile of rows from a row that no page begins with, and one element.
// CHECK-LABEL: func @tile(
// CHECK-SAME: %[[POOL:.*]]: memref<?x2x16x64xf32>, %[[TABLE:.*]]: memref<?x?xi32>, %[[USED:.*]]: memref<?xi64>, %[[B:.*]]: index, %[[H:.*]]: index, %[[J:.*]]: index
func.func @tile(%pool: memref<?x2x16x64xf32>, %table: memref<?x?xi32>, %used: memref<?xi64>, %b: index, %h: index, %j: index) -> (vector<24x64xf32>, f32) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  // CHECK: %[[SCRATCH:.*]] = memref.alloca() : memref<24x64xf32>
  // CHECK-NOT: attn.pages
  %k = attn.pages %pool[%table] lengths(%used) : memref<?x2x16x64xf32>, memref<?x?xi32>, memref<?xi64> -> memref<?x2x?x64xf32>
  // CHECK: scf.for %[[R:.*]] = %{{.*}} to %{{.*}} step
  // CHECK: %[[ROW:.*]] = arith.addi %[[J]], %[[R]]
  // CHECK: %[[LENGTH:.*]] = memref.load %[[USED]][%[[B]]]
  // CHECK: arith.minsi
  // CHECK: %[[THERE:.*]] = arith.cmpi slt, %[[ROW]],
  // CHECK: scf.if %[[THERE]] {
  // CHECK: %[[NUMBER:.*]] = arith.divui %[[ROW]],
  // CHECK: %[[ENTRY:.*]] = memref.load %[[TABLE]][%[[B]], %[[NUMBER]]]
  // CHECK: %[[PAGE:.*]] = arith.index_cast %[[ENTRY]]
  // CHECK: %[[IN:.*]] = arith.remui %[[ROW]],
  // CHECK: %[[X:.*]] = vector.transfer_read %[[POOL]][%[[PAGE]], %[[H]], %[[IN]], %{{.*}}], %{{.*}} {in_bounds = [true]} : memref<?x2x16x64xf32>, vector<64xf32>
  // CHECK: vector.transfer_write %[[X]], %[[SCRATCH]][%[[R]],
  // CHECK: } else {
  // CHECK: vector.transfer_write %{{.*}}, %[[SCRATCH]][%[[R]],
  // CHECK: vector.transfer_read %[[SCRATCH]]
  %t = vector.transfer_read %k[%b, %h, %j, %c0], %zero {in_bounds = [false, true]} : memref<?x2x?x64xf32>, vector<24x64xf32>
  // CHECK: scf.if %{{.*}} -> (f32) {
  // CHECK: memref.load %[[POOL]]
  %x = memref.load %k[%b, %h, %j, %c3] : memref<?x2x?x64xf32>
  return %t, %x : vector<24x64xf32>, f32
}

// -----

func.func @copied(%pool: memref<?x2x16x64xf32>, %table: memref<2x3xi32>, %used: memref<2xi32>, %to: memref<2x2x48x64xf32>) {
  // expected-error@below {{'attn.pages' op is read in a way that finds no rows in pages}}
  %k = attn.pages %pool[%table] lengths(%used) : memref<?x2x16x64xf32>, memref<2x3xi32>, memref<2xi32> -> memref<2x2x48x64xf32>
  // expected-note@below {{by 'memref.copy'}}
  memref.copy %k, %to : memref<2x2x48x64xf32> to memref<2x2x48x64xf32>
  return
}
