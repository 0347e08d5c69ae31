// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-merge-bounds,canonicalize,cse))" | FileCheck %s

// The diagonal and the end of the keys: one limit per row, one comparison per element.
// CHECK-LABEL: func.func @causal_end
// CHECK-SAME: %[[I0:[^:]*]]: index, %[[J0:[^:]*]]: index, %[[N:[^:]*]]: index, %[[S:[^:]*]]:
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
func.func @causal_end(%i0: index, %j0: index, %n: index, %s: vector<64x128xf32>) -> vector<64x128xf32> {
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
// CHECK-SAME: %[[I0:[^:]*]]: index, %[[J0:[^:]*]]: index, %[[N:[^:]*]]: index, %[[S:[^:]*]]:
// CHECK-DAG: %[[NEAR:.*]] = arith.constant dense<-99> : vector<64xindex>
// CHECK: %[[ROWS:.*]] = arith.addi {{.*}} vector<64xindex>
// CHECK: %[[LIMIT:.*]] = arith.minsi %[[ROWS]],
// CHECK: arith.cmpi sle
// CHECK: %[[FAR:.*]] = arith.addi %[[ROWS]], %[[NEAR]]
// CHECK: %[[FIRST:.*]] = arith.maxsi %[[FAR]], %{{.*}} : vector<64xindex>
// CHECK: arith.cmpi sge
// CHECK-NOT: arith.cmpi
// CHECK: arith.select
func.func @band_from_five(%i0: index, %j0: index, %n: index, %s: vector<64x128xf32>) -> vector<64x128xf32> {
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
func.func @huge(%i0: index, %s: vector<64x128xi1>) -> vector<64x128xi1> {
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
func.func @or(%i0: index, %j0: index, %n: index, %s: vector<64x128xf32>) -> vector<64x128xf32> {
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
func.func @window(%i0: index, %j0: index, %s: vector<64x128xf32>) -> vector<64x128xf32> {
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
