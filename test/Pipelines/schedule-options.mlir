// RUN: not attn-opt %s --attn-lower-to-hopper="trim=true overlap=true" 2>&1 | FileCheck %s --check-prefix=OVERLAP
// RUN: not attn-opt %s --attn-lower-to-hopper="trim=true pipeline=false" 2>&1 | FileCheck %s --check-prefix=PIPELINE
// RUN: not attn-opt %s --attn-lower-to-hopper="trim=maybe" 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: attn-opt %s --attn-lower-to-hopper="trim=true" -o /dev/null
// RUN: attn-opt %s --attn-lower-to-hopper="overlap=true pipeline=false" -o /dev/null

// Options of a schedule that do not fit together; where one is asked for, the table's other one yields.
// OVERLAP: error: schedule option 'trim=true' excludes 'overlap=true'
// PIPELINE: error: schedule option 'trim=true' needs 'pipeline'
// WORD: error: schedule option 'trim' is one of auto, true, false; got 'maybe'
func.func @f(%q: tensor<?x?x?x256xbf16>, %k: tensor<?x?x?x256xbf16>, %v: tensor<?x?x?x256xbf16>) -> tensor<?x?x?x256xbf16> {
  %o = attn.forward %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<?x?x?x256xbf16>, tensor<?x?x?x256xbf16>, tensor<?x?x?x256xbf16> -> tensor<?x?x?x256xbf16>
  return %o : tensor<?x?x?x256xbf16>
}
