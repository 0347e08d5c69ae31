// RUN: attn-opt %s -split-input-file -verify-diagnostics

// A name that is none is an error, not ignored.
func.func @misspelled(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{unknown attribute 'attn.fold'}}
  scf.for %i = %c0 to %n step %c1 {
  } {attn.fold}
  return
}

// -----

// expected-error @+1 {{unknown attribute 'attn.nam'}}
func.func @argument(%A: memref<4xf32> {attn.nam = "A"}) {
  return
}

// -----

// expected-error @+1 {{attribute 'attn.name' stands on any, not on a result of a function}}
func.func private @result() -> (memref<4xf32> {attn.name = "A"})

// -----

// expected-error @+1 {{attribute 'attn.loop' stands on affine.for, affine.parallel, attn.fold, not on an argument of a function}}
func.func private @loop_argument(memref<4xf32> {attn.loop = "i"})

// -----

// expected-error @+1 {{attribute 'attn.full' stands on scf.for, not on func.func}}
func.func private @elsewhere() attributes {attn.full}

// -----

func.func @no_unit(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{attribute 'attn.fold_loop' is a unit, got true}}
  scf.for %i = %c0 to %n step %c1 {
  } {attn.fold_loop = true}
  return
}

// -----

func.func @no_string(%A: memref<4xf32>, %x: f32) {
  // expected-error @+1 {{attribute 'attn.loop' is a string, got 1 : i64}}
  affine.for %i = 0 to 4 {
    affine.store %x, %A[%i] : memref<4xf32>
  } {attn.loop = 1}
  return
}

// -----

func.func @no_strings(%e: tensor<8x4xf32>) -> tensor<8x4xf32> {
  // expected-error @+1 {{attribute 'attn.dims' is an array of strings, got ["i", 1]}}
  %k = linalg.exp {attn.dims = ["i", 1]} ins(%e : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %k : tensor<8x4xf32>
}

// -----

// expected-error @+1 {{attribute 'attn.kernels' is an array of symbols, got [1]}}
module attributes {attn.kernels = [1]} {
}

// -----

func.func @block_m(%k: tensor<?x8xf32>, %n: index, %m: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{attribute 'attn.block_m' is an integer of 1 or more, got 0 : i64}}
  %r = attn.fold %n streams(%k : tensor<?x8xf32>) dims [0] carries(%m : tensor<4x8xf32>) {
  ^bb0(%j: index, %block: tensor<?x8xf32>, %state: tensor<4x8xf32>):
    attn.yield %state : tensor<4x8xf32>
  } {attn.block_m = 0} -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

func.func @without_fold(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{'attn.partial' needs 'attn.fold_loop'}}
  scf.for %i = %c0 to %n step %c1 {
  } {attn.partial}
  return
}

// -----

func.func @both(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{'attn.full' excludes 'attn.partial'}}
  scf.for %i = %c0 to %n step %c1 {
  } {attn.fold_loop, attn.full, attn.partial}
  return
}

// -----

func.func @step(%n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-error @+1 {{'attn.tabulated' needs a step of 1: a loop over the entries of a table}}
  scf.for %i = %c0 to %n step %c64 {
  } {attn.fold_loop, attn.tabulated}
  return
}

// -----

func.func @tile_kind(%n: index, %c: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-note @+1 {{this one is neither}}
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @+1 {{'attn.tile_kind' needs a fold loop that is 'attn.partial' or 'attn.tabulated' around it}}
    scf.if %c {
    } {attn.tile_kind}
  } {attn.fold_loop, attn.full}
  return
}

// -----

func.func @guard(%n: index, %c: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-note @+1 {{this one is not}}
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @+1 {{'attn.guard' needs a fold loop that is 'attn.partial' around it}}
    scf.if %c {
    } {attn.guard}
  } {attn.fold_loop}
  return
}

// -----

func.func @rescaling(%x: f32) -> f32 {
  // expected-error @+1 {{'attn.rescaling' needs a product of vectors, got 'f32'}}
  %y = arith.mulf %x, %x {attn.rescaling} : f32
  return %y : f32
}

// -----

func.func @all_rows(%x: vector<64xi1>) -> i1 {
  // expected-error @+1 {{'attn.may_hold' needs a disjunction of rows}}
  %y = vector.reduction <and>, %x {attn.may_hold} : vector<64xi1> into i1
  return %y : i1
}

// -----

func.func @steps(%n: index) {
  // expected-error @+1 {{'attn.descending' needs a tile program on memory whose loops go from 0 in steps of 1}}
  scf.forall (%i) = (0) to (%n) step (2) {
  } {attn.descending}
  return
}
