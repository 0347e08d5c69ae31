# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention whose second batch lies more than 2^31 elements behind the first one, in
every tensor: on the CPU with memory that is never touched in between, on a GPU with
PyTorch's tensors."""

import sys

import attnc
import numpy as np

TARGET = sys.argv[1]
IR = """
!t = tensor<?x?x?x64xf16>
func.func @f(%q: !t, %k: !t, %v: !t, %bias: tensor<?x?x?xf32>) -> (!t, tensor<?x?x?xf32>) {
  %o, %l = attn.forward %q, %k, %v captures(%bias : tensor<?x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<?x?x?xf32>):
      %x = tensor.extract %t[%b, %i, %j] : tensor<?x?x?xf32>
      %y = arith.addf %s, %x : f32
      attn.yield %y : f32
    } : !t, !t, !t -> !t, tensor<?x?x?xf32>
  return %o, %l : !t, tensor<?x?x?xf32>
}
"""
BATCH = 2**31 + 2**20
HEADS, QUERIES, KEYS, SIZE = 2, 130, 200, 64


def place(shape, dtype):
    """A tensor of zeros with batches that far apart."""
    strides = [BATCH] + [int(np.prod(shape[i + 1:])) for i in range(1, len(shape))]
    if TARGET == "cuda":
        import torch
        return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device="cuda").zero_()
    memory = np.zeros(BATCH + strides[1] * shape[1], dtype)
    return np.lib.stride_tricks.as_strided(memory, shape, [s * memory.itemsize for s in strides])


def fill(tensor, values):
    if TARGET == "cuda":
        import torch
        values = torch.from_numpy(values)
    tensor[...] = values


rng = np.random.default_rng(0)
data = [rng.standard_normal((2, HEADS, length, SIZE)).astype("float16") for length in (QUERIES, KEYS, KEYS)]
data.append(rng.standard_normal((2, QUERIES, KEYS)).astype("float32"))
arguments = [place(x.shape, str(x.dtype)) for x in data]
for tensor, values in zip(arguments, data):
    fill(tensor, values)
out = place((2, HEADS, QUERIES, SIZE), "float16"), place((2, HEADS, QUERIES), "float32")
attnc.Executable(IR, target=TARGET)(*arguments, out=out)
o, lse = (x.cpu().numpy() if TARGET == "cuda" else np.asarray(x) for x in out)

q, k, v, bias = (x.astype("float64") for x in data)
s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(SIZE) + bias[:, None]
m = s.max(-1, keepdims=True)
p = np.exp(s - m)
total = p.sum(-1, keepdims=True)
np.testing.assert_allclose(lse, (m + np.log(total))[..., 0], atol=1e-5)
# Weights and results are rounded to 2^-11.
size = np.einsum("bhij,bhjd->bhid", p / total, np.abs(v))
want = np.einsum("bhij,bhjd->bhid", p / total, v)
assert (np.abs(o - want) <= 2.0**-11 * (size + np.abs(want)) + 1e-6).all()
