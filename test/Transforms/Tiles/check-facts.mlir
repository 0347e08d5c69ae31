// RUN: attn-opt %s -split-input-file -verify-diagnostics --attn-check-facts | FileCheck %s
// RUN: attn-opt %S/../Programs/sort-tiles.mlir --attn-sort-tiles | sed "s/, attn.tabulated//" | attn-opt - --attn-check-facts -o /dev/null
// RUN: attn-opt %S/../Programs/branch-by-rows.mlir -split-input-file -pass-pipeline="builtin.module(func.func(attn-branch-by-rows,attn-check-facts))" -o /dev/null

// What attn-project-masks and attn-delay-rescaling leave is true, and stays as it is.
// CHECK-LABEL: func.func @true
// CHECK: } {attn.fold_loop, attn.full}
// CHECK: } {attn.guard}
// CHECK: } {attn.fold_loop, attn.partial}
// CHECK: } {attn.tile_kind}
// CHECK: } {attn.fold_loop, attn.partial}
// CHECK: {attn.rescaling}
func.func @true(%x: vector<8x4xf32>, %keep: vector<8x4xi1>, %n: index, %full: i1, %rows: vector<8xf32>) -> (vector<8xf32>, vector<8x4xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %a = scf.for %j = %c0 to %n step %c4 iter_args(%s = %zero) -> (vector<8xf32>) {
    %s1 = vector.multi_reduction <add>, %x, %s [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %s1 : vector<8xf32>
  } {attn.fold_loop, attn.full}
  %b = scf.for %j = %c0 to %n step %c4 iter_args(%s = %a) -> (vector<8xf32>) {
    %r = scf.if %full -> (vector<8xf32>) {
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %s1 = vector.multi_reduction <add>, %m, %s [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %s1 : vector<8xf32>
    } else {
      scf.yield %s : vector<8xf32>
    } {attn.guard}
    scf.yield %r : vector<8xf32>
  } {attn.fold_loop, attn.partial}
  %c = scf.for %j = %c0 to %n step %c4 iter_args(%s = %b) -> (vector<8xf32>) {
    %m = scf.if %full -> (vector<8x4xf32>) {
      scf.yield %x : vector<8x4xf32>
    } else {
      %m1 = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      scf.yield %m1 : vector<8x4xf32>
    } {attn.tile_kind}
    %s1 = vector.multi_reduction <add>, %m, %s [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %s1 : vector<8xf32>
  } {attn.fold_loop, attn.partial}
  %f = vector.broadcast %rows : vector<8xf32> to vector<4x8xf32>
  %ft = vector.transpose %f, [1, 0] : vector<4x8xf32> to vector<8x4xf32>
  %y = arith.mulf %x, %ft {attn.rescaling} : vector<8x4xf32>
  return %c, %y : vector<8xf32>, vector<8x4xf32>
}

// -----

func.func @full(%x: vector<8x4xf32>, %i: vector<8x4xindex>, %j: vector<8x4xindex>, %n: index) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  // expected-error @+1 {{'attn.full' on a loop with a mask: not all elements of its tiles count}}
  %a = scf.for %t = %c0 to %n step %c4 iter_args(%s = %zero) -> (vector<8xf32>) {
    // expected-note @+1 {{the mask}}
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    %s1 = vector.multi_reduction <add>, %m, %s [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %s1 : vector<8xf32>
  } {attn.fold_loop, attn.full}
  return %a : vector<8xf32>
}

// -----

func.func @no_mask(%x: vector<8x4xf32>, %n: index) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant dense<0.0> : vector<8xf32>
  // expected-error @+1 {{'attn.partial' on a loop without a mask}}
  %a = scf.for %t = %c0 to %n step %c4 iter_args(%s = %zero) -> (vector<8xf32>) {
    %s1 = vector.multi_reduction <add>, %x, %s [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %s1 : vector<8xf32>
  } {attn.fold_loop, attn.partial}
  return %a : vector<8xf32>
}

// -----

// 0 is no neutral element of a maximum.
func.func @not_neutral(%x: vector<8x4xf32>, %keep: vector<8x4xi1>, %n: index, %full: i1) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  // expected-error @+1 {{'attn.partial' on a loop whose iterations may not be left out where its mask keeps nothing}}
  %a = scf.for %t = %c0 to %n step %c4 iter_args(%s = %zero) -> (vector<8xf32>) {
    %m = scf.if %full -> (vector<8x4xf32>) {
      scf.yield %x : vector<8x4xf32>
    } else {
      %m1 = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      scf.yield %m1 : vector<8x4xf32>
    } {attn.tile_kind}
    // expected-note @+1 {{expected -inf where the mask is false, got 0}}
    %s1 = vector.multi_reduction <maxnumf>, %m, %s [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %s1 : vector<8xf32>
  } {attn.fold_loop, attn.partial}
  return %a : vector<8xf32>
}

// -----

// Another mask hides the terms of some columns, not those of this one.
func.func @branch_not_neutral(%x: vector<8x4xf32>, %keep: vector<8x4xi1>, %other: vector<8x4xi1>, %n: index, %full: i1) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  // expected-error @+1 {{'attn.partial' on a loop whose iterations may not be left out where its mask keeps nothing}}
  %a = scf.for %t = %c0 to %n step %c4 iter_args(%s = %zero) -> (vector<8xf32>) {
    %m = scf.if %full -> (vector<8x4xf32>) {
      scf.yield %x : vector<8x4xf32>
    } else {
      %m1 = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      scf.yield %m1 : vector<8x4xf32>
    } {attn.tile_kind}
    %m2 = arith.select %other, %m, %ninf : vector<8x4xi1>, vector<8x4xf32>
    // expected-note @+1 {{expected -inf where the mask is false, got a value that is not known}}
    %s1 = vector.multi_reduction <maxnumf>, %m2, %s [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %s1 : vector<8xf32>
  } {attn.fold_loop, attn.partial}
  return %a : vector<8xf32>
}

// -----

func.func @no_entry(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{'attn.tabulated' on a loop that reads no entry of a table at its variable}}
  scf.for %t = %c0 to %n step %c1 {
  } {attn.fold_loop, attn.tabulated}
  return
}

// -----

// The sides are the wrong way round.
func.func @sides(%x: vector<8x4xf32>, %keep: vector<8x4xi1>, %full: i1) -> vector<8x4xf32> {
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  // expected-error @+1 {{'attn.tile_kind' on a branch with 1 masks for full tiles and 0 for others; expected fewer}}
  %m = scf.if %full -> (vector<8x4xf32>) {
    %m1 = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    scf.yield %m1 : vector<8x4xf32>
  } else {
    scf.yield %x : vector<8x4xf32>
  } {attn.tile_kind}
  return %m : vector<8x4xf32>
}

// -----

func.func @guard(%x: vector<8xf32>, %keep: vector<8xi1>, %n: index, %some: i1) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %a = scf.for %t = %c0 to %n step %c4 iter_args(%s = %zero) -> (vector<8xf32>) {
    // expected-error @+1 {{'attn.guard' on a branch whose other side changes the state}}
    %r = scf.if %some -> (vector<8xf32>) {
      %m = arith.select %keep, %x, %zero : vector<8xi1>, vector<8xf32>
      %s1 = arith.addf %m, %s : vector<8xf32>
      scf.yield %s1 : vector<8xf32>
    } else {
      scf.yield %zero : vector<8xf32>
    } {attn.guard}
    scf.yield %r : vector<8xf32>
  } {attn.fold_loop, attn.partial}
  return %a : vector<8xf32>
}

// -----

func.func @rescaling(%x: vector<8x4xf32>, %rows: vector<8xf32>) -> vector<8x4xf32> {
  %f = vector.broadcast %rows : vector<8xf32> to vector<4x8xf32>
  %ft = vector.transpose %f, [1, 0] : vector<4x8xf32> to vector<8x4xf32>
  // expected-error @+1 {{'attn.rescaling' on a product whose second factor is not one for each row}}
  %y = arith.mulf %ft, %x {attn.rescaling} : vector<8x4xf32>
  return %y : vector<8x4xf32>
}

// -----

func.func @descending(%n: index, %X: memref<?xindex>) {
  // expected-error @+1 {{'attn.descending' on a program whose tiles are in no order that was sorted}}
  scf.forall (%i) in (%n) {
    memref.store %n, %X[%i] : memref<?xindex>
  } {attn.descending}
  return
}

// -----

func.func @may_hold(%is: vector<64xi1>, %rare: vector<64xf32>, %usual: vector<64xf32>) -> vector<64xf32> {
  // expected-error @+1 {{'attn.may_hold' on a question whose answer is taken for that of each row}}
  %some = vector.reduction <or>, %is {attn.may_hold} : vector<64xi1> into i1
  // expected-note @+1 {{here}}
  %p = scf.if %some -> (vector<64xf32>) {
    scf.yield %rare : vector<64xf32>
  } else {
    scf.yield %usual : vector<64xf32>
  }
  return %p : vector<64xf32>
}
