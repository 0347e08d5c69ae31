# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import attnc
import numpy as np

IR = """
func.func @f(%q: tensor<?x?x?x8xf32>, %k: tensor<?x?x?x8xf32>, %v: tensor<?x?x?x4xf32>)
    -> (tensor<?x?x?x4xf32>, tensor<?x?x?xf32>) {
  %o, %l = attn.forward %q, %k, %v : tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>, tensor<?x?x?x4xf32>
      -> tensor<?x?x?x4xf32>, tensor<?x?x?xf32>
  return %o, %l : tensor<?x?x?x4xf32>, tensor<?x?x?xf32>
}
"""


def reference(q, k, v):
    s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1])
    m = s.max(-1, keepdims=True)
    p = np.exp(s - m)
    return np.einsum("bhij,bhjd->bhid", p, v) / p.sum(-1, keepdims=True), (m + np.log(p.sum(-1, keepdims=True)))[..., 0]


def expect_error(text, call):
    try:
        call()
    except attnc.Error as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError("no error")


f = attnc.Executable(IR, target="cpu")
assert f.arguments[0].shape == (-1, -1, -1, 8) and f.results[1].type == "float32"
rng = np.random.default_rng(0)
for b, h, sq, sk in [(1, 2, 5, 9), (2, 1, 1, 70), (1, 2, 5, 9)]:
    q, k = (rng.standard_normal((b, h, s, 8), dtype="float32") for s in (sq, sk))
    # Not dense: heads inside of the sequence.
    v = rng.standard_normal((b, sk, h, 4), dtype="float32").transpose(0, 2, 1, 3)
    for got, want in zip(f(q, k, v), reference(q, k, v)):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
out = np.empty((1, 2, 5, 4), "float32"), np.empty((1, 2, 5), "float32")
f(q, k, v, out=out)
np.testing.assert_allclose(out[0], reference(q, k, v)[0], rtol=2e-5, atol=2e-5)
expect_error("expected argument 2 dimension 2 to be equal to argument 1 dimension 2", lambda: f(q, k, v[:, :, 1:]))
expect_error("expected a float32 tensor of 4 dimensions at 0, got float64 of 4", lambda: f(q.astype("float64"), k, v))
expect_error("expected 3 arguments, got 2", lambda: f(q, k))
expect_error("result 0 dimension 2", lambda: f(q, k, v, out=(np.empty((1, 2, 6, 4), "float32"), out[1])))
expect_error("ir:", lambda: attnc.Executable("func.func @f(", target="cpu"))
TARGETS = ["cpu", "sm_90", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120"]
expect_error(f"expected target {', '.join(TARGETS)} or cuda, got 'tpu'", lambda: attnc.Executable(IR, target="tpu"))
assert attnc.targets() == TARGETS
