// RUN: not attn-opt %s --attn-lower-tiles=vector-bits=100 2>&1 | FileCheck %s

// CHECK: error: expected vector-bits 128, 256 or 512, got 100
func.func @f() {
  return
}
