// RUN: attn-opt %s --attn-expand-random-bits | FileCheck %s
// RUN: attn-opt %s --attn-expand-random-bits=only-numbers | FileCheck %s --check-prefix=NUMBERS

// What belongs to a head is computed on numbers.
// CHECK-LABEL: func.func @vectors
// CHECK-COUNT-20: arith.mului_extended %{{.*}} : i32
// CHECK-COUNT-20: arith.mului_extended %{{.*}} : vector<16xi32>
// CHECK-NOT: attn.random_bits
// NUMBERS-LABEL: func.func @vectors
// NUMBERS: attn.random_bits
func.func @vectors(%seed: i64, %b: index, %i: vector<16xindex>, %j: vector<16xindex>) -> vector<16xi32> {
  %s = vector.broadcast %seed : i64 to vector<16xi64>
  %bs = vector.broadcast %b : index to vector<16xindex>
  %r = attn.random_bits %s, %s at %bs, %bs, %i, %j : vector<16xi32>
  return %r : vector<16xi32>
}

// NUMBERS-LABEL: func.func @numbers
// NUMBERS-NOT: attn.random_bits
func.func @numbers(%seed: i64, %b: index) -> i32 {
  %r = attn.random_bits %seed, %seed at %b, %b, %b, %b : i32
  return %r : i32
}
