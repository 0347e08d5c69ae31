// The vector (1, -1): i and j may not change places. See docs/dependence-engine.md.
func.func @skewed(%A: memref<100x100xf32> {attn.name = "A"}) {
  affine.for %i = 1 to 100 {
    affine.for %j = 0 to 99 {
      %0 = affine.load %A[%i - 1, %j + 1] : memref<100x100xf32>
      affine.store %0, %A[%i, %j] : memref<100x100xf32>
    }
  }
  return
}
