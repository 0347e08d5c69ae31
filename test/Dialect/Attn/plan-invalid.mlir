// RUN: attn-opt %s -allow-unregistered-dialect -split-input-file -verify-diagnostics

// expected-error@below {{expected one streamed loop in a plan, got 0}}
"test.op"() {p = #attn.plan<m_outer, loops = [<"i" : row, parallel>]>} : () -> ()

// -----

// expected-error@below {{expected at most one row loop in a plan, got 2}}
"test.op"() {p = #attn.plan<m_outer, loops = [<"i" : row, parallel>, <"k" : row, parallel>, <"j" : streamed, owner_computes>]>} : () -> ()

// -----

// expected-error@below {{expected 1 part in a plan of order m_outer, got 4}}
"test.op"() {p = #attn.plan<m_outer parts = 4, loops = [<"j" : streamed, owner_computes>]>} : () -> ()

// -----

// expected-error@below {{expected partial_and_merge for the streamed loop j in a plan of order split_kv, got owner_computes}}
"test.op"() {p = #attn.plan<split_kv parts = 4, loops = [<"j" : streamed, owner_computes>]>} : () -> ()

// -----

// expected-error@below {{expected owner_computes for the row loop i in a plan of order n_outer, got parallel}}
"test.op"() {p = #attn.plan<n_outer, loops = [<"i" : row, parallel>, <"j" : streamed, owner_computes>]>} : () -> ()

// -----

// expected-error@below {{expected parallel for the worker loop b in a plan of order m_outer, got atomics}}
"test.op"() {p = #attn.plan<m_outer, loops = [<"b" : worker, atomics>, <"j" : streamed, owner_computes>]>} : () -> ()
