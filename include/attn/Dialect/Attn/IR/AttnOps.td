// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The attn dialect: attention as mathematics (L0) and the streaming fold (L1).

#ifndef ATTN_OPS
#define ATTN_OPS

include "mlir/IR/OpBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::attn";
  let summary = "Attention on ranked tensors, written as mathematics";
  let description = [{
    `attn.forward` and `attn.softmax` say what to compute (level L0): the
    tensors, the scale, and two scalar regions that change a score or remove a
    pair of query and key. Nothing here says how; loops, tiles and threads are
    derived by passes.

    `attn.fold` (level L1) is what online-softmax fusion derives: one pass over
    blocks of a dimension with carried state. `attn.scatter_sum` (level L1) adds up
    what belongs at computed indices. `attn.scatter_add` (level L2) is
    the one thing that a tile program needs and upstream's dialects lack.
  }];
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = "void registerAttributes();";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::tensor::TensorDialect"];
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

include "attn/Dialect/Attn/IR/AttnAttrs.td"

class Attn_Op<string mnemonic, list<Trait> traits = []>
    : Op<Attn_Dialect, mnemonic, traits>;

def Attn_Float : AnyTypeOf<[F64, F32, BF16, F16]>;
def Attn_Tensor3 : TensorRankOf<[Attn_Float], [3]>;
def Attn_Tensor4 : TensorRankOf<[Attn_Float], [4]>;
def Attn_Capture : AnyTypeOf<[AnyFloat, AnySignlessInteger, Index,
                              RankedTensorOf<[AnyFloat, AnySignlessInteger, Index]>]>;

class Attn_OnTensorsOrMemory<list<Type> elements, int rank>
    : AnyTypeOf<[TensorRankOf<elements, [rank]>, MemRefRankOf<elements, [rank]>]>;

def Attn_PagesOp : Attn_Op<"pages", [
    Pure, DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "Keys or values of sequences whose rows lie in pages of a pool";
  let description = [{
    For every sequence `b`, head `h`, row `j` and column `d`, with the page size `P` (a static
    size, any number from 1):

    ```
    result[b,h,j,d] = j < lengths[b] ? pool[table[b, j floordiv P], h, j mod P, d] : 0
    ```

    Shapes: pool `[pages,H,P,D]`, table `[B,T]`, lengths `[B]`, result `[B,H,T*P,D]`. Entries
    of the table for rows below the length are pages of the pool; the others may hold any number,
    and rows of the pool that no sequence uses may hold anything: neither is read. A length is at most T*P;
    what is negative counts as 0.

    Nothing is copied: in a tile program the result is what tiles are read from, row by row or
    page by page, wherever strides put them (`attn-resolve-pages` on CPUs, `tile.copy` with a table on GPUs).
    On memrefs the op is that view. Who reads it as keys of attention masks `j < lengths[b]`, for zeros are keys too.

    ```mlir
    %k = attn.pages %pool[%table] lengths(%used)
        : tensor<?x8x16x128xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x8x?x128xbf16>
    ```

    Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with
    PagedAttention (2023).
  }];
  let arguments = (ins Attn_OnTensorsOrMemory<[F64, F32, BF16, F16], 4>:$pool,
                       Attn_OnTensorsOrMemory<[I32, I64], 2>:$table,
                       Attn_OnTensorsOrMemory<[I32, I64], 1>:$lengths);
  let results = (outs Attn_OnTensorsOrMemory<[F64, F32, BF16, F16], 4>:$result);
  let assemblyFormat = [{
    $pool `[` $table `]` `lengths` `(` $lengths `)` attr-dict `:`
    type($pool) `,` type($table) `,` type($lengths) `->` type($result)
  }];
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::ShapedType getPoolType() { return ::llvm::cast<::mlir::ShapedType>(getPool().getType()); }
    /// Rows of a page.
    int64_t getPageSize() { return getPoolType().getDimSize(2); }
  }];
}

def Attn_ForwardOp : Attn_Op<"forward", [
    Pure, AttrSizedOperandSegments, IsolatedFromAbove, SingleBlockImplicitTerminator<"YieldOp">,
    RecursiveMemoryEffects,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "softmax(mask(score(scale * Q K^T))) V, and the log-sum-exp of each row";
  let description = [{
    For every batch `b`, query head `h`, query `i` and key `j`, with
    `g = Hq / Hkv` and `kh = h floordiv g`:

    ```
    s[i,j] = score(scale * sum_d Q[b,h,i,d] K[b,kh,j,d], b, h, i, j)
    s[i,j] = mask(b, h, i, j) ? s[i,j] : -inf
    m[i]   = max_j s[i,j]
    l[i]   = sum_j exp(s[i,j] - m[i])            (+ exp(sink[h] - m[i]))
    O[b,h,i,e] = sum_j exp(s[i,j] - m[i]) factor(b, h, i, j) V[b,kh,j,e] / l[i]
    LSE[b,h,i] = m[i] + log l[i]                 (natural logarithm)
    ```

    A row whose every key is masked gives O = 0 and LSE = -inf; with a sink,
    O = 0 and LSE = sink[h]. `factor` multiplies the weights behind the softmax, whose
    sum it does not change: dropout is 0 or 1/(1 - p) by `attn.random_bits`.

    Shapes: query `[B,Hq,Sq,D]`, key `[B,Hkv,Sk,D]`, value `[B,Hkv,Sk,Dv]`,
    output `[B,Hq,Sq,Dv]`, LSE `[B,Hq,Sq]`. B, H and S may be dynamic; D and Dv
    are static. Hq is a multiple of Hkv; `ungrouped` promises that they are equal where types do not
    say it. Scores, state and LSE are computed in
    f32, or in f64 where the tensors are f64 (the accumulator type).

    `scale` is an attribute or an operand of the accumulator type; without
    either it is 1/sqrt(D).

    The regions are isolated: they see their arguments and the `captures`
    (scalars or tensors, in order) and nothing else. `score` takes
    (score : accumulator type, b, h, i, j : index, captures...) and yields the
    new score; `mask` takes (b, h, i, j, captures...) and yields an i1, true
    where the pair is kept; `factor` takes the same and yields a finite number of the
    accumulator type. An absent region is the identity, keeps all, or is 1. A
    capture is read within its bounds for every b, h, i and j, whether the pair
    is kept or not: clamp an index that only kept pairs need.

    Integers of regions are two's complement and wrap in their width (64 bits for an
    `index`); `overflow` and `exact` promise nothing. Each operation has a result: a
    quotient by 0 is 0, its remainder the dividend, so that a = q b + r; the least
    number divided by -1 is itself, without a remainder; a shift by as many bits as
    there are, or more, leaves 0, or the sign (`shrsi`); a float that is converted to
    an integer and does not fit gives the nearest one that does, NaN gives 0.

    Example:

    ```mlir
    %o, %lse = attn.forward %q, %k, %v scale 0.125 captures(%slope : tensor<8xf32>)
      score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<8xf32>):
        %a = tensor.extract %t[%h] : tensor<8xf32>
        %d = arith.subi %j, %i : index
        %di = arith.index_cast %d : index to i32
        %df = arith.sitofp %di : i32 to f32
        %bias = arith.mulf %a, %df : f32
        %r = arith.addf %s, %bias : f32
        attn.yield %r : f32
      } mask {
      ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<8xf32>):
        %keep = arith.cmpi sge, %i, %j : index
        attn.yield %keep : i1
      } : tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>
          -> tensor<2x8x?x64xf32>, tensor<2x8x?xf32>
    ```

    Source: Dao et al., FlashAttention (2022), equations 1 to 3 for the
    softmax; Milakov and Gimelshein (2018) for the running form that passes
    derive.
  }];
  let arguments = (ins Attn_Tensor4:$query, Attn_Tensor4:$key, Attn_Tensor4:$value,
                       Optional<AnyFloat>:$scaleOperand,
                       Optional<RankedTensorOf<[Attn_Float]>>:$sink,
                       Variadic<Attn_Capture>:$captures,
                       OptionalAttr<F64Attr>:$scale,
                       UnitAttr:$ungrouped);
  let results = (outs Attn_Tensor4:$output, Optional<Attn_Tensor3>:$lse);
  let regions = (region AnyRegion:$score, AnyRegion:$mask, AnyRegion:$factor);
  let assemblyFormat = [{
    $query `,` $key `,` $value
    custom<Scale>($scaleOperand, type($scaleOperand), $scale)
    (`sink` `(` $sink^ `:` type($sink) `)`)?
    (`captures` `(` $captures^ `:` type($captures) `)`)?
    (`score` custom<IsolatedRegion>($score)^)? (`mask` custom<IsolatedRegion>($mask)^)?
    (`factor` custom<IsolatedRegion>($factor)^)?
    attr-dict `:` type($query) `,` type($key) `,` type($value)
    `->` type($output) (`,` type($lse)^)?
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// The type scores and sums are computed in: f64 for f64 tensors, else f32.
    ::mlir::FloatType getAccumulatorType();
    /// The scale where it is known at compile time: the attribute, or
    /// 1/sqrt(D) where neither attribute nor operand is given.
    std::optional<double> getStaticScale();
  }];
}

def Attn_SoftmaxOp : Attn_Op<"softmax", [
    Pure, IsolatedFromAbove, SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects,
    AllTypesMatch<["input", "output"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "Softmax along the last dimension, of a score with score and mask regions";
  let description = [{
    `y[..., j] = exp(s[..., j] - m) / sum_j exp(s[..., j] - m)` with
    `s = mask(score(x, indices...), indices...)` and `m = max_j s`. With a mask, a row
    whose every element is masked, or -inf, gives zeros; without one, NaN.

    `score` takes (x : accumulator type, one index per dimension, captures...)
    and `mask` takes (one index per dimension, captures...); as in
    `attn.forward`.

    Example:

    ```mlir
    %y = attn.softmax %x : tensor<?x1024xf32>
    ```
  }];
  let arguments = (ins RankedTensorOf<[Attn_Float]>:$input, Variadic<Attn_Capture>:$captures);
  let results = (outs RankedTensorOf<[Attn_Float]>:$output);
  let regions = (region AnyRegion:$score, AnyRegion:$mask);
  let assemblyFormat = [{
    $input (`captures` `(` $captures^ `:` type($captures) `)`)?
    (`score` custom<IsolatedRegion>($score)^)? (`mask` custom<IsolatedRegion>($mask)^)? attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// The type scores and sums are computed in: f64 for f64 tensors, else f32.
    ::mlir::FloatType getAccumulatorType();
  }];
}

def Attn_BackwardOp : Attn_Op<"backward", [
    Pure, AttrSizedOperandSegments, AttrSizedResultSegments, IsolatedFromAbove,
    SingleBlockImplicitTerminator<"YieldOp">,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "The gradients of attn.forward, recomputed from the log-sum-exp";
  let description = [{
    The vector-Jacobian product of an `attn.forward` of the same query, key,
    value, scale, sink, captures, score, mask and factor (F), whose results were `output`
    (O) and `lse`. With s and t the scores before and after the score region,
    `dO` the incoming gradient of O and `dLSE` that of LSE (0 where absent):

    ```
    P[i,j]  = exp(t[i,j] - LSE[i])                    (0 where masked)
    D[i]    = sum_e dO[i,e] O[i,e] - dLSE[i]
    dt[i,j] = P[i,j] (F[i,j] sum_e dO[i,e] V[j,e] - D[i])
    ds[i,j] = dt[i,j] * d score / d s
    dV[j,e] = sum_i P[i,j] F[i,j] dO[i,e]
    dQ[i,d] = scale * sum_j ds[i,j] K[j,d]
    dK[j,d] = scale * sum_i ds[i,j] Q[i,d]
    dsink[h] = - sum_(b,i) exp(sink[h] - LSE[i]) D[i]
    dscale  = sum_(b,h,i,j) ds[i,j] sum_d Q[i,d] K[j,d]
    ```

    dK and dV are summed over the query heads that share a key head. A row whose
    every key is masked contributes nothing, whatever `dO` holds there, and its
    dQ is 0; its LSE may be given as -inf or +inf. `rows_have_keys` promises that
    there is no such row and that LSE is finite, so that nothing need look for one
    (`attn-prove-keys` finds where that holds). `ungrouped` is that of `attn.forward`.

    `gradient` is the derivative of `score`, in the sense of reverse mode: it
    takes (s : accumulator type, b, h, i, j : index, captures..., dt :
    accumulator type), yields ds, and holds one `attn.accumulate` per place
    where the score reads a float capture. It is present where `score` is;
    `attn-differentiate` derives it. What it yields and accumulates for a masked
    pair is not used: that may be NaN, as 0 times an infinite derivative.

    Results: the gradients of query, key and value (their types); of scale (a
    tensor without dimensions) and of the sink, where wanted; and one for each
    float capture, in order: its type, or a tensor without dimensions for a
    scalar. Captures of other types have none. That of a float capture is what the score
    reads of it; F has no derivative.

    Example:

    ```mlir
    %dq, %dk, %dv = attn.backward %do, %q, %k, %v, %o, %lse scale 0.125
      : tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>,
        tensor<2x8x?x64xf32>, tensor<2x8x?xf32>
      -> tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>
    ```

    Source: Dao et al., FlashAttention (2022), appendix B.2, for the recomputing
    form; docs/backward.md derives it with dLSE, scores and sinks.
  }];
  let arguments = (ins Attn_Tensor4:$outputGradient,
                       Attn_Tensor4:$query, Attn_Tensor4:$key, Attn_Tensor4:$value,
                       Attn_Tensor4:$output, Attn_Tensor3:$lse,
                       Optional<Attn_Tensor3>:$lseGradient,
                       Optional<AnyFloat>:$scaleOperand,
                       Optional<RankedTensorOf<[Attn_Float]>>:$sink,
                       Variadic<Attn_Capture>:$captures,
                       OptionalAttr<F64Attr>:$scale,
                       UnitAttr:$rows_have_keys,
                       UnitAttr:$ungrouped);
  let results = (outs Attn_Tensor4:$queryGradient, Attn_Tensor4:$keyGradient,
                      Attn_Tensor4:$valueGradient,
                      Optional<TensorRankOf<[Attn_Float], [0]>>:$scaleGradient,
                      Optional<RankedTensorOf<[Attn_Float]>>:$sinkGradient,
                      Variadic<RankedTensorOf<[AnyFloat]>>:$captureGradients);
  let regions = (region AnyRegion:$score, AnyRegion:$gradient, AnyRegion:$mask, AnyRegion:$factor);
  let assemblyFormat = [{
    $outputGradient `,` $query `,` $key `,` $value `,` $output `,` $lse
    (`lse_gradient` `(` $lseGradient^ `:` type($lseGradient) `)`)?
    custom<Scale>($scaleOperand, type($scaleOperand), $scale)
    (`sink` `(` $sink^ `:` type($sink) `)`)?
    (`captures` `(` $captures^ `:` type($captures) `)`)?
    (`score` custom<IsolatedRegion>($score)^)?
    (`gradient` custom<IsolatedRegion>($gradient)^)?
    (`mask` custom<IsolatedRegion>($mask)^)?
    (`factor` custom<IsolatedRegion>($factor)^)?
    attr-dict `:` type($outputGradient) `,` type($query) `,` type($key) `,` type($value)
    `,` type($output) `,` type($lse)
    `->` type($queryGradient) `,` type($keyGradient) `,` type($valueGradient)
    (`scale` `(` type($scaleGradient)^ `)`)? (`sink` `(` type($sinkGradient)^ `)`)?
    (`captures` `(` type($captureGradients)^ `)`)?
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// The type scores and sums are computed in: f64 for f64 tensors, else f32.
    ::mlir::FloatType getAccumulatorType();
    /// The scale where it is known at compile time: the attribute, or
    /// 1/sqrt(D) where neither attribute nor operand is given.
    std::optional<double> getStaticScale();
    /// The gradient of capture `index`; null where it is not a float.
    ::mlir::Value getCaptureGradient(unsigned index);
  }];
}

def Attn_JvpOp : Attn_Op<"jvp", [
    Pure, AttrSizedOperandSegments, IsolatedFromAbove,
    SingleBlockImplicitTerminator<"YieldOp">,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "The tangents of attn.forward's results, recomputed from the log-sum-exp";
  let description = [{
    The Jacobian-vector product of an `attn.forward` of the same query, key, value, scale, sink,
    captures, score, mask and factor (F), whose results were `output` (O) and `lse`. A tangent that
    is absent is 0. With s and t the scores before and after the score region, and x' the tangent
    of x:

    ```
    s'[i,j] = scale * sum_d (Q'[i,d] K[j,d] + Q[i,d] K'[j,d])
    t'[i,j] = s'[i,j] * d score / d s + sum over captures c of c' * d score / d c
    P[i,j]  = exp(t[i,j] - LSE[i])                    (0 where masked)
    LSE'[i] = sum_j P[i,j] t'[i,j] + exp(sink[h] - LSE[i]) sink'[h]
    O'[i,e] = sum_j P[i,j] F[i,j] (t'[i,j] V[j,e] + V'[j,e]) - LSE'[i] O[i,e]
    ```

    Both are 0 in a row whose every key is masked. `rows_have_keys` and `ungrouped` are those of
    `attn.backward`.

    `tangent` takes (s : accumulator type, b, h, i, j : index, captures..., tangents of captures...,
    s' : accumulator type) and yields t'. It is present where `score` is; `attn-build-jvp` and
    `attn-differentiate` derive it. What it yields for a masked pair is not used.

    `capture_tangents` are those of the float captures at the positions `tangent_captures`, of
    their types.

    ```mlir
    %do, %dlse = attn.jvp %q, %k, %v, %o, %lse query(%dq : tensor<2x8x?x64xf32>) scale 0.125
      : tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>,
        tensor<2x8x?xf32> -> tensor<2x8x?x64xf32>, tensor<2x8x?xf32>
    ```
  }];
  let arguments = (ins Attn_Tensor4:$query, Attn_Tensor4:$key, Attn_Tensor4:$value,
                       Attn_Tensor4:$output, Attn_Tensor3:$lse,
                       Optional<Attn_Tensor4>:$queryTangent, Optional<Attn_Tensor4>:$keyTangent,
                       Optional<Attn_Tensor4>:$valueTangent,
                       Optional<AnyFloat>:$scaleOperand,
                       Optional<RankedTensorOf<[Attn_Float]>>:$sink,
                       Optional<RankedTensorOf<[Attn_Float]>>:$sinkTangent,
                       Variadic<Attn_Capture>:$captures,
                       Variadic<Attn_Capture>:$captureTangents,
                       OptionalAttr<F64Attr>:$scale,
                       DefaultValuedOptionalAttr<DenseI64ArrayAttr, "{}">:$tangent_captures,
                       UnitAttr:$rows_have_keys,
                       UnitAttr:$ungrouped);
  let results = (outs Attn_Tensor4:$outputTangent, Attn_Tensor3:$lseTangent);
  let regions = (region AnyRegion:$score, AnyRegion:$tangent, AnyRegion:$mask, AnyRegion:$factor);
  let assemblyFormat = [{
    $query `,` $key `,` $value `,` $output `,` $lse
    (`query` `(` $queryTangent^ `:` type($queryTangent) `)`)?
    (`key` `(` $keyTangent^ `:` type($keyTangent) `)`)?
    (`value` `(` $valueTangent^ `:` type($valueTangent) `)`)?
    custom<Scale>($scaleOperand, type($scaleOperand), $scale)
    (`sink` `(` $sink^ `:` type($sink) `)`)?
    (`sink_tangent` `(` $sinkTangent^ `:` type($sinkTangent) `)`)?
    (`captures` `(` $captures^ `:` type($captures) `)`)?
    (`capture_tangents` $tangent_captures^ `(` $captureTangents `:` type($captureTangents) `)`)?
    (`score` custom<IsolatedRegion>($score)^)?
    (`tangent` custom<IsolatedRegion>($tangent)^)?
    (`mask` custom<IsolatedRegion>($mask)^)?
    (`factor` custom<IsolatedRegion>($factor)^)?
    attr-dict `:` type($query) `,` type($key) `,` type($value) `,` type($output) `,` type($lse)
    `->` type($outputTangent) `,` type($lseTangent)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// The type scores and sums are computed in: f64 for f64 tensors, else f32.
    ::mlir::FloatType getAccumulatorType();
    /// The scale where it is known at compile time: the attribute, or
    /// 1/sqrt(D) where neither attribute nor operand is given.
    std::optional<double> getStaticScale();
  }];
}

def Attn_BackwardJvpOp : Attn_Op<"backward_jvp", [
    Pure, AttrSizedOperandSegments, AttrSizedResultSegments, IsolatedFromAbove,
    SingleBlockImplicitTerminator<"YieldOp">,
    AllTypesMatch<["output", "outputTangent"]>, AllTypesMatch<["lse", "lseTangent"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "The tangents of attn.backward's results";
  let description = [{
    The Jacobian-vector product of an `attn.backward` of the same operands and regions, given the
    tangents of all that it reads; those of O and LSE are the results of an `attn.jvp`. A tangent
    that is absent is 0. With the names of `attn.backward` and `attn.jvp`:

    ```
    W[i,j]   = F[i,j] sum_e dO[i,e] V[j,e]
    W'[i,j]  = F[i,j] sum_e (dO'[i,e] V[j,e] + dO[i,e] V'[j,e])
    D'[i]    = sum_e (dO'[i,e] O[i,e] + dO[i,e] O'[i,e]) - dLSE'[i]
    P'[i,j]  = P[i,j] (t'[i,j] - LSE'[i])
    dt'[i,j] = P'[i,j] (W[i,j] - D[i]) + P[i,j] (W'[i,j] - D'[i])
    dV'[j,e] = sum_i F[i,j] (P'[i,j] dO[i,e] + P[i,j] dO'[i,e])
    dQ'[i,d] = scale * sum_j (ds'[i,j] K[j,d] + ds[i,j] K'[j,d])
    dK'[j,d] = scale * sum_i (ds'[i,j] Q[i,d] + ds[i,j] Q'[i,d])
    dsink'[h] = - sum_(b,i) exp(sink[h] - LSE[i]) ((sink'[h] - LSE'[i]) D[i] + D'[i])
    ```

    The Hessian of a scalar function is symmetric. So with Q', K' and V' the incoming gradients of
    dQ, dK and dV (those of capture gradients as tangents of captures), dO' and dLSE' absent, the
    results are the gradients of Q, K, V and captures that reverse mode gives for `attn.backward`,
    and O' and LSE' those of dO and dLSE.

    `gradient` takes (s : accumulator type, b, h, i, j : index, captures..., tangents of captures...,
    s', dt, dt' : accumulator type), yields ds and ds', and holds an
    `attn.accumulate` of the tangent of a capture's gradient per place where the score reads one.
    `tangent` is that of `attn.jvp`. Both are present where `score` is. What they yield and
    accumulate for a masked pair is not used.

    Results: the tangents of the gradients of query, key and value; of the sink, where wanted; and
    one for each float capture, as of `attn.backward`.

    ```mlir
    %ddq, %ddk, %ddv = attn.backward_jvp %do, %q, %k, %v, %o, %lse tangents(%to, %tlse)
        query(%tq : tensor<2x8x?x64xf32>)
      : tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>,
        tensor<2x8x?x64xf32>, tensor<2x8x?xf32>
      -> tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>
    ```

    Source: Pearlmutter, Fast Exact Multiplication by the Hessian (1994), applied to
    `attn.backward`.
  }];
  let arguments = (ins Attn_Tensor4:$outputGradient,
                       Attn_Tensor4:$query, Attn_Tensor4:$key, Attn_Tensor4:$value,
                       Attn_Tensor4:$output, Attn_Tensor3:$lse,
                       Attn_Tensor4:$outputTangent, Attn_Tensor3:$lseTangent,
                       Optional<Attn_Tensor3>:$lseGradient,
                       Optional<Attn_Tensor4>:$outputGradientTangent,
                       Optional<Attn_Tensor3>:$lseGradientTangent,
                       Optional<Attn_Tensor4>:$queryTangent, Optional<Attn_Tensor4>:$keyTangent,
                       Optional<Attn_Tensor4>:$valueTangent,
                       Optional<AnyFloat>:$scaleOperand,
                       Optional<RankedTensorOf<[Attn_Float]>>:$sink,
                       Optional<RankedTensorOf<[Attn_Float]>>:$sinkTangent,
                       Variadic<Attn_Capture>:$captures,
                       Variadic<Attn_Capture>:$captureTangents,
                       OptionalAttr<F64Attr>:$scale,
                       DefaultValuedOptionalAttr<DenseI64ArrayAttr, "{}">:$tangent_captures,
                       UnitAttr:$rows_have_keys,
                       UnitAttr:$ungrouped);
  let results = (outs Attn_Tensor4:$queryGradient, Attn_Tensor4:$keyGradient,
                      Attn_Tensor4:$valueGradient,
                      Optional<RankedTensorOf<[Attn_Float]>>:$sinkGradient,
                      Variadic<RankedTensorOf<[AnyFloat]>>:$captureGradients);
  let regions = (region AnyRegion:$score, AnyRegion:$tangent, AnyRegion:$gradient, AnyRegion:$mask,
                        AnyRegion:$factor);
  let assemblyFormat = [{
    $outputGradient `,` $query `,` $key `,` $value `,` $output `,` $lse
    `tangents` `(` $outputTangent `,` $lseTangent `)`
    (`lse_gradient` `(` $lseGradient^ `:` type($lseGradient) `)`)?
    (`output_gradient` `(` $outputGradientTangent^ `:` type($outputGradientTangent) `)`)?
    (`lse_gradient_tangent` `(` $lseGradientTangent^ `:` type($lseGradientTangent) `)`)?
    (`query` `(` $queryTangent^ `:` type($queryTangent) `)`)?
    (`key` `(` $keyTangent^ `:` type($keyTangent) `)`)?
    (`value` `(` $valueTangent^ `:` type($valueTangent) `)`)?
    custom<Scale>($scaleOperand, type($scaleOperand), $scale)
    (`sink` `(` $sink^ `:` type($sink) `)`)?
    (`sink_tangent` `(` $sinkTangent^ `:` type($sinkTangent) `)`)?
    (`captures` `(` $captures^ `:` type($captures) `)`)?
    (`capture_tangents` $tangent_captures^ `(` $captureTangents `:` type($captureTangents) `)`)?
    (`score` custom<IsolatedRegion>($score)^)?
    (`tangent` custom<IsolatedRegion>($tangent)^)?
    (`gradient` custom<IsolatedRegion>($gradient)^)?
    (`mask` custom<IsolatedRegion>($mask)^)?
    (`factor` custom<IsolatedRegion>($factor)^)?
    attr-dict `:` type($outputGradient) `,` type($query) `,` type($key) `,` type($value)
    `,` type($output) `,` type($lse)
    `->` type($queryGradient) `,` type($keyGradient) `,` type($valueGradient)
    (`sink` `(` type($sinkGradient)^ `)`)? (`captures` `(` type($captureGradients)^ `)`)?
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// The type scores and sums are computed in: f64 for f64 tensors, else f32.
    ::mlir::FloatType getAccumulatorType();
    /// The scale where it is known at compile time: the attribute, or
    /// 1/sqrt(D) where neither attribute nor operand is given.
    std::optional<double> getStaticScale();
    /// The tangent of the gradient of capture `index`; null where it is not a float.
    ::mlir::Value getCaptureGradient(unsigned index);
  }];
}

def Attn_SoftmaxBackwardOp : Attn_Op<"softmax_backward", [
    Pure, IsolatedFromAbove,
    SingleBlockImplicitTerminator<"YieldOp">,
    AllTypesMatch<["outputGradient", "input", "output", "inputGradient"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "The gradients of attn.softmax";
  let description = [{
    The vector-Jacobian product of an `attn.softmax` of `input`, whose result
    was `output` (y), for the incoming gradient dy:

    ```
    D[...]     = sum_j dy[..., j] y[..., j]
    dt[..., j] = y[..., j] (dy[..., j] - D[...])      (0 where masked)
    dx[..., j] = dt[..., j] * d score / d x
    ```

    `gradient` is as in `attn.backward`: it takes (x : accumulator type, one
    index per dimension, captures..., dt : accumulator type) and is present
    where `score` is. Results: the gradient of the input, and one for each float
    capture, in order.

    ```mlir
    %dx = attn.softmax_backward %dy, %x, %y : tensor<?x1024xf32>
    ```
  }];
  let arguments = (ins RankedTensorOf<[Attn_Float]>:$outputGradient,
                       RankedTensorOf<[Attn_Float]>:$input,
                       RankedTensorOf<[Attn_Float]>:$output,
                       Variadic<Attn_Capture>:$captures);
  let results = (outs RankedTensorOf<[Attn_Float]>:$inputGradient,
                      Variadic<RankedTensorOf<[AnyFloat]>>:$captureGradients);
  let regions = (region AnyRegion:$score, AnyRegion:$gradient, AnyRegion:$mask);
  let assemblyFormat = [{
    $outputGradient `,` $input `,` $output
    (`captures` `(` $captures^ `:` type($captures) `)`)?
    (`score` custom<IsolatedRegion>($score)^)?
    (`gradient` custom<IsolatedRegion>($gradient)^)?
    (`mask` custom<IsolatedRegion>($mask)^)? attr-dict `:` type($input)
    (`->` `captures` `(` type($captureGradients)^ `)`)?
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// The type scores and sums are computed in: f64 for f64 tensors, else f32.
    ::mlir::FloatType getAccumulatorType();
    /// The gradient of capture `index`; null where it is not a float.
    ::mlir::Value getCaptureGradient(unsigned index);
  }];
}

def Attn_AccumulateOp : Attn_Op<"accumulate", [
    MemoryEffects<[MemWrite]>, ParentOneOf<["BackwardOp", "BackwardJvpOp", "SoftmaxBackwardOp"]>]> {
  let summary = "Adds to an element of a capture's gradient";
  let description = [{
    Part of a `gradient` region: the gradient of `capture`, an argument of the
    region (of `attn.backward_jvp` that gradient's tangent), gets `value` (f64 where the capture is, else f32) added at `indices`
    (none for a scalar). The order of the additions is not specified here.

    ```mlir
    attn.accumulate %g into %slopes[%h] : f32 into tensor<8xf32>
    ```
  }];
  let arguments = (ins AnyFloat:$value, AnyTypeOf<[AnyFloat, RankedTensorOf<[AnyFloat]>]>:$capture,
                       Variadic<Index>:$indices);
  let assemblyFormat = [{
    $value `into` $capture (`[` $indices^ `]`)? attr-dict `:` type($value) `into` type($capture)
  }];
  let hasVerifier = 1;
}

class Attn_LikeResult<string operand, string element>
    : TypesMatchWith<operand # " has " # element # " in the result's shape", "result", operand,
                     "::attn::withElement($_self, ::mlir::Builder($_self.getContext()).get"
                     # element # "Type())">;

def Attn_RandomBitsOp : Attn_Op<"random_bits", [
    Pure, Attn_LikeResult<"seed", "I64">, Attn_LikeResult<"offset", "I64">,
    Attn_LikeResult<"batch", "Index">, Attn_LikeResult<"head", "Index">,
    Attn_LikeResult<"query", "Index">, Attn_LikeResult<"key", "Index">
    ] # ElementwiseMappable.traits> {
  let summary = "32 random bits of a pair of query and key";
  let description = [{
    The bits are a function of the operands alone: the same ones on every target, for any tile,
    in the forward and in its gradient. With Philox(key; counter) the generator Philox4x32-10
    of four words of 32 bits, each index taken modulo 2^32, and ~x all bits but those of x:

    ```
    k = Philox(seed, seed >> 32; offset, offset >> 32, b, h)
    w = Philox(k[0], k[1]; i & ~8, j & ~9, k[2], k[3])
    x = w[(i >> 3 & 1) + 2 (j >> 3 & 1)]
    result = x where j is even, x with its halves of 16 bits swapped where j is odd
    ```

    So k belongs to a head, and one call gives the bits of eight pairs, which fragments of matrix
    instructions have in one thread, or, transposed, in two. Where the bits, as an unsigned number,
    are less than T has the probability T / 2^32. Two keys with one word are not quite independent:
    of the two events the joint probability differs from (T / 2^32)^2 by at most 2^-17, for it is
    the upper half that decides unless it equals T's.

    ```mlir
    %bits = attn.random_bits %seed, %offset at %b, %h, %i, %j : i32
    ```

    Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011).
  }];
  let arguments = (ins SignlessIntegerLike:$seed, SignlessIntegerLike:$offset,
                       SignlessIntegerOrIndexLike:$batch, SignlessIntegerOrIndexLike:$head,
                       SignlessIntegerOrIndexLike:$query, SignlessIntegerOrIndexLike:$key);
  let results = (outs TypeOrValueSemanticsContainer<I32, "i32-like">:$result);
  let assemblyFormat = [{
    $seed `,` $offset `at` $batch `,` $head `,` $query `,` $key attr-dict `:` type($result)
  }];
}

def Attn_FoldOp : Attn_Op<"fold", [
    Pure, AttrSizedOperandSegments, RecursiveMemoryEffects,
    SingleBlock, DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "One pass over the blocks of a dimension, with carried state";
  let description = [{
    Streams a dimension of `extent` elements in consecutive blocks, in
    increasing order. The body sees one block of each streamed input (sliced
    along `stream_dims[n]` of the n-th input) and the carried state; it yields
    the new state, then one block of each mapped result (joined along
    `map_dims[n]` of the n-th mapped result).

    The size of a block is not part of the meaning: a body must give the same
    state for one block of n elements as for n blocks of one, up to rounding.
    A pass that creates a fold proves this; it is what makes tiling legal.

    Body arguments: the index of the block's first element, the blocks of the
    inputs (their type, dynamic along the streamed dimension), the state.
    `merge`, where present, takes two states of disjoint parts of the dimension
    and yields the state of their union; its existence makes the dimension
    splittable over workers.

    Results: the final state, then the mapped results.

    `plan`, where present, says how the nest that begins with this fold is tiled.

    Example, the running maximum and sum of each row:

    ```mlir
    %r:2 = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1]
             carries(%m0, %l0 : tensor<8xf32>, tensor<8xf32>) {
    ^bb0(%j0: index, %xb: tensor<8x?xf32>, %m: tensor<8xf32>, %l: tensor<8xf32>):
      %m1 = linalg.generic ...   // max(m, max_j xb)
      %l1 = linalg.generic ...   // l exp(m - m1) + sum_j exp(xb - m1)
      attn.yield %m1, %l1 : tensor<8xf32>, tensor<8xf32>
    } -> tensor<8xf32>, tensor<8xf32>
    ```
  }];
  let arguments = (ins Index:$extent,
                       Variadic<AnyRankedTensor>:$inputs,
                       Variadic<AnyRankedTensor>:$inits,
                       DenseI64ArrayAttr:$stream_dims,
                       DefaultValuedOptionalAttr<DenseI64ArrayAttr, "{}">:$map_dims,
                       OptionalAttr<Attn_PlanAttr>:$plan);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body, AnyRegion:$merge);
  let assemblyFormat = [{
    $extent (`streams` `(` $inputs^ `:` type($inputs) `)`)? `dims` $stream_dims
    (`carries` `(` $inits^ `:` type($inits) `)`)?
    $body (`merge` $merge^)? (`maps` $map_dims^)? (`plan` $plan^)? attr-dict
    (`->` type($results)^)?
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The body's arguments by role.
    ::mlir::BlockArgument getOffset() { return getBody().getArgument(0); }
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getBlocks() {
      return getBody().getArguments().slice(1, getInputs().size());
    }
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getState() {
      return getBody().getArguments().drop_front(1 + getInputs().size());
    }
    ::mlir::Operation *getYield() { return getBody().front().getTerminator(); }
  }];
}

def Attn_PartOp : Attn_Op<"part", [Pure]> {
  let summary = "The bounds of one of several parts of a loop";
  let description = [{
    The loop from `lower` to `upper` in steps of `step` is divided into `parts` loops: each has as many
    iterations, the last ones fewer or none. Part `part` runs from `begin` to `end`. Passes that
    change the bounds of a loop that is such a part change those of the whole loop: attn-project-masks
    and attn-tabulate-masks, so that all parts have work. attn-expand-parts computes the bounds.

    ```mlir
    %begin, %end = attn.part %p of %parts from %lower to %upper step 128
    scf.for %j = %begin to %end step %c128 { ... }
    ```
  }];
  let arguments = (ins Index:$part, Index:$parts, Index:$lower, Index:$upper,
                       ConfinedAttr<I64Attr, [IntPositive]>:$step);
  let results = (outs Index:$begin, Index:$end);
  let assemblyFormat = "$part `of` $parts `from` $lower `to` $upper `step` $step attr-dict";
}

def Attn_TileAddOp : Attn_Op<"tile_add", [
    DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Adds a tile to a part of a tensor that others may add to";
  let description = [{
    `dest[indices + p] += values[p]` for each position p of the tile, which lies in
    the last dimensions of `dest`; what would be outside is left out. Iterations
    of a parallel loop may add to the same elements: each addition of an element
    is atomic, and their order is not fixed. Nothing else may read or write the
    elements during that loop. On tensors the result is the new tensor; on
    memrefs the memory changes in place.

    ```mlir
    %t1 = attn.tile_add %x into %t[%h, %i, %c0]
        : vector<64x128xf32>, tensor<8x?x128xf32> -> tensor<8x?x128xf32>
    ```
  }];
  let arguments = (ins VectorOfAnyRankOf<[AnyFloat]>:$values,
                       AnyTypeOf<[RankedTensorOf<[AnyFloat]>, MemRefOf<[AnyFloat]>]>:$dest,
                       Variadic<Index>:$indices);
  let results = (outs Optional<RankedTensorOf<[AnyFloat]>>:$result);
  let assemblyFormat = [{
    $values `into` $dest `[` $indices `]` attr-dict `:`
    type($values) `,` type($dest) (`->` type($result)^)?
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getDestMutable(); }
  }];
}

def Attn_ScatterAddOp : Attn_Op<"scatter_add", [
    DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Adds the elements of a tile at computed indices of a table";
  let description = [{
    For each position p of the tile, in any order that depends on the program
    only:

    ```
    table[indices#0[p], ..., indices#r-1[p]] += values[p]
    ```

    There is one vector of indices, of the tile's shape, for each of the table's
    r dimensions. A position with an index outside of the table (compared as
    unsigned numbers) adds nothing. On tensors the result is the new table; on
    memrefs the table changes in place.

    ```mlir
    %t1 = attn.scatter_add %g at(%bucket) into %t
        : vector<64x128xf32>, tensor<32xf32> -> tensor<32xf32>
    ```
  }];
  let arguments = (ins VectorOfAnyRankOf<[AnyFloat]>:$values,
                       Variadic<VectorOfAnyRankOf<[Index]>>:$indices,
                       AnyTypeOf<[RankedTensorOf<[AnyFloat]>, MemRefOf<[AnyFloat]>]>:$table);
  let results = (outs Optional<RankedTensorOf<[AnyFloat]>>:$result);
  let assemblyFormat = [{
    $values `at` `(` $indices `)` `into` $table attr-dict `:`
    custom<ScatterTypes>(type($values), type($indices), ref($indices),
                         type($table), type($result))
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getTableMutable(); }
  }];
}

def Attn_ScatterSumOp : Attn_Op<"scatter_sum", [
    DestinationStyleOpInterface, RecursiveMemoryEffects,
    SingleBlockImplicitTerminator<"YieldOp">,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Adds the elements of a tensor at computed indices of another";
  let description = [{
    For each position p of `values`:

    ```
    dest[at(p)#0, ..., at(p)#r-1] += values[p]
    ```

    `at` takes p, an index for each dimension of `values`, and yields one for each of the
    r dimensions of `dest`. It may read tensors from outside, and has no effects. A position
    with an index outside of `dest` (compared as unsigned numbers) adds nothing. The order of
    the additions to an element depends on sizes only, not on threads. On tensors the result is the new tensor; on
    memrefs the memory changes in place, and `values`, `dest` and what `at` reads are apart.

    The gradient of what is read at computed indices, once it is summed over all that the
    indices do not depend on. Of a table that is read at `[i floordiv 8, j]`:

    ```mlir
    %r = attn.scatter_sum %x into %t at {
    ^bb0(%i: index, %j: index):
      %c8 = arith.constant 8 : index
      %block = arith.floordivsi %i, %c8 : index
      attn.yield %block, %j : index, index
    } : tensor<?x?xf32>, tensor<16x?xf32> -> tensor<16x?xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[RankedTensorOf<[AnyFloat]>, MemRefOf<[AnyFloat]>]>:$values,
                       AnyTypeOf<[RankedTensorOf<[AnyFloat]>, MemRefOf<[AnyFloat]>]>:$dest);
  let results = (outs Optional<RankedTensorOf<[AnyFloat]>>:$result);
  let regions = (region SizedRegion<1>:$at);
  let assemblyFormat = [{
    $values `into` $dest `at` $at attr-dict `:`
    type($values) `,` type($dest) (`->` type($result)^)?
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getDestMutable(); }
    /// What the region yields: an index of `dest` for each of its dimensions.
    ::mlir::ValueRange getIndices() { return getAt().front().getTerminator()->getOperands(); }
  }];
}

def Attn_YieldOp : Attn_Op<"yield", [
    Pure, Terminator, ParentOneOf<["ForwardOp", "BackwardOp", "JvpOp", "BackwardJvpOp",
                               "SoftmaxOp", "SoftmaxBackwardOp", "FoldOp", "ScatterSumOp"]>, ReturnLike]> {
  let summary = "Yields the values of a region of an attn op";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ /* nothing to yield */ }]>];
}

def Attn_VersionsOp : Attn_Op<"versions", [
    IsolatedFromAbove, Symbol, NoTerminator, SingleBlock, NoRegionArguments,
    HasParent<"::mlir::ModuleOp">, OpAsmOpInterface]> {
  let summary = "A function in several versions, of which a call runs the first one that it may";
  let description = [{
    Each region holds one module with a version of the function, of that name: passes run on it as
    on any module. Its attribute `attn.when` lists conditions on the arguments of a call
    (`VersionConditionInterface`), of which all must hold. Versions are in order of preference. A
    call runs the first one whose conditions hold; the last one has none. A version that the
    compiler cannot lower is left out as long as another one follows.

    `attn-merge-versions` makes one function of it again.

    ```mlir
    attn.versions @attention {
      module attributes {attn.when = [#attn.size<argument = 1, dim = 2, at_most 2048>]} {
        func.func @attention(...) { ... }
      }
    }, {
      module { func.func @attention(...) { ... } }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region VariadicRegion<SizedRegion<1>>:$versions);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $versions";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Modules are written as at the top of a file.
    static ::llvm::StringRef getDefaultDialect() { return "builtin"; }
    /// The modules of all versions, in order.
    ::llvm::SmallVector<::mlir::ModuleOp> getModules();
    /// The function in the module of a version; null where there is none.
    ::mlir::FunctionOpInterface getFunction(::mlir::ModuleOp version);
  }];
}

#endif
