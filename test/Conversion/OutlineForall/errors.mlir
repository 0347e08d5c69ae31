// RUN: attn-opt %s --attn-outline-foralls --split-input-file --verify-diagnostics

func.func @tensors(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error@+1 {{expected a parallel loop on buffers, got one with 1 tensor results}}
  %r = scf.forall (%i) in (8) shared_outs(%o = %x) -> (tensor<8xf32>) {
    scf.forall.in_parallel {
    }
  }
  return %r : tensor<8xf32>
}

// -----

func.func @vectors(%x: vector<8xf32>, %y: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{expected to capture scalars and memrefs, got 'vector<8xf32>'}}
  scf.forall (%i) in (8) {
    vector.store %x, %y[%c0] : memref<8xf32>, vector<8xf32>
  }
  return
}

// -----

// expected-error@+3 {{expected a parallel loop in a function}}
module {
  llvm.func @outside(%n: i64) {
    "scf.forall"() <{operandSegmentSizes = array<i32: 0, 0, 0, 0>, staticLowerBound = array<i64: 0>, staticStep = array<i64: 1>, staticUpperBound = array<i64: 8>}> ({
    ^bb0(%i: index):
      scf.forall.in_parallel {
      }
    }) : () -> ()
    llvm.return
  }
}
