// RUN: %python %S/support/math_accuracy.py %attn_bin/attn-run %s %t
// The functions that attn-expand-math writes itself, and erf and erfc of f64, which
// the library serves, in machine code, against float64 (extended precision for f64),
// in units in the last place.

func.func @exp_f32(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = math.exp %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @exp_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.exp %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @tanh_f32(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = math.tanh %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @tanh_f16(%x: tensor<?xf16>) -> tensor<?xf16> {
  %y = math.tanh %x : tensor<?xf16>
  return %y : tensor<?xf16>
}
func.func @sin_f32(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = math.sin %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @cos_f32(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = math.cos %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @sin_f16(%x: tensor<?xf16>) -> tensor<?xf16> {
  %y = math.sin %x : tensor<?xf16>
  return %y : tensor<?xf16>
}
func.func @atan_f32(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = math.atan %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @log1p_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.log1p %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @expm1_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.expm1 %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @erf_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.erf %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @erfc_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.erfc %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
