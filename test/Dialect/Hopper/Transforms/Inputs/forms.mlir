func.func @nested(%m: memref<8x8xf32>) {
  scf.forall (%i) in (8) {
    scf.forall (%j) in (8) {
      %v = memref.load %m[%i, %j] : memref<8x8xf32>
      memref.store %v, %m[%j, %i] : memref<8x8xf32>
    }
  }
  return
}
