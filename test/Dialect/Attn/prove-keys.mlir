// RUN: attn-opt %s --attn-prove-keys | FileCheck %s --check-prefixes=CHECK,MORE
// RUN: attn-opt %s --attn-prove-keys=no-more-rows | FileCheck %s --check-prefixes=CHECK,FEW
// RUN: attn-opt %s --attn-prove-keys --remarks-filter=attn-prove-keys -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}16 [Missed] not proved | Category:attn-prove-keys{{$}}
// REMARKS-DAG: {{^ *}}5 [Passed] proved | Category:attn-prove-keys{{$}}

// Without a mask all rows have all keys.
// CHECK-LABEL: @plain(
// CHECK: attn.backward
// CHECK: rows_have_keys
// CHECK: return
func.func @plain(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// All have the first key.
// CHECK-LABEL: @causal(
// CHECK: attn.backward
// CHECK: rows_have_keys
// CHECK: return
func.func @causal(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %past = arith.cmpi sle, %j, %i : index
      attn.yield %past : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Keys in front of the row's own: the first row has none.
// CHECK-LABEL: @strict(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @strict(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %past = arith.cmpi slt, %j, %i : index
      attn.yield %past : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// A window has the row's own key, if there is one.
// CHECK-LABEL: @window(
// CHECK: attn.backward
// MORE-NOT: rows_have_keys
// FEW: rows_have_keys
// CHECK: return
func.func @window(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %w = arith.constant 1024 : index
      %zero = arith.constant 0 : index
      %far = arith.subi %i, %j : index
      %past = arith.cmpi sge, %far, %zero : index
      %near = arith.cmpi slt, %far, %w : index
      %both = arith.andi %past, %near : i1
      attn.yield %both : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Whichever way it is written.
// CHECK-LABEL: @window_by_bounds(
// CHECK: attn.backward
// MORE-NOT: rows_have_keys
// FEW: rows_have_keys
// CHECK: return
func.func @window_by_bounds(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %left = arith.constant 1023 : index
      %right = arith.constant 7 : index
      %first = arith.subi %i, %left : index
      %near = arith.cmpi sle, %first, %j : index
      %last = arith.addi %i, %right : index
      %past = arith.cmpi sge, %last, %j : index
      %both = arith.andi %past, %near : i1
      attn.yield %both : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// A window that is over before the row's own key.
// CHECK-LABEL: @window_behind(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @window_behind(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %one = arith.constant 1 : index
      %last = arith.subi %i, %one : index
      %past = arith.cmpi sge, %last, %j : index
      attn.yield %past : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Which the shapes may say.
// CHECK-LABEL: @window_by_shape(
// CHECK: attn.backward
// CHECK: rows_have_keys
// CHECK: return
func.func @window_by_shape(%q: tensor<1x2x100x16xf32>, %k: tensor<1x2x120x16xf32>, %lse: tensor<1x2x100xf32>)
    -> (tensor<1x2x100x16xf32>, tensor<1x2x120x16xf32>, tensor<1x2x120x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %w = arith.constant 1024 : index
      %zero = arith.constant 0 : index
      %far = arith.subi %i, %j : index
      %past = arith.cmpi sge, %far, %zero : index
      %near = arith.cmpi slt, %far, %w : index
      %both = arith.andi %past, %near : i1
      attn.yield %both : i1
    }
    : tensor<1x2x100x16xf32>, tensor<1x2x100x16xf32>, tensor<1x2x120x16xf32>, tensor<1x2x120x16xf32>, tensor<1x2x100x16xf32>, tensor<1x2x100xf32>
    -> tensor<1x2x100x16xf32>, tensor<1x2x120x16xf32>, tensor<1x2x120x16xf32>
  return %dq, %dk, %dv : tensor<1x2x100x16xf32>, tensor<1x2x120x16xf32>, tensor<1x2x120x16xf32>
}

// The width may be 0.
// CHECK-LABEL: @window_captured(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @window_captured(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %w: index)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse captures(%w : index)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %w: index):
      %zero = arith.constant 0 : index
      %far = arith.subi %i, %j : index
      %past = arith.cmpi sge, %far, %zero : index
      %near = arith.cmpi slt, %far, %w : index
      %both = arith.andi %past, %near : i1
      attn.yield %both : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// A row is of its own key's document.
// CHECK-LABEL: @documents(
// CHECK: attn.backward
// MORE-NOT: rows_have_keys
// FEW: rows_have_keys
// CHECK: return
func.func @documents(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %d: tensor<?x?xi32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse captures(%d : tensor<?x?xi32>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %d: tensor<?x?xi32>):
      %x = tensor.extract %d[%b, %i] : tensor<?x?xi32>
      %y = tensor.extract %d[%b, %j] : tensor<?x?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      %past = arith.cmpi sge, %i, %j : index
      %both = arith.andi %same, %past : i1
      attn.yield %both : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Not where keys have numbers of their own.
// CHECK-LABEL: @documents_apart(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @documents_apart(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %d: tensor<?x?xi32>, %e: tensor<?x?xi32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse captures(%d, %e : tensor<?x?xi32>, tensor<?x?xi32>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %d: tensor<?x?xi32>, %e: tensor<?x?xi32>):
      %x = tensor.extract %d[%b, %i] : tensor<?x?xi32>
      %y = tensor.extract %e[%b, %j] : tensor<?x?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      %past = arith.cmpi sge, %i, %j : index
      %both = arith.andi %same, %past : i1
      attn.yield %both : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// What is captured may be -inf.
// CHECK-LABEL: @captured(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @captured(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %c: f32)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv, %dc = attn.backward %q, %q, %k, %k, %q, %lse captures(%c : f32)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32):
      %t = arith.addf %s, %c : f32
      attn.yield %t : f32
    }
    gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32, %dt: f32):
      attn.accumulate %dt into %c : f32 into f32
      attn.yield %dt : f32
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> captures(tensor<f32>)
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// But for an integer.
// CHECK-LABEL: @captured_integer(
// CHECK: attn.backward
// CHECK: rows_have_keys
// CHECK: return
func.func @captured_integer(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %c: i32)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse captures(%c : i32)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: i32):
      %x = arith.sitofp %c : i32 to f32
      %t = arith.addf %s, %x : f32
      attn.yield %t : f32
    }
    gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: i32, %dt: f32):
      attn.yield %dt : f32
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// A soft cap is finite.
// CHECK-LABEL: @finite(
// CHECK: attn.backward
// CHECK: rows_have_keys
// CHECK: return
func.func @finite(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 8.0 : f32
      %x = arith.divf %s, %c : f32
      %t = math.tanh %x : f32
      %y = arith.mulf %t, %c : f32
      attn.yield %y : f32
    }
    gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %dt: f32):
      attn.yield %dt : f32
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Not so what is divided by 0.
// CHECK-LABEL: @divided(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @divided(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 0.0 : f32
      %x = arith.divf %s, %c : f32
      attn.yield %x : f32
    }
    gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %dt: f32):
      attn.yield %dt : f32
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Where a sink is -inf, its rows are as others are.
// CHECK-LABEL: @sink(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @sink(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %sink: tensor<2xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse sink(%sink : tensor<2xf32>)
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// A slope times the distance is 0 or NaN for a row's own key.
// CHECK-LABEL: @alibi(
// CHECK: attn.backward
// MORE-NOT: rows_have_keys
// FEW: rows_have_keys
// CHECK: return
func.func @alibi(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %m: tensor<2xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv, %dm = attn.backward %q, %q, %k, %k, %q, %lse captures(%m : tensor<2xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: tensor<2xf32>):
      %d = arith.subi %i, %j : index
      %n = arith.index_cast %d : index to i32
      %f = arith.sitofp %n : i32 to f32
      %a = math.absf %f : f32
      %slope = tensor.extract %m[%h] : tensor<2xf32>
      %p = arith.mulf %slope, %a : f32
      %t = arith.subf %s, %p : f32
      attn.yield %t : f32
    }
    gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: tensor<2xf32>, %dt: f32):
      attn.yield %dt : f32
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> captures(tensor<2xf32>)
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Also where it is a difference of floats.
// CHECK-LABEL: @alibi_of_floats(
// CHECK: attn.backward
// MORE-NOT: rows_have_keys
// FEW: rows_have_keys
// CHECK: return
func.func @alibi_of_floats(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %m: f32)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv, %dm = attn.backward %q, %q, %k, %k, %q, %lse captures(%m : f32)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: f32):
      %in = arith.index_cast %i : index to i32
      %jn = arith.index_cast %j : index to i32
      %x = arith.sitofp %in : i32 to f32
      %y = arith.sitofp %jn : i32 to f32
      %d = arith.subf %y, %x : f32
      %p = arith.mulf %d, %m : f32
      %t = arith.addf %s, %p : f32
      attn.yield %t : f32
    }
    gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: f32, %dt: f32):
      attn.yield %dt : f32
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> captures(tensor<f32>)
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// The distance from another key is not 0: the slope may be infinite, and all scores -inf.
// CHECK-LABEL: @alibi_elsewhere(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @alibi_elsewhere(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %m: f32)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv, %dm = attn.backward %q, %q, %k, %k, %q, %lse captures(%m : f32)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: f32):
      %one = arith.constant 1 : index
      %last = arith.addi %j, %one : index
      %d = arith.subi %i, %last : index
      %n = arith.index_cast %d : index to i32
      %x = arith.sitofp %n : i32 to f32
      %p = arith.mulf %x, %m : f32
      %t = arith.subf %s, %p : f32
      attn.yield %t : f32
    }
    gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: f32, %dt: f32):
      attn.yield %dt : f32
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> captures(tensor<f32>)
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// A causal mask by the score keeps the row's own key; a tanh of anything is not infinite.
// CHECK-LABEL: @selected(
// CHECK: attn.backward
// MORE-NOT: rows_have_keys
// FEW: rows_have_keys
// CHECK: return
func.func @selected(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %c: f32)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv, %dc = attn.backward %q, %q, %k, %k, %q, %lse captures(%c : f32)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32):
      %none = arith.constant 0xFF800000 : f32
      %past = arith.cmpi sge, %i, %j : index
      %x = arith.addf %s, %c : f32
      %y = math.tanh %x : f32
      %t = arith.select %past, %y, %none : f32
      attn.yield %t : f32
    }
    gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32, %dt: f32):
      attn.yield %dt : f32
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> captures(tensor<f32>)
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// A sum of an index and the largest number wraps for all rows but the first.
// CHECK-LABEL: @wraps(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @wraps(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %most = arith.constant 9223372036854775807 : index
      %end = arith.addi %i, %most : index
      %past = arith.cmpi sge, %end, %j : index
      attn.yield %past : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// An index of 8 bits is not always at least 0.
// CHECK-LABEL: @narrow(
// CHECK: attn.backward
// CHECK-NOT: rows_have_keys
// CHECK: return
func.func @narrow(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %zero = arith.constant 0 : i8
      %n = arith.index_cast %i : index to i8
      %keep = arith.cmpi sge, %n, %zero : i8
      attn.yield %keep : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// What is far from wrapping folds.
// CHECK-LABEL: @difference_fits(
// CHECK: attn.backward
// MORE-NOT: rows_have_keys
// FEW: rows_have_keys
// CHECK: return
func.func @difference_fits(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %q, %q, %k, %k, %q, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %much = arith.constant 1000000 : index
      %end = arith.addi %i, %much : index
      %near = arith.cmpi sge, %end, %j : index
      %start = arith.subi %i, %much : index
      %last = arith.cmpi sle, %start, %j : index
      %keep = arith.andi %near, %last : i1
      attn.yield %keep : i1
    }
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}
