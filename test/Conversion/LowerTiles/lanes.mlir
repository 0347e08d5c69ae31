// RUN: attn-opt %s --attn-lower-tiles=vector-bits=128 --canonicalize --cse --split-input-file | FileCheck %s
// The backward of attention without its exponential. Four contractions keep the
// keys and one reduces them: that one, of dQ, has the lanes of d.

#q = affine_map<(i,j,d)->(i,d)>
#k = affine_map<(i,j,d)->(j,d)>
#s = affine_map<(i,j,d)->(i,j)>

// The keys are transposed once for the scores. For dQ they are read where they
// lie, or from a copy where the tile is not inside: that choice, too, is made
// once, outside of the loop. dQ itself is read and written in memory, dK and dV
// are transposed in registers.
// CHECK-LABEL: func @in_memory
// CHECK-SAME:    %[[Q:[^:]*]]: memref<?x4xf32>, %[[K:[^:]*]]: memref<?x4xf32>, %[[V:[^:]*]]: memref<?x4xf32>, %[[DO:[^:]*]]: memref<?x4xf32>
// CHECK-SAME:    %[[DQ:[^:]*]]: memref<?x4xf32>, %[[DK:[^:]*]]: memref<?x4xf32>, %[[DV:[^:]*]]: memref<?x4xf32>
// CHECK:         vector.maskedload %[[K]]
// CHECK:         vector.shuffle
// CHECK:         vector.store %{{.*}}, %[[KT:.*]][%c0, %{{.*}}] : memref<4x8xf32>, vector<4xf32>
// CHECK:         %[[IN:.*]] = arith.cmpi sle
// CHECK:         %[[KV:.*]] = scf.if %[[IN]] -> (memref<8x4xf32, strided<[?, 1], offset: ?>>)
// CHECK:           memref.subview %[[K]]
// CHECK:         } else {
// CHECK:           vector.maskedload %[[K]]
// CHECK:         scf.for %[[I:.*]] = %c0 to
// CHECK-NOT:       scf.if
// CHECK-NOT:       vector.shuffle
// CHECK:           %[[QV:.*]] = memref.subview %[[Q]]
// CHECK:           vector.load %[[KT]]
// CHECK:           memref.load %[[QV]]
// CHECK:           %[[GV:.*]] = memref.subview %[[DO]]
// CHECK:           memref.load %[[GV]]
// CHECK-NOT:       memref.subview
// CHECK:           arith.mulf
// CHECK:           vector.store %{{.*}}, %[[DS:.*]][%{{.*}}] : memref<4x8xf32>, vector<4xf32>
// CHECK:           vector.load %[[KV]][%{{.*}}, %c0] {{.*}}, vector<4xf32>
// CHECK:           memref.load %[[DS]]
// CHECK:           vector.load %[[DQ]]
// CHECK:           vector.store %{{.*}}, %[[DQ]]
// CHECK:         } {attn.fold_loop}
// CHECK-COUNT-8: vector.shuffle
// CHECK:         vector.store %{{.*}}, %[[DK]]{{.*}}, vector<4xf32>
// CHECK-COUNT-8: vector.shuffle
// CHECK:         vector.store %{{.*}}, %[[DV]]{{.*}}, vector<4xf32>
func.func @in_memory(%q: memref<?x4xf32>, %k: memref<?x4xf32>, %v: memref<?x4xf32>, %do: memref<?x4xf32>, %dq: memref<?x4xf32>, %dk: memref<?x4xf32>, %dv: memref<?x4xf32>, %j: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zs = arith.constant dense<0.0> : vector<4x8xf32>
  %zk = arith.constant dense<0.0> : vector<8x4xf32>
  %w = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x4xf32>, vector<8x4xf32>
  %b = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x4xf32>, vector<8x4xf32>
  %r:2 = scf.for %i = %c0 to %n step %c4 iter_args(%k0 = %zk, %v0 = %zk) -> (vector<8x4xf32>, vector<8x4xf32>) {
    %a = vector.transfer_read %q[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %g = vector.transfer_read %do[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %s = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %zs : vector<4x4xf32>, vector<8x4xf32> into vector<4x8xf32>
    %dp = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %g, %w, %zs : vector<4x4xf32>, vector<8x4xf32> into vector<4x8xf32>
    %ds = arith.mulf %s, %dp : vector<4x8xf32>
    %v1 = vector.contract {indexing_maps = [#s, #q, #k], iterator_types = ["reduction", "parallel", "parallel"], kind = #vector.kind<add>} %s, %g, %v0 : vector<4x8xf32>, vector<4x4xf32> into vector<8x4xf32>
    %k1 = vector.contract {indexing_maps = [#s, #q, #k], iterator_types = ["reduction", "parallel", "parallel"], kind = #vector.kind<add>} %ds, %a, %k0 : vector<4x8xf32>, vector<4x4xf32> into vector<8x4xf32>
    %old = vector.transfer_read %dq[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %new = vector.contract {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %ds, %b, %old : vector<4x8xf32>, vector<8x4xf32> into vector<4x4xf32>
    vector.transfer_write %new, %dq[%i, %c0] {in_bounds = [true, true]} : vector<4x4xf32>, memref<?x4xf32>
    scf.yield %k1, %v1 : vector<8x4xf32>, vector<8x4xf32>
  } {attn.fold_loop}
  vector.transfer_write %r#0, %dk[%j, %c0] {in_bounds = [false, true]} : vector<8x4xf32>, memref<?x4xf32>
  vector.transfer_write %r#1, %dv[%j, %c0] {in_bounds = [false, true]} : vector<8x4xf32>, memref<?x4xf32>
  return
}

// -----

#q = affine_map<(i,j,d)->(i,d)>
#k = affine_map<(i,j,d)->(j,d)>
#s = affine_map<(i,j,d)->(i,j)>

// Narrow keys are widened once and transposed for the scores; the copy with the
// lanes of d is that tile transposed back, in registers and once.
// CHECK-LABEL: func @narrow
// CHECK-COUNT-4: arith.extf
// CHECK-COUNT-8: vector.shuffle
// CHECK:         vector.store %{{.*}}, %[[KT:.*]][%c3, %{{.*}}] : memref<4x8xf32>, vector<4xf32>
// CHECK-NOT:     arith.extf
// CHECK:         vector.load %[[KT]]
// CHECK-COUNT-8: vector.shuffle
// CHECK:         vector.store %{{.*}}, %[[KC:.*]][%{{.*}}, %c0] : memref<8x4xf32>, vector<4xf32>
// CHECK:         scf.for
// CHECK-NOT:       vector.shuffle
// CHECK-NOT:       arith.extf
// CHECK:           vector.load %[[KT]]
// CHECK:           vector.load %[[KC]]
// CHECK:         } {attn.fold_loop}
func.func @narrow(%q: memref<?x4xf32>, %k: memref<?x4xbf16>, %v: memref<?x4xf32>, %do: memref<?x4xf32>, %dq: memref<?x4xf32>, %dk: memref<?x4xf32>, %dv: memref<?x4xf32>, %j: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zs = arith.constant dense<0.0> : vector<4x8xf32>
  %zk = arith.constant dense<0.0> : vector<8x4xf32>
  %w = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x4xf32>, vector<8x4xf32>
  %zn = arith.constant 0.0 : bf16
  %bn = vector.transfer_read %k[%j, %c0], %zn {in_bounds = [false, true]} : memref<?x4xbf16>, vector<8x4xbf16>
  %b = arith.extf %bn : vector<8x4xbf16> to vector<8x4xf32>
  %r:2 = scf.for %i = %c0 to %n step %c4 iter_args(%k0 = %zk, %v0 = %zk) -> (vector<8x4xf32>, vector<8x4xf32>) {
    %a = vector.transfer_read %q[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %g = vector.transfer_read %do[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %s = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %zs : vector<4x4xf32>, vector<8x4xf32> into vector<4x8xf32>
    %dp = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %g, %w, %zs : vector<4x4xf32>, vector<8x4xf32> into vector<4x8xf32>
    %ds = arith.mulf %s, %dp : vector<4x8xf32>
    %v1 = vector.contract {indexing_maps = [#s, #q, #k], iterator_types = ["reduction", "parallel", "parallel"], kind = #vector.kind<add>} %s, %g, %v0 : vector<4x8xf32>, vector<4x4xf32> into vector<8x4xf32>
    %k1 = vector.contract {indexing_maps = [#s, #q, #k], iterator_types = ["reduction", "parallel", "parallel"], kind = #vector.kind<add>} %ds, %a, %k0 : vector<4x8xf32>, vector<4x4xf32> into vector<8x4xf32>
    %old = vector.transfer_read %dq[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %new = vector.contract {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %ds, %b, %old : vector<4x8xf32>, vector<8x4xf32> into vector<4x4xf32>
    vector.transfer_write %new, %dq[%i, %c0] {in_bounds = [true, true]} : vector<4x4xf32>, memref<?x4xf32>
    scf.yield %k1, %v1 : vector<8x4xf32>, vector<8x4xf32>
  } {attn.fold_loop}
  vector.transfer_write %r#0, %dk[%j, %c0] {in_bounds = [false, true]} : vector<8x4xf32>, memref<?x4xf32>
  vector.transfer_write %r#1, %dv[%j, %c0] {in_bounds = [false, true]} : vector<8x4xf32>, memref<?x4xf32>
  return
}

// -----

#q = affine_map<(i,j,d)->(i,d)>
#k = affine_map<(i,j,d)->(j,d)>
#s = affine_map<(i,j,d)->(i,j)>

// The loop writes to the memory of the keys, so no kernel reads it there.
// CHECK-LABEL: func @written
// CHECK-SAME:    %{{[^:]*}}: memref<?x4xf32>, %[[K:[^:]*]]: memref<?x4xf32>
// CHECK-NOT:     memref.subview %[[K]]
// CHECK:         vector.store %{{.*}}, %[[KC:.*]][%{{.*}}, %c0] : memref<8x4xf32>, vector<4xf32>
// CHECK-NOT:     memref.subview %[[K]]
// CHECK:         scf.for
// CHECK-NOT:       memref.subview %[[K]]
// CHECK:           vector.load %[[KC]]
// CHECK:           vector.store %{{.*}}, %[[K]]
// CHECK:         } {attn.fold_loop}
func.func @written(%q: memref<?x4xf32>, %k: memref<?x4xf32>, %v: memref<?x4xf32>, %do: memref<?x4xf32>, %dq: memref<?x4xf32>, %dk: memref<?x4xf32>, %dv: memref<?x4xf32>, %j: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zs = arith.constant dense<0.0> : vector<4x8xf32>
  %zk = arith.constant dense<0.0> : vector<8x4xf32>
  %w = vector.transfer_read %v[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x4xf32>, vector<8x4xf32>
  %b = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x4xf32>, vector<8x4xf32>
  %r:2 = scf.for %i = %c0 to %n step %c4 iter_args(%k0 = %zk, %v0 = %zk) -> (vector<8x4xf32>, vector<8x4xf32>) {
    %a = vector.transfer_read %q[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %g = vector.transfer_read %do[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %s = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %zs : vector<4x4xf32>, vector<8x4xf32> into vector<4x8xf32>
    %dp = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %g, %w, %zs : vector<4x4xf32>, vector<8x4xf32> into vector<4x8xf32>
    %ds = arith.mulf %s, %dp : vector<4x8xf32>
    %v1 = vector.contract {indexing_maps = [#s, #q, #k], iterator_types = ["reduction", "parallel", "parallel"], kind = #vector.kind<add>} %s, %g, %v0 : vector<4x8xf32>, vector<4x4xf32> into vector<8x4xf32>
    %k1 = vector.contract {indexing_maps = [#s, #q, #k], iterator_types = ["reduction", "parallel", "parallel"], kind = #vector.kind<add>} %ds, %a, %k0 : vector<4x8xf32>, vector<4x4xf32> into vector<8x4xf32>
    %old = vector.transfer_read %dq[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
    %new = vector.contract {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %ds, %b, %old : vector<4x8xf32>, vector<8x4xf32> into vector<4x4xf32>
    vector.transfer_write %new, %k[%i, %c0] {in_bounds = [true, true]} : vector<4x4xf32>, memref<?x4xf32>
    scf.yield %k1, %v1 : vector<8x4xf32>, vector<8x4xf32>
  } {attn.fold_loop}
  vector.transfer_write %r#0, %dk[%j, %c0] {in_bounds = [false, true]} : vector<8x4xf32>, memref<?x4xf32>
  vector.transfer_write %r#1, %dv[%j, %c0] {in_bounds = [false, true]} : vector<8x4xf32>, memref<?x4xf32>
  return
}

// -----

#a = affine_map<(i,j,d)->(i,d)>
#b = affine_map<(i,j,d)->(d,j)>
#c = affine_map<(i,j,d)->(i,j)>

// Carried through two loops, one after the other, in a third: one buffer. The
// operand that is contiguous along the lanes is not copied either.
// CHECK-LABEL: func @chain
// CHECK-SAME:    %{{[^:]*}}: memref<?x4xf32>, %[[Y:[^:]*]]: memref<4x8xf32>
// CHECK:         %[[ACC:.*]] = memref.alloca() {{.*}} : memref<4x8xf32>
// CHECK-NOT:     memref.alloca
// CHECK:         scf.for %{{.*}} = %c0 to %arg3 step %c1 {
// CHECK-NEXT:      scf.for %{{.*}} = %c0 to %[[M:[^ ]*]] step %c4 {
// CHECK:             vector.load %[[Y]]
// CHECK:             vector.store %{{.*}}, %[[ACC]]
// CHECK:           }
// CHECK-NEXT:      scf.for %{{.*}} = %[[M]] to
// CHECK:             vector.store %{{.*}}, %[[ACC]]
// CHECK:           }
// CHECK-NEXT:    }
func.func @chain(%x: memref<?x4xf32>, %y: memref<4x8xf32>, %o: memref<4x8xf32>, %n: index, %m: index, %l: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<4x8xf32>
  %r = scf.for %g = %c0 to %n step %c1 iter_args(%acc = %zero) -> (vector<4x8xf32>) {
    %first = scf.for %i = %c0 to %m step %c4 iter_args(%u = %acc) -> (vector<4x8xf32>) {
      %a = vector.transfer_read %x[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
      %b = vector.transfer_read %y[%c0, %c0], %pad {in_bounds = [true, true]} : memref<4x8xf32>, vector<4x8xf32>
      %p = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %u : vector<4x4xf32>, vector<4x8xf32> into vector<4x8xf32>
      scf.yield %p : vector<4x8xf32>
    }
    %second = scf.for %i = %m to %l step %c4 iter_args(%u = %first) -> (vector<4x8xf32>) {
      %a = vector.transfer_read %x[%i, %c0], %pad {in_bounds = [true, true]} : memref<?x4xf32>, vector<4x4xf32>
      %b = vector.transfer_read %y[%c0, %c0], %pad {in_bounds = [true, true]} : memref<4x8xf32>, vector<4x8xf32>
      %p = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %u : vector<4x4xf32>, vector<4x8xf32> into vector<4x8xf32>
      scf.yield %p : vector<4x8xf32>
    }
    scf.yield %second : vector<4x8xf32>
  }
  vector.transfer_write %r, %o[%c0, %c0] {in_bounds = [true, true]} : vector<4x8xf32>, memref<4x8xf32>
  return
}
