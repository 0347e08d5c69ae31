// RUN: attn-opt %s --attn-cpu-pipeline | %mlir_tools/mlir-runner -e main --entry-point-result=i32 \
// RUN:   --shared-libs=%mlir_lib_dir/libmlir_c_runner_utils.so | FileCheck %s
// RUN: attn-opt %s --attn-cpu-pipeline=vector-bits=256 | %mlir_tools/mlir-runner -e main --entry-point-result=i32 \
// RUN:   --shared-libs=%mlir_lib_dir/libmlir_c_runner_utils.so | FileCheck %s
// RUN: attn-opt %s --attn-cpu-pipeline=vector-bits=128 | %mlir_tools/mlir-runner -e main --entry-point-result=i32 \
// RUN:   --shared-libs=%mlir_lib_dir/libmlir_c_runner_utils.so | FileCheck %s

// Causal attention by tiles against scalar loops in f64, with ragged tails in
// rows and keys, head dims that no register divides, and batch and heads. Gives
// the number of elements that are off by more than 2e-6, or not a number.
// CHECK: 0

#map = affine_map<()[s0] -> (s0 ceildiv 16)>
#map1 = affine_map<(d0)[s0] -> (d0 * -16 + (s0 ceildiv 16) * 16 - 16)>
#map2 = affine_map<(d0)[s0, s1] -> (((-d0 + s1 ceildiv 16 - 1) floordiv 2) * 32, (s0 floordiv 32) * 32)>
#map3 = affine_map<(d0)[s0, s1] -> (d0 * -16 + (s1 ceildiv 16) * 16, s0)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map5 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map6 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map7 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map8 = affine_map<(d0)[s0] -> (d0 * 16 + s0 - (s0 ceildiv 16) * 16 + 16, 16)>
func.func private @attention(%arg0: memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>, %arg1: memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>, %arg2: memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>>, %arg3: memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>>, %arg4: memref<?x?x?xf32, strided<[?, ?, 1], offset: ?>>) {
  %cst = arith.constant dense<1.000000e+00> : vector<16xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  %cst_0 = arith.constant 0.000000e+00 : f32
  %cst_1 = arith.constant dense<0.000000e+00> : vector<16x32xf32>
  %cst_2 = arith.constant dense<0xFF800000> : vector<16x32xf32>
  %cst_3 = arith.constant dense<0.158113882> : vector<16x32xf32>
  %cst_4 = arith.constant dense<0.000000e+00> : vector<16xf32>
  %cst_5 = arith.constant dense<0xFF800000> : vector<16xf32>
  %cst_6 = arith.constant dense<0.000000e+00> : vector<16x24xf32>
  %dim = memref.dim %arg0, %c0 : memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>
  %dim_7 = memref.dim %arg0, %c1 : memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>
  %dim_8 = memref.dim %arg0, %c2 : memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>
  %dim_9 = memref.dim %arg1, %c2 : memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>
  %0 = affine.apply #map()[%dim_8]
  scf.forall (%arg5, %arg6, %arg7) in (%dim, %dim_7, %0) {
    %1 = affine.apply #map1(%arg7)[%dim_8]
    %2 = vector.transfer_read %arg0[%arg5, %arg6, %1, %c0], %cst_0 {in_bounds = [false, true]} : memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>, vector<16x40xf32>
    %3 = vector.step : vector<16xindex>
    %4 = vector.broadcast %1 : index to vector<16xindex>
    %5 = arith.addi %3, %4 : vector<16xindex>
    %6 = affine.min #map2(%arg7)[%dim_9, %dim_8]
    %7 = affine.min #map3(%arg7)[%dim_9, %dim_8]
    %8:3 = scf.for %arg8 = %c0 to %6 step %c32 iter_args(%arg9 = %cst_5, %arg10 = %cst_4, %arg11 = %cst_6) -> (vector<16xf32>, vector<16xf32>, vector<16x24xf32>) {
      %18 = vector.transfer_read %arg1[%arg5, %arg6, %arg8, %c0], %cst_0 {in_bounds = [false, true]} : memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>, vector<32x40xf32>
      %19 = vector.contract {indexing_maps = [#map4, #map5, #map6], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %2, %18, %cst_1 : vector<16x40xf32>, vector<32x40xf32> into vector<16x32xf32>
      %20 = arith.mulf %19, %cst_3 : vector<16x32xf32>
      %21 = vector.multi_reduction <maxnumf>, %20, %arg9 [1] : vector<16x32xf32> to vector<16xf32>
      %22 = arith.cmpf oeq, %21, %cst_5 : vector<16xf32>
      %23 = arith.select %22, %cst_4, %21 : vector<16xi1>, vector<16xf32>
      %24 = vector.broadcast %23 : vector<16xf32> to vector<32x16xf32>
      %25 = vector.transpose %24, [1, 0] : vector<32x16xf32> to vector<16x32xf32>
      %26 = arith.subf %20, %25 : vector<16x32xf32>
      %27 = math.exp %26 : vector<16x32xf32>
      %28 = arith.subf %arg9, %23 : vector<16xf32>
      %29 = math.exp %28 : vector<16xf32>
      %30 = arith.mulf %arg10, %29 : vector<16xf32>
      %31 = vector.multi_reduction <add>, %27, %30 [1] : vector<16x32xf32> to vector<16xf32>
      %32 = vector.transfer_read %arg2[%arg5, %arg6, %arg8, %c0], %cst_0 {in_bounds = [false, true]} : memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>>, vector<32x24xf32>
      %33 = vector.broadcast %29 : vector<16xf32> to vector<24x16xf32>
      %34 = vector.transpose %33, [1, 0] : vector<24x16xf32> to vector<16x24xf32>
      %35 = arith.mulf %arg11, %34 : vector<16x24xf32>
      %36 = vector.contract {indexing_maps = [#map4, #map7, #map6], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %27, %32, %35 : vector<16x32xf32>, vector<32x24xf32> into vector<16x24xf32>
      scf.yield %21, %31, %36 : vector<16xf32>, vector<16xf32>, vector<16x24xf32>
    } {attn.fold_loop}
    %9:3 = scf.for %arg8 = %6 to %7 step %c32 iter_args(%arg9 = %8#0, %arg10 = %8#1, %arg11 = %8#2) -> (vector<16xf32>, vector<16xf32>, vector<16x24xf32>) {
      %18 = vector.transfer_read %arg1[%arg5, %arg6, %arg8, %c0], %cst_0 {in_bounds = [false, true]} : memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>, vector<32x40xf32>
      %19 = vector.contract {indexing_maps = [#map4, #map5, #map6], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %2, %18, %cst_1 : vector<16x40xf32>, vector<32x40xf32> into vector<16x32xf32>
      %20 = arith.mulf %19, %cst_3 : vector<16x32xf32>
      %21 = vector.broadcast %5 : vector<16xindex> to vector<32x16xindex>
      %22 = vector.transpose %21, [1, 0] : vector<32x16xindex> to vector<16x32xindex>
      %23 = vector.step : vector<32xindex>
      %24 = vector.broadcast %arg8 : index to vector<32xindex>
      %25 = arith.addi %23, %24 : vector<32xindex>
      %26 = vector.broadcast %25 : vector<32xindex> to vector<16x32xindex>
      %27 = vector.broadcast %dim_9 : index to vector<16x32xindex>
      %28 = arith.cmpi slt, %26, %27 : vector<16x32xindex>
      %29 = arith.cmpi sge, %22, %26 : vector<16x32xindex>
      %30 = arith.andi %29, %28 : vector<16x32xi1>
      %31 = arith.select %30, %20, %cst_2 : vector<16x32xi1>, vector<16x32xf32>
      %32 = vector.multi_reduction <maxnumf>, %31, %arg9 [1] : vector<16x32xf32> to vector<16xf32>
      %33 = arith.cmpf oeq, %32, %cst_5 : vector<16xf32>
      %34 = arith.select %33, %cst_4, %32 : vector<16xi1>, vector<16xf32>
      %35 = vector.broadcast %34 : vector<16xf32> to vector<32x16xf32>
      %36 = vector.transpose %35, [1, 0] : vector<32x16xf32> to vector<16x32xf32>
      %37 = arith.subf %31, %36 : vector<16x32xf32>
      %38 = math.exp %37 : vector<16x32xf32>
      %39 = arith.subf %arg9, %34 : vector<16xf32>
      %40 = math.exp %39 : vector<16xf32>
      %41 = arith.mulf %arg10, %40 : vector<16xf32>
      %42 = vector.multi_reduction <add>, %38, %41 [1] : vector<16x32xf32> to vector<16xf32>
      %43 = vector.transfer_read %arg2[%arg5, %arg6, %arg8, %c0], %cst_0 {in_bounds = [false, true]} : memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>>, vector<32x24xf32>
      %44 = vector.broadcast %40 : vector<16xf32> to vector<24x16xf32>
      %45 = vector.transpose %44, [1, 0] : vector<24x16xf32> to vector<16x24xf32>
      %46 = arith.mulf %arg11, %45 : vector<16x24xf32>
      %47 = vector.contract {indexing_maps = [#map4, #map7, #map6], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %38, %43, %46 : vector<16x32xf32>, vector<32x24xf32> into vector<16x24xf32>
      scf.yield %32, %42, %47 : vector<16xf32>, vector<16xf32>, vector<16x24xf32>
    } {attn.fold_loop}
    %10 = arith.cmpf oeq, %9#1, %cst_4 : vector<16xf32>
    %11 = arith.select %10, %cst, %9#1 : vector<16xi1>, vector<16xf32>
    %12 = vector.broadcast %11 : vector<16xf32> to vector<24x16xf32>
    %13 = vector.transpose %12, [1, 0] : vector<24x16xf32> to vector<16x24xf32>
    %14 = arith.divf %9#2, %13 : vector<16x24xf32>
    %15 = math.log %9#1 : vector<16xf32>
    %16 = arith.addf %9#0, %15 : vector<16xf32>
    %17 = affine.min #map8(%arg7)[%dim_8]
    %subview = memref.subview %arg3[%arg5, %arg6, %1, 0] [1, 1, %17, 24] [1, 1, 1, 1] : memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>> to memref<?x24xf32, strided<[?, 1], offset: ?>>
    %subview_10 = memref.subview %arg4[%arg5, %arg6, %1] [1, 1, %17] [1, 1, 1] : memref<?x?x?xf32, strided<[?, ?, 1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    vector.transfer_write %14, %subview[%c0, %c0] {in_bounds = [false, true]} : vector<16x24xf32>, memref<?x24xf32, strided<[?, 1], offset: ?>>
    vector.transfer_write %16, %subview_10[%c0] : vector<16xf32>, memref<?xf32, strided<[1], offset: ?>>
  }
  return
}

// One thread: the loops of the runtime in order.
func.func private @attnRuntimeParallelFor(%n: i64, %task: !llvm.ptr, %context: !llvm.ptr) {
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %c1 : i64 {
    llvm.call %task(%i, %context) : !llvm.ptr, (i64, !llvm.ptr) -> ()
  }
  return
}

// Something irregular between -2 and 2.
func.func private @value(%b: index, %h: index, %i: index, %d: index, %seed: index) -> f32 {
  %c7 = arith.constant 7 : index
  %c31 = arith.constant 31 : index
  %c101 = arith.constant 101 : index
  %c997 = arith.constant 997 : index
  %half = arith.constant 250.0 : f32
  %two = arith.constant 2.0 : f32
  %0 = arith.muli %b, %c997 : index
  %1 = arith.muli %h, %c101 : index
  %2 = arith.muli %i, %c31 : index
  %3 = arith.muli %d, %c7 : index
  %4 = arith.addi %0, %1 : index
  %5 = arith.addi %2, %3 : index
  %6 = arith.addi %4, %5 : index
  %7 = arith.addi %6, %seed : index
  %8 = arith.muli %7, %7 : index
  %9 = arith.remui %8, %c997 : index
  %10 = arith.index_cast %9 : index to i32
  %11 = arith.sitofp %10 : i32 to f32
  %12 = arith.divf %11, %half : f32
  %13 = arith.subf %12, %two : f32
  return %13 : f32
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %B = arith.constant 2 : index
  %H = arith.constant 3 : index
  %Sq = arith.constant 37 : index
  %Sk = arith.constant 75 : index
  %D = arith.constant 40 : index
  %E = arith.constant 24 : index
  %seedK = arith.constant 5 : index
  %seedV = arith.constant 11 : index
  %Q = memref.alloc() : memref<2x3x37x40xf32>
  %K = memref.alloc() : memref<2x3x75x40xf32>
  %V = memref.alloc() : memref<2x3x75x24xf32>
  %O = memref.alloc() : memref<2x3x37x24xf32>
  %L = memref.alloc() : memref<2x3x37xf32>
  scf.for %b = %c0 to %B step %c1 {
    scf.for %h = %c0 to %H step %c1 {
      scf.for %i = %c0 to %Sk step %c1 {
        scf.for %d = %c0 to %D step %c1 {
          %k = func.call @value(%b, %h, %i, %d, %seedK) : (index, index, index, index, index) -> f32
          memref.store %k, %K[%b, %h, %i, %d] : memref<2x3x75x40xf32>
          %isQ = arith.cmpi slt, %i, %Sq : index
          scf.if %isQ {
            %q = func.call @value(%b, %h, %i, %d, %c0) : (index, index, index, index, index) -> f32
            memref.store %q, %Q[%b, %h, %i, %d] : memref<2x3x37x40xf32>
          }
          %isV = arith.cmpi slt, %d, %E : index
          scf.if %isV {
            %v = func.call @value(%b, %h, %i, %d, %seedV) : (index, index, index, index, index) -> f32
            memref.store %v, %V[%b, %h, %i, %d] : memref<2x3x75x24xf32>
          }
        }
      }
    }
  }
  %q = memref.cast %Q : memref<2x3x37x40xf32> to memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>
  %k = memref.cast %K : memref<2x3x75x40xf32> to memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>
  %v = memref.cast %V : memref<2x3x75x24xf32> to memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>>
  %o = memref.cast %O : memref<2x3x37x24xf32> to memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>>
  %l = memref.cast %L : memref<2x3x37xf32> to memref<?x?x?xf32, strided<[?, ?, 1], offset: ?>>
  call @attention(%q, %k, %v, %o, %l) : (memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x40xf32, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x24xf32, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?xf32, strided<[?, ?, 1], offset: ?>>) -> ()

  %S = memref.alloc() : memref<75xf64>
  %zero = arith.constant 0.0 : f64
  %ninf = arith.constant 0xFFF0000000000000 : f64
  %scale = arith.constant 0.15811388300841897 : f64
  %tolerance = arith.constant 2.0e-6 : f64
  %none = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %counter = memref.alloc() : memref<i32>
  memref.store %none, %counter[] : memref<i32>
  scf.for %b = %c0 to %B step %c1 {
    scf.for %h = %c0 to %H step %c1 {
      scf.for %i = %c0 to %Sq step %c1 {
        %i1 = arith.addi %i, %c1 : index
        %n = arith.minsi %i1, %Sk : index
        %m = scf.for %j = %c0 to %n step %c1 iter_args(%max = %ninf) -> (f64) {
          %s = scf.for %d = %c0 to %D step %c1 iter_args(%sum = %zero) -> (f64) {
            %x = memref.load %Q[%b, %h, %i, %d] : memref<2x3x37x40xf32>
            %y = memref.load %K[%b, %h, %j, %d] : memref<2x3x75x40xf32>
            %xe = arith.extf %x : f32 to f64
            %ye = arith.extf %y : f32 to f64
            %xy = arith.mulf %xe, %ye : f64
            %next = arith.addf %sum, %xy : f64
            scf.yield %next : f64
          }
          %scaled = arith.mulf %s, %scale : f64
          memref.store %scaled, %S[%j] : memref<75xf64>
          %greater = arith.maximumf %max, %scaled : f64
          scf.yield %greater : f64
        }
        %total = scf.for %j = %c0 to %n step %c1 iter_args(%sum = %zero) -> (f64) {
          %s = memref.load %S[%j] : memref<75xf64>
          %t = arith.subf %s, %m : f64
          %p = math.exp %t : f64
          memref.store %p, %S[%j] : memref<75xf64>
          %next = arith.addf %sum, %p : f64
          scf.yield %next : f64
        }
        scf.for %e = %c0 to %E step %c1 {
          %dot = scf.for %j = %c0 to %n step %c1 iter_args(%sum = %zero) -> (f64) {
            %p = memref.load %S[%j] : memref<75xf64>
            %y = memref.load %V[%b, %h, %j, %e] : memref<2x3x75x24xf32>
            %ye = arith.extf %y : f32 to f64
            %py = arith.mulf %p, %ye : f64
            %next = arith.addf %sum, %py : f64
            scf.yield %next : f64
          }
          %expected = arith.divf %dot, %total : f64
          %got = memref.load %O[%b, %h, %i, %e] : memref<2x3x37x24xf32>
          %gotE = arith.extf %got : f32 to f64
          %difference = arith.subf %gotE, %expected : f64
          %size = math.absf %difference : f64
          %good = arith.cmpf ole, %size, %tolerance : f64
          scf.if %good {
          } else {
            %bad = memref.load %counter[] : memref<i32>
            %more = arith.addi %bad, %one : i32
            memref.store %more, %counter[] : memref<i32>
          }
        }
      }
    }
  }
  %wrong = memref.load %counter[] : memref<i32>
  return %wrong : i32
}
