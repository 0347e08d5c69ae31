// RUN: attn-opt %s --split-input-file --verify-diagnostics

// expected-error@below {{'trim' excludes 'overlap': the assembler would run the products one after the other}}
module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 64, pipeline = true, overlap = true, trim = true>} {}

// -----

// expected-error@below {{'trim' needs 'pipeline'}}
module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 64, trim = true>} {}

// -----

// expected-error@below {{fixed maxima exclude 'cluster'}}
module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 64, cluster = 2, maxima = always_fixed>} {}

// -----

// expected-error@below {{'ordered' needs 'adds_sums': there is nothing to order}}
module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 64, ordered = true>} {}

// -----

// expected-error@below {{expected tiles, stages, occupancy and cluster of 1 or more}}
module attributes {hopper.schedule = #hopper.schedule<block_m = 0, block_n = 64>} {}

// -----

// expected-error@below {{'hopper.schedule' is a #hopper.schedule, got "fast"}}
module attributes {hopper.schedule = "fast"} {}

// -----

// expected-error@below {{attribute 'hopper.nests' stands on builtin.module, not on func.func}}
func.func @f() attributes {hopper.nests = #hopper.nests<>} { return }
