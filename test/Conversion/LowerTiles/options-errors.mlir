// RUN: not attn-opt %s --attn-lower-tiles=vector-bits=100 2>&1 | FileCheck %s
// RUN: not attn-opt %s --attn-lower-tiles=matrix-unit=tensor 2>&1 | FileCheck %s --check-prefix=UNIT
// RUN: not attn-opt %s --attn-lower-tiles="vector-bits=256 matrix-unit=amx" 2>&1 | FileCheck %s --check-prefix=BITS

// CHECK: error: expected vector-bits 128, 256 or 512, got 100
// UNIT: error: expected matrix-unit none, avx512_bf16 or amx, got 'tensor'
// BITS: error: matrix-unit amx needs vector-bits 512, got 256
func.func @f() {
  return
}
