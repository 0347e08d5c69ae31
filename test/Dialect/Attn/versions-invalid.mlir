// RUN: attn-opt %s --split-input-file --verify-diagnostics

// expected-error@below {{expects a last version without conditions}}
attn.versions @f {
  module attributes {attn.when = [#attn.size<argument = 0, dim = 0, above 64>]} {
    func.func @f(%x: memref<?xf32>) { return }
  }
}

// -----

// expected-error@below {{expects a function @f in version 0}}
attn.versions @f {
  module { func.func @g() { return } }
}

// -----

// expected-error@below {{expects one module in each region, region 0 has something else}}
attn.versions @f {
  func.func @f() { return }
}

// -----

// expected-error@below {{'attn.when' is an array of conditions, such as #attn.size<argument = 1, dim = 2, at_most 2048>, got [1]}}
module attributes {attn.when = [1]} {}
