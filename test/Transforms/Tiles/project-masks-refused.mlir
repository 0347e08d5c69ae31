// RUN: attn-opt %s --attn-project-masks --split-input-file --verify-diagnostics

// Zeros are not neutral for a maximum.
func.func @maximum_of_zeros(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-note @below {{in this loop}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    // expected-remark @below {{mask is not projected: expected -inf where the mask is false, got 0}}
    %a1 = vector.multi_reduction <maxnumf>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// exp(0) is not neutral for a sum.
func.func @sum_of_exponents(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-note @below {{in this loop}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    %p = math.exp %m : vector<8x4xf32>
    // expected-remark @below {{mask is not projected: expected 0 where the mask is false, got a value that is not known}}
    %a1 = vector.multi_reduction <add>, %p, %a [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// Products are not folded by masks.
func.func @other_kind(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-note @below {{in this loop}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    // expected-remark @below {{mask is not projected: expected a maximum or a sum, got a reduction whose neutral element is not tracked}}
    %a1 = vector.multi_reduction <mul>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// A contraction needs a factor 0.
func.func @unmasked_factor(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>, %v: vector<4xf32>) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-note @below {{in this loop}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %m = arith.select %keep, %x, %ninf : vector<8x4xi1>, vector<8x4xf32>
    // expected-remark @below {{mask is not projected: expected a factor 0 where the mask is false, got -inf}}
    %a1 = vector.contract {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"], kind = #vector.kind<add>} %m, %v, %a : vector<8x4xf32>, vector<4xf32> into vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// Contractions of another kind are not followed.
func.func @maximum_contraction(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>, %v: vector<4xf32>) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-note @below {{in this loop}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %m = arith.select %keep, %x, %ninf : vector<8x4xi1>, vector<8x4xf32>
    // expected-remark @below {{mask is not projected: expected a contraction that adds}}
    %a1 = vector.contract {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"], kind = #vector.kind<maxnumf>} %m, %v, %a : vector<8x4xf32>, vector<4xf32> into vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// A sum that keeps the lanes is a reduction without an op for it.
func.func @lanes_carried(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8x4xf32>) -> vector<8x4xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-remark @below {{mask is not projected: expected a state without lanes along the loop's tile, got a carried vector that keeps them}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8x4xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    %a1 = arith.addf %a, %m : vector<8x4xf32>
    scf.yield %a1 : vector<8x4xf32>
  } {attn.fold_loop}
  return %s : vector<8x4xf32>
}

// -----

// Tiles must have a known size.
func.func @unknown_step(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>, %n: index) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-remark @below {{mask is not projected: expected a signed index loop with a constant step}}
  %s = scf.for %j0 = %c0 to %S step %n iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// Values loaded per column bound nothing; that takes a table.
func.func @unreadable(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>, %D: tensor<?xi32>, %n32: i32, %n32s: vector<8x4xi32>) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-remark @below {{mask is not projected: expected a comparison that bounds the loop, got none}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %col = vector.transfer_read %D[%j0], %n32 : tensor<?xi32>, vector<4xi32>
    %cols = vector.broadcast %col : vector<4xi32> to vector<8x4xi32>
    %seen = arith.cmpi sgt, %cols, %n32s : vector<8x4xi32>
    %m = arith.select %seen, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// Every third column: no tile of four is empty or full.
func.func @nothing_bounded(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-remark @below {{mask is not projected: no tile is provably empty or full}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %three = arith.constant dense<3> : vector<8x4xindex>
    %one = arith.constant dense<1> : vector<8x4xindex>
    %rem = arith.remui %j, %three : vector<8x4xindex>
    %odd = arith.cmpi eq, %rem, %one : vector<8x4xindex>
    %m = arith.select %odd, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// Scalable vectors have no bounds.
func.func @scalable(%X: tensor<?x?xf32>, %i0: index, %S: index, %init: vector<8xf32>, %sv: vector<[4]xf32>) -> vector<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %is = vector.step : vector<8xindex>
  %ib = vector.broadcast %i0 : index to vector<8xindex>
  %i1 = arith.addi %is, %ib : vector<8xindex>
  // expected-remark @below {{mask is not projected: expected vectors of static size}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init) -> (vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
    %sx = vector.constant_mask [4] : vector<[4]xi1>
    %sz = arith.constant dense<0.0> : vector<[4]xf32>
    %m = arith.select %sx, %sv, %sz : vector<[4]xi1>, vector<[4]xf32>
    %a1 = vector.multi_reduction <add>, %x, %a [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %a1 : vector<8xf32>
  } {attn.fold_loop}
  return %s : vector<8xf32>
}

// -----

// One value for all pairs decides which of two sums gets a term: no tile is empty for both.
func.func @two_sums(%X: tensor<?x?xf32>, %i0: index, %S: index, %flag: i1, %init: vector<8xf32>) -> (vector<8xf32>, vector<8xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %all = vector.broadcast %flag : i1 to vector<8x4xi1>
  // expected-note @below {{in this loop}}
  %s:2 = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %init, %b = %init) -> (vector<8xf32>, vector<8xf32>) {
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
    %m = arith.select %all, %zeros, %x : vector<8x4xi1>, vector<8x4xf32>
    %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
    %n = arith.select %all, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
    // expected-remark @below {{mask is not projected: expected 0 where the mask is false, got a value that is not known}}
    %b1 = vector.multi_reduction <add>, %n, %b [1] : vector<8x4xf32> to vector<8xf32>
    scf.yield %a1, %b1 : vector<8xf32>, vector<8xf32>
  } {attn.fold_loop}
  return %s#0, %s#1 : vector<8xf32>, vector<8xf32>
}

// -----

// A state in memory: what a select leaves of a row is a term of the maximum along the columns.
func.func @term_of_a_state(%X: tensor<?x?xf32>, %j0: index, %R: index, %init: tensor<32xf32>) -> tensor<32xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<4xf32>
  %twos = arith.constant dense<2.0> : vector<4xf32>
  %bound = arith.constant dense<9> : vector<4xindex>
  // expected-note @below {{in this loop}}
  %s = scf.for %i0 = %c0 to %R step %c4 iter_args(%a = %init) -> (tensor<32xf32>) {
    %m = vector.transfer_read %a[%i0], %pad : tensor<32xf32>, vector<4xf32>
    %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<4x8xf32>
    %is = vector.step : vector<4xindex>
    %ib = vector.broadcast %i0 : index to vector<4xindex>
    %i = arith.addi %is, %ib : vector<4xindex>
    %early = arith.cmpi slt, %i, %bound : vector<4xindex>
    %add = arith.select %early, %twos, %zeros : vector<4xi1>, vector<4xf32>
    %addt = vector.broadcast %add : vector<4xf32> to vector<8x4xf32>
    %addx = vector.transpose %addt, [1, 0] : vector<8x4xf32> to vector<4x8xf32>
    %y = arith.addf %x, %addx : vector<4x8xf32>
    // expected-remark @below {{mask is not projected: expected -inf where the mask is false, got a value that is not known}}
    %n = vector.multi_reduction <maxnumf>, %y, %m [1] : vector<4x8xf32> to vector<4xf32>
    %w = vector.transfer_write %n, %a[%i0] : vector<4xf32>, tensor<32xf32>
    scf.yield %w : tensor<32xf32>
  } {attn.fold_loop}
  return %s : tensor<32xf32>
}

// -----

// A state that takes what is read, masked or not.
func.func @state_that_is_read(%X: tensor<?xf32>, %R: index, %init: tensor<32xf32>) -> tensor<32xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<4xf32>
  %bound = arith.constant dense<9> : vector<4xindex>
  // expected-note @below {{in this loop}}
  %s = scf.for %i0 = %c0 to %R step %c4 iter_args(%a = %init) -> (tensor<32xf32>) {
    %m = vector.transfer_read %a[%i0], %pad : tensor<32xf32>, vector<4xf32>
    // expected-remark @below {{mask is not projected: expected a state that follows from its last value and from terms, got a read}}
    %x = vector.transfer_read %X[%i0], %pad : tensor<?xf32>, vector<4xf32>
    %is = vector.step : vector<4xindex>
    %ib = vector.broadcast %i0 : index to vector<4xindex>
    %i = arith.addi %is, %ib : vector<4xindex>
    %early = arith.cmpi slt, %i, %bound : vector<4xindex>
    %t = arith.select %early, %x, %zeros : vector<4xi1>, vector<4xf32>
    %y = arith.addf %t, %m : vector<4xf32>
    %n = arith.addf %y, %x : vector<4xf32>
    %w = vector.transfer_write %n, %a[%i0] : vector<4xf32>, tensor<32xf32>
    scf.yield %w : tensor<32xf32>
  } {attn.fold_loop}
  return %s : tensor<32xf32>
}
