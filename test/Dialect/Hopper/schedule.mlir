// RUN: attn-opt %s --split-input-file | attn-opt --split-input-file | FileCheck %s

// CHECK: hopper.schedule = #hopper.schedule<block_m = 128, block_n = 176, output = reuse, maxima = fixed, pipeline = true, ping_pong = true>
module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 176, stages = 2, output = reuse,
                                                      maxima = fixed, pipeline = true, ping_pong = true>} {}

// -----

// CHECK: hopper.nests = #hopper.nests<sums = apart, columns = 512, gradient = true>
module attributes {hopper.nests = #hopper.nests<sums = apart, columns = 512, gradient = true>} {}
