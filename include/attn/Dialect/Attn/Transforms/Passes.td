// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_PASSES
#define ATTN_DIALECT_ATTN_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def AttnDifferentiate : Pass<"attn-differentiate", "::mlir::ModuleOp"> {
  let summary = "Add the gradient function of each function, by reverse mode";
  let description = [{
    For a function `@f` adds `@f_gradient`, the vector-Jacobian product of `@f`:

    - arguments: those of `@f`; with `saved-results` the float-tensor results of
      `@f`; one incoming gradient per float-tensor result, of its type, or only
      for those at the positions `results`: that of another is 0;
    - results: one gradient per float argument, in order: of the argument's
      type, or a tensor without dimensions for a scalar. An argument that no
      result depends on gets zeros. With `arguments` only those at these
      positions have one.

    Every function of the module that has a float argument and a float tensor as
    result is differentiated, or only the one that `function` names.

    The gradient of an `attn.forward` is an `attn.backward`, that of an
    `attn.softmax` an `attn.softmax_backward`; the `gradient` region is derived
    from the score region. That of an `attn.backward` is an `attn.jvp`, for the
    gradient of O, and an `attn.backward_jvp`: they are gradients of the whole
    function of Q, K, V and dO, so that O and LSE, which the forward gives for the
    same operands, have none of their own (zeros where they are arguments). The forward is computed again, with a log-sum-exp if
    it had none; what `saved-results` hands in is not computed again. Besides,
    `arith` and `math` on float scalars and tensors, `tensor.cast`,
    `tensor.expand_shape`, `tensor.collapse_shape`, `tensor.extract`,
    `tensor.extract_slice`, `tensor.from_elements` and `linalg.transpose` are
    differentiated. Gradients of several uses are added, in f32, or in f64 where
    the value is f64.

    Derivatives follow PyTorch where there is a choice: at the edge of a domain
    they are what the formula gives (inf for sqrt at 0), a maximum or minimum of
    equal operands gives each one half, roundings give nothing, |x| gives 0 at
    0, and so does x^p for p = 0. Integers, indices, conditions and the mask
    carry no gradient. The side that a select, maximum or minimum did not take
    gets 0, even where the derivative on that side is infinite or NaN, as in
    `select(x > 0, sqrt(x), 0)`. A branch that is discarded by multiplying it
    by 0 is not protected in this way. Nor are pairs that the mask removes: what
    a `gradient` region gives for them is not used, whatever it is.

    Refused, with an error at the op: any other op on a path from a float
    argument to a result, writes of values that depend on a float argument,
    functions of several blocks, and float arguments or results that are neither
    ranked tensors nor (for arguments) scalars, and floats wider than f64.

    Before:

    ```mlir
    func.func @f(%q: tensor<1x2x?x64xf32>, %k: tensor<1x2x?x64xf32>,
                 %v: tensor<1x2x?x64xf32>, %cap: f32) -> tensor<1x2x?x64xf32> {
      %o = attn.forward %q, %k, %v scale 0.125 captures(%cap : f32)
        score {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32):
          %r = arith.mulf %s, %c : f32
          attn.yield %r : f32
        } : tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>
            -> tensor<1x2x?x64xf32>
      return %o : tensor<1x2x?x64xf32>
    }
    ```

    After, beside `@f` (types and the score shortened):

    ```mlir
    func.func @f_gradient(%q: ..., %k: ..., %v: ..., %cap: f32, %do: ...)
        -> (tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<f32>) {
      %o, %lse = attn.forward %q, %k, %v scale 0.125 captures(%cap : f32) score {...} ...
      %dq, %dk, %dv, %dcap = attn.backward %do, %q, %k, %v, %o, %lse scale 0.125
        captures(%cap : f32) score {...}
        gradient {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32, %dt: f32):
          %ds = arith.mulf %dt, %c : f32
          %dc = arith.mulf %dt, %s : f32
          attn.accumulate %dc into %c : f32 into f32
          attn.yield %ds : f32
        } ...
      return %dq, %dk, %dv, %dcap : ...
    }
    ```

    Needed by: all gradients.
  }];
  let options = [
    Option<"function", "function", "std::string", /*default=*/"\"\"",
           "The function to differentiate; all where empty">,
    Option<"savedResults", "saved-results", "bool", /*default=*/"false",
           "Take the function's float-tensor results as arguments">,
    ListOption<"arguments", "arguments", "int64_t",
               "Positions of the arguments whose gradients are wanted; those of all "
               "floats where empty">,
    ListOption<"results", "results", "int64_t",
               "Positions of the results that have an incoming gradient; all float "
               "tensors where empty">,
  ];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def AttnBuildJvp : Pass<"attn-build-jvp", "::mlir::ModuleOp"> {
  let summary = "Add the Jacobian-vector product of each function, by forward mode";
  let description = [{
    For a function `@f` adds `@f_jvp`, the tangents of its results:

    - arguments: those of `@f`; with `saved-results` the float-tensor results of
      `@f`; one tangent per float argument, of its type, or only for those at the
      positions `arguments`: that of another is 0;
    - results: one tangent per float-tensor result, of its type, or only for those at
      the positions `results`.

    Every function of the module that has a float argument and a float tensor as
    result gets one, or only the one that `function` names.

    The tangents of an `attn.forward` are an `attn.jvp`, those of an `attn.backward` an
    `attn.backward_jvp`, whose `tangent` region is derived from the score region. For other
    operations those of `attn-differentiate` hold, with the same conventions; here
    `attn.softmax` and its gradient are refused, and so are tangents of a scale.

    Before:

    ```mlir
    func.func @f(%q: tensor<1x2x?x64xf32>, %k: tensor<1x2x?x64xf32>,
                 %v: tensor<1x2x?x64xf32>) -> tensor<1x2x?x64xf32> {
      %o = attn.forward %q, %k, %v scale 0.125
        : tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32> -> tensor<1x2x?x64xf32>
      return %o : tensor<1x2x?x64xf32>
    }
    ```

    After, beside `@f` (types shortened), with `arguments=0`:

    ```mlir
    func.func @f_jvp(%q: ..., %k: ..., %v: ..., %dq: ...) -> tensor<1x2x?x64xf32> {
      %o, %lse = attn.forward %q, %k, %v scale 0.125 : ...
      %do, %dlse = attn.jvp %q, %k, %v, %o, %lse query(%dq : ...) scale 0.125 : ...
      return %do : tensor<1x2x?x64xf32>
    }
    ```

    Needed by: forward-mode derivatives, and products with a Hessian.
  }];
  let options = [
    Option<"function", "function", "std::string", /*default=*/"\"\"",
           "The function to differentiate; all where empty">,
    Option<"savedResults", "saved-results", "bool", /*default=*/"false",
           "Take the function's float-tensor results as arguments">,
    ListOption<"arguments", "arguments", "int64_t",
               "Positions of the arguments that have a tangent; all floats where empty">,
    ListOption<"results", "results", "int64_t",
               "Positions of the results whose tangents are wanted; all float tensors where "
               "empty">,
  ];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def AttnDefineIntegers : Pass<"attn-define-integers"> {
  let summary = "Give integer operations of regions a result for all operands";
  let description = [{
    Makes operations of `arith` in the regions of attention ops, and in `linalg.generic`, defined
    for all operands, as `attn.forward` says: division by zero, quotients and conversions of floats
    that do not fit, shifts by all bits or more. Promises (`overflow<nsw>`, `exact`) are dropped:
    arithmetic wraps. Casts of an index that may lose bits become truncations, which fold as such.
    Passes that come later compute more than pairs (lanes beyond the end, both sides of a select),
    and need not care.

    What the ranges of integers prove to be harmless stays as it is: a divisor that is a constant,
    or one more than an index.

    Before:

    ```mlir
    ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<?xi64>):
      %w = tensor.extract %t[%j] : tensor<?xi64>
      %wi = arith.index_cast %w : i64 to index
      %q = arith.floordivsi %i, %wi : index
    ```

    After:

    ```mlir
    ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<?xi64>):
      %w = tensor.extract %t[%j] : tensor<?xi64>
      %wi = arith.index_cast %w : i64 to index
      %none = arith.cmpi eq, %wi, %c0 : index
      %by = arith.select %none, %c1, %wi : index
      %d = arith.floordivsi %i, %by : index
      %q = arith.select %none, %c0, %d : index
    ```

    Needed by: kernels with regions that divide, convert or shift integers, or promise no overflow.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def AttnProveKeys : Pass<"attn-prove-keys"> {
  let summary = "Say where every row of a gradient has a key";
  let description = [{
    Sets `rows_have_keys` on each `attn.backward` whose mask provably keeps a key of each
    row and whose score stays finite where it was: what does not have to hold where rows
    are without keys (`attn-expand` replaces their dO by 0) is then not done.

    A mask keeps the first key of each row where the ranges of its integers say so, whatever
    is captured (causal). It keeps a row's own key where it folds to true once j is i (a
    window; documents, that are the same for queries and keys): that is a key where
    there are no more rows than keys, which the shapes say, or the option. The score only has to
    stay finite for that key: ALiBi's slope is then multiplied by 0, which gives 0 or NaN,
    but not -inf (a row that has NaN has a key).

    ```mlir
    // Before, with no-more-rows.
    attn.backward %do, %q, %k, %v, %o, %lse mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %far = arith.subi %i, %j : index
      %past = arith.cmpi sge, %far, %c0 : index
      %near = arith.cmpi slt, %far, %c1024 : index
      %both = arith.andi %past, %near : i1
      attn.yield %both : i1
    } : ...
    // After.
    attn.backward %do, %q, %k, %v, %o, %lse mask {...} {rows_have_keys} : ...
    ```

    Nothing is said of an op with a sink: where that is -inf, its rows are as others are.

    Needed by: all gradients.
  }];
  let options = [Option<"noMoreRows", "no-more-rows", "bool", /*default=*/"false",
                        "Take for granted that there are no more rows than keys">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
}

def AttnPadHeads : Pass<"attn-pad-heads"> {
  let summary = "Give head dimensions columns of zeros, up to a multiple";
  let description = [{
    Of each `attn.forward` and `attn.backward` whose head dimension of keys, or of values, is no
    multiple of `multiple`, the operands are copied to tensors with columns of zeros behind
    their own, and the results are slices. Zeros change neither a score nor a column that
    was there. The scale is that of the columns that were there.

    For targets that copy rows in units of some bytes (TMA: 16), in front of their pipeline.
    The copies cost memory for the padded tensors, and the time to read and write them.

    ```mlir
    // Before, with multiple=8.
    %o = attn.forward %q, %k, %v : tensor<1x2x?x59xbf16>, tensor<1x2x?x59xbf16>,
             tensor<1x2x?x64xbf16> -> tensor<1x2x?x64xbf16>
    // After.
    %e = tensor.empty(%s) : tensor<1x2x?x64xbf16>
    %z = linalg.fill ins(%zero : bf16) outs(%e : tensor<1x2x?x64xbf16>) -> tensor<1x2x?x64xbf16>
    %p = tensor.insert_slice %q into %z[0, 0, 0, 0] [1, 2, %s, 59] [1, 1, 1, 1]
             : tensor<1x2x?x59xbf16> into tensor<1x2x?x64xbf16>
    // ... and the keys, %r
    %o = attn.forward %p, %r, %v scale 0.130 : tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>,
             tensor<1x2x?x64xbf16> -> tensor<1x2x?x64xbf16>
    ```

    Needed by: GPU kernels with a head dimension that is no multiple of 8.
  }];
  let options = [Option<"multiple", "multiple", "int64_t", /*default=*/"8",
                        "What head dimensions are a multiple of afterwards">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def AttnExpand : Pass<"attn-expand"> {
  let summary = "Expand attention ops into the naive chain of linalg statements";
  let description = [{
    Replaces each `attn.forward` and `attn.softmax` by its definition: one
    `linalg.generic` per statement (contraction, score, mask, row maximum,
    exponential, row sum, contraction, division). The chain is meant to be
    read, analysed and fused, not run: its intermediates have a query and a key
    dimension.

    Where query and key heads may differ, the query heads are split into
    (key head, group), so that every access is a projection of the iteration
    space. A row maximum of -inf (every key masked) is replaced by 0 before it
    is subtracted, so that such a row has p = 0.

    The gradient of a capture that is read at computed indices is a sum over all pairs
    into a table. With `table-rows` R, each R rows have a table of their own, at the
    index (row floordiv R), and these are summed up behind: tiles of rows then share no
    cell, and the sum has one order.

    With `pairs-apart` the gradient of a capture that has an element for each query and key
    follows from scores, weights and their derivatives of its own: a nest that stores
    something for each pair need not be one that sums.

    In rows without keys dO is replaced by 0, for it may be infinite or NaN. With `large-rows` only
    in those where the sum of its sizes is NaN or not below 2^32: few rows, whole ones, which can
    be left out of tiles (`hopper-drop-rows`).

    A table has no dimension of queries or keys. Where the read has one, or where its computed
    indices depend on neither, the gradient is summed over what no index depends on, and
    `attn.scatter_sum` adds it up behind. Refused, with an error at the `attn.accumulate`: a wanted
    gradient of a capture that is read at an index of queries or keys and at one that is computed of the score.

    An LSE in f32 is off by |LSE| / 2^24: beside scores of -1e9 the logarithm of the sum is lost in
    it, and the weights exp(t - LSE) of a gradient sum to the number of keys. With `large-scores`
    rows of |LSE| >= 256 take exp((t - m) - log l) with a maximum and a sum of their own; the LSE has
    to be that of all keys of the op. `large-scores=branch` computes them in an `scf.if` where there
    is such a row, `large-scores=rows` for all rows:

    ```mlir
    %largest = linalg.generic (b,h,i) ins(%lse) ...      // max |LSE|, of the large finite ones
    %shift, %log_sum = scf.if (%largest != 0) {
      ...                                                // %s, %t, %m, %ms, %p, %l as below
      scf.yield %ms, %log_l
    } else {
      scf.yield %lse, %zeros
    }
    %p = linalg.generic (b,h,i,j) ins(%t, %lse, %shift, %log_sum) ...  // |lse| >= 256 ?
                                                         // exp((t - shift) - log_sum) : exp(t - lse)
    ```

    Afterwards no `attn.forward` and no `attn.softmax` is left.

    Before:

    ```mlir
    %o = attn.forward %q, %k, %v scale 0.125 : tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>,
             tensor<1x2x?x64xf32> -> tensor<1x2x?x64xf32>
    ```

    After (maps and bodies shortened):

    ```mlir
    %s  = linalg.generic (b,h,i,j,d) ins(%q, %k) ...   // sum_d q k
    %t  = linalg.generic (b,h,i,j)   ins(%s) ...       // scale, score
    %m  = linalg.generic (b,h,i,j)   ins(%t) ...       // max_j
    %ms = linalg.generic (b,h,i)     ins(%m) ...       // m == -inf ? 0 : m
    %p  = linalg.generic (b,h,i,j)   ins(%t, %ms) ...  // exp(t - ms)
    %l  = linalg.generic (b,h,i,j)   ins(%p) ...       // sum_j
    %a  = linalg.generic (b,h,i,j,e) ins(%p, %v) ...   // sum_j p v
    %o  = linalg.generic (b,h,i,e)   ins(%a, %l) ...   // l == 0 ? 0 : a / l
    ```

    Needed by: all kernels of attention and softmax.
  }];
  let options = [
    Option<"tableRows", "table-rows", "int64_t", /*default=*/"0",
           "Rows whose sums at computed indices have a table of their own; 0: all rows">,
    Option<"pairsApart", "pairs-apart", "bool", /*default=*/"false",
           "Gradients with an element for each pair follow from statements of their own">,
    Option<"largeRows", "large-rows", "bool", /*default=*/"false",
           "The output's gradient is replaced by 0 in rows without keys only where it is large">,
    Option<"largeScores", "large-scores", "std::string", /*default=*/"\"inexact\"",
           "How weights of a gradient sum to 1 in rows of large scores, too: branch, rows; or "
           "inexact">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif
