// RUN: attn-opt %s --attn-count-tiles --split-input-file --verify-diagnostics | FileCheck %s

// One call per tile: in the innermost fold loop, with the kind of the loop, and
// inside of the tests that a loop makes on its tiles.
// CHECK: func.func private @attnRuntimeCountTile(i32)
// CHECK-LABEL: func @kinds
func.func @kinds(%n: index, %c: i1, %x: f32) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  // CHECK: scf.for
  // CHECK-NEXT: %[[FULL:.*]] = arith.constant 1 : i32
  // CHECK-NEXT: func.call @attnRuntimeCountTile(%[[FULL]])
  scf.for %j = %c0 to %n step %c4 {
  } {attn.fold_loop, attn.full}
  // CHECK: scf.for
  // CHECK-NEXT: %[[MASKED:.*]] = arith.constant 0 : i32
  // CHECK-NEXT: func.call @attnRuntimeCountTile(%[[MASKED]])
  scf.for %j = %c0 to %n step %c4 {
  } {attn.fold_loop, attn.partial}
  // CHECK: scf.for
  // CHECK-NEXT: scf.if
  // CHECK-NEXT: arith.constant 0
  // CHECK-NEXT: call @attnRuntimeCountTile
  scf.for %j = %c0 to %n step %c4 {
    scf.if %c {
    } {attn.guard}
  } {attn.fold_loop, attn.partial}
  // CHECK: scf.for
  // CHECK-NEXT: scf.if
  // CHECK-NEXT: arith.constant 1
  // CHECK-NEXT: call @attnRuntimeCountTile
  // CHECK: else
  // CHECK-NEXT: arith.constant 0
  // CHECK-NEXT: call @attnRuntimeCountTile
  %r = scf.for %j = %c0 to %n step %c1 iter_args(%a = %x) -> (f32) {
    %b = scf.if %c -> (f32) {
      scf.yield %a : f32
    } else {
      scf.yield %x : f32
    } {attn.tile_kind}
    scf.yield %b : f32
  } {attn.fold_loop, attn.tabulated}
  // CHECK: scf.for
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: arith.constant 0
  // CHECK-NEXT: call @attnRuntimeCountTile
  // CHECK-NOT: call
  scf.for %i = %c0 to %n step %c4 {
    scf.for %j = %c0 to %n step %c4 {
    } {attn.fold_loop}
  } {attn.fold_loop}
  return %r : f32
}

// -----

// Nothing is declared where nothing is counted.
// CHECK-LABEL: func @no_fold
// CHECK-NOT: attnRuntimeCountTile
func.func @no_fold() {
  return
}

// -----

// expected-error @below {{expected @attnRuntimeCountTile to be a function of type '(i32) -> ()'}}
func.func private @attnRuntimeCountTile(i64)
func.func @other_type(%n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  scf.for %j = %c0 to %n step %c4 {
  } {attn.fold_loop}
  return
}
