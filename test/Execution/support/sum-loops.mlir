// Sums of rows.
func.func @main(%X: memref<?x?xf32>, %S: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %X, %c0 : memref<?x?xf32>
  %n = memref.dim %X, %c1 : memref<?x?xf32>
  affine.for %i = 0 to %m {
    affine.for %j = 0 to %n {
      %x = affine.load %X[%i, %j] : memref<?x?xf32>
      %s = affine.load %S[%i] : memref<?xf32>
      %t = arith.addf %s, %x : f32
      affine.store %t, %S[%i] : memref<?xf32>
    }
  }
  return
}
