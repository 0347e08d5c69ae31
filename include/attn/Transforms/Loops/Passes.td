// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loop passes that the dependence graph justifies (attn/Analysis). Each asks the
// graph first and refuses what is illegal with a diagnostic at the op that
// names source, sink, kind and vector of the dependence in the way.

#ifndef ATTN_TRANSFORMS_LOOPS_PASSES
#define ATTN_TRANSFORMS_LOOPS_PASSES

include "mlir/Pass/PassBase.td"

def AttnPrintDependences : Pass<"attn-print-dependences"> {
  let summary = "Print the dependence graph of every function";
  let description = [{
    Writes to standard output, or to a file, for every function, the statements S1, S2, ...
    in program order, the dependences between them, the strongly connected
    components, and for every loop whether it is parallel or what can be done
    about the components that it carries. A function with `affine.for` is read
    as a nest over memrefs, one with `linalg` ops on tensors or `attn.fold` as
    a structured nest. The IR does not change.

    For

    ```mlir
    affine.for %i = 1 to 100 {
      affine.for %j = 0 to 99 {
        %0 = affine.load %A[%i - 1, %j + 1] : memref<100x100xf32>
        affine.store %0, %A[%i, %j] : memref<100x100xf32>
      }
    }
    ```

    the text says

    ```
    statements:
      S1 [i, j] load A[i - 1, j + 1]
      S2 [i, j] store A[i, j]
    dependences:
      RAW S1 -> S2 (0, 0)
      RAW S2 -> S1 (1, -1) carried by i through A
    components:
      {S1, S2} carried by i
    loops:
      i: carries 1 dependence
      ...
      j: parallel
    ```

    Needed by: no kernel; users and `attnc.explain` read what it prints.
  }];
  let options = [
    Option<"format", "format", "std::string", "\"text\"",
           "What to write: text, dot, or pairs (every pair of affine accesses at every depth)">,
    Option<"file", "file", "std::string", "\"-\"", "Where to write, - for standard output">
  ];
}

def AttnInterchangeLoops : Pass<"attn-interchange-loops"> {
  let summary = "Put the loops of affine nests into a requested order";
  let description = [{
    Reorders the loops named in `order` (outermost first) in every outermost
    `affine.for` nest that has them all, one directly inside another in any
    order. Where the nest is not perfect, statements between two loops that
    only read and compute move into the inner loop, and the rest of the outer
    loop's body is split off into loops of its own before and behind.

    Before, with `order=j,i`:

    ```mlir
    affine.for %i = 0 to 8 {
      %q = affine.load %Q[%i] : memref<8xf32>
      affine.for %j = 0 to 16 {
        %o = affine.load %O[%i] : memref<8xf32>
        %s = arith.addf %o, %q : f32
        affine.store %s, %O[%i] : memref<8xf32>
      }
    }
    ```

    After:

    ```mlir
    affine.for %j = 0 to 16 {
      affine.for %i = 0 to 8 {
        %q = affine.load %Q[%i] : memref<8xf32>
        %o = affine.load %O[%i] : memref<8xf32>
        %s = arith.addf %o, %q : f32
        affine.store %s, %O[%i] : memref<8xf32>
      }
    }
    ```

    It is an error if no nest has the loops, if a dependence vector would become
    lexicographically negative, if the nest cannot be made perfect, if bounds
    depend on a loop that would end up inside, or if loops carry values.

    Needed by: users' loops only; no pipeline has it.
  }];
  let options = [
    ListOption<"order", "order", "std::string",
               "The wanted order of loops by name, outermost first">
  ];
  let dependentDialects = ["::mlir::affine::AffineDialect"];
}

def AttnHoistInvariants : Pass<"attn-hoist-invariants"> {
  let summary = "Move statements out of the loops that they do not vary in";
  let description = [{
    Locality hoisting. Moves reads and computations before the innermost loop
    around them, again and again, where they do not use the loop's variable, no
    dependence says that they see something new in a later iteration, and the
    loop is known to run at least once (a read must not happen that did not
    happen before). With `statements` and `loop`, moves exactly those
    statements out of that loop (and the loops in between), and it is an error
    if one may not move.

    Before:

    ```mlir
    affine.for %i = 0 to 8 {
      affine.for %j = 0 to 16 {
        %q = affine.load %Q[%i] : memref<8xf32>
        affine.store %q, %S[%i, %j] : memref<8x16xf32>
      }
    }
    ```

    After:

    ```mlir
    affine.for %i = 0 to 8 {
      %q = affine.load %Q[%i] : memref<8xf32>
      affine.for %j = 0 to 16 {
        affine.store %q, %S[%i, %j] : memref<8x16xf32>
      }
    }
    ```

    Needed by: users' loops only; no pipeline has it.
  }];
  let options = [
    ListOption<"statements", "statements", "std::string",
               "Statements to move, by number in the dependence graph (S3,S4); all that may, if empty">,
    Option<"loop", "loop", "std::string", "\"\"",
           "The loop to move them out of, by name">
  ];
}

def AttnParallelizeLoops : Pass<"attn-parallelize-loops"> {
  let summary = "Turn affine loops that carry no dependence into parallel loops";
  let description = [{
    Turns every `affine.for` that carries nothing into an `affine.parallel`, or
    exactly those named in `loops`; then it is an error if one carries a
    dependence, and notes at the error tell the legal ways to treat it.

    Before:

    ```mlir
    affine.for %i = 0 to 8 {
      %q = affine.load %Q[%i] : memref<8xf32>
      affine.store %q, %S[%i] : memref<8xf32>
    }
    ```

    After:

    ```mlir
    affine.parallel (%i) = (0) to (8) {
      %q = affine.load %Q[%i] : memref<8xf32>
      affine.store %q, %S[%i] : memref<8xf32>
    }
    ```

    Needed by: users' loops only; no pipeline has it.
  }];
  let options = [
    ListOption<"loops", "loops", "std::string",
               "The loops to make parallel, by name; all that may, if empty">
  ];
  let dependentDialects = ["::mlir::affine::AffineDialect"];
}

def AttnFuseLoops : Pass<"attn-fuse-loops"> {
  let summary = "Join adjacent affine loops that have the same bounds";
  let description = [{
    Joins an `affine.for` with the next one in the same block where both have
    the same bounds and step and no dependence from the first to the second
    would turn around; then the same inside the joined body. With `required`,
    it is an error if two neighbours with the same bounds may not be joined.

    Before:

    ```mlir
    affine.for %i = 0 to 8 {
      affine.store %c, %A[%i] : memref<8xf32>
    }
    affine.for %i = 0 to 8 {
      %a = affine.load %A[%i] : memref<8xf32>
      affine.store %a, %B[%i] : memref<8xf32>
    }
    ```

    After:

    ```mlir
    affine.for %i = 0 to 8 {
      affine.store %c, %A[%i] : memref<8xf32>
      %a = affine.load %A[%i] : memref<8xf32>
      affine.store %a, %B[%i] : memref<8xf32>
    }
    ```

    Needed by: users' loops only; no pipeline has it.
  }];
  let options = [
    Option<"required", "required", "bool", "false",
           "Fail where neighbours with the same bounds may not be joined">
  ];
}

def AttnDistributeReductions : Pass<"attn-distribute-reductions"> {
  let summary = "Take loops over reductions that read each other's running values apart";
  let description = [{
    Replaces an `affine.for` that carries running values through memory, and in
    which the update of one reads the running value of another, by one loop for
    each: the opposite of `attn-fuse-reductions`, for loops that a user wrote.
    Online softmax becomes a loop for the maximum, one for the sum and one for
    the output. No statement reads the value of an unfinished reduction then,
    and the dependence graph allows each to be done in any order, in parts or in
    phases of a grid, where in the online loop it allows none of these.

    An update of `x` may read a running value `r` if it is homogeneous in it:

    ```
    x_new = x_old * c(r_old, r_new) + t(r_new)
    t(r + u) = t(r) exp(k u),  c = exp(k (r_new - r_old))   r a maximum or a minimum
    t(r u)   = t(r) u^k,       c = (r_new / r_old)^k        r anything
    ```

    and the same for several `r` at once, `c` being the product. Scalar `addf`,
    `subf`, `mulf`, `divf`, `negf`, `fma`, `exp`, `exp2` and `select` are
    understood; `r == -inf ? 0 : r` counts as a maximum `r` if old and new values
    are both guarded or the term is 0 where the score of `r` is -inf. Then the
    loop leaves in `x`

    ```
    x_first * c(r_first, r_final) + sum of t(r_final)
    ```

    which is computed in this order: all `r`, a correction of `x` with the
    factor as it was written, the sum. What an iteration needs besides, such as
    a score, each loop computes again, from memory that the loop does not write.

    Before:

    ```mlir
    affine.for %j = 0 to 16 {
      %s = affine.load %S[%j] : memref<16xf32>
      %m0 = affine.load %m[] : memref<f32>
      %l0 = affine.load %l[] : memref<f32>
      %m1 = arith.maximumf %m0, %s : f32
      %0 = arith.subf %m0, %m1 : f32
      %1 = math.exp %0 : f32
      %2 = arith.mulf %l0, %1 : f32
      %3 = arith.subf %s, %m1 : f32
      %4 = math.exp %3 : f32
      %l1 = arith.addf %2, %4 : f32
      affine.store %m1, %m[] : memref<f32>
      affine.store %l1, %l[] : memref<f32>
    }
    ```

    After:

    ```mlir
    %first = affine.load %m[] : memref<f32>
    affine.for %j = 0 to 16 {
      %s = affine.load %S[%j] : memref<16xf32>
      %m0 = affine.load %m[] : memref<f32>
      %m1 = arith.maximumf %m0, %s : f32
      affine.store %m1, %m[] : memref<f32>
    }
    %final = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %0 = arith.subf %first, %final : f32
    %1 = math.exp %0 : f32
    %2 = arith.mulf %l0, %1 : f32
    affine.store %2, %l[] : memref<f32>
    affine.for %j = 0 to 16 {
      %s = affine.load %S[%j] : memref<16xf32>
      %m = affine.load %m[] : memref<f32>
      %3 = arith.subf %s, %m : f32
      %4 = math.exp %3 : f32
      %l1 = affine.load %l[] : memref<f32>
      %l2 = arith.addf %l1, %4 : f32
      affine.store %l2, %l[] : memref<f32>
    }
    ```

    The results are those of the online loop up to rounding, for any values in
    memory at the start, where the online loop stays finite and neither the
    product of its factors nor an exponential under the final value overflows or
    loses digits to underflow. (A maximum that rises by 460 twice brings a sum of
    1e300 in f64 to about 1e-100; at once, by exp(-920) = 0, to 0.)

    From a first maximum of -inf a finite sum is multiplied by exp(-inf) = 0, as
    in the online loop, so 0 stays 0. A row whose scores are all -inf keeps its
    start values if its maximum starts finite, and has what the guard gives where
    there is one. Without a guard the online loop gives NaN there, as after any
    score of -inf that comes before the first finite one; the loops behind this
    pass then give NaN or the value of the row without those scores.

    A loop stays as it is, with the reason in a remark (in an error, if `loops`
    names it), where an update is not homogeneous, where it writes memory that
    is no running value (a running value stored for every iteration can be seen)
    or reads memory that it writes, under conditions, or where it carries values
    in `iter_args`. A loop in which no reduction reads another one is left alone.
    What a loop becomes that may run zero times stands in an `affine.if`.

    Needed by: users' loops only; no pipeline has it.
  }];
  let options = [
    ListOption<"loops", "loops", "std::string",
               "The loops to take apart, by name; all that may, if empty">
  ];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect"];
}

def AttnPlanLoops : Pass<"attn-plan-loops"> {
  let summary = "Choose how each loop of affine nests runs";
  let description = [{
    Writes `attn.treatment` on every `affine.for`: `parallel` if it carries nothing, else a treatment
    of the components that it carries (`attn-print-dependences` lists them, and docs/dependence-engine.md
    says what each is): `owner_computes`, `ordered_turnstile`, `atomics`, `partial_and_merge`,
    `grid_phases` or `cluster_reduction`. Without `treatment` the one with the lowest estimate of those
    that are legal and give the same bits in each run: from the number of workers that outer
    parallel loops leave to the loop, and the price of meetings (`explain` prints all of them). A loop
    inside of one that is divided is run by its owner.

    Before, with `treatment=grid-phases`:

    ```mlir
    affine.for %i = 0 to 8 {
      affine.for %j = 0 to 16 {
        %x = affine.load %X[%i, %j] : memref<8x16xf32>
        %s = affine.load %S[%i] : memref<8xf32>
        %t = arith.addf %s, %x : f32
        affine.store %t, %S[%i] : memref<8xf32>
      }
    }
    ```

    After:

    ```mlir
    affine.for %i = 0 to 8 {
      affine.for %j = 0 to 16 {
        ...
      } {attn.treatment = "grid_phases"}
    } {attn.treatment = "parallel"}
    ```

    It is an error, which names the dependence, if a treatment that is asked for, or that a loop has
    already, is not legal for what the loop carries.

    Needed by: users' loops on a GPU (`hopper-launch-loops`).
  }];
  let options = [
    Option<"treatment", "treatment", "std::string", "\"auto\"",
           "How loops that carry dependences run; auto: by the estimate">,
    ListOption<"loops", "loops", "std::string",
               "The loops that the treatment is for, by name; all outermost ones that carry something, if empty">,
    Option<"ctas", "ctas", "int64_t", "132", "Workers that run at a time">,
    Option<"cluster", "cluster", "int64_t", "8",
           "CTAs of a cluster, at most; with 1 there are none, and cluster_reduction is refused">,
    Option<"assumedCount", "assumed-count", "int64_t", "1024",
           "Iterations of a loop whose number is not known">,
    Option<"explain", "explain", "bool", "false", "Say what each choice is estimated to take">
  ];
  let dependentDialects = ["::attn::AttnDialect"];
}

#endif
