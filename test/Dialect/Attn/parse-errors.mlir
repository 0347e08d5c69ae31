// RUN: attn-opt %s --split-input-file --verify-diagnostics

// A region that is written has a block; an absent one is not written.
func.func @empty(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{expected a region with a block}}
  %y = attn.softmax %x mask {} : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// A name of the region is not visible outside of it.
func.func @scope(%x: tensor<?x8xf32>) -> index {
  %y = attn.softmax %x mask {
  ^bb0(%i: index, %j: index):
    %keep = arith.cmpi sge, %i, %j : index
    attn.yield %keep : i1
  } : tensor<?x8xf32>
  // expected-error @below {{use of undeclared SSA value name}}
  %z = arith.addi %i, %i : index
  return %z : index
}
