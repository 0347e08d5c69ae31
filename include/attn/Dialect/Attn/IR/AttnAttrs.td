// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plan of a nest: what each of its loops does in the tile program; and when a version of a
// function runs. Part of AttnOps.td.

#ifndef ATTN_ATTRS
#define ATTN_ATTRS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "attn/Dialect/Attn/IR/AttnInterfaces.td"

class Attn_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::attn";
  let genSpecializedAttr = 0;
}

def Attn_LoopOrder : Attn_Enum<"LoopOrder", "Which loops of a nest are outside", [
  I32EnumAttrCase<"MOuter", 0, "m_outer">,
  I32EnumAttrCase<"NOuter", 1, "n_outer">,
  I32EnumAttrCase<"SplitKV", 2, "split_kv">]>;

def Attn_LoopRole : Attn_Enum<"LoopRole", "What a loop of a nest is in the tile program", [
  I32EnumAttrCase<"Worker", 0, "worker">,     // one index per worker
  I32EnumAttrCase<"Row", 1, "row">,           // a tile of rows
  I32EnumAttrCase<"Streamed", 2, "streamed">, // a tile per step
  I32EnumAttrCase<"Around", 3, "around">,     // one index per step, around the streamed tiles
  I32EnumAttrCase<"Whole", 4, "whole">,       // whole in each tile
  I32EnumAttrCase<"Table", 5, "table">]>;     // of a table in memory

def Attn_Treatment : Attn_Enum<"LoopTreatment", "How a loop of a nest runs", [
  I32EnumAttrCase<"Parallel", 0, "parallel">,
  I32EnumAttrCase<"OwnerComputes", 1, "owner_computes">,
  I32EnumAttrCase<"Atomics", 2, "atomics">,
  I32EnumAttrCase<"PartialAndMerge", 3, "partial_and_merge">,
  I32EnumAttrCase<"OrderedTurnstile", 4, "ordered_turnstile">,
  I32EnumAttrCase<"GridPhases", 5, "grid_phases">,
  I32EnumAttrCase<"ClusterReduction", 6, "cluster_reduction">]>;

def Attn_SizeRelation : Attn_Enum<"SizeRelation", "How a size compares with a number", [
  I32EnumAttrCase<"AtMost", 0, "at_most">,
  I32EnumAttrCase<"Above", 1, "above">,
  I32EnumAttrCase<"Exactly", 2, "exactly">]>;

class Attn_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Attn_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def Attn_LoopPlanAttr : Attn_Attr<"LoopPlan", "loop_plan"> {
  let summary = "What one loop of a nest does";
  let description = [{
    The loop's name (`attn.dims`, or a letter), its role in the tile program, and how it runs:
    `parallel` carries no dependence; `owner_computes` is run in order by one worker; `atomics` is
    parallel, with sums that are added to in memory; `partial_and_merge` is parallel in parts, whose
    states are merged afterwards. The treatments are those that `attn-print-dependences` lists; a
    nest on tensors has these four, loops on memory (`attn.treatment`) have all.
  }];
  let parameters = (ins StringRefParameter<"its name">:$name, EnumParameter<Attn_LoopRole>:$role,
                        EnumParameter<Attn_Treatment>:$treatment);
  let assemblyFormat = "`<` $name `:` $role `,` $treatment `>`";
}

def Attn_PlanAttr : Attn_Attr<"Plan", "plan"> {
  let summary = "The order of a nest's loops and how each runs";
  let description = [{
    Written by `attn-plan-nest` on the first `attn.fold` of a nest from what the dependence graph
    allows; `attn-tile-nest` obeys it. `parts` is the number of parts of the streamed loop where that
    is `partial_and_merge`, else 1; 0 is one that the program computes from its sizes, so that
    `programs`, as many as run at a time, are busy. Loops are in canonical order: as the statements
    of the nest's folds name them first.

    Verified: one streamed loop; `programs` if and only if there are 0 parts; at most one row loop; the streamed loop is in parts if and only if
    the order is `split_kv`, and otherwise in order; with `n_outer` the rows are in order; `worker` loops
    are parallel; all others are in order.

    ```mlir
    #attn.plan<m_outer, loops = [<"b" : worker, parallel>, <"i" : row, parallel>,
                              <"j" : streamed, owner_computes>, <"d" : whole, owner_computes>]>
    ```
  }];
  let parameters = (ins EnumParameter<Attn_LoopOrder>:$order,
                        DefaultValuedParameter<"int64_t", "1">:$parts,
                        DefaultValuedParameter<"int64_t", "0">:$programs,
                        ArrayRefParameter<"::attn::LoopPlanAttr">:$loops);
  let assemblyFormat = "`<` $order (`parts` `=` $parts^)? (`programs` `=` $programs^)? `,` `loops` `=` `[` $loops `]` `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The loop of a role, the first one if there are several.
    ::attn::LoopPlanAttr find(::attn::LoopRole role) const;
  }];
}

class Attn_ConditionAttr<string name, string attrMnemonic>
    : Attn_Attr<name, attrMnemonic, [DeclareAttrInterfaceMethods<Attn_VersionConditionInterface>]>;

def Attn_SizeConditionAttr : Attn_ConditionAttr<"SizeCondition", "size"> {
  let summary = "A size of an argument is at most, above, or exactly a number of elements";
  let description = [{
    ```mlir
    #attn.size<argument = 1, dim = 2, at_most 2048>
    ```
  }];
  let parameters = (ins "unsigned":$argument, "unsigned":$dim,
                        EnumParameter<Attn_SizeRelation>:$relation, "int64_t":$size);
  let assemblyFormat =
      "`<` `argument` `=` $argument `,` `dim` `=` $dim `,` $relation $size `>`";
}

def Attn_DividedConditionAttr : Attn_ConditionAttr<"DividedCondition", "divided"> {
  let summary = "There is more than one part of what this version divides";
  let description = [{
    The number of parts is what the version's `attn.part_count` computes; without one the condition
    holds.
  }];
}

def Attn_OrderedSizesConditionAttr : Attn_ConditionAttr<"OrderedSizesCondition", "ordered_sizes"> {
  let summary = "A dimension of one argument has no more elements than that of another";
  let description = [{
    ```mlir
    #attn.ordered_sizes<dim = 2, argument 0 at_most argument 1>
    ```
  }];
  let parameters = (ins "unsigned":$dim, "unsigned":$less, "unsigned":$more);
  let assemblyFormat =
      "`<` `dim` `=` $dim `,` `argument` $less `at_most` `argument` $more `>`";
}

#endif
