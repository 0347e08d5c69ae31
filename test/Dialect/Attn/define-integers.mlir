// RUN: attn-opt %s --attn-define-integers --cse | FileCheck %s
// RUN: attn-opt %s --attn-define-integers --cse --remarks-filter=attn-define-integers -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}8 [Passed] defined | Category:attn-define-integers{{$}}
// What is defined already stays as it is.
// RUN: attn-opt %s --attn-define-integers --canonicalize --cse -o %t.once
// RUN: attn-opt %t.once --attn-define-integers --canonicalize --cse -o %t.twice
// RUN: diff %t.once %t.twice

!t = tensor<1x1x?x16xf32>

// CHECK-LABEL: func.func @division
func.func @division(%q: !t, %t: tensor<?xi64>, %n: index) -> !t {
  // CHECK: mask {
  // CHECK: ^bb0(%{{.*}}: index, %{{.*}}: index, %[[I:.*]]: index, %[[J:.*]]: index, %[[T:.*]]: tensor<?xi64>, %[[N:.*]]: index):
  %o = attn.forward %q, %q, %q captures(%t, %n : tensor<?xi64>, index) mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %c: tensor<?xi64>, %m: index):
    // CHECK: %[[X:.*]] = tensor.extract %[[T]][%[[I]]]
    // CHECK: %[[Y:.*]] = tensor.extract %[[T]][%[[J]]]
    %x = tensor.extract %c[%i] : tensor<?xi64>
    %y = tensor.extract %c[%j] : tensor<?xi64>
    // An index over anything: 0 has a quotient.
    // CHECK: %[[C0:.*]] = arith.constant 0 : index
    // CHECK: %[[NONE:.*]] = arith.cmpi eq, %[[N]], %[[C0]] : index
    // CHECK: %[[C1:.*]] = arith.constant 1 : index
    // CHECK: %[[BY:.*]] = arith.select %[[NONE]], %[[C1]], %[[N]] : index
    // CHECK: %[[DIV:.*]] = arith.floordivsi %[[I]], %[[BY]] : index
    // CHECK: arith.select %[[NONE]], %[[C0]], %[[DIV]] : index
    %q0 = arith.floordivsi %i, %m : index
    // Anything over anything: the least number over -1 has one, too; a
    // remainder by 0 is the dividend.
    // CHECK: %[[Z:.*]] = arith.constant 0 : i64
    // CHECK: %[[ZERO:.*]] = arith.cmpi eq, %[[Y]], %[[Z]] : i64
    // CHECK: %[[LEAST:.*]] = arith.constant -9223372036854775808 : i64
    // CHECK: %[[ISLEAST:.*]] = arith.cmpi eq, %[[X]], %[[LEAST]]
    // CHECK: %[[MINUS:.*]] = arith.constant -1 : i64
    // CHECK: %[[ISMINUS:.*]] = arith.cmpi eq, %[[Y]], %[[MINUS]]
    // CHECK: %[[LARGE:.*]] = arith.andi %[[ISLEAST]], %[[ISMINUS]]
    // CHECK: %[[HARM:.*]] = arith.ori %[[ZERO]], %[[LARGE]]
    // CHECK: %[[ONE:.*]] = arith.constant 1 : i64
    // CHECK: %[[SAFE:.*]] = arith.select %[[HARM]], %[[ONE]], %[[Y]] : i64
    // CHECK: %[[REM:.*]] = arith.remsi %[[X]], %[[SAFE]] : i64
    // CHECK: arith.select %[[ZERO]], %[[X]], %[[REM]] : i64
    %r0 = arith.remsi %x, %y : i64
    // What the ranges prove: a constant, one more than an index.
    // CHECK: %[[J1:.*]] = arith.addi %[[J]],
    // CHECK-NEXT: arith.remsi %[[I]], %[[J1]]
    %one = arith.constant 1 : index
    %seven = arith.constant 7 : i64
    %j1 = arith.addi %j, %one : index
    %r1 = arith.remsi %i, %j1 : index
    // CHECK-NEXT: arith.ceildivsi %[[X]], %{{.*}} : i64
    // CHECK-NEXT: %[[U:.*]] = arith.select %[[ZERO]], %[[ONE]], %[[Y]]
    %q1 = arith.ceildivsi %x, %seven : i64
    // CHECK: %[[UQ:.*]] = arith.divui %[[X]], %[[U]] : i64
    // CHECK-NEXT: arith.select %[[ZERO]], %{{.*}}, %[[UQ]] : i64
    %q2 = arith.divui %x, %y exact : i64
    %k0 = arith.cmpi sge, %q0, %r1 : index
    %k1 = arith.cmpi sge, %r0, %q1 : i64
    %k2 = arith.cmpi sge, %q2, %x : i64
    // Of one bit.
    // CHECK: %[[BITS:.*]] = arith.andi %{{.*}}, %{{.*}} : i1
    %k3 = arith.divsi %k1, %k2 : i1
    // CHECK: %[[NOT:.*]] = arith.xori %[[BITS]], %{{.*}} : i1
    // CHECK-NEXT: %[[YIELD:.*]] = arith.andi %{{.*}}, %[[NOT]] : i1
    %k4 = arith.remui %k0, %k3 : i1
    // CHECK-NEXT: attn.yield %[[YIELD]]
    attn.yield %k4 : i1
  } : !t, !t, !t -> !t
  return %o : !t
}

// CHECK-LABEL: func.func @shifts
// CHECK: ^bb0(%[[X:.*]]: i32, %[[Y:.*]]: i32, %{{.*}}: i32):
// CHECK-DAG: %[[C31:.*]] = arith.constant 31 : i32
// CHECK: %[[BY:.*]] = arith.minui %[[Y]], %[[C31]]
// CHECK: %[[LONG:.*]] = arith.cmpi ugt, %[[Y]], %[[C31]]
// CHECK: %[[LEFT:.*]] = arith.shli %[[X]], %[[BY]] : i32
// CHECK: arith.select %[[LONG]], %{{.*}}, %[[LEFT]]
// CHECK: %[[RIGHT:.*]] = arith.shrui %[[X]], %[[BY]] : i32
// CHECK: arith.select %[[LONG]], %{{.*}}, %[[RIGHT]]
// CHECK: %[[SIGNED:.*]] = arith.shrsi %[[X]], %[[BY]] : i32
// CHECK-NOT: arith.select
// CHECK: arith.shrsi %[[SIGNED]], %{{.*}} : i32
// CHECK-NOT: arith.select
// CHECK: arith.addi %{{.*}}, %{{.*}} : i32
#id = affine_map<(d0) -> (d0)>
func.func @shifts(%x: tensor<?xi32>, %y: tensor<?xi32>) -> tensor<?xi32> {
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<?xi32>, tensor<?xi32>) outs(%x : tensor<?xi32>) {
  ^bb0(%a: i32, %by: i32, %out: i32):
    %three = arith.constant 3 : i32
    %left = arith.shli %a, %by overflow<nsw, nuw> : i32
    %right = arith.shrui %a, %by exact : i32
    %signed = arith.shrsi %a, %by : i32
    %known = arith.shrsi %signed, %three exact : i32
    %s0 = arith.addi %left, %right overflow<nsw> : i32
    %s1 = arith.addi %s0, %known : i32
    linalg.yield %s1 : i32
  } -> tensor<?xi32>
  return %r : tensor<?xi32>
}

// CHECK-LABEL: func.func @floats
// CHECK: ^bb0(%[[X:.*]]: f16, %{{.*}}: i8):
// CHECK: %[[WIDE:.*]] = arith.extf %[[X]] : f16 to f32
// CHECK: %[[LOW:.*]] = arith.constant -1.280000e+02 : f32
// CHECK: %[[HIGH:.*]] = arith.constant 1.280000e+02 : f32
// CHECK: %[[LESS:.*]] = arith.cmpf olt, %[[WIDE]], %[[LOW]]
// CHECK: %[[MORE:.*]] = arith.cmpf oge, %[[WIDE]], %[[HIGH]]
// CHECK: %[[ABOVE:.*]] = arith.cmpf oge, %[[WIDE]], %[[LOW]]
// CHECK: %[[BELOW:.*]] = arith.cmpf olt, %[[WIDE]], %[[HIGH]]
// CHECK: %[[FITS:.*]] = arith.andi %[[ABOVE]], %[[BELOW]]
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[SAFE:.*]] = arith.select %[[FITS]], %[[WIDE]], %[[ZERO]] : f32
// CHECK: %[[LEAST:.*]] = arith.constant -128 : i8
// CHECK: %[[MOST:.*]] = arith.constant 127 : i8
// CHECK: %[[NUMBER:.*]] = arith.fptosi %[[SAFE]] : f32 to i8
// CHECK: %[[UP:.*]] = arith.select %[[MORE]], %[[MOST]], %[[NUMBER]]
// CHECK: arith.select %[[LESS]], %[[LEAST]], %[[UP]]
func.func @floats(%x: tensor<?xf16>, %y: tensor<?xi8>) -> tensor<?xi8> {
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf16>) outs(%y : tensor<?xi8>) {
  ^bb0(%a: f16, %out: i8):
    %n = arith.fptosi %a : f16 to i8
    linalg.yield %n : i8
  } -> tensor<?xi8>
  return %r : tensor<?xi8>
}

// An index has 32 bits at most, but may have more than 8.
// CHECK-LABEL: func.func @casts
// CHECK: %[[I:.*]] = linalg.index 0
// CHECK-NEXT: %[[WIDE:.*]] = arith.index_cast %[[I]] : index to i64
// CHECK-NEXT: %[[NARROW:.*]] = arith.trunci %[[WIDE]] : i64 to i8
// CHECK-NEXT: %[[NUMBER:.*]] = arith.index_cast %[[I]] : index to i32
// CHECK-NEXT: arith.index_cast %[[NARROW]] : i8 to index
func.func @casts(%y: tensor<?xi32>) -> tensor<?xi32> {
  %r = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%y : tensor<?xi32>) {
  ^bb0(%out: i32):
    %i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i8
    %m = arith.index_cast %i : index to i32
    %w = arith.index_cast %n : i8 to index
    %x = arith.index_castui %w : index to i64
    %z = arith.trunci %x : i64 to i32
    %s = arith.addi %z, %m : i32
    linalg.yield %s : i32
  } -> tensor<?xi32>
  return %r : tensor<?xi32>
}
