// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hopper dialect: the program of one CTA on sm_90a, warpgroup by warpgroup.

#ifndef HOPPER_OPS
#define HOPPER_OPS

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/BuiltinTypeInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Hopper_Dialect : Dialect {
  let name = "hopper";
  let cppNamespace = "::attn::hopper";
  let summary = "The program of one CTA on sm_90a at warpgroup granularity";
  let description = [{
    Level L3. The unit of execution is the warpgroup (128 threads); a value of
    `vector` type is a tile that its threads hold together, and arithmetic on it
    is upstream's (`arith`, `math`, `vector`). Tiles in shared memory, and what moves them
    between there and registers, are of the `tile` dialect. The ops of this dialect are what
    Hopper has besides: asynchronous copies (TMA) and matrix products (WGMMA), mbarriers,
    named barriers, roles of warpgroups. The body of a `gpu.launch` is the
    program of every CTA of the grid.

    A program is made in three steps, each of which can be written by hand:

    1. *Tiles*: `tile.load` and `tile.mma` have value semantics; there is one
       kind of warpgroup and nothing is asynchronous.
    2. *Channels*: `hopper.roles` divides the warpgroups into producers and
       consumers; `hopper.send`, `hopper.receive` and `hopper.release` move tiles
       through `hopper.channel`s, rings of tiles with a full and an empty barrier
       for each.
    3. *Protocol*: channels have become `hopper.alloc`, `hopper.mbarrier` and
       `hopper.tma.load`; products are `hopper.wgmma` and `hopper.wait`. This form
       is what the interpreter runs, the checker checks, and
       `convert-hopper-to-nvvm` lowers, op by op.

    Source for what the hardware does: PTX ISA 8.6, "Asynchronous Warpgroup Level
    Matrix Instructions", "Tensor Memory Access", "mbarrier".
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = [{
    void registerTypes();
    void registerAttributes();
  }];
  let dependentDialects = ["::attn::AttnDialect", "::attn::tile::TileDialect",
                           "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
                           "::mlir::vector::VectorDialect"];
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

include "attn/Dialect/Hopper/IR/HopperAttrs.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

class Hopper_Type<string name, string typeMnemonic> : TypeDef<Hopper_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Hopper_ChannelType : Hopper_Type<"Channel", "channel"> {
  let summary = "A first-in first-out queue of tiles from one role to another";
  let description = [{
    Tiles of `rows x columns` with a swizzle span, as in `!tile.smem`. How many
    are in flight is the channel's `depth`.
  }];
  let parameters = (ins "::attn::tile::SmemType":$tile);
  let assemblyFormat = "`<` $tile `>`";
}

def Hopper_MBarrierType : Hopper_Type<"MBarrier", "mbarrier"> {
  let summary = "A ring of mbarriers in shared memory";
  let parameters = (ins "int64_t":$depth);
  let assemblyFormat = "`<` $depth `>`";
}

def Hopper_PendingType : Hopper_Type<"Pending", "pending"> {
  let summary = "A tile that the tensor core may still be writing";
  let description = [{
    The result of an asynchronous product. Nothing reads it but `hopper.wait`,
    which gives the tile, and another product, which adds to it in order.
  }];
  let parameters = (ins "::mlir::VectorType":$tile);
  let assemblyFormat = "`<` $tile `>`";
}

def Hopper_TensorMapType : Hopper_Type<"TensorMap", "tensor_map"> {
  let summary = "How TMA walks a tensor in global memory";
  let description = [{
    A CUDA tensor map (CUtensorMap) for a memref of `rank` 1 to 5: boxes of the
    last two dimensions as large as the tile (one box per slab); what lies
    outside of the memref is read as zero and not written.
  }];
  let parameters = (ins "::attn::tile::SmemType":$tile, "int64_t":$rank);
  let assemblyFormat = "`<` $tile `,` `rank` `=` $rank `>`";
}

class Hopper_Op<string mnemonic, list<Trait> traits = []>
    : Op<Hopper_Dialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

def Hopper_RolesOp : Hopper_Op<"roles", [
    RecursiveMemoryEffects, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Divides the warpgroups of a CTA into roles";
  let description = [{
    Region `r` is executed by `warpgroups[r]` warpgroups; the warpgroups of the
    first role come first in the CTA. A role of 0 warpgroups is one thread in a warp of the
    warpgroup before it, where the roles before it are one thread each, too; it has the
    same registers. The region's argument is the number of the
    warpgroup within its role. `registers[r]` is what each thread of the role may
    use (`setmaxnreg`): a multiple of 8 between 24 and 256, and over all
    warpgroups at most 512 registers for each of 128 lanes. As many CTAs share a
    multiprocessor as these registers allow, and have a part of its shared memory each.

    What one thread has to do (copies by TMA, arrivals, `hopper.mbarrier.expect`)
    is done by one thread of the warpgroup.

    ```mlir
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) { ... }
      role "compute" warpgroups(2) registers(240) (%w) { ... }
    ```
  }];
  let arguments = (ins StrArrayAttr:$names, DenseI64ArrayAttr:$warpgroups,
                       DenseI64ArrayAttr:$registers);
  let regions = (region VariadicRegion<SizedRegion<1>>:$bodies);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// What goes its own way in a role: its warpgroups, or the thread of one that has none.
    int64_t getAgents(size_t role) {
      return std::max<int64_t>(getWarpgroups()[role], 1);
    }
    int64_t getNumAgents() {
      int64_t sum = 0;
      for (size_t role = 0; role < getWarpgroups().size(); ++role)
        sum += getAgents(role);
      return sum;
    }
    int64_t getNumWarpgroups() {
      int64_t sum = 0;
      for (int64_t n : getWarpgroups())
        sum += n;
      return sum;
    }
    /// What all threads may use together.
    int64_t getNumRegisters();
    /// CTAs that may share a multiprocessor, which has 65536 registers and 2048 threads.
    int64_t getOccupancy();
  }];
}

def Hopper_YieldOp : Hopper_Op<"yield", [Pure, Terminator, ParentOneOf<["RolesOp"]>]> {
  let summary = "Ends a role";
  let assemblyFormat = "attr-dict";
}

//===----------------------------------------------------------------------===//
// Step 2: channels
//===----------------------------------------------------------------------===//

def Hopper_ChannelOp : Hopper_Op<"channel", [MemoryEffects<[MemAlloc]>]> {
  let summary = "A queue of tiles between two roles";
  let description = [{
    At most `depth` tiles are in the channel: sent and not yet released by all
    warpgroups of the roles that receive. One role sends; each warpgroup of the
    others that use the channel receives every tile.

    With `multicast`, the CTAs of a cluster send the same tiles in the same order: each
    tile is copied in `multicast` parts, a multiple of 8 of its rows each, by the CTAs in
    turn, to all of them. The size of the cluster divides the number of parts.

    ```mlir
    %c = hopper.channel depth(2) : !hopper.channel<!tile.smem<128x64xbf16, swizzle = 128>>
    %k = hopper.channel depth(2) multicast(2) : !hopper.channel<!tile.smem<128x64xbf16, swizzle = 128>>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive]>:$depth,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntMinValue<2>]>>:$multicast);
  let results = (outs Hopper_ChannelType:$channel);
  let assemblyFormat = [{
    `depth` `(` $depth `)` (`multicast` `(` $multicast^ `)`)? attr-dict `:` type($channel)
  }];
  let hasVerifier = 1;
}

def Hopper_SendOp
    : Hopper_Op<"send", [AttrSizedOperandSegments, MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Starts the copy of a tile of global memory into a channel";
  let description = [{
    Waits until the channel has room. The tile is as in `tile.load`. Where `some` is true,
    rows that are marked are zeros instead: as in `hopper.tma.load`.

    ```mlir
    hopper.send %dO[%b, %h, %i, %c0] without(%marks, %groups : memref<?x?x?xbf16>, memref<?x?x?xbf16>) if %some to %channel : memref<?x?x?x64xbf16>, !hopper.channel<!tile.smem<64x64xbf16, swizzle = 128>>
    ```
  }];
  let arguments = (ins AnyMemRef:$source, Variadic<Index>:$indices,
                       Hopper_ChannelType:$channel, Optional<AnyMemRef>:$marks,
                       Optional<AnyMemRef>:$groups, Optional<I1>:$some);
  let assemblyFormat = [{
    $source `[` $indices `]`
    (`without` `(` $marks^ `,` $groups `:` type($marks) `,` type($groups) `)` `if` $some)?
    `to` $channel attr-dict `:` type($source) `,` type($channel)
  }];
  let hasVerifier = 1;
}

def Hopper_ReceiveOp : Hopper_Op<"receive", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits for the next tile of a channel";
  let description = [{
    The tile is valid until this warpgroup's `hopper.release` of it; tiles are
    released in the order in which they were received.
  }];
  let arguments = (ins Hopper_ChannelType:$channel);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = "$channel attr-dict `:` type($channel) `->` type($tile)";
  let hasVerifier = 1;
}

def Hopper_HeldOp : Hopper_Op<"held", [MemoryEffects<[MemRead]>]> {
  let summary = "The oldest tile of a channel that has been received and not released";
  let description = [{
    Does not wait: the tile was received before, in an earlier iteration of a loop
    for example.
  }];
  let arguments = (ins Hopper_ChannelType:$channel);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = "$channel attr-dict `:` type($channel) `->` type($tile)";
  let hasVerifier = 1;
}

def Hopper_ReleaseOp : Hopper_Op<"release", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Gives the oldest received tile of a channel back";
  let arguments = (ins Hopper_ChannelType:$channel);
  let assemblyFormat = "$channel attr-dict `:` type($channel)";
}

def Hopper_AcquireOp : Hopper_Op<"acquire", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits until a channel has room for a tile, which registers are to fill";
  let description = [{
    Instead of `hopper.send`, where a role computes what it sends. All warpgroups of the
    role do it, in the same order; each writes its part (`tile.write`, to rows or
    columns of the tile, and `hopper.fence.async`), then `hopper.commit`.

    ```mlir
    %t = hopper.acquire %sums : !hopper.channel<!tile.smem<64x128xf32, swizzle = 128>> -> !tile.smem<64x128xf32, swizzle = 128>
    %part = tile.columns %t[%first] : !tile.smem<64x128xf32, swizzle = 128> -> !tile.smem<64x64xf32, swizzle = 128>
    tile.write %values to %part : vector<64x64xf32>, !tile.smem<64x64xf32, swizzle = 128>
    hopper.fence.async
    hopper.commit %sums : !hopper.channel<!tile.smem<64x128xf32, swizzle = 128>>
    ```
  }];
  let arguments = (ins Hopper_ChannelType:$channel);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = "$channel attr-dict `:` type($channel) `->` type($tile)";
  let hasVerifier = 1;
}

def Hopper_CommitOp : Hopper_Op<"commit", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "This warpgroup's part of the tile acquired last is written";
  let description = [{
    In the block of the `hopper.acquire`. The tile is received once all warpgroups have
    committed it.
  }];
  let arguments = (ins Hopper_ChannelType:$channel);
  let assemblyFormat = "$channel attr-dict `:` type($channel)";
}

def Hopper_AddOp : Hopper_Op<"add", [AttrSizedOperandSegments, MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Starts the addition of a tile to global memory";
  let description = [{
    As `hopper.tma.reduce`, whose tensor map hopper-expand-channels makes: the memref,
    defined outside of the launch, is as in `tile.load`. Where `first` is true the tile is
    stored: nothing is there yet.

    ```mlir
    hopper.add %t to %sum[%b, %h, %i, %c0] : !tile.smem<64x128xf32, swizzle = 128>, memref<?x?x?x128xf32>
    ```
  }];
  let arguments = (ins Tile_Tile:$tile, AnyMemRef:$dest, Variadic<Index>:$indices,
                       Optional<I1>:$first);
  let assemblyFormat = [{
    $tile `to` $dest `[` $indices `]` (`first` `(` $first^ `)`)? attr-dict
    `:` type($tile) `,` type($dest)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Semaphores of CTAs
//===----------------------------------------------------------------------===//

class Hopper_SemaphoreOp<string mnemonic>
    : Hopper_Op<mnemonic, [MemoryEffects<[MemRead, MemWrite]>]> {
  let hasVerifier = 1;
}

class Hopper_NumberedSemaphoreOp<string mnemonic> : Hopper_SemaphoreOp<mnemonic> {
  let arguments = (ins MemRefOf<[I32]>:$semaphores, Variadic<Index>:$indices, I32:$number);
  let assemblyFormat = "$semaphores `[` $indices `]` `,` $number attr-dict `:` type($semaphores)";
}

def Hopper_SemaphoreWaitOp : Hopper_NumberedSemaphoreOp<"semaphore.wait"> {
  let summary = "Waits until another CTA has released the semaphore";
  let description = [{
    Until `semaphores[indices]` is `number`; does not wait for a negative number,
    but is a proxy fence (of global memory) all the same. What the CTA that wrote the number did
    before is then visible to this role, and its additions by TMA come before those that this role
    starts (PTX ISA, "Memory Consistency Model": an acquire of scope gpu, and a proxy fence). Where
    it may wait, the CTAs of the launch all run at the same time (`hopper.cooperative`); who waits
    for whom must not go in circles. Behind `hopper.threads` it is the thread that waits.

    ```mlir
    hopper.semaphore.wait %semaphores[%i], %before : memref<?xi32>
    hopper.tma.reduce ...
    hopper.tma.wait pending(0)
    hopper.semaphore.release %semaphores[%i], %mine : memref<?xi32>
    ```
  }];
}

def Hopper_SemaphorePeekOp : Hopper_SemaphoreOp<"semaphore.peek"> {
  let summary = "The number that the last CTA to release a semaphore has written";
  let description = [{
    An acquire of scope gpu, which does not wait: where it has seen the number that is
    expected, a `hopper.semaphore.wait` with a negative one does the rest (its proxy fence).

    ```mlir
    %seen = hopper.semaphore.peek %semaphores[%i] : memref<?xi32>
    ```
  }];
  let arguments = (ins MemRefOf<[I32]>:$semaphores, Variadic<Index>:$indices);
  let results = (outs I32:$number);
  let assemblyFormat = "$semaphores `[` $indices `]` attr-dict `:` type($semaphores)";
}

def Hopper_SemaphoreFirstTouchOp : Hopper_SemaphoreOp<"semaphore.first_touch"> {
  let summary = "Whether this CTA is the first one to touch a tile";
  let description = [{
    True for one CTA, while `semaphores[indices]` is 0: it becomes -1, and that CTA
    releases it with a number
    above 0. For the others false, once such a number is there: what the first one did before is
    then visible as behind a `hopper.semaphore.wait`. `seen` is what a `hopper.semaphore.peek` of the same
    flag has seen: where it is above 0, nobody looks again, and there has to be a proxy fence
    between that peek and what comes behind the first touch. The CTAs need not all run at the same time,
    as long as the first one waits for no other CTA between its first touch and its
    `hopper.semaphore.release`.

    ```mlir
    %seen = hopper.semaphore.peek %semaphores[%i] : memref<?xi32>
    hopper.semaphore.wait %semaphores[%i], %none : memref<?xi32> // -1: the fence
    %first = hopper.semaphore.first_touch %semaphores[%i], %seen : memref<?xi32>
    hopper.add %tile to %sum[%h, %q, %c0] first(%first) : ...
    scf.if %first {
      hopper.tma.wait pending(0)
      hopper.semaphore.release %semaphores[%i], %c1 : memref<?xi32>
    }
    ```
  }];
  let arguments = (ins MemRefOf<[I32]>:$semaphores, Variadic<Index>:$indices, I32:$seen);
  let results = (outs I1:$first);
  let assemblyFormat = "$semaphores `[` $indices `]` `,` $seen attr-dict `:` type($semaphores)";
}

def Hopper_SemaphoreReleaseOp : Hopper_NumberedSemaphoreOp<"semaphore.release"> {
  let summary = "Releases the semaphore: writes the number that the next CTA waits for";
  let description = [{
    A release of scope gpu. Reductions and stores by TMA that are to come before have been
    waited for (`hopper.tma.wait pending(0)`, without `read`), which makes them visible to
    this thread.
  }];
}

//===----------------------------------------------------------------------===//
// Step 3: memory and barriers
//===----------------------------------------------------------------------===//

def Hopper_TensorMapOp : Hopper_Op<"tensor_map", [Pure]> {
  let summary = "Describes a memref to TMA (host side)";
  let description = [{
    The memref has rank 2 to 5, elements of bf16, f16 or f32, a unit innermost stride
    and other strides that are multiples of 16 bytes. Sizes and strides are read
    when the program runs; what cannot be encoded then is a run-time error that
    names the argument. Boxes have the rows of `tile` and the columns of one slab.

    ```mlir
    %map = hopper.tensor_map %K : memref<?x?x?x64xbf16> -> !hopper.tensor_map<!tile.smem<128x64xbf16, swizzle = 128>, rank = 4>
    ```
  }];
  let arguments = (ins AnyMemRef:$source);
  let results = (outs Hopper_TensorMapType:$map);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($map)";
  let hasVerifier = 1;
}

def Hopper_TmaReachesOp : Hopper_Op<"tma.reaches", [Pure]> {
  let summary = "Whether a tensor map can describe a memref (host side)";
  let description = [{
    Whether the memref starts at a multiple of 16 bytes, and all strides but the
    innermost, of dimensions with more than one element, are multiples of 16 bytes too
    (and neither 0 nor 2^40 bytes or more). For memrefs that there is another way to
    read.

    ```mlir
    %reaches = hopper.tma.reaches %bias : memref<?x?x?xbf16, strided<[?, ?, 1], offset: ?>>
    ```
  }];
  let arguments = (ins AnyMemRef:$source);
  let results = (outs I1:$reaches);
  let assemblyFormat = "$source attr-dict `:` type($source)";
}

def Hopper_AllocOp : Hopper_Op<"alloc", [MemoryEffects<[MemAlloc]>]> {
  let summary = "Shared memory of the CTA, for the whole launch";
  let description = [{
    Aligned to 1024 bytes. Together with the mbarriers at most 227 KB per CTA.
  }];
  let results = (outs Tile_Smem:$memory);
  let assemblyFormat = "attr-dict `:` type($memory)";
}

def Hopper_SlotOp : Hopper_Op<"slot", [Pure]> {
  let summary = "One tile of a ring";
  let description = [{
    Or a tile of other elements in its place: as many rows, in as many slabs of the same
    swizzle or fewer.
  }];
  let arguments = (ins Tile_Ring:$ring, Index:$index);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = "$ring `[` $index `]` attr-dict `:` type($ring) `->` type($tile)";
  let hasVerifier = 1;
}

def Hopper_MBarrierOp : Hopper_Op<"mbarrier", [MemoryEffects<[MemAlloc]>]> {
  let summary = "A ring of mbarriers, initialised for `arrivals` arrivals per phase";
  let description = [{
    Initialised before any role (of any CTA of the cluster) starts. A phase completes when
    `arrivals` arrivals, with `cluster` as many from each CTA of the cluster, have
    happened and all bytes that `hopper.mbarrier.expect` announced in it have been copied.
    The first phase is phase 0.
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive]>:$arrivals, UnitAttr:$cluster);
  let results = (outs Hopper_MBarrierType:$barriers);
  let assemblyFormat = [{
    `arrivals` `(` $arrivals `)` (`cluster` $cluster^)? attr-dict `:` type($barriers)
  }];
}

def Hopper_MBarrierExpectOp : Hopper_Op<"mbarrier.expect", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "One arrival, and bytes that the current phase waits for";
  let description = [{
    `mbarrier.arrive.expect_tx`, at most 2^20 - 1 bytes.
  }];
  let arguments = (ins Hopper_MBarrierType:$barriers, Index:$index,
                       ConfinedAttr<I64Attr, [IntPositive, IntMaxValue<1048575>]>:$bytes);
  let assemblyFormat = "$barriers `[` $index `]` `bytes` `(` $bytes `)` attr-dict `:` type($barriers)";
}

def Hopper_MBarrierArriveOp : Hopper_Op<"mbarrier.arrive", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "One arrival by this warpgroup";
  let description = [{
    Everything that the warpgroup did before is visible to who waits for the
    phase. One arrival per warpgroup, whatever the number of its threads. With `cluster`,
    one at the mbarrier of each CTA of the cluster (PTX ISA, "mapa").

    ```mlir
    hopper.mbarrier.arrive %empty[%stage] cluster : !hopper.mbarrier<2>
    ```
  }];
  let arguments = (ins Hopper_MBarrierType:$barriers, Index:$index, UnitAttr:$cluster);
  let assemblyFormat = [{
    $barriers `[` $index `]` (`cluster` $cluster^)? attr-dict `:` type($barriers)
  }];
}

def Hopper_MBarrierWaitOp : Hopper_Op<"mbarrier.wait", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits until the phase of the given parity is complete";
  let description = [{
    `phase` is 0 or 1. On a fresh barrier, waiting for parity 1 does not wait
    (the phase before the first counts as complete).
  }];
  let arguments = (ins Hopper_MBarrierType:$barriers, Index:$index, I32:$phase);
  let assemblyFormat = "$barriers `[` $index `]` `,` $phase attr-dict `:` type($barriers)";
}

def Hopper_TmaLoadOp
    : Hopper_Op<"tma.load", [AttrSizedOperandSegments, MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Starts the copy of a tile of global memory to shared memory";
  let description = [{
    `coordinates` are those of the tile's first element, as many as the tensor
    map's rank, in the memref's order. Completes on the mbarrier with the tile's
    bytes (padding of the last slab included). With `multicast`, the tile at the same place
    in each CTA of the cluster is filled, and the mbarrier there told.

    ```mlir
    hopper.tma.load %map[%i, %c0] to %tile, %full[%stage] multicast : !hopper.tensor_map<!tile.smem<64x64xbf16, swizzle = 128>, rank = 2>, !tile.smem<64x64xbf16, swizzle = 128>, !hopper.mbarrier<2>
    ```

    Where `some` is true, each row is a copy of its own, by `row_map`, whose boxes have one row
    (of 128 bytes, which is what TMA aligns tiles to), and rows that are marked are copied from
    beyond the memref: zeros. Marks are numbers of 16 bits that are not 0, at the coordinates of
    the row in `marks`, which has as many rows as the memref; they are read where `groups` has
    one, too, for the row's group, the 64 rows from a multiple of 64 on.

    ```mlir
    hopper.tma.load %map[%i, %c0] without(%marks, %groups, %rowMap : memref<?xbf16>, memref<?xbf16>, !hopper.tensor_map<!tile.smem<1x64xbf16, swizzle = 128>, rank = 2>) if %some to %tile, %full[%stage] : ...
    ```
  }];
  let arguments = (ins Hopper_TensorMapType:$map, Variadic<Index>:$coordinates,
                       Tile_Tile:$tile, Hopper_MBarrierType:$barriers, Index:$index,
                       Optional<AnyMemRef>:$marks, Optional<AnyMemRef>:$groups,
                       Optional<Hopper_TensorMapType>:$rowMap, Optional<I1>:$some,
                       UnitAttr:$multicast);
  let assemblyFormat = [{
    $map `[` $coordinates `]`
    (`without` `(` $marks^ `,` $groups `,` $rowMap `:` type($marks) `,` type($groups) `,`
     type($rowMap) `)` `if` $some)?
    `to` $tile `,` $barriers `[` $index `]` (`multicast` $multicast^)?
    attr-dict `:` type($map) `,` type($tile) `,` type($barriers)
  }];
  let hasVerifier = 1;
}

def Hopper_TmaStoreOp : Hopper_Op<"tma.store", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Starts the copy of a tile of shared memory to global memory";
  let description = [{
    The copy is one group of those that `hopper.tma.wait` counts. What lies
    outside of the memref is not written. Tiles written by `tile.write`
    need a barrier before, and a `hopper.fence.async` by the writers in front of it or by this
    role behind it.
  }];
  let arguments = (ins Tile_Tile:$tile, Hopper_TensorMapType:$map,
                       Variadic<Index>:$coordinates);
  let assemblyFormat = [{
    $tile `to` $map `[` $coordinates `]` attr-dict `:` type($tile) `,` type($map)
  }];
  let hasVerifier = 1;
}

def Hopper_TmaReduceOp : Hopper_Op<"tma.reduce", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Starts the addition of a tile of shared memory to global memory";
  let description = [{
    As `hopper.tma.store`, but adds, element by element and atomically. The order
    of additions of different CTAs is not fixed.
  }];
  let arguments = (ins Tile_Tile:$tile, Hopper_TensorMapType:$map,
                       Variadic<Index>:$coordinates);
  let assemblyFormat = [{
    $tile `to` $map `[` $coordinates `]` attr-dict `:` type($tile) `,` type($map)
  }];
  let hasVerifier = 1;
}

def Hopper_TmaWaitOp : Hopper_Op<"tma.wait", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits for stores of this warpgroup by TMA";
  let description = [{
    Until at most `pending` of the last stores or reductions are unfinished. With
    `read`, only until their tiles have been read and may be written again.
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$pending, UnitAttr:$read);
  let assemblyFormat = "`pending` `(` $pending `)` (`read` $read^)? attr-dict";
}

def Hopper_FenceAsyncOp : Hopper_Op<"fence.async", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Makes writes to shared memory visible to TMA and WGMMA";
  let description = [{
    `fence.proxy.async.shared::cta`, by every thread of the role: of its own writes, and of
    those of other warpgroups that a barrier in front of it orders before it. It waits until
    the multiprocessor's writes are done, so it costs least behind the barrier.
  }];
  let assemblyFormat = "attr-dict";
}

def Hopper_NamedBarriersOp : Hopper_Op<"named_barriers"> {
  let summary = "Named barriers of the CTA that nobody else has";
  let description = [{
    The number of the first of `count` consecutive ones; those behind it are `first + 1` and so on.
    hopper-allocate-barriers chooses numbers.

    ```mlir
    %first = hopper.named_barriers count(2)
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %mine = arith.addi %w, %first : index
        hopper.barrier.sync %mine warpgroups(1)
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive, IntMaxValue<15>]>:$count);
  let results = (outs Res<Index, "", [MemAlloc]>:$first);
  let assemblyFormat = "`count` `(` $count `)` attr-dict";
}

def Hopper_BarrierSyncOp : Hopper_Op<"barrier.sync", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits at a named barrier for `warpgroups` warpgroups";
  let description = [{
    `bar.sync id, 128 * warpgroups`. `id` is 1 to 15, or follows from `hopper.named_barriers`.
    Warpgroups that sync and those that arrive count alike.
  }];
  let arguments = (ins Index:$id, ConfinedAttr<I64Attr, [IntPositive]>:$warpgroups);
  let assemblyFormat = "$id `warpgroups` `(` $warpgroups `)` attr-dict";
  let hasVerifier = 1;
}

def Hopper_BarrierArriveOp : Hopper_Op<"barrier.arrive", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Arrives at a named barrier without waiting";
  let arguments = (ins Index:$id, ConfinedAttr<I64Attr, [IntPositive]>:$warpgroups);
  let assemblyFormat = "$id `warpgroups` `(` $warpgroups `)` attr-dict";
  let hasVerifier = 1;
}

def Hopper_BarrierReduceOp : Hopper_Op<"barrier.reduce", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Whether any (all) elements of the warpgroups' tiles are true";
  let description = [{
    `bar.red id, 128 * warpgroups`: waits as `hopper.barrier.sync`. Each of the
    warpgroups brings a tile of i1 and gets the same answer over all of them.

    ```mlir
    %some = hopper.barrier.reduce any %keep, %id warpgroups(3) : vector<64x128xi1>
    ```
  }];
  let arguments = (ins Index:$id, VectorOfRankAndType<[2], [I1]>:$value,
                       ConfinedAttr<I64Attr, [IntPositive]>:$warpgroups, UnitAttr:$all);
  let results = (outs I1:$result);
  let assemblyFormat = [{
    (`all` $all^) : (`any`)? $value `,` $id `warpgroups` `(` $warpgroups `)` attr-dict `:`
    type($value)
  }];
  let hasVerifier = 1;
}

def Hopper_ReportOp : Hopper_Op<"report"> {
  let summary = "Reports that a tile is to be computed again";
  let description = [{
    Sets the flag of this CTA to 1 if any element of `value` is true. A kernel with such reports
    starts with 0 in the flag of each CTA. `reports` has a flag for each CTA of the grid.

    With `warpgroups` each warpgroup of a CTA has a flag of its own, and each of its four warps a
    byte of that: 1 if any element of its 16 rows of `value` is true, else 0. These flags are
    written here, once, in no loop or branch. All warpgroups compute: there is one role.

    With `tile` the flags are those of a tile of this number, not of a CTA: flag `w + n tile` for
    warpgroup `w` of the `n` of a role. A CTA may have many tiles, and roles.

    ```mlir
    hopper.report %isBeyond to %reports : vector<64xi1>, memref<?xi32>
    hopper.report warpgroups %isLarge to %flags : vector<64xi1>, memref<?xi32>
    hopper.report warpgroups %isLarge to %flags tile %t : vector<128xi1>, memref<?xi32>
    ```
  }];
  let arguments = (ins VectorOfRankAndType<[1, 2], [I1]>:$value,
                       Arg<MemRefRankOf<[I32], [1]>, "", [MemWrite]>:$reports,
                       Optional<Index>:$tile, UnitAttr:$warpgroups);
  let assemblyFormat = [{
    (`warpgroups` $warpgroups^)? $value `to` $reports (`tile` $tile^)? attr-dict
    `:` type($value) `,` type($reports)
  }];
  let extraClassDeclaration = [{
    /// The first warpgroup of the role that this op is in, and how many there are.
    std::pair<int64_t, int64_t> getWarpgroupsOfRole();
  }];
  let hasVerifier = 1;
}

def Hopper_RedoOp : Hopper_Op<"redo", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Ends the CTA unless that of the same number has reported";
  let description = [{
    In a launch behind one with `hopper.report` and the same grid, whose CTAs have the same
    tiles; in front of the roles. Where `always` holds, there was no such launch, and each CTA
    goes on.

    ```mlir
    hopper.redo %reports always %isShort : memref<?xi32>
    ```
  }];
  let arguments = (ins MemRefRankOf<[I32], [1]>:$reports, I1:$always);
  let assemblyFormat = "$reports `always` $always attr-dict `:` type($reports)";
  let hasVerifier = 1;
}

def Hopper_RunIfOp : Hopper_Op<"run_if",
    [MemoryEffects<[MemRead, MemWrite]>, DeclareOpInterfaceMethods<Attn_RunConditionOpInterface>]> {
  let summary = "Ends the CTA unless a flag is set, or unless none is";
  let description = [{
    Of two versions of a program, which one runs is known on the device only: a program in front
    of both has written the flags. Each CTA looks at all of them, in front of the roles. It goes
    on where some flag is not 0; with `none`, where all are.

    ```mlir
    hopper.run_if any %flags : memref<?xi32>
    hopper.run_if none %flags : memref<?xi32>
    ```
  }];
  let arguments = (ins MemRefRankOf<[I32], [1]>:$flags, UnitAttr:$none);
  let assemblyFormat = "(`none` $none^):(`any`)? $flags attr-dict `:` type($flags)";
  let hasVerifier = 1;
}

def Hopper_ClusterSyncOp : Hopper_Op<"cluster.sync", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits for all warpgroups of all CTAs of the cluster";
  let description = [{
    `barrier.cluster.arrive` and `barrier.cluster.wait`. No CTA may end before the others
    have arrived at its mbarriers and copied to its shared memory for the last time.
  }];
  let assemblyFormat = "attr-dict";
}

def Hopper_ThreadsOp : Hopper_Op<"threads", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "The launch is written for one thread";
  let description = [{
    In the body of a launch, or of its kernel, which says what each thread does, with its own
    values, and has no `hopper.roles`. Threads meet in `gpu.barrier` (all of a CTA),
    `hopper.cluster.sync` (all of a cluster), `hopper.grid.sync` (all of the launch) and
    `gpu.shuffle` (32 lanes); one of a CTA may wait for another CTA (`hopper.semaphore.wait`). Registers are such that
    `occupancy` CTAs share a multiprocessor, where given.

    ```mlir
    hopper.threads occupancy = 2
    ```
  }];
  let arguments = (ins OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$occupancy);
  let assemblyFormat = "(`occupancy` `=` $occupancy^)? attr-dict";
  let hasVerifier = 1;
}

def Hopper_ClusterArriveOp : Hopper_Op<"cluster.arrive", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "The first half of a hopper.cluster.sync of threads";
  let description = [{
    Behind `hopper.threads`: `barrier.cluster.arrive`. The next `hopper.cluster.wait` of the thread
    is the other half.
  }];
  let assemblyFormat = "attr-dict";
}

def Hopper_ClusterWaitOp : Hopper_Op<"cluster.wait", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "The second half of a hopper.cluster.sync of threads";
  let description = [{
    Waits until all threads of the cluster have been at their `hopper.cluster.arrive`.
  }];
  let assemblyFormat = "attr-dict";
}

def Hopper_GridSyncOp : Hopper_Op<"grid.sync", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits for all threads of all CTAs of the launch";
  let description = [{
    Behind `hopper.threads`, where all threads of a CTA come to it: what any thread of the grid did
    before is visible to all behind it. The CTAs of the launch all run at the same time
    (`hopper.cooperative`). `counter` has one element, which is 0 before the launch and counts
    arrivals of CTAs: an addition with release, a wait with acquire, both of scope gpu, between two
    barriers of the CTA.

    ```mlir
    hopper.grid.sync %counter : memref<1xi32>
    ```
  }];
  let arguments = (ins MemRefRankOf<[I32], [1]>:$counter);
  let assemblyFormat = "$counter attr-dict `:` type($counter)";
  let hasVerifier = 1;
}

def Hopper_LastArrivalOp : Hopper_Op<"last_arrival", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Whether this CTA is the last of several to come here";
  let description = [{
    Behind `hopper.threads`, where all threads of a CTA come to it: of `count` CTAs that come to the
    same element of `counters`, true for all threads of the last one, to which everything that the
    others did before is visible; false for the others, which do not wait. The element is 0 before
    the first comes and 0 again behind the last.

    ```mlir
    %last = hopper.last_arrival %counters[%row] of %parts : memref<?xi32>
    ```
  }];
  let arguments = (ins MemRefRankOf<[I32], [1]>:$counters, Index:$index, Index:$count);
  let results = (outs I1:$last);
  let assemblyFormat = "$counters `[` $index `]` `of` $count attr-dict `:` type($counters)";
}

def Hopper_OpaqueOp : Hopper_Op<"opaque", [
    MemoryEffects<[MemRead, MemWrite]>, AllTypesMatch<["value", "result"]>]> {
  let summary = "A value that is not known to be the one of before";
  let description = [{
    Behind `hopper.threads`: what follows from the result is computed again, not kept in registers
    from where it was computed from `value`.

    ```mlir
    %x = hopper.opaque %y : vector<8xbf16>
    ```
  }];
  let arguments = (ins AnyVectorOfNonZeroRank:$value);
  let results = (outs AnyVectorOfNonZeroRank:$result);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Hopper_RemoteLoadOp : Hopper_Op<"remote.load", [
    MemoryEffects<[MemRead]>,
    TypesMatchWith<"the result has the element type of the memory", "memory", "result",
                   "::llvm::cast<::mlir::MemRefType>($_self).getElementType()">]> {
  let summary = "Reads an element of the shared memory of a CTA of the cluster";
  let description = [{
    Behind `hopper.threads`: `memory` is shared memory of this CTA, of static
    shape, and the element is the one at the same place in the CTA of number `rank` of the cluster
    (`mapa`, then `ld.shared::cluster`). What another CTA writes there is seen behind a
    `hopper.cluster.sync`, and no CTA may end before the others have read the last time.

    ```mlir
    %x = hopper.remote.load %partials[%warp] of %rank : memref<8xf32, #gpu.address_space<workgroup>>
    ```
  }];
  let arguments = (ins MemRefRankOf<[F32, I32], [1]>:$memory, Index:$index, Index:$rank);
  let results = (outs AnyTypeOf<[F32, I32]>:$result);
  let assemblyFormat = "$memory `[` $index `]` `of` $rank attr-dict `:` type($memory)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Step 3: asynchronous products
//===----------------------------------------------------------------------===//

def Hopper_WgmmaOp : Hopper_Op<"wgmma", [MemoryEffects<[MemRead]>]> {
  let summary = "Starts a product of tiles by one warpgroup";
  let description = [{
    As `tile.mma` with m = 64, asynchronously: one group of
    `wgmma.mma_async` instructions, fenced before and committed after. Operands in
    shared memory must not be written, and the accumulator must not be touched,
    before a `hopper.wait` that covers the group. An absent accumulator is zero.

    ```mlir
    %s = hopper.wgmma %q, %k transposeB : (!tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<128x64xbf16, swizzle = 128>) -> !hopper.pending<vector<64x128xf32>>
    %o1 = hopper.wgmma %p, %v, %o : (vector<64x128xbf16>, !tile.smem<128x64xbf16, swizzle = 128>, vector<64x64xf32>) -> !hopper.pending<vector<64x64xf32>>
    ```
  }];
  let arguments = (ins AnyTypeOf<[Tile_Tile, Tile_Vector2]>:$a, Tile_Tile:$b,
                       Optional<AnyTypeOf<[Tile_Accumulator, Hopper_PendingType]>>:$accumulator,
                       UnitAttr:$transposeA, UnitAttr:$transposeB);
  let results = (outs Hopper_PendingType:$result);
  let assemblyFormat = [{
    $a `,` $b (`,` $accumulator^)? (`transposeA` $transposeA^)? (`transposeB` $transposeB^)?
    attr-dict `:` functional-type(operands, $result)
  }];
  let hasVerifier = 1;
}

def Hopper_WaitOp : Hopper_Op<"wait", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits for a product";
  let description = [{
    `wgmma.wait_group pending`: returns when at most `pending` of the groups that
    this warpgroup started are unfinished. The product must be among the finished
    ones: `pending` is at most the number of groups started after it.

    ```mlir
    %t = hopper.wait %s pending(1) : !hopper.pending<vector<64x128xf32>>
    ```
  }];
  let arguments = (ins Hopper_PendingType:$product,
                       ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<7>]>:$pending);
  let results = (outs Tile_Accumulator:$result);
  let assemblyFormat = "$product `pending` `(` $pending `)` attr-dict `:` type($product) `->` type($result)";
  let hasVerifier = 1;
}

#endif
