// RUN: attn-opt %s --attn-append-outputs --split-input-file --verify-diagnostics

// expected-error@+1 {{expected results that are all ranked tensors, got 'f32'}}
func.func @scalar(%x: tensor<?xf32>, %y: f32) -> (tensor<?xf32>, f32) {
  return %x, %y : tensor<?xf32>, f32
}

// -----

// expected-error@+1 {{expected a public function with results not to be called in its module, got a use of 'called'}}
func.func @called(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
func.func @caller(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = call @called(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// expected-error@+1 {{expected a function of one block, got 2}}
func.func @blocks(%x: tensor<?xf32>) -> tensor<?xf32> {
  cf.br ^next
^next:
  return %x : tensor<?xf32>
}
