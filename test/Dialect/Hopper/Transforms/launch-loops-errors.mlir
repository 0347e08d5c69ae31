// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(func.func(hopper-launch-loops))'

// A plan that the graph does not allow.
func.func @running(%A: memref<8x16xf32>, %m: memref<8xf32>, %P: memref<8x16xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{loop j cannot run by grid-phases: {S2, S3, S4}: S5 reads the running value of S2, which reordering changes}}
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      %x = affine.load %m[%i] : memref<8xf32>
      %y = arith.maximumf %x, %a : f32
      affine.store %y, %m[%i] : memref<8xf32>
      %d = arith.subf %a, %x : f32
      affine.store %d, %P[%i, %j] : memref<8x16xf32>
    } {attn.treatment = "grid_phases"}
  }
  return
}

// -----

func.func @parallel(%A: memref<8xf32>) {
  // expected-error@+1 {{loop i cannot be parallel: RAW dependence from S2 to S1 with direction (1)}}
  affine.for %i = 1 to 8 {
    %a = affine.load %A[%i - 1] : memref<8xf32>
    affine.store %a, %A[%i] : memref<8xf32>
  } {attn.treatment = "parallel"}
  return
}

// -----

func.func @types(%A: memref<8x16xbf16>, %S: memref<8xbf16>) {
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xbf16>
      // expected-error@+1 {{{S2, S3, S4} cannot be computed in parts of loop j: expected running values of f32 or i32}}
      %s = affine.load %S[%i] : memref<8xbf16>
      %t = arith.addf %s, %a : bf16
      affine.store %t, %S[%i] : memref<8xbf16>
    } {attn.treatment = "cluster_reduction"}
  }
  return
}

// -----

func.func @doubles(%A: memref<8xf64>, %S: memref<8xf64>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{expected numbers of 32 bits or less in loops for a GPU, got f64}}
    %a = affine.load %A[%i] : memref<8xf64>
    affine.store %a, %S[%i] : memref<8xf64>
  }
  return
}

// -----

func.func @host(%S: memref<8xf32>, %x: f32) {
  // expected-error@+1 {{'affine.store' is in no loop: expected all accesses of memory in affine loops, which become launches}}
  affine.store %x, %S[0] : memref<8xf32>
  return
}

// -----

func.func @results(%A: memref<8xf32>, %x: f32) -> f32 {
  // expected-error@+1 {{an outermost loop gives values to the host, which has no part in the computation: expected results in memory}}
  %r = affine.for %i = 0 to 8 iter_args(%s = %x) -> f32 {
    %a = affine.load %A[%i] : memref<8xf32>
    %t = arith.addf %s, %a : f32
    affine.yield %t : f32
  }
  return %r : f32
}

// -----

func.func @carried(%A: memref<8x16xf32>, %S: memref<8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{loop j carries values in iter_args; expected running values in memory where it runs by grid-phases}}
    %r = affine.for %j = 0 to 16 iter_args(%s = %x) -> f32 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      %t = arith.addf %s, %a : f32
      affine.yield %t : f32
    } {attn.treatment = "grid_phases"}
    affine.store %r, %S[%i] : memref<8xf32>
  }
  return
}

// -----

// The last loop's number of iterations, and with it of meetings, differs from row to row.
#until = affine_map<(i) -> (i)>
func.func @meetings(%A: memref<8x16xf32>, %S: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{the grid meets inside of a loop or condition that differs from row to row: some teams would wait for ever}}
    affine.for %k = 0 to #until(%i) {
      affine.for %j = 0 to 16 {
        %a = affine.load %A[%i, %j] : memref<8x16xf32>
        %s = affine.load %S[%i] : memref<8xf32>
        %t = arith.addf %s, %a : f32
        affine.store %t, %S[%i] : memref<8xf32>
      } {attn.treatment = "grid_phases"}
    } {attn.treatment = "owner_computes"}
  }
  return
}

// -----

func.func @inside(%A: memref<8x16xf32>, %S: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{a launch cannot end inside of a loop or condition: expected divided loops directly in a row; by grid-phases the grid can meet there}}
    affine.for %k = 0 to 4 {
      affine.for %j = 0 to 16 {
        %a = affine.load %A[%i, %j] : memref<8x16xf32>
        %s = affine.load %S[%i] : memref<8xf32>
        %t = arith.addf %s, %a : f32
        affine.store %t, %S[%i] : memref<8xf32>
      } {attn.treatment = "partial_and_merge"}
    } {attn.treatment = "owner_computes"}
  }
  return
}

// -----

func.func @two(%A: memref<8x16xf32>, %S: memref<8xf32>, %T: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    // expected-note@+1 {{j has grid-phases}}
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
    } {attn.treatment = "grid_phases"}
    // expected-error@+1 {{loops of one nest have one treatment: j2 has cluster-reduction}}
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      %s = affine.load %T[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %T[%i] : memref<8xf32>
    } {attn.treatment = "cluster_reduction"}
  }
  return
}

// -----

func.func @shared(%A: memref<16x?xf32>, %S: memref<?xf32>, %n: index) {
  affine.for %j = 0 to 16 {
    affine.for %i = 0 to %n {
      %a = affine.load %A[%j, %i] : memref<16x?xf32>
      %s = affine.load %S[%i] : memref<?xf32>
      %t = arith.addf %s, %a : f32
      // expected-error@+1 {{expected a number of elements that is known, for shared memory of a cluster}}
      affine.store %t, %S[%i] : memref<?xf32>
    }
  } {attn.treatment = "cluster_reduction"}
  return
}

// -----

func.func @calls(%A: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{'func.call' has no place in a launch of threads: expected affine loops, conditions and accesses, and computations}}
    func.call @other() : () -> ()
  }
  return
}
func.func private @other()

// -----

func.func @shift(%A: memref<8x17xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{loop j cannot run by grid-phases: WAR dependence from S1 to S2 with direction (0, 1) is carried by j, and is no part of a running value}}
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j + 1] : memref<8x17xf32>
      affine.store %a, %A[%i, %j] : memref<8x17xf32>
    } {attn.treatment = "grid_phases"}
  }
  return
}
