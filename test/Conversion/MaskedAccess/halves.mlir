// RUN: attn-opt %s --attn-mask-halves-as-integers | FileCheck %s

// CHECK-LABEL: llvm.func @moves
// CHECK-SAME:    %[[P:[^ ]*]]: !llvm.ptr, %[[MASK:[^ ]*]]: vector<8xi1>, %[[REST:[^ ]*]]: vector<8xbf16>
// CHECK:         %[[BITS:.*]] = llvm.bitcast %[[REST]] : vector<8xbf16> to vector<8xi16>
// CHECK:         %[[LOADED:.*]] = llvm.intr.masked.load %[[P]], %[[MASK]], %[[BITS]] {alignment = 2 : i32}
// CHECK-SAME:      -> vector<8xi16>
// CHECK:         %[[X:.*]] = llvm.bitcast %[[LOADED]] : vector<8xi16> to vector<8xbf16>
// CHECK:         %[[Y:.*]] = llvm.bitcast %[[X]] : vector<8xbf16> to vector<8xi16>
// CHECK:         llvm.intr.masked.store %[[Y]], %[[P]], %[[MASK]]
// CHECK:         llvm.return %[[X]]
llvm.func @moves(%p: !llvm.ptr, %mask: vector<8xi1>, %rest: vector<8xbf16>) -> vector<8xbf16> {
  %x = llvm.intr.masked.load %p, %mask, %rest {alignment = 2 : i32} : (!llvm.ptr, vector<8xi1>, vector<8xbf16>) -> vector<8xbf16>
  llvm.intr.masked.store %x, %p, %mask {alignment = 2 : i32} : vector<8xbf16>, vector<8xi1> into !llvm.ptr
  llvm.return %x : vector<8xbf16>
}

// CHECK-LABEL: llvm.func @gathers
// CHECK:         llvm.intr.masked.gather {{.*}} -> vector<8xi16>
// CHECK:         llvm.intr.masked.scatter %{{.*}} : vector<8xi16>
llvm.func @gathers(%p: vector<8x!llvm.ptr>, %mask: vector<8xi1>, %rest: vector<8xf16>) {
  %x = llvm.intr.masked.gather %p, %mask, %rest {alignment = 2 : i32} : (vector<8x!llvm.ptr>, vector<8xi1>, vector<8xf16>) -> vector<8xf16>
  llvm.intr.masked.scatter %x, %p, %mask {alignment = 2 : i32} : vector<8xf16>, vector<8xi1> into vector<8x!llvm.ptr>
  llvm.return
}

// Other elements stay.
// CHECK-LABEL: llvm.func @words
// CHECK-NOT:     bitcast
// CHECK:         llvm.intr.masked.load {{.*}} -> vector<8xf32>
llvm.func @words(%p: !llvm.ptr, %mask: vector<8xi1>, %rest: vector<8xf32>) -> vector<8xf32> {
  %x = llvm.intr.masked.load %p, %mask, %rest {alignment = 4 : i32} : (!llvm.ptr, vector<8xi1>, vector<8xf32>) -> vector<8xf32>
  llvm.return %x : vector<8xf32>
}
