// RUN: attn-opt %s --split-input-file --hopper-check-form=form=arithmetic --verify-diagnostics
// What a later form forbids, an earlier one may have.
// RUN: attn-opt %S/Inputs/forms.mlir --hopper-check-form=form=arithmetic -o /dev/null
// RUN: not attn-opt %S/Inputs/forms.mlir --hopper-check-form=form=programs -o /dev/null 2>&1 | FileCheck %s --check-prefix=PROGRAMS
// RUN: not attn-opt %S/advance-products.mlir --hopper-check-form=form=protocol -o /dev/null 2>&1 | FileCheck %s --check-prefix=PROTOCOL
// RUN: not attn-opt %S/../named-barriers.mlir --hopper-check-form=form=protocol -o /dev/null 2>&1 | FileCheck %s --check-prefix=BARRIERS
// RUN: not attn-opt %s --split-input-file --hopper-check-form=form=late -o /dev/null 2>&1 | FileCheck %s --check-prefix=WORD

// PROGRAMS: error: 'scf.forall' op is not in the form 'programs': a program of a tile is divided among warpgroups, and holds no other
// PROTOCOL: error: 'hopper.channel' op is not in the form 'protocol': channels have become rings and barriers
// BARRIERS: error: 'hopper.named_barriers' op is not in the form 'protocol': named barriers have numbers
// WORD: error: expected a form arithmetic, programs, tiles, channels or protocol, got 'late'

func.func @tensor(%x: tensor<4xf32>) {
  // expected-error@below {{is not in the form 'arithmetic': values are in memory}}
  %c = arith.addf %x, %x : tensor<4xf32>
  return
}

// -----

func.func @base(%x: vector<64x64xf32>, %y: vector<64x64xf64>, %n: index, %step: index) {
  %outside = math.exp %x : vector<64x64xf32>
  scf.for %i = %n to %n step %step {
    %wide = math.exp %y : vector<64x64xf64>
    // expected-error@below {{is not in the form 'arithmetic': exponentials of tiles are to the base 2}}
    %e = math.exp %x : vector<64x64xf32>
  }
  return
}
