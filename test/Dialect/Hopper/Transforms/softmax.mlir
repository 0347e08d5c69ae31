// Row softmax at L2: no product, no load through shared memory, one role, a CTA for each warpgroup.
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-distribute-rows,canonicalize,cse,hopper-form-products,hopper-create-launches,hopper-specialize-warps,hopper-schedule-tiles,canonicalize,hopper-pipeline-products,hopper-stage-outputs,hopper-start-products,hopper-ping-pong,hopper-expand-channels,hopper-allocate-barriers,canonicalize,cse))" | FileCheck %s
// CHECK-LABEL: func.func @softmax
// CHECK: hopper.roles
// CHECK-NEXT: role "compute" warpgroups(1) registers(240)
// CHECK: vector.transfer_read {{.*}} vector<64x64xf32>
// CHECK: vector.multi_reduction <maxnumf>, {{.*}} : vector<64x64xf32> to vector<64xf32>
// CHECK: vector.transfer_write {{.*}} vector<64x64xf32>
func.func @softmax(%X: memref<?x64xf32>, %Y: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %ninf = arith.constant dense<0xFF800000> : vector<128xf32>
  %zero = arith.constant dense<0.0> : vector<128xf32>
  %pad = arith.constant 0.0 : f32
  %M = memref.dim %X, %c0 : memref<?x64xf32>
  %m = arith.ceildivui %M, %c128 : index
  scf.forall (%i) in (%m) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    %x = vector.transfer_read %X[%i0, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf32>, vector<128x64xf32>
    %max = vector.multi_reduction <maxnumf>, %x, %ninf [1] : vector<128x64xf32> to vector<128xf32>
    %b = vector.broadcast %max : vector<128xf32> to vector<64x128xf32>
    %t = vector.transpose %b, [1, 0] : vector<64x128xf32> to vector<128x64xf32>
    %d = arith.subf %x, %t : vector<128x64xf32>
    %p = math.exp %d : vector<128x64xf32>
    %l = vector.multi_reduction <add>, %p, %zero [1] : vector<128x64xf32> to vector<128xf32>
    %lb = vector.broadcast %l : vector<128xf32> to vector<64x128xf32>
    %lt = vector.transpose %lb, [1, 0] : vector<64x128xf32> to vector<128x64xf32>
    %y = arith.divf %p, %lt : vector<128x64xf32>
    vector.transfer_write %y, %Y[%i0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x64xf32>
  }
  return
}
