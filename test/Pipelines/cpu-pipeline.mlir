// RUN: attn-opt %s --attn-cpu-pipeline=vector-bits=512 -o %t
// RUN: FileCheck %s < %t
// RUN: not grep -E "scf\.|memref\.|vector\.|arith\.|unrealized" %t

// Causal attention as a tile program: full blocks of keys, then those on the
// diagonal with a mask. One task per batch, head and 64 queries. All memory is
// scratch of tile size: nothing is allocated, nothing grows with the lengths.
// CHECK-NOT:     @malloc
// CHECK:         llvm.func @attnRuntimeParallelFor(i64, !llvm.ptr, !llvm.ptr)
// CHECK-NOT:     @malloc
// CHECK-LABEL:   llvm.func @attention_task(%{{.*}}: i64, %{{.*}}: !llvm.ptr)
// CHECK-COUNT-4: llvm.alloca %{{.*}} x f32
// CHECK-COUNT-16: llvm.intr.fmuladd
// CHECK-LABEL:   llvm.func @attention(
// CHECK:         llvm.call @attnRuntimeParallelFor
// CHECK-LABEL:   llvm.func @_mlir_ciface_attention(
func.func @attention(%Q: tensor<?x?x?x64xf32>, %K: tensor<?x?x?x64xf32>, %V: tensor<?x?x?x64xf32>) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %cTJ = arith.constant 128 : index
  %pad = arith.constant 0.0 : f32
  %zS = arith.constant dense<0.0> : vector<64x128xf32>
  %ninfS = arith.constant dense<0xFF800000> : vector<64x128xf32>
  %scale = arith.constant dense<0.125> : vector<64x128xf32>
  %zero1 = arith.constant dense<0.0> : vector<64xf32>
  %ninf1 = arith.constant dense<0xFF800000> : vector<64xf32>
  %zO = arith.constant dense<0.0> : vector<64x64xf32>
  %B = tensor.dim %Q, %c0 : tensor<?x?x?x64xf32>
  %H = tensor.dim %Q, %c1 : tensor<?x?x?x64xf32>
  %Sq = tensor.dim %Q, %c2 : tensor<?x?x?x64xf32>
  %Sk = tensor.dim %K, %c2 : tensor<?x?x?x64xf32>
  %nI = affine.apply affine_map<()[s] -> (s ceildiv 64)>()[%Sq]
  %oi = tensor.empty(%B, %H, %Sq) : tensor<?x?x?x64xf32>
  %li = tensor.empty(%B, %H, %Sq) : tensor<?x?x?xf32>
  %r:2 = scf.forall (%b, %h, %ti) in (%B, %H, %nI) shared_outs(%O = %oi, %L = %li) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
    %i0 = affine.apply affine_map<(d0)[n] -> ((n - 1 - d0) * 64)>(%ti)[%nI]
    %q = vector.transfer_read %Q[%b, %h, %i0, %c0], %pad {in_bounds = [false, true]} : tensor<?x?x?x64xf32>, vector<64x64xf32>
    %is = vector.step : vector<64xindex>
    %ib = vector.broadcast %i0 : index to vector<64xindex>
    %i1 = arith.addi %is, %ib : vector<64xindex>
    %jf = affine.min affine_map<(i)[n] -> ((i floordiv 128) * 128, (n floordiv 128) * 128)>(%i0)[%Sk]
    %je = affine.min affine_map<(i)[n] -> (i + 64, n)>(%i0)[%Sk]

    %stf:3 = scf.for %j0f = %c0 to %jf step %cTJ iter_args(%mf = %ninf1, %lf = %zero1, %of = %zO) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %krf = vector.transfer_read %K[%b, %h, %j0f, %c0], %pad {in_bounds = [false, true]} : tensor<?x?x?x64xf32>, vector<128x64xf32>
      %s0f = vector.contract {indexing_maps = [affine_map<(i,j,d)->(i,d)>, affine_map<(i,j,d)->(j,d)>, affine_map<(i,j,d)->(i,j)>], iterator_types = ["parallel","parallel","reduction"], kind = #vector.kind<add>} %q, %krf, %zS : vector<64x64xf32>, vector<128x64xf32> into vector<64x128xf32>
      %s1f = arith.mulf %s0f, %scale : vector<64x128xf32>
      %m1f = vector.multi_reduction <maxnumf>, %s1f, %mf [1] : vector<64x128xf32> to vector<64xf32>
      %deadf = arith.cmpf oeq, %m1f, %ninf1 : vector<64xf32>
      %msf = arith.select %deadf, %zero1, %m1f : vector<64xi1>, vector<64xf32>
      %mtf = vector.broadcast %msf : vector<64xf32> to vector<128x64xf32>
      %mbf = vector.transpose %mtf, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
      %smf = arith.subf %s1f, %mbf : vector<64x128xf32>
      %pf = math.exp %smf : vector<64x128xf32>
      %maf = arith.subf %mf, %msf : vector<64xf32>
      %alphaf = math.exp %maf : vector<64xf32>
      %laf = arith.mulf %lf, %alphaf : vector<64xf32>
      %l1f = vector.multi_reduction <add>, %pf, %laf [1] : vector<64x128xf32> to vector<64xf32>
      %vrf = vector.transfer_read %V[%b, %h, %j0f, %c0], %pad {in_bounds = [false, true]} : tensor<?x?x?x64xf32>, vector<128x64xf32>
      %atf = vector.broadcast %alphaf : vector<64xf32> to vector<64x64xf32>
      %abf = vector.transpose %atf, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oaf = arith.mulf %of, %abf : vector<64x64xf32>
      %o1f = vector.contract {indexing_maps = [affine_map<(i,e,j)->(i,j)>, affine_map<(i,e,j)->(j,e)>, affine_map<(i,e,j)->(i,e)>], iterator_types = ["parallel","parallel","reduction"], kind = #vector.kind<add>} %pf, %vrf, %oaf : vector<64x128xf32>, vector<128x64xf32> into vector<64x64xf32>
      scf.yield %m1f, %l1f, %o1f : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}

    %stg:3 = scf.for %j0g = %jf to %je step %cTJ iter_args(%mg = %stf#0, %lg = %stf#1, %og = %stf#2) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %krg = vector.transfer_read %K[%b, %h, %j0g, %c0], %pad {in_bounds = [false, true]} : tensor<?x?x?x64xf32>, vector<128x64xf32>
      %s0g = vector.contract {indexing_maps = [affine_map<(i,j,d)->(i,d)>, affine_map<(i,j,d)->(j,d)>, affine_map<(i,j,d)->(i,j)>], iterator_types = ["parallel","parallel","reduction"], kind = #vector.kind<add>} %q, %krg, %zS : vector<64x64xf32>, vector<128x64xf32> into vector<64x128xf32>
      %s1g = arith.mulf %s0g, %scale : vector<64x128xf32>
      %itg = vector.broadcast %i1 : vector<64xindex> to vector<128x64xindex>
      %i2g = vector.transpose %itg, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
      %jsg = vector.step : vector<128xindex>
      %jbg = vector.broadcast %j0g : index to vector<128xindex>
      %j1g = arith.addi %jsg, %jbg : vector<128xindex>
      %j2g = vector.broadcast %j1g : vector<128xindex> to vector<64x128xindex>
      %skbg = vector.broadcast %Sk : index to vector<64x128xindex>
      %insideg = arith.cmpi slt, %j2g, %skbg : vector<64x128xindex>
      %causalg = arith.cmpi sge, %i2g, %j2g : vector<64x128xindex>
      %keepg = arith.andi %causalg, %insideg : vector<64x128xi1>
      %s2g = arith.select %keepg, %s1g, %ninfS : vector<64x128xi1>, vector<64x128xf32>
      %m1g = vector.multi_reduction <maxnumf>, %s2g, %mg [1] : vector<64x128xf32> to vector<64xf32>
      %deadg = arith.cmpf oeq, %m1g, %ninf1 : vector<64xf32>
      %msg = arith.select %deadg, %zero1, %m1g : vector<64xi1>, vector<64xf32>
      %mtg = vector.broadcast %msg : vector<64xf32> to vector<128x64xf32>
      %mbg = vector.transpose %mtg, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
      %smg = arith.subf %s2g, %mbg : vector<64x128xf32>
      %pg = math.exp %smg : vector<64x128xf32>
      %mag = arith.subf %mg, %msg : vector<64xf32>
      %alphag = math.exp %mag : vector<64xf32>
      %lag = arith.mulf %lg, %alphag : vector<64xf32>
      %l1g = vector.multi_reduction <add>, %pg, %lag [1] : vector<64x128xf32> to vector<64xf32>
      %vrg = vector.transfer_read %V[%b, %h, %j0g, %c0], %pad {in_bounds = [false, true]} : tensor<?x?x?x64xf32>, vector<128x64xf32>
      %atg = vector.broadcast %alphag : vector<64xf32> to vector<64x64xf32>
      %abg = vector.transpose %atg, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oag = arith.mulf %og, %abg : vector<64x64xf32>
      %o1g = vector.contract {indexing_maps = [affine_map<(i,e,j)->(i,j)>, affine_map<(i,e,j)->(j,e)>, affine_map<(i,e,j)->(i,e)>], iterator_types = ["parallel","parallel","reduction"], kind = #vector.kind<add>} %pg, %vrg, %oag : vector<64x128xf32>, vector<128x64xf32> into vector<64x64xf32>
      scf.yield %m1g, %l1g, %o1g : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %lz = arith.cmpf oeq, %stg#1, %zero1 : vector<64xf32>
    %one = arith.constant dense<1.0> : vector<64xf32>
    %ls = arith.select %lz, %one, %stg#1 : vector<64xi1>, vector<64xf32>
    %lt = vector.broadcast %ls : vector<64xf32> to vector<64x64xf32>
    %lb = vector.transpose %lt, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %out = arith.divf %stg#2, %lb : vector<64x64xf32>
    %ln = math.log %stg#1 : vector<64xf32>
    %lse = arith.addf %stg#0, %ln : vector<64xf32>
    %n = affine.min affine_map<(i)[s] -> (s - i, 64)>(%i0)[%Sq]
    %Os = tensor.extract_slice %O[%b, %h, %i0, 0] [1, 1, %n, 64] [1, 1, 1, 1] : tensor<?x?x?x64xf32> to tensor<?x64xf32>
    %Ls = tensor.extract_slice %L[%b, %h, %i0] [1, 1, %n] [1, 1, 1] : tensor<?x?x?xf32> to tensor<?xf32>
    %Ow = vector.transfer_write %out, %Os[%c0, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, tensor<?x64xf32>
    %Lw = vector.transfer_write %lse, %Ls[%c0] {in_bounds = [false]} : vector<64xf32>, tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %Ow into %O[%b, %h, %i0, 0] [1, 1, %n, 64] [1, 1, 1, 1] : tensor<?x64xf32> into tensor<?x?x?x64xf32>
      tensor.parallel_insert_slice %Lw into %L[%b, %h, %i0] [1, 1, %n] [1, 1, 1] : tensor<?xf32> into tensor<?x?x?xf32>
    }
  }
  return %r#0, %r#1 : tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
}
