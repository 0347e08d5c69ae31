// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tile dialect: tiles in shared memory and their products, for any GPU.

#ifndef TILE_OPS
#define TILE_OPS

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/BuiltinTypeInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::attn::tile";
  let summary = "Tiles in shared memory, and products of them";
  let description = [{
    The tiles form, between programs of tiles and the level of a target. A value of `vector`
    type is a tile that the threads of a group hold together in registers, and arithmetic on it
    is upstream's (`arith`, `math`, `vector`). This dialect has what upstream has no form for:

    - *Tiles in shared memory* (`!tile.smem`), with their swizzle, and some rows or columns of
      one in place (`tile.rows`, `tile.columns`).
    - *Copies*: of a tile of global memory to shared memory (`tile.load`), between registers and
      shared memory (`tile.write`, `tile.read`), and of the rows of all groups (`tile.gather`,
      `tile.share`).
    - *Products* of tiles (`tile.mma`).

    Loads and products have value semantics: nothing is asynchronous, no op says which threads
    copy, and there are no barriers. A target lowers them. On sm_90 the groups are warpgroups
    (128 threads); loads become channels between roles and then copies by TMA, products become
    WGMMA: ops of the `hopper` dialect. `tile.write`, `tile.read`, `tile.rows` and `tile.columns`
    stay in its protocol form.
  }];
  let useDefaultTypePrinterParser = 1;
  let extraClassDeclaration = [{
    void registerTypes();
  }];
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

def Tile_SmemType : TypeDef<Tile_Dialect, "Smem"> {
  let mnemonic = "smem";
  let summary = "A tile in shared memory, or a ring of tiles";
  let description = [{
    Rank 2 is a tile of rows x columns; rank 3 is a ring of such tiles. `swizzle`
    is the span in bytes (128, 64 or 32) that the hardware permutes: columns are
    stored in slabs of `swizzle` bytes, one slab (rows x swizzle bytes) after the
    other, and the 16-byte chunks of each row of a slab are permuted by the XOR
    with the row's number modulo the chunks of a span (PTX ISA, "Swizzling
    modes"). The last slab is padded to its full width. A tile of one row is a plain
    vector of a multiple of 128 bytes; it has `swizzle = 0`. So has a tile of 64 rows of f32 in the
    order of registers: each thread of a warpgroup finds there (`tile.read`) what the thread
    of that number has written (`tile.write`), and nothing else reads it. Some rows of a
    larger tile (`tile.rows`) keep its slabs: `slab_rows` is the number of rows of the whole
    tile where it differs.

    Element types: bf16, f16, f32.

    ```mlir
    !tile.smem<128x64xbf16, swizzle = 128>
    !tile.smem<2x128x64xbf16, swizzle = 128>
    !tile.smem<2x1x64xf32>
    !tile.smem<64x128xbf16, swizzle = 128, slab_rows = 128>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType,
                        "int64_t":$swizzle, "int64_t":$slabRows);
  let builders = [
    TypeBuilderWithInferredContext<(ins "::llvm::ArrayRef<int64_t>":$shape,
                                        "::mlir::Type":$elementType, "int64_t":$swizzle), [{
      return $_get(elementType.getContext(), shape, elementType, swizzle,
                   shape[shape.size() - 2]);
    }]>
  ];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    int64_t getRank() const { return getShape().size(); }
    bool isRing() const { return getRank() == 3; }
    /// Tiles of a ring; 1 for a tile.
    int64_t getDepth() const { return isRing() ? getShape().front() : 1; }
    /// Whether only threads reach it, each what the one of its number has written.
    bool isInRegisterOrder() const { return getSwizzle() == 0 && getRows() > 1; }
    /// The type of one tile of a ring.
    SmemType getTile() const;
    int64_t getRows() const { return getShape()[getRank() - 2]; }
    int64_t getColumns() const { return getShape().back(); }
    /// Columns of one slab: swizzle bytes, or all of them without swizzle.
    int64_t getSlabColumns() const;
    int64_t getSlabs() const;
    /// Bytes from one slab to the next.
    int64_t getSlabBytes() const { return getSlabRows() * getSwizzle(); }
    /// Bytes of one tile, padding of the last slab included.
    int64_t getTileBytes() const;
    /// Bytes of all tiles.
    int64_t getBytes() const { return getDepth() * getTileBytes(); }
  }];
}

class Tile_Op<string mnemonic, list<Trait> traits = []>
    : Op<Tile_Dialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// Tiles of global memory
//===----------------------------------------------------------------------===//

def Tile_LoadOp : Tile_Op<"load", [MemoryEffects<[MemRead]>]> {
  let summary = "A tile of global memory, in shared memory";
  let description = [{
    The tile starts at `indices` and lies in the last two dimensions; elements
    beyond the memref are 0. The memref is defined outside of the launch. What
    copies tiles is TMA (on sm_90): a unit innermost stride, rank 2 to 5, other
    strides that are multiples of 16 bytes, at most 256 rows; or the threads (`tile.copy`):
    any strides.

    ```mlir
    %k = tile.load %K[%b, %h, %j, %c0] : memref<?x?x?x64xbf16> -> !tile.smem<128x64xbf16, swizzle = 128>
    ```
  }];
  let arguments = (ins AnyMemRef:$source, Variadic<Index>:$indices);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = [{
    $source `[` $indices `]` attr-dict `:` type($source) `->` type($tile)
  }];
  let hasVerifier = 1;
}

def Tile_CopyOp : Tile_Op<"copy", [
    MemoryEffects<[MemRead, MemWrite]>, AttrSizedOperandSegments]> {
  let summary = "Starts copying a tile of global memory to shared memory, by all threads of a CTA";
  let description = [{
    As `tile.load`, but asynchronous and by the threads themselves, each a part (`cp.async` where
    addresses are multiples of 4 or 16 bytes, else loads and stores): any strides, any alignment.
    Columns of the tile's last slab up to a multiple of 32 bytes are 0. The threads of a CTA execute
    it together. The tile may be read behind a `tile.await` that covers the group of copies that a
    `tile.commit` behind the copy has closed; before it is written again, all who read it have met
    (at a `tile.await`).

    With `pages` the source is a pool of pages (page, head, row, column), and the indices are those of the
    sequences that a table of pages and their lengths make of it, as `attn.pages` says: sequence, head, row,
    column. Each thread looks up the pages of its rows. Where `aligned_rows` says that the first row is a multiple
    of so many, rows of one page are looked up together.

    ```mlir
    tile.copy %K[%b, %h, %j, %c0] to %slot : memref<?x?x?x64xbf16>, !tile.smem<64x64xbf16, swizzle = 128>
    tile.copy %pool[%b, %h, %j, %c0] pages(%table, %lengths : memref<?x?xi32>, memref<?xi32>) to %slot
        : memref<?x?x16x64xbf16>, !tile.smem<64x64xbf16, swizzle = 128>
    ```
  }];
  let arguments = (ins AnyMemRef:$source, Variadic<Index>:$indices,
                       Optional<MemRefRankOf<[I32, I64], [2]>>:$table,
                       Optional<MemRefRankOf<[I32, I64], [1]>>:$lengths, Tile_Tile:$tile,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$aligned_rows);
  let assemblyFormat = [{
    $source `[` $indices `]`
    (`pages` `(` $table^ `,` $lengths `:` type($table) `,` type($lengths) `)`)?
    `to` $tile attr-dict `:` type($source) `,` type($tile)
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$source, "::mlir::ValueRange":$indices,
                                 "::mlir::Value":$tile), [{
    build($_builder, $_state, source, indices, /*table=*/{}, /*lengths=*/{}, tile,
          /*aligned_rows=*/{});
  }]>];
  let hasVerifier = 1;
}

def Tile_CommitOp : Tile_Op<"commit", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Closes a group of copies";
  let description = [{
    All copies of a thread that no group has yet, which may be none (`cp.async.commit_group`).
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_AwaitOp : Tile_Op<"await", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits for groups of copies, then for all threads of the CTA";
  let description = [{
    All groups but the newest `pending` have landed (`cp.async.wait_group`), and all threads of the
    CTA have come by (`bar.sync 0`): what each has copied, all may read; what all have read, each may
    write.

    ```mlir
    tile.await 1
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$pending);
  let assemblyFormat = "$pending attr-dict";
}

def Tile_WarpSyncOp : Tile_Op<"warp_sync", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "The threads of each warp meet";
  let description = [{
    What a warp has written to rows of a tile (`tile.write`, not transposed), it may read as rows of
    a left operand, and the other way round (`bar.warp.sync`): the threads of a warp have the same
    rows in both. Says nothing of other warps.
  }];
  let assemblyFormat = "attr-dict";
}

//===----------------------------------------------------------------------===//
// Parts of tiles
//===----------------------------------------------------------------------===//

def Tile_RowsOp : Tile_Op<"rows", [Pure]> {
  let summary = "Some rows of a tile, in place";
  let description = [{
    Rows `offset` to `offset + rows of the result`, whose number and whose offset
    are multiples of 8 (a swizzle repeats after at most 8 rows). The result keeps the
    slabs of the source (`slab_rows`).

    ```mlir
    %q1 = tile.rows %q[%offset] : !tile.smem<128x64xbf16, swizzle = 128> -> !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>
    ```
  }];
  let arguments = (ins Tile_Tile:$source, Index:$offset);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = [{
    $source `[` $offset `]` attr-dict `:` type($source) `->` type($tile)
  }];
  let hasVerifier = 1;
}

def Tile_ColumnsOp : Tile_Op<"columns", [Pure]> {
  let summary = "Some columns of a tile, in place";
  let description = [{
    Columns `offset` to `offset + columns of the result`: whole slabs, or a part of
    one that divides it (`offset` is a multiple of the result's columns then).

    ```mlir
    %k1 = tile.columns %k[%offset] : !tile.smem<128x128xbf16, swizzle = 128> -> !tile.smem<128x64xbf16, swizzle = 128>
    ```
  }];
  let arguments = (ins Tile_Tile:$source, Index:$offset);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = [{
    $source `[` $offset `]` attr-dict `:` type($source) `->` type($tile)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Registers and shared memory
//===----------------------------------------------------------------------===//

def Tile_WriteOp : Tile_Op<"write", [MemoryEffects<[MemWrite]>]> {
  let summary = "Writes a tile of registers to shared memory";
  let description = [{
    `tile[r, c] = value[r, c]`, swizzled, by `stmatrix` where the element type
    has 16 bits. With `transpose`, `tile[c, r] = value[r, c]`.

    ```mlir
    tile.write %x to %tile : vector<64x128xbf16>, !tile.smem<64x128xbf16, swizzle = 128>
    ```
  }];
  let arguments = (ins Tile_Vector2:$value, Tile_Tile:$tile, UnitAttr:$transpose);
  let assemblyFormat = [{
    $value `to` $tile (`transpose` $transpose^)? attr-dict `:` type($value) `,` type($tile)
  }];
  let hasVerifier = 1;
}

def Tile_ReadOp : Tile_Op<"read", [MemoryEffects<[MemRead]>]> {
  let summary = "Reads a tile of shared memory to registers";
  let description = [{
    `value[r, c] = tile[r, c]`, by `ldmatrix`: elements of 16 bits; with `transpose`,
    `value[r, c] = tile[c, r]`. Or a tile in the order of registers. Or a vector from a tile
    of one row of f32. On sm_90, before the tile is given back to a role that copies to it, a
    `hopper.fence.async` puts these reads in front of TMA's writes.

    ```mlir
    %x = tile.read %tile : !tile.smem<64x128xbf16, swizzle = 128, slab_rows = 128> -> vector<64x128xbf16>
    %v = tile.read %row : !tile.smem<1x64xf32> -> vector<64xf32>
    ```
  }];
  let arguments = (ins Tile_Tile:$tile, UnitAttr:$transpose);
  let results = (outs AnyTypeOf<[Tile_Vector2, VectorOfRankAndType<[1], [F32, F64]>]>:$value);
  let assemblyFormat = [{
    $tile (`transpose` $transpose^)? attr-dict `:` type($tile) `->` type($value)
  }];
  let hasVerifier = 1;
}

def Tile_GatherOp : Tile_Op<"gather", [Pure]> {
  let summary = "The rows of all warpgroups, as each of them has it";
  let description = [{
    Each warpgroup brings as many rows of a tile; the result is the whole tile, those
    of warpgroup 0 first, in every warpgroup; or, of the whole tile, the warpgroup's
    share of the columns. No warpgroup has registers for it: hopper-form-products makes
    it an operand in shared memory (`tile.share`).

    ```mlir
    %all = tile.gather %x : vector<64x64xf32> -> vector<128x64xf32>
    %columns = tile.gather %x : vector<64x128xf32> -> vector<128x64xf32>
    ```
  }];
  let arguments = (ins Tile_Vector2:$part);
  let results = (outs Tile_Vector2:$whole);
  let assemblyFormat = "$part attr-dict `:` type($part) `->` type($whole)";
  let hasVerifier = 1;
}

def Tile_ShareOp : Tile_Op<"share", [MemoryEffects<[MemAlloc]>]> {
  let summary = "The rows of all warpgroups, in shared memory";
  let description = [{
    As `tile.gather`, as a tile that products read. All warpgroups of the role do
    it together, in the same order. The tile is valid until the next execution of the
    same op.

    ```mlir
    %all = tile.share %x : vector<64x64xbf16> -> !tile.smem<128x64xbf16, swizzle = 128>
    ```
  }];
  let arguments = (ins Tile_Vector2:$part);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = "$part attr-dict `:` type($part) `->` type($tile)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

def Tile_MmaOp : Tile_Op<"mma", [MemoryEffects<[MemRead]>, AllTypesMatch<["accumulator", "result"]>]> {
  let summary = "A product of tiles, added to an accumulator";
  let description = [{
    `result[m, n] = accumulator[m, n] + sum_k A[m, k] B[k, n]`, in f32, or in f64 where elements are.

    Elements are bf16, f16, f32 or f64. Products of f64 and f32 are FMAs, those of f32 also by the tensor core: with `tf32(1)`
    operands are rounded to TF32 (10 bits behind the point), with `tf32(3)` each is the sum of two such
    numbers, and three products (all but that of the two small ones) are added up.

    A is a tile in shared memory, stored `m x k` (or `k x m` with `transposeA`),
    or a vector `m x k` in registers. B is a tile in shared memory stored `k x n`,
    or `n x k` with `transposeB`. Both have the same element type.
    Sizes are those that the target's table of matrix instructions has: on sm_90
    m is a multiple of 64, k of 16, n of 8 and at most 256. Where the columns of
    a tile are fewer than n or k ask for, they are padded by zeros within the
    last slab.

    ```mlir
    %s = tile.mma %q, %k, %zero transposeB : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<128x64xbf16, swizzle = 128>, vector<64x128xf32>
    %o1 = tile.mma %p, %v, %o : vector<64x128xbf16>, !tile.smem<128x64xbf16, swizzle = 128>, vector<64x64xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[Tile_Tile, Tile_Vector2]>:$a, Tile_Tile:$b,
                       Tile_Accumulator:$accumulator, UnitAttr:$transposeA,
                       UnitAttr:$transposeB,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntNonNegative]>>:$tf32);
  let results = (outs Tile_Accumulator:$result);
  let assemblyFormat = [{
    $a `,` $b `,` $accumulator (`transposeA` $transposeA^)? (`transposeB` $transposeB^)?
    (`tf32` `(` $tf32^ `)`)? attr-dict `:` type($a) `,` type($b) `,` type($accumulator)
  }];
  let hasVerifier = 1;
}

#endif
