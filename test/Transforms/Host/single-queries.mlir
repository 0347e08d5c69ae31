// RUN: attn-opt %s --split-input-file --attn-specialize-single-queries | FileCheck %s
// RUN: attn-opt %s --split-input-file --attn-specialize-single-queries=open-lengths=false | FileCheck %s --check-prefix=KNOWN

// Nothing is known of the heads: first the version without groups is asked for. A log-sum-exp that nobody
// wants stays away.
// CHECK-LABEL: func.func @open(
// CHECK:         attn.forward %arg0, %arg1, %arg2 : tensor<?x?x?x64xf32>
// CHECK:       func.func @open_1(
// CHECK-SAME:      attn.version_of = "open"
// CHECK-SAME:      attn.when = [#attn.size<argument = 0, dim = 2, exactly 1>, #attn.ordered_sizes<dim = 1, argument 0 at_most argument 1>]
// CHECK:         %[[Q:.*]] = tensor.cast %arg0 : tensor<?x?x?x64xf32> to tensor<?x?x1x64xf32>
// CHECK:         %[[O:.*]] = attn.forward %[[Q]], %arg1, %arg2 {ungrouped} : {{.*}} -> tensor<?x?x1x64xf32>
// CHECK:         %[[R:.*]] = tensor.cast %[[O]] : tensor<?x?x1x64xf32> to tensor<?x?x?x64xf32>
// CHECK:         return %[[R]]
// CHECK:       func.func @open_0(
// CHECK-SAME:      attn.when = [#attn.size<argument = 0, dim = 2, exactly 1>]
// CHECK:         attn.forward %{{.*}}, %arg1, %arg2 : tensor<?x?x1x64xf32>
// KNOWN-LABEL: func.func @open(
// KNOWN-NOT:   func.func @open_
func.func @open(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32> {
  %o = attn.forward %q, %k, %v : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// -----

// One query by its types: only the heads are asked for.
// CHECK-LABEL: func.func @one(
// CHECK-NOT:     ungrouped
// CHECK:       func.func @one_0(
// CHECK-SAME:      attn.when = [#attn.ordered_sizes<dim = 1, argument 0 at_most argument 1>]
// CHECK-NOT:     tensor.cast
// CHECK:         attn.forward %arg0, %arg1, %arg1 {ungrouped}
// CHECK-NOT:   func.func @one_
// KNOWN-LABEL: func.func @one(
// KNOWN:       func.func @one_0(
func.func @one(%q: tensor<?x?x1x64xf32>, %k: tensor<?x?x?x64xf32>) -> (tensor<?x?x1x64xf32>, tensor<?x?x1xf32>) {
  %o, %lse = attn.forward %q, %k, %k : tensor<?x?x1x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x1x64xf32>, tensor<?x?x1xf32>
  return %o, %lse : tensor<?x?x1x64xf32>, tensor<?x?x1xf32>
}

// -----

// Groups by the types.
// CHECK-LABEL: func.func @groups(
// CHECK:       func.func @groups_0(
// CHECK-SAME:      attn.when = [#attn.size<argument = 0, dim = 2, exactly 1>]
// CHECK-NOT:     ungrouped
// CHECK-NOT:   func.func @groups_
func.func @groups(%q: tensor<1x8x?x64xf32>, %k: tensor<1x2x?x64xf32>) -> tensor<1x8x?x64xf32> {
  %o = attn.forward %q, %k, %k : tensor<1x8x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32> -> tensor<1x8x?x64xf32>
  return %o : tensor<1x8x?x64xf32>
}

// -----

// Of a gradient all that has a row for each query.
// CHECK-LABEL: func.func @gradient_0(
// CHECK-COUNT-5: tensor.cast %{{.*}} : tensor<1x2x{{.*}} to tensor<1x2x1x{{.*}}
// CHECK:         attn.backward {{.*}} lse_gradient(%{{.*}} : tensor<1x2x1xf32>)
// CHECK-SAME:      -> tensor<1x2x1x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>
// CHECK:         tensor.cast %{{.*}} : tensor<1x2x1x64xf32> to tensor<1x2x?x64xf32>
func.func @gradient(%q: tensor<1x2x?x64xf32>, %k: tensor<1x2x?x64xf32>, %o: tensor<1x2x?x64xf32>, %lse: tensor<1x2x?xf32>,
                    %do: tensor<1x2x?x64xf32>, %dlse: tensor<1x2x?xf32>) -> (tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>) {
  %dq, %dk, %dv = attn.backward %do, %q, %k, %k, %o, %lse lse_gradient(%dlse : tensor<1x2x?xf32>)
    : tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>
  return %dq, %dk, %dv : tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>
}

// -----

// Left as they are: a query that is computed, one of a known length, all known.
// CHECK-LABEL: func.func @computed(
// CHECK-NOT:   func.func @computed_
func.func @computed(%q: tensor<1x2x?x64xf32>, %k: tensor<1x2x?x64xf32>) -> tensor<1x2x?x64xf32> {
  %s = arith.negf %q : tensor<1x2x?x64xf32>
  %o = attn.forward %s, %k, %k : tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32> -> tensor<1x2x?x64xf32>
  return %o : tensor<1x2x?x64xf32>
}
// CHECK-LABEL: func.func @eight(
// CHECK-NOT:   func.func @eight_
func.func @eight(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x?x64xf32>) -> tensor<?x?x8x64xf32> {
  %o = attn.forward %q, %k, %k : tensor<?x?x8x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x8x64xf32>
  return %o : tensor<?x?x8x64xf32>
}
// CHECK-LABEL: func.func @known(
// CHECK-NOT:   func.func @known_
func.func @known(%q: tensor<1x2x1x64xf32>, %k: tensor<1x2x?x64xf32>) -> tensor<1x2x1x64xf32> {
  %o = attn.forward %q, %k, %k : tensor<1x2x1x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32> -> tensor<1x2x1x64xf32>
  return %o : tensor<1x2x1x64xf32>
}
