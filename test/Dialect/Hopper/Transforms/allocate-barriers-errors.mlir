// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-allocate-barriers))"

func.func @many(%n: index) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  // expected-error @+1 {{needs 16 named barriers, a CTA has 15}}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    // expected-note @+1 {{14 asked for here}}
    %a = hopper.named_barriers count(14)
    // expected-note @+1 {{2 asked for here}}
    %b = hopper.named_barriers count(2)
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        hopper.barrier.sync %a warpgroups(1)
        hopper.barrier.sync %b warpgroups(1)
      }
    gpu.terminator
  }
  return
}

// -----

func.func @own(%n: index) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %a = hopper.named_barriers count(1)
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        hopper.barrier.sync %a warpgroups(1)
        // expected-error @+1 {{expected a named barrier that hopper.named_barriers gives, as others of the launch are}}
        hopper.barrier.sync %c1 warpgroups(1)
      }
    gpu.terminator
  }
  return
}
