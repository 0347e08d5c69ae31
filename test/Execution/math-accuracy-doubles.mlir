// RUN: attn-opt %s --convert-elementwise-to-linalg --attn-expand-math=doubles -o %t.mlir
// RUN: %python %S/support/math_accuracy.py %attn_bin/attn-run %t.mlir %t
// Functions of f64 as GPUs compute them, by the CPU.

func.func @exp_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.exp %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @exp2_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.exp2 %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @log_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.log %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @log2_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.log2 %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @log10_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.log10 %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @rsqrt_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.rsqrt %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @tanh_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.tanh %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @log1p_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.log1p %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @expm1_f64(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.expm1 %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
