// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-merge-bounds,canonicalize,cse))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-merge-bounds,canonicalize,cse))" --remarks-filter=attn-merge-bounds -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] merged | Category:attn-merge-bounds{{$}}

// The diagonal and the end of the keys: one limit per row, one comparison per element.
// CHECK-LABEL: func.func @causal_end
// CHECK-SAME: %[[S:[^:]*]]: vector
// CHECK-DAG: %[[N:.*]] = memref.dim
// CHECK: %[[ROWS:.*]] = arith.addi {{.*}} vector<64xindex>
// CHECK: %[[COLUMNS:.*]] = arith.addi {{.*}} vector<128xindex>
// CHECK: %[[END:.*]] = vector.broadcast %[[N]] : index to vector<64xindex>
// CHECK: %[[LAST:.*]] = arith.addi %[[END]], %{{.*}} : vector<64xindex>
// CHECK: %[[LIMIT:.*]] = arith.minsi %[[ROWS]], %[[LAST]] : vector<64xindex>
// CHECK: vector.broadcast %[[LIMIT]]
// CHECK-NEXT: %[[ROW:.*]] = vector.transpose
// CHECK-NEXT: %[[COLUMN:.*]] = vector.broadcast %[[COLUMNS]]
// CHECK-NEXT: %[[KEEP:.*]] = arith.cmpi sle, %[[COLUMN]], %[[ROW]]
// CHECK-NEXT: arith.select %[[KEEP]], %[[S]],
func.func @causal_end(%ti: index, %tj: index, %keys: memref<?xf32>, %s: vector<64x128xf32>) -> vector<64x128xf32> {
  %i0 = affine.apply affine_map<(d0) -> (d0 * 64)>(%ti)
  %j0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%tj)
  %c0 = arith.constant 0 : index
  %n = memref.dim %keys, %c0 : memref<?xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<64x128xf32>
  %one = arith.constant 1 : index
  %step = vector.step : vector<64xindex>
  %i = vector.broadcast %i0 : index to vector<64xindex>
  %rows = arith.addi %step, %i : vector<64xindex>
  %cstep = vector.step : vector<128xindex>
  %j = vector.broadcast %j0 : index to vector<128xindex>
  %columns = arith.addi %cstep, %j : vector<128xindex>
  %rb = vector.broadcast %rows : vector<64xindex> to vector<128x64xindex>
  %row = vector.transpose %rb, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
  %column = vector.broadcast %columns : vector<128xindex> to vector<64x128xindex>
  %end = vector.broadcast %n : index to vector<64x128xindex>
  %a = arith.cmpi sge, %row, %column : vector<64x128xindex>
  %b = arith.cmpi slt, %column, %end : vector<64x128xindex>
  %k = arith.andi %a, %b : vector<64x128xi1>
  %m = arith.select %k, %s, %ninf : vector<64x128xi1>, vector<64x128xf32>
  return %m : vector<64x128xf32>
}

// Constant limits count, too: a window, of this row and the 99 before.
// CHECK-LABEL: func.func @band_from_five
// CHECK-DAG: %[[NEAR:.*]] = arith.constant dense<-99> : vector<64xindex>
// CHECK: %[[ROWS:.*]] = arith.addi {{.*}} vector<64xindex>
// CHECK: %[[LIMIT:.*]] = arith.minsi %[[ROWS]],
// CHECK: arith.cmpi sle
// CHECK: %[[FAR:.*]] = arith.addi %[[ROWS]], %[[NEAR]]
// CHECK: %[[FIRST:.*]] = arith.maxsi %[[FAR]], %{{.*}} : vector<64xindex>
// CHECK: arith.cmpi sge
// CHECK-NOT: arith.cmpi
// CHECK: arith.select
func.func @band_from_five(%ti: index, %tj: index, %keys: memref<?xf32>, %s: vector<64x128xf32>) -> vector<64x128xf32> {
  %i0 = affine.apply affine_map<(d0) -> (d0 * 64)>(%ti)
  %j0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%tj)
  %c0 = arith.constant 0 : index
  %n = memref.dim %keys, %c0 : memref<?xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<64x128xf32>
  %zero = arith.constant dense<0> : vector<64x128xindex>
  %five = arith.constant dense<5> : vector<64x128xindex>
  %wide = arith.constant dense<100> : vector<64x128xindex>
  %step = vector.step : vector<64xindex>
  %i = vector.broadcast %i0 : index to vector<64xindex>
  %rows = arith.addi %step, %i : vector<64xindex>
  %cstep = vector.step : vector<128xindex>
  %j = vector.broadcast %j0 : index to vector<128xindex>
  %columns = arith.addi %cstep, %j : vector<128xindex>
  %rb = vector.broadcast %rows : vector<64xindex> to vector<128x64xindex>
  %row = vector.transpose %rb, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
  %column = vector.broadcast %columns : vector<128xindex> to vector<64x128xindex>
  %end = vector.broadcast %n : index to vector<64x128xindex>
  %far = arith.subi %row, %column : vector<64x128xindex>
  %past = arith.cmpi sge, %far, %zero : vector<64x128xindex>
  %near = arith.cmpi slt, %far, %wide : vector<64x128xindex>
  %first = arith.cmpi sge, %column, %five : vector<64x128xindex>
  %b = arith.cmpi slt, %column, %end : vector<64x128xindex>
  %band = arith.andi %past, %near : vector<64x128xi1>
  %rest = arith.andi %first, %b : vector<64x128xi1>
  %k = arith.andi %band, %rest : vector<64x128xi1>
  %m = arith.select %k, %s, %ninf : vector<64x128xi1>, vector<64x128xf32>
  return %m : vector<64x128xf32>
}

// A limit so large that a sum with it would not fit stays what it is.
// CHECK-LABEL: func.func @huge
// CHECK-NOT: arith.maxsi
// CHECK: arith.cmpi slt
// CHECK: arith.cmpi sge
func.func @huge(%ti: index) -> vector<64x128xi1> {
  %i0 = affine.apply affine_map<(d0) -> (d0 * 64)>(%ti)
  %least = arith.constant dense<-9223372036854775808> : vector<64x128xindex>
  %five = arith.constant dense<5> : vector<64x128xindex>
  %step = vector.step : vector<64xindex>
  %i = vector.broadcast %i0 : index to vector<64xindex>
  %rows = arith.addi %step, %i : vector<64xindex>
  %cstep = vector.step : vector<128xindex>
  %rb = vector.broadcast %rows : vector<64xindex> to vector<128x64xindex>
  %row = vector.transpose %rb, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
  %column = vector.broadcast %cstep : vector<128xindex> to vector<64x128xindex>
  %far = arith.subi %row, %column : vector<64x128xindex>
  %near = arith.cmpi slt, %far, %least : vector<64x128xindex>
  %first = arith.cmpi sge, %column, %five : vector<64x128xindex>
  %k = arith.andi %near, %first : vector<64x128xi1>
  return %k : vector<64x128xi1>
}

// A disjunction has no common limit.
// CHECK-LABEL: func.func @or
// CHECK-NOT: arith.minsi
// CHECK: arith.cmpi sge
// CHECK: arith.cmpi slt
// CHECK: arith.ori
func.func @or(%ti: index, %tj: index, %keys: memref<?xf32>, %s: vector<64x128xf32>) -> vector<64x128xf32> {
  %i0 = affine.apply affine_map<(d0) -> (d0 * 64)>(%ti)
  %j0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%tj)
  %c0 = arith.constant 0 : index
  %n = memref.dim %keys, %c0 : memref<?xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<64x128xf32>
  %step = vector.step : vector<64xindex>
  %i = vector.broadcast %i0 : index to vector<64xindex>
  %rows = arith.addi %step, %i : vector<64xindex>
  %cstep = vector.step : vector<128xindex>
  %j = vector.broadcast %j0 : index to vector<128xindex>
  %columns = arith.addi %cstep, %j : vector<128xindex>
  %rb = vector.broadcast %rows : vector<64xindex> to vector<128x64xindex>
  %row = vector.transpose %rb, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
  %column = vector.broadcast %columns : vector<128xindex> to vector<64x128xindex>
  %end = vector.broadcast %n : index to vector<64x128xindex>
  %a = arith.cmpi sge, %row, %column : vector<64x128xindex>
  %b = arith.cmpi slt, %column, %end : vector<64x128xindex>
  %k = arith.ori %a, %b : vector<64x128xi1>
  %m = arith.select %k, %s, %ninf : vector<64x128xi1>, vector<64x128xf32>
  return %m : vector<64x128xf32>
}

// One upper and one lower bound: nothing to merge.
// CHECK-LABEL: func.func @window
// CHECK-NOT: arith.m{{in|ax}}si
// CHECK: arith.cmpi sge
// CHECK: arith.cmpi slt
// CHECK: arith.andi
func.func @window(%ti: index, %tj: index, %s: vector<64x128xf32>) -> vector<64x128xf32> {
  %i0 = affine.apply affine_map<(d0) -> (d0 * 64)>(%ti)
  %j0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%tj)
  %ninf = arith.constant dense<0xFF800000> : vector<64x128xf32>
  %w = arith.constant dense<48> : vector<64x128xindex>
  %step = vector.step : vector<64xindex>
  %i = vector.broadcast %i0 : index to vector<64xindex>
  %rows = arith.addi %step, %i : vector<64xindex>
  %cstep = vector.step : vector<128xindex>
  %j = vector.broadcast %j0 : index to vector<128xindex>
  %columns = arith.addi %cstep, %j : vector<128xindex>
  %rb = vector.broadcast %rows : vector<64xindex> to vector<128x64xindex>
  %row = vector.transpose %rb, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
  %column = vector.broadcast %columns : vector<128xindex> to vector<64x128xindex>
  %d = arith.subi %row, %column : vector<64x128xindex>
  %a = arith.cmpi sge, %row, %column : vector<64x128xindex>
  %b = arith.cmpi slt, %d, %w : vector<64x128xindex>
  %k = arith.andi %a, %b : vector<64x128xi1>
  %m = arith.select %k, %s, %ninf : vector<64x128xi1>, vector<64x128xf32>
  return %m : vector<64x128xf32>
}

// A captured window of 64 bits may be anything: a limit that is computed with it is clamped.
// CHECK-LABEL: func.func @captured_window
// CHECK-SAME: %[[W:[^:]*]]: index) ->
// CHECK-DAG: %[[MOST:.*]] = arith.constant 1152921504606846976 : index
// CHECK-DAG: %[[LEAST:.*]] = arith.constant -1152921504606846976 : index
// CHECK-DAG: %[[ONE:.*]] = arith.constant dense<1> : vector<64xindex>
// CHECK: %[[MORE:.*]] = arith.maxsi %[[W]], %[[LEAST]]
// CHECK: %[[NEAR:.*]] = arith.minsi %[[MORE]], %[[MOST]]
// CHECK: %[[WIDE:.*]] = vector.broadcast %[[NEAR]]
// CHECK: %[[FAR:.*]] = arith.subi %{{.*}}, %[[WIDE]]
// CHECK: arith.addi %[[FAR]], %[[ONE]]
// CHECK: arith.maxsi
func.func @captured_window(%ti: index, %w: index) -> vector<64x128xi1> {
  %i0 = affine.apply affine_map<(d0) -> (d0 * 64)>(%ti)
  %five = arith.constant dense<5> : vector<64x128xindex>
  %step = vector.step : vector<64xindex>
  %i = vector.broadcast %i0 : index to vector<64xindex>
  %rows = arith.addi %step, %i : vector<64xindex>
  %columns = vector.step : vector<128xindex>
  %rb = vector.broadcast %rows : vector<64xindex> to vector<128x64xindex>
  %row = vector.transpose %rb, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
  %column = vector.broadcast %columns : vector<128xindex> to vector<64x128xindex>
  %wide = vector.broadcast %w : index to vector<64x128xindex>
  %far = arith.subi %row, %column : vector<64x128xindex>
  %near = arith.cmpi slt, %far, %wide : vector<64x128xindex>
  %first = arith.cmpi sge, %column, %five : vector<64x128xindex>
  %k = arith.andi %near, %first : vector<64x128xi1>
  return %k : vector<64x128xi1>
}

// Numbers of 64 bits that were loaded for columns are compared, not summed up.
// CHECK-LABEL: func.func @loaded_columns
// CHECK-NOT: arith.m{{in|ax}}si
// CHECK: arith.cmpi slt
// CHECK: arith.cmpi slt
func.func @loaded_columns(%columns: vector<128xindex>, %x: vector<64xindex>, %y: vector<64xindex>) -> vector<64x128xi1> {
  %column = vector.broadcast %columns : vector<128xindex> to vector<64x128xindex>
  %xb = vector.broadcast %x : vector<64xindex> to vector<128x64xindex>
  %xt = vector.transpose %xb, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
  %yb = vector.broadcast %y : vector<64xindex> to vector<128x64xindex>
  %yt = vector.transpose %yb, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
  %a = arith.cmpi slt, %column, %xt : vector<64x128xindex>
  %b = arith.cmpi slt, %column, %yt : vector<64x128xindex>
  %k = arith.andi %a, %b : vector<64x128xi1>
  return %k : vector<64x128xi1>
}
