// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @misspelled(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{unknown attribute 'hopper.non_empty'}}
  scf.for %i = %c0 to %n step %c1 {
  } {hopper.non_empty}
  return
}

// -----

// expected-error @+1 {{unknown attribute 'hopper.by_tma'}}
func.func private @argument(memref<4xf32> {hopper.by_tma})

// -----

// expected-error @+1 {{attribute 'hopper.aliases' stands on memref.alloc, not on a result of a function}}
func.func private @result() -> (memref<4xf32> {hopper.aliases = 0 : index})

// -----

// expected-error @+1 {{attribute 'hopper.trimmed' stands on scf.for, not on func.func}}
func.func private @elsewhere() attributes {hopper.trimmed}

// -----

func.func @empty() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{'hopper.nonempty' on a loop from 1 to 0}}
  scf.for %i = %c1 to %c0 step %c1 {
  } {hopper.nonempty}
  return
}

// -----

func.func @no_pair(%x: vector<64x64xf32>) -> vector<64x64xf32> {
  // expected-error @+1 {{attribute 'hopper.emulated' is an integer of 1 or more, got 0 : i64}}
  %y = math.exp2 %x {hopper.emulated = 0} : vector<64x64xf32>
  return %y : vector<64x64xf32>
}

// -----

func.func @no_tile(%x: vector<64xf32>) -> vector<64xf32> {
  // expected-error @+1 {{'hopper.emulated' needs a tile of f32, got 'vector<64xf32>'}}
  %y = math.exp2 %x {hopper.emulated = 4} : vector<64xf32>
  return %y : vector<64xf32>
}

// -----

func.func @argument_number(%n: index, %out: memref<?xf32>) {
  // expected-error @+1 {{attribute 'hopper.aliases' is an index of 0 or more, got 1 : i64}}
  %m = memref.alloc(%n) {hopper.aliases = 1} : memref<?xf32>
  return
}

// -----

func.func @dealt(%n: index) {
  // expected-error @+1 {{'hopper.dealt' needs 'hopper.cooperative'}}
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %n, %g1 = %n, %g2 = %n) threads(%t, %t1, %t2) in (%s0 = %n, %s1 = %n, %s2 = %n) {
    gpu.terminator
  } {hopper.dealt}
  return
}

// -----

func.func @cooperative(%n: index) {
  // expected-error @+1 {{'hopper.cooperative' needs 'hopper.dealt': tiles as CTAs that run at the same time have them}}
  gpu.launch blocks(%b, %b1, %b2) in (%g0 = %n, %g1 = %n, %g2 = %n) threads(%t, %t1, %t2) in (%s0 = %n, %s1 = %n, %s2 = %n) {
    gpu.terminator
  } {hopper.cooperative}
  return
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{attribute 'hopper.occupancy' is an integer of 1 or more, got 0 : i64}}
  gpu.func @none() kernel attributes {hopper.occupancy = 0} {
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{'hopper.occupancy' is 33, at most 32 CTAs share a multiprocessor}}
  gpu.func @many() kernel attributes {hopper.occupancy = 33} {
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{'hopper.occupancy' is 6, for CTAs of 384 threads; a multiprocessor has 2048}}
  gpu.func @threads() kernel attributes {hopper.occupancy = 6, known_block_size = array<i32: 384, 1, 1>} {
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{'hopper.occupancy' is 2, for CTAs of 200000 bytes of shared memory; each has 115712}}
  gpu.func @memory() kernel attributes {hopper.occupancy = 2, hopper.shared_bytes = 200000} {
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{attribute 'hopper.shared_bytes' is an integer of 0 or more, got -16 : i64}}
  gpu.func @negative() kernel attributes {hopper.shared_bytes = -16} {
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{attribute 'hopper.tensor_maps' is an array of integers of 0 or more, got array<i64: -1>}}
  gpu.func @maps() kernel attributes {hopper.tensor_maps = array<i64: -1>} {
    gpu.return
  }
}
