// RUN: attn-opt %s --attn-lower-tiles=vector-bits=512 --split-input-file --verify-diagnostics

func.func @scalable(%x: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{expected vectors of fixed size, got 'vector<[4]xf32>'}}
  %zero = arith.constant dense<0.0> : vector<[4]xf32>
  vector.transfer_write %zero, %x[%c0] : vector<[4]xf32>, memref<?xf32>
  return
}

// -----

// expected-error@+1 {{expected no vector among block arguments, got 'vector<16xf32>'}}
func.func @argument(%x: vector<16xf32>) {
  return
}

// -----

func.func @constant(%x: memref<2xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{expected a splat constant, got dense<[1.000000e+00, 2.000000e+00]> : vector<2xf32>}}
  %v = arith.constant dense<[1.0, 2.0]> : vector<2xf32>
  vector.transfer_write %v, %x[%c0] : vector<2xf32>, memref<2xf32>
  return
}

// -----

func.func @reshape(%x: memref<6xf32>, %y: memref<2x3xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %v = vector.transfer_read %x[%c0], %pad : memref<6xf32>, vector<6xf32>
  // expected-error@+1 {{expected a cast that adds or removes unit dimensions, got 'vector<6xf32>' to 'vector<2x3xf32>'}}
  %u = vector.shape_cast %v : vector<6xf32> to vector<2x3xf32>
  vector.transfer_write %u, %y[%c0, %c0] : vector<2x3xf32>, memref<2x3xf32>
  return
}

// -----

func.func @tensor(%x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  // expected-error@+1 {{expected a transfer from or to a memref, got 'tensor<16xf32>'}}
  %v = vector.transfer_read %x[%c0], %pad : tensor<16xf32>, vector<16xf32>
  %t = vector.transfer_write %v, %x[%c0] : vector<16xf32>, tensor<16xf32>
  return %t : tensor<16xf32>
}

// -----

func.func @gather_tensor(%x: tensor<16xf32>, %y: memref<16xf32>) {
  %c0 = arith.constant 0 : index
  %all = arith.constant dense<true> : vector<16xi1>
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %i = vector.step : vector<16xindex>
  // expected-error@+1 {{expected a memref to gather from, got 'tensor<16xf32>'}}
  %g = vector.gather %x[%c0] [%i], %all, %zero : tensor<16xf32>, vector<16xindex>, vector<16xi1>, vector<16xf32> into vector<16xf32>
  vector.transfer_write %g, %y[%c0] : vector<16xf32>, memref<16xf32>
  return
}

// -----

func.func @mask(%x: memref<16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %m = vector.create_mask %n : vector<16xi1>
  // expected-error@+1 {{expected a transfer without mask, got 'vector<16xi1>'}}
  %v = vector.transfer_read %x[%c0], %pad, %m : memref<16xf32>, vector<16xf32>
  vector.transfer_write %v, %x[%c0] : vector<16xf32>, memref<16xf32>
  return
}

// -----

func.func @vector_elements(%x: memref<4xvector<16xf32>>, %y: memref<16xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant dense<0.0> : vector<16xf32>
  // expected-error@+1 {{expected scalar elements in memory, got 'memref<4xvector<16xf32>>'}}
  %v = vector.transfer_read %x[%c0], %pad : memref<4xvector<16xf32>>, vector<1x16xf32>
  %u = vector.shape_cast %v : vector<1x16xf32> to vector<16xf32>
  vector.transfer_write %u, %y[%c0] : vector<16xf32>, memref<16xf32>
  return
}

// -----

func.func @row(%x: memref<4x16xf32>, %y: memref<16xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %v = vector.transfer_read %x[%c0, %c0], %pad : memref<4x16xf32>, vector<4x16xf32>
  // expected-error@+1 {{expected the extraction of one element, got 'vector<16xf32>'}}
  %u = vector.extract %v[2] : vector<16xf32> from vector<4x16xf32>
  vector.transfer_write %u, %y[%c0] : vector<16xf32>, memref<16xf32>
  return
}

// -----

func.func @unknown(%x: memref<16xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %v = vector.transfer_read %x[%c0], %pad : memref<16xf32>, vector<16xf32>
  // expected-error@+1 {{expected an op that tiles can be made of, got 'vector.shuffle'}}
  %u = vector.shuffle %v, %v [0, 2, 4, 6] : vector<16xf32>, vector<16xf32>
  vector.transfer_write %u, %x[%c0] : vector<4xf32>, memref<16xf32>
  return
}

// -----

func.func @square(%x: memref<16x16xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  // expected-error@+1 {{expected the dimensions of a vector to be independent, got 'vector<16x16xf32>' with two dimensions tied to each other}}
  %v = vector.transfer_read %x[%c0, %c0], %pad : memref<16x16xf32>, vector<16x16xf32>
  %w = arith.mulf %v, %v : vector<16x16xf32>
  %t = vector.transpose %w, [1, 0] : vector<16x16xf32> to vector<16x16xf32>
  %s = arith.addf %w, %t : vector<16x16xf32>
  vector.transfer_write %s, %x[%c0, %c0] : vector<16x16xf32>, memref<16x16xf32>
  return
}

// -----

// expected-error@+1 {{expected structured control flow around tiles, got a region of 2 blocks}}
func.func @blocks(%x: memref<16xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<16xf32>
  cf.br ^next
^next:
  vector.transfer_write %zero, %x[%c0] : vector<16xf32>, memref<16xf32>
  return
}

// -----

func.func @mixed(%x: memref<8x8xf16>, %y: memref<8x8xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f16
  %zero = arith.constant dense<0.0> : vector<8x8xf32>
  %a = vector.transfer_read %x[%c0, %c0], %pad : memref<8x8xf16>, vector<8x8xf16>
  %b = vector.transfer_read %x[%c0, %c0], %pad : memref<8x8xf16>, vector<8x8xf16>
  // expected-error@+1 {{expected operands and accumulator of one element type, got 'f16' and 'f32'}}
  %c = vector.contract {indexing_maps = [affine_map<(i,j,d)->(i,d)>, affine_map<(i,j,d)->(d,j)>, affine_map<(i,j,d)->(i,j)>], iterator_types = ["parallel","parallel","reduction"], kind = #vector.kind<add>} %a, %b, %zero : vector<8x8xf16>, vector<8x8xf16> into vector<8x8xf32>
  vector.transfer_write %c, %y[%c0, %c0] : vector<8x8xf32>, memref<8x8xf32>
  return
}
