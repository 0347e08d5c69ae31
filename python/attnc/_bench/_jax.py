# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""jax.nn.dot_product_attention on tensors of PyTorch. DLPack brings them over without a
copy, and makes the streams of the two wait for each other: events of PyTorch see the time
that it takes."""

import os

import torch

from .contenders import Unsupported

# Else it takes most of the GPU's memory when it starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _settings(case, captures, jax):
    if case.variant in ("full", "causal"):
        return {"is_causal": case.variant == "causal"}
    if case.variant == "window":
        return {"is_causal": True, "local_window_size": (case.window - 1, 0)}
    if case.variant == "bias":
        return {"bias": jax.dlpack.from_dlpack(captures["bias"].contiguous()[None])}
    raise Unsupported


def make_call(implementation, case, captures):
    """From Q, K and V of the shape (B, S, H, D) to O of (B, H, S, D), with gradients."""
    import jax

    if any(x.is_cuda for x in captures.values()) or torch.cuda.is_available():
        if jax.default_backend() != "gpu":
            raise RuntimeError(f"this JAX has no GPU, only {jax.default_backend()}")
    settings = _settings(case, captures, jax)

    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, implementation=implementation, **settings)

    forward = jax.jit(attend)
    # What the backward needs comes out as part of a function.
    forward_and_rest = jax.jit(lambda q, k, v: jax.vjp(attend, q, k, v))
    backward = jax.jit(lambda rest, do: rest(do))
    to_jax, to_torch = jax.dlpack.from_dlpack, torch.from_dlpack

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *qkv):
            o, ctx.rest = forward_and_rest(*(to_jax(x.detach()) for x in qkv))
            return to_torch(o)

        @staticmethod
        def backward(ctx, do):
            return tuple(map(to_torch, backward(ctx.rest, to_jax(do.contiguous()))))

    def call(q, k, v):
        if torch.is_grad_enabled() and q.requires_grad:
            return Attention.apply(q, k, v).transpose(1, 2)
        return to_torch(forward(*(to_jax(x.detach()) for x in (q, k, v)))).transpose(1, 2)

    return call
