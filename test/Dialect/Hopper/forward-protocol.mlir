// RUN: attn-opt %s | attn-opt | FileCheck %s
// Attention, forward, d 128, without a mask, in protocol form, written by hand:
// one producer and two consumer warpgroups of 64 rows, K and V in rings of two,
// the product of one block of keys with V under the softmax of the next block,
// ping-pong between the consumers. Lengths are dynamic; keys beyond the end are
// -inf before the row maximum.
// CHECK-LABEL: func.func @attention
// CHECK: hopper.roles
// CHECK-NEXT: role "load" warpgroups(1) registers(24)
// CHECK: role "compute" warpgroups(2) registers(240)
#col = affine_map<(d0, d1, d2) -> (d0, d2)>
!q = !tile.smem<128x128xbf16, swizzle = 128>
!q1 = !tile.smem<64x128xbf16, swizzle = 128, slab_rows = 128>
!o1 = !tile.smem<64x128xbf16, swizzle = 128>
!k = !tile.smem<128x128xbf16, swizzle = 128>
!ring = !tile.smem<2x128x128xbf16, swizzle = 128>
!oring = !tile.smem<2x64x128xbf16, swizzle = 128>
!bar2 = !hopper.mbarrier<2>
!bar1 = !hopper.mbarrier<1>
!tm = !hopper.tensor_map<!k, rank = 4>
!tmo = !hopper.tensor_map<!o1, rank = 4>
!s = vector<64x128xf32>
!p = vector<64x128xbf16>
!r = vector<64xf32>
func.func @attention(%Q: memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>,
                     %K: memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>,
                     %V: memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>,
                     %O: memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>,
                     %LSE: memref<?x?x?xf32, strided<[?, ?, ?]>>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %c127 = arith.constant 127 : index
  %c128 = arith.constant 128 : index
  %c384 = arith.constant 384 : index
  %smem = arith.constant 232448 : i32
  %B = memref.dim %Q, %c0 : memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
  %H = memref.dim %Q, %c1 : memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
  %Sq = memref.dim %Q, %c2 : memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
  %Sk = memref.dim %K, %c2 : memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
  %n = arith.ceildivui %Sq, %c128 : index
  %mq = hopper.tensor_map %Q : memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>> -> !tm
  %mk = hopper.tensor_map %K : memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>> -> !tm
  %mv = hopper.tensor_map %V : memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>> -> !tm
  %mo = hopper.tensor_map %O : memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>> -> !tmo
  gpu.launch blocks(%ti, %h, %b) in (%gx = %n, %gy = %H, %gz = %B)
             threads(%tx, %ty, %tz) in (%bx = %c384, %by = %c1, %bz = %c1)
             dynamic_shared_memory_size %smem {
    %i0 = arith.muli %ti, %c128 : index
    %sq = hopper.alloc : !q
    %sk = hopper.alloc : !ring
    %sv = hopper.alloc : !ring
    %so = hopper.alloc : !oring
    %fullq = hopper.mbarrier arrivals(1) : !bar1
    %fullk = hopper.mbarrier arrivals(1) : !bar2
    %fullv = hopper.mbarrier arrivals(1) : !bar2
    %emptyk = hopper.mbarrier arrivals(2) : !bar2
    %emptyv = hopper.mbarrier arrivals(2) : !bar2
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        %p0 = arith.constant 1 : i32
        %one = arith.constant 1 : i32
        hopper.mbarrier.expect %fullq[%c0] bytes(32768) : !bar1
        hopper.tma.load %mq[%b, %h, %i0, %c0] to %sq, %fullq[%c0] : !tm, !q, !bar1
        %end:2 = scf.for %j = %c0 to %Sk step %c128 iter_args(%stage = %c0, %phase = %p0) -> (index, i32) {
          hopper.mbarrier.wait %emptyk[%stage], %phase : !bar2
          hopper.mbarrier.expect %fullk[%stage] bytes(32768) : !bar2
          %tk = hopper.slot %sk[%stage] : !ring -> !k
          hopper.tma.load %mk[%b, %h, %j, %c0] to %tk, %fullk[%stage] : !tm, !k, !bar2
          hopper.mbarrier.wait %emptyv[%stage], %phase : !bar2
          hopper.mbarrier.expect %fullv[%stage] bytes(32768) : !bar2
          %tv = hopper.slot %sv[%stage] : !ring -> !k
          hopper.tma.load %mv[%b, %h, %j, %c0] to %tv, %fullv[%stage] : !tm, !k, !bar2
          %next = arith.addi %stage, %c1 : index
          %wrap = arith.cmpi eq, %next, %c2 : index
          %stage1 = arith.select %wrap, %c0, %next : index
          %flip = arith.xori %phase, %one : i32
          %phase1 = arith.select %wrap, %flip, %phase : i32
          scf.yield %stage1, %phase1 : index, i32
        }
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %z32 = arith.constant 0 : i32
        %one = arith.constant 1 : i32
        %ninf = arith.constant dense<0xFF800000> : !r
        %ninf2 = arith.constant dense<0xFF800000> : !s
        %zero = arith.constant dense<0.0> : !r
        %zero2 = arith.constant dense<0.0> : !s
        // 1/sqrt(128) * log2(e)
        %c = arith.constant dense<0.12751743> : !r
        %c2d = arith.constant dense<0.12751743> : !s
        %row = arith.muli %w, %c64 : index
        %q = tile.rows %sq[%row] : !q -> !q1
        %mine = arith.addi %w, %c1 : index
        %first = arith.cmpi eq, %w, %c0 : index
        %other = arith.select %first, %c2, %c1 : index
        // Warpgroup 0 goes first.
        scf.if %first {
        } else {
          hopper.barrier.arrive %c1 warpgroups(2)
        }
        hopper.mbarrier.wait %fullq[%c0], %z32 : !bar1
        %any = arith.cmpi sgt, %Sk, %c0 : index
        %m, %l, %o = scf.if %any -> (!r, !r, !s) {
          // The first block of keys.
          hopper.mbarrier.wait %fullk[%c0], %z32 : !bar2
          hopper.barrier.sync %mine warpgroups(2)
          %k0 = hopper.slot %sk[%c0] : !ring -> !k
          %s0p = hopper.wgmma %q, %k0 transposeB : (!q1, !k) -> !hopper.pending<!s>
          hopper.barrier.arrive %other warpgroups(2)
          %s0 = hopper.wait %s0p pending(0) : !hopper.pending<!s> -> !s
          hopper.mbarrier.arrive %emptyk[%c0] : !bar2
          %t0 = scf.if %any -> (!s) {
            %cols = vector.step : vector<128xindex>
            %ends = vector.broadcast %Sk : index to vector<128xindex>
            %in = arith.cmpi slt, %cols, %ends : vector<128xindex>
            %in2 = vector.broadcast %in : vector<128xi1> to vector<64x128xi1>
            %t = arith.select %in2, %s0, %ninf2 : vector<64x128xi1>, !s
            scf.yield %t : !s
          } else {
            scf.yield %s0 : !s
          }
          %m0 = vector.multi_reduction <maxnumf>, %t0, %ninf [1] : !s to !r
          %dead0 = arith.cmpf oeq, %m0, %ninf : !r
          %ms0 = arith.select %dead0, %zero, %m0 : vector<64xi1>, !r
          %mc0 = arith.mulf %ms0, %c : !r
          %nmc0 = arith.negf %mc0 : !r
          %b0 = vector.broadcast %nmc0 : !r to vector<128x64xf32>
          %bt0 = vector.transpose %b0, [1, 0] : vector<128x64xf32> to !s
          %x0 = math.fma %t0, %c2d, %bt0 : !s
          %p0 = math.exp2 %x0 : !s
          %l0 = vector.multi_reduction <add>, %p0, %zero [1] : !s to !r
          %p016 = arith.truncf %p0 : !s to !p
          // Block j of keys, and block j - 1 of values.
          %f:8 = scf.for %j = %c128 to %Sk step %c128
              iter_args(%mi = %m0, %li = %l0, %oi = %zero2, %pi = %p016,
                        %kst = %c1, %kph = %z32, %vst = %c0, %vph = %z32)
              -> (!r, !r, !s, !p, index, i32, index, i32) {
            hopper.mbarrier.wait %fullk[%kst], %kph : !bar2
            hopper.barrier.sync %mine warpgroups(2)
            %k1 = hopper.slot %sk[%kst] : !ring -> !k
            %sp = hopper.wgmma %q, %k1 transposeB : (!q1, !k) -> !hopper.pending<!s>
            hopper.mbarrier.wait %fullv[%vst], %vph : !bar2
            %v1 = hopper.slot %sv[%vst] : !ring -> !k
            %op = hopper.wgmma %pi, %v1, %oi : (!p, !k, !s) -> !hopper.pending<!s>
            hopper.barrier.arrive %other warpgroups(2)
            %s = hopper.wait %sp pending(1) : !hopper.pending<!s> -> !s
            hopper.mbarrier.arrive %emptyk[%kst] : !bar2
            %end = arith.addi %j, %c127 : index
            %partial = arith.cmpi sge, %end, %Sk : index
            %t = scf.if %partial -> (!s) {
              %step = vector.step : vector<128xindex>
              %start = vector.broadcast %j : index to vector<128xindex>
              %cols = arith.addi %step, %start : vector<128xindex>
              %ends = vector.broadcast %Sk : index to vector<128xindex>
              %in = arith.cmpi slt, %cols, %ends : vector<128xindex>
              %in2 = vector.broadcast %in : vector<128xi1> to vector<64x128xi1>
              %t1 = arith.select %in2, %s, %ninf2 : vector<64x128xi1>, !s
              scf.yield %t1 : !s
            } else {
              scf.yield %s : !s
            }
            %m1 = vector.multi_reduction <maxnumf>, %t, %mi [1] : !s to !r
            %dead = arith.cmpf oeq, %m1, %ninf : !r
            %ms = arith.select %dead, %zero, %m1 : vector<64xi1>, !r
            %mc = arith.mulf %ms, %c : !r
            %nmc = arith.negf %mc : !r
            %bb = vector.broadcast %nmc : !r to vector<128x64xf32>
            %bt = vector.transpose %bb, [1, 0] : vector<128x64xf32> to !s
            %x = math.fma %t, %c2d, %bt : !s
            %p = math.exp2 %x : !s
            %y = math.fma %mi, %c, %nmc : !r
            %corr = math.exp2 %y : !r
            %lc = arith.mulf %li, %corr : !r
            %l1 = vector.multi_reduction <add>, %p, %lc [1] : !s to !r
            %o1 = hopper.wait %op pending(0) : !hopper.pending<!s> -> !s
            hopper.mbarrier.arrive %emptyv[%vst] : !bar2
            %p16 = arith.truncf %p : !s to !p
            %cb = vector.broadcast %corr : !r to vector<128x64xf32>
            %ct = vector.transpose %cb, [1, 0] : vector<128x64xf32> to !s
            %oc = arith.mulf %o1, %ct : !s
            %kn = arith.addi %kst, %c1 : index
            %kwrap = arith.cmpi eq, %kn, %c2 : index
            %kst1 = arith.select %kwrap, %c0, %kn : index
            %kflip = arith.xori %kph, %one : i32
            %kph1 = arith.select %kwrap, %kflip, %kph : i32
            %vn = arith.addi %vst, %c1 : index
            %vwrap = arith.cmpi eq, %vn, %c2 : index
            %vst1 = arith.select %vwrap, %c0, %vn : index
            %vflip = arith.xori %vph, %one : i32
            %vph1 = arith.select %vwrap, %vflip, %vph : i32
            scf.yield %m1, %l1, %oc, %p16, %kst1, %kph1, %vst1, %vph1 : !r, !r, !s, !p, index, i32, index, i32
          }
          // The last block of values.
          hopper.mbarrier.wait %fullv[%f#6], %f#7 : !bar2
          %vl = hopper.slot %sv[%f#6] : !ring -> !k
          %olp = hopper.wgmma %f#3, %vl, %f#2 : (!p, !k, !s) -> !hopper.pending<!s>
          %ol = hopper.wait %olp pending(0) : !hopper.pending<!s> -> !s
          hopper.mbarrier.arrive %emptyv[%f#6] : !bar2
          scf.yield %f#0, %f#1, %ol : !r, !r, !s
        } else {
          scf.yield %ninf, %zero, %zero2 : !r, !r, !s
        }
        // O / l and the log-sum-exp; rows without any key give 0 and -inf.
        %ones = arith.constant dense<1.0> : !r
        %ln2 = arith.constant dense<0.69314718> : !r
        %sc = arith.constant dense<0.088388346> : !r
        %empty = arith.cmpf oeq, %l, %zero : !r
        %inv = arith.divf %ones, %l : !r
        %inv0 = arith.select %empty, %zero, %inv : vector<64xi1>, !r
        %ib = vector.broadcast %inv0 : !r to vector<128x64xf32>
        %it = vector.transpose %ib, [1, 0] : vector<128x64xf32> to !s
        %on = arith.mulf %o, %it : !s
        %o16 = arith.truncf %on : !s to !p
        %so1 = hopper.slot %so[%w] : !oring -> !o1
        tile.write %o16 to %so1 : !p, !o1
        hopper.fence.async
        %own = arith.addi %w, %c2 : index
        %id = arith.addi %own, %c1 : index
        hopper.barrier.sync %id warpgroups(1)
        %ir = arith.addi %i0, %row : index
        hopper.tma.store %so1 to %mo[%b, %h, %ir, %c0] : !o1, !tmo
        %lg = math.log2 %l : !r
        %lgn = arith.mulf %lg, %ln2 : !r
        %msc = arith.mulf %m, %sc : !r
        %lse = arith.addf %msc, %lgn : !r
        vector.transfer_write %lse, %LSE[%b, %h, %ir] : !r, memref<?x?x?xf32, strided<[?, ?, ?]>>
        hopper.tma.wait pending(0)
      }
    gpu.terminator
  }
  return
}
