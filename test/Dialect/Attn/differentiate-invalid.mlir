// RUN: attn-opt %s --attn-differentiate --split-input-file --verify-diagnostics
// RUN: not attn-opt %s --attn-differentiate=function=nowhere 2>&1 | FileCheck %s --check-prefix=NOWHERE
// RUN: not attn-opt %s --attn-differentiate=function=no_float 2>&1 | FileCheck %s --check-prefix=NOTHING

// NOWHERE: error: there is no function '@nowhere'
// NOTHING: error: cannot differentiate a function without a body, a float argument and a float tensor as result
func.func @no_float(%n: tensor<4xi32>) -> tensor<4xi32> {
  return %n : tensor<4xi32>
}

// -----

func.func @score(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %q, %q
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 2.0 : f32
      // expected-error @below {{cannot differentiate 'arith.remf'}}
      %r = arith.remf %s, %c : f32
      attn.yield %r : f32
    } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

// Where it carries no gradient, the op does not matter.
func.func @harmless(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %q, %q
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 2.0 : f32
      %j0 = arith.index_cast %j : index to i32
      %j1 = arith.sitofp %j0 : i32 to f32
      %x = arith.remf %j1, %c : f32
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

// A captured tensor is read as it is.
func.func @changed_capture(%x: tensor<8xf32>, %t: tensor<4xf32>) -> tensor<8xf32> {
  %y = attn.softmax %x captures(%t : tensor<4xf32>)
    score {
    ^bb0(%s: f32, %i: index, %tt: tensor<4xf32>):
      // expected-error @below {{cannot differentiate 'tensor.cast'}}
      %u = tensor.cast %tt : tensor<4xf32> to tensor<?xf32>
      %c0 = arith.constant 0 : index
      %e = tensor.extract %u[%c0] : tensor<?xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

// No gradient is computed in more than f64.
func.func @wide_value(%x: tensor<8xf32>, %c: f32) -> tensor<8xf32> {
  %y = attn.softmax %x captures(%c : f32)
    score {
    ^bb0(%s: f32, %i: index, %cc: f32):
      %w = arith.extf %cc : f32 to f128
      // expected-error @below {{cannot differentiate 'arith.truncf'}}
      %e = arith.truncf %w : f128 to f32
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

func.func @op(%s: f32) -> tensor<4xf32> {
  // expected-error @below {{cannot differentiate 'tensor.splat'}}
  %0 = tensor.splat %s : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @unranked(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.cast %x : tensor<4xf32> to tensor<*xf32>
  // expected-error @below {{cannot differentiate 'tensor.cast'}}
  %1 = tensor.cast %0 : tensor<*xf32> to tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// A region that reads the value counts as a use.
func.func @region(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = arith.constant dense<0.0> : tensor<4xf32>
  // expected-error @below {{cannot differentiate 'scf.for'}}
  %0 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %z) -> tensor<4xf32> {
    %b = arith.addf %a, %x : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{expected float argument #1 to be a scalar or a ranked tensor, of f64 or narrower, got 'memref<f64>'}}
func.func @buffer(%x: tensor<f32>, %m: memref<f64>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

// expected-error @below {{expected float argument #0 to be a scalar or a ranked tensor, of f64 or narrower, got 'tensor<4xf128>'}}
func.func @wide(%x: tensor<4xf128>) -> tensor<4xf128> {
  return %x : tensor<4xf128>
}

// -----

func.func @store(%x: f32, %t: tensor<4xf32>) -> tensor<4xf32> {
  %m = memref.alloc() : memref<f32>
  // expected-error @below {{cannot differentiate 'memref.store'}}
  memref.store %x, %m[] : memref<f32>
  return %t : tensor<4xf32>
}

// -----

// expected-error @below {{expected float result #1 to be a ranked tensor, got 'f32'}}
func.func @scalar_result(%x: tensor<4xf32>, %s: f32) -> (tensor<4xf32>, f32) {
  return %x, %s : tensor<4xf32>, f32
}

// -----

// expected-error @below {{cannot differentiate a function with several blocks}}
func.func @blocks(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  return %x : tensor<4xf32>
^bb2:
  %0 = arith.negf %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{there is an '@taken_gradient' already}}
func.func @taken(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func @taken_gradient() {
  return
}
