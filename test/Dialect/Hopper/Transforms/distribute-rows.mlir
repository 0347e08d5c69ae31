// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-distribute-rows))" | FileCheck %s
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-distribute-rows))" --remarks-filter=hopper-distribute-rows -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}3 [Passed] distributed | Category:hopper-distribute-rows{{$}}

func.func @ninety_six(%Y: memref<?x64xf32>, %v: vector<96x64xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{has tiles of 96 rows; 64 for each of 1 to 3 warpgroups are needed}}
  scf.forall (%i) in (4) {
    vector.transfer_write %v, %Y[%i, %c0] {in_bounds = [false, true]} : vector<96x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

func.func @four(%Y: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{has tiles of 256 rows; 64 for each of 1 to 3 warpgroups are needed}}
  scf.forall (%i) in (4) {
    %v = arith.constant dense<1.0> : vector<256x64xf32>
    vector.transfer_write %v, %Y[%i, %c0] {in_bounds = [false, true]} : vector<256x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

// A list that has no rows for each warpgroup: all of them write it.
// CHECK-LABEL: func.func @list
// CHECK: scf.forall (%[[W:.*]]) in (2)
// CHECK: %[[R:.*]] = affine.apply {{.*}}(%[[W]], %{{.*}})
// CHECK: vector.transfer_write %{{.*}}, %arg0[%[[R]], %{{.*}}] {{.*}} : vector<64x64xf32>
// CHECK: vector.transfer_write %{{.*}}, %arg1[%{{.*}}] : vector<32xi32>, memref<?xi32>
func.func @list(%Y: memref<?x64xf32>, %Z: memref<?xi32>, %z: vector<32xi32>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (4) {
    %v = arith.constant dense<1.0> : vector<128x64xf32>
    %r = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    vector.transfer_write %v, %Y[%r, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x64xf32>
    vector.transfer_write %z, %Z[%i] : vector<32xi32>, memref<?xi32>
  }
  return
}

// -----

// A tile whose truth is asked for beside one that is written: both are divided alike.
// CHECK-LABEL: func.func @beside
// CHECK: scf.forall (%[[W:.*]]) in (2)
// CHECK: vector.transfer_write %{{.*}} : vector<64x64xf32>, memref<?x64xf32>
// CHECK: %[[T:.*]] = vector.transfer_read %arg1[%{{.*}}, %{{.*}}], %{{.*}} : memref<?x32xi1>, vector<64x32xi1>
// CHECK: hopper.barrier.reduce any %[[T]], %{{.*}} warpgroups(2) : vector<64x32xi1>
func.func @beside(%Y: memref<?x64xf32>, %X: memref<?x32xi1>, %Z: memref<?xi1>) {
  %c0 = arith.constant 0 : index
  %false = arith.constant false
  %none = arith.constant dense<false> : vector<32xi1>
  scf.forall (%i) in (4) {
    %v = arith.constant dense<1.0> : vector<128x64xf32>
    %r = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    vector.transfer_write %v, %Y[%r, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x64xf32>
    %t = vector.transfer_read %X[%r, %c0], %false {in_bounds = [false, true]} : memref<?x32xi1>, vector<128x32xi1>
    %columns = vector.multi_reduction <or>, %t, %none [0] : vector<128x32xi1> to vector<32xi1>
    %any = vector.reduction <or>, %columns : vector<32xi1> into i1
    memref.store %any, %Z[%i] : memref<?xi1>
  }
  return
}

// -----

func.func @only_list(%Z: memref<?xi32>, %z: vector<32xi32>) {
  // expected-error @+1 {{has tiles of 32 rows; 64 for each of 1 to 3 warpgroups are needed}}
  scf.forall (%i) in (4) {
    vector.transfer_write %z, %Z[%i] : vector<32xi32>, memref<?xi32>
  }
  return
}

// -----

func.func @nothing(%Y: memref<?xf32>, %f: f32) {
  // expected-error @+1 {{writes no tile, so there are no rows to divide among warpgroups}}
  scf.forall (%i) in (4) {
    memref.store %f, %Y[%i] : memref<?xf32>
  }
  return
}

// -----

func.func @two(%Y: memref<?x64xf32>, %Z: memref<?x64xf32>, %a: memref<128x64xf32>, %b: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  scf.forall (%i) in (4) {
    %v = vector.transfer_read %a[%c0, %c0], %pad : memref<128x64xf32>, vector<128x64xf32>
    %w = vector.transfer_read %b[%c0, %c0], %pad : memref<64x64xf32>, vector<64x64xf32>
    vector.transfer_write %v, %Y[%i, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x64xf32>
    // expected-error @+1 {{the first dimension of this tile is not the one of the other tiles that are written}}
    vector.transfer_write %w, %Z[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

func.func @rank0(%Y: memref<f32>) {
  // expected-error @+1 {{writes no tile, so there are no rows to divide among warpgroups}}
  scf.forall (%i) in (4) {
    %v = arith.constant dense<1.0> : vector<f32>
    vector.transfer_write %v, %Y[] : vector<f32>, memref<f32>
  }
  return
}

// -----

func.func @outside(%Y: memref<?x64xf32>, %v: vector<128x64xf32>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (4) {
    // expected-error @+1 {{uses rows of a tile from outside of the loop, which cannot be divided among warpgroups}}
    vector.transfer_write %v, %Y[%i, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

func.func @table(%Y: memref<?xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @+1 {{expected a splat constant}}
    %v = arith.constant dense<[0.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0,10.0,11.0,12.0,13.0,14.0,15.0,16.0,17.0,18.0,19.0,20.0,21.0,22.0,23.0,24.0,25.0,26.0,27.0,28.0,29.0,30.0,31.0,32.0,33.0,34.0,35.0,36.0,37.0,38.0,39.0,40.0,41.0,42.0,43.0,44.0,45.0,46.0,47.0,48.0,49.0,50.0,51.0,52.0,53.0,54.0,55.0,56.0,57.0,58.0,59.0,60.0,61.0,62.0,63.0,64.0,65.0,66.0,67.0,68.0,69.0,70.0,71.0,72.0,73.0,74.0,75.0,76.0,77.0,78.0,79.0,80.0,81.0,82.0,83.0,84.0,85.0,86.0,87.0,88.0,89.0,90.0,91.0,92.0,93.0,94.0,95.0,96.0,97.0,98.0,99.0,100.0,101.0,102.0,103.0,104.0,105.0,106.0,107.0,108.0,109.0,110.0,111.0,112.0,113.0,114.0,115.0,116.0,117.0,118.0,119.0,120.0,121.0,122.0,123.0,124.0,125.0,126.0,127.0]> : vector<128xf32>
    vector.transfer_write %v, %Y[%i] : vector<128xf32>, memref<?xf32>
  }
  return
}

// -----

// A single element is everybody's: its vector is whole.
// CHECK-LABEL: func.func @extract
// CHECK: scf.forall (%[[W:.*]]) in (2)
// CHECK: vector.transfer_read {{.*}} vector<128xf32>
// CHECK: vector.broadcast {{.*}} vector<64xf32>
func.func @extract(%Y: memref<?xf32>, %X: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  scf.forall (%i) in (1) {
    %v = vector.transfer_read %X[%c0], %pad : memref<?xf32>, vector<128xf32>
    %e = vector.extract %v[100] : f32 from vector<128xf32>
    %b = vector.broadcast %e : f32 to vector<128xf32>
    vector.transfer_write %b, %Y[%i] : vector<128xf32>, memref<?xf32>
  }
  return
}
