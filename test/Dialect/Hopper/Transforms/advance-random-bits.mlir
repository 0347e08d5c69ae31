// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-advance-random-bits))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-advance-random-bits))" --remarks-filter=hopper-advance-random-bits -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] advanced | Category:hopper-advance-random-bits{{$}}
// REMARKS-DAG: {{^ *}}1 [Missed] left | Category:hopper-advance-random-bits{{ *$}}
!acc = vector<64x64xf32>
!places = vector<64x64xindex>
!words = vector<64x64xi64>

// In front of the wait, with what the operands need.
// CHECK-LABEL: func.func @advanced
// CHECK: %[[J:.*]] = vector.broadcast
// CHECK-NEXT: %[[BITS:.*]] = attn.random_bits %{{.*}}, %{{.*}} at %{{.*}}, %{{.*}}, %{{.*}}, %[[J]]
// CHECK-NEXT: %[[S:.*]] = hopper.wait
// CHECK-NEXT: math.exp2 %[[S]]
// CHECK-NEXT: return
func.func @advanced(%s0: !hopper.pending<!acc>, %seed: !words, %b: !places, %i: !places, %j0: vector<64xindex>) -> (!acc, vector<64x64xi32>) {
  %s = hopper.wait %s0 pending(0) : <!acc> -> !acc
  %e = math.exp2 %s : !acc
  %j = vector.broadcast %j0 : vector<64xindex> to !places
  %bits = attn.random_bits %seed, %seed at %b, %b, %i, %j : vector<64x64xi32>
  return %e, %bits : !acc, vector<64x64xi32>
}

// Between two waits, where they need the first one's result; never in front of it.
// CHECK-LABEL: func.func @between
// CHECK: %[[S:.*]] = hopper.wait
// CHECK: %[[I:.*]] = arith.index_cast
// CHECK-NEXT: %[[BITS:.*]] = attn.random_bits {{.*}}, %[[I]]
// CHECK-NEXT: hopper.wait
func.func @between(%s0: !hopper.pending<!acc>, %t0: !hopper.pending<!acc>, %seed: !words, %b: !places) -> (!acc, vector<64x64xi32>) {
  %s = hopper.wait %s0 pending(1) : <!acc> -> !acc
  %t = hopper.wait %t0 pending(0) : <!acc> -> !acc
  %n = arith.fptosi %s : !acc to vector<64x64xi32>
  %i = arith.index_cast %n : vector<64x64xi32> to !places
  %bits = attn.random_bits %seed, %seed at %b, %b, %b, %i : vector<64x64xi32>
  return %t, %bits : !acc, vector<64x64xi32>
}

// What depends on the last product, and what is read from memory behind it, stays behind.
// CHECK-LABEL: func.func @left
// CHECK: hopper.wait
// CHECK: memref.load
// CHECK: attn.random_bits
func.func @left(%s0: !hopper.pending<!acc>, %seed: !words, %b: !places, %m: memref<index>) -> (!acc, vector<64x64xi32>) {
  %s = hopper.wait %s0 pending(0) : <!acc> -> !acc
  %n = memref.load %m[] : memref<index>
  %i = vector.broadcast %n : index to !places
  %bits = attn.random_bits %seed, %seed at %b, %b, %b, %i : vector<64x64xi32>
  return %s, %bits : !acc, vector<64x64xi32>
}

// Without products there is nothing to do.
// CHECK-LABEL: func.func @alone
func.func @alone(%seed: !words, %b: !places) -> vector<64x64xi32> {
  %bits = attn.random_bits %seed, %seed at %b, %b, %b, %b : vector<64x64xi32>
  return %bits : vector<64x64xi32>
}
