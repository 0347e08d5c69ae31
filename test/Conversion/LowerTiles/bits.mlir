// RUN: attn-opt %s --attn-lower-tiles="vector-bits=512" | FileCheck %s
// RUN: attn-opt %s --attn-lower-tiles="vector-bits=512" --remarks-filter=attn-lower-tiles -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] lowered | Category:attn-lower-tiles{{$}}

// An i1 has a byte of memory: lanes are read and written one by one.
// CHECK-LABEL: func @bits
// CHECK-NOT: vector.{{.*}}load {{.*}}xi1>
// CHECK: memref.load %arg0[%{{.*}}] : memref<64xi1>
// CHECK-NOT: vector.{{.*}}store {{.*}}xi1>
// CHECK: memref.store %{{.*}}, %arg1[%{{.*}}] : memref<64xi1>
func.func @bits(%x: memref<64xi1>, %y: memref<64xi1>, %z: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %false = arith.constant false
  %ones = arith.constant dense<true> : vector<64xi1>
  %a = vector.transfer_read %x[%c0], %false {in_bounds = [true]} : memref<64xi1>, vector<64xi1>
  %b = arith.xori %a, %ones : vector<64xi1>
  vector.transfer_write %b, %y[%c0] {in_bounds = [true]} : vector<64xi1>, memref<64xi1>
  %c = arith.uitofp %a : vector<64xi1> to vector<64xf32>
  vector.transfer_write %c, %z[%c0] {in_bounds = [true]} : vector<64xf32>, memref<64xf32>
  return
}
