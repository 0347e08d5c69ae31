// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a module is lowered by: its schedule. Part of HopperOps.td.

#ifndef HOPPER_ATTRS
#define HOPPER_ATTRS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "attn/Dialect/Attn/IR/AttnInterfaces.td"

class Hopper_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::attn::hopper";
  let genSpecializedAttr = 0;
}

def Hopper_OutputMemory : Hopper_Enum<"OutputMemory", "Shared memory of outputs", [
  I32EnumAttrCase<"Own", 0, "own">,         // a tile of its own
  I32EnumAttrCase<"Reuse", 1, "reuse">,     // that of an input that is not needed any more
  I32EnumAttrCase<"Slabs", 2, "slabs">]>;   // a slab at a time

def Hopper_Maxima : Hopper_Enum<"Maxima", "The maxima that scores of a row are subtracted from", [
  I32EnumAttrCase<"Running", 0, "running">,       // of all tiles so far
  I32EnumAttrCase<"Fixed", 1, "fixed">,           // of the first tile, where streams are long
  I32EnumAttrCase<"AlwaysFixed", 2, "always_fixed">]>;

def Hopper_Products : Hopper_Enum<"Products", "Instructions for products, and who copies tiles", [
  I32EnumAttrCase<"Wgmma", 0, "wgmma">,  // of warpgroups; by TMA, from a role of its own
  I32EnumAttrCase<"Mma", 1, "mma">]>;    // of warps (FMAs for f32); by cp.async, by all threads

def Hopper_Sums : Hopper_Enum<"Sums", "Sums of a gradient along two dimensions", [
  I32EnumAttrCase<"Together", 0, "together">, // in one pass, one of them added to in memory
  I32EnumAttrCase<"Apart", 1, "apart">]>;     // in a pass each

class Hopper_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Hopper_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def Hopper_NestsAttr : Hopper_Attr<"Nests", "nests"> {
  let summary = "How the nests of a module are formed";
  let description = [{
    `sums`: whether a gradient's sums along two dimensions are those of one pass. `columns`: how
    many columns the carried sums of one pass may have together. `gradient`: the module comes from
    `attn.backward`.

    ```mlir
    module attributes {hopper.nests = #hopper.nests<sums = together, columns = 256>}
    ```
  }];
  let parameters = (ins
    DefaultValuedParameter<"Sums", "Sums::Together">:$sums,
    DefaultValuedParameter<"int64_t", "256">:$columns,
    DefaultValuedParameter<"bool", "false">:$gradient);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Hopper_ScheduleAttr : Hopper_Attr<"Schedule", "schedule"> {
  let summary = "The schedule of the kernels of a module";
  let description = [{
    Set by `hopper-select-schedule`, in `hopper.schedule` of a module, from a table and from
    options; each stage of the lowering obeys it.

    - `block_m`, `block_n`: rows and streamed elements (keys) of a tile; folds with sizes of their
      own (`attn.block_m`, `attn.block_n`) have those.
    - `parts`: parts of the keys that are computed in parallel and merged (split-KV); 1: none; 0: as
      many as keep `ctas` busy, which the host computes from a call's sizes.
    - `stages`: tiles in flight for each stream. `occupancy`: CTAs that share a multiprocessor.
    - `ctas`: CTAs of a persistent launch, times `occupancy`; 0: one for each tile.
    - `cluster`: CTAs of a cluster. `producer_registers`: of a thread that copies; 0: by the number
      of warpgroups.
    - `output`: the shared memory of outputs. `maxima`: what scores are subtracted from.
    - `pipeline`: the last product of an iteration runs beside the next iteration. `overlap`: the
      next tile starts before the outputs of a tile. `ping_pong`: warpgroups take turns at the
      tensor core. `trim`: warpgroups leave out tiles that their rows do not need.
    - `rescale_threshold`: how much larger, in powers of two, a running maximum is before sums are
      rescaled; 0: always. `exp2_emulation`: of so many pairs of a tile's columns one has its
      exponentials from the FMA units; 0: none.
    - `adds_sums`: a fold also adds sums to memory. `ordered`: in one order. `stores_first`: the
      first addition to a tile stores it. `adder_fences`: the fence for what is added is the
      adder's.
    - `loads_tiles`: tiles that a score reads by row and column are copied by TMA.
    - `products`: `wgmma`, or `mma`: products of single warps, and copies by `cp.async`, which all
      NVIDIA GPUs since compute capability 8.0 have. `group_warps`: with `mma`, warps that hold 64
      rows: 2 or 4. `tf32`: products of f32 by so many of TF32: 1, 3; 0: by FMAs.
      `product_columns`: of operands that are read from memory so many columns are in shared memory
      at a time; 0: all.

    Verified: 64, 128 or 192 rows; with `mma` none of clusters, fixed maxima, `pipeline`, `overlap`,
    `ping_pong`, `trim`, `ordered`, `stores_first` and `loads_tiles`; `product_columns` is a multiple
    of 16 and needs `mma`; parts exclude fixed maxima, and 0 parts need `ctas`; `trim` needs
    `pipeline` and excludes `overlap`; fixed maxima exclude clusters; `ordered` needs `adds_sums`.

    ```mlir
    module attributes {hopper.schedule = #hopper.schedule<block_m = 128, block_n = 176,
                                                          output = reuse, ping_pong = true>}
    ```
  }];
  let parameters = (ins
    "int64_t":$block_m,
    "int64_t":$block_n,
    DefaultValuedParameter<"int64_t", "1">:$parts,
    DefaultValuedParameter<"int64_t", "2">:$stages,
    DefaultValuedParameter<"int64_t", "132">:$ctas,
    DefaultValuedParameter<"int64_t", "1">:$occupancy,
    DefaultValuedParameter<"int64_t", "1">:$cluster,
    DefaultValuedParameter<"int64_t", "0">:$producer_registers,
    DefaultValuedParameter<"OutputMemory", "OutputMemory::Own">:$output,
    DefaultValuedParameter<"Maxima", "Maxima::Running">:$maxima,
    DefaultValuedParameter<"bool", "false">:$pipeline,
    DefaultValuedParameter<"bool", "false">:$overlap,
    DefaultValuedParameter<"bool", "false">:$ping_pong,
    DefaultValuedParameter<"bool", "false">:$trim,
    OptionalParameter<"::mlir::FloatAttr">:$rescale_threshold,
    DefaultValuedParameter<"int64_t", "0">:$exp2_emulation,
    DefaultValuedParameter<"bool", "false">:$adds_sums,
    DefaultValuedParameter<"bool", "false">:$ordered,
    DefaultValuedParameter<"bool", "false">:$stores_first,
    DefaultValuedParameter<"bool", "false">:$adder_fences,
    DefaultValuedParameter<"bool", "false">:$loads_tiles,
    DefaultValuedParameter<"Products", "Products::Wgmma">:$products,
    DefaultValuedParameter<"int64_t", "4">:$group_warps,
    DefaultValuedParameter<"int64_t", "0">:$tf32,
    DefaultValuedParameter<"int64_t", "0">:$product_columns);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

class Hopper_ConditionAttr<string name, string attrMnemonic>
    : Hopper_Attr<name, attrMnemonic,
                  [DeclareAttrInterfaceMethods<Attn_VersionConditionInterface>]>;

def Hopper_ReachConditionAttr : Hopper_ConditionAttr<"ReachCondition", "reach"> {
  let summary = "TMA reaches the arguments that this version alone copies";
  let description = [{
    Strides and addresses are multiples of 16 bytes, which is known when the function is called.
    Never where it copies no other argument than the last version: then it is no better.
  }];
}

def Hopper_ReachIfAnyConditionAttr : Hopper_ConditionAttr<"ReachIfAnyCondition", "reach_if_any"> {
  let summary = "TMA reaches the arguments that this version alone copies, if there are any";
}

def Hopper_ResidentConditionAttr : Hopper_ConditionAttr<"ResidentCondition", "resident"> {
  let summary = "CTAs that wait for each other run at the same time: there are at most so many";
  let parameters = (ins "int64_t":$ctas);
  let assemblyFormat = "`<` $ctas `>`";
}

#endif
