# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc and its peers, each as a list of calls, one for each copy of the inputs."""

import contextlib
import importlib.util
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .cells import CAP, WINDOW
from .variants import mask_of, score_of


class Unsupported(Exception):
    """This contender does not do this variant."""


class Contender:
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


class Attnc:
    """Compiles each module once."""

    def __init__(self, options, pipeline):
        self.options, self.pipeline, self.known = options, pipeline, {}

    def compile(self, cell):
        import attnc

        element = {"bfloat16": "bf16", "float16": "f16"}[self.options.type]
        text = cell.module(element, self.options.static)
        if text not in self.known:
            self.known[text] = attnc.Executable(text, pipeline=self.pipeline, cache_directory="")
        return self.known[text]

    def __call__(self, cell, inputs):
        executable = self.compile(cell)
        calls, outputs = [], []
        for q, k, v in inputs.copies:
            out = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
            outputs.append(out)
            calls.append(partial(executable, q, k, v, *inputs.captures.values(), out=out))
        return Contender(calls, outputs=outputs)


def sdpa(backend, cell, inputs):
    settings = {}
    if cell.variant == "causal":
        settings["is_causal"] = True
    elif cell.variant == "bias" and backend == SDPBackend.CUDNN_ATTENTION:
        settings["attn_mask"] = inputs.captures["bias"][None]
    elif cell.variant != "full":
        raise Unsupported
    calls = [partial(scaled_dot_product_attention, *qkv, **settings) for qkv in inputs.copies]
    return Contender(calls, lambda: sdpa_kernel(backend))


def flex(cell, inputs):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    # Else the guards of earlier cells are tried in every call.
    torch._dynamo.reset()
    settings, mask = {}, mask_of(cell, inputs.captures)
    if mask:
        batch = cell.batch if cell.variant == "documents" else None
        settings["block_mask"] = create_block_mask(mask, batch, None, cell.length, cell.length,
                                                   device=inputs.device)
    score = score_of(cell, inputs.captures)
    if score:
        settings["score_mod"] = score
    compiled = torch.compile(flex_attention, dynamic=False)
    return Contender([partial(compiled, *qkv, **settings) for qkv in inputs.copies])


def flash3(cell, inputs):
    settings = {"full": {}, "causal": {"causal": True}, "window": {"causal": True, "window_size": (WINDOW - 1, 0)},
                "softcap": {"softcap": CAP}}.get(cell.variant)
    if settings is None:
        raise Unsupported
    function = importlib.import_module("flash_attn_interface").flash_attn_func

    def call(q, k, v):
        result = function(q, k, v, **settings)
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

    # It takes (batch, length, heads, d).
    return Contender([partial(call, *(x.transpose(1, 2).contiguous() for x in qkv)) for qkv in inputs.copies])


def peers():
    result = {"cuDNN": partial(sdpa, SDPBackend.CUDNN_ATTENTION), "FA2": partial(sdpa, SDPBackend.FLASH_ATTENTION),
              "Flex": flex}
    if importlib.util.find_spec("flash_attn_interface"):
        result["FA3"] = flash3
    return result
