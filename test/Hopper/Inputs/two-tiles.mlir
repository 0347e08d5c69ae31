func.func @main(%q: tensor<1x1x75x216xf16>, %k: tensor<1x1x82x216xf16>, %v: tensor<1x1x82x248xf16>) -> tensor<1x1x75x248xf16> {
  %o = attn.forward %q, %k, %v
    : tensor<1x1x75x216xf16>, tensor<1x1x82x216xf16>, tensor<1x1x82x248xf16> -> tensor<1x1x75x248xf16>
  return %o : tensor<1x1x75x248xf16>
}
