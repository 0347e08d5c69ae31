// RUN: attn-opt %s --attn-move-float16-as-integers --canonicalize --cse --split-input-file --verify-diagnostics | FileCheck %s
// RUN: not attn-opt %s --attn-move-float16-as-integers --canonicalize --cse --split-input-file --remarks-filter=attn-move-float16-as-integers -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] moved | Category:attn-move-float16-as-integers{{$}}

// CHECK-LABEL: llvm.func @moves
// CHECK-SAME:    %[[P:[^ ]*]]: !llvm.ptr, %[[MASK:[^ ]*]]: vector<8xi1>, %[[REST:[^ ]*]]: vector<8xi16>) -> vector<8xi16>
// CHECK-NOT:     bf16
// CHECK:         %[[NAN:.*]] = llvm.mlir.constant(dense<32704> : vector<8xi16>) : vector<8xi16>
// CHECK:         %[[X:.*]] = llvm.intr.masked.load %[[P]], %[[MASK]], %[[REST]] {alignment = 2 : i32}
// CHECK-SAME:      -> vector<8xi16>
// CHECK:         %[[Y:.*]] = llvm.select %[[MASK]], %[[NAN]], %[[X]] : vector<8xi1>, vector<8xi16>
// CHECK:         llvm.intr.masked.store %[[Y]], %[[P]], %[[MASK]] {{.*}} vector<8xi16>
// CHECK:         llvm.return %[[Y]]
llvm.func @moves(%p: !llvm.ptr, %mask: vector<8xi1>, %rest: vector<8xbf16>) -> vector<8xbf16> {
  %nan = llvm.mlir.constant(dense<0x7FC0> : vector<8xbf16>) : vector<8xbf16>
  %x = llvm.intr.masked.load %p, %mask, %rest {alignment = 2 : i32} : (!llvm.ptr, vector<8xi1>, vector<8xbf16>) -> vector<8xbf16>
  %y = llvm.select %mask, %nan, %x : vector<8xi1>, vector<8xbf16>
  llvm.intr.masked.store %y, %p, %mask {alignment = 2 : i32} : vector<8xbf16>, vector<8xi1> into !llvm.ptr
  llvm.return %y : vector<8xbf16>
}

// -----

// CHECK-LABEL: llvm.func @gathers
// CHECK:         llvm.intr.masked.gather {{.*}} -> vector<8xi16>
// CHECK:         llvm.intr.masked.scatter %{{.*}} : vector<8xi16>
llvm.func @gathers(%p: vector<8x!llvm.ptr>, %mask: vector<8xi1>, %rest: vector<8xf16>) {
  %x = llvm.intr.masked.gather %p, %mask, %rest {alignment = 2 : i32} : (vector<8x!llvm.ptr>, vector<8xi1>, vector<8xf16>) -> vector<8xf16>
  llvm.intr.masked.scatter %x, %p, %mask {alignment = 2 : i32} : vector<8xf16>, vector<8xi1> into vector<8x!llvm.ptr>
  llvm.return
}

// -----

// What computes does so with floats; arguments of blocks, arrays and calls move.
// CHECK-LABEL: llvm.func @computes
// CHECK-SAME:    %[[A:[^ ]*]]: f32, %{{.*}}: !llvm.array<2 x vector<4xi16>>, %[[C:[^ ]*]]: i1) -> i16
// CHECK:         %[[H:.*]] = llvm.fptrunc %[[A]] : f32 to f16
// CHECK:         %[[BITS:.*]] = llvm.bitcast %[[H]] : f16 to i16
// CHECK:         llvm.cond_br %[[C]], ^[[NEXT:.*]](%[[BITS]] : i16)
// CHECK:       ^[[NEXT]](%[[B:.*]]: i16):
// CHECK:         %[[F:.*]] = llvm.bitcast %[[B]] : i16 to f16
// CHECK:         %[[SUM:.*]] = llvm.fadd %[[F]], %[[F]] : f16
// CHECK:         %[[RESULT:.*]] = llvm.bitcast %[[SUM]] : f16 to i16
// CHECK:         llvm.extractvalue %{{.*}}[1] : !llvm.array<2 x vector<4xi16>>
// CHECK:         llvm.call @take(%{{.*}}) : (vector<4xi16>) -> ()
// CHECK:         llvm.return %[[RESULT]] : i16
// CHECK:       llvm.func @take(vector<4xi16>)
llvm.func @computes(%a: f32, %array: !llvm.array<2 x vector<4xf16>>, %c: i1) -> f16 {
  %h = llvm.fptrunc %a : f32 to f16
  llvm.cond_br %c, ^next(%h : f16), ^last
^next(%b: f16):
  %sum = llvm.fadd %b, %b : f16
  %v = llvm.extractvalue %array[1] : !llvm.array<2 x vector<4xf16>>
  llvm.call @take(%v) : (vector<4xf16>) -> ()
  llvm.return %sum : f16
^last:
  %one = llvm.mlir.constant(1.0 : f16) : f16
  llvm.return %one : f16
}
llvm.func @take(vector<4xf16>)

// -----

// Other elements stay, and data.
// CHECK: llvm.mlir.global internal constant @data(dense<1.000000e+00> : tensor<4xbf16>)
llvm.mlir.global internal constant @data(dense<1.0> : tensor<4xbf16>) : !llvm.array<4 x bf16>
// CHECK-LABEL: llvm.func @words
// CHECK-NOT:     bitcast
// CHECK:         llvm.intr.masked.load {{.*}} -> vector<8xf32>
llvm.func @words(%p: !llvm.ptr, %mask: vector<8xi1>, %rest: vector<8xf32>) -> vector<8xf32> {
  %x = llvm.intr.masked.load %p, %mask, %rest {alignment = 4 : i32} : (!llvm.ptr, vector<8xi1>, vector<8xf32>) -> vector<8xf32>
  llvm.return %x : vector<8xf32>
}

// -----

llvm.func @refused(%x: !llvm.struct<(bf16, i32)>) {
  // expected-error@+1 {{'llvm.inline_asm' op computes with '!llvm.struct<(bf16, i32)>'; expected a number or a vector}}
  llvm.inline_asm has_side_effects "", "r" %x : (!llvm.struct<(bf16, i32)>) -> ()
  llvm.return
}

// -----

llvm.func @refused_number(%x: f32) -> bf16 {
  // expected-error@+1 {{'llvm.fptrunc' op computes a number of type 'bf16'; expected f32 and a rounding by integers}}
  %y = llvm.fptrunc %x : f32 to bf16
  llvm.return %y : bf16
}
