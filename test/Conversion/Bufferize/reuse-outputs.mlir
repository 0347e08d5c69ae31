// RUN: attn-opt %s --attn-reuse-outputs | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// What the first loop writes and the second reads lies where the result is written at last, though
// that is first looked at later.
// CHECK-LABEL: func @reused
// CHECK-SAME:    %{{.*}}: memref<?x64xf32>, %[[OUT:.*]]: memref<?xbf16>, %{{.*}}: memref<?xf32>
// CHECK-NOT:     memref.alloc
// CHECK:         %[[VIEW:.*]] = memref.reinterpret_cast
// CHECK:         scf.forall
// CHECK:           %[[ROW:.*]] = memref.subview %[[VIEW]]{{.*}} : memref<?x64xbf16, strided<[?, 1]>> to memref<1x64xbf16, strided<[?, 1], offset: ?>>
// CHECK:           vector.transfer_write %{{.*}}, %[[ROW]]
// CHECK:         scf.forall
// CHECK:           vector.transfer_read %[[VIEW]]
// CHECK:         linalg.generic {{.*}} outs(%[[VIEW]]
// CHECK-NOT:     memref.dealloc
func.func @reused(%in: memref<?x64xf32>, %out: memref<?xbf16>, %sums: memref<?xf32>, %n: index, %stride: index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %f0 = arith.constant 0.0 : f32
  %a = memref.alloc(%n) : memref<?x64xbf16>
  scf.forall (%i) in (%n) {
    %row = memref.subview %a[%i, 0] [1, 64] [1, 1] : memref<?x64xbf16> to memref<1x64xbf16, strided<[64, 1], offset: ?>>
    %x = vector.transfer_read %in[%i, %c0], %f0 : memref<?x64xf32>, vector<64xf32>
    %y = arith.truncf %x : vector<64xf32> to vector<64xbf16>
    vector.transfer_write %y, %row[%c0, %c0] : vector<64xbf16>, memref<1x64xbf16, strided<[64, 1], offset: ?>>
  }
  scf.forall (%i) in (%n) {
    %x = vector.transfer_read %a[%i, %c0], %zero : memref<?x64xbf16>, vector<64xbf16>
    %y = arith.extf %x : vector<64xbf16> to vector<64xf32>
    %s = vector.reduction <add>, %y : vector<64xf32> into f32
    memref.store %s, %sums[%i] : memref<?xf32>
  }
  %view = memref.reinterpret_cast %out to offset: [0], sizes: [%n, 64], strides: [%stride, 1] : memref<?xbf16> to memref<?x64xbf16, strided<[?, 1]>>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%in : memref<?x64xf32>) outs(%view : memref<?x64xbf16, strided<[?, 1]>>) {
  ^bb0(%x: f32, %old: bf16):
    %y = arith.truncf %x : f32 to bf16
    linalg.yield %y : bf16
  }
  memref.dealloc %a : memref<?x64xbf16>
  return
}

// Read after the result is written: both are needed.
// CHECK-LABEL: func @needed
// CHECK:         memref.alloc
func.func @needed(%in: memref<?x64xf32>, %out: memref<?xbf16>, %other: memref<?x64xbf16>, %n: index) {
  %zero = arith.constant 0.0 : bf16
  %view = memref.reinterpret_cast %out to offset: [0], sizes: [%n, 64], strides: [64, 1] : memref<?xbf16> to memref<?x64xbf16>
  %a = memref.alloc(%n) : memref<?x64xbf16>
  linalg.fill ins(%zero : bf16) outs(%a : memref<?x64xbf16>)
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%in : memref<?x64xf32>) outs(%view : memref<?x64xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %y = arith.truncf %x : f32 to bf16
    linalg.yield %y : bf16
  }
  memref.copy %a, %other : memref<?x64xbf16> to memref<?x64xbf16>
  memref.dealloc %a : memref<?x64xbf16>
  return
}

// What is in the argument is added to, or was read before: it is an input, too.
// CHECK-LABEL: func @added
// CHECK:         memref.alloc
func.func @added(%in: memref<?x64xbf16>, %out: memref<?xbf16>, %other: memref<?x64xbf16>, %n: index) {
  %zero = arith.constant 0.0 : bf16
  %view = memref.reinterpret_cast %out to offset: [0], sizes: [%n, 64], strides: [64, 1] : memref<?xbf16> to memref<?x64xbf16>
  %a = memref.alloc(%n) : memref<?x64xbf16>
  linalg.fill ins(%zero : bf16) outs(%a : memref<?x64xbf16>)
  memref.copy %a, %other : memref<?x64xbf16> to memref<?x64xbf16>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%in : memref<?x64xbf16>) outs(%view : memref<?x64xbf16>) {
  ^bb0(%x: bf16, %old: bf16):
    %y = arith.addf %x, %old : bf16
    linalg.yield %y : bf16
  }
  memref.dealloc %a : memref<?x64xbf16>
  return
}

// CHECK-LABEL: func @read
// CHECK:         memref.alloc
func.func @read(%in: memref<?x64xbf16>, %out: memref<?xbf16>, %other: memref<?x64xbf16>, %n: index) {
  %zero = arith.constant 0.0 : bf16
  %view = memref.reinterpret_cast %out to offset: [0], sizes: [%n, 64], strides: [64, 1] : memref<?xbf16> to memref<?x64xbf16>
  memref.copy %view, %other : memref<?x64xbf16> to memref<?x64xbf16>
  %a = memref.alloc(%n) : memref<?x64xbf16>
  linalg.fill ins(%zero : bf16) outs(%a : memref<?x64xbf16>)
  memref.copy %a, %other : memref<?x64xbf16> to memref<?x64xbf16>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%in : memref<?x64xbf16>) outs(%view : memref<?x64xbf16>) {
  ^bb0(%x: bf16, %old: bf16):
    linalg.yield %x : bf16
  }
  memref.dealloc %a : memref<?x64xbf16>
  return
}

// Other sizes, for all that is known.
// CHECK-LABEL: func @sizes
// CHECK:         memref.alloc
func.func @sizes(%in: memref<?x64xbf16>, %out: memref<?xbf16>, %other: memref<?x64xbf16>, %n: index, %m: index) {
  %zero = arith.constant 0.0 : bf16
  %view = memref.reinterpret_cast %out to offset: [0], sizes: [%n, 64], strides: [64, 1] : memref<?xbf16> to memref<?x64xbf16>
  %a = memref.alloc(%m) : memref<?x64xbf16>
  linalg.fill ins(%zero : bf16) outs(%a : memref<?x64xbf16>)
  memref.copy %a, %other : memref<?x64xbf16> to memref<?x64xbf16>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%in : memref<?x64xbf16>) outs(%view : memref<?x64xbf16>) {
  ^bb0(%x: bf16, %old: bf16):
    linalg.yield %x : bf16
  }
  memref.dealloc %a : memref<?x64xbf16>
  return
}

// Shorter rows lie in a part of the output's; longer ones need memory of their own.
// CHECK-LABEL: func @columns
// CHECK:         %[[VIEW:.*]] = memref.reinterpret_cast
// CHECK:         %[[LONG:.*]] = memref.alloc
// CHECK:         %[[PART:.*]] = memref.subview %[[VIEW]][0, 0] [%{{.*}}, 32] [1, 1] : memref<?x64xbf16> to memref<?x32xbf16, strided<[64, 1]>>
// CHECK:         linalg.fill {{.*}} outs(%[[PART]]
// CHECK:         linalg.fill {{.*}} outs(%[[LONG]]
func.func @columns(%in: memref<?x64xbf16>, %out: memref<?xbf16>, %other: memref<?x32xbf16>, %more: memref<?x128xbf16>, %n: index) {
  %zero = arith.constant 0.0 : bf16
  %view = memref.reinterpret_cast %out to offset: [0], sizes: [%n, 64], strides: [64, 1] : memref<?xbf16> to memref<?x64xbf16>
  %long = memref.alloc(%n) : memref<?x128xbf16>
  %a = memref.alloc(%n) : memref<?x32xbf16>
  linalg.fill ins(%zero : bf16) outs(%a : memref<?x32xbf16>)
  linalg.fill ins(%zero : bf16) outs(%long : memref<?x128xbf16>)
  memref.copy %a, %other : memref<?x32xbf16> to memref<?x32xbf16>
  memref.copy %long, %more : memref<?x128xbf16> to memref<?x128xbf16>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%in : memref<?x64xbf16>) outs(%view : memref<?x64xbf16>) {
  ^bb0(%x: bf16, %old: bf16):
    linalg.yield %x : bf16
  }
  memref.dealloc %a : memref<?x32xbf16>
  memref.dealloc %long : memref<?x128xbf16>
  return
}
