# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who computes attention, each as a function of Q, K and V of the shape (B, H, S, D)."""

import contextlib
import importlib
import importlib.util
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .cases import CAP
from .variants import mask_of, score_of


class Unsupported(Exception):
    """This contender does not do this variant."""


class Peer:
    """How one contender does a variant."""

    def __init__(self, call, context=contextlib.nullcontext, lay_out=lambda x: x):
        # `call` takes tensors of which each went through `lay_out`, whose time is nobody's.
        self.call, self.context, self.lay_out = call, context, lay_out

    def bind(self, copies):
        """Calls for each copy of (Q, K, V)."""
        return Contender([partial(self.call, *map(self.lay_out, qkv)) for qkv in copies], self.context)


class Contender:
    """A list of calls, one for each copy of the inputs."""

    def __init__(self, calls, context=contextlib.nullcontext, outputs=()):
        self.calls, self.context = calls, context
        # Tensors that the calls write to; others allocate theirs.
        self.outputs = outputs

    def poison(self):
        for tensors in self.outputs:
            for tensor in tensors:
                tensor.fill_(float("nan"))

    def run(self, copy=0):
        """(O, LSE or None)"""
        self.poison()
        with self.context():
            result = self.calls[copy]()
        return result if isinstance(result, tuple) else (result, None)


# From a case and its captures to a Peer.


def attnc_attention(case, captures):
    from .._attention import attention

    if case.variant == "causal":
        return Peer(partial(attention, is_causal=True))
    if case.variant == "window":
        return Peer(partial(attention, is_causal=True, window=(case.window - 1, 0)))
    return Peer(partial(attention, score_mod=score_of(case, captures), mask_mod=mask_of(case, captures)))


def naive(case, captures):
    score, mask = score_of(case, captures), mask_of(case, captures)

    def call(q, k, v):
        s = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        shapes = (-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)
        index = [torch.arange(n, device=q.device).view(shape) for n, shape in zip((*q.shape[:3], k.shape[2]), shapes)]
        if score:
            s = score(s, *index).to(s.dtype)
        if mask:
            s = s.masked_fill(~mask(*index), float("-inf"))
        return torch.softmax(s, -1).to(v.dtype) @ v

    return Peer(call)


def sdpa(backend, case, captures):
    settings = {}
    if case.variant == "causal":
        settings["is_causal"] = True
    elif case.variant == "bias" and backend == SDPBackend.CUDNN_ATTENTION:
        settings["attn_mask"] = captures["bias"][None]
    elif case.variant != "full":
        raise Unsupported
    return Peer(partial(scaled_dot_product_attention, **settings), lambda: sdpa_kernel(backend))


def flex(case, captures):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    # Else the guards of earlier cases are tried in every call.
    torch._dynamo.reset()
    settings, mask = {}, mask_of(case, captures)
    if mask:
        batch = case.batch if case.variant == "documents" else None
        settings["block_mask"] = create_block_mask(mask, batch, None, case.length, case.length, device="cuda")
    score = score_of(case, captures)
    if score:
        settings["score_mod"] = score
    return Peer(partial(torch.compile(flex_attention, dynamic=False), **settings))


def _transposed(x):
    """As (batch, length, heads, d), dense."""
    result = x.detach().transpose(1, 2).contiguous()
    return result.requires_grad_(x.requires_grad)


def flash(module, case, captures):
    settings = {
        "full": {},
        "causal": {"causal": True},
        "window": {"causal": True, "window_size": (case.window - 1, 0)},
        "softcap": {"softcap": CAP},
    }.get(case.variant)
    if settings is None:
        raise Unsupported
    function = importlib.import_module(module).flash_attn_func

    def call(q, k, v):
        result = function(q, k, v, **settings)
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

    return Peer(call, lay_out=_transposed)


def xformers(case, captures):
    from xformers import ops

    if case.variant not in ("full", "causal"):
        raise Unsupported
    bias = ops.LowerTriangularMask() if case.variant == "causal" else None
    call = lambda q, k, v: ops.memory_efficient_attention(q, k, v, attn_bias=bias).transpose(1, 2)
    return Peer(call, lay_out=_transposed)


def jax_attention(implementation, case, captures):
    from ._jax import make_call

    return Peer(make_call(implementation, case, captures), lay_out=_transposed)


def peers(device):
    """What this machine can import, by name."""
    found = {"naive": naive}
    backends = {"MATH": "sdpa math"}
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        backends.update(CUDNN_ATTENTION="cuDNN", FLASH_ATTENTION="FA2", EFFICIENT_ATTENTION="sdpa efficient")
        found["Flex"] = flex
        for module, name in (("flash_attn", "flash-attn"), ("flash_attn_interface", "FA3")):
            if importlib.util.find_spec(module):
                found[name] = partial(flash, module)
        if importlib.util.find_spec("xformers"):
            found["xFormers"] = xformers
    else:
        backends["FLASH_ATTENTION"] = "sdpa flash"
    for backend, name in backends.items():
        if hasattr(SDPBackend, backend):
            found[name] = partial(sdpa, getattr(SDPBackend, backend))
    if importlib.util.find_spec("jax"):
        found["JAX XLA"] = partial(jax_attention, "xla")
        if on_gpu:
            found["JAX cuDNN"] = partial(jax_attention, "cudnn")
    return found
